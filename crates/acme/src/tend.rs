//! The thread that orders and renews: for each issuer a task, which sleeps nearly always.
//!
//! ```text
//! configuration ─plan─► thread ─work─► task of an issuer ─► folder, account, orders, advice
//!                                        └─ sleeps until something is due, or the work changes
//! ```
//!
//! 1. It is started by the first plan with work in it: a server without issuers has no thread.
//! 2. An issuer has one task, so that one certificate is never ordered twice at a time, whatever
//!    is reloaded meanwhile; a round that has begun is ended under the configuration it began with.
//! 3. The process does not wait for it at its end: what is half done is done anew.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millpond_system::clock;
use tokio::sync::{mpsc, watch};

use crate::round::Account;
use crate::work::{Work, now_s};

/// Seconds between two rounds of an issuer, at least (arbitrary: nothing is worth more haste).
const SHORTEST: i64 = 1;
/// Seconds between two rounds, at most, so that a clock that was set is heeded.
const LONGEST: i64 = 3600;

/// Everything that is to be ordered.
pub type Plan = Vec<Work>;

/// The thread, from outside.
#[derive(Debug, Default)]
pub struct Tender(Mutex<Option<mpsc::UnboundedSender<Plan>>>);

impl Tender {
    /// Hands over a plan in place of the one before; starts the thread if it is the first with work
    /// in it.
    pub fn serve(&self, plan: Plan) -> io::Result<()> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            // It goes on as long as we are here.
            let _ = sender.send(plan);
            return Ok(());
        }
        if plan.iter().all(|work| work.orders.is_empty()) {
            return Ok(());
        }
        let (begin, plans) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("acme".to_owned())
            .spawn(move || {
                let tasks = tokio::task::LocalSet::new();
                tasks.block_on(&runtime, heed(plans));
            })?;
        let _ = begin.send(plan);
        *sender = Some(begin);
        Ok(())
    }
}

/// Gives each issuer its part of every plan.
async fn heed(mut plans: mpsc::UnboundedReceiver<Plan>) {
    let mut tasks: HashMap<String, watch::Sender<Work>> = HashMap::new();
    while let Some(plan) = plans.recv().await {
        tasks.retain(|name, _| plan.iter().any(|work| work.issuer.name == *name));
        for work in plan {
            let name = work.issuer.name.clone();
            if let Some(task) = tasks.get(&name) {
                task.send_replace(work);
                continue;
            }
            let (sender, receiver) = watch::channel(work);
            tokio::task::spawn_local(tend(receiver));
            tasks.insert(name, sender);
        }
    }
}

/// Tends the certificates of one issuer, until it is not configured any more.
async fn tend(mut work: watch::Receiver<Work>) {
    let mut account = Account::default();
    loop {
        let now = work.borrow_and_update().clone();
        let next = account.round(&now).await;
        let now_s = now_s();
        let next = next.clamp(now_s + SHORTEST, now_s + LONGEST);
        let seconds = u64::try_from(next - now_s).unwrap_or(0);
        tokio::select! {
            () = clock::pause(Duration::from_secs(seconds)) => {}
            changed = work.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = work.borrow().clone();
                account.change(&now);
            }
        }
    }
}
