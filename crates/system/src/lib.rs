//! The process and its machine, as far as a server needs them and without HTTP: time, chance,
//! addresses, sockets, bodies, timers, names, logs, descriptors, and the root helper.
//!
//! ```text
//! clock, chance                 what is read of the world
//! address, network, resolve     addresses, networks, names
//! socket, transport, timer      bytes to and from a peer, and deadlines
//! udp                           packets of QUIC
//! body, backlog, temp_file      what is sent, how much of it waits, and files for it
//! log/                          lines, where they go, and the error log of the process
//! quota, reserve, side_task     bounds on connections, descriptors and tasks
//! shutdown, heritage            signals, and what a successor gets
//! supervisor, core_dumps        news to the service manager, and what a crash leaves
//! root_helper                   what only root can do, asked of who can
//! ```
//!
//! Nothing here knows a request, a location or a configuration as a whole; some families of
//! directives that concern the process are declared beside what obeys them.

pub mod address;
pub mod backlog;
pub mod body;
pub mod chance;
pub mod clock;
pub mod confinement;
pub mod cookie_time;
pub mod core_dumps;
pub mod datagram;
pub mod heritage;
pub mod log;
pub mod network;
pub mod quiet_sockets;
pub mod quota;
pub mod reserve;
pub mod resolve;
pub mod root_helper;
pub mod shutdown;
pub mod side_task;
pub mod socket;
pub mod supervisor;
pub mod temp_file;
pub mod timer;
pub mod tls_socket;
pub mod transport;
pub mod udp;
