//! A script that runs for a request: the context that it is lent, and the way to its end.
//!
//! A request keeps its context until it has ended, so that all its scripts see the same values of
//! modules. A subrequest has one of its own: another script of the page may wait meanwhile.
//!
//! Invariants:
//! 1. While a script runs, the request stands in the engine, and a copy in its place; it comes back
//!    whatever the script does.
//! 2. A context whose script waits is lent to no other script.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use millpond_script::{Entry, Errand, Fault, Instance, Part, Reply, Ruling, Turn};

use super::engines::Engines;
use super::host::{Out, RequestHost};
use super::operation::Running;
use super::{Scripts, tell};
use crate::request::Request;

thread_local! {
    static NEXT: Cell<u32> = const { Cell::new(1) };
}

/// The context of a request between its scripts, as a note.
struct Lent {
    /// The depth of the request among the subrequests of its page.
    depth: u8,
    number: u32,
    instance: RefCell<Option<Instance<RequestHost>>>,
}

impl Lent {
    /// Notes with a request that it has no context yet.
    fn note(req: &mut Request, depth: u8) -> Rc<Lent> {
        let lent = Rc::new(Lent {
            depth,
            number: NEXT.with(|next| next.replace(next.get().wrapping_add(1))),
            instance: RefCell::default(),
        });
        req.notes.put(Rc::clone(&lent));
        lent
    }
}

/// A request's script.
pub struct Session {
    instance: Option<Instance<RequestHost>>,
    lent: Rc<Lent>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take().filter(Instance::is_usable) {
            self.lent.instance.replace(Some(instance));
        }
    }
}

/// Runs what the scripts of a session want done at its exit, while there is still a log for it.
pub fn exit(req: &mut Request) {
    let noted = req.notes.get::<Rc<Lent>>().map(Rc::clone);
    let Some(lent) = noted else {
        return;
    };
    let kept = lent.instance.borrow_mut().take();
    let Some(instance) = kept.filter(|it| it.is_usable() && !it.is_busy()) else {
        return;
    };
    let mut session = Session {
        instance: Some(instance),
        lent,
    };
    let mut out = Out::of_session();
    if let Err(fault) = session.call(req, &mut out, ("", Errand::Exit)) {
        tell(req, &fault);
    }
}

impl Session {
    /// The context that the request has, or a new one.
    pub fn begin(req: &mut Request, scripts: &Scripts) -> Result<Session, Fault> {
        let depth = req.role.as_ref().map_or(0, |role| role.depth());
        let noted = req.notes.get::<Rc<Lent>>().map(Rc::clone);
        let lent = noted
            .filter(|lent| lent.depth == depth)
            .unwrap_or_else(|| Lent::note(req, depth));
        let kept = lent
            .instance
            .borrow_mut()
            .take()
            .filter(|it| it.is_of(&scripts.program) && it.is_usable() && !it.is_busy());
        let instance = match kept {
            Some(instance) => instance,
            None => {
                let engine = req.worker().of::<Engines>().idle()?;
                engine.lend(&scripts.program, scripts.limits)?
            }
        };
        Ok(Session {
            instance: Some(instance),
            lent,
        })
    }

    /// Runs a function that must not wait; its value, if it has one.
    pub(super) fn at_once(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        function: &str,
    ) -> Result<Option<Bytes>, Fault> {
        let errand = match req.server.session {
            Some(_) => Errand::Session,
            None => Errand::Call,
        };
        match self.call(req, out, (function, errand))? {
            Turn::Done(value) => Ok(value),
            Turn::Ruled(_) | Turn::Waits => Err(self.waits(function)),
        }
    }

    /// Runs a function that gets a piece of a body, and must not wait.
    pub(super) fn piece(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        (function, part): (&str, Part),
    ) -> Result<(), Fault> {
        match self.call(req, out, (function, Errand::Piece(part)))? {
            Turn::Done(_) => Ok(()),
            Turn::Ruled(_) | Turn::Waits => Err(self.waits(function)),
        }
    }

    /// Runs a function that rules of an answer, and must not wait.
    pub(super) fn rule(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        function: &str,
    ) -> Result<Ruling, Fault> {
        match self.call(req, out, (function, Errand::Ruling))? {
            Turn::Ruled(ruling) => Ok(*ruling),
            Turn::Done(_) | Turn::Waits => Err(self.waits(function)),
        }
    }

    /// The fault of a function that waits: nobody tells it the end, so that its context cannot be
    /// reused.
    fn waits(&mut self, function: &str) -> Fault {
        self.instance = None;
        Fault::Waits(function.to_string())
    }

    /// Runs a function to its end.
    pub(super) async fn finish(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        function: &str,
    ) -> Result<(), Fault> {
        self.wait(req, out, (function, Errand::Call)).await
    }

    /// Runs a function that no request asks for to its end.
    pub(super) async fn tick(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        function: &str,
    ) -> Result<(), Fault> {
        self.wait(req, out, (function, Errand::Tick)).await
    }

    async fn wait(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        call: (&str, Errand),
    ) -> Result<(), Fault> {
        let mut turn = self.call(req, out, call)?;
        let mut running = Running::default();
        // Each round takes the end of an operation, of which a script may order more; the client's
        // leaving ends it.
        while turn == Turn::Waits {
            running.begin(req, out);
            let Some(ended) = running.next().await else {
                break;
            };
            turn = self.resume(req, out, (ended, &running))?;
        }
        out.is_stuck = turn == Turn::Done(None);
        Ok(())
    }

    /// Calls a function, as far as it goes without waiting.
    pub fn call(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        (function, errand): (&str, Errand),
    ) -> Result<Turn, Fault> {
        let entry = Entry {
            function,
            request: self.lent.number,
            errand,
        };
        self.turn(req, out, |instance, host| instance.call(host, &entry))
    }

    /// Goes on with the end of an operation.
    pub fn resume(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        (ended, running): ((u32, Reply), &Running),
    ) -> Result<Turn, Fault> {
        out.running = running.len();
        let number = self.lent.number;
        self.turn(req, out, |instance, host| {
            instance.resume(host, number, ended)
        })
    }

    fn turn(
        &mut self,
        req: &mut Request,
        out: &mut Out,
        run: impl FnOnce(
            &mut Instance<RequestHost>,
            RequestHost,
        ) -> (Option<RequestHost>, Result<Turn, Fault>),
    ) -> Result<Turn, Fault> {
        let Some(instance) = &mut self.instance else {
            return Err(Fault::GivenUp);
        };
        // INVARIANT 1.
        let copy = req.fork();
        let host = RequestHost {
            req: std::mem::replace(req, copy),
            out: std::mem::take(out),
        };
        let (host, outcome) = run(instance, host);
        if let Some(host) = host {
            *req = host.req;
            *out = host.out;
        }
        outcome
    }
}
