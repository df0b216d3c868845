//! `cistern lease keepalive`.
//!
//! Decides when a lease is kept again: after a third of what it lasts. No answer is no end: a server that was away gives each lease its whole time
//! again; only the server's word that there is no such lease ends the command.

use super::SecretSource;
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, KeptLease, Request, Response};
use crate::show;
use crate::signals::End;
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

const KEEPALIVE_HELP: &str = "\
It is kept every third of its time, until this command is ended. Other hosts may keep the same lease beside it.

Examples:
  cistern lease keepalive --secret-file web1.secret /web1
  cistern lease keepalive --once --secret-file web1.secret /web1     in a job that runs every minute

Exit status:
  0   kept (--once), or ended by a signal
  1   there is no such lease any more, or the secret is another's
  2   wrong usage
  69  no answer from the server (--once)";

/// Shortest pause between two keep-alives.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Keep a named lease
#[derive(Args, Debug)]
#[command(after_help = KEEPALIVE_HELP)]
pub(crate) struct LeaseKeepalive {
    /// Path of the lease
    #[arg(value_name = "LEASE")]
    name: OsString,
    /// Keep it once
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    secret: SecretSource,
}

impl Run for LeaseKeepalive {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let request = Request::LeaseKeep { lease: self.name.as_os_str().into(), secret: self.secret.read()? };
        if self.once {
            let kept = ctx.agent()?.call(request)?.kept_lease()?;
            return ctx.print_with(&kept, || line(kept));
        }
        let end = End::catch()?;
        loop {
            let pause = match ctx.agent()?.call(request.clone()).and_then(Response::kept_lease) {
                Ok(kept) => {
                    ctx.print_with(&kept, || line(kept))?;
                    Duration::from_millis(kept.left_ms / 3)
                }
                Err(failure) if matches!(failure.code.as_str(), "UNREACHABLE" | "TIMED_OUT" | "BUSY") => {
                    show::error("cistern", &failure);
                    PAUSE_MIN
                }
                Err(failure) => return Err(failure),
            };
            if end.wait(pause.max(PAUSE_MIN)) {
                return Ok(());
            }
        }
    }
}

fn line(kept: KeptLease) -> String {
    format!("kept for {}", show::span(kept.left_ms))
}
