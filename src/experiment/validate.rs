//! What a plan must satisfy beyond its grammar: names, seeds, families, gates and limits. Each
//! refusal names the file, the key and the remedy.

use super::plan::{Deploy, Harness, Plan};
use crate::error::{Error, Result, nearest};
use std::collections::BTreeSet;
use std::path::Path;

/// Most sequences side by side: the rows of one step of the local engine.
pub const MOST_SLOTS: usize = 1024;
/// Most tokens of one answer.
const MOST_ANSWER_TOKENS: u64 = 1 << 16;
/// Most attempts at one task.
const MOST_ROLLOUTS: u64 = 10_000;
/// Most episodes of an arm under one seed: a unit of work, whose rows are held together.
const MOST_EPISODES: u64 = 1_000_000;
/// Largest rank of an adapter.
const MOST_RANK: usize = 1024;
/// Most passes over the training rows.
const MOST_EPOCHS: usize = 10_000;

/// Checks a parsed plan; `path` is for messages.
pub(super) fn validate(plan: &Plan, path: &Path) -> Result<()> {
    let at = |key: &str| format!("{}: {key}", path.display());
    let bad = |key: &str, what: String, hint: &str| Err(Error::invalid(what).at(at(key)).hint(hint));
    if plan.title.trim().is_empty() {
        return bad("title", "is empty".into(), "state the question in one line");
    }
    let mut names = BTreeSet::new();
    for arm in &plan.arms {
        let ok = !arm.name.is_empty()
            && arm.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
        if !ok || arm.name == "harvest" {
            return bad(
                "[[arms]] name",
                format!("`{}` is not an arm name", arm.name),
                "use a-z, 0-9, `_` and `-`; `harvest` is taken",
            );
        }
        if !names.insert(arm.name.as_str()) {
            return bad(
                "[[arms]] name",
                format!("duplicate arm `{}`", arm.name),
                "give each arm its own name",
            );
        }
    }
    if plan.arms.len() < 2 || plan.arms[0].adapter.is_some() {
        return bad(
            "[[arms]]",
            "the first arm must be the base, without an adapter, and at least one arm must follow".into(),
            "put `name = \"base\"` first, then the treatment",
        );
    }
    for arm in &plan.arms {
        match arm.adapter.as_deref() {
            None if arm.deploy == Deploy::Merged => {
                return bad(
                    "[[arms]] deploy",
                    format!("arm `{}` is merged but has no adapter", arm.name),
                    "add `adapter = \"receipt:train\"` or drop `deploy`",
                );
            }
            Some(adapter) if arm.deploy == Deploy::Merged && adapter != "receipt:train" => {
                return bad(
                    "[[arms]] deploy",
                    format!("arm `{}` is merged, and only the trained adapter is merged here", arm.name),
                    "use `deploy = \"live\"`, or name a merged checkpoint as the model",
                );
            }
            Some("receipt:train") if plan.seeds.train.is_empty() => {
                return bad(
                    "[seeds] train",
                    format!("arm `{}` needs a training seed", arm.name),
                    "add `train = [1]` under `[seeds]`",
                );
            }
            _ => {}
        }
    }
    let mut spent = BTreeSet::new();
    for (purpose, seed) in plan.event_seeds() {
        if seed > u64::from(u32::MAX) {
            return bad(
                &format!("[seeds] {}", purpose.as_str()),
                format!("seed {seed} is too large"),
                "use a seed below 4294967296",
            );
        }
        if !spent.insert(seed) {
            return bad(
                &format!("[seeds] {}", purpose.as_str()),
                format!("seed {seed} appears twice"),
                "a seed is spent once: use another",
            );
        }
    }
    if plan.seeds.evaluate.is_empty() {
        return bad("[seeds] evaluate", "no evaluation seed".into(), "name at least one fresh seed");
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut environment = crate::environment::open(&plan.tasks.environment, folder)
        .map_err(|e| e.at(at("[tasks] environment")))?;
    let known = environment.families();
    let mut seen = BTreeSet::new();
    for (key, families) in [("[tasks] train", &plan.tasks.train), ("[tasks] held_out", &plan.tasks.held_out)]
    {
        for family in families {
            if !known.contains(&family.as_str()) {
                let hint = match nearest(family, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("families: {}", known.join(", ")),
                };
                return Err(Error::invalid(format!("unknown family `{family}`")).at(at(key)).hint(hint));
            }
            if !seen.insert(family.as_str()) {
                return bad(
                    key,
                    format!("family `{family}` appears twice"),
                    "a family is trained or held out, once",
                );
            }
        }
    }
    if seen.is_empty() || plan.tasks.levels.is_empty() || plan.tasks.per_family == 0 {
        return bad(
            "[tasks]",
            "no tasks: families, levels and per_family must not be empty".into(),
            "name families, `levels = [1]` and `per_family = 25`",
        );
    }
    if plan.seeds.train.len() > 1 {
        return bad(
            "[seeds] train",
            format!("{} training seeds, and one adapter is trained", plan.seeds.train.len()),
            "name one; an experiment each for the others",
        );
    }
    if plan.seeds.null.len() == 1 {
        return bad(
            "[seeds] null",
            "one null seed has nothing to be compared with".into(),
            "name two, such as `null = [41001, 41002]`, or none",
        );
    }
    if !plan.seeds.harvest.is_empty() && (plan.tasks.train.is_empty() || plan.harvest.per_family == 0) {
        return bad(
            "[harvest] per_family",
            "there is a harvest seed and nothing to harvest".into(),
            "name training families and at least one task of each, or no harvest seed",
        );
    }
    if plan.harvest.minimum_rows == 0 || plan.harvest.minimum_families == 0 {
        return bad(
            "[harvest]",
            "minimum_rows and minimum_families are at least one: nothing is trained on nothing".into(),
            "leave a key out to take its default",
        );
    }
    if plan.tasks.levels.iter().collect::<BTreeSet<_>>().len() < plan.tasks.levels.len() {
        return bad("[tasks] levels", "a level appears twice".into(), "name each level once");
    }
    if let Some(level) = plan.tasks.levels.iter().find(|l| !(1..=4).contains(*l)) {
        return bad("[tasks] levels", format!("level {level} does not exist"), "levels are 1 to 4");
    }
    for (key, h) in
        [("[harness] harvest", &plan.harness.harvest), ("[harness] evaluate", &plan.harness.evaluate)]
    {
        for (name, value, most) in [
            ("answer_tokens", h.answer_tokens as u64, MOST_ANSWER_TOKENS),
            ("slots", h.slots as u64, MOST_SLOTS as u64),
            ("rollouts", u64::from(h.rollouts), MOST_ROLLOUTS),
        ] {
            if !(1..=most).contains(&value) {
                return bad(
                    &format!("{key} {name}"),
                    format!("`{name}` is {value}, which is not in 1..={most}"),
                    "leave the key out to take its default",
                );
            }
        }
        if let Some(n) = h.think_tokens.filter(|n| !(1..=MOST_ANSWER_TOKENS).contains(&(*n as u64))) {
            return bad(
                &format!("{key} think_tokens"),
                format!("`think_tokens` is {n}, which is not in 1..={MOST_ANSWER_TOKENS}"),
                "leave the key out to have the model not think",
            );
        }
        if h.examples > 16 {
            return bad(key, format!("{} worked examples are more than 16", h.examples), "three are usual");
        }
        let temperature = h.temperature == 0.0 || (0.01..=2.0).contains(&h.temperature);
        let decodable = temperature && h.top_p > 0.0 && h.top_p <= 1.0;
        if !decodable {
            return bad(
                key,
                "temperature must be 0 or lie in [0.01, 2], and top_p in (0, 1]".into(),
                "0 is greedy; 0.8 is usual for a harvest",
            );
        }
    }
    let thinks = |h: &Harness| h.think_tokens.is_some();
    if !plan.seeds.harvest.is_empty() && thinks(&plan.harness.harvest) != thinks(&plan.harness.evaluate) {
        return bad(
            "[harness] think_tokens",
            "one harness lets the model think and the other does not: it would be trained on other prompts than it is evaluated with".into(),
            "set it in both, to different budgets if need be, or in neither",
        );
    }
    let cells = (plan.tasks.train.len() + plan.tasks.held_out.len()) * plan.tasks.levels.len();
    for (place, tasks, harness) in [
        ("[tasks] per_family", plan.tasks.per_family, &plan.harness.evaluate),
        ("[harvest] per_family", plan.harvest.per_family, &plan.harness.harvest),
    ] {
        let episodes =
            (cells as u64).saturating_mul(u64::from(tasks)).saturating_mul(u64::from(harness.rollouts));
        if episodes > MOST_EPISODES {
            return bad(
                place,
                format!("{episodes} episodes a seed are more than {MOST_EPISODES}"),
                "fewer tasks or rollouts a seed, and more seeds",
            );
        }
    }
    let t = &plan.training;
    if t.rank > MOST_RANK || t.epochs > MOST_EPOCHS {
        return bad(
            "[training]",
            format!("rank {} or epochs {} is beyond {MOST_RANK} and {MOST_EPOCHS}", t.rank, t.epochs),
            "leave a key out to take its default",
        );
    }
    if t.rank == 0
        || t.epochs == 0
        || t.batch_rows == 0
        || t.max_tokens < 2
        || t.checkpoint_steps == 0
        || !(t.alpha > 0.0
            && t.learning_rate > 0.0
            && t.learning_rate.is_finite()
            && t.alpha.is_finite()
            && t.weight_decay >= 0.0
            && t.weight_decay.is_finite())
    {
        return bad("[training]", "rank, alpha, learning_rate, epochs, batch_rows, max_tokens and checkpoint_steps must be positive".into(), "leave a key out to take its default");
    }
    if let Some(clip) = t.clip_norm.filter(|clip| !(clip.is_finite() && *clip > 0.0)) {
        return bad(
            "[training] clip_norm",
            format!("`clip_norm` is {clip}, and a gradient is cut down to a finite norm above 0"),
            "leave the key out to take its default, or write a large number to cut nothing",
        );
    }
    super::rule::validate(plan, path)?;
    super::gate::validate(plan, path)?;
    super::endpoint::validate(plan, path)?;
    environment.allot(&plan.allotment())
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::GOOD;
    use super::*;

    fn trained(line: &str) -> Result<Plan> {
        Plan::parse(&format!("{GOOD}[training]\n{line}\n"), Path::new("experiment.toml"))
    }

    #[test]
    fn what_no_training_could_use_is_refused_with_the_plan() {
        for (line, named) in [
            ("clip_norm = 0.0", "[training] clip_norm: `clip_norm` is 0,"),
            ("clip_norm = -1", "`clip_norm` is -1,"),
            ("clip_norm = inf", "`clip_norm` is inf,"),
            ("clip_norm = nan", "`clip_norm` is NaN,"),
            ("learning_rate = 0.0", "[training]"),
            ("weight_decay = -0.1", "[training]"),
            ("alpha = inf", "[training]"),
            ("max_tokens = 1", "[training]"),
        ] {
            let error = trained(line).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("hint:"), "{line}: {error}");
        }
        assert_eq!(trained("clip_norm = 1e9").unwrap().training.clip_norm, Some(1e9));
    }
}
