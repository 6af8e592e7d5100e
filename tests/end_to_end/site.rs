//! The site's folder: what a rebuild leaves alone, which places are refused and with which exit code,
//! and that the SQL on derivation pages names files that are there.

use crate::common::{SLUG, copy_of_demo, demo, expect, run, said, snapshot, text};
use std::path::Path;

fn build(workspace: &Path, out: &Path, code: i32) -> String {
    said(&expect(code, &["site", "build", "--workspace", text(workspace), "--out", text(out)]))
}

#[test]
fn a_rebuild_through_a_link_keeps_the_link_and_foreign_files() {
    let (_folder, workspace) = copy_of_demo();
    let (out, target) = (workspace.join("link"), workspace.join("elsewhere"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink("elsewhere", &out).unwrap();
    build(&workspace, &out, 0);
    expect(0, &["site", "check", "--out", text(&out)]);
    std::fs::write(target.join("CNAME"), "log.example").unwrap();
    let gone = target.join("derivations").join(SLUG).join("delta").join("notes.txt");
    std::fs::write(&gone, "mine").unwrap();
    build(&workspace, &out, 0);
    assert_eq!(std::fs::read_link(&out).unwrap(), Path::new("elsewhere"));
    assert_eq!(std::fs::read_to_string(target.join("CNAME")).unwrap(), "log.example");
    assert_eq!(std::fs::read_to_string(gone).unwrap(), "mine");
}

#[test]
fn a_bad_place_for_the_site_is_bad_input() {
    let (folder, workspace) = copy_of_demo();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("dangling")).unwrap();
    std::os::unix::fs::symlink(workspace.join("data"), folder.path().join("hidden")).unwrap();
    let before = snapshot(folder.path());
    let mut places = vec![
        folder.path().join("file"),
        folder.path().join("file/site"),
        folder.path().join("dangling"),
        folder.path().join("hidden/site"),
        folder.path().to_path_buf(),
        workspace.clone(),
        workspace.join("claims/site"),
        workspace.join("models"),
    ];
    if cfg!(target_os = "linux") {
        places.push("/proc/rederive/site".into());
    }
    for out in &places {
        let said = build(&workspace, out, 2);
        assert!(said.contains(text(out)) && said.contains("hint:"), "{said}");
        assert!(before == snapshot(folder.path()), "{} changed the disk", out.display());
    }
    for out in places.iter().chain([&workspace.join("nowhere")]) {
        let output = expect(2, &["site", "check", "--out", text(out)]);
        assert!(said(&output).contains(text(out)) && said(&output).contains("hint:"), "{}", said(&output));
    }
    std::fs::remove_file(workspace.join("public/404.html")).unwrap();
    expect(1, &["site", "check", "--workspace", text(&workspace)]);
}

#[test]
fn a_place_that_is_no_workspace_is_bad_input_for_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, nowhere) = (folder.path().join("empty"), folder.path().join("nowhere"));
    std::fs::create_dir(&empty).unwrap();
    let verbs: [&[&str]; 8] = [
        &["audit"],
        &["claims", "check"],
        &["fill"],
        &["site", "build"],
        &["site", "check"],
        &["run", "x"],
        &["train", "x"],
        &["status", "x"],
    ];
    for workspace in [&empty, &nowhere] {
        for verb in verbs {
            let output = run(&[verb, &["--workspace", text(workspace)]].concat());
            assert_eq!(output.status.code(), Some(2), "{verb:?}\n{}", said(&output));
            assert!(said(&output).contains("hint:"), "{verb:?}\n{}", said(&output));
        }
    }
    let output = expect(2, &["status", "--workspace", text(&nowhere)]);
    assert!(said(&output).contains("hint:"), "{}", said(&output));
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    assert!(!nowhere.exists());
}

#[test]
fn the_sql_on_derivation_pages_runs_where_the_page_says() {
    let public = demo().join("public");
    let mut queries = 0;
    for entry in walkdir::WalkDir::new(public.join("derivations")).into_iter().filter_map(|e| e.ok()) {
        if entry.file_name() != "index.html" {
            continue;
        }
        let page = std::fs::read_to_string(entry.path()).unwrap();
        let Some((_, rest)) = page.split_once("<pre id=\"query\" tabindex=\"0\"><code>") else { continue };
        queries += 1;
        assert!(page.contains("data-for=\"query\""), "the button copies another element");
        assert!(page.contains("Start it in the site’s folder"), "{}", entry.path().display());
        let query = ["&#39;", "&#x27;"]
            .iter()
            .fold(rest.split("</code>").next().unwrap().to_string(), |text, quote| text.replace(quote, "'"));
        let query = query.replace("&#x2F;", "/");
        let (_, files) = query.split_once("read_parquet([").expect("it reads files");
        for file in files.split(']').next().unwrap().split(", ") {
            let file = file.trim_matches('\'');
            assert!(file.ends_with(".parquet") && public.join(file).is_file(), "{file} is not in the site");
        }
    }
    assert!(queries >= 5, "{queries} queries");
}
