//! A session of packets from its first one to its line in the log: the phases, in nginx's order.
//!
//! There is no handshake and no look at the first bytes: what a packet is about is not asked.
//!
//! Invariants:
//! 1. A session that ends in any way is logged once, as one of TCP is.

use std::rc::Rc;
use std::sync::Arc;

use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::Counted;
use millpond_exchange::worker::Member;
use millpond_proxy::log::request_error;
use millpond_proxy::request::Request;
use millpond_proxy::request::state::Listener;
use millpond_system::address::Address;
use millpond_system::datagram::DatagramSocket;
use millpond_system::log::error::{Level, os_error};

use super::Client;
use super::exchange::{End, Exchange, Rules};
use crate::content::Content;
use crate::header;
use crate::peer::{self, Lease, Opened};
use crate::session::{Logged, judge, settings};
use crate::settings::SessionSettings;
use crate::status::{Ended, OK, OUR_FAULT};

/// The status of a session whose peer did not answer.
const BAD_GATEWAY: Ended = 502;

/// Serves a session to its end.
pub(super) async fn serve(client: Client, (listen, bound): (Arc<Listen>, Address), member: Member) {
    let worker = Rc::clone(&client.connection.generation.worker);
    let _active = Counted::new(&worker.shared.connections.shard(worker.index).active);
    let listener = Listener {
        address: bound,
        is_datagrams: true,
    };
    let Some(mut req) = Logged::begin(&client.connection, (&listen, listener)) else {
        return;
    };
    let outcome = Box::pin(run(&client, &mut req, &member)).await;
    req.sent.status = outcome.unwrap_or_else(|status| status);
}

async fn run(client: &Client, req: &mut Request, member: &Member) -> Result<Ended, Ended> {
    let settings = settings(&req.server)?;
    judge(req, &settings).await?;
    match &settings.content {
        None => Err(OUR_FAULT),
        Some(Content::Pass(_)) => {
            let message = format_args!("cannot pass udp connection");
            request_error::write(req, Level::Error, message);
            Err(OUR_FAULT)
        }
        Some(Content::Return(text)) => {
            let text = req.eval(text);
            if !text.is_empty() {
                let sent = std::future::poll_fn(|cx| client.poll_send(cx, &text)).await;
                sent.map_err(|_| OUR_FAULT)?;
                req.sent.body_bytes = text.len() as u64;
            }
            Ok(OK)
        }
        Some(content) => match Box::pin(content.group(req)).await {
            Ok(Some(group)) => {
                let opened = Box::pin(peer::open(req, &group, &settings)).await?;
                Ok(pass(client, req, (opened, &settings, member)).await)
            }
            Ok(None) => Err(OUR_FAULT),
            Err(failure) => {
                request_error::failure(req, &failure);
                Err(OUR_FAULT)
            }
        },
    }
}

/// Passes packets both ways, until the session ends.
async fn pass(
    client: &Client,
    req: &mut Request,
    (opened, settings, member): (Opened, &SessionSettings, &Member),
) -> Ended {
    let policy = &settings.proxy;
    let mut lease = opened.lease;
    log_connected(req, &opened.socket, &lease);
    let rates = [&policy.upload_rate, &policy.download_rate];
    let [upload, download] = rates.map(|rate| req.eval_size(rate.as_ref()));
    let rules = Rules {
        began: req.started,
        timeout: policy.timeout,
        requests: policy.requests,
        responses: policy.responses,
    };
    let header = header::of(req, policy.header);
    let mut exchange = Exchange::new((client, &opened.socket), rules, header);
    exchange.forth.rate = upload;
    exchange.back.rate = download;
    let ended = std::future::poll_fn(|cx| {
        member.register(cx.waker());
        let polled = exchange.poll(cx);
        if exchange.back.packets > 0 {
            lease.first_byte();
        }
        note_bytes(req, &lease, &exchange);
        polled
    });
    let end = ended.await;
    finish(req, &lease, (&exchange, end))
}

/// Notes what went through, for variables and lines of logs.
fn note_bytes(req: &mut Request, lease: &Lease, exchange: &Exchange<'_>) {
    req.client.request_bytes.set(exchange.forth.received);
    req.sent.body_bytes = exchange.back.sent;
    lease.note(|attempt| {
        attempt.bytes_received = exchange.back.received;
        attempt.bytes_sent = exchange.forth.sent;
    });
}

/// Says from where a peer gets its packets.
fn log_connected(req: &Request, socket: &DatagramSocket, lease: &Lease) {
    let Ok(local) = socket.local_address() else {
        return;
    };
    let (local, peer) = (Address::of_kernel(&local), &lease.peer().name);
    let message = format_args!("udp proxy {local} connected to {peer}");
    request_error::write_bare(req, Level::Info, message);
}

/// Says how a session ended, and gives its status.
fn finish(req: &Request, lease: &Lease, (exchange, end): (&Exchange<'_>, End)) -> Ended {
    let what = match end {
        End::Done => "udp done",
        End::TimedOut if exchange.is_owed() => {
            let what = "upstream timed out (110: Connection timed out)";
            let message = format_args!("{what} while proxying connection");
            request_error::write(req, Level::Error, message);
            lease.failed(req);
            return BAD_GATEWAY;
        }
        End::TimedOut => "udp timed out",
        End::Closed => "disconnected on shutdown",
        End::Failed(error) => {
            let why = os_error(&error);
            let message = format_args!("recv() failed ({why}) while proxying connection");
            request_error::write(req, Level::Error, message);
            lease.failed(req);
            let has_served = exchange.back.packets > 0 && !exchange.is_owed();
            return if has_served { OK } else { BAD_GATEWAY };
        }
    };
    let (forth, back) = (&exchange.forth, &exchange.back);
    let message = format_args!(
        "{what}, packets from/to client:{}/{}, bytes from/to client:{}/{}, \
         bytes from/to upstream:{}/{}",
        forth.packets, back.packets, forth.received, back.sent, back.received, forth.sent
    );
    request_error::write_bare(req, Level::Info, message);
    OK
}
