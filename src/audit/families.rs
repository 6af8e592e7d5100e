//! Families of tests, a second time: which p values belong to one, and how their number raises them.

use crate::claims::derivation::{DataSet, Derivation, Estimator, Reference};
use crate::claims::family;

/// The p values that a family names, in the order in which it names them; none of other declarations.
pub fn named(derivation: &Derivation, scope: &str) -> Vec<Reference> {
    let family = derivation.estimator.is_family();
    let of = derivation.of.as_deref().filter(|_| family && derivation.data == DataSet::Derivations);
    of.and_then(|of| family::tests(of, scope).ok()).unwrap_or_default()
}

/// Adjusted p values, in the order given. Holm (1979): the i-th smallest of m times m − i + 1, never falling. Benjamini and
/// Hochberg (1995): the i-th smallest times m / i, never rising from the end.
pub fn adjust(by: Estimator, p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let raised = |rank: usize| {
        let own = p[order[rank]];
        if by == Estimator::Holm { own * (m - rank) as f64 } else { own * m as f64 / (rank + 1) as f64 }
    };
    let mut adjusted = vec![1.0; m];
    if by == Estimator::Holm {
        let mut so_far = 0.0f64;
        for rank in 0..m {
            so_far = so_far.max(raised(rank));
            adjusted[order[rank]] = so_far.min(1.0);
        }
    } else {
        let mut so_far = 1.0f64;
        for rank in (0..m).rev() {
            so_far = so_far.min(raised(rank));
            adjusted[order[rank]] = so_far;
        }
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::golden;

    #[test]
    fn adjusted_p_values_match_the_reference() {
        let reference = golden::json("stats/golden.json");
        for case in reference["multiple_comparisons"].as_object().unwrap().values() {
            let numbers = |key: &str| -> Vec<f64> {
                case[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
            };
            for (by, key) in [(Estimator::Holm, "holm"), (Estimator::BenjaminiHochberg, "bh_fdr")] {
                for (own, want) in adjust(by, &numbers("raw")).into_iter().zip(numbers(key)) {
                    assert!((own - want).abs() < 1e-12);
                }
            }
        }
        assert!(adjust(Estimator::Holm, &[]).is_empty());
    }
}
