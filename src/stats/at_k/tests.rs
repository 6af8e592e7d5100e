//! Reference values, closed forms and whole-number counting against the two statistics at k.

use super::*;
use crate::stats::fixtures::{DATA_SETS, csv, golden, made, near, numbers, observations};
use proptest::prelude::*;

#[test]
fn tables_match_the_reference() {
    let golden = golden();
    for row in golden["pass_at_k_table"].as_array().expect("a list") {
        let count = |key: &str| row[key].as_u64().expect("a count") as usize;
        let ours = pass_at_k(count("n"), count("c"), count("k"));
        match row["pass_at_k"].as_f64() {
            Some(value) => near(ours.unwrap(), value, 1e-12),
            None => assert!(ours.is_err()),
        }
    }
    for row in golden["best_at_k_table"].as_array().expect("a list") {
        let ours = best_at_k(&numbers(&row["rewards"]), row["k"].as_u64().expect("a count") as usize);
        match row["best_at_k"].as_f64() {
            Some(value) => near(ours.unwrap(), value, 1e-12),
            None => assert!(ours.is_err()),
        }
    }
}

#[test]
fn arms_match_the_reference() {
    let golden = golden();
    let mut checked = 0;
    for name in DATA_SETS {
        let text = csv(name);
        let rows = observations(&text);
        for (arm, label) in [(Arm::Base, "base"), (Arm::Treatment, "treatment")] {
            let cells = ArmCells::new(&rows, arm);
            let reference = &golden["datasets"][name]["arm"][label];
            for (kind, key) in [(Kind::Pass, "pass_at_k_per_seed"), (Kind::Best, "best_at_k_reward_per_seed")]
            {
                for (k, value) in reference[key].as_object().expect("values by k") {
                    let ours = cells.at(kind, k.parse().unwrap());
                    match value.as_f64() {
                        Some(value) => near(ours.value.unwrap(), value, 1e-12),
                        None => assert!(ours.value.is_err() && ours.tasks == 0),
                    }
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 60);
}

#[test]
fn an_arm_is_measured_on_its_tasks_with_enough_rollouts() {
    let rows = [
        made(Arm::Base, "a", 0, 0, 1.0),
        made(Arm::Base, "a", 0, 1, 0.0),
        made(Arm::Base, "b", 0, 0, 1.0),
        made(Arm::Treatment, "a", 0, 0, 0.0),
        made(Arm::Treatment, "a", 0, 1, 0.0),
        made(Arm::Treatment, "b", 0, 0, 1.0),
        made(Arm::Treatment, "b", 0, 1, 1.0),
    ];
    let (base, treatment) = (ArmCells::new(&rows, Arm::Base), ArmCells::new(&rows, Arm::Treatment));
    assert_eq!(base.at(Kind::Pass, 2), AtK { value: Ok(1.0), tasks: 1 });
    assert!(base.at(Kind::Pass, 3).value.is_err());
    assert_eq!(treatment.at(Kind::Best, 2).tasks, 2);
    assert_eq!(treatment.largest(), 2);
}

#[test]
fn missing_values_are_left_out_of_their_own_statistic_only() {
    let mut row = made(Arm::Base, "a", 0, 0, 0.5);
    row.solved = None;
    let cells = ArmCells::new(&[row], Arm::Base);
    assert!(cells.at(Kind::Pass, 1).value.is_err());
    assert_eq!(cells.at(Kind::Best, 1).value, Ok(0.5));
}

/// 1 − C(n−c, k) / C(n, k) in whole numbers, divided once.
fn by_counting(n: usize, c: usize, k: usize) -> f64 {
    let ways = |n: usize, k: usize| {
        if k > n { 0 } else { (0..k as u128).fold(1u128, |w, i| w * (n as u128 - i) / (i + 1)) }
    };
    (ways(n, k) - ways(n - c, k)) as f64 / ways(n, k) as f64
}

#[test]
fn a_hundred_thousand_attempts_at_every_k() {
    const N: usize = 100_000;
    for solved in [1, 2, N / 2, N] {
        let attempt = |i: usize| {
            let hit = i < solved;
            let reward = if hit { 1.0 } else { 0.0 };
            Observation { solved: Some(hit), ..made(Arm::Base, "a", 0, i as i64, reward) }
        };
        let rows: Vec<Observation<'_>> = (0..N).map(attempt).collect();
        let cells = ArmCells::new(&rows, Arm::Base);
        let (pass, best) = (cells.at_every_k(Kind::Pass), cells.at_every_k(Kind::Best));
        assert_eq!((pass.len(), best.len()), (N, N));
        for k in 1..=N {
            let (n, left) = (N as f64, (N - k) as f64);
            // Closed forms; of a half that is solved only the first few k are not 1.
            let want = match solved {
                1 => k as f64 / n,
                2 => 1.0 - left / n * (left - 1.0).max(0.0) / (n - 1.0),
                N => 1.0,
                _ if k > 60 => 1.0,
                _ => 1.0 - (0..k).map(|i| (N / 2 - i) as f64 / (N - i) as f64).product::<f64>(),
            };
            near(pass[k - 1], want, 1e-12);
            near(best[k - 1], want, 1e-12);
        }
    }
}

#[test]
fn every_k_at_once_is_each_k_by_itself() {
    for name in DATA_SETS {
        let text = csv(name);
        let rows = observations(&text);
        for (arm, kind) in [(Arm::Base, Kind::Pass), (Arm::Treatment, Kind::Best)] {
            let cells = ArmCells::new(&rows, arm);
            let all = cells.at_every_k(kind);
            let single = (1..=cells.largest()).map_while(|k| cells.at(kind, k).value.ok());
            assert_eq!(all, single.collect::<Vec<f64>>());
        }
    }
}

proptest! {
    #[test]
    fn pass_is_what_counting_gives(n in 1usize..=100, c in 0usize..=100, k in 1usize..=100) {
        let (c, k) = (c.min(n), k.min(n));
        let want = by_counting(n, c, k);
        prop_assert!((pass_at_k(n, c, k).unwrap() - want).abs() <= 1e-12);
        let rewards: Vec<f64> = (0..n).map(|i| if i < c { 1.0 } else { 0.0 }).collect();
        prop_assert!((best_at_k(&rewards, k).unwrap() - want).abs() <= 1e-12);
    }

    #[test]
    fn more_attempts_never_hurt(rewards in proptest::collection::vec(0.0f64..=1.0, 1..20)) {
        let values: Vec<f64> = (1..=rewards.len()).map(|k| best_at_k(&rewards, k).unwrap()).collect();
        prop_assert!(values.windows(2).all(|w| w[1] >= w[0] - 1e-12));
        let greatest = rewards.iter().copied().fold(0.0, f64::max);
        prop_assert!((values[rewards.len() - 1] - greatest).abs() < 1e-12);
    }

    #[test]
    fn best_of_binary_rewards_is_pass(n in 1usize..20, c in 0usize..20, k in 1usize..20) {
        let c = c.min(n);
        let rewards: Vec<f64> = (0..n).map(|i| if i < c { 1.0 } else { 0.0 }).collect();
        match (pass_at_k(n, c, k), best_at_k(&rewards, k)) {
            (Ok(a), Ok(b)) => prop_assert!((a - b).abs() < 1e-12),
            (a, b) => prop_assert!(a.is_err() && b.is_err()),
        }
    }
}

#[test]
fn a_cell_becomes_its_best_of_k() {
    let rows = [
        made(Arm::Base, "a", 1, 0, 0.0),
        made(Arm::Treatment, "a", 1, 0, 0.5),
        made(Arm::Base, "a", 1, 1, 1.0),
        made(Arm::Base, "a", 2, 0, 1.0),
    ];
    let best: Vec<(Arm, i64, Option<f64>)> =
        one_a_cell(&rows, 2).iter().map(|o| (o.arm, o.seed, o.reward)).collect();
    assert_eq!(best, [(Arm::Base, 1, Some(1.0))]);
    let alone: Vec<Option<f64>> = one_a_cell(&rows, 1).iter().map(|o| o.reward).collect();
    assert_eq!(alone, [Some(0.5), Some(1.0), Some(0.5)]);
}
