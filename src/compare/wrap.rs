//! Text into lines of a width, with hanging indents.

/// Words after `prefix`, in lines of at most `width` characters; further lines are indented.
pub fn wrapped(prefix: &str, text: &str, indent: usize, width: usize) -> Vec<String> {
    flow(prefix, text.split(' '), " ", indent, width)
}

/// Pieces after `prefix`, in lines of at most `width` characters; further lines are indented. A
/// piece stays whole unless it alone is wider than a line.
pub fn flow<'a>(
    prefix: &str,
    pieces: impl IntoIterator<Item = &'a str>,
    gap: &str,
    indent: usize,
    width: usize,
) -> Vec<String> {
    let long = |s: &str| s.chars().count();
    let indent = indent.min((width / 2).max(width.saturating_sub(20)));
    let mut lines = Vec::new();
    let mut line = prefix.to_owned();
    let mut fresh = true;
    for piece in pieces {
        if !fresh && long(&line) + long(gap) + long(piece) > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            fresh = true;
        }
        if !fresh {
            line.push_str(gap);
        }
        for c in piece.chars() {
            if long(&line) >= width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            }
            line.push(c);
        }
        fresh = false;
    }
    lines.push(line);
    lines.iter().map(|l| l.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_hang_under_their_first() {
        assert_eq!(wrapped("a  ", "bb cc dd", 3, 8), ["a  bb cc", "   dd"]);
        assert_eq!(wrapped("", "abcdefgh", 0, 3), ["abc", "def", "gh"]);
        assert_eq!(flow("", ["k=1 0.5", "k=2 0.7"], "   ", 2, 12), ["k=1 0.5", "  k=2 0.7"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_too_wide(text in "[a-d]{0,30}( [a-d]{1,20}){0,8}", indent in 0usize..20, width in 40usize..140) {
            let lines = wrapped("p: ", &text, indent, width);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
            let letters = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&format!("p: {text}")));
        }
    }
}
