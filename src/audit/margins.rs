//! Margins, a second time: the p values of "not worse" and "the same" from a change's standard error, the 90%
//! interval, and the legs of non-inferiority and equivalence.

use super::decision::{ALONE, Judged, Leg, settle, settle_part};
use super::distributions::{t_above, t_quantile_95};
use super::estimators::{Part, Parts};
use super::paired::{SAME, Spread};

/// What the legs are worked out from.
pub struct Margin<'a> {
    /// The plan's margin.
    pub bar: f64,
    /// Ends of the pooled interval, as they were judged.
    pub ends: [Option<f64>; 2],
    /// All parts of the pooled change; `None` where it cannot be computed.
    pub parts: Option<&'a Parts>,
}

impl Margin<'_> {
    fn number(&self, part: &str) -> Option<f64> {
        self.parts?.get(part).and_then(Part::get)
    }

    /// Change, standard error and degrees of freedom, where an interval stands beside them and tasks vary.
    fn spread(&self) -> Option<(f64, f64, f64)> {
        self.ends[0]?;
        let error = self.number("se").filter(|error| *error > 0.0)?;
        Some((self.number("value")?, error, self.number("df")?))
    }

    /// The t interval at 90%. Where there is an interval and no spread, both arms wrote the same tokens.
    fn ninety(&self) -> Option<[f64; 2]> {
        match self.spread() {
            Some((change, error, df)) => {
                let half = t_quantile_95(df as u64) * error;
                Some([change - half, change + half])
            }
            None => self.ends[0].filter(|_| self.number("se") == Some(0.0)).map(|_| [0.0, 0.0]),
        }
    }

    /// One-sided p value that the change lies above `at` (`side` 1) or below it (−1).
    fn p(&self, at: f64, side: f64) -> Option<f64> {
        let (change, error, df) = self.spread()?;
        Some(tail(side * (change - at) / error, df as usize))
    }

    /// Not worse by as much as the margin.
    pub fn non_inferiority(&self) -> Judged {
        let [low, high] = self.ends;
        let least = Leg {
            asks: "the lower end of the pooled interval lies above minus the margin: not worse by as much as that"
                .into(),
            value: low,
            bar: -self.bar,
            holds: low.map(|low| low > -self.bar + SAME),
            p: self.p(-self.bar, 1.0),
        };
        let negative = Leg {
            asks: format!("the upper end of the pooled interval lies below minus the margin{ALONE}"),
            value: high,
            bar: -self.bar,
            holds: high.map(|high| high < -self.bar - SAME),
            p: None,
        };
        Judged { asked: vec![least], negative }
    }

    /// Within the margin in both directions. `stated`: the recorded value of a leg.
    pub fn equivalence(&self, stated: impl Fn(usize) -> Option<f64>) -> Judged {
        let [low, high] = [0, 1].map(|at| settle(self.ninety().map(|ends| ends[at]), stated(at)));
        let above = Leg {
            asks: "the lower end of the 90% t interval lies above minus the margin".into(),
            value: low,
            bar: -self.bar,
            holds: low.map(|low| low > -self.bar + SAME),
            p: self.p(-self.bar, 1.0),
        };
        let below = Leg {
            asks: "the upper end of the 90% t interval lies below the margin".into(),
            value: high,
            bar: self.bar,
            holds: high.map(|high| high < self.bar - SAME),
            p: self.p(self.bar, -1.0),
        };
        // How far the pooled interval stays from zero.
        let away = match self.ends {
            [Some(low), _] if low > 0.0 => Some(low),
            [_, Some(high)] if high < 0.0 => Some(-high),
            [Some(_), Some(_)] => Some(0.0),
            _ => None,
        };
        let asks = "the smallest change, up or down, in the pooled interval is larger than the margin";
        let negative = Leg {
            asks: format!("{asks}{ALONE}"),
            value: away,
            bar: self.bar,
            holds: away.map(|away| away > self.bar + SAME),
            p: None,
        };
        Judged { asked: vec![above, below], negative }
    }
}

/// One-sided t tests against −margin and +margin: p of "not worse by the margin", and the larger of both, p of "the same".
pub(super) fn within_margin(spread: &Spread, margin: f64) -> Result<(f64, f64), String> {
    let error = spread.error.clone()?;
    if error == 0.0 {
        return Err("nothing varies between tasks".into());
    }
    let above = tail((spread.mean + margin) / error, spread.df);
    let below = tail((margin - spread.mean) / error, spread.df);
    Ok((above, above.max(below)))
}

/// P(T ≥ t).
fn tail(t: f64, df: usize) -> f64 {
    t_above(t, df.max(1) as u64)
}

/// The ends of the pooled interval: the recorded ones where they agree with this road's.
pub fn ends(parts: Option<&Parts>, stated: [Option<f64>; 2]) -> [Option<f64>; 2] {
    let part = |name: &str| parts.and_then(|parts| parts.get(name));
    [settle_part(part("low"), stated[0]), settle_part(part("high"), stated[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(value: f64, low: f64, high: f64, se: f64) -> Parts {
        let numbers = [("value", value), ("low", low), ("high", high), ("se", se), ("df", 19.0)];
        numbers.map(|(name, x)| (name, Part::Number(x))).into()
    }

    /// Interval and p values against another program's (mpmath, 40 digits).
    #[test]
    fn the_ninety_percent_interval_and_both_tests() {
        let parts = parts(0.01, -0.03, 0.05, 0.02);
        let margin = Margin { bar: 0.05, ends: [Some(-0.03), Some(0.05)], parts: Some(&parts) };
        let judged = margin.equivalence(|_| None);
        let near = |a: Option<f64>, b: f64| assert!(a.is_some_and(|a| (a - b).abs() < 1e-9), "{a:?} {b}");
        near(judged.asked[0].value, 0.01 - 0.02 * 1.729_132_811_521_367);
        near(judged.asked[1].value, 0.01 + 0.02 * 1.729_132_811_521_367);
        near(judged.asked[0].p, P_OF_3);
        near(judged.asked[1].p, P_OF_2);
        assert_eq!(judged.negative.value, Some(0.0));
        near(margin.non_inferiority().asked[0].p, P_OF_3);
    }

    /// P(T > 3) and P(T > 2) with 19 degrees of freedom.
    const P_OF_3: f64 = 0.003_680_862_091_934_321;
    const P_OF_2: f64 = 0.030_001_018_193_049_18;

    #[test]
    fn without_a_spread_there_is_no_p_value() {
        let same = parts(0.0, 0.0, 0.0, 0.0);
        let margin = Margin { bar: 0.05, ends: [Some(0.0), Some(0.0)], parts: Some(&same) };
        let judged = margin.equivalence(|_| None);
        assert!(judged.asked.iter().all(|leg| leg.holds == Some(true) && leg.p.is_none()));
        // Equal scores of different tokens have no interval.
        let margin = Margin { bar: 0.05, ends: [None, None], parts: Some(&same) };
        let judged = margin.equivalence(|_| None);
        assert!(judged.asked.iter().all(|leg| leg.value.is_none() && leg.holds.is_none()));
    }
}
