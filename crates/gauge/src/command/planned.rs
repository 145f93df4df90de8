//! A plan's words before those of the command line.
//!
//! A key of a plan is a flag by another name, so a case is a command line: the plan's flags, then
//! the case's, then what was said beside the plan. Of a flag that stands there twice the last
//! counts.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};
use clap::Parser;

use super::arguments::{Arguments, Task};
use super::flags;
use crate::plan::{Conf, Plan};

/// Tasks of a plan, case by case; without a plan one without a name.
pub(super) fn cases(words: &[OsString], arguments: Arguments) -> Result<Vec<(String, Arguments)>> {
    let (task, wanted, has_module) = match &arguments.task {
        Task::Run(wanted) => ("run", &wanted.plan, wanted.load.module.is_some()),
        Task::Compare(wanted) => ("compare", &wanted.plan, wanted.load.module.is_some()),
        Task::Origin(_) => return Ok(vec![(String::new(), arguments)]),
    };
    let Some(path) = &wanted.plan else {
        if wanted.brief || !wanted.cases.is_empty() {
            bail!("--case and --brief choose from a plan; --plan names it");
        }
        return Ok(vec![(String::new(), arguments)]);
    };
    let plan = Plan::read(path)?;
    if let Some(name) = wanted.cases.iter().find(|name| !plan.has_case(name)) {
        bail!("{}: there is no case {name:?}", path.display());
    }
    let known = flags(task);
    let is_known = |flag: &str| known.iter().any(|arg| arg.get_long() == Some(flag));
    let mut all = Vec::new();
    for case in plan.chosen(&wanted.cases, wanted.brief) {
        let mut line: Vec<OsString> = words.iter().take(2).cloned().collect();
        // What only another task knows, as servers where one runs already, does not matter.
        let of_plan = case.flags.iter().filter(|(flag, _)| is_known(flag));
        line.extend(of_plan.map(|(flag, value)| match value {
            Some(value) => format!("--{flag}={value}").into(),
            None => format!("--{flag}").into(),
        }));
        line.extend(words.iter().skip(2).cloned());
        if let Some(module) = case.module.as_ref().filter(|_| !has_module) {
            line.push(module.into());
        }
        let mut arguments = Arguments::try_parse_from(line)
            .with_context(|| format!("{}: case {:?}", path.display(), case.name))?;
        if let Task::Compare(wanted) = &mut arguments.task
            && wanted.conf.is_none()
        {
            match case.conf {
                Some(Conf::Text(text)) => wanted.conf_text = Some(text),
                Some(Conf::File(path)) => wanted.conf = Some(path),
                None => {}
            }
        }
        all.push((case.name, arguments));
    }
    Ok(all)
}
