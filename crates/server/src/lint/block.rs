//! The blocks of a configuration with what they inherit, as lints see them.
//!
//! Inheritance is that of most directives: what a block says, once or several times, replaces what
//! the blocks around it say.

use std::collections::HashMap;
use std::time::Duration;

use millpond_conf::tree::Statement;
use millpond_conf::value::{Part, parse_duration};
use millpond_conf::variable::VariableUses;
use millpond_conf::{Contexts, Template};

/// The protocols whose directives have the same names but for the first word.
pub(super) const PROTOCOLS: [&str; 4] = ["proxy", "fastcgi", "uwsgi", "scgi"];

/// All blocks of the http block, and those inside.
pub(super) struct Blocks<'a> {
    all: Vec<Block<'a>>,
    /// The arguments of `set` by the name of the variable, without its `$`; and the values of
    /// `map` and `split_clients`.
    values: HashMap<String, Vec<&'a str>>,
    /// True if the configuration has `user`.
    names_user: bool,
}

/// One block.
struct Block<'a> {
    kind: Contexts,
    statement: &'a Statement,
    outer: Option<usize>,
    /// Statements of the block by name: an http block may have very many.
    by_name: HashMap<&'a str, Vec<&'a Statement>>,
}

/// A block among the others.
#[derive(Clone, Copy)]
pub(super) struct View<'b, 'a> {
    blocks: &'b Blocks<'a>,
    index: usize,
}

/// A block that passes requests to an upstream.
#[derive(Clone, Copy)]
pub(super) struct Passing<'b, 'a> {
    /// The block.
    pub(super) view: View<'b, 'a>,
    /// The first word of its directives.
    pub(super) protocol: &'static str,
    /// The statement that passes.
    pub(super) pass: &'a Statement,
}

impl<'a> Blocks<'a> {
    /// The blocks of a configuration.
    pub(super) fn of(statements: &'a [Statement]) -> Blocks<'a> {
        let mut blocks = Blocks {
            all: Vec::new(),
            values: HashMap::new(),
            names_user: statements.iter().any(|st| st.name.text == "user"),
        };
        for http in statements.iter().filter(|st| st.name.text == "http") {
            blocks.add(http, Contexts::HTTP, None);
        }
        blocks
    }

    /// True if the configuration has `user`.
    pub(super) fn names_user(&self) -> bool {
        self.names_user
    }

    /// Adds a block and those inside; the depth is bounded by the reader of the language.
    fn add(&mut self, statement: &'a Statement, kind: Contexts, outer: Option<usize>) {
        let index = self.all.len();
        self.all.push(Block {
            kind,
            statement,
            outer,
            by_name: HashMap::new(),
        });
        for inner in statement.body.as_deref().unwrap_or_default() {
            // The block was pushed just now.
            let by_name = &mut self.all[index].by_name;
            by_name.entry(&inner.name.text).or_default().push(inner);
            match inner_kind(kind, &inner.name.text) {
                Some(inner_kind) if inner.body.is_some() => {
                    self.add(inner, inner_kind, Some(index));
                }
                _ => self.note_values(inner),
            }
        }
    }

    fn note_values(&mut self, statement: &'a Statement) {
        let [first, .., last] = statement.args.as_slice() else {
            return;
        };
        let (name, values): (_, Vec<&str>) = match (&*statement.name.text, &statement.body) {
            ("set", None) => (first, vec![&last.text]),
            ("map" | "split_clients", Some(lines)) => {
                let last_words = lines.iter().filter_map(|line| line.args.last());
                (last, last_words.map(|word| &*word.text).collect())
            }
            _ => return,
        };
        let name = name.text.trim_start_matches('$').to_ascii_lowercase();
        self.values.entry(name).or_default().extend(values);
    }

    /// Values that `set`, `map` and `split_clients` may give to a variable; none if nothing does.
    pub(super) fn values(&self, variable: &str) -> Option<&[&'a str]> {
        self.values.get(variable).map(Vec::as_slice)
    }

    /// All blocks, each before those inside.
    pub(super) fn views(&self) -> impl Iterator<Item = View<'_, 'a>> {
        (0..self.all.len()).map(|index| View {
            blocks: self,
            index,
        })
    }

    /// All blocks that pass requests on.
    pub(super) fn passing(&self) -> impl Iterator<Item = Passing<'_, 'a>> {
        self.views().flat_map(|view| {
            PROTOCOLS.into_iter().filter_map(move |protocol| {
                let pass = view.own(&format!("{protocol}_pass")).next()?;
                Some(Passing {
                    view,
                    protocol,
                    pass,
                })
            })
        })
    }

    /// All blocks that pass requests on and store the answers.
    pub(super) fn caching(&self) -> impl Iterator<Item = Passing<'_, 'a>> {
        self.passing().filter(|passing| passing.zone().is_some())
    }

    /// The statements of a name in http blocks.
    pub(super) fn declarations(&self, name: &'static str) -> impl Iterator<Item = &'a Statement> {
        let outermost = self.views().filter(|view| view.outer().is_none());
        outermost.flat_map(move |view| view.own(name))
    }
}

fn inner_kind(outer: Contexts, name: &str) -> Option<Contexts> {
    Some(match name {
        "server" if outer == Contexts::HTTP => Contexts::SERVER,
        "location" if outer == Contexts::SERVER || outer == Contexts::LOCATION => {
            Contexts::LOCATION
        }
        "if" if outer == Contexts::LOCATION => Contexts::IF_LOCATION,
        "if" if outer == Contexts::SERVER => Contexts::IF_SERVER,
        "limit_except" if outer == Contexts::LOCATION => Contexts::LIMIT_EXCEPT,
        _ => return None,
    })
}

impl<'b, 'a> View<'b, 'a> {
    fn block(self) -> &'b Block<'a> {
        // A view is made with the index of a block that is there.
        &self.blocks.all[self.index]
    }

    /// Kind of the block.
    pub(super) fn kind(self) -> Contexts {
        self.block().kind
    }

    /// The statement that it belongs to.
    pub(super) fn statement(self) -> &'a Statement {
        self.block().statement
    }

    /// The block around it.
    pub(super) fn outer(self) -> Option<View<'b, 'a>> {
        let index = self.block().outer?;
        Some(View { index, ..self })
    }

    /// The block itself and those around it, from the inside out.
    pub(super) fn chain(self) -> impl Iterator<Item = View<'b, 'a>> {
        std::iter::successors(Some(self), |view| view.outer())
    }

    /// The server that it belongs to.
    pub(super) fn server(self) -> Option<View<'b, 'a>> {
        self.chain().find(|view| view.kind() == Contexts::SERVER)
    }

    /// All statements of the block.
    pub(super) fn statements(self) -> &'a [Statement] {
        self.block().statement.body.as_deref().unwrap_or_default()
    }

    /// The statements of a name that stand in the block itself.
    pub(super) fn own(self, name: &str) -> impl Iterator<Item = &'a Statement> + use<'a, 'b> {
        let found = self.block().by_name.get(name);
        found.into_iter().flatten().copied()
    }

    /// The statements of a name that are in force: those of the innermost block that has any.
    pub(super) fn in_force(self, name: &str) -> Vec<&'a Statement> {
        let lists = self.chain().map(|view| view.own(name).collect::<Vec<_>>());
        lists
            .into_iter()
            .find(|list| !list.is_empty())
            .unwrap_or_default()
    }

    /// The first argument of a directive that is in force.
    pub(super) fn value(self, name: &str) -> Option<&'a str> {
        let statement = self.in_force(name).into_iter().next()?;
        statement.args.first().map(|word| &*word.text)
    }
}

impl<'a> Passing<'_, 'a> {
    /// The name of a directive for the protocol.
    pub(super) fn name(&self, rest: &str) -> String {
        format!("{}_{rest}", self.protocol)
    }

    /// The statements of the protocol's directive that are in force.
    pub(super) fn in_force(&self, rest: &str) -> Vec<&'a Statement> {
        self.view.in_force(&self.name(rest))
    }

    /// The name of the zone that answers are stored in, and the statement that says it.
    pub(super) fn zone(&self) -> Option<(&'a str, &'a Statement)> {
        let statement = self.in_force("cache").into_iter().next()?;
        let name = statement.args.first()?;
        (name.text != "off").then_some((&*name.text, statement))
    }

    /// The text of the cache key, and the statement that says it, unless it is the default.
    pub(super) fn key(&self) -> Option<(&'a str, Option<&'a Statement>)> {
        match self.in_force("cache_key").into_iter().next() {
            Some(statement) => Some((&statement.args.first()?.text, Some(statement))),
            None if self.protocol == "proxy" => Some(("$scheme$proxy_host$request_uri", None)),
            None => None,
        }
    }

    /// The longest time that `…_cache_valid` gives, and the statement that says it.
    pub(super) fn longest_valid(&self) -> Option<(Duration, &'a Statement)> {
        let statements = self.in_force("cache_valid").into_iter();
        let times = statements.filter_map(|st| Some((parse_duration(&st.args.last()?.text)?, st)));
        times.max_by_key(|(time, _)| *time)
    }
}

/// The names of the variables in a text, in small letters.
pub(super) fn variables(text: &str) -> Vec<String> {
    let mut uses = VariableUses::new();
    let parsed = Template::parse(text, millpond_conf::Span::NONE, &mut uses);
    // A malformed text was reported when its statement was read.
    if parsed.is_err() {
        return Vec::new();
    }
    let names = uses.uses().map(|(id, _)| uses.name(id).to_string());
    names.collect()
}

/// The names of variables that stand side by side in a text, in small letters.
pub(super) fn neighbours(text: &str) -> Vec<(String, String)> {
    let mut uses = VariableUses::new();
    let Ok(template) = Template::parse(text, millpond_conf::Span::NONE, &mut uses) else {
        return Vec::new();
    };
    let pairs = template.parts.windows(2).filter_map(|pair| match pair {
        [Part::Variable(left), Part::Variable(right)] => {
            Some((uses.name(*left).to_string(), uses.name(*right).to_string()))
        }
        _ => None,
    });
    pairs.collect()
}

/// The arguments of a statement, as they could be written.
pub(super) fn words(statement: &Statement) -> String {
    let words: Vec<&str> = statement.args.iter().map(|word| &*word.text).collect();
    words.join(" ")
}
