//! Claims and imports of the publication made by hand: a claim with evidence on both sides, one that would replace it, and rows of
//! another program.

use super::fixtures::{estimate, file};
use super::input::{ChangeInput, ClaimInput, FileInput, ImportInput, ProvenanceInput};
use crate::hash::sha256_hex;
use std::path::Path;

pub fn claims() -> Vec<ClaimInput> {
    vec![
            ClaimInput {
                id: "C0001".into(),
                title: "One self-harvested adapter makes SmolLM2 commit an answer on these two checkpoints, on families it has never practised too".into(),
                status: "promising".into(),
                population: "tasks".into(),
                history: vec![
                    change("2026-11-29", "proposed", &[], &[]),
                    change("2026-12-01", "promising", &["derive:demo.delta", "derive:demo.by_family/brinework"], &[]),
                    change("2026-12-01", "promising", &["derive:demo.kept"], &["derive:demo.base"]),
                ],
                experiments: vec!["demo".into()],
                imports: vec!["elsewhere".into()],
                body: "Reward rose from [0.02](derive:demo.base) to [0.33](derive:demo.treatment), a paired change of [+0.31](derive:demo.delta).\n\n## What speaks against it\n\nOne training seed says nothing about the next.\n".into(),
                forest: vec![estimate("demo, all tasks", "", 0.309375, 0.072, 160.0), estimate("demo, brinework", "held out", 0.1375, 0.075, 40.0)],
                path: "claims/C0001-commit-an-answer.md".into(),
                scope: Some("SmolLM2 at level 1 & nothing else".into()),
                supersedes: None,
                contradicts: vec!["C0002".into()],
            },
            ClaimInput {
                id: "C0002".into(),
                title: "A larger harvest of the same families adds nothing".into(),
                status: "proposed".into(),
                path: "claims/C0002-larger-harvest.md".into(),
                supersedes: Some("C0001".into()),
                ..ClaimInput::default()
            },
        ]
}

fn change(date: &str, status: &str, evidence: &[&str], against: &[&str]) -> ChangeInput {
    let addresses = |of: &[&str]| of.iter().map(|address| (*address).to_string()).collect();
    ChangeInput {
        date: date.into(),
        status: status.into(),
        evidence: addresses(evidence),
        against: addresses(against),
    }
}

/// Rows of another program, whose name of a file means harm.
pub fn import(folder: &Path) -> ImportInput {
    let said = |label: &str, value: &str| (label.to_string(), value.to_string());
    let record = file(folder, "imported/base.json", 1);
    let provenance = ProvenanceInput {
        path: record.path,
        source: record.source,
        sha256: record.sha256,
        null_rewards: Some(1),
        sources: vec![(
            "samples_<b>gsm8k</b>.jsonl".into(),
            sha256_hex(b"samples"),
            vec![
                said("format", "lm-eval"),
                said("program", "lm-evaluation-harness"),
                said("mapping: reward", "exact_match"),
            ],
        )],
    };
    let rows = file(folder, "imported/base.parquet", 4);
    ImportInput {
        slug: "elsewhere".into(),
        files: vec![FileInput { provenance: Some(provenance), ..rows }],
        cited_by: vec!["C0001".into()],
    }
}
