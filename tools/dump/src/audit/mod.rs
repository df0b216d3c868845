//! The command `audit`: which rules of the protocol a capture keeps, and which it breaks.
//!
//! Decides: options, exit status, and that several captures are judged one by one, since each has its own clock and place.
//! Place in the walk: beside `show`; captures in, verdicts out. Leaves to others: the rules (`cistern-audit`), capture files
//! (`cistern-capture`), captures of deliberate bugs (`bugs`).

#[cfg(feature = "bugs")]
mod bugs;
#[cfg(test)]
mod tests;

use crate::failure::{EXIT_DAMAGED, EXIT_IO, EXIT_NO_INPUT, EXIT_VIOLATION, Failure};
use cistern_audit::{Auditor, Report, Side, Terms, Vantage};
use cistern_capture::{ReadError, Reader};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `audit`.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// Captures, each judged by itself; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "bugs")]
    pub files: Vec<PathBuf>,
    /// Where the captures were taken: server, agent (on that host), between; server-process, agent-process (by `--pcap` of the program)
    #[arg(long, value_name = "WHERE", default_value = "between", value_parser = vantage)]
    pub vantage: (Side, bool),
    /// Nothing that passed there is missing in the captures (tcpdump has dropped nothing)
    #[arg(long)]
    pub complete: bool,
    /// How far the capture's clock may run apart from the clocks of the machines, in parts per million
    #[arg(long, value_name = "PPM", default_value_t = cistern_audit::vantage::CLOCK_PPM, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub clock_ppm: u32,
    /// Lease period of sessions that were opened before the capture began, as "2s" or "500ms"
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub tau: Option<Duration>,
    /// Bound on clock rates of such sessions, in parts per million
    #[arg(long, value_name = "PPM", requires = "tau")]
    pub delta_ppm: Option<u32>,
    /// No operator has evicted anybody meanwhile
    #[arg(long)]
    pub no_evictions: bool,
    /// The server runs without the setting that ends waits by what it heard last
    #[arg(long)]
    pub no_last_heard: bool,
    /// One JSON object for each capture, a line each
    #[arg(long)]
    pub json: bool,
    /// Judge captures of simulated runs with deliberate bugs instead; needs a build with `--features bugs`
    #[arg(long, conflicts_with_all = ["files", "tau", "delta_ppm", "complete"])]
    pub bugs: bool,
    /// With --bugs: only these bugs, as "M4,M13"
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "bugs")]
    pub only: Vec<String>,
    /// With --bugs: keep the captures in this directory
    #[arg(long, value_name = "DIR", requires = "bugs")]
    pub keep: Option<PathBuf>,
}

fn vantage(text: &str) -> Result<(Side, bool), String> {
    match text {
        "server" => Ok((Side::Server, false)),
        "server-process" => Ok((Side::Server, true)),
        "agent" => Ok((Side::Agent, false)),
        "agent-process" => Ok((Side::Agent, true)),
        "between" => Ok((Side::Between, false)),
        _ => Err("one of server, server-process, agent, agent-process, between".to_owned()),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let (number, unit) = if let Some(number) = text.strip_suffix("ms") { (number, 0.001) } else { (text.trim_end_matches('s'), 1.0) };
    let seconds = number.parse::<f64>().ok().filter(|_| text.ends_with('s')).map(|number| number * unit);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| "a span like 2s or 500ms".to_owned())
}

/// Judges what the command line names; the exit status.
///
/// # Errors
/// An input that cannot be read, or an output that cannot be written.
pub fn audit(args: &AuditArgs) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    if args.bugs {
        return bugs(args, &mut out);
    }
    let (side, inside) = args.vantage;
    let vantage = Vantage { side, inside, complete: args.complete, clock_ppm: args.clock_ppm };
    let (no_evictions, no_last_heard) = (args.no_evictions, args.no_last_heard);
    let terms = Terms { tau: args.tau, delta_ppm: args.delta_ppm, epsilon: None, no_evictions, no_last_heard };
    let mut exit = 0;
    for path in &args.files {
        let (report, damaged) = judge(path, vantage, terms)?;
        if args.json {
            let mut report = report.json();
            report["file"] = path.display().to_string().into();
            writeln!(out, "{report}")?;
        } else {
            writeln!(out, "{}, seen {}", path.display(), if inside { format!("by the {}", side.name()) } else { place(side) })?;
            writeln!(out, "{report}")?;
        }
        if let Some(damaged) = damaged {
            crate::input::tell(&format!("{}: {damaged}", path.display()));
            exit = exit.max(EXIT_DAMAGED);
        }
        if !report.is_clean() {
            exit = EXIT_VIOLATION;
        }
    }
    out.flush()?;
    Ok(exit)
}

fn place(side: Side) -> String {
    match side {
        Side::Between => "on the way".to_owned(),
        side => format!("on the {}'s host", side.name()),
    }
}

/// Judges a capture; what could not be read of it is told beside.
///
/// # Errors
/// It is not there, or is no capture.
pub fn judge(path: &Path, vantage: Vantage, terms: Terms) -> Result<(Report, Option<String>), Failure> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| Failure::new(EXIT_NO_INPUT, format!("cannot open {}: {error}", path.display())))?)
    };
    let mut reader = Reader::new(source);
    let mut auditor = Auditor::new(vantage, terms);
    loop {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                auditor.take((&datagram).into());
            }
            Ok(None) => break,
            Err(error @ ReadError::Io(_)) => return Err(Failure::new(EXIT_IO, format!("reading {}: {error}", path.display()))),
            Err(error) => return Err(Failure::new(EXIT_DAMAGED, format!("{}: {error}", path.display()))),
        }
    }
    let tally = reader.tally();
    let damaged = (!tally.is_clean()).then(|| "some frames could not be read: what is missing may have been said in them".to_owned());
    Ok((auditor.report(), damaged))
}

#[cfg(feature = "bugs")]
fn bugs(args: &AuditArgs, out: &mut impl Write) -> Result<u8, Failure> {
    bugs::judge(args, out)
}

#[cfg(not(feature = "bugs"))]
fn bugs(_: &AuditArgs, _: &mut impl Write) -> Result<u8, Failure> {
    Err(Failure::new(crate::failure::EXIT_USAGE, "this build has no deliberate bugs in it; build it with `--features bugs`"))
}
