//! Maps values to coordinates on the page, and chooses the ticks of an axis.

use crate::text::whole;

/// How values are spaced along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Linear,
    Log,
}

/// Maps `low..high` to `start..end`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub kind: Kind,
    pub low: f64,
    pub high: f64,
    pub start: f64,
    pub end: f64,
}

/// A value and its label.
pub type Tick = (f64, String);

impl Scale {
    /// Returns the coordinate of `value`, clamped to the ends of the scale.
    pub fn at(&self, value: f64) -> f64 {
        let bend = |value: f64| match self.kind {
            Kind::Linear => value,
            Kind::Log => value.max(f64::MIN_POSITIVE).log2(),
        };
        let (low, high) = (bend(self.low), bend(self.high));
        let share = (bend(value) - low) / (high - low);
        // A scale of a single value puts it in the middle.
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 };
        self.start + share * (self.end - self.start)
    }

    /// Keeps every n-th tick, counted from the last, with the smallest n that leaves room for the
    /// labels.
    pub fn thin(&self, ticks: Vec<Tick>, letter: f64) -> Vec<Tick> {
        let fits = |every: usize| {
            let kept: Vec<&Tick> = ticks.iter().rev().step_by(every).collect();
            kept.windows(2).all(|pair| {
                let room = (self.at(pair[0].0) - self.at(pair[1].0)).abs();
                let letters = pair[0].1.chars().count() + pair[1].1.chars().count();
                room >= letters as f64 * letter / 2.0 + 10.0
            })
        };
        let every = (1..=ticks.len()).find(|&every| fits(every)).unwrap_or(1);
        let mut kept: Vec<Tick> = ticks.into_iter().rev().step_by(every).collect();
        kept.reverse();
        kept
    }
}

/// Formats a coordinate with at most one decimal.
pub fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "-0" => "0".into(),
        text => text.into(),
    }
}

/// Returns about `about` round values from `low` to `high`.
pub fn linear_ticks(low: f64, high: f64, about: usize) -> Vec<Tick> {
    let rough = (high - low) / about.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![(low, plain(low, 0))];
    }
    let power = rough.log10().floor();
    let unit = 10f64.powf(power);
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * unit >= rough).unwrap_or(10.0) * unit;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).map(|value| (value, plain(value, decimals))).collect()
}

/// Returns the powers of two from `low` to `high`, or round values if there are fewer than two.
pub fn length_ticks(low: f64, high: f64) -> Vec<Tick> {
    let powers = (low.log2() - 1e-9).ceil() as i32..=(high.log2() + 1e-9).floor() as i32;
    let ticks: Vec<Tick> =
        powers.map(|power| 2f64.powi(power)).map(|value| (value, plain(value, 0))).collect();
    if ticks.len() < 2 && high > low { linear_ticks(low, high, 4) } else { ticks }
}

/// Returns the powers of ten from `low` to `high`, or finer ticks if there are fewer than two.
pub fn decade_ticks(low: f64, high: f64) -> Vec<Tick> {
    let powers = (low.log10() - 1e-9).floor() as i32..=(high.log10() + 1e-9).ceil() as i32;
    let inside = |tick: &Tick| tick.0 >= low * 0.999_999 && tick.0 <= high * 1.000_001;
    let with = |parts: &[u32]| -> Vec<Tick> {
        let every = powers.clone().flat_map(|power| parts.iter().map(move |&part| (part, power)));
        every.map(|(part, power)| scientific(part, power)).filter(inside).collect()
    };
    let (decades, finer) = (with(&[1]), with(&[1, 2, 5]));
    if decades.len() > 1 {
        return decades;
    }
    if finer.len() > 2 {
        return finer;
    }
    let finest = with(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    if finest.len() > 1 { finest } else { linear_ticks(low, high, 4) }
}

/// Returns the tick for `part` times ten to the power of `power`.
fn scientific(part: u32, power: i32) -> Tick {
    let value = f64::from(part) * 10f64.powi(power);
    if (-3..=3).contains(&power) {
        return (value, plain(value, (-power).max(0) as usize));
    }
    let raised: String = power.to_string().chars().map(superscript).collect();
    (value, if part == 1 { format!("10{raised}") } else { format!("{part}·10{raised}") })
}

fn superscript(c: char) -> char {
    match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or(c),
    }
}

fn plain(value: f64, decimals: usize) -> String {
    if decimals == 0 && value >= 0.0 {
        whole(value.round() as u64)
    } else {
        format!("{value:.decimals$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<Tick>) -> Vec<String> {
        ticks.into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(linear_ticks(0.0, 300.0, 6)),
            ["0", "50", "100", "150", "200", "250", "300"]
        );
        assert_eq!(labels(linear_ticks(0.0, 1.0, 4)), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(linear_ticks(7.0, 7.0, 4)), ["7"]);
        assert_eq!(labels(length_ticks(512.0, 4096.0)), ["512", "1,024", "2,048", "4,096"]);
        assert_eq!(labels(length_ticks(300.0, 500.0)), ["300", "350", "400", "450", "500"]);
        assert_eq!(labels(length_ticks(300.0, 300.0)), [""; 0]);
        assert_eq!(labels(decade_ticks(2e-5, 3.0)), ["10⁻⁴", "0.001", "0.01", "0.1", "1"]);
        assert_eq!(labels(decade_ticks(0.1, 0.7)), ["0.1", "0.2", "0.5"]);
        assert_eq!(labels(decade_ticks(15.0, 61.0)), ["20", "30", "40", "50", "60"]);
        assert_eq!(labels(decade_ticks(2.1, 2.9)), ["2.2", "2.4", "2.6", "2.8"]);
    }

    #[test]
    fn a_scale_of_one_value_puts_it_in_the_middle() {
        let scale = Scale { kind: Kind::Log, low: 4.0, high: 4.0, start: 0.0, end: 10.0 };
        assert_eq!(scale.at(4.0), 5.0);
        let scale = Scale { high: 16.0, ..scale };
        assert_eq!((scale.at(8.0), scale.at(0.0), scale.at(1e9)), (5.0, 0.0, 10.0));
    }

    #[test]
    fn crowded_ticks_are_thinned_from_the_last() {
        let scale = Scale { kind: Kind::Log, low: 1.0, high: 65536.0, start: 0.0, end: 300.0 };
        let kept = labels(scale.thin(length_ticks(1.0, 65536.0), 7.0));
        assert_eq!(kept, ["2", "16", "128", "1,024", "8,192", "65,536"]);
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([number(1.0), number(-0.01), number(2.25)], ["1", "0", "2.2"]);
    }
}
