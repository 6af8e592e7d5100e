//! Markdown to HTML on pulldown-cmark's event stream. Raw HTML becomes text, link schemes are
//! allow-listed, headings get stable ids, and `derive:` links become numbers that open.

use super::glyphs;
use super::input::{NumberInput, Publication, Verdict};
use super::number;
use super::text::{anchor, escape};
use crate::error::{Error, Result};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::BTreeSet;

/// Renders the texts of one page; ids are unique over all of them.
pub struct Prose<'a> {
    publication: &'a Publication,
    root: String,
    taken: BTreeSet<String>,
    numbers: usize,
    tables: usize,
}

impl<'a> Prose<'a> {
    /// A renderer for a page `root` (such as `../../`) below the site's root.
    pub fn new(publication: &'a Publication, root: &str) -> Self {
        Prose { publication, root: root.to_string(), taken: BTreeSet::new(), numbers: 0, tables: 0 }
    }

    /// A whole Markdown text as HTML. Heading ids start with `prefix`; the highest heading is `top`.
    /// A reference that no number answers to is an error that names `place`.
    pub fn block(&mut self, text: &str, place: &str, prefix: &str, top: usize) -> Result<String> {
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
        Rendering {
            prose: self,
            place,
            prefix,
            top,
            inline: false,
            out: String::new(),
            state: State::default(),
        }
        .run(parser)
    }

    /// A headline of one line. Every number in it as it is shown, outside of links and code, is refused: each
    /// must be a link.
    pub fn headline(&mut self, text: &str, place: &str) -> Result<String> {
        bound(&one_line(text), place)?;
        self.inline(text, place)
    }

    /// A text of one line, such as a card's value: inline markup only.
    pub fn inline(&mut self, text: &str, place: &str) -> Result<String> {
        let line = one_line(text);
        let parser = Parser::new_ext(&line, Options::ENABLE_STRIKETHROUGH);
        let rendering = Rendering {
            prose: self,
            place,
            prefix: "",
            top: 6,
            inline: true,
            out: String::new(),
            state: State::default(),
        };
        Ok(rendering.run(parser)?.trim().to_string())
    }

    fn number(&mut self, printed: &str, reference: &str, place: &str) -> Result<(String, &'a NumberInput)> {
        let input = find(self.publication, reference, place)?;
        let printed_here = (reference.to_string(), printed.trim().to_string());
        // What waits for rows is called so by the page itself.
        let waits = matches!(printed.trim(), "pending" | "") && number::pending(&input.value).is_some();
        let judged = self.publication.judged.as_ref();
        if !waits && judged.is_some_and(|judged| !judged.contains(&printed_here)) {
            return Err(Error::refused(format!(
                "`[{}]({reference})` is on the page, and the audit did not see it in the text",
                printed.trim()
            ))
            .at(place)
            .hint(
                "write the link plainly, on one line and outside code, so that every reader sees the same",
            ));
        }
        self.numbers += 1;
        Ok((number::button(input, printed, &format!("n{}", self.numbers), &self.root), input))
    }

    fn heading_id(&mut self, prefix: &str, text: &str) -> String {
        let base = format!("{prefix}-{}", anchor(text));
        // The page's own heading of the section has this id.
        self.taken.insert(format!("{prefix}-h"));
        let mut id = base.clone();
        let mut next = 2;
        while !self.taken.insert(id.clone()) {
            id = format!("{base}-{next}");
            next += 1;
        }
        id
    }
}

/// The number behind a reference, or an error that names the text and the reference.
pub fn find<'a>(publication: &'a Publication, reference: &str, place: &str) -> Result<&'a NumberInput> {
    publication.numbers.get(reference).ok_or_else(|| {
        let error = Error::invalid(format!("`{reference}` stands for no number")).at(place);
        match crate::error::nearest(reference, publication.numbers.keys().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("declare the derivation in the report's or the claim's front matter"),
        }
    })
}

/// Refuses a Markdown text that shows a number outside of links and code.
pub fn bound(text: &str, place: &str) -> Result<()> {
    let (mut shown, mut links) = (String::new(), 0usize);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::Link { .. }) => links += 1,
            Event::End(TagEnd::Link) => links = links.saturating_sub(1),
            Event::Text(t) | Event::Html(t) | Event::InlineHtml(t) if links == 0 => shown.push_str(&t),
            Event::Start(_) | Event::End(_) | Event::SoftBreak | Event::HardBreak => shown.push(' '),
            _ => {}
        }
    }
    match crate::claims::unbound::find_in_line(&shown).into_iter().next() {
        Some(number) => {
            Err(Error::refused(format!("the number `{}` is bound to no derivation", number.text))
                .at(place)
                .hint("bind it with a link: `[](derive:<scope>.<id>)`, then `rederive fill`"))
        }
        None => Ok(()),
    }
}

/// A text without any markup: what its links print, its code, its words.
pub fn plain(text: &str) -> String {
    let line = one_line(text);
    let mut out = String::new();
    for event in Parser::new_ext(&line, Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Text(t) | Event::Code(t) | Event::Html(t) | Event::InlineHtml(t) => out.push_str(&t),
            Event::SoftBreak | Event::HardBreak => out.push(' '),
            _ => {}
        }
    }
    out.strip_prefix(GUARD).unwrap_or(&out).trim().to_string()
}

/// The `derive:` references of a one-line text with what each prints, in order.
pub fn references(text: &str) -> Vec<(String, String)> {
    let line = one_line(text);
    let mut out: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for event in Parser::new_ext(&line, Options::empty()) {
        match (event, out.last_mut()) {
            (Event::Start(Tag::Link { dest_url, .. }), _) if dest_url.starts_with("derive:") => {
                out.push((dest_url.to_string(), String::new()));
                inside = true;
            }
            (Event::End(TagEnd::Link), _) => inside = false,
            (Event::Text(t) | Event::Code(t), Some((_, printed))) if inside => printed.push_str(&t),
            _ => {}
        }
    }
    out
}

/// Punctuation that must not be parted from the number before it.
const CLOSING: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '%', '”', '’'];

/// Stands escaped at the start of a one-line text, so that `1. x` or `# x` is no list or heading.
const GUARD: char = '.';

fn one_line(text: &str) -> String {
    format!("\\{GUARD}{}", text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether a link may lead there: http, https, mailto, an anchor, or a path relative to the page.
pub fn allowed(address: &str) -> bool {
    if address.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return false;
    }
    let head = address.split(['/', '?', '#']).next().unwrap_or("");
    match head.split_once(':') {
        Some((scheme, _)) => ["http", "https", "mailto"].contains(&scheme.to_ascii_lowercase().as_str()),
        None => !address.starts_with('/'),
    }
}

#[derive(Default)]
struct State {
    /// A derive link that is open: its reference and the text so far.
    link: Option<(String, String)>,
    /// For each open ordinary link or image, whether an anchor was written.
    anchors: Vec<bool>,
    /// An open heading: its level, where it starts in the output, and its text so far.
    heading: Option<(usize, usize, String)>,
    alignments: Vec<Alignment>,
    column: usize,
    in_head: bool,
    guard_seen: bool,
    /// The output ends with a number whose span is still open, so that punctuation can join it.
    number_open: bool,
    remark: Option<(Verdict, String)>,
}

struct Rendering<'p, 'a, 't> {
    prose: &'p mut Prose<'a>,
    place: &'t str,
    prefix: &'t str,
    top: usize,
    inline: bool,
    out: String,
    state: State,
}

impl Rendering<'_, '_, '_> {
    fn run<'e>(mut self, events: impl Iterator<Item = Event<'e>>) -> Result<String> {
        for event in events {
            let event = self.close_number(event);
            match event {
                Event::Start(tag) => self.start(tag),
                Event::End(tag) => self.end(tag)?,
                Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
                Event::Code(code) => self.code(&code),
                Event::SoftBreak => self.text(if self.inline { " " } else { "\n" }),
                Event::HardBreak => self.out.push_str("<br>"),
                Event::Rule if !self.inline => self.out.push_str("<hr>\n"),
                _ => {}
            }
        }
        if self.state.number_open {
            self.out.push_str("</span>");
        }
        Ok(self.out)
    }

    /// Ends the span around a number, after the punctuation that follows it: browsers may break a
    /// line on either side of a button, and a line must not start with a comma.
    fn close_number<'e>(&mut self, event: Event<'e>) -> Event<'e> {
        if !std::mem::take(&mut self.state.number_open) {
            return event;
        }
        let event = match event {
            Event::Text(text) => {
                let stays = text.find(|c: char| !CLOSING.contains(&c)).unwrap_or(text.len());
                self.out.push_str(&escape(&text[..stays]));
                Event::Text(text[stays..].to_string().into())
            }
            other => other,
        };
        self.out.push_str("</span>");
        event
    }

    fn text(&mut self, text: &str) {
        let text = if self.inline && !self.state.guard_seen {
            self.state.guard_seen = true;
            text.strip_prefix(GUARD).unwrap_or(text)
        } else {
            text
        };
        if let Some((_, printed)) = &mut self.state.link {
            printed.push_str(text);
            return;
        }
        if let Some((_, _, heading)) = &mut self.state.heading {
            heading.push_str(text);
        }
        self.out.push_str(&escape(text).replace('→', glyphs::ARROW));
    }

    fn code(&mut self, code: &str) {
        if self.state.link.is_some() {
            self.text(code);
            return;
        }
        if let Some((_, _, heading)) = &mut self.state.heading {
            heading.push_str(code);
        }
        self.out.push_str(&format!("<code>{}</code>", escape(code)));
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Link { dest_url, .. } if dest_url.starts_with("derive:") => {
                self.state.link = Some((dest_url.to_string(), String::new()));
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                // A link within a link would close the outer one.
                let open =
                    allowed(&dest_url) && self.state.link.is_none() && !self.state.anchors.contains(&true);
                if open {
                    self.out.push_str(&format!("<a href=\"{}\">", escape(&dest_url)));
                }
                self.state.anchors.push(open);
            }
            Tag::Emphasis => self.out.push_str("<em>"),
            Tag::Strong => self.out.push_str("<strong>"),
            Tag::Strikethrough => self.out.push_str("<del>"),
            _ if self.inline => {}
            Tag::Paragraph | Tag::HtmlBlock => self.out.push_str("<p>"),
            Tag::Heading { level, .. } => {
                self.state.heading = Some((self.level(level), self.out.len(), String::new()));
            }
            Tag::BlockQuote(_) => self.out.push_str("<blockquote>\n"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(name) if !name.is_empty() => {
                        format!(" data-language=\"{}\"", escape(name))
                    }
                    _ => String::new(),
                };
                self.out.push_str(&format!("<pre tabindex=\"0\"{language}><code>"));
            }
            Tag::List(Some(1)) => self.out.push_str("<ol>\n"),
            Tag::List(Some(first)) => self.out.push_str(&format!("<ol start=\"{first}\">\n")),
            Tag::List(None) => self.out.push_str("<ul>\n"),
            Tag::Item => self.out.push_str("<li>"),
            Tag::Table(alignments) => {
                self.prose.tables += 1;
                self.out.push_str(&format!(
                    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table {} of the text\"><table>\n",
                    self.prose.tables
                ));
                self.state.alignments = alignments;
            }
            Tag::TableHead => {
                self.state.in_head = true;
                self.state.column = 0;
                self.out.push_str("<thead><tr>");
            }
            Tag::TableRow => {
                self.state.column = 0;
                self.out.push_str("<tr>");
            }
            Tag::TableCell => {
                let class = match self.state.alignments.get(self.state.column) {
                    Some(Alignment::Right) => " class=\"n\"",
                    Some(Alignment::Center) => " class=\"mid\"",
                    _ => "",
                };
                let open = if self.state.in_head { "th scope=\"col\"" } else { "td" };
                self.out.push_str(&format!("<{open}{class}>"));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) -> Result<()> {
        match tag {
            TagEnd::Link if self.state.link.is_some() => {
                if let Some((reference, printed)) = self.state.link.take() {
                    self.number(&reference, &printed)?;
                }
            }
            TagEnd::Link | TagEnd::Image => {
                let open = self.state.anchors.pop();
                if open == Some(true) {
                    self.out.push_str("</a>");
                }
            }
            TagEnd::Emphasis => self.out.push_str("</em>"),
            TagEnd::Strong => self.out.push_str("</strong>"),
            TagEnd::Strikethrough => self.out.push_str("</del>"),
            _ if self.inline => {}
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.remark();
                self.out.push_str("</p>\n");
            }
            TagEnd::Heading(_) => {
                if let Some((level, start, text)) = self.state.heading.take() {
                    let id = self.prose.heading_id(self.prefix, &text);
                    self.out.insert_str(start, &format!("<h{level} id=\"{}\">", escape(&id)));
                    self.out.push_str(&format!("</h{level}>\n"));
                }
            }
            TagEnd::BlockQuote(_) => self.out.push_str("</blockquote>\n"),
            TagEnd::CodeBlock => self.out.push_str("</code></pre>\n"),
            TagEnd::List(true) => self.out.push_str("</ol>\n"),
            TagEnd::List(false) => self.out.push_str("</ul>\n"),
            TagEnd::Item => {
                self.remark();
                self.out.push_str("</li>\n");
            }
            TagEnd::Table => self.out.push_str("</tbody></table></div>\n"),
            TagEnd::TableHead => {
                self.state.in_head = false;
                self.out.push_str("</tr></thead><tbody>\n");
            }
            TagEnd::TableRow => self.out.push_str("</tr>\n"),
            TagEnd::TableCell => {
                let close = if self.state.in_head { "</th>" } else { "</td>" };
                self.out.push_str(close);
                self.state.column += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn number(&mut self, reference: &str, printed: &str) -> Result<()> {
        let (html, input) = self.prose.number(printed, reference, self.place)?;
        let shown = if printed.trim().is_empty() { input.text.as_str() } else { printed };
        if let Some((_, _, heading)) = &mut self.state.heading {
            heading.push_str(shown);
        }
        if matches!(input.verdict, Verdict::Mismatch | Verdict::Unverifiable) && self.state.remark.is_none() {
            let reason = input.reason.clone().unwrap_or_else(|| "no reason was recorded".to_string());
            self.state.remark = Some((input.verdict, reason));
        }
        let opening = self.out.len() - self.out.trim_end_matches(['(', '[', '“', '‘']).len();
        let opening = self.out.split_off(self.out.len() - opening);
        self.out.push_str(&format!("<span class=\"nb\">{opening}{html}"));
        self.state.number_open = true;
        Ok(())
    }

    /// The first number of a paragraph that is not a match gets a remark beside it.
    fn remark(&mut self) {
        if let Some((verdict, reason)) = self.state.remark.take() {
            self.out.push_str(&format!(
                "<span class=\"aside {}\"><b>{}.</b> {}</span>",
                glyphs::class(verdict),
                super::text::sentence(verdict.word()),
                escape(&super::text::sentence(&reason))
            ));
        }
    }

    fn level(&self, level: HeadingLevel) -> usize {
        // A report's own title and its sections both stand below the page's section heading.
        (self.top + (level as usize).saturating_sub(2)).min(6)
    }
}
