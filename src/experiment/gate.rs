//! `[[gates]]`: what must hold on the calibration seeds before any evaluation compute is spent. A
//! gate that stops a plan ends the experiment as design-negative, and no flag gets around it.

use super::plan::Plan;
use crate::error::{Error, Result, nearest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// `finish_reason` of episodes, as docs/FORMATS.md lists them.
const FINISH_REASONS: [&str; 6] = ["stop", "length", "budget", "wall", "tool_limit", "infra_error"];

/// `[[gates]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Gate {
    /// Room for the required gain in every core.
    Headroom(Headroom),
    /// A mechanism without which the treatment has nothing to work on.
    Kill(Kill),
}

/// `kind = "headroom"`: in every core, ceiling − baseline must exceed the required gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    /// The highest score there is.
    pub ceiling: f64,
    /// The gain that must fit below the ceiling.
    pub minimum_delta: f64,
    /// Named groups of planned families, each judged by the mean of its families' means; left out, each
    /// family is a core.
    // Both left out where there is none, so that older plans keep their hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<BTreeMap<String, Vec<String>>>,
    /// The mean of all cores' baselines must lie below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_ceiling: Option<f64>,
}

/// `kind = "kill"`: stops the plan when enough of the episodes that ended for a reason have a shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Why the episodes ended that are looked at.
    pub among: Reasons,
    /// The shape that is counted among them.
    pub shape: Shape,
    /// The share at which the experiment stops.
    pub at_least: f64,
}

/// One reason, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reasons {
    /// `among = "wall"`
    One(String),
    /// `among = ["wall", "budget"]`
    Many(Vec<String>),
}

impl Reasons {
    /// The reasons, as written.
    pub fn list(&self) -> &[String] {
        match self {
            Reasons::One(reason) => std::slice::from_ref(reason),
            Reasons::Many(reasons) => reasons,
        }
    }
}

/// How an episode spent its calls; docs/FORMATS.md ("Shapes of episodes") defines each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Its last call ran away.
    OneRunaway,
    /// Several calls, none of which met its limit.
    ManyUnderCap,
    /// A single call that did not meet its limit.
    OneUnderCap,
    /// None of these.
    Other,
}

impl Shape {
    /// As written in plans and receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Shape::OneRunaway => "one-runaway",
            Shape::ManyUnderCap => "many-under-cap",
            Shape::OneUnderCap => "one-under-cap",
            Shape::Other => "other",
        }
    }
}

/// Checks what the grammar does not; `path` is for messages.
pub(super) fn validate(plan: &Plan, path: &Path) -> Result<()> {
    let mut kinds = BTreeSet::new();
    for gate in &plan.gates {
        let (kind, problem) = match gate {
            Gate::Headroom(gate) => ("headroom", headroom(plan, gate)),
            Gate::Kill(gate) => ("kill", kill(gate)),
        };
        let place = format!("{}: [[gates]] {kind}", path.display());
        if let Some((what, hint)) = problem {
            return Err(Error::invalid(what).at(place).hint(hint));
        }
        if !kinds.insert(kind) {
            return Err(Error::invalid(format!("there are two gates of the kind `{kind}`"))
                .at(place)
                .hint("each kind leaves one receipt: keep one of them"));
        }
        if plan.seeds.calibrate.is_empty() {
            return Err(Error::invalid(format!("the {kind} gate needs calibration seeds of its own"))
                .at(format!("{}: [seeds] calibrate", path.display()))
                .hint("add `calibrate = [31001]` under `[seeds]`"));
        }
    }
    Ok(())
}

/// A problem and its remedy.
type Problem = Option<(String, String)>;

fn headroom(plan: &Plan, gate: &Headroom) -> Problem {
    let problem = |what: String, hint: &str| Some((what, hint.to_string()));
    if !(0.0..=1.0).contains(&gate.ceiling) || !(0.0..=1.0).contains(&gate.minimum_delta) {
        return problem("ceiling and minimum_delta must lie in [0, 1]".into(), "rewards lie in [0, 1]");
    }
    if gate.baseline_ceiling.is_some_and(|most| !(most > 0.0 && most <= 1.0)) {
        return problem(
            "baseline_ceiling must lie in (0, 1]".into(),
            "it is a reward, and the mean of the cores must lie below it",
        );
    }
    let cores = gate.cores.as_ref()?;
    if cores.is_empty() {
        return problem("`cores` is empty".into(), "name a core, or leave `cores` out");
    }
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (core, families) in cores {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if core.is_empty() || !core.chars().all(is_name) {
            return problem(format!("`{core}` is no name of a core"), "use a-z, 0-9, `_` and `-`");
        }
        if families.is_empty() {
            return problem(format!("core `{core}` has no family"), "name the families that it is judged by");
        }
        for family in families {
            if !plan.families().any(|planned| planned == family) {
                let hint = match nearest(family, plan.families().map(String::as_str)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "name families under `[tasks] train` or `held_out`".to_string(),
                };
                return Some((
                    format!("core `{core}` names `{family}`, which is no family of the plan"),
                    hint,
                ));
            }
            if let Some(other) = seen.insert(family, core) {
                return problem(
                    format!("family `{family}` stands in core `{other}` and again in `{core}`"),
                    "a family is judged once",
                );
            }
        }
    }
    None
}

fn kill(gate: &Kill) -> Problem {
    let problem = |what: String, hint: &str| Some((what, hint.to_string()));
    if !(gate.at_least > 0.0 && gate.at_least <= 1.0) {
        return problem(
            format!("at_least is {}, which does not lie in (0, 1]", gate.at_least),
            "it is a share of the episodes, such as 0.8",
        );
    }
    let reasons = gate.among.list();
    if reasons.is_empty() {
        return problem("`among` is empty".into(), "name a finish_reason, such as `among = \"wall\"`");
    }
    let mut seen = BTreeSet::new();
    for reason in reasons {
        if !FINISH_REASONS.contains(&reason.as_str()) {
            let hint = match nearest(reason, FINISH_REASONS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write one of: {}", FINISH_REASONS.join(", ")),
            };
            return Some((format!("`{reason}` is no finish_reason of episodes"), hint));
        }
        if !seen.insert(reason) {
            return problem(format!("`{reason}` appears twice in `among`"), "name each reason once");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::GOOD;
    use super::*;

    const HEADROOM: &str = "kind = \"headroom\"\nceiling = 1.0\nminimum_delta = 0.03\n";

    /// The good plan with these lines after its headroom gate.
    fn gated(lines: &str) -> Result<Plan> {
        assert!(GOOD.contains(HEADROOM));
        Plan::parse(&GOOD.replace(HEADROOM, &format!("{HEADROOM}{lines}\n")), Path::new("experiment.toml"))
    }

    #[test]
    fn gates_of_both_kinds_parse_and_round_trip() {
        let plan = gated(
            "cores = { walk = [\"caravan\", \"kilnrite\"], tell = [\"brinework\"] }\nbaseline_ceiling = 0.6\n\
             [[gates]]\nkind = \"kill\"\namong = [\"wall\", \"budget\"]\nshape = \"many-under-cap\"\nat_least = 0.8",
        )
        .unwrap();
        let cores = plan.headroom().unwrap().cores.as_ref().unwrap();
        assert_eq!(cores["walk"], ["caravan", "kilnrite"]);
        let kill = plan.kill().unwrap();
        assert_eq!((kill.among.list().len(), kill.shape, kill.at_least), (2, Shape::ManyUnderCap, 0.8));
        let again = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("x")).unwrap();
        assert_eq!(plan, again);
    }

    #[test]
    fn what_no_gate_can_be_is_refused() {
        let kill = |among: &str, shape: &str, at_least: &str| {
            format!("[[gates]]\nkind = \"kill\"\namong = {among}\nshape = \"{shape}\"\nat_least = {at_least}")
        };
        for (lines, named) in [
            ("cores = {}".to_string(), "`cores` is empty"),
            ("cores = { a = [] }".into(), "core `a` has no family"),
            ("cores = { \"a.b\" = [\"caravan\"] }".into(), "`a.b` is no name of a core"),
            ("cores = { a = [\"caravn\"] }".into(), "did you mean `caravan`?"),
            ("cores = { a = [\"caravan\"], b = [\"caravan\"] }".into(), "in core `a` and again in `b`"),
            ("cores = { a = [\"caravan\", \"caravan\"] }".into(), "in core `a` and again in `a`"),
            ("baseline_ceiling = 0.0".into(), "baseline_ceiling must lie in (0, 1]"),
            ("baseline_ceiling = 1.1".into(), "baseline_ceiling"),
            ("ceilin = 1.0".into(), "did you mean `ceiling`"),
            (format!("[[gates]]\n{HEADROOM}"), "two gates of the kind `headroom`"),
            (kill("\"wal\"", "many-under-cap", "0.8"), "did you mean `wall`?"),
            (kill("[]", "many-under-cap", "0.8"), "`among` is empty"),
            (kill("[\"wall\", \"wall\"]", "many-under-cap", "0.8"), "`wall` appears twice"),
            (kill("\"wall\"", "many-under-cup", "0.8"), "did you mean `many-under-cap`"),
            (kill("\"wall\"", "other", "0.0"), "at_least is 0,"),
            (kill("\"wall\"", "other", "1.5"), "(0, 1]"),
        ] {
            let error = gated(&lines).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(named) && text.contains("hint: "), "{lines}: {text}");
            assert_eq!(error.exit_code(), 2);
        }
        let plan = GOOD.replace("calibrate = [31001]", "calibrate = []").replace(
            HEADROOM,
            "kind = \"kill\"\namong = \"wall\"\nshape = \"one-runaway\"\nat_least = 0.8\n",
        );
        let error = Plan::parse(&plan, Path::new("experiment.toml")).unwrap_err().to_string();
        assert!(error.contains("the kill gate needs calibration seeds"), "{error}");
    }
}
