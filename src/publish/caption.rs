//! Captions of figures: what is counted, how intervals were made, what weighs the same, and what a score is.

use super::recipe::{condition, estimator_id};
use crate::claims::declare;
use crate::claims::derivation::{Derivation, Estimator, Weight};
use crate::claims::value::Evaluated;

/// Below a forest: what the diamond is over, where there is one, and how its interval and those of the rows were made.
pub(super) fn forest(pooled: Option<(&Derivation, &Evaluated)>, rows: &[&Evaluated]) -> String {
    let sentences = [
        pooled.and_then(|(derivation, total)| counted(derivation, total)),
        intervals(pooled.map(|(_, total)| total), rows),
        pooled.and_then(|(derivation, _)| weighed(derivation)).map(str::to_string),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What the pooled estimate is over. Only a comparison has pairs.
fn counted(derivation: &Derivation, total: &Evaluated) -> Option<String> {
    let n = total.parts.get("n")?.get()?;
    // Flips count pairs of attempts, and their unit says so.
    let of_tasks =
        matches!(derivation.estimator, Estimator::PairedDelta | Estimator::ProbabilityOfImprovement);
    Some(format!("n = {n} {}{}.", if of_tasks { "paired " } else { "" }, total.unit))
}

/// How the intervals were made: in one sentence where all were made alike, else apart for the diamond and the rows.
fn intervals(pooled: Option<&Evaluated>, rows: &[&Evaluated]) -> Option<String> {
    let mut methods: Vec<(&str, usize)> = Vec::new();
    for method in rows.iter().filter_map(|row| row.method.as_deref()) {
        let method = parted(method).0;
        match methods.iter_mut().find(|(known, _)| *known == method) {
            Some((_, count)) => *count += 1,
            None => methods.push((method, 1)),
        }
    }
    let of_rows = match methods.as_slice() {
        [(only, _)] => only.to_string(),
        several => several.iter().map(|(how, n)| format!("{how} ({n} rows)")).collect::<Vec<_>>().join(", "),
    };
    let level = pooled.into_iter().chain(rows.iter().copied()).find_map(|e| e.level).unwrap_or(0.95);
    let level = format!("{:.0}%", level * 100.0);
    let Some(method) = pooled.and_then(|total| total.method.as_deref()) else {
        return (!methods.is_empty()).then(|| format!("Intervals of the rows at {level}: {of_rows}."));
    };
    let (how, seeds) = parted(method);
    if methods.iter().any(|(other, _)| *other != how) {
        return Some(format!(
            "Interval of the diamond at {level}: {method}. Intervals of the rows at {level}: {of_rows}."
        ));
    }
    let seeds = seeds.map_or(String::new(), |seeds| format!(" Behind the diamond, {seeds}."));
    Some(format!("Intervals at {level}: {how}.{seeds}"))
}

/// A method in words, and behind it what is said of the seeds, which is of one result alone.
fn parted(method: &str) -> (&str, Option<&str>) {
    method.split_once("; ").map_or((method, None), |(how, seeds)| (how, Some(seeds)))
}

/// What weighs the same, where the estimate is a mean over tasks.
fn weighed(derivation: &Derivation) -> Option<&'static str> {
    let over_tasks = match derivation.estimator {
        Estimator::PairedDelta
        | Estimator::ProbabilityOfImprovement
        | Estimator::PassAtK
        | Estimator::BestAtK
        | Estimator::SelectedAtK => true,
        Estimator::Mean => derivation.data.holds_attempts(),
        _ => false,
    };
    over_tasks.then_some(match derivation.weight {
        Weight::Family => "Each family weighs the same.",
        Weight::Task => "Each task weighs the same.",
    })
}

/// Below a slope: how many tasks there are lines for, and what a task's score is.
pub(super) fn slope(tasks: usize, left: &Derivation, right: &Derivation) -> String {
    let sides = if left.arms == right.arms { "sides" } else { "arms" };
    let score = match (score(left), score(right)) {
        (left, right) if left == right => left,
        (left, right) => format!("{left} on the left and {right} on the right"),
    };
    format!("n = {tasks} tasks that both {sides} have; a task's score is {score}.")
}

/// What a derivation by task takes for a task's score, with the column that it reads.
fn score(derivation: &Derivation) -> String {
    let of = declare::column(derivation).unwrap_or_default();
    let rows = if derivation.data.holds_attempts() { "attempts" } else { "rows" };
    match (derivation.estimator, &derivation.is) {
        (Estimator::Mean | Estimator::Share, Some(is)) => {
            format!("its share of {rows} whose {of} {}", condition(is).replace('`', ""))
        }
        (Estimator::Mean, None) if of != "solved" => format!("its mean {of}"),
        (Estimator::Mean | Estimator::Share, None) => format!("its share of {rows} whose {of} is true"),
        _ => {
            let k = derivation.k.map(|k| format!(" at k = {k}")).unwrap_or_default();
            let of = if of.is_empty() { String::new() } else { format!(" of {of}") };
            format!("its {}{of}{k}", estimator_id(derivation))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::derivation::Accepts;
    use crate::claims::value::Number;
    use crate::episode::row::Cell;
    use std::collections::BTreeMap;

    fn declared(text: &str) -> Derivation {
        toml::from_str(&format!("data = \"episodes\"\n{text}")).unwrap()
    }

    fn evaluated(n: f64, unit: &str, method: Option<&str>) -> Evaluated {
        Evaluated {
            parts: BTreeMap::from([("n".to_string(), Number::Defined(n))]),
            method: method.map(str::to_string),
            level: method.map(|_| 0.95),
            unit: unit.into(),
            warnings: Vec::new(),
        }
    }

    const BOOTSTRAP: &str = "expanded percentile bootstrap of whole tasks";
    const T: &str = "t interval over tasks";

    #[test]
    fn a_method_speaks_for_the_rows_only_where_it_is_theirs() {
        let delta = declared("estimator = \"paired_delta\"\narms = [\"a\", \"b\"]");
        let nested = format!("{BOOTSTRAP}; each task belongs to one of 2 seeds");
        let total = evaluated(40.0, "tasks", Some(&nested));
        let (large, small) = (evaluated(20.0, "tasks", Some(BOOTSTRAP)), evaluated(4.0, "tasks", Some(T)));
        let bare = evaluated(1.0, "tasks", None);
        assert_eq!(
            forest(Some((&delta, &total)), &[&large, &total, &bare]),
            format!(
                "n = 40 paired tasks. Intervals at 95%: {BOOTSTRAP}. Behind the diamond, each task belongs to one of 2 seeds. \
                 Each task weighs the same."
            )
        );
        assert_eq!(
            forest(Some((&delta, &total)), &[&small, &small, &bare]),
            format!(
                "n = 40 paired tasks. Interval of the diamond at 95%: {nested}. Intervals of the rows at 95%: {T}. \
                 Each task weighs the same."
            )
        );
        let mixed = forest(Some((&delta, &total)), &[&large, &small, &small]);
        assert!(mixed.contains(&format!("{BOOTSTRAP} (1 rows), {T} (2 rows).")), "{mixed}");
        assert_eq!(forest(None, &[&small]), format!("Intervals of the rows at 95%: {T}."));
        assert_eq!(forest(None, &[&bare]), "");
    }

    #[test]
    fn only_comparisons_have_pairs_and_only_means_over_tasks_weigh_them() {
        let said =
            |text: &str, unit: &str| forest(Some((&declared(text), &evaluated(12.0, unit, None))), &[]);
        assert_eq!(
            said("estimator = \"mean\"\nof = \"reward\"\nweight = \"family\"", "tasks"),
            "n = 12 tasks. Each family weighs the same."
        );
        assert_eq!(
            said("estimator = \"flips\"\narms = [\"a\", \"b\"]", "paired attempts"),
            "n = 12 paired attempts."
        );
        assert_eq!(said("estimator = \"share\"\nof = \"solved\"", "rows"), "n = 12 rows.");
    }

    #[test]
    fn a_slope_names_the_column_that_is_read() {
        let of = |column: &str, arm: &str| {
            declared(&format!(
                "estimator = \"mean\"\nof = \"{column}\"\narms = [\"{arm}\"]\nby = \"task_id\""
            ))
        };
        let said = |left: &Derivation, right: &Derivation| slope(3, left, right);
        let start = "n = 3 tasks that both arms have; a task's score is";
        assert_eq!(said(&of("reward", "a"), &of("reward", "b")), format!("{start} its mean reward."));
        assert_eq!(said(&of("turns", "a"), &of("turns", "b")), format!("{start} its mean turns."));
        assert_eq!(
            said(&of("solved", "a"), &of("reward", "b")),
            format!(
                "{start} its share of attempts whose solved is true on the left and its mean reward on the right."
            )
        );
        let mut cut = of("finish_reason", "a");
        cut.is = Some(Accepts::One(Cell::Text("length".into())));
        assert_eq!(
            said(&cut, &cut),
            "n = 3 tasks that both sides have; a task's score is its share of attempts whose finish_reason is length."
        );
        let pass = declared("estimator = \"pass_at_k\"\nk = 4\narms = [\"a\"]\nby = \"task_id\"");
        assert!(said(&pass, &of("reward", "b")).contains("its pass_at_k of solved at k = 4 on the left"));
    }
}
