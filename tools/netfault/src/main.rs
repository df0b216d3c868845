//! `cistern-netfault`: runs a proxy, or commands one.
//!
//! Decides what is printed where (results to standard output, the log to standard error), and the exit status. Leaves to others: the command
//! line (`args`), the proxy (the library).

mod args;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use args::{Act, Cli, Ctl, Run};
use cistern_driver::{Address, ControlClient, DEFAULT_PORT, LogQueue, LogRepeats};
use cistern_netfault::command::Command;
use cistern_netfault::script::{self, Event};
use cistern_netfault::{Ended, Handle, Options, Proxy};
use cistern_wire::Printable;
use clap::Parser as _;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// How long a running proxy may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long the end waits for a reader of standard error.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// Why the program ends, and with which status.
struct Failure(u8, String);

impl Failure {
    fn usage(what: impl ToString) -> Self {
        Self(2, what.to_string())
    }

    fn failed(what: impl ToString) -> Self {
        Self(1, what.to_string())
    }
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|wrong| usage(&wrong));
    let env = env_logger::Env::new().filter_or("CISTERN_LOG", "info");
    let log = LogQueue::default();
    let target = env_logger::Target::Pipe(Box::new(log.clone()));
    let mut builder = env_logger::Builder::from_env(env);
    builder.target(target).format(|out, record| {
        let style = out.default_level_style(record.level());
        let (time, level) = (out.timestamp_millis(), record.level());
        writeln!(out, "{time} {style}{level:<5}{style:#} {}", Printable(&record.args().to_string()))
    });
    let logger = builder.build();
    let most = logger.filter();
    // The first log of the process.
    if log::set_boxed_logger(Box::new(LogRepeats::new(logger))).is_ok() {
        log::set_max_level(most);
    }
    let result = match &cli.act {
        Some(Act::Ctl(args)) => ctl(args),
        Some(Act::Check { script }) => read_script(script).and_then(|events| say(format!("{} commands", events.len()))),
        None => run(&cli.run),
    };
    log.flush(FLUSH_TIME);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(status, what)) => {
            // If standard error is closed, the exit status is all that can be said.
            let _ = writeln!(io::stderr(), "cistern-netfault: {}", Printable(&what));
            ExitCode::from(status)
        }
    }
}

/// What is wrong with the command line, which quotes the words that were given.
fn usage(wrong: &clap::Error) -> ! {
    if !wrong.use_stderr() {
        wrong.exit()
    }
    for line in wrong.to_string().trim_end().split('\n') {
        let _ = writeln!(io::stderr(), "{}", Printable(line));
    }
    std::process::exit(wrong.exit_code())
}

fn say(line: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::failed(format!("standard output: {error}")))
}

fn run(args: &Run) -> Result<(), Failure> {
    let options = options(args)?;
    let (seed, server) = (options.seed, options.server);
    let proxy = Proxy::open(options).map_err(Failure::failed)?;
    end_by_signal(proxy.handle())?;
    let address = proxy.address();
    if args.json {
        say(json!({ "ready": true, "listen": address, "server": server, "seed": seed, "control": args.control }))?;
    } else {
        log::info!("agents are to use {address} instead of {server}; seed {seed}");
    }
    let ended = proxy.run().map_err(Failure::failed)?;
    tell_captures(&ended);
    if args.json { say(json!(ended.stats)) } else { say(ended.stats) }
}

fn options(args: &Run) -> Result<Options, Failure> {
    let server = args.server.as_ref().ok_or_else(|| Failure::usage("no server is named: use --server ADDRESS"))?;
    let server = one_of("--server", server, DEFAULT_PORT)?;
    let mut script = Vec::new();
    for text in &args.with {
        let command = Command::parse(text).map_err(|mistake| Failure::usage(format!("--with {text:?}: {mistake}")))?;
        script.push(Event { at: 0, until: None, command });
    }
    if let Some(path) = &args.script {
        script.extend(read_script(path)?);
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => cistern_driver::seed().map_err(Failure::failed)?.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes))),
    };
    Ok(Options {
        seed,
        script,
        agents_max: usize::try_from(args.agents_max).unwrap_or(usize::MAX),
        idle: args.idle,
        held_max: args.held_max,
        control: args.control.clone(),
        captures: [args.pcap.clone(), args.pcap_agents.clone(), args.pcap_server.clone()],
        ..Options::between(one_of("--listen", &args.listen, 0)?, server)
    })
}

/// An address of this host: IPv4 before IPv6, as servers and programs on one computer that are told nothing use 127.0.0.1.
fn one_of(option: &str, host: &Address, default_port: u16) -> Result<SocketAddr, Failure> {
    let addresses = host.resolve(Some(default_port)).map_err(|error| Failure::failed(format!("{option} {error}")))?;
    let chosen = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    chosen.copied().ok_or_else(|| Failure::failed(format!("{option} {host} has no address")))
}

fn read_script(path: &Path) -> Result<Vec<Event>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    script::parse(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// The first signal asks for a clean end, a second one ends the process at once.
fn end_by_signal(handle: Handle) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(broken)?;
    let wait = move || {
        let mut handle = Some(handle);
        for signal in signals.forever() {
            match handle.take() {
                Some(handle) => handle.end(),
                None => {
                    if let Err(error) = emulate_default_handler(signal) {
                        log::error!("cannot end at once: {error}");
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("cistern-signals".to_owned()).spawn(wait).map(drop).map_err(broken)
}

fn tell_captures(ended: &Ended) {
    for (path, recorded) in &ended.captures {
        let path = path.display();
        match &recorded.failure {
            Some(error) => log::error!("{path}: {error}; {} datagrams are in it, {} are missing", recorded.written, recorded.left_out),
            None if recorded.left_out > 0 => log::warn!("{path}: too slow for {} datagrams, which are missing", recorded.left_out),
            None => log::info!("{path}: {} datagrams", recorded.written),
        }
    }
}

fn ctl(args: &Ctl) -> Result<(), Failure> {
    let text = args.words.join(" ");
    let question = if text == "stats" { json!({ "stats": true }) } else { json!({ "command": text }) };
    if text != "stats" {
        Command::parse(&text).map_err(|mistake| Failure::usage(format!("{text:?}: {mistake}")))?;
    }
    let asked = ControlClient::connect(&args.control, ANSWER_MAX).and_then(|mut client| client.request(&question.to_string(), ANSWER_MAX));
    let line = asked.map_err(Failure::failed)?;
    let mut answer: Value =
        serde_json::from_str(&line).map_err(|error| Failure::failed(format!("not an answer of a fault proxy: {error}")))?;
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::failed(error));
    }
    let stats = answer["ok"].take();
    if args.json {
        return say(stats);
    }
    if text == "stats" {
        let stats = serde_json::from_value::<cistern_netfault::stats::Stats>(stats);
        return say(stats.map_err(|error| Failure::failed(format!("not the counts of a fault proxy: {error}")))?);
    }
    let rules = stats["rules"].as_array().into_iter().flatten();
    for rule in rules {
        say(format!("#{} {}", rule["number"], rule["rule"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}
