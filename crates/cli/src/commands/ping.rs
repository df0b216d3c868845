//! `cistern ping`: round trips to the server's application.
//!
//! Decides: what counts as lost, and the summary. Leaves to others: through whom it acts (`backend`, `contact`).

use super::Run;
use crate::backend::{Line, host_agent};
use crate::contact::{self, Contact, Wanted, tell_refused};
use crate::ctx::Ctx;
use crate::execute::EXIT_UNAVAILABLE;
use crate::local::{Failure, Request, micros};
use crate::options::Options;
use crate::show;
use crate::signals::End;
use cistern_text::duration;
use clap::Args;
use serde_json::json;
use std::time::Duration;

const PING_HELP: &str = "\
Each round trip that takes longer than --timeout (2 s by default) counts as lost.

Examples:
  cistern ping
  cistern ping --server 10.0.0.1 -c 10 -i 200ms

Exit status:
  0   the server answered at least once
  2   wrong usage or settings
  69  it never answered, or it refuses a session";

/// Measure round trips to the server
#[derive(Args, Debug)]
#[command(after_help = PING_HELP)]
pub(crate) struct Ping {
    /// Number of pings
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Time between two pings
    #[arg(short = 'i', long, value_parser = duration, default_value = "1s", value_name = "DURATION")]
    interval: Duration,
}

/// How long a round trip may take, if nobody says otherwise.
const GIVE_UP: Duration = Duration::from_secs(2);

/// Time for the clean end of the session.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Whom to ask.
enum Through {
    Own(Contact),
    Host(Line),
}

impl Through {
    /// One round trip, in microseconds.
    fn once(&mut self, told: &mut bool) -> Result<u64, Failure> {
        match self {
            Self::Own(contact) => {
                // Said once: every further try meets the same port.
                let tell = |what: &str| {
                    if !std::mem::replace(told, true) {
                        tell_refused(what);
                    }
                };
                Ok(micros(contact.wait(contact.client.ping(), tell)?))
            }
            Self::Host(line) => line.call(&Request::Ping)?.pong(),
        }
    }
}

/// What became of the round trips.
#[derive(Default)]
struct RoundTrips {
    times: Vec<u64>,
    lost: u32,
}

impl Run for Ping {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = End::catch()?;
        let (options, json) = (ctx.options(), ctx.is_json());
        let mut through = match host_agent(options)? {
            Some(socket) => Through::Host(Line::open(&socket)?.within(options.timeout.or(Some(GIVE_UP)))),
            None => {
                let options = Options { timeout: options.timeout.or(Some(GIVE_UP)), ..options.clone() };
                Through::Own(contact::start(&options, Wanted::default())?)
            }
        };
        let (mut tally, mut told) = (RoundTrips::default(), false);
        let mut result = Ok(());
        for turn in 1..=self.count {
            if turn > 1 && end.wait(self.interval) {
                break;
            }
            let answered = through.once(&mut told);
            result = tally.note(turn, answered, json);
            if result.is_err() || end.is_asked() {
                break;
            }
        }
        if let Through::Own(contact) = through
            && let Err(error) = contact::close(&contact.client, CLOSE_TIME)
        {
            log::debug!("the session was not closed: {error}");
        }
        result?;
        tally.summary(json)?;
        Failure::of_status(if tally.times.is_empty() { EXIT_UNAVAILABLE } else { 0 })
    }
}

impl RoundTrips {
    /// Shows one round trip. An error that no further try mends ends the command.
    fn note(&mut self, turn: u32, answered: Result<u64, Failure>, as_json: bool) -> Result<(), Failure> {
        match answered {
            Ok(us) => {
                self.times.push(us);
                if as_json {
                    return show::json(&json!({ "seq": turn, "round_trip_us": us }));
                }
                show::line(format!("ACK from the server's application: seq={turn} time={} ms", in_ms(us)))
            }
            Err(failure) if matches!(failure.code.as_str(), "UNREACHABLE" | "TIMED_OUT") => {
                self.lost += 1;
                if as_json {
                    return show::json(&json!({ "seq": turn, "lost": true }));
                }
                show::line(format!("no answer: seq={turn}"))
            }
            Err(failure) => Err(failure),
        }
    }

    fn summary(&mut self, as_json: bool) -> Result<(), Failure> {
        self.times.sort_unstable();
        let answered = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let sent = answered + self.lost;
        let percent = (self.lost * 100).checked_div(sent).unwrap_or(0);
        let spread = (!self.times.is_empty()).then(|| [self.times[0], self.times[self.times.len() / 2], self.times[self.times.len() - 1]]);
        if as_json {
            let [min, median, max] = spread.map_or([None; 3], |spread| spread.map(Some));
            let lost = self.lost;
            return show::json(
                &json!({ "sent": sent, "answered": answered, "lost": lost, "min_us": min, "median_us": median, "max_us": max }),
            );
        }
        let spread = spread.map(|spread| spread.map(in_ms).join("/"));
        let spread = spread.map_or_else(String::new, |spread| format!(", min/median/max {spread} ms"));
        show::line(format!("{sent} sent, {answered} answered, {percent} % lost{spread}"))
    }
}

fn in_ms(us: u64) -> String {
    format!("{}.{:03}", us / 1_000, us % 1_000)
}
