//! Drawing from a task set: enough tasks or refused, none twice, nothing harvested that is evaluated.

use super::*;
use std::fmt::Write;

/// A file with `train` and `held_out` lines of each family.
fn file(families: &[(&str, usize, usize)]) -> (tempfile::TempDir, PathBuf) {
    let mut text = String::new();
    for (family, train, held_out) in families {
        for (split, count) in [("train", train), ("held_out", held_out)] {
            for i in 0..*count {
                let line = serde_json::json!({"prompt": format!("{family} {split} {i}?"), "answer": i, "verifier": "number", "family": family, "split": split});
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    fs_err::write(&path, text).unwrap();
    (folder, path)
}

fn plan() -> Allotment {
    Allotment {
        train: vec!["a".into()],
        held_out: vec!["b".into()],
        levels: vec![1],
        harvest: vec![11, 12],
        harvest_count: 3,
        evaluate: vec![("calibrate", vec![31]), ("null", vec![]), ("evaluate", vec![51, 52])],
        evaluate_count: 4,
        harvest_examples: 2,
        evaluate_examples: 0,
    }
}

fn drawn(set: &TaskSet, family: &str, seed: u64, count: u32) -> Vec<String> {
    (0..count).map(|i| set.task(family, 1, seed, i).unwrap().id).collect()
}

#[test]
fn no_task_is_drawn_twice_and_sides_never_mix() {
    let (_folder, path) = file(&[("a", 8, 12), ("b", 0, 14)]);
    let mut set = TaskSet::open("tasks.jsonl", &path).unwrap();
    set.allot(&plan()).unwrap();
    let split = |id: &String| set.line(id).unwrap().split;
    let mut seen = BTreeSet::new();
    for (family, seed, count, side) in [
        ("a", 11, 3, Split::Train),
        ("a", 12, 3, Split::Train),
        ("a", 31, 4, Split::HeldOut),
        ("a", 51, 4, Split::HeldOut),
        ("a", 52, 4, Split::HeldOut),
        ("b", 31, 4, Split::HeldOut),
        ("b", 51, 4, Split::HeldOut),
        ("b", 52, 4, Split::HeldOut),
    ] {
        for (index, id) in (0..).zip(drawn(&set, family, seed, count)) {
            assert_eq!(split(&id), side, "{id}");
            let again = set.by_id(&id).unwrap();
            assert_eq!((again.seed, again.index, again.family.as_str()), (seed, index, family));
            assert!(seen.insert(id.clone()), "{id} twice");
        }
    }
    let shown = set.examples("a", 1, 2).unwrap();
    assert_eq!(shown.len(), 4);
    for id in &seen {
        let prompt = &set.line(id).unwrap().messages[0].content;
        assert!(shown.iter().all(|m| m.content != *prompt), "{prompt} is a worked example");
    }
    assert!(set.task("a", 1, 11, 3).unwrap_err().to_string().contains("drew 3 tasks"));
    let free = (0..).map(|i| set.task("b", 1, 0, i)).take(40).collect::<Result<Vec<_>>>().unwrap();
    assert!(free.iter().map(|t| &t.id).collect::<BTreeSet<_>>().len() == 14);
}

#[test]
fn a_draw_depends_on_its_seed_and_on_nothing_locked_later() {
    let (_folder, path) = file(&[("a", 40, 0), ("b", 0, 40)]);
    let open = |change: fn(&mut Allotment)| {
        let mut set = TaskSet::open("tasks.jsonl", &path).unwrap();
        let mut plan = plan();
        change(&mut plan);
        set.allot(&plan).unwrap();
        set
    };
    let set = open(|_| ());
    let harvested = [drawn(&set, "a", 11, 3), drawn(&set, "a", 12, 3)].concat();
    let other = open(|p| {
        p.evaluate = vec![("evaluate", vec![99])];
        p.evaluate_count = 9;
        p.evaluate_examples = 5;
    });
    assert_eq!([drawn(&other, "a", 11, 3), drawn(&other, "a", 12, 3)].concat(), harvested);
    assert!(
        drawn(&other, "a", 99, 9).iter().all(|id| !harvested.contains(id)),
        "harvested lines are not evaluated"
    );
    assert_ne!(drawn(&open(|p| p.harvest = vec![13]), "a", 13, 3), drawn(&set, "a", 11, 3));
    assert_eq!(drawn(&open(|_| ()), "b", 51, 4), drawn(&set, "b", 51, 4));
}

#[test]
fn too_few_lines_and_wrong_sides_are_refused_with_the_numbers() {
    let (_folder, path) = file(&[("a", 8, 12), ("b", 1, 14)]);
    let refused = |change: fn(&mut Allotment), words: &[&str]| {
        let mut set = TaskSet::open("tasks.jsonl", &path).unwrap();
        let mut plan = plan();
        plan.held_out.clear();
        change(&mut plan);
        let error = set.allot(&plan).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)) && error.contains("hint: "), "{error}");
    };
    refused(
        |p| p.harvest_count = 4,
        &["3", "train lines are left for seed 12 (harvest)", "and 4 are needed", "[harvest] per_family"]
            .map(|w| if w == "3" { "2 train" } else { w }),
    );
    refused(
        |p| p.evaluate_count = 5,
        &["2 held_out lines are left for seed 52 (evaluate)", "[tasks] per_family"],
    );
    refused(|p| p.harvest_examples = 9, &["8 lines for worked examples"]);
    refused(|p| p.levels = vec![1, 2], &["level 2", "its levels are 1"]);
    refused(|p| p.train = vec!["c".into()], &["family `c`", "a, b"]);
    refused(|p| p.held_out = vec!["b".into()], &["held out by the plan", "1 of its lines are `train`"]);
}

#[test]
fn a_session_scores_a_reply_and_a_changed_task_is_refused() {
    let (_folder, path) = file(&[("a", 3, 0)]);
    let set = TaskSet::open("tasks.jsonl", &path).unwrap();
    let task = set.task("a", 1, 7, 0).unwrap();
    let mut session = set.begin(&task).unwrap();
    assert_eq!((session.horizon(), session.opening().len()), (1, 1));
    assert_eq!(session.outcome(), Outcome { reward: 0.0, solved: false });
    let turn = session.reply("no number");
    assert!(!turn.parse_ok && turn.observation.is_none());
    let oracle = session.oracle();
    session.reply(&oracle);
    assert_eq!(session.outcome(), Outcome { reward: 1.0, solved: true });
    let read: Task = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
    assert!(set.begin(&read).is_ok());
    assert!(set.begin(&Task { hidden: "{}".into(), ..task }).is_err());
    assert!(set.by_id("t-none").is_err() && set.by_id(&read.id).is_err());
}

#[test]
fn the_hash_of_a_family_follows_its_lines() {
    let hash = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        fs_err::write(&path, text).unwrap();
        let set = TaskSet::open("t.jsonl", &path).unwrap();
        [set.verifier_sha256("a").unwrap(), set.verifier_sha256("b").unwrap()]
    };
    let line = |id: &str, answer: &str, family: &str| {
        format!(
            "{{\"id\": \"{id}\", \"prompt\": \"{id}\", \"answer\": \"{answer}\", \"family\": \"{family}\"}}\n"
        )
    };
    let [a, b] = hash(&[line("1", "x", "a"), line("2", "y", "b")].concat());
    assert_eq!(
        hash(&[line("2", "y", "b"), line("1", "x", "a")].concat()),
        [a.clone(), b.clone()],
        "order does not count"
    );
    let changed = hash(&[line("1", "z", "a"), line("2", "y", "b")].concat());
    assert!(changed[0] != a && changed[1] == b);
}

#[test]
fn an_unusable_file_is_refused_with_its_first_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let open = |text: &str| {
        fs_err::write(&path, text).unwrap();
        TaskSet::open("t.jsonl", &path).map(|set| set.sha256).unwrap_err().to_string()
    };
    let error = open("{\"prompt\": \"a\", \"answer\": \"b\"}\n{}\n{}\n");
    assert!(error.contains("t.jsonl:2: `prompt` is missing (and 1 further problems)"), "{error}");
    assert!(open("\n").contains("holds no task"));
    let report = check(&path).unwrap();
    assert!(!report.passed && report.tasks == 0);
}

#[test]
fn the_check_reports_what_constants_earn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let text: String = (0..10)
        .map(|i| format!("{{\"prompt\": \"{i}?\", \"answer\": \"{}\", \"family\": \"yes-no\"}}\n", if i == 0 { "no" } else { "yes" }))
        .chain(["{\"prompt\": \"any\", \"answer\": \".*\", \"verifier\": \"regex\", \"match\": \"search\", \"example\": \"x\", \"family\": \"open\"}\n".to_owned()])
        .collect();
    fs_err::write(&path, text).unwrap();
    let report = check(&path).unwrap();
    assert!(report.passed, "{report:?}");
    let cell = report.cells.iter().find(|cell| cell.family == "yes-no").unwrap();
    assert_eq!(
        (cell.tasks, cell.oracle, cell.constant, cell.constant_reply.as_str()),
        (10, 1.0, 0.9, "ANSWER: yes")
    );
    assert!(report.remarks.iter().any(|r| r.contains("`ANSWER: yes` solves 90%")), "{:?}", report.remarks);
    assert!(
        report.remarks.iter().any(|r| r.contains("accepts a reply without an answer")),
        "{:?}",
        report.remarks
    );
    let without = "11 of 11 tasks: lines without an id cannot have their verifier repaired";
    assert!(report.remarks.iter().any(|r| r.starts_with(without)), "{:?}", report.remarks);
}

#[test]
fn a_line_that_lost_its_name_with_its_answer_is_told_the_text_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let set = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs_err::write(&path, text).unwrap();
        TaskSet::open(name, &path).unwrap()
    };
    let line = |question: &str, answer: &str, id: &str| {
        format!("{{{id}\"prompt\": \"{question}\", \"answer\": \"{answer}\"}}\n")
    };
    let old = [line("a", "1", ""), line("b", "2", ""), line("c", "3", "")];
    let was = set("old.jsonl", &old.concat());
    let now = set("now.jsonl", &[&*old[0], "\n", &line("b", "4", ""), &line("c", "5", "")].concat());
    let error = now.asks_the_same(&was).unwrap_err().to_string();
    let id = id_of(&old[1]).unwrap();
    for words in ["now.jsonl:3", "another id", "1 more such line", &format!("`\"id\": \"{id}\"`")] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let ids = [1, 2].map(|at| format!("\"id\": \"{}\", ", id_of(&old[at]).unwrap()));
    let now = [old[0].clone(), line("b", "4", &ids[0]), line("c", "5", &ids[1])].concat();
    set("mended.jsonl", &now).asks_the_same(&was).unwrap();
    let other = set("other.jsonl", &[&*old[0], &line("d", "2", ""), &old[2]].concat());
    let error = other.asks_the_same(&was).unwrap_err().to_string();
    assert!(error.contains("another question") && error.contains("other.jsonl:2"), "{error}");
}
