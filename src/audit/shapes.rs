//! The shape of an episode, a second time: from which of its calls met their limit and which were
//! large. docs/FORMATS.md ("Shapes of episodes") defines each.

/// One call of an episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// The turn.
    pub turn: i64,
    /// Whether it ended by `length`.
    pub met_limit: bool,
    /// Tokens that it took; `None` where nobody counted.
    pub tokens: Option<i64>,
}

/// The name of the shape of an episode with these calls, in any order.
pub fn shape(mut calls: Vec<Call>, cap: u64) -> &'static str {
    calls.sort_by_key(|call| call.turn);
    let last = match calls.len() {
        0 => return "other",
        n => n - 1,
    };
    let met: Vec<usize> = (0..=last).filter(|at| calls[*at].met_limit).collect();
    if met == [last] {
        return "one-runaway";
    }
    if met.contains(&last) || calls.iter().any(|call| call.tokens.is_none()) {
        return "other";
    }
    let tokens: Vec<f64> = calls.iter().map(|call| call.tokens.unwrap_or_default() as f64).collect();
    let large: Vec<usize> = (0..=last).filter(|at| tokens[*at] > cap as f64 / 2.0).collect();
    let others: f64 = tokens[..last].iter().sum();
    match (large == [last] && tokens[last] >= others, met.is_empty(), last) {
        (true, ..) => "one-runaway",
        (false, false, _) => "other",
        (false, true, 0) => "one-under-cap",
        (false, true, _) => "many-under-cap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minus marks a call that met its limit.
    fn of(tokens: &[i64]) -> &'static str {
        let calls = tokens.iter().enumerate().map(|(turn, n)| Call {
            turn: turn as i64,
            met_limit: *n < 0,
            tokens: Some(n.abs()),
        });
        shape(calls.rev().collect(), 100)
    }

    #[test]
    fn each_border_is_where_the_definition_puts_it() {
        assert_eq!(of(&[]), "other");
        for runaway in [&[-100][..], &[51], &[9, -100], &[40, 40, -3], &[20, 31, 51], &[-3, 60]] {
            assert_eq!(of(runaway), "one-runaway", "{runaway:?}");
        }
        for many in [&[20, 32, 51][..], &[51, 60], &[20, 30, 50], &[90, 10], &[0, 0]] {
            assert_eq!(of(many), "many-under-cap", "{many:?}");
        }
        for one in [&[50][..], &[0]] {
            assert_eq!(of(one), "one-under-cap", "{one:?}");
        }
        for other in [&[-100, 10][..], &[-100, -100], &[-60, 60, -9]] {
            assert_eq!(of(other), "other", "{other:?}");
        }
        let uncounted = |met_limit| shape(vec![Call { turn: 0, met_limit, tokens: None }], 100);
        assert_eq!((uncounted(true), uncounted(false)), ("one-runaway", "other"));
    }
}
