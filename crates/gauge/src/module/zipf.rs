//! A catalogue with popularity and sizes.
//!
//! Resource k is asked for in proportion to 1 / k^alpha. Sizes are log-normal around the median
//! with a standard deviation of one and a half (of the logarithm), bounded at a hundred times the
//! median; a resource has the same size in every run.

use super::Knobs;
use crate::client::Ask;
use crate::load::User;
use crate::resource::Resource;

/// Resources of the largest catalogue: its table takes eight bytes each.
const OBJECTS_MAX: u64 = 10_000_000;
/// Standard deviation of the logarithm of sizes.
const SPREAD: f64 = 1.5;

/// Popularity of resources: the share of requests that each gets.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// Sums of weights.
    sums: Vec<f64>,
}

impl Catalogue {
    pub(super) fn new(knobs: &Knobs) -> Self {
        let objects = knobs.objects.clamp(1, OBJECTS_MAX);
        let mut sum = 0.0;
        let weigh = |rank: u64| {
            sum += (rank as f64).powf(-knobs.alpha);
            sum
        };
        Self {
            sums: (1..=objects).map(weigh).collect(),
        }
    }

    /// A resource by chance.
    pub(super) fn any(&self, random: &mut fastrand::Rng, knobs: &Knobs) -> Resource {
        let at = random.f64() * self.sums.last().copied().unwrap_or(0.0);
        let number = self.sums.partition_point(|sum| *sum <= at) as u64;
        self.resource(number, knobs)
    }

    fn resource(&self, number: u64, knobs: &Knobs) -> Resource {
        Resource::new(
            &knobs.run,
            format_args!("zipf-{number}"),
            size(number, knobs.size),
        )
    }
}

/// Size of a resource.
fn size(number: u64, median: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Box and Muller: two even chances make a normal one.
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
    let size = median as f64 * (SPREAD * normal).exp();
    size.clamp(1.0, 100.0 * median as f64) as u64
}

pub(super) async fn run(user: &mut User, knobs: &Knobs, catalogue: &Catalogue) {
    while user.turn().await.is_some() {
        let resource = catalogue.any(&mut user.random, knobs);
        user.ask(&Ask::get(&resource)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn knobs() -> Knobs {
        Knobs {
            size: 1000,
            objects: 1000,
            ttl: Duration::from_secs(1),
            alpha: 1.0,
            behind: Duration::from_secs(1),
            asks: 1,
            repeats: 1,
            inactive: Duration::ZERO,
            api: "/api".to_owned(),
            zone: "z".to_owned(),
            paths: Vec::new(),
            against: None,
            purge_method: "PURGE".to_owned(),
            run: "run".to_owned(),
        }
    }

    #[test]
    fn the_first_is_asked_for_twice_as_often_as_the_second() {
        let (knobs, mut random) = (knobs(), fastrand::Rng::with_seed(1));
        let catalogue = Catalogue::new(&knobs);
        let first = catalogue.resource(0, &knobs);
        let second = catalogue.resource(1, &knobs);
        let mut counts = [0_f64; 2];
        for _ in 0..100_000 {
            let any = catalogue.any(&mut random, &knobs);
            counts[0] += f64::from(u8::from(any == first));
            counts[1] += f64::from(u8::from(any == second));
        }
        let ratio = counts[0] / counts[1];
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn sizes_lie_around_their_median() {
        let mut sizes: Vec<u64> = (0..10_000).map(|number| size(number, 1000)).collect();
        sizes.sort_unstable();
        assert!((900..1100).contains(&sizes[5000]), "{}", sizes[5000]);
        assert!(sizes[0] >= 1 && sizes[9999] <= 100_000);
    }
}
