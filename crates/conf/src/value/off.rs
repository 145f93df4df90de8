//! `off`, or a value.
//!
//! `off` must be written exactly so, as in most places of nginx.

use crate::value::syntax::Joined;
use crate::value::{ArgError, Args, FromArgs};

/// Switched off, or a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OffOr<T> {
    /// The word `off`.
    Off,
    /// Anything else, read as the value.
    On(T),
}

impl<T> OffOr<T> {
    /// The value, unless it is off.
    pub fn on(&self) -> Option<&T> {
        match self {
            OffOr::Off => None,
            OffOr::On(value) => Some(value),
        }
    }
}

impl<T: FromArgs> OffOr<T> {
    const JOINED: &'static Joined = &Joined::new(&["off | ", T::SYNTAX]);
}

impl<T: FromArgs> FromArgs for OffOr<T> {
    const SYNTAX: &'static str = Self::JOINED.as_str();

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        match args.words {
            [word] if word.text == "off" => Ok(OffOr::Off),
            _ => T::from_args(args).map(OffOr::On),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Buffers, ByteSize, read};

    #[test]
    fn off_comes_before_the_value() {
        assert_eq!(read::<OffOr<ByteSize>>("off"), Ok(OffOr::Off));
        assert_eq!(read("1k"), Ok(OffOr::On(ByteSize(1024))));
        assert_eq!(read("off"), Ok(OffOr::<String>::Off));
        let buffers = read::<OffOr<Buffers>>("4 8k").expect("two words");
        assert_eq!(buffers.on().map(|buffers| buffers.count), Some(4));
        assert!(read::<OffOr<ByteSize>>("on").is_err());
    }

    #[test]
    fn syntax_names_both() {
        assert_eq!(OffOr::<Buffers>::SYNTAX, "off | number size");
    }
}
