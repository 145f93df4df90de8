//! `fleet`, and inside of it `nats`, `node` and the others: servers whose purges hold on all of
//! them.
//!
//! | line | default |
//! |---|---|
//! | `nats` | none |
//! | `nats_creds`, `nats_ssl_trusted_certificate`, `nats_domain` | none |
//! | `nats_ssl_certificate`, `nats_ssl_certificate_key` | none |
//! | `node` | the machine's name, no address |
//! | `max_lag` | 5s |
//! | `on_lag` | revalidate |
//! | `retain` | 30d |
//! | `replicas` | 3 |
//! | `peer_secret` | none |
//! | `peer_ssl_certificate`, `peer_ssl_certificate_key`, `peer_ssl_trusted_certificate` | none |
//! | `config` | off |
//!
//! Reading starts nothing: the threads of a fleet begin when its zones are open. How purges reach
//! all nodes is the matter of `millpond_fleet`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millpond_cache::lag::OnLag;
use millpond_cache::zone::CacheZone;
use millpond_conf::value::{Words, parse_duration};
use millpond_conf::{Contexts, Statement};
use millpond_fleet::config::ConfigConf;
use millpond_fleet::config::order::public_keys;
use millpond_fleet::entry::{DEFAULT_POOL, NAME_LEN_MAX, is_name};
use millpond_fleet::fleets::Plan;
use millpond_fleet::nats::{NatsConf, check_certificates, check_url};
use millpond_fleet::node::FleetConf;
use millpond_fleet::peers::{PeersConf, Secret};
use millpond_system::address::Address;
use millpond_system::log::error::os_error;
use millpond_system::network;

use crate::cache::fleet_config::ConfigLine;
use crate::cache::peers::certificates::{Certificates, OfFleets, Texts};
use crate::cache::zones::Zones;
use crate::tls::files::Files;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::lines::{self, Line};
use millpond_exchange::settings::Conf;
use millpond_exchange::settings::declared::Declared;

/// The rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "fleet",
    contexts: Contexts::HTTP,
    syntax: "name { nats url ...; nats_creds file; nats_ssl_trusted_certificate file; \
             nats_ssl_certificate file; nats_ssl_certificate_key file; nats_domain name; node \
             name [address=host:port] [weight=number] [pool=name]; max_lag time; on_lag \
             revalidate | miss | serve; retain time; replicas number; peer_secret file; \
             peer_ssl_certificate file; peer_ssl_certificate_key file; \
             peer_ssl_trusted_certificate file; config off | on folder=path trusted_key=file \
             [canary=percent] [watch=time] [more_errors=percent] [fewer_hits=percent]; }",
    is_block: true,
    pass: Pass::First,
    doc: "Servers whose purges hold on all of them: each zone with `fleet=name` \
          (`proxy_cache_path`) obeys what any node purges in its zone of the same name. Purges go \
          through a log in NATS JetStream, whose servers `nats` names (`nats://host:port`, \
          `tls://host:port`); `nats_creds` is a file with the credentials, \
          `nats_ssl_trusted_certificate` one with the authorities of the servers' certificates (of \
          the system without it), `nats_ssl_certificate` and `nats_ssl_certificate_key` are the \
          certificate that they are shown where they ask for one, and its key (all three are read \
          with each connection, by the user that the server runs as), `nats_domain` the domain of \
          JetStream. `node` is the name of \
          this server in the fleet, which no other has (the machine's name). With `address=`, at \
          which the other nodes reach it, it can own keys (`proxy_cache_peers`), as many as its \
          `weight` (100, at most 1000) says beside those of the others of its `pool` (`default`); \
          `peer_secret` is a file that all nodes have, with the secret that their requests to each \
          other are signed with. With the three lines `peer_ssl_…` these requests are encrypted, \
          and both sides show certificates: `peer_ssl_certificate` has this node's own, which is \
          for its name (a DNS \
          name among its alternative names) and for servers and clients, \
          `peer_ssl_certificate_key` the key, `peer_ssl_trusted_certificate` the authority that \
          has signed those of all nodes. `address=` is that of a listener with `ssl`, whose \
          default server has the same certificate and `ssl_verify_client optional_no_ca`. Who \
          asks without such a certificate is refused, and who shows another one is not asked: then \
          the origin is. A node that was not up to date with the log for longer than `max_lag` \
          (5s) does with its stored answers what `on_lag` says: it asks the origin whether they \
          still hold (`revalidate`), asks for all anew (`miss`), or serves them (`serve`); \
          `proxy_cache_on_lag` says otherwise for a location. So a purge that the log has \
          acknowledged holds everywhere after `max_lag` at the latest, also on nodes that were \
          cut off, unless they `serve`. `max_lag` must be the same on all nodes. `retain` (30d) \
          is how long the log keeps purges, and `replicas` (3) on how many servers of NATS it is; \
          they count when it is made. \
          With `config on` the \
          node takes configuration that was pushed to the fleet (`millpond fleet config push`) and \
          is signed with a key whose public half is in the file `trusted_key`; it keeps what it \
          has taken in `folder`, and starts with it. What is pushed goes on with the `http` and \
          `stream` blocks of the node's own file, and has nothing outside of them and no `fleet`. \
          Orders that are made with this configuration are tried first by a part of the nodes \
          (`canary`; all at once without it) for a while (`watch`, 10m), and taken back when more \
          of their answers are errors than before and elsewhere (`more_errors`, 1%) or fewer come \
          from the cache (`fewer_hits`, 20%). One fleet can give configuration. docs/fleet.md has \
          more.",
    apply: fleet,
}];

/// The shortest `max_lag`: a node hears that it is up to date once a second.
const MAX_LAG_MIN: Duration = Duration::from_secs(2);
/// The longest one (arbitrary; purges that hold after an hour are none).
const MAX_LAG_MAX: Duration = Duration::from_secs(3600);
/// The shortest `retain`: positions are noted each ten minutes.
const RETAIN_MIN: Duration = Duration::from_secs(3600);
/// Weight of a node that says nothing of it.
const WEIGHT: u16 = 100;
/// The largest weight (arbitrary).
const WEIGHT_MAX: u16 = 1000;
/// Bytes of a secret, at least: what is shorter is guessed.
const SECRET_LEN_MIN: usize = 16;
/// Replicas that JetStream has, at most.
const REPLICAS_MAX: usize = 5;

/// The lines of a block.
#[derive(Default)]
struct Lines {
    servers: Option<Vec<String>>,
    credentials: Option<String>,
    trusted: Option<String>,
    nats_certificate: Option<String>,
    nats_key: Option<String>,
    domain: Option<String>,
    node: Option<NodeLine>,
    peer_secret: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    trusted_peers: Option<String>,
    max_lag: Option<Duration>,
    on_lag: Option<OnLag>,
    retain: Option<Duration>,
    replicas: Option<usize>,
    config: Option<Option<ConfigLine>>,
}

fn fleet(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let name = statement.args.first().map_or("", |word| &word.text);
    if !is_name(name) {
        let message = format!(
            "invalid name \"{name}\" of a fleet, it must have letters, digits, \"-\" and \"_\", at \
             most {NAME_LEN_MAX}"
        );
        return builder.error(statement.span, message);
    }
    let mut fleets = builder.of::<Declared>().fleets.iter();
    if fleets.any(|other| other.name() == name) {
        return builder.error(statement.span, format!("duplicate fleet \"{name}\""));
    }
    let mut lines = Lines::default();
    let is_right = lines::read(builder, statement, "fleet", |line| lines.obey(line));
    if lines.servers.is_none() && is_right {
        return builder.error(
            statement.span,
            format!("fleet \"{name}\" requires \"nats\""),
        );
    }
    match lines.settle(builder, name) {
        // What is wrong was told; zones that name the fleet are right.
        Ok(conf) => builder.of::<Declared>().fleets.push(conf),
        Err(why) => builder.error(statement.span, format!("fleet \"{name}\": {why}")),
    }
}

impl Lines {
    fn obey(&mut self, line: &Line<'_>) -> Result<(), String> {
        let text = || line.word().map(|word| Some(word.to_owned()));
        match line.name {
            "nats" if !line.words.is_empty() => line.keep(&mut self.servers, urls(&line.words)?),
            "nats" => Err(line.miscounted()),
            "nats_creds" => line.keep(&mut self.credentials, text()?),
            "nats_ssl_trusted_certificate" => line.keep(&mut self.trusted, text()?),
            "nats_ssl_certificate" => line.keep(&mut self.nats_certificate, text()?),
            "nats_ssl_certificate_key" => line.keep(&mut self.nats_key, text()?),
            "nats_domain" => line.keep(&mut self.domain, text()?.filter(|it| is_name(it))),
            "node" => line.keep(&mut self.node, NodeLine::read(line)?),
            "peer_secret" => line.keep(&mut self.peer_secret, text()?),
            "peer_ssl_certificate" => line.keep(&mut self.certificate, text()?),
            "peer_ssl_certificate_key" => line.keep(&mut self.key, text()?),
            "peer_ssl_trusted_certificate" => line.keep(&mut self.trusted_peers, text()?),
            "config" => {
                let read = ConfigLine::read(&line.words)?;
                line.keep(&mut self.config, Some(read))
            }
            "max_lag" => {
                let within = MAX_LAG_MIN..=MAX_LAG_MAX;
                line.keep(&mut self.max_lag, time(line.word()?, within)?)
            }
            "on_lag" => line.keep(&mut self.on_lag, OnLag::parse(line.word()?)),
            "retain" => {
                let within = RETAIN_MIN..=Duration::MAX;
                line.keep(&mut self.retain, time(line.word()?, within)?)
            }
            "replicas" => {
                let is_possible = |count: &usize| (1..=REPLICAS_MAX).contains(count);
                let count = line.word()?.parse().ok().filter(is_possible);
                line.keep(&mut self.replicas, count)
            }
            _ => Err(line.unknown()),
        }
    }

    fn settle(self, builder: &mut Builder, name: &str) -> Result<FleetConf, String> {
        let credentials = self
            .credentials
            .map(|file| read(builder, &file))
            .transpose()?;
        let files = [&self.trusted, &self.nats_certificate, &self.nats_key];
        let (trusted_certificate, client_certificate) = nats_files(builder, files)?;
        let secret = match &self.peer_secret {
            Some(file) => Some(secret(builder, file)?),
            None => None,
        };
        let config = match self.config.flatten() {
            Some(line) => Some(config(builder, line)?),
            None => None,
        };
        let node = self.node.unwrap_or_else(|| NodeLine {
            name: machine_name(),
            address: None,
            weight: WEIGHT,
            pool: DEFAULT_POOL.to_owned(),
        });
        let texts = texts(builder, [&self.certificate, &self.key, &self.trusted_peers])?;
        if let Some(texts) = texts {
            if secret.is_none() {
                return Err("\"peer_ssl_certificate\" needs \"peer_secret\"".to_owned());
            }
            let certificates = Certificates::new(&texts, &node.name)?;
            builder.of::<OfFleets>().put(name, certificates);
        }
        Ok(FleetConf {
            log: NatsConf {
                fleet: name.to_owned(),
                servers: self.servers.unwrap_or_default(),
                credentials: credentials.map(|(_, text)| text),
                trusted_certificate,
                client_certificate,
                domain: self.domain,
                node: node.name,
                replicas: self.replicas.unwrap_or(3),
                retain: self.retain.unwrap_or(Duration::from_secs(30 * 24 * 3600)),
            },
            max_lag: self.max_lag.unwrap_or(Duration::from_secs(5)),
            on_lag: self.on_lag.unwrap_or_default(),
            peers: PeersConf {
                address: node.address,
                weight: node.weight,
                pool: node.pool,
                secret,
            },
            config,
        })
    }
}

fn config(builder: &mut Builder, line: ConfigLine) -> Result<ConfigConf, String> {
    let mut fleets = builder.of::<Declared>().fleets.iter();
    if let Some(other) = fleets.find(|it| it.config.is_some()) {
        let other = other.name();
        return Err(format!("fleet \"{other}\" gives configuration already"));
    }
    let (path, text) = read(builder, &line.trusted_key)?;
    let wrong = |why| format!("the keys in \"{}\" are wrong: {why}", path.display());
    Ok(ConfigConf {
        folder: Files::of(builder).1.prefix.join(&line.folder),
        trusted: public_keys(&text).map_err(wrong)?,
        steps: line.steps,
    })
}

/// The files of the authorities of servers, and those of the certificate that they are shown.
fn nats_files(
    builder: &mut Builder,
    [trusted, certificate, key]: [&Option<String>; 3],
) -> Result<(Option<PathBuf>, Option<[PathBuf; 2]>), String> {
    let mut open = |file: &Option<String>| file.as_ref().map(|it| read(builder, it)).transpose();
    let trusted = open(trusted)?;
    let own = match (open(certificate)?, open(key)?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => {
            return Err(
                "\"nats_ssl_certificate\" and \"nats_ssl_certificate_key\" stand together"
                    .to_owned(),
            );
        }
    };
    let texts = own
        .as_ref()
        .map(|((_, own), (_, key))| (&own[..], &key[..]));
    check_certificates(trusted.as_ref().map(|(_, text)| &text[..]), texts)?;
    let files = own.map(|((own, _), (key, _))| [own, key]);
    Ok((trusted.map(|(path, _)| path), files))
}

fn urls(words: &[&str]) -> Result<Option<Vec<String>>, String> {
    for word in words {
        check_url(word).map_err(|why| format!("invalid URL \"{word}\" in \"nats\": {why}"))?;
    }
    Ok(Some(words.iter().map(ToString::to_string).collect()))
}

fn time(
    word: &str,
    within: std::ops::RangeInclusive<Duration>,
) -> Result<Option<Duration>, String> {
    let Some(time) = parse_duration(word) else {
        return Ok(None);
    };
    match (within.start(), within.end()) {
        (least, _) if time < *least => {
            let seconds = least.as_secs();
            Err(format!("\"{word}\" is too short, at least {seconds}s"))
        }
        (_, most) if time > *most => {
            let seconds = most.as_secs();
            Err(format!("\"{word}\" is too long, at most {seconds}s"))
        }
        _ => Ok(Some(time)),
    }
}

/// A `node` line.
struct NodeLine {
    name: String,
    address: Option<SocketAddr>,
    weight: u16,
    pool: String,
}

impl NodeLine {
    fn read(line: &Line<'_>) -> Result<Option<NodeLine>, String> {
        let [name, more @ ..] = line.words.as_slice() else {
            return Err(line.miscounted());
        };
        let mut node = NodeLine {
            name: (*name).to_owned(),
            address: None,
            weight: WEIGHT,
            pool: DEFAULT_POOL.to_owned(),
        };
        for word in more {
            match word.split_once('=') {
                Some(("address", text)) => node.address = Some(address(text)?),
                Some(("weight", text)) => {
                    let is_possible = |weight: &u16| (1..=WEIGHT_MAX).contains(weight);
                    node.weight = text.parse().ok().filter(is_possible).ok_or_else(|| {
                        format!("invalid weight \"{text}\", it must be from 1 to {WEIGHT_MAX}")
                    })?;
                }
                Some(("pool", text)) if is_name(text) => node.pool = text.to_owned(),
                Some(("pool", text)) => {
                    return Err(format!(
                        "invalid name \"{text}\" of a pool, it must have letters, digits, \"-\" \
                         and \"_\", at most {NAME_LEN_MAX}"
                    ));
                }
                _ => return Err(format!("invalid parameter \"{word}\" in \"node\"")),
            }
        }
        Ok(Some(node).filter(|node| is_node(&node.name)))
    }
}

/// The address of a node: other nodes take it as it is.
fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: &str| format!("invalid address \"{text}\" of a node: {why}");
    let found = network::resolve(text, 0).map_err(|why| wrong(&why))?;
    let inet = found.into_iter().find_map(|address| match address {
        Address::Inet(address) => Some(address),
        _ => None,
    });
    let address = inet.ok_or_else(|| wrong("it must have a host"))?;
    if address.port() == 0 {
        return Err(wrong("there is no port in it"));
    }
    Ok(address)
}

/// Secret of a file, less the end of its line.
fn secret(builder: &mut Builder, file: &str) -> Result<Secret, String> {
    let (path, text) = read(builder, file)?;
    let secret = text.trim();
    if secret.len() < SECRET_LEN_MIN {
        let path = path.display();
        return Err(format!(
            "the secret in \"{path}\" is too short, at least {SECRET_LEN_MIN} bytes"
        ));
    }
    Ok(Secret::new(secret.as_bytes().to_vec()))
}

/// Texts of a node's certificate, its key, and the authority; none without any.
fn texts(builder: &mut Builder, names: [&Option<String>; 3]) -> Result<Option<Texts>, String> {
    let [certificate, key, trusted] = match names {
        [None, None, None] => return Ok(None),
        [Some(certificate), Some(key), Some(trusted)] => [certificate, key, trusted],
        _ => {
            return Err(
                "\"peer_ssl_certificate\", \"peer_ssl_certificate_key\" and \
                 \"peer_ssl_trusted_certificate\" stand together"
                    .to_owned(),
            );
        }
    };
    Ok(Some(Texts {
        certificate: read(builder, certificate)?.1,
        key: read(builder, key)?.1,
        trusted: read(builder, trusted)?.1,
    }))
}

fn is_node(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic();
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

/// The machine's name, as long as a node's may be.
fn machine_name() -> String {
    let names = rustix::system::uname();
    let name = names.nodename().to_string_lossy().to_ascii_lowercase();
    name.chars().take(NAME_LEN_MAX).collect()
}

/// The path and the text of a file.
fn read(builder: &mut Builder, name: &str) -> Result<(PathBuf, String), String> {
    let (files, cx) = Files::of(builder);
    let path = cx.conf_dir.join(name);
    let bytes = files.read(&path).map_err(|error| {
        let why = os_error(&error);
        format!("open() \"{}\" failed ({why})", path.display())
    })?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((path, text))
}

/// The fleets of a configuration whose zones are open, with these zones; without any, those that
/// are needed all the same.
pub fn plan(conf: &Conf, is_needed: impl Fn(&str) -> bool) -> Plan {
    let zones_of = |name: &str| -> Vec<Arc<CacheZone>> {
        let declared = conf.declared.zones.iter();
        let members = declared.filter(|zone| zone.fleet.as_deref() == Some(name));
        let open = members.filter_map(|zone| conf.parts.of::<Zones>().get(zone.name.as_bytes()));
        open.cloned().collect()
    };
    let fleets = conf.declared.fleets.iter();
    let planned = fleets.map(|fleet| (fleet.clone(), zones_of(fleet.name())));
    planned
        .filter(|(fleet, zones)| {
            !zones.is_empty() || fleet.config.is_some() || is_needed(fleet.name())
        })
        .collect()
}
