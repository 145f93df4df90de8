//! `disable_symlinks`: whether the way to a file may go through symbolic links.
//!
//! Where it may not, a path is walked name by name, each opened in the folder before it, so that
//! what was looked at is what is opened, and nobody can put a link in between:
//!
//! ```text
//! /data/site/a.gif                  /  ─►  data  ─►  site  ─►  a.gif
//! the same, from=/data              /data (links are followed)  ─►  site  ─►  a.gif
//! ```
//!
//! Each name costs a call, or three with `if_not_owner`.
//!
//! Invariant: a path is opened under the same rule that it is tested under.
//!
//! Sources: nginx ngx_http_set_disable_symlinks, ngx_open_file_wrapper, ngx_openat_file_owner.

use std::os::fd::OwnedFd;

use millpond_conf::{ArgError, Args, FromArgs, Template};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::open_file::PathError;
use crate::content::settings::ContentSettings;
use crate::request::Request;

/// The flags with which a folder on the way is opened: only to look further.
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The symbolic links that are followed.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SymlinkPolicy {
    /// Refuses files behind symbolic links (403): all of them (`on`), or those whose link belongs
    /// to somebody else than what it points to (`if_not_owner`). Every name of a path counts; with
    /// `from=` only those behind its begin, such as `from=$document_root`, or each if the path
    /// begins otherwise. It takes some calls of the system for each name.
    #[directive(name = "disable_symlinks", default = "off")]
    pub rule: SymlinkRule,
}

/// The words of the directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkRule {
    followed: Followed,
    /// The begin of paths whose links are followed in any case.
    from: Option<Template>,
}

/// The symbolic links that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    All,
    OfOwner,
    None,
}

impl FromArgs for SymlinkRule {
    const SYNTAX: &'static str = "off | on | if_not_owner [from=part]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let mut followed = None;
        let mut from = None;
        for (at, word) in words.iter().enumerate().take(2) {
            match word.text.as_str() {
                "off" => followed = Some(Followed::All),
                "if_not_owner" => followed = Some(Followed::OfOwner),
                "on" => followed = Some(Followed::None),
                other => {
                    let Some(template) = args.after(at, "from=") else {
                        let message = format!("invalid parameter \"{other}\"");
                        return Err(ArgError::value(at, message));
                    };
                    from = Some(template?);
                }
            }
        }
        match (followed, words) {
            (_, [_, _, _, ..]) => Err(ArgError::Count),
            (None, _) => Err(ArgError::other(
                "\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter",
            )),
            (Some(_), [_, _]) if from.is_none() => {
                let message = "one of \"off\", \"on\" and \"if_not_owner\" is enough";
                Err(ArgError::value(1, message))
            }
            (Some(Followed::All), [_, _]) => Err(ArgError::other(
                "\"from=\" cannot be used with \"off\" parameter",
            )),
            (Some(followed), _) => Ok(SymlinkRule { followed, from }),
        }
    }
}

/// The symbolic links of one path that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    followed: Followed,
    /// The length of the folder whose own way is not looked at; 0 for the root folder.
    trusted: usize,
}

impl Links {
    /// All links.
    pub(crate) const ALL: Links = Links {
        followed: Followed::All,
        trusted: 0,
    };

    /// The links of a path that a request of this location names.
    pub(crate) fn of(req: &mut Request, path: &[u8]) -> Links {
        let rule = &req.location.settings.of::<ContentSettings>().symlinks.rule;
        let followed = rule.followed;
        if followed == Followed::All {
            return Links::ALL;
        }
        let from = rule.from.clone().map(|from| req.eval(&from));
        Links::behind(followed, path, &from.unwrap_or_default())
    }

    /// The links of a path that may begin with `from`.
    fn behind(followed: Followed, path: &[u8], from: &[u8]) -> Links {
        let trusted = match path.strip_prefix(from) {
            Some([]) => return Links::ALL,
            Some([b'/', ..]) => from.len(),
            Some(_) if from.ends_with(b"/") => from.len() - 1,
            _ => 0,
        };
        Links { followed, trusted }
    }

    /// True when nothing has to be looked at.
    pub(crate) fn follows_all(self) -> bool {
        self.followed == Followed::All
    }

    /// Opens a path; a link that is not followed is [`Errno::LOOP`].
    pub(crate) fn open(self, path: &[u8], flags: OFlags) -> Result<OwnedFd, PathError> {
        let (start, names) = match path.split_at_checked(self.trusted) {
            Some((start @ [_, ..], names)) => (start, names),
            _ if path.starts_with(b"/") => (&b"/"[..], path),
            _ => (&b"."[..], path),
        };
        let opened = rustix::fs::open(start, FOLDER, Mode::empty());
        let folder = opened.map_err(|errno| failed("open()", errno))?;
        let walked = self.walk(folder, names, flags);
        walked.map_err(|errno| failed("openat()", errno))
    }

    /// Goes from a folder to what the names lead to; with a slash behind the last, a folder.
    fn walk(self, start: OwnedFd, names: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let (folders, last) = match memchr::memrchr(b'/', names) {
            Some(at) => names.split_at(at),
            None => (&b""[..], names),
        };
        let last = last.strip_prefix(b"/").unwrap_or(last);
        let mut folder = start;
        for name in folders.split(|byte| *byte == b'/') {
            if !name.is_empty() {
                folder = self.step(&folder, name, FOLDER)?;
            }
        }
        match last {
            b"" => rustix::fs::openat(&folder, ".", flags, Mode::empty()),
            name => self.step(&folder, name, flags),
        }
    }

    /// Opens a name in a folder.
    fn step(self, folder: &OwnedFd, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.followed {
            Followed::All => rustix::fs::openat(folder, name, flags, Mode::empty()),
            Followed::None => {
                rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            Followed::OfOwner => {
                let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
                // nginx: nobody can tell whether it was a link when it was opened, so the owners
                // count in any case.
                let link = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if rustix::fs::fstat(&file)?.st_uid == link.st_uid {
                    Ok(file)
                } else {
                    Err(Errno::LOOP)
                }
            }
        }
    }
}

fn failed(call: &'static str, errno: Errno) -> PathError {
    PathError { call, errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{LoadOptions, ParseContext, load_text};

    fn read(text: &str) -> Result<SymlinkRule, ArgError> {
        let text = format!("disable_symlinks {text};");
        let options = LoadOptions::default();
        let tree = load_text("t.conf", text, &options, &mut Default::default());
        let line = &tree.statements[0];
        SymlinkRule::from_args(&mut Args {
            name: &line.name,
            words: &line.args,
            body: None,
            cx: &mut ParseContext::new("/prefix", "/conf"),
        })
    }

    #[test]
    fn words_stand_in_any_order() {
        for (text, followed, has_from) in [
            ("off", Followed::All, false),
            ("on", Followed::None, false),
            ("if_not_owner", Followed::OfOwner, false),
            ("on from=$document_root", Followed::None, true),
            ("from=/a if_not_owner", Followed::OfOwner, true),
        ] {
            let rule = read(text).unwrap();
            assert_eq!((rule.followed, rule.from.is_some()), (followed, has_from));
        }
        for text in [
            "",
            "maybe",
            "from=/a",
            "off from=/a",
            "on off",
            "on from=/a x",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn links_of_the_begin_of_a_path_are_followed() {
        for (path, from, trusted) in [
            ("/a/b/c", "", Some(0)),
            ("/a/b/c", "/a", Some(2)),
            ("/a/b/c", "/a/", Some(2)),
            ("/a/b/c", "/", Some(0)),
            ("/a/b/c", "/a/b/c", None),
            ("/ab/c", "/a", Some(0)),
            ("/a/b", "/a/b/c", Some(0)),
            ("/a/b", "/x", Some(0)),
        ] {
            let links = Links::behind(Followed::None, path.as_bytes(), from.as_bytes());
            let expected = trusted.map_or(Links::ALL, |trusted| Links {
                followed: Followed::None,
                trusted,
            });
            assert_eq!(links, expected, "{path} {from}");
        }
    }

    #[test]
    fn links_are_refused_wherever_they_stand() {
        let dir = tempfile::tempdir().unwrap();
        // A temporary folder may itself be behind a link.
        let root = dir.path().canonicalize().unwrap();
        let root = root.to_str().unwrap();
        std::fs::create_dir(format!("{root}/d")).unwrap();
        std::fs::write(format!("{root}/d/f"), "x").unwrap();
        std::os::unix::fs::symlink("d", format!("{root}/dl")).unwrap();
        std::os::unix::fs::symlink("f", format!("{root}/d/fl")).unwrap();
        std::os::unix::fs::symlink("nothing", format!("{root}/d/dead")).unwrap();
        let open = |followed, name: &str, trusted| {
            let links = Links { followed, trusted };
            let path = format!("{root}/{name}");
            let file = links.open(path.as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK);
            file.map(drop).map_err(|error| error.errno)
        };
        for (name, followed, expected) in [
            ("d/f", Followed::None, Ok(())),
            ("./d//../d/f", Followed::None, Ok(())),
            ("d", Followed::None, Ok(())),
            ("d/", Followed::None, Ok(())),
            ("d/fl", Followed::None, Err(Errno::LOOP)),
            ("d/dead", Followed::None, Err(Errno::LOOP)),
            ("dl/f", Followed::None, Err(Errno::NOTDIR)),
            ("d/f/", Followed::None, Err(Errno::NOTDIR)),
            ("d/none", Followed::None, Err(Errno::NOENT)),
            // The same hand made all of it.
            ("d/fl", Followed::OfOwner, Ok(())),
            ("dl/f", Followed::OfOwner, Ok(())),
            ("d/fl/", Followed::OfOwner, Err(Errno::NOTDIR)),
            ("d/dead", Followed::OfOwner, Err(Errno::NOENT)),
        ] {
            assert_eq!(open(followed, name, 0), expected, "{name}");
        }
        let trusted = root.len() + "/dl".len();
        assert_eq!(open(Followed::None, "dl/f", trusted), Ok(()));
        assert_eq!(open(Followed::None, "dl/fl", trusted), Err(Errno::LOOP));
    }
}
