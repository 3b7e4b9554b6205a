//! Formats numbers for documents.

use serde_json::Value;

use crate::data::text_of;

/// Formats a value. The documentation of the crate lists the formats.
pub fn value(value: &Value, format: &str) -> Result<String, String> {
    let number = || value.as_f64().ok_or(format!("{value} is not a number"));
    Ok(match format {
        "text" => text_of(value),
        "int" => thousands(number()?),
        "time" => time(number()?),
        "bytes" => bytes(number()?),
        _ if format.starts_with('%') => percent(number()?, decimals(&format[1..])?),
        _ if format.starts_with('.') => format!("{:.*}", decimals(&format[1..])?, number()?),
        _ => return Err(format!("unknown format {format}")),
    })
}

fn decimals(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number of decimals"))
}

/// Formats a share as a percentage.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$}%", 100.0 * share)
}

/// Formats a whole number with thousands separators.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let grouped = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group));
    grouped.collect::<Vec<_>>().join(",")
}

/// Formats seconds in a suitable unit.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", 1e6 * s),
        s if s < 10e-3 => format!("{:.1} ms", 1e3 * s),
        s if s < 1.0 => format!("{:.0} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Formats bytes in a suitable unit.
pub fn bytes(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        m if m < 1024.0 => format!("{m:.0} MiB"),
        m => format!("{:.1} GiB", m / 1024.0),
    }
}

/// Formats the mean of shares as a percentage, with the sample deviation if they differ.
pub fn mean_percent(shares: &[f64], decimals: usize) -> String {
    let count = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    let deviation = if shares.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
    let shown = format!("{:.decimals$}", 100.0 * deviation);
    if shown.bytes().all(|b| b == b'0' || b == b'.') {
        percent(mean, decimals)
    } else {
        format!("{} ± {shown}", percent(mean, decimals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units() {
        assert_eq!(thousands(4_011_914.0), "4,011,914");
        assert_eq!([time(0.000706), time(0.0431), time(1.317)], ["706 µs", "43 ms", "1.32 s"]);
        assert_eq!([bytes(226.0 * 1048576.0), bytes(5.6 * 1073741824.0)], ["226 MiB", "5.6 GiB"]);
        assert_eq!(mean_percent(&[0.994, 0.998, 0.994, 0.996], 1), "99.5% ± 0.2");
        assert_eq!(mean_percent(&[1.0, 1.0], 1), "100.0%");
    }
}
