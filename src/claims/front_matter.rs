//! A text file of the workspace: TOML front matter between `+++` lines, then Markdown. Keeps
//! the place of every piece, so that a message or an edit names file and line.

use super::links::{self, Link};
use super::toml_text::{self, TextField};
use crate::error::{Error, Result, nearest};
use crate::regular;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

const FENCE: &str = "+++";

/// Whether a file starts with front matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// It must.
    Required,
    /// It may.
    Optional,
}

/// A text file, split.
#[derive(Debug, Clone)]
pub struct Document {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// The whole file.
    pub source: String,
    /// Bytes of the TOML, without the `+++` lines.
    pub front: Range<usize>,
    /// Bytes of the Markdown.
    pub body: Range<usize>,
    /// Every string of the front matter.
    pub fields: Vec<TextField>,
    /// Where lines end.
    line_ends: Vec<usize>,
    /// The lines of each table header of the front matter.
    headers: HashMap<String, Vec<usize>>,
}

/// A text within a document: the body, or one string of the front matter.
#[derive(Debug, Clone, Copy)]
pub struct Passage<'a> {
    /// The front-matter field; `None` for the body.
    pub field: Option<&'a str>,
    /// The text, decoded.
    pub text: &'a str,
    offsets: Option<&'a [usize]>,
    base: usize,
}

impl Passage<'_> {
    /// The byte of the file that a byte of this text comes from.
    pub fn offset(&self, at: usize) -> usize {
        match self.offsets {
            Some(offsets) => offsets.get(at).or(offsets.last()).copied().unwrap_or(self.base),
            None => self.base + at,
        }
    }
}

impl Document {
    /// Reads and splits `root/path`.
    pub fn read(root: &Path, path: &str, front: Front) -> Result<Document> {
        let bytes = regular::bytes(&root.join(path))?;
        let source = String::from_utf8(bytes).map_err(|e| {
            Error::invalid("is not UTF-8 text")
                .at(format!("{path}: byte {}", e.utf8_error().valid_up_to()))
                .hint("save it as UTF-8")
        })?;
        Document::split(path, source, front)
    }

    /// Splits a text at its `+++` lines; `path` is for messages. A byte order mark belongs to
    /// neither part. Lines end in LF or CRLF; a lone carriage return, which some readers take for a
    /// line end and others do not, is refused.
    pub fn split(path: &str, source: String, front: Front) -> Result<Document> {
        if let Some(at) = links::lone_return(&source) {
            let line = 1 + source[..at].matches('\n').count();
            return Err(Error::invalid("has a carriage return that ends no line")
                .at(format!("{path}:{line}"))
                .hint("save the file with LF or CRLF line ends"));
        }
        let mark = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut lines = source[mark..].split_inclusive('\n');
        let first = lines.next().unwrap_or_default();
        if first.trim_end() != FENCE {
            if front == Front::Required {
                return Err(Error::invalid("has no front matter")
                    .at(format!("{path}:1"))
                    .hint("start the file with a `+++` line, TOML, and another `+++` line"));
            }
            let body = mark..source.len();
            return Ok(Document::of(path, source, 0..0, body, Vec::new()));
        }
        let start = mark + first.len();
        let mut at = start;
        for line in lines {
            if line.trim_end() == FENCE {
                let body = at + line.len()..source.len();
                let fields = toml_text::strings(&source[start..at], start);
                return Ok(Document::of(path, source, start..at, body, fields));
            }
            at += line.len();
        }
        Err(Error::invalid("front matter that starts here never ends")
            .at(format!("{path}:1"))
            .hint("close it with a second `+++` line"))
    }

    fn of(
        path: &str,
        source: String,
        front: Range<usize>,
        body: Range<usize>,
        fields: Vec<TextField>,
    ) -> Document {
        let line_ends: Vec<usize> = source.match_indices('\n').map(|(at, _)| at).collect();
        let mut headers: HashMap<String, Vec<usize>> = HashMap::new();
        let first = 1 + line_ends.partition_point(|end| *end < front.start);
        for (at, line) in source[front.clone()].lines().enumerate() {
            let line = line.trim_start();
            if let (true, Some(end)) = (line.starts_with('['), line.rfind(']')) {
                headers.entry(line[..=end].to_owned()).or_default().push(first + at);
            }
        }
        Document { path: path.into(), source, front, body, fields, line_ends, headers }
    }

    /// The Markdown.
    pub fn body(&self) -> &str {
        &self.source[self.body.clone()]
    }

    /// Line of a byte of the file, from 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < offset)
    }

    /// `path:line` of a byte of the file.
    pub fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.path, self.line(offset))
    }

    /// Line of a front-matter key such as `title` or `[derivations.delta]`, found by its text: the
    /// first one, or the one after `skip` others.
    pub fn line_of(&self, key: &str, skip: usize) -> Option<usize> {
        if key.ends_with(']') {
            return self.headers.get(key)?.get(skip).copied();
        }
        let mut at = self.front.start;
        let mut left = skip;
        for line in self.source[self.front.clone()].split_inclusive('\n') {
            let rest = line.trim_start().strip_prefix(key);
            if rest.is_some_and(|r| r.trim_start().starts_with('=')) {
                if left == 0 {
                    return Some(self.line(at));
                }
                left -= 1;
            }
            at += line.len();
        }
        None
    }

    /// `path:line` of a front-matter key, or the path where the key cannot be found by its text.
    pub fn place_of(&self, key: &str) -> String {
        self.line_of(key, 0).map_or_else(|| self.path.clone(), |line| format!("{}:{line}", self.path))
    }

    /// Reads the front matter into a type; errors name file and line, and the nearest known key.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.source[self.front.clone()]).map_err(|e| {
            let at = self.front.start + e.span().map_or(0, |span| span.start);
            let message = e.message().replace('\n', ", ");
            let error = Error::invalid(message.clone()).at(self.place(at));
            match known_key(&message) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("docs/FORMATS.md lists what the front matter may hold"),
            }
        })
    }

    /// The texts in which links may stand: strings of the front matter, then the body.
    pub fn passages(&self) -> impl Iterator<Item = Passage<'_>> {
        let fields = self.fields.iter().map(|field| Passage {
            field: Some(&field.path),
            text: &field.text,
            offsets: Some(&field.offsets),
            base: self.front.start,
        });
        let body = Passage { field: None, text: self.body(), offsets: None, base: self.body.start };
        fields.chain(std::iter::once(body))
    }

    /// Every derive link of the file, in its order; a misused address is a link whose reference is an error.
    pub fn links(&self) -> Vec<Link> {
        let mut out = Vec::new();
        for passage in self.passages() {
            let scan = links::scan(passage.text);
            let troubles = scan.troubles.into_iter().map(|(range, what)| (range, Err(what), None));
            let found = scan.links.into_iter().map(|link| (link.printed, link.reference, link.beside));
            out.extend(found.chain(troubles).map(|(range, reference, beside)| {
                let printed = passage.text.get(range.clone()).unwrap_or_default().to_string();
                let range = without_blanks(passage.text, range);
                let range = passage.offset(range.start)..passage.offset(range.end);
                let line = self.line(range.start);
                Link {
                    file: self.path.clone(),
                    line,
                    field: passage.field.map(str::to_string),
                    range,
                    printed,
                    reference,
                    beside,
                }
            }));
        }
        out.sort_by_key(|link| link.range.start);
        out
    }
}

/// A range of a text without the blanks around what stands in it; whole where there are only blanks.
fn without_blanks(text: &str, range: Range<usize>) -> Range<usize> {
    let inner = text.get(range.clone()).unwrap_or_default();
    if inner.trim().is_empty() {
        return range;
    }
    range.start + inner.len() - inner.trim_start().len()..range.start + inner.trim_end().len()
}

/// For "unknown field `x`, expected one of `a`, `b`": the nearest of the expected names.
fn known_key(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| message.starts_with("unknown "))?;
    nearest(unknown, names).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn split(text: &str) -> Result<Document> {
        Document::split("site/x.md", text.into(), Front::Required)
    }

    #[test]
    fn front_matter_and_body_are_told_apart() {
        let d = split("+++\ntitle = \"x\"\n+++\n# Body\n").unwrap();
        assert_eq!((&d.source[d.front.clone()], d.body()), ("title = \"x\"\n", "# Body\n"));
        let d = split("+++\r\na = 1\r\n+++\r\nbody").unwrap();
        assert_eq!(d.body(), "body");
        let d = Document::split("log.md", "no front".into(), Front::Optional).unwrap();
        assert_eq!(d.body(), "no front");
        assert!(split("no front").unwrap_err().to_string().starts_with("site/x.md:1: has no front matter"));
        assert!(split("+++\na = 1\n").unwrap_err().to_string().contains("never ends"));
        assert_eq!(split("+++\n+++").unwrap().body(), "");
    }

    #[test]
    fn marks_line_ends_and_tabs_of_other_editors_are_read() {
        let text = "+++\ntitle = \"x\"\t\n[[cards]]\nvalue = \"\t[](derive:a.b)\"\n+++\t\n\ttext\n\n[0.3](derive:a.c)\n";
        for text in [text.to_string(), format!("\u{feff}{text}")] {
            for text in [text.replace('\n', "\r\n"), text] {
                let d = split(&text).unwrap();
                let seen: Vec<usize> = d.links().iter().map(|l| l.line).collect();
                assert_eq!(seen, [4, 8], "{text:?}");
                assert_eq!(d.line_of("title", 0), Some(2));
                assert!(d.body().starts_with("\ttext"));
                let e = d.parse::<std::collections::BTreeMap<String, u8>>().unwrap_err().to_string();
                assert!(e.starts_with("site/x.md:3: invalid type"), "{e}");
            }
        }
        let d = Document::split("log.md", "\u{feff}## 2026-12-01\r\n".into(), Front::Optional).unwrap();
        assert_eq!(d.body(), "## 2026-12-01\r\n");
        let e = split("+++\na = 1\n+++\na\rb").unwrap_err().to_string();
        assert!(e.starts_with("site/x.md:4: has a carriage return") && e.contains("hint:"), "{e}");
        let e = split("+++\ra = 1\r+++\r").unwrap_err().to_string();
        assert!(e.starts_with("site/x.md:1: has a carriage return"), "{e}");
    }

    #[test]
    fn errors_name_the_line_and_the_nearest_key() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Small {
            title: String,
            status: Option<String>,
        }
        let e = split("+++\ntitle = \"x\"\nstatsu = \"y\"\n+++\n")
            .unwrap()
            .parse::<Small>()
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with("site/x.md:3: unknown field `statsu`") && e.ends_with("did you mean `status`?"),
            "{e}"
        );
        let e = split("+++\n\ntitle = = 3\n+++\n").unwrap().parse::<Small>().unwrap_err().to_string();
        assert!(e.starts_with("site/x.md:3:"), "{e}");
        let good = split("+++\ntitle = \"x\"\n+++\n").unwrap().parse::<Small>().unwrap();
        assert_eq!((good.title.as_str(), good.status), ("x", None));
        let e = split("+++\n+++\n").unwrap().parse::<Small>().unwrap_err().to_string();
        assert!(e.contains("missing field `title`"), "{e}");
    }

    #[test]
    fn links_carry_file_line_and_field() {
        let d = split(
            "+++\n[[cards]]\nvalue = \"\\u2192 [](derive:a.b)\"\n+++\ntext\n[0.3](derive:a.c) <derive:x>\n",
        )
        .unwrap();
        let links = d.links();
        let seen: Vec<(usize, Option<&str>, &str)> =
            links.iter().map(|l| (l.line, l.field.as_deref(), l.printed.as_str())).collect();
        assert_eq!(seen, [(3, Some("cards[0].value"), ""), (6, None, "0.3"), (6, None, "<")]);
        assert_eq!(&d.source[links[0].range.start - 1..links[0].range.end + 1], "[]");
        assert!(links[2].reference.is_err());
        assert_eq!(d.place_of("[[cards]]"), "site/x.md:2");
        assert_eq!(d.place_of("value"), "site/x.md:3");
        assert_eq!(d.place_of("nothing"), "site/x.md");
    }
}
