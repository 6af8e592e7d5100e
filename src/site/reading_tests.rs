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
