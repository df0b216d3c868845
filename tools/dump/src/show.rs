//! The walk of a datagram through the program: captured, decoded, remembered, filtered, shown.
//!
//! Decides: the order of these, when output is flushed (whenever there is nothing to read for now), and what is said at the end: live and
//! when interrupted, how much there was; always, what could not be read. Leaves to others: each step.

use crate::args::Show;
use crate::failure::{EXIT_IO, Failure};
use crate::filter::{Filter, Shown};
use crate::input::{Inputs, Next, tell};
use crate::labels::Labels;
use crate::memory::{Memory, Notes};
use crate::packet::{Packet, Recogniser};
use crate::stats::Stats;
use crate::stop::Stop;
use crate::time::{Clock, Form};
use crate::{line, record};
use cistern_capture::Writer;
use cistern_wire::Message;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// What becomes of what is shown.
enum View {
    Lines(line::Lines),
    Records(Vec<String>),
    Stats(Box<Stats>),
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
                if !walk.datagram(&mut out, input, &datagram)? {
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
    memory: Memory,
    recogniser: Recogniser,
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
        let view = if form.stats {
            View::Stats(Box::new(Stats::new(form.json, form.renewing_at)))
        } else if form.json {
            View::Records(names)
        } else {
            View::Lines(line::Lines::new(Clock::new(Form::by_count(form.times)), form.verbose, names))
        };
        let file = args.write.as_ref().map(|path| Writer::create(path)).transpose();
        Ok(Self {
            filter: Filter::new(&args.select),
            labels: Labels::new(form.names.clone(), form.labels),
            memory: Memory::default(),
            recogniser: Recogniser::default(),
            view,
            file: file.map_err(|e| Failure::new(EXIT_IO, e.to_string()))?,
            most: args.select.count.unwrap_or(u64::MAX),
            shown: 0,
            foreign: 0,
        })
    }

    /// Takes a datagram; false if no further one can be shown.
    fn datagram(&mut self, out: &mut impl Write, input: usize, datagram: &cistern_capture::Datagram) -> Result<bool, Failure> {
        let packet = Packet::new(input, datagram);
        if !self.recogniser.is_ours(&packet) {
            self.foreign += 1;
            return Ok(true);
        }
        let notes = self.note(&packet);
        match self.filter.look(&packet) {
            Shown::Nothing => Ok(true),
            Shown::NothingMore => Ok(false),
            Shown::Messages(shown) => {
                self.show(out, &packet, &notes, &shown)?;
                self.shown += 1;
                Ok(self.shown < self.most)
            }
        }
    }

    fn note(&mut self, packet: &Packet<'_>) -> Notes {
        let Ok(datagram) = &packet.content else { return Notes::default() };
        let notes = self.memory.note(packet.at, datagram);
        let from_server = datagram.header.from_server;
        let agent = if from_server { packet.to } else { packet.from };
        let hello = datagram.messages().any(|message| matches!(message, Message::Hello(_)));
        if let Some(label) = notes.label.as_deref().filter(|_| hello || datagram.header.session.0 != 0) {
            self.labels.learn(agent, label);
        }
        notes
    }

    fn show(&mut self, out: &mut impl Write, packet: &Packet<'_>, notes: &Notes, shown: &[bool]) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.write(packet.at, packet.from, packet.to, packet.bytes).map_err(|e| unwritten(&e))?;
        }
        match &mut self.view {
            View::Lines(lines) => lines.datagram(out, &self.labels, packet, notes, shown)?,
            View::Records(names) => {
                let input = names.get(packet.input).map(String::as_str);
                record::datagram(out, input, &self.labels, packet, notes, shown)?;
            }
            View::Stats(stats) => stats.datagram(packet, notes, shown),
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.flush().map_err(|e| unwritten(&e))?;
        }
        Ok(out.flush()?)
    }

    fn finish(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        if let View::Stats(stats) = &self.view {
            stats.report(out)?;
        }
        self.flush(out)
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("cannot write the capture: {error}"))
}
