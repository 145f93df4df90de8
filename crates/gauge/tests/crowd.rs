//! A crowd against servers by hand: what it counts, and from when.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use millpond_gauge::crowd::{Crowd, CrowdConf, Paths, Steady};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that answers each request by its number, over all connections; false ends the
/// connection.
fn serve(answer: impl Fn(u64, &mut TcpStream) -> bool + Send + Sync + 'static) -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let SocketAddr::V4(address) = listener.local_addr().expect("bound") else {
        unreachable!("an address of IPv4 was bound");
    };
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicU64::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accepted");
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            let number = move || count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || converse(stream, |stream| answer(number(), stream)));
        }
    });
    address
}

/// Answers the requests of a connection until that says no.
fn converse(mut stream: TcpStream, answer: impl Fn(&mut TcpStream) -> bool) {
    let mut lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() && !answer(&mut stream) {
            return;
        }
    }
}

fn crowd(address: SocketAddrV4) -> Crowd {
    let conf = CrowdConf {
        address,
        fields: String::new(),
        body_bytes: 5,
        patience: Duration::from_secs(1),
    };
    Crowd::new(conf).expect("an event loop")
}

fn paths() -> Paths {
    Paths::One("/x".to_owned())
}

#[test]
fn everybody_is_answered_once_and_stays() {
    let address = serve(|_, stream| stream.write_all(ANSWER).is_ok());
    let mut crowd = crowd(address);
    let seen = crowd.open(50, 10, &mut paths()).expect("opened");
    assert_eq!((seen.times.count(), seen.failed), (50, 0), "{seen:?}");
    assert_eq!((seen.bytes, crowd.open_count()), (250, 50));
    let rested = crowd.rest(Duration::from_millis(20), &mut paths());
    assert_eq!(rested.expect("rested").ended, 0);
}

#[test]
fn requests_that_a_stall_kept_waiting_count_from_when_they_were_due() {
    // Nobody sends; waiting for it takes its time.
    let (_kept, never) = mpsc::channel::<()>();
    let never = std::sync::Mutex::new(never);
    let stall = Duration::from_millis(400);
    let address = serve(move |number, stream| {
        if number == 11 {
            let _late = never.lock().expect("one stalls").recv_timeout(stall);
        }
        stream.write_all(ANSWER).is_ok()
    });
    let mut crowd = crowd(address);
    crowd.open(1, 1, &mut paths()).expect("opened");
    let steady = Steady::lasting(1, 100.0, Duration::from_secs(1));
    let seen = crowd.ask(steady, &mut paths()).expect("asked");
    assert_eq!((seen.times.count(), seen.failed), (100, 0), "{seen:?}");
    // One request in a hundred met the stall; forty were due while it lasted.
    let middle = seen.times.micros_at(0.8);
    assert!(middle > 100_000.0, "{middle}");
    assert!(seen.times.micros_at(1.0) >= 400_000.0);
}

#[test]
fn a_request_that_a_kept_connection_took_no_more_is_sent_again() {
    // Each connection ends with its third request, before an answer.
    let address = serve(|number, stream| number % 3 != 2 && stream.write_all(ANSWER).is_ok());
    let mut crowd = crowd(address);
    crowd.open(1, 1, &mut paths()).expect("opened");
    let steady = Steady::lasting(1, 1000.0, Duration::from_millis(20));
    let seen = crowd.ask(steady, &mut paths()).expect("asked");
    assert_eq!((seen.times.count(), seen.failed), (20, 0), "{seen:?}");
    assert!(seen.again >= 9, "{}", seen.again);
}

#[test]
fn wrong_answers_and_none_have_failed() {
    let address = serve(|number, stream| match number {
        0 => stream.write_all(ANSWER).is_ok(),
        1 => {
            let other = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(other).is_ok()
        }
        // Half of an answer, and no more.
        2 => stream.write_all(&ANSWER[..40]).is_err(),
        // Nothing.
        _ => true,
    });
    let mut crowd = crowd(address);
    crowd.open(1, 1, &mut paths()).expect("opened");
    let steady = Steady::lasting(1, 1000.0, Duration::from_millis(4));
    let seen = crowd.ask(steady, &mut paths()).expect("asked");
    assert_eq!(seen.failed, 4, "{seen:?}");
    assert!(seen.examples[0].contains("status 502"), "{seen:?}");
    assert!(seen.examples[1].contains("within an answer"), "{seen:?}");
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let SocketAddr::V4(address) = listener.local_addr().expect("bound") else {
        unreachable!("an address of IPv4 was bound");
    };
    drop(listener);
    let seen = crowd(address).open(3, 3, &mut paths()).expect("tried");
    assert_eq!((seen.times.count(), seen.failed), (0, 3), "{seen:?}");
}
