//! The text for a terminal: the answer first, no line too wide, plurals, notes and denominators.

#![cfg(test)]

use super::{DATA_SETS, Options, compare_files, defaults, reference};
use crate::compare::Cluster;
use proptest::prelude::*;

#[test]
fn the_text_answers_first_and_colour_is_an_extra() {
    let c = reference("binary_basic", "0");
    let plain = c.render(80, false);
    assert!(plain.starts_with("`treatment` scores higher than `base`: +0.083 over 40 tasks"));
    assert!(!plain.contains('\u{1b}') && plain.contains("sign-flip p") && plain.contains("pass@k"));
    let coloured = c.render(80, true);
    assert!(coloured.contains('\u{1b}'));
    assert!(reference("partial_credit", "0").render(80, false).starts_with("These rows do not tell"));
    assert!(reference("degenerate_all_equal", "0").render(80, false).contains("without an interval"));
    for width in [0, 40, 200] {
        for name in DATA_SETS {
            assert!(reference(name, "0").render(width, false).lines().count() > 8);
        }
    }
}

#[test]
fn names_from_files_cannot_steer_the_terminal() {
    let text = "arm,task,reward\n\u{1b}[31mx,a,0\nbase,a,1\n";
    let c = compare_files(&[("r.csv", text)], defaults()).unwrap();
    assert!(!c.render(80, false).contains('\u{1b}'));
}

/// The text at a width of 100 for one CSV file.
fn text_of(csv: &str) -> String {
    compare_files(&[("r.csv", csv)], defaults()).unwrap().render(100, false)
}

#[track_caller]
fn fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
    }
}

#[test]
fn no_line_is_wider_than_asked_for() {
    let long = "a tuned arm with a very long name, longer than any column of it";
    let mut rows = String::from("arm,task,reward\n");
    for i in 0..12 {
        rows.push_str(&format!("base,{i},0.25\n\"{long}\",{i},{}\n", f64::from(i % 4) / 4.0));
    }
    let named = compare_files(&[("r.csv", &rows)], defaults()).unwrap();
    let joined = "x".repeat(80);
    let unbroken = compare_files(&[("r.csv", &rows.replace(long, &joined))], defaults()).unwrap();
    let sets = DATA_SETS.map(|name| reference(name, "0"));
    for width in 60..=140 {
        for c in sets.iter().chain([&named, &unbroken]) {
            let text = c.render(width, false);
            fits(&text, width);
            assert!(text.lines().all(|l| l == l.trim_end()), "{text}");
        }
    }
    assert!(named.render(60, false).contains("a tuned arm with a very long name"));
}

#[test]
fn means_over_the_paired_tasks_say_so() {
    let c = reference("unbalanced_missing", "0");
    let text = c.render(140, false);
    assert!(c.base.tasks != c.paired_tasks || c.treatment.tasks != c.paired_tasks);
    let arm = if c.base.tasks != c.paired_tasks { &c.base } else { &c.treatment };
    assert!(text.contains(&format!("{} of {}", c.paired_tasks, arm.tasks)), "{text}");
    assert!(text.contains("which fills them in and so is a mean over all"), "{text}");
    assert!(!reference("binary_basic", "0").render(140, false).contains("40 of 40"));
}

#[test]
fn one_of_a_thing_is_singular() {
    let one = text_of("arm,task,reward\nbase,a,0\ntreatment,a,1\n");
    assert!(
        one.contains("only 1 paired task [few_tasks]") && one.contains("only 1 of 1 task differs"),
        "{one}"
    );
    assert!(!one.contains("degree") && !one.contains("1 tasks"), "{one}");
    let two = text_of("arm,task,reward\nbase,a,0\ntreatment,a,1\nbase,b,0\ntreatment,b,0\n");
    assert!(two.contains("t, 1 degree of freedom") && two.contains("task that differs"), "{two}");
    assert!(two.contains("only 1 of 2 tasks differs"), "{two}");
    assert!(two.contains("with 1 task that differs the sign-flip test cannot come below 1.0000"), "{two}");
}

#[test]
fn what_few_units_cannot_show_is_said() {
    let mut rows = String::from("arm,task,reward\n");
    for task in 0..40 {
        rows.push_str(&format!("base,f{}/{task},0\ntreatment,f{}/{task},{}\n", task % 4, task % 4, task % 2));
    }
    let clustered = Options { cluster: Cluster::Family, ..defaults() };
    let text = compare_files(&[("r.csv", &rows)], clustered).unwrap().render(100, false);
    assert!(text.contains("with 4 clusters the sign-flip test cannot come below 0.1250"), "{text}");
    assert!(!text_of(&rows).contains("test_without_power"));
    let turned = Options { treatment: Some("base".into()), ..defaults() };
    let text = compare_files(&[("r.csv", &rows)], turned).unwrap().render(100, false);
    assert!(text.contains("as asked, `base` is compared against `treatment`"), "{text}");
}

#[test]
fn equal_differences_are_said_in_plain_words() {
    let text = text_of("arm,task,reward\nbase,a,0\ntreatment,a,1\nbase,b,0\ntreatment,b,1\n");
    assert!(text.contains("interval: all tasks differ by the same amount."), "{text}");
    assert!(!text.contains("varies") && !text.contains("80% power"), "{text}");
    assert!(!text.contains("+1.000 to"), "{text}");
    assert!(reference("degenerate_all_equal", "0").render(100, false).contains("no task differs between"));
}

#[test]
fn notes_have_words_first_and_the_code_after() {
    let text = text_of("arm,task,reward\nbase,a,0\ntreatment,a,1\nbase,b,0\ntreatment,b,0\n");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    assert!(at("\nwarnings\n") < at("[few_tasks]") && at("[few_tasks]") < at("\nnotes\n"));
    assert!(at("no `seed` and no `rollout` column") < at("default_seed, default_rollout]"));
    assert_eq!(text.matches("default_rollout").count(), 1);
    assert!(text.contains(" with 80% power"));
}

#[test]
fn best_of_one_is_not_said_twice() {
    let text = reference("partial_credit", "0").render(140, false);
    let line = text.lines().find(|l| l.starts_with("best of k")).unwrap();
    assert!(!line.contains("k=1 ") && line.contains("k=2 "), "{line}");
    assert!(!text_of("arm,task,reward\nbase,a,0\ntreatment,a,1\n").contains("best of k"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_rows_fit_any_width(rewards in proptest::collection::vec((0u8..5, 0u8..5), 1..14), width in 60usize..=140) {
        let mut rows = String::from("arm,task,reward\n");
        for (i, (b, t)) in rewards.iter().enumerate() {
            rows.push_str(&format!("base,{i},{}\ntreatment,{i},{}\n", f64::from(*b) / 4.0, f64::from(*t) / 4.0));
        }
        let options = Options { bootstrap_key: "0".into(), ..Options::default() };
        fits(&compare_files(&[("r.csv", &rows)], options).unwrap().render(width, false), width);
    }
}

#[test]
fn rows_that_pair_with_none_and_names_that_are_guessed_are_said() {
    let mut rows = String::from("arm,task,seed,reward\n");
    for task in 0..12 {
        for (arm, seeds) in [("base", [1, 2]), ("tretment", [1, 3])] {
            for seed in seeds {
                rows.push_str(&format!("{arm},t{task},{seed},{}\n", (task + seed) % 2));
            }
        }
    }
    rows.push_str("Base,t0,1,1\n");
    let error = compare_files(&[("r.csv", &rows)], defaults()).unwrap_err().to_string();
    assert!(error.contains("`Base`"), "{error}");
    let named = Options { treatment: Some("tretment".into()), ..defaults() };
    let text = compare_files(&[("r.csv", &rows)], named).unwrap().render(300, false);
    assert!(text.contains("12 of base under seed 2, 12 of treatment under seed 3"), "{text}");
    assert!(text.contains("rows of other arms are left out: 1 (`Base`)"), "{text}");
    let two = rows.replace("Base,t0,1,1\n", "");
    let text = compare_files(&[("r.csv", &two)], defaults()).unwrap().render(300, false);
    assert!(text.contains("no arm is called `treatment`, and `tretment` is taken for it"), "{text}");
}

#[test]
fn an_interval_that_the_test_does_not_bear_out_is_doubted() {
    let mut rows = String::from("arm,task,reward\n");
    (0..20)
        .for_each(|task| rows.push_str(&format!("base,{task},0\ntreatment,{task},{}\n", u8::from(task < 4))));
    let text = text_of(&rows);
    assert!(text.contains("gives p = 0.125, so chance alone may do it."), "{text}");
    assert!(text.contains("with 80% power at most, the units being few"), "{text}");
}
