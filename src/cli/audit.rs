//! `audit`: every printed number by the second road, and with `--rescore` every reward by the verifiers
//! of today.

use super::evidence::{counted, width};
use super::progress::Terminal;
use super::{Workspace, print, print_json};
use crate::error::{Error, Result};
use std::path::Path;

/// Options of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  rederive audit --workspace demo
  rederive audit --json | jq '.findings'
  rederive audit --sql queries && duckdb -f queries/my-try.delta.sql
  rederive audit --unbound
  rederive audit --rescore             judge every kept transcript again with the verifiers of today

Hashes are checked first, then rules, then every number is recomputed from the rows.
Exit code 1 when a number mismatches or a rule is broken. With `--rescore` a reward that the verifier of today does
not give is a broken rule, and so is a transcript whose words are not those of its token ids. What a repaired verifier
changes is listed with every number, printed place and claim that it moves, and `rederive rescore` writes it.")]
pub struct AuditArgs {
    #[command(flatten)]
    workspace: Workspace,
    /// Write a DuckDB query for every derivation into this folder, one file each, to be run in the workspace
    #[arg(long, value_name = "DIR")]
    sql: Option<std::path::PathBuf>,
    /// List the numbers in prose that no link binds, also where they are only counted, instead of auditing
    #[arg(long)]
    unbound: bool,
    /// Run each verifier again on the kept transcripts, and compare
    #[arg(long)]
    rescore: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

/// An audit with what rescoring adds to it.
#[derive(serde::Serialize)]
struct Rescored<'a> {
    #[serde(flatten)]
    report: &'a crate::audit::AuditReport,
    rescore: &'a crate::rescore::Survey,
}

/// Writes the queries of a workspace; files of other names in the folder are left alone.
fn write_queries(root: &Path, folder: &Path) -> Result<()> {
    let book = crate::claims::Book::build(root, &crate::claims::Texts::load(root)?)?;
    let derivations = book
        .entries()
        .map(|entry| {
            let sources = entry.outcome.as_ref().ok().map(|derived| &derived.sources);
            let files = sources.map(|sources| sources.iter().map(|source| source.path.clone()).collect());
            ((entry.scope.clone(), entry.id.clone()), (&entry.derivation, files))
        })
        .collect();
    let number =
        |reference: &crate::claims::derivation::Reference| book.resolve(reference).ok()?.number.get();
    let queries =
        crate::audit::queries::of(&crate::audit::queries::Declared { derivations, number: &number });
    fs_err::create_dir_all(folder)?;
    for (name, query) in &queries.written {
        let text = format!("-- {name}: start DuckDB in the workspace\n{query};\n");
        fs_err::write(folder.join(format!("{name}.sql")), text)?;
    }
    super::progress::line(&format!(
        "{} queries in {}: start DuckDB in {}",
        queries.written.len(),
        folder.display(),
        root.display()
    ));
    for (name, why) in &queries.without {
        super::progress::line(&format!("none for {name}: {why}"));
    }
    Ok(())
}

/// Lists bare numbers; exit code 1 where one stands in a headline.
fn unbound(root: &Path, json: bool) -> Result<u8> {
    let all = crate::claims::check::bare(&crate::claims::Texts::load(root)?);
    if json {
        print_json(&all)?;
    } else {
        for bare in &all {
            let note = if bare.refused { "  refused here" } else { "" };
            print(&format!("{}:{}: {}{note}\n", bare.file, bare.line, bare.text))?;
        }
        print(&format!("{} without a link\n", counted(all.len(), "number")))?;
    }
    Ok(u8::from(all.iter().any(|bare| bare.refused)))
}

/// `rederive audit`
pub fn audit(args: &AuditArgs, terminal: &Terminal) -> Result<u8> {
    let root = args.workspace.workspace.clone();
    if !root.join("data").is_dir() {
        return Err(Error::invalid("there is no `data/` here, so this is no workspace")
            .at(root.display())
            .hint("name one with `--workspace DIR`"));
    }
    if let Some(folder) = &args.sql {
        write_queries(&root, folder)?;
    }
    if args.unbound {
        return unbound(&root, args.json);
    }
    let workspace = root.clone();
    let mut report = super::until_stopped("audit", terminal, move || {
        let mut report = crate::audit::audit(&root, crate::audit::Options::default())?;
        for bare in crate::claims::check::unbound(&crate::claims::Texts::load(&root)?) {
            report.add(bare.rule, &bare.file, format!("line {}: {}", bare.line, bare.text));
        }
        Ok(report)
    })?;
    let context = crate::stages::Context { observer: terminal, stop: &super::STOP, accept_engine: false };
    let survey = match args.rescore.then(|| crate::rescore::survey(&workspace, &context)).transpose() {
        Ok(survey) => survey,
        Err(error) => {
            // What the audit found often says why the rows cannot be judged again.
            if args.json {
                print_json(&report)?
            } else {
                print(&report.render(width()))?
            };
            return Err(error);
        }
    };
    for finding in survey.iter().flat_map(|survey| survey.findings()) {
        report.push(finding);
    }
    match (&survey, args.json) {
        (Some(survey), true) => print_json(&Rescored { report: &report, rescore: survey })?,
        (None, true) => print_json(&report)?,
        (survey, false) => {
            print(&report.render(width()))?;
            print(&survey.as_ref().map(crate::rescore::render_survey).unwrap_or_default())?;
        }
    }
    Ok(u8::from(!report.passed()))
}
