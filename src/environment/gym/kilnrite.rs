//! kilnrite: following a rite whose legal next step depends on the kiln's state. The glow
//! picks the verb; later levels add a condition that comes before all others and a rule
//! about what was done last. The score is the share of the rite completed.

use super::knobs::{KilnriteKnobs, LEVEL_ONE};
use super::{Draft, FamilyInfo, Kind, Side, parse, words};
use crate::environment::{Outcome, Session, Turn};
use crate::philox::Philox;
use serde::{Deserialize, Serialize};

/// The family's entry in the registry.
pub const INFO: FamilyInfo = FamilyInfo {
    name: "kilnrite",
    axis: "following a procedure whose legal next step depends on state",
    kind: Kind::Turns,
    side: Side::Train,
    version: 1,
    floor: 0.35,
    draft: |level, rng| draft(level, rng, &LEVEL_ONE.kilnrite),
};

const GLOWS: [&str; 8] = ["red", "blue", "white", "green", "amber", "violet", "gold", "grey"];
const VERBS: [&str; 10] = ["feed", "seal", "stir", "rest", "fan", "turn", "vent", "douse", "bank", "stack"];

/// A rite and its only legal course; stored as the task's hidden value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RiteSpec {
    /// The first observation: rules, first state, verbs.
    pub prompt: String,
    /// The verbs of the grammar.
    pub verbs: Vec<String>,
    /// What is seen ahead of each step.
    pub states: Vec<String>,
    /// The legal verb of each step, as an index into `verbs`; as long as `states`.
    pub legal: Vec<usize>,
    /// Most turns allowed.
    pub horizon: u32,
}

struct Shape {
    steps: usize,
    slack: usize,
    glows: usize,
    /// Whether a wet pot comes before every glow.
    wet: bool,
    /// Whether the verb used last must not be used again.
    no_repeat: bool,
}

fn draft(level: u8, rng: &mut Philox, knobs: &KilnriteKnobs) -> Draft {
    let shape = match level {
        1 => Shape {
            steps: knobs.steps.max(1),
            slack: knobs.slack,
            glows: knobs.verbs.clamp(3, 8),
            wet: false,
            no_repeat: false,
        },
        2 => Shape { steps: 4, slack: 1, glows: 5, wet: false, no_repeat: false },
        3 => Shape { steps: 5, slack: 1, glows: 4, wet: true, no_repeat: false },
        _ => Shape { steps: 6, slack: 2, glows: 5, wet: true, no_repeat: true },
    };
    write(rng, &shape)
}

fn write(rng: &mut Philox, shape: &Shape) -> Draft {
    let glows = words::sample(rng, &GLOWS, shape.glows);
    // Verb i answers glow i; the two after them answer a wet pot and a repetition.
    let count = shape.glows + usize::from(shape.wet) + usize::from(shape.no_repeat);
    let verbs = words::sample(rng, &VERBS, count);
    let (for_wet, instead) = (shape.glows, shape.glows + 1);

    let (mut states, mut legal) = (Vec::new(), Vec::<usize>::new());
    let mut glow = rng.below(shape.glows);
    for step in 0..shape.steps {
        // A glow stays only where a rule about repetition makes that matter.
        if step > 0 && !(shape.no_repeat && words::chance(rng, 40)) {
            glow = (glow + 1 + rng.below(shape.glows - 1)) % shape.glows;
        }
        let wet = shape.wet && words::chance(rng, 30);
        let ruled = if wet { for_wet } else { glow };
        let repeats = shape.no_repeat && legal.last() == Some(&ruled);
        legal.push(if repeats { instead } else { ruled });
        states.push(match (shape.wet, wet) {
            (false, _) => format!("The glow is {}.", glows[glow]),
            (true, true) => format!("The glow is {}, the pot is wet.", glows[glow]),
            (true, false) => format!("The glow is {}, the pot is dry.", glows[glow]),
        });
    }

    let mut rules: Vec<String> = glows.iter().zip(&verbs).map(|(g, v)| format!("{g} glow: {v}")).collect();
    rng.shuffle(&mut rules);
    if shape.wet {
        rules.insert(0, format!("wet pot, whatever the glow: {}", verbs[for_wet]));
    }
    if shape.no_repeat {
        rules.push(format!("never the same verb twice in a row: then {} instead", verbs[instead]));
    }
    let mut listed = verbs.clone();
    listed.sort_unstable();
    let prompt = format!(
        "Kiln rite of {}:\n{}\n{} Reply with one line, ACTION: <verb>. Verbs: {}.",
        words::name(rng),
        rules.join("\n"),
        states[0],
        listed.join(", ")
    );
    let spec = RiteSpec {
        prompt,
        verbs: verbs.into_iter().map(String::from).collect(),
        states,
        legal,
        horizon: (shape.steps + shape.slack) as u32,
    };
    let sequences = (count as u32).checked_pow(shape.steps as u32).filter(|n| *n <= 50);
    // Worked examples differ in the place of the first rule that they use.
    let form = rules.iter().position(|r| r.ends_with(&spec.verbs[spec.legal[0]])).unwrap_or(0);
    Draft::new(&spec, sequences, form)
}

/// An episode of a rite.
pub struct RiteSession {
    spec: RiteSpec,
    done: usize,
    turns: u32,
}

impl RiteSession {
    /// Starts an episode; `None` when the specification contradicts itself.
    pub fn new(spec: RiteSpec) -> Option<Self> {
        let sound = !spec.legal.is_empty()
            && spec.legal.len() == spec.states.len()
            && spec.legal.iter().all(|verb| *verb < spec.verbs.len())
            && spec.horizon > 0;
        sound.then_some(RiteSession { spec, done: 0, turns: 0 })
    }

    fn is_over(&self) -> bool {
        self.done == self.spec.legal.len() || self.turns >= self.spec.horizon
    }
}

impl Session for RiteSession {
    fn prompt(&self) -> String {
        self.spec.prompt.clone()
    }

    fn reply(&mut self, text: &str) -> Turn {
        if self.is_over() {
            return Turn { observation: None, parse_ok: false, action_ok: false };
        }
        let verb = parse::field(text, "ACTION").and_then(|v| parse::option(v, &self.spec.verbs));
        let action_ok = verb == Some(self.spec.legal[self.done]);
        self.turns += 1;
        self.done += usize::from(action_ok);
        let observation = (!self.is_over()).then(|| {
            let state = &self.spec.states[self.done];
            match verb {
                Some(_) if action_ok => state.clone(),
                Some(verb) => format!("The kiln does not allow {} now. {state}", self.spec.verbs[verb]),
                None => {
                    let mut verbs: Vec<&str> = self.spec.verbs.iter().map(String::as_str).collect();
                    verbs.sort_unstable();
                    format!("Expected one line, ACTION: <verb>. Verbs: {}. {state}", verbs.join(", "))
                }
            }
        });
        Turn { observation, parse_ok: verb.is_some(), action_ok }
    }

    fn outcome(&self) -> Outcome {
        let steps = self.spec.legal.len();
        Outcome { reward: self.done as f64 / steps as f64, solved: self.done == steps }
    }

    fn oracle(&self) -> String {
        let step = self.done.min(self.spec.legal.len() - 1);
        format!("ACTION: {}", self.spec.verbs[self.spec.legal[step]])
    }

    fn random(&self, rng: &mut Philox) -> String {
        format!("ACTION: {}", rng.choose(&self.spec.verbs))
    }

    fn horizon(&self) -> u32 {
        self.spec.horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(level: u8, seed: u32) -> RiteSpec {
        let draft = (INFO.draft)(level, &mut Philox::named(&format!("kilnrite/{level}/{seed}")));
        serde_json::from_value(draft.hidden).unwrap()
    }

    /// Follows the rules as they are written in the prompt, knowing nothing else.
    fn follow(spec: &RiteSpec) -> Vec<String> {
        let rule = |start: &str| {
            let line = spec.prompt.lines().find(|l| l.starts_with(start))?;
            Some(
                line.split_once(": ")?.1.trim_start_matches("then ").trim_end_matches(" instead").to_string(),
            )
        };
        let mut verbs: Vec<String> = Vec::new();
        for state in &spec.states {
            let glow = state.trim_start_matches("The glow is ").split([',', '.']).next().unwrap();
            let wet = rule("wet pot").filter(|_| state.contains("wet"));
            let mut verb = wet.unwrap_or_else(|| rule(&format!("{glow} glow")).unwrap());
            if let Some(instead) = rule("never").filter(|_| verbs.last() == Some(&verb)) {
                verb = instead;
            }
            verbs.push(verb);
        }
        verbs
    }

    #[test]
    fn the_legal_course_follows_from_the_written_rules() {
        for level in 1..=4 {
            let mut instead = 0;
            for seed in 0..300 {
                let spec = spec(level, seed);
                let course: Vec<String> = spec.legal.iter().map(|v| spec.verbs[*v].clone()).collect();
                assert_eq!(follow(&spec), course, "{}\n{:?}", spec.prompt, spec.states);
                instead += usize::from(spec.legal.contains(&6));
            }
            assert_eq!(instead > 100, level == 4, "{instead} rites of level {level} use the last rule");
        }
    }

    #[test]
    fn a_bad_reply_costs_a_turn_and_names_the_grammar() {
        let spec = spec(2, 0);
        let (steps, horizon) = (spec.legal.len(), spec.horizon);
        let mut session = RiteSession::new(spec).unwrap();
        let turn = session.reply("I would wait.");
        assert!(!turn.parse_ok && !turn.action_ok);
        assert!(turn.observation.unwrap().starts_with("Expected one line, ACTION: <verb>."));
        for _ in 0..steps {
            assert!(!session.outcome().solved);
            assert!(session.reply(&session.oracle()).action_ok);
        }
        assert_eq!(session.turns, horizon);
        assert_eq!(session.outcome(), Outcome { reward: 1.0, solved: true });
        assert_eq!(session.reply("ACTION: feed").observation, None);
        assert_eq!(session.outcome(), Outcome { reward: 1.0, solved: true });
    }

    #[test]
    fn partial_credit_is_the_share_completed() {
        let spec = spec(2, 1);
        let wrong = format!("ACTION: {}", spec.verbs[(spec.legal[1] + 1) % spec.verbs.len()]);
        let mut session = RiteSession::new(spec).unwrap();
        session.reply(&session.oracle());
        let mut last = Turn { observation: Some(String::new()), parse_ok: true, action_ok: true };
        while last.observation.is_some() {
            last = session.reply(&wrong);
            assert!(last.parse_ok && !last.action_ok);
        }
        assert_eq!(session.outcome(), Outcome { reward: 0.25, solved: false });
    }

    #[test]
    fn knobs_set_steps_slack_and_verbs() {
        let knobs = KilnriteKnobs { steps: 3, slack: 1, verbs: 3 };
        let draft = draft(1, &mut Philox::named("knobs"), &knobs);
        let spec: RiteSpec = serde_json::from_value(draft.hidden).unwrap();
        assert_eq!((spec.legal.len(), spec.horizon, spec.verbs.len()), (3, 4, 3));
        assert_eq!(draft.answer_domain, Some(27));
    }

    proptest! {
        #[test]
        fn random_text_never_scores(text in "\\PC{0,80}", tail in "[^a-z]{0,30}") {
            let mut session = RiteSession::new(spec(1, 7)).unwrap();
            for reply in [text, format!("ACTION: {tail}")] {
                prop_assert!(!session.reply(&reply).action_ok);
            }
            prop_assert_eq!(session.outcome().reward, 0.0);
        }
    }
}
