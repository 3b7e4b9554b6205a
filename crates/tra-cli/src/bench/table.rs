//! Formats the results as a text table or as JSON.

use serde_json::{Value, json};
use tra_lab::bench::{By, Gate, Group, Participant, Workload};
use tra_report::TextTable;

pub fn text(all: &[(Group, Vec<Participant>)], size: &str, peak: f64) -> String {
    let isa = tra_kernels::simd::Isa::best();
    let mut text = format!("peak of f32 products: {:.0} GFLOP/s; kernels: {isa}\n", peak / 1e9);
    for (group, participants) in all {
        let Group { name, batch, length, gate, .. } = group;
        let gate = match (name, gate) {
            (Workload::Op | Workload::OpForward, Gate::Initial) => ", gates at their initial value",
            (Workload::Op | Workload::OpForward, Gate::Open) => ", gates open",
            _ => "",
        };
        text += &format!("\n{}, {size}, {batch} x {length}{gate}\n", name.text());
        let header = ["  attention", "by", "seconds", "tokens/s", "of peak", "memory", "time"];
        let mut table = TextTable::new(2, header);
        let first = participants.first().map_or(f64::NAN, Participant::median);
        for p in participants {
            let seconds = p.median();
            table.row([
                format!("  {}", p.case.attention),
                p.by.label(),
                time(seconds),
                format!("{:.0}", p.case.tokens() as f64 / seconds),
                format!("{:.0}%", 100.0 * p.case.flops() / seconds / peak),
                memory(p.peak_memory),
                ratio(seconds / first),
            ]);
        }
        text += &table.to_string();
        for p in participants {
            if let Some(share) = p.share_read {
                let attention = &p.case.attention;
                text += &format!("  {attention} read {:.1}% of the pairs\n", 100.0 * share);
            }
        }
    }
    text
}

pub fn json(all: &[(Group, Vec<Participant>)], size: &str, peak: f64) -> String {
    let mut results = Vec::new();
    for (group, participants) in all {
        for ours in participants.iter().filter(|p| p.by == By::Us) {
            let seconds = ours.median();
            let peers = participants.iter().filter_map(|p| match &p.by {
                By::Torch(mode) if p.case.attention == ours.case.attention => Some((mode, p)),
                _ => None,
            });
            let of = |value: &dyn Fn(&Participant) -> Value| -> Value {
                let peers = peers.clone();
                Value::Object(peers.map(|(mode, p)| (mode.clone(), value(p))).collect())
            };
            results.push(json!({
                "name": group.name,
                "attention": ours.case.attention,
                "size": size,
                "batch": group.batch,
                "length": group.length,
                "gate": group.gate,
                "seconds": seconds,
                "all_seconds": ours.seconds,
                "tokens_per_second": ours.case.tokens() as f64 / seconds,
                "share_of_peak": ours.case.flops() / seconds / peak,
                "peak_memory_bytes": ours.peak_memory,
                "share_of_pairs_read": ours.share_read,
                // Time of PyTorch divided by ours.
                "torch": of(&|p| json!(p.median() / seconds)),
                "torch_seconds": of(&|p| json!(p.median())),
                "torch_peak_memory_bytes": of(&|p| json!(p.peak_memory)),
            }));
        }
    }
    let isa = tra_kernels::simd::Isa::best().name();
    format!("{:#}\n", json!({ "peak_gflops": peak / 1e9, "isa": isa, "results": results }))
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn ratio(times: f64) -> String {
    if times < 9.95 { format!("{times:.2}") } else { format!("{times:.0}") }
}

fn memory(bytes: u64) -> String {
    match bytes as f64 / (1u64 << 20) as f64 {
        0.0 => "?".into(),
        mib if mib < 1000.0 => format!("{mib:.0} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}
