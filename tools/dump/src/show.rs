//! The walk of a datagram through the program: captured, decoded, remembered, filtered, shown.
//!
//! Decides: the order of these, when output is flushed (whenever there is nothing to read for now), and what is said at the end: live and
//! when interrupted, how much there was; always, what could not be read. Leaves to others: each step.

use crate::args::Show;
use crate::failure::{EXIT_IO, Failure};
use crate::filter::{Filter, Shown};
use crate::follow::{Aside, Follow};
use crate::input::{Inputs, Next, tell};
use crate::labels::Labels;
use crate::ladder::Ladder;
use crate::leases::Leases;
use crate::notes::{self, Notes};
use crate::packet::{Packet, Recogniser};
use crate::stats::Stats;
use crate::stop::Stop;
use crate::time::{Clock, TimeForm};
use crate::{line, record};
use cistern_audit::Story;
use cistern_capture::{Datagram, Writer};
use cistern_wire::{Message, segments};
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// What becomes of what is shown.
enum View {
    Lines(line::Lines),
    Records(Vec<String>),
    Stats(Box<Stats>),
    Ladder(Box<Ladder>),
    Leases(Box<Leases>),
}

/// Shows what the command line asks for; the exit status.
///
/// # Errors
/// What kept it from doing so, with the exit status.
pub fn show(args: &Show) -> Result<u8, Failure> {
    let stop = Stop::catch()?;
    let mut inputs = Inputs::open(args)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut walk = Walk::new(args, &inputs)?;
    while !stop.is_asked() {
        match inputs.advance() {
            Next::Datagram(input, datagram) => {
                if !walk.captured(&mut out, input, datagram)? {
                    break;
                }
            }
            Next::Dry => {
                walk.flush(&mut out)?;
                inputs.wait(&stop);
            }
            Next::End => break,
        }
    }
    walk.finish(&mut out)?;
    walk.tell_followed();
    if args.interface.is_some() || stop.is_asked() {
        let captured = inputs.captured();
        tell(&format!("{captured} datagrams captured, {} shown, {} not Cistern", walk.shown, walk.foreign));
    } else if walk.foreign > 0 {
        tell(&format!("{} UDP datagrams are not Cistern's", walk.foreign));
    }
    Ok(inputs.finish())
}

struct Walk<'a> {
    filter: Filter<'a>,
    labels: Labels,
    story: Story,
    recogniser: Recogniser,
    follow: Option<Follow>,
    view: View,
    file: Option<Writer<File>>,
    /// How many datagrams are shown at most.
    most: u64,
    shown: u64,
    foreign: u64,
}

impl<'a> Walk<'a> {
    fn new(args: &'a Show, inputs: &Inputs) -> Result<Self, Failure> {
        let form = &args.form;
        let names = Some(inputs.names()).filter(|names| names.len() > 1).unwrap_or_default();
        let view = if let Some(path) = &form.ladder {
            View::Ladder(Box::new(Ladder::new(path)?))
        } else if form.stats {
            View::Stats(Box::new(Stats::new(form.json, form.renewing_at)))
        } else if form.leases {
            View::Leases(Box::new(Leases::new(form.json)))
        } else if form.json {
            View::Records(names)
        } else {
            View::Lines(line::Lines::new(Clock::new(TimeForm::by_count(form.times)), form.verbose, form.absolute, names))
        };
        let story = notes::story(form.lease_period);
        let file = args.write.as_ref().map(|path| Writer::create(path)).transpose();
        Ok(Self {
            filter: Filter::new(&args.select),
            labels: Labels::new(form.names.clone(), form.labels),
            story: if form.ladder.is_some() { story.with_intervals() } else { story },
            recogniser: Recogniser::default(),
            follow: form.follow.clone().map(Follow::new),
            view,
            file: file.map_err(|e| Failure::new(EXIT_IO, e.to_string()))?,
            most: args.select.count.unwrap_or(u64::MAX),
            shown: 0,
            foreign: 0,
        })
    }

    /// Takes what was captured as one datagram; false if no further one can be shown.
    fn captured(&mut self, out: &mut impl Write, input: usize, captured: Datagram) -> Result<bool, Failure> {
        let parts = segments::split(&captured.payload);
        if parts.len() == 1 {
            return self.datagram(out, input, &captured);
        }
        for part in parts {
            let payload = captured.payload.slice_ref(part);
            if !self.datagram(out, input, &Datagram { payload, ..captured.clone() })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a datagram; false if no further one can be shown.
    fn datagram(&mut self, out: &mut impl Write, input: usize, datagram: &Datagram) -> Result<bool, Failure> {
        let packet = Packet::new(input, datagram);
        if !self.recogniser.is_ours(&packet) {
            self.foreign += 1;
            return Ok(true);
        }
        let notes = self.note(&packet);
        match &mut self.view {
            View::Ladder(ladder) => ladder.see(&self.story),
            View::Leases(leases) => leases.see(&notes.events),
            _ => {}
        }
        let Some(follow) = &mut self.follow else { return self.look(out, &packet, &notes, None) };
        for held in follow.take(&self.story, datagram, &packet, notes) {
            let packet = Packet::new(held.input, &held.datagram);
            if !self.look(out, &packet, &held.notes, Some(&held.aside))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shows what is to be shown of a datagram; false if no further one can be.
    fn look(&mut self, out: &mut impl Write, packet: &Packet<'_>, notes: &Notes, aside: Option<&Aside>) -> Result<bool, Failure> {
        match self.filter.look(packet) {
            Shown::Nothing => Ok(true),
            Shown::NothingMore => Ok(false),
            Shown::Messages(shown) => {
                self.show(out, packet, notes, aside, &shown)?;
                self.shown += 1;
                Ok(self.shown < self.most)
            }
        }
    }

    fn note(&mut self, packet: &Packet<'_>) -> Notes {
        let notes = Notes::take(&mut self.story, packet);
        let Ok(datagram) = &packet.content else { return notes };
        let from_server = datagram.header.from_server;
        let agent = if from_server { packet.to } else { packet.from };
        let hello = datagram.messages().any(|message| matches!(message, Message::Hello(_)));
        if let Some(label) = notes.label.as_deref().filter(|_| hello || datagram.header.session.0 != 0) {
            self.labels.learn(agent, label);
        }
        notes
    }

    fn show(
        &mut self,
        out: &mut impl Write,
        packet: &Packet<'_>,
        notes: &Notes,
        aside: Option<&Aside>,
        shown: &[bool],
    ) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.write(packet.at, packet.from, packet.to, packet.bytes).map_err(|e| unwritten(&e))?;
        }
        match &mut self.view {
            View::Lines(lines) => lines.datagram(out, &self.labels, packet, notes, aside, shown)?,
            View::Records(names) => {
                let input = names.get(packet.input).map(String::as_str);
                record::datagram(out, input, &self.labels, packet, notes, aside, shown)?;
            }
            View::Leases(leases) => leases.datagram(packet, notes),
            View::Stats(stats) => stats.datagram(packet, notes, shown),
            View::Ladder(ladder) => ladder.show(&self.story, &self.labels, packet, notes, shown)?,
        }
        Ok(())
    }

    /// Says if what was to be followed was not one session.
    fn tell_followed(&self) {
        let Some(found) = self.follow.as_ref().map(Follow::found) else { return };
        match found.len() {
            0 => tell("no such session was seen; lines begin with the first 8 digits of theirs"),
            1 => {}
            _ => {
                let found: Vec<_> = found.iter().map(ToString::to_string).collect();
                tell(&format!("several sessions begin so, and all were followed: {}", found.join(", ")));
            }
        }
    }

    fn flush(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.flush().map_err(|e| unwritten(&e))?;
        }
        Ok(out.flush()?)
    }

    fn finish(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        match &self.view {
            View::Stats(stats) => stats.report(out)?,
            View::Leases(leases) => leases.report(&self.story, out)?,
            View::Ladder(ladder) => ladder.write(&self.story)?,
            View::Lines(_) | View::Records(_) => {}
        }
        self.flush(out)
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("cannot write the capture: {error}"))
}
