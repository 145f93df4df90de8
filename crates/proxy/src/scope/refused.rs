//! Directives of nginx that are not supported; a configuration that has one is refused by name.

/// A family of refused directives.
#[derive(Debug)]
pub struct Refused {
    /// Names.
    pub names: &'static [&'static str],
    /// What they belong to, and what to do instead.
    pub reason: &'static str,
}

/// The table.
pub const REFUSED: &[Refused] = &[Refused {
    names: &["perl", "perl_modules", "perl_require", "perl_set"],
    reason: "embedded Perl is not supported",
}];

/// Why a directive is refused.
pub fn find(name: &str) -> Option<&'static str> {
    REFUSED
        .iter()
        .find(|row| row.names.contains(&name))
        .map(|row| row.reason)
}
