//! The running process: sockets, worker threads, and the loop that obeys signals.
//!
//! ```text
//!         bind ──► Server ──start──► workers ◄── commands (serve, flush, quit, stop)
//! main thread:       │
//!                    └─ run: signal (shutdown.rs) ──► reload.rs | reopen | upgrade | quit | stop
//! ```
//!
//! All sockets are bound before a thread is started, so that a start that fails leaves nothing
//! behind. The main thread only waits for signals; requests are served by the workers
//! (`server/thread.rs`).
//!
//! While the binary is changed there are two processes: `predecessor.rs` is how we took over,
//! `successor.rs` how somebody takes over from us.
//!
//! Invariants:
//! 1. A socket stays open as long as its address is configured ([`Sockets`]), whatever is
//!    reloaded.
//! 2. All workers serve the same configuration, but for the moment in which a reload reaches them.
//! 3. One process has the caches, and one accepts connections, once the other serves.
//! 4. `run` returns only after every worker has ended, or had its time to.

mod figures;
mod handed;
pub mod predecessor;
mod pulse;
mod reload;
pub(crate) mod successor;
pub(crate) mod thread;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_exchange::settings::Conf;
use millpond_exchange::worker::Shared;
use millpond_fleet::Fleets;
use millpond_fleet::config::rollout::Step;
use millpond_fleet::node::Sources;
use millpond_otlp::Exporters;
use millpond_otlp::exporter::FLUSH_MAX;
use millpond_proxy::cache::zones::Registry;
use millpond_proxy::cache::{fleet, sweep, tier, zones};
use millpond_proxy::downstream::quic::Directory;
use millpond_proxy::handler::limit_zone::{self, LimitZones};
#[cfg(feature = "script")]
use millpond_proxy::script::shared as dicts;
use millpond_proxy::tls::acme::Orders;
use millpond_proxy::upstream::groups::Groups;
use millpond_system::clock;
use millpond_system::confinement::{Confinement, ConfinementError, Demand, Outside};
use millpond_system::heritage::Program;
use millpond_system::log::error::{self, Level};
use millpond_system::log::file;
use millpond_system::shutdown::{Signal, Signals};
use millpond_system::supervisor::Supervisor;
use millpond_system::temp_file::FolderError;
use millpond_tier::Tiers;
use tokio::task::AbortHandle;

use crate::control::warm::Jobs;
use crate::control::{Control, ControlError, ControlSocket, Wanted};
use crate::handler::dashboard::feed::Feed;
use crate::handler::dashboard::history;
use crate::pid::PidHolder;
use crate::sockets::{BindError, Inherited, SocketFiles, Sockets};
use crate::source::ConfSource;
use crate::source::bundled::{self, Beside};
use crate::telemetry;
use figures::Counters;
use predecessor::Predecessor;
use pulse::Pulse;
use successor::{News, Successor};
use thread::{Command, WorkerThread};

/// The longest time that the end of the process waits for a slow log. Arbitrary: nobody waits
/// longer for a process to end.
const LOGS_WAIT: Duration = Duration::from_secs(1);

/// The reason why a configuration cannot be put into force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A cache cannot be opened.
    #[error("{0}")]
    Zone(String),
    /// A table that is kept over reloads would mean something else.
    #[error("{0}")]
    Limit(String),
    /// A folder cannot be made.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The kernel does not bind the process.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// A thread cannot be started.
    #[error("starting a worker thread failed ({})", error::os_error(.0))]
    Thread(io::Error),
}

/// The parts that the process serves with: configuration, sockets, threads and the process's own
/// state.
pub struct Server {
    conf: Arc<Conf>,
    sockets: Sockets,
    workers: Vec<WorkerThread>,
    /// Workers that a reload made superfluous and that still drain.
    leaving: Vec<WorkerThread>,
    shared: Arc<Shared>,
    predecessor: Predecessor,
    successor: Option<Successor>,
    /// False after WINCH, and while a successor serves.
    is_accepting: bool,
    /// True when we were told to accept beside the successor.
    accepts_beside: bool,
    control: Control,
    /// Notes what dashboards begin with.
    notes: Option<AbortHandle>,
    /// The rules that the kernel holds this process to.
    confinement: Option<Confinement>,
    /// Sends metrics to a collector.
    telemetry: Option<AbortHandle>,
}

/// The rules of the kernel that a process has from the one that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// None.
    Nothing,
    /// Those of a process that was bound.
    Rules,
}

/// The place where the process runs: the foreground or the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The process may be watched on a terminal.
    Foreground,
    /// The process has left its terminal.
    Background,
}

/// The process as others see it: its program, its pid file, its place.
#[derive(Debug)]
pub struct Process {
    /// The program, to be started again.
    pub program: Program,
    /// The file with the id of the process.
    pub pid_file: PidHolder,
    /// The place where the process runs.
    pub standing: Standing,
    /// The service manager, which is told what becomes of it.
    pub supervisor: Supervisor,
}

impl Server {
    /// Binds the sockets of a configuration. Nothing is accepted yet.
    pub fn bind(conf: Conf) -> Result<Server, Vec<BindError>> {
        Server::take_over(conf, Predecessor::default(), Vec::new())
    }

    /// Binds as [`Server::bind`] does, with sockets that a predecessor left.
    pub fn take_over(
        conf: Conf,
        predecessor: Predecessor,
        inherited: Vec<Inherited>,
    ) -> Result<Server, Vec<BindError>> {
        let conf = Arc::new(conf);
        let mut sockets = Sockets::inherit(inherited);
        let bindings = conf.sockets();
        let opened = sockets.open(&bindings, conf.main.process.worker_count())?;
        // The predecessor still listens on what we do not.
        sockets.adopt(opened, &bindings, SocketFiles::Shared);
        let shared = Arc::<Shared>::default();
        // It knows when the process began.
        shared.guests.of::<Feed>();
        Ok(Server {
            conf,
            sockets,
            workers: Vec::new(),
            leaving: Vec::new(),
            shared,
            predecessor,
            successor: None,
            is_accepting: true,
            accepts_beside: false,
            control: Control::default(),
            notes: None,
            confinement: None,
            telemetry: None,
        })
    }

    /// Opens the control socket, or takes that of the predecessor. To be called before the process
    /// changes to its user.
    pub fn open_control(&mut self, wanted: &Wanted) -> Result<(), ControlError> {
        let inherited = self.predecessor.take_control();
        let socket = self.control.open(wanted, inherited)?;
        self.adopt_control(socket);
        Ok(())
    }

    /// Opens the control socket that a configuration wants, for [`Server::adopt_control`].
    pub fn prepare_control(&self, wanted: &Wanted) -> Result<Option<ControlSocket>, ControlError> {
        self.control.open(wanted, None)
    }

    /// Takes a control socket into use, in place of the one there is.
    pub fn adopt_control(&mut self, socket: Option<ControlSocket>) {
        let files = self.socket_files();
        self.control.adopt(socket, files);
    }

    /// The path of the control socket.
    pub fn control_path(&self) -> Option<&Path> {
        self.control.path()
    }

    /// The configuration in force.
    pub fn conf(&self) -> &Arc<Conf> {
        &self.conf
    }

    /// The state that the workers share, counters among it.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Binds the process to the files of its configuration, if that is demanded; true if it is
    /// bound. To be called before there is a second thread, and after the change to the user.
    ///
    /// `inherited` says whether the process that started this one was bound: its rules hold.
    pub fn confine(&mut self, inherited: Inherit) -> Result<bool, StartError> {
        let reaches = &self.conf.declared.reaches;
        let demand = self.conf.main.confinement.demand;
        self.confinement = match (inherited, demand) {
            (Inherit::Rules, _) => Some(Confinement::of(reaches)),
            (Inherit::Nothing, Demand::Off) => None,
            (Inherit::Nothing, demand) => {
                // Rules are for what is there.
                let declared = &self.conf.declared;
                zones::make_folders(&declared.zones).map_err(StartError::Zone)?;
                declared.temp_folders.make()?;
                bundled::make_folder(declared).map_err(StartError::Zone)?;
                Confinement::enter(demand, reaches)?
            }
        };
        if demand == Demand::On && self.confinement.is_none() {
            let message = "\"landlock on\" has no effect: this kernel has no Landlock";
            error::process(Level::Warn, format_args!("{message}"));
        }
        Ok(self.confinement.is_some())
    }

    /// The paths of a configuration that the rules of this process do not allow.
    pub(crate) fn outside(&self, conf: &Conf) -> Vec<Outside> {
        let rules = self.confinement.as_ref();
        rules.map_or_else(Vec::new, |rules| rules.refused(&conf.declared.reaches))
    }

    /// Opens the caches and starts the workers.
    ///
    /// The caches come this late because they start threads, which must have the user that the
    /// process changed to.
    pub fn start(&mut self) -> Result<(), StartError> {
        self.predecessor.wait_for_store();
        if let Some(packets) = self.predecessor.take_packets() {
            Directory::join(&self.shared, packets).map_err(StartError::Thread)?;
        }
        if let Some(conf) = Arc::get_mut(&mut self.conf) {
            let shared = &self.shared;
            let opened = Registry::of(shared).open(conf, &shared.sites);
            opened.map_err(StartError::Zone)?;
            Registry::expect(shared, conf);
            let disks = Box::new(Registry::of(shared).disks());
            shared.ledger.keep(conf, &shared.sites, disks);
            #[cfg(feature = "script")]
            dicts::keep(conf, shared);
        }
        millpond_acme::load(&self.conf.parts.of::<Orders>().plan());
        self.follow_fleets();
        error::process(Level::Notice, format_args!("start worker threads"));
        self.grow(self.conf.main.process.worker_count())
            .map_err(StartError::Thread)?;
        self.serve();
        self.serve_control();
        self.order();
        Ok(())
    }

    /// Has the zones and limits of the configuration follow the logs of their fleets, and its
    /// zones use their tiers.
    fn follow_fleets(&self) {
        let fleets = self.shared.guests.of::<Fleets>();
        let limits = self.conf.parts.of::<LimitZones>();
        limits.join(&fleets);
        fleets.tell(|| Sources {
            counters: Some(Arc::clone(&self.shared.sites) as _),
            catalogue: Some(self.control.catalogue()),
        });
        self.take_configuration(&fleets);
        let quotas = &self.conf.declared.site_quotas;
        let has_limits =
            |name: &str| limits.are_split_in(name) || quotas.iter().any(|it| it.is_of(name));
        fleets.serve(fleet::plan(&self.conf, has_limits));
        let tiers = self.shared.guests.of::<Tiers>();
        tiers.serve(tier::plan(&self.conf), &fleets);
    }

    /// Has the fleet that gives configuration, if one does, go on with what is in force.
    fn take_configuration(&self, fleets: &Fleets) {
        let declared = &self.conf.declared;
        let giving = declared.fleets.iter().find_map(|fleet| {
            let config = fleet.config.as_ref()?;
            Some((fleet.name(), fleet.log.node.as_str(), config))
        });
        let meter = Arc::new(Counters(Arc::downgrade(&self.shared)));
        let held = declared.bundle.as_deref();
        fleets.rollout().serve(giving, held, meter);
    }

    fn leave_fleets(&self) {
        self.shared.guests.of::<Tiers>().stop();
        self.shared.guests.of::<Fleets>().stop();
    }

    /// Has the certificates of the configuration ordered, once authorities can ask for them.
    fn order(&self) {
        let plan = self.conf.parts.of::<Orders>().plan();
        if let Err(error) = self.shared.tender.serve(plan) {
            let why = error::os_error(&error);
            let message = format_args!("starting the thread of certificates failed ({why})");
            error::process(Level::Alert, message);
        }
    }

    /// Obeys signals until one of them ends the process.
    ///
    /// `signals` must have been made before the process told anybody its id.
    pub async fn run(mut self, mut signals: Signals, source: &ConfSource, process: &mut Process) {
        self.predecessor.tell_serving(&self.shared);
        process.supervisor.tell_serving(&self.status());
        let mut pulse = Pulse::new(process.supervisor.period());
        let fleets = self.shared.guests.of::<Fleets>();
        loop {
            let signal = tokio::select! {
                signal = signals.next() => signal,
                news = successor::news_of(&mut self.successor) => {
                    self.heed(news, process);
                    continue;
                }
                step = fleets.rollout().next_step(), if self.is_alone() => {
                    let outcome = self.obey_fleet(step, source, process);
                    fleets.rollout().tell(outcome);
                    continue;
                }
                () = pulse.beat(&self.workers) => {
                    process.supervisor.tell_alive(&self.status());
                    continue;
                }
            };
            let name = signal.name();
            error::process(Level::Notice, format_args!("signal {name} received"));
            match signal {
                // nginx: while the binary is changed, this brings the workers of the old one back.
                Signal::Reload if self.successor.is_some() => {
                    self.accepts_beside = true;
                    self.accept_again();
                    self.shared.attempts.decline("the binary is being changed");
                }
                Signal::Reload => {
                    self.read_again(source, process);
                    fleets.rollout().forget_refusals();
                }
                Signal::Reopen => self.reopen_logs(),
                // A terminal sends it whenever its window changes.
                Signal::CloseListeners if process.standing == Standing::Foreground => {}
                Signal::CloseListeners => self.close_listeners(),
                Signal::Upgrade => self.upgrade(process),
                Signal::ChildEnded => self.come_back(process),
                Signal::Quit => {
                    let command = self.delay_quit(&mut signals).await;
                    self.command_all(command);
                    break;
                }
                Signal::Stop => {
                    self.command_all(|| Command::Stop);
                    break;
                }
            }
        }
        if let Some(successor) = &self.successor {
            process.supervisor.hand_over(successor.id());
        }
        self.shared.ending.announce();
        self.stop_jobs();
        process.supervisor.tell_stopping();
        self.let_go();
        self.wait_for_end(&mut signals).await;
        self.leave_fleets();
        telemetry::send_metrics(&self.conf, &self.shared);
        let exporters: Arc<Exporters> = self.shared.guests.of();
        exporters.finish(FLUSH_MAX);
        let patience = sweep::CLOSE_PATIENCE;
        Registry::of(&self.shared).close(&self.shared.sites, patience);
        self.shared.ledger.close();
        #[cfg(feature = "script")]
        dicts::close(&self.shared);
        error::process(Level::Notice, format_args!("exit"));
        file::drain_all(LOGS_WAIT);
    }

    /// Obeys HUP; what a fleet has given stays.
    fn read_again(&mut self, source: &ConfSource, process: &mut Process) {
        process.supervisor.tell_reloading();
        let held = self.conf.declared.bundle.clone();
        let beside = held.map_or(Beside::Good, Beside::Held);
        // The outcome is in the log, and told to who waits.
        let _told = reload::reload(self, (source, beside), process);
        process.supervisor.tell_serving(&self.status());
    }

    /// True if no other process is to take over, which then has to take what the fleet gives, and
    /// this one accepts connections.
    fn is_alone(&self) -> bool {
        self.successor.is_none() && self.is_accepting
    }

    /// Applies what the fleet gives, by a reload; the error says why that was refused.
    fn obey_fleet(
        &mut self,
        step: Step,
        source: &ConfSource,
        process: &mut Process,
    ) -> Result<(), String> {
        process.supervisor.tell_reloading();
        let beside = step.held.map_or(Beside::Nothing, Beside::Held);
        let outcome = reload::reload(self, (source, beside), process);
        process.supervisor.tell_serving(&self.status());
        outcome.map_err(|reasons| reasons.join("; "))
    }

    /// Puts another configuration into force. An error leaves everything as it was.
    pub fn change(&mut self, mut conf: Conf) -> Result<(), Vec<StartError>> {
        inherit_limits(&mut conf, &self.conf).map_err(|error| vec![StartError::Limit(error)])?;
        let count = conf.main.process.worker_count();
        let bindings = conf.sockets();
        let opened = self.sockets.open(&bindings, count);
        let opened = opened.map_err(|errors| Vec::from_iter(errors.into_iter().map(Into::into)))?;
        let zones = Registry::of(&self.shared).open(&mut conf, &self.shared.sites);
        zones.map_err(|error| vec![StartError::Zone(error)])?;
        if let Err(error) = self.grow(count) {
            let message = format_args!("starting a worker failed ({})", error::os_error(&error));
            // The threads that there are serve it as well.
            error::process(Level::Alert, message);
        }
        let files = self.socket_files();
        self.sockets.adopt(opened, &bindings, files);
        millpond_acme::load(&conf.parts.of::<Orders>().plan());
        conf.parts.of::<Groups>().inherit(self.conf.parts.of());
        if let (Some(stream), Some(older)) = (&conf.stream, &self.conf.stream) {
            stream.parts.of::<Groups>().inherit(older.parts.of());
        }
        Registry::expect(&self.shared, &conf);
        let disks = Box::new(Registry::of(&self.shared).disks());
        self.shared.ledger.keep(&conf, &self.shared.sites, disks);
        #[cfg(feature = "script")]
        dicts::keep(&conf, &self.shared);
        self.conf = Arc::new(conf);
        self.follow_fleets();
        self.leaving.retain(|worker| !worker.has_ended());
        for worker in self.workers.drain(count.min(self.workers.len())..) {
            worker.send(Command::Quit);
            self.leaving.push(worker);
        }
        self.serve();
        self.order();
        Ok(())
    }

    /// Notes that a configuration was not taken.
    pub fn note_failed_load(&self) {
        self.shared.loads.note_failure();
    }

    /// Answers on the control socket from what is in force now.
    pub fn serve_control(&mut self) {
        self.shared.loads.note(&self.conf);
        self.control.serve(&self.conf, &self.shared);
        let notes = self.conf.declared.has_dashboard.then(|| {
            let (conf, shared) = (Arc::downgrade(&self.conf), Arc::clone(&self.shared));
            tokio::spawn(history::keep(conf, shared)).abort_handle()
        });
        self.stop_notes();
        self.notes = notes;
        self.telemetry = telemetry::follow(&self.conf, &self.shared);
    }

    /// Starts workers until there are `count`.
    fn grow(&mut self, count: usize) -> io::Result<()> {
        while self.workers.len() < count {
            let index = self.workers.len();
            let worker = WorkerThread::start(index, Arc::clone(&self.shared))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Hands the configuration and its sockets to all workers.
    fn serve(&mut self) {
        self.is_accepting = true;
        let bindings = self.conf.sockets();
        for (index, worker) in self.workers.iter().enumerate() {
            let listening = self.sockets.share_of(index, self.workers.len(), &bindings);
            match listening {
                Ok(listening) => worker.send(Command::Serve {
                    conf: Arc::clone(&self.conf),
                    listening,
                }),
                Err(error) => error::process(
                    Level::Alert,
                    format_args!("dup() of a listener failed ({})", error::os_error(&error)),
                ),
            }
        }
    }

    fn reopen_logs(&self) {
        error::process(Level::Notice, format_args!("reopening logs"));
        self.command_all(|| Command::FlushLogs);
        file::reopen_all();
    }

    /// nginx: WINCH ends the workers gracefully and keeps the master. Here the connections end and
    /// nothing more is accepted.
    fn close_listeners(&mut self) {
        self.is_accepting = false;
        self.stop_jobs();
        self.command_all(|| Command::Serve {
            conf: Arc::clone(&self.conf),
            listening: Vec::new(),
        });
    }

    /// Starts the program again, to take over from this process.
    fn upgrade(&mut self, process: &mut Process) {
        if self.successor.is_some() || self.predecessor.is_alive() {
            let message =
                "the binary is being changed already: end the old or the new process first";
            error::process(Level::Notice, format_args!("{message}"));
            return;
        }
        if let Err(failure) = process.pid_file.set_aside() {
            error::process(Level::Alert, format_args!("{failure}"));
            return;
        }
        let copies = self
            .sockets
            .copies()
            .and_then(|copies| self.share_packets(copies));
        let control = self.control.share().map(ControlSocket::into_fd);
        let start = |sockets| Successor::start(&process.program, sockets, control);
        match copies.and_then(start) {
            Ok(successor) => {
                let id = successor.id();
                error::process(Level::Notice, format_args!("start new binary process {id}"));
                self.successor = Some(successor);
            }
            Err(failure) => {
                let path = process.program.path.display();
                let reason = error::os_error(&failure);
                let message = format_args!("could not start \"{path}\" ({reason})");
                error::process(Level::Alert, message);
                put_back(&mut process.pid_file);
            }
        }
    }

    /// Adds the way of packets of QUIC to the sockets of a successor, which reads the same sockets
    /// as we as long as we have connections.
    fn share_packets(&self, mut copies: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
        if self.conf.sockets().iter().any(|it| it.is_quic()) {
            let (ours, theirs) = UnixDatagram::pair()?;
            Directory::join(&self.shared, ours)?;
            copies.push(theirs.into());
        }
        Ok(copies)
    }

    /// The state of the service, in a line for people.
    fn status(&self) -> String {
        let open = self.shared.connections.snapshot().active;
        let percent = self.shared.cache.snapshot().hit_ratio() * 100.0;
        let refused = if self.shared.loads.outcome().is_taken {
            ""
        } else {
            "; the last reload was refused, the configuration before it is in force"
        };
        format!("serving: {open} connections, hit ratio {percent:.1} %{refused}")
    }

    /// Does what the successor is waiting for.
    fn heed(&mut self, news: News, process: &mut Process) {
        if let (News::Serves, Some(successor)) = (news, &self.successor) {
            process.supervisor.hand_over(successor.id());
        }
        match news {
            News::WantsStore => self.lend_caches(),
            News::Serves if self.accepts_beside => {}
            // INVARIANT 3.
            News::Serves => self.close_listeners(),
            News::Ended => self.come_back(process),
        }
    }

    fn stop_notes(&mut self) {
        let works = [self.notes.take(), self.telemetry.take()];
        works.into_iter().flatten().for_each(|work| work.abort());
    }

    /// Has jobs begin no more that ask this process: nobody else does from now on.
    fn stop_jobs(&self) {
        let jobs = self.shared.guests.of::<Jobs>();
        jobs.stop_all("the process that ran it serves no more");
    }

    fn lend_caches(&mut self) {
        self.stop_jobs();
        // The successor orders from here on; without a plan nothing has to be started.
        let _ = self.shared.tender.serve(Vec::new());
        self.leave_fleets();
        self.control.pause();
        self.stop_notes();
        // INVARIANT 1 of `handed.rs`.
        let channel = self.successor.as_ref().and_then(Successor::share_channel);
        if let Some(channel) = channel {
            handed::appoint(&self.shared, channel);
        }
        Registry::of(&self.shared).lend();
        if let Some(successor) = &mut self.successor {
            successor.give_store();
        }
    }

    /// A child has ended: if it was to take over, we go on.
    fn come_back(&mut self, process: &mut Process) {
        let Some(successor) = &mut self.successor else {
            return;
        };
        let Some(status) = successor.ended() else {
            return;
        };
        let id = successor.id();
        error::process(
            Level::Notice,
            format_args!("new binary process {id} ended with {status}"),
        );
        self.successor = None;
        self.accepts_beside = false;
        put_back(&mut process.pid_file);
        for failure in Registry::of(&self.shared).take_back() {
            error::process(Level::Alert, format_args!("{failure}"));
        }
        self.follow_fleets();
        handed::take_back(&self.shared);
        self.serve_control();
        self.order();
        self.accept_again();
        process.supervisor.take_back(&self.status());
    }

    fn accept_again(&mut self) {
        error::process(Level::Notice, format_args!("accepting connections"));
        if !self.is_accepting {
            self.serve();
        }
    }

    /// Lets others have what they still need of an ending process, and closes the sockets.
    fn let_go(&mut self) {
        if self.successor.is_some() {
            self.lend_caches();
        }
        let files = self.socket_files();
        self.control.close(files);
        self.sockets.close(files);
    }

    /// The owners of the files of our Unix sockets: this process alone, or a predecessor or
    /// successor too.
    fn socket_files(&self) -> SocketFiles {
        if self.successor.is_some() || self.predecessor.is_alive() {
            SocketFiles::Shared
        } else {
            SocketFiles::Ours
        }
    }

    fn command_all(&self, command: impl Fn() -> Command) {
        let all = self.workers.iter().chain(&self.leaving);
        all.for_each(|worker| worker.send(command()));
    }

    /// Goes on for a while, since somebody may still send requests; gives the command to end with.
    async fn delay_quit(&self, signals: &mut Signals) -> fn() -> Command {
        self.shared.ending.announce();
        let delay = self.conf.main.process.shutdown_delay;
        if delay.is_zero() || !self.is_accepting || self.successor.is_some() {
            return || Command::Quit;
        }
        let seconds = delay.as_secs_f64();
        error::process(Level::Notice, format_args!("quitting in {seconds} s"));
        let mut over = std::pin::pin!(clock::sleep_until(clock::instant() + delay));
        loop {
            tokio::select! {
                () = &mut over => return || Command::Quit,
                signal = signals.next() => match signal {
                    Signal::Quit => return || Command::Quit,
                    Signal::Stop => return || Command::Stop,
                    Signal::Reopen => self.reopen_logs(),
                    _ => {}
                },
            }
        }
    }

    /// Waits for the workers' end; another signal that asks for it makes a graceful end a fast one.
    async fn wait_for_end(&mut self, signals: &mut Signals) {
        let mut workers = std::mem::take(&mut self.workers);
        workers.append(&mut self.leaving);
        let ended = async {
            for worker in &workers {
                worker.ended().await;
            }
        };
        let mut ended = Box::pin(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                signal = signals.next() => match signal {
                    Signal::Stop => workers.iter().for_each(|worker| worker.send(Command::Stop)),
                    Signal::Reopen => self.reopen_logs(),
                    _ => {}
                },
            }
        }
        drop(ended);
        workers.into_iter().for_each(WorkerThread::join);
    }
}

fn put_back(pid_file: &mut PidHolder) {
    if let Err(failure) = pid_file.put_back() {
        error::process(Level::Alert, format_args!("{failure}"));
    }
}

/// Goes on with the tables of the limits of another configuration.
fn inherit_limits(conf: &mut Conf, older: &Conf) -> Result<(), String> {
    limit_zone::inherit(conf.parts.of_mut(), older.parts.of())?;
    let stream = conf.stream.as_mut().and_then(Arc::get_mut);
    match (stream, &older.stream) {
        (Some(stream), Some(older)) => limit_zone::inherit(stream.parts.of_mut(), older.parts.of()),
        _ => Ok(()),
    }
}
