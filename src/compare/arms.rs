//! Which rows are the base arm and which the treatment: by an `arm` column, or by file. What is
//! not clear from names or options is refused, never guessed.

use super::Options;
use super::rows::shown;
use crate::error::{Error, Result, misspelt, nearest};
use crate::stats::{Arm, Warning};
use std::collections::BTreeMap;

/// The two arms' names, and how a row's arm follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The arm compared against.
    pub base: String,
    /// The arm under test.
    pub treatment: String,
}

impl Names {
    /// The side of an arm of that name; `None` for a third arm.
    pub fn side(&self, name: &str) -> Option<Arm> {
        if name == self.base {
            Some(Arm::Base)
        } else if name == self.treatment {
            Some(Arm::Treatment)
        } else {
            None
        }
    }
}

/// Names for two files, one an arm: those of the options, which are labels here.
pub fn by_file(options: &Options) -> Result<Names> {
    let names = Names {
        base: options.base.clone().unwrap_or_else(|| "base".into()),
        treatment: options.treatment.clone().unwrap_or_else(|| "treatment".into()),
    };
    different(names)
}

/// Names chosen among the arms that are there (name → number of rows), with warnings about the
/// others, and where the names say the opposite. An arm is the one of the options, else the one called `base` or `treatment`; with two
/// arms and one of them known, the other is the rest.
pub fn by_column(
    options: &Options,
    found: &BTreeMap<String, usize>,
    place: &str,
) -> Result<(Names, Vec<Warning>)> {
    let mut warnings = Vec::new();
    let listed = || found.keys().map(|a| format!("`{}`", shown(a))).collect::<Vec<_>>().join(", ");
    if let (1, Some(only)) = (found.len(), found.keys().next()) {
        return Err(Error::invalid(format!("the rows hold a single arm, `{}`", shown(only)))
            .at(place)
            .hint("two arms are compared: add the rows of the other arm"));
    }
    let known = |named: &Option<String>, flag: &str, default: &str| -> Result<Option<String>> {
        match named {
            Some(name) if found.contains_key(name) => Ok(Some(name.clone())),
            Some(name) => {
                let hint = match nearest(name, found.keys().map(String::as_str)) {
                    Some(near) => format!("did you mean {flag} {near}?"),
                    None => format!("the arms are {}", listed()),
                };
                Err(Error::invalid(format!("no row has the arm `{name}`")).at(place).hint(hint))
            }
            None => Ok(found.contains_key(default).then(|| default.to_owned())),
        }
    };
    let mut base = known(&options.base, "--base", "base")?;
    let mut treatment = known(&options.treatment, "--treatment", "treatment")?;
    // A default name must not stand on both sides when the other was named explicitly.
    if base == treatment && options.base.is_none() {
        base = None;
    } else if base == treatment && options.treatment.is_none() {
        treatment = None;
    }
    if found.len() == 2 {
        let rest =
            |other: &Option<String>| other.as_ref().and_then(|o| found.keys().find(|a| *a != o).cloned());
        (base, treatment) = (base.clone().or_else(|| rest(&treatment)), treatment.or_else(|| rest(&base)));
    }
    let (Some(base), Some(treatment)) = (base, treatment) else {
        return Err(Error::invalid(format!("which two arms to compare is open: the rows hold {}", listed()))
            .at(place)
            .hint(command(options, found)));
    };
    let names = different(Names { base, treatment })?;
    if names.treatment == "base" || names.base == "treatment" {
        let text = format!("as asked, `{}` is compared against `{}`", names.treatment, names.base);
        warnings.push(Warning::new("base_is_treatment", text));
    }
    let others: usize = found.iter().filter(|(a, _)| names.side(a).is_none()).map(|(_, n)| n).sum();
    if others > 0 {
        let named = found.keys().filter(|a| names.side(a).is_none()).map(|a| format!("`{}`", shown(a)));
        let mut named: Vec<String> = named.collect();
        if named.len() > 4 {
            named.truncate(3);
            named.push("…".into());
        }
        let text = format!("rows of other arms are left out: {others} ({})", named.join(", "));
        warnings.push(Warning::new("other_arms", text));
    }
    for (name, default, asked) in
        [(&names.base, "base", &options.base), (&names.treatment, "treatment", &options.treatment)]
    {
        if asked.is_none() && name != default && misspelt(name, [default]).is_some() {
            let text = format!("no arm is called `{default}`, and `{}` is taken for it", shown(name));
            warnings.push(Warning::new("default_name", text));
        }
    }
    Ok((names, warnings))
}

/// The command that would compare the first two of the arms found.
fn command(options: &Options, found: &BTreeMap<String, usize>) -> String {
    let quoted = |text: &str| {
        let plain = |c: char| c.is_alphanumeric() || "-_./+:@%".contains(c);
        match !text.is_empty() && text.chars().all(plain) {
            true => text.to_owned(),
            false => format!("'{}'", shown(text).replace('\'', "'\\''")),
        }
    };
    let mut words = vec!["rederive compare".to_owned()];
    words.extend(options.rows.iter().map(|path| quoted(&path.to_string_lossy())));
    for (flag, arm) in ["--base", "--treatment"].iter().zip(found.keys()) {
        words.push(format!("{flag} {}", quoted(arm)));
    }
    format!("say which is which, such as `{}`", words.join(" "))
}

fn different(names: Names) -> Result<Names> {
    if names.base == names.treatment {
        return Err(Error::invalid(format!("`{}` cannot be compared with itself", names.base))
            .hint("give --base and --treatment different names"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        arms: &[&str],
        base: Option<&str>,
        treatment: Option<&str>,
    ) -> std::result::Result<(String, String, bool), String> {
        let options = Options {
            base: base.map(Into::into),
            treatment: treatment.map(Into::into),
            ..Options::default()
        };
        let found = arms.iter().map(|a| ((*a).to_owned(), 1)).collect();
        match by_column(&options, &found, "x.csv") {
            Ok((n, w)) => Ok((n.base, n.treatment, !w.is_empty())),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn arms_follow_from_names_and_options() {
        let pair = |b: &str, t: &str, warned| Ok((b.to_string(), t.to_string(), warned));
        assert_eq!(choose(&["base", "treatment"], None, None), pair("base", "treatment", false));
        assert_eq!(choose(&["base", "tuned"], None, None), pair("base", "tuned", false));
        assert_eq!(choose(&["plain", "tuned"], Some("plain"), None), pair("plain", "tuned", false));
        assert_eq!(choose(&["plain", "tuned"], None, Some("plain")), pair("tuned", "plain", false));
        assert_eq!(choose(&["base", "treatment"], None, Some("base")), pair("treatment", "base", true));
        assert_eq!(choose(&["base", "treatment", "x"], None, None), pair("base", "treatment", true));
        assert_eq!(choose(&["a", "b", "c"], Some("c"), Some("a")), pair("c", "a", true));
    }

    #[test]
    fn what_is_open_is_refused_with_a_way_out() {
        let message = |arms: &[&str], b, t| choose(arms, b, t).unwrap_err();
        assert!(message(&["base"], None, None).contains("single arm"));
        assert!(
            message(&["plain", "tuned"], None, None)
                .contains("`rederive compare --base plain --treatment tuned`")
        );
        assert!(message(&["base", "x", "y"], None, None).contains("`x`"));
        assert!(message(&["plain", "tuned"], Some("plian"), None).contains("did you mean --base plain?"));
        assert!(message(&["plain", "tuned"], Some("plain"), Some("plain")).contains("itself"));
    }

    #[test]
    fn files_are_labelled() {
        let options = Options { treatment: Some("tuned".into()), ..Options::default() };
        assert_eq!(by_file(&options).unwrap(), Names { base: "base".into(), treatment: "tuned".into() });
        let options = Options { treatment: Some("base".into()), ..Options::default() };
        assert!(by_file(&options).is_err());
    }
}
