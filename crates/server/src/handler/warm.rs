//! A job of `POST …/warm` on a worker: its URLs are asked for at a pace, through the server's own
//! locations.
//!
//! 1. It ends with its generation: what is left is told, and may be ordered again.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use millpond_exchange::worker::Generation;
use millpond_proxy::downstream::inside::{self, Scheme};
use millpond_system::clock::{self, Instant};
use millpond_wire::http1::request::{Limits, Progress, RequestHead, RequestParser};

use crate::control::warm::{Job, Run};
use crate::explain::{Question, listen_of};

/// Runs a job in tasks of this worker.
pub(super) fn run(generation: &Rc<Generation>, run: Run) {
    let run = Rc::new(run);
    let pace = Rc::new(Pace::of(run.0.rate));
    for _ in 0..run.0.users {
        let (generation, run, pace) = (Rc::clone(generation), Rc::clone(&run), Rc::clone(&pace));
        let member = generation.enter();
        tokio::task::spawn_local(async move {
            work(&generation, &run.0, &pace).await;
            drop((member, run));
        });
    }
}

async fn work(generation: &Rc<Generation>, job: &Arc<Job>, pace: &Pace) {
    loop {
        pace.wait().await;
        // INVARIANT 1.
        if generation.is_closing() {
            job.stop();
        }
        let Some((url, question)) = job.next() else {
            return;
        };
        let (cache_status, ended) = ask(generation, url, question).await;
        job.note(url, cache_status, ended);
    }
}

async fn ask(
    generation: &Rc<Generation>,
    url: &str,
    question: &Question,
) -> (Option<&'static str>, Result<(), String>) {
    let head = match head_of(question) {
        Ok(head) => head,
        Err(why) => return (None, Err(why)),
    };
    let listen = match listen_of(&generation.conf, question.port) {
        Ok(listen) => listen,
        Err(why) => return (None, Err(why)),
    };
    let scheme = if url.starts_with("https://") {
        Scheme::Https
    } else {
        Scheme::Http
    };
    match Box::pin(inside::ask(generation, (&listen, scheme), head)).await {
        Err(why) => (None, Err(why)),
        Ok(asked) => {
            let ended = match asked.broken {
                Some(why) => Err(why),
                None if asked.status >= 400 => Err(format!("status {}", asked.status)),
                None => Ok(()),
            };
            (asked.cache_status, ended)
        }
    }
}

fn head_of(question: &Question) -> Result<Rc<RequestHead>, String> {
    let mut buffer = BytesMut::from(&question.head[..]);
    match RequestParser::new().parse(&mut buffer, &Limits::default()) {
        Progress::Done(head) => Ok(head),
        Progress::Refuse(refused) => Err(refused.why.to_string()),
        Progress::NeedMore => Err("the request has no end".to_string()),
    }
}

/// Pace of a job, which all of its users keep together.
struct Pace {
    step: Duration,
    next: Cell<Instant>,
}

impl Pace {
    fn of(rate: u32) -> Pace {
        Pace {
            step: Duration::from_secs(1) / rate.max(1),
            next: Cell::new(clock::instant()),
        }
    }

    /// Waits for a turn.
    async fn wait(&self) {
        let now = clock::instant();
        let turn = self.next.get().max(now);
        self.next.set(turn + self.step);
        if turn > now {
            clock::pause(turn - now).await;
        }
    }
}
