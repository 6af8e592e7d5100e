//! How wide a text is in the charts' font, from a small table of average advances, so that layouts
//! need no font library and come out the same on every machine.

/// Advances of U+0020 to U+007E in thousandths of the font size (Public Sans, regular; digits at
/// their tabular width).
const ADVANCES: [u16; 95] = [
    243, 251, 426, 603, 658, 904, 708, 248, 302, 309, 394, 554, 242, 378, 225, 350, 624, 624, 624, 624, 624,
    624, 624, 624, 624, 624, 226, 240, 546, 554, 546, 521, 831, 710, 670, 688, 694, 620, 594, 733, 766, 283,
    388, 682, 578, 886, 754, 734, 636, 748, 676, 670, 594, 700, 672, 954, 688, 607, 637, 303, 350, 303, 473,
    518, 218, 553, 596, 544, 596, 566, 396, 622, 576, 248, 262, 562, 303, 865, 577, 566, 596, 596, 391, 506,
    389, 580, 504, 780, 564, 535, 480, 328, 263, 332, 568,
];

/// Font size of chart text, in the drawing's units.
pub const TEXT: f64 = 12.6;

/// Width of `text` at the chart's text size, in the drawing's units.
pub fn width(text: &str) -> f64 {
    let thousandths: u32 = text
        .chars()
        .map(|c| match c {
            '\u{2212}' => 554,
            '—' => 1117,
            '…' => 768,
            ' '..='~' => ADVANCES.get(c as usize - 32).copied().map_or(600, u32::from),
            // Wide scripts are square; anything else is about as wide as a letter.
            c if (c as u32) >= 0x1100 => 1000,
            _ => 600,
        })
        .sum();
    f64::from(thousandths) * TEXT / 1000.0
}

/// `text` cut with an ellipsis so that it is at most `most` units wide.
pub fn fit(text: &str, most: f64) -> String {
    if width(text) <= most {
        return text.to_string();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept) + width("…") > most {
            kept.pop();
            break;
        }
    }
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_add_up_and_fit_cuts() {
        assert_eq!(width(""), 0.0);
        assert!((width("ab") - width("a") - width("b")).abs() < 1e-9);
        assert!(width("MMM") > width("iii"));
        assert_eq!(fit("caravan", 500.0), "caravan");
        let cut = fit("a label that is much too long", 60.0);
        assert!(cut.ends_with('…') && width(&cut) <= 60.0, "{cut}");
    }
}
