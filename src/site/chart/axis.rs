//! A linear axis: its domain, its ticks (plotters' key points) and how they are written.

use crate::claims::number::{Style, format};
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;

/// A linear map from values to positions.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    /// An axis that holds every finite value of `values`, with a margin on both sides, drawn from
    /// `start` to `end`.
    pub fn around(values: impl IntoIterator<Item = f64>, start: f64, end: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|v| v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if !(low < high && (high - low).is_finite()) {
            let middle = if low.is_finite() && low == high { low } else { 0.0 };
            (low, high) = (middle - 0.1, middle + 0.1);
        }
        let margin = (high - low) * 0.07;
        Axis { low: low - margin, high: high + margin, start, end }
    }

    /// An axis over exactly `low..high`, drawn from `start` to `end`.
    pub fn exact(low: f64, high: f64, start: f64, end: f64) -> Axis {
        Axis { low, high, start, end }
    }

    /// Where a value is drawn.
    pub fn at(&self, value: f64) -> f64 {
        self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    /// At most `most` ticks with their labels; `sign` puts a plus before positive ones.
    pub fn ticks(&self, most: usize, sign: bool) -> Vec<(f64, String)> {
        let points = RangedCoordf64::from(self.low..self.high).key_points(most);
        let step = match points.as_slice() {
            [a, b, ..] => b - a,
            _ => 1.0,
        };
        let decimals = (-step.abs().log10()).ceil().clamp(0.0, 9.0) as u32;
        // 0.25 needs a digit more than its power of ten tells.
        let exact = |d: u32| {
            let scaled = step * 10f64.powi(d as i32);
            (scaled - scaled.round()).abs() < 1e-6
        };
        let decimals = if exact(decimals) { decimals } else { decimals + 1 };
        let style = Style { plus: sign, ..Style::plain(decimals) };
        points
            .into_iter()
            .map(|p| {
                let label = if p.abs() < step.abs() * 1e-6 { "0".to_string() } else { format(p, &style) };
                (p, label)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_and_signed() {
        let axis = Axis::around([-0.05, 0.42], 0.0, 300.0);
        let labels: Vec<String> = axis.ticks(6, true).into_iter().map(|(_, l)| l).collect();
        assert_eq!(labels, ["0", "+0.1", "+0.2", "+0.3", "+0.4"]);
        let axis = Axis::around([-0.3, 0.0], 0.0, 300.0);
        assert!(axis.ticks(6, true).iter().any(|(_, l)| l == "\u{2212}0.2"));
    }

    #[test]
    fn an_axis_without_values_still_has_a_width() {
        for values in [vec![], vec![0.0], vec![f64::NAN, 0.3]] {
            let axis = Axis::around(values, 10.0, 20.0);
            assert!(axis.at(0.0).is_finite() && !axis.ticks(5, true).is_empty());
        }
    }

    proptest! {
        #[test]
        fn positions_stay_inside(values in prop::collection::vec(-1e6f64..1e6, 1..9)) {
            let axis = Axis::around(values.clone(), 0.0, 100.0);
            for v in values {
                prop_assert!((-1e-6..=100.0 + 1e-6).contains(&axis.at(v)));
            }
            prop_assert!(axis.ticks(6, true).len() <= 6);
        }
    }
}
