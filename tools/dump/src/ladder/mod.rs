//! Pictures: who said what to whom when, and who had a lease and which locks meanwhile.
//!
//! Decides: what a row of a picture is (a datagram, or a run of idle renewals folded into one), which remarks stand beside it, and in
//! which format the picture is written. Place in the walk: the end of it, where somebody would rather look than read.
//! Invariant: rows are those that lines would show, in their order; bars come from the whole capture, whatever is hidden.
//! Leaves to others: what happened (`cistern-audit`), words (`words`, `line`), where things stand (`axis`, `columns`), SVG (`draw`).

mod axis;
mod columns;
mod draw;
mod page;
mod remarks;

#[cfg(test)]
mod tests;

use crate::failure::{EXIT_IO, EXIT_USAGE, Failure};
use crate::labels::Labels;
use crate::line::Lines;
use crate::notes::Notes;
use crate::packet::Packet;
use crate::time::{Clock, TimeForm};
use cistern_audit::{HostId, Interval, IntervalKind, Role, Story, What};
use cistern_wire::{Kind, Lane};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows of idle renewals that are folded into one when they follow each other.
const FOLD: usize = 6;

/// Most rows of a picture that a person can read, and a browser show with ease.
const ROWS_MAX: usize = 5_000;

/// In which format a picture is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Html,
}

/// What a datagram is about, in a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Handshake,
    Renewal,
    Notice,
    Refusal,
    Broken,
}

/// A datagram in the picture, or a run of them.
#[derive(Clone, Debug)]
struct Row {
    at: Duration,
    frame: u64,
    from: HostId,
    to: HostId,
    tone: Tone,
    /// Whether all of it was sent before.
    again: bool,
    /// Whether it only asks for or gives a renewal.
    idle: bool,
    /// What stands at the arrow.
    label: String,
    /// What is shown on top of it on request.
    detail: String,
    /// What follows from it.
    remarks: Vec<String>,
    /// Of a run, when it ends and how many datagrams it is.
    run: Option<(Duration, usize)>,
}

/// A stretch of time beside a column.
#[derive(Clone, Debug)]
struct Bar {
    interval: Interval,
    /// What it is, in words.
    title: String,
}

/// A column of the picture.
#[derive(Clone, Debug)]
struct Column {
    host: HostId,
    name: String,
    role: Role,
}

/// All that is drawn.
#[derive(Debug)]
struct Picture {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
    bars: Vec<Bar>,
}

/// Gathers what is to be drawn.
#[derive(Debug)]
pub struct Ladder {
    path: PathBuf,
    format: Format,
    lines: Lines,
    rows: Vec<Row>,
    names: Vec<Option<String>>,
    stolen: Vec<Interval>,
}

impl Ladder {
    /// A picture that will be written to `path`, which must end in `.svg` or `.html`.
    ///
    /// # Errors
    /// The ending is another one.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Format::Svg,
            Some("html" | "htm") => Format::Html,
            _ => {
                let text = format!("{}: a picture ends in .svg or .html", path.display());
                return Err(Failure::new(EXIT_USAGE, text));
            }
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            lines: Lines::new(Clock::new(TimeForm::SinceFirst), 0, false, Vec::new()),
            rows: Vec::new(),
            names: Vec::new(),
            stolen: Vec::new(),
        })
    }

    /// Notes what the newest datagram did, whether it will be shown or not.
    pub fn see(&mut self, story: &Story) {
        for event in story.events() {
            if let What::Passed { holder, passed, .. } = event.what
                && let Some(session) = story.session(holder)
                && let Some(promise) = session.promise
            {
                let known = self.stolen.iter().any(|stretch| stretch.session == holder);
                if !known {
                    self.stolen.push(remarks::timed_out(session, promise, passed, event.frame));
                }
            }
        }
    }

    /// Shows a datagram.
    ///
    /// # Errors
    /// There are more rows than a picture can have.
    pub fn show(&mut self, story: &Story, labels: &Labels, packet: &Packet<'_>, notes: &Notes, shown: &[bool]) -> Result<(), Failure> {
        let Some((from, to)) = ends(story, packet, notes) else { return Ok(()) };
        for (host, address) in [(from, packet.from), (to, packet.to)] {
            if self.names.len() <= host {
                self.names.resize(host + 1, None);
            }
            self.names[host] = labels.label(address).or_else(|| self.names[host].take());
        }
        let texts = self.lines.texts(packet, notes, shown);
        let time = self.lines.moment(packet.at);
        let kinds: Vec<Kind> = packet.content.iter().flat_map(|datagram| datagram.messages()).map(|message| message.kind()).collect();
        let row = Row {
            at: packet.at,
            frame: packet.number,
            from,
            to,
            tone: tone(packet.content.is_err(), &kinds),
            again: notes.copy || (!notes.messages.is_empty() && notes.messages.iter().all(|note| note.again.is_some())),
            idle: !kinds.is_empty() && kinds.iter().all(|kind| matches!(kind, Kind::KeepAlive | Kind::Alive)),
            label: self.lines.heads(packet, notes, shown).join(" + "),
            detail: format!("frame {}, {time}, {} bytes\n{}", packet.number, packet.bytes.len(), texts.join("\n")),
            remarks: remarks::of(story, &notes.events),
            run: None,
        };
        self.rows.push(row);
        self.fold();
        if self.rows.len() > ROWS_MAX {
            let text = format!(
                "{}: more than {ROWS_MAX} datagrams are no picture; choose with --from, --to, --session, --host or --kind",
                self.path.display()
            );
            return Err(Failure::new(EXIT_USAGE, text));
        }
        Ok(())
    }

    /// Draws and writes the picture.
    ///
    /// # Errors
    /// There is nothing to draw, or the file cannot be written.
    pub fn write(&self, story: &Story) -> Result<(), Failure> {
        if self.rows.is_empty() {
            return Err(Failure::new(EXIT_USAGE, format!("{}: nothing to draw: no datagram was to be shown", self.path.display())));
        }
        let (path, picture) = (&self.path, self.picture(story));
        let drawn = match self.format {
            Format::Svg => draw::svg(&picture).to_string(),
            Format::Html => page::html(&picture),
        };
        std::fs::write(path, drawn).map_err(|e| Failure::new(EXIT_IO, format!("cannot write {}: {e}", path.display())))
    }

    /// Joins the last rows if they are a run of idle renewals.
    fn fold(&mut self) {
        let plain = |row: &Row| row.idle && row.remarks.is_empty();
        let Some(last) = self.rows.last().filter(|row| plain(row)).cloned() else { return };
        if let [.., run, _] = &mut self.rows[..]
            && let Some((until, count)) = &mut run.run
        {
            (*until, *count) = (last.at, *count + 1);
            run.tell_run();
            self.rows.pop();
            return;
        }
        let begin = self.rows.len().saturating_sub(FOLD);
        let tail = &self.rows[begin..];
        if tail.len() == FOLD && tail.iter().all(|row| plain(row) && row.run.is_none()) {
            self.rows.truncate(begin + 1);
            if let Some(run) = self.rows.last_mut() {
                run.run = Some((last.at, FOLD));
                run.tell_run();
            }
        }
    }

    fn picture(&self, story: &Story) -> Picture {
        let first = self.rows.first().map_or(Duration::ZERO, |row| row.at);
        let last = self.rows.last().map_or(first, |row| row.run.map_or(row.at, |run| run.0));
        let columns = columns::order(story, &self.rows, &self.names);
        let mut intervals = story.intervals();
        // What a session had when it was stolen from went with it, also what nobody was seen to take.
        for interval in intervals.iter_mut().filter(|interval| is_hold(interval.kind) && interval.until.is_none()) {
            let stolen = self.stolen.iter().find(|stolen| stolen.session == interval.session && stolen.from >= interval.from);
            interval.until = stolen.and_then(|stolen| stolen.until);
        }
        intervals.extend(self.stolen.iter().copied());
        intervals.retain(|interval| interval.from <= last && interval.until.is_none_or(|until| until >= first));
        intervals.retain(|interval| columns.iter().any(|column| column.host == interval.host));
        // What is less certain lies under what is more.
        intervals.sort_by_key(|interval| interval.kind != IntervalKind::PossibleLease);
        let bars = intervals.into_iter().map(|interval| Bar { title: remarks::of_interval(&interval, first), interval });
        let title = format!("{} datagrams from {}", self.rows.len(), crate::time::date(first));
        Picture { title, bars: bars.collect(), columns, rows: self.rows.clone() }
    }
}

impl Row {
    /// Says what a run is.
    fn tell_run(&mut self) {
        let Some((until, count)) = self.run else { return };
        self.label = format!("{count} datagrams of KEEPALIVE and ALIVE in {}", crate::time::span(until.saturating_sub(self.at)));
        self.detail = format!("from frame {}\n{}", self.frame, self.label);
    }
}

impl Picture {
    fn begin(&self) -> Duration {
        self.rows.first().map_or(Duration::ZERO, |row| row.at)
    }
}

/// Who sent it to whom.
fn ends(story: &Story, packet: &Packet<'_>, notes: &Notes) -> Option<(HostId, HostId)> {
    if let Some(event) = notes.events.first() {
        return Some((event.from, event.to));
    }
    let host = |address| story.hosts().iter().rposition(|host| host.addresses.contains(&address));
    Some((host(packet.from)?, host(packet.to)?))
}

fn tone(broken: bool, kinds: &[Kind]) -> Tone {
    let any = |wanted: fn(&Kind) -> bool| kinds.iter().any(wanted);
    if broken {
        Tone::Broken
    } else if any(|kind| matches!(kind, Kind::Nack | Kind::Refuse | Kind::Hint)) {
        Tone::Refusal
    } else if any(|kind| kind.lane() == Lane::Notice) {
        Tone::Notice
    } else if any(|kind| matches!(kind, Kind::Hello | Kind::Challenge | Kind::Welcome | Kind::Confirm | Kind::Opened | Kind::Known)) {
        Tone::Handshake
    } else if any(|kind| kind.renews()) {
        Tone::Renewal
    } else {
        Tone::Plain
    }
}

/// Whether a stretch is about a lock.
const fn is_hold(kind: IntervalKind) -> bool {
    matches!(kind, IntervalKind::Hold { .. })
}
