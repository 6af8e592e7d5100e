//! Normal, Student t and beta distributions to about 1e-13. statrs gives the logarithm of the
//! gamma function and first guesses; its error function and quantiles are good to some 1e-11
//! only, less than the reference values we are checked against.

use statrs::function::{erf, gamma::ln_gamma};
use std::f64::consts::{PI, SQRT_2};

fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// P(Z ≤ `x`) for a standard normal Z: the series Σ x^(2k+1) / (1·3·…·(2k+1)) near the middle,
/// Laplace's continued fraction for the tails.
pub fn normal_cdf(x: f64) -> f64 {
    if x > 0.0 {
        return 1.0 - normal_cdf(-x);
    }
    let z = -x;
    if z < 3.5 {
        let (mut term, mut sum, mut odd) = (z, z, 1.0);
        while term > 1e-18 * sum {
            odd += 2.0;
            term *= z * z / odd;
            sum += term;
        }
        return 0.5 - normal_density(z) * sum;
    }
    let mut below = z;
    for k in (1..=120).rev() {
        below = z + f64::from(k) / below;
    }
    normal_density(z) / below
}

/// The `p` quantile of the standard normal; `p` in (0, 1).
pub fn normal_quantile(p: f64) -> f64 {
    let mut x = -SQRT_2 * erf::erfc_inv(2.0 * p);
    for _ in 0..2 {
        x -= (normal_cdf(x) - p) / normal_density(x);
    }
    x
}

/// P(T ≤ `t`) for Student's t with `df` > 0 degrees of freedom.
pub fn t_cdf(t: f64, df: f64) -> f64 {
    let tail = 0.5 * t_two_sided(t, df);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// P(|T| ≥ |`t`|) for Student's t with `df` > 0 degrees of freedom.
pub fn t_two_sided(t: f64, df: f64) -> f64 {
    beta_cdf(df / (df + t * t), 0.5 * df, 0.5)
}

/// The `p` quantile of Student's t; `p` in (0, 1), `df` > 0.
pub fn t_quantile(p: f64, df: f64) -> f64 {
    if p < 0.5 {
        return -t_quantile(1.0 - p, df);
    }
    // Safeguarded Newton on the upper half: the quantile is at least the normal one.
    let (mut low, mut high) = (0.0, normal_quantile(p).max(1.0));
    while t_cdf(high, df) < p {
        low = high;
        high *= 2.0;
    }
    let log_scale = ln_gamma(0.5 * (df + 1.0)) - ln_gamma(0.5 * df) - 0.5 * (df * PI).ln();
    let density = |t: f64| (log_scale - 0.5 * (df + 1.0) * (t * t / df).ln_1p()).exp();
    refine(p, &mut low, &mut high, |t| t_cdf(t, df), density)
}

/// P(X ≤ `x`) for X ~ Beta(`a`, `b`): the regularised incomplete beta function, by Lentz's
/// continued fraction. statrs stops after 140 terms, too few where `a` and `b` are large.
pub fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let keep = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let terms = 200 + (20.0 * a.max(b).sqrt()) as u64;
    let (mut c, mut d) = (1.0, 1.0 / keep(1.0 - (a + b) * x / (a + 1.0)));
    let mut h = d;
    for m in 1..=terms {
        let m = m as f64;
        for numerator in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / keep(1.0 + numerator * d);
            c = keep(1.0 + numerator / c);
            h *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    (front * h).clamp(0.0, 1.0)
}

/// Root of `cdf(x) = p` in [`low`, `high`] by Newton's step, bisecting where the step leaves
/// the bracket; bisection in the first rounds, because a quantile can lie many decades below.
fn refine(
    p: f64,
    low: &mut f64,
    high: &mut f64,
    cdf: impl Fn(f64) -> f64,
    density: impl Fn(f64) -> f64,
) -> f64 {
    let mut x = 0.5 * (*low + *high);
    for round in 0..200 {
        let miss = cdf(x) - p;
        if miss > 0.0 {
            *high = x
        } else {
            *low = x
        }
        let newton = x - miss / density(x);
        let next = if round >= 8 && newton > *low && newton < *high { newton } else { 0.5 * (*low + *high) };
        if (next - x).abs() <= 1e-16 * x.abs() {
            return next;
        }
        x = next;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not {b} within {tolerance}");
    }

    #[test]
    fn normal_quantiles_match_published_digits() {
        near(normal_quantile(0.975), 1.959_963_984_540_054, 1e-14);
        near(normal_quantile(0.80), 0.841_621_233_572_914_4, 1e-14);
        near(normal_cdf(-1.0), 0.158_655_253_931_457_05, 1e-15);
        near(normal_cdf(0.0), 0.5, 0.0);
        near(normal_cdf(-4.0), 3.167_124_183_311_992e-5, 1e-18);
        near(normal_cdf(-3.499_999_999), normal_cdf(-3.500_000_001), 1e-11);
    }

    #[test]
    fn t_quantiles_match_tables() {
        near(t_quantile(0.975, 1.0), 12.706_204_736_174_7, 1e-9);
        near(t_quantile(0.975, 2.0), 4.302_652_729_749_464, 1e-11);
        near(t_quantile(0.975, 4.0), 2.776_445_105_197_793_4, 1e-12);
        near(t_quantile(0.975, 39.0), 2.022_690_920_036_762, 1e-12);
        near(t_quantile(0.025, 39.0), -2.022_690_920_036_762, 1e-12);
        near(t_quantile(0.975, 1e6), 1.959_966_356_816_3, 1e-9);
    }

    #[test]
    fn cdf_and_quantile_are_inverse() {
        for df in [1.0, 2.5, 7.0, 29.0, 4_000.0, 99_999.0] {
            for p in [0.01, 0.2, 0.5, 0.9, 0.9999] {
                near(t_cdf(t_quantile(p, df), df), p, 1e-9);
            }
        }
    }

    #[test]
    fn two_sided_tail_at_zero_is_one() {
        near(t_two_sided(0.0, 5.0), 1.0, 1e-15);
        near(t_cdf(0.0, 5.0), 0.5, 1e-15);
    }
}
