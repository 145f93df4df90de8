//! OTLP, the protocol of OpenTelemetry: spans, metrics and lines on their way to a collector.
//!
//! ```text
//! record ─encode─► queue ─batch─► thread of the exporter ─┬─ grpc: HTTP/2, port 4317
//!  (its own thread)  └─ full: dropped, counted            └─ http: POST of protobuf, port 4318
//! ```
//!
//! A record is encoded by whoever makes it, at once, so that the queue holds bytes and nothing that
//! has to be kept alive; a batch is these bytes one behind the other, with a head. Each signal has
//! an exporter of its own.
//!
//! Invariants:
//! 1. Nothing that a collector does or sends makes it panic, and nobody but the exporter's own
//!    thread waits for it.
//! 2. What waits is bounded in number and in bytes; what is too much is dropped and counted.
//! 3. A collector that fails costs a line of the log once in a while.
//!
//! Not here: configuration; trees of spans, which are the business of whoever records them.
//!
//! Sources: the specification of OTLP 1.x and `opentelemetry-proto` 1.x; gRPC over HTTP/2.

pub mod attribute;
mod connect;
pub mod endpoint;
pub mod exporter;
mod grpc;
mod http;
pub mod line;
mod message;
pub mod metric;
mod protobuf;
mod queue;
pub mod signal;
pub mod span;
pub mod tally;

pub use endpoint::{Endpoint, Protocol};
pub use exporter::{Exporter, Settings};
pub use signal::Signal;
pub use tally::Exporters;
