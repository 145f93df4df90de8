//! `allow`, `deny`, `satisfy`, `limit_except`: who may.
//!
//! The rules of the innermost block that has any are tried in the order of the file; the first one
//! that holds for the client's address decides, and without any the client may. Beside the
//! addresses there may be other gates (`auth_basic`, `auth_request`); `satisfy` says whether all of
//! them or any one must open.
//!
//! Invariants:
//! 1. `allow` and `deny` are one list: the order between them counts.
//! 2. With `satisfy any`, a gate that has nothing to say opens for nobody.

use std::sync::Arc;

use millpond_conf::schema::report_misplaced;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Applied, Contexts, Directive, Family, ParseContext, Span, Spanned, Statement};
use millpond_system::address::Address;
use millpond_system::log::error::Level;
use millpond_system::network::{LowBits, Network};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::auth_basic::Checked;
use super::{auth_basic, auth_jwt, auth_request};
use crate::content::ContentHandler;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase::Flow;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::LimitExcept;
use millpond_exchange::settings::level::{self, Closing};
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::tree::LocationKind;
use millpond_exchange::stats::status_zone::StatusZone;

/// Rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "limit_except",
    contexts: Contexts::LOCATION,
    syntax: "method … { … }",
    is_block: true,
    pass: Pass::Ordered,
    doc: "Settings for the requests with another method than those named; GET includes HEAD.",
    apply: limit_except,
}];

/// The count of gates that must open: all, or any one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum Satisfy {
    /// All.
    #[word("all")]
    All,
    /// Any one.
    #[word("any")]
    Any,
}

/// The way in which gates work together.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SatisfyPolicy {
    /// The gates (addresses, passwords) that a request must pass: `all` of them, or `any` one.
    #[directive(name = "satisfy", default = "all")]
    pub satisfy: Satisfy,
}

/// The rules about addresses.
#[derive(Clone, Debug, Default)]
pub struct AddressRules {
    rules: Vec<Rule>,
}

/// One `allow` or `deny`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    /// The addresses that the rule is about; none for all.
    network: Option<Network>,
}

/// The answer of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gate opens.
    Allow,
    /// The gate stays shut.
    Deny,
}

/// The clients that a rule is about, as an argument.
#[derive(Clone, Debug)]
pub struct Whom(Option<Network>);

impl FromArgs for Whom {
    const SYNTAX: &'static str = "address | CIDR | unix: | all";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        if word.text == "all" {
            return Ok(Whom(None));
        }
        let (network, low) = Network::parse(&word.text)
            .ok_or_else(|| ArgError::value(0, format!("invalid parameter \"{}\"", word.text)))?;
        if low == LowBits::Set {
            let message = format!("low address bits of {} are meaningless", word.text);
            args.cx.diagnostics.push_warning(word.span, message);
        }
        Ok(Whom(Some(network)))
    }
}

/// The blocks in which the rules may stand.
const CONTEXTS: Contexts = Contexts::HTTP
    .union(Contexts::SERVER)
    .union(Contexts::LOCATION)
    .union(Contexts::LIMIT_EXCEPT)
    .union(Contexts::STREAM)
    .union(Contexts::STREAM_SERVER);

/// Written by hand, because two directives make one list (INVARIANT 1).
impl Family for AddressRules {
    type Raw = Vec<Spanned<(String, Whom)>>;

    fn directives(_protocol: &'static str) -> Vec<Directive> {
        let record = |name: &'static str, doc: &'static str| Directive {
            name: name.into(),
            contexts: CONTEXTS,
            syntax: Whom::SYNTAX,
            default: None,
            doc: doc.into(),
            source: concat!(file!(), ":", line!()),
            block: false,
            validate: |args| Whom::from_args(args).map(drop),
        };
        vec![
            record("allow", "Lets clients of an address or a network in."),
            record(
                "deny",
                "Keeps clients of an address or a network out; they are answered with 403.",
            ),
        ]
    }

    fn apply(
        raw: &mut Self::Raw,
        _protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied {
        let name = st.name.text.as_str();
        if !matches!(name, "allow" | "deny") {
            return Applied::Unknown;
        }
        if !CONTEXTS.allows(context) {
            report_misplaced(st, CONTEXTS, cx);
            return Applied::Done;
        }
        let read = Whom::from_args(&mut Args {
            name: &st.name,
            words: &st.args,
            body: st.body.as_deref(),
            cx,
        });
        match read {
            Ok(whom) => raw.push(Spanned {
                value: (name.to_string(), whom),
                span: st.span,
            }),
            Err(error) => error.report(st, Whom::SYNTAX, cx),
        }
        Applied::Done
    }

    fn resolve(outer_to_inner: &[&Self::Raw], _cx: &mut ParseContext) -> Self {
        let innermost = outer_to_inner.iter().rev().find(|raw| !raw.is_empty());
        let rules = innermost.map(|raw| raw.iter().map(|set| Rule::of(&set.value)).collect());
        AddressRules {
            rules: rules.unwrap_or_default(),
        }
    }

    fn span_of(raw: &Self::Raw, _protocol: &str, name: &str) -> Option<Span> {
        let last = raw.iter().rev().find(|set| set.value.0 == name);
        last.map(|set| set.span)
    }
}

impl Rule {
    fn of((name, Whom(network)): &(String, Whom)) -> Rule {
        let verdict = match name.as_str() {
            "allow" => Verdict::Allow,
            _ => Verdict::Deny,
        };
        Rule {
            verdict,
            network: *network,
        }
    }
}

impl AddressRules {
    /// The verdict of the first rule for the address; `None` when there is none.
    pub fn verdict(&self, address: &Address) -> Option<Verdict> {
        let is_about = |rule: &&Rule| rule.network.is_none_or(|network| network.contains(address));
        self.rules.iter().find(is_about).map(|rule| rule.verdict)
    }
}

/// True when the location has a gate.
pub fn is_due(req: &Request) -> bool {
    has_gate(&req.location.settings)
}

/// True for the settings of a location with a gate.
pub fn has_gate(settings: &LocationSettings) -> bool {
    !settings.of::<HandlerSettings>().access.rules.is_empty()
        || !settings.of::<HandlerSettings>().auth_basic.is_off()
        || settings.of::<HandlerSettings>().auth_jwt.gate().is_some()
        || settings
            .of::<HandlerSettings>()
            .auth_request
            .path
            .on()
            .is_some()
}

/// True if any one of the gates of a request is enough, a script's among them.
pub fn asks_any(req: &Request) -> bool {
    let settings = req.location.settings.of::<HandlerSettings>();
    settings.satisfy.satisfy == Satisfy::Any && is_due(req)
}

/// Asks the gates; a refusal that a password could change may have to wait (`auth_delay`).
pub async fn run(req: &mut Request) -> Result<Flow, Failure> {
    let outcome = ask(req).await;
    if matches!(outcome, Err(Failure::Status(401 | 407))) {
        auth_basic::delay_refusal(req).await?;
    }
    outcome
}

async fn ask(req: &mut Request) -> Result<Flow, Failure> {
    let location = Arc::clone(&req.location);
    let by_address = location
        .settings
        .of::<HandlerSettings>()
        .access
        .verdict(&req.client.remote.borrow());
    match location.settings.of::<HandlerSettings>().satisfy.satisfy {
        Satisfy::All => {
            if by_address == Some(Verdict::Deny) {
                request_error::write(req, Level::Error, format_args!("access forbidden by rule"));
                return Err(Failure::Status(403));
            }
            auth_basic::check(req).await?;
            auth_jwt::check(req).await?;
            auth_request::check(req).await?;
            Ok(Flow::Next)
        }
        Satisfy::Any => any_gate(req, by_address).await,
    }
}

/// nginx: of several refusals, that of a password counts.
async fn any_gate(req: &mut Request, by_address: Option<Verdict>) -> Result<Flow, Failure> {
    if by_address == Some(Verdict::Allow) {
        return Ok(Flow::Next);
    }
    let mut refused = by_address.map(|_| 403);
    for gate in [Gate::Password, Gate::Token, Gate::Request, Gate::Script] {
        let checked = match gate {
            Gate::Password => auth_basic::check(req).await,
            Gate::Token => auth_jwt::check(req).await,
            Gate::Request => auth_request::check(req).await,
            Gate::Script => match ask_script(req).await {
                Ok(Asked::Answered(flow)) => return Ok(flow),
                Ok(Asked::Gate(checked)) => Ok(checked),
                Err(failure) => Err(failure),
            },
        };
        match checked {
            Ok(Checked::Passed) => {
                req.answer_fields.remove(Known::WwwAuthenticate);
                req.answer_fields.remove(Known::ProxyAuthenticate);
                return Ok(Flow::Next);
            }
            // The gate has nothing to say: another one's word stands.
            Ok(Checked::Off) => {}
            Err(Failure::Status(status @ (401 | 407))) => refused = Some(status),
            Err(Failure::Status(403)) => refused = refused.or(Some(403)),
            Err(failure) => return Err(failure),
        }
    }
    match refused {
        None => Ok(Flow::Next),
        Some(status) => {
            if status == 403 {
                request_error::write(req, Level::Error, format_args!("access forbidden by rule"));
            }
            Err(Failure::Status(status))
        }
    }
}

/// The result of asking a script.
enum Asked {
    Gate(Checked),
    Answered(Flow),
}

#[cfg(feature = "script")]
async fn ask_script(req: &mut Request) -> Result<Asked, Failure> {
    use crate::script::access::{Word, ask};
    Ok(match Box::pin(ask(req)).await? {
        Word::Open => Asked::Gate(Checked::Passed),
        Word::Silent => Asked::Gate(Checked::Off),
        Word::Answer(flow) => Asked::Answered(flow),
    })
}

#[cfg(not(feature = "script"))]
async fn ask_script(_req: &mut Request) -> Result<Asked, Failure> {
    Ok(Asked::Gate(Checked::Off))
}

#[cfg(feature = "script")]
fn has_script(req: &Request) -> bool {
    let scripts: Option<&crate::script::Scripts> = req.location.parts.get();
    scripts.is_some_and(|it| it.access.is_some())
}

#[cfg(not(feature = "script"))]
fn has_script(_req: &Request) -> bool {
    false
}

/// The foreseen answer of the gates to a request, before they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// The status of a refusal that is certain.
    pub refused: Option<u16>,
    /// The foreseen answer of each gate, for people.
    pub notes: Vec<String>,
}

/// Foresees the answer of the gates of a request's location, as far as it shows without checking a
/// password or making a request.
pub fn foresee(req: &mut Request) -> Foreseen {
    let location = Arc::clone(&req.location);
    let settings = &location.settings;
    let mut notes = Vec::new();
    let address = req.client.remote.borrow().clone();
    let by_address = settings.of::<HandlerSettings>().access.verdict(&address);
    let client = address.host_text();
    match by_address {
        Some(Verdict::Deny) => notes.push(format!("\"deny\" keeps {client} out (403)")),
        Some(Verdict::Allow) => notes.push(format!("\"allow\" lets {client} in")),
        None if settings.of::<HandlerSettings>().access.rules.is_empty() => {}
        None => notes.push(format!(
            "no \"allow\" or \"deny\" is about {client}: it may"
        )),
    }
    let password = auth_basic::foresee(req);
    let words = ["a name and a password", "the name and the password"];
    notes.extend(password.note("auth_basic", words));
    let token = auth_jwt::foresee(req);
    notes.extend(token.note("auth_jwt", ["a token", "the token"]));
    let asks = settings
        .of::<HandlerSettings>()
        .auth_request
        .path
        .on()
        .is_some();
    if asks {
        notes.push("\"auth_request\" decides when the request is made".to_string());
    }
    let has_script = has_script(req);
    if has_script {
        notes.push("\"js_access\" decides when the request is made".to_string());
    }
    let denied = (by_address == Some(Verdict::Deny)).then_some(403);
    let lacks = password.is_refused() || token.is_refused();
    let lacking = lacks.then_some(401);
    let refused = match settings.of::<HandlerSettings>().satisfy.satisfy {
        Satisfy::All => denied.or(lacking),
        Satisfy::Any if by_address == Some(Verdict::Allow) || asks || has_script => None,
        // A password or a token that is there may open it.
        Satisfy::Any if password.is_undecided() || token.is_undecided() => None,
        Satisfy::Any => lacking.or(denied),
    };
    if settings.of::<HandlerSettings>().satisfy.satisfy == Satisfy::Any && notes.len() > 1 {
        notes.push("\"satisfy any\": one gate that opens is enough".to_string());
    }
    Foreseen { refused, notes }
}

/// A gate beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Password,
    Token,
    Request,
    Script,
}

fn limit_except(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if statement.args.is_empty() {
        builder.has_arguments(statement, 1..=usize::MAX);
    }
    let mut allowed = Vec::new();
    for word in &statement.args {
        match Method::of(word.text.to_ascii_uppercase().as_bytes()) {
            Method::Other | Method::Connect | Method::Trace => {
                builder.error(word.span, format!("invalid method \"{}\"", word.text));
            }
            method => allowed.push(method),
        }
    }
    if allowed.contains(&Method::Get) {
        allowed.push(Method::Head);
    }
    let mut inner = Draft {
        name: draft.name.clone(),
        is_internal: draft.is_internal,
        ..Draft::new(Contexts::LIMIT_EXCEPT, statement.span)
    };
    StatusZone::pass_on(draft, &mut inner);
    let mut location = level::nested(builder, statement, inner, LocationKind::Unnamed);
    location.is_limit = true;
    let location = Arc::new(location);
    if draft.has::<LimitExcept>() {
        builder.error(statement.span, "\"limit_except\" directive is duplicate");
    }
    draft.put(LimitExcept { allowed, location });
}

/// Gives other methods the handler of the location around the block, unless it has its own.
pub fn close(level: &mut Closing<'_>) {
    let Some(handler) = level.draft.get::<ContentHandler>().cloned() else {
        return;
    };
    let Some(mut limit) = level.draft.take::<LimitExcept>() else {
        return;
    };
    if let Some(location) = Arc::get_mut(&mut limit.location)
        && location.parts.get::<ContentHandler>().is_none()
    {
        location.parts.put(handler);
    }
    level.draft.put(limit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_system::network::parse_address;

    fn rules(list: &[(Verdict, &str)]) -> AddressRules {
        let rule = |(verdict, whom): &(Verdict, &str)| Rule {
            verdict: *verdict,
            network: Network::parse(whom).map(|(network, _)| network),
        };
        AddressRules {
            rules: list.iter().map(rule).collect(),
        }
    }

    #[test]
    fn the_first_rule_about_an_address_decides() {
        use Verdict::{Allow, Deny};
        let rules = rules(&[
            (Deny, "192.0.2.1"),
            (Allow, "192.0.2.0/24"),
            (Allow, "unix:"),
            (Deny, "::/0"),
        ]);
        for (address, expected) in [
            ("192.0.2.1", Some(Deny)),
            ("192.0.2.2", Some(Allow)),
            ("192.0.3.2", None),
            ("unix:", Some(Allow)),
            ("::1", Some(Deny)),
        ] {
            let address = parse_address(address.as_bytes()).unwrap();
            assert_eq!(rules.verdict(&address), expected, "{address}");
        }
        let all = super::tests::rules(&[(Deny, "all")]);
        let unix = parse_address(b"unix:").unwrap();
        assert_eq!(all.verdict(&unix), Some(Deny));
    }
}
