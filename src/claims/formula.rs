//! Formulas over other derivations, as `data = "derivations"` declares them: ratios, differences, extremes of a table. What is
//! parsed here is plain data; `claims` and `audit` each work it out from their own numbers.

use super::derivation::Reference;
use crate::error::{Error, Result, nearest};

/// How deep parentheses may lie in each other, and how many formulas may rest on one another.
pub const DEEPEST: usize = 32;
/// Most words, signs and parentheses of a formula.
const LONGEST: usize = 500;

/// A parsed formula.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// A number as written.
    Number(f64),
    /// A number of a derivation.
    Of(Reference),
    /// Something of all rows of a derivation's table.
    Rows(OfRows, Reference),
    /// Two formulas and what stands between them.
    Two(Operator, Box<Formula>, Box<Formula>),
    /// The least or greatest of several.
    Extreme(Extreme, Vec<Formula>),
    /// Its distance from zero.
    Absolute(Box<Formula>),
}

/// What stands between two formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Over,
}

/// `min` or `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

/// What is taken of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfRows {
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
    /// Greatest minus least.
    Range,
    /// Their plain mean.
    Mean,
    /// Their number.
    Count,
}

/// Functions by name: of formulas, then of a table's rows.
const FUNCTIONS: [&str; 8] = ["min", "max", "abs", "least", "greatest", "range", "mean", "rows"];

impl Formula {
    /// Parses `text`; names without a scope belong to `scope`. Operators stand between blanks, since `/` and `-` may be part of
    /// a name: `solved / tasks`, but `by_family/caravan`. Errors say what was read and what was expected.
    pub fn parse(text: &str, scope: &str) -> Result<Formula> {
        let mut reader = Reader { tokens: tokens(text), at: 0, scope, text };
        if reader.tokens.len() > LONGEST {
            return Err(Error::invalid(format!(
                "the formula has {} words, and at most {LONGEST} are read",
                reader.tokens.len()
            ))
            .hint("work out its parts under names of their own"));
        }
        let formula = reader.sum(0)?;
        match reader.next() {
            None => Ok(formula),
            Some(more) => Err(reader.wrong(&format!("`{more}` stands where the formula has ended"))),
        }
    }

    /// Every number in it, in order, and whether it is that of each row of a table.
    pub fn numbers(&self) -> Vec<(&Reference, bool)> {
        match self {
            Formula::Rows(_, table) => vec![(table, true)],
            Formula::Two(_, left, right) => [left.numbers(), right.numbers()].concat(),
            Formula::Extreme(_, all) => all.iter().flat_map(Formula::numbers).collect(),
            Formula::Absolute(inner) => inner.numbers(),
            Formula::Number(_) | Formula::Of(_) => {
                self.references().into_iter().map(|of| (of, false)).collect()
            }
        }
    }

    /// Every reference in it, in order; a table's rows by the reference of the whole.
    pub fn references(&self) -> Vec<&Reference> {
        match self {
            Formula::Number(_) => Vec::new(),
            Formula::Of(reference) | Formula::Rows(_, reference) => vec![reference],
            Formula::Two(_, left, right) => [left.references(), right.references()].concat(),
            Formula::Extreme(_, all) => all.iter().flat_map(Formula::references).collect(),
            Formula::Absolute(inner) => inner.references(),
        }
    }
}

/// Words, parentheses and commas; blanks part words.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        let mut start = 0;
        for (at, c) in word.char_indices() {
            if "(),".contains(c) {
                out.push(&word[start..at]);
                out.push(&word[at..at + 1]);
                start = at + 1;
            }
        }
        out.push(&word[start..]);
    }
    out.retain(|token| !token.is_empty());
    out
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    scope: &'a str,
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("`{}` is no formula: {what}", self.text))
            .hint("write such as `solved_at_300 / solved_at_600`, `1 - base`, `range(by_seed)`, `max(a, b)`")
    }

    fn sum(&mut self, depth: usize) -> Result<Formula> {
        let mut left = self.product(depth)?;
        while let Some(operator) = match self.peek() {
            Some("+") => Some(Operator::Plus),
            Some("-") => Some(Operator::Minus),
            _ => None,
        } {
            self.at += 1;
            left = Formula::Two(operator, Box::new(left), Box::new(self.product(depth)?));
        }
        Ok(left)
    }

    fn product(&mut self, depth: usize) -> Result<Formula> {
        let mut left = self.single(depth)?;
        while let Some(operator) = match self.peek() {
            Some("*") => Some(Operator::Times),
            Some("/") => Some(Operator::Over),
            _ => None,
        } {
            self.at += 1;
            left = Formula::Two(operator, Box::new(left), Box::new(self.single(depth)?));
        }
        Ok(left)
    }

    fn single(&mut self, depth: usize) -> Result<Formula> {
        if depth > DEEPEST {
            return Err(self.wrong("parentheses lie too deep in each other"));
        }
        let Some(token) = self.next() else {
            return Err(self.wrong("a name or a number is missing at its end"));
        };
        if token == "(" {
            let inner = self.sum(depth + 1)?;
            return self.expect(")").map(|()| inner);
        }
        if let Ok(number) = token.parse::<f64>() {
            return match number.is_finite()
                && token.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            {
                true => Ok(Formula::Number(number)),
                false => Err(self.wrong(&format!("`{token}` is not a number"))),
            };
        }
        if self.peek() == Some("(") {
            self.at += 1;
            return self.function(token, depth + 1);
        }
        self.reference(token).map(Formula::Of)
    }

    fn function(&mut self, name: &str, depth: usize) -> Result<Formula> {
        let of_rows = match name {
            "least" => Some(OfRows::Least),
            "greatest" => Some(OfRows::Greatest),
            "range" => Some(OfRows::Range),
            "mean" => Some(OfRows::Mean),
            "rows" => Some(OfRows::Count),
            _ => None,
        };
        if let Some(of_rows) = of_rows {
            let table = self.next().unwrap_or_default();
            let reference = self.reference(table)?;
            if reference.row.is_some() {
                return Err(
                    self.wrong(&format!("`{name}` takes a whole table, and `{table}` is one row of it"))
                );
            }
            return self.expect(")").map(|()| Formula::Rows(of_rows, reference));
        }
        let mut all = vec![self.sum(depth)?];
        while self.peek() == Some(",") {
            self.at += 1;
            all.push(self.sum(depth)?);
        }
        self.expect(")")?;
        match (name, all.len()) {
            ("min", _) => Ok(Formula::Extreme(Extreme::Least, all)),
            ("max", _) => Ok(Formula::Extreme(Extreme::Greatest, all)),
            ("abs", 1) => Ok(Formula::Absolute(Box::new(all.remove(0)))),
            ("abs", n) => Err(self.wrong(&format!("`abs` takes one number, not {n}"))),
            _ => {
                let near = nearest(name, FUNCTIONS);
                let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                Err(self.wrong(&format!("there is no function `{name}`{near}")))
            }
        }
    }

    fn reference(&self, token: &str) -> Result<Reference> {
        let whole = match token.strip_prefix("derive:") {
            Some(whole) => whole.to_owned(),
            None => format!("{}.{token}", self.scope),
        };
        let starts = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !token.starts_with(starts) {
            return Err(self.wrong(&format!("`{token}` stands where a name or a number is expected")));
        }
        Reference::parse(&whole)
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        match self.next() {
            Some(token) if token == wanted => Ok(()),
            Some(token) => Err(self.wrong(&format!("`{token}` stands where `{wanted}` is expected"))),
            None => Err(self.wrong(&format!("`{wanted}` is missing at its end"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Formula {
        Formula::parse(text, "demo").unwrap()
    }

    /// The formula with all its parentheses.
    fn shown(formula: &Formula) -> String {
        match formula {
            Formula::Number(x) => x.to_string(),
            Formula::Of(reference) => reference.to_string().replace("derive:demo.", ""),
            Formula::Rows(of, reference) => format!("{of:?}[{}]", reference.id),
            Formula::Two(o, a, b) => format!("({} {o:?} {})", shown(a), shown(b)),
            Formula::Extreme(e, all) => {
                format!("{e:?}[{}]", all.iter().map(shown).collect::<Vec<_>>().join(" "))
            }
            Formula::Absolute(inner) => format!("|{}|", shown(inner)),
        }
    }

    #[test]
    fn operators_bind_as_usual_and_names_keep_their_slashes() {
        for (text, want) in [
            ("a", "a"),
            ("a - b - c", "((a Minus b) Minus c)"),
            ("a + b * c", "(a Plus (b Times c))"),
            ("(a + b) / c", "((a Plus b) Over c)"),
            ("1 - by_family/caravan.high", "(1 Minus by_family/caravan.high)"),
            ("at-300 / at-600", "(at-300 Over at-600)"),
            ("range(by_seed) * -100", "(Range[by_seed] Times -100)"),
            ("max(a, min(b,0.5), abs(c - d))", "Greatest[a Least[b 0.5] |(c Minus d)|]"),
            ("derive:other.x.n / rows(t)", "(derive:other.x.n Over Count[t])"),
            ("mean(t) - least(t) + greatest(t)", "((Mean[t] Minus Least[t]) Plus Greatest[t])"),
        ] {
            assert_eq!(shown(&parse(text)), want, "{text}");
        }
        let ids: Vec<String> = parse("a / (b + rows(c))").references().iter().map(|r| r.id.clone()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    }

    #[test]
    fn what_is_no_formula_is_refused_with_a_hint() {
        for (text, what) in [
            ("", "missing at its end"),
            ("a +", "missing at its end"),
            ("a b", "`b` stands where the formula has ended"),
            ("(a", "`)` is missing"),
            ("a / ,", "`,` stands where a name"),
            ("rnage(a)", "did you mean `range`?"),
            ("range(t/x)", "one row of it"),
            ("abs(a, b)", "takes one number"),
            ("inf", "not a number"),
            ("a.hihg", "did you mean `high`?"),
        ] {
            let error = Formula::parse(text, "demo").unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("hint"), "{text}: {error}");
        }
        let deep = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
        assert!(Formula::parse(&deep(100), "demo").unwrap_err().to_string().contains("too deep"));
        let long = [deep(5_000), vec!["a"; 5_000].join(" + ")];
        assert!(
            long.iter()
                .all(|text| Formula::parse(text, "demo").unwrap_err().to_string().contains("at most 500"))
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c0-9 .,()+*/<>é-]{0,60}") {
            let _ = Formula::parse(&text, "demo");
        }
    }
}
