//! The functions that sessions of `stream` are made on.
//!
//! Both sides know the events that a script listens to: the host keeps the form of their bytes, the
//! prelude the function.

use rquickjs::function::Opt;
use rquickjs::{Ctx, Exception, Function, Value};

use super::{Result, Table, bytes};
use crate::host::{Form, Host, SessionOrder, Side};

impl<'js, H: Host> Table<'js, H> {
    /// Orders to a session.
    pub(super) fn session(&self) -> Result<()> {
        native!(
            self,
            "sessionSend",
            |state, ctx, id: u32, side: u8, raw: Value<'js>| {
                let order = SessionOrder::Send(side_of(&ctx, side)?, bytes(&ctx, &raw)?);
                state.tried(&ctx, id, |host| host.session(order))
            }
        );
        native!(self, "sessionDecide", |state, ctx, id: u32, code: i32| {
            state.tried(&ctx, id, |host| host.session(SessionOrder::Decide(code)))
        });
        native!(
            self,
            "sessionListen",
            |state, ctx, id: u32, side: u8, is_buffer: Opt<bool>| {
                let form_of = |is_buffer| if is_buffer { Form::Buffer } else { Form::Text };
                let form = is_buffer.0.map(form_of);
                let order = SessionOrder::Listen(side_of(&ctx, side)?, form);
                state.tried(&ctx, id, |host| host.session(order))
            }
        );
        Ok(())
    }
}

fn side_of(ctx: &Ctx<'_>, side: u8) -> Result<Side> {
    match side {
        0 => Ok(Side::Client),
        1 => Ok(Side::Peer),
        _ => Err(Exception::throw_type(ctx, "unknown side")),
    }
}
