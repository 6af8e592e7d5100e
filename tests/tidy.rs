//! What can be enforced by parsing the sources: module docs everywhere, no `unwrap` outside
//! tests, the module map's "must not" column, `| safe` only for rendered HTML, and file sizes.

use std::path::{Path, PathBuf};

fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<_> = walkdir::WalkDir::new(root.join(folder))
        .into_iter()
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().extension().is_some_and(|e| e == extension))
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).expect("a source file is readable");
            (entry.path().strip_prefix(root).expect("below the root").to_path_buf(), text)
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files under {folder}");
    found
}

/// The part of a file that ships: comments dropped, and everything that only tests compile: items of one
/// line (`mod tests;`, a `use`) alone, anything else with all that follows it.
fn shipped(text: &str) -> String {
    let mut out = Vec::new();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            out.push(line);
            continue;
        }
        let item = lines.by_ref().find(|line| !line.starts_with("#[")).unwrap_or_default();
        if !item.ends_with(';') {
            break;
        }
    }
    out.join("\n")
}

#[test]
fn what_ships_is_told_from_what_only_tests_compile() {
    let text = "//! Doc.\nmod a;\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\n#[path = \"x.rs\"]\nmod more;\nfn c() {}\n\
        #[cfg(test)]\nmod inner {\n    fn d() {}\n}\n";
    assert_eq!(shipped(text), "mod a;\nfn b() {}\nfn c() {}");
}

fn complain(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// A file with a whole-file `#![cfg(test)]` or one that only tests include.
fn is_test_only(path: &Path, text: &str) -> bool {
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default();
    text.contains("#![cfg(test)]")
        || ["tests", "testing", "fixtures"].contains(&name)
        || name.ends_with("_tests")
        || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let complaints: Vec<String> = ["src", "tests", "examples"]
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| format!("{}: starts without a `//!` comment", path.display()))
        .collect();
    complain(&complaints);
}

#[test]
fn no_unwrap_and_no_unfinished_code_outside_tests() {
    let banned = [".unwrap()", "todo!(", "unimplemented!(", "dbg!(", "allow(dead_code", "allow(unused"];
    let mut complaints = Vec::new();
    for (path, text) in files("src", "rs") {
        if is_test_only(&path, &text) {
            continue;
        }
        for word in banned.iter().filter(|word| shipped(&text).contains(**word)) {
            complaints.push(format!("{}: contains `{word}`", path.display()));
        }
    }
    complain(&complaints);
}

#[test]
fn modules_keep_to_what_they_may_know() {
    let rules: &[(&str, &[&str])] = &[
        (
            "src/audit",
            &[
                "crate::stats",
                "crate::philox",
                "claims::evaluate",
                "claims::number",
                "claims::check",
                "claims::fill",
                "claims::unbound",
                "claims::Book",
            ],
        ),
        ("src/site", &["crate::stats", "polars", "crate::audit::", "crate::engine", "crate::model"]),
        ("src/stats", &["std::fs", "fs_err", "polars", "crate::claims", "crate::episode::table"]),
        ("src/episode", &["crate::stats", "candle_core"]),
        (
            "src/model",
            &["crate::engine", "crate::environment", "crate::episode", "crate::train", "crate::stats"],
        ),
        ("src/engine", &["crate::episode", "crate::stats", "crate::train", "reward"]),
        ("src/train", &["crate::environment", "crate::engine", "crate::stats"]),
        ("src/environment", &["crate::engine", "crate::model", "crate::episode", "crate::stats"]),
        (
            "src/experiment",
            &["crate::engine", "crate::model", "crate::episode::run", "crate::stats", "candle_core"],
        ),
        (
            "src/serve",
            &[
                "crate::episode",
                "crate::stats",
                "crate::train",
                "crate::environment",
                "crate::stages",
                "reward",
            ],
        ),
        ("src/claims", &["tera::", "<html", "<div", "<span"]),
    ];
    let mut complaints = Vec::new();
    for (folder, words) in rules {
        for (path, text) in files(folder, "rs") {
            for word in words.iter().filter(|word| shipped(&text).contains(**word)) {
                complaints.push(format!("{}: must not use `{word}`", path.display()));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn files_are_about_one_thing() {
    let complaints: Vec<String> = files("src", "rs")
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > 600)
        .map(|(path, lines)| format!("{}: {lines} lines, split it", path.display()))
        .collect();
    complain(&complaints);
    let main =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs")).expect("main.rs");
    assert!(main.lines().count() < 100, "src/main.rs stays under 100 lines");
}

#[test]
fn safe_is_only_for_rendered_markup() {
    let mut complaints = Vec::new();
    for (path, text) in files("templates", "html") {
        for (number, line) in text.lines().enumerate() {
            for (at, _) in line.match_indices("| safe").chain(line.match_indices("|safe")) {
                let name = line[..at]
                    .trim_end()
                    .rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .next()
                    .unwrap_or("");
                if !name.ends_with("_html") && !name.ends_with("_svg") {
                    complaints.push(format!("{}:{}: `| safe` on `{name}`", path.display(), number + 1));
                }
            }
        }
    }
    complain(&complaints);
}

#[test]
fn no_path_of_a_developers_machine_is_committed() {
    let mut complaints = Vec::new();
    for folder in ["src", "tests", "templates", "docs", "site", "claims", "data"] {
        for extension in ["rs", "html", "md", "toml", "json"] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            for entry in walkdir::WalkDir::new(root).into_iter().filter_map(|e| e.ok()) {
                if entry.path().extension().is_some_and(|e| e == extension)
                    && let Ok(text) = std::fs::read_to_string(entry.path())
                {
                    for name in ["home", "root", "Users"] {
                        let prefix = format!("/{name}/");
                        if text.contains(&prefix) && !entry.path().ends_with("tidy.rs") {
                            complaints.push(format!("{}: contains `{prefix}…`", entry.path().display()));
                        }
                    }
                }
            }
        }
    }
    complain(&complaints);
}
