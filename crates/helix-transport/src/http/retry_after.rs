//! `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date in the one form that servers send
//! (IMF-fixdate). A date is measured against the reply's own `Date`, so that our clock does not
//! matter; without one it is ignored.

use std::time::Duration;

use super::content_range::number;

/// The wait a reply asks for.
pub(super) fn parse(retry_after: &str, date: Option<&str>) -> Option<Duration> {
    let value = retry_after.trim();
    if let Some(seconds) = number(value) {
        return Some(Duration::from_secs(seconds));
    }
    let until = imf_fixdate(value)?;
    let now = imf_fixdate(date?.trim())?;
    Some(Duration::from_secs(until.saturating_sub(now)))
}

/// Seconds since year 0 of `Sun, 06 Nov 1994 08:49:37 GMT`. Only differences are used.
fn imf_fixdate(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_weekday, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let day = number(words.next()?).filter(|day| (1..=31).contains(day))?;
    let month_name = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month_name)? as u64 + 1;
    let year = number(words.next()?).filter(|year| *year <= 9999)?;
    let mut clock = words.next()?.split(':');
    let mut field = |limit: u64| number(clock.next()?).filter(|value| *value < limit);
    let (hour, minute, second) = (field(24)?, field(60)?, field(61)?);
    if words.next()? != "GMT" {
        return None;
    }
    // Days from civil (Hinnant): years begin in March, so that the leap day is the last one.
    let (shifted_year, shifted_month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let leap_days = shifted_year / 4 - shifted_year / 100 + shifted_year / 400;
    let days = shifted_year * 365 + leap_days + (153 * shifted_month + 2) / 5 + day;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let date = Some("Sun, 28 Feb 2027 23:59:58 GMT");
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Mon, 01 Mar 2027 00:00:03 GMT", Some(5)),
            ("Tue, 28 Feb 2023 00:00:00 GMT", Some(0)),
            ("Mon, 01 Mar 2027", None),
            ("Sunday, 28-Feb-27 23:59:58 GMT", None),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(
                parse(value, date),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
        assert_eq!(parse("Mon, 01 Mar 2027 00:00:03 GMT", None), None);
    }
}
