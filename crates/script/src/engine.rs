//! `js_memory_limit`, `js_time_limit`, `js_context_reuse`: the engine of a worker, and the contexts
//! that it lends to requests.
//!
//! ```text
//! idle ──lend──► lent ──call──► running ──► waits ──resume──► running ──► done ──┐
//!   ▲                              │                                             │
//!   │                              └─ threw, cut off ──► thrown away             │
//!   └────────────────────────────── reset ◄──────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. What runs, runs with a deadline; the engine asks for the time again and again.
//! 2. After a turn the queue of jobs is empty, or the engine is dead and lends nothing any more.
//! 3. A context that has failed is not lent again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rquickjs::{
    Array, CatchResultExt as _, CaughtError, Context, Ctx, Error, Exception, Function, IntoJs as _,
    Module, Object, Runtime, Value,
};

use crate::fault::{Fault, one_line};
use crate::host::{Form, Host, Reply, Ruling, Side};
use crate::modules::{Known, Sources, Way};
use crate::natives;
use crate::prelude;
use crate::program::{MAIN, Program, main_text};

/// The hidden name of the prelude's side in a context.
const OWN: &str = "__millpond";
/// The stack of a script; a worker's own is 2 MB.
const STACK: usize = 256 << 10;
/// Time for the words about a failure, and for the end of what was cut off.
const GRACE: Duration = Duration::from_millis(20);
/// The words for what is thrown where there is no memory for an error, or for its message.
const WORDLESS: [&str; 2] = ["a value of type null", "InternalError:"];
/// The state of a script that has ruled.
const RULED: u8 = 4;
/// The kinds of calls that are no plain ones.
const RULING: u8 = 1;
const TICK: u8 = 2;
const SESSION: u8 = 3;
const FILTER: u8 = 4;
/// The most jobs that are let run out when a turn was cut off; more end the engine.
const MOST_LEFT: usize = 1000;
/// Jobs between two looks at the memory: a look goes through all of it (arbitrary).
const JOBS_BETWEEN_LOOKS: usize = 4096;

/// The ground that an engine stands on: what only the process has.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// Reads the clock.
    pub clock: fn() -> Instant,
    /// Fills memory with random bytes.
    pub random: fn(&mut [u8]),
}

/// The bounds of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most memory of all scripts of a worker.
    pub memory: usize,
    /// The longest time that a script runs without waiting.
    pub time: Duration,
    /// The most contexts that are kept for reuse.
    pub idle: usize,
}

/// A function, and what it is called with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// `module.function`.
    pub function: &'a str,
    /// The number of the request; never that of another one that lives.
    pub request: u32,
    /// The thing that it is called for.
    pub errand: Errand,
}

/// The thing that a function is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Its doing, and its value.
    Call,
    /// A piece of a body.
    Piece(Part),
    /// Its ruling about an answer that may be stored.
    Ruling,
    /// A run that no request asks for; there is a session in place of one.
    Tick,
    /// Its doing for a session of `stream`, and its value.
    Session,
    /// The same, of a function that says what becomes of the bytes of a session.
    Filter,
    /// Bytes of a session, for the function that waits for them; the name of the entry is not read.
    Event(Side, Part),
    /// The end of the session: what the script does at its exit; the name is not read.
    Exit,
}

/// A piece of a body that a function gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes.
    pub data: Bytes,
    /// True for the end of the body, which has no bytes.
    pub is_last: bool,
    /// The type that the function gets them as.
    pub form: Form,
}

/// The state of a script after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The end, with this value; none for a script that waits for nothing that could end.
    Done(Option<Bytes>),
    /// The end, with a ruling.
    Ruled(Box<Ruling>),
    /// The script waits for operations.
    Waits,
}

/// The state that contexts share.
pub(crate) struct State<H> {
    slot: RefCell<Option<(u32, H)>>,
    deadline: Cell<Option<Instant>>,
    is_cut: Cell<bool>,
    /// The most memory that a look between the jobs of a turn has seen.
    most_memory: Cell<usize>,
    is_dead: Cell<bool>,
    is_running: Cell<bool>,
    /// The bound of the memory of scripts.
    pub(crate) memory: Cell<usize>,
    pub(crate) ground: Ground,
    pub(crate) began: Instant,
}

impl<H: Host> State<H> {
    /// Asks the host, whichever request it is.
    pub(crate) fn any<T>(&self, ctx: &Ctx<'_>, ask: impl FnOnce(&mut H) -> T) -> Result<T, Error> {
        let taken = self.slot.borrow_mut().take();
        self.asked(ctx, taken, ask)
    }

    /// Asks the host, if it is this request.
    pub(crate) fn of<T>(
        &self,
        ctx: &Ctx<'_>,
        id: u32,
        ask: impl FnOnce(&mut H) -> T,
    ) -> Result<T, Error> {
        let is_it = matches!(&*self.slot.borrow(), Some((own, _)) if *own == id);
        let taken = self.slot.borrow_mut().take_if(|_| is_it);
        self.asked(ctx, taken, ask)
    }

    /// [`State::of`] for what may be refused.
    pub(crate) fn tried<T>(
        &self,
        ctx: &Ctx<'_>,
        id: u32,
        ask: impl FnOnce(&mut H) -> Result<T, String>,
    ) -> Result<T, Error> {
        let told = self.of(ctx, id, ask)?;
        told.map_err(|message| Exception::throw_type(ctx, &message))
    }

    /// [`State::any`] for what may be refused.
    pub(crate) fn any_tried<T>(
        &self,
        ctx: &Ctx<'_>,
        ask: impl FnOnce(&mut H) -> Result<T, String>,
    ) -> Result<T, Error> {
        let told = self.any(ctx, ask)?;
        told.map_err(|message| Exception::throw_type(ctx, &message))
    }

    // INVARIANT: no borrow is held while the host is asked; it may evaluate other variables.
    fn asked<T>(
        &self,
        ctx: &Ctx<'_>,
        taken: Option<(u32, H)>,
        ask: impl FnOnce(&mut H) -> T,
    ) -> Result<T, Error> {
        let Some((id, mut host)) = taken else {
            let message = "the request is not the one that the script runs for";
            return Err(Exception::throw_type(ctx, message));
        };
        let told = ask(&mut host);
        self.slot.replace(Some((id, host)));
        Ok(told)
    }

    /// True once the time of the script that runs is over; it is cut off then.
    pub(crate) fn is_late(&self) -> bool {
        let is_late = self
            .deadline
            .get()
            .is_some_and(|deadline| (self.ground.clock)() >= deadline);
        if is_late {
            self.is_cut.set(true);
        }
        is_late
    }
}

/// The engine of a worker.
pub struct Engine<H: Host> {
    state: Rc<State<H>>,
    known: Rc<Known>,
    idle: RefCell<VecDeque<(u64, Context)>>,
    // Behind the contexts, which end first.
    runtime: Runtime,
}

impl<H: Host> Engine<H> {
    /// An engine without contexts.
    pub fn new(ground: Ground) -> Result<Rc<Self>, Fault> {
        let runtime = Runtime::new().map_err(|error| Fault::engine(&error))?;
        runtime.set_max_stack_size(STACK);
        // The runtime keeps the first context in which it makes a native function for as long as it
        // lives: it must be none with a script's values in it.
        let first = Context::full(&runtime).map_err(|error| Fault::engine(&error))?;
        let made = first.with(|ctx| Function::new(ctx, || ()).map(drop));
        made.map_err(|error| Fault::engine(&error))?;
        let state = Rc::new(State {
            slot: RefCell::new(None),
            deadline: Cell::new(None),
            is_cut: Cell::new(false),
            most_memory: Cell::new(0),
            is_dead: Cell::new(false),
            is_running: Cell::new(false),
            memory: Cell::new(0),
            ground,
            began: (ground.clock)(),
        });
        let asked = Rc::clone(&state);
        runtime.set_interrupt_handler(Some(Box::new(move || asked.is_late())));
        let known = Rc::new(Known::default());
        runtime.set_loader(Way(Rc::clone(&known)), Way(Rc::clone(&known)));
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            |ctx, promise, reason, is_handled| track(&ctx, (promise, reason, is_handled)),
        )));
        Ok(Rc::new(Engine {
            state,
            known,
            idle: RefCell::default(),
            runtime,
        }))
    }

    /// True while a script runs: another one needs an engine of its own.
    pub fn is_running(&self) -> bool {
        self.state.is_running.get()
    }

    /// True once the engine was given up; it lends nothing any more.
    pub fn is_dead(&self) -> bool {
        self.state.is_dead.get()
    }

    /// The bytes that all scripts take.
    pub fn memory(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(usize::MAX)
    }

    /// The contexts that are kept for reuse.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Lends a context of a program.
    pub fn lend(
        self: &Rc<Self>,
        program: &Arc<Program>,
        limits: Limits,
    ) -> Result<Instance<H>, Fault> {
        self.runtime.set_memory_limit(limits.memory);
        self.state.memory.set(limits.memory);
        let mut idle = self.idle.borrow_mut();
        let place = idle
            .iter()
            .rposition(|(number, _)| *number == program.number);
        let kept = place.and_then(|place| idle.remove(place));
        drop(idle);
        Ok(Instance {
            engine: Rc::clone(self),
            context: kept.map(|(_, context)| context),
            program: Arc::clone(program),
            limits,
            is_clean: true,
        })
    }

    /// A new context with the modules of a program.
    fn context(&self, program: &Program) -> Result<Context, Caught> {
        let context = Context::full(&self.runtime).map_err(|error| Caught::of(&error))?;
        self.known.sources.replace(program.sources.clone());
        let made = context.with(|ctx| self.fill(&ctx, program));
        made?;
        let evaluated = self.finish_modules(&context);
        self.known.sources.replace(Sources::default());
        evaluated.map(|()| context)
    }

    fn fill(&self, ctx: &Ctx<'_>, program: &Program) -> Result<(), Caught> {
        let filled = || -> Result<(), Error> {
            let own = Object::new(ctx.clone())?;
            own.set("modules", Object::new(ctx.clone())?)?;
            let native = natives::make(ctx, &self.state)?;
            let prelude = prelude::first(ctx)?;
            let () = prelude.call((native, own.clone()))?;
            let object: Object<'_> = ctx.globals().get("Object")?;
            let define: Function<'_> = object.get("defineProperty")?;
            let hidden = Object::new(ctx.clone())?;
            hidden.set("value", own.clone())?;
            let _: Value<'_> = define.call((ctx.globals(), OWN, hidden))?;
            let preload: Function<'_> = own.get("preload")?;
            for object in &program.preloads {
                let () = preload.call((object.name.as_str(), object.text.as_str()))?;
            }
            let text = main_text(&program.imports, None);
            let (module, promise) = Module::declare(ctx.clone(), MAIN, text)?.eval()?;
            own.set("main", module.namespace()?)?;
            own.set("ready", promise)
        };
        filled().catch(ctx).map_err(|error| Caught::told(&error))
    }

    /// Runs the modules to their ends: they may wait for what is there already.
    fn finish_modules(&self, context: &Context) -> Result<(), Caught> {
        self.run_jobs()?;
        context.with(|ctx| {
            let finished = || -> Result<(), Error> {
                let own: Object<'_> = ctx.globals().get(OWN)?;
                let ready: rquickjs::Promise<'_> = own.get("ready")?;
                match ready.result::<Value<'_>>() {
                    Some(result) => drop(result?),
                    None => {
                        let message = "a module waits for what never comes";
                        return Err(Exception::throw_message(&ctx, message));
                    }
                }
                let main: Object<'_> = own.get("main")?;
                own.set("imports", main.get::<_, Value<'_>>("default")?)?;
                let reset: Function<'_> = own.get("reset")?;
                reset.call(())
            };
            finished().catch(&ctx).map_err(|error| Caught::told(&error))
        })
    }

    /// Runs all jobs; the first that throws ends that.
    fn run_jobs(&self) -> Result<(), Caught> {
        for job in 1_usize.. {
            if job.is_multiple_of(JOBS_BETWEEN_LOOKS) {
                let most = self.state.most_memory.get().max(self.memory());
                self.state.most_memory.set(most);
            }
            match self.runtime.execute_pending_job() {
                Ok(true) if self.state.is_cut.get() => return Err(Caught::default()),
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(exception) => {
                    let context = exception.0;
                    return Err(context.with(|ctx| Caught::exception(&ctx)));
                }
            }
        }
        Ok(())
    }

    /// Ends what a turn has left, so that nothing of it runs later.
    fn drain(&self) {
        self.state.slot.borrow_mut().take();
        let now = (self.state.ground.clock)();
        self.state.deadline.set(Some(now));
        for _ in 0..MOST_LEFT {
            if let Ok(false) = self.runtime.execute_pending_job() {
                return;
            }
        }
        self.state.is_dead.set(true);
        self.idle.borrow_mut().clear();
    }
}

impl<H: Host> Drop for Engine<H> {
    fn drop(&mut self) {
        // What was left holds objects of contexts.
        while self.runtime.is_job_pending() && !self.state.is_dead.get() {
            self.drain();
        }
    }
}

/// Notes in the context of a promise that it was rejected, with its reason, or that somebody has
/// handled it after all.
fn track<'js>(ctx: &Ctx<'js>, note: (Value<'js>, Value<'js>, bool)) {
    let tracked = || -> Result<(), Error> {
        let own: Object<'js> = ctx.globals().get(OWN)?;
        let track: Function<'js> = own.get("track")?;
        track.call(note)
    };
    if tracked().is_err() {
        // A context that is being made has no prelude yet.
        ctx.catch();
    }
}

/// An exception in words.
#[derive(Debug, Default)]
struct Caught {
    text: String,
}

impl Caught {
    fn of(error: &Error) -> Self {
        Caught {
            text: error.to_string(),
        }
    }

    fn told(error: &CaughtError<'_>) -> Self {
        let text = match error {
            CaughtError::Exception(exception) => {
                let name: String = exception.as_object().get("name").unwrap_or_default();
                let message = exception.message().unwrap_or_default();
                let stack = exception.stack().unwrap_or_default();
                format!("{name}: {message}\n{stack}")
            }
            CaughtError::Value(value) => match value.as_string().map(|text| text.to_string()) {
                Some(Ok(text)) => text,
                _ => format!("a value of type {}", value.type_name()),
            },
            CaughtError::Error(error) => error.to_string(),
        };
        Caught { text }
    }

    fn exception(ctx: &Ctx<'_>) -> Self {
        Caught::told(&CaughtError::from_error(ctx, Error::Exception))
    }
}

/// A context of a program, lent to a request.
pub struct Instance<H: Host> {
    engine: Rc<Engine<H>>,
    context: Option<Context>,
    program: Arc<Program>,
    limits: Limits,
    is_clean: bool,
}

impl<H: Host> Instance<H> {
    /// Calls a function for a request. The host comes back; it is lost only where the engine itself
    /// has failed.
    pub fn call(&mut self, host: H, entry: &Entry<'_>) -> (Option<H>, Result<Turn, Fault>) {
        self.turn(host, entry.request, |ctx, own| {
            let enter: Function<'_> = own.get("enter")?;
            let of_kind = |kind: u8| {
                let nothing = || Value::new_undefined(ctx.clone());
                enter.call((entry.function, entry.request, nothing(), nothing(), kind))
            };
            match &entry.errand {
                Errand::Call => enter.call((entry.function, entry.request)),
                Errand::Ruling => of_kind(RULING),
                Errand::Tick => of_kind(TICK),
                Errand::Session => of_kind(SESSION),
                Errand::Filter => of_kind(FILTER),
                Errand::Exit => own.get::<_, Function<'_>>("exit")?.call(()),
                Errand::Event(side, part) => {
                    let event: Function<'_> = own.get("event")?;
                    let side = *side == Side::Peer;
                    event.call((u8::from(side), part_value(ctx, part)?, part.is_last))
                }
                Errand::Piece(part) => {
                    let flags = Object::new(ctx.clone())?;
                    flags.set("last", part.is_last)?;
                    let data = part_value(ctx, part)?;
                    enter.call((entry.function, entry.request, data, flags))
                }
            }
        })
    }

    /// Goes on with the end of an operation.
    pub fn resume(
        &mut self,
        host: H,
        request: u32,
        (id, reply): (u32, Reply),
    ) -> (Option<H>, Result<Turn, Fault>) {
        self.turn(host, request, |ctx, own| {
            let resume: Function<'_> = own.get("resume")?;
            resume.call((id, reply_object(ctx, &reply)?))
        })
    }

    /// True if the context may go on: it has failed neither here nor by another one's fault.
    pub fn is_usable(&self) -> bool {
        self.is_clean && !self.engine.is_dead()
    }

    /// True if the context has the modules of this program.
    pub fn is_of(&self, program: &Arc<Program>) -> bool {
        Arc::ptr_eq(&self.program, program)
    }

    /// True while a script of the same engine runs.
    pub fn is_busy(&self) -> bool {
        self.engine.is_running()
    }

    fn turn(
        &mut self,
        host: H,
        request: u32,
        begin: impl for<'js> FnOnce(&Ctx<'js>, &Object<'js>) -> Result<(), Error>,
    ) -> (Option<H>, Result<Turn, Fault>) {
        let engine = Rc::clone(&self.engine);
        let state = &engine.state;
        if !self.is_usable() {
            return (Some(host), Err(Fault::GivenUp));
        }
        if state.is_running.replace(true) {
            return (
                Some(host),
                Err(Fault::Engine("it runs already".to_string())),
            );
        }
        let _running = Running(&state.is_running);
        state.slot.replace(Some((request, host)));
        state.is_cut.set(false);
        state.most_memory.set(0);
        let start = (state.ground.clock)();
        state.deadline.set(start.checked_add(self.limits.time));
        let begun = self.begin(begin);
        let outcome = match begun {
            Ok(()) => self.outcome(),
            Err(caught) => Err(self.fault(caught)),
        };
        let host = state.slot.borrow_mut().take().map(|(_, host)| host);
        self.is_clean &= outcome.is_ok();
        if !self.is_clean {
            engine.drain();
            self.context = None;
            engine.runtime.run_gc();
        }
        state.deadline.set(None);
        (host, outcome)
    }

    fn begin(
        &mut self,
        begin: impl for<'js> FnOnce(&Ctx<'js>, &Object<'js>) -> Result<(), Error>,
    ) -> Result<(), Caught> {
        let context = match &self.context {
            Some(context) => context.clone(),
            None => {
                let made = self.engine.context(&self.program)?;
                self.context.insert(made).clone()
            }
        };
        context.with(|ctx| {
            let begun = || -> Result<(), Error> {
                let own: Object<'_> = ctx.globals().get(OWN)?;
                begin(&ctx, &own)
            };
            begun().catch(&ctx).map_err(|error| Caught::told(&error))
        })?;
        self.engine.run_jobs()
    }

    fn outcome(&self) -> Result<Turn, Fault> {
        let state = &self.engine.state;
        if state.is_cut.get() {
            return Err(self.fault(Caught::default()));
        }
        let Some(context) = &self.context else {
            return Err(Fault::GivenUp);
        };
        // What a script throws may have code of its own, which runs for these words.
        state
            .deadline
            .set((state.ground.clock)().checked_add(GRACE));
        let told = context.with(|ctx| {
            let told = || -> Result<(u8, Option<Value<'_>>, Ctx<'_>), Error> {
                let own: Object<'_> = ctx.globals().get(OWN)?;
                let state: Function<'_> = own.get("state")?;
                let told: Array<'_> = state.call(())?;
                Ok((told.get(0)?, told.get(1)?, ctx.clone()))
            };
            let read = || -> Result<(u8, Bytes, Option<Ruling>), Error> {
                let (kind, value, ctx) = told()?;
                if let Some(object) = value.as_ref().filter(|_| kind == RULED) {
                    return Ok((kind, Bytes::new(), Some(ruling_of(object)?)));
                }
                let text = value
                    .filter(|value| !value.is_undefined())
                    .map(|value| natives::bytes(&ctx, &value))
                    .transpose()?;
                Ok((kind, text.unwrap_or_default(), None))
            };
            read().catch(&ctx).map_err(|error| Caught::told(&error))
        });
        match told {
            Ok((_, _, Some(ruling))) => Ok(Turn::Ruled(Box::new(ruling))),
            Ok((0, value, _)) => Ok(Turn::Done(Some(value))),
            Ok((1, ..)) => Ok(Turn::Waits),
            // The engine drops a promise's step that it has no memory for, and says nothing.
            Ok((3, ..)) if self.is_short_of_memory() => Err(self.lack_of_memory()),
            Ok((3, ..)) => Ok(Turn::Done(None)),
            Ok((_, text, _)) => Err(self.rejected(&text)),
            Err(caught) => Err(self.fault(caught)),
        }
    }

    /// The fault of a function whose promise was rejected.
    fn rejected(&self, text: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(text).into_owned();
        match self.fault(Caught { text }) {
            Fault::Thrown(text) => Fault::Rejected(text),
            other => other,
        }
    }

    fn fault(&self, caught: Caught) -> Fault {
        let text = one_line(&caught.text);
        if self.engine.state.is_cut.get() {
            let stack = text.find(" at ").map_or("", |place| &text[place..]);
            return Fault::Time {
                limit_ms: self.limits.time.as_millis(),
                stack: stack.to_string(),
            };
        }
        if text.contains("out of memory")
            || text.contains("Allocation failed")
            || (WORDLESS.contains(&text.as_str()) && self.is_short_of_memory())
        {
            return self.lack_of_memory();
        }
        Fault::Thrown(text)
    }

    fn lack_of_memory(&self) -> Fault {
        self.engine.idle.borrow_mut().clear();
        Fault::Memory {
            limit: self.limits.memory,
        }
    }

    /// True where the engine may have no memory for an error.
    fn is_short_of_memory(&self) -> bool {
        let most = self.engine.state.most_memory.get();
        most.max(self.engine.memory()) >= self.limits.memory / 4 * 3
    }

    /// Gives the context back for another request, or throws it away.
    fn give_back(&mut self) {
        let Some(context) = self.context.take() else {
            return;
        };
        let engine = &self.engine;
        // A context that is dropped while another script runs is not called into.
        if !self.is_usable() || engine.is_running() {
            return;
        }
        engine.state.is_cut.set(false);
        let has_ended = self.end(&context, "exit", self.limits.time)
            && engine.run_jobs().is_ok()
            && self.end(&context, "reset", GRACE);
        engine.state.deadline.set(None);
        if !has_ended {
            engine.drain();
        } else if !engine.runtime.is_job_pending() {
            let mut idle = engine.idle.borrow_mut();
            idle.push_back((self.program.number, context));
            while idle.len() > self.limits.idle {
                idle.pop_front();
            }
        }
    }

    /// Calls a function of the prelude that ends a request; false if that failed.
    fn end(&self, context: &Context, name: &str, most: Duration) -> bool {
        let state = &self.engine.state;
        let _running = Running::begin(&state.is_running);
        let now = (state.ground.clock)();
        state.deadline.set(now.checked_add(most));
        context.with(|ctx| {
            let ended = || -> Result<(), Error> {
                let own: Object<'_> = ctx.globals().get(OWN)?;
                let end: Function<'_> = own.get(name)?;
                end.call(())
            };
            ended().catch(&ctx).is_ok()
        })
    }
}

impl<H: Host> Drop for Instance<H> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The time in which the engine runs a script, whatever ends it.
struct Running<'a>(&'a Cell<bool>);

impl<'a> Running<'a> {
    fn begin(is_running: &'a Cell<bool>) -> Self {
        is_running.set(true);
        Running(is_running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A piece of a body, as a function gets it.
fn part_value<'js>(ctx: &Ctx<'js>, part: &Part) -> Result<Value<'js>, Error> {
    match part.form {
        Form::Text => String::from_utf8_lossy(&part.data).into_js(ctx),
        Form::Buffer => rquickjs::TypedArray::<u8>::new_copy(ctx.clone(), &part.data)?.into_js(ctx),
    }
}

/// The ruling that the prelude has made of a value.
fn ruling_of(value: &Value<'_>) -> Result<Ruling, Error> {
    let object = value.as_object().ok_or(Error::Unknown)?;
    let seconds = |name: &str| -> Result<Option<Duration>, Error> {
        let seconds: Option<u32> = object.get(name)?;
        Ok(seconds.map(|seconds| Duration::from_secs(u64::from(seconds))))
    };
    Ok(Ruling {
        keeps_out: object.get("out")?,
        fresh: seconds("ttl")?,
        stale: seconds("stale")?,
        tags: object.get("tags")?,
        vary: object.get("vary")?,
    })
}

fn reply_object<'js>(ctx: &Ctx<'js>, reply: &Reply) -> Result<Object<'js>, Error> {
    let object = Object::new(ctx.clone())?;
    match reply {
        Reply::Elapsed => {}
        Reply::Purged(was_there) => object.set("purged", *was_there)?,
        Reply::Failed(message) => object.set("error", message.as_str())?,
        Reply::Answer {
            status,
            headers,
            body,
            asked,
        } => {
            object.set("status", *status)?;
            object.set("headers", natives::pairs(ctx, headers)?)?;
            let body = rquickjs::TypedArray::<u8>::new_copy(ctx.clone(), body)?;
            object.set("body", body)?;
            for (name, text) in asked {
                object.set(*name, String::from_utf8_lossy(text).into_owned())?;
            }
        }
        Reply::Fetched(fetched) => {
            object.set("status", fetched.status)?;
            object.set(
                "text",
                String::from_utf8_lossy(&fetched.reason).into_owned(),
            )?;
            object.set("headers", natives::pairs(ctx, &fetched.headers)?)?;
            let body = rquickjs::TypedArray::<u8>::new_copy(ctx.clone(), &fetched.body)?;
            object.set("body", body)?;
        }
    }
    Ok(object)
}
