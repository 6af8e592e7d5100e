//! Families of tests, as `estimator = "holm"` and `"benjamini_hochberg"` declare them: the p values that are adjusted together.
//! What is read here is plain data; `claims` and `audit` each adjust their own p values.

use super::derivation::Reference;
use crate::error::{Error, Result};

/// The p values that `of` names, separated by commas: ids of `scope`, with row and part as in a reference, or whole `derive:…`
/// addresses. Without a part it is `p`; a name without a row stands for all rows of a table, where there is one.
pub fn tests(of: &str, scope: &str) -> Result<Vec<Reference>> {
    let mut tests: Vec<Reference> = Vec::new();
    for name in of.split(',').map(str::trim) {
        let address = name.strip_prefix("derive:").map_or_else(|| format!("{scope}.{name}"), str::to_owned);
        let mut test = Reference::parse(&address)?;
        if test.part == "value" {
            test.part = "p".into();
        }
        if !["p", "non_inferiority_p", "equivalence_p"].contains(&test.part.as_str()) {
            return Err(Error::invalid(format!("`{name}` is no p value"))
                .hint("name derivations that give `.p`, such as `delta, by_family`"));
        }
        if tests.contains(&test) {
            return Err(Error::invalid(format!("`{name}` stands there twice")).hint("name each test once"));
        }
        tests.push(test);
    }
    Ok(tests)
}

/// The label of a test in the table of a family of `scope`: id and row, with the scope in front where it is another, and the part
/// where it is another p value than `.p`.
pub fn label(test: &Reference, scope: &str) -> String {
    let foreign = if test.scope == scope { String::new() } else { format!("{}.", test.scope) };
    let row = test.row.as_ref().map_or(String::new(), |row| format!("/{row}"));
    let part = if test.part == "p" { String::new() } else { format!(".{}", test.part) };
    format!("{foreign}{}{row}{part}", test.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_p_values_of_the_scope_or_of_another() {
        let found = tests("delta, by_family/caravan , derive:C0001.x.equivalence_p", "demo").unwrap();
        let shown: Vec<String> = found.iter().map(Reference::to_string).collect();
        assert_eq!(
            shown,
            ["derive:demo.delta.p", "derive:demo.by_family/caravan.p", "derive:C0001.x.equivalence_p"]
        );
        let labels: Vec<String> = found.iter().map(|test| label(test, "demo")).collect();
        assert_eq!(labels, ["delta", "by_family/caravan", "C0001.x.equivalence_p"]);
    }

    #[test]
    fn what_is_no_p_value_is_refused() {
        for (of, wanted) in [
            ("delta.low", "no p value"),
            ("a, a.p", "twice"),
            ("a,,b", "not a reference"),
            ("", "not a reference"),
        ] {
            let e = tests(of, "demo").unwrap_err().to_string();
            assert!(e.contains(wanted), "{of}: {e}");
        }
    }
}
