//! Random small tables with everything that goes wrong in them: whatever `compare` is given, it counts
//! what it leaves out, or refuses with a place and a way out; it never panics.

#![cfg(test)]

use super::{Cluster, Options, Population, Weight, compare_files, defaults};
use proptest::prelude::*;
use proptest::sample::select;

/// One row: arm, task, seed, rollout, train_seed, reward, solved.
type Row = [&'static str; 7];

/// Mostly good values, so that many tables get through, and some of every bad kind.
fn row() -> impl Strategy<Value = Row> {
    let arm = select(vec!["base", "treatment", "base", "treatment", "base", "treatment", "third", ""]);
    let task = select(vec!["f/a", "f/b", "g/c", "g/d", "f/a", "f/b", "plain", ""]);
    let seed = select(vec!["1", "1", "1", "2", "18446744073709551615", "1e30", ""]);
    let rollout = select(vec!["0", "1", "2", "3", "4", "5", "6", "-7"]);
    let train_seed = select(vec!["", "", "", "", "1", "2"]);
    let reward = select(vec!["0", "1", "0.5", "0.25", "", "1", "0", "NaN", "inf", "-0", "2"]);
    let solved = select(vec!["0", "1", "", "true", "0", "1", "x"]);
    (arm, task, seed, rollout, train_seed, reward, solved)
        .prop_map(|(a, t, s, r, ts, w, j)| [a, t, s, r, ts, w, j])
}

/// A table of clean rows with up to two random ones behind them, and which columns it has.
fn table() -> impl Strategy<Value = (Vec<Row>, [bool; 7])> {
    let clean = (
        select(vec!["base", "treatment"]),
        select(vec!["f/a", "f/b", "g/c"]),
        select(vec!["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]),
        select(vec!["0", "1", "0.5", ""]),
        select(vec!["0", "1", ""]),
    )
        .prop_map(|(arm, task, rollout, reward, solved)| [arm, task, "1", rollout, "", reward, solved]);
    let rows =
        (prop::collection::vec(clean, 0..14), prop::collection::vec(row(), 0..3)).prop_map(|(mut a, b)| {
            a.extend(b);
            a
        });
    let columns = select(vec![
        [true; 7],
        [true, true, true, true, false, true, true],
        [true, true, false, true, false, true, false],
        [true, true, false, false, false, true, true],
        [false, true, true, true, true, true, true],
        [true, true, true, true, true, false, true],
    ]);
    (rows, columns)
}

const NAMES: [&str; 7] = ["arm", "task", "seed", "rollout", "train_seed", "reward", "solved"];

fn csv(rows: &[Row], has: [bool; 7]) -> String {
    let line = |cells: &Row| {
        cells.iter().zip(has).filter(|(_, has)| *has).map(|(c, _)| *c).collect::<Vec<_>>().join(",") + "\n"
    };
    std::iter::once(&NAMES).chain(rows).map(line).collect()
}

/// As JSON lines: empty is null, digits are numbers, all else is text.
fn json(rows: &[Row], has: [bool; 7]) -> String {
    let mut text = String::new();
    for cells in rows {
        let field = |(name, cell): (&str, &str)| match cell {
            "" => format!("\"{name}\": null"),
            "true" => format!("\"{name}\": true"),
            // JSON has no 00 and no -0 for whole numbers.
            number
                if number.parse::<f64>().is_ok_and(f64::is_finite)
                    && number != "-0"
                    && !number.starts_with('0') =>
            {
                format!("\"{name}\": {number}")
            }
            other => format!("\"{name}\": \"{other}\""),
        };
        let fields =
            NAMES.into_iter().zip(*cells).zip(has).filter(|(_, has)| *has).map(|(pair, _)| field(pair));
        text.push_str(&format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", ")));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_table_is_counted_or_refused(
        (rows, has) in table(),
        as_json in any::<bool>(),
        weight in select(vec![Weight::Task, Weight::Task, Weight::Family]),
        cluster in select(vec![Cluster::Task, Cluster::Task, Cluster::Family]),
        population in select(vec![Population::Tasks, Population::Tasks, Population::TasksXTrainSeeds]),
    ) {
        let options = Options { weight, cluster, population, ..defaults() };
        let (name, text) = if as_json { ("r.jsonl", json(&rows, has)) } else { ("r.csv", csv(&rows, has)) };
        match compare_files(&[(name, &text)], options) {
            Err(e) => {
                let message = e.to_string();
                prop_assert!(e.exit_code() == 2 && message.contains("hint: "), "{}", message);
                prop_assert!(message.contains(name) || message.contains("training") , "{}", message);
            }
            Ok(c) => {
                // Every row of the two arms is accounted for. Where there are two, and one of them is called base
                // or treatment, the third is the other.
                let (base, treatment) = (c.base.name.as_str(), c.treatment.name.as_str());
                let of = |arm: &str| rows.iter().filter(|r| r[0] == arm).collect::<Vec<_>>();
                let empty = |arm: &str| of(arm).iter().filter(|r| r[5].is_empty()).count();
                prop_assert_eq!(c.n_rows, of(base).len() + of(treatment).len());
                prop_assert_eq!(c.base.n_unscored, empty(base));
                prop_assert_eq!(c.treatment.n_unscored, empty(treatment));
                prop_assert_eq!(c.base.n_scored + c.treatment.n_scored + empty(base) + empty(treatment), c.n_rows);
                if has[6] {
                    let unjudged = |arm: &str| of(arm).iter().filter(|r| !r[5].is_empty() && r[6].is_empty()).count();
                    prop_assert_eq!(c.base.n_unjudged, unjudged(base));
                    prop_assert_eq!(c.treatment.n_unjudged, unjudged(treatment));
                }
                let warned = |code: &str| c.warnings.iter().any(|w| w.code == code);
                prop_assert!(warned("missing_rows") == (c.coverage.base < 1.0 || c.coverage.treatment < 1.0));
                prop_assert!(c.delta.is_finite() && c.paired_tasks > 0);
                let json = serde_json::to_string(&c).unwrap();
                prop_assert!(!json.contains("NaN") && !c.render(80, false).is_empty());
            }
        }
    }

    #[test]
    fn arms_that_share_nothing_are_refused(base in prop::collection::vec(0usize..4, 1..5), treatment in prop::collection::vec(4usize..8, 0..5)) {
        let mut text = String::from("arm,task,reward\n");
        base.iter().for_each(|t| text.push_str(&format!("base,{t},1\n")));
        treatment.iter().for_each(|t| text.push_str(&format!("treatment,{t},1\n")));
        let message = compare_files(&[("r.csv", &text)], defaults()).unwrap_err().to_string();
        let reason = if treatment.is_empty() { "single arm" } else { "share no task" };
        prop_assert!(message.contains(reason) && message.contains("r.csv"), "{}", message);
    }
}
