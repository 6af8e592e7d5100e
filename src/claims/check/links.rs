//! Every derive link: it leads to a number, the number is what is printed, and nothing beside it
//! changes what it says.

use super::Outcome;
use crate::claims::book::Book;
use crate::claims::front_matter::Document;
use crate::claims::number::{Printed, format};
use crate::claims::value::Number;

pub(super) fn check(document: &Document, book: &Book, outcome: &mut Outcome) {
    for link in document.links() {
        outcome.links += 1;
        let reference = match &link.reference {
            Ok(reference) => reference,
            Err(why) => {
                let (what, hint) =
                    why.split_once("\nhint: ").unwrap_or((why, "write `[](derive:<scope>.<id>)`"));
                outcome.add(document, link.line, "link", what, hint);
                continue;
            }
        };
        if let Some((what, hint)) = &link.beside {
            outcome.add(document, link.line, "beside", format!("{what} (`{reference}`)"), *hint);
        }
        let resolved = match book.resolve(reference) {
            Ok(resolved) => resolved,
            Err(error) => {
                outcome.add_error(document, link.line, "reference", error);
                continue;
            }
        };
        if link.printed.trim().is_empty() {
            if !resolved.is_pending() {
                let text = format!("the link to `{reference}` prints nothing");
                outcome.add(document, link.line, "empty", text, "run `rederive fill`");
            }
            continue;
        }
        match Printed::parse(&link.printed) {
            Err(error) => outcome.add_error(document, link.line, "printed", error),
            Ok(printed) if printed.agrees(resolved.number) => {}
            Ok(printed) => {
                let gives = match resolved.number {
                    Number::Defined(value) if printed.value.is_some() => {
                        format!("gives `{}` ({value})", format(*value, &printed.style))
                    }
                    Number::Defined(value) => format!("gives {value}"),
                    Number::Undefined(why) => format!("is undefined: {why}"),
                };
                let text = format!("prints `{}`, but `{reference}` {gives}", link.printed.trim());
                outcome.add(
                    document,
                    link.line,
                    "mismatch",
                    text,
                    "run `rederive fill --update`, and read the sentence again",
                );
            }
        }
    }
}
