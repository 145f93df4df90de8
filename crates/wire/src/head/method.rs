//! Request methods: the ones that have a name in the configuration language, and all others.
//!
//! 1. `Method::of` is exact: methods are case-sensitive (RFC 9110 §9.1).
//!
//! It does not say what a method allows; whoever obeys such a rule states it.

/// Declares [`Method`] and its names from one list.
macro_rules! methods {
    ($($variant:ident $name:literal,)*) => {
        /// A request method.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Method {
            $(
                #[doc = concat!("`", $name, "`")]
                $variant,
            )*
            /// A method of another name; its bytes stand in the request line.
            #[default]
            Other,
        }

        impl Method {
            /// The method with this name.
            #[must_use]
            pub fn of(name: &[u8]) -> Method {
                $(
                    if name == $name.as_bytes() {
                        return Method::$variant;
                    }
                )*
                Method::Other
            }

            /// The method's name; `None` for `Other`.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Method::$variant => Some($name),)*
                    Method::Other => None,
                }
            }
        }
    };
}

// The most frequent first: names are tried in this order.
methods! {
    Get "GET",
    Head "HEAD",
    Post "POST",
    Put "PUT",
    Delete "DELETE",
    Options "OPTIONS",
    Patch "PATCH",
    Trace "TRACE",
    Connect "CONNECT",
    Mkcol "MKCOL",
    Copy "COPY",
    Move "MOVE",
    Propfind "PROPFIND",
    Proppatch "PROPPATCH",
    Lock "LOCK",
    Unlock "UNLOCK",
}

#[cfg(test)]
mod tests {
    use super::Method;

    #[test]
    fn methods_are_exact() {
        assert_eq!(Method::of(b"GET"), Method::Get);
        assert_eq!(Method::of(b"get"), Method::Other);
        assert_eq!(Method::of(b"GETS"), Method::Other);
        assert_eq!(Method::of(b""), Method::Other);
        assert_eq!(Method::Unlock.name(), Some("UNLOCK"));
        assert_eq!(Method::Other.name(), None);
    }
}
