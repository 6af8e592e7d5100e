//! Neighbours that change a number are named; ordinary prose around it is not.

use super::super::links::scan;
use proptest::prelude::*;

const N: &str = "[0.07](derive:a.b)";

fn reasons(text: &str) -> Vec<String> {
    scan(text).links.into_iter().filter_map(|link| link.beside.map(|(what, _)| what)).collect()
}

#[track_caller]
fn refused(text: &str, wanted: &str) {
    let text = text.replace("N", N).replace("W", "[234](derive:a.c)");
    let found = reasons(&text);
    assert!(found.iter().any(|what| what.contains(wanted)), "{text}: {found:?}");
}

#[test]
fn scale_words_are_refused() {
    for word in ["million", "thousand", "Millions", "dozen", "k", "M", "x", "percent", "bn", "tenths", "pp"] {
        for text in [
            "N {}",
            "**N** {}.",
            "N-{}",
            "N\n{}",
            "N *{}*",
            "N `{}`",
            "N [{}](https://x.org)",
            "N\u{a0}{}",
            "N ({})",
            "> N\n> {}",
        ] {
            refused(&text.replace("{}", word), word);
        }
        refused(&format!("N{word}"), word);
    }
    refused("N per cent of it", "per cent");
    refused("N per million", "per million");
    refused("N and a half", "and a half");
    refused("N e-3", "`e`");
    refused("N × 10", "×");
    refused("N \\* 1000", "*1");
    refused("N · 10⁶", "·1");
}

#[test]
fn digits_signs_and_marks_outside_the_brackets_are_refused() {
    for (text, wanted) in [
        ("W0", "`0`"),
        ("W**0**", "`0`"),
        ("W`0`", "`0`"),
        ("W\u{200b}0", "`0`"),
        ("W&#48;", "character reference"),
        ("W[0](https://x.org)", "`0`"),
        ("W[5](derive:a.d)", "another linked number"),
        ("W.5", "`.5`"),
        ("W,000", "`,000`"),
        ("W/8", "`/8`"),
        ("W–300", "`–300`"),
        ("W²", "`²`"),
        ("W^2", "`^`"),
        ("W%", "`%`"),
        ("W %", "`%`"),
        ("W‰", "`‰`"),
        ("W ×", "`×`"),
        ("W 567", "`567`"),
        ("W\u{202f}5", "`5`"),
        ("1W", "`1`"),
        ("**1**W", "`1`"),
        ("[1](https://x.org)W", "`1`"),
        ("0.W", "`0.`"),
        ("1,W", "`1,`"),
        ("1/W", "`1/`"),
        ("1e-W", "`1e-`"),
        ("is .W", "decimal point"),
        ("1 W", "`1` before"),
        ("12\u{a0}W", "`12` before"),
        ("-W", "sign `-`"),
        ("is −W", "sign `−`"),
        ("is \\-W", "sign `-`"),
        ("is −**W**", "sign `−`"),
        ("(−W)", "sign `−`"),
        ("is − W", "sign `−`"),
        ("+W", "sign `+`"),
        ("&minus;W", "sign `−`"),
        ("is –W", "sign `–`"),
        ("minus W", "`minus`"),
        ("twenty-W", "`twenty`"),
        ("two hundred W", "`hundred`"),
        ("xW", "`x`"),
    ] {
        refused(text, wanted);
    }
}

#[test]
fn ordinary_prose_is_left_alone() {
    for text in [
        "From N to W, a change of **W**.",
        "- N\n- W tasks",
        "1. N\n2) W",
        "* N\n* million is a word",
        "N tasks; N score, N points, N-point, N ms",
        "N–W, N to W, N of W, N/W, N ± N, N ±N, N × N, N x N, W − W, W minus W, N-W",
        "(N; n=W) [N, N] \"N\" p<N p = N, p ≤ N.",
        "N → W, N—W, N… W!",
        "|N|W|\n|---|---|\n|1|N|\n|N|100|",
        "top-W and pass@k at W",
        "N per task, N per family and a few more",
        "N. 100 tasks were run",
        "N (100 tasks) and N\n\n300 more",
        "N\n\nmillion",
        "N\n```\nk = 3\n```\n",
        "It took N: k is small. N, thousands of them",
        "seed 52004 W; 2026-12-01 W; table 2: W",
        "[see N](https://x.org/1) &amp; W",
        "N and a few more, N and W",
        "## 2. N",
        "N K-means clusters",
    ] {
        let text = text.replace("N", N).replace("W", "[234](derive:a.c)");
        assert_eq!(reasons(&text), Vec::<String>::new(), "{text}");
    }
}

/// What a reader does not see, in any amount, between a number and what stands beside it.
fn unseen() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["", "*", "**", "~~", "`", "\u{200b}", "\u{2060}", "\u{ad}"]),
        0..4,
    )
    .prop_map(|marks| marks.concat())
}

proptest! {
    #[test]
    fn a_planted_neighbour_is_found(
        before in "([a-z]{1,8}[ ,;] ?){0,4}", after in "([ ,;] ?[a-z]{1,8}){0,4}",
        near in unseen(), far in unseen(), digit in 0u32..10,
        scale in prop::sample::select(super::SCALES.to_vec()), way in 0usize..6,
    ) {
        let number = "[12](derive:a.b)";
        let text = match way {
            0 => format!("{before}{number}{near}{digit}{after}"),
            1 => format!("{before}{digit}{near}{number}{after}"),
            2 => format!("{before} {far}-{near}{number}{after}"),
            3 => format!("{before} {number}{far} {near}{scale}{after}"),
            4 => format!("{before} {number}{near}.{far}{digit}{after}"),
            _ => format!("{before} {number}{near}%{after}"),
        };
        let scanned = scan(&text);
        // Marks may open code that swallows the link, or is never closed; that is refused by itself.
        prop_assert!(
            !scanned.troubles.is_empty() || scanned.links.is_empty() || scanned.links[0].beside.is_some(),
            "{:?}", text
        );
    }

    #[test]
    fn plain_words_around_a_number_are_never_refused(
        before in "([b-df-j]{2,7}[,;]? ){0,4}", after in "([,;:.!?]? [b-df-j]{2,7}){0,4}",
        marks in prop::sample::select(vec!["", "*", "**", "~~"]),
    ) {
        let text = format!("{before}{marks}[12](derive:a.b){marks}{after}");
        let words = text.split(|c: char| !c.is_alphanumeric());
        prop_assume!(!words.into_iter().any(super::is_scale));
        prop_assert_eq!(reasons(&text), Vec::<String>::new(), "{:?}", text);
    }
}

#[cfg(feature = "site")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Digits, signs and percent marks that a page shows right beside a linked number are
    /// refused, whatever Markdown stands between.
    #[test]
    fn what_a_page_shows_beside_a_number_is_judged(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "[12](derive:a.b)", "0", "1", ".", ",", "-", "−", "%", " ", "\n", "*", "**", "`", "~~", "\\", "[", "]",
            "(", ")", "[3](https://x.org)", "&#49;", "&minus;", "\u{200b}", "text", "| ", "> ",
        ]), 0..10),
    ) {
        use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
        let text = pieces.concat();
        let found = scan(&text);
        prop_assume!(found.troubles.is_empty() && found.links.iter().all(|link| link.reference.is_ok()));
        let mut shown = String::new();
        let mut inside = false;
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Start(Tag::Link { dest_url, .. }) if dest_url.starts_with("derive:") => {
                    inside = true;
                    shown.push('N');
                }
                Event::End(TagEnd::Link) => inside = false,
                Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) if !inside => {
                    shown.push_str(&text.replace('\u{200b}', ""));
                }
                Event::SoftBreak | Event::HardBreak => shown.push(' '),
                Event::Start(Tag::Strong | Tag::Emphasis | Tag::Strikethrough | Tag::Link { .. })
                | Event::End(TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough) => {}
                Event::Start(_) | Event::End(_) => shown.push('¦'),
                _ => {}
            }
        }
        let glued = |a: char, b: char| (a == 'N' && (b.is_numeric() || b == '%')) || (b == 'N' && a.is_numeric());
        let signed = |a: char, b: char, c: char| c == 'N' && (b == '-' || b == '−') && " ¦(".contains(a);
        let letters: Vec<char> = std::iter::once('¦').chain(shown.chars()).collect();
        let wrong = letters.windows(2).any(|w| glued(w[0], w[1])) || letters.windows(3).any(|w| signed(w[0], w[1], w[2]));
        prop_assert!(!wrong || found.links.iter().any(|link| link.beside.is_some()), "{:?} shows {:?}", text, shown);
    }
}

#[test]
fn brackets_around_a_number_shield_nothing() {
    refused("(N)%", "`%`");
    refused("((N))% of it", "`%`");
    refused("(N) × 10", "×");
    refused("−(N)", "sign");
    for text in ["(N)", "(N) of them", "a change (N), and", "see (N) – more"] {
        assert_eq!(reasons(&text.replace('N', N)), [] as [&str; 0], "{text}");
    }
}

#[test]
fn a_verb_says_what_the_sign_says() {
    for (verb, number, honest) in [
        ("fell by", "+0.11", false),
        ("rose by", "\u{2212}0.11", false),
        ("lowers by", "+0.11", false),
        ("fell by", "\u{2212}0.11", true),
        ("rose by", "+0.11", true),
        ("rose by", "0.11", true),
        ("stands by", "+0.11", true),
    ] {
        let found = reasons(&format!("The score {verb} [{number}](derive:a.b) in all."));
        assert_eq!(found.is_empty(), honest, "{verb} {number}: {found:?}");
    }
}
