//! A job of `POST …/warm` on a worker: its URLs are asked for at a pace, through the server's own
//! locations.
//!
//! Each URL is asked for under the configuration that its worker serves then, so that a job goes on
//! over reloads. A worker that leaves lets go of the job, and another one takes it over.
//!
//! 1. Between its requests a job keeps no generation open.
//! 2. What is left of a job is looked at again under each configuration: it ends where nothing is
//!    there any more of what it had answers from.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_exchange::counters::Number;
use millpond_exchange::settings::Conf;
use millpond_exchange::worker::{Generation, Worker};
use millpond_proxy::downstream::inside::{self, Scheme};
use millpond_system::clock::{self, Instant};
use millpond_wire::http1::request::{Limits, Progress, RequestHead, RequestParser};

use crate::control::warm::{Job, Jobs, Place, Run};
use crate::explain::{Question, listen_of};

/// Takes over what other workers have left, for as long as this one lives.
pub(crate) async fn tend(worker: Rc<Worker>) {
    let jobs = worker.shared.guests.of::<Jobs>();
    loop {
        let mut handed = pin!(jobs.handed.notified());
        // Before the look, so that none is missed.
        handed.as_mut().enable();
        while worker.serving().is_some()
            && let Some(left) = jobs.take_over()
        {
            run(&worker, left);
        }
        handed.await;
    }
}

/// Runs a job in tasks of this worker.
pub(super) fn run(worker: &Rc<Worker>, run: Run) {
    let users = run.job.users;
    let shift = Rc::new(Shift {
        pace: Pace::of(run.job.rate),
        under: RefCell::default(),
        run,
    });
    for _ in 0..users {
        let (worker, shift) = (Rc::clone(worker), Rc::clone(&shift));
        tokio::task::spawn_local(async move { shift.work(&worker).await });
    }
}

/// A job's time on this worker, which all of its users share.
struct Shift {
    run: Run,
    pace: Pace,
    /// The configuration that the job was looked at under.
    under: RefCell<Weak<Conf>>,
}

impl Shift {
    async fn work(&self, worker: &Rc<Worker>) {
        let job = &self.run.job;
        loop {
            self.pace.wait().await;
            let Some(generation) = worker.serving() else {
                return;
            };
            self.look_at(&generation);
            let Some((url, question)) = job.next() else {
                return;
            };
            let member = generation.enter();
            let (cache_status, ended) = ask(&generation, job, (url, question)).await;
            job.note(url, cache_status, ended);
            drop(member);
        }
    }

    /// INVARIANT 2.
    fn look_at(&self, generation: &Generation) {
        let conf: &Arc<Conf> = &generation.conf;
        if std::ptr::eq(self.under.borrow().as_ptr(), Arc::as_ptr(conf)) {
            return;
        }
        *self.under.borrow_mut() = Arc::downgrade(conf);
        let listens = conf.bindings.iter().flat_map(|binding| &binding.listens);
        let servers: Vec<&Bytes> = listens
            .flat_map(|listen| listen.names.servers())
            .map(|server| &server.name)
            .collect();
        let counters = &generation.worker.shared.cache_zones;
        let declared = conf.declared.zones.iter();
        let zones: Vec<Number> = declared
            .map(|zone| counters.number(zone.name.as_bytes()))
            .collect();
        self.run.job.check(&servers, &zones);
    }
}

async fn ask(
    generation: &Rc<Generation>,
    job: &Job,
    (url, question): (&str, &Question),
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
            job.note_place(Place {
                server: asked.server,
                zone: asked.zone,
            });
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
