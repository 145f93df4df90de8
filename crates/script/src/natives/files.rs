//! The functions below `fs` of the prelude.
//!
//! What fails is thrown as scripts know it: an error with the reason, the call and the path.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;

use rquickjs::{Array, Ctx, Error, Exception, Function, IntoJs as _, Value};

use super::{Result, Table, array, bytes};
use crate::engine::State;
use crate::files::{self, Bounds, Facts, Failed, Files, Link, Others};
use crate::host::Host;

impl<'js, H: Host> Table<'js, H> {
    /// Files.
    pub(super) fn files(&self) -> Result<()> {
        let open = Rc::new(RefCell::new(Files::default()));
        self.open_files(&open)?;
        self.whole_files()?;
        self.folders()?;
        self.links()
    }

    /// Files that stay open.
    fn open_files(&self, open: &Rc<RefCell<Files>>) -> Result<()> {
        let files = Rc::clone(open);
        native!(self, "fsOpen", |state,
                                 ctx,
                                 path: Value<'js>,
                                 flags: String,
                                 mode: u32| {
            let raw = bytes(&ctx, &path)?;
            let flags = flags_of(&ctx, &flags)?;
            let opened = files.borrow_mut().open(&raw, (flags, mode));
            opened.map_err(|failed| thrown(&ctx, failed, Some(&path)))
        });
        let files = Rc::clone(open);
        native!(self, "fsClose", |state, ctx, fd: RawFd| {
            let closed = files.borrow_mut().close(fd);
            closed.map_err(|failed| thrown(&ctx, failed, None))
        });
        let files = Rc::clone(open);
        native!(self, "fsCloseAll", |state, ctx| {
            files.borrow_mut().close_all();
        });
        let files = Rc::clone(open);
        native!(
            self,
            "fsRead",
            |state, ctx, fd: RawFd, most: usize, place: f64| {
                let place = (place >= 0.0).then_some(place as u64);
                let ask = |bounds: &Bounds<'_>| files.borrow().read(fd, (most, place), bounds);
                let read = bounded(&state, ask);
                array(&ctx, &read.map_err(|failed| thrown(&ctx, failed, None))?)
            }
        );
        let files = Rc::clone(open);
        native!(
            self,
            "fsWrite",
            |state, ctx, fd: RawFd, raw: Value<'js>, place: f64| {
                let data = bytes(&ctx, &raw)?;
                let place = (place >= 0.0).then_some(place as u64);
                let written = files.borrow().write(fd, &data, place);
                written.map_err(|failed| thrown(&ctx, failed, None))
            }
        );
        let files = Rc::clone(open);
        native!(self, "fsStatOf", |state, ctx, fd: RawFd| {
            let facts = files.borrow().facts(fd);
            facts_array(&ctx, &facts.map_err(|failed| thrown(&ctx, failed, None))?)
        });
        Ok(())
    }

    fn whole_files(&self) -> Result<()> {
        native!(
            self,
            "fsReadFile",
            |state, ctx, path: Value<'js>, flags: String| {
                let raw = bytes(&ctx, &path)?;
                let flags = flags_of(&ctx, &flags)?;
                let read = bounded(&state, |bounds| files::read_file(&raw, flags, bounds));
                array(
                    &ctx,
                    &read.map_err(|failed| thrown(&ctx, failed, Some(&path)))?,
                )
            }
        );
        native!(
            self,
            "fsWriteFile",
            |state, ctx, path: Value<'js>, data: Value<'js>, flags: String, mode: u32| {
                let (raw, data) = (bytes(&ctx, &path)?, bytes(&ctx, &data)?);
                let open = (flags_of(&ctx, &flags)?, mode);
                let ask = |bounds: &Bounds<'_>| files::write_file(&raw, &data, open, bounds);
                let written = bounded(&state, ask);
                written.map_err(|failed| thrown(&ctx, failed, Some(&path)))
            }
        );
        native!(
            self,
            "fsStat",
            |state, ctx, path: Value<'js>, link: String| {
                let raw = bytes(&ctx, &path)?;
                let link = match link.as_str() {
                    "lstat" => Link::Stay,
                    _ => Link::Follow,
                };
                let facts = files::stat(&raw, link);
                facts_array(
                    &ctx,
                    &facts.map_err(|failed| thrown(&ctx, failed, Some(&path)))?,
                )
            }
        );
        native!(
            self,
            "fsAccess",
            |state, ctx, path: Value<'js>, bits: u32| {
                let raw = bytes(&ctx, &path)?;
                files::access(&raw, bits).map_err(|failed| thrown(&ctx, failed, Some(&path)))
            }
        );
        native!(self, "fsUnlink", |state, ctx, path: Value<'js>| {
            let raw = bytes(&ctx, &path)?;
            files::unlink(&raw).map_err(|failed| thrown(&ctx, failed, Some(&path)))
        });
        Ok(())
    }

    fn folders(&self) -> Result<()> {
        native!(self, "fsList", |state, ctx, path: Value<'js>| {
            let raw = bytes(&ctx, &path)?;
            let items = bounded(&state, |bounds| files::list(&raw, bounds));
            let items = items.map_err(|failed| thrown(&ctx, failed, Some(&path)))?;
            let made = Array::new(ctx.clone())?;
            for (index, item) in items.iter().enumerate() {
                let pair = Array::new(ctx.clone())?;
                pair.set(0, array(&ctx, &item.name)?)?;
                pair.set(1, item.kind)?;
                made.set(index, pair)?;
            }
            Ok::<_, Error>(made)
        });
        native!(
            self,
            "fsMakeFolder",
            |state, ctx, path: Value<'js>, mode: u32, how: String| {
                let raw = bytes(&ctx, &path)?;
                let made = files::make_folder(&raw, mode & 0o7777, Others::named(&how));
                made.map_err(|failed| thrown(&ctx, failed, Some(&path)))
            }
        );
        native!(
            self,
            "fsRemoveFolder",
            |state, ctx, path: Value<'js>, how: String| {
                let raw = bytes(&ctx, &path)?;
                let ask =
                    |bounds: &Bounds<'_>| files::remove_folder(&raw, Others::named(&how), bounds);
                let removed = bounded(&state, ask);
                removed.map_err(|failed| thrown(&ctx, failed, Some(&path)))
            }
        );
        Ok(())
    }

    fn links(&self) -> Result<()> {
        native!(
            self,
            "fsRename",
            |state, ctx, path: Value<'js>, to: Value<'js>| {
                let (raw, to) = (bytes(&ctx, &path)?, bytes(&ctx, &to)?);
                let renamed = files::rename(&raw, &to);
                renamed.map_err(|failed| thrown(&ctx, failed, Some(&path)))
            }
        );
        native!(
            self,
            "fsSymlink",
            |state, ctx, target: Value<'js>, path: Value<'js>| {
                let (to, raw) = (bytes(&ctx, &target)?, bytes(&ctx, &path)?);
                let made = files::symlink(&to, &raw);
                made.map_err(|failed| thrown(&ctx, failed, Some(&target)))
            }
        );
        native!(self, "fsReadLink", |state, ctx, path: Value<'js>| {
            let raw = bytes(&ctx, &path)?;
            let target = files::read_link(&raw);
            array(
                &ctx,
                &target.map_err(|failed| thrown(&ctx, failed, Some(&path)))?,
            )
        });
        native!(self, "fsRealPath", |state, ctx, path: Value<'js>| {
            let raw = bytes(&ctx, &path)?;
            let found = files::real_path(&raw);
            array(
                &ctx,
                &found.map_err(|failed| thrown(&ctx, failed, Some(&path)))?,
            )
        });
        Ok(())
    }
}

/// Asks within the bounds of the script that runs.
pub(super) fn bounded<H: Host, T>(state: &State<H>, ask: impl FnOnce(&Bounds<'_>) -> T) -> T {
    ask(&Bounds {
        bytes: state.memory.get(),
        is_late: &|| state.is_late(),
    })
}

fn flags_of(ctx: &Ctx<'_>, text: &str) -> Result<rustix::fs::OFlags> {
    files::flags_of(text).ok_or_else(|| {
        let message = format!("Unknown file open flags: \"{text}\"");
        Exception::throw_type(ctx, &message)
    })
}

/// A failure as scripts get it: an error with `errno`, `code`, `syscall` and `path`.
fn thrown<'js>(ctx: &Ctx<'js>, failed: Failed, path: Option<&Value<'js>>) -> Error {
    let made = || -> Result<Value<'js>> {
        let error = Exception::from_message(ctx.clone(), &files::words_of(failed.why))?;
        let object = error.as_object();
        object.set("errno", failed.why.raw_os_error())?;
        object.set("code", files::name_of(failed.why))?;
        if let Some(path) = path {
            let path = bytes(ctx, path)?;
            object.set("path", String::from_utf8_lossy(&path).into_owned())?;
        }
        object.set("syscall", failed.call)?;
        error.into_js(ctx)
    };
    match made() {
        Ok(error) => ctx.throw(error),
        Err(error) => error,
    }
}

fn facts_array<'js>(ctx: &Ctx<'js>, facts: &Facts) -> Result<Array<'js>> {
    let made = Array::new(ctx.clone())?;
    let numbers = facts.numbers.iter().chain(&facts.times);
    for (index, number) in numbers.enumerate() {
        made.set(index, *number)?;
    }
    Ok(made)
}
