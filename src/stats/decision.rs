//! Decision rules: estimates in, an outcome with its legs out. The outcome is computed and
//! cannot be edited; each leg says what it compared.

use serde::{Deserialize, Serialize};

/// What a three-way rule concludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every leg holds.
    Positive,
    /// The interval excludes even the smallest gain that counts.
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

/// The three-way rule. Positive: every event's change reaches `minimum_delta`, the pooled
/// interval lies above 0, and `minimum_delta` exceeds the spread of base against base where
/// that was measured. Negative: the interval's upper end lies below `minimum_delta`.
/// Otherwise inconclusive.
pub fn three_way(
    events: &[(String, Option<f64>)],
    pooled: Pooled,
    minimum_delta: f64,
    null_spread: Option<f64>,
) -> Decision {
    let mut legs: Vec<Leg> = events
        .iter()
        .map(|(label, delta)| Leg {
            asks: format!("the change on event {label} is at least the smallest gain that counts"),
            value: *delta,
            bar: minimum_delta,
            holds: delta.map(|d| d >= minimum_delta),
        })
        .collect();
    legs.push(Leg {
        asks: "the lower end of the pooled interval lies above zero".into(),
        value: pooled.low,
        bar: 0.0,
        holds: pooled.low.map(|low| low > 0.0),
    });
    if let Some(spread) = null_spread {
        legs.push(Leg {
            asks: "the spread of base against base stays below the smallest gain that counts".into(),
            value: Some(spread),
            bar: minimum_delta,
            holds: Some(spread < minimum_delta),
        });
    }
    let outcome = if !events.is_empty() && legs.iter().all(|leg| leg.holds == Some(true)) {
        Outcome::Positive
    } else if pooled.high.is_some_and(|high| high < minimum_delta) {
        Outcome::Negative
    } else {
        Outcome::Inconclusive
    };
    if outcome != Outcome::Positive {
        legs.push(Leg {
            asks: "the upper end of the pooled interval lies below the smallest gain that counts, which alone makes it negative".into(),
            value: pooled.high,
            bar: minimum_delta,
            holds: pooled.high.map(|high| high < minimum_delta),
        });
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
mod tests {
    use super::*;

    fn decide(a: f64, b: f64, low: Option<f64>, high: Option<f64>, null: Option<f64>) -> Outcome {
        let events = [("1".to_string(), Some(a)), ("2".to_string(), Some(b))];
        three_way(
            &events,
            Pooled { delta: Some((a + b) / 2.0), low, high, tasks: 100, moved: 50 },
            0.03,
            null,
        )
        .outcome
    }

    #[test]
    fn the_three_outcomes_and_their_borders() {
        assert_eq!(decide(0.2, 0.3, Some(0.1), Some(0.4), None), Outcome::Positive);
        assert_eq!(decide(0.2, 0.02, Some(0.1), Some(0.4), None), Outcome::Inconclusive);
        assert_eq!(decide(0.2, 0.3, Some(0.0), Some(0.4), None), Outcome::Inconclusive);
        assert_eq!(decide(-0.2, 0.0, Some(-0.3), Some(0.029), None), Outcome::Negative);
        assert_eq!(decide(-0.2, 0.0, Some(-0.3), Some(0.03), None), Outcome::Inconclusive);
        assert_eq!(decide(0.2, 0.3, Some(0.1), Some(0.4), Some(0.05)), Outcome::Inconclusive);
        assert_eq!(decide(0.2, 0.3, None, None, None), Outcome::Inconclusive);
    }

    #[test]
    fn no_event_is_never_positive() {
        let d = three_way(
            &[],
            Pooled { delta: Some(0.5), low: Some(0.4), high: Some(0.6), tasks: 9, moved: 9 },
            0.03,
            None,
        );
        assert_eq!(d.outcome, Outcome::Inconclusive);
    }
}
