//! `[decision]`: the rule that decides, what it compares, and the number that it holds the change
//! against. That number is fixed beforehand, so a plan without it is refused.

use super::plan::Plan;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `[decision]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// How the change is judged.
    pub rule: Rule,
    /// What is compared.
    pub metric: Metric,
    /// The smallest gain that counts: `three-way` has it, the others do not.
    // Left out where there is none, so that plans from before the other rules keep their hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_delta: Option<f64>,
    /// The smallest change that would matter: `non-inferiority` and `equivalence` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
}

/// Decision rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Positive, negative or inconclusive over the evaluation events.
    ThreeWay,
    /// Whether the treatment is not worse by as much as the margin.
    NonInferiority,
    /// Whether the arms differ by less than the margin, in either direction.
    Equivalence,
}

impl Rule {
    /// As written in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::ThreeWay => "three-way",
            Rule::NonInferiority => "non-inferiority",
            Rule::Equivalence => "equivalence",
        }
    }
}

/// What a decision compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// `paired_delta`.
    pub estimator: crate::claims::derivation::Estimator,
    /// A column of the episode row: `reward` or `solved`.
    pub of: String,
    /// How tasks are weighed.
    #[serde(default)]
    pub weight: crate::claims::derivation::Weight,
}

impl Decision {
    /// The number that the rule compares with: the smallest gain that counts, or the margin.
    pub fn bar(&self) -> f64 {
        self.minimum_delta.or(self.margin).expect("a plan that was validated has its rule's number")
    }

    /// Where that number stands in the plan.
    pub fn bar_path(&self) -> &'static str {
        match self.rule {
            Rule::ThreeWay => "decision.minimum_delta",
            Rule::NonInferiority | Rule::Equivalence => "decision.margin",
        }
    }
}

/// Checks what the grammar does not; `path` is for messages.
pub(super) fn validate(plan: &Plan, path: &Path) -> Result<()> {
    let decision = &plan.decision;
    let bad = |key: &str, what: String, hint: &str| {
        Err(Error::invalid(what).at(format!("{}: [decision] {key}", path.display())).hint(hint))
    };
    if !matches!(decision.metric.of.as_str(), "reward" | "solved")
        || decision.metric.estimator != crate::claims::derivation::Estimator::PairedDelta
    {
        return bad(
            "metric",
            "a decision compares `paired_delta` of `reward` or `solved`".into(),
            "write `metric = { estimator = \"paired_delta\", of = \"reward\" }`",
        );
    }
    let rule = decision.rule.as_str();
    match (decision.rule, decision.minimum_delta, decision.margin) {
        (Rule::ThreeWay, _, Some(_)) => bad(
            "margin",
            format!("the rule `{rule}` has no margin"),
            "write `minimum_delta`, or `rule = \"non-inferiority\"` or `\"equivalence\"`",
        ),
        (Rule::ThreeWay, None, None) => bad(
            "minimum_delta",
            "is missing: the smallest gain that counts is fixed beforehand".into(),
            "add a line such as `minimum_delta = 0.03`",
        ),
        (Rule::ThreeWay, Some(gain), None) if !(0.0..=1.0).contains(&gain) => {
            bad("minimum_delta", "must lie in [0, 1]".into(), "it is a difference of rewards")
        }
        // The spread of base against base is never below 0.
        (Rule::ThreeWay, Some(gain), None) if gain == 0.0 && !plan.seeds.null.is_empty() => bad(
            "minimum_delta",
            "is 0, and null seeds are planned: their spread cannot stay below it, so that nothing could be positive"
                .into(),
            "write a gain above 0, such as `minimum_delta = 0.03`, or leave `null` out of `[seeds]`",
        ),
        (Rule::ThreeWay, Some(_), None) => Ok(()),
        (_, Some(_), _) => bad(
            "minimum_delta",
            format!("the rule `{rule}` asks for no gain"),
            "write `margin`, the change that would matter, or `rule = \"three-way\"`",
        ),
        (_, None, None) => bad(
            "margin",
            format!("is missing: the rule `{rule}` compares with a margin that is fixed beforehand"),
            "add a line such as `margin = 0.02`",
        ),
        (_, None, Some(margin)) if !(margin > 0.0 && margin < 1.0) => bad(
            "margin",
            format!("{margin} does not lie in (0, 1)"),
            "it is a difference of rewards that would matter: more than none, and less than all there is",
        ),
        (_, None, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::GOOD;
    use super::*;

    const THREE_WAY: &str = "rule = \"three-way\"\nmetric = { estimator = \"paired_delta\", of = \"reward\", weight = \"task\" }\nminimum_delta = 0.03\n";

    /// The good plan with another `[decision]`; the metric is always the same.
    fn decided(rest: &str) -> Result<Plan> {
        assert!(GOOD.contains(THREE_WAY));
        let metric = "metric = { estimator = \"paired_delta\", of = \"reward\" }\n";
        Plan::parse(&GOOD.replace(THREE_WAY, &format!("{metric}{rest}")), Path::new("experiment.toml"))
    }

    #[test]
    fn each_rule_has_a_number_of_its_own() {
        let bar = |rest: &str| {
            let plan = decided(rest).unwrap();
            let again = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("x")).unwrap();
            assert_eq!(plan, again);
            (plan.decision.bar(), plan.decision.bar_path())
        };
        assert_eq!(bar("rule = \"three-way\"\nminimum_delta = 0.0"), (0.0, "decision.minimum_delta"));
        assert_eq!(bar("rule = \"non-inferiority\"\nmargin = 0.02"), (0.02, "decision.margin"));
        assert_eq!(bar("rule = \"equivalence\"\nmargin = 0.99"), (0.99, "decision.margin"));
    }

    #[test]
    fn a_plan_without_its_number_is_refused() {
        for (rest, named) in [
            ("rule = \"three-way\"", "[decision] minimum_delta: is missing"),
            ("rule = \"three-way\"\nminimum_delta = 0.1\nmargin = 0.1", "has no margin"),
            ("rule = \"three-way\"\nmargin = 0.1", "has no margin"),
            ("rule = \"three-way\"\nminimum_delta = 1.5", "must lie in [0, 1]"),
            ("rule = \"non-inferiority\"", "[decision] margin: is missing"),
            ("rule = \"equivalence\"", "fixed beforehand"),
            ("rule = \"non-inferiority\"\nminimum_delta = 0.1", "asks for no gain"),
            ("rule = \"equivalence\"\nminimum_delta = 0.1\nmargin = 0.1", "asks for no gain"),
            ("rule = \"non-inferiority\"\nmargin = 0.0", "0 does not lie in (0, 1)"),
            ("rule = \"non-inferiority\"\nmargin = -0.1", "(0, 1)"),
            ("rule = \"non-inferiority\"\nmargin = 1", "1 does not lie in (0, 1)"),
            ("rule = \"equivalence\"\nmargin = 1.0", "1 does not lie in (0, 1)"),
            ("rule = \"equivalence\"\nmargin = nan", "(0, 1)"),
            ("rule = \"noninferiority\"\nmargin = 0.1", "did you mean `non-inferiority`"),
        ] {
            let error = decided(rest).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(named) && text.contains("hint: "), "{rest}: {text}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn no_gain_at_all_is_asked_for_beside_null_seeds() {
        let plan = |gain: &str, seeds: &str| {
            let text = GOOD.replace(THREE_WAY, &THREE_WAY.replace("0.03", gain));
            let seeds = format!("calibrate = [31001]\n{seeds}");
            Plan::parse(&text.replace("calibrate = [31001]\n", &seeds), Path::new("experiment.toml"))
        };
        let null = "null = [41001, 41002]\n";
        plan("0.0", "").unwrap();
        assert_eq!(plan("0.01", null).unwrap().seeds.null, [41001, 41002]);
        let error = plan("0.0", null).unwrap_err().to_string();
        assert!(error.contains("[decision] minimum_delta: is 0, and null seeds are planned"), "{error}");
        assert!(error.contains("hint: write a gain above 0"), "{error}");
    }
}
