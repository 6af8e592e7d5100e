//! What stands beside the numbers, in plain words: the warnings and reasons of `stats` with the
//! names of this comparison, and which of them the text heads as warnings or as notes.

use crate::stats::{Estimate, Undefined, Warning};

/// Codes that only say how the rows were read or the numbers had; all others are warnings.
const NOTES: [&str; 8] = [
    "base_is_treatment",
    "default_seed",
    "default_rollout",
    "no_solved",
    "several_pairs",
    "training_seeds_averaged",
    "monte_carlo",
    "sign_flip_random",
];

/// A warning of `stats` in words that fit this comparison.
pub fn plain(warning: &Warning, estimate: &Estimate) -> Warning {
    let text = match warning.code {
        "zero_variance" => {
            format!("{}: their spread, and so an interval, cannot be estimated", same_amount(estimate))
        }
        // Nothing is shown first where there is no interval.
        "few_tasks" | "few_clusters" if estimate.headline.is_err() => {
            warning.text.split(':').next().unwrap_or_default().to_owned()
        }
        _ => warning.text.clone(),
    };
    Warning::new(warning.code, text)
}

/// Why a statistic has no value.
pub fn reason(why: &Undefined, estimate: &Estimate) -> String {
    match why.0.as_ref() {
        "no task difference varies" => same_amount(estimate).into(),
        other => other.into(),
    }
}

fn same_amount(estimate: &Estimate) -> &'static str {
    if estimate.nonzero_differences == 0 {
        "no task differs between the arms"
    } else if estimate.units != estimate.tasks {
        "all clusters differ by the same amount"
    } else {
        "all tasks differ by the same amount"
    }
}

/// Headings with their entries, warnings first: plain words, then the code in brackets. What is
/// said of columns that are not there makes one entry.
pub fn sections(warnings: &[Warning]) -> Vec<(&'static str, Vec<String>)> {
    let both = |code: &str| warnings.iter().any(|w| w.code == code);
    let merged = both("default_seed") && both("default_rollout");
    let entry = |w: &Warning| {
        match w.code {
        "default_seed" if merged => Some(
            "no `seed` and no `rollout` column, or empty ones: one seed, and repeated rows are attempts, in file order [default_seed, default_rollout]".to_owned(),
        ),
        "default_rollout" if merged => None,
        code => Some(format!("{} [{code}]", w.text)),
    }
    };
    let of = |note: bool| {
        warnings.iter().filter(|w| NOTES.contains(&w.code) == note).filter_map(entry).collect::<Vec<_>>()
    };
    let sections = [("warnings", of(false)), ("notes", of(true))];
    sections.into_iter().filter(|(_, entries)| !entries.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_first_and_defaults_are_one_note() {
        let all = ["default_seed", "default_rollout", "few_tasks"].map(|c| Warning::new(c, "words"));
        let sections = sections(&all);
        assert_eq!(sections[0], ("warnings", vec!["words [few_tasks]".to_owned()]));
        assert_eq!((sections[1].0, sections[1].1.len()), ("notes", 1));
        assert!(sections[1].1[0].ends_with("[default_seed, default_rollout]"));
        assert_eq!(super::sections(&all[1..2]), [("notes", vec!["words [default_rollout]".to_owned()])]);
        assert!(super::sections(&[]).is_empty());
    }
}
