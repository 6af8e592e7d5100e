//! What a page prints, read a second time: the number grammar, and whether a recomputed value
//! rounds to it. Works on the exact decimal digits of the value, as text.

/// Words that would change the scale of the digits before them, in small letters.
const SCALES: [&str; 46] = [
    "hundred",
    "hundreds",
    "thousand",
    "thousands",
    "million",
    "millions",
    "billion",
    "billions",
    "trillion",
    "trillions",
    "dozen",
    "dozens",
    "lakh",
    "crore",
    "mio",
    "mln",
    "bn",
    "mrd",
    "tenth",
    "tenths",
    "hundredth",
    "hundredths",
    "thousandth",
    "thousandths",
    "millionth",
    "millionths",
    "percent",
    "percents",
    "percentage",
    "pct",
    "permille",
    "promille",
    "ppm",
    "ppb",
    "bps",
    "pp",
    "bp",
    "mille",
    "kilo",
    "thou",
    "grand",
    "gross",
    "fold",
    "halves",
    "thirds",
    "fifths",
];

/// Most digits after the point, and before it.
const DECIMALS: usize = 12;
const DIGITS: usize = 15;

/// A printed atom taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printed {
    /// `—`: undefined.
    Dash,
    /// `<0.001`: between zero and the smallest number of its decimals, a percentage where `percent`.
    Below {
        /// Digits after the point.
        decimals: usize,
        /// Whether a `%` follows.
        percent: bool,
    },
    /// A number.
    Number {
        /// `+`, `-` or none.
        sign: Option<char>,
        /// Digits without separators, such as `1234.50`.
        digits: String,
        /// Digits after the point.
        decimals: usize,
        /// Whether a `%` follows, so that the value is printed times 100.
        percent: bool,
    },
}

/// Reads a printed atom; the error says what is wrong with it.
pub fn parse(text: &str) -> Result<Printed, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("nothing is printed; `rederive fill` writes the value".into());
    }
    if text == "—" {
        return Ok(Printed::Dash);
    }
    let below = text.strip_prefix('<');
    let mut rest = below.map_or(text, str::trim_start);
    let mut sign = None;
    for (mark, meaning) in [('+', '+'), ('-', '-'), ('\u{2212}', '-')] {
        if let Some(after) = rest.strip_prefix(mark) {
            sign = Some(meaning);
            rest = after;
            break;
        }
    }
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.')).unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let digits_only = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_digit());
    let groups: Vec<&str> = whole.split(',').collect();
    let grouped_well = match groups.as_slice() {
        [only] => digits_only(only),
        [first, others @ ..] => {
            digits_only(first) && first.len() <= 3 && others.iter().all(|g| digits_only(g) && g.len() == 3)
        }
        [] => false,
    };
    if !grouped_well || !fraction.is_none_or(digits_only) {
        return Err(format!("`{text}` is not one printed number"));
    }
    if groups.concat().trim_start_matches('0').len() > DIGITS {
        return Err(format!(
            "`{text}` has more than {DIGITS} digits before the point, which no value is known to"
        ));
    }
    if fraction.is_some_and(|fraction| fraction.len() > DECIMALS) {
        return Err(format!("`{text}` has more than {DECIMALS} decimals, which no value is known to"));
    }
    let after = unit.trim_start();
    let (percent, after) = after.strip_prefix('%').map_or((false, after), |after| (true, after));
    let word = after.strip_prefix('×').unwrap_or(after).trim_start();
    if !word.chars().all(|c| c.is_alphabetic() || c == '/') || matches!(word, "of" | "to" | "and" | "or") {
        return Err(format!("`{text}` is more than one number and one unit; write several links"));
    }
    let scale = word.split('/').next().unwrap_or_default();
    if matches!(scale, "k" | "K" | "M" | "G" | "T" | "B" | "x" | "X")
        || SCALES.contains(&scale.to_lowercase().as_str())
    {
        return Err(format!("`{word}` in `{text}` is a scale, not a unit; print the number as it is"));
    }
    let mut digits: String = groups.concat();
    if let Some(fraction) = fraction {
        digits.push('.');
        digits.push_str(fraction);
    }
    let decimals = fraction.map_or(0, str::len);
    if below.is_none() {
        return Ok(Printed::Number { sign, digits, decimals, percent });
    }
    let one =
        fraction.is_some_and(|fraction| fraction.trim_start_matches('0') == "1" && fraction.ends_with('1'));
    if sign.is_none() && one && whole.chars().all(|c| c == '0') {
        return Ok(Printed::Below { decimals, percent });
    }
    Err(format!("`{text}` bounds a number by another than the smallest of its precision, as in `<0.001`"))
}

/// Whether `value` (`None`: undefined) is printed as `printed`. Rounding is half away from
/// zero, and a value within 1e-12 of a tie counts as the tie.
pub fn agrees(printed: &Printed, value: Option<f64>) -> bool {
    match (printed, value) {
        (Printed::Dash, None) => true,
        (Printed::Below { .. }, Some(value)) => {
            reach(printed).is_some_and(|(low, high)| value > low && value < high)
        }
        (Printed::Number { sign, digits, decimals, percent }, Some(value)) => {
            let value = if *percent { value * 100.0 } else { value };
            let rounded = digits_of(value.abs(), *decimals);
            let is_zero = rounded.chars().all(|c| c == '0' || c == '.');
            let sign_fits = match sign {
                Some('-') => value <= 0.0,
                Some(_) => value >= 0.0,
                None => value >= 0.0 || is_zero,
            };
            sign_fits && trimmed(digits) == trimmed(&rounded)
        }
        _ => false,
    }
}

/// The values that are printed so, ties aside: the printed number and half a unit of its last
/// place on both sides. `None` for `—`.
pub fn reach(printed: &Printed) -> Option<(f64, f64)> {
    let (sign, digits, decimals, percent) = match printed {
        Printed::Dash => return None,
        Printed::Below { decimals, percent } => {
            let scale = if *percent { 0.01 } else { 1.0 };
            return Some((0.0, 10f64.powi(-(*decimals as i32)) * scale));
        }
        Printed::Number { sign, digits, decimals, percent } => (sign, digits, decimals, percent),
    };
    let scale = if *percent { 0.01 } else { 1.0 };
    let magnitude: f64 = digits.parse().ok()?;
    let value = if *sign == Some('-') { -magnitude } else { magnitude } * scale;
    let half = 0.5 * 10f64.powi(-(*decimals as i32)) * scale;
    Some((value - half, value + half))
}

/// Without leading zeros before the first digit of the whole part.
fn trimmed(digits: &str) -> &str {
    let stripped = digits.trim_start_matches('0');
    if stripped.is_empty() || stripped.starts_with('.') {
        digits
            .get(digits.len() - stripped.len() - usize::from(digits.len() > stripped.len())..)
            .unwrap_or(digits)
    } else {
        stripped
    }
}

/// The digits of `magnitude` ≥ 0 rounded to `decimals` places: every f64 has a finite decimal
/// expansion, which is cut and, at a tie or above, carried by hand.
fn digits_of(magnitude: f64, decimals: usize) -> String {
    let exact = format!("{magnitude:.1080}");
    let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(decimals).collect();
    let left: String = fraction.chars().skip(decimals).take(30).collect();
    let left: f64 = format!("0.{left}0").parse().unwrap_or(0.0);
    let slack = 1e-12 * 10f64.powi(decimals.min(300) as i32);
    let mut digits: Vec<u8> = whole.bytes().chain(kept.bytes()).collect();
    if left >= 0.5 - slack.min(0.01) {
        let mut carry = true;
        for digit in digits.iter_mut().rev() {
            if !carry {
                break;
            }
            carry = *digit == b'9';
            *digit = if carry { b'0' } else { *digit + 1 };
        }
        if carry {
            digits.insert(0, b'1');
        }
    }
    let point = digits.len() - decimals;
    let text: String = digits.iter().map(|b| char::from(*b)).collect();
    let (whole, fraction) = text.split_at(point);
    if decimals == 0 { whole.to_string() } else { format!("{whole}.{fraction}") }
}

/// A value as the audit shows it in its own tables: up to `decimals` digits after the point.
pub fn show(value: f64, decimals: usize) -> String {
    let digits = digits_of(value.abs(), decimals);
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    if value < 0.0 && digits.chars().any(|c| c.is_ascii_digit() && c != '0') {
        format!("-{digits}")
    } else {
        digits.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, value: f64, expected: bool) {
        let printed = parse(text).unwrap();
        assert_eq!(agrees(&printed, Some(value)), expected, "{text} for {value}");
    }

    /// The two roads share no code, so that the lists stand twice; they must not drift apart.
    #[test]
    fn both_roads_know_the_same_scale_words() {
        let sorted = |words: &[&'static str]| {
            let mut words = words.to_vec();
            words.sort_unstable();
            words
        };
        assert_eq!(sorted(&SCALES), sorted(crate::claims::beside::SCALES));
    }

    #[test]
    fn rounding_is_half_away_and_near_ties_count() {
        check("0.13", 0.125, true);
        check("0.12", 0.125, false);
        check("-0.13", -0.125, true);
        check("\u{2212}0.13", -0.125, true);
        check("0.13", 0.125 - 1e-13, true);
        check("0.12", 0.125 - 1e-11, true);
        check("1.01", 1.005, true);
        check("3", 2.5, true);
        check("10.0", 9.96, true);
        check("0.697", 0.6974, true);
        check("0.698", 0.6974, false);
    }

    #[test]
    fn signs_percent_separators_and_units() {
        check("+0.26", 0.26, true);
        check("-0.26", 0.26, false);
        check("0.26", -0.26, false);
        check("-0.00", -0.001, true);
        check("0.00", -0.001, true);
        check("29%", 0.285, true);
        check("28.5 %", 0.285, true);
        check("12,345 tokens", 12345.0, true);
        check("12345", 12345.4, true);
        check("2.3×", 2.3, true);
        check("230%×", 2.3, true);
        check("0.123456789012", 0.123_456_789_012_3, true);
        check("1.50 ms/token", 1.499_999, true);
        check("00.5", 0.5, true);
        check("0", 0.2, true);
    }

    #[test]
    fn a_bound_is_the_smallest_number_of_its_precision() {
        check("<0.001", 0.0009, true);
        check("< 0.001", 0.000_000_1, true);
        check("<0.01%", 0.000_09, true);
        for value in [0.0, 0.001, 0.0011, -0.0005] {
            check("<0.001", value, false);
        }
        for text in ["<0.5", "<1", "<-0.001", "<0.0010", "<", "<0.011", "<1.001"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn undefined_is_a_dash_and_nothing_else() {
        assert!(agrees(&parse("—").unwrap(), None));
        assert!(!agrees(&parse("—").unwrap(), Some(0.0)));
        assert!(!agrees(&parse("0.00").unwrap(), None));
    }

    #[test]
    fn what_is_no_single_number_is_refused() {
        for text in [
            "",
            "36–45%",
            "0.07 million",
            "3k",
            "7 Percent",
            "2.5x",
            "8 of 11",
            "1,23",
            "0.",
            ".5",
            "a",
            "1.2.3",
            "14% → 36%",
            "+",
            "1e5",
            "5%%",
            "5%×%",
            "5××",
            "5×%",
            "0.1234567890123",
            "10937500000000000000",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_rounded_value_agrees_and_its_neighbour_does_not(value in -1e6f64..1e6, decimals in 0usize..7) {
            // Stay away from ties, where the standard formatter rounds to even.
            let scaled = value.abs() * 10f64.powi(decimals as i32);
            prop_assume!((scaled.fract() - 0.5).abs() > 1e-3);
            let text = format!("{value:.decimals$}");
            prop_assert!(agrees(&parse(&text).unwrap(), Some(value)), "{}", text);
            let next = format!("{:.decimals$}", value.signum() * (value.abs() + 10f64.powi(-(decimals as i32))));
            prop_assert!(!agrees(&parse(&next).unwrap(), Some(value)), "{}", next);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = parse(&text).map(|p| agrees(&p, Some(0.5)));
        }
    }
}
