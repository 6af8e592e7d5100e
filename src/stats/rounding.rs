//! How a number becomes printed text: rounded half away from zero, where a value within 1e-12
//! of a tie counts as the tie, so that 0.125 held as 0.12499999999999999 still prints as 0.13.

/// `value` rounded to `decimals` places, half away from zero, near-ties included.
pub fn round_half_away(value: f64, decimals: u32) -> f64 {
    let scale = 10f64.powi(decimals.min(300) as i32);
    let scaled = value.abs() * scale;
    // From 2^52 on every f64 is whole: there is nothing left to round.
    if !scaled.is_finite() || scaled >= 4_503_599_627_370_496.0 {
        return value;
    }
    // Beyond ten places 1e-12 would swallow the digit itself.
    let slack = (1e-12 * scale).min(0.01);
    let whole = scaled.floor();
    let magnitude = if scaled - whole >= 0.5 - slack { whole + 1.0 } else { whole };
    let rounded = magnitude / scale;
    if value < 0.0 && rounded != 0.0 { -rounded } else { rounded }
}

/// `value` rounded and written with exactly `decimals` places; `plus` writes `+` before a
/// positive number. What rounds to zero has no sign.
pub fn fixed(value: f64, decimals: u32, plus: bool) -> String {
    let rounded = round_half_away(value, decimals);
    let sign = if plus && rounded > 0.0 { "+" } else { "" };
    format!("{sign}{rounded:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_away_from_zero() {
        for (value, decimals, text) in [
            (0.125, 2, "0.13"),
            (-0.125, 2, "-0.13"),
            (0.125 - 1e-13, 2, "0.13"),
            (0.125 - 1e-11, 2, "0.12"),
            (1.005, 2, "1.01"),
            (2.5, 0, "3"),
            (-0.001, 2, "0.00"),
            (0.0, 3, "0.000"),
            (1e300, 2, &format!("{:.2}", 1e300)),
        ] {
            assert_eq!(fixed(value, decimals, false), text, "{value}");
        }
        assert_eq!(fixed(0.2, 2, true), "+0.20");
        assert_eq!(fixed(-0.2, 2, true), "-0.20");
        assert_eq!(fixed(0.0001, 2, true), "0.00");
    }

    proptest! {
        #[test]
        fn rounding_is_odd_idempotent_and_near(value in -1e6f64..1e6, decimals in 0u32..7) {
            let r = round_half_away(value, decimals);
            prop_assert_eq!(r, -round_half_away(-value, decimals));
            prop_assert_eq!(r, round_half_away(r, decimals));
            prop_assert!((r - value).abs() <= 0.5 * 10f64.powi(-(decimals as i32)) + 1e-9);
        }
    }
}
