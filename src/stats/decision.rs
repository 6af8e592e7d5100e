//! Decision rules: estimates in, an outcome with its legs out. The outcome is computed and
//! cannot be edited; each leg says what it compared.

use super::SAME;
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

impl Decision {
    /// The legs that a positive outcome needs; the one that alone makes it negative stands after them.
    pub fn for_gain(&self) -> &[Leg] {
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
        .map(|(label, delta)| Leg {
            asks: format!("the change on event {label} is at least the smallest gain that counts"),
            value: *delta,
            bar: minimum_delta,
            holds: delta.map(|d| d >= minimum_delta - SAME),
        })
        .collect();
    legs.push(Leg {
        asks: "the lower end of the pooled interval lies above zero".into(),
        value: pooled.low,
        bar: 0.0,
        holds: pooled.low.map(|low| low > SAME),
    });
    if let Some(spread) = null_spread {
        legs.push(Leg {
            asks: "the spread of base against base stays below the smallest gain that counts".into(),
            value: Some(spread),
            bar: minimum_delta,
            holds: Some(spread < minimum_delta - SAME),
        });
    }
    let outcome = if !events.is_empty() && legs.iter().all(|leg| leg.holds == Some(true)) {
        Outcome::Positive
    } else if pooled.high.is_some_and(|high| high < minimum_delta - SAME) {
        Outcome::Negative
    } else {
        Outcome::Inconclusive
    };
    if outcome != Outcome::Positive {
        legs.push(Leg {
            asks: "the upper end of the pooled interval lies below the smallest gain that counts, which alone makes it negative".into(),
            value: pooled.high,
            bar: minimum_delta,
            holds: pooled.high.map(|high| high < minimum_delta - SAME),
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
    fn the_null_spread_bars_a_gain_it_could_have_made() {
        // Everything else speaks for a gain; the smallest gain that counts is 0.03.
        for (spread, outcome) in [
            (0.0, Outcome::Positive),
            (0.029, Outcome::Positive),
            (0.03, Outcome::Inconclusive),
            (0.5, Outcome::Inconclusive),
        ] {
            assert_eq!(decide(0.2, 0.3, Some(0.1), Some(0.4), Some(spread)), outcome, "{spread}");
        }
        // It bars a gain only: that a gain is excluded stands whatever the spread.
        assert_eq!(decide(-0.2, 0.0, Some(-0.3), Some(0.02), Some(0.5)), Outcome::Negative);
    }

    #[test]
    fn the_null_spread_has_a_leg_only_where_it_was_measured() {
        let events = [("1".to_string(), Some(0.2))];
        let pooled = Pooled { delta: Some(0.2), low: Some(0.1), high: Some(0.3), tasks: 9, moved: 9 };
        let legs = |null| three_way(&events, pooled, 0.03, null).legs;
        assert_eq!(legs(None).len(), 2);
        let measured = legs(Some(0.03));
        let leg = measured.iter().find(|l| l.asks.contains("base against base")).unwrap();
        assert_eq!((leg.value, leg.bar, leg.holds), (Some(0.03), 0.03, Some(false)));
    }

    #[test]
    fn an_undefined_interval_decides_nothing() {
        for delta in [Some(0.5), Some(-0.5), Some(0.0), None] {
            let events = [("1".to_string(), delta)];
            let pooled = Pooled { delta, low: None, high: None, tasks: 40, moved: 40 };
            for null in [None, Some(0.0), Some(1.0)] {
                let d = three_way(&events, pooled, 0.03, null);
                assert_eq!(d.outcome, Outcome::Inconclusive, "{delta:?} {null:?}");
                let open: Vec<_> = d.legs.iter().filter(|l| l.asks.contains("pooled interval")).collect();
                // Neither end is called above or below anything.
                assert_eq!(open.len(), 2);
                assert!(open.iter().all(|l| l.value.is_none() && l.holds.is_none()));
            }
        }
    }

    /// The pooled change of these task differences, as `estimate` gives it, and what follows.
    fn decide_on(differences: &[f64], identical_streams: bool) -> Decision {
        use crate::stats::fixtures::made;
        use crate::stats::{Arm, Options, Paired, estimate};
        let names: Vec<String> = (0..differences.len()).map(|i| format!("t{i:02}")).collect();
        let rows = names.iter().zip(differences).flat_map(|(name, d)| {
            let name: &'static str = Box::leak(name.clone().into_boxed_str());
            [made(Arm::Base, name, 1, 0, 0.25), made(Arm::Treatment, name, 1, 0, 0.25 + d)]
        });
        let paired = Paired::new(&rows.collect::<Vec<_>>()).unwrap();
        let e = estimate(&paired, &Options { identical_streams, ..Options::default() }).unwrap();
        let interval = e.headline.as_ref().ok().map(|h| h.interval);
        let pooled = Pooled {
            delta: Some(e.delta),
            low: interval.map(|i| i.low),
            high: interval.map(|i| i.high),
            tasks: e.tasks,
            moved: e.nonzero_differences,
        };
        three_way(&[("1".into(), Some(e.delta))], pooled, 0.03, Some(0.0))
    }

    #[test]
    fn equal_differences_decide_nothing_unless_the_arms_are_one() {
        // All tasks gain, or lose, the same: no spread, so no interval and no conclusion.
        for same in [0.5, -0.25, 0.0] {
            let d = decide_on(&[same; 12], false);
            assert_eq!((d.outcome, d.low, d.high), (Outcome::Inconclusive, None, None), "{same}");
        }
        // The same tokens in both arms: exactly nothing differed, and a gain is excluded.
        let d = decide_on(&[0.0; 12], true);
        assert_eq!((d.outcome, d.low, d.high, d.moved), (Outcome::Negative, Some(0.0), Some(0.0), 0));
        // A single task has no spread either.
        assert_eq!(decide_on(&[0.5], false).outcome, Outcome::Inconclusive);
        // With a spread the same mean does decide.
        let mixed: Vec<f64> = (0..12).map(|i| if i % 2 == 0 { 0.4 } else { 0.6 }).collect();
        assert_eq!(decide_on(&mixed, false).outcome, Outcome::Positive);
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
