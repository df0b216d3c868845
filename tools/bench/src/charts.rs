//! Charts of a run: what the tables say, as pictures, a file each.
//!
//! Decides which section gives which picture, and which aims stand in it as lines. Place: after the workloads, beside `report`; drawn by
//! `cistern-picture`, as the models' are. Invariant: a picture shows figures of this run and no others; a section that has none for it
//! gives no file. Leaves to others: the figures (each workload), what is aimed at (`aims`).

use crate::section::{Row, Section, digits};
use crate::trouble::Trouble;
use cistern_picture::{Axis, Bar, Bars, Curve, Figure, Limit, Mark};
use std::fs;
use std::path::Path;

/// A picture's file name without its ending, and its contents.
type Picture = (&'static str, Result<String, String>);

/// Writes every picture that the sections give to `dir`, which is made if it is not there.
pub(crate) fn write(dir: &Path, sections: &[Section]) -> Result<(), Trouble> {
    write_all(dir, sections.iter().flat_map(of_section))
}

/// Writes pictures to `dir`, which is made if it is not there.
pub(crate) fn write_all(dir: &Path, pictures: impl IntoIterator<Item = Picture>) -> Result<(), Trouble> {
    fs::create_dir_all(dir).map_err(Trouble::at("making the directory of --svg"))?;
    for (name, svg) in pictures {
        let svg = svg.map_err(Trouble::starting("drawing a chart"))?;
        fs::write(dir.join(name).with_extension("svg"), svg).map_err(Trouble::at("writing a chart into the directory of --svg"))?;
    }
    Ok(())
}

fn of_section(section: &Section) -> Vec<Picture> {
    let rows = &section.rows[..];
    let pictures = match section.name {
        "echo" => vec![("cpu", cpu(rows).map(|bars| cistern_picture::bars(&bars)))],
        "loads" => vec![("latency", latency(rows).map(|it| draw(&it))), ("throughput", throughput(rows).map(|it| draw(&it)))],
        "sessions" => vec![("sessions", sessions(rows).map(|bars| cistern_picture::bars(&bars)))],
        "failover" => vec![("failover", failover(rows).map(|it| draw(&it)))],
        "renewals" => vec![("renewals", renewals(rows).map(|it| draw(&it)))],
        "durable" => vec![("durable", durable(rows).map(|it| draw(&it)))],
        "peers at a glance" => vec![("peers", peers(rows).map(|bars| cistern_picture::bars(&bars)))],
        _ => Vec::new(),
    };
    pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?))).collect()
}

fn draw(figure: &Figure) -> Result<String, String> {
    cistern_picture::svg(figure)
}

/// CPU of the server in CPUs of the echo, beside P1 and P2.
fn cpu(rows: &[Row]) -> Option<Bars> {
    let rows: Vec<Bar> = rows.iter().filter_map(|row| bar(row, &["server_over_echo"], "")).collect();
    let limit = |name: &str, at| Limit { name: name.to_owned(), at };
    let limits = vec![
        limit("P1, one request a datagram: 1 / 0.90", 1.0 / 0.9),
        limit("the plain echo: 1", 1.0),
        limit("P2, 16 requests a datagram: 0.20", 0.2),
    ];
    let series = vec!["server / echo".to_owned()];
    let title = "Server CPU of a request, in CPUs of a plain UDP echo".to_owned();
    let axis = Axis::linear("CPU of the server / CPU of the echo of one", 0.0, top(&rows, &limits));
    (!rows.is_empty()).then(|| Bars { title, axis, series, rows, limits, notes: noted("Medians over rounds, each beside its echo.") })
}

/// Cost with many sessions over that with few, beside P6.
fn sessions(rows: &[Row]) -> Option<Bars> {
    let rows: Vec<Bar> = rows.iter().filter_map(|row| bar(row, &["many_over_few"], "")).collect();
    let limits = vec![Limit { name: "P6, a million sessions: 1.5".to_owned(), at: 1.5 }];
    let title = "Server CPU of a request among many sessions, in those among few".to_owned();
    let axis = Axis::linear("many / few", 0.0, top(&rows, &limits));
    let notes = noted("Sessions and locks drawn at random, datagrams included.");
    (!rows.is_empty()).then(|| Bars { title, axis, series: vec!["many / few".to_owned()], rows, limits, notes })
}

/// Server CPU of each service for each operation.
fn peers(rows: &[Row]) -> Option<Bars> {
    let rows: Vec<Bar> = rows.iter().filter_map(|row| bar(row, &["lock_cpu_us", "write_cpu_us", "read_cpu_us"], " µs")).collect();
    let values = rows.iter().flat_map(|row| row.values.iter().flatten().map(|(value, _)| *value));
    let axis = logarithmic("server CPU of one operation, 64 in flight, µs", values)?;
    let series = ["lock + unlock", "durable write of 128 B", "read"].map(str::to_owned).to_vec();
    let title = "Server CPU of one operation, beside other services".to_owned();
    Some(Bars { title, axis, series, rows, limits: Vec::new(), notes: noted("One node each on loopback, in one run.") })
}

/// Latencies over the rate at which requests are answered.
fn latency(rows: &[Row]) -> Option<Figure> {
    let curve = |kind: &str, key, name: &str| {
        let rows = rows.iter().filter(|row| row.load.starts_with(kind));
        let mut points: Vec<_> = rows.filter_map(|row| Some((row.number("per_second")?, row.number(key)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve { name: name.to_owned(), points }
    };
    let curves = vec![
        curve("closed", "p50_us", "closed loops, p50"),
        curve("closed", "p99_us", "closed loops, p99"),
        curve("open", "p50_us", "open loops, p50"),
        curve("open", "p99_us", "open loops, p99"),
        curve("open", "p999_us", "open loops, p99.9"),
    ];
    let x = logarithmic("requests answered a second", points(&curves).map(|point| point.0))?;
    let y = logarithmic("latency, µs", points(&curves).map(|point| point.1))?;
    let notes = noted("Open loops count from the moment at which a request was due.");
    Some(Figure { title: "Latency over load: getattr".to_owned(), x, y, curves, marks: Vec::new(), notes })
}

/// Requests a second over requests in flight.
fn throughput(rows: &[Row]) -> Option<Figure> {
    let of = |agents: &str| {
        let rows = rows.iter().filter(|row| row.load.starts_with("closed, ") && row.load.contains(agents));
        rows.filter_map(|row| Some((row.number("in_flight")?, row.number("per_second")?))).collect::<Vec<_>>()
    };
    let curve = |name: &str, agents| Curve { name: name.to_owned(), points: of(agents) };
    let mark = |(x, y)| Mark { of: "each request of an agent of its own".to_owned(), x, y };
    let curves = vec![curve("1 agent", ", 1 agents,"), curve("16 agents", ", 16 agents,")];
    let marks: Vec<Mark> = [of(", 256 agents,"), of(", 1000 agents,")].concat().into_iter().map(mark).collect();
    let all = || points(&curves).chain(marks.iter().map(|mark| (mark.x, mark.y)));
    let (x, y) =
        (logarithmic("requests in flight", all().map(|point| point.0))?, from_zero("requests a second", all().map(|point| point.1))?);
    Some(Figure { title: "Requests a second over requests in flight: getattr".to_owned(), x, y, curves, marks, notes: Vec::new() })
}

/// Failovers over τ, beside their bound.
fn failover(rows: &[Row]) -> Option<Figure> {
    let lease = |row: &Row| row.load.rsplit_once("τ = ")?.1.strip_suffix(" ms")?.parse::<f64>().ok();
    let stopped = |key| {
        let rows = rows.iter().filter(|row| row.load.starts_with("stopped"));
        rows.filter_map(|row| Some((lease(row)?, row.number(key)?))).collect::<Vec<_>>()
    };
    let mut marks = Vec::new();
    for (key, of) in [("p50_ms", "stopped, median"), ("longest_ms", "stopped, longest")] {
        marks.extend(stopped(key).into_iter().map(|(x, y)| Mark { of: of.to_owned(), x, y }));
    }
    let others = rows.iter().filter(|row| !row.load.starts_with("stopped"));
    let other =
        |row: &Row| Some(Mark { of: "waited before, last-heard, surrender".to_owned(), x: lease(row)?, y: row.number("longest_ms")? });
    marks.extend(others.filter_map(other));
    let curves = vec![Curve { name: "Td + τ(1+δ) + 20 ms (P7)".to_owned(), points: stopped("bound_ms") }];
    let all = || points(&curves).chain(marks.iter().map(|mark| (mark.x, mark.y)));
    let x = logarithmic("lease period τ, ms", all().map(|point| point.0))?;
    let y = logarithmic("until the waiter has the lock, ms", all().map(|point| point.1))?;
    let notes = noted("Holders stopped with SIGSTOP.");
    Some(Figure { title: "Failover over the lease period".to_owned(), x, y, curves, marks, notes })
}

/// Renewals on purpose, beside the law.
fn renewals(rows: &[Row]) -> Option<Figure> {
    let load = |row: &Row| row.load.strip_prefix("fτρ = ")?.parse::<f64>().ok();
    let marks: Vec<Mark> = rows
        .iter()
        .filter_map(|row| Some(Mark { of: "measured".to_owned(), x: load(row)?, y: row.number("measured").filter(|share| *share > 0.0)? }))
        .collect();
    let most = marks.iter().map(|mark| mark.x).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let x = Axis::linear("requests in the time until renewing begins, fτρ", 0.0, most * 1.1);
    let points = Axis::linear("", 0.2, most * 1.1).places(200).into_iter().map(|x| (x, 1.0 / (x.exp() - 1.0))).collect();
    let curves = vec![Curve { name: "1 / (e^fτρ - 1)".to_owned(), points }];
    let y =
        logarithmic("explicit renewals a request", curves[0].points.iter().map(|point| point.1).chain(marks.iter().map(|mark| mark.y)))?;
    let notes = noted("The real cores in simulated time.");
    Some(Figure { title: "Explicit renewals beside the law".to_owned(), x, y, curves, marks, notes })
}

/// Durable changes a second over requests in flight, beside P5.
fn durable(rows: &[Row]) -> Option<Figure> {
    let curve = |kind: &str| {
        let in_flight = |row: &Row| row.load.strip_prefix(kind)?.strip_prefix(", ")?.strip_suffix(" in flight")?.parse::<f64>().ok();
        let points = rows.iter().filter_map(|row| Some((in_flight(row)?, row.number("per_second")?))).collect();
        Curve { name: kind.to_owned(), points }
    };
    let mut curves = vec![curve("setattr"), curve("write 128 B"), curve("create")];
    let x = logarithmic("changes in flight", points(&curves).map(|point| point.0))?;
    curves.push(Curve { name: "P5 with 64 in flight: 100,000".to_owned(), points: vec![(x.from, AIM_DURABLE), (x.to, AIM_DURABLE)] });
    let y = from_zero("durable changes a second", points(&curves).map(|point| point.1))?;
    Some(Figure { title: "Durable changes a second over changes in flight".to_owned(), x, y, curves, marks: Vec::new(), notes: Vec::new() })
}

/// Changes a second that P5 asks for.
const AIM_DURABLE: f64 = 100_000.0;

/// What requests cost with larger and larger tables, beside P6, from `scale`: sessions, and the ratios of GETATTR and of LOCK, RELEASE.
pub(crate) fn scaling(costs: &[(f64, f64, f64)]) -> Option<Picture> {
    let curve = |name: &str, of: fn(&(f64, f64, f64)) -> f64| Curve {
        name: name.to_owned(),
        points: costs.iter().map(|cost| (cost.0, of(cost))).collect(),
    };
    let mut curves = vec![curve("getattr", |cost| cost.1), curve("lock, release", |cost| cost.2)];
    let x = logarithmic("sessions, with ten locks each", costs.iter().map(|cost| cost.0))?;
    curves.push(Curve { name: "P6: 1.5".to_owned(), points: vec![(x.from, 1.5), (x.to, 1.5)] });
    let y = from_zero("CPU of the core alone / that with small tables", points(&curves).map(|point| point.1))?;
    let notes = noted("No sockets: what datagrams cost does not grow with tables.");
    let figure = Figure { title: "Cost of a request over the size of the tables".to_owned(), x, y, curves, marks: Vec::new(), notes };
    Some(("scaling", draw(&figure)))
}

/// A row's bars, if it has any of these figures.
fn bar(row: &Row, keys: &[&str], unit: &str) -> Option<Bar> {
    let value = |key: &&str| row.number(key).filter(|value| *value > 0.0).map(|value| (value, format!("{}{unit}", digits(value))));
    let values: Vec<_> = keys.iter().map(value).collect();
    values.iter().any(Option::is_some).then(|| Bar { name: row.load.clone(), values })
}

fn noted(note: &str) -> Vec<String> {
    vec![note.to_owned()]
}

fn points(curves: &[Curve]) -> impl Iterator<Item = (f64, f64)> {
    curves.iter().flat_map(|curve| curve.points.iter().copied())
}

/// Where a linear axis of bars ends: with room for their numbers.
fn top(rows: &[Bar], limits: &[Limit]) -> f64 {
    let values = rows.iter().flat_map(|row| row.values.iter().flatten().map(|(value, _)| *value));
    values.chain(limits.iter().map(|limit| limit.at)).fold(0.0, f64::max) * 1.2
}

/// An axis from zero to a little more than the largest value; none without values.
fn from_zero(label: &str, values: impl Iterator<Item = f64>) -> Option<Axis> {
    values.reduce(f64::max).filter(|most| *most > 0.0).map(|most| Axis::linear(label, 0.0, most * 1.15))
}

/// A logarithmic axis over whole powers of ten around all values above zero; none without values.
fn logarithmic(label: &str, values: impl Iterator<Item = f64>) -> Option<Axis> {
    let (least, most) =
        values.filter(|value| *value > 0.0).fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)));
    let power = |exponent: f64| 10_f64.powf(exponent);
    // A value on a power of ten is not on the frame.
    let (from, to) = (power((least * 0.99).log10().floor()), power((most * 1.01).log10().ceil()));
    least.is_finite().then(|| Axis::log(label, if least <= 1.0 && label.contains("in flight") { 0.8 } else { from }, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &'static str, rows: Vec<Row>) -> Section {
        let mut section = Section::new(name, "");
        section.rows = rows;
        section
    }

    /// A section of each kind that has a picture, with figures as the workloads name them.
    fn sections() -> Vec<Section> {
        let load = |name: &str, rate| {
            let row = Row::new(name).with("in_flight", "", 16_u64).with("per_second", "", rate);
            row.with("p50_us", "", 20.0).with("p99_us", "", 50.0).with("p999_us", "", 90.0)
        };
        let ms = |name: &str, ms| Row::new(name).with("p50_ms", "", ms).with("longest_ms", "", ms + 3.0).with("bound_ms", "", ms + 30.0);
        vec![
            section("echo", vec![Row::new("getattr, 1 agent, 1 in flight").with("server_over_echo", "", 1.1), Row::new("  its echo")]),
            section(
                "loads",
                vec![
                    load("closed, 1 agents, 16 in flight", 1e5),
                    load("closed, 1 agents, 64 in flight", 2e5),
                    load("open, 16 agents, 5,000/s", 5e3),
                    load("open, 16 agents, 9,000/s", 9e3),
                ],
            ),
            section("sessions", vec![Row::new("getattr, many").with("many_over_few", "", 1.3)]),
            section(
                "failover",
                vec![ms("stopped, waiter asks then, τ = 100 ms", 200.0), ms("stopped, waiter asks then, τ = 2000 ms", 2_600.0)],
            ),
            section("renewals", vec![Row::new("fτρ = 2").with("measured", "", 0.15), Row::new("fτρ = 10").with("measured", "", 0.0)]),
            section(
                "durable",
                vec![
                    Row::new("setattr, 1 in flight").with("per_second", "", 3e3),
                    Row::new("setattr, 64 in flight").with("per_second", "", 4e4),
                ],
            ),
            section(
                "peers at a glance",
                vec![Row::new("etcd").with("lock_cpu_us", "", 280.0), Row::new("Redis").with("read_cpu_us", "", 0.5)],
            ),
        ]
    }

    #[test]
    fn each_section_that_has_a_chart_gives_its_files_and_shows_its_aim() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("charts"), &sections()).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join("charts").join(name).with_extension("svg")).unwrap();
        for (name, text) in [
            ("cpu", "P2, 16 requests"),
            ("latency", "open loops, p99.9"),
            ("throughput", "1 agent"),
            ("sessions", "P6, a million"),
            ("failover", "P7"),
            ("renewals", "measured"),
            ("durable", "100,000"),
            ("peers", "etcd"),
        ] {
            assert!(read(name).contains(text), "{name} does not say {text}");
        }
    }

    #[test]
    fn section_without_figures_gives_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let empty: Vec<Section> = sections().into_iter().map(|known| section(known.name, vec![Row::new("nothing")])).collect();
        write(dir.path(), &empty).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(scaling(&[]).is_none() && scaling(&[(1e3, 1.0, 1.0), (1e6, 2.9, 2.2)]).is_some_and(|(_, svg)| svg.is_ok()));
    }
}
