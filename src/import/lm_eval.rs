//! Sample logs of lm-evaluation-harness (`samples_<task>_<date>.jsonl`, by `--log_samples`): one object a
//! document and filter. What they do not say stands in `results_<date>.json` beside them.

use super::json::Python;
use super::source::{self, Beside, Choices, Origin, Source, choose};
use crate::compare::rows::shown;
use crate::error::{Error, Result};
use crate::hash;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes that a line may have.
const LINE: u64 = 256 << 20;
/// Fields that hold texts and lists and are never a metric.
const NO_METRIC: [&str; 9] = [
    "doc",
    "target",
    "arguments",
    "resps",
    "filtered_resps",
    "prompt_hash",
    "target_hash",
    "chat_template",
    "system_instruction",
];

/// One line, without its texts.
#[derive(Default)]
struct Line {
    doc_id: Option<Value>,
    doc_hash: Option<String>,
    filter: Option<String>,
    metrics: Option<Vec<String>>,
    values: BTreeMap<String, Value>,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Line, A::Error> {
                let mut line = Line::default();
                let mut seen = BTreeSet::new();
                while let Some(key) = object.next_key::<String>()? {
                    match key.as_str() {
                        "doc_id" => line.doc_id = object.next_value()?,
                        "doc_hash" => line.doc_hash = object.next_value()?,
                        "filter" => line.filter = object.next_value()?,
                        "metrics" => line.metrics = object.next_value()?,
                        known if NO_METRIC.contains(&known) => drop(object.next_value::<IgnoredAny>()?),
                        _ => drop(line.values.insert(key.clone(), object.next_value()?)),
                    }
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom(format!("the key `{}` is there twice", shown(&key))));
                    }
                }
                Ok(line)
            }
        }
        deserializer.deserialize_map(OfObject)
    }
}

/// Reads a sample log, and the results beside it where they are.
pub fn read(path: &Path, origin: Origin, choices: &Choices) -> Result<Source> {
    let shown_path = path.display().to_string();
    let lines = lines(path, &shown_path)?;
    let place = |number: usize| format!("{shown_path}: line {number}");
    let Some((first, _)) = lines.first() else {
        return Err(Error::invalid("the file has no samples")
            .at(shown_path)
            .hint("it needs a line for each sample"));
    };
    let offered: BTreeSet<String> = lines.iter().filter_map(|(_, line)| line.filter.clone()).collect();
    let filter = choose("filter", choices.filter.as_deref(), &offered, &place(*first))?;
    let kept = |line: &Line| filter.is_none() || line.filter == filter;
    let offered: BTreeSet<String> =
        lines.iter().filter(|(_, line)| kept(line)).flat_map(|(_, line)| metrics(line)).collect();
    let Some(metric) = choose("metric", choices.metric.as_deref(), &offered, &place(*first))? else {
        return Err(Error::invalid("no sample has a metric")
            .at(place(*first))
            .hint("give a log as `lm_eval --log_samples` writes it"));
    };
    let named = named(path);
    let mut origin = Origin {
        format: "lm-eval",
        program: Some("lm-evaluation-harness".into()),
        task: named.as_ref().map(|(task, _)| task.clone()),
        metric: Some(metric.clone()),
        filter: filter.clone(),
        scale: choices.scale,
        solved_from: choices.solved_from,
        ..origin
    };
    results(named.as_ref().map(|(_, results)| results.as_path()), &mut origin, choices)?;
    origin.mapping = mapping(&metric, filter.as_deref(), choices);
    origin.counts.read = lines.len();
    let mut source = Source { path: shown_path.clone(), unit: "line", origin, rows: Vec::new() };
    for (number, line) in lines {
        if !kept(&line) {
            *source.origin.counts.dropped.entry("another filter".into()).or_default() += 1;
            continue;
        }
        let at = || format!("{shown_path}: line {number}");
        let id = match &line.doc_id {
            Some(Value::Number(id)) => id.to_string(),
            Some(Value::String(id)) if !id.is_empty() => id.clone(),
            _ => {
                return Err(Error::invalid("there is no `doc_id`")
                    .at(at())
                    .hint("give a log as `lm_eval --log_samples` writes it"));
            }
        };
        let hash = line
            .doc_hash
            .as_deref()
            .map_or_else(String::new, |h| format!(":{}", h.chars().take(12).collect::<String>()));
        let family = source.origin.task.clone();
        let task = family.as_deref().map_or_else(String::new, |t| format!("{t}/")) + &id + &hash;
        let (score, judged) = score(&line, &metric).map_err(|why| {
            Error::invalid(format!("`{}` {why}", shown(&metric)))
                .at(at())
                .hint("choose a --metric that is a number")
        })?;
        let reward = score.map(|score| choices.reward(&metric, score, at)).transpose()?;
        let mut row = source::blank(&source.origin.file, number, task);
        row.family = family;
        row.model.clone_from(&source.origin.model);
        row.task_sha256 = line.doc_hash;
        row.reward = reward;
        row.solved = choices.solved(judged, reward);
        source.rows.push(row);
    }
    Ok(source)
}

/// Every line of a file with its number; blank ones are passed over.
fn lines(path: &Path, shown: &str) -> Result<Vec<(usize, Line)>> {
    let mut file = BufReader::with_capacity(1 << 20, fs_err::File::open(path)?);
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if file.by_ref().take(LINE).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let bad =
            |what: String, hint: &str| Error::invalid(what).at(format!("{shown}: line {number}")).hint(hint);
        if bytes.len() as u64 == LINE && bytes.last() != Some(&b'\n') {
            return Err(bad(
                format!("this line is longer than {} MiB", LINE >> 20),
                "is it a log of lm-evaluation-harness?",
            ));
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let line = serde_json::from_reader(Python::new(bytes.as_slice())).map_err(|e| {
            bad(
                format!("this line is no whole JSON object: {}", inner(&e)),
                "the file may be cut off or changed: copy it again",
            )
        })?;
        lines.push((number, line));
    }
    Ok(lines)
}

/// A JSON error without its line, which is always the first of the text that was parsed.
fn inner(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_string() + &format!(" at column {}", error.column())
}

/// The metrics of a line: those it names, else every number and flag that is no text of the sample.
fn metrics(line: &Line) -> Vec<String> {
    match &line.metrics {
        Some(names) => names.iter().filter(|name| line.values.contains_key(*name)).cloned().collect(),
        None => line
            .values
            .iter()
            .filter(|(_, v)| v.is_number() || v.is_boolean())
            .map(|(k, _)| k.clone())
            .collect(),
    }
}

/// The score of a line, and whether it says that it is right or wrong; null and absent are none.
fn score(line: &Line, metric: &str) -> Result<(Option<f64>, Option<bool>), String> {
    match line.values.get(metric) {
        None | Some(Value::Null) => Ok((None, None)),
        Some(Value::Bool(right)) => Ok((Some(f64::from(u8::from(*right))), Some(*right))),
        Some(Value::Number(number)) => Ok((Some(number.as_f64().ok_or("is too large")?), None)),
        Some(Value::String(text)) if ["NaN", "Infinity", "-Infinity"].contains(&text.as_str()) => {
            text.parse().map(|score| (Some(score), None)).map_err(|_| format!("is {text}"))
        }
        Some(Value::String(text)) => Err(format!("is the text `{}`, not a number", shown(text))),
        Some(_) => Err("is a list or an object, not a number".into()),
    }
}

/// Task and results file of a log, by its name `samples_<task>_<date>.jsonl`.
fn named(path: &Path) -> Option<(String, PathBuf)> {
    let stem = path.file_name()?.to_str()?.strip_prefix("samples_")?.strip_suffix(".jsonl")?;
    let (task, date) = stem.rsplit_once('_')?;
    let dated = date.starts_with(|c: char| c.is_ascii_digit()) && date.contains('T');
    (dated && !task.is_empty())
        .then(|| (task.to_string(), path.with_file_name(format!("results_{date}.json"))))
}

/// What the results beside a log say of its run.
fn results(path: Option<&Path>, origin: &mut Origin, choices: &Choices) -> Result<()> {
    let Some(path) = path.filter(|path| path.is_file()) else { return Ok(()) };
    let bytes = fs_err::read(path)?;
    let shown_path = path.display().to_string();
    let object: Map<String, Value> = serde_json::from_reader(Python::new(bytes.as_slice())).map_err(|e| {
        Error::invalid(format!("these results cannot be read: {e}"))
            .at(&shown_path)
            .hint("copy the file again, or move it away to import the samples without it")
    })?;
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let task = origin.task.as_deref().unwrap_or_default();
    let of_task = |key: &str| object.get(key).and_then(|tasks| tasks.get(task));
    let metric = origin.metric.as_deref().unwrap_or_default();
    let rises = of_task("higher_is_better").and_then(|m| m.get(metric)).and_then(Value::as_bool);
    let turned = choices.scale.is_some_and(|[low, high]| low > high);
    if rises == Some(false) && !turned {
        return Err(Error::invalid(format!(
            "lower is better for `{}`, and a reward is better the higher it is",
            shown(metric)
        ))
        .at(&shown_path)
        .hint("give the worst score first, such as --scale 10,0, or choose another --metric"));
    }
    origin.beside = Some(Beside {
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        sha256: hash::sha256_hex(&bytes),
    });
    origin.program_version = text(object.get("lm_eval_version"));
    origin.model = text(object.get("model_name"));
    origin.task_version = text(of_task("versions"));
    origin.date = text(object.get("date"));
    let config = object.get("config");
    for key in ["model", "random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "limit"] {
        if let Some(value) = config.and_then(|c| c.get(key)).filter(|v| v.is_number() || v.is_string()) {
            origin.settings.insert(key.into(), value.clone());
        }
    }
    if let Some(shots) = of_task("n-shot") {
        origin.settings.insert("n-shot".into(), shots.clone());
    }
    Ok(())
}

fn mapping(metric: &str, filter: Option<&str>, choices: &Choices) -> BTreeMap<&'static str, String> {
    let filter = filter.map_or_else(String::new, |f| format!(", filter `{f}`"));
    BTreeMap::from([
        ("task_id", "task of the file's name / doc_id : first 12 digits of doc_hash".into()),
        ("task_sha256", "doc_hash".into()),
        ("family", "task of the file's name".into()),
        ("model", "model_name of the results".into()),
        ("reward", format!("`{metric}`{filter}{}; null where it is null or absent", choices.scaled())),
        ("solved", choices.judged(Some("the metric, where it is true or false"))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, choices: &Choices) -> Result<Source> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples_t_2026-01-02T03-04-05.678.jsonl");
        fs_err::write(&path, text).unwrap();
        read(&path, Origin { file: "s.jsonl".into(), ..Origin::default() }, choices)
    }

    const LINE_A: &str = r#"{"doc_id": 0, "doc": {"q": "x"}, "filter": "none", "metrics": ["acc"], "doc_hash": "0123456789abcdef", "acc": 1.0}"#;

    #[test]
    fn names_of_files_hold_task_and_date() {
        let (task, results) = named(Path::new("a/samples_my_task_2026-01-02T03-04-05.678901.jsonl")).unwrap();
        assert_eq!(task, "my_task");
        assert_eq!(results, Path::new("a/results_2026-01-02T03-04-05.678901.json"));
        for other in
            ["samples_x.jsonl", "samples_a_b.jsonl", "x_a_2026-01-02T03.jsonl", "samples__2026T.jsonl"]
        {
            assert_eq!(named(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_line_becomes_a_row() {
        let source = read_text(
            &format!("{LINE_A}\n\n{}\n", LINE_A.replace("1.0", "null").replace(": 0,", ": 1,")),
            &Choices::default(),
        )
        .unwrap();
        assert_eq!(source.rows[0].task_id, "t/0:0123456789ab");
        assert_eq!((source.rows[0].reward, source.rows[0].solved), (Some(1.0), None));
        assert_eq!((source.rows[1].reward, source.rows[1].source_row), (None, 3));
        assert_eq!(source.origin.task.as_deref(), Some("t"));
        assert_eq!(source.origin.model, None);
    }

    #[test]
    fn filters_and_metrics_are_chosen_by_name() {
        let strict = LINE_A.replace("none", "strict").replace("acc\"", "em\"");
        let text = format!("{LINE_A}\n{strict}\n");
        let said = read_text(&text, &Choices::default()).unwrap_err().to_string();
        assert!(
            said.contains("several filters: `none`, `strict`") && said.contains("--filter none"),
            "{said}"
        );
        let source =
            read_text(&text, &Choices { filter: Some("strict".into()), ..Choices::default() }).unwrap();
        assert_eq!(source.origin.metric.as_deref(), Some("em"));
        assert_eq!(source.origin.counts.dropped["another filter"], 1);
        let two = LINE_A
            .replace("[\"acc\"]", "[\"acc\", \"f1\"]")
            .replace("\"acc\": 1.0", "\"acc\": 1.0, \"f1\": 0.5");
        let said = read_text(&two, &Choices::default()).unwrap_err().to_string();
        assert!(said.contains("`acc`, `f1`"), "{said}");
    }

    #[test]
    fn bad_lines_are_named() {
        let choices = Choices::default();
        for (line, wanted) in [
            (LINE_A.replace("1.0", "NaN"), "`acc` is NaN"),
            (LINE_A.replace("1.0", "-Infinity"), "`acc` is -inf"),
            (LINE_A.replace("1.0", "2"), "--scale"),
            (LINE_A.replace("1.0", "[1, 2]"), "is a list"),
            (LINE_A.replace("1.0", "\"x\""), "is the text `x`"),
            (LINE_A[..40].to_string(), "no whole JSON object"),
            (LINE_A.replace("\"doc_id\": 0", "\"doc_id\": null"), "`doc_id`"),
            (LINE_A.replace("{\"doc_id\"", "{\"acc\": 0, \"doc_id\""), "twice"),
            ("[1]".into(), "no whole JSON object"),
        ] {
            let said = read_text(&format!("{LINE_A}\n{line}\n"), &choices).unwrap_err().to_string();
            assert!(
                said.contains(": line 2: ") && said.contains(wanted) && said.contains("hint:"),
                "{line}: {said}"
            );
        }
        assert!(read_text("\n", &choices).unwrap_err().to_string().contains("no samples"));
    }
}
