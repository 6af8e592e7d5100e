//! End-to-end tests of the site: what pages say, what a build refuses, and what the check finds.

use super::fixtures::{forest, publication, slopes};
use super::input::*;
use super::prose::{Prose, allowed, plain};
use super::*;
use crate::claims::number::UNDEFINED;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn built() -> (tempfile::TempDir, Publication, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let publication = publication(&folder.path().join("data"));
    let out = folder.path().join("public");
    build(&publication, &out).unwrap();
    (folder, publication, out)
}

pub(super) fn read(out: &Path, address: &str) -> String {
    fs_err::read_to_string(out.join(address)).unwrap()
}

fn contents(out: &Path) -> BTreeMap<String, Vec<u8>> {
    walkdir::WalkDir::new(out)
        .into_iter()
        .map(|e| e.unwrap())
        .filter(|e| e.file_type().is_file())
        .map(|e| {
            let name = e.path().strip_prefix(out).unwrap().to_string_lossy().into_owned();
            (name, fs_err::read(e.path()).unwrap())
        })
        .collect()
}

/// Keeps the pages for looking at, when a folder is named for them.
#[test]
fn the_hand_made_site_builds_and_holds_together() {
    let (_folder, publication, out) = built();
    assert_eq!(check(&out).unwrap(), Vec::new());
    for address in [
        "index.html",
        "404.html",
        "experiments/index.html",
        "experiments/demo/index.html",
        "experiments/demo/figures/families.svg",
        "experiments/demo/figures/tasks.csv",
        "experiments/demo/data/episodes--base--52004.parquet/index.html",
        "experiments/demo/files/episodes/base/52004.parquet",
        "experiments/planned-second-seed/index.html",
        "imports/elsewhere/index.html",
        "imports/elsewhere/data/imported--base.parquet/index.html",
        "imports/elsewhere/files/imported/base.json",
        "claims/C0001/index.html",
        "claims/C0001/figures/evidence.json",
        "derivations/demo/delta/index.html",
        "audit/index.html",
        "method/index.html",
        "fonts/OFL.txt",
        "site-manifest.json",
    ] {
        assert!(out.join(address).is_file(), "{address}");
    }
    if let Some(keep) = std::env::var_os("REDERIVE_KEEP_SITE") {
        build(&publication, Path::new(&keep)).unwrap();
    }
}

#[test]
fn two_builds_are_the_same_bytes() {
    let (folder, publication, out) = built();
    let again = folder.path().join("again");
    build(&publication, &again).unwrap();
    assert_eq!(contents(&out), contents(&again));
    build(&publication, &out).unwrap();
    assert_eq!(contents(&out), contents(&again), "a rebuild in place");
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 3, "no temporary folder is left");
}

#[test]
fn an_experiment_page_says_everything() {
    let (_folder, _, out) = built();
    let page = read(&out, "experiments/demo/index.html");
    for words in [
        "2 of 3 legs for a positive outcome hold".to_string(),
        "This task set has been looked at 3 times".into(),
        "30 November to 1 December 2026".into(),
        "treatment 156 of 160".into(),
        "2\u{a0}unbound".into(),
        "<small>4\u{a0}match, 1\u{a0}cited, 1\u{a0}unverifiable".into(),
        "Deployable".into(),
        "+0.309".into(),
        "[+0.237, +0.381]".into(),
        "160 tasks".into(),
        "Flagged: few tasks.".into(),
        "interval undefined".into(),
        "unverifiable, 1 of 3".into(),
        "cited from elsewhere".into(),
        "improved".into(),
        "Correction.".into(),
        "C0001.".into(),
        "&quot;examples&quot;: 3".into(),
    ] {
        assert!(page.contains(&words), "{words}");
    }
    assert!(!page.contains(" style="), "the page's policy forbids style attributes");
    assert!(page.contains("href=\"../../derivations/demo/delta/index.html\""));
    assert!(page.contains("href=\"../../style.css\""));
}

#[test]
fn undefined_values_print_a_dash_and_the_reason() {
    let (_folder, _, out) = built();
    let page = read(&out, "experiments/demo/index.html");
    assert!(page.contains("undefined: no task was run by both arms"));
    assert!(page.contains("Undefined: all differences are equal, so there is no spread."));
    let derivation = read(&out, "derivations/demo/spread/index.html");
    assert!(derivation.contains("— (all differences are equal, so there is no spread)"));
    let csv = read(&out, "experiments/demo/figures/families.csv");
    assert!(csv.contains("quarrel,Held-out families,held out,,,,0,undefined: no task was run by both arms"));
    assert!(
        csv.contains(
            "lockstep,Held-out families,held out,-0.05,,,1,interval undefined: fewer than two tasks"
        )
    );
}

#[test]
fn empty_sections_vanish_and_pending_is_said() {
    let (_folder, _, out) = built();
    let page = read(&out, "experiments/planned-second-seed/index.html");
    assert!(page.contains("Pending. Results will stand here"));
    assert!(page.contains("not started"));
    for id in ["decision", "report", "log", "data", "reproduce", "corrections", "record"] {
        assert!(!page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    let starved = read(&out, "experiments/starved/index.html");
    assert!(starved.contains("Inconclusive: starved.") && starved.contains("treatment 0 of 160"));
    assert!(starved.contains("<h1 class=\"long\">"));
    assert!(!starved.contains("Pending. Results"));
}

#[test]
fn text_is_data_never_markup() {
    let (folder, mut publication, out) = built();
    let page = read(&out, "experiments/demo/index.html");
    assert!(page.contains("&lt;script&gt;alert(&quot;no&quot;)&lt;/script&gt;"));
    assert!(!page.contains("<script>") && !page.contains("<b>raw") && !page.contains("href=\"javascript"));
    assert!(
        read(&out, "experiments/demo/data/episodes--base--52004.parquet/index.html")
            .contains("&lt;script&gt;alert(1)")
    );

    let evil = "\"><img src=x onerror=alert(document)>";
    let demo = &mut publication.experiments[0];
    demo.title = evil.into();
    demo.tagline = evil.into();
    demo.tags = vec![evil.into()];
    demo.lifecycle = evil.into();
    demo.verdict = Some(evil.into());
    demo.cards[0].label = evil.into();
    demo.cards[0].value = evil.into();
    demo.figures[0].title = evil.into();
    demo.figures[0].caption = evil.into();
    demo.log[0].title = evil.into();
    demo.files[0].preview[0][0] = crate::episode::row::Cell::Text(evil.into());
    demo.arms[0].0 = evil.into();
    publication.claims[0].title = evil.into();
    publication.claims[0].status = evil.into();
    publication.audit.entries[0].printed = evil.into();
    publication.derivations[0].toml = evil.into();
    publication.numbers.values_mut().for_each(|n| n.reason = Some(evil.into()));
    if let ChartInput::Slope { tasks, .. } = &mut demo_figure(&mut publication, 1).chart {
        tasks[0].task = evil.into();
        tasks[0].group = evil.into();
    }
    let out = folder.path().join("evil");
    build(&publication, &out).unwrap();
    for (name, bytes) in
        contents(&out).iter().filter(|(name, _)| name.ends_with(".html") || name.ends_with(".svg"))
    {
        assert!(!String::from_utf8_lossy(bytes).contains("<img"), "{name}");
    }
}

fn demo_figure(publication: &mut Publication, i: usize) -> &mut FigureInput {
    &mut publication.experiments[0].figures[i]
}

#[test]
fn markdown_keeps_to_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let publication = publication(folder.path());
    let mut prose = Prose::new(&publication, "../");
    let mut html = |text: &str| prose.block(text, "x.md", "t", 3).unwrap();
    assert_eq!(html("<b>x</b>"), "<p>&lt;b&gt;x&lt;/b&gt;</p>\n");
    assert_eq!(html("<div onclick=x>\n"), "<p>&lt;div onclick=x&gt;\n</p>\n");
    assert_eq!(html("[x](JavaScript:alert(1))"), "<p>x</p>\n");
    assert_eq!(html("[x](java&#115;cript:alert(1))"), "<p>x</p>\n");
    assert_eq!(html("[x](//elsewhere.example/y)"), "<p>x</p>\n");
    assert_eq!(html("[x](data:text/html,y)"), "<p>x</p>\n");
    assert_eq!(html("![x](https://a.example/y.png)"), "<p><a href=\"https://a.example/y.png\">x</a></p>\n");
    assert_eq!(
        html("[x](https://a.example/?q=\"&b)"),
        "<p><a href=\"https://a.example/?q=&quot;&amp;b\">x</a></p>\n"
    );
    assert_eq!(html("# A b\n\n## A b\n"), "<h3 id=\"t-a-b\">A b</h3>\n<h3 id=\"t-a-b-2\">A b</h3>\n");
    assert!(
        html("| a | b |\n|:-:|--:|\n| 1 | 2 |\n").contains("<td class=\"mid\">1</td><td class=\"n\">2</td>")
    );
    let number = html("It is ([0.02](derive:demo.base)), or so");
    assert!(
        number.starts_with("<p>It is <span class=\"nb\">(<button")
            && number.contains("</span>),</span> or so"),
        "{number}"
    );
    assert!(html("`[1](derive:x)`").contains("<code>[1](derive:x)</code>"));
    assert!(prose.inline("1. not a list", "x").unwrap() == "1. not a list");
    assert!(prose.inline("_in_ **b** \\* <i>", "x").unwrap() == "<em>in</em> <strong>b</strong> * &lt;i&gt;");
    assert_eq!(plain("[0.02](derive:demo.base) → **x**"), "0.02 → x");
    for bad in ["/x", "\\x", "x:y", " x", "a\u{1}b", "vbscript:x", "file:///etc"] {
        assert!(!allowed(bad), "{bad}");
    }
    for good in ["#a", "a/b.html#c", "../x", "https://x", "mailto:a@b", "./a:b"] {
        assert!(allowed(good), "{good}");
    }
}

#[test]
fn an_unknown_reference_names_file_and_reference() {
    let (folder, mut publication, out) = built();
    let before = contents(&out);
    publication.experiments[0].report.push_str("\n[0.1](derive:demo.basse)\n");
    let error = build(&publication, &out).unwrap_err().to_string();
    assert!(
        error.contains("site/experiments/demo/report.md") && error.contains("derive:demo.basse"),
        "{error}"
    );
    assert!(error.contains("did you mean `derive:demo.base`"), "{error}");
    assert_eq!(before, contents(&out));
    drop(folder);
}

#[test]
fn refusals_and_failures_leave_the_old_site() {
    let (folder, publication, out) = built();
    let before = contents(&out);
    let mut refused = publication.clone();
    refused.refusals = (1..=12).map(|i| format!("reason number {i}")).collect();
    let error = build(&refused, &out).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(
        error.to_string().contains("reason number 1\n") && error.to_string().contains("and 4 more"),
        "{error}"
    );

    let mut broken = publication.clone();
    broken.experiments[0].report.push_str("\n[gone](../nowhere/index.html) [anchor](#nothing)\n");
    let error = build(&broken, &out).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(
        error.to_string().contains("experiments/nowhere/index.html")
            && error.to_string().contains("#nothing"),
        "{error}"
    );

    let mut edited = publication.clone();
    fs_err::write(&edited.experiments[0].files[0].source, b"edited").unwrap();
    assert!(build(&edited, &out).unwrap_err().to_string().contains("SHA-256"));
    edited.experiments[0].files.clear();
    assert_eq!(before, contents(&out));
    assert!(build(&edited, &out).is_ok());
    assert_ne!(before, contents(&out));
    drop(folder);
}

#[test]
fn a_killed_build_is_cleared_away_and_foreign_folders_are_kept() {
    let (folder, publication, out) = built();
    fs_err::create_dir_all(folder.path().join(".public.building/half")).unwrap();
    fs_err::rename(&out, folder.path().join(".public.previous")).unwrap();
    build(&publication, &out).unwrap();
    assert!(
        !folder.path().join(".public.building").exists() && !folder.path().join(".public.previous").exists()
    );
    let foreign = folder.path().join("foreign");
    fs_err::create_dir_all(&foreign).unwrap();
    fs_err::write(foreign.join("thesis.tex"), "x").unwrap();
    let error = build(&publication, &foreign).unwrap_err();
    assert!(error.to_string().contains("is not a site") && error.exit_code() == 2, "{error}");
    assert!(foreign.join("thesis.tex").exists());
}

#[test]
fn names_that_are_no_addresses_are_refused() {
    let (folder, publication, _) = built();
    let out = folder.path().join("other");
    let mut bad = publication.clone();
    bad.experiments[0].slug = "../x".into();
    assert!(build(&bad, &out).unwrap_err().to_string().contains("`../x`"));
    let mut bad = publication.clone();
    bad.experiments[0].files[0].path = "../../etc/passwd".into();
    assert!(build(&bad, &out).unwrap_err().to_string().contains("no address within the site"));
    let mut bad = publication.clone();
    bad.derivations.retain(|d| d.id != "kept");
    assert!(build(&bad, &out).unwrap_err().to_string().contains("demo.kept"));
    let mut bad = publication;
    bad.claims[1].id = "C0001".into();
    assert!(build(&bad, &out).unwrap_err().to_string().contains("there twice"));
    assert!(!out.exists());
}

#[test]
fn the_check_finds_planted_breaks() {
    let (_folder, _, out) = built();
    let page = out.join("claims/index.html");
    let text = read(&out, "claims/index.html");
    let planted = [
        ("<p><a href=\"nowhere.html\">x</a></p>", "does not exist"),
        ("<p><a href=\"C0001/index.html#nothing\">x</a></p>", "names an anchor"),
        ("<p><a href=\"../\">x</a></p>", "does not exist"),
        ("<p><a href=\"../../outside.html\">x</a></p>", "leads out of the site"),
        ("<p><a href=\"/index.html\">x</a></p>", "leads out of the site"),
        ("<p><a href=\"javascript:1\">x</a></p>", "scheme that is not allowed"),
        ("<img src=\"https://tracker.example/x.png\" alt=\"\">", "loaded from elsewhere"),
        ("<p id=\"main\">x</p>", "used twice"),
        ("<p aria-labelledby=\"nobody\">x</p>", "which the page does not have"),
        ("<p style=\"color:red\">x</p>", "forbids"),
    ];
    for (markup, expected) in planted {
        fs_err::write(&page, text.replace("</main>", &format!("{markup}</main>"))).unwrap();
        let found: Vec<String> = check(&out).unwrap().iter().map(ToString::to_string).collect();
        assert!(
            found.iter().any(|p| p.contains(expected) && p.starts_with("claims/index.html:")),
            "{markup}: {found:?}"
        );
        assert!(found.iter().any(|p| p.contains("hash differs")), "the manifest sees the edit");
    }
    fs_err::write(&page, &text).unwrap();
    assert_eq!(check(&out).unwrap(), Vec::new());
    fs_err::write(out.join("stray.txt"), "x").unwrap();
    fs_err::remove_file(out.join("fonts/public-sans.woff2")).unwrap();
    let found: Vec<String> = check(&out).unwrap().iter().map(ToString::to_string).collect();
    assert!(
        !found.iter().any(|p| p.contains("stray.txt")) && found.iter().any(|p| p.starts_with("style.css")),
        "{found:?}"
    );
    assert_eq!(super::strays(&out).unwrap(), ["stray.txt"]);
    fs_err::remove_file(out.join("site-manifest.json")).unwrap();
    for no_site in [out.clone(), out.join("index.html"), out.join("nowhere")] {
        let error = check(&no_site).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("hint:"), "{error}");
    }
}

/// Rows of a figure's CSV; the fixtures have no quoted cells.
fn csv_rows(csv: &str) -> Vec<Vec<String>> {
    csv.lines().map(|line| line.split(',').map(str::to_string).collect()).collect()
}

#[test]
fn table_csv_json_and_drawing_agree() {
    for chart in [forest(), slopes()] {
        let scene = chart::Scene::of(&chart, "T");
        let table = scene.table();
        let csv = csv_rows(&table.csv());
        let json: serde_json::Value = serde_json::from_str(&scene.json()).unwrap();
        assert_eq!(csv.len(), table.rows.len() + 1);
        assert_eq!(json["rows"].as_array().unwrap().len(), table.rows.len());
        assert_eq!(json["columns"].as_array().unwrap().len(), csv[0].len());
        for (i, row) in table.rows.iter().enumerate() {
            for (j, cell) in row.iter().enumerate() {
                let in_json = &json["rows"][i][j];
                let in_csv = csv[i + 1][j].as_str();
                match cell {
                    chart::Datum::Text(text) => {
                        assert_eq!(in_json, text);
                        assert_eq!(in_csv, text);
                    }
                    chart::Datum::Number(None) => {
                        assert!(in_json.is_null() && in_csv.is_empty());
                        assert_eq!(cell.printed(&table.columns[j]), UNDEFINED);
                    }
                    chart::Datum::Number(Some(value)) => {
                        // serde_json's reader may be one unit in the last place off; the text is exact.
                        assert!((in_json.as_f64().unwrap() - value).abs() <= value.abs() * 3e-16);
                        assert_eq!(in_csv.parse::<f64>().unwrap(), *value);
                        let printed =
                            cell.printed(&table.columns[j]).replace('\u{2212}', "-").parse::<f64>().unwrap();
                        assert!((printed - value).abs() <= 5.1e-4);
                    }
                }
            }
        }
        for size in [chart::Size::Wide, chart::Size::Narrow] {
            let svg = scene.svg("t", size);
            assert!(svg.contains("role=\"img\"") && svg.contains("<title") && svg.contains("<desc"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}

#[test]
fn every_task_of_a_slope_is_drawn_once() {
    let ChartInput::Slope { tasks, .. } = slopes() else { panic!() };
    let scene = chart::Scene::of(&slopes(), "T");
    assert_eq!(scene.panels.iter().map(|p| p.marks.len()).sum::<usize>(), tasks.len());
    let svg = scene.svg("t", chart::Size::Wide);
    let drawn: usize = svg
        .split("<title>")
        .skip(1)
        .map(|part| {
            let words: Vec<&str> = part.split(':').next().unwrap().split(' ').collect();
            if words.len() == 2 && words[1].starts_with("task") {
                words[0].parse::<usize>().unwrap()
            } else {
                1
            }
        })
        .sum();
    assert_eq!(drawn, tasks.len());
    let csv = scene.table().csv();
    for (word, role) in [
        ("improved", chart::Role::Improved),
        ("worsened", chart::Role::Worsened),
        ("unchanged", chart::Role::Unchanged),
    ] {
        let marks: usize = scene.panels.iter().map(|p| p.count(role)).sum();
        assert_eq!(csv.lines().filter(|l| l.ends_with(word)).count(), marks);
        assert!(scene.description().contains(word));
    }
}

#[test]
fn charts_without_rows_or_width_do_not_panic() {
    let empty = ChartInput::Forest { groups: vec![], pooled: None, bar: None };
    let odd = ChartInput::Slope { left: String::new(), right: "x".into(), tasks: vec![] };
    for chart in [empty, odd] {
        let scene = chart::Scene::of(&chart, "");
        assert!(scene.svg("t", chart::Size::Narrow).starts_with("<svg"));
        assert_eq!(scene.table().rows.len(), 0);
        assert!(scene.svg_file().contains("xmlns"));
    }
}

/// Whatever a text hides from the audit, the page does not print it.
#[test]
fn a_number_that_the_audit_did_not_see_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut publication = publication(folder.path());
    let reference = publication.numbers.keys().next().unwrap().clone();
    let build_with = |publication: &Publication| build(publication, &folder.path().join("out")).map(|_| ());
    let every = |publication: &Publication| -> std::collections::BTreeSet<(String, String)> {
        let mut all = std::collections::BTreeSet::new();
        for experiment in &publication.experiments {
            let mut texts = vec![experiment.report.clone()];
            texts.extend(experiment.plain.iter().flatten().cloned());
            texts.extend(experiment.log.iter().map(|entry| entry.body.clone()));
            texts.extend(experiment.corrections.iter().map(|c| c.2.clone()));
            texts.extend(experiment.cards.iter().flat_map(|c| [c.value.clone(), c.note.clone()]));
            for f in &experiment.figures {
                texts.extend([&f.title, &f.how_to_read, &f.takeaway, &f.technical].map(String::clone));
            }
            all.extend(texts.iter().flat_map(|text| super::prose::references(text)));
        }
        all.extend(publication.claims.iter().flat_map(|claim| super::prose::references(&claim.body)));
        all
    };
    publication.judged = Some(every(&publication));
    build_with(&publication).unwrap();
    for hidden in [
        format!("[a](https://x.org/`) [0.97]({reference}) [b](https://x.org/`)"),
        format!("The gain was\n    ```\n    [0.97]({reference})\n    ````\n"),
        format!("> [0.97](\n> {reference})"),
    ] {
        let mut forged = publication.clone();
        forged.experiments[0].report.push_str(&format!("\n\n{hidden}\n"));
        let error = build_with(&forged).unwrap_err().to_string();
        assert!(error.contains("the audit did not see it"), "{hidden}: {error}");
    }
    for shown in ["&#57;&#55;%", "97. percent of tasks", "<https://x.org/`> 97% <https://x.org/`>"] {
        let mut forged = publication.clone();
        forged.experiments[0].cards[0].value = shown.to_string();
        let error = build_with(&forged).unwrap_err().to_string();
        assert!(error.contains("is bound to no derivation"), "{shown}: {error}");
    }
}
