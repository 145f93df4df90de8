//! The side of JavaScript that every context begins with: what scripts find, made on natives.
//!
//! The first parts are one function, which gets `native` and `own`. What few scripts use is in
//! parts of their own, which are read in a context when a script first asks for one of their
//! things.
//!
//! Invariants:
//! 1. A part that is read later makes its natives then, so that others pay nothing for them.
//! 2. The engine keeps the text of each function: indents and comments are left out of it.

use std::sync::OnceLock;

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Error, Exception, Function};

/// The parts of what every context begins with, in their order.
const FIRST: [&str; 4] = [
    include_str!("prelude/base.js"),
    include_str!("prelude/bytes.js"),
    include_str!("prelude/request.js"),
    include_str!("prelude/later.js"),
];
/// The parts that are read when a script first asks for one.
const LATER: [(&str, &str); 15] = [
    ("buffer", include_str!("prelude/buffer.js")),
    ("cache", include_str!("prelude/cache.js")),
    ("console", include_str!("prelude/console.js")),
    ("crypto", include_str!("prelude/crypto.js")),
    ("fetch", include_str!("prelude/fetch.js")),
    ("files", include_str!("prelude/files.js")),
    ("form", include_str!("prelude/form.js")),
    ("process", include_str!("prelude/process.js")),
    ("querystring", include_str!("prelude/querystring.js")),
    ("session", include_str!("prelude/session.js")),
    ("shared", include_str!("prelude/shared.js")),
    ("subrequest", include_str!("prelude/subrequest.js")),
    ("subtle", include_str!("prelude/subtle.js")),
    ("xml", include_str!("prelude/xml.js")),
    ("zlib", include_str!("prelude/zlib.js")),
];

/// The first parts.
pub(crate) fn first<'js>(ctx: &Ctx<'js>) -> Result<Function<'js>, Error> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| lean(&FIRST.concat()));
    function(ctx, "prelude", text)
}

/// A part that is read later, by its name.
pub(crate) fn later<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>, Error> {
    let mut parts = LATER.iter().filter(|(known, _)| *known == name);
    match parts.next() {
        Some((name, text)) => function(ctx, name, &lean(text)),
        None => Err(Exception::throw_type(ctx, "unknown part")),
    }
}

/// A part as a function that makes what is in it.
fn function<'js>(ctx: &Ctx<'js>, name: &str, text: &str) -> Result<Function<'js>, Error> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("millpond:{name}"));
    let text = format!("(function(native, own) {{'use strict';{text}\n}})");
    ctx.eval_with_options(text, options)
}

/// The text without indents and lines of comments; all lines keep their numbers.
fn lean(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.trim_start();
        if !line.starts_with("//") {
            made.push_str(line);
        }
        made.push('\n');
    }
    made
}
