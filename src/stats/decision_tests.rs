//! The borders of the three rules, what an undefined interval decides (nothing), and decisions on
//! estimates of made-up task differences.

use super::*;
use crate::stats::estimate::{equivalence_p, non_inferiority_p, non_superiority_p, t_interval};

fn decide(a: f64, b: f64, low: Option<f64>, high: Option<f64>, null: Option<f64>) -> Outcome {
    let events = [("1".to_string(), Some(a)), ("2".to_string(), Some(b))];
    three_way(&events, Pooled { delta: Some((a + b) / 2.0), low, high, tasks: 100, moved: 50 }, 0.03, null)
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

/// The estimate of these task differences.
fn estimated(differences: &[f64], identical_streams: bool) -> Estimate {
    use crate::stats::fixtures::made;
    use crate::stats::{Arm, Options, Paired, estimate};
    let names: Vec<String> = (0..differences.len()).map(|i| format!("t{i:02}")).collect();
    let rows = names.iter().zip(differences).flat_map(|(name, d)| {
        let name: &'static str = Box::leak(name.clone().into_boxed_str());
        [made(Arm::Base, name, 1, 0, 0.25), made(Arm::Treatment, name, 1, 0, 0.25 + d)]
    });
    let paired = Paired::new(&rows.collect::<Vec<_>>()).unwrap();
    estimate(&paired, &Options { identical_streams, ..Options::default() }).unwrap()
}

/// What follows from them by the three-way rule.
fn decide_on(differences: &[f64], identical_streams: bool) -> Decision {
    let e = estimated(differences, identical_streams);
    three_way(&[("1".into(), Some(e.delta))], Pooled::of(Some(&e)), 0.03, Some(0.0))
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

fn pooled(low: f64, high: f64) -> Pooled {
    Pooled { delta: Some((low + high) / 2.0), low: Some(low), high: Some(high), tasks: 50, moved: 20 }
}

const UNDEFINED: Pooled = Pooled { delta: Some(0.1), low: None, high: None, tasks: 40, moved: 40 };

#[test]
fn non_inferiority_and_its_borders() {
    for (low, high, outcome) in [
        (-0.019, 0.2, Outcome::Positive),
        // On the margin it may be worse by as much as that.
        (-0.02, 0.2, Outcome::Inconclusive),
        (-0.02 + 1e-13, 0.2, Outcome::Inconclusive),
        (-0.3, -0.02, Outcome::Inconclusive),
        (-0.3, -0.02 - 1e-13, Outcome::Inconclusive),
        (-0.3, -0.021, Outcome::Negative),
        // Worse for sure, and yet by less than the margin.
        (-0.015, -0.005, Outcome::Positive),
        // No gain is needed, and a large one is no harm.
        (0.3, 0.4, Outcome::Positive),
        (-0.5, 0.5, Outcome::Inconclusive),
    ] {
        assert_eq!(non_inferiority(pooled(low, high), 0.02, None).outcome, outcome, "{low} {high}");
    }
    let d = non_inferiority(pooled(-0.3, -0.1), 0.02, Some(0.9));
    let legs: Vec<_> = d.legs.iter().map(|l| (l.value, l.bar, l.holds, l.p)).collect();
    assert_eq!(legs, [(Some(-0.3), -0.02, Some(false), Some(0.9)), (Some(-0.1), -0.02, Some(true), None)]);
    assert_eq!(d.for_positive().len(), 1);
    assert!(d.legs.iter().all(|leg| leg.asks.contains("minus the margin") && !leg.asks.contains("gain")));
    let d = non_inferiority(UNDEFINED, 0.02, None);
    assert_eq!(d.outcome, Outcome::Inconclusive);
    assert!(d.legs.iter().all(|leg| leg.value.is_none() && leg.holds.is_none() && leg.p.is_none()));
}

#[test]
fn equivalence_and_its_borders() {
    let decide = |ninety: (f64, f64), all: (f64, f64)| {
        let ninety = Interval { low: ninety.0, high: ninety.1 };
        equivalence(pooled(all.0, all.1), Some(ninety), 0.05, [None, None]).outcome
    };
    for (ninety, all, outcome) in [
        ((-0.049, 0.049), (-0.06, 0.06), Outcome::Positive),
        ((-0.05, 0.04), (-0.06, 0.06), Outcome::Inconclusive),
        ((-0.04, 0.05), (-0.06, 0.06), Outcome::Inconclusive),
        ((0.06, 0.09), (0.051, 0.1), Outcome::Negative),
        ((0.06, 0.09), (0.05, 0.1), Outcome::Inconclusive),
        ((-0.09, -0.06), (-0.1, -0.051), Outcome::Negative),
        ((-0.09, -0.06), (-0.1, -0.05), Outcome::Inconclusive),
        // Wholly inside, on one side of zero: a difference that does not matter.
        ((0.01, 0.04), (0.005, 0.045), Outcome::Positive),
        ((-0.2, 0.2), (-0.3, 0.3), Outcome::Inconclusive),
    ] {
        assert_eq!(decide(ninety, all), outcome, "{ninety:?} {all:?}");
    }
    let ninety = Some(Interval { low: -0.2, high: -0.1 });
    let d = equivalence(pooled(-0.25, -0.08), ninety, 0.05, [Some(0.99), Some(0.001)]);
    let legs: Vec<_> = d.legs.iter().map(|l| (l.value, l.bar, l.holds, l.p)).collect();
    assert_eq!(
        legs,
        [
            (Some(-0.2), -0.05, Some(false), Some(0.99)),
            (Some(-0.1), 0.05, Some(true), Some(0.001)),
            (Some(0.08), 0.05, Some(true), None),
        ]
    );
    assert_eq!((d.outcome, d.for_positive().len()), (Outcome::Negative, 2));
    // An interval that holds zero allows no change at all.
    assert_eq!(equivalence(pooled(-0.2, 0.1), ninety, 0.05, [None, None]).legs[2].value, Some(0.0));
    let d = equivalence(UNDEFINED, None, 0.05, [None, None]);
    assert_eq!(d.outcome, Outcome::Inconclusive);
    assert!(d.legs.iter().all(|leg| leg.value.is_none() && leg.holds.is_none()));
}

/// The 90% interval lies inside the margin exactly where both one-sided tests reach .05.
#[test]
fn interval_and_tests_of_equivalence_agree() {
    let differences: Vec<f64> = (0..20).map(|i| f64::from(i % 5) * 0.02 - 0.03).collect();
    let e = estimated(&differences, false);
    let ninety = t_interval(&e, 0.9).unwrap();
    let edge = ninety.high.max(-ninety.low);
    for (margin, inside) in [(edge * 1.001, true), (edge * 0.999, false)] {
        assert_eq!(equivalence_p(&e, margin).unwrap() < 0.05, inside, "{margin}");
        let p = [non_inferiority_p(&e, margin).ok(), non_superiority_p(&e, margin).ok()];
        let d = equivalence(Pooled::of(Some(&e)), Some(ninety), margin, p);
        assert_eq!(d.outcome == Outcome::Positive, inside, "{margin}");
    }
    // Where both arms wrote the same tokens nothing differed, exactly; equal scores alone show nothing.
    assert_eq!(t_interval(&estimated(&[0.0; 12], true), 0.9).unwrap(), Interval { low: 0.0, high: 0.0 });
    assert!(t_interval(&estimated(&[0.0; 12], false), 0.9).is_err());
    assert!(non_superiority_p(&estimated(&[0.25; 12], false), 0.1).is_err());
}
