//! kilnrite: following a rite whose legal next step depends on the kiln's state. The glow
//! picks the verb (at level 1 the number of a lever); later levels add a condition that comes
//! before all others and a rule about what was done last. The score is the share completed.

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
/// Largest number of a lever.
const MAX_LEVER: i64 = 20;
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
    /// What a reply may name, with a colon, before the verb of each step (`red: 4`); to name
    /// anything else there is wrong. Empty where verbs stand alone, else as long as `states`.
    pub labels: Vec<String>,
    /// What is shown again ahead of every later state; may be empty.
    pub reminder: String,
    /// The form of a reply, as told after one that could not be read.
    pub grammar: String,
    /// Most turns allowed.
    pub horizon: u32,
}

struct Shape {
    steps: usize,
    slack: usize,
    glows: usize,
    /// How often the glow stays as it was, in percent.
    stay: i64,
    /// Whether verbs are the numbers of levers, replies name the glow, and rules are shown again.
    numbered: bool,
    /// Whether a wet pot comes before every glow.
    wet: bool,
    /// Whether the verb used last must not be used again.
    no_repeat: bool,
}

fn draft(level: u8, rng: &mut Philox, knobs: &KilnriteKnobs) -> Draft {
    let plain =
        Shape { steps: 4, slack: 1, glows: 5, stay: 0, numbered: false, wet: false, no_repeat: false };
    let shape = match level {
        1 => Shape {
            steps: knobs.steps.max(1),
            slack: knobs.slack,
            glows: knobs.verbs.clamp(3, 8),
            stay: knobs.stay_percent,
            numbered: true,
            ..plain
        },
        2 => plain,
        3 => Shape { steps: 5, glows: 4, wet: true, ..plain },
        // A glow stays only where a rule about repetition makes that matter.
        _ => Shape { steps: 6, slack: 2, stay: 40, wet: true, no_repeat: true, ..plain },
    };
    write(rng, &shape)
}

fn write(rng: &mut Philox, shape: &Shape) -> Draft {
    let glows = words::sample(rng, &GLOWS, shape.glows);
    // Verb i answers glow i; the two after them answer a wet pot and a repetition.
    let count = shape.glows + usize::from(shape.wet) + usize::from(shape.no_repeat);
    let verbs: Vec<String> = match shape.numbered {
        true => words::numbers(rng, count, MAX_LEVER),
        false => words::sample(rng, &VERBS, count).into_iter().map(String::from).collect(),
    };
    let (for_wet, instead) = (shape.glows, shape.glows + 1);

    let (mut states, mut legal, mut labels) = (Vec::new(), Vec::<usize>::new(), Vec::new());
    let mut glow = rng.below(shape.glows);
    for step in 0..shape.steps {
        if step > 0 && !words::chance(rng, shape.stay) {
            glow = (glow + 1 + rng.below(shape.glows - 1)) % shape.glows;
        }
        let wet = shape.wet && words::chance(rng, 30);
        let ruled = if wet { for_wet } else { glow };
        let repeats = shape.no_repeat && legal.last() == Some(&ruled);
        legal.push(if repeats { instead } else { ruled });
        if shape.numbered {
            labels.push(glows[glow].to_string());
            states.push(format!("Now: {}", glows[glow]));
            continue;
        }
        states.push(match (shape.wet, wet) {
            (false, _) => format!("The glow is {}.", glows[glow]),
            (true, true) => format!("The glow is {}, the pot is wet.", glows[glow]),
            (true, false) => format!("The glow is {}, the pot is dry.", glows[glow]),
        });
    }

    let what = if shape.numbered { "" } else { " glow" };
    let mut rules: Vec<String> = glows.iter().zip(&verbs).map(|(g, v)| format!("{g}{what}: {v}")).collect();
    rng.shuffle(&mut rules);
    if shape.wet {
        rules.insert(0, format!("wet pot, whatever the glow: {}", verbs[for_wet]));
    }
    if shape.no_repeat {
        rules.push(format!("never the same verb twice in a row: then {} instead", verbs[instead]));
    }
    // Worked examples differ in the place of the first rule that they use, or, at level 1, in
    // whether the glow changes.
    let place = rules.iter().position(|r| r.ends_with(&format!(": {}", verbs[legal[0]]))).unwrap_or(0);
    let rules = rules.join("\n");
    let (prompt, reminder, grammar) = if shape.numbered {
        let grammar = "ACTION: <glow>: <lever>.".to_string();
        (format!("Kiln levers:\n{rules}\nReply with one line, {grammar}\n{}", states[0]), rules, grammar)
    } else {
        let mut listed = verbs.clone();
        listed.sort_unstable();
        let grammar = format!("ACTION: <verb>. Verbs: {}.", listed.join(", "));
        let name = words::name(rng);
        let prompt = format!("Kiln rite of {name}:\n{rules}\n{} Reply with one line, {grammar}", states[0]);
        (prompt, String::new(), grammar)
    };
    let spec = RiteSpec {
        prompt,
        verbs,
        states,
        legal,
        labels,
        reminder,
        grammar,
        horizon: (shape.steps + shape.slack) as u32,
    };
    let sequences = (count as u32).checked_pow(shape.steps as u32).filter(|n| *n <= 50);
    let form = if shape.numbered { usize::from(spec.legal.windows(2).any(|w| w[0] != w[1])) } else { place };
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
            && (spec.labels.is_empty() || spec.labels.len() == spec.states.len())
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
        let (label, value) = match (self.spec.labels.get(self.done), parse::field(text, "ACTION")) {
            (Some(_), Some(value)) => {
                let (label, value) = parse::labelled(value);
                (label, Some(value))
            }
            (_, value) => (None, value),
        };
        let fits =
            label.is_none_or(|l| self.spec.labels.get(self.done).is_some_and(|s| s.eq_ignore_ascii_case(l)));
        let verb = value.and_then(|v| parse::option(v, &self.spec.verbs));
        let action_ok = fits && verb == Some(self.spec.legal[self.done]);
        self.turns += 1;
        self.done += usize::from(action_ok);
        let observation = (!self.is_over()).then(|| {
            let (state, reminder) = (&self.spec.states[self.done], &self.spec.reminder);
            let seen = if reminder.is_empty() { state.clone() } else { format!("{reminder}\n{state}") };
            // What is seen is one line, or several that begin on their own.
            let gap = if reminder.is_empty() { ' ' } else { '\n' };
            match verb {
                Some(_) if action_ok => seen,
                Some(verb) => format!("The kiln does not allow {} now.{gap}{seen}", self.spec.verbs[verb]),
                None => format!("Expected one line, {}{gap}{seen}", self.spec.grammar),
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
        let label = self.spec.labels.get(step).map(|label| format!("{label}: ")).unwrap_or_default();
        format!("ACTION: {label}{}", self.spec.verbs[self.spec.legal[step]])
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
            if let Some(glow) = glow.strip_prefix("Now: ") {
                verbs.push(rule(&format!("{glow}: ")).unwrap());
                continue;
            }
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
        let knobs = KilnriteKnobs { steps: 3, slack: 1, verbs: 3, stay_percent: 0 };
        let draft = draft(1, &mut Philox::named("knobs"), &knobs);
        let spec: RiteSpec = serde_json::from_value(draft.hidden).unwrap();
        assert_eq!((spec.legal.len(), spec.horizon, spec.verbs.len()), (3, 4, 3));
        assert_eq!(draft.answer_domain, Some(27));
        assert!(spec.states.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_glow_stays_as_often_as_the_knob_says() {
        let stays = |stay_percent| {
            let knobs = KilnriteKnobs { steps: 2, slack: 0, verbs: 3, stay_percent };
            let stays = |seed: &u32| {
                let draft = draft(1, &mut Philox::named(&format!("stay/{seed}")), &knobs);
                draft.hidden["states"][0] == draft.hidden["states"][1]
            };
            (0..200).filter(stays).count()
        };
        assert_eq!((stays(0), stays(100)), (0, 200));
        assert!((70..130).contains(&stays(50)));
    }

    #[test]
    fn numbered_rites_take_the_glow_s_name_and_show_the_rules_again() {
        let spec = spec(1, 3);
        let (glow, lever) = (spec.labels[0].clone(), spec.verbs[spec.legal[0]].clone());
        let rules: Vec<&str> = spec.prompt.lines().skip(1).take(spec.verbs.len()).collect();
        let other = rules.iter().map(|r| r.split_once(": ").unwrap().0).find(|g| *g != glow).unwrap();
        for (reply, ok) in [
            (format!("ACTION: {glow}: {lever}"), true),
            (format!("ACTION: {lever}"), true),
            (format!("ACTION: {other}: {lever}"), false),
        ] {
            let mut session = RiteSession::new(spec.clone()).unwrap();
            let turn = session.reply(&reply);
            assert_eq!((turn.parse_ok, turn.action_ok), (true, ok), "{reply}");
            let seen = turn.observation.unwrap();
            assert!(seen.ends_with(&format!("{}\n{}", rules.join("\n"), spec.states[usize::from(ok)])));
            assert_eq!(seen.starts_with("The kiln does not allow"), !ok);
        }
    }

    proptest! {
        #[test]
        fn random_text_never_scores(text in "\\PC{0,80}", tail in "[^a-z0-9]{0,30}") {
            let mut session = RiteSession::new(spec(1, 7)).unwrap();
            for reply in [text, format!("ACTION: {tail}")] {
                prop_assert!(!session.reply(&reply).action_ok);
            }
            prop_assert_eq!(session.outcome().reward, 0.0);
        }
    }
}
