//! The audit as text for a terminal: one line a number, mismatches first, then the rules that
//! do not hold, then one line of counts. What files say moves no cursor and turns no text around.

use super::printed::show;
use super::{AuditReport, Entry, Finding, Verdict};

/// Narrowest table that is drawn.
const NARROWEST: usize = 60;

impl AuditReport {
    /// A text as one line of a terminal: a blank in the place of each control character, and of each that sets the
    /// direction of writing.
    pub fn clean(text: &str) -> String {
        let steers = |c: char| {
            c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        text.replace(steers, " ")
    }
}

/// The whole report in lines of at most `width` characters (at least 60); reasons are wrapped.
pub fn render(report: &AuditReport, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut entries: Vec<&Entry> = report.verdicts.iter().collect();
    entries.sort_by_key(|entry| entry.verdict);
    let mut lines = Vec::new();
    if !entries.is_empty() {
        let printed = column("printed", entries.iter().map(|entry| entry.printed.clone()), 16);
        let recomputed = column("recomputed", entries.iter().map(|entry| value(entry)), 14);
        let number = width - printed - recomputed - "unverifiable".len() - 6;
        let row = |a: &str, b: &str, c: &str, d: &str| {
            format!("{}  {}  {}  {d}", left(a, number), right(b, printed), right(c, recomputed))
        };
        lines.push(row("number", "printed", "recomputed", "verdict"));
        for entry in entries {
            let name = entry.reference.strip_prefix("derive:").unwrap_or(&entry.reference);
            lines.push(row(name, &entry.printed, &value(entry), entry.verdict.word()).trim_end().to_string());
            if entry.verdict == Verdict::Mismatch || entry.verdict == Verdict::Unverifiable {
                let why = entry.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                wrap(&mut lines, &format!("{}{why}", entry.place), width);
            }
        }
        lines.push(String::new());
    }
    for finding in &report.findings {
        lines.push(format!("{}  {}", finding.rule, place(finding)));
        wrap(&mut lines, &finding.detail, width);
    }
    if !report.findings.is_empty() {
        lines.push(String::new());
    }
    let s = &report.summary;
    wrap_at(
        &mut lines,
        &format!(
            "{} numbers: {} match, {} mismatch, {} unverifiable, {} cited; {} finding{}; {} files and {} rows checked",
            report.verdicts.len(),
            s.matches,
            s.mismatches,
            s.unverifiable,
            s.cited,
            s.findings,
            if s.findings == 1 { "" } else { "s" },
            report.files_checked,
            report.rows_checked
        ),
        width,
        "",
    );
    lines.iter().map(|line| AuditReport::clean(line) + "\n").collect()
}

fn place(finding: &Finding) -> String {
    match finding.row {
        Some(row) => format!("{}, row {row}", finding.file),
        None => finding.file.clone(),
    }
}

fn value(entry: &Entry) -> String {
    entry.recomputed.map_or_else(|| "—".to_string(), |value| show(value, 6))
}

fn column(title: &str, cells: impl Iterator<Item = String>, most: usize) -> usize {
    cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or(0).min(most)
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn left(text: &str, width: usize) -> String {
    format!("{:<width$}", cut(text, width))
}

fn right(text: &str, width: usize) -> String {
    format!("{:>width$}", cut(text, width))
}

fn wrap(lines: &mut Vec<String>, text: &str, width: usize) {
    wrap_at(lines, text, width, "    ");
}

fn wrap_at(lines: &mut Vec<String>, text: &str, width: usize, indent: &str) {
    let mut line = indent.to_string();
    for word in text.split_whitespace() {
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        if !fits && line.trim() != "" {
            lines.push(std::mem::replace(&mut line, indent.to_string()));
        }
        if line.trim() != "" {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.trim() != "" {
        lines.push(line);
    }
}
