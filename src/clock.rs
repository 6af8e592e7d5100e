//! The wall clock as UTC text.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, UTC, RFC 3339 with seconds: `2026-12-01T09:30:00Z`.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    rfc3339(seconds)
}

/// Seconds since 1970 as RFC 3339 (civil calendar after Hinnant's "chrono-compatible low-level date algorithms").
pub fn rfc3339(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    let era = days / 146_097;
    let day_of_era = days - era * 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let s = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Seconds since 1970 of a text as [`rfc3339`] writes it; `None` for any other.
pub fn seconds(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // The year is counted from March, so that the leap day comes last.
    let (shifted_year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()?;
    // Days and hours that there are not, and any other form, are written otherwise.
    (rfc3339(seconds) == text).then_some(seconds)
}

/// Today, UTC: `2026-12-01`.
pub fn today() -> String {
    now()[..10].to_string()
}

#[cfg(test)]
mod tests {
    use super::{rfc3339, seconds};

    #[test]
    fn what_is_written_is_read_again() {
        for instant in (0..40).map(|n| n * 123_456_789).chain([951_782_400, 1_798_761_599]) {
            assert_eq!(seconds(&rfc3339(instant)), Some(instant));
        }
        for other in [
            "",
            "2026-12-01",
            "2026-02-30T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01t09:30:00Z",
            "2026-12-01T09:30:00+00:00",
            "1969-12-31T23:59:59Z",
            "2026-12-01T09:30:00.5Z",
            "+026-12-01T09:30:00Z",
            "äöüäö",
        ] {
            assert_eq!(seconds(other), None, "{other}");
        }
    }

    #[test]
    fn known_instants() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
