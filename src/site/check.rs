//! The link check over a finished site: every internal link, anchor and asset resolves, no page uses
//! an id twice, nothing is loaded from elsewhere, and the manifest agrees with the files.

use super::output::{self, MANIFEST};
use crate::error::{Error, Problem, Result};
use crate::hash::sha256_file;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An attribute of a page, with the line it stands on.
struct Attribute {
    line: usize,
    tag: String,
    name: String,
    value: String,
}

struct Page {
    ids: BTreeSet<String>,
    attributes: Vec<Attribute>,
}

/// Files in the folder of a built site that are not the site's own, such as `CNAME`, rising.
pub fn strays(folder: &Path) -> Result<Vec<String>> {
    let listed = listed(folder)?;
    Ok(files(folder)?.into_iter().filter(|file| file != MANIFEST && !listed.contains_key(file)).collect())
}

fn listed(folder: &Path) -> Result<BTreeMap<String, String>> {
    let Some(listed) = output::manifest(folder)? else {
        let what = match folder.is_dir() {
            true => format!("the folder holds no built site: it has no `{MANIFEST}`"),
            false => "there is no such folder".to_string(),
        };
        return Err(Error::invalid(what)
            .at(folder.display())
            .hint("name a built site with `--out DIR`, or build one with `rederive site build`"));
    };
    Ok(listed)
}

/// What is wrong with the site in `folder`: broken links and anchors, missing assets, repeated ids, and
/// files that are missing or differ from the manifest. Files that are not the site's own are not looked
/// at. Sorted by place. A place that holds no built site is an error.
pub fn check(folder: &Path) -> Result<Vec<Problem>> {
    let listed = listed(folder)?;
    let files: BTreeSet<String> =
        files(folder)?.into_iter().filter(|file| file == MANIFEST || listed.contains_key(file)).collect();
    let mut problems = Vec::new();
    let mut pages = BTreeMap::new();
    for address in files.iter().filter(|a| a.ends_with(".html")) {
        let bytes = fs_err::read(folder.join(address))?;
        let page = read(&String::from_utf8_lossy(&bytes));
        pages.insert(address.as_str(), page);
    }
    for (address, page) in &pages {
        ids(address, page, &mut problems);
        links(address, page, &pages, &files, &mut problems);
    }
    for address in files.iter().filter(|a| a.ends_with(".css")) {
        styles(folder, address, &files, &mut problems)?;
    }
    manifest(folder, &files, &listed, &mut problems)?;
    problems.sort_by(|a, b| (&a.place, &a.what).cmp(&(&b.place, &b.what)));
    Ok(problems)
}

fn problem(place: String, what: String) -> Problem {
    Problem { what, place: Some(place), remedy: None }
}

fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1).follow_links(false) {
        let entry = entry.map_err(|e| Error::invalid(format!("cannot be read: {e}")).at(folder.display()))?;
        if entry.file_type().is_dir() {
            continue;
        }
        let below = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        files.insert(parts.join("/"));
    }
    Ok(files)
}

/// Reads the tags of a page: enough HTML for pages that this crate writes, and for broken ones.
fn read(text: &str) -> Page {
    let mut page = Page { ids: BTreeSet::new(), attributes: Vec::new() };
    let mut rest = text;
    let mut line = 1;
    while let Some(at) = rest.find('<') {
        line += rest[..at].matches('\n').count();
        rest = &rest[at..];
        let length = if rest.starts_with("<!--") {
            rest.find("-->").map_or(rest.len(), |end| end + 3)
        } else if rest[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            let length = tag_length(rest);
            attributes(&rest[1..length], line, &mut page);
            length
        } else {
            1
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    page
}

/// Bytes from `<` to the `>` that closes the tag, quoted values skipped.
fn tag_length(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, '>') => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn attributes(tag: &str, line: usize, page: &mut Page) {
    let tag = tag.trim_end_matches('>');
    let name_end = tag.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(tag.len());
    let (name, mut rest) = tag.split_at(name_end);
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(end.max(1));
        let (value, after) = match after.strip_prefix('=') {
            Some(quoted) if quoted.starts_with(['"', '\'']) => {
                let quote = &quoted[..1];
                let inner = &quoted[1..];
                let close = inner.find(quote).unwrap_or(inner.len());
                (&inner[..close], inner.get(close + 1..).unwrap_or(""))
            }
            Some(bare) => {
                let close = bare.find(char::is_whitespace).unwrap_or(bare.len());
                bare.split_at(close)
            }
            None => ("", after),
        };
        rest = after;
        let (tag, name) = (name.to_ascii_lowercase(), attribute.to_ascii_lowercase());
        let value = unescape(value);
        if name == "id" {
            page.ids.insert(value.clone());
        }
        page.attributes.push(Attribute { line, tag, name, value });
    }
}

fn unescape(value: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x2F;", "/"), ("&amp;", "&")];
    entities.iter().fold(value.to_string(), |text, (entity, c)| text.replace(entity, c))
}

fn ids(address: &str, page: &Page, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for attribute in page.attributes.iter().filter(|a| a.name == "id") {
        if !seen.insert(attribute.value.as_str()) {
            problems.push(problem(
                format!("{address}:{}", attribute.line),
                format!("the id `{}` is used twice", attribute.value),
            ));
        }
    }
}

impl Page {
    fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }
}

fn links(
    address: &str,
    page: &Page,
    pages: &BTreeMap<&str, Page>,
    files: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) {
    for attribute in &page.attributes {
        let mut complain =
            |what: String| problems.push(problem(format!("{address}:{}", attribute.line), what));
        match attribute.name.as_str() {
            "href" | "src" => {
                let loads = attribute.name == "src" || attribute.tag == "link";
                if let Some(what) = target(address, &attribute.value, loads, pages, files) {
                    complain(what);
                }
            }
            "aria-labelledby" | "aria-describedby" | "popovertarget" | "for" | "data-for" => {
                for id in attribute.value.split_whitespace().filter(|id| !page.has(id)) {
                    complain(format!(
                        "`{}` names the id `{id}`, which the page does not have",
                        attribute.name
                    ));
                }
            }
            name if name.starts_with("on") || name == "style" => {
                complain(format!("`{name}` is an attribute that the page's own policy forbids"));
            }
            _ => {}
        }
    }
}

/// What is wrong with a link, if anything.
fn target(
    from: &str,
    link: &str,
    loads: bool,
    pages: &BTreeMap<&str, Page>,
    files: &BTreeSet<String>,
) -> Option<String> {
    let head = link.split(['/', '?', '#']).next().unwrap_or("");
    if head.contains(':') {
        let known = ["http:", "https:", "mailto:"].contains(&head.to_ascii_lowercase().as_str())
            || head.to_ascii_lowercase().starts_with("mailto:");
        return match (known, loads) {
            (false, _) => Some(format!("`{link}` has a scheme that is not allowed")),
            (true, true) => Some(format!("`{link}` is loaded from elsewhere")),
            (true, false) => None,
        };
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let Some(address) = resolve(from, &unpercent(path)) else {
        return Some(format!("`{link}` leads out of the site"));
    };
    if !files.contains(&address) {
        return Some(format!("`{link}` leads to `{address}`, which does not exist"));
    }
    match (anchor.filter(|a| !a.is_empty()), pages.get(address.as_str())) {
        (Some(anchor), Some(page)) if !page.has(&unpercent(anchor)) => {
            Some(format!("`{link}` names an anchor that `{address}` does not have"))
        }
        _ => None,
    }
}

/// The address of a relative link; `None` when it leaves the site.
fn resolve(from: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    if path.is_empty() {
        return Some(from.to_string());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn unpercent(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let code = (byte == b'%')
            .then(|| path.get(i + 1..i + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        out.push(code.unwrap_or(byte));
        i += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn styles(folder: &Path, address: &str, files: &BTreeSet<String>, problems: &mut Vec<Problem>) -> Result<()> {
    let text = fs_err::read_to_string(folder.join(address))?;
    for part in text.split("url(").skip(1) {
        let link = part.split(')').next().unwrap_or("").trim_matches(['"', '\'']);
        let found = resolve(address, link).is_some_and(|target| files.contains(&target));
        if !found {
            problems.push(problem(address.to_string(), format!("`{link}` does not exist")));
        }
    }
    Ok(())
}

fn manifest(
    folder: &Path,
    files: &BTreeSet<String>,
    listed: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Result<()> {
    for (address, hash) in listed {
        if !files.contains(address) {
            problems
                .push(problem(address.clone(), "the list of files has it, the folder does not".to_string()));
        } else if &sha256_file(&folder.join(address))? != hash {
            problems.push(problem(address.clone(), "its hash differs from the list of files".to_string()));
        }
    }
    Ok(())
}
