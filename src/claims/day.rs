//! A calendar day, as TOML dates and the log's headings write it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A valid day of the calendar; ordered by time. Printed and serialised as `2026-12-01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "toml::value::Date", into = "String")]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

impl Day {
    /// Year, month (from 1) and day of the month (from 1).
    pub fn parts(self) -> (u16, u8, u8) {
        (self.year, self.month, self.day)
    }

    /// The day after it.
    pub fn next(self) -> Day {
        let (year, month, day) = self.parts();
        let candidates = [(year, month, day + 1), (year, month + 1, 1), (year.saturating_add(1), 1, 1)];
        let real = |(year, month, day): (u16, u8, u8)| format!("{year:04}-{month:02}-{day:02}").parse().ok();
        candidates.into_iter().find_map(real).unwrap_or(self)
    }
}

impl From<toml::value::Date> for Day {
    fn from(date: toml::value::Date) -> Day {
        Day { year: date.year, month: date.month, day: date.day }
    }
}

impl From<Day> for String {
    fn from(day: Day) -> String {
        day.to_string()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Day {
    type Err = Error;

    /// Reads `2026-12-01`; a day that the calendar does not have is refused.
    fn from_str(text: &str) -> Result<Day> {
        let parsed: Option<toml::value::Datetime> = text.parse().ok();
        match parsed {
            Some(toml::value::Datetime { date: Some(date), time: None, offset: None }) => Ok(date.into()),
            _ => {
                Err(Error::invalid(format!("`{text}` is not a date"))
                    .hint("write a day such as `2026-12-01`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_ordered_and_printed() {
        let day: Day = "2026-12-01".parse().unwrap();
        assert_eq!(day.to_string(), "2026-12-01");
        assert_eq!(day.parts(), (2026, 12, 1));
        assert!(day > "2026-07-31".parse().unwrap());
        for bad in ["2026-02-30", "2026-12-01T10:00:00Z", "yesterday", ""] {
            assert!(bad.parse::<Day>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_day_has_a_next_one() {
        for (day, next) in [
            ("2026-11-29", "2026-11-30"),
            ("2026-11-30", "2026-12-01"),
            ("2026-12-31", "2027-01-01"),
            ("2028-02-28", "2028-02-29"),
            ("2027-02-28", "2027-03-01"),
            ("9999-12-31", "9999-12-31"),
        ] {
            assert_eq!(day.parse::<Day>().unwrap().next().to_string(), next);
        }
    }

    #[test]
    fn toml_dates_become_days() {
        #[derive(Deserialize, Serialize)]
        struct Dated {
            date: Day,
        }
        let dated: Dated = toml::from_str("date = 2026-12-01").unwrap();
        assert_eq!(serde_json::to_string(&dated).unwrap(), r#"{"date":"2026-12-01"}"#);
        assert!(toml::from_str::<Dated>("date = \"2026-12-01\"").is_err());
    }
}
