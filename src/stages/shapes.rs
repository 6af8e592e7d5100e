//! The shape of an episode: how it spent its calls. docs/FORMATS.md ("Shapes of episodes") defines
//! each; the audit has the same by code of its own.

use crate::episode::CallRow;
use crate::experiment::Shape;

/// The shape of an episode with these calls, in the order of their turns, under a limit of `cap` tokens a call.
pub(super) fn shape(calls: &[&CallRow], cap: usize) -> Shape {
    let Some((last, earlier)) = calls.split_last() else { return Shape::Other };
    let met_limit = |call: &CallRow| call.finish_reason == "length";
    let earlier_met = earlier.iter().any(|call| met_limit(call));
    if met_limit(last) {
        return if earlier_met { Shape::Other } else { Shape::OneRunaway };
    }
    match took_most(last, earlier, cap) {
        // Where tokens are not counted, nobody can say whether the last call ran away.
        None => Shape::Other,
        Some(true) => Shape::OneRunaway,
        Some(false) if earlier_met => Shape::Other,
        Some(false) if earlier.is_empty() => Shape::OneUnderCap,
        Some(false) => Shape::ManyUnderCap,
    }
}

/// Whether the last call alone went beyond half the limit, and took at least half of all tokens.
fn took_most(last: &CallRow, earlier: &[&CallRow], cap: usize) -> Option<bool> {
    let tokens = |call: &CallRow| call.completion_tokens.map(i128::from);
    let own = tokens(last)?;
    let before: Vec<i128> = earlier.iter().map(|call| tokens(call)).collect::<Option<_>>()?;
    let beyond = |tokens: i128| 2 * tokens > cap as i128;
    let all = own + before.iter().sum::<i128>();
    Some(beyond(own) && !before.iter().any(|tokens| beyond(*tokens)) && 2 * own >= all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::testing::call_rows;

    /// The shape of calls with these tokens; a `-` before them means that the limit was met.
    fn of(calls: &[Option<i64>]) -> Shape {
        let rows: Vec<CallRow> = calls
            .iter()
            .map(|tokens| CallRow {
                completion_tokens: tokens.map(i64::abs),
                finish_reason: if tokens.is_some_and(|n| n < 0) { "length" } else { "stop" }.into(),
                ..call_rows(1).remove(0)
            })
            .collect();
        shape(&rows.iter().collect::<Vec<_>>(), 100)
    }

    #[test]
    fn every_shape_and_its_borders() {
        for (calls, wanted) in [
            (&[][..], Shape::Other),
            (&[-100], Shape::OneRunaway),
            (&[51], Shape::OneRunaway),
            (&[50], Shape::OneUnderCap),
            (&[0], Shape::OneUnderCap),
            (&[9, 9, -100], Shape::OneRunaway),
            // The limit may be met early, where the context is full.
            (&[40, 40, -3], Shape::OneRunaway),
            (&[20, 30, 51], Shape::OneRunaway),
            (&[20, 32, 51], Shape::ManyUnderCap),
            (&[51, 60], Shape::ManyUnderCap),
            (&[20, 30, 50], Shape::ManyUnderCap),
            (&[90, 10], Shape::ManyUnderCap),
            (&[0, 0], Shape::ManyUnderCap),
            (&[-100, 10], Shape::Other),
            (&[-100, -100], Shape::Other),
            (&[-3, 60], Shape::OneRunaway),
        ] {
            let calls: Vec<Option<i64>> = calls.iter().map(|n| Some(*n)).collect();
            assert_eq!(of(&calls), wanted, "{calls:?}");
        }
    }

    #[test]
    fn without_counts_only_a_limit_can_be_seen() {
        assert_eq!(of(&[None]), Shape::Other);
        assert_eq!(of(&[Some(5), None, Some(5)]), Shape::Other);
        assert_eq!(of(&[None, Some(-100)]), Shape::OneRunaway);
    }
}
