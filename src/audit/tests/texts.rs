//! The texts of the small honest workspace: plan, report and claim.

/// The plan.
pub const PLAN: &str = r#"
title = "A demo"
[model]
source = "smollm2-135m-instruct"
[harness]
[harness.harvest]
rollouts = 1
[harness.evaluate]
answer_tokens = 120
[tasks]
environment = "gym"
train = ["caravan"]
held_out = ["brinework"]
levels = [1]
per_family = 6
[harvest]
per_family = 4
minimum_rows = 3
minimum_families = 1
[seeds]
calibrate = [31001]
harvest = [11001]
evaluate = [52004, 52005]
train = [1]
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
metric = { estimator = "paired_delta", of = "reward" }
minimum_delta = 0.03
"#;

/// The report.
pub const REPORT: &str = r#"+++
title = "A demo"
lifecycle = "finished"
verdict = "positive"
started = 2026-12-01
ended = 2026-12-01
plain = { idea = "i", question = "q", found = "From [0.25](derive:demo.base) up.", matters = "m" }
[[cards]]
label = "Reward"
value = "[25%](derive:demo.base) → [50%](derive:demo.treatment)"
[derivations.base]
data = "episodes"
estimator = "mean"
of = "reward"
arms = ["base"]
[derivations.treatment]
data = "episodes"
estimator = "mean"
of = "reward"
arms = ["treatment"]
[derivations.delta]
data = "episodes"
estimator = "paired_delta"
of = "reward"
arms = ["base", "treatment"]
[derivations.by_family]
data = "episodes"
estimator = "paired_delta"
of = "reward"
arms = ["base", "treatment"]
by = "family"
[derivations.flips]
data = "episodes"
estimator = "flips"
arms = ["base", "treatment"]
[derivations.kept]
data = "harvest"
estimator = "share"
of = "kept"
[derivations.longest]
data = "episodes"
estimator = "max"
of = "completion_tokens"
where = { finish_reason = "stop" }
[derivations.bar]
data = "plan"
estimator = "value"
of = "decision.minimum_delta"
[derivations.harvested]
data = "receipts"
estimator = "value"
of = "harvest.samples"
[derivations.human]
data = "facts"
estimator = "value"
of = "human"
[derivations.unwritten]
data = "episodes"
estimator = "mean"
of = "think_tokens"
arms = ["base"]
+++

The change is [+0.250](derive:demo.delta) over [24](derive:demo.delta.n) tasks, p = [0.031](derive:demo.delta.p),
standard error [0.090](derive:demo.delta.se) on [23](derive:demo.delta.df) degrees of freedom.
By family: [+0.17](derive:demo.by_family/brinework) and [+0.33](derive:demo.by_family/caravan).
Gained [6](derive:demo.flips.gained), lost [0](derive:demo.flips.lost), both [6](derive:demo.flips.both), net [+6](derive:demo.flips).
Kept [75%](derive:demo.kept) of [4 samples](derive:demo.harvested). The longest stopped reply took [120](derive:demo.longest) tokens.
The bar is [+0.03](derive:demo.bar); people reach [0.93](derive:demo.human).
"#;

/// The claim.
pub const CLAIM: &str = r#"+++
id = "C0001"
title = "It commits an answer"
status = "promising"
population = "tasks"
[derivations.pass]
experiment = "demo"
data = "episodes"
estimator = "pass_at_k"
k = 1
arms = ["treatment"]
[[history]]
date = 2026-12-01
status = "promising"
evidence = ["derive:demo.delta"]
+++
Reward rose by [+0.25](derive:demo.delta); [0.5](derive:C0001.pass) of tasks are solved.
"#;
