//! The places that counted repetitions make of an expression: `[a-z]{2000}` is two thousand places.
//!
//! Nothing is refused by it, so that a little inexactness costs nothing: a class is one place, and
//! so is what stands behind a backslash, whatever it means.

/// The places of the largest counted repetition in an expression; 0 without one.
pub(super) fn counted(source: &str) -> u64 {
    let mut found = 0;
    // Places of the groups that are open, and of the last thing in the innermost one.
    let (mut open, mut last) = (vec![0_u64], 0_u64);
    let mut rest = source.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'(' => {
                open.push(0);
                continue;
            }
            b'{' => {
                if let Some((count, after)) = count(rest) {
                    rest = after;
                    let more = last.saturating_mul(count.max(1)) - last;
                    last += more;
                    found = found.max(last);
                    add(&mut open, more);
                    continue;
                }
                last = 1;
            }
            b')' if open.len() > 1 => last = open.pop().unwrap_or(0),
            b'\\' => {
                rest = rest.get(1..).unwrap_or_default();
                last = 1;
            }
            b'[' => {
                rest = behind_class(rest);
                last = 1;
            }
            b'*' | b'+' | b'?' | b'|' => continue,
            _ => last = 1,
        }
        add(&mut open, last);
    }
    found
}

fn add(open: &mut [u64], places: u64) {
    if let Some(innermost) = open.last_mut() {
        *innermost = innermost.saturating_add(places);
    }
}

/// The larger number of a count whose brace was read, and what follows.
fn count(rest: &[u8]) -> Option<(u64, &[u8])> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let (inside, after) = rest.split_at_checked(end)?;
    let text = std::str::from_utf8(inside).ok()?;
    let numbers = text.split(',').map(|number| number.trim().parse::<u64>());
    let largest = numbers.filter_map(Result::ok).max()?;
    Some((largest, after.get(1..)?))
}

/// The rest behind a class whose bracket was read. A bracket that comes first is a member of it.
fn behind_class(rest: &[u8]) -> &[u8] {
    let rest = rest.strip_prefix(b"^").unwrap_or(rest);
    let mut escaped = true;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if std::mem::replace(&mut escaped, false) => {}
            b'\\' => escaped = true,
            b']' => return rest.get(at + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_multiply_what_stands_before_them() {
        for (source, places) in [
            ("^/a/b+(c|d)*$", 0),
            ("[a-z0-9]{2000}", 2000),
            ("([a-z]{30}){30}", 900),
            ("(ab{3}[]x{9}]){2,5}", 25),
            ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}", 12),
            ("a{,5}", 5),
            ("a{3,}", 3),
            ("a\\{5}b{2}", 2),
            ("a{b}", 0),
            ("{5}(){9}", 0),
            ("((((a{999}){999}){999}){999}){999}", 999_u64.pow(5)),
            ("(a", 0),
            ("[a", 0),
            ("a\\", 0),
        ] {
            assert_eq!(counted(source), places, "{source}");
        }
    }
}
