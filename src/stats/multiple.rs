//! Adjusting p values when several hypotheses are tested at once: Holm for a declared family,
//! Benjamini–Hochberg for exploratory tables.

/// Holm's step-down adjusted p values, in the order given: control of the family-wise error.
/// Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
pub fn holm(p: &[f64]) -> Vec<f64> {
    let order = rising(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut floor = 0.0f64;
    for (rank, &i) in order.iter().enumerate() {
        floor = floor.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        adjusted[i] = floor;
    }
    adjusted
}

/// Benjamini–Hochberg adjusted p values, in the order given: control of the false discovery
/// rate, for exploratory tables. Source: Benjamini and Hochberg (1995).
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let order = rising(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut ceiling = 1.0f64;
    for (rank, &i) in order.iter().enumerate().rev() {
        ceiling = ceiling.min(p.len() as f64 * p[i] / (rank + 1) as f64);
        adjusted[i] = ceiling;
    }
    adjusted
}

fn rising(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixtures::{golden, near, numbers};
    use proptest::prelude::*;

    #[test]
    fn adjusted_p_values_match_the_reference() {
        let golden = golden();
        let cases = golden["multiple_comparisons"].as_object().expect("the reference has a map here");
        assert_eq!(cases.len(), 3);
        for case in cases.values() {
            let raw = numbers(&case["raw"]);
            for (ours, reference) in
                [(holm(&raw), &case["holm"]), (benjamini_hochberg(&raw), &case["bh_fdr"])]
            {
                for (a, b) in ours.iter().zip(numbers(reference)) {
                    near(*a, b, 1e-12);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn adjustment_never_lowers_a_p_value(p in proptest::collection::vec(0.0f64..=1.0, 0..20)) {
            let (h, b) = (holm(&p), benjamini_hochberg(&p));
            for i in 0..p.len() {
                prop_assert!(h[i] >= p[i] && h[i] <= 1.0);
                prop_assert!(b[i] >= p[i] - 1e-15 && b[i] <= h[i] + 1e-15);
            }
        }
    }
}
