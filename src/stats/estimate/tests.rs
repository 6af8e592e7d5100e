//! The paired estimate against the reference values, and properties it must have: no dependence
//! on the order of rows, mirrored results for swapped arms, finite numbers.

use super::*;
use crate::stats::fixtures::{DATA_SETS, csv, golden, made, near, numbers, observations};
use crate::stats::{Arm, Observation};
use proptest::prelude::*;

fn of(rows: &[Observation<'_>]) -> Estimate {
    estimate(&Paired::new(rows).unwrap(), &Options::default()).unwrap()
}

fn codes(e: &Estimate) -> Vec<&'static str> {
    e.warnings.iter().map(|w| w.code).collect()
}

#[test]
fn every_reference_data_set_is_met() {
    let golden = golden();
    for name in DATA_SETS {
        let text = csv(name);
        let e = of(&observations(&text));
        let reference = &golden["datasets"][name];
        let number = |path: &[&str]| path.iter().fold(reference, |v, key| &v[*key]).as_f64();
        near(e.delta, number(&["paired", "delta_task_macro"]).unwrap(), 1e-12);
        near(e.base, number(&["arm", "base", "mean_reward_task_macro_paired_tasks"]).unwrap(), 1e-12);
        near(
            e.treatment,
            number(&["arm", "treatment", "mean_reward_task_macro_paired_tasks"]).unwrap(),
            1e-12,
        );
        near(e.se.clone().unwrap(), number(&["paired", "se_task_paired"]).unwrap(), 1e-12);
        assert_eq!(e.df.clone().ok(), number(&["paired", "t_df"]));
        let (t, ends) = (e.t.clone().unwrap(), numbers(&reference["paired"]["ci95_t_task"]));
        near(t.low, ends[0], 1e-9);
        near(t.high, ends[1], 1e-9);
        match number(&["paired", "p_t_task_two_sided"]) {
            Some(p) => near(e.t_p.clone().unwrap(), p, 1e-9),
            None => assert!(e.t_p.is_err()),
        }
        match number(&["mde_80pct_power_alpha05", "value"]) {
            Some(mde) => near(e.mde.clone().unwrap(), mde, 1e-9),
            None => assert!(e.mde.is_err()),
        }
        for (margin, case) in reference["tost_t_task"].as_object().into_iter().flatten() {
            let margin: f64 = margin.parse().unwrap();
            near(equivalence_p(&e, margin).unwrap(), case["p_tost"].as_f64().unwrap(), 1e-9);
            let p = case["p_noninferior_delta_gt_minus_margin"].as_f64().unwrap();
            near(non_inferiority_p(&e, margin).unwrap(), p, 1e-9);
        }
    }
}

#[test]
fn ten_tasks_decide_which_interval_leads() {
    let rows = |n: usize| -> Vec<Observation<'static>> {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let pair = |i: usize| {
            [made(Arm::Base, names[i], 0, 0, 0.0), made(Arm::Treatment, names[i], 0, 0, i as f64 / 10.0)]
        };
        (0..n).flat_map(pair).collect()
    };
    let nine = of(&rows(9));
    assert_eq!(nine.headline.as_ref().unwrap().method, Method::T);
    assert_eq!(nine.headline.as_ref().unwrap().interval, nine.t.clone().unwrap());
    assert_eq!(codes(&nine), ["few_tasks"]);
    let ten = of(&rows(10));
    assert_eq!(ten.headline.unwrap().method, Method::ExpandedPercentile);
    assert!(ten.warnings.is_empty());
}

#[test]
fn zero_variance_has_a_t_interval_of_no_width_and_no_headline() {
    let text = csv("degenerate_all_equal");
    let rows = observations(&text);
    let e = of(&rows);
    assert_eq!(e.t, Ok(Interval { low: 0.0, high: 0.0 }));
    assert!(e.headline.is_err() && e.mde.is_err() && e.t_p.is_err());
    assert_eq!(codes(&e), ["zero_variance", "few_nonzero"]);
    let identical = Options { identical_streams: true, ..Options::default() };
    let e = estimate(&Paired::new(&rows).unwrap(), &identical).unwrap();
    assert_eq!(
        *e.headline.as_ref().unwrap(),
        Headline { method: Method::Identical, interval: Interval { low: 0.0, high: 0.0 } }
    );
    assert!(
        codes(&e).iter().all(|code| !code.ends_with("nonzero") && *code != "zero_variance"),
        "{:?}",
        codes(&e)
    );
}

#[test]
fn one_task_is_a_delta_without_an_interval() {
    let e = of(&[made(Arm::Base, "a", 0, 0, 0.0), made(Arm::Treatment, "a", 0, 0, 1.0)]);
    near(e.delta, 1.0, 0.0);
    assert!(e.se.is_err() && e.t.is_err() && e.headline.is_err() && e.mde.is_err());
    near(e.sign_flip.unwrap().p, 1.0, 0.0);
}

#[test]
fn training_claims_use_t_on_the_two_way_error() {
    let mut rows = Vec::new();
    for (i, task) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rows.push(made(Arm::Base, task, 0, 0, 0.25));
        for s in 0..6 {
            let reward = ((i * 5 + s * 3) % 7) as f64 / 7.0;
            rows.push(Observation { train_seed: Some(s as i64), ..made(Arm::Treatment, task, 0, 0, reward) });
        }
    }
    let paired = Paired::new(&rows).unwrap();
    let options = Options { population: Population::TasksTimesTrainSeeds, ..Options::default() };
    let e = estimate(&paired, &options).unwrap();
    assert_eq!(e.df, Ok(3.0));
    assert_eq!(e.headline.as_ref().unwrap().method, Method::T);
    assert_eq!(e.se.clone().unwrap(), training_seeds::two_way(&paired).unwrap().se);
    assert!(e.sign_flip.is_ok());
    let by_family = Options { weight: Weight::Family, ..options };
    assert!(estimate(&paired, &by_family).is_err());
    assert!(codes(&of(&rows)).contains(&"training_seeds_averaged"));
}

/// Two arms over up to twelve tasks, two seeds and three rollouts, some episodes missing.
fn any_rows() -> impl Strategy<Value = Vec<Observation<'static>>> {
    const TASKS: [&str; 12] =
        ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2", "c/0", "c/1", "c/2", "d/0", "d/1", "d/2"];
    let episode = prop_oneof![1 => Just(None), 6 => (0u32..=4).prop_map(|q| Some(f64::from(q) / 4.0))];
    (2usize..=12, proptest::collection::vec(episode, 12 * 2 * 2 * 3)).prop_map(|(n, rewards)| {
        let mut rows = Vec::new();
        for (i, reward) in rewards.into_iter().enumerate().take(n * 12) {
            let (task, rest) = (TASKS[i / 12], i % 12);
            let arm = if rest < 6 { Arm::Base } else { Arm::Treatment };
            let mut row = made(arm, task, (rest / 3 % 2) as i64, (rest % 3) as i64, 0.0);
            row.family = Some(&task[..1]);
            row.reward = reward;
            row.solved = reward.map(|r| r >= 1.0);
            rows.push(row);
        }
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_order_of_rows_changes_nothing(rows in any_rows(), turn in 0usize..100) {
        let mut turned = rows.clone();
        turned.reverse();
        let by = turn % turned.len();
        turned.rotate_left(by);
        let (a, b) = (Paired::new(&rows), Paired::new(&turned));
        prop_assert_eq!(&a, &b);
        if let Ok(paired) = a {
            let options = Options::default();
            prop_assert_eq!(estimate(&paired, &options), estimate(&b.unwrap(), &options));
        }
    }

    #[test]
    fn swapped_arms_turn_the_sign(rows in any_rows()) {
        let swap = |o: &Observation<'static>| Observation {
            arm: if o.arm == Arm::Base { Arm::Treatment } else { Arm::Base }, ..*o
        };
        let swapped: Vec<_> = rows.iter().map(swap).collect();
        if let (Ok(a), Ok(b)) = (Paired::new(&rows), Paired::new(&swapped)) {
            let (a, b) = (estimate(&a, &Options::default()).unwrap(), estimate(&b, &Options::default()).unwrap());
            prop_assert!((a.delta + b.delta).abs() < 1e-12);
            prop_assert!((a.sign_flip.unwrap().p - b.sign_flip.unwrap().p).abs() < 1e-12);
            prop_assert_eq!(a.t.is_ok(), b.t.is_ok());
            if let (Ok(a), Ok(b)) = (a.t, b.t) {
                prop_assert!((a.low + b.high).abs() < 1e-10 && (a.high + b.low).abs() < 1e-10);
            }
        }
    }

    #[test]
    fn every_number_is_finite_and_the_delta_is_the_difference_of_means(rows in any_rows(), family in any::<bool>()) {
        let weight = if family { Weight::Family } else { Weight::Task };
        if let Ok(paired) = Paired::new(&rows) {
            let e = estimate(&paired, &Options { weight, ..Options::default() }).unwrap();
            prop_assert!((e.treatment - e.base - e.delta).abs() < 1e-12);
            for v in [&e.se, &e.df, &e.t_p, &e.mde].into_iter().flatten() {
                prop_assert!(v.is_finite());
            }
            if let Ok(h) = e.headline {
                prop_assert!(h.interval.low <= e.delta + 1e-9 && h.interval.high >= e.delta - 1e-9);
            }
        }
    }

    #[test]
    fn one_family_weighs_like_its_tasks(rows in any_rows()) {
        let one: Vec<_> = rows.iter().map(|o| Observation { family: Some("only"), ..*o }).collect();
        if let Ok(paired) = Paired::new(&one) {
            let by = |weight| estimate(&paired, &Options { weight, ..Options::default() }).unwrap();
            let (a, b) = (by(Weight::Task), by(Weight::Family));
            prop_assert_eq!((a.delta, a.headline), (b.delta, b.headline));
        }
    }
}
