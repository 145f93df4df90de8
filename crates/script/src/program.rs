//! `js_import`, `js_path`, `js_preload_object`: the modules and values of a configuration, read and
//! checked once at start.
//!
//! All modules are read, parsed and linked; no code of theirs runs. So a mistake in a script is one
//! of the configuration, and workers never look at the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rquickjs::{CatchResultExt as _, CaughtError, Context, Module, Runtime};

use crate::fault::one_line;
use crate::modules::{Known, Reading, STOP, Sources, Way};

/// The name of the module that imports what `js_import` names.
pub(crate) const MAIN: &str = "millpond:main";
/// Memory for the reading of a program.
const READING_MEMORY: usize = 256 << 20;

/// A `js_import`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name under which directives know the module.
    pub name: String,
    /// The file, as it was written.
    pub file: String,
}

/// A `js_preload_object` that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preload {
    /// The global name.
    pub(crate) name: String,
    /// The value, as JSON.
    pub(crate) text: String,
}

/// A mistake in a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place())]
pub struct LoadError {
    /// The file, where that is known.
    pub file: Option<String>,
    /// The line, where that is known.
    pub line: Option<u32>,
    /// The mistake.
    pub message: String,
}

impl LoadError {
    fn of(message: impl Into<String>) -> Self {
        LoadError {
            file: None,
            line: None,
            message: message.into(),
        }
    }

    fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            (None, _) => String::new(),
        }
    }
}

/// Modules that were read.
#[derive(Debug)]
pub struct Program {
    pub(crate) number: u64,
    pub(crate) imports: Vec<Import>,
    pub(crate) sources: Sources,
    pub(crate) preloads: Vec<Preload>,
}

/// The lines that a program is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The modules that are imported.
    pub imports: Vec<Import>,
    /// The values that are read from files of JSON; a file is looked for in the first folder.
    pub preloads: Vec<Import>,
    /// The folders in which modules are looked for.
    pub folders: Vec<PathBuf>,
}

impl Program {
    /// Reads the modules that are imported, with all that they import, and the values.
    pub fn load(
        lines: &Lines,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + 'static,
    ) -> Result<Arc<Program>, LoadError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let known = Rc::new(Known::default());
        let folder = lines.folders.first().cloned().unwrap_or_default();
        let preloads: Vec<Preload> = lines
            .preloads
            .iter()
            .map(|line| preload(line, &folder.join(&line.file), &read))
            .collect::<Result<_, _>>()?;
        known.reading.replace(Some(Reading {
            read: Box::new(read),
            folders: lines.folders.clone(),
        }));
        link(&lines.imports, &preloads, &known)?;
        Ok(Arc::new(Program {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            imports: lines.imports.clone(),
            sources: known.sources.take(),
            preloads,
        }))
    }

    /// The files that the program was read from.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.sources.texts.keys().map(String::as_str)
    }

    /// True if a name is one of `js_import`.
    pub fn has_module(&self, name: &str) -> bool {
        self.imports.iter().any(|import| import.name == name)
    }
}

/// The text of the module that imports all others; `first` is imported before them.
pub(crate) fn main_text(imports: &[Import], first: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(first) = first {
        text += &format!("import {};\n", quoted(first));
    }
    for (number, import) in imports.iter().enumerate() {
        text += &format!("import m{number} from {};\n", quoted(&import.file));
    }
    text += "export default {";
    for (number, import) in imports.iter().enumerate() {
        text += &format!("{}: m{number},", quoted(&import.name));
    }
    text + "};\n"
}

/// A text as a literal of the language.
fn quoted(text: &str) -> String {
    let mut made = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => made.extend(['\\', c]),
            c if c.is_control() => made += &format!("\\u{{{:x}}}", u32::from(c)),
            c => made.push(c),
        }
    }
    made + "\""
}

/// The text of a value; what is wrong in it shows later.
fn preload(
    line: &Import,
    path: &Path,
    read: &impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Preload, LoadError> {
    let failed = |why: String| LoadError {
        file: Some(path.display().to_string()),
        line: None,
        message: why,
    };
    let bytes = read(path).map_err(|error| failed(format!("could not be read ({error})")))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("is not UTF-8".to_string()))?;
    Ok(Preload {
        name: line.name.clone(),
        text,
    })
}

fn link(imports: &[Import], preloads: &[Preload], known: &Rc<Known>) -> Result<(), LoadError> {
    let failed = |error: rquickjs::Error| LoadError::of(error.to_string());
    let runtime = Runtime::new().map_err(failed)?;
    runtime.set_memory_limit(READING_MEMORY);
    runtime.set_loader(Way(Rc::clone(known)), Way(Rc::clone(known)));
    let context = Context::full(&runtime).map_err(failed)?;
    context.with(|ctx| {
        for Preload { name, text } in preloads {
            let parsed = ctx.json_parse(text.as_str()).catch(&ctx);
            parsed.map_err(|error| {
                let LoadError { message, .. } = told(&error);
                LoadError::of(format!("value of \"{name}\": {message}"))
            })?;
        }
        let text = main_text(imports, Some(STOP));
        let linked = Module::declare(ctx.clone(), MAIN, text).and_then(|it| it.eval());
        // The module that stops has thrown, or something is wrong.
        linked.map(|_| ()).catch(&ctx).map_err(|it| told(&it))
    })
}

fn told(error: &CaughtError<'_>) -> LoadError {
    let CaughtError::Exception(exception) = error else {
        return LoadError::of(one_line(&error.to_string()));
    };
    let name: Option<String> = exception.as_object().get("name").ok();
    let message = exception.message().unwrap_or_default();
    let name = name.unwrap_or_else(|| "Error".to_string());
    let (file, line) = first_place(&exception.stack().unwrap_or_default());
    LoadError {
        file,
        line,
        message: one_line(&format!("{name}: {message}")),
    }
}

/// The file and the line of the first place on a stack: `at name (file:line:column)`.
fn first_place(stack: &str) -> (Option<String>, Option<u32>) {
    let place = stack.lines().find_map(|line| {
        let line = line.trim().strip_prefix("at ")?;
        let inside = line.rsplit_once('(').map_or(line, |(_, inside)| inside);
        let place = inside.trim_end_matches(')');
        let (rest, last) = place.rsplit_once(':')?;
        let numbers = rest.rsplit_once(':').and_then(|(file, line)| {
            let line: u32 = line.parse().ok()?;
            Some((file.to_string(), line))
        });
        numbers.or_else(|| Some((rest.to_string(), last.parse().ok()?)))
    });
    match place {
        Some((file, _)) if file == MAIN => (None, None),
        Some((file, line)) => (Some(file), Some(line)),
        None => (None, None),
    }
}
