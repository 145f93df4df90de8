//! `js_import`, `js_path`, `js_preload_object`, `js_engine`, `js_memory_limit`, `js_time_limit`,
//! `js_context_reuse`, `js_header_filter`, `js_body_filter`, `js_access`: scripts in nginx's
//! JavaScript, for requests.
//!
//! The language, its objects and its bounds are those of `crates/script`; here a request is made
//! its host. What computes variables stands in `variable.rs`, what makes answers in `content.rs`.
//!
//! ```text
//! a request ─► Session (a context that is lent to it) ─► a turn ─┬─ done ─► what it wants is done
//!                 ▲                                              └─ waits ─► operations (tasks of
//!                 └───────────────────── the first that ends ◄───────────── the request, no more)
//! ```
//!
//! Invariants:
//! 1. Nothing here is asked for a request of a location that names no script.
//! 2. What a script waits for ends with its request.

pub(crate) mod access;
pub mod body;
mod cache;
pub mod content;
mod engines;
pub mod environment;
pub mod fetch;
pub mod host;
pub mod operation;
pub mod periodic;
mod read;
pub mod session;
pub mod shared;
pub mod variable;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ArgError, Args, ByteSize, Family, FromArgs, ParseContext, Word};
use millpond_exchange::response::Response;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::{Closing, OwnFamily};
use millpond_script::{Fault, Import, Limits, Lines, Program};
use millpond_system::log::error::Level;

use self::body::BodyFilter;
use self::fetch::Fetching;
use self::host::Out;
use self::periodic::Ticks;
use self::session::Session;
use crate::cache::ruling::RulingHook;
use crate::filter::HeadHook;
use crate::log::request_error;
use crate::request::Request;

/// The settings of this module.
pub const FAMILY: OwnFamily = OwnFamily::of::<ScriptPolicy>();

/// The scripts of a location, or of a server of sessions.
#[derive(Clone, Debug, Family)]
#[family(http, server, location, stream, stream_server)]
pub struct ScriptPolicy {
    /// A folder in which modules are looked for, beside that of the configuration file and that of
    /// the module which imports; there may be several.
    #[directive(name = "js_path", repeat)]
    pub paths: Vec<String>,
    /// A module, and the name under which other lines know its functions; without one it is the
    /// file's, less its ending. Modules are read, with all that they import, when the configuration
    /// is; a mistake in one is told with its line, and nothing of them runs before a request.
    /// Imports of outer blocks hold, too.
    #[directive(name = "js_import", repeat)]
    pub imports: Vec<ImportLine>,
    /// A value that scripts find under a global name, from a file of JSON beside the configuration
    /// file; without a name it is the file's, less its ending `.json`. It is read when the
    /// configuration is, and scripts cannot change it. Those of outer blocks hold, too.
    ///
    /// # Differs from nginx
    ///
    /// nginx has it for its first engine only. Arrays keep their methods.
    #[directive(name = "js_preload_object", repeat)]
    pub preloads: Vec<PreloadLine>,
    /// The engine that runs scripts.
    ///
    /// # Differs from nginx
    ///
    /// There is QuickJS only; `njs` is taken, and QuickJS runs.
    #[directive(name = "js_engine", default = "qjs")]
    pub engine: ScriptEngine,
    /// The most memory that all scripts of a worker take together; what needs more fails, and its
    /// request is answered with 500.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such limit.
    #[directive(name = "js_memory_limit", default = "64m")]
    pub memory: ByteSize,
    /// The longest time that a script runs without waiting; then it is stopped, its request is
    /// answered with 500, and the log has the place.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such limit.
    #[directive(name = "js_time_limit", default = "250ms")]
    pub time: Duration,
    /// The most contexts that a worker keeps for reuse by other requests, with the values of their
    /// modules' variables; 0: each request gets one of its own.
    #[directive(name = "js_context_reuse", default = "128")]
    pub idle: u32,
    /// A function that sees the head of an answer, and may change its status and fields. It cannot
    /// wait.
    #[directive(
        name = "js_header_filter",
        contexts(location, if_location, limit_except)
    )]
    pub header_filter: Option<FunctionName>,
    /// A function that changes the body of an answer: it gets the request, a piece, and an object
    /// that says if the piece is the `last` one, and sends what it wants to by `r.sendBuffer()`.
    /// After `r.done()` the rest passes as it is. It cannot wait; where it fails the answer is
    /// broken off.
    ///
    /// # Differs from nginx
    ///
    /// The answer has no length and no ranges, also where nothing is changed.
    #[directive(name = "js_body_filter", contexts(location, if_location, limit_except))]
    pub body_filter: Option<BodyFilter>,
    /// A function that lets a request in or, by `r.return()`, refuses it; a location's own. It may
    /// wait.
    ///
    /// In `stream` it decides by `s.allow()`, `s.deny()`, `s.decline()` or `s.done(code)` about a
    /// session, before the rules of `allow` and `deny`: those are asked only after `s.decline()`.
    /// A session without a decision ends with 500.
    #[directive(name = "js_access")]
    pub access: Option<FunctionName>,
    /// A function that returns the key of a request in the cache, in place of `proxy_cache_key` and
    /// its like. It runs for each request of a location that has a cache, hits too, and cannot
    /// wait. A function that fails, or returns nothing, fails its request: what has no key of its
    /// own would share that of others.
    ///
    /// # Differs from nginx
    ///
    /// nginx has it not.
    #[directive(name = "js_cache_key", contexts(http, server, location))]
    pub cache_key: Option<FunctionName>,
    /// A function that decides what becomes of an answer that may be stored: it sees status and
    /// fields as they came, and returns an object with what it wants to say: `store: false`, `ttl`
    /// and `stale` (seconds), `tags`, `vary`; or `false`, which is `store: false`. What it does not
    /// say is left to the fields and the configuration. A `ttl` stands above fields that forbid
    /// storing. It runs once for each fill, and when a 304 makes a stored answer fresh again; never
    /// for a hit. It cannot wait; where it fails the answer is not stored.
    ///
    /// # Differs from nginx
    ///
    /// nginx has it not.
    #[directive(name = "js_cache_verdict", contexts(http, server, location))]
    pub verdict: Option<FunctionName>,
}

/// A module, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportLine(Import);

impl FromArgs for ImportLine {
    const SYNTAX: &'static str = "[name from] file";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let Import { name, file } =
            import(args, |whole| whole.strip_suffix(".js").unwrap_or(whole))?;
        if !is_name(&name) {
            let message = format!("cannot extract export name from file path \"{name}\"");
            return Err(ArgError::value(0, message));
        }
        Ok(ImportLine(Import { name, file }))
    }
}

/// A file and its name, which the file's own name says where none is written.
fn import(args: &Args<'_>, named: impl Fn(&str) -> &str) -> Result<Import, ArgError> {
    let (name, file) = match args.words {
        [file] => (
            named(file.text.rsplit('/').next().unwrap_or_default()),
            file,
        ),
        [name, from, file] if from.text == "from" => (name.text.as_str(), file),
        [_, from, _] => {
            let message = format!("invalid parameter \"{}\"", from.text);
            return Err(ArgError::value(1, message));
        }
        _ => return Err(ArgError::Count),
    };
    Ok(Import {
        name: name.to_string(),
        file: file.text.clone(),
    })
}

/// A value of a file, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreloadLine(Import);

impl FromArgs for PreloadLine {
    const SYNTAX: &'static str = "[name from] file.json";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let Import { name, file } = import(args, |whole| {
            whole.strip_suffix(".json").unwrap_or_default()
        })?;
        let message = if name.is_empty() {
            format!(
                "cannot extract export name from file path \"{file}\", \
                 use extended \"from\" syntax"
            )
        } else if !is_name(&name) {
            format!("invalid global name \"{name}\"")
        } else {
            return Ok(PreloadLine(Import { name, file }));
        };
        Err(ArgError::value(0, message))
    }
}

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName(pub String);

impl FunctionName {
    /// The function that a word names.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if !text.split('.').all(is_name) {
            return Err(format!(
                "invalid function \"{text}\", it has to be \"module.function\""
            ));
        }
        Ok(FunctionName(text.to_string()))
    }
}

impl FromWord for FunctionName {
    const SYNTAX: &'static str = "module.function";

    fn from_word(word: &Word, _cx: &mut ParseContext) -> Result<Self, WordError> {
        FunctionName::read(&word.text).map_err(WordError::Message)
    }
}

/// True for a name of the language.
fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let is_first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '$');
    chars.next().is_some_and(is_first) && chars.all(|c| is_first(c) || c.is_ascii_digit())
}

/// An engine of nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEngine {
    /// QuickJS.
    Quick,
    /// nginx's first one, for which QuickJS runs.
    Njs,
}

impl FromWord for ScriptEngine {
    const SYNTAX: &'static str = "qjs | njs";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        match word.text.as_str() {
            "qjs" => Ok(ScriptEngine::Quick),
            "njs" => {
                let message =
                    "the engine \"njs\" is not part of this program, QuickJS runs scripts";
                cx.diagnostics.push_warning(word.span, message);
                Ok(ScriptEngine::Njs)
            }
            other => Err(WordError::Message(format!("invalid value \"{other}\""))),
        }
    }
}

/// The scripts of a location, ready to run.
#[derive(Clone, Debug)]
pub struct Scripts {
    pub(crate) program: Arc<Program>,
    pub(crate) limits: Limits,
    header_filter: Option<FunctionName>,
    /// The function that lets requests or sessions in.
    pub access: Option<FunctionName>,
    pub(crate) verdict: Option<FunctionName>,
    pub(crate) body_filter: Option<BodyFilter>,
    ticks: Ticks,
    fetching: Arc<Fetching>,
}

impl Part for Scripts {
    const PLACE: Place = Place::Scripts;
}

/// The programs that were read so far, by what they were read from.
#[derive(Default)]
struct Programs(Vec<Read>);

/// A program that was read; none where it has a mistake.
struct Read {
    lines: Lines,
    program: Option<Arc<Program>>,
}

/// Reads the modules of a block, and keeps for requests what they run.
pub fn close(level: &mut Closing<'_>) {
    let policy: ScriptPolicy = level.own();
    let each = level.own_of_each::<ScriptPolicy>();
    let named = latest(each.iter().flat_map(|it| &it.imports).map(|line| &line.0));
    if named.is_empty() {
        return check_unnamed(level, &policy);
    }
    let conf_dir = level.builder.cx.conf_dir.clone();
    let paths = each.iter().flat_map(|it| &it.paths);
    let mut folders = vec![conf_dir.clone()];
    folders.extend(paths.map(|path| conf_dir.join(path)));
    let lines = Lines {
        imports: named,
        preloads: latest(each.iter().flat_map(|it| &it.preloads).map(|line| &line.0)),
        folders,
    };
    let Some(program) = program(level, lines) else {
        return;
    };
    let Some(fetching) = Fetching::of(level) else {
        return;
    };
    if policy.header_filter.is_some() || policy.body_filter.is_some() {
        level.draft.put(HeadHook(look_at_head));
        // `r.cache.ttl` is this variable's value.
        let span = level.span();
        level.builder.cx.variables.intern("cache_ttl", span);
    }
    if policy.verdict.is_some() {
        level.draft.put(RulingHook(verdict::rule));
    }
    if let Some(function) = &policy.cache_key {
        let line = level.span_of_own::<ScriptPolicy>("js_cache_key");
        let span = line.unwrap_or_else(|| level.span());
        verdict::make_key(level, function, span);
    }
    let ticks = level.draft.take().unwrap_or_default();
    level.draft.put(Scripts {
        program,
        limits: Limits {
            memory: policy.memory.as_usize(),
            time: policy.time,
            idle: policy.idle as usize,
        },
        header_filter: policy.header_filter,
        access: policy.access,
        verdict: policy.verdict,
        body_filter: policy.body_filter,
        ticks,
        fetching: Arc::new(fetching),
    });
}

/// The lines of all blocks; of two of one name, that of the inner block.
fn latest<'a>(lines: impl Iterator<Item = &'a Import>) -> Vec<Import> {
    let mut named: Vec<Import> = Vec::new();
    for import in lines {
        match named.iter_mut().find(|it| it.name == import.name) {
            Some(known) => *known = import.clone(),
            None => named.push(import.clone()),
        }
    }
    named
}

/// Refuses functions where there are no modules.
fn check_unnamed(level: &mut Closing<'_>, policy: &ScriptPolicy) {
    let content = level.draft.get::<content::Named>().cloned();
    let (content, content_span) = content.map(|it| (it.function, it.span)).unzip();
    let tick = level.draft.get::<Ticks>().and_then(Ticks::first);
    let (tick, tick_span) = tick.unzip();
    for (name, function, span) in [
        ("js_access", policy.access.clone(), None),
        ("js_header_filter", policy.header_filter.clone(), None),
        (
            "js_body_filter",
            policy.body_filter.as_ref().map(|it| it.function.clone()),
            None,
        ),
        ("js_cache_key", policy.cache_key.clone(), None),
        ("js_cache_verdict", policy.verdict.clone(), None),
        ("js_content", content, content_span),
        ("js_periodic", tick, tick_span),
    ] {
        let place = span.or_else(|| level.span_of_own::<ScriptPolicy>(name));
        if let (Some(function), Some(place)) = (function, place) {
            let message = format!("no imports defined for \"{name}\" \"{}\"", function.0);
            level.error_once(place, message);
        }
    }
}

/// The program of these lines; a mistake is told once.
fn program(level: &mut Closing<'_>, lines: Lines) -> Option<Arc<Program>> {
    let known = level.builder.of::<Programs>().0.iter();
    let mut same = known.filter(|it| it.lines == lines);
    if let Some(read) = same.next() {
        return read.program.clone();
    }
    let files = level.builder.cx.files.clone();
    let loaded = Program::load(&lines, move |path| read::module(&files, path));
    let program = match loaded {
        Ok(program) => Some(program),
        Err(error) => {
            let line = level.span_of_own::<ScriptPolicy>("js_import");
            let span = line.unwrap_or_else(|| level.span());
            level.error_once(span, error.to_string());
            None
        }
    };
    let programs = level.builder.of::<Programs>();
    programs.0.push(Read {
        lines,
        program: program.clone(),
    });
    program
}

/// Runs `js_header_filter`, and puts `js_body_filter` before the body.
fn look_at_head(req: &mut Request, response: &mut Response) {
    let location = Arc::clone(&req.location);
    let Some(scripts) = location.parts.get::<Scripts>() else {
        return;
    };
    if scripts.header_filter.is_some() {
        change_head(req, response, scripts);
    }
    if scripts.body_filter.is_some() {
        body::apply(req, response);
    }
}

fn change_head(req: &mut Request, response: &mut Response, scripts: &Scripts) {
    let Some(function) = &scripts.header_filter else {
        return;
    };
    let mut out = Out::of_answer(response);
    let outcome = Session::begin(req, scripts)
        .and_then(|mut session| session.at_once(req, &mut out, &function.0));
    out.change(response);
    if let Err(fault) = outcome {
        tell(req, &fault);
    }
}

/// Writes to the error log why a script came to no end of its own.
pub fn tell(req: &Request, fault: &Fault) {
    request_error::write(req, Level::Error, format_args!("js {fault}"));
}
