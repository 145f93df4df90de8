//! `millpond explain -c FILE URL`: which server and location take a request, what is in force
//! there, and what the cache makes of it.
//!
//! The deciding is done by `millpond_server::explain`, which runs the code that serves requests.
//! This file asks, and writes the answer. What is wrong in the configuration is left out, as for
//! `millpond check`, and said.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use millpond_conf::source::{Sources, Span};
use millpond_conf::tree::Statement;
use millpond_conf::{Contexts, render};
use millpond_proxy::cache::content_key::Kind;
use millpond_server::directives::all_directives;
use millpond_server::explain::{self, Caching, End, Explanation, Passed, Question};
use millpond_server::source::salvage::{Salvage, salvage};
use millpond_system::clock;

use super::judgement;
use super::options::RequestOptions;
use crate::check;
use crate::terminal::{Paint, Role};

/// The text for a terminal.
pub(super) fn explain(options: &RequestOptions, paint: Paint) -> Result<String> {
    let source = check::source(Some(&options.file), options.prefix.as_deref());
    let salvaged = salvage(&source);
    if let Some(why) = salvaged.unread() {
        bail!("{why}");
    }
    let mistakes = salvaged.mistakes().count();
    let Salvage {
        tree, right, conf, ..
    } = salvaged;
    let conf = conf.ok_or_else(|| {
        anyhow!(
            "{} cannot be used; see: millpond check {0}",
            source.path.display()
        )
    })?;
    let method = options.method.as_deref().unwrap_or("GET");
    let question = Question::of_url(&options.url, method, &options.fields);
    let question = question.map_err(|why| anyhow!(why))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    let explained = runtime.block_on(async { explain::explain(conf, &question) });
    let explained = explained.map_err(|why| anyhow!(why))?;
    let page = Page {
        sources: &tree.sources,
        dir: source.path.parent().unwrap_or(Path::new("")),
        paint,
    };
    let mut out = String::new();
    if mistakes > 0 {
        let what = if mistakes == 1 { "mistake" } else { "mistakes" };
        let note = format!(
            "without {mistakes} {what}; see: millpond check {}",
            source.path.display()
        );
        let _ = writeln!(out, "{}", paint.paint(Role::Doubtful, &note));
    }
    let title = format!("{method} {}", options.url);
    let _ = writeln!(out, "{}\n", paint.paint(Role::Title, &title));
    page.push_route(&mut out, &explained);
    if let End::Passed(passed) = &explained.end {
        page.push_cache(&mut out, passed, options);
    }
    page.push_directives(&mut out, &right, &explained);
    Ok(out)
}

/// A GET request for a URL.
pub(crate) fn get(url: &str) -> Result<Question> {
    Question::of_url(url, "GET", &[]).map_err(|why| anyhow!(why))
}

/// Means of writing a page.
struct Page<'a> {
    sources: &'a Sources,
    dir: &'a Path,
    paint: Paint,
}

impl Page<'_> {
    fn line(&self, out: &mut String, label: &str, text: &str) {
        let label = self.paint.paint(Role::Faint, &format!("{label:<9}"));
        let _ = writeln!(out, "  {label} {text}");
    }

    fn place(&self, span: Span) -> String {
        let place = self.sources.place(span);
        place.map_or("(not written)".to_string(), |place| {
            let path = place.path.strip_prefix(self.dir).unwrap_or(place.path);
            format!("{}:{}", path.display(), place.line)
        })
    }

    fn push_route(&self, out: &mut String, explained: &Explanation) {
        self.line(out, "listen", &explained.listen);
        if let Some(shown) = &explained.certificate {
            self.line(out, "sends", &shown.what);
            if let Some(span) = shown.span {
                self.line(out, "", &format!("by {}", self.place(span)));
            }
            self.line(out, "", &shown.why);
        }
        self.line(out, "server", &self.place(explained.server));
        self.line(out, "", &explained.server_reason);
        for event in &explained.events {
            self.line(out, "path", &event.text);
            self.line(out, "", &format!("by {}", self.place(event.span)));
        }
        self.line(out, "location", &self.place(explained.location));
        self.line(out, "", &explained.location_reason);
        for (index, note) in explained.gates.notes.iter().enumerate() {
            let label = if index == 0 { "gates" } else { "" };
            self.line(out, label, note);
        }
        let answer = match &explained.end {
            _ if explained.gates.refused.is_some() => {
                format!("status {}", explained.gates.refused.unwrap_or_default())
            }
            End::Answered(status, None) => format!("status {status}"),
            End::Answered(status, Some(target)) => format!("status {status}, to {target}"),
            End::Files(path) => format!("the file of {path}"),
            End::Itself(directive) => directive.to_string(),
            End::Purges(zone) => format!("purges entries of the zone \"{zone}\""),
            End::Passed(passed) => match &passed.to {
                Ok(to) => format!("the upstream: {to}"),
                Err(why) => format!("none: {why}"),
            },
        };
        self.line(out, "answer", &answer);
        if let End::Passed(passed) = &explained.end
            && let Some(most) = passed.redirects
        {
            let text = format!("up to {most} are followed; their end is the answer");
            self.line(out, "redirects", &text);
        }
    }

    fn push_cache(&self, out: &mut String, passed: &Passed, options: &RequestOptions) {
        let _ = writeln!(out, "\n{}", self.paint.paint(Role::Title, "Cache"));
        let caching = match &passed.cache {
            Ok(caching) => caching,
            Err(why) => return self.line(out, "none", why),
        };
        self.line(out, "zone", &caching.zone);
        self.line(out, "key", &caching.key);
        match caching.by_content {
            None => {}
            Some(Kind::Query) => self.line(out, "", "and a digest of the content behind it"),
            Some(Kind::GraphQl) => {
                let text = "for a query of GraphQL without its arguments, a digest of it behind it";
                self.line(out, "", text);
            }
        }
        if caching.obeys_no_vary_search {
            let text = "less where an answer's No-Vary-Search says so: millpond why knows it";
            self.line(out, "query", text);
        }
        for (label, values) in [("bypass", &caching.bypass), ("no_cache", &caching.no_cache)] {
            for (index, value) in values.iter().enumerate() {
                let label = if index == 0 { label } else { "" };
                self.line(out, label, &value.to_string());
            }
        }
        self.line(
            out,
            "look-up",
            if caching.is_bypassed {
                "skipped: a value of the _cache_bypass in force is not empty"
            } else {
                "yes"
            },
        );
        if caching.asks_owner {
            let text = "the node of the fleet that owns the key, or the origin";
            self.line(out, "misses ask", text);
        }
        if caching.min_uses > 1 {
            let text = format!("from request {} on", caching.min_uses);
            self.line(out, "stored", &text);
        }
        if let Some((status, fields)) = &options.answer {
            self.push_judgement(out, caching, (*status, fields));
        }
    }

    fn push_judgement(
        &self,
        out: &mut String,
        caching: &Caching,
        (status, fields): (u16, &[(String, String)]),
    ) {
        let now = clock::now_ms().div_euclid(1000);
        let lines = judgement::of(caching, (status, fields), now);
        for (label, text) in lines {
            self.line(out, label, &text);
        }
    }

    /// The directives that are in force where the request ends.
    fn push_directives(&self, out: &mut String, statements: &[Statement], at: &Explanation) {
        let mut chain = Vec::new();
        if !find_chain(statements, &[at.server, at.location], &mut chain) {
            return;
        }
        let _ = writeln!(out, "\n{}", self.paint.paint(Role::Title, "In force here"));
        for statement in in_force(&chain) {
            let shown = statement.args.iter().map(|word| render::shown(&word.text));
            let words: Vec<String> = shown.collect();
            let text = format!("{} {}", statement.name.text, words.join(" "));
            let place = self.paint.paint(Role::Faint, &self.place(statement.span));
            let _ = if text.chars().count() > 48 {
                writeln!(out, "  {text}\n  {:48}  {place}", "")
            } else {
                writeln!(out, "  {text:48}  {place}")
            };
        }
    }
}

/// The blocks from the outermost to the one with the last of the places, through those with the
/// others.
fn find_chain<'a>(
    statements: &'a [Statement],
    places: &[Span],
    chain: &mut Vec<&'a Statement>,
) -> bool {
    let Some((first, rest)) = places.split_first() else {
        return true;
    };
    for statement in statements {
        let Some(body) = &statement.body else {
            continue;
        };
        chain.push(statement);
        let is_here = statement.span == *first;
        // A request that has no location ends in the server itself.
        let rest = match rest {
            [last] if last == first => &[],
            rest => rest,
        };
        let found = if is_here {
            find_chain(body, rest, chain)
        } else {
            find_chain(body, places, chain)
        };
        if found {
            return true;
        }
        chain.pop();
    }
    false
}

/// Directives that are in force in the innermost block: its own, and those that it inherits.
fn in_force<'a>(chain: &[&'a Statement]) -> Vec<&'a Statement> {
    let settings = all_directives();
    let inherits = |name: &str| {
        let of_block = |it: &&millpond_conf::Directive| it.name == name;
        let found = settings.iter().find(of_block);
        found.is_some_and(|it| it.contexts.allows(Contexts::HTTP | Contexts::SERVER))
    };
    // An `if` in a location has the handler of the location.
    let own_depth = usize::from(chain.last().is_some_and(|block| block.name.text == "if"));
    let mut shown: Vec<&Statement> = Vec::new();
    for (depth, block) in chain.iter().rev().enumerate() {
        let outer: Vec<&Statement> = shown.clone();
        let is_hidden = |st: &Statement| outer.iter().any(|inner| inner.name.text == st.name.text);
        for statement in block.body.iter().flatten() {
            let name = &*statement.name.text;
            let counts = inherits(name) || depth <= own_depth;
            if counts && statement.body.is_none() && !is_hidden(statement) {
                shown.push(statement);
            }
        }
    }
    shown.sort_by(|a, b| a.name.text.cmp(&b.name.text).then(a.span.cmp(&b.span)));
    shown
}
