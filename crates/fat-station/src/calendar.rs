//! The current date for chat templates, in UTC, in `strftime` notation.
//! No time zones, no parsing: templates only tell the model what day it is.
//! Source of the day count: Howard Hinnant, "chrono-compatible low-level date algorithms".

use std::time::{SystemTime, UNIX_EPOCH};

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
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment in UTC, in whole seconds.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    seconds: u64,
}

/// The present moment; 1970 on a machine whose clock stands before it.
pub fn now() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment {
        seconds: since.as_secs(),
    }
}

struct Date {
    year: u64,
    /// 1 to 12.
    month: u64,
    /// 1 to 31.
    day: u64,
}

impl Moment {
    /// `format` with its `%` directives replaced; unknown ones are kept as they are. `%-d` and its
    /// like leave out leading zeros.
    pub fn format(self, format: &str) -> String {
        let mut text = String::with_capacity(format.len() + 16);
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            let mut directive = letters.next();
            let bare = directive == Some('-');
            if bare {
                directive = letters.next();
            }
            match directive.and_then(|letter| self.directive(letter)) {
                Some(value) if bare => text.push_str(without_zeros(&value)),
                Some(value) => text.push_str(&value),
                None => {
                    text.push('%');
                    text.extend(bare.then_some('-'));
                    text.extend(directive);
                }
            }
        }
        text
    }

    fn directive(self, letter: char) -> Option<String> {
        let Date { year, month, day } = self.date();
        let (hour, minute, second) = (
            self.seconds / 3600 % 24,
            self.seconds / 60 % 60,
            self.seconds % 60,
        );
        let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
        let month_name = name(&MONTHS, month - 1);
        // 1 January 1970 was a Thursday.
        let weekday = name(&WEEKDAYS, (self.seconds / 86_400 + 4) % 7);
        Some(match letter {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'd' => format!("{day:02}"),
            'B' => month_name.to_owned(),
            'b' | 'h' => month_name.chars().take(3).collect(),
            'A' => weekday.to_owned(),
            'a' => weekday.chars().take(3).collect(),
            'H' => format!("{hour:02}"),
            'I' => format!("{twelve:02}"),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'Z' => "UTC".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }

    fn date(self) -> Date {
        // Days are counted from 1 March of the year 0, so that the leap day ends a year.
        let days = self.seconds / 86_400 + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        };
        Date {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
        }
    }
}

fn name(names: &'static [&'static str], at: u64) -> &'static str {
    usize::try_from(at)
        .ok()
        .and_then(|at| names.get(at))
        .copied()
        .unwrap_or_default()
}

fn without_zeros(value: &str) -> &str {
    let bare = value.trim_start_matches('0');
    if bare.is_empty() { "0" } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_a_calendar() {
        for (seconds, expected) in [
            (0, "Thursday 01 January 1970 00:00:00 AM"),
            (951_782_399, "Monday 28 February 2000 23:59:59 PM"),
            (951_782_400, "Tuesday 29 February 2000 00:00:00 AM"),
            (1_709_164_800, "Thursday 29 February 2024 00:00:00 AM"),
            (1_735_732_800, "Wednesday 01 January 2025 12:00:00 PM"),
            (4_107_542_400, "Monday 01 March 2100 00:00:00 AM"),
        ] {
            assert_eq!(Moment { seconds }.format("%A %d %B %Y %T %p"), expected);
        }
    }

    #[test]
    fn directives_without_zeros_and_unknown_ones() {
        let moment = Moment {
            seconds: 1_735_732_800 + 300,
        };
        assert_eq!(
            moment.format("%-d/%-m/%y %I:%M %b %a 100%% %Q %"),
            "1/1/25 12:05 Jan Wed 100% %Q %"
        );
    }
}
