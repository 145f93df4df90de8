//! Simulation: seeded random schedules of clients, origin and disk on a driven clock, and what must
//! hold whatever happens. `SEED=n` runs one seed, `SEEDS=n` the first so many.

mod scene;
mod sliced;
mod whole;
