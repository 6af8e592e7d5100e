//! What is missing of `solved`: counted an arm, and said beside the numbers. A missing judgement is
//! neither a failure nor silently left out.

use super::rows::Rows;
use crate::stats::{Arm, Warning, counted};

/// Of one arm's rows with a reward: how many have no `solved`, of how many.
pub fn unjudged(rows: &Rows, arm: Arm) -> (usize, usize) {
    let scored = || rows.episodes.iter().filter(|e| e.arm == arm && e.reward.is_some());
    (scored().filter(|e| e.solved.is_none()).count(), scored().count())
}

/// What must be said about `solved`.
pub fn warnings(rows: &Rows) -> Vec<Warning> {
    let remedy = "where a reward of 1 means solved, --map solved=reward";
    let undefined = "so pass@k, McNemar and Wilson are undefined";
    let mut warnings = Vec::new();
    let (base, treatment) = (unjudged(rows, Arm::Base), unjudged(rows, Arm::Treatment));
    if !rows.judged {
        warnings.push(Warning::new("no_solved", format!("no `solved` column, {undefined}; {remedy}")));
    } else if base.0 + treatment.0 == base.1 + treatment.1 {
        let all = base.1 + treatment.1;
        let text =
            format!("`solved` is empty in all of {}, {undefined}; {remedy}", counted(all, "scored row"));
        warnings.push(Warning::new("no_solved", text));
    } else if base.0 + treatment.0 > 0 {
        let text = format!(
            "`solved` is missing in {} of {} of the base arm and in {} of {} of the treatment arm: pass@k leaves them out",
            base.0,
            counted(base.1, "scored row"),
            treatment.0,
            counted(treatment.1, "scored row"),
        );
        warnings.push(Warning::new("missing_solved", text));
    }
    let unscored = rows.episodes.iter().filter(|e| e.reward.is_none() && e.solved.is_some()).count();
    if unscored > 0 {
        let text = format!(
            "{} {} `solved` but no reward, and {} not used: nothing counts of a row without a reward",
            counted(unscored, "row"),
            if unscored == 1 { "has" } else { "have" },
            if unscored == 1 { "is" } else { "are" },
        );
        warnings.push(Warning::new("solved_without_reward", text));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use crate::compare::tests::{codes, compare_files, defaults};

    fn text_of(rows: &str, code: &str) -> String {
        let c = compare_files(&[("r.csv", &format!("arm,task,reward,solved\n{rows}"))], defaults()).unwrap();
        c.warnings.iter().find(|w| w.code == code).map(|w| w.text.clone()).unwrap_or_default()
    }

    #[test]
    fn missing_judgements_are_counted_an_arm() {
        let rows = "arm,task,rollout,reward,solved\nbase,a,0,0,0\nbase,a,1,1,\ntreatment,a,0,1,\ntreatment,a,1,1,\ntreatment,b,0,1,1\nbase,b,0,1,\n";
        let c = compare_files(&[("r.csv", rows)], defaults()).unwrap();
        assert_eq!((c.base.n_unjudged, c.treatment.n_unjudged), (2, 2));
        assert!(codes(&c).contains(&"missing_solved") && !codes(&c).contains(&"no_solved"));
        // A missing judgement is not a failure: the base arm has one judged attempt, the treatment arm too.
        assert_eq!((c.pass_at_k.base[&1], c.pass_at_k.treatment[&1]), (Some(0.0), Some(1.0)));
        assert_eq!((c.pass_at_k.base[&2], c.best_at_k.base[&2]), (None, Some(1.0)));
        let text = &c.warnings.iter().find(|w| w.code == "missing_solved").unwrap().text;
        assert!(
            text.contains("2 of 3 scored rows of the base arm and in 2 of 3 scored rows of the"),
            "{text}"
        );
        assert!(c.render(140, false).contains("[missing_solved]"));
    }

    #[test]
    fn an_empty_column_is_not_called_a_missing_one() {
        let rows = "base,a,0,\ntreatment,a,1,\n";
        let text = text_of(rows, "no_solved");
        assert!(text.contains("`solved` is empty in all of 2 scored rows"), "{text}");
        for (name, file) in [
            ("r.csv", format!("arm,task,reward,solved\n{rows}")),
            ("r.jsonl", "{\"arm\": \"base\", \"task\": \"a\", \"reward\": 0, \"solved\": null}\n{\"arm\": \"treatment\", \"task\": \"a\", \"reward\": 1}\n".into()),
        ] {
            let c = compare_files(&[(name, &file)], defaults()).unwrap();
            assert_eq!((c.base.n_unjudged, c.treatment.n_unjudged), (1, 1));
            assert_eq!(c.undefined["mcnemar"], "`solved` is empty in every row");
            assert!(c.pass_at_k.base[&1].is_none());
        }
    }

    #[test]
    fn a_judgement_without_a_reward_is_said_to_be_left_out() {
        let rows = "base,a,0,0\nbase,b,,1\ntreatment,a,1,1\ntreatment,b,1,1\n";
        let text = text_of(rows, "solved_without_reward");
        assert!(text.starts_with("1 row has `solved` but no reward, and is not used"), "{text}");
        assert!(text_of(rows, "missing_solved").is_empty());
    }
}
