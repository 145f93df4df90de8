//! Globs: which files an `include` names.
//!
//! The patterns are those of the C library's `glob`, which nginx uses: `*`, `?` and `[...]` (with
//! ranges, and `!` or `^` for the opposite) match inside one component of a path, a backslash
//! takes the next character as it is, and a dot at the start of a name must be written.
//!
//! [`matches()`] is linear in memory and at worst quadratic in time: on a mismatch it goes back to
//! the last `*` only.

/// True if the text is a pattern rather than a plain path; nginx asks the same.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// True if a name (one component of a path) matches a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !(pattern.starts_with('.') || pattern.starts_with("\\.")) {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut pos) = (0, 0);
    // Where to go on after the last `*`: the pattern behind it, and the next start in the name.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            at += 1;
            retry = Some((at, pos + 1));
            continue;
        }
        match (pattern.get(at), name.get(pos)) {
            (None, None) => return true,
            (Some(_), Some(char)) => {
                if let Some(len) = one_char(pattern.get(at..).unwrap_or_default(), *char) {
                    at += len;
                    pos += 1;
                    continue;
                }
            }
            _ => {}
        }
        match retry {
            Some((behind, start)) if start <= name.len() => {
                (at, pos) = (behind, start);
                retry = Some((behind, start + 1));
            }
            _ => return false,
        }
    }
}

/// The plain text of a component without wildcards: backslashes are taken away.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.push(chars.next().unwrap_or('\\')),
            char => out.push(char),
        }
    }
    out
}

/// Length of the element at the start of the pattern, if it matches the character.
fn one_char(pattern: &[char], char: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == char).then_some(2),
        ['[', rest @ ..] => match class(rest, char) {
            Some((len, matched)) => matched.then_some(len + 1),
            // A bracket that nothing closes is a plain character.
            None => (char == '[').then_some(1),
        },
        [plain, ..] => (*plain == char).then_some(1),
        [] => None,
    }
}

/// The length of a class behind its `[`, and whether the character is in it.
fn class(pattern: &[char], char: char) -> Option<(usize, bool)> {
    let negated = matches!(pattern.first(), Some('!' | '^'));
    let first = usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        let low = *pattern.get(at)?;
        // A bracket right at the start is a member.
        if low == ']' && at > first {
            return Some((at + 1, found != negated));
        }
        let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some('-'), Some(high)) if *high != ']' => *high,
            _ => low,
        };
        let is_range = matches!(pattern.get(at + 1), Some('-'))
            && pattern.get(at + 2).is_some_and(|high| *high != ']');
        found |= low <= char && char <= high;
        at += if is_range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_c_library_does() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            (".*", ".conf", true),
            ("*.conf", "a.conf~", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[ab", "[ab", true),
            ("\\*x", "*x", true),
            ("\\*x", "ax", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("*", "", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn long_runs_of_stars_end_in_time() {
        let pattern = "*a".repeat(1000) + "b";
        assert!(!matches(&pattern, &"a".repeat(4000)));
    }
}
