//! Times as logs write them; formatted once a second for each thread.
//!
//! Four forms, all of nginx: `2026/11/21 03:17:22` in error logs, `Nov 21 03:17:22` for syslog,
//! `21/Nov/2026:03:17:22 +0000` (`$time_local`) and `2026-11-21T03:17:22+00:00`
//! (`$time_iso8601`).
//!
//! The zone is that of the environment variable TZ, else that of the system (`/etc/localtime`);
//! without either it is UTC. It is looked up once.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use millpond_semantics::date::{CivilTime, civil};

/// The forms of one second.
#[derive(Debug, Default)]
struct Stamps {
    second: Option<i64>,
    error_log: String,
    local: String,
    iso: String,
    syslog: String,
}

thread_local! {
    static STAMPS: RefCell<Stamps> = RefCell::default();
}

/// Form in which a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `2026/11/21 03:17:22`.
    ErrorLog,
    /// `21/Nov/2026:03:17:22 +0000`.
    Local,
    /// `2026-11-21T03:17:22+00:00`.
    Iso,
    /// `Nov 21 03:17:22`; the day has a space before it when it is one digit.
    Syslog,
}

/// Appends the time `now_ms` (wall time, milliseconds since the epoch) in a form.
pub fn append(out: &mut Vec<u8>, form: Form, now_ms: i64) {
    let second = now_ms.div_euclid(1000);
    STAMPS.with_borrow_mut(|stamps| {
        if stamps.second != Some(second) {
            stamps.format(second, offset_at(second));
        }
        let text = match form {
            Form::ErrorLog => &stamps.error_log,
            Form::Local => &stamps.local,
            Form::Iso => &stamps.iso,
            Form::Syslog => &stamps.syslog,
        };
        out.extend_from_slice(text.as_bytes());
    });
}

/// Seconds that local time is ahead of UTC at a time (seconds since the epoch).
pub fn offset_at(second: i64) -> i32 {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
    match Timestamp::from_second(second) {
        Ok(moment) => ZONE.to_offset(moment).seconds(),
        // No calendar reaches that far.
        Err(_) => 0,
    }
}

impl Stamps {
    fn format(&mut self, second: i64, offset: i32) {
        let now = civil(second + i64::from(offset));
        let CivilTime {
            year,
            month,
            day,
            hour,
            minute,
            second: sec,
            ..
        } = now;
        let name = now.month_name();
        let name = String::from_utf8_lossy(&name);
        let (sign, east) = if offset < 0 {
            ('-', -offset)
        } else {
            ('+', offset)
        };
        let (zone_hour, zone_minute) = (east / 3600, east / 60 % 60);
        self.second = Some(second);
        self.error_log.clear();
        self.local.clear();
        self.iso.clear();
        self.syslog.clear();
        // Writing into a String never fails.
        let _ = write!(
            self.error_log,
            "{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{sec:02}"
        );
        let _ = write!(
            self.local,
            "{day:02}/{name}/{year:04}:{hour:02}:{minute:02}:{sec:02} {sign}{zone_hour:02}{zone_minute:02}"
        );
        let _ = write!(self.syslog, "{name} {day:2} {hour:02}:{minute:02}:{sec:02}");
        let _ = write!(
            self.iso,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{sec:02}{sign}{zone_hour:02}:{zone_minute:02}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_nginxs() {
        let cases = [
            (
                0,
                0,
                "1970/01/01 00:00:00",
                "01/Jan/1970:00:00:00 +0000",
                "1970-01-01T00:00:00+00:00",
            ),
            (
                951_782_400,
                0,
                "2000/02/29 00:00:00",
                "29/Feb/2000:00:00:00 +0000",
                "2000-02-29T00:00:00+00:00",
            ),
            (
                1_795_231_042,
                3600,
                "2026/11/21 04:17:22",
                "21/Nov/2026:04:17:22 +0100",
                "2026-11-21T04:17:22+01:00",
            ),
            (
                1_795_231_042,
                -12_600,
                "2026/11/20 23:47:22",
                "20/Nov/2026:23:47:22 -0330",
                "2026-11-20T23:47:22-03:30",
            ),
            (
                4_107_542_399,
                0,
                "2100/02/28 23:59:59",
                "28/Feb/2100:23:59:59 +0000",
                "2100-02-28T23:59:59+00:00",
            ),
        ];
        for (second, offset, error_log, local, iso) in cases {
            let mut stamps = Stamps::default();
            stamps.format(second, offset);
            assert_eq!(
                [&*stamps.error_log, &stamps.local, &stamps.iso],
                [error_log, local, iso]
            );
        }
    }
}
