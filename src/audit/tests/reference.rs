//! Means and paired differences against the reference values of five data sets, and against
//! the definition written out for random rows.

use super::golden;
use crate::audit::estimators::{Part, Parts, compute};
use crate::audit::walk::Attempt;
use crate::claims::derivation::Derivation;
use crate::episode::row::Cell;
use proptest::prelude::*;
use serde_json::Value;

fn derive(text: &str, attempts: &[Attempt], key: &str) -> Parts {
    let derivation: Derivation = toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap();
    let wanted = |a: &&Attempt| derivation.arms.is_empty() || derivation.arms.iter().any(|arm| arm == a.arm);
    let attempts: Vec<&Attempt> = attempts.iter().filter(wanted).collect();
    compute(&derivation, &attempts, key).unwrap()
}

const PAIRED: &str = "estimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]";

fn near(parts: &Parts, part: &str, reference: &Value, tolerance: f64, what: &str) {
    golden::near(parts[part].get().unwrap_or(f64::NAN), reference, tolerance, &format!("{what} {part}"));
}

#[test]
fn paired_differences_match() {
    let reference = golden::json("stats/golden.json");
    let vectors = golden::json("stats/normative_bootstrap.json");
    for (name, set) in reference["datasets"].as_object().unwrap() {
        let attempts = golden::attempts(set["csv"].as_str().unwrap(), "reward");
        let parts = derive(PAIRED, &attempts, "demo/treatment_delta");
        let paired = &set["paired"];
        near(&parts, "value", &paired["delta_task_macro"], 1e-12, name);
        near(&parts, "se", &paired["se_task_paired"], 1e-12, name);
        near(&parts, "df", &paired["t_df"], 0.0, name);
        near(&parts, "n", &set["design"]["paired_tasks"], 0.0, name);
        near(&parts, "p", &set["permutation_signflip_task"]["p_exact"], 1e-9, name);
        near(&parts, "mde", &set["mde_80pct_power_alpha05"]["value"], 1e-9, name);
        let interval = if name == "degenerate_all_equal" {
            &Value::Null
        } else if set["design"]["paired_tasks"].as_u64().unwrap() < 10 {
            &paired["ci95_t_task"]
        } else {
            &vectors["datasets"][name]["demo/treatment_delta"]["expanded_percentile"]
        };
        near(&parts, "low", &interval[0], 1e-9, name);
        near(&parts, "high", &interval[1], 1e-9, name);
    }
}

#[test]
fn arm_means_match() {
    let reference = golden::json("stats/golden.json");
    for (name, set) in reference["datasets"].as_object().unwrap() {
        let attempts = golden::attempts(set["csv"].as_str().unwrap(), "reward");
        for arm in ["base", "treatment"] {
            let parts =
                derive(&format!("estimator = \"mean\"\nof = \"reward\"\narms = [\"{arm}\"]"), &attempts, "");
            near(&parts, "value", &set["arm"][arm]["mean_reward_task_macro_all_tasks"], 1e-12, name);
            // Where tasks are missing in one arm, the reference error is over the paired tasks.
            if set["design"]["balanced"] == true {
                near(&parts, "se", &set["arm"][arm]["se_task_macro_iid_tasks"], 1e-12, name);
            }
        }
    }
}

#[test]
fn identical_token_streams_give_an_exact_interval() {
    let mut attempts = golden::attempts("degenerate_all_equal.csv", "reward");
    attempts.iter_mut().for_each(|a| a.tokens = "t");
    let parts = derive(PAIRED, &attempts, "k");
    assert_eq!((&parts["low"], &parts["high"]), (&Part::Number(0.0), &Part::Number(0.0)));
    attempts[0].tokens = "u";
    assert_eq!(derive(PAIRED, &attempts, "k")["low"].get(), None);
}

#[test]
fn a_cluster_of_one_task_each_is_the_task() {
    let mut attempts = golden::attempts("binary_basic.csv", "reward");
    attempts.iter_mut().for_each(|a| a.family = a.task);
    let clustered = derive(&format!("{PAIRED}\ncluster = \"family\""), &attempts, "k");
    assert_eq!(clustered, derive(PAIRED, &attempts, "k"));
}

#[test]
fn families_as_clusters_follow_the_formula() {
    let mut attempts = golden::attempts("binary_basic.csv", "reward");
    attempts.iter_mut().for_each(|a| a.family = &a.task[..3]);
    let parts = derive(&format!("{PAIRED}\ncluster = \"family\""), &attempts, "k");
    let d_t = golden::json("stats/golden.json")["datasets"]["binary_basic"]["d_t"].clone();
    let differences: Vec<(&str, f64)> =
        d_t.as_object().unwrap().iter().map(|(task, d)| (&task[..3], d.as_f64().unwrap())).collect();
    let mean = differences.iter().map(|d| d.1).sum::<f64>() / 40.0;
    let mut squares = 0.0;
    for family in ["t00", "t01", "t02", "t03"] {
        let sum: f64 = differences.iter().filter(|d| d.0 == family).map(|d| d.1 - mean).sum();
        squares += sum * sum;
    }
    let error = (4.0 / 3.0 * squares).sqrt() / 40.0;
    assert!((parts["se"].get().unwrap() - error).abs() < 1e-12);
    assert_eq!(parts["df"], Part::Number(3.0));
    assert_eq!(parts["n"], Part::Number(40.0));
    assert_eq!(parts["p"], Part::Number(0.125));
}

#[test]
fn families_weigh_the_same_when_asked() {
    let attempt = |arm: &'static str, task: &'static str, family: &'static str, reward: f64| Attempt {
        label: None,
        arm,
        task,
        family,
        seed: 1,
        train_seed: None,
        rollout: 0,
        of: Cell::Real(reward),
        select_score: None,
        tokens: "",
    };
    let mut attempts = Vec::new();
    for (task, family, gain) in
        [("a1", "a", 1.0), ("a2", "a", 0.5), ("a3", "a", 0.0), ("b1", "b", 0.25), ("b2", "b", 0.75)]
    {
        attempts.push(attempt("base", task, family, 0.0));
        attempts.push(attempt("treatment", task, family, gain));
    }
    let parts = derive(&format!("{PAIRED}\nweight = \"family\""), &attempts, "k");
    assert_eq!(parts["value"], Part::Number(0.5));
    assert_eq!(parts["df"], Part::Number(3.0));
    let error = (0.25f64 / 3.0 + 0.125 / 2.0).sqrt() / 2.0;
    assert!((parts["se"].get().unwrap() - error).abs() < 1e-15);
}

#[test]
fn an_untrained_base_stands_against_every_training_seed() {
    let attempts: Vec<Attempt> =
        [("base", None, 0.0), ("treatment", Some(1), 1.0), ("treatment", Some(2), 0.5)]
            .into_iter()
            .flat_map(|(arm, train_seed, reward)| {
                ["a", "b"].map(|task| Attempt {
                    label: None,
                    arm,
                    task,
                    family: "f",
                    seed: 1,
                    train_seed,
                    rollout: 0,
                    of: Cell::Real(reward),
                    select_score: None,
                    tokens: "",
                })
            })
            .collect();
    assert_eq!(derive(PAIRED, &attempts, "k")["value"], Part::Number(0.75));
}

fn rows() -> impl Strategy<Value = Vec<(bool, u8, i64, i64, u8)>> {
    prop::collection::vec((any::<bool>(), 0u8..6, 0i64..3, 0i64..3, 0u8..5), 1..60)
}

proptest! {
    #[test]
    fn paired_delta_is_its_definition(rows in rows()) {
        let mut rows = rows;
        rows.sort();
        rows.dedup_by_key(|r| (r.0, r.1, r.2, r.3));
        let attempts: Vec<Attempt> = rows
            .iter()
            .rev()
            .map(|(treated, task, seed, rollout, reward)| Attempt {
                label: None,
                arm: if *treated { "treatment" } else { "base" },
                task: ["t0", "t1", "t2", "t3", "t4", "t5"][usize::from(*task)],
                family: ["f0", "f1"][usize::from(task % 2)],
                seed: *seed,
                train_seed: None,
                rollout: *rollout,
                of: Cell::Real(f64::from(*reward) / 4.0),
                select_score: None,
                tokens: "",
            })
            .collect();
        // The definition: for every task, over every seed both arms have, mean cell against mean cell.
        let cell = |treated: bool, task: u8, seed: i64| -> Option<f64> {
            let of: Vec<f64> = rows
                .iter()
                .filter(|r| r.0 == treated && r.1 == task && r.2 == seed)
                .map(|r| f64::from(r.4) / 4.0)
                .collect();
            (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
        };
        let mut differences = Vec::new();
        for task in 0..6 {
            let both: Vec<(f64, f64)> =
                (0..3).filter_map(|seed| Some((cell(false, task, seed)?, cell(true, task, seed)?))).collect();
            if !both.is_empty() {
                let n = both.len() as f64;
                let mean = |of: fn(&(f64, f64)) -> f64| both.iter().map(of).sum::<f64>() / n;
                differences.push(mean(|b| b.1) - mean(|b| b.0));
            }
        }
        let parts = derive(PAIRED, &attempts, "k");
        prop_assert_eq!(parts["n"].clone(), Part::Number(differences.len() as f64));
        if differences.is_empty() {
            prop_assert_eq!(parts["value"].get(), None);
        } else {
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            prop_assert!((parts["value"].get().unwrap() - mean).abs() < 1e-12);
        }
    }
}
