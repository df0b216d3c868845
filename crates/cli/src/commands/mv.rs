//! `cistern mv`: moves, renames, exchanges.

use super::Run;
use crate::backend::Backend;
use crate::ctx::Ctx;
use crate::holder;
use crate::local::{Failure, Request, Rule};
use crate::text::Text;
use cistern_client::FileType;
use clap::Args;
use std::ffi::OsString;

/// Move or rename
#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// Fail if the destination exists
    #[arg(short = 'n', long, visible_alias = "no-replace", conflicts_with = "exchange", overrides_with = "force")]
    no_clobber: bool,
    /// Exchange the two files atomically
    #[arg(long)]
    exchange: bool,
    /// Replace an existing destination (the default)
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    force: bool,
    /// Move, exchange or replace files although others hold locks on them, which is an error otherwise
    #[arg(long)]
    override_locks: bool,
    /// Source
    from: OsString,
    /// Destination, or a directory to move it into
    to: OsString,
}

impl Run for Mv {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let from = Text::from(self.from.as_os_str());
        let mut to = Text::from(self.to.as_os_str());
        let rule = match (self.no_clobber, self.exchange) {
            (true, _) => Rule::NoReplace,
            (_, true) => Rule::Exchange,
            _ => Rule::Replace,
        };
        let agent = ctx.agent()?;
        if rule != Rule::Exchange && is_directory(agent, &to)? {
            let name = from.0.rsplit(|b| *b == b'/').find(|name| !name.is_empty()).unwrap_or_default();
            to = to.join(name);
        }
        let moved = agent.call(Request::Rename { from: from.clone(), to: to.clone(), rule, force: self.override_locks });
        let moved = moved.map_err(|failure| if self.no_clobber { failure.precondition("EEXIST") } else { failure });
        let moved = moved.map_err(|failure| across_realms(failure, &from, &to));
        moved.map(drop).map_err(|failure| holder::named(agent, failure, &[&from, &to], "; --override-locks moves it nevertheless"))
    }
}

/// Copying is for a person to decide: locks, watches and other names stay with what is left behind.
fn across_realms(failure: Failure, from: &Text, to: &Text) -> Failure {
    if failure.code != "EXDEV" {
        return failure;
    }
    let message = format!(
        "{from} to {to}: they are in different realms, and nothing moves from one into another. Copy it, then remove the original: \
         `cistern export` and `cistern import`, of a file `cistern cat` and `cistern put`, then `cistern rm`"
    );
    Failure { message, ..failure }
}

fn is_directory(agent: &mut Backend, path: &Text) -> Result<bool, Failure> {
    match agent.stat(path, true) {
        Ok(found) => Ok(found.is(FileType::Directory)),
        Err(failure) if failure.code == "ENOENT" => Ok(false),
        Err(failure) => Err(failure),
    }
}
