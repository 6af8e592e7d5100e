//! An import in words: where rows came from, what became of each field, and what is missing.

use super::store::{Written, compare_command};
use crate::compare::rows::shown;
use std::fmt::Write;
use std::path::Path;

impl Written {
    /// The report of an import into a workspace; `dry_run` says that nothing was written.
    pub fn render(&self, workspace: &Path, dry_run: bool) -> String {
        let mut out = String::new();
        let mut shown_before: Option<(&str, _)> = None;
        for arm in &self.arms {
            let _ = writeln!(
                out,
                "arm {}: {} rows, {} tasks, {} without a reward",
                arm.arm, arm.rows, arm.tasks, arm.null_rewards
            );
            for source in &arm.sources {
                let _ = writeln!(
                    out,
                    "  {}  SHA-256 {}…",
                    shown(&source.file),
                    &source.sha256.get(..12).unwrap_or_default()
                );
                let mut line = |name: &str, value: &str| {
                    let _ = writeln!(out, "    {name:<18} {value}");
                };
                let version = source.program_version.as_deref();
                for (name, value) in [
                    (
                        "program",
                        source
                            .program
                            .as_ref()
                            .map(|p| format!("{p} {}", version.unwrap_or("of unknown version"))),
                    ),
                    ("model", source.model.clone()),
                    ("task", source.task.clone()),
                    ("date", source.date.clone()),
                    ("status", source.status.clone()),
                    ("beside", source.beside.as_ref().map(|b| b.file.clone())),
                ] {
                    if let Some(value) = value {
                        line(name, &shown(&value));
                    }
                }
                match shown_before {
                    Some((file, mapping)) if mapping == &source.mapping => {
                        line("fields", &format!("as in {}", shown(file)));
                    }
                    _ => {
                        for (column, from) in &source.mapping {
                            line(column, &format!("← {}", from.replace(char::is_control, " ")));
                        }
                    }
                }
                shown_before = Some((&source.file, &source.mapping));
                if !source.ignored.is_empty() {
                    line(
                        "not taken",
                        &source.ignored.iter().map(|n| shown(n)).collect::<Vec<_>>().join(", "),
                    );
                }
                let counts = &source.counts;
                let mut words = vec![format!("{} read", counts.read), format!("{} rows", counts.rows)];
                for (n, what) in [
                    (counts.null_rewards, "without a reward"),
                    (counts.errors, "broken"),
                    (counts.limits, "at a limit"),
                ] {
                    if n > 0 {
                        words.push(format!("{n} {what}"));
                    }
                }
                words.extend(counts.dropped.iter().map(|(why, n)| format!("{n} left out: {why}")));
                line("counts of the file", &words.join(", "));
                if source.status.as_deref().is_some_and(|status| status != "success") {
                    line("note", "the run did not end well: samples may be missing");
                }
            }
        }
        let verb = if dry_run { "would write" } else { "wrote" };
        for path in &self.written {
            let _ = writeln!(out, "{verb} {}", workspace.join(path).display());
        }
        for path in &self.unchanged {
            let _ = writeln!(out, "the same rows are there already: {}", workspace.join(path).display());
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        if let Some(command) = compare_command(workspace, self).filter(|_| !dry_run) {
            let _ = writeln!(out, "next: {command}");
        }
        out
    }
}
