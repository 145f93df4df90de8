//! `millpond sensor clock`: the seconds by which this machine's clock is off.
//!
//! It is compared with a time server (`--server`, by SNTP, RFC 5905 section 14), or with the field
//! Date of an answer (`--url`), which has whole seconds: Age and Expires of the caches between two
//! machines are as good as their clocks agree. No answer is unknown.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::{Context, Result, ensure};
use millpond_semantics::date::parse_http_date;
use millpond_system::clock;

use super::finding::{Finding, Value};
use super::http::{Request, exchange};
use super::options::Options;
use crate::url::Url;

/// Port of time servers.
const PORT: u16 = 123;
/// Seconds between 1900, where time begins in NTP, and 1970.
const ERA_S: f64 = 2_208_988_800.0;
/// Seconds after which it begins anew.
const WRAP_S: f64 = 4_294_967_296.0;
/// Bytes of a message without extensions.
const LEN: usize = 48;

/// Compares the clocks.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let (offset, other) = match (&options.server, &options.url) {
        (Some(server), _) => (by_server(server, options)?, server),
        (None, Some(url)) => (by_date(url, options)?, url),
        (None, None) => anyhow::bail!("\"clock\" needs --server or --url"),
    };
    let ahead = if offset < 0.0 { "ahead of" } else { "behind" };
    let seconds = offset.abs();
    let text = format!("{seconds:.6} s {ahead} {other}");
    Ok(Finding::new(
        text,
        vec![Value::judged("offset", seconds, "s")],
    ))
}

fn now_s() -> f64 {
    clock::now_us() as f64 / 1e6
}

/// The time that a server has, minus ours.
fn by_server(server: &str, options: &Options) -> Result<f64> {
    let has_port = server.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':'))
    });
    let found = if has_port {
        server.to_socket_addrs()?.next()
    } else {
        (server, PORT).to_socket_addrs()?.next()
    };
    let address = found.context("the time server has no address")?;
    let own: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.set_read_timeout(Some(options.late))?;
    socket.connect(address)?;
    let mut question = [0; LEN];
    // Version 4, mode 3: a client. Its time of sending is only a mark that comes back.
    question[0] = 0x23;
    let mark = clock::now_us().to_be_bytes();
    question[40..].copy_from_slice(&mark);
    let sent = now_s();
    socket.send(&question)?;
    let mut answer = [0; LEN];
    let count = socket
        .recv(&mut answer)
        .context("no answer of the time server")?;
    let came = now_s();
    ensure!(count == LEN, "an answer of {count} bytes is no time");
    offset(&answer, &mark, (sent, came))
}

/// The offset that an answer tells, by the times of question and answer here.
fn offset(answer: &[u8; LEN], mark: &[u8; 8], (sent, came): (f64, f64)) -> Result<f64> {
    ensure!(answer[0] & 7 == 4, "the answer is not that of a server");
    // 3: its own clock is not right; stratum 0: it does not want to be asked.
    let is_right = answer[0] >> 6 != 3 && (1..=15).contains(&answer[1]);
    ensure!(is_right, "the time server does not know the time");
    ensure!(answer[24..32] == *mark, "an answer to another question");
    let near = |bytes: &[u8]| {
        let time = seconds(bytes) - ERA_S;
        // The era is the one that is nearest to ours.
        time + ((came - time) / WRAP_S).round() * WRAP_S
    };
    let (received, told) = (near(&answer[32..40]), near(&answer[40..48]));
    Ok(f64::midpoint(received - sent, told - came))
}

/// A time of 64 bits: seconds, and parts of a second.
fn seconds(bytes: &[u8]) -> f64 {
    let whole = bytes
        .iter()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    whole as f64 / WRAP_S
}

/// The same by the date of an answer: its second, from the middle.
fn by_date(url: &str, options: &Options) -> Result<f64> {
    let request = Request {
        target: Url::parse(url)?,
        fields: &options.fields,
        body: None,
    };
    let sent = now_s();
    let answer = exchange(&request, options)?;
    let came = now_s();
    let field = answer.field("date").context("the answer has no Date")?;
    let date = parse_http_date(field.as_bytes()).context("the answer's Date is none")?;
    let first = date as f64;
    // Within the second that the date names nothing is wrong.
    Ok(match f64::midpoint(sent, came) {
        ours if ours < first => first - ours,
        ours if ours > first + 1.0 => first + 1.0 - ours,
        _ => 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: f64) -> [u8; 8] {
        (((seconds + ERA_S).rem_euclid(WRAP_S) * WRAP_S) as u64).to_be_bytes()
    }

    #[test]
    fn offset_is_the_mean_of_both_ways() {
        // 1.8e9 is 2027, 2.2e9 is in the next era of NTP.
        for now in [1.8e9, 2.2e9] {
            let mut answer = [0; LEN];
            answer[0] = 0x24;
            answer[1] = 2;
            answer[24..32].copy_from_slice(b"12345678");
            answer[32..40].copy_from_slice(&stamp(now + 2.1));
            answer[40..48].copy_from_slice(&stamp(now + 2.1));
            let found = offset(&answer, b"12345678", (now, now + 0.2)).unwrap();
            assert!((found - 2.0).abs() < 1e-3, "{found}");
            for (index, byte) in [(0, 0x23), (0, 0xe4), (1, 0), (24, b'x')] {
                let mut bad = answer;
                bad[index] = byte;
                assert!(offset(&bad, b"12345678", (now, now)).is_err(), "{index}");
            }
        }
    }
}
