//! Rounds in which nginx and Millpond take turns, and the ratio that they come to.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::tally::Tally;

/// How often, and for how long.
pub(crate) struct Rounds {
    count: usize,
    pub(crate) time: Duration,
}

impl Rounds {
    /// As options say: five rounds, each of so many seconds, unless told.
    pub(crate) fn from_args(args: &[String], mut seconds: u64) -> Result<Self> {
        let mut count = 5;
        for pair in args.chunks(2) {
            match pair {
                [name, value] if name == "--rounds" => count = value.parse::<usize>()?.max(1),
                [name, value] if name == "--seconds" => seconds = value.parse::<u64>()?.max(1),
                _ => bail!("options are --rounds N and --seconds N"),
            }
        }
        Ok(Rounds {
            count,
            time: Duration::from_secs(seconds),
        })
    }

    /// Runs them, and tells what each cost nginx and Millpond in `unit`, and the median of nginx
    /// over Millpond for `what`; below `bound` it counts as failed. One round more comes before
    /// them, which opens connections and fills caches.
    pub(crate) fn run(
        &self,
        (what, unit, bound): (&str, &str, f64),
        mut costs: impl FnMut(usize) -> Result<(f64, f64)>,
    ) -> Result<Tally> {
        let mut ratios = Vec::new();
        for round in 0..=self.count {
            let (nginx, millpond) = costs(round)?;
            println!("round {round}: nginx {nginx:.1}, millpond {millpond:.1} {unit}");
            if round > 0 {
                ratios.push(nginx / millpond);
            }
        }
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        println!(
            "CPU for {what}: nginx over millpond {ratio:.2} (median of {} rounds of {:?}, {:.2} to \
             {:.2}; at least {bound})",
            self.count,
            self.time,
            ratios[0],
            ratios[ratios.len() - 1]
        );
        Ok(match ratio >= bound {
            true => Tally::PASS,
            false => Tally::FAIL,
        })
    }
}
