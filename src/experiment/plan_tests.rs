//! A good plan, and what is refused of bad ones.

use super::*;

pub(crate) const GOOD: &str = r#"
title = "Does it help?"
[model]
source = "smollm2-135m-instruct"
[harness]
harvest = { examples = 3, temperature = 0.8, rollouts = 4 }
evaluate = { answer_tokens = 48, slots = 16 }
[tasks]
environment = "gym"
train = ["caravan", "gatepost", "kilnrite"]
held_out = ["brinework"]
levels = [1]
per_family = 25
[seeds]
harvest = [11001]
evaluate = [52004, 52005]
train = [1]
calibrate = [31001]
[[arms]]
name = "base"
[[arms]]
name = "treatment"
adapter = "receipt:train"
deploy = "merged"
[[gates]]
kind = "headroom"
ceiling = 1.0
minimum_delta = 0.03
[decision]
rule = "three-way"
metric = { estimator = "paired_delta", of = "reward", weight = "task" }
minimum_delta = 0.03
"#;

fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Plan::parse(&GOOD.replacen(from, to, 1), Path::new("experiment.toml")).unwrap_err().to_string()
}

#[test]
fn a_good_plan_parses_and_round_trips() {
    let plan = Plan::parse(GOOD, Path::new("experiment.toml")).unwrap();
    assert_eq!(plan.event_seeds().len(), 4);
    assert_eq!(plan.split("brinework"), "held_out");
    let again = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("x")).unwrap();
    assert_eq!(plan, again);
}

#[test]
fn each_fault_is_named_with_a_remedy() {
    for (from, to, named) in [
        ("per_family", "per_famly", "did you mean `per_family`"),
        ("per_family = 25", "per_family = 2.5", "expected a whole number, 0 or more: `per_family = 2.5`"),
        ("minimum_delta = 0.03", "minimum_delta = \"x\"", "expected a number"),
        ("name = \"treatment\"", "name = \"base\"", "duplicate arm `base`"),
        ("[52004, 52005]", "[52004, 52004]", "seed 52004 appears twice"),
        ("[52004, 52005]", "[52004, 31001]", "seed 31001 appears twice"),
        ("\"gatepost\"", "\"gateposts\"", "did you mean `gatepost`"),
        ("[\"brinework\"]", "[\"caravan\"]", "family `caravan` appears twice"),
        ("levels = [1]", "levels = [7]", "level 7"),
        ("calibrate = [31001]", "calibrate = []", "calibration seeds"),
        ("train = [1]\n", "train = []\n", "training seed"),
        ("of = \"reward\"", "of = \"turns\"", "paired_delta"),
        ("\"three-way\"", "\"three-wy\"", "three-way"),
        ("per_family = 25", "per_family = 0", "per_family"),
        ("per_family = 25", "per_family = 4000000000", "episodes a seed"),
        ("slots = 16", "slots = 1025", "`slots` is 1025, which is not in 1..=1024"),
        ("slots = 16", "slots = 0", "`slots` is 0"),
        ("rollouts = 4", "rollouts = 1000000000", "`rollouts` is 1000000000"),
        ("answer_tokens = 48", "answer_tokens = 4000000000", "`answer_tokens`"),
        ("answer_tokens = 48", "answer_tokens = 48, think_tokens = 0", "`think_tokens` is 0"),
        ("answer_tokens = 48", "answer_tokens = 48, think_tokens = 64", "set it in both"),
    ] {
        let message = refused(from, to);
        assert!(message.contains(named), "{named} not in: {message}");
        assert!(message.contains("experiment.toml") && message.contains("hint:"), "{message}");
    }
}

#[test]
fn a_syntax_error_names_its_line() {
    assert!(refused("per_family = 25", "per_family = ").contains("experiment.toml:1"));
}
