//! Rope's settings as a `config.json` states them. It may say them in two places and under two
//! names; where two of them disagree, the file is refused, because either reading would be a guess.

use super::config::{Architecture, missing, number, present, size, wrong};
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// How rope frequencies are stretched beyond the trained context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// Divisor of the lowest frequencies.
    pub factor: f64,
    /// Wavelengths longer than `original / low` are divided by `factor`.
    pub low_freq_factor: f64,
    /// Wavelengths shorter than `original / high` stay as they are.
    pub high_freq_factor: f64,
    /// Context length of the pre-training.
    pub original_max_positions: usize,
}

impl Llama3Scaling {
    /// Long wavelengths are divided by `factor`, short ones kept, those between are blended
    /// (Llama 3.1's rule, as `transformers` computes it).
    pub(super) fn stretch(&self, frequency: f32) -> f32 {
        let original = self.original_max_positions as f64;
        let turns = original * f64::from(frequency) / std::f64::consts::TAU;
        if turns < self.low_freq_factor {
            (f64::from(frequency) / self.factor) as f32
        } else if turns > self.high_freq_factor {
            frequency
        } else {
            let share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
            ((1.0 - share) * f64::from(frequency) / self.factor + share * f64::from(frequency)) as f32
        }
    }
}

/// Theta and scaling: from `rope_parameters` (transformers 5), `rope_scaling` and `rope_theta` at top level (older).
pub(super) fn parse(o: &Map<String, Value>) -> Result<(f64, Option<Llama3Scaling>)> {
    let (parameters, scaling) = (object(o, "rope_parameters")?, object(o, "rope_scaling")?);
    let mut thetas = Vec::new();
    for (place, fields) in [("", Some(o)), ("rope_parameters.", parameters), ("rope_scaling.", scaling)] {
        if let Some(fields) = fields.filter(|f| present(f, "rope_theta")) {
            let name = format!("{place}rope_theta");
            thetas.push((
                number(fields, "rope_theta").map_err(|_| wrong(&name, "a number", &fields["rope_theta"]))?,
                name,
            ));
        }
    }
    let theta = agreed(&thetas)?.ok_or_else(|| {
        Error::invalid("`rope_theta` is missing, at top level and in `rope_parameters`").hint(ORIGINAL)
    })?;
    let mut scalings = Vec::new();
    for (place, fields) in [("rope_parameters", parameters), ("rope_scaling", scaling)] {
        if let Some(fields) = fields {
            scalings.push((stated(place, fields)?, place.to_owned()));
        }
    }
    Ok((theta, agreed(&scalings)?.flatten()))
}

/// The share of a head's coordinates that rope turns: all of them but in Qwen3.5, which states it.
pub(super) fn turned_share(o: &Map<String, Value>, architecture: Architecture) -> Result<f64> {
    let mut shares = Vec::new();
    for (place, fields) in [
        ("", Some(o)),
        ("rope_parameters.", object(o, "rope_parameters")?),
        ("rope_scaling.", object(o, "rope_scaling")?),
    ] {
        if let Some(fields) = fields.filter(|f| present(f, "partial_rotary_factor")) {
            let share = number(fields, "partial_rotary_factor")?;
            shares.push((share, format!("{place}partial_rotary_factor")));
        }
    }
    if shares.is_empty() && architecture == Architecture::Qwen3_5 {
        return Err(Error::invalid("`partial_rotary_factor` is missing").hint(ORIGINAL));
    }
    let share = agreed(&shares)?.unwrap_or(1.0);
    let place = shares.first().map_or("partial_rotary_factor", |(_, place)| place);
    if !(share > 0.0 && share <= 1.0) {
        return Err(Error::invalid(format!("`{place}` = {share} is not in (0, 1]")).hint(ORIGINAL));
    }
    if share != 1.0 && architecture != Architecture::Qwen3_5 {
        return Err(
            Error::invalid(format!("`{place}` = {share} is not supported")).hint("rope on whole heads is")
        );
    }
    Ok(share)
}

const ORIGINAL: &str = "take it from the model's original config.json: a guess would change every answer";

fn object<'a>(o: &'a Map<String, Value>, key: &str) -> Result<Option<&'a Map<String, Value>>> {
    match o.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(other) => Err(wrong(key, "an object", other)),
    }
}

/// The one value of a setting that may be stated several times.
fn agreed<T: Copy + PartialEq + std::fmt::Debug>(stated: &[(T, String)]) -> Result<Option<T>> {
    let Some((first, place)) = stated.first() else { return Ok(None) };
    match stated.iter().find(|(value, _)| value != first) {
        None => Ok(Some(*first)),
        Some((other, elsewhere)) => Err(Error::invalid(format!(
            "`{place}` = {first:?} and `{elsewhere}` = {other:?} contradict each other"
        ))
        .hint(ORIGINAL)),
    }
}

/// The scaling that one object states: none for rope as it is.
fn stated(place: &str, fields: &Map<String, Value>) -> Result<Option<Llama3Scaling>> {
    let mut kinds = Vec::new();
    for key in ["rope_type", "type"] {
        match fields.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(kind)) => kinds.push((kind.as_str(), format!("{place}.{key}"))),
            Some(other) => return Err(wrong(&format!("{place}.{key}"), "a name", other)),
        }
    }
    match agreed(&kinds)? {
        Some("default") => Ok(None),
        Some("llama3") => llama3(place, fields).map(Some),
        None => Err(missing(&format!("{place}.rope_type")).hint(ORIGINAL)),
        Some(other) => Err(Error::invalid(format!("`{place}.rope_type` = `{other}` is not supported"))
            .hint("supported: default and llama3")),
    }
}

fn llama3(place: &str, fields: &Map<String, Value>) -> Result<Llama3Scaling> {
    let positive = |key: &str| -> Result<f64> {
        let name = format!("{place}.{key}");
        let value = fields.get(key).filter(|v| !v.is_null()).ok_or_else(|| missing(&name).hint(ORIGINAL))?;
        value
            .as_f64()
            .filter(|x| *x > 0.0 && x.is_finite())
            .ok_or_else(|| wrong(&name, "a positive number", value))
    };
    let scaling = Llama3Scaling {
        factor: positive("factor")?,
        low_freq_factor: positive("low_freq_factor")?,
        high_freq_factor: positive("high_freq_factor")?,
        original_max_positions: {
            positive("original_max_position_embeddings")?;
            size(fields, "original_max_position_embeddings")?
        },
    };
    if scaling.factor < 1.0 || scaling.low_freq_factor >= scaling.high_freq_factor {
        return Err(Error::invalid(format!(
            "`{place}` has factor {}, low_freq_factor {} and high_freq_factor {}; the factor must be at least 1 \
             and the low one below the high one",
            scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor
        ))
        .hint(ORIGINAL));
    }
    Ok(scaling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(fields: Value) -> Result<(f64, Option<Llama3Scaling>)> {
        parse(fields.as_object().unwrap())
    }

    fn llama3_fields() -> Value {
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})
    }

    #[test]
    fn what_is_said_twice_and_agrees_is_read_once() {
        let twice = json!({"rope_theta": 1e4, "rope_scaling": null,
            "rope_parameters": {"rope_theta": 10000, "rope_type": "default", "type": "default"}});
        assert_eq!(of(twice).unwrap(), (1e4, None));
        let both =
            json!({"rope_theta": 5e5, "rope_parameters": llama3_fields(), "rope_scaling": llama3_fields()});
        assert_eq!(of(both).unwrap().1.unwrap().factor, 8.0);
        assert_eq!(of(json!({"rope_theta": 3})).unwrap(), (3.0, None));
    }

    #[test]
    fn contradictions_are_refused_with_both_values() {
        let default = json!({"rope_type": "default", "rope_theta": 5e5});
        let mut two_names = llama3_fields();
        two_names["type"] = "default".into();
        for (fields, wanted) in [
            (json!({"rope_theta": 1e4, "rope_parameters": default.clone()}), ["10000", "500000"]),
            (json!({"rope_parameters": default, "rope_scaling": llama3_fields()}), ["None", "factor: 8"]),
            (json!({"rope_theta": 1e4, "rope_scaling": two_names}), ["rope_scaling.type", "llama3"]),
        ] {
            let error = of(fields).unwrap_err().to_string();
            assert!(wanted.iter().all(|w| error.contains(w)) && error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn unknown_kinds_and_missing_or_impossible_numbers_are_refused_by_name() {
        let changed = |key: &str, value: Value| {
            let mut scaling = llama3_fields();
            scaling[key] = value;
            of(json!({"rope_theta": 1e4, "rope_scaling": scaling})).unwrap_err().to_string()
        };
        for (key, value) in [
            ("rope_type", json!("yarn")),
            ("rope_type", json!(3)),
            ("rope_type", Value::Null),
            ("factor", Value::Null),
            ("factor", json!(0.5)),
            ("factor", json!(-8)),
            ("low_freq_factor", json!(4.0)),
            ("high_freq_factor", json!("4")),
            ("original_max_position_embeddings", Value::Null),
            ("original_max_position_embeddings", json!(0)),
            ("original_max_position_embeddings", json!(1.5)),
        ] {
            let error = changed(key, value.clone());
            assert!(error.contains(key), "{key} = {value}: {error}");
        }
        assert!(of(json!({"rope_theta": "10000"})).unwrap_err().to_string().contains("rope_theta"));
        assert!(
            of(json!({"rope_theta": 1e4, "rope_scaling": 2}))
                .unwrap_err()
                .to_string()
                .contains("rope_scaling")
        );
    }

    #[test]
    fn part_of_a_head_turns_only_where_the_architecture_says_so() {
        let share =
            |fields: Value, a| turned_share(fields.as_object().unwrap(), a).map_err(|e| e.to_string());
        let quarter = json!({"rope_parameters": {"partial_rotary_factor": 0.25}});
        assert_eq!(share(quarter.clone(), Architecture::Qwen3_5), Ok(0.25));
        assert!(share(json!({}), Architecture::Qwen3_5).unwrap_err().contains("partial_rotary_factor"));
        assert_eq!(share(json!({}), Architecture::Qwen3), Ok(1.0));
        assert_eq!(share(json!({"partial_rotary_factor": 1.0}), Architecture::Llama), Ok(1.0));
        assert!(share(quarter, Architecture::Qwen3).unwrap_err().contains("partial_rotary_factor"));
        for bad in [json!(0.0), json!(1.5), json!("half")] {
            assert!(share(json!({"partial_rotary_factor": bad}), Architecture::Qwen3_5).is_err());
        }
    }
}
