//! `fill`: writes current values into links that stand empty, and with `update` into stale
//! ones, so that nobody types a number twice. Shows each change.

use super::book::{Book, Resolved};
use super::derivation::Estimator;
use super::front_matter::Document;
use super::number::{Printed, Style, print};
use super::texts::Texts;
use crate::error::Result;
use crate::hash::write_atomic;
use serde::Serialize;
use std::ops::Range;
use std::path::Path;

/// What may be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Also links that print something else than the current value.
    pub update: bool,
    /// Only say what would change.
    pub dry_run: bool,
}

/// One link that was, or would be, written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line of the link, from 1.
    pub line: usize,
    /// The address, `derive:…`.
    pub reference: String,
    /// What was printed; empty for an empty link.
    pub before: String,
    /// What is printed now.
    pub after: String,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Change { file, line, reference, before, after } = self;
        write!(f, "{file}:{line}: [{before}] → [{after}]  {reference}")
    }
}

/// A link that stays empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Empty {
    /// The file, relative to the workspace.
    pub file: String,
    /// Line of the link, from 1.
    pub line: usize,
    /// Whether the rows of its derivation do not exist yet; otherwise the link leads nowhere.
    pub waits: bool,
    /// Why there is nothing to print.
    pub why: String,
}

/// What `fill` did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Filled {
    /// Links that were, or would be, written.
    pub changes: Vec<Change>,
    /// Links that are still empty.
    pub empty: Vec<Empty>,
    /// Links that print something else than the current value, and what an update would write.
    pub stale: Vec<Change>,
}

/// Fills the links of every text of the workspace at `root`. Links that lead nowhere, or wait for rows, stay
/// as they are. Each file is replaced whole or not at all.
pub fn fill(root: &Path, options: Options) -> Result<Filled> {
    let texts = Texts::load(root)?;
    let book = Book::build(root, &texts)?;
    let mut filled = Filled::default();
    for document in texts.documents() {
        let edits = edits(document, &book, options, &mut filled);
        if !options.dry_run && !edits.is_empty() {
            write_atomic(&root.join(&document.path), apply(document, &edits).as_bytes())?;
        }
        filled.changes.extend(edits.into_iter().map(|(_, change)| change));
    }
    Ok(filled)
}

fn edits(
    document: &Document,
    book: &Book,
    options: Options,
    filled: &mut Filled,
) -> Vec<(Range<usize>, Change)> {
    let mut out = Vec::new();
    for link in document.links() {
        let resolved = match &link.reference {
            Ok(reference) => book.resolve(reference).map(|it| (reference, it)).map_err(|e| e.to_string()),
            Err(why) => Err(why.clone()),
        };
        if link.printed.trim().is_empty() {
            let (waits, why) = match &resolved {
                Ok((reference, it)) if it.is_pending() => (true, format!("`{reference}` waits for rows")),
                Ok(_) => (false, String::new()),
                Err(why) => (false, why.clone()),
            };
            if !why.is_empty() {
                filled.empty.push(Empty { file: link.file.clone(), line: link.line, waits, why });
            }
        }
        let Ok((reference, resolved)) = resolved else { continue };
        let update = Options { update: true, ..options };
        let Some(after) = wanted(&link.printed, &resolved, &reference.part, update) else { continue };
        let change = Change {
            file: link.file,
            line: link.line,
            reference: reference.to_string(),
            before: link.printed.trim().to_string(),
            after,
        };
        match change.before.is_empty() || options.update {
            true => out.push((link.range, change)),
            false => filled.stale.push(change),
        }
    }
    out
}

/// What an update would write in the place of a printed number; `None` where it stays as it is.
pub fn updated(printed: &str, resolved: &Resolved<'_>, part: &str) -> Option<String> {
    wanted(printed, resolved, part, Options { update: true, dry_run: true })
}

/// The text to write, or `None` where the link stays as it is.
fn wanted(printed: &str, resolved: &Resolved<'_>, part: &str, options: Options) -> Option<String> {
    let empty = printed.trim().is_empty();
    if resolved.is_pending() || !(empty || options.update) {
        return None;
    }
    let style = if empty {
        style(resolved, part)
    } else {
        // What is printed keeps its own precision; what cannot be read is left to its author.
        let old = Printed::parse(printed).ok()?;
        if old.agrees(resolved.number) {
            return None;
        }
        let declared = style(resolved, part);
        match old.value {
            None => declared,
            // A negative number shows no plus: whether a positive one would is the derivation's to say.
            Some(_) => Style { plus: old.style.plus || (old.minus && declared.plus), ..old.style },
        }
    };
    Some(print(resolved.number, &style))
}

/// How a part is printed: by the derivation's `format`, save for counts, p values and the like,
/// which have a form of their own.
pub fn style(resolved: &Resolved<'_>, part: &str) -> Style {
    let derivation = &resolved.entry.derivation;
    let declared = derivation.format.as_deref().and_then(|format| Style::parse(format).ok());
    let whole = resolved.number.get().is_some_and(|value| value.fract() == 0.0);
    match part {
        "value" | "low" | "high" => declared.unwrap_or_else(|| match derivation.estimator {
            Estimator::PairedDelta => Style { plus: true, ..Style::plain(2) },
            _ if whole && counts(derivation.estimator) => Style::plain(0),
            Estimator::Holm | Estimator::BenjaminiHochberg => Style::p_value(3),
            _ => Style::plain(2),
        }),
        "se" | "mde" => Style { plus: false, ..declared.unwrap_or_else(|| Style::plain(2)) },
        "p" | "non_inferiority_p" | "equivalence_p" => Style::p_value(3),
        "share" | "zero_share" | "rollout_share" => Style::plain(2),
        _ => Style::plain(if whole { 0 } else { 1 }),
    }
}

fn counts(estimator: Estimator) -> bool {
    use Estimator::*;
    matches!(
        estimator,
        Count
            | CountDistinct
            | Sum
            | Min
            | Max
            | Median
            | Last
            | Flips
            | Value
            | TasksWhere
            | Holm
            | BenjaminiHochberg
    )
}

/// The file with every edit made; edits do not overlap.
fn apply(document: &Document, edits: &[(Range<usize>, Change)]) -> String {
    let mut out = String::with_capacity(document.source.len() + 8 * edits.len());
    let mut at = 0;
    for (range, change) in edits {
        out.push_str(&document.source[at..range.start]);
        out.push_str(&change.after);
        at = range.end;
    }
    out.push_str(&document.source[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::testing;
    use std::collections::BTreeSet;

    const REPORT: &str = "site/experiments/demo/report.md";

    fn workspace(extra: &str, body: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        testing::write(dir.path(), &[(REPORT, &testing::report(extra, body))]);
        testing::write_rows(dir.path(), "demo", &testing::two_arms());
        dir
    }

    fn texts(changes: &[Change]) -> Vec<(&str, &str)> {
        changes.iter().map(|c| (c.before.as_str(), c.after.as_str())).collect()
    }

    const LINKS: &str = "é [](derive:demo.base) → [](derive:demo.delta) over [](derive:demo.delta.n), p [](derive:demo.delta.p), \
        [0.1](derive:demo.base) [](derive:demo.nowhere) [ ](derive:demo.by_family/a)\n`[](derive:demo.base)`";

    #[test]
    fn empty_links_are_filled_and_a_second_time_changes_nothing() {
        let card = "[[cards]]\nlabel = \"a\"\nvalue = \"\\u2192 [](derive:demo.base) \\\"x\\\"\"";
        let dir = workspace(card, LINKS);
        let Filled { changes, empty, stale } = fill(dir.path(), Options::default()).unwrap();
        assert_eq!(texts(&stale), [("0.1", "0.2")]);
        assert_eq!(empty.len(), 1);
        assert!(!empty[0].waits && empty[0].why.contains("nowhere"), "{empty:?}");
        assert_eq!(
            texts(&changes),
            [("", "0.17"), ("", "0.17"), ("", "+0.50"), ("", "12"), ("", "0.031"), ("", "+0.75")]
        );
        let text = fs_err::read_to_string(dir.path().join(REPORT)).unwrap();
        assert!(text.contains("value = \"\\u2192 [0.17](derive:demo.base) \\\"x\\\"\""));
        assert!(text.contains("é [0.17](derive:demo.base) → [+0.50](derive:demo.delta) over [12]"));
        assert!(
            text.contains("[0.1](derive:demo.base) [](derive:demo.nowhere) [+0.75]")
                && text.contains("`[](derive:demo.base)`")
        );
        assert_eq!(fill(dir.path(), Options::default()).unwrap().changes, []);
        assert_eq!(fs_err::read_to_string(dir.path().join(REPORT)).unwrap(), text);
    }

    #[test]
    fn stale_links_are_updated_at_their_own_precision() {
        let dir = workspace(
            "",
            "[0.1](derive:demo.base) [0.16667](derive:demo.base) [16%](derive:demo.base) [about 3](derive:demo.base) [—](derive:demo.delta)",
        );
        assert_eq!(fill(dir.path(), Options::default()).unwrap().changes, []);
        let update = Options { update: true, dry_run: false };
        let changes = fill(dir.path(), update).unwrap().changes;
        assert_eq!(texts(&changes), [("0.1", "0.2"), ("16%", "17%"), ("—", "+0.50")]);
        assert_eq!(fill(dir.path(), update).unwrap().changes, []);
        assert!(
            changes[0].to_string().contains("report.md:") && changes[0].to_string().contains("[0.1] → [0.2]")
        );
    }

    #[test]
    fn a_sign_that_changes_keeps_the_declared_plus() {
        let dir = workspace("", "[-0.2](derive:demo.delta)");
        let update = Options { update: true, dry_run: false };
        assert_eq!(texts(&fill(dir.path(), update).unwrap().changes), [("-0.2", "+0.5")]);
        let dir = workspace("", "[-0.2](derive:demo.base) [ 0.4 tasks ](derive:demo.delta)");
        assert_eq!(
            texts(&fill(dir.path(), update).unwrap().changes),
            [("-0.2", "0.2"), ("0.4 tasks", "0.5 tasks")]
        );
        let text = fs_err::read_to_string(dir.path().join(REPORT)).unwrap();
        assert!(text.contains("[0.2](derive:demo.base) [ 0.5 tasks ](derive:demo.delta)"), "{text}");
    }

    /// What stands between the brackets of each link, and everything else.
    fn apart(text: &str) -> (Vec<String>, String) {
        let document =
            Document::split("r.md", text.into(), crate::claims::front_matter::Front::Required).unwrap();
        let (mut inside, mut outside, mut at) = (Vec::new(), String::new(), 0);
        for link in document.links() {
            outside.push_str(&text[at..link.range.start]);
            outside.push('¦');
            inside.push(text[link.range.clone()].to_string());
            at = link.range.end;
        }
        outside.push_str(&text[at..]);
        (inside, outside)
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

        /// A person's numbers keep their decimals, grouping, `%`, unit and the blanks around them; nothing
        /// else in the file changes, and a second run changes nothing.
        #[test]
        fn an_update_changes_the_number_alone(
            links in proptest::collection::vec(
                (
                    proptest::sample::select(vec!["", "+", "-", "\u{2212}"]), 0u32..3000, 0usize..5,
                    proptest::sample::select(vec!["", "%", "×", " tasks", "ms"]),
                    proptest::sample::select(vec!["", " "]),
                    proptest::sample::select(vec!["base", "delta", "delta.low", "delta.n", "delta.p", "by_family/a"]),
                    proptest::sample::select(vec!["\n", "\r\n", ", then\t", " é **and** "]),
                ),
                1..8,
            ),
            mark: bool,
        ) {
            let body: String = links.iter().map(|(sign, n, decimals, suffix, blank, id, after)| {
                let scale = 10f64.powi(*decimals as i32);
                format!("[{blank}{sign}{:.*}{suffix}{blank}](derive:demo.{id}){after}", *decimals, f64::from(*n) / scale)
            }).collect();
            let dir = workspace("plain = { idea = \"a\\t[ 0.9 ](derive:demo.base)\", question = \"q\", found = \"f\", matters = \"m\" }", &body);
            let path = dir.path().join(REPORT);
            let mut before = fs_err::read_to_string(&path).unwrap();
            if mark {
                before.insert(0, '\u{feff}');
                fs_err::write(&path, &before).unwrap();
            }
            let update = Options { update: true, dry_run: false };
            fill(dir.path(), update).unwrap();
            let after = fs_err::read_to_string(&path).unwrap();
            let ((old, around), (new, now)) = (apart(&before), apart(&after));
            proptest::prop_assert_eq!(around, now);
            for (old, new) in old.iter().zip(&new) {
                let (old, new) = (Printed::parse(old).unwrap(), Printed::parse(new).unwrap());
                if new.value.is_some() {
                    let shape = |style: Style| (style.decimals, style.percent, style.times, style.unit);
                    proptest::prop_assert_eq!(shape(old.style), shape(new.style));
                }
            }
            proptest::prop_assert_eq!(fill(dir.path(), update).unwrap().changes, vec![]);
            proptest::prop_assert_eq!(fs_err::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_dry_run_writes_nothing_and_pending_links_stay_empty() {
        let dir = workspace("", "[](derive:demo.base)");
        let before = fs_err::read(dir.path().join(REPORT)).unwrap();
        let dry = Options { dry_run: true, ..Options::default() };
        assert_eq!(texts(&fill(dir.path(), dry).unwrap().changes), [("", "0.17")]);
        assert_eq!(fs_err::read(dir.path().join(REPORT)).unwrap(), before);
        fs_err::remove_dir_all(dir.path().join("data/demo/episodes")).unwrap();
        let filled = fill(dir.path(), Options::default()).unwrap();
        assert!(filled.changes.is_empty() && filled.empty.len() == 1 && filled.empty[0].waits, "{filled:?}");
    }

    #[test]
    fn what_is_filled_passes_the_check() {
        let dir = workspace("", LINKS);
        fill(dir.path(), Options { update: true, dry_run: false }).unwrap();
        let outcome = crate::claims::check::workspace(dir.path()).unwrap();
        let rules: BTreeSet<&str> = outcome.findings.iter().map(|f| f.rule).collect();
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), ["reference"]);
    }
}
