//! The functions below `process` and `zlib` of the prelude.
//!
//! Of the process a script sees what the configuration lets it: the variables that `env` names.

use rquickjs::{Array, Error, Exception, Function, Value};
use rustix::process::{self, Pid, Signal};

use super::files::bounded;
use super::{Result, Table, array, bytes};
use crate::deflate::{self, Packing, Wrap};
use crate::files::words_of;
use crate::host::Host;

impl<'js, H: Host> Table<'js, H> {
    /// The process.
    pub(super) fn system(&self) -> Result<()> {
        native!(self, "environment", |state, ctx| {
            let made = Array::new(ctx.clone())?;
            let pairs = state.any(&ctx, H::environment)?;
            for (index, (name, value)) in pairs.into_iter().enumerate() {
                let pair = Array::new(ctx.clone())?;
                pair.set(0, name)?;
                pair.set(1, value)?;
                made.set(index, pair)?;
            }
            Ok::<_, Error>(made)
        });
        native!(self, "arguments", |state, ctx| {
            state.any(&ctx, H::arguments)
        });
        native!(self, "processId", |state, ctx, of: String| {
            let pid = match of.as_str() {
                "parent" => process::getppid(),
                _ => Some(process::getpid()),
            };
            pid.map_or(0, Pid::as_raw_pid)
        });
        native!(self, "kill", |state, ctx, pid: i32, signal: i32| {
            let failed = |why| {
                let words = format!("kill failed with ({})", words_of(why));
                Exception::throw_type(&ctx, &words)
            };
            // Groups, and all processes, are not had by a number.
            let known = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
            let pid = known.ok_or_else(|| failed(rustix::io::Errno::SRCH))?;
            if signal == 0 {
                return process::test_kill_process(pid).map_err(failed);
            }
            let unknown = || failed(rustix::io::Errno::INVAL);
            let signal = Signal::from_named_raw(signal).ok_or_else(unknown)?;
            process::kill_process(pid, signal).map_err(failed)
        });
        Ok(())
    }

    /// Packed bytes.
    pub(super) fn packing(&self) -> Result<()> {
        native!(
            self,
            "pack",
            |state, ctx, raw: Value<'js>, wrap: String, window: u8, rest: Array<'js>| {
                let data = bytes(&ctx, &raw)?;
                let level: u32 = rest.get(0)?;
                let dictionary: Option<Value<'js>> = rest.get(1)?;
                let known = dictionary.map(|raw| bytes(&ctx, &raw)).transpose()?;
                let packing = packing_of(&wrap, window, known.as_deref());
                let packed = bounded(&state, |bounds| {
                    deflate::pack(&data, packing, level, bounds)
                });
                let told = packed.map_err(|why| Exception::throw_internal(&ctx, &why));
                array(&ctx, &told?)
            }
        );
        native!(
            self,
            "unpack",
            |state, ctx, raw: Value<'js>, wrap: String, window: u8, rest: Array<'js>| {
                let data = bytes(&ctx, &raw)?;
                let dictionary: Option<Value<'js>> = rest.get(1)?;
                let known = dictionary.map(|raw| bytes(&ctx, &raw)).transpose()?;
                let packing = packing_of(&wrap, window, known.as_deref());
                let unpacked = bounded(&state, |bounds| deflate::unpack(&data, packing, bounds));
                let told = unpacked.map_err(|why| Exception::throw_internal(&ctx, &why));
                array(&ctx, &told?)
            }
        );
        Ok(())
    }
}

fn packing_of<'a>(wrap: &str, window: u8, dictionary: Option<&'a [u8]>) -> Packing<'a> {
    Packing {
        wrap: match wrap {
            "raw" => Wrap::Raw,
            _ => Wrap::Zlib,
        },
        window,
        dictionary,
    }
}
