//! The audit page: broken rules, then every printed number with its two values, mismatches first.

use super::{Head, Site, Tally, audit_table};
use crate::error::Result;
use crate::site::input::{AuditEntry, Verdict};
use crate::site::text::{breakable, coded, count, counted};
use serde_json::{Value, json};

/// `audit/index.html`.
pub fn page(site: &mut Site<'_>) -> Result<()> {
    let audit = &site.publication.audit;
    let mut entries: Vec<&AuditEntry> = audit.entries.iter().collect();
    entries.sort_by_key(|entry| entry.verdict);
    let tally = Tally::of(audit.entries.iter());
    let findings: Vec<Value> = audit
        .findings
        .iter()
        .map(|(rule, file, row, detail)| {
            json!({"rule": rule, "file_html": breakable(file), "row": row.map(count), "detail_html": coded(detail)})
        })
        .collect();
    let context = json!({
        "tally": tally_cells(site, &tally),
        "findings": findings,
        "findings_size": counted(findings.len(), "finding"),
        "audited": audit_table(site, &entries, "../"),
        "rows_size": counted(entries.len(), "number"),
    });
    let head = Head {
        address: "audit/index.html",
        template: "audit.html",
        title: "Audit",
        description: "Every number printed on this site beside the value that a second road gives.",
        nav: "audit",
    };
    site.page(&head, context)
}

/// The six cells of the tally: label (with its mark) and count.
pub fn tally_cells(site: &Site<'_>, tally: &Tally) -> Vec<Value> {
    let audit = &site.publication.audit;
    let plain =
        |label: &str, n: usize| json!({"label_html": crate::site::text::escape(label), "n": count(n)});
    let marked = |verdict: Verdict| {
        json!({
            "label_html": crate::site::glyphs::badge(verdict, verdict.word(), None),
            "n": count(tally.count(verdict)),
        })
    };
    let mut cells = vec![
        plain("Numbers printed", tally.all()),
        marked(Verdict::Match),
        marked(Verdict::Mismatch),
        marked(Verdict::Unverifiable),
    ];
    if tally.count(Verdict::Cited) > 0 {
        cells.push(marked(Verdict::Cited));
    }
    cells.push(plain("Rows read", audit.rows_checked));
    if cells.len() < 6 {
        cells.push(plain("Files checked", audit.files_checked));
    }
    cells
}
