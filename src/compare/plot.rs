//! Two small plots in text: the interval against zero, and how the task differences lie. Pure
//! text without colour, so that they read the same in a log.

use crate::stats::SAME;
use crate::stats::rounding::fixed;

/// An axis with zero, the interval and the estimate on it, in lines of at most `width` characters.
pub fn interval(low: f64, high: f64, delta: f64, width: usize) -> Vec<String> {
    let width = width.clamp(30, 76);
    let (least, most) = (low.min(delta).min(0.0), high.max(delta).max(0.0));
    let margin = ((most - least) * 0.08).max(1e-6);
    let (from, to) = (least - margin, most + margin);
    let at = |x: f64| {
        (((x - from) / (to - from)) * (width - 1) as f64).round().clamp(0.0, (width - 1) as f64) as usize
    };
    let mut axis = vec![' '; width];
    axis[at(low)..=at(high)].fill('─');
    axis[at(0.0)] = if (at(low)..=at(high)).contains(&at(0.0)) { '┼' } else { '│' };
    axis[at(low)] = '├';
    axis[at(high)] = '┤';
    axis[at(delta)] = '●';
    let mut labels = vec![' '; width + 8];
    // Zero first: an end whose label would touch one already there goes without.
    for (x, text) in [(0.0, "0".to_owned()), (low, fixed(low, 3, true)), (high, fixed(high, 3, true))] {
        let length = text.chars().count();
        let start = at(x).saturating_sub(length / 2).min(width.saturating_sub(length));
        let (before, after) = (start.saturating_sub(1), (start + length + 1).min(labels.len()));
        if labels[before..after].iter().all(|c| *c == ' ') {
            labels.splice(start..start + length, text.chars());
        }
    }
    [axis, labels].iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
}

/// Task differences in equal steps around zero, one line a step: its range, a bar, the count.
/// Differences of exactly zero have a line of their own.
pub fn histogram(differences: &[f64], width: usize) -> Vec<String> {
    const STEPS: usize = 4;
    let reach = differences.iter().map(|d| d.abs()).fold(0.0, f64::max);
    if reach <= SAME {
        return vec![format!("all {} tasks: no difference", differences.len())];
    }
    let step = reach / STEPS as f64;
    let mut counts = [0usize; 2 * STEPS + 1];
    for d in differences {
        let size = d.abs();
        // Rounding noise must not push a value over the border it lies on.
        let bin = if size <= SAME { 0 } else { (((size - SAME) / step).floor() as usize + 1).min(STEPS) };
        counts[if *d < 0.0 { STEPS - bin } else { STEPS + bin }] += 1;
    }
    let range = |i: usize| {
        let (bin, sign) = (i.abs_diff(STEPS), if i < STEPS { -1.0 } else { 1.0 });
        let (near, far) = ((bin as f64 - 1.0) * step * sign, bin as f64 * step * sign);
        match bin {
            0 => "no difference".to_owned(),
            _ => format!("{} to {}", fixed(near.min(far), 2, true), fixed(near.max(far), 2, true)),
        }
    };
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let room = width.clamp(30, 76).saturating_sub(24);
    let line = |(i, count): (usize, &usize)| {
        let length = if *count == 0 { 0 } else { (count * room).div_ceil(most.max(room)) };
        format!("{:>14}  {}{}{count}", range(i), "█".repeat(length), if length > 0 { " " } else { "" })
    };
    counts.iter().enumerate().rev().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_stands_against_zero() {
        let lines = interval(0.025, 0.1375, 0.083, 60);
        assert_eq!(lines.len(), 2);
        let at = |c: char| lines[0].chars().position(|x| x == c).unwrap();
        assert!(at('│') < at('├') && at('├') < at('●') && at('●') < at('┤'));
        assert!(lines[1].contains('0') && lines[1].contains("+0.025") && lines[1].contains("+0.138"));
        assert!(interval(-0.1, 0.2, 0.05, 60)[0].contains('┼'));
    }

    #[test]
    fn differences_fall_into_their_steps() {
        let lines = histogram(&[1.0, 1.0, 0.0, -0.25, -0.5], 60);
        assert_eq!(lines.len(), 9);
        assert!(lines[0].contains("+0.75 to +1.00") && lines[0].ends_with('2'));
        assert!(lines[4].contains("no difference") && lines[4].ends_with('1'));
        assert!(lines[5].contains("-0.25 to 0.00") && lines[5].ends_with('1'));
        assert!(lines[6].contains("-0.50 to -0.25") && lines[6].ends_with('1'));
        assert_eq!(histogram(&[0.0, 0.0], 60), ["all 2 tasks: no difference"]);
    }

    proptest! {
        #[test]
        fn plots_fit_and_never_panic(d in proptest::collection::vec(-1.0f64..=1.0, 1..50), low in -1.0f64..1.0, span in 0.0f64..1.0, width in 0usize..300) {
            for line in interval(low, low + span, low + span / 2.0, width).iter().chain(&histogram(&d, width)) {
                prop_assert!(line.chars().count() <= 90);
            }
        }
    }
}
