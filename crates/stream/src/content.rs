//! `proxy_pass`, `pass`, `return`, `set`: where sessions go, and the variables that are set before.
//!
//! A server has one line that says where its sessions go. Addresses without variables are resolved
//! when the line is read, as nginx does.

use std::mem;
use std::sync::Arc;

use millpond_conf::{Contexts, Statement, Template, VarId};
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_proxy::request::{Request, Value};
use millpond_proxy::rewrite::variable_name;
use millpond_proxy::upstream::group::Group;
use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::pass;
use millpond_proxy::var;
use millpond_system::address::Address;
use millpond_system::network;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: "proxy_pass",
        contexts: Contexts::STREAM_SERVER,
        syntax: "address",
        is_block: false,
        pass: Pass::First,
        doc: "The peers that sessions are passed to: host:port, unix:socket or a group's name. With \
              variables it is worked out for each session, a name by the `resolver`.",
        apply: proxy_pass,
    },
    Row {
        name: "pass",
        contexts: Contexts::STREAM_SERVER,
        syntax: "address",
        is_block: false,
        pass: Pass::First,
        doc: "Hands sessions over to a listener of this process, of `http` or `stream`: an address \
              with a port, or unix:socket. It may have variables. What was read of a client to \
              decide is handed over, too.",
        apply: pass_on,
    },
    Row {
        name: "return",
        contexts: Contexts::STREAM_SERVER,
        syntax: "text",
        is_block: false,
        pass: Pass::First,
        doc: "Sends the client a text, which may have variables, and ends the session.",
        apply: return_text,
    },
    Row {
        name: "set",
        contexts: Contexts::STREAM_SERVER,
        syntax: "$variable value",
        is_block: false,
        pass: Pass::First,
        doc: "Gives a variable a value at the begin of each session.",
        apply: set,
    },
];

/// The fate of sessions.
#[derive(Debug)]
pub enum Content {
    /// The session is passed to a group.
    Group(Arc<Group>),
    /// The session is passed to the group of this name, or a host and port.
    Variable(Template),
    /// The client gets a text.
    Return(Template),
    /// The session is handed over to the listener of an address.
    Pass(Template),
}

/// The address of a listener that a session is handed over to, by the value of the directive.
pub(crate) fn passed_to(req: &mut Request, template: &Template) -> Result<Address, Failure> {
    let value = req.eval(template);
    let text = String::from_utf8_lossy(&value);
    // A name would have to be waited for.
    let is_address = text.starts_with("unix:")
        || network::split_port(&text, 0).is_ok_and(|(host, _)| network::ip_of(host).is_some());
    let found = if is_address || template.as_literal().is_some() {
        listener(&text)
    } else {
        Err("no addresses".to_string())
    };
    found.map_err(|why| Failure::Internal(format!("{why} in pass \"{text}\"")))
}

/// A variable that is given a value.
#[derive(Debug)]
pub struct Assignment {
    variable: VarId,
    value: Template,
}

impl Assignment {
    /// Gives the variable its value.
    pub(crate) fn run(&self, req: &mut Request) {
        let value = req.eval(&self.value);
        req.set_value(self.variable, Value::Found(value));
    }
}

fn proxy_pass(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    let Some(template) = builder.template(word) else {
        return;
    };
    if template.as_literal().is_none() {
        return put(builder, statement, draft, Content::Variable(template));
    }
    match pass::group_of(&word.text, builder.of::<Groups>()) {
        Ok(group) => put(builder, statement, draft, Content::Group(group)),
        Err(why) => builder.error(word.span, format!("{why} in upstream \"{}\"", word.text)),
    }
}

fn pass_on(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    let Some(template) = builder.template(word) else {
        return;
    };
    if template.as_literal().is_some()
        && let Err(why) = listener(&word.text)
    {
        return builder.error(word.span, format!("{why} in \"{}\"", word.text));
    }
    put(builder, statement, draft, Content::Pass(template));
}

/// The address of a listener.
fn listener(text: &str) -> Result<Address, String> {
    let addresses = network::resolve(text, 0)?;
    match addresses.into_iter().next() {
        Some(Address::Inet(address)) if address.port() == 0 => Err("no port".to_string()),
        Some(address) => Ok(address),
        None => Err("no addresses".to_string()),
    }
}

fn return_text(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let word = statement.args.first();
    if let Some(text) = word.and_then(|word| builder.template(word)) {
        put(builder, statement, draft, Content::Return(text));
    }
}

/// Declares the content of a server, of which a line of each name may stand there.
fn put(builder: &mut Builder, statement: &Statement, draft: &mut Draft, content: Content) {
    let is_of_kind = |other: &Content| mem::discriminant(other) == mem::discriminant(&content);
    // nginx: of lines with different names, the last one counts.
    if draft.get::<Content>().is_some_and(is_of_kind) {
        let name = &statement.name.text;
        builder.error(statement.span, format!("\"{name}\" directive is duplicate"));
        return;
    }
    draft.put(content);
}

fn set(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    let [name, value] = statement.args.as_slice() else {
        return;
    };
    let variable = variable_name(builder, name);
    let value = builder.template(value);
    if let (Some(variable), Some(value)) = (variable, value) {
        var::define_set(builder, variable);
        let assignment = Assignment { variable, value };
        draft.of::<Vec<Assignment>>().push(assignment);
    }
}

impl Content {
    /// The group that a session is passed to; none for one that is not.
    pub(crate) async fn group(&self, req: &mut Request) -> Result<Option<Arc<Group>>, Failure> {
        match self {
            Content::Group(group) => Ok(Some(Arc::clone(group))),
            Content::Return(_) | Content::Pass(_) => Ok(None),
            Content::Variable(template) => {
                let value = req.eval(template);
                let address = String::from_utf8_lossy(&value);
                pass::group_for(req, &address).await.map(Some)
            }
        }
    }
}
