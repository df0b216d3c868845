//! `cistern top`: a running server, live: what its page shows, in a terminal.
//!
//! Decides: how a look is shown: a screen that is redrawn, where both ends are a terminal; else all rows as text, or as a line of JSON. A server that
//! does not answer for a while ends the command only if it never did.
//! Leaves to others: what is told (`overview`), through whom it comes (`admin`), lines and rates (`board`), the terminal (`screen`).

mod board;
mod screen;

use super::admin::{Control, OPERATOR};
use super::{Run, unless_unread};
use crate::ctx::Ctx;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use crate::overview::OverviewReport;
use crate::show;
use crate::signals::End;
use board::{Board, rows_of};
use cistern_text::duration;
use clap::Args;
use screen::Screen;
use serde_json::json;
use std::time::{Duration, Instant};

const TOP_HELP: &str = "\
On a terminal the screen is redrawn until `q` or Ctrl-C; elsewhere, and with --once, every row that the server tells is printed. Of each table it tells \
the first rows: sessions that fail, then those that wait, then those that hold locks; locks that somebody waits for before others. All of them: \
`cistern admin sessions`, `cistern locks`.

It takes what an operator takes: the server's control socket on its host, or an operator's key from anywhere, for which locks and demands are left out: they take rights.

Examples:
  cistern top
  cistern top --once
  cistern top --once --json
  cistern top --server meta.example.net           from elsewhere, with an operator's key

Exit status:
  0   success
  69  no server answers";

/// Watch a running server: sessions, locks, failovers, rates
#[derive(Args, Debug)]
#[command(after_help = TOP_HELP)]
pub(crate) struct TopOfServer {
    #[command(flatten)]
    server: Control,
    /// Time between two refreshes
    #[arg(short = 'i', long, value_parser = duration, default_value = "1s", value_name = "DURATION")]
    interval: Duration,
    /// Stop after N refreshes
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Print one look, without a screen
    #[arg(long, conflicts_with = "count")]
    once: bool,
}

/// Least time between two looks: the server makes each in its loop.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How a look is shown.
enum Shown {
    Json,
    Rows,
    Screen(Screen),
}

impl Run for TopOfServer {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = End::catch()?;
        // Before the screen is taken: what fails now is told where it can be read.
        let first = self.look(ctx)?;
        let form = if ctx.is_json() {
            Shown::Json
        } else if !self.once && Screen::is_possible() {
            Shown::Screen(Screen::take()?)
        } else {
            Shown::Rows
        };
        unless_unread(self.watch(ctx, &end, first, form))
    }
}

impl TopOfServer {
    fn look(&self, ctx: &mut Ctx) -> Result<(Instant, OverviewReport), Failure> {
        let answer = self.server.ask(ctx, &json!({ "op": "overview" }))?;
        let report = serde_json::from_value(answer);
        let report = report.map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("the server's answer cannot be read: {e}")))?;
        Ok((Instant::now(), report))
    }

    fn watch(&self, ctx: &mut Ctx, end: &End, first: (Instant, OverviewReport), mut form: Shown) -> Result<(), Failure> {
        let most = if self.once { Some(1) } else { self.count };
        let mut board = Board::default();
        let mut look = Ok(first);
        for looks in 1.. {
            match (&mut form, look) {
                (Shown::Json, look) => show::json(&look?.1)?,
                (Shown::Rows, look) => show::line(rows_of(&look?.1))?,
                (Shown::Screen(screen), look) => {
                    match look {
                        Ok((at, report)) => board.look(at, report),
                        Err(failure) => board.miss(&failure),
                    }
                    screen.draw(|width, height| board.lines(width, height))?;
                }
            }
            let wait = self.interval.max(INTERVAL_MIN);
            let is_over = match &mut form {
                _ if most.is_some_and(|most| looks >= most) => true,
                Shown::Screen(screen) => screen.wait(end, wait, |width, height| board.lines(width, height))?,
                Shown::Json | Shown::Rows => end.wait(wait),
            };
            if is_over {
                break;
            }
            look = self.look(ctx);
        }
        Ok(())
    }
}
