//! From one value a task to resampling units: how tasks are weighted, what is drawn whole, and
//! the mean, standard error and sign-flip contributions that follow from it. Used for paired
//! differences and for one arm's task means alike.

use super::{SAME, Undefined, Value};
use serde::Serialize;
use std::collections::BTreeMap;

/// What counts the same in the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Each task.
    #[default]
    Task,
    /// Each family, whatever the number of its tasks ("macro").
    Family,
}

/// One task's value, such as its paired difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskValue<'a> {
    /// The task.
    pub task: &'a str,
    /// Its family, where it has one.
    pub family: Option<&'a str>,
    /// Its cluster; `None` where the task is the resampling unit.
    pub cluster: Option<&'a str>,
    /// The value.
    pub value: f64,
}

/// One resampling unit: it is drawn, and its sign is flipped, as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Sum of its (weighted) task values.
    pub sum: f64,
    /// Its share of the denominator: the number of its tasks, for `weight = task`.
    pub size: f64,
}

/// Resampling units in rising order of their id, in one stratum; or, for `weight = family`
/// with tasks as units, in one stratum a family, in rising order of the family.
#[derive(Debug, Clone, PartialEq)]
pub struct Units {
    /// The strata; none is empty.
    pub strata: Vec<Vec<Unit>>,
    /// Number of tasks.
    pub tasks: usize,
    /// Whether units are clusters of tasks rather than tasks.
    pub clustered: bool,
    /// The families' names where they are strata, for messages.
    stratum_names: Vec<String>,
}

impl Units {
    /// Units of `values`, which stand in rising order of their task.
    ///
    /// Undefined without tasks, when `weight = family` and a task has no family, or when some
    /// tasks have a cluster and others have none.
    pub fn new(values: &[TaskValue<'_>], weight: Weight) -> Result<Units, Undefined> {
        if values.is_empty() {
            return Err(Undefined::new("there are no tasks"));
        }
        let mut families: BTreeMap<&str, Vec<&TaskValue<'_>>> = BTreeMap::new();
        if weight == Weight::Family {
            for v in values {
                let family = v.family.ok_or_else(|| no_group("family", v.task))?;
                families.entry(family).or_default().push(v);
            }
        }
        let clustered = values.iter().any(|v| v.cluster.is_some());
        let tasks = values.len();
        if !clustered && weight == Weight::Family {
            let stratum =
                |of: &Vec<&TaskValue<'_>>| of.iter().map(|v| Unit { sum: v.value, size: 1.0 }).collect();
            let strata = families.values().map(stratum).collect();
            let stratum_names = families.keys().map(|f| (*f).to_owned()).collect();
            return Ok(Units { strata, tasks, clustered, stratum_names });
        }
        let units = if clustered {
            let mut clusters: BTreeMap<&str, Unit> = BTreeMap::new();
            for v in values {
                let cluster = v.cluster.ok_or_else(|| no_group("cluster", v.task))?;
                let of_family = v.family.and_then(|f| families.get(f)).map_or(1, Vec::len);
                let unit = clusters.entry(cluster).or_insert(Unit { sum: 0.0, size: 0.0 });
                unit.sum += v.value / of_family as f64;
                unit.size += 1.0 / of_family as f64;
            }
            clusters.into_values().collect()
        } else {
            values.iter().map(|v| Unit { sum: v.value, size: 1.0 }).collect()
        };
        Ok(Units { strata: vec![units], tasks, clustered, stratum_names: Vec::new() })
    }

    /// Number of resampling units.
    pub fn len(&self) -> usize {
        self.strata.iter().map(Vec::len).sum()
    }

    /// Whether there is no unit; never true of a built value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weighted mean over tasks: within a stratum Σ sum / Σ size, over strata their mean.
    pub fn mean(&self) -> f64 {
        let mut total = 0.0;
        for stratum in &self.strata {
            total += stratum_mean(stratum);
        }
        total / self.strata.len() as f64
    }

    /// Whether nothing varies between units, so that no spread can be estimated.
    pub fn zero_variance(&self) -> bool {
        self.strata.iter().all(|stratum| {
            let mean = stratum_mean(stratum);
            stratum.iter().all(|u| (u.sum - u.size * mean).abs() <= SAME * u.size.max(1.0))
        })
    }

    /// Degrees of freedom of the standard error: units minus strata (G − 1 in one stratum).
    pub fn df(&self) -> f64 {
        (self.len() - self.strata.len()) as f64
    }

    /// Standard error of [`Units::mean`]. In one stratum of G units with sums s and sizes m,
    /// √(G/(G−1) · Σ(s − m·mean)²) / Σm: for tasks this is their standard deviation over √G, for
    /// clusters the CR1 error. With F families as strata, √(Σ variance_f / n_f) / F, as in
    /// stratified sampling. Undefined where a stratum has a single unit; 0 at zero variance.
    pub fn standard_error(&self) -> Value {
        if let Some(alone) = self.strata.iter().position(|s| s.len() < 2) {
            return Err(Undefined::new(match self.stratum_names.get(alone) {
                Some(family) => format!("family `{family}` has a single task, so its spread is unknown"),
                None if self.clustered => "there is a single cluster".into(),
                None => "there is a single task".into(),
            }));
        }
        if self.zero_variance() {
            return Ok(0.0);
        }
        let mut total = 0.0;
        for stratum in &self.strata {
            let mean = stratum_mean(stratum);
            let (mut squares, mut size) = (0.0, 0.0);
            for u in stratum {
                squares += (u.sum - u.size * mean).powi(2);
                size += u.size;
            }
            let g = stratum.len() as f64;
            total += g / (g - 1.0) * squares / (size * size);
        }
        Ok(total.sqrt() / self.strata.len() as f64)
    }

    /// What each unit adds to the sign-flip statistic, up to a common factor.
    pub fn contributions(&self) -> Vec<f64> {
        let scaled = self.strata.len() > 1;
        let each = |s: &Vec<Unit>| {
            let size = if scaled { s.len() as f64 } else { 1.0 };
            s.iter().map(move |u| u.sum / size).collect::<Vec<f64>>()
        };
        self.strata.iter().flat_map(each).collect()
    }
}

fn stratum_mean(stratum: &[Unit]) -> f64 {
    let (mut sum, mut size) = (0.0, 0.0);
    for u in stratum {
        sum += u.sum;
        size += u.size;
    }
    sum / size
}

fn no_group(kind: &str, task: &str) -> Undefined {
    Undefined::new(format!("task `{task}` has no {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::near;

    fn value(task: &'static str, family: &'static str, value: f64) -> TaskValue<'static> {
        TaskValue { task, family: Some(family), cluster: None, value }
    }

    fn sample() -> Vec<TaskValue<'static>> {
        vec![
            value("a/1", "a", 0.0),
            value("a/2", "a", 0.5),
            value("b/1", "b", 1.0),
            value("b/2", "b", 0.25),
            value("b/3", "b", 0.5),
        ]
    }

    fn clustered() -> Vec<TaskValue<'static>> {
        sample().into_iter().map(|v| TaskValue { cluster: v.family, ..v }).collect()
    }

    #[test]
    fn tasks_weigh_the_same_or_families_do() {
        near(Units::new(&sample(), Weight::Task).unwrap().mean(), 2.25 / 5.0, 1e-15);
        near(Units::new(&sample(), Weight::Family).unwrap().mean(), (0.25 + 1.75 / 3.0) / 2.0, 1e-15);
        near(Units::new(&clustered(), Weight::Family).unwrap().mean(), (0.25 + 1.75 / 3.0) / 2.0, 1e-15);
    }

    #[test]
    fn clustered_error_is_cr1() {
        let units = Units::new(&clustered(), Weight::Task).unwrap();
        let (d, n) = (0.45, 5.0);
        let (a, b) = (0.5 - 2.0 * d, 1.75 - 3.0 * d);
        near(units.standard_error().unwrap(), (2.0f64 * (a * a + b * b)).sqrt() / n, 1e-15);
        assert_eq!((units.len(), units.df()), (2, 1.0));
    }

    #[test]
    fn family_clusters_with_family_weight_are_a_sample_of_families() {
        let units = Units::new(&clustered(), Weight::Family).unwrap();
        let (a, b) = (0.25, 1.75 / 3.0);
        let mean = (a + b) / 2.0f64;
        let sd = ((a - mean).powi(2) + (b - mean).powi(2)).sqrt();
        near(units.standard_error().unwrap(), sd / 2f64.sqrt(), 1e-15);
    }

    #[test]
    fn stratified_error_adds_family_variances() {
        let units = Units::new(&sample(), Weight::Family).unwrap();
        let var_a = 0.125;
        let m = 1.75 / 3.0;
        let var_b = ((1.0 - m) * (1.0 - m) + (0.25 - m) * (0.25 - m) + (0.5 - m) * (0.5 - m)) / 2.0f64;
        near(units.standard_error().unwrap(), (var_a / 2.0 + var_b / 3.0f64).sqrt() / 2.0, 1e-15);
        assert_eq!(units.df(), 3.0);
    }

    #[test]
    fn a_lone_task_in_a_family_has_no_spread() {
        let units = Units::new(&sample()[..3], Weight::Family).unwrap();
        assert!(units.standard_error().unwrap_err().to_string().contains("`b`"));
    }

    #[test]
    fn missing_groups_are_named() {
        let mut values = sample();
        values[2].family = None;
        assert!(Units::new(&values, Weight::Task).is_ok());
        assert!(Units::new(&values, Weight::Family).unwrap_err().0.contains("b/1"));
        let mut values = clustered();
        values[0].cluster = None;
        assert!(Units::new(&values, Weight::Task).unwrap_err().0.contains("a/1"));
        assert!(Units::new(&[], Weight::Task).is_err());
    }

    #[test]
    fn rounding_noise_is_no_variance() {
        let values = [value("a", "f", 0.1 + 0.2), value("b", "f", 0.3), value("c", "f", 0.3)];
        let units = Units::new(&values, Weight::Task).unwrap();
        assert!(units.zero_variance());
        assert_eq!(units.standard_error(), Ok(0.0));
    }
}
