//! Times as logs write them; formatted once a second for each thread.
//!
//! Three forms, all of nginx: `2026/11/21 03:17:22` in error logs, `21/Nov/2026:03:17:22 +0000`
//! (`$time_local`) and `2026-11-21T03:17:22+00:00` (`$time_iso8601`).
//!
//! Local time comes from [`offset_at`].

use std::cell::RefCell;
use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The three forms of one second.
#[derive(Debug, Default)]
struct Stamps {
    second: Option<i64>,
    error_log: String,
    local: String,
    iso: String,
}

thread_local! {
    static STAMPS: RefCell<Stamps> = RefCell::default();
}

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `2026/11/21 03:17:22`.
    ErrorLog,
    /// `21/Nov/2026:03:17:22 +0000`.
    Local,
    /// `2026-11-21T03:17:22+00:00`.
    Iso,
}

/// Appends the time `now_ms` (wall time, milliseconds since the epoch) in a form.
pub fn append(out: &mut Vec<u8>, form: Form, now_ms: i64) {
    let second = now_ms.div_euclid(1000);
    STAMPS.with_borrow_mut(|stamps| {
        if stamps.second != Some(second) {
            stamps.format(second);
        }
        let text = match form {
            Form::ErrorLog => &stamps.error_log,
            Form::Local => &stamps.local,
            Form::Iso => &stamps.iso,
        };
        out.extend_from_slice(text.as_bytes());
    });
}

/// Seconds that local time is ahead of UTC.
pub fn offset_at(_second: i64) -> i32 {
    0
}

impl Stamps {
    fn format(&mut self, second: i64) {
        let offset = offset_at(second);
        let civil = Civil::of(second + i64::from(offset));
        let Civil {
            year,
            month,
            day,
            hour,
            minute,
            second: sec,
        } = civil;
        let (sign, east) = if offset < 0 {
            ('-', -offset)
        } else {
            ('+', offset)
        };
        let (zone_hour, zone_minute) = (east / 3600, east / 60 % 60);
        let name = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
        self.second = Some(second);
        self.error_log.clear();
        self.local.clear();
        self.iso.clear();
        // Writing into a String never fails.
        let _ = write!(
            self.error_log,
            "{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{sec:02}"
        );
        let _ = write!(
            self.local,
            "{day:02}/{name}/{year:04}:{hour:02}:{minute:02}:{sec:02} {sign}{zone_hour:02}{zone_minute:02}"
        );
        let _ = write!(
            self.iso,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{sec:02}{sign}{zone_hour:02}:{zone_minute:02}"
        );
    }
}

/// A moment in the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Civil {
    /// The calendar's name of a second, in the proleptic Gregorian calendar.
    fn of(second: i64) -> Civil {
        let days = second.div_euclid(86_400);
        let rest = second.rem_euclid(86_400);
        // Howard Hinnant's days-to-civil: years are counted from March, so the leap day is the last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(form: Form, second: i64) -> String {
        let mut out = Vec::new();
        append(&mut out, form, second * 1000 + 999);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_form_is_nginxs() {
        let cases = [
            (
                0,
                "1970/01/01 00:00:00",
                "01/Jan/1970:00:00:00 +0000",
                "1970-01-01T00:00:00+00:00",
            ),
            (
                951_782_400,
                "2000/02/29 00:00:00",
                "29/Feb/2000:00:00:00 +0000",
                "2000-02-29T00:00:00+00:00",
            ),
            (
                1_795_231_042,
                "2026/11/21 03:17:22",
                "21/Nov/2026:03:17:22 +0000",
                "2026-11-21T03:17:22+00:00",
            ),
            (
                4_107_542_399,
                "2100/02/28 23:59:59",
                "28/Feb/2100:23:59:59 +0000",
                "2100-02-28T23:59:59+00:00",
            ),
        ];
        for (second, error_log, local, iso) in cases {
            assert_eq!(text(Form::ErrorLog, second), error_log);
            assert_eq!(text(Form::Local, second), local);
            assert_eq!(text(Form::Iso, second), iso);
        }
    }
}
