//! The command `audit`: which rules of the protocol a capture keeps, and which it breaks.
//!
//! Decides: options, exit status, and that several captures are judged one by one, since each has its own clock and place.
//! Place in the walk: beside `show`; captures in, verdicts out. Leaves to others: the rules (`cistern-audit`), capture files
//! (`cistern-capture`), captures of deliberate bugs (`bugs`).

#[cfg(feature = "bugs")]
mod bugs;
#[cfg(test)]
mod tests;

use crate::args::span;
use crate::failure::{EXIT_DAMAGED, EXIT_IO, EXIT_NO_INPUT, EXIT_VIOLATION, Failure};
use crate::input::read_keys;
use cistern_audit::{Auditor, Passage, Report, Side, Terms, Vantage};
use cistern_capture::{ReadError, Reader};
use cistern_seal::KeyLog;
use cistern_wire::segments;
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
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub lease_period: Option<Duration>,
    /// Bound on clock rates of such sessions, in parts per million
    #[arg(long, value_name = "PPM", requires = "lease_period")]
    pub delta_ppm: Option<u32>,
    /// No operator has evicted anybody meanwhile
    #[arg(long)]
    pub no_evictions: bool,
    /// The server runs without the setting that ends waits by what it heard last
    #[arg(long)]
    pub no_last_heard: bool,
    /// Open sealed datagrams by this key log (`--key-log` of the programs), and judge them as plain ones
    #[arg(long, value_name = "FILE", conflicts_with = "bugs")]
    pub key_log: Option<PathBuf>,
    /// One JSON object for each capture, a line each
    #[arg(long)]
    pub json: bool,
    /// Judge captures of simulated runs with deliberate bugs instead; needs a build with `--features bugs`
    #[arg(long, conflicts_with_all = ["files", "lease_period", "delta_ppm", "complete"])]
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
    let terms = Terms { tau: args.lease_period, delta_ppm: args.delta_ppm, epsilon: None, no_evictions, no_last_heard };
    let (mut violated, mut exit) = (false, 0);
    let mut written = Ok(());
    for path in &args.files {
        let judged = match judge(path, vantage, terms, args.key_log.as_deref().map_or_else(|| Ok(KeyLog::default()), read_keys)?) {
            Ok(judged) => judged,
            Err(failure) => {
                crate::input::tell(&failure.text);
                exit = exit.max(failure.exit);
                continue;
            }
        };
        violated |= !judged.report.is_clean();
        if let Some(unread) = &judged.unread {
            crate::input::tell(&format!("{}: {unread}", path.display()));
        }
        if judged.damaged {
            exit = exit.max(EXIT_DAMAGED);
        }
        // Whoever read the output may have gone: that changes no verdict.
        written = written.and_then(|()| judged.write(path, args, &mut out));
    }
    match written.and_then(|()| out.flush()).map_err(Failure::from) {
        Err(failure) if failure.exit != 0 && !violated => Err(failure),
        Err(failure) if failure.exit != 0 => {
            crate::input::tell(&failure.text);
            Ok(EXIT_VIOLATION)
        }
        _ => Ok(if violated { EXIT_VIOLATION } else { exit }),
    }
}

fn place(side: Side) -> String {
    match side {
        Side::Between => "on the way".to_owned(),
        side => format!("on the {}'s host", side.name()),
    }
}

/// What came of one capture.
#[derive(Debug)]
pub struct Judged {
    /// The verdicts.
    pub report: Report,
    /// What to tell of frames that could not be read, if there are any.
    pub unread: Option<String>,
    /// Whether the file itself is damaged or cut off.
    pub damaged: bool,
    /// Whether it was judged as one in which nothing is missing.
    pub complete: bool,
}

impl Judged {
    fn write(&self, path: &Path, args: &AuditArgs, out: &mut impl Write) -> io::Result<()> {
        if args.json {
            let mut report = self.report.json();
            report["file"] = path.display().to_string().into();
            report["complete"] = self.complete.into();
            return writeln!(out, "{report}");
        }
        let (side, inside) = args.vantage;
        writeln!(out, "{}, seen {}", path.display(), if inside { format!("by the {}", side.name()) } else { place(side) })?;
        if args.complete && !self.complete {
            writeln!(out, "judged without --complete, since not all of it could be read")?;
        }
        writeln!(out, "{}", self.report)
    }
}

/// Judges a capture, whose sealed datagrams are opened by a key log. It is only judged as complete if all of it could be read.
///
/// # Errors
/// It is not there, or is no capture.
pub fn judge(path: &Path, vantage: Vantage, terms: Terms, mut keys: KeyLog) -> Result<Judged, Failure> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| Failure::new(EXIT_NO_INPUT, format!("cannot open {}: {error}", path.display())))?)
    };
    let mut reader = Reader::new(source);
    let mut auditor = Auditor::new(vantage, terms);
    // Only its end shows whether all of a capture can be read, and standard input is read once: so it is judged both ways.
    let mut doubting = vantage.complete.then(|| Auditor::new(Vantage { complete: false, ..vantage }, terms));
    loop {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                for payload in segments::split(&datagram.payload) {
                    let opened = keys.open(payload);
                    let passage = Passage { payload: opened.as_deref().unwrap_or(payload), ..Passage::from(&datagram) };
                    auditor.take(passage);
                    if let Some(doubting) = &mut doubting {
                        doubting.take(passage);
                    }
                }
            }
            Ok(None) => break,
            Err(error @ ReadError::Io(_)) => return Err(Failure::new(EXIT_IO, format!("reading {}: {error}", path.display()))),
            Err(error) => return Err(Failure::new(EXIT_DAMAGED, format!("{}: {error}", path.display()))),
        }
    }
    let tally = reader.tally();
    let clean = tally.is_clean();
    let auditor = doubting.filter(|_| !clean).unwrap_or(auditor);
    let unread = "some frames could not be read: what is missing may have been said in them";
    Ok(Judged {
        report: auditor.report(),
        unread: (!clean).then(|| unread.to_owned()),
        damaged: tally.is_damaged(),
        complete: vantage.complete && clean,
    })
}

#[cfg(feature = "bugs")]
fn bugs(args: &AuditArgs, out: &mut impl Write) -> Result<u8, Failure> {
    bugs::judge(args, out)
}

#[cfg(not(feature = "bugs"))]
fn bugs(_: &AuditArgs, _: &mut impl Write) -> Result<u8, Failure> {
    Err(Failure::new(crate::failure::EXIT_USAGE, "this build has no deliberate bugs in it; build it with `--features bugs`"))
}
