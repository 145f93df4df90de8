//! `server_tokens`: the name that the server gives itself, in the Server field and on error pages.
//!
//! Wires write the field as a whole line; what else names the server asks for the name alone.

/// Facts that the server names of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum Tokens {
    /// Name and version.
    #[word("on")]
    On,
    /// The name only.
    #[word("off")]
    Off,
    /// Name and version; there is no build name to add.
    #[word("build")]
    Build,
}

/// Settings of the server's name in the Server field and on error pages.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct TokensPolicy {
    /// Names the version of the server.
    ///
    /// # Differs from nginx
    ///
    /// The name is Millpond's own.
    #[directive(name = "server_tokens", default = "on")]
    pub tokens: Tokens,
}

impl TokensPolicy {
    /// The value of the Server field.
    pub fn server_field(&self) -> &'static [u8] {
        self.tokens.server_name().as_bytes()
    }
}

impl Tokens {
    /// The value of the Server field.
    pub fn server_name(self) -> &'static str {
        match self {
            Tokens::Off => "millpond",
            Tokens::On | Tokens::Build => concat!("millpond/", env!("CARGO_PKG_VERSION")),
        }
    }

    /// The Server field as a whole line of HTTP/1.
    pub fn server_line(self) -> &'static [u8] {
        match self {
            Tokens::Off => b"Server: millpond\r\n",
            Tokens::On | Tokens::Build => {
                concat!("Server: millpond/", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()
            }
        }
    }
}
