//! One look at every number that is loaded: a weight that is NaN or infinite would poison each
//! result without a sign, so that a file with one is refused, naming the tensor and the place.

use crate::error::{Error, Result};
use rayon::prelude::*;

/// Numbers that are looked at together, without a branch, so that the compiler can vectorise it.
const BLOCK: usize = 1 << 14;

/// Refuses numbers among which one is NaN or infinite.
pub(super) fn finite(tensor: &str, numbers: &[f32]) -> Result<()> {
    let bad = numbers
        .par_chunks(BLOCK)
        .position_first(|block| block.iter().fold(false, |bad, x| bad | !x.is_finite()))
        .and_then(|block| {
            let first = block * BLOCK;
            numbers[first..].iter().position(|x| !x.is_finite()).map(|i| first + i)
        });
    match bad {
        None => Ok(()),
        Some(i) => Err(Error::invalid(format!("tensor `{tensor}` has {} at number {i}", numbers[i]))
            .hint("the file is damaged, or its training diverged: fetch it or train it again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_number_is_named() {
        let mut numbers = vec![f32::MAX; 3 * BLOCK + 5];
        finite("w", &numbers).unwrap();
        finite("w", &[]).unwrap();
        numbers[3 * BLOCK + 4] = f32::NEG_INFINITY;
        assert!(finite("w", &numbers).unwrap_err().to_string().contains("`w` has -inf at number 49156"));
        numbers[BLOCK] = f32::NAN;
        assert!(finite("w", &numbers).unwrap_err().to_string().contains("`w` has NaN at number 16384"));
    }
}
