//! The Prometheus text format, version 0.0.4.
//!
//! Decides: how families are written (`prometheus.io/docs/instrumenting/exposition_formats`, read in November 2026).
//! Invariant: every line parses, whatever bytes a label has. Leaves to others: what is shown (`families`).

use super::{Family, Figure, Sample, Type};
use std::fmt::Write as _;
use std::time::Duration;

/// The media type of what [`write`] gives.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families, as text.
pub(super) fn write(families: &[Family]) -> String {
    let mut text = String::with_capacity(64 << 10);
    for family in families {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {} {}", family.name, family.help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(text, "# TYPE {} {}", family.name, type_name(family.kind));
        for sample in &family.samples {
            let _ = writeln!(text, "{}{}{} {}", family.name, sample.suffix, labels(sample), number(sample.value));
        }
    }
    text
}

pub(super) const fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Counter => "counter",
        Type::Gauge => "gauge",
        Type::Histogram => "histogram",
    }
}

fn labels(sample: &Sample) -> String {
    if sample.labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let named: Vec<_> = sample.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", named.join(","))
}

/// A value as it is written; spans in seconds.
pub(super) fn number(value: Figure) -> String {
    match value {
        Figure::Whole(n) => n.to_string(),
        Figure::Nanoseconds(ns) => Duration::from_nanos(ns).as_secs_f64().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_spans_are_seconds() {
        let sample = |labels, value| Sample { suffix: "_sum", labels, value };
        let family = Family {
            name: "x_seconds".to_owned(),
            kind: Type::Histogram,
            help: "One\\two.",
            labels: &["a", "b"],
            samples: vec![sample(vec![("a", "q\"\\\n".to_owned()), ("b", "c".to_owned())], Figure::Nanoseconds(1_500_000))],
        };
        let expected = "# HELP x_seconds One\\\\two.\n# TYPE x_seconds histogram\nx_seconds_sum{a=\"q\\\"\\\\\\n\",b=\"c\"} 0.0015\n";
        assert_eq!(write(&[family]), expected);
    }
}
