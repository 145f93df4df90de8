//! `$date_local`, `$date_gmt`: the time now, in the form that `config timefmt` has chosen.
//!
//! The form is that of strftime in the C locale; `%s` alone is the number of seconds since the
//! epoch.
//!
//! Sources: nginx ngx_http_ssi_date_gmt_local_variable; ISO C §7.27.3.5; POSIX strftime.

use std::io::Write as _;

use millpond_semantics::date::{CivilTime, civil};
use millpond_system::clock;
use millpond_system::log::stamp::offset_at;

use crate::request::Request;
use crate::var::Variable;

/// The form of dates where none was chosen.
const USUAL: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";
/// The longest date (nginx: 2048); a longer one is empty.
const MAX_DATE: usize = 2048;

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "date_local",
        doc: "The time now in the zone of this machine, in the form of the page's `config timefmt`.",
        write: |req, out| write_date(req, Zone::Local, out),
    },
    Variable {
        name: "date_gmt",
        doc: "The time now in Greenwich, in the form of the page's `config timefmt`.",
        write: |req, out| write_date(req, Zone::Greenwich, out),
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Local,
    Greenwich,
}

fn write_date(req: &Request, zone: Zone, out: &mut Vec<u8>) -> bool {
    let chosen = req.role.as_ref().and_then(|role| role.time_format.as_ref());
    let form = chosen.map_or(USUAL, |form| form);
    let second = clock::now_ms().div_euclid(1000);
    let moment = match zone {
        Zone::Local => Moment::new(second, offset_at(second), "LOCAL"),
        Zone::Greenwich => Moment::new(second, 0, "GMT"),
    };
    let start = out.len();
    moment.write(form, out);
    if out.len() - start > MAX_DATE {
        out.truncate(start);
        return false;
    }
    true
}

/// A second in a zone.
struct Moment {
    second: i64,
    offset: i32,
    zone: &'static str,
    time: CivilTime,
}

impl Moment {
    fn new(second: i64, offset: i32, zone: &'static str) -> Self {
        Moment {
            second,
            offset,
            zone,
            time: civil(second + i64::from(offset)),
        }
    }

    fn write(&self, form: &[u8], out: &mut Vec<u8>) {
        let mut rest = form.iter();
        while let Some(byte) = rest.next() {
            match (byte, rest.as_slice().first()) {
                (b'%', Some(letter)) => {
                    rest.next();
                    self.write_letter(*letter, out);
                }
                _ => out.push(*byte),
            }
        }
    }

    fn write_letter(&self, letter: u8, out: &mut Vec<u8>) {
        let CivilTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            ..
        } = self.time;
        let twelve = (hour + 11) % 12 + 1;
        // Writing into a vector never fails.
        let _ = match letter {
            b'a' => out.write_all(&self.time.weekday_name()),
            b'A' => out.write_all(self.weekday().as_bytes()),
            b'b' | b'h' => out.write_all(&self.time.month_name()),
            b'B' => out.write_all(self.month().as_bytes()),
            b'c' => return self.write(b"%a %b %e %H:%M:%S %Y", out),
            b'C' => write!(out, "{:02}", year / 100),
            b'd' => write!(out, "{day:02}"),
            b'D' | b'x' => return self.write(b"%m/%d/%y", out),
            b'e' => write!(out, "{day:2}"),
            b'F' => return self.write(b"%Y-%m-%d", out),
            b'g' => write!(out, "{:02}", self.iso_week().0 % 100),
            b'G' => write!(out, "{}", self.iso_week().0),
            b'H' => write!(out, "{hour:02}"),
            b'I' => write!(out, "{twelve:02}"),
            b'j' => write!(out, "{:03}", self.day_of_year() + 1),
            b'k' => write!(out, "{hour:2}"),
            b'l' => write!(out, "{twelve:2}"),
            b'm' => write!(out, "{month:02}"),
            b'M' => write!(out, "{minute:02}"),
            b'n' => out.write_all(b"\n"),
            b'p' => out.write_all(if hour < 12 { b"AM" } else { b"PM" }),
            b'r' => return self.write(b"%I:%M:%S %p", out),
            b'R' => return self.write(b"%H:%M", out),
            b's' => write!(out, "{}", self.second),
            b'S' => write!(out, "{second:02}"),
            b't' => out.write_all(b"\t"),
            b'T' | b'X' => return self.write(b"%H:%M:%S", out),
            b'u' => write!(out, "{}", (self.time.weekday + 6) % 7 + 1),
            b'U' => write!(out, "{:02}", self.week(0)),
            b'V' => write!(out, "{:02}", self.iso_week().1),
            b'w' => write!(out, "{}", self.time.weekday),
            b'W' => write!(out, "{:02}", self.week(1)),
            b'y' => write!(out, "{:02}", year % 100),
            b'Y' => write!(out, "{year}"),
            b'z' => self.write_offset(out),
            b'Z' if self.zone == "LOCAL" && self.offset == 0 => out.write_all(b"UTC"),
            b'Z' if self.zone == "LOCAL" => self.write_offset(out),
            b'Z' => out.write_all(self.zone.as_bytes()),
            b'%' => out.write_all(b"%"),
            other => out.write_all(&[b'%', other]),
        };
    }

    fn write_offset(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.unsigned_abs() / 60;
        write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
    }

    fn weekday(&self) -> &'static str {
        let index = usize::from(self.time.weekday);
        WEEKDAYS.get(index).copied().unwrap_or_default()
    }

    fn month(&self) -> &'static str {
        let index = usize::from(self.time.month).wrapping_sub(1);
        MONTHS.get(index).copied().unwrap_or_default()
    }

    /// Days of the year that are over.
    fn day_of_year(&self) -> i32 {
        let before: i32 = (1..self.time.month)
            .map(|month| match month {
                2 => 28 + i32::from(is_leap(i32::from(self.time.year))),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            })
            .sum();
        before + i32::from(self.time.day) - 1
    }

    /// Weeks that have begun this year; they begin on Sunday (0) or Monday (1).
    fn week(&self, first: i32) -> i32 {
        let weekday = (i32::from(self.time.weekday) - first).rem_euclid(7);
        (self.day_of_year() + 7 - weekday) / 7
    }

    /// ISO 8601: a week belongs to the year that its Thursday is in.
    fn iso_week(&self) -> (i32, i32) {
        let year = i32::from(self.time.year);
        let monday_based = (i32::from(self.time.weekday) + 6) % 7;
        let thursday = self.day_of_year() - monday_based + 3;
        let length = |year| 365 + i32::from(is_leap(year));
        if thursday < 0 {
            (year - 1, (thursday + length(year - 1)) / 7 + 1)
        } else if thursday >= length(year) {
            (year + 1, (thursday - length(year)) / 7 + 1)
        } else {
            (year, thursday / 7 + 1)
        }
    }
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(second: i64, offset: i32, form: &str) -> String {
        let mut out = Vec::new();
        Moment::new(second, offset, "GMT").write(form.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn letters_are_those_of_the_c_locale() {
        // Output of date(1) for the same seconds.
        for (second, offset, form, expected) in [
            (
                0,
                0,
                "%A, %d-%b-%Y %H:%M:%S %Z",
                "Thursday, 01-Jan-1970 00:00:00 GMT",
            ),
            (
                1_795_234_567,
                0,
                "%c|%D|%F|%T|%R",
                "Sat Nov 21 04:16:07 2026|11/21/26|2026-11-21|04:16:07|04:16",
            ),
            (
                1_795_234_567,
                3600,
                "%I:%M %p %z|%e|%j|%C",
                "05:16 AM +0100|21|325|20",
            ),
            (1_795_234_567, -5400, "%H %z", "02 -0130"),
            (
                1_795_234_567,
                0,
                "%s|%u|%w|%U|%W|%V|%G|%g",
                "1795234567|6|6|46|46|47|2026|26",
            ),
            // 2027-01-01, a Friday, is in the last week of 2026; 2024-12-30 in the first of 2025.
            (1_798_761_600, 0, "%V %G %U %W", "53 2026 00 00"),
            (1_735_516_800, 0, "%V %G %j", "01 2025 365"),
            (0, 0, "IF", "IF"),
            (0, 0, "100%% %B %q %", "100% January %q %"),
            (0, 0, "", ""),
        ] {
            assert_eq!(date(second, offset, form), expected, "{form}");
        }
    }
}
