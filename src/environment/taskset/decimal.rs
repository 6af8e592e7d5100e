//! Decimal numbers in what models write: sign, currency, thousands groups, fraction, exponent and a
//! unit behind it. Two numbers are compared digit by digit where no exponent stands in the way, so
//! that whole numbers beyond 2^53 stay exact.

/// Longest number that is read, in bytes.
const MOST_BYTES: usize = 400;

/// A number as it was written, brought to one form.
#[derive(Debug, Clone, PartialEq)]
pub struct Decimal {
    /// Sign, digits and fraction without needless zeros; none when it was written with an exponent.
    plain: Option<String>,
    /// The nearest f64, always finite.
    pub value: f64,
}

impl Decimal {
    /// The one number that `text` begins with. A currency sign before it and words behind it are fine;
    /// a second number is not, nor one without digits.
    pub fn single(text: &str) -> Option<Decimal> {
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || is_currency(c));
        let (number, rest) = Decimal::leading(text)?;
        // `5/8` and `5 or 8` are two numbers, and neither is the answer.
        (!rest.chars().any(char::is_numeric)).then_some(number)
    }

    /// The last number that stands anywhere in `text`.
    pub fn last(text: &str) -> Option<Decimal> {
        let bytes = text.as_bytes();
        let mut found = None;
        let mut at = 0;
        while at < bytes.len() {
            let begins = bytes[at].is_ascii_digit()
                && (at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'.'));
            if !begins {
                at += 1;
                continue;
            }
            let head = &text[..at];
            let sign = head.chars().next_back().filter(|c| matches!(c, '-' | '−' | '+'));
            // A dash between two things is no sign: `3-4`, `a-4`.
            let before = sign.and_then(|c| head[..head.len() - c.len_utf8()].chars().next_back());
            let is_sign = sign.is_some() && before.is_none_or(|c| !c.is_alphanumeric());
            let start = at - sign.filter(|_| is_sign).map_or(0, char::len_utf8);
            match Decimal::leading(&text[start..]) {
                Some((number, rest)) => {
                    at = text.len() - rest.len();
                    found = Some(number);
                }
                None => at += 1,
            }
        }
        found
    }

    /// The number at the very start of `text`, and what follows it.
    fn leading(text: &str) -> Option<(Decimal, &str)> {
        let (negative, mut rest) = match text.chars().next()? {
            c @ ('-' | '−' | '+') => (c != '+', text[c.len_utf8()..].trim_start()),
            _ => (false, text),
        };
        rest = rest.trim_start_matches(is_currency);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
        let whole = rest[..end].trim_end_matches(',');
        if whole.len() > MOST_BYTES {
            return None;
        }
        rest = &rest[whole.len()..];
        let digits = groups(whole)?;
        let mut fraction = "";
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            // A full stop behind a number ends the sentence.
            if end > 0 {
                (fraction, rest) = tail.split_at(end);
            }
        }
        if fraction.len() > MOST_BYTES || (digits.is_empty() && fraction.is_empty()) {
            return None;
        }
        let exponent = exponent(rest);
        rest = &rest[exponent.len()..];
        let sign = if negative { "-" } else { "" };
        let value: f64 = format!("{sign}{digits}.{fraction}0{exponent}").parse().ok()?;
        let whole = digits.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let zero = whole.is_empty() && fraction.is_empty();
        let sign = if zero { "" } else { sign };
        let plain = exponent.is_empty().then(|| format!("{sign}{whole}.{fraction}"));
        value.is_finite().then_some((Decimal { plain, value }, rest))
    }

    /// Whether the two differ by at most `tolerance`, or by at most `relative` of `self`.
    pub fn agrees(&self, other: &Decimal, tolerance: f64, relative: f64) -> bool {
        let same = match (&self.plain, &other.plain) {
            (Some(a), Some(b)) => a == b,
            _ => self.value == other.value,
        };
        let bound = tolerance.max(relative * self.value.abs());
        // One part in 10^12 of slack: 0.3 and 0.2 differ by 0.1 for everybody but a computer.
        same || (bound > 0.0 && (self.value - other.value).abs() <= bound * (1.0 + 1e-12))
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.plain {
            Some(plain) => {
                let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
                let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
                let whole = if whole.is_empty() { "0" } else { whole };
                let point = if fraction.is_empty() { "" } else { "." };
                write!(f, "{sign}{whole}{point}{fraction}")
            }
            None => write!(f, "{}", self.value),
        }
    }
}

fn is_currency(c: char) -> bool {
    "$€£¥".contains(c)
}

/// Digits without their thousands separators; none where the commas do not stand where they should.
fn groups(whole: &str) -> Option<String> {
    let mut parts = whole.split(',');
    let first = parts.next().unwrap_or_default();
    let mut digits = first.to_owned();
    for part in parts {
        if part.len() != 3 || first.is_empty() || first.len() > 3 {
            return None;
        }
        digits.push_str(part);
    }
    Some(digits)
}

/// An exponent at the start of `text`, such as `e-3`: empty when there is none.
fn exponent(text: &str) -> &str {
    let Some(tail) = text.strip_prefix(['e', 'E']) else { return "" };
    let signed = tail.strip_prefix(['+', '-']).unwrap_or(tail);
    let digits = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
    let after = signed[digits..].chars().next();
    if (1..=4).contains(&digits) && after.is_none_or(|c| !c.is_alphanumeric()) {
        &text[..text.len() - signed.len() + digits]
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_number_is_read_as_people_write_it() {
        for (text, wanted) in [
            ("7", "7"),
            ("-12", "-12"),
            ("−3.50", "-3.5"),
            ("+7.0", "7"),
            ("1,204,000 cups", "1204000"),
            ("$1,204.75", "1204.75"),
            ("-$5", "-5"),
            ("€ 3", "3"),
            ("12%", "12"),
            ("0012", "12"),
            (".5", "0.5"),
            ("7.", "7"),
            ("7,", "7"),
            ("-0.0", "0"),
            ("3e2", "300"),
            ("3 eggs", "3"),
            ("3e", "3"),
            ("99999999999999999999", "99999999999999999999"),
            ("1e400", ""),
            ("1.5e-3 m", "0.0015"),
            ("7 or 8", ""),
            ("3/4", ""),
            ("7-8", ""),
            ("12,34", ""),
            ("1234,567", ""),
            ("seven", ""),
            ("", ""),
            ("-", ""),
            (".", ""),
            (",", ""),
            ("1.2.3", ""),
            ("2²", ""),
            ("x = 7", ""),
        ] {
            assert_eq!(Decimal::single(text).map_or(String::new(), |d| d.to_string()), wanted, "{text:?}");
        }
    }

    #[test]
    fn the_last_number_of_a_text_is_found() {
        for (text, wanted) in [
            ("It is 3, then 4.", "4"),
            ("3-4", "4"),
            ("from 9 to -2 degrees", "-2"),
            ("x2 and H2O", ""),
            ("v1.25 costs $1,300.50 now", "1300.5"),
            ("total:12", "12"),
            ("a 1,2 b", "2"),
            ("Step 2: 40 + 2 = 42 apples", "42"),
            ("ünï 7é", "7"),
            ("no number", ""),
            ("", ""),
        ] {
            assert_eq!(Decimal::last(text).map_or(String::new(), |d| d.to_string()), wanted, "{text:?}");
        }
    }

    #[test]
    fn numbers_agree_exactly_or_within_what_is_allowed() {
        let agrees = |a: &str, b: &str, tolerance, relative| {
            Decimal::single(a).unwrap().agrees(&Decimal::single(b).unwrap(), tolerance, relative)
        };
        assert!(agrees("9007199254740993", "9007199254740993.0", 0.0, 0.0));
        assert!(!agrees("9007199254740993", "9007199254740992", 0.0, 0.0));
        assert!(agrees("3e2", "300.00", 0.0, 0.0) && !agrees("0.1", "0.10000001", 0.0, 0.0));
        assert!(agrees("0.3", "0.2", 0.1, 0.0) && !agrees("0.3", "0.19", 0.1, 0.0));
        assert!(agrees("200", "198", 0.0, 0.01) && !agrees("200", "197.9", 0.0, 0.01));
        assert!(agrees("-0", "0", 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}", odd in "[-+0-9.,eE$− /]{0,20}") {
            for text in [text.as_str(), odd.as_str(), &format!("{text}{odd}")] {
                let _ = (Decimal::single(text), Decimal::last(text));
            }
        }

        #[test]
        fn what_is_printed_reads_back(value in -1_000_000_000i64..1_000_000_000, cents in 0u8..100) {
            let text = format!("{value}.{cents:02}");
            let number = Decimal::single(&text).unwrap();
            prop_assert!(number.agrees(&Decimal::single(&number.to_string()).unwrap(), 0.0, 0.0));
            prop_assert_eq!(number.value, text.parse::<f64>().unwrap());
            prop_assert_eq!(Decimal::last(&format!("so: {text} pieces")).unwrap(), number);
        }
    }
}
