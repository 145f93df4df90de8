//! `js_preread`, `js_filter`: the functions that a server of sessions names.
//!
//! They run in `script`; here they are read, and refused where there is no module that could have
//! them.

use millpond_conf::Family;
use millpond_conf::source::Span;
use millpond_exchange::settings::level::Closing;
use millpond_proxy::script::{FunctionName, Scripts};

/// Functions that sessions pass.
#[derive(Clone, Debug, Family)]
#[family(stream, stream_server)]
pub struct ScriptPolicy {
    /// A function that looks at the first bytes of a client's, before it is known where the session
    /// goes. `s.on('upload', function(data, flags) {})` waits for them (`upstream` in place of
    /// `upload`: as a `Buffer`): the function is called once before there are any, and then with
    /// all that there are so far whenever more have come, until `s.done()`, `s.allow()`,
    /// `s.decline()` or `s.deny()` decides. They stay what they are, at most
    /// `preread_buffer_size` of them, and have `preread_timeout`. It may wait for anything else,
    /// too. After `s.done()` and `s.allow()` `ssl_preread` is left out, after `s.decline()` it is
    /// not. A session without a decision ends with 500. Sessions of UDP have no such phase.
    #[directive(name = "js_preread")]
    pub preread: Option<FunctionName>,
    /// A function that changes the bytes of a session: it is called when the session begins, and
    /// says by `s.on('upload', function(data, flags) {})` and `s.on('download', …)` (`upstream` and
    /// `downstream`: as a `Buffer`) what is called for each piece of a direction. `s.send(data)`
    /// passes bytes on in the direction of the piece; `s.sendUpstream(data)`,
    /// `s.sendDownstream(data)` and the flag `from_upstream` say another. What no function waits
    /// for passes as it is. `flags.last` is true for the end of a direction. Functions may be
    /// asynchronous; the next piece does not wait for them. A text that `return` sends is a piece
    /// of the peer's. Sessions of UDP are not filtered.
    ///
    /// # Differs from nginx
    ///
    /// A header of the PROXY protocol that the peer gets is not seen. A function that fails ends
    /// the session with 500. A direction is not read while more than 1 MB waits for the other one.
    #[directive(name = "js_filter")]
    pub filter: Option<FunctionName>,
}

/// The functions of a server, and the places of their lines.
#[derive(Debug, Default)]
pub struct Functions {
    pub(crate) preread: Option<(FunctionName, Span)>,
    pub(crate) filter: Option<(FunctionName, Span)>,
}

impl Functions {
    /// The functions of a block that ends; those without a module are reported.
    pub(crate) fn of(level: &mut Closing<'_>) -> Functions {
        let policy: ScriptPolicy = level.own();
        let has_modules = level.draft.get::<Scripts>().is_some();
        let mut placed = |function: Option<FunctionName>, name: &str| {
            let function = function?;
            let line = level.span_of_own::<ScriptPolicy>(name);
            let span = line.unwrap_or_else(|| level.span());
            // Modules with a mistake were reported as such.
            if !has_modules && !level.builder.cx.diagnostics.has_errors() {
                let message = format!("no imports defined for \"{name}\" \"{}\"", function.0);
                level.error_once(span, message);
            }
            Some((function, span))
        };
        Functions {
            preread: placed(policy.preread, "js_preread"),
            filter: placed(policy.filter, "js_filter"),
        }
    }
}
