//! Two small plots in text: the interval against zero, and how the task differences lie. Pure
//! text without colour, so that they read the same in a log.

use crate::stats::SAME;
use crate::stats::counted;
use crate::stats::rounding::fixed;

/// An axis with the interval and the estimate on it, zero above it and both ends' labels below, in
/// lines of at most `width` characters (30 to 76).
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
    let (left, right) = (fixed(low, 3, true), fixed(high, 3, true));
    // Each label under its end; where they would touch, the left one gives way to the left.
    let centred = |x: f64, text: &str| at(x).saturating_sub(text.len() / 2);
    let first = centred(low, &left);
    let second = centred(high, &right).max(first + left.len() + 2).min(width.saturating_sub(right.len()));
    let first = first.min(second.saturating_sub(left.len() + 2));
    let labels = format!("{:first$}{left}", "");
    let gap = second.saturating_sub(labels.len()).max(1);
    let labels = format!("{labels}{:gap$}{right}", "");
    let zero = format!("{:1$}0", "", at(0.0));
    let axis: String = axis.into_iter().collect();
    vec![zero, axis.trim_end().to_owned(), labels]
}

/// How many values a histogram lists singly; more of them fall into steps.
const LISTED: usize = 9;

/// Task differences from the greatest to the least, one line a value where there are few of them,
/// else one line a step: the value or range, a bar, the count. No difference has its own line.
pub fn histogram(differences: &[f64], width: usize) -> Vec<String> {
    if differences.iter().all(|d| d.abs() <= SAME) {
        return vec![match differences.len() {
            1 => "the one task: no difference".to_owned(),
            n => format!("all {}: no difference", counted(n, "task")),
        }];
    }
    let lines = values(differences).unwrap_or_else(|| steps(differences));
    let label = lines.iter().map(|l| l.0.chars().count()).max().unwrap_or(0);
    let digits = lines.iter().map(|l| l.1.to_string().len()).max().unwrap_or(0);
    let room = width.clamp(30, 76).saturating_sub(label + digits + 3).max(1);
    let most = lines.iter().map(|l| l.1).max().unwrap_or(1);
    let line = |(text, count): &(String, usize)| {
        let length = (count * room).div_ceil(most.max(room));
        format!("{text:>label$}  {}{}{count}", "█".repeat(length), if length > 0 { " " } else { "" })
    };
    lines.iter().map(line).collect()
}

/// The distinct values with their counts; `None` where they are many.
fn values(differences: &[f64]) -> Option<Vec<(String, usize)>> {
    let mut sorted = differences.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut distinct: Vec<(f64, usize)> = Vec::new();
    for d in sorted {
        if let Some((value, count)) = distinct.last_mut()
            && (*value - d).abs() <= SAME
        {
            *count += 1;
        } else if distinct.len() == LISTED {
            return None;
        } else {
            distinct.push((d, 1));
        }
    }
    let decimals = told_apart(3, distinct.iter().map(|d| d.0));
    let name = |value: f64| {
        if value.abs() <= SAME { "no difference".to_owned() } else { fixed(value, decimals, true) }
    };
    Some(distinct.into_iter().map(|(value, count)| (name(value), count)).collect())
}

/// Equal steps around zero with their counts, without the empty ones at either end.
fn steps(differences: &[f64]) -> Vec<(String, usize)> {
    const STEPS: usize = 4;
    let reach = differences.iter().map(|d| d.abs()).fold(0.0, f64::max);
    let step = reach / STEPS as f64;
    let mut counts = [0usize; 2 * STEPS + 1];
    for d in differences {
        let size = d.abs();
        // Rounding noise must not push a value over the border it lies on.
        let bin = if size <= SAME { 0 } else { (((size - SAME) / step).floor() as usize + 1).min(STEPS) };
        counts[if *d < 0.0 { STEPS - bin } else { STEPS + bin }] += 1;
    }
    let decimals = told_apart(2, (0..=STEPS).rev().map(|i| i as f64 * step));
    let range = |i: usize| {
        let (bin, sign) = (i.abs_diff(STEPS), if i < STEPS { -1.0 } else { 1.0 });
        let (near, far) = ((bin as f64 - 1.0) * step * sign, bin as f64 * step * sign);
        match bin {
            0 => "no difference".to_owned(),
            _ => format!(
                "{} to {}",
                fixed(near.min(far), decimals, true),
                fixed(near.max(far), decimals, true)
            ),
        }
    };
    let first = counts.iter().position(|c| *c > 0).unwrap_or(0);
    let last = counts.iter().rposition(|c| *c > 0).unwrap_or(0);
    (first..=last).rev().map(|i| (range(i), counts[i])).collect()
}

/// The fewest decimals, from `least` on, at which falling values still print differently; at most 9.
fn told_apart(least: u32, values: impl Iterator<Item = f64>) -> u32 {
    let values: Vec<f64> = values.collect();
    let apart = |d: &u32| values.windows(2).all(|pair| fixed(pair[0], *d, true) != fixed(pair[1], *d, true));
    (least..9).find(apart).unwrap_or(9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(line: &str, c: char) -> usize {
        line.chars().position(|x| x == c).unwrap()
    }

    #[test]
    fn the_interval_stands_against_zero() {
        let lines = interval(0.025, 0.1375, 0.083, 60);
        assert_eq!(lines.len(), 3);
        let at = |c: char| column(&lines[1], c);
        assert!(at('│') < at('├') && at('├') < at('●') && at('●') < at('┤'));
        assert_eq!(column(&lines[0], '0'), at('│'));
        assert!(lines[2].contains("+0.025") && lines[2].contains("+0.138"));
        assert!(interval(-0.1, 0.2, 0.05, 60)[1].contains('┼'));
    }

    #[test]
    fn zero_at_an_end_and_a_narrow_interval_keep_their_labels() {
        let touching = interval(0.0, 0.5, 0.25, 60);
        assert_eq!(column(&touching[0], '0'), column(&touching[1], '├'));
        assert_eq!(touching[2].split_whitespace().collect::<Vec<_>>(), ["0.000", "+0.500"]);
        let narrow = interval(0.98, 0.99, 0.985, 40);
        assert_eq!(narrow[2].split_whitespace().collect::<Vec<_>>(), ["+0.980", "+0.990"]);
    }

    #[test]
    fn few_values_are_listed() {
        let lines = histogram(&[1.0, 1.0, 0.0, -0.25, -0.5], 60);
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("+1.000") && lines[0].ends_with('2'));
        assert!(lines[1].contains("no difference") && lines[3].contains("-0.500"));
        let close = histogram(&[0.0001, 0.0002], 60);
        assert!(close[0].contains("+0.0002") && close[1].contains("+0.0001"));
        assert_eq!(histogram(&[0.0, 0.0], 60), ["all 2 tasks: no difference"]);
        assert_eq!(histogram(&[0.0], 60), ["the one task: no difference"]);
    }

    #[test]
    fn many_values_fall_into_steps_without_empty_tails() {
        let many: Vec<f64> = (0..=10).map(|i| f64::from(i) / 10.0).collect();
        let lines = histogram(&many, 60);
        assert_eq!(lines.len(), 5);
        assert!(lines[0].contains("+0.75 to +1.00") && lines[0].ends_with('3'));
        assert!(lines[4].contains("no difference") && lines[4].ends_with('1'));
        let below: Vec<f64> = many.iter().map(|d| -d).collect();
        assert!(histogram(&below, 60)[4].contains("-1.00 to -0.75"));
    }

    proptest! {
        #[test]
        fn plots_fit_and_show_every_mark(d in proptest::collection::vec(-1.0f64..=1.0, 1..50), low in -1.0f64..1.0, span in 0.0f64..1.0, width in 0usize..300) {
            let plot = interval(low, low + span, low + span / 2.0, width);
            for line in plot.iter().chain(&histogram(&d, width)) {
                prop_assert!(line.chars().count() <= width.clamp(30, 76), "{}", line);
            }
            let labels = [fixed(low, 3, true), fixed(low + span, 3, true)];
            prop_assert_eq!(plot[2].split_whitespace().collect::<Vec<_>>(), labels.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(plot[0].ends_with('0'));
        }

        #[test]
        fn every_task_is_counted(d in proptest::collection::vec(-4i32..=4, 1..60)) {
            let d: Vec<f64> = d.iter().map(|i| f64::from(*i) / 4.0).collect();
            let count = |line: &String| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap_or(d.len());
            prop_assert_eq!(histogram(&d, 60).iter().map(count).sum::<usize>(), d.len());
        }
    }
}
