//! Blocks in another language: what stands between the braces of `…_by_lua_block`.
//!
//! Such a block is passed over whole, so that its directive is one mistake and not hundreds. It
//! ends at the brace that closes it by Lua's rules: braces in strings, long brackets and comments
//! do not count.
//!
//! Invariant: each byte is looked at a bounded number of times.
//!
//! What it does not do: it checks no Lua.

/// Suffix of the names of directives with such a block.
const LUA_BLOCK: &str = "_by_lua_block";

/// True if the block of a directive is in another language.
pub(crate) fn is_foreign(name: &str) -> bool {
    name.ends_with(LUA_BLOCK)
}

/// The offset of the brace that closes a block whose text begins at `start`; the end of the text if
/// none does.
pub(crate) fn end_of_lua(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return at,
            b'}' => depth -= 1,
            b'"' | b'\'' => {
                at = end_of_string(bytes, at + 1, *byte);
                continue;
            }
            b'[' => {
                if let Some(end) = end_of_long_bracket(bytes, at) {
                    at = end;
                    continue;
                }
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = end_of_comment(bytes, at + 2);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The offset behind the quote that ends a string, or behind the line that it is not ended in.
fn end_of_string(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' => return at + 1,
            byte if *byte == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The offset behind a comment: the end of the line, or of its long bracket.
fn end_of_comment(bytes: &[u8], start: usize) -> usize {
    if let Some(end) = end_of_long_bracket(bytes, start) {
        return end;
    }
    let rest = bytes.get(start..).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n');
    line.map_or(bytes.len(), |line| start + line)
}

/// The offset behind `[[ … ]]` or `[=[ … ]=]`, if one opens here.
fn end_of_long_bracket(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?.strip_prefix(b"[")?;
    let level = rest.iter().take_while(|byte| **byte == b'=').count();
    let inside = rest.get(level..)?.strip_prefix(b"[")?;
    let mut close = vec![b'='; level + 2];
    for end in [0, level + 1] {
        // Both are offsets in the vector, which has two bytes more than the level.
        close[end] = b']';
    }
    let from = bytes.len() - inside.len();
    let found = find(inside, &close);
    Some(found.map_or(bytes.len(), |at| from + at + close.len()))
}

/// Offset at which a bracket closes; the work is that of one pass, since brackets begin with the
/// same byte only at their ends.
fn find(bytes: &[u8], close: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = bytes.get(at..)?.iter().position(|byte| *byte == b']') {
        at += next;
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.starts_with(close) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_at_the_brace_that_closes_them() {
        for text in [
            "",
            " x = {} ",
            " x = { y = { 1 } } ",
            " s = \"}\" ",
            " s = '}\\'}' ",
            " -- } not here\n",
            " --[[ } \n } ]] ",
            " --[==[ ]] } ]=] } ]==] ",
            " s = [[ } ]] ",
            " a[b[1]] = {} ",
            " s = 'not ended }\n ",
        ] {
            let whole = format!("{text}}} behind }}");
            assert_eq!(end_of_lua(whole.as_bytes(), 0), text.len(), "{text}");
        }
        for text in ["", "{", "\"", "--[[", "[=[ ]]", "'\\"] {
            assert_eq!(end_of_lua(text.as_bytes(), 0), text.len(), "{text}");
        }
    }

    #[test]
    fn only_lua_blocks_are_foreign() {
        assert!(is_foreign("content_by_lua_block") && is_foreign("init_worker_by_lua_block"));
        assert!(!is_foreign("content_by_lua") && !is_foreign("location"));
    }
}
