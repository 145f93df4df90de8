//! `js_shared_dict_zone`: the dictionaries of a process, which outlive a reload.
//!
//! A dictionary whose line is the same as before keeps its items; any other begins anew.

use std::path::Path;
use std::time::Duration;

use millpond_conf::shared::OF_BOTH;
use millpond_conf::value::{parse_duration, parse_offset};
use millpond_conf::{Contexts, Statement};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::Parts;
use millpond_exchange::settings::Conf;
use millpond_exchange::worker::Shared;
use millpond_script::DictSpec;
use millpond_script::dict::Dicts;
use millpond_script::dict::keeper::Ground;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};

use super::variable::ScriptNames;

/// The smallest dictionary: eight pages, as of nginx.
const MIN_SIZE: u64 = 8 * 4096;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "js_shared_dict_zone",
    contexts: Contexts::HTTP.union(Contexts::STREAM),
    syntax: "zone=name:size [timeout=time] [type=string | number] [evict] [state=file]",
    is_block: false,
    pass: Pass::First,
    doc: "A dictionary that the scripts of all workers share, as `ngx.shared.name`; its items take \
          at most the size. They end after the timeout, if there is one; with `evict` those that \
          would end next make room for others. A dictionary whose line does not change keeps its \
          items over a reload. With `state` it outlives the process in a file of JSON: that is \
          written half a second after a change and at the end, and read at the start.\n\n\
          # Differs from nginx\n\n\
          A file that is broken does not stop the start: it is renamed to `FILE.broken`, and the \
          error log says so.",
    apply,
}];

fn apply(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    match read(statement, &builder.cx.prefix) {
        Ok(spec) => {
            if let Err(message) = builder.cx.shared.name(&spec.name, OF_BOTH) {
                return builder.error(statement.span, message);
            }
            let dicts = &mut builder.of::<ScriptNames>().dicts;
            if dicts.iter().any(|known| known.name == spec.name) {
                let message = format!("duplicate zone \"{}\"", spec.name);
                return builder.error(statement.span, message);
            }
            dicts.push(spec);
        }
        Err(message) => builder.error(statement.span, message),
    }
}

fn read(statement: &Statement, prefix: &Path) -> Result<DictSpec, String> {
    let mut spec = DictSpec {
        name: String::new(),
        capacity: 0,
        timeout: None,
        is_of_numbers: false,
        evicts: false,
        state: None,
    };
    for word in &statement.args {
        let text = word.text.as_str();
        let invalid = || format!("invalid parameter \"{text}\"");
        match text.split_once('=') {
            Some(("zone", zone)) => {
                let (name, size) = zone.split_once(':').ok_or_else(invalid)?;
                let size = parse_offset(size).ok_or_else(invalid)?;
                if name.is_empty() || size < MIN_SIZE {
                    return Err(format!("zone \"{name}\" is too small"));
                }
                spec.name = name.to_string();
                spec.capacity = usize::try_from(size).map_err(|_| invalid())?;
            }
            Some(("timeout", time)) => {
                let time: Option<Duration> = parse_duration(time);
                spec.timeout = Some(time.filter(|it| !it.is_zero()).ok_or_else(invalid)?);
            }
            Some(("type", "number")) => spec.is_of_numbers = true,
            Some(("type", "string")) => {}
            Some(("state", file)) if !file.is_empty() => spec.state = Some(prefix.join(file)),
            None if text == "evict" => spec.evicts = true,
            _ => return Err(invalid()),
        }
    }
    if spec.name.is_empty() {
        return Err("\"js_shared_dict_zone\" must have \"zone\" parameter".to_string());
    }
    if spec.evicts && spec.timeout.is_none() {
        return Err("evict requires timeout=".to_string());
    }
    Ok(spec)
}

/// Fills the dictionaries that have files from these, and keeps them there until [`close`].
pub fn keep(conf: &Conf, shared: &Shared) {
    let ground = Ground {
        clock: || clock::instant().into_std(),
        wall_us: clock::now_us,
        tell: |text| error::process(Level::Error, format_args!("{text}")),
    };
    for parts in parts_of(conf) {
        let specs = &parts.of::<ScriptNames>().dicts;
        shared.guests.of::<Dicts>().keep(specs, ground);
    }
}

/// Writes what is not written yet.
pub fn close(shared: &Shared) {
    shared.guests.of::<Dicts>().close();
}

/// The files of a configuration's dictionaries.
pub fn files(conf: &Conf) -> impl Iterator<Item = &Path> {
    let dicts = parts_of(conf).flat_map(|parts| &parts.of::<ScriptNames>().dicts);
    dicts.filter_map(|spec| spec.state.as_deref())
}

/// The parts of `http`, and those of `stream`.
fn parts_of(conf: &Conf) -> impl Iterator<Item = &Parts> {
    let stream = conf.stream.as_ref().map(|stream| &stream.parts);
    std::iter::once(&conf.parts).chain(stream)
}

/// The mistake of a dictionary that `http` and `stream` have by different lines; nginx refuses any
/// that both have.
pub fn conflict(http: &Parts, stream: &Parts) -> Option<String> {
    let of_http = &http.of::<ScriptNames>().dicts;
    let mut of_stream = stream.of::<ScriptNames>().dicts.iter();
    let is_other = |spec: &&DictSpec| of_http.iter().any(|it| it.name == spec.name && it != *spec);
    let spec = of_stream.find(is_other)?;
    Some(format!(
        "zone \"{}\" of \"js_shared_dict_zone\" is another one in \"http\"",
        spec.name
    ))
}
