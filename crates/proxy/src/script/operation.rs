//! Operations that a script waits for: timers, subrequests, requests to other servers.
//!
//! They run in the task of the request, so that they end with it; detached subrequests have tasks
//! of their own.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::response::Response;
use millpond_script::{Header, Operation, Order, Reply};
use millpond_semantics::uri::safe_uri;
use millpond_system::body::Body;
use millpond_system::clock;
use millpond_system::side_task::{self, Count};
use millpond_wire::http1::Method;

use super::host::Out;
use super::{cache, fetch};
use crate::request::Request;
use crate::request::page::Kind;
use crate::subrequest::{self, SubrequestPolicy, Target};

/// The most detached subrequests of a worker (arbitrary: as many as mirrored ones).
const MOST_DETACHED: u32 = 512;

thread_local! {
    static DETACHED: Count = const { Count::new(0) };
}

type Work = Pin<Box<dyn Future<Output = Reply>>>;

/// The operations that run.
#[derive(Default)]
pub struct Running(Vec<(u32, Work)>);

impl Running {
    /// True if none runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The count of operations.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Begins what was ordered, and forgets what was cancelled.
    pub fn begin(&mut self, req: &mut Request, out: &mut Out) {
        let cancelled = std::mem::take(&mut out.cancelled);
        self.0.retain(|(id, _)| !cancelled.contains(id));
        for Operation { id, order } in std::mem::take(&mut out.ordered) {
            let work: Work = match order {
                Order::Timer(delay) => Box::pin(async move {
                    clock::pause(delay).await;
                    Reply::Elapsed
                }),
                Order::Subrequest { .. } => begin(req, order),
                Order::Purge(asked) => {
                    let req = Box::new(req.background());
                    Box::pin(cache::purge(req, *asked))
                }
                Order::Fetch(fetch) => match fetch::asking(req) {
                    Ok(asking) => Box::pin(fetch::ask(asking, fetch)),
                    Err(why) => Box::pin(std::future::ready(Reply::Failed(why))),
                },
            };
            self.0.push((id, work));
        }
    }

    /// The end of the first operation that ends; none if nothing runs.
    pub(super) async fn next(&mut self) -> Option<(u32, Reply)> {
        if self.0.is_empty() {
            return None;
        }
        Some(poll_fn(|cx| self.poll(cx)).await)
    }

    /// The end of the first operation that ends; never where nothing runs.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u32, Reply)> {
        for (place, (id, work)) in self.0.iter_mut().enumerate() {
            if let Poll::Ready(reply) = work.as_mut().poll(cx) {
                let ended = (*id, reply);
                drop(self.0.remove(place));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    }
}

/// Refuses an operation that cannot begin.
pub(super) fn check(req: &Request, order: &Order) -> Result<(), String> {
    let Order::Subrequest { uri, method, .. } = order else {
        return Ok(());
    };
    if req
        .role
        .as_ref()
        .is_some_and(|role| role.kind == Kind::Kept)
    {
        return Err("subrequest can only be created for the primary request".to_string());
    }
    if safe_uri(uri.as_bytes()).is_err() {
        return Err(format!("unsafe uri \"{uri}\""));
    }
    match Method::of(method.as_bytes()) {
        Method::Other => Err(format!("unknown method \"{method}\"")),
        _ => Ok(()),
    }
}

/// Makes a subrequest that goes on by itself, and whose answer nobody reads.
pub(super) fn detach(req: &mut Request, order: Order) -> Result<(), String> {
    let running = side_task::Running::enter(&DETACHED, MOST_DETACHED)
        .ok_or_else(|| format!("{MOST_DETACHED} detached subrequests run"))?;
    let mut sub = made(req, (order, Kind::Mirrored))?;
    sub.is_background = true;
    sub.client = sub.client.detached();
    let generation = Rc::clone(sub.generation());
    running.spawn(generation.enter(), async move {
        let (mut sub, response) = subrequest::answer(sub).await;
        sub.sent.status = response.status;
        drop(response);
        subrequest::finish(&mut sub);
    });
    Ok(())
}

/// Makes a subrequest.
fn begin(req: &mut Request, order: Order) -> Work {
    match made(req, (order, Kind::Kept)) {
        Ok(sub) => Box::pin(answered(sub)),
        Err(why) => Box::pin(std::future::ready(Reply::Failed(why))),
    }
}

fn made(req: &mut Request, (order, kind): (Order, Kind)) -> Result<Box<Request>, String> {
    let Order::Subrequest {
        uri,
        args,
        method,
        body,
    } = order
    else {
        return Err("no subrequest".to_string());
    };
    let uri = safe_uri(uri.as_bytes()).map_err(|_| format!("unsafe uri \"{uri}\""))?;
    let known = Method::of(method.as_bytes());
    if known == Method::Other {
        return Err(format!("unknown method \"{method}\""));
    }
    let mut query = uri.query.unwrap_or_default().to_vec();
    if !args.is_empty() {
        if !query.is_empty() {
            query.push(b'&');
        }
        query.extend_from_slice(args.as_bytes());
    }
    let target = Target {
        uri: Bytes::copy_from_slice(&uri.path),
        args: Bytes::from(query),
    };
    let mut sub = req
        .subrequest(target, kind)
        .ok_or_else(|| "subrequest creation failed".to_string())?;
    sub.method = known;
    match body {
        Some(body) if body.is_empty() => sub.body = RequestBody::None,
        Some(body) => sub.body = RequestBody::Memory(body),
        None => {}
    }
    if let Some(role) = &mut sub.role {
        role.set_method(known);
    }
    Ok(sub)
}

async fn answered(sub: Box<Request>) -> Reply {
    let (mut sub, mut response) = subrequest::answer(sub).await;
    sub.sent.status = response.status;
    let headers = headers(&mut sub, &response);
    crate::filter::run_part(&mut sub, &mut response);
    let most = sub
        .location
        .settings
        .of::<SubrequestPolicy>()
        .buffer_size
        .as_usize();
    let body = if sub.is_head() {
        Ok(Bytes::new())
    } else {
        whole(&mut response.body, most).await
    };
    subrequest::finish(&mut sub);
    match body {
        Err(why) => Reply::Failed(why),
        Ok(body) => Reply::Answer {
            status: response.status,
            headers,
            body,
            asked: BTreeMap::from([
                ("method", Bytes::from(sub.method.name().unwrap_or_default())),
                ("uri", sub.uri.clone()),
                ("args", sub.args.clone()),
            ]),
        },
    }
}

fn headers(sub: &mut Request, response: &Response) -> Vec<Header> {
    let fields = response.fields.iter();
    let mut headers: Vec<Header> = fields
        .map(|it| (it.name.clone(), it.value.clone()))
        .collect();
    let left = sub.answer_fields.iter();
    headers.extend(left.map(|it| (it.name.clone(), it.value.clone())));
    if let Some(length) = response.length {
        let name = Bytes::from_static(b"Content-Length");
        headers.push((name, Bytes::from(length.to_string())));
    }
    headers
}

async fn whole(body: &mut Body, most: usize) -> Result<Bytes, String> {
    let mut text = BytesMut::new();
    while let Some(piece) = poll_fn(|cx| body.poll_next(cx)).await {
        let mut piece = piece.map_err(|failure| failure.to_string())?;
        while !piece.is_empty() {
            let bytes = piece.take_memory().map_err(|failure| failure.to_string())?;
            if text.len() + bytes.len() > most {
                return Err("too big subrequest response".to_string());
            }
            text.extend_from_slice(&bytes);
        }
    }
    Ok(text.freeze())
}
