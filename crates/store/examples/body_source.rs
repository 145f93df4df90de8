//! Costs of sending a body from memory, by `sendfile` out of a segment, and through a buffer.
//!
//! `cargo xtask store-bench body`. CPU time of the sending thread for each body, over loopback, of
//! bodies that are in the page cache; what decides which bodies the memory tier keeps
//! (`docs/decisions/0008-what-the-memory-tier-keeps.md`). It has no bound.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;

/// Bodies of one size, so that they are not all in the nearest cache.
const BODIES: u64 = 64;
/// Bytes that are sent of each size, in each way.
const BYTES: u64 = 256 << 20;

fn main() {
    let dir = std::env::temp_dir().join(format!("body-source-{}", std::process::id()));
    println!(
        "{:>9} {:>10} {:>10} {:>10}   µs of CPU time a body",
        "bytes", "memory", "sendfile", "buffer"
    );
    for size in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10] {
        let bytes: Vec<u8> = (0..BODIES * size).map(|at| at as u8).collect();
        std::fs::write(&dir, &bytes).expect("written");
        let file = std::fs::File::open(&dir).expect("opened");
        let range = |number: u64| {
            let start = (number % BODIES * size) as usize;
            start..start + size as usize
        };
        let memory = send(size, &mut |socket, number| {
            socket.write_all(&bytes[range(number)]).expect("sent");
        });
        let sendfile = send(size, &mut |socket, number| {
            let (mut offset, end) = (number % BODIES * size, number % BODIES * size + size);
            while offset < end {
                let left = (end - offset) as usize;
                rustix::fs::sendfile(&*socket, &file, Some(&mut offset), left).expect("sent");
            }
        });
        let mut buffer = vec![0; size as usize];
        let copied = send(size, &mut |socket, number| {
            file.read_exact_at(&mut buffer, number % BODIES * size)
                .expect("read");
            socket.write_all(&buffer).expect("sent");
        });
        println!("{size:>9} {memory:>10.1} {sendfile:>10.1} {copied:>10.1}");
    }
    std::fs::remove_file(dir).expect("removed");
}

/// Microseconds of CPU time for each body, the best of three rounds.
fn send(size: u64, one: &mut dyn FnMut(&mut TcpStream, u64)) -> f64 {
    let count = BYTES / size;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("address");
        let reader = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("accepted");
            let mut buffer = vec![0; 1 << 20];
            while socket.read(&mut buffer).expect("read") > 0 {}
        });
        let mut socket = TcpStream::connect(address).expect("connected");
        let began = thread_time();
        for number in 0..count {
            one(&mut socket, number);
        }
        let spent = (thread_time() - began) as f64 / 1000.0 / count as f64;
        drop(socket);
        reader.join().expect("read everything");
        best = best.min(spent);
    }
    best
}

/// Nanoseconds that this thread has run.
fn thread_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let first = stat.split_whitespace().next().expect("a number");
    first.parse().expect("a number")
}
