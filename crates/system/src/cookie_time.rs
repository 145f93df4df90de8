//! Times in cookies, as browsers before RFC 6265 want them.
//!
//! It is the form of Netscape's first description of cookies, which nginx writes: hyphens between
//! day, month and year, and years of two digits.

use millpond_semantics::date::civil;

/// Netscape's form of a time, whose years have two digits up to 2037, as nginx writes it.
pub fn cookie_time(time: i64) -> String {
    let at = civil(time);
    let (day, month) = (at.weekday_name(), at.month_name());
    let (day, month) = (
        String::from_utf8_lossy(&day),
        String::from_utf8_lossy(&month),
    );
    let year = match at.year {
        year if year > 2037 => format!("{year:04}"),
        year => format!("{:02}", year.rem_euclid(100)),
    };
    format!(
        "{day}, {:02}-{month}-{year} {:02}:{:02}:{:02} GMT",
        at.day, at.hour, at.minute, at.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cookies_have_short_years_until_2037() {
        for (time, expected) in [
            (0, "Thu, 01-Jan-70 00:00:00 GMT"),
            (2145916555, "Thu, 31-Dec-37 23:55:55 GMT"),
            (2147483648, "Tue, 19-Jan-2038 03:14:08 GMT"),
        ] {
            assert_eq!(cookie_time(time), expected);
        }
    }
}
