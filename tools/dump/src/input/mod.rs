//! Where datagrams come from: files, standard input, a file that grows, an interface; several merged by time.
//!
//! Decides: the order in which the datagrams of several inputs come (by time; of equal ones, by the order of the command line), and that
//! an input which cannot be read is named and left out, not the end of the others. Place in the walk: its beginning.
//! Invariant: nothing here blocks but `wait`, so what was seen can always be shown before the next datagram comes.
//! Leaves to others: capture formats (`cistern-capture`), interfaces (`live`).

mod live;
mod source;

use crate::args::Show;
use crate::failure::{EXIT_DAMAGED, EXIT_IO, EXIT_NO_INPUT, EXIT_USAGE, Failure};
use crate::stop::Stop;
use cistern_capture::{Datagram, ReadError, Reader};
use cistern_seal::KeyLog;
use cistern_wire::Printable;
use live::Live;
use source::{Flow, Source};
use std::fs;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::time::Duration;

/// How long a file that grows is left alone before it is looked at again.
const GROWS: Duration = Duration::from_millis(100);

/// What an input gives next.
#[derive(Debug)]
pub enum Next {
    /// A datagram, and the index of its input.
    Datagram(usize, Datagram),
    /// Nothing now: show what there is, and [`Inputs::wait`].
    Dry,
    /// Nothing more.
    End,
}

/// All inputs.
pub struct Inputs {
    inputs: Vec<Input>,
    /// What opens sealed datagrams.
    keys: KeyLog,
    /// The worst that happened to any of them, as an exit status.
    exit: u8,
}

struct Input {
    name: String,
    reader: Reader<Box<dyn Read>>,
    flow: Flow,
    /// The next datagram, if it has been read.
    next: Option<Datagram>,
    ended: bool,
    /// Whether it was told that it is no capture: then there is nothing to tell of what it holds.
    foreign: bool,
}

impl Inputs {
    /// Opens what the command line names.
    ///
    /// # Errors
    /// Names the first that cannot be opened.
    pub fn open(show: &Show) -> Result<Self, Failure> {
        let mut inputs = Vec::new();
        if let Some(interface) = &show.interface {
            let (live, flow) = Live::open(interface)?;
            inputs.push(Input::new(interface.clone(), Box::new(live), flow));
        }
        if show.tail && show.files.len() != 1 {
            return Err(Failure::new(EXIT_USAGE, "--tail takes one file: of several it is not known which has the next datagram"));
        }
        for file in &show.files {
            let (source, flow) = Source::open(file, show.tail)?;
            inputs.push(Input::new(file.display().to_string(), Box::new(source), flow));
        }
        Ok(Self { inputs, keys: show.key_log.as_deref().map_or_else(|| Ok(KeyLog::default()), read_keys)?, exit: 0 })
    }

    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.inputs.iter().map(|input| input.name.clone()).collect()
    }

    /// The next datagram of all inputs. Trouble with one is told on standard error and ends it.
    pub fn advance(&mut self) -> Next {
        let mut dry = false;
        for input in &mut self.inputs {
            while input.next.is_none() && !input.ended {
                match input.read() {
                    Ok(true) => {}
                    Ok(false) => {
                        dry = true;
                        break;
                    }
                    Err((exit, text)) => {
                        tell(&text);
                        self.exit = worse(self.exit, exit);
                    }
                }
            }
        }
        // Without the next of every input it is not known which comes first.
        if dry {
            return Next::Dry;
        }
        let first = self.inputs.iter().enumerate().filter_map(|(at, input)| Some((input.next.as_ref()?.at, at))).min();
        match first.and_then(|(_, at)| Some((at, self.inputs.get_mut(at)?.next.take()?))) {
            Some((at, mut datagram)) => {
                if let Some(plain) = self.keys.open(&datagram.payload) {
                    datagram.payload = plain.into();
                }
                Next::Datagram(at, datagram)
            }
            None => Next::End,
        }
    }

    /// Waits until an input may have more, or the process is asked to end.
    pub fn wait(&self, stop: &Stop) {
        let waiting = self.inputs.iter().find(|input| input.next.is_none() && !input.ended);
        match waiting.map(|input| input.flow.readable()) {
            Some(Some(fd)) => stop.wait(Some(fd), None),
            Some(None) => stop.wait(None, Some(GROWS)),
            None => {}
        }
    }

    /// How many UDP datagrams were captured, of whatever protocol.
    #[must_use]
    pub fn captured(&self) -> u64 {
        self.inputs.iter().map(|input| input.reader.tally().datagrams).sum()
    }

    /// Names on standard error what could not be read; the exit status for it. `live` inputs and those that were not read to their end
    /// have no end that could be broken.
    #[must_use]
    pub fn finish(&self) -> u8 {
        let mut exit = self.exit;
        for input in self.inputs.iter().filter(|input| input.flow.drops() > 0) {
            tell(&format!(
                "{}: the kernel dropped at least {} packets that were not taken in time: what is missing may have been said in them; write a \
                 capture instead (`--pcap` of the programs, or tcpdump) and read that",
                input.name,
                input.flow.drops()
            ));
        }
        for input in self.inputs.iter().filter(|input| !input.foreign) {
            let mut tally = input.reader.tally().clone();
            if !input.ended {
                tally.unfinished_bytes = 0;
            }
            if !tally.is_clean() {
                tell(&format!("{}: {}", input.name, tally.to_string().replace('\n', &format!("\ncistern-dump: {}: ", input.name))));
            }
            if tally.is_damaged() {
                exit = worse(exit, EXIT_DAMAGED);
            }
        }
        exit
    }
}

/// Reads a key log.
///
/// # Errors
/// It is not there, or a line of it is damaged.
pub(crate) fn read_keys(path: &Path) -> Result<KeyLog, Failure> {
    let text = fs::read_to_string(path).map_err(|e| Failure::new(EXIT_NO_INPUT, format!("key log {}: {e}", path.display())))?;
    let mut keys = KeyLog::default();
    keys.read(&text).map_err(|line| Failure::new(EXIT_DAMAGED, format!("key log {}: line {line} is damaged", path.display())))?;
    Ok(keys)
}

/// Of two troubles, the one that the exit status tells: a failure of the system before a damaged file.
fn worse(one: u8, other: u8) -> u8 {
    one.max(other)
}

/// Says something on standard error.
pub(crate) fn tell(text: &str) {
    // If standard error is closed, the exit status is all that can be said.
    let _ = writeln!(io::stderr(), "cistern-dump: {}", Printable(text));
}

impl Input {
    fn new(name: String, source: Box<dyn Read>, flow: Flow) -> Self {
        Self { name, reader: Reader::new(source), flow, next: None, ended: false, foreign: false }
    }

    /// Reads on; false if there is nothing now.
    fn read(&mut self) -> Result<bool, (u8, String)> {
        match self.reader.next_datagram() {
            Ok(Some(datagram)) => {
                self.next = Some(datagram);
                Ok(true)
            }
            Ok(None) if self.flow.is_over() || self.reader.tally().damaged_at.is_some() => {
                self.ended = true;
                let tally = self.reader.tally();
                if tally.frames == 0 && tally.is_damaged() {
                    self.foreign = true;
                    return Err((EXIT_DAMAGED, format!("{}: cut off or damaged before its first frame, or no capture", self.name)));
                }
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error @ ReadError::NotACapture(_)) => {
                (self.ended, self.foreign) = (true, true);
                Err((EXIT_DAMAGED, format!("{}: {error}", self.name)))
            }
            Err(error @ ReadError::Io(_)) => {
                self.ended = true;
                Err((EXIT_IO, format!("{}: {error}", self.name)))
            }
        }
    }
}
