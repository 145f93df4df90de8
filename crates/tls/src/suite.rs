//! Cipher suites: the language of `ssl_ciphers`, and the names that variables print.
//!
//! A list is OpenSSL's: words between colons, commas or spaces. A word is a suite or a class of
//! suites, several joined by `+` mean those that are in all of them, and a sign before them says
//! what to do:
//!
//! | sign | the suites |
//! |---|---|
//! | none | are put at the end, if they are not in the list yet |
//! | `+` | go to the end, if they are in the list |
//! | `-` | leave the list, and may come back |
//! | `!` | leave the list for good |
//!
//! `@STRENGTH` sorts by the length of keys, `@SECLEVEL=n` removes what is too weak for a level.
//! Suites of TLS 1.3 are not spoken of: they have a list of their own, of whole names
//! (`Ciphersuites`).
//!
//! 1. What a list says of the suites that exist here is what OpenSSL makes of it, in its order.
//! 2. Names that OpenSSL knows and that do not exist here are reported; words that nobody knows
//!    are, too, and change nothing otherwise, as in OpenSSL.

mod names;

use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::{SignatureAlgorithm, SupportedCipherSuite};

/// Security bits that each level of `@SECLEVEL` asks for.
const LEVEL_BITS: [u16; 6] = [0, 80, 112, 128, 192, 256];

/// A suite of TLS 1.2 that exists here.
#[derive(Clone, Copy, Debug)]
struct Suite {
    name: &'static str,
    auth: Auth,
    cipher: Cipher,
    suite: SupportedCipherSuite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auth {
    Rsa,
    Ecdsa,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20,
}

impl Cipher {
    fn bits(self) -> u16 {
        match self {
            Cipher::Aes128Gcm => 128,
            Cipher::Aes256Gcm | Cipher::Chacha20 => 256,
        }
    }
}

/// In the order that OpenSSL begins with.
const SUITES: [Suite; 6] = [
    Suite {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        auth: Auth::Ecdsa,
        cipher: Cipher::Aes256Gcm,
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    },
    Suite {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        auth: Auth::Rsa,
        cipher: Cipher::Aes256Gcm,
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    },
    Suite {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        auth: Auth::Ecdsa,
        cipher: Cipher::Chacha20,
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    },
    Suite {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        auth: Auth::Rsa,
        cipher: Cipher::Chacha20,
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    },
    Suite {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        auth: Auth::Ecdsa,
        cipher: Cipher::Aes128Gcm,
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    },
    Suite {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        auth: Auth::Rsa,
        cipher: Cipher::Aes128Gcm,
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    },
];

/// The suites of TLS 1.3, in the order of OpenSSL's default.
const SUITES_13: [(&str, SupportedCipherSuite); 3] = [
    (
        "TLS_AES_256_GCM_SHA384",
        cipher_suite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_AES_128_GCM_SHA256",
        cipher_suite::TLS13_AES_128_GCM_SHA256,
    ),
];

/// Classes that OpenSSL knows and that have none of our suites.
const EMPTY_CLASSES: &[&str] = &[
    "3DES",
    "ADH",
    "AECDH",
    "AESCCM",
    "AESCCM8",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "ARIAGCM",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "CBC",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "DH",
    "DHE",
    "DSS",
    "EDH",
    "EXP",
    "EXPORT",
    "EXPORT40",
    "EXPORT56",
    "GOST",
    "GOST89MAC",
    "GOST94",
    "IDEA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "RSA",
    "SEED",
    "SHA",
    "SHA1",
    "SHA256",
    "SHA384",
    "SRP",
    "SSLv2",
    "SSLv3",
    "TLSv1",
    "TLSv1.0",
    "TLSv1.1",
    "aDH",
    "aDSS",
    "aECDH",
    "aGOST",
    "aGOST01",
    "aNULL",
    "aPSK",
    "aSRP",
    "eNULL",
    "kDH",
    "kDHE",
    "kDHEPSK",
    "kDHd",
    "kDHr",
    "kECDH",
    "kECDHEPSK",
    "kECDHe",
    "kECDHr",
    "kEDH",
    "kGOST",
    "kPSK",
    "kRSA",
    "kRSAPSK",
    "kSRP",
    "aKRB5",
    "kKRB5",
    "KRB5",
    "kFZA",
    "aFZA",
    "eFZA",
];

/// Lists that have a name of their own (RFC 6460).
const SUITE_B: &[(&str, &str)] = &[
    (
        "SUITEB128",
        "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    ("SUITEB128ONLY", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("SUITEB128C2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("SUITEB192", "ECDHE-ECDSA-AES256-GCM-SHA384"),
];

/// A list of cipher suites, as `ssl_ciphers` has it.
#[derive(Clone, Debug)]
pub struct Ciphers {
    chosen: Vec<SupportedCipherSuite>,
    chosen_13: Vec<SupportedCipherSuite>,
    dropped: Vec<String>,
    unknown: Vec<String>,
}

/// The reason for which a list of cipher suites is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CiphersError {
    /// No suite that exists here is left.
    #[error("no cipher match")]
    NoMatch,
    /// A level of security that there is none of.
    #[error("invalid command")]
    Command,
    /// A word that is no suite of TLS 1.3.
    #[error("no cipher match: \"{0}\" is no suite of TLSv1.3 that is supported")]
    Unsupported(String),
}

impl Default for Ciphers {
    /// All suites.
    fn default() -> Self {
        Self {
            chosen: SUITES.iter().map(|suite| suite.suite).collect(),
            chosen_13: SUITES_13.iter().map(|(_, suite)| *suite).collect(),
            dropped: Vec::new(),
            unknown: Vec::new(),
        }
    }
}

impl Ciphers {
    /// Reads a list of suites for TLS 1.2; all of TLS 1.3 stay.
    pub fn parse(list: &str) -> Result<Self, CiphersError> {
        let suite_b = SUITE_B.iter().find(|(name, _)| *name == list);
        let list = suite_b.map_or(list, |(_, suites)| suites);
        let mut state = State::default();
        for (index, word) in list
            .split([':', ',', ';', ' '])
            .filter(|word| !word.is_empty())
            .enumerate()
        {
            match word.strip_prefix('@') {
                Some(command) => state.command(command)?,
                None if word == "DEFAULT" && index == 0 => state.add(|_| true),
                None => state.apply(word),
            }
        }
        let chosen: Vec<_> = state.active.iter().map(|suite| suite.suite).collect();
        if chosen.is_empty() {
            return Err(CiphersError::NoMatch);
        }
        Ok(Self {
            chosen,
            dropped: state.dropped,
            unknown: state.unknown,
            ..Self::default()
        })
    }

    /// Replaces the suites of TLS 1.3 by a list of their names, in sequence.
    pub fn with_ciphersuites(mut self, list: &str) -> Result<Self, CiphersError> {
        let mut chosen = Vec::new();
        for word in list.split(':').filter(|word| !word.is_empty()) {
            let found = SUITES_13.iter().find(|(name, _)| *name == word);
            match found {
                Some((_, suite)) => chosen.push(*suite),
                None if number_of(word).is_some() => self.dropped.push(word.to_owned()),
                None => return Err(CiphersError::Unsupported(word.to_owned())),
            }
        }
        self.chosen_13 = chosen;
        Ok(self)
    }

    /// Suites that were named, that OpenSSL knows, and that do not exist here.
    pub fn dropped(&self) -> &[String] {
        &self.dropped
    }

    /// Words that nobody knows.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The names of what is left, those of TLS 1.3 first.
    pub fn names(&self) -> Vec<&'static str> {
        self.suites()
            .iter()
            .filter_map(|suite| name(u16::from(suite.suite())))
            .collect()
    }

    pub(crate) fn suites(&self) -> Vec<SupportedCipherSuite> {
        self.chosen_13.iter().chain(&self.chosen).copied().collect()
    }
}

/// The list while it is read.
struct State {
    /// Suites that are not in the list, in the order in which a class adds them.
    spare: Vec<Suite>,
    active: Vec<Suite>,
    dropped: Vec<String>,
    unknown: Vec<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            spare: SUITES.to_vec(),
            active: Vec::new(),
            dropped: Vec::new(),
            unknown: Vec::new(),
        }
    }
}

impl State {
    fn apply(&mut self, word: &str) {
        let (sign, names) = match word.chars().next() {
            Some(sign @ ('!' | '-' | '+')) => (Some(sign), &word[1..]),
            _ => (None, word),
        };
        let mut classes = Vec::new();
        for name in names.split('+') {
            match class(name) {
                Some(class) => classes.push(class),
                None => return self.note_unknown(sign, name),
            }
        }
        let is_named = |suite: &Suite| classes.iter().all(|class| class.has(suite));
        match sign {
            None => {
                self.note_dropped(names);
                self.add(is_named);
            }
            Some('+') => {
                let (moved, rest) = split(&self.active, is_named);
                self.active = [rest, moved].concat();
            }
            // OpenSSL takes from the end and puts to the front: the order stays.
            Some('-') => {
                let (removed, rest) = split(&self.active, is_named);
                self.active = rest;
                self.spare = [removed, std::mem::take(&mut self.spare)].concat();
            }
            Some(_) => {
                self.active = split(&self.active, is_named).1;
                self.spare = split(&self.spare, is_named).1;
            }
        }
    }

    fn add(&mut self, is_named: impl Fn(&Suite) -> bool) {
        let (added, rest) = split(&self.spare, is_named);
        self.spare = rest;
        self.active.extend(added);
    }

    fn command(&mut self, command: &str) -> Result<(), CiphersError> {
        if command == "STRENGTH" {
            self.active
                .sort_by_key(|suite| std::cmp::Reverse(suite.cipher.bits()));
            return Ok(());
        }
        let bits = command
            .strip_prefix("SECLEVEL=")
            .and_then(|level| level.parse::<usize>().ok())
            .and_then(|level| LEVEL_BITS.get(level).copied())
            .ok_or(CiphersError::Command)?;
        self.active.retain(|suite| suite.cipher.bits() >= bits);
        self.spare.retain(|suite| suite.cipher.bits() >= bits);
        Ok(())
    }

    fn note_dropped(&mut self, name: &str) {
        let is_here = SUITES.iter().any(|suite| suite.name == name)
            || SUITES_13.iter().any(|(known, _)| *known == name);
        if number_of(name).is_some() && !is_here {
            self.dropped.push(name.to_owned());
        }
    }

    /// Keeps a word that nobody knows, unless it says what is to go.
    fn note_unknown(&mut self, sign: Option<char>, name: &str) {
        if sign.is_none() {
            self.unknown.push(name.to_owned());
        }
    }
}

fn split(suites: &[Suite], is_first: impl Fn(&Suite) -> bool) -> (Vec<Suite>, Vec<Suite>) {
    suites.iter().partition(|suite| is_first(suite))
}

/// A class of suites, as far as ours are concerned.
enum Class {
    All,
    None,
    Auth(Auth),
    Ciphers(&'static [Cipher]),
    One(&'static str),
}

impl Class {
    fn has(&self, suite: &Suite) -> bool {
        match self {
            Class::All => true,
            Class::None => false,
            Class::Auth(auth) => suite.auth == *auth,
            Class::Ciphers(ciphers) => ciphers.contains(&suite.cipher),
            Class::One(name) => suite.name == *name,
        }
    }
}

fn class(name: &str) -> Option<Class> {
    Some(match name {
        "ALL" | "HIGH" | "TLSv1.2" | "ECDH" | "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" => Class::All,
        "aRSA" => Class::Auth(Auth::Rsa),
        "aECDSA" | "ECDSA" => Class::Auth(Auth::Ecdsa),
        "AES" | "AESGCM" | "FIPS" => Class::Ciphers(&[Cipher::Aes128Gcm, Cipher::Aes256Gcm]),
        "AES128" => Class::Ciphers(&[Cipher::Aes128Gcm]),
        "AES256" => Class::Ciphers(&[Cipher::Aes256Gcm]),
        "CHACHA20" => Class::Ciphers(&[Cipher::Chacha20]),
        name if EMPTY_CLASSES.contains(&name) => Class::None,
        name => {
            let here = SUITES.iter().find(|suite| suite.name == name);
            match here {
                Some(suite) => Class::One(suite.name),
                None => number_of(name).map(|_| Class::None)?,
            }
        }
    })
}

fn number_of(name: &str) -> Option<u16> {
    names::NAMES
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(number, _)| *number)
}

/// The name that OpenSSL has for a suite.
pub(crate) fn name(number: u16) -> Option<&'static str> {
    let index = names::NAMES.binary_search_by_key(&number, |(number, _)| *number);
    names::NAMES.get(index.ok()?).map(|(_, name)| *name)
}

/// True if a suite works with a server's key of this kind; those of TLS 1.3 work with all.
pub(crate) fn takes_key(suite: &SupportedCipherSuite, kind: SignatureAlgorithm) -> bool {
    let found = SUITES.iter().find(|known| known.suite == *suite);
    match found.map(|known| known.auth) {
        None => true,
        Some(Auth::Rsa) => kind == SignatureAlgorithm::RSA,
        Some(Auth::Ecdsa) => kind != SignatureAlgorithm::RSA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list as the names of keys and ciphers.
    fn short(list: &str) -> String {
        let ciphers = Ciphers::parse(list).unwrap();
        let names = ciphers.names();
        let short = names.iter().filter_map(|name| {
            let (auth, cipher) = name.strip_prefix("ECDHE-")?.split_once('-')?;
            Some(format!("{}{}", &auth[..1], &cipher[..6]))
        });
        short.collect::<Vec<_>>().join(" ")
    }

    /// The right column is what `openssl ciphers` of 3.0 prints for the left.
    #[test]
    fn lists_mean_what_openssl_makes_of_them() {
        const ALL: &str = "EAES256 RAES256 ECHACHA RCHACHA EAES128 RAES128";
        for (list, expected) in [
            ("HIGH:!aNULL:!MD5", ALL),
            ("DEFAULT", ALL),
            ("ALL:!DHE:!kRSA", ALL),
            ("TLSv1.2", ALL),
            ("EECDH+AESGCM:EDH+AESGCM", "EAES256 RAES256 EAES128 RAES128"),
            (
                "AES128:ALL",
                "EAES128 RAES128 EAES256 RAES256 ECHACHA RCHACHA",
            ),
            (
                "EECDH+AESGCM:EECDH+CHACHA20",
                "EAES256 RAES256 EAES128 RAES128 ECHACHA RCHACHA",
            ),
            (
                "ALL:+AES256",
                "ECHACHA RCHACHA EAES128 RAES128 EAES256 RAES256",
            ),
            (
                "ALL:-aRSA:ALL",
                "EAES256 ECHACHA EAES128 RAES256 RCHACHA RAES128",
            ),
            ("AES128:AES256:CHACHA20:@STRENGTH", ALL),
            ("SUITEB128", "EAES128 EAES256"),
            ("ECDH+AESGCM", "EAES256 RAES256 EAES128 RAES128"),
            (
                "ALL:-AES:AES128:ALL",
                "ECHACHA RCHACHA EAES128 RAES128 EAES256 RAES256",
            ),
            (
                "CHACHA20:-CHACHA20:ALL",
                "ECHACHA RCHACHA EAES256 RAES256 EAES128 RAES128",
            ),
            ("aRSA !CHACHA20,!AES128", "RAES256"),
            ("!AES:ALL:AES", "ECHACHA RCHACHA"),
            ("HIGH:@SECLEVEL=2", ALL),
        ] {
            assert_eq!(short(list), expected, "{list}");
        }
    }

    #[test]
    fn levels_remove_what_is_too_weak() {
        assert_eq!(short("ALL:@SECLEVEL=4"), "EAES256 RAES256 ECHACHA RCHACHA");
    }

    #[test]
    fn lists_without_a_suite_of_ours_are_refused() {
        for list in [
            "",
            "AES128-SHA",
            "kRSA",
            "RC4:3DES",
            "nonsense",
            "ALL:!ALL",
            "SHA256",
        ] {
            assert_eq!(
                Ciphers::parse(list).unwrap_err(),
                CiphersError::NoMatch,
                "{list}"
            );
        }
        for list in ["ALL:@SECLEVEL=6", "ALL:@SECLEVEL=", "ALL:@WHAT"] {
            assert_eq!(
                Ciphers::parse(list).unwrap_err(),
                CiphersError::Command,
                "{list}"
            );
        }
    }

    #[test]
    fn suites_that_were_named_and_do_not_exist_here_are_reported() {
        let list = "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA:AES128-SHA:kEDH+AESGCM:XX:!YY";
        let ciphers = Ciphers::parse(list).unwrap();
        assert_eq!(ciphers.dropped(), ["DHE-RSA-AES256-SHA", "AES128-SHA"]);
        assert_eq!(ciphers.unknown(), ["XX"]);
    }

    #[test]
    fn suites_of_tls_13_have_a_list_of_their_own() {
        let ciphers = Ciphers::parse("AES128+aRSA").unwrap();
        let list = "TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384";
        let ciphers = ciphers.with_ciphersuites(list).unwrap();
        let names = [
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "ECDHE-RSA-AES128-GCM-SHA256",
        ];
        assert_eq!(ciphers.names(), names);
        assert_eq!(ciphers.dropped(), ["TLS_AES_128_CCM_SHA256"]);
        let wrong = Ciphers::default().with_ciphersuites("TLS_NULL");
        assert!(matches!(wrong, Err(CiphersError::Unsupported(_))));
    }

    #[test]
    fn names_are_sorted_by_number() {
        assert!(names::NAMES.is_sorted_by(|one, next| one.0 < next.0));
        assert_eq!(name(0xc02f), Some("ECDHE-RSA-AES128-GCM-SHA256"));
        assert_eq!(name(0x0a0a), None);
    }
}
