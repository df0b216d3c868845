//! What a command is run with: the global options, the agent to act through, and where its output goes.
//!
//! Decides: that an agent is opened when a command first asks for it, and its session closed when the command is over; that output is text for people
//! (`Display`) or JSON (`Serialize`), chosen here alone; and how several paths are treated: one that fails is reported, the others go on, the exit status
//! is the worst.

use crate::backend::{Backend, own_client};
use crate::execute::Own;
use crate::local::Failure;
use crate::options::Options;
use crate::show;
use crate::text::Text;
use cistern_client::Client;
use cistern_text::Progress;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt;

/// What a command is run with.
pub(crate) struct Ctx {
    options: Options,
    agent: Option<Backend>,
}

impl Ctx {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, agent: None }
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.options.json
    }

    /// A line for what is being done, unless the command is to be quiet.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.options.verbosity.quiet)
    }

    /// The agent to act through, with a session.
    pub(crate) fn agent(&mut self) -> Result<&mut Backend, Failure> {
        match &mut self.agent {
            Some(agent) => Ok(agent),
            none => Ok(none.insert(Backend::open(&self.options)?)),
        }
    }

    /// A client of this command's own, with a session, whatever agent the host has: what an operator may do is no business of the agent's
    /// other users.
    pub(crate) fn operator(&mut self) -> Result<&Client, Failure> {
        if self.agent.is_none() {
            self.agent = Some(Backend::Own(own_client(&self.options, None)?, Own::default()));
        }
        match &self.agent {
            Some(Backend::Own(client, _)) => Ok(client),
            _ => Err(Failure::usage("an operator's command goes through no host's agent")),
        }
    }

    /// An act for several paths: failures are reported at once, the worst exit status is the command's.
    pub(crate) fn each(&mut self, paths: &[OsString], mut act: impl FnMut(&mut Self, &Text) -> Result<(), Failure>) -> Result<(), Failure> {
        self.agent()?;
        let mut worst: Option<Failure> = None;
        for path in paths {
            if let Err(failure) = act(self, &path.as_os_str().into()) {
                if failure.message.is_empty() {
                    return Err(failure);
                }
                show::error("cistern", &failure);
                let exit = worst.as_ref().map_or(0, |f| f.exit).max(failure.exit);
                worst = Some(Failure { exit, message: String::new(), ..failure });
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// Prints a result.
    pub(crate) fn print(&self, output: &(impl Serialize + fmt::Display)) -> Result<(), Failure> {
        self.print_with(output, || output.to_string())
    }

    /// Prints a result whose text is given; an empty one is nothing.
    pub(crate) fn print_with(&self, output: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.is_json() { show::json(output) } else { show::text(&text()) }
    }

    /// Prints a list: each element a line of JSON, or all of it as text.
    pub(crate) fn print_rows(&self, rows: &[impl Serialize], text: impl AsRef<str>) -> Result<(), Failure> {
        if self.is_json() { rows.iter().try_for_each(show::json) } else { show::text(text.as_ref()) }
    }

    /// Prints contents as they are.
    pub(crate) fn print_bytes(&self, output: impl FnOnce() -> Value, raw: &[u8]) -> Result<(), Failure> {
        if self.is_json() { show::json(&output()) } else { show::bytes(raw) }
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.close();
        }
    }
}
