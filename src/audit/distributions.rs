//! Normal and t distributions from textbook series, written for the audit alone: the finite
//! trigonometric sums for t with whole degrees of freedom, a power series and a continued
//! fraction for the normal, and quantiles by bisection.

use std::f64::consts::{FRAC_2_PI, PI};

/// P(Z ≤ x) of a standard normal. Series near the middle, Mills' continued fraction in the tails.
pub fn normal_below(x: f64) -> f64 {
    if x > 0.0 {
        return 1.0 - normal_below(-x);
    }
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    if x > -3.0 {
        // Φ(x) = ½ + φ(x) · (x + x³/3 + x⁵/(3·5) + …)
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > 1e-20 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        return 0.5 + density * sum;
    }
    // Φ(x) = φ(x) / (|x| + 1/(|x| + 2/(|x| + 3/…)))
    let mut tail = -x;
    for level in (1..=400).rev() {
        tail = -x + f64::from(level) / tail;
    }
    density / tail
}

/// The x with P(Z ≤ x) = `p`, for 0 < p < 1.
pub fn normal_quantile(p: f64) -> f64 {
    bisect(-40.0, 40.0, |x| normal_below(x) < p)
}

/// P(−t ≤ T ≤ t) of Student's t with `df` degrees of freedom
/// (Abramowitz and Stegun 26.7.3 and 26.7.4).
pub fn t_between(t: f64, df: u64) -> f64 {
    let angle = (t / (df as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let (sum, _) = t_terms(cosine * cosine, df);
    if df % 2 == 1 { FRAC_2_PI * (angle + sine * cosine * sum) } else { sine * sum }
}

/// P(T ≥ t) of Student's t. Far out, where one minus the middle would leave nothing, from the terms that the finite sums
/// of the middle leave out: with them all, both come to 1.
pub fn t_above(t: f64, df: u64) -> f64 {
    let middle = t_between(t, df);
    if middle < 0.9 {
        return 0.5 * (1.0 - middle);
    }
    let (sine, cosine) = (t / (df as f64).sqrt()).atan().sin_cos();
    let (_, mut term) = t_terms(cosine * cosine, df);
    let (mut sum, mut k) = (0.0, terms_of(df));
    while term > sum * 1e-18 {
        sum += term;
        term *= t_ratio(cosine * cosine, df, k);
        k += 1;
    }
    0.5 * sine * sum * if df % 2 == 1 { FRAC_2_PI * cosine } else { 1.0 }
}

/// How many terms the finite sum for `df` degrees of freedom has.
fn terms_of(df: u64) -> u64 {
    if df % 2 == 1 { df / 2 } else { df.div_ceil(2) }
}

/// The finite sum, and the term that would come next.
fn t_terms(square: f64, df: u64) -> (f64, f64) {
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..terms_of(df) {
        sum += term;
        term *= t_ratio(square, df, k);
    }
    (sum, term)
}

/// The ratio of a term to the one before it.
fn t_ratio(square: f64, df: u64, k: u64) -> f64 {
    let k = k as f64;
    let ratio =
        if df % 2 == 1 { (2.0 * k + 2.0) / (2.0 * k + 3.0) } else { (2.0 * k + 1.0) / (2.0 * k + 2.0) };
    square * ratio
}

/// The t that leaves 2.5% above it, with `df` ≥ 1 degrees of freedom.
pub fn t_quantile_975(df: u64) -> f64 {
    bisect(0.0, 20.0, |t| t_between(t, df) < 0.95)
}

/// The t that leaves 5% above it, with `df` ≥ 1 degrees of freedom.
pub fn t_quantile_95(df: u64) -> f64 {
    bisect(0.0, 20.0, |t| t_between(t, df) < 0.90)
}

/// The point where `too_low` turns false, between `low` and `high`, to the last bit.
fn bisect(mut low: f64, mut high: f64, too_low: impl Fn(f64) -> bool) -> f64 {
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if too_low(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} against {b}");
    }

    #[test]
    fn normal_matches_tables() {
        near(normal_below(0.0), 0.5, 0.0);
        near(normal_below(-1.0), 0.158_655_253_931_457_05, 1e-15);
        near(normal_below(1.959_963_984_540_054), 0.975, 1e-15);
        near(normal_below(-3.5) / 2.326_290_790_355_250_4e-4, 1.0, 1e-12);
        near(normal_below(-10.0) / 7.619_853_024_160_526e-24, 1.0, 1e-12);
        near(normal_quantile(0.975), 1.959_963_984_540_054, 1e-14);
        near(normal_quantile(0.975) + normal_quantile(0.8), 2.801_585_218_112_968, 1e-13);
    }

    #[test]
    fn series_and_continued_fraction_meet() {
        near(normal_below(-3.0 + 1e-12), normal_below(-3.0 - 1e-12), 1e-13);
    }

    /// t, degrees of freedom, P(T ≥ t).
    const FAR_TAILS: [(f64, u64, f64); 8] = [
        (2.5, 9, 0.01693091384149287),
        (10.0, 95, 8.260_260_231_025_759e-17),
        (12.0, 40, 3.912_085_652_127_986e-15),
        (30.0, 7, 5.894_234_440_366_57e-9),
        (5.5, 1000, 2.4115319931537612e-8),
        (40.0, 95, 1.51173338097135e-61),
        (8.0, 2, 0.007_634_036_082_669_069),
        (3.0, 1, 0.10241638234956673),
    ];

    /// Far tails against mpmath (40 digits).
    #[test]
    fn the_far_tail_of_t_keeps_its_digits() {
        for (t, df, p) in FAR_TAILS {
            near(t_above(t, df) / p, 1.0, 1e-10);
        }
        near(t_above(0.5, 7), 0.316_203_567_844_642, 1e-12);
        near(t_above(-2.0, 9), 1.0 - t_above(2.0, 9), 1e-15);
        assert_eq!(t_above(1e12, 200), 0.0);
    }

    #[test]
    fn t_matches_tables() {
        for (df, t) in [
            (1, 12.706_204_736_174_7),
            (2, 4.302_652_729_749_46),
            (4, 2.776_445_105_197_79),
            (9, 2.262_157_162_798_21),
            (39, 2.022_690_920_036_76),
            (1000, 1.962_339_080_826_42),
        ] {
            near(t_quantile_975(df), t, 1e-11);
        }
        for (df, t) in [
            (1, 6.313_751_514_675_043),
            (2, 2.919_985_580_353_726),
            (9, 1.833_112_932_656_237),
            (1000, 1.646_378_817_285_465),
        ] {
            near(t_quantile_95(df), t, 1e-11);
        }
    }
}
