//! Decision rules: estimates in, an outcome with its legs out. The outcome is computed and
//! cannot be edited; each leg says what it compared.

use super::{Estimate, Interval, SAME};
use serde::{Deserialize, Serialize};

/// What a rule concludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What the rule asks for is shown.
    Positive,
    /// The interval excludes it.
    Negative,
    /// Neither.
    Inconclusive,
}

impl Outcome {
    /// As written on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Positive => "positive",
            Outcome::Negative => "negative",
            Outcome::Inconclusive => "inconclusive",
        }
    }
}

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// What is asked.
    pub asks: String,
    /// The number that was compared; null when undefined.
    pub value: Option<f64>,
    /// What it was compared with.
    pub bar: f64,
    /// Whether it holds; null when the number is undefined.
    pub holds: Option<bool>,
    /// p value of the one-sided t test of the same question, where the rule has one and it is defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

impl Leg {
    fn new(asks: impl Into<String>, value: Option<f64>, bar: f64, holds: impl Fn(f64) -> bool) -> Leg {
        Leg { asks: asks.into(), value, bar, holds: value.map(holds), p: None }
    }

    fn with_p(self, p: Option<f64>) -> Leg {
        Leg { p, ..self }
    }
}

/// A rule's outcome and how it came about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The conclusion.
    pub outcome: Outcome,
    /// Every condition, in order.
    pub legs: Vec<Leg>,
    /// Estimate of the change over all events.
    pub delta: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// Paired tasks.
    pub tasks: usize,
    /// Paired tasks whose scores differ: where few move, no interval keeps its level.
    pub moved: usize,
}

impl Decision {
    /// The legs that a positive outcome needs; the one that alone makes it negative stands after them.
    pub fn for_positive(&self) -> &[Leg] {
        let negative = usize::from(self.outcome != Outcome::Positive);
        &self.legs[..self.legs.len().saturating_sub(negative)]
    }
}

/// The pooled change with its headline interval; ends are null where undefined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pooled {
    /// Mean over tasks of treatment minus base.
    pub delta: Option<f64>,
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Paired tasks.
    pub tasks: usize,
    /// Paired tasks whose scores differ.
    pub moved: usize,
}

impl Pooled {
    /// Of an estimate; nothing is known where there is none.
    pub fn of(estimate: Option<&Estimate>) -> Pooled {
        let interval = estimate.and_then(|e| e.headline.as_ref().ok()).map(|headline| headline.interval);
        Pooled {
            delta: estimate.map(|e| e.delta),
            low: interval.map(|i| i.low),
            high: interval.map(|i| i.high),
            tasks: estimate.map_or(0, |e| e.tasks),
            moved: estimate.map_or(0, |e| e.nonzero_differences),
        }
    }
}

/// The three-way rule. Positive: every event's change reaches `minimum_delta`, the pooled
/// interval lies above 0, and `minimum_delta` exceeds the spread of base against base where
/// that was measured. Negative: the interval's upper end lies below `minimum_delta`.
/// Otherwise inconclusive. Numbers within [`SAME`] count as equal: `0.7 - 0.4` is a gain of `0.3`.
pub fn three_way(
    events: &[(String, Option<f64>)],
    pooled: Pooled,
    minimum_delta: f64,
    null_spread: Option<f64>,
) -> Decision {
    let mut legs: Vec<Leg> = events
        .iter()
        .map(|(label, delta)| {
            let asks = format!("the change on event {label} is at least the smallest gain that counts");
            Leg::new(asks, *delta, minimum_delta, |delta| delta >= minimum_delta - SAME)
        })
        .collect();
    let above_zero = "the lower end of the pooled interval lies above zero";
    legs.push(Leg::new(above_zero, pooled.low, 0.0, |low| low > SAME));
    if let Some(spread) = null_spread {
        let asks = "the spread of base against base stays below the smallest gain that counts";
        legs.push(Leg::new(asks, Some(spread), minimum_delta, |spread| spread < minimum_delta - SAME));
    }
    let negative = Leg::new(
        "the upper end of the pooled interval lies below the smallest gain that counts, which alone makes it negative",
        pooled.high,
        minimum_delta,
        |high| high < minimum_delta - SAME,
    );
    // Without an event the rule asks for nothing, and nothing is shown.
    let shown = !events.is_empty() && legs.iter().all(|leg| leg.holds == Some(true));
    conclude(shown, legs, negative, pooled)
}

/// Non-inferiority: the treatment is not worse by as much as `margin`. Positive: the lower end of the pooled
/// interval lies above −margin. Negative: its upper end lies below −margin. Otherwise inconclusive. `p` is that of
/// the t test against −margin, one-sided.
pub fn non_inferiority(pooled: Pooled, margin: f64, p: Option<f64>) -> Decision {
    let not_worse = Leg::new(
        "the lower end of the pooled interval lies above minus the margin: not worse by as much as that",
        pooled.low,
        -margin,
        |low| low > -margin + SAME,
    );
    let negative = Leg::new(
        "the upper end of the pooled interval lies below minus the margin, which alone makes it negative",
        pooled.high,
        -margin,
        |high| high < -margin - SAME,
    );
    let shown = not_worse.holds == Some(true);
    conclude(shown, vec![not_worse.with_p(p)], negative, pooled)
}

/// Equivalence by two one-sided tests (Schuirmann 1987): the arms differ by less than `margin`. Positive: the 90% t
/// interval lies inside ±margin. Negative: the pooled 95% interval lies wholly outside. Otherwise inconclusive.
/// `p` is that of the t tests against −margin and +margin.
pub fn equivalence(pooled: Pooled, ninety: Option<Interval>, margin: f64, p: [Option<f64>; 2]) -> Decision {
    let above = Leg::new(
        "the lower end of the 90% t interval lies above minus the margin",
        ninety.map(|i| i.low),
        -margin,
        |low| low > -margin + SAME,
    );
    let below = Leg::new(
        "the upper end of the 90% t interval lies below the margin",
        ninety.map(|i| i.high),
        margin,
        |high| high < margin - SAME,
    );
    // Of all changes in the interval the smallest, up or down; 0 where the interval holds 0.
    let smallest = pooled.low.zip(pooled.high).map(|(low, high)| low.max(-high).max(0.0));
    let negative = Leg::new(
        "the smallest change, up or down, in the pooled interval is larger than the margin, which alone makes it negative",
        smallest,
        margin,
        |smallest| smallest > margin + SAME,
    );
    let shown = above.holds == Some(true) && below.holds == Some(true);
    conclude(shown, vec![above.with_p(p[0]), below.with_p(p[1])], negative, pooled)
}

/// Positive where everything asked for is shown; else negative where that leg holds, and the leg stands last.
fn conclude(shown: bool, mut legs: Vec<Leg>, negative: Leg, pooled: Pooled) -> Decision {
    let outcome = match (shown, negative.holds) {
        (true, _) => Outcome::Positive,
        (false, Some(true)) => Outcome::Negative,
        _ => Outcome::Inconclusive,
    };
    if outcome != Outcome::Positive {
        legs.push(negative);
    }
    Decision {
        outcome,
        legs,
        delta: pooled.delta,
        low: pooled.low,
        high: pooled.high,
        tasks: pooled.tasks,
        moved: pooled.moved,
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
