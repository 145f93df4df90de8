//! Slices: a range fetches what it touches, once, and no body mixes two versions of a resource.
//!
//! One module for each part of the subject; `bench` is the proxy with its origin, and the checks
//! that all share. The origin serves a [`Resource`](millpond_testkit::Resource), whose bytes tell
//! their place and version, and logs which bytes it sent.

mod bench;
mod chaos;
mod conditions;
mod fill;
mod generations;
mod life;
mod origins;
mod policies;
mod prefetch;
mod ranges;
mod refused;
mod several;
