//! Runs a command by `cistern_run` with a lease made up on the command line: for the tests of this crate, and to try by hand
//! what a command does when its lock goes away.
//!
//! Place: the caller's process of the crate's picture, without a protocol behind it. Decides nothing; what it
//! learns goes to a record file, a line each, with the instants it has given, so that tests compare instants and not speed.
//! Its options are not a promise; `run-probe --lease-ms 60000 --renew yes -- COMMAND…` is a start.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cistern_run::{At, Control, EXIT_FAILURE, Event, Runner, Settings, Until};

/// How often the made-up lease is renewed, and the files are looked for that end it.
const TURN: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Options {
    lease: Duration,
    term_lead: Duration,
    kill_lead: Duration,
    renew: bool,
    mute_when: Option<PathBuf>,
    uncertain_when: Option<PathBuf>,
    lost_when: Option<PathBuf>,
    left_settle: Option<Duration>,
    record: Option<Mutex<File>>,
    token: OsString,
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    if let Some(code) = cistern_run::hidden_main(std::env::args_os()) {
        return code;
    }
    match options().and_then(|options| run(&Arc::new(options))) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "run-probe: {error}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn options() -> io::Result<Options> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut options = Options { lease: Duration::from_secs(60), ..Options::default() };
    let mut args = std::env::args_os().skip(1);
    while let Some(name) = args.next() {
        let name = name.to_string_lossy().into_owned();
        if name == "--" {
            break;
        }
        let value = args.next().ok_or_else(|| wrong(format!("{name} needs a value")))?;
        let text = value.to_string_lossy().into_owned();
        let span = || text.parse().map(Duration::from_millis).map_err(|_| wrong(format!("{name}: `{text}` is not a number of ms")));
        match name.as_str() {
            "--lease-ms" => options.lease = span()?,
            "--term-lead-ms" => options.term_lead = span()?,
            "--kill-lead-ms" => options.kill_lead = span()?,
            "--renew" => options.renew = text == "yes",
            "--mute-when" => options.mute_when = Some(value.into()),
            "--uncertain-when" => options.uncertain_when = Some(value.into()),
            "--lost-when" => options.lost_when = Some(value.into()),
            "--left-settle-ms" => options.left_settle = Some(span()?),
            "--record" => options.record = Some(Mutex::new(File::create(&text)?)),
            "--token" => options.token = value,
            _ => return Err(wrong(format!("unknown option {name}"))),
        }
    }
    options.command = args.collect();
    if options.command.is_empty() { Err(wrong("no command after `--`".into())) } else { Ok(options) }
}

impl Options {
    fn record(&self, line: &str) {
        if let Some(file) = &self.record {
            let mut file = file.lock().expect("writing a line does not panic");
            file.write_all(format!("{line}\n").as_bytes()).expect("the record file can be written");
        }
    }

    /// The lease as if renewed now; recorded before it is given, so that the record never falls behind.
    fn renewed(&self) -> Until {
        let until = Until::leading(At::now().plus(self.lease), self.term_lead, self.kill_lead);
        for (name, at) in [("suspect", until.suspect_at), ("kill", until.kill_at), ("until", until.until)] {
            self.record(&format!("{name} {} {}", at.raw_ns, at.boot_ns));
        }
        until
    }

    /// Plays the lease: renews it, and says that it is uncertain or lost once the file that stands for this is there.
    fn feed(&self, control: &Control) {
        let (mut uncertain, mut lost) = (self.uncertain_when.clone(), self.lost_when.clone());
        let is_there = |path: &mut PathBuf| path.exists();
        loop {
            thread::sleep(TURN);
            let told = if lost.take_if(is_there).is_some() {
                control.lost()
            } else if uncertain.take_if(is_there).is_some() {
                control.uncertain()
            } else if self.renew && !self.mute_when.as_ref().is_some_and(|path| path.exists()) {
                control.certain_until(self.renewed())
            } else {
                Ok(())
            };
            if told.is_err() {
                return;
            }
        }
    }
}

fn run(options: &Arc<Options>) -> io::Result<u8> {
    let mut runner = Runner::new(&options.command[0]).args(&options.command[1..]).env("CISTERN_TOKEN", &options.token);
    if let Some(left_settle) = options.left_settle {
        runner = runner.settings(Settings { left_settle, ..Settings::default() });
    }
    let mut running = match runner.start(options.renewed()) {
        Ok(running) => running,
        Err(error) => {
            writeln!(io::stderr(), "run-probe: {error}")?;
            return Ok(error.code());
        }
    };
    let (command, guardian) = running.pids();
    options.record(&format!("guardian {guardian}"));
    options.record(&format!("command {}", command.unwrap_or(0)));
    options.record("ready");
    let (feeder, control) = (Arc::clone(options), running.control());
    thread::spawn(move || feeder.feed(&control));
    let outcome = loop {
        let Some(event) = running.wait_event(None) else { continue };
        options.record(&format!("event {event:?}"));
        if let Event::TreeGone(outcome) = event {
            break outcome;
        }
    };
    let gone = At::now();
    options.record(&format!("gone {} {}", gone.raw_ns, gone.boot_ns));
    Ok(outcome.code())
}
