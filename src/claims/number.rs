//! Printed numbers: what a reader sees as one atom (`+0.26`, `1,234`, `0.0%`, `3 tasks`, `—`),
//! read into its parts, written from a value and a style, and compared with a value at the
//! precision in which it was printed.

use super::beside::{WHOLE, is_scale};
use super::value::Number;
use crate::error::{Error, Result};
use crate::stats::rounding::{fixed, round_half_away};

/// Printed where there is no number.
pub const UNDEFINED: &str = "—";
/// The minus sign of printed numbers, U+2212.
pub const MINUS: char = '\u{2212}';

const MOST_DECIMALS: usize = 12;
const MOST_DIGITS: usize = 15;
/// Words after a number that show that more than one number was meant.
const NOT_UNITS: &[&str] = &["of", "to", "and", "or", "in", "vs", "versus", "from", "per"];

/// How a number is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Style {
    /// `+` before a positive number.
    pub plus: bool,
    /// `,` between groups of three digits.
    pub thousands: bool,
    /// Digits after the point: the printed precision.
    pub decimals: u32,
    /// `%`: the value is printed times 100.
    pub percent: bool,
    /// `×` after the digits; the value as it is.
    pub times: bool,
    /// One unit word with the space before it, if any: ` tasks`, `ms`.
    pub unit: String,
    /// Whether a positive number that rounds to zero is printed as below the smallest one, `<0.001`: a p value is never 0.
    pub floor: bool,
}

/// A printed atom.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// The printed number with its sign, a percentage not divided by 100; `None` for `—`.
    pub value: Option<f64>,
    /// Whether a minus sign is shown.
    pub minus: bool,
    /// Whether `<` is shown: the number lies between 0 and `value`.
    pub below: bool,
    /// How it is written; `plus` says whether a plus sign is shown.
    pub style: Style,
}

impl Printed {
    /// Reads one printed atom: sign, digits with separators, decimals, `%`, `×`, a unit word; or `—`; or `<0.001`.
    /// Anything else (a range, a ratio, a scale such as `million`, words) is refused with what to write instead.
    pub fn parse(text: &str) -> Result<Printed> {
        let text = text.trim();
        if text == UNDEFINED {
            return Ok(Printed { value: None, minus: false, below: false, style: Style::default() });
        }
        let refuse = |why: &str| refusal(text, why);
        let (below, unsigned) =
            text.strip_prefix('<').map_or((false, text), |rest| (true, rest.trim_start()));
        let (minus, plus, rest) = match text.chars().next() {
            _ if below => (false, false, unsigned),
            Some('+') => (false, true, &text[1..]),
            Some('-') => (true, false, &text[1..]),
            Some(MINUS) => (true, false, &text[MINUS.len_utf8()..]),
            _ => (false, false, text),
        };
        let (digits, thousands, rest) =
            whole_digits(rest).ok_or_else(|| refuse("does not start with digits"))?;
        let (decimals, rest) = match rest.strip_prefix('.') {
            None => ("", rest),
            Some(after) => {
                let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                if end == 0 {
                    return Err(refuse("has a point without decimals"));
                }
                after.split_at(end)
            }
        };
        if digits.len() > MOST_DIGITS || decimals.len() > MOST_DECIMALS {
            return Err(refuse("has more digits than a number here can carry"));
        }
        let (percent, times, unit) = suffix(rest).ok_or_else(|| refuse("is not one number"))?;
        let magnitude: f64 =
            format!("{digits}.{decimals}0").parse().map_err(|_| refuse("does not start with digits"))?;
        let style = Style {
            plus,
            thousands,
            decimals: decimals.len() as u32,
            percent,
            times,
            unit: unit.to_string(),
            floor: below,
        };
        if below && (decimals.is_empty() || magnitude != smallest(style.decimals)) {
            return Err(refuse(
                "bounds a number by another than the smallest of its precision, as in `<0.001`",
            ));
        }
        Ok(Printed { value: Some(if minus { -magnitude } else { magnitude }), minus, below, style })
    }

    /// Whether `number`, rounded to the printed precision, is what is printed. A shown sign must be
    /// the number's own, even where it rounds to zero; `—` agrees with an undefined number only.
    pub fn agrees(&self, number: &Number) -> bool {
        let (Some(printed), Some(value)) = (self.value, number.get()) else {
            return self.value.is_none() && number.get().is_none();
        };
        let scaled = if self.style.percent { value * 100.0 } else { value };
        if self.below {
            return scaled > 0.0 && scaled < printed;
        }
        let rounded = round_half_away(scaled, self.style.decimals);
        let slack = 10f64.powi(-(self.style.decimals as i32)) * 1e-3 + 4.0 * f64::EPSILON * printed.abs();
        let sign_fits = !(self.minus && value > 0.0 || self.style.plus && value < 0.0);
        sign_fits && (rounded - printed).abs() <= slack
    }
}

impl Style {
    /// Reads a format such as `+0.00`, `0.0%`, `0,000`, `0×` or `0 tasks`: a sample made of zeros.
    pub fn parse(format: &str) -> Result<Style> {
        let bad = || {
            Error::invalid(format!("`{format}` is not a number format"))
                .hint("write a sample made of zeros, such as `+0.00`, `0.0%`, `0,000` or `0 tasks`")
        };
        let printed = Printed::parse(format).map_err(|_| bad())?;
        if printed.minus || printed.below || printed.value != Some(0.0) || format.trim() != format {
            return Err(bad());
        }
        let whole = format.trim_start_matches('+');
        let whole = &whole[..whole.find(|c: char| c != '0' && c != ',').unwrap_or(whole.len())];
        if whole != "0" && whole != "0,000" {
            return Err(bad());
        }
        Ok(printed.style)
    }

    /// The style of p values.
    pub fn p_value(decimals: u32) -> Style {
        Style { floor: true, ..Style::plain(decimals) }
    }

    /// A plain style with so many decimals.
    pub fn plain(decimals: u32) -> Style {
        Style { decimals, ..Style::default() }
    }
}

impl std::fmt::Display for Style {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plus = if self.plus { "+" } else { "" };
        let whole = if self.thousands { "0,000" } else { "0" };
        let decimals =
            if self.decimals > 0 { format!(".{:0>1$}", "", self.decimals as usize) } else { String::new() };
        write!(f, "{plus}{whole}{decimals}{}", self.marks())
    }
}

impl Style {
    fn marks(&self) -> String {
        let percent = if self.percent { "%" } else { "" };
        let times = if self.times { "×" } else { "" };
        format!("{percent}{times}{}", self.unit)
    }
}

/// `value` as printed text in a style. What rounds to zero has no sign, or is below the smallest number; a value that is not
/// finite prints as `—`.
pub fn format(value: f64, style: &Style) -> String {
    if !value.is_finite() {
        return UNDEFINED.to_string();
    }
    let scaled = if style.percent { value * 100.0 } else { value };
    let magnitude = fixed(scaled.abs(), style.decimals, false);
    let zero = !magnitude.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if style.floor && zero && value > 0.0 {
        return format!("<{}{}", fixed(smallest(style.decimals), style.decimals, false), style.marks());
    }
    let sign = match (zero, value < 0.0, style.plus) {
        (false, true, _) => MINUS.to_string(),
        (false, false, true) => "+".to_string(),
        _ => String::new(),
    };
    let magnitude = if style.thousands { grouped(&magnitude) } else { magnitude };
    format!("{sign}{magnitude}{}", style.marks())
}

/// The smallest positive number with so many decimals.
fn smallest(decimals: u32) -> f64 {
    format!("1e-{decimals}").parse().unwrap_or(f64::MIN_POSITIVE)
}

/// A number as printed text: `—` when it is undefined.
pub fn print(number: &Number, style: &Style) -> String {
    number.get().map_or_else(|| UNDEFINED.to_string(), |value| format(value, style))
}

/// Digits before the point, separators taken out: `(digits, had separators, the rest)`.
fn whole_digits(text: &str) -> Option<(String, bool, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let mut groups = head.split(',');
    let first = groups.next().filter(|g| !g.is_empty())?;
    let rest_of: Vec<&str> = groups.collect();
    if rest_of.iter().any(|g| g.len() != 3) || (!rest_of.is_empty() && first.len() > 3) {
        return None;
    }
    Some((format!("{first}{}", rest_of.concat()), !rest_of.is_empty(), rest))
}

/// What may follow the digits: `%` or `×`, then a unit word. `None` if there is anything else.
fn suffix(text: &str) -> Option<(bool, bool, &str)> {
    let (percent, text) = text.strip_prefix('%').map_or((false, text), |rest| (true, rest));
    let (times, text) = text.strip_prefix('×').map_or((false, text), |rest| (true, rest));
    let word = text.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(text);
    let is_word = word.chars().next().is_some_and(char::is_alphabetic)
        && word.chars().all(|c| c.is_alphabetic() || c == '/')
        && !NOT_UNITS.contains(&word)
        && !word.split('/').next().is_some_and(is_scale);
    (text.is_empty() || is_word).then_some((percent, times, text))
}

fn grouped(magnitude: &str) -> String {
    let (whole, decimals) = magnitude.split_once('.').map_or((magnitude, None), |(w, d)| (w, Some(d)));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(decimals) = decimals {
        out.push('.');
        out.push_str(decimals);
    }
    out
}

fn refusal(text: &str, why: &str) -> Error {
    let digits = |s: &str| s.chars().any(|c| c.is_ascii_digit());
    let scaled = |s: &str| {
        let unit = s.trim_start_matches(|c: char| !c.is_alphabetic());
        unit.split('/').next().is_some_and(is_scale)
    };
    let several =
        text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).filter(|s| digits(s)).count() > 1
            || NOT_UNITS.iter().any(|w| text.ends_with(w));
    let hint = if text.rsplit([' ', '\u{a0}', '\u{202f}']).next().is_some_and(scaled) {
        WHOLE
    } else if several {
        "a range or ratio is several links, one a number: `[8](derive:…) of [11](derive:…)`"
    } else if !digits(text) {
        "print one number, or leave the brackets empty for `rederive fill`"
    } else {
        "print a sign, digits, decimals, then `%`, `×` or one unit word; other words and emphasis go outside the brackets"
    };
    Error::invalid(format!("printed text `{text}` {why}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn defined(x: f64) -> Number {
        Number::Defined(x)
    }

    #[test]
    fn a_small_p_value_is_printed_as_below_the_smallest_and_read_so() {
        let style = Style::p_value(3);
        for (value, printed) in [(0.0004, "<0.001"), (0.0005, "0.001"), (0.031, "0.031"), (0.0, "0.000")] {
            assert_eq!(format(value, &style), printed);
            assert!(Printed::parse(printed).unwrap().agrees(&defined(value)), "{printed}");
        }
        let below = Printed::parse("< 0.01%").unwrap();
        assert!(below.agrees(&defined(0.00009)) && !below.agrees(&defined(0.0001)));
        for (value, agrees) in [(0.0, false), (-0.0001, false), (0.00099, true), (0.001, false)] {
            assert_eq!(Printed::parse("<0.001").unwrap().agrees(&defined(value)), agrees, "{value}");
        }
        for text in ["<0.5", "<1", "<-0.001", "<", "<0.0010", "<—"] {
            assert!(Printed::parse(text).is_err(), "{text}");
        }
        assert!(Style::parse("<0.001").is_err());
    }

    #[test]
    fn atoms_are_read() {
        for (text, value, decimals, shown) in [
            ("+0.26", 0.26, 2, "+0.00"),
            ("-0.5", -0.5, 1, "0.0"),
            ("\u{2212}0.5", -0.5, 1, "0.0"),
            ("1,234", 1234.0, 0, "0,000"),
            ("12,345.60", 12345.6, 2, "0,000.00"),
            ("36%", 36.0, 0, "0%"),
            ("2.5×", 2.5, 1, "0.0×"),
            ("25 tasks", 25.0, 0, "0 tasks"),
            ("7.5 tok/s", 7.5, 1, "0.0 tok/s"),
            (" 3 ", 3.0, 0, "0"),
        ] {
            let p = Printed::parse(text).unwrap();
            assert_eq!((p.value, p.style.decimals), (Some(value), decimals), "{text}");
            assert_eq!(p.style.to_string(), shown);
        }
        assert_eq!(Printed::parse("—").unwrap().value, None);
    }

    #[test]
    fn what_is_not_one_number_is_refused_with_a_hint() {
        for text in ["36–45%", "36-45%", "8 of 11", "8/11", "0.1 → 0.3", "8 of", "1,2", "1e-4"] {
            let e = Printed::parse(text).unwrap_err().to_string();
            assert!(e.contains("hint:"), "{e}");
            assert!(text == "1e-4" || text == "1,2" || e.contains("several links"), "{e}");
        }
        for text in ["0.07 million", "2 thousand", "12 dozen", "3k", "2.5x", "7 percent", "7 k/s", "3\u{a0}M"]
        {
            let e = Printed::parse(text).unwrap_err().to_string();
            assert!(e.contains("inside the brackets where it needs one"), "{e}");
            assert!(Style::parse(&text.replace(|c: char| c.is_ascii_digit(), "0")).is_err(), "{text}");
        }
        for text in [
            "",
            "many",
            "**0.31**",
            "0.",
            ".5",
            "+",
            "--1",
            "0.31 per task",
            "1234,567",
            "0.1234567890123",
            "1.2.3",
        ] {
            assert!(Printed::parse(text).unwrap_err().to_string().contains("hint:"), "{text}");
        }
    }

    #[test]
    fn agreement_is_at_the_printed_precision() {
        for (text, value, yes) in [
            ("0.70", 0.697, true),
            ("0.697", 0.697, true),
            ("0.69", 0.697, false),
            ("0.13", 0.125, true),
            ("15%", 0.145, true),
            ("14%", 0.145, false),
            ("+0.26", 0.26, true),
            ("+0.00", 0.001, true),
            ("+0.00", -0.001, false),
            ("\u{2212}0.00", 0.001, false),
            ("0.00", -0.001, true),
            ("1,234", 1234.4, true),
        ] {
            assert_eq!(Printed::parse(text).unwrap().agrees(&defined(value)), yes, "{text} {value}");
        }
        let undefined = Number::Undefined("one task".into());
        assert!(Printed::parse("—").unwrap().agrees(&undefined));
        assert!(!Printed::parse("0.00").unwrap().agrees(&undefined));
        assert!(!Printed::parse("—").unwrap().agrees(&defined(0.0)));
    }

    #[test]
    fn formats_print() {
        for (value, spec, text) in [
            (0.257, "+0.00", "+0.26"),
            (-0.257, "+0.00", "\u{2212}0.26"),
            (0.145, "0%", "15%"),
            (0.3141, "0.0%", "31.4%"),
            (1234567.0, "0,000", "1,234,567"),
            (25.0, "0 tasks", "25 tasks"),
            (-0.001, "+0.00", "0.00"),
            (2.0, "0.0×", "2.0×"),
            (f64::NAN, "0.00", "—"),
        ] {
            assert_eq!(format(value, &Style::parse(spec).unwrap()), text);
        }
        assert_eq!(print(&Number::Undefined("x".into()), &Style::plain(2)), "—");
        for spec in ["", "0.31", "-0.0", "00", "0,0", "—", "0 of 11", " 0", "0000"] {
            assert!(Style::parse(spec).is_err(), "{spec}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = Printed::parse(&text);
            let _ = Style::parse(&text);
        }

        #[test]
        fn what_is_printed_agrees_and_reads_back(
            value in -1e6f64..1e6, plus: bool, thousands: bool, decimals in 0u32..8,
            percent: bool, times: bool, unit in prop::sample::select(vec!["", " tasks", "ms", " tok/s"]),
        ) {
            let style = Style { plus, thousands, decimals, percent, times, unit: unit.to_string(), floor: false };
            prop_assert_eq!(&Style::parse(&style.to_string()).unwrap(), &style);
            let text = format(value, &style);
            let printed = Printed::parse(&text).unwrap();
            prop_assert!(printed.agrees(&Number::Defined(value)), "{} {}", text, value);
            prop_assert_eq!(printed.style.decimals, decimals);
            let back = printed.value.unwrap() / if percent { 100.0 } else { 1.0 };
            prop_assert_eq!(format(back, &style), text);
        }

        #[test]
        fn a_different_last_digit_disagrees(value in -1000i32..1000, decimals in 0u32..5) {
            let step = 10f64.powi(-(decimals as i32));
            let value = f64::from(value) * step;
            let text = format(value + step, &Style::plain(decimals));
            prop_assert!(!Printed::parse(&text).unwrap().agrees(&Number::Defined(value)));
        }
    }
}
