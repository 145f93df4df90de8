//! `cache_site`: the site that a request, and what it stores, belongs to.
//!
//! A site is what statistics, purges and bills are about. An entry belongs to the site of the
//! request that filled it, for life; another site that finds it under the same key does not take
//! it over.

use bytes::Bytes;
use millpond_conf::{OffOr, Template};

/// Bytes of a name; of a longer one the beginning counts (a host name has at most 255).
const NAME_LEN_MAX: usize = 255;

/// Site that requests belong to.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SitePolicy {
    /// The name of the site that requests, and the answers that they store, belong to; variables
    /// may be used. Without it, or where the value is empty, the site is the first `server_name` of
    /// the server block. Names are compared in lower case; spaces and control characters in them
    /// become underscores, and of a long one the first 255 bytes count. With `off`, requests are
    /// counted for no site; what they store still belongs to that of the first `server_name`.
    ///
    /// A site is counted by itself if its name is a `server_name` (no pattern), stands in
    /// `cache_site_info` or here without variables, or if something is stored for it; others,
    /// which clients may have made up, are counted together as `*`.
    #[directive(name = "cache_site")]
    pub site: Option<OffOr<Template>>,
}

/// A name as it is compared and written.
pub fn clean(name: &[u8]) -> Bytes {
    let plain = |byte: &u8| match byte {
        0..=b' ' | 0x7f => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    name.iter().map(plain).take(NAME_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_word_in_lower_case() {
        let table: [(&[u8], &[u8]); 4] = [
            (b"Shop.example", b"shop.example"),
            (b"a b\x01c\n", b"a_b_c_"),
            ("é".as_bytes(), "é".as_bytes()),
            (b"", b""),
        ];
        for (given, expected) in table {
            assert_eq!(clean(given), expected);
        }
        assert_eq!(clean(&[b'x'; 1000]).len(), NAME_LEN_MAX);
    }
}
