//! The look of a mechanism: a fixed colour, and a dash and a shape that survive grayscale.

use super::scale::number;

/// The known mechanisms, in page order. Their colours are in `report.css`.
const KNOWN: [&str; 18] = [
    "tra",
    "tra-threshold",
    "tra-distance",
    "tra-absolute",
    "rope",
    "alibi",
    "cope",
    "fox",
    "nope",
    "selective",
    "differential",
    "stickbreaking",
    "ssmax",
    "asentmax",
    "t5",
    "sinusoidal",
    "learned",
    "rope-qk",
];
/// Number of colours for unknown mechanisms.
const OTHERS: usize = 3;
const DASHES: [&str; 18] = [
    "",
    "7 3",
    "2 3",
    "9 3 2 3",
    "6 4",
    "1.5 3",
    "10 4",
    "8 3 2 3 2 3",
    "4 2",
    "12 3",
    "5 2 1 2",
    "3 5",
    "14 4 4 4",
    "1 5",
    "6 2 2 2 2 2",
    "9 6",
    "3 1.5",
    "12 2 1 2 1 2",
];

/// Colour class, dash and shape of a line.
#[derive(Clone, Debug)]
pub struct Mark {
    /// CSS class that sets the colour.
    pub class: String,
    /// `stroke-dasharray`; empty for a solid line.
    pub dash: &'static str,
    slot: usize,
}

/// Returns the position of a mechanism on the page. Unknown mechanisms share the last one.
pub fn rank(mechanism: &str) -> usize {
    KNOWN.iter().position(|&known| known == mechanism).unwrap_or(KNOWN.len())
}

impl Mark {
    /// Chooses the look of a series. `stranger` numbers the unknown mechanisms, `variant` the
    /// series of one mechanism.
    pub fn new(mechanism: &str, stranger: usize, variant: usize) -> Self {
        let rank = rank(mechanism);
        let class = match KNOWN.get(rank) {
            Some(known) => format!("m-{known}"),
            None => format!("m-other{}", stranger % OTHERS),
        };
        let slot = rank + stranger + variant;
        Self { class, dash: DASHES[slot % DASHES.len()], slot }
    }

    /// Returns the `stroke-dasharray` attribute; empty for a solid line.
    pub fn dash_attribute(&self) -> String {
        if self.dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{}\"", self.dash)
        }
    }

    /// Returns the path data of the shape, centred at (`x`, `y`).
    pub fn shape(&self, x: f64, y: f64) -> String {
        let at = |dx: f64, dy: f64| format!("{} {}", number(x + dx), number(y + dy));
        match self.slot % 6 {
            0 => format!("M{}a4 4 0 1 1 8 0a4 4 0 1 1 -8 0z", at(-4.0, 0.0)),
            1 => format!("M{}l5 5l-5 5l-5 -5z", at(0.0, -5.0)),
            2 => format!("M{}l4.8 8h-9.6z", at(0.0, -5.0)),
            3 => format!("M{}l4.8 -8h-9.6z", at(0.0, 5.0)),
            4 => format!("M{}h7v7h-7z", at(-3.5, -3.5)),
            _ => format!("M{}h3v3h3v3h-3v3h-3v-3h-3v-3h3z", at(-1.5, -4.5)),
        }
    }

    /// Returns a short piece of the line, to show beside a name in running text.
    pub fn swatch(&self) -> String {
        format!(
            "<svg class=\"swatch {}\" viewBox=\"0 0 34 12\" aria-hidden=\"true\">\
             <path class=\"line\" d=\"M0 6H34\"{}/><path class=\"dot\" d=\"{}\"/></svg>",
            self.class,
            self.dash_attribute(),
            self.shape(17.0, 6.0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_colour_in_light_and_in_dark() {
        let css = include_str!("report.css");
        let others = (0..OTHERS).map(|i| format!("other{i}"));
        for name in KNOWN.iter().map(|name| name.to_string()).chain(others) {
            assert!(css.contains(&format!(".m-{name} ")), "{name}");
            assert_eq!(css.matches(&format!("--{name}: #")).count(), 2, "{name}");
        }
    }

    #[test]
    fn no_two_known_mechanisms_share_a_look() {
        let marks = KNOWN.map(|name| Mark::new(name, 0, 0));
        for (i, mark) in marks.iter().enumerate() {
            assert!(marks[..i].iter().all(|m| m.class != mark.class && m.dash != mark.dash));
        }
    }
}
