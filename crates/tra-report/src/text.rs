//! Formats words and numbers for the tables and the page.

/// Escapes text for HTML and SVG, in elements and in attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML does not allow other control characters in text.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Formats a share as a percentage. `100.0%` means exactly all, `0.0%` exactly none.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "–".into();
    }
    format!("{:.*}%", digits(share), share * 100.0)
}

/// Formats the mean and standard deviation of shares, with as many digits as both need.
pub fn percent_spread(mean: f64, deviation: f64) -> String {
    let digits = digits(mean).max(digits(deviation).min(2));
    format!("{:.*}% ± {:.*}", digits, mean * 100.0, digits, deviation * 100.0)
}

/// Formats a perplexity with about four digits, and with two above a million, where only the
/// magnitude matters.
pub fn perplexity(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".into(),
        ..100.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        ..1e6 => whole(value.round() as u64),
        _ => format!("{value:.1e}"),
    }
}

/// Formats the mean and standard deviation of perplexities, with the decimals of the mean.
pub fn perplexity_spread(mean: f64, deviation: f64) -> String {
    let decimals = match mean {
        ..100.0 => 2,
        ..1000.0 => 1,
        ..1e6 => return format!("{} ± {}", perplexity(mean), whole(deviation.round() as u64)),
        _ => return format!("{} ± {}", perplexity(mean), perplexity(deviation)),
    };
    format!("{mean:.decimals$} ± {deviation:.decimals$}")
}

/// Formats a loss in nats.
pub fn loss(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "–".into() }
}

/// Returns how many decimals keep `share` from rounding to 0% or 100%, unless it is exactly that.
fn digits(share: f64) -> usize {
    let exact = share == 0.0 || share == 1.0;
    let rounds = |digits: usize| {
        let shown = format!("{:.*}", digits, share * 100.0);
        shown.parse().is_ok_and(|shown: f64| shown == 0.0 || shown == 100.0)
    };
    if exact { 1 } else { (1..9).find(|&digits| !rounds(digits)).unwrap_or(9) }
}

/// Formats a whole number with thousands separators.
pub fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of bytes in a suitable unit.
pub fn bytes(number: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| number >= *size);
    unit.map_or(format!("{number} B"), |(unit, size)| {
        format!("{:.1} {unit}", number as f64 / size as f64)
    })
}

/// Formats a duration in seconds, minutes or hours.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Formats a number and a noun: `1 seed`, `3 seeds`.
pub fn plural(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", whole(number as u64), if number == 1 { "" } else { "s" })
}

/// Joins items: `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// Formats a length, or a range of lengths.
pub fn lengths(shortest: usize, longest: usize) -> String {
    if shortest >= longest {
        whole(longest as u64)
    } else {
        format!("{}–{}", whole(shortest as u64), whole(longest as u64))
    }
}

/// Cuts text to at most `most` characters. The last one is an ellipsis if any were cut.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_and_none_are_said_only_where_exact() {
        assert_eq!(percent(1.0), "100.0%");
        assert_eq!(percent(0.9997), "99.97%");
        assert_eq!(percent(0.999_999), "99.9999%");
        assert_eq!(percent(0.9951), "99.5%");
        assert_eq!(percent(0.0), "0.0%");
        assert_eq!(percent(0.0004), "0.04%");
        assert_eq!(percent(f64::NAN), "–");
        assert_eq!(percent_spread(1.0, 0.0), "100.0% ± 0.0");
        assert_eq!(percent_spread(0.9997, 0.0002), "99.97% ± 0.02");
        assert_eq!(percent_spread(0.412, 0.0831), "41.2% ± 8.3");
    }

    #[test]
    fn perplexities_have_about_four_digits() {
        let shown = [1.5, 21.304, 345.67, 1_234.5, 4.2e9].map(perplexity);
        assert_eq!(shown, ["1.50", "21.30", "345.7", "1,235", "4.2e9"]);
        assert_eq!([perplexity(f64::INFINITY), loss(f64::NAN)], ["–", "–"]);
        assert_eq!(perplexity_spread(21.304, 0.126), "21.30 ± 0.13");
        assert_eq!(perplexity_spread(345.67, 12.34), "345.7 ± 12.3");
        assert_eq!(perplexity_spread(2_345.0, 12.3), "2,345 ± 12");
        assert_eq!(perplexity_spread(2.3e9, 1.2e8), "2.3e9 ± 1.2e8");
        assert_eq!(loss(3.05849), "3.058");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a b=\"c\">&'\u{1}\n"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}\n");
    }

    #[test]
    fn numbers_and_lists_read_well() {
        assert_eq!(whole(1_234_567), "1,234,567");
        assert_eq!(whole(512), "512");
        assert_eq!([12, 2048, 3 << 30].map(bytes), ["12 B", "2.0 KiB", "3.0 GiB"]);
        assert_eq!([5.0, 600.0, 36_000.0].map(duration), ["5 s", "10 min", "10.0 h"]);
        assert_eq!(plural(1, "seed"), "1 seed");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(lengths(41, 1000), "41–1,000");
        assert_eq!(shorten("abcdef", 4), "abc…");
    }
}
