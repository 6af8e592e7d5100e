//! Tests of what a reader finds on the pages: order of columns, reasons, levels, groups, and words for
//! what is still to come.

use super::build;
use super::input::*;
use super::tests::{built, read};
use crate::claims::number::UNDEFINED;

#[test]
fn a_card_names_the_number_and_the_level_of_an_interval() {
    let (folder, mut publication, out) = built();
    let page = read(&out, "experiments/demo/index.html");
    assert!(page.contains("<dt>Interval of 0.02</dt><dd>[0.00, 0.04]</dd>"));
    assert!(page.contains("<dt>Interval of 0.33</dt><dd>[0.26, 0.40]</dd>"));
    let delta = publication.numbers.get_mut("derive:demo.delta").unwrap();
    delta.method = Some("bootstrap of whole tasks, at 95%".into());
    delta.n = Some("1 tasks".into());
    let out = folder.path().join("level");
    build(&publication, &out).unwrap();
    let page = read(&out, "experiments/demo/index.html");
    assert!(page.contains("<dt>95% interval of +0.309</dt>"));
    assert!(page.contains("<dd>1 task</dd>") && !page.contains("1 tasks"));
}

#[test]
fn pending_numbers_and_figures_say_so() {
    let (folder, mut publication, _) = built();
    let why = crate::claims::value::Number::Undefined("pending: no rows yet".into());
    for number in publication.numbers.values_mut() {
        number.value = why.clone();
        number.text = UNDEFINED.into();
        number.interval = None;
        number.n = None;
        number.reason = Some("pending: no rows yet".into());
    }
    let demo = &mut publication.experiments[0];
    demo.cards[0].value = "[](derive:demo.base) → [—](derive:demo.treatment)".into();
    demo.cards[0].note = String::new();
    let row = EstimateInput {
        label: "All tasks".into(),
        note: String::new(),
        value: why.clone(),
        low: why.clone(),
        high: why,
        n: None,
    };
    demo.figures[0].chart = ChartInput::Forest { groups: Vec::new(), pooled: Some(row), bar: Some(0.03) };
    demo.figures[1].chart = ChartInput::Slope { left: "a".into(), right: "b".into(), tasks: Vec::new() };
    let out = folder.path().join("pending");
    build(&publication, &out).unwrap();
    let page = read(&out, "experiments/demo/index.html");
    assert_eq!(page.matches("<p class=\"pend\">No rows yet.</p>").count(), 2);
    assert!(!page.contains("class=\"chart") && !out.join("experiments/demo/figures").exists());
    let card = &page[page.find("class=\"card\"").unwrap()..];
    let card = &card[..card[1..].find("class=\"card\"").unwrap()];
    assert_eq!(card.matches("<button").count(), 1, "{card}");
    assert!(card.contains("popovertarget=\"n4\">pending<span"), "{card}");
    assert!(card.contains("<p>Pending: no rows yet.</p>") && !card.contains("badge"), "{card}");
    let derivation = read(&out, "derivations/demo/by_family/index.html");
    assert!(derivation.contains("<th scope=\"col\">Reason</th>"));
    assert!(derivation.contains("<td class=\"why\">pending: no rows yet</td>"));
    assert!(read(&out, "index.html").contains("<div class=\"r\">pending"));
}

#[test]
fn a_derivation_reads_in_the_order_of_its_questions() {
    let (folder, mut publication, _) = built();
    let derivation = publication.derivations.iter_mut().find(|d| d.id == "delta").unwrap();
    derivation.recipe = vec!["take the `episodes` rows of `a<b`".into()];
    derivation.results[0].1.reverse();
    // Parts that come as texts find their numbers by row and part.
    derivation.results[0].1.iter_mut().for_each(|(part, text)| {
        *text = if part == "p" { UNDEFINED.into() } else { "0.1".into() };
    });
    publication.numbers.get_mut("derive:demo.delta.p").unwrap().value =
        crate::claims::value::Number::Undefined("no `spread`".into());
    let out = folder.path().join("order");
    build(&publication, &out).unwrap();
    let page = read(&out, "derivations/demo/delta/index.html");
    let columns: Vec<usize> = ["value", "low", "high", "p"]
        .iter()
        .map(|part| page.find(&format!("<th scope=\"col\" class=\"n\">{part}</th>")).unwrap())
        .collect();
    assert!(columns.is_sorted(), "{columns:?}");
    assert!(page.contains("<td class=\"why\">p: no <code>spread</code></td>"));
    assert!(page.contains("<li>Take the <code>episodes</code> rows of <code>a&lt;b</code>.</li>"));
    assert!(page.contains("with three decimals, printed in two places, such as "));
    let kept = read(&out, "derivations/demo/kept/index.html");
    assert!(kept.contains("No text prints this derivation"));
    assert!(page.contains("in all three places where it is printed"));
    assert!(!kept.contains("Reason</th>") && !kept.contains("Where it is printed"));
}

#[test]
fn the_preview_begins_with_the_telling_columns_and_keeps_all() {
    let (_folder, publication, out) = built();
    let page = read(&out, "experiments/demo/data/episodes--base--52004.parquet/index.html");
    let head = page.split("<thead>").nth(1).unwrap().split("</thead>").next().unwrap();
    let names: Vec<String> = head
        .split("<th ")
        .skip(1)
        .map(|th| th.split_once('>').unwrap().1.split("</th>").next().unwrap().replace("<wbr>", ""))
        .collect();
    assert_eq!(names, ["task_id", "seed", "reward", "finish_reason", "arm", "error", "tokens_sha256"]);
    assert_eq!(names.len(), publication.experiments[0].files[0].columns.len());
    let row = page.split("<tbody>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(row.contains("<tr><td>caravan/L1/0000</td><td class=\"n\">52004</td>"), "{row}");
    assert!(page.contains("The first 6 of 80 rows"));
}

#[test]
fn audited_numbers_stand_under_their_file() {
    let (folder, mut publication, out) = built();
    let page = read(&out, "audit/index.html");
    assert_eq!(page.matches("<tr class=\"file\">").count(), 2);
    assert_eq!(page.matches("report.md").count(), 1);
    assert!(page.contains(">Why</th>"));
    publication.audit.entries.iter_mut().for_each(|e| {
        e.reason = None;
        e.verdict = Verdict::Match;
    });
    let out = folder.path().join("agreed");
    build(&publication, &out).unwrap();
    let page = read(&out, "audit/index.html");
    assert!(!page.contains(">Why</th>") && page.contains("colspan=\"5\""));
    assert!(
        page.contains("title=\"0.30937499999999996\">0.309375</td>"),
        "digits past the sixth are a title"
    );
}

#[test]
fn links_in_a_claims_title_are_rendered() {
    let (folder, mut publication, _) = built();
    publication.claims[0].title = "Reward rises by [+0.309](derive:demo.delta)".into();
    let out = folder.path().join("titled");
    build(&publication, &out).unwrap();
    let page = read(&out, "claims/C0001/index.html");
    let heading = &page[page.find("<h1").unwrap()..page.find("</h1>").unwrap()];
    assert!(heading.contains("Reward rises by <") && heading.contains("<button"), "{heading}");
    assert!(page.contains("<title>C0001: Reward rises by +0.309,"));
    for address in [
        "index.html",
        "claims/index.html",
        "claims/C0001/index.html",
        "imports/elsewhere/index.html",
        "experiments/demo/index.html",
    ] {
        let page = read(&out, address);
        assert!(page.contains("Reward rises by") && !page.contains("](derive:"), "{address}");
    }
}

#[test]
fn imports_are_listed_and_say_what_they_were_made_of() {
    let (folder, mut publication, out) = built();
    for (address, href) in [
        ("index.html", "imports/elsewhere/index.html"),
        ("claims/index.html", "../imports/elsewhere/index.html"),
    ] {
        let page = read(&out, address);
        assert!(page.contains(&format!("href=\"{href}\"")), "{address}");
    }
    let page = read(&out, "imports/elsewhere/index.html");
    assert!(page.contains("1 row without a reward") && page.contains("samples_"), "{page}");
    let from = publication.imports[0].files[0].provenance.as_mut().unwrap();
    let said = |label: &str, value: &str| (label.to_string(), value.to_string());
    from.sources[0].2 = vec![said("format", "table"), said("mapping: task_id", "column `q`")];
    let out = folder.path().join("table");
    build(&publication, &out).unwrap();
    assert!(read(&out, "imports/elsewhere/index.html").contains("<td>a table</td>"));
    assert!(
        read(&out, "imports/elsewhere/data/imported--base.parquet/index.html").contains("Mapping: task_id")
    );
}

#[test]
fn only_a_site_with_experiments_says_what_was_fixed_before_a_run() {
    let (folder, mut publication, out) = built();
    assert!(read(&out, "index.html").contains("are fixed before a run"));
    publication.experiments.clear();
    let out = folder.path().join("imports");
    build(&publication, &out).unwrap();
    let page = read(&out, "index.html");
    assert!(!page.contains("fixed before a run") && page.contains("run elsewhere and imported"), "{page}");
}

#[test]
fn a_rescore_is_told_on_the_experiments_page() {
    let (folder, mut publication, _) = built();
    let demo = &mut publication.experiments[0];
    demo.rescores = vec![RescoreInput {
        number: 1,
        date: "2026-12-02".into(),
        families: vec![RescoreFamily {
            family: "ferrier".into(),
            episodes: 160,
            changed: 4,
            solved: (31, 35),
        }],
        outcomes: Some(("negative".into(), "positive".into())),
        superseded: vec![demo.files[0].path.clone(), "superseded/1/unlisted.json".into()],
    }];
    let out = folder.path().join("rescored");
    build(&publication, &out).unwrap();
    let page = read(&out, "experiments/demo/index.html");
    let section = &page[page.find("id=\"rescored\"").unwrap()..page.find("id=\"data\"").unwrap()];
    for words in
        ["Rescore 1, ", "2 December 2026", "ferrier", ">31<", ">35<", "The decision was", "Earlier files: <a"]
    {
        assert!(section.contains(words), "{words}: {section}");
    }
    assert!(!section.contains("unlisted"), "{section}");
}

#[test]
fn the_total_of_a_family_of_tests_is_named() {
    let (folder, mut publication, _) = built();
    let delta = publication.derivations.iter_mut().find(|d| d.id == "delta").unwrap();
    delta.estimator = "holm".into();
    let out = folder.path().join("holm");
    build(&publication, &out).unwrap();
    let page = read(&out, "derivations/demo/delta/index.html");
    assert!(page.contains("<th scope=\"row\">below .05</th>"), "{page}");
}

#[test]
fn imported_rows_have_pages_that_say_where_they_come_from() {
    let (_folder, _, out) = built();
    let page = read(&out, "imports/elsewhere/data/imported--base.parquet/index.html");
    for words in [
        "Where they come from",
        "&lt;b&gt;gsm8k&lt;",
        "lm-evaluation-harness",
        "Mapping: reward",
        "../../files/imported/base.json",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("<b>gsm8k"), "{page}");
    let page = read(&out, "imports/elsewhere/index.html");
    assert!(page.contains("C0001") && page.contains("lm-evaluation-harness"), "{page}");
    let page = read(&out, "claims/C0001/index.html");
    assert!(
        page.contains("1 experiment, 1 import") && page.contains("imports/elsewhere/index.html"),
        "{page}"
    );
}
