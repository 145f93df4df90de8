//! `proxy_cache_tag`: what entries can be purged by besides their keys.
//!
//! The tags of an entry stand in its head, separated by spaces. Beside those of the configuration
//! each has some that nobody outside can write, because they begin with a control character: the
//! host that its request was for, the site that it belongs to, and the groups that its origin put
//! it in (RFC 9875).
//!
//! 1. No tag is lost silently: an entry with more than fit is marked, and is among what any purge
//!    by tags hits.

use bytes::Bytes;
use millpond_conf::Template;

/// Bytes of all tags of an entry (as at the large CDNs).
const TAGS_LEN_MAX: usize = 16 << 10;
/// Bytes of one tag; of a longer one the beginning counts, in answers and in purges.
const TAG_LEN_MAX: usize = 1024;

const HOST: u8 = 1;
const SITE: u8 = 2;
const GROUP: u8 = 4;
/// The mark of an entry with more tags than fit.
pub(crate) const TOO_MANY: &[u8] = &[3];

/// Tags that entries are stored with.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct TagPolicy {
    /// Values that name what an entry can be purged by (`proxy_cache_purge`), evaluated when its
    /// answer is stored: `$upstream_http_surrogate_key`, `$upstream_http_cache_tag`,
    /// `$upstream_http_xkey` and the like. Spaces and commas separate tags. Without the directive
    /// entries have none.
    #[directive(name = "proxy_cache_tag")]
    pub tags: Option<Vec<Template>>,
    /// Groups answers as their origin says (Cache Groups, RFC 9875): an answer is stored with the
    /// groups that its Cache-Groups names, and when a request with an unsafe method has succeeded,
    /// what is stored in one of the groups that Cache-Group-Invalidation of its answer names is
    /// purged before the client gets the answer. Groups are those of one host and port. The purge
    /// is a hard one by its groups, as durable as any other, and holds on all nodes of a fleet.
    #[directive(name = "proxy_cache_groups", default = "off")]
    pub groups: bool,
}

/// Gathers the tags of an entry.
#[derive(Debug, Default)]
pub struct TagWriter {
    text: Vec<u8>,
    is_full: bool,
}

impl TagWriter {
    /// The tags of an entry that is filled for a host and by a site.
    pub fn new(host: &[u8], site: &[u8]) -> Self {
        let mut tags = TagWriter {
            // Each has a letter, and a space behind it.
            text: Vec::with_capacity(host.len() + site.len() + 4),
            is_full: false,
        };
        tags.push(&of_host(host));
        tags.push(&of_site(site));
        tags
    }

    /// Adds all tags of a value.
    pub fn push_all(&mut self, value: &[u8]) {
        for tag in split(value) {
            self.push(tag);
        }
    }

    /// Adds a group of an origin.
    pub fn push_group(&mut self, origin: &[u8], name: &[u8]) {
        self.push(&of_group(origin, name));
    }

    fn push(&mut self, tag: &[u8]) {
        let tag = tag.get(..TAG_LEN_MAX).unwrap_or(tag);
        if self.text.len() + tag.len() >= TAGS_LEN_MAX {
            self.is_full = true;
            return;
        }
        if !self.text.is_empty() {
            self.text.push(b' ');
        }
        self.text.extend_from_slice(tag);
    }

    /// All tags, as a head has them.
    pub fn finish(mut self) -> Bytes {
        if self.is_full {
            // INVARIANT 1.
            self.text.push(b' ');
            self.text.extend_from_slice(TOO_MANY);
        }
        Bytes::from(self.text)
    }
}

/// The tags of a stored answer that was validated: the place of the old ones, the groups of the
/// fresh ones, and what the fresh ones are given, or the old ones were if those are given nothing:
/// an answer that has not changed need not say its tags again.
pub(crate) fn renewed(old: &[u8], fresh: &[u8]) -> Bytes {
    let tells = given(fresh).next().is_some();
    let is_place = |tag: &&[u8]| matches!(tag.first(), Some(&(HOST | SITE)));
    let mut tags = TagWriter {
        text: Vec::with_capacity(old.len().max(fresh.len())),
        is_full: of_head(fresh).any(|tag| tag == TOO_MANY),
    };
    let own = of_head(old).filter(is_place);
    let named = given(if tells { fresh } else { old });
    let grouped = of_head(fresh).filter(|tag| is_group(tag));
    own.chain(named)
        .chain(grouped)
        .for_each(|tag| tags.push(tag));
    tags.is_full |= !tells && of_head(old).any(|tag| tag == TOO_MANY);
    tags.finish()
}

/// The tags that a value names.
pub fn split(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    parts.filter(|tag| !tag.is_empty() && tag.iter().all(|byte| *byte > b' '))
}

/// The tags of a head.
pub(crate) fn of_head(tags: &[u8]) -> impl Iterator<Item = &[u8]> {
    tags.split(|byte| *byte == b' ')
        .filter(|tag| !tag.is_empty())
}

/// The host that an entry was filled for, by its tags.
pub fn host(tags: &[u8]) -> Option<&[u8]> {
    of_head(tags).find_map(|tag| tag.strip_prefix(&[HOST]))
}

/// The site that an entry belongs to, by its tags.
pub fn site(tags: &[u8]) -> Option<&[u8]> {
    of_head(tags).find_map(|tag| tag.strip_prefix(&[SITE]))
}

/// The tags that the configuration gave an entry.
pub fn given(tags: &[u8]) -> impl Iterator<Item = &[u8]> {
    of_head(tags).filter(|tag| tag.first().is_some_and(|first| *first > b' '))
}

/// The groups that an entry was put in by its origin.
pub fn groups(tags: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    of_head(tags).filter_map(|tag| group_and_origin(tag).map(|(name, _)| name))
}

/// Tags as people read them, with spaces between: groups in quotes, behind their origin.
pub(crate) fn texts(tags: &[Bytes]) -> Vec<u8> {
    let texts = tags.iter().map(|tag| match group_and_origin(tag) {
        Some((name, origin)) => [origin, b"/\"", &name, b"\""].concat(),
        None => tag.to_vec(),
    });
    texts.collect::<Vec<_>>().join(&b' ')
}

/// True for the tag of a group.
pub(crate) fn is_group(tag: &[u8]) -> bool {
    tag.first() == Some(&GROUP)
}

/// Name of the group that a tag is of, and the origin whose group it is.
pub(crate) fn group_and_origin(tag: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let rest = tag.strip_prefix(&[GROUP])?;
    let mut parts = rest.splitn(2, |byte| *byte == b'/');
    let (origin, name) = parts.next().zip(parts.next())?;
    let name = name.iter().map(|byte| match *byte {
        SPACE_OF_GROUP => b' ',
        byte => byte,
    });
    Some((name.collect(), origin))
}

/// Kind of a head's tag, and its name.
pub(crate) fn kind_and_name(tag: &[u8]) -> (&'static str, &[u8]) {
    match tag {
        [HOST, name @ ..] => ("host", name),
        [SITE, name @ ..] => ("site", name),
        [GROUP, name @ ..] => ("group", name),
        name => ("tag", name),
    }
}

/// Part of a tag that counts.
pub(crate) fn cut(tag: Bytes) -> Bytes {
    let len = tag.len().min(TAG_LEN_MAX);
    tag.slice(..len)
}

/// The tag of a host.
pub(crate) fn of_host(name: &[u8]) -> Bytes {
    of_name(HOST, name)
}

/// The tag of a site.
pub(crate) fn of_site(name: &[u8]) -> Bytes {
    of_name(SITE, name)
}

/// Byte that stands for a space in the name of a group, which has no control characters.
const SPACE_OF_GROUP: u8 = 0x1f;

/// The tag of a group of an origin, which is a host, or a host with its port. Letters of the name
/// count as they are written (RFC 9875 §2.1).
pub fn of_group(origin: &[u8], name: &[u8]) -> Bytes {
    let mut tag = of_name(GROUP, origin).to_vec();
    tag.push(b'/');
    tag.extend(name.iter().map(|byte| match *byte {
        b' ' => SPACE_OF_GROUP,
        byte => byte,
    }));
    cut(Bytes::from(tag))
}

/// Names are compared in lower case; what would end a tag is part of it as an underscore.
fn of_name(kind: u8, name: &[u8]) -> Bytes {
    let plain = |byte: &u8| match byte {
        b' ' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    let mut tag = Vec::with_capacity(1 + name.len().min(TAG_LEN_MAX));
    tag.push(kind);
    tag.extend(name.iter().map(plain).take(TAG_LEN_MAX - 1));
    Bytes::from(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_that_was_validated_has_the_tags_that_it_tells_now() {
        let tags = |host: &[u8], given: &[u8], group: &[u8]| {
            let mut tags = TagWriter::new(host, b"site");
            tags.push_all(given);
            tags.push_group(b"h", group);
            tags.finish()
        };
        let old = tags(b"h", b"a b", b"g");
        let fresh = tags(b"other", b"c", b"k");
        assert_eq!(renewed(&old, &fresh), tags(b"h", b"c", b"k"));
        let silent = tags(b"h", b"", b"k");
        assert_eq!(renewed(&old, &silent), tags(b"h", b"a b", b"k"));
        let full = |tags: &Bytes| [&tags[..], b" ", TOO_MANY].concat();
        assert_eq!(
            renewed(&full(&old), &silent),
            full(&tags(b"h", b"a b", b"k"))
        );
        assert_eq!(renewed(&full(&old), &fresh), tags(b"h", b"c", b"k"));
    }

    #[test]
    fn spaces_and_commas_separate_and_control_characters_are_ours() {
        let mut tags = TagWriter::new(b"A.example", b"site one");
        tags.push_all(b"a b,c,, d\te \x01forged");
        let text = tags.finish();
        assert_eq!(text.as_ref(), b"\x01a.example \x02site_one a b c d e");
        let given: Vec<_> = of_head(&text).filter(|tag| tag[0] > b' ').collect();
        assert_eq!(given, [b"a", b"b", b"c", b"d", b"e"]);
    }

    #[test]
    fn too_many_tags_are_marked() {
        let mut tags = TagWriter::new(b"h", b"s");
        for number in 0..5000 {
            tags.push_all(format!("tag-{number}").as_bytes());
        }
        let text = tags.finish();
        assert!(text.len() <= TAGS_LEN_MAX + 2);
        assert!(of_head(&text).any(|tag| tag == TOO_MANY));
    }

    #[test]
    fn of_a_long_tag_the_beginning_counts() {
        let long = vec![b'x'; 5000];
        let mut tags = TagWriter::new(b"h", b"s");
        tags.push_all(&long);
        let text = tags.finish();
        let wanted = cut(Bytes::from(long));
        assert!(of_head(&text).any(|tag| tag == wanted));
    }

    #[test]
    fn groups_are_told_apart_by_origin_and_letters_and_read_back() {
        let mut tags = TagWriter::new(b"host", b"site");
        tags.push_group(b"Host:81", b"a B");
        tags.push_all(b"a/B");
        let tags = tags.finish();
        assert_eq!(groups(&tags).collect::<Vec<_>>(), [b"a B"]);
        assert_eq!(given(&tags).collect::<Vec<_>>(), [b"a/B"]);
        let has = |tag: Bytes| of_head(&tags).any(|it| it == tag);
        assert!(has(of_group(b"host:81", b"a B")));
        for (origin, name) in [("host", "a B"), ("host:81", "a b"), ("host:81", "a_B")] {
            assert!(
                !has(of_group(origin.as_bytes(), name.as_bytes())),
                "{origin} {name}"
            );
        }
        let shown = texts(&[of_group(b"host:81", b"a B"), Bytes::from_static(b"x")]);
        assert_eq!(shown, b"host:81/\"a B\" x");
    }
}
