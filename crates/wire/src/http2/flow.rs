//! Flow control (RFC 9113 §5.2, §6.9): the room that each end gives the other.
//!
//! ```text
//! SendWindow      room ──take──► less     ◄──grow── WINDOW_UPDATE     ◄──shift── new initial
//! window ReceiveWindow   room ──take──► less     ◄── update ── bytes that were consumed
//! ```
//!
//! 1. A window for sending never grows beyond 2^31-1; it may be below zero, and nothing is sent
//!    then.
//! 2. A window for receiving plus what is held of its bytes is no more than its target, once the
//!    peer has used up what it was given before.

use super::code::Fault;

/// The largest window.
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The window of a connection and of its streams unless others are agreed on.
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;

/// Room that a peer gives us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    /// A window of so many bytes, which are no more than [`MAX_WINDOW`].
    pub(crate) fn new(len: u32) -> Self {
        SendWindow(i32::try_from(len).unwrap_or(i32::MAX))
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(crate) fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Takes bytes that are sent: no more than there is room for.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) {
        debug_assert!(len <= self.room());
        self.0 -= i32::try_from(len).unwrap_or(i32::MAX).min(self.0.max(0));
    }

    /// Adds what a WINDOW_UPDATE gives.
    ///
    /// # Errors
    /// INVARIANT 1 (§6.9.1).
    pub(crate) fn grow(&mut self, increment: u32) -> Result<(), Fault> {
        let more = i32::try_from(increment).map_err(|_| Fault::WindowOverflow)?;
        self.0 = self.0.checked_add(more).ok_or(Fault::WindowOverflow)?;
        Ok(())
    }

    /// Adds the difference of two initial windows, which may be less than nothing (§6.9.2).
    ///
    /// # Errors
    /// INVARIANT 1.
    pub(crate) fn shift(&mut self, difference: i64) -> Result<(), Fault> {
        let shifted = i64::from(self.0) + difference;
        self.0 = i32::try_from(shifted).map_err(|_| Fault::WindowOverflow)?;
        Ok(())
    }
}

/// Room that we give a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveWindow {
    /// Bytes that the peer may send.
    room: u32,
    /// Bytes that came and were not consumed.
    held: u32,
    /// Bytes that may be held, or be on their way.
    target: u32,
}

impl ReceiveWindow {
    /// A window that the peer knows.
    pub(crate) fn new(room: u32) -> Self {
        ReceiveWindow {
            room,
            held: 0,
            target: room,
        }
    }

    /// Takes bytes that came.
    ///
    /// # Errors
    /// There are more than there was room for (§6.9.1).
    #[inline]
    pub(crate) fn take(&mut self, len: u32) -> Result<(), Fault> {
        self.room = self.room.checked_sub(len).ok_or(Fault::WindowExceeded)?;
        // No more than was given, which is bounded by the target and what was held before.
        self.held = self.held.saturating_add(len);
        Ok(())
    }

    /// Notes that bytes were consumed; returns the increment that the peer is to be told, once
    /// there is half a window to tell.
    #[inline]
    pub(crate) fn free(&mut self, len: u32) -> Option<u32> {
        self.held = self.held.saturating_sub(len);
        let missing = self.missing();
        if missing == 0 || missing < self.target.div_ceil(2) {
            return None;
        }
        self.give(missing)
    }

    /// Bytes that came and were not consumed.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Sets the target; returns the increment that the peer is to be told, if it gets more room.
    pub(crate) fn set_target(&mut self, target: u32) -> Option<u32> {
        let before = self.target;
        self.target = target.min(MAX_WINDOW);
        if self.target <= before {
            return None;
        }
        self.give(self.missing())
    }

    /// INVARIANT 2.
    fn missing(&self) -> u32 {
        self.target
            .saturating_sub(self.held)
            .saturating_sub(self.room)
    }

    fn give(&mut self, increment: u32) -> Option<u32> {
        self.room += increment;
        (increment > 0).then_some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9113 §6.9.1: a window beyond 2^31-1 is an error.
    #[test]
    fn a_window_for_sending_does_not_overflow() {
        let mut window = SendWindow::new(DEFAULT_WINDOW);
        assert_eq!(window.grow(MAX_WINDOW - DEFAULT_WINDOW), Ok(()));
        assert_eq!(window.room(), MAX_WINDOW as usize);
        assert_eq!(window.grow(1), Err(Fault::WindowOverflow));
        window.take(1);
        assert_eq!(window.grow(1), Ok(()));
        assert_eq!(window.shift(1), Err(Fault::WindowOverflow));
    }

    /// RFC 9113 §6.9.2: a smaller initial window can make a window negative.
    #[test]
    fn a_window_for_sending_may_be_below_zero() {
        let mut window = SendWindow::new(DEFAULT_WINDOW);
        window.take(60_000);
        assert_eq!(window.shift(16_384 - i64::from(DEFAULT_WINDOW)), Ok(()));
        assert_eq!(window.room(), 0);
        assert_eq!(window.grow(43_616), Ok(()));
        assert_eq!(window.room(), 0);
        assert_eq!(window.grow(1), Ok(()));
        assert_eq!(window.room(), 1);
    }

    /// RFC 9113 §6.9.1: more than the window is an error.
    #[test]
    fn a_window_for_receiving_is_not_exceeded() {
        let mut window = ReceiveWindow::new(10);
        assert_eq!(window.take(10), Ok(()));
        assert_eq!(window.take(0), Ok(()));
        assert_eq!(window.take(1), Err(Fault::WindowExceeded));
    }

    #[test]
    fn room_is_given_back_by_halves_of_the_target() {
        let mut window = ReceiveWindow::new(100);
        window.take(100).unwrap();
        assert_eq!(window.free(49), None);
        assert_eq!(window.free(1), Some(50));
        assert_eq!(window.take(51), Err(Fault::WindowExceeded));
        assert_eq!(window.take(50), Ok(()));
    }

    #[test]
    fn a_new_target_is_told_when_it_is_larger_and_kept_when_it_is_smaller() {
        let mut window = ReceiveWindow::new(100);
        window.take(60).unwrap();
        assert_eq!(window.set_target(1000), Some(900));
        assert_eq!(window.set_target(1000), None);
        assert_eq!(window.set_target(500), None);
        assert_eq!(window.free(60), None, "the peer has 940 to send");
        window.take(940).unwrap();
        assert_eq!(
            window.free(100),
            None,
            "840 are held, which is more than 500"
        );
        assert_eq!(window.free(600), Some(260));
    }

    #[test]
    fn a_window_of_nothing_opens_when_it_is_told_to() {
        let mut window = ReceiveWindow::new(0);
        assert_eq!(window.take(1), Err(Fault::WindowExceeded));
        assert_eq!(window.set_target(10), Some(10));
        assert_eq!(window.set_target(u32::MAX), Some(MAX_WINDOW - 10));
    }
}
