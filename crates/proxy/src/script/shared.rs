//! `js_shared_dict_zone`: the dictionaries of a process, which outlive a reload.
//!
//! A dictionary whose line is the same as before keeps its items; any other begins anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_conf::value::{parse_duration, parse_offset};
use millpond_conf::{Contexts, Statement};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_script::{Dict, DictSpec};

use super::variable::ScriptNames;

/// The smallest dictionary: eight pages, as of nginx.
const MIN_SIZE: u64 = 8 * 4096;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "js_shared_dict_zone",
    contexts: Contexts::HTTP,
    syntax: "zone=name:size [timeout=time] [type=string | number] [evict]",
    is_block: false,
    pass: Pass::First,
    doc: "A dictionary that the scripts of all workers share, as `ngx.shared.name`; its items take \
          at most the size. They end after the timeout, if there is one; with `evict` those that \
          would end next make room for others. A dictionary whose line does not change keeps its \
          items over a reload.\n\n\
          # Differs from nginx\n\n\
          `state=` is refused: nothing outlives the process.",
    apply,
}];

fn apply(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    match read(statement) {
        Ok(spec) => {
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

fn read(statement: &Statement) -> Result<DictSpec, String> {
    let mut spec = DictSpec {
        name: String::new(),
        capacity: 0,
        timeout: None,
        is_of_numbers: false,
        evicts: false,
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
            Some(("state", _)) => {
                return Err("\"state\" is not supported: nothing outlives the process".to_string());
            }
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

/// The dictionaries of the process.
#[derive(Debug, Default)]
pub(super) struct Dicts(Mutex<HashMap<String, Arc<Dict>>>);

impl Dicts {
    /// The dictionary of a line.
    pub(super) fn find(&self, spec: &DictSpec) -> Arc<Dict> {
        let mut dicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = dicts.get(&spec.name)
            && known.spec == *spec
        {
            return Arc::clone(known);
        }
        let dict = Arc::new(Dict::new(spec.clone()));
        dicts.insert(spec.name.clone(), Arc::clone(&dict));
        dict
    }
}
