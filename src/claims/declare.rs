//! Whether a derivation can be computed at all, by its declaration alone: columns that the row
//! contract has, values of the right type, arms and options that its estimator knows.

use super::data;
use super::derivation::{Accepts, Bounds, Cluster, DataSet, Derivation, Estimator, Population, Weight};
use super::family;
use super::formula::Formula;
use super::number::Style;
use crate::episode::row::{Cell, Column, Kind, is_rate};
use crate::error::{Error, Result, nearest};
use serde_json::Value;

/// The column that a derivation reads: `of`, or what its estimator reads when none is named.
pub fn column(derivation: &Derivation) -> Option<&str> {
    let default = match derivation.estimator {
        Estimator::PassAtK | Estimator::Flips => Some("solved"),
        Estimator::PairedDelta
        | Estimator::BestAtK
        | Estimator::SelectedAtK
        | Estimator::TasksWhere
        | Estimator::Iqm
        | Estimator::ProbabilityOfImprovement
        | Estimator::GroupSd => Some("reward"),
        _ => None,
    };
    derivation.of.as_deref().or(default)
}

/// The parts that an estimator gives over a data set.
pub fn parts(derivation: &Derivation) -> &'static [&'static str] {
    match derivation.estimator {
        Estimator::Value => &["value"],
        Estimator::PairedDelta if derivation.margin.is_some() => &[
            "value",
            "low",
            "high",
            "n",
            "p",
            "se",
            "df",
            "mde",
            "rollout_share",
            "non_inferiority_p",
            "equivalence_p",
        ],
        Estimator::PairedDelta => &["value", "low", "high", "n", "p", "se", "df", "mde", "rollout_share"],
        Estimator::TasksWhere => &["value", "share", "n"],
        Estimator::GroupSd => &["value", "zero_share", "n"],
        Estimator::ProbabilityOfImprovement => &["value", "low", "high", "n", "se", "df"],
        Estimator::Flips => &["value", "gained", "lost", "both", "neither", "n"],
        Estimator::Mean if derivation.data.holds_attempts() => &["value", "low", "high", "n", "se", "df"],
        _ => &["value", "n"],
    }
}

/// Checks a declaration. The error names the field and what to write instead.
pub fn check(derivation: &Derivation) -> Result<()> {
    if let Some(format) = &derivation.format {
        Style::parse(format).map_err(|e| e.at("format"))?;
    }
    match data::columns(derivation.data) {
        Some(columns) => over_rows(derivation, columns),
        None => looked_up(derivation),
    }
}

fn looked_up(derivation: &Derivation) -> Result<()> {
    let of_tests = derivation.estimator.is_family();
    match (derivation.estimator, derivation.data, &derivation.of) {
        (Estimator::Value, DataSet::Derivations, Some(of)) => {
            let formula = Formula::parse(of, "scope").map_err(|e| e.at("of"))?;
            if formula.references().is_empty() {
                return Err(Error::invalid("names no number, so that nothing stands behind it")
                    .at("of")
                    .hint("write such as `1 - base`; a number from elsewhere belongs into facts.toml"));
            }
        }
        (_, DataSet::Derivations, Some(of)) if of_tests => {
            family::tests(of, "scope").map_err(|e| e.at("of"))?;
        }
        (Estimator::Value, ..) => {}
        (_, DataSet::Derivations, _) if of_tests => {}
        _ => {
            return Err(Error::invalid("plan, receipts, facts and formulas hold single values")
                .at("estimator")
                .hint("write `estimator = \"value\"`; of derivations also `holm` and `benjamini_hochberg`"));
        }
    }
    if derivation.of.as_deref().is_none_or(str::is_empty) {
        return Err(Error::invalid("says not which value").at("of").hint(if of_tests {
            "name the tests of the family, such as `delta, by_family`"
        } else {
            "name a path, such as `decision.minimum_delta`"
        }));
    }
    let rest = [
        ("where", !derivation.filter.is_empty()),
        ("arms", !derivation.arms.is_empty()),
        ("by", derivation.by.is_some()),
        ("nulls", derivation.nulls.is_some()),
    ];
    for (field, given) in rest.into_iter().chain(options(derivation)) {
        refuse_if(given, field, "chooses rows, and a single value has none")?;
    }
    Ok(())
}

/// Options that only some estimators know, and whether they are given.
fn options(derivation: &Derivation) -> [(&'static str, bool); 7] {
    [
        ("is", derivation.is.is_some()),
        ("k", derivation.k.is_some()),
        ("band", derivation.band.is_some()),
        ("margin", derivation.margin.is_some()),
        ("population", derivation.population != Population::Tasks),
        ("weight", derivation.weight != Weight::Task),
        ("cluster", derivation.cluster != Cluster::Task),
    ]
}

fn refuse_if(given: bool, field: &str, why: &str) -> Result<()> {
    if given { Err(Error::invalid(why).at(field).hint(format!("leave `{field}` out"))) } else { Ok(()) }
}

fn over_rows(derivation: &Derivation, columns: &[Column]) -> Result<()> {
    use Estimator::*;
    let estimator = derivation.estimator;
    if estimator == Value {
        return Err(
            Error::invalid("`value` reads plan, receipts, facts or derivations, not rows").at("estimator")
        );
    }
    if estimator.is_family() {
        return Err(Error::invalid("adjusts the p values of other derivations")
            .at("data")
            .hint("write `data = \"derivations\"`"));
    }
    let episodes = derivation.data.holds_attempts();
    let of_attempts = [
        PairedDelta,
        PassAtK,
        BestAtK,
        SelectedAtK,
        Flips,
        TasksWhere,
        Iqm,
        ProbabilityOfImprovement,
        GroupSd,
    ];
    if of_attempts.contains(&estimator) && !episodes {
        return Err(Error::invalid("compares or repeats attempts at tasks")
            .at("data")
            .hint("write `data = \"episodes\"`, or `\"imported\"` for rows made elsewhere"));
    }
    for (name, accepts) in &derivation.filter {
        let place = format!("where.{name}");
        let column = find(columns, name).map_err(|e| e.at(&place))?;
        accepted(column, accepts).map_err(|e| e.at(&place))?;
    }
    if let Some(by) = &derivation.by {
        let column = find(columns, by).map_err(|e| e.at("by"))?;
        if column.kind == Kind::Real || (by == "arm" && derivation.arms.len() == 2) {
            return Err(Error::invalid(format!("rows cannot be told apart by `{by}` here"))
                .at("by")
                .hint("name another column"));
        }
    }
    arms(derivation, columns)?;
    let weighs =
        matches!(estimator, PairedDelta | ProbabilityOfImprovement) || (estimator == Mean && episodes);
    let repeated = matches!(estimator, PassAtK | BestAtK | SelectedAtK);
    for (field, given) in options(derivation) {
        let known = match field {
            "is" => !matches!(estimator, Count | CountDistinct),
            "k" => repeated || estimator == PairedDelta,
            "band" => estimator == TasksWhere,
            "margin" | "population" => estimator == PairedDelta,
            _ => weighs,
        };
        refuse_if(given && !known, field, "means nothing to this estimator")?;
    }
    if (repeated && derivation.k.is_none()) || derivation.k == Some(0) {
        return Err(Error::invalid("must be at least 1").at("k").hint("write `k = 4`, say"));
    }
    match &derivation.band {
        Some(band) if band.not.is_some() => {
            return Err(Error::invalid("bounds a mean")
                .at("band.not")
                .hint("write `above`, `below`, `at_least` or `at_most`"));
        }
        Some(band) => bounds(band).map_err(|e| e.at("band"))?,
        None if estimator == TasksWhere => {
            return Err(Error::invalid("says not which task means count")
                .at("band")
                .hint("write `band = { at_least = 0.2, at_most = 0.8 }`, say"));
        }
        None => {}
    }
    if derivation.margin.is_some_and(|margin| !(margin.is_finite() && margin > 0.0)) {
        return Err(Error::invalid("is a difference above 0 that does not matter")
            .at("margin")
            .hint("write `margin = 0.02`, say"));
    }
    let rate = derivation.is.is_some() || column(derivation).is_some_and(|of| is_rate(columns, of));
    if rate && derivation.margin.is_some_and(|margin| margin >= 1.0) {
        return Err(Error::invalid("is as much as two rates can differ, so that every difference keeps it")
            .at("margin")
            .hint("name the largest difference that does not matter, such as 0.02"));
    }
    if estimator == SelectedAtK && !columns.iter().any(|c| c.name == "select_score") {
        return Err(Error::invalid("these rows have no `select_score` to pick an attempt by")
            .at("estimator")
            .hint("write `best_at_k`, the oracle's, or read episodes"));
    }
    if derivation.population == Population::TasksXTrainSeeds
        && (derivation.weight != Weight::Task || derivation.cluster != Cluster::Task)
    {
        return Err(Error::invalid("is defined with single tasks that weigh the same")
            .at("population")
            .hint("leave `weight` and `cluster` out"));
    }
    of(derivation, columns)
}

fn arms(derivation: &Derivation, columns: &[Column]) -> Result<()> {
    use Estimator::*;
    let place = |what: &str| Error::invalid(what).at("arms");
    if !derivation.arms.is_empty() && !columns.iter().any(|c| c.name == "arm") {
        return Err(place("these rows belong to no arm").hint("leave `arms` out"));
    }
    match (derivation.estimator, derivation.arms.as_slice()) {
        (PairedDelta | Flips | ProbabilityOfImprovement, [base, treatment]) if base != treatment => Ok(()),
        (PairedDelta | Flips | ProbabilityOfImprovement, _) => {
            Err(place("two different arms are compared, base first")
                .hint("write `arms = [\"base\", \"treatment\"]`"))
        }
        (PassAtK | BestAtK | SelectedAtK | TasksWhere | Iqm | GroupSd, [_]) => Ok(()),
        (PassAtK | BestAtK | SelectedAtK | TasksWhere | Iqm | GroupSd, _) => {
            Err(place("is about one arm").hint("write `arms = [\"treatment\"]`, say"))
        }
        (_, [] | [_]) => Ok(()),
        _ => Err(place("is about one arm or about all rows")
            .hint("for several, write `where = { arm = [\"…\", \"…\"] }`")),
    }
}

fn of(derivation: &Derivation, columns: &[Column]) -> Result<()> {
    use Estimator::*;
    let estimator = derivation.estimator;
    let Some(name) = column(derivation) else {
        if estimator != Count {
            return Err(Error::invalid("says not which column")
                .at("of")
                .hint("write `of = \"reward\"`, say"));
        }
        return refuse_if(derivation.nulls.is_some(), "nulls", "a count of rows reads no column");
    };
    let column = find(columns, name).map_err(|e| e.at("of"))?;
    if let Some(is) = &derivation.is {
        return accepted(column, is).map_err(|e| e.at("is"));
    }
    let wrong = |what: &str| {
        let text = format!("`{name}` is {}, and this estimator reads {what}", kind(column.kind));
        Err(Error::invalid(text).at("of").hint("name another column"))
    };
    match estimator {
        Count => refuse_if(true, "of", "a count of rows reads no column"),
        PassAtK | Flips if column.kind != Kind::Flag => wrong("true or false"),
        Share if column.kind != Kind::Flag => {
            let text = format!("`{name}` is {}, not true or false", kind(column.kind));
            Err(Error::invalid(text).at("of").hint("say which value counts: `is = \"length\"`"))
        }
        Share | CountDistinct => Ok(()),
        _ if column.kind == Kind::Text => wrong("numbers"),
        _ => Ok(()),
    }
}

fn find<'a>(columns: &'a [Column], name: &str) -> Result<&'a Column> {
    columns.iter().find(|c| c.name == name).ok_or_else(|| {
        let error = Error::invalid(format!("the rows have no column `{name}`"));
        match nearest(name, columns.iter().map(|c| c.name)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!(
                "the columns are {}",
                columns.iter().map(|c| c.name).collect::<Vec<_>>().join(", ")
            )),
        }
    })
}

/// Whether declared values can stand in a column, and bounds leave something between them.
fn accepted(column: &Column, accepts: &Accepts) -> Result<()> {
    let Accepts::Within(within) = accepts else {
        for value in accepts.values() {
            fits(column, value)?;
        }
        return match accepts.values().is_empty() {
            true => Err(Error::invalid("accepts nothing").hint("name at least one value")),
            false => Ok(()),
        };
    };
    if let Some(other) = &within.not {
        fits(column, other)?;
    }
    let numbered = [within.at_least, within.at_most, within.above, within.below].iter().any(Option::is_some);
    if numbered && !matches!(column.kind, Kind::Int | Kind::Real) {
        let text = format!("`{}` is {}, and bounds are for numbers", column.name, kind(column.kind));
        return Err(Error::invalid(text).hint("name a value, a list of values, or `{ not = … }`"));
    }
    if !numbered && within.not.is_some() { Ok(()) } else { bounds(within) }
}

fn bounds(within: &Bounds) -> Result<()> {
    let given = [within.at_least, within.at_most, within.above, within.below];
    if given.iter().flatten().any(|bound| !bound.is_finite()) {
        return Err(Error::invalid("a bound is not a finite number").hint("write a plain number"));
    }
    let low = [within.at_least, within.above].into_iter().flatten().fold(f64::NEG_INFINITY, f64::max);
    let high = [within.at_most, within.below].into_iter().flatten().fold(f64::INFINITY, f64::min);
    let open = within.above == Some(low) || within.below == Some(high);
    if given.iter().all(Option::is_none) || low > high || (low == high && open) {
        return Err(Error::invalid("accepts nothing or everything")
            .hint("write bounds such as `{ at_least = 0.2, at_most = 0.8 }`"));
    }
    Ok(())
}

/// Whether a declared value can stand in a column.
fn fits(column: &Column, value: &Cell) -> Result<()> {
    let fits = matches!(
        (column.kind, value),
        (Kind::Text, Cell::Text(_))
            | (Kind::Int, Cell::Int(_))
            | (Kind::Real, Cell::Int(_) | Cell::Real(_))
            | (Kind::Flag, Cell::Flag(_))
    );
    if fits {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`{value}` cannot stand in `{}`, which is {}",
        column.name,
        kind(column.kind)
    ))
    .hint("text stands in quotes, numbers and true or false do not"))
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Int => "a whole number",
        Kind::Real => "a number",
        Kind::Flag => "true or false",
    }
}

/// Refuses a margin on the metric of a plan, or on another rate where that is one, that is wider than the plan's own bar:
/// nobody fixed it beforehand.
pub fn fixed_beforehand(derivation: &Derivation, plan: &Value) -> Result<()> {
    let decision = plan.get("decision");
    let metric = decision.and_then(|decision| decision.get("metric")?.get("of")?.as_str());
    let own = derivation.of.as_deref().unwrap_or("reward");
    let rate = |of: &str| data::columns(derivation.data).is_some_and(|columns| is_rate(columns, of));
    let bound = |metric: &str| metric == own || rate(metric) && (rate(own) || derivation.is.is_some());
    let bar = ["margin", "minimum_delta"]
        .into_iter()
        .find_map(|key| Some((key, decision?.get(key)?.as_f64()?)))
        .filter(|_| metric.is_some_and(bound));
    match (derivation.margin, bar) {
        (Some(margin), Some((key, widest))) if margin > widest => Err(Error::invalid(format!(
            "the margin {margin} is wider than the plan's `{key}` of {widest}: nobody fixed it beforehand"
        ))
        .at("margin")
        .hint(format!("write `margin = {widest}` or less"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Result<()> {
        check(&toml::from_str(text).unwrap())
    }

    #[test]
    fn good_declarations_pass() {
        for text in [
            "data = \"episodes\"\nestimator = \"paired_delta\"\nof = \"reward\"\narms = [\"base\", \"treatment\"]\nwhere = { level = [1, 2], split = \"held_out\" }\nby = \"family\"\nweight = \"family\"\nformat = \"+0.00\"",
            "data = \"episodes\"\nestimator = \"mean\"\nof = \"solved\"",
            "data = \"calls\"\nestimator = \"share\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"base\"]",
            "data = \"harvest\"\nestimator = \"count\"\nwhere = { kept = true }",
            "data = \"training\"\nestimator = \"last\"\nof = \"loss\"\nwhere = { loss = 1 }",
            "data = \"episodes\"\nestimator = \"pass_at_k\"\nk = 4\narms = [\"base\"]",
            "data = \"plan\"\nestimator = \"value\"\nof = \"decision.minimum_delta\"",
            "data = \"episodes\"\nestimator = \"mean\"\nof = \"finish_reason\"\nis = \"length\"\narms = [\"base\"]",
            "data = \"episodes\"\nestimator = \"pass_at_k\"\nof = \"solved_ms\"\nis = { at_most = 300000 }\nnulls = \"zero\"\nk = 3\narms = [\"base\"]",
            "data = \"episodes\"\nestimator = \"paired_delta\"\narms = [\"a\", \"b\"]\nmargin = 0.02\npopulation = \"tasks-x-train-seeds\"",
            "data = \"episodes\"\nestimator = \"tasks_where\"\narms = [\"a\"]\nband = { above = 0 }\nwhere = { level = { at_least = 2 }, finish_reason = { not = \"stop\" } }",
            "data = \"derivations\"\nestimator = \"holm\"\nof = \"delta, by_family\"",
        ] {
            verdict(text).unwrap();
        }
    }

    #[test]
    fn bad_declarations_are_refused_by_field() {
        let rows = "data = \"episodes\"\n";
        for (text, field, wanted) in [
            ("estimator = \"mean\"\nof = \"rewrad\"", "of", "did you mean `reward`?"),
            ("estimator = \"mean\"\nof = \"arm\"", "of", "is text"),
            ("estimator = \"mean\"", "of", "which column"),
            ("estimator = \"count\"\nof = \"reward\"", "of", "reads no column"),
            ("estimator = \"count\"\nwhere = { levle = 1 }", "where.levle", "did you mean `level`?"),
            ("estimator = \"count\"\nwhere = { level = \"1\" }", "where.level", "a whole number"),
            ("estimator = \"count\"\nwhere = { solved = [true, 1] }", "where.solved", "true or false"),
            ("estimator = \"count\"\nwhere = { level = [] }", "where.level", "accepts nothing"),
            ("estimator = \"count\"\nby = \"familly\"", "by", "did you mean `family`?"),
            ("estimator = \"count\"\nby = \"reward\"", "by", "told apart"),
            ("estimator = \"paired_delta\"\narms = [\"base\"]", "arms", "base first"),
            ("estimator = \"flips\"\narms = [\"base\", \"base\"]", "arms", "different arms"),
            ("estimator = \"pass_at_k\"\narms = [\"base\"]", "k", "at least 1"),
            ("estimator = \"pass_at_k\"\nk = 2", "arms", "one arm"),
            ("estimator = \"pass_at_k\"\nk = 2\narms = [\"base\"]\nof = \"reward\"", "of", "true or false"),
            ("estimator = \"share\"\nof = \"finish_reason\"", "of", "is = "),
            ("estimator = \"share\"\nof = \"level\"\nis = \"x\"", "is", "cannot stand"),
            (
                "estimator = \"share\"\nof = \"level\"\nis = { at_least = 3, below = 3 }",
                "is",
                "accepts nothing",
            ),
            ("estimator = \"share\"\nof = \"arm\"\nis = { at_least = 3 }", "is", "for numbers"),
            ("estimator = \"count\"\nwhere = { level = { above = nan } }", "where.level", "finite"),
            ("estimator = \"tasks_where\"\narms = [\"a\"]", "band", "which task means"),
            ("estimator = \"iqm\"\narms = [\"a\", \"b\"]", "arms", "one arm"),
            ("estimator = \"probability_of_improvement\"\narms = [\"a\"]", "arms", "base first"),
            ("estimator = \"selected_at_k\"\narms = [\"a\"]", "k", "at least 1"),
            ("estimator = \"paired_delta\"\narms = [\"a\", \"b\"]\nmargin = 0", "margin", "above 0"),
            ("estimator = \"sum\"\nof = \"turns\"\nmargin = 0.1", "margin", "leave `margin` out"),
            (
                "estimator = \"paired_delta\"\narms = [\"a\", \"b\"]\nmargin = 1.5",
                "margin",
                "two rates can differ",
            ),
            (
                "estimator = \"paired_delta\"\narms = [\"a\", \"b\"]\npopulation = \"tasks-x-train-seeds\"\nweight = \"family\"",
                "population",
                "single tasks",
            ),
            ("estimator = \"holm\"\nof = \"delta\"", "data", "derivations"),
            ("estimator = \"sum\"\nof = \"turns\"\nk = 2", "k", "leave `k` out"),
            ("estimator = \"sum\"\nof = \"turns\"\nweight = \"family\"", "weight", "means nothing"),
            ("estimator = \"value\"\nof = \"x\"", "estimator", "plan, receipts, facts or"),
            ("estimator = \"count\"\nformat = \"0.31\"", "format", "not a number format"),
            ("estimator = \"count\"\nnulls = \"omit\"", "nulls", "reads no column"),
            ("estimator = \"sum\"\nof = \"turns\"\narms = [\"a\", \"b\"]", "arms", "where = { arm"),
        ] {
            let e = verdict(&format!("{rows}{text}")).unwrap_err().to_string();
            assert!(e.starts_with(&format!("{field}: ")) && e.contains(wanted), "{e}");
        }
        for (text, wanted) in [
            ("data = \"harvest\"\nestimator = \"count\"\narms = [\"base\"]", "belong to no arm"),
            ("data = \"calls\"\nestimator = \"flips\"\narms = [\"a\", \"b\"]", "episodes"),
            ("data = \"plan\"\nestimator = \"mean\"\nof = \"x\"", "estimator = \"value\""),
            ("data = \"plan\"\nestimator = \"value\"", "which value"),
            ("data = \"facts\"\nestimator = \"value\"\nof = \"x\"\nby = \"arm\"", "leave `by` out"),
            ("data = \"derivations\"\nestimator = \"value\"\nof = \"a +\"", "missing at its end"),
            ("data = \"derivations\"\nestimator = \"mean\"\nof = \"a\"", "estimator = \"value\""),
            ("data = \"derivations\"\nestimator = \"holm\"", "tests of the family"),
            ("data = \"derivations\"\nestimator = \"holm\"\nof = \"a.low\"", "no p value"),
        ] {
            let e = verdict(text).unwrap_err().to_string();
            assert!(e.contains(wanted), "{e}");
        }
    }
}
