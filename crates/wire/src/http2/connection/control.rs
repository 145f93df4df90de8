//! Frames about a connection or a stream as a whole (RFC 9113 §6.3 to §6.9; RFC 9218 §7.1), and the
//! end of a connection.
//!
//! ```text
//! go_away(Farewell::Warn)    GOAWAY 2^31-1   streams that are on their way are still served
//! go_away(Farewell::Last)    GOAWAY last     later streams are ignored; then is_finished
//! fail(fault)                GOAWAY last, with the fault's code; nothing more is read
//! ```
//!
//! 1. Every frame in here is paid for: by an allowance, or by the stream that it ends.

use std::time::Duration;

use super::block::Block;
use super::{Connection, Life, Role};
use crate::http2::code::{Code, Fault};
use crate::http2::event::{Event, Gone};
use crate::http2::flood::Flood;
use crate::http2::frame::{self, ACK, Head, Kind, MAX_STREAM};
use crate::http2::limits::{ACKS_MOST, EARLY_PRIORITIES, UPDATED};
use crate::http2::priority::Priority;
use crate::http2::settings;
use crate::http2::stream::{Owner, Reset};
use crate::http2::tree::Dependency;

/// A way to say that no more streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Those that are on their way are served (RFC 9113 §6.8: the first of two steps).
    Warn,
    /// Those that have come are served, and no later ones.
    Last,
}

impl Connection {
    pub(super) fn handle_control(
        &mut self,
        head: Head,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        match head.kind {
            Kind::Priority => self.handle_priority(head, payload, now),
            Kind::RstStream => self.handle_reset(head, payload, now),
            Kind::Settings if head.has(ACK) => {
                self.has_ack = true;
                self.tell(Event::SettingsAcknowledged);
                self.spend_control(Flood::Settings, now)
            }
            Kind::Settings => self.handle_settings(payload, now),
            Kind::Ping => self.handle_ping(head, payload, now),
            Kind::GoAway => self.handle_go_away(payload),
            Kind::WindowUpdate => self.handle_window_update(head, payload, now),
            Kind::PriorityUpdate => self.handle_priority_update(payload, now),
            Kind::Data | Kind::Headers | Kind::PushPromise | Kind::Continuation | Kind::Unknown => {
                Ok(())
            }
        }
    }

    pub(super) fn spend_control(&mut self, flood: Flood, now: Duration) -> Result<(), Fault> {
        if self.allowances.control.spend(now) {
            Ok(())
        } else {
            Err(Fault::Flood(flood))
        }
    }

    /// RFC 7540 §6.3.
    fn handle_priority(&mut self, head: Head, payload: &[u8], now: Duration) -> Result<(), Fault> {
        self.spend_priority(now)?;
        self.set_dependency(head.stream, Dependency::read(payload))
    }

    /// Notes the dependency of a stream, of a client that means it (RFC 9218 §2.1).
    pub(super) fn set_dependency(&mut self, id: u32, dependency: Dependency) -> Result<(), Fault> {
        // nginx: an error of the connection.
        if dependency.parent == id {
            return Err(Fault::SelfDependency);
        }
        if self.role == Role::Client || self.peer.has_no_tree {
            return Ok(());
        }
        let streams = &self.streams;
        let tree = self.tree.get_or_insert_default();
        tree.depend(id, dependency, |other| streams.get(other).is_some());
        // Many dependencies that come together cost one new order.
        self.has_new_places = true;
        Ok(())
    }

    fn spend_priority(&mut self, now: Duration) -> Result<(), Fault> {
        if self.allowances.priorities.spend(now) {
            Ok(())
        } else {
            Err(Fault::Flood(Flood::Priorities))
        }
    }

    /// RFC 9113 §6.4.
    fn handle_reset(&mut self, head: Head, payload: &[u8], now: Duration) -> Result<(), Fault> {
        let id = head.stream;
        if !self.has_begun(id) {
            return Err(Fault::IdleStream);
        }
        // A peer whose streams are reset as soon as they have come makes work for nothing.
        if !self.allowances.resets.spend(now) {
            return Err(Fault::Flood(Flood::Resets));
        }
        self.closed.note_by_peer(id);
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        match stream.reset {
            // RFC 9113 §5.1: nothing but PRIORITY comes behind it. (nginx: the same of its peers.)
            Some(Reset::ByPeer) if self.role == Role::Client => return Err(Fault::ClosedStream),
            Some(_) => return Ok(()),
            None => {}
        }
        // A server that takes its answer back says so behind the end, too.
        let was_closed = stream.is_closed() && self.role == Role::Server;
        stream.close(Reset::ByPeer);
        let code = Code(frame::number_32(payload));
        self.unschedule(id);
        if !was_closed {
            self.tell(Event::Gone {
                stream: id,
                why: Gone::ByPeer(code),
            });
        }
        self.settle(id);
        Ok(())
    }

    /// RFC 9113 §6.5.
    fn handle_settings(&mut self, payload: &[u8], now: Duration) -> Result<(), Fault> {
        self.spend_control(Flood::Settings, now)?;
        let before = self.peer.initial_window;
        self.peer.read(payload, self.role)?;
        self.encoder
            .set_max_size(self.peer.header_table_size as usize);
        let difference = i64::from(self.peer.initial_window) - i64::from(before);
        self.count_ack()?;
        settings::write_ack(self.output.block());
        if difference != 0 {
            self.shift_windows(difference)?;
        }
        self.tell(Event::SettingsChanged);
        Ok(())
    }

    /// RFC 9113 §6.9.2: the windows of all streams change with the initial one.
    fn shift_windows(&mut self, difference: i64) -> Result<(), Fault> {
        for id in self.streams.ids().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.send.shift(difference)?;
            }
            self.offer_room(id);
            self.schedule(id);
        }
        Ok(())
    }

    /// Acknowledgements that are not read pile up: a bound on them.
    fn count_ack(&mut self) -> Result<(), Fault> {
        if self.output.is_empty() {
            self.counts.acks = 0;
        }
        self.counts.acks += 1;
        if self.counts.acks > ACKS_MOST {
            return Err(Fault::Flood(Flood::UnreadAnswers));
        }
        Ok(())
    }

    /// RFC 9113 §6.7.
    fn handle_ping(&mut self, head: Head, payload: &[u8], now: Duration) -> Result<(), Fault> {
        self.spend_control(Flood::Pings, now)?;
        let payload = payload.first_chunk().copied().unwrap_or_default();
        if head.has(ACK) {
            self.tell(Event::Pong(payload));
            return Ok(());
        }
        self.count_ack()?;
        frame::write_ping(self.output.block(), ACK, payload);
        Ok(())
    }

    /// RFC 9113 §6.8: streams beyond the last one were not looked at.
    fn handle_go_away(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let last = frame::number_31(payload);
        let code = Code(frame::number_32(payload.get(4..).unwrap_or_default()));
        // A later one cannot say more.
        let last = self.peer_last.map_or(last, |before| before.min(last));
        self.peer_last = Some(last);
        self.tell(Event::GoneAway { last, code });
        if self.role == Role::Client {
            let all: Vec<u32> = self.streams.ids().filter(|id| *id > last).collect();
            for id in all {
                self.drop_unprocessed(id);
            }
        }
        Ok(())
    }

    fn drop_unprocessed(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.is_closed() {
            return;
        }
        stream.close(Reset::ByPeer);
        self.unschedule(id);
        self.tell(Event::Gone {
            stream: id,
            why: Gone::Unprocessed,
        });
        self.settle(id);
    }

    /// Bodies that went out are told of by those who read them; a window of a byte is no reader's.
    fn spend_window_update(&mut self, now: Duration) -> Result<(), Fault> {
        let counts = &mut self.counts;
        let earned = (counts.payload - counts.updated) / UPDATED;
        counts.updated += earned * UPDATED;
        let allowance = &mut self.allowances.window_updates;
        allowance.earn(u32::try_from(earned).unwrap_or(u32::MAX));
        if allowance.spend(now) {
            Ok(())
        } else {
            Err(Fault::Flood(Flood::WindowUpdates))
        }
    }

    /// RFC 9113 §6.9.
    fn handle_window_update(
        &mut self,
        head: Head,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        self.spend_window_update(now)?;
        let increment = frame::number_31(payload);
        let id = head.stream;
        if id == 0 {
            if increment == 0 {
                return Err(Fault::ZeroUpdate);
            }
            self.send.grow(increment)?;
            self.schedule_blocked();
            return Ok(());
        }
        if !self.has_begun(id) {
            return Err(Fault::IdleStream);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if stream.is_closed() {
            return Ok(());
        }
        if increment == 0 {
            return self.break_stream(id, Fault::ZeroUpdate, now);
        }
        if let Err(fault) = stream.send.grow(increment) {
            return self.break_stream(id, fault, now);
        }
        self.offer_room(id);
        self.schedule(id);
        Ok(())
    }

    /// RFC 9218 §7.1.
    fn handle_priority_update(&mut self, payload: &[u8], now: Duration) -> Result<(), Fault> {
        self.spend_priority(now)?;
        let id = frame::number_31(payload);
        // Streams that are pushed do not exist, and only clients may send it.
        if self.role == Role::Client || id.is_multiple_of(2) {
            return Err(Fault::PriorityUpdate);
        }
        let value = payload.get(4..).unwrap_or_default();
        let Some(priority) = Priority::parse(value) else {
            return Ok(());
        };
        if self.streams.get(id).is_some() {
            self.set_priority(id, priority);
        } else if !self.has_begun(id) {
            self.early.retain(|(other, _)| *other != id);
            if self.early.len() >= EARLY_PRIORITIES {
                self.early.pop_front();
            }
            self.early.push_back((id, priority));
        }
        Ok(())
    }

    /// The priority that was told before a stream came.
    pub(super) fn early_priority(&mut self, id: u32) -> Option<Priority> {
        if self.early.is_empty() {
            return None;
        }
        let at = self.early.iter().position(|(other, _)| *other == id)?;
        self.early.remove(at).map(|(_, priority)| priority)
    }

    /// Changes the priority of a stream.
    pub fn set_priority(&mut self, id: u32, priority: Priority) {
        if self.streams.get(id).is_none() {
            return;
        }
        let was_scheduled = self.unschedule(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        }
        if was_scheduled {
            self.schedule(id);
        }
    }

    /// Resets a stream. Its owner is told nothing: it is who resets it, or it has never heard of
    /// it.
    pub fn reset(&mut self, id: u32, code: Code) {
        let stream = self.streams.get(id);
        if stream.is_some_and(|stream| stream.is_closed()) {
            return;
        }
        frame::write_reset(self.output.block(), id, code);
        self.close_by_us(id);
    }

    /// Asks for a sign of life, which comes as [`Event::Pong`].
    pub fn ping(&mut self, payload: [u8; 8]) {
        if self.life != Life::Failed {
            frame::write_ping(self.output.block(), 0, payload);
        }
    }

    /// Says that no more streams are wanted (RFC 9113 §6.8).
    pub fn go_away(&mut self, farewell: Farewell) {
        match (self.life, farewell) {
            (Life::Running, Farewell::Warn) => {
                frame::write_go_away(self.output.block(), MAX_STREAM, Code::NO_ERROR);
            }
            (Life::Running, Farewell::Last) => {
                frame::write_go_away(self.output.block(), self.last_peer, Code::NO_ERROR);
                self.life = Life::Leaving(self.last_peer);
            }
            (Life::Leaving(_) | Life::Failed, _) => {}
        }
    }

    /// Ends the connection at once: for a reason of ours, such as a time that is over.
    pub fn close(&mut self, code: Code) {
        if self.life == Life::Failed {
            return;
        }
        let last = match self.life {
            // RFC 9113 §6.8: it must not grow.
            Life::Leaving(last) => last,
            _ => self.last_peer,
        };
        frame::write_go_away(self.output.block(), last, code);
        self.life = Life::Failed;
        self.block = Block::default();
        for id in self.streams.ids().collect::<Vec<_>>() {
            self.unschedule(id);
            if let Some(stream) = self.streams.get_mut(id) {
                stream.close(Reset::ByUs);
                if stream.owner == Owner::Released {
                    self.streams.remove(id);
                }
            }
        }
    }

    /// Ends the connection for a fault of the peer (RFC 9113 §5.4.1).
    pub(super) fn fail(&mut self, fault: Fault) {
        self.close(fault.code());
        self.tell(Event::Failed(fault));
    }
}
