//! Dates of HTTP: reading the three formats, writing the one, and the calendar between (RFC 9110
//! §5.6.7).
//!
//! Times are whole seconds since 1970-01-01T00:00:00 UTC, without leap seconds. The calendar works
//! on years that begin in March, so that the leap day is the last day of a year and months follow
//! one formula.
//!
//! Reading is as tolerant as nginx, so that a date means the same in front of both: the weekday and
//! whatever follows the time are not looked at, a month is told by its tell-tale letters, day 00 is
//! the day before the first, and a leap second is refused. By the RFC's rules
//! ([`parse_http_date_by_rfc`]) letters count in any case, and a year of two digits is told by the
//! present.
//!
//! It does not know time zones: the formats of HTTP are all UTC.

/// The last second that a date can be written for: 9999-12-31T23:59:59Z, as in nginx.
pub const LAST_SECOND: i64 = 253_402_300_799;

const SECONDS_PER_DAY: i64 = 86_400;
const WEEKDAYS: [[u8; 3]; 7] = [
    *b"Sun", *b"Mon", *b"Tue", *b"Wed", *b"Thu", *b"Fri", *b"Sat",
];
const MONTHS: [[u8; 3]; 12] = [
    *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct",
    *b"Nov", *b"Dec",
];

/// A moment of UTC as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// 1970 to 9999.
    pub year: u16,
    /// 1 (January) to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 (Sunday) to 6.
    pub weekday: u8,
}

impl CivilTime {
    /// Three letters of the month, as in `Jan`.
    #[must_use]
    pub fn month_name(&self) -> [u8; 3] {
        let index = usize::from(self.month).wrapping_sub(1);
        MONTHS.get(index).copied().unwrap_or(*b"Jan")
    }

    /// Three letters of the weekday, as in `Sun`.
    #[must_use]
    pub fn weekday_name(&self) -> [u8; 3] {
        WEEKDAYS
            .get(usize::from(self.weekday))
            .copied()
            .unwrap_or(*b"Sun")
    }
}

/// Breaks `time` down; what is before 1970 is 1970, what is after [`LAST_SECOND`] is that second.
#[must_use]
pub fn civil(time: i64) -> CivilTime {
    // In range by the clamp: the casts below lose nothing.
    let time = time.clamp(0, LAST_SECOND);
    let days = (time / SECONDS_PER_DAY) as u32;
    let second_of_day = (time % SECONDS_PER_DAY) as u32;

    // Days since 0000-03-01; an era is 400 years of 146,097 days, and 719,468 days lie before 1970.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u32::from(month <= 2);
    CivilTime {
        year: year as u16,
        month: month as u8,
        day: day as u8,
        hour: (second_of_day / 3_600) as u8,
        minute: (second_of_day / 60 % 60) as u8,
        second: (second_of_day % 60) as u8,
        // 1970-01-01 was a Thursday.
        weekday: ((days + 4) % 7) as u8,
    }
}

/// Writes `time` as an IMF-fixdate, clamped like [`civil`].
#[must_use]
pub fn format_http_date(time: i64) -> [u8; 29] {
    let civil = civil(time);
    let [w0, w1, w2] = civil.weekday_name();
    let [m0, m1, m2] = civil.month_name();
    let [d0, d1] = two_digits(civil.day);
    let [y0, y1] = two_digits((civil.year / 100) as u8);
    let [y2, y3] = two_digits((civil.year % 100) as u8);
    let [h0, h1] = two_digits(civil.hour);
    let [n0, n1] = two_digits(civil.minute);
    let [s0, s1] = two_digits(civil.second);
    [
        w0, w1, w2, b',', b' ', d0, d1, b' ', m0, m1, m2, b' ', y0, y1, y2, y3, b' ', h0, h1, b':',
        n0, n1, b':', s0, s1, b' ', b'G', b'M', b'T',
    ]
}

/// Reads an IMF-fixdate, an RFC 850 date or an asctime date.
///
/// # Differs from the RFC
/// As tolerant as nginx; see the module. Unlike nginx, the last second of 1969 is a time and not an
/// error.
#[must_use]
pub fn parse_http_date(value: &[u8]) -> Option<i64> {
    parse(value, Rules::AsNginx)
}

/// Parses a date like [`parse_http_date`], as a cache reads dates at `now`: in any case (RFC 9111
/// §4.2), without the white space around them, and with years of two digits by the present (RFC
/// 9110 §5.6.7).
#[must_use]
pub fn parse_http_date_by_rfc(value: &[u8], now: i64) -> Option<i64> {
    parse(crate::list::trim_ows(value), Rules::ByRfc { now })
}

/// Rules for the case of letters and for short years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    AsNginx,
    ByRfc { now: i64 },
}

impl Rules {
    /// The month (1 to 12).
    fn month(self, name: [u8; 3]) -> Option<u32> {
        let [first, second, third] = name;
        match self {
            Rules::AsNginx => month(name),
            Rules::ByRfc { .. } => month([
                first.to_ascii_uppercase(),
                second.to_ascii_lowercase(),
                third.to_ascii_lowercase(),
            ]),
        }
    }

    /// The moment in a year of two digits.
    fn seconds(self, short_year: u32, time: impl Fn(u32) -> Option<i64>) -> Option<i64> {
        match self {
            // nginx: two digits below 70 belong to this century.
            Rules::AsNginx if short_year < 70 => time(2_000 + short_year),
            Rules::AsNginx => time(1_900 + short_year),
            // RFC 9110 §5.6.7: what seems more than 50 years ahead is the last such year.
            Rules::ByRfc { now } => {
                let latest = u32::from(civil(now).year) + SHORT_YEARS_AHEAD;
                let year = latest - (latest + 100 - short_year) % 100;
                let limit = now.saturating_add(i64::from(SHORT_YEARS_AHEAD) * MEAN_YEAR);
                time(year)
                    .filter(|time| *time <= limit)
                    .or_else(|| time(year - 100))
            }
        }
    }
}

/// Number of years ahead that a year of two digits may be (RFC 9110 §5.6.7).
const SHORT_YEARS_AHEAD: u32 = 50;

/// Seconds of a year of the calendar, on average over its 400 years.
const MEAN_YEAR: i64 = 31_556_952;

fn parse(value: &[u8], rules: Rules) -> Option<i64> {
    let separator = value.iter().position(|byte| matches!(byte, b',' | b' '))?;
    let is_asctime = value.get(separator) == Some(&b' ');
    let mut rest = value.get(separator + 1..)?;
    while let [b' ', tail @ ..] = rest {
        rest = tail;
    }
    if is_asctime {
        return parse_asctime(rest, rules);
    }
    match rest {
        [_, _, b'-', ..] => parse_rfc850(rest, rules),
        _ => parse_fixdate(rest, rules),
    }
}

/// `10 Nov 2002 23:50:13`, and anything behind it.
fn parse_fixdate(text: &[u8], rules: Rules) -> Option<i64> {
    let ([d0, d1, b' ', m0, m1, m2, b' ', y0, y1, y2, y3, b' '], rest) =
        text.split_first_chunk()?
    else {
        return None;
    };
    let (clock, _) = rest.split_first_chunk()?;
    let year = number([*y0, *y1, *y2, *y3])?;
    seconds(
        year,
        rules.month([*m0, *m1, *m2])?,
        number([*d0, *d1])?,
        parse_clock(clock)?,
    )
}

/// `10-Dec-02 23:50:13`, and anything behind it.
fn parse_rfc850(text: &[u8], rules: Rules) -> Option<i64> {
    let ([d0, d1, b'-', m0, m1, m2, b'-', y0, y1, b' '], rest) = text.split_first_chunk()? else {
        return None;
    };
    let (clock, _) = rest.split_first_chunk()?;
    let short_year = number([*y0, *y1])?;
    let month = rules.month([*m0, *m1, *m2])?;
    let (day, clock) = (number([*d0, *d1])?, parse_clock(clock)?);
    rules.seconds(short_year, |year| seconds(year, month, day, clock))
}

/// `Dec 10 23:50:13 2002`, and anything behind it; the day may have one digit.
fn parse_asctime(text: &[u8], rules: Rules) -> Option<i64> {
    let (&[m0, m1, m2, _separator], rest) = text.split_first_chunk()?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let (day, rest) = match *rest {
        [d0, b' ', ref rest @ ..] => (number([d0])?, rest),
        [d0, d1, b' ', ref rest @ ..] => (number([d0, d1])?, rest),
        _ => return None,
    };
    let (clock, rest) = rest.split_first_chunk()?;
    let ([b' ', year @ ..], _) = rest.split_first_chunk::<5>()? else {
        return None;
    };
    seconds(
        number(*year)?,
        rules.month([m0, m1, m2])?,
        day,
        parse_clock(clock)?,
    )
}

/// Seconds of the day in `23:50:13`.
fn parse_clock(text: &[u8; 8]) -> Option<u32> {
    let [h0, h1, b':', m0, m1, b':', s0, s1] = *text else {
        return None;
    };
    let (hour, minute, second) = (number([h0, h1])?, number([m0, m1])?, number([s0, s1])?);
    (hour <= 23 && minute <= 59 && second <= 59).then_some(hour * 3_600 + minute * 60 + second)
}

/// The month (1 to 12) by the letters that nginx looks at.
fn month(name: [u8; 3]) -> Option<u32> {
    Some(match name {
        [b'J', b'a', _] => 1,
        [b'J', _, b'n'] => 6,
        [b'J', ..] => 7,
        [b'F', ..] => 2,
        [b'M', _, b'r'] => 3,
        [b'M', ..] => 5,
        [b'A', b'p', _] => 4,
        [b'A', ..] => 8,
        [b'S', ..] => 9,
        [b'O', ..] => 10,
        [b'N', ..] => 11,
        [b'D', ..] => 12,
        _ => return None,
    })
}

/// The number that `digits` (at most four) write.
fn number<const N: usize>(digits: [u8; N]) -> Option<u32> {
    digits.iter().try_fold(0, |sum: u32, &byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + u32::from(byte - b'0'))
    })
}

fn two_digits(value: u8) -> [u8; 2] {
    [b'0' + value / 10 % 10, b'0' + value % 10]
}

/// Seconds since 1970; `None` if the month has no such day.
fn seconds(year: u32, month: u32, day: u32, second_of_day: u32) -> Option<i64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last_day = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day > last_day {
        return None;
    }
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
    // The year begins in March: January and February belong to the one before.
    let (year, shifted_month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = year * 365 + leap_days + (153 * shifted_month + 2) / 5 + day - 1 - 719_468;
    Some(days * SECONDS_PER_DAY + i64::from(second_of_day))
}

/// True when a date says GMT where its form demands it (RFC 9110 §5.6.7); [`parse_http_date`] does
/// not look at the zone. The form of `asctime` names none.
///
/// RFC 9111 §4.2: a cache reads dates in any case.
#[must_use]
pub fn is_in_gmt(value: &[u8]) -> bool {
    let value = crate::list::trim_ows(value);
    let zone = value.last_chunk::<4>();
    !value.contains(&b',') || zone.is_some_and(|zone| zone.eq_ignore_ascii_case(b" GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_rfc_short_years_are_told_by_the_present() {
        // 2026-11-22T00:00:00Z.
        const NOW: i64 = 1_795_305_600;
        for (text, expected) in [
            (
                "Sunday, 06-Nov-94 08:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:37 GMT",
            ),
            (
                "Tuesday, 01-Jan-75 00:00:00 GMT",
                "Tue, 01 Jan 2075 00:00:00 GMT",
            ),
            (
                "Saturday, 21-Nov-76 00:00:00 GMT",
                "Sat, 21 Nov 2076 00:00:00 GMT",
            ),
            (
                "Wednesday, 24-Nov-76 00:00:00 GMT",
                "Wed, 24 Nov 1976 00:00:00 GMT",
            ),
            (
                "Saturday, 01-Jan-77 00:00:00 GMT",
                "Sat, 01 Jan 1977 00:00:00 GMT",
            ),
            (
                "Sunday, 22-Nov-26 00:00:00 GMT",
                "Sun, 22 Nov 2026 00:00:00 GMT",
            ),
            (
                "Saturday, 01-Jan-00 00:00:00 GMT",
                "Sat, 01 Jan 2000 00:00:00 GMT",
            ),
        ] {
            let read = parse_http_date_by_rfc(text.as_bytes(), NOW).unwrap();
            let written = format_http_date(read);
            assert_eq!(std::str::from_utf8(&written), Ok(expected), "{text}");
        }
        for now in [i64::MIN, 0, LAST_SECOND, i64::MAX] {
            for year in 0..100 {
                let text = format!("Sunday, 06-Nov-{year:02} 08:49:37 GMT");
                assert!(parse_http_date_by_rfc(text.as_bytes(), now).is_some());
            }
        }
    }

    #[test]
    fn by_the_rfc_letters_count_in_any_case() {
        const TIME: i64 = 784_111_777;
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 NOV 1994 08:49:37 gmt",
            "sun, 06 nov 1994 08:49:37 GMT",
            "\tSun, 06 nOV 1994 08:49:37 GMT ",
            "sunday, 06-nov-94 08:49:37 GMT",
            "sun nov  6 08:49:37 1994",
        ] {
            let read = parse_http_date_by_rfc(text.as_bytes(), TIME);
            assert_eq!(read, Some(TIME), "{text}");
        }
        let months = [
            "jan", "FEB", "mar", "APR", "may", "JUN", "jul", "AUG", "sep", "OCT", "nov", "DEC",
        ];
        for (name, month) in months.into_iter().zip(1..) {
            let text = format!("Sun, 06 {name} 1994 08:49:37 GMT");
            let read = parse_http_date_by_rfc(text.as_bytes(), TIME).unwrap();
            assert_eq!(civil(read).month, month, "{name}");
        }
    }

    #[test]
    fn three_formats_name_the_same_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "Sun,06 Nov 1994 08:49:37",
            "Xyz,   06 Nov 1994 08:49:37 whatever",
        ] {
            assert_eq!(
                parse_http_date(text.as_bytes()),
                Some(784_111_777),
                "{text}"
            );
        }
    }

    #[test]
    fn known_dates_have_known_seconds() {
        for (text, time) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
            ("Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648),
            ("Fri, 25 Feb 2174 09:42:23 GMT", 6_442_450_943),
            ("Fri, 31 Dec 9999 23:59:59 GMT", LAST_SECOND),
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), Some(time), "{text}");
            assert_eq!(format_http_date(time), text.as_bytes(), "{text}");
        }
        assert_eq!(parse_http_date(b"Wed, 31 Dec 1969 23:59:59 GMT"), Some(-1));
        assert_eq!(
            parse_http_date(b"Sunday, 31-Dec-69 23:59:59 GMT"),
            Some(3_155_759_999)
        );
        assert_eq!(
            parse_http_date(b"Thursday, 01-Jan-70 00:00:00 GMT"),
            Some(0)
        );
    }

    #[test]
    fn malformed_dates_are_refused() {
        for text in [
            "",
            "0",
            "-1",
            "wrong",
            "Sun, 06 Nov 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Xov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Wed, 29 Feb 2023 08:49:37 GMT",
            "Mon, 29 Feb 2100 08:49:37 GMT",
            "Sun, 06-Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 19x4 08:49:37 GMT",
            "Sun Nov  6 08:49:37",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn day_zero_is_the_day_before_the_first() {
        let day_before = parse_http_date(b"Mon, 31 Oct 1994 00:00:00 GMT");
        assert_eq!(
            parse_http_date(b"Tue, 00 Nov 1994 00:00:00 GMT"),
            day_before
        );
    }

    #[test]
    fn times_outside_of_the_calendar_are_clamped() {
        assert_eq!(
            format_http_date(i64::MIN),
            *b"Thu, 01 Jan 1970 00:00:00 GMT"
        );
        assert_eq!(
            format_http_date(i64::MAX),
            *b"Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }

    #[test]
    fn every_day_reads_back_as_it_was_written() {
        for day in 0..=LAST_SECOND / SECONDS_PER_DAY {
            let time = day * SECONDS_PER_DAY + day % SECONDS_PER_DAY;
            assert_eq!(parse_http_date(&format_http_date(time)), Some(time));
        }
    }

    #[test]
    fn moment_breaks_down_into_its_parts() {
        let expected = CivilTime {
            year: 1994,
            month: 11,
            day: 6,
            hour: 8,
            minute: 49,
            second: 37,
            weekday: 0,
        };
        assert_eq!(civil(784_111_777), expected);
    }

    #[test]
    fn zones_other_than_gmt_are_told() {
        assert!(is_in_gmt(b"Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(is_in_gmt(b"Sun, 06 Nov 1994 08:49:37 gmt"));
        assert!(is_in_gmt(b"Sun Nov  6 08:49:37 1994"));
        assert!(!is_in_gmt(b",GM"));
        assert!(!is_in_gmt(b"Sun, 06 Nov 1994 08:49:37 UTC"));
        assert!(!is_in_gmt(b"Sun, 06 Nov 1994 08:49:37 +1000"));
    }
}
