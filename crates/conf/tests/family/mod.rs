//! A small program's settings, declared as a policy would declare them, and its walk over blocks.

#![allow(dead_code, reason = "each test binary uses another part")]
#![allow(
    unreachable_pub,
    missing_docs,
    reason = "declared as a library would declare it"
)]

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::{
    Applied, ArgError, Args, Buffers, ByteSize, ConfPath, Contexts, Family, FamilyGroup, Flags,
    FromArgs, OffOr, Offset, ParseContext, Present, Scope, Spanned, Statement, Table, Template,
    Words,
};

/// Reason for which a stale entry may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Words)]
pub enum Reason {
    #[word("error")]
    Error,
    #[word("timeout")]
    Timeout,
    #[word("http_500")]
    Http500,
    #[word("updating")]
    Updating,
    #[word("off")]
    Off,
}

/// Choice among several hosts of those that must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Words)]
pub enum Satisfy {
    #[word("all")]
    All,
    #[word("any")]
    Any,
}

/// Time for which an answer is fresh, by its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Valid {
    pub statuses: Vec<u16>,
    pub time: Duration,
}

impl FromArgs for Valid {
    const SYNTAX: &'static str = "[code ...] time";

    fn from_args(args: &mut Args<'_>) -> Result<Valid, ArgError> {
        let last = args.at_least(1)?.len() - 1;
        let statuses = (0..last)
            .map(|index| args.word(index))
            .collect::<Result<_, _>>()?;
        let time = args.word(last)?;
        Ok(Valid { statuses, time })
    }
}

/// The lines of a `types` block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Types(pub Vec<(String, Vec<String>)>);

impl FromArgs for Types {
    const SYNTAX: &'static str = "";

    fn from_args(args: &mut Args<'_>) -> Result<Types, ArgError> {
        let body = args.body.unwrap_or_default().iter();
        let texts = |st: &Statement| st.args.iter().map(|word| word.text.clone()).collect();
        Ok(Types(
            body.map(|st| (st.name.text.clone(), texts(st))).collect(),
        ))
    }
}

/// Settings of a cache, for each protocol.
#[derive(Debug, Family)]
#[family(http, server, location)]
#[family(protocols)]
pub struct CachePolicy {
    /// Lets one request fill an entry while others wait.
    ///
    /// # Differs from nginx
    /// Waiters of `proxy_cache_lock` stream from the fill.
    #[directive(name = "proxy_cache_lock", default = "off")]
    pub lock: bool,
    /// The time that a waiter waits.
    #[directive(name = "proxy_cache_lock_timeout", default = "5s")]
    pub lock_timeout: Duration,
    /// The key of an entry.
    #[directive(name = "proxy_cache_key", default = "$scheme$proxy_host$request_uri")]
    pub key: Template,
    /// Sets the reasons for which a stale entry may be served.
    #[directive(name = "proxy_cache_use_stale", default = "off")]
    pub use_stale: Flags<Reason>,
    /// Sets how long answers are fresh.
    #[directive(name = "proxy_cache_valid", repeat)]
    pub valid: Vec<Valid>,
    /// The zone, or none.
    #[directive(name = "proxy_cache")]
    pub zone: Option<OffOr<Template>>,
}

/// Settings that some protocols have.
#[derive(Debug, Family)]
#[family(http, protocols)]
pub struct TrailerPolicy {
    /// Passes trailers on.
    #[directive(name = "proxy_pass_trailers", default = "on", only("proxy"))]
    pub trailers: bool,
    /// A parameter.
    #[directive(name = "proxy_param", only("fastcgi", "scgi"))]
    pub param: Option<String>,
    /// A timeout.
    #[directive(name = "proxy_timeout", default = "1s")]
    pub timeout: Duration,
}

/// Settings that a protocol has.
#[derive(Debug, FamilyGroup)]
#[only("memcached", trailer)]
pub struct PassPolicies {
    pub cache: CachePolicy,
    pub trailer: TrailerPolicy,
}

/// Settings that a request is answered from.
#[derive(Debug, Family)]
#[family(http, server, location, if_location)]
pub struct CorePolicy {
    /// The directory of files.
    #[directive(name = "root", default = "html")]
    pub root: PathBuf,
    /// Marks a location as reachable from inside only.
    #[directive(name = "internal", contexts(location))]
    pub internal: Option<Present>,
    /// The largest body of a request.
    #[directive(name = "client_max_body_size", default = "1m")]
    pub max_body: Offset,
    /// The buffers for an answer.
    #[directive(name = "output_buffers", default = "2 32k")]
    pub buffers: Buffers,
    /// The size of one buffer.
    #[directive(name = "buffer_size")]
    pub buffer: Option<Spanned<ByteSize>>,
    /// The files to try for a directory.
    #[directive(name = "index", default = "index.html")]
    pub index: Vec<String>,
    /// Sets whose consent is needed.
    #[directive(name = "satisfy", default = "all")]
    pub satisfy: Satisfy,
    /// The last one counts.
    #[directive(name = "worker_name", last)]
    pub worker: Option<String>,
    /// The certificate.
    #[directive(name = "certificate", repeat, contexts(http, server))]
    pub certificates: Vec<ConfPath>,
    /// The types of files.
    #[directive(name = "types", block)]
    pub types: Option<Types>,
    #[directive(skip)]
    pub computed: u32,
}

/// Settings of a location.
#[derive(Debug, Scope)]
pub struct LocationConf {
    pub core: CorePolicy,
    pub proxy: PassPolicies,
    #[protocol("fastcgi")]
    pub fastcgi: PassPolicies,
    #[protocol("memcached")]
    pub memcached: PassPolicies,
    #[scope(skip)]
    pub name: String,
}

type Raw = <LocationConf as Scope>::Raw;

/// Reads all blocks; gives the settings of each location by its arguments.
pub fn resolve(statements: &[Statement], cx: &mut ParseContext) -> Vec<(String, LocationConf)> {
    let table = Table::new(LocationConf::directives());
    let mut walk = Walk {
        table: &table,
        found: Vec::new(),
    };
    walk.block(statements, Contexts::MAIN, &[], cx);
    walk.found
}

struct Walk<'a> {
    table: &'a Table,
    found: Vec<(String, LocationConf)>,
}

impl Walk<'_> {
    fn block(
        &mut self,
        statements: &[Statement],
        context: Contexts,
        outer: &[&Raw],
        cx: &mut ParseContext,
    ) {
        let mut raw = Raw::default();
        let mut inner = Vec::new();
        for st in statements {
            match (st.name.text.as_str(), &st.body) {
                ("http", Some(body)) => inner.push((st, body, Contexts::HTTP)),
                ("server", Some(body)) => inner.push((st, body, Contexts::SERVER)),
                ("location", Some(body)) => inner.push((st, body, Contexts::LOCATION)),
                _ => {
                    if LocationConf::apply(&mut raw, st, context, cx) == Applied::Unknown {
                        self.table.reject(st, cx);
                    }
                }
            }
        }
        let levels: Vec<&Raw> = outer.iter().copied().chain([&raw]).collect();
        for (st, body, context) in inner {
            self.block(body, context, &levels, cx);
            if context == Contexts::LOCATION {
                // The location's own level was dropped with its block; read it again.
                let mut own = Raw::default();
                let mut quiet = ParseContext::new(&cx.prefix, &cx.conf_dir);
                for st in body {
                    let _ = LocationConf::apply(&mut own, st, context, &mut quiet);
                }
                let levels: Vec<&Raw> = levels.iter().copied().chain([&own]).collect();
                let name = st.args.iter().map(|word| word.text.as_str());
                let name = name.collect::<Vec<_>>().join(" ");
                self.found.push((name, LocationConf::resolve(&levels, cx)));
            }
        }
    }
}
