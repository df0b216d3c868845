//! Lines for people: a message a line.
//!
//! Decides: what stands on a line and in what order; what is added to the words of a message from what was seen before: sent again, which
//! request it answers, from and until when it renews. Place in the walk: the end of it, for people; `json` is the end for programs.
//! Leaves to others: words (`words`), fields (`fields`), what was seen before (`notes`).

use crate::fields;
use crate::follow::Aside;
use crate::labels::Labels;
use crate::notes::{Beginning, Lease, Note, Notes};
use crate::packet::Packet;
use crate::time::{Clock, span};
use crate::words::{short, words};
use cistern_wire::{DatagramTree, Kind, Message};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

/// Writes lines.
#[derive(Debug)]
pub struct Lines {
    clock: Clock,
    verbose: u8,
    /// Packet numbers as they are, not counted from the first of their session.
    absolute: bool,
    /// Names of the inputs, if there are several to tell apart.
    inputs: Vec<String>,
}

impl Lines {
    /// `verbose` counts the `-v`s; `absolute`: packet numbers are shown as they are; `inputs` are the names to show before each line, none
    /// if there is one input.
    #[must_use]
    pub const fn new(clock: Clock, verbose: u8, absolute: bool, inputs: Vec<String>) -> Self {
        Self { clock, verbose, absolute, inputs }
    }

    /// Writes a datagram: those of its messages that are to be shown, or why it has none; behind the time what stands `aside`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn datagram(
        &mut self,
        out: &mut impl Write,
        labels: &Labels,
        packet: &Packet<'_>,
        notes: &Notes,
        aside: Option<&Aside>,
        shown: &[bool],
    ) -> io::Result<()> {
        let tree = (self.verbose > 0).then(|| DatagramTree::of(packet.bytes));
        let input = self.inputs.get(packet.input).map_or(String::new(), |name| format!("{name}: "));
        let time = self.clock.line(packet.at);
        let lease = aside.map_or(String::new(), |aside| format!("[{:>13}] ", aside.lease.words()));
        let moved = aside.and_then(|aside| aside.moved_from).map_or(String::new(), |from| format!(" (moved, was {from})"));
        let head = format!("{input}{time}{lease}{}{moved} > {}", labels.show(packet.from), labels.show(packet.to));
        match &packet.content {
            Err(reason) => writeln!(out, "{head}  MALFORMED: {reason}; {} bytes, which whoever receives them drops", packet.bytes.len())?,
            Ok(datagram) => {
                let session = if datagram.header.session.0 == 0 { "-".to_owned() } else { short(datagram.header.session) };
                let copy = if notes.copy { " (copy)" } else { "" };
                let number = self.counted(notes.first, datagram.header.packet, datagram.header.from_server);
                let mut begin = format!("{head}  {session} p{number}{copy}  ");
                // Later messages of the datagram stand under the first, behind the time's place, so that they are seen to belong to it.
                let margin = input.chars().count() + time.chars().count();
                for (at, message) in datagram.messages().enumerate() {
                    let (Some(true), Some(note)) = (shown.get(at), notes.messages.get(at)) else { continue };
                    writeln!(out, "{begin}{}", self.message(packet, notes, &message, note))?;
                    begin = format!("{:margin$}  + ", "");
                    if let Some(tree) = tree.as_ref().and_then(|tree| tree.messages.get(at)) {
                        fields::message(out, &tree.node)?;
                    }
                }
            }
        }
        if let Some(tree) = &tree {
            if packet.content.is_err() {
                tree.messages.iter().try_for_each(|message| fields::message(out, &message.node))?;
            }
            fields::header(out, tree)?;
        }
        if self.verbose > 1 {
            fields::hex(out, packet.bytes)?;
        }
        Ok(())
    }

    /// What stands on the lines of the messages that are to be shown, without time and ends; of a datagram that does not parse, why.
    #[must_use]
    pub fn texts(&self, packet: &Packet<'_>, notes: &Notes, shown: &[bool]) -> Vec<String> {
        match &packet.content {
            Err(reason) => vec![format!("MALFORMED: {reason}")],
            Ok(datagram) => {
                let noted = datagram.messages().zip(&notes.messages).zip(shown);
                noted.filter(|(_, shown)| **shown).map(|((message, note), _)| self.message(packet, notes, &message, note)).collect()
            }
        }
    }

    /// The same in short: what each message is and means, without what was seen before it.
    #[must_use]
    pub fn heads(&self, packet: &Packet<'_>, notes: &Notes, shown: &[bool]) -> Vec<String> {
        let Ok(datagram) = &packet.content else { return vec!["MALFORMED".to_owned()] };
        let noted = datagram.messages().zip(&notes.messages).zip(shown);
        let head = |message: &Message<'_>, note: &Note| {
            let name = note.numbers.name.map_or(String::new(), |name| format!(" {name}"));
            format!("{}{name}: {}", message.kind().name(), words(message))
        };
        noted.filter(|(_, shown)| **shown).map(|((message, note), _)| head(&message, note)).collect()
    }

    /// The time of a line in the lines' form.
    pub fn moment(&mut self, at: Duration) -> String {
        self.clock.line(at).trim_end().to_owned()
    }

    /// A packet number as it is shown.
    fn counted(&self, first: Beginning, number: u64, from_server: bool) -> u64 {
        if self.absolute { number } else { first.counted(number, from_server) }
    }

    fn message(&self, packet: &Packet<'_>, notes: &Notes, message: &Message<'_>, note: &Note) -> String {
        let kind = message.kind();
        let mut line = kind.name().to_owned();
        // Writing to a string does not fail.
        if let Some(name) = note.numbers.name {
            let _ = write!(line, " {name}");
        }
        if let Some(about) =
            note.about.filter(|_| !matches!(kind, Kind::Challenge | Kind::Welcome | Kind::Refuse | Kind::Opened | Kind::Known))
        {
            let _ = write!(line, " ({})", about.name());
        }
        let _ = write!(line, ": {}", words(message));
        if let Some(again) = note.again {
            let times = again.times + 1;
            let since = span(packet.at.saturating_sub(again.first));
            let _ = write!(line, " [sent again: {times} times now, first {since} ago]");
        }
        if kind.renews() {
            line.push_str(&self.renewal(packet, notes, note));
        } else if let (Kind::Receipt, Some(sent)) = (kind, note.sent) {
            let _ = write!(line, " [{} after it was sent]", span(packet.at.saturating_sub(sent)));
        }
        line
    }

    /// From and until when the answer makes the lease count.
    fn renewal(&self, packet: &Packet<'_>, notes: &Notes, note: &Note) -> String {
        let Some(echo) = note.numbers.echo else { return String::new() };
        let echo = self.counted(notes.first, echo, false);
        let Some(sent) = note.sent else { return format!("; renews the lease from p{echo} on, whose sending was not seen") };
        let sent = format!("from p{echo} on, sent {} ago", span(packet.at.saturating_sub(sent)));
        match note.lease {
            Some(Lease { moved: false, until: Some(until) }) => {
                format!("; renews the lease {sent}, which lasts until {} already", self.clock.mention(until))
            }
            Some(Lease { until: Some(until), .. }) => format!("; renews the lease {sent}: until {}", self.clock.mention(until)),
            // The session's WELCOME was not seen.
            _ => format!("; renews the lease {sent}"),
        }
    }
}
