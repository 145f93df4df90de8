//! `root`, `alias`: from the path of a request to the path of a file.
//!
//! ```text
//! root  /data;   location /i/ …     /i/a.gif  ──►  /data/i/a.gif
//! alias /data/;  location /i/ …     /i/a.gif  ──►  /data/a.gif
//! alias /data/$1; location ~ …      /i/a.gif  ──►  /data/ and the first group
//! ```
//!
//! The two are one setting: the innermost block that has either decides, and a nested location
//! inherits an alias together with the path that it stands for.
//!
//! Invariants:
//! 1. `FilePath::root_len` is within its bytes.
//! 2. An alias replaces exactly the path of its location; a request whose path does not begin with
//!    that (a rewrite changed it) is an error and never another file.
//!
//! Sources: nginx ngx_http_core_root, ngx_http_map_uri_to_path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{
    Applied, ArgError, Args, Contexts, Directive, Family, FromArgs, ParseContext, Span, Statement,
    Template, WordError,
};

use crate::content::settings::ContentSettings;
use crate::request::Request;
use crate::var::ComposedVariable;
use millpond_exchange::failure::Failure;
use millpond_exchange::settings::level::Closing;
use millpond_exchange::settings::tree::LocationKind;

/// The directives as they are written.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct RootDirectives {
    /// The folder of the files; the path of the request is appended to it.
    #[directive(
        name = "root",
        default = "html",
        contexts(http, server, location, if_location)
    )]
    pub root: RootPath,
    /// The path that stands in place of the location's path; in a location with a regular
    /// expression, the file itself.
    ///
    /// # Differs from nginx
    ///
    /// When a rewrite has changed the path so that it no longer begins with the location's, the
    /// request fails, also where nginx would cut the path at the same length.
    #[directive(name = "alias", contexts(location))]
    pub alias: Option<RootPath>,
}

/// A folder or file that may hold variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootPath {
    /// The path; made absolute unless it begins with a variable.
    template: Template,
    /// The folder, ending in a slash, that a path that turns out to be relative starts at.
    prefix: Arc<str>,
}

impl FromArgs for RootPath {
    const SYNTAX: &'static str = "path";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        let directive = &args.name.text;
        for variable in ["document_root", "realpath_root"] {
            let forms = [format!("${variable}"), format!("${{{variable}}}")];
            if forms.iter().any(|form| word.text.contains(form)) {
                let message = format!(
                    "the ${variable} variable cannot be used in the \"{directive}\" directive"
                );
                return Err(ArgError::value(0, message));
            }
        }
        if word.text.contains('\0') {
            return Err(WordError::Invalid.at(0));
        }
        let is_root = directive == "root";
        let text = match word.text.strip_suffix('/') {
            Some(shorter) if is_root => shorter,
            _ => word.text.as_str(),
        };
        let mut prefix = args.cx.prefix.to_string_lossy().into_owned();
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        let is_complete = text.starts_with(['/', '$']) || (is_root && word.text == "/");
        let text = if is_complete {
            text.to_owned()
        } else {
            format!("{prefix}{text}")
        };
        let template = Template::parse(&text, word.span, &mut args.cx.variables)
            .map_err(|error| WordError::Message(error.to_string()).at(0))?;
        Ok(RootPath {
            template,
            prefix: prefix.into(),
        })
    }
}

/// The way in which the path of a request becomes the path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// `root`: the whole path is appended.
    Append,
    /// `alias` of a location with a plain path: what follows that path is appended.
    Replace {
        /// The location's path.
        prefix: Bytes,
    },
    /// `alias` of a location with a regular expression: nothing is appended.
    Whole,
}

/// The place of files.
#[derive(Clone, Debug)]
pub struct RootPolicy {
    base: RootPath,
    mapping: Mapping,
    /// The level, from the outermost, whose block has the alias; the builder knows its path.
    alias_level: Option<usize>,
}

impl Family for RootPolicy {
    type Raw = RootDirectivesRaw;

    fn directives(protocol: &'static str) -> Vec<Directive> {
        RootDirectives::directives(protocol)
    }

    fn apply(
        raw: &mut RootDirectivesRaw,
        protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied {
        let other = match st.name.text.as_str() {
            "root" => raw.alias.as_ref().map(|set| ("alias", set.span)),
            "alias" => raw.root.as_ref().map(|set| ("root", set.span)),
            _ => None,
        };
        if let Some((other, span)) = other {
            let name = &st.name.text;
            let message = format!(
                "\"{name}\" directive is duplicate, \"{other}\" directive was specified earlier"
            );
            cx.diagnostics
                .push_error(st.span, message)
                .also(span, "here");
            return Applied::Done;
        }
        RootDirectives::apply(raw, protocol, st, context, cx)
    }

    fn resolve(outer_to_inner: &[&RootDirectivesRaw], cx: &mut ParseContext) -> Self {
        for (level, raw) in outer_to_inner.iter().enumerate().rev() {
            if let Some(alias) = raw.alias.as_ref().and_then(|set| set.value.clone()) {
                return RootPolicy {
                    base: alias,
                    mapping: Mapping::Whole,
                    alias_level: Some(level),
                };
            }
            if let Some(root) = &raw.root {
                return RootPolicy {
                    base: root.value.clone(),
                    mapping: Mapping::Append,
                    alias_level: None,
                };
            }
        }
        RootPolicy {
            base: RootDirectives::resolve(&[], cx).root,
            mapping: Mapping::Append,
            alias_level: None,
        }
    }

    fn span_of(raw: &RootDirectivesRaw, protocol: &str, name: &str) -> Option<Span> {
        RootDirectives::span_of(raw, protocol, name)
    }
}

/// The path of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath {
    /// The path.
    pub bytes: Vec<u8>,
    /// The length of the part that `root` or `alias` gave.
    pub root_len: usize,
}

impl FilePath {
    /// The part that the request gave.
    pub fn tail(&self) -> &[u8] {
        self.bytes.get(self.root_len..).unwrap_or_default()
    }

    /// Puts something else in place of the part that the request gave.
    pub fn set_tail(&mut self, tail: &[u8]) {
        self.bytes.truncate(self.root_len);
        self.bytes.extend_from_slice(tail);
    }
}

impl RootPolicy {
    /// The level whose alias is in force, from the outermost; `None` for a root.
    pub fn alias_level(&self) -> Option<usize> {
        self.alias_level
    }

    /// Says which path the alias stands for; `None` for a location with a regular expression.
    pub fn bind_alias(&mut self, prefix: Option<Bytes>) {
        self.mapping = match prefix {
            Some(prefix) => Mapping::Replace { prefix },
            None => Mapping::Whole,
        };
    }

    /// The way in which paths are mapped.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// Says which path an alias stands for, that of the block which has it.
pub fn close(level: &mut Closing<'_>) {
    let Some(number) = level.settings.of::<ContentSettings>().root.alias_level() else {
        return;
    };
    let path = level.levels.get(number).and_then(|it| it.path.clone());
    let handlers = level.settings.of_mut::<ContentSettings>();
    handlers.root.bind_alias(path);
    let is_own = number + 1 == level.levels.len();
    if is_own && matches!(level.kind, LocationKind::Named) {
        let message = "the \"alias\" directive cannot be used inside the named location";
        level.builder.error(level.span(), message);
    }
}

/// The variables of this file.
pub const VARIABLES: &[ComposedVariable] = &[
    ComposedVariable {
        name: "document_root",
        doc: "What `root` or `alias` says for the request.",
        write: |req, out| {
            let root = document_root(req);
            out.extend_from_slice(&root.bytes);
            true
        },
    },
    ComposedVariable {
        name: "realpath_root",
        doc: "What `root` or `alias` says for the request, with all links resolved.",
        write: |req, out| {
            let root = document_root(req);
            let path = Path::new(OsStr::from_bytes(&root.bytes));
            let Ok(real) = std::fs::canonicalize(path) else {
                return false;
            };
            out.extend_from_slice(real.as_os_str().as_bytes());
            true
        },
    },
    ComposedVariable {
        name: "request_filename",
        doc: "The path of the file that the request names under `root` or `alias`.",
        write: |req, out| match map(req) {
            Ok(path) => {
                out.extend_from_slice(&path.bytes);
                true
            }
            Err(failure) => {
                crate::log::request_error::failure(req, &failure);
                false
            }
        },
    },
];

/// The file of a request's path.
pub fn map(req: &mut Request) -> Result<FilePath, Failure> {
    let mut path = document_root(req);
    let settings = &req.location.settings;
    let tail = match &settings.of::<ContentSettings>().root.mapping {
        Mapping::Append => Some(&req.uri[..]),
        _ if req.path.has_left_prefix => None,
        Mapping::Whole if req.path.adds_to_alias => Some(&req.uri[..]),
        Mapping::Whole => Some(&[][..]),
        Mapping::Replace { prefix } => req.uri.strip_prefix(&prefix[..]),
    };
    let Some(tail) = tail else {
        // INVARIANT 2.
        let name = String::from_utf8_lossy(&req.location.name);
        return Err(Failure::Internal(format!(
            "\"alias\" cannot be used in location \"{name}\" where URI was rewritten"
        )));
    };
    path.bytes.extend_from_slice(tail);
    Ok(path)
}

/// The folder that `root` or `alias` names for this request (`$document_root`), as a path without a
/// tail.
pub fn document_root(req: &mut Request) -> FilePath {
    let location = Arc::clone(&req.location);
    let base = &location.settings.of::<ContentSettings>().root.base;
    // Room for the path of the request, so that the usual file costs one allocation.
    let mut bytes = Vec::with_capacity(base.template.source.len() + req.uri.len() + 16);
    match base.template.as_literal() {
        Some(literal) => bytes.extend_from_slice(literal),
        None => {
            req.eval_into(&base.template, &mut bytes);
            if bytes.first() != Some(&b'/') {
                bytes.splice(0..0, base.prefix.bytes());
            }
        }
    }
    FilePath {
        root_len: bytes.len(),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{Diagnostics, LoadOptions, load_text};

    fn resolve(levels: &[&str]) -> (RootPolicy, ParseContext) {
        let mut cx = ParseContext::new("/prefix", "/conf");
        let raws: Vec<RootDirectivesRaw> =
            levels.iter().map(|text| raw_of(text, &mut cx)).collect();
        let raws: Vec<&RootDirectivesRaw> = raws.iter().collect();
        (RootPolicy::resolve(&raws, &mut cx), cx)
    }

    fn raw_of(text: &str, cx: &mut ParseContext) -> RootDirectivesRaw {
        let mut diagnostics = Diagnostics::new();
        let tree = load_text("t.conf", text, &LoadOptions::default(), &mut diagnostics);
        let mut raw = RootDirectivesRaw::default();
        for st in &tree.statements {
            let applied = RootPolicy::apply(&mut raw, "proxy", st, Contexts::LOCATION, cx);
            assert_eq!(applied, Applied::Done);
        }
        raw
    }

    #[test]
    fn innermost_of_root_and_alias_decides() {
        for (levels, base, alias_level) in [
            (&["", ""][..], "/prefix/html", None),
            (&["root /a/;", ""], "/a", None),
            (&["root /;", ""], "", None),
            (&["root x;", "alias /b/;"], "/b/", Some(1)),
            (&["alias /b/;", "root c;"], "/prefix/c", None),
            (&["alias /b/;", ""], "/b/", Some(0)),
            (&["root $dir/;"], "$dir", None),
        ] {
            let (policy, _) = resolve(levels);
            assert_eq!(&*policy.base.template.source, base, "{levels:?}");
            assert_eq!(policy.alias_level(), alias_level, "{levels:?}");
        }
    }

    #[test]
    fn mistakes_are_reported() {
        for (text, message) in [
            (
                "root /a; alias /b;",
                "\"alias\" directive is duplicate, \"root\" directive was specified earlier",
            ),
            (
                "root ${document_root}/x;",
                "the $document_root variable cannot be used in the \"root\" directive",
            ),
            ("root /a; root /b;", "\"root\" directive is duplicate"),
        ] {
            let (_, cx) = resolve(&[text]);
            let messages: Vec<_> = cx
                .diagnostics
                .iter()
                .map(|it| it.message.as_str())
                .collect();
            assert_eq!(messages, [message], "{text}");
        }
    }

    #[test]
    fn tail_is_replaced_behind_the_root() {
        let mut path = FilePath {
            bytes: b"/data/x".to_vec(),
            root_len: 5,
        };
        assert_eq!(path.tail(), b"/x");
        path.set_tail(b"/y/z");
        assert_eq!(path.bytes, b"/data/y/z");
    }
}
