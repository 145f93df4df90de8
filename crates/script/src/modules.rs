//! Modules of a program, as the engine asks for them.
//!
//! They are found when a program is read, and from then on in memory: workers look at no disk.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Exception, Module};

/// Modules that are part of the engine.
pub(crate) const BUILT_IN: [&str; 6] = ["buffer", "crypto", "fs", "querystring", "xml", "zlib"];
/// The module that ends a program before its own code runs, so that it is read only.
pub(crate) const STOP: &str = "millpond:stop";
/// The most modules of one program.
const MOST_MODULES: usize = 1000;

/// Modules that a program consists of.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sources {
    /// The text of each, by its path.
    pub(crate) texts: HashMap<String, String>,
    /// The paths of modules, by who imports them and under which name.
    pub(crate) places: HashMap<(String, String), String>,
}

/// Reads the text of a file.
pub(crate) type Read = Box<dyn Fn(&Path) -> io::Result<Vec<u8>>>;

/// The files that a program may be read from, while it is.
pub(crate) struct Reading {
    pub(crate) read: Read,
    pub(crate) folders: Vec<PathBuf>,
}

/// The modules that the engine knows at a moment.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) sources: RefCell<Sources>,
    /// None once the program was read: nothing of the disk is looked at any more.
    pub(crate) reading: RefCell<Option<Reading>>,
}

impl Known {
    /// The path of a module that another one imports.
    fn place(&self, base: &str, name: &str) -> Result<String, String> {
        if BUILT_IN.contains(&name) || name == STOP {
            return Ok(name.to_string());
        }
        let key = (base.to_string(), name.to_string());
        if let Some(path) = self.sources.borrow().places.get(&key) {
            return Ok(path.clone());
        }
        let path = self.search(base, name)?;
        self.sources.borrow_mut().places.insert(key, path.clone());
        Ok(path)
    }

    fn search(&self, base: &str, name: &str) -> Result<String, String> {
        let reading = self.reading.borrow();
        let not_found = || format!("could not load module \"{name}\"");
        let reading = reading.as_ref().ok_or_else(not_found)?;
        for path in candidates(base, name, &reading.folders) {
            let path = normal(&path);
            let text = path.to_string_lossy().into_owned();
            if self.sources.borrow().texts.contains_key(&text) {
                return Ok(text);
            }
            let Ok(bytes) = (reading.read)(&path) else {
                continue;
            };
            let mut sources = self.sources.borrow_mut();
            if sources.texts.len() >= MOST_MODULES {
                return Err(format!("more than {MOST_MODULES} modules"));
            }
            let source = String::from_utf8(bytes).map_err(|_| format!("{text} is not UTF-8"))?;
            sources.texts.insert(text.clone(), source);
            return Ok(text);
        }
        Err(not_found())
    }

    fn text(&self, path: &str) -> Option<String> {
        if path == STOP {
            return Some(format!("throw new Error('{STOP}');"));
        }
        if BUILT_IN.contains(&path) {
            let made = format!("const it = globalThis.__millpond.modules['{path}'];");
            return Some(match path {
                "buffer" => format!("{made} export const Buffer = it.Buffer; export default it;"),
                _ => format!("{made} export default it;"),
            });
        }
        self.sources.borrow().texts.get(path).cloned()
    }
}

/// The files that a name may mean: nginx's order, from the importing file, the folder of the
/// configuration, then `js_path`.
fn candidates(base: &str, name: &str, folders: &[PathBuf]) -> Vec<PathBuf> {
    if name.starts_with('/') {
        return vec![PathBuf::from(name)];
    }
    let folder = Path::new(base).parent().filter(|_| base.starts_with('/'));
    let own = folder.map(|folder| folder.join(name));
    let listed = folders.iter().map(|folder| folder.join(name));
    own.into_iter().chain(listed).collect()
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                made.pop();
            }
            other => made.push(other),
        }
    }
    made
}

/// The engine's way to [`Known`].
pub(crate) struct Way(pub(crate) Rc<Known>);

impl Resolver for Way {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String, Error> {
        let found = self.0.place(base, name);
        found.map_err(|message| Exception::throw_syntax(ctx, &message))
    }
}

impl Loader for Way {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>, Error> {
        match self.0.text(name) {
            Some(text) => Module::declare(ctx.clone(), name, text),
            None => Err(Exception::throw_syntax(
                ctx,
                &format!("could not load module \"{name}\""),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_beside_the_importer_and_in_the_folders() {
        let folders = [PathBuf::from("/conf"), PathBuf::from("/lib")];
        let of = |base: &str, name: &str| -> Vec<String> {
            let paths = candidates(base, name, &folders).into_iter();
            paths
                .map(|path| normal(&path).display().to_string())
                .collect()
        };
        assert_eq!(of("main", "a.js"), ["/conf/a.js", "/lib/a.js"]);
        assert_eq!(of("main", "/x/./a.js"), ["/x/a.js"]);
        let relative = ["/x/b.js", "/b.js", "/b.js"];
        assert_eq!(of("/x/y/a.js", "../b.js"), relative);
    }
}
