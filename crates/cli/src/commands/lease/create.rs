//! `cistern lease create`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, Request};
use crate::text::{Blob, Text};
use cistern_capture::private;
use cistern_text::duration;
use cistern_trust::TextForm as _;
use cistern_wire::limits::{LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const CREATE_HELP: &str = "\
LEASE is the path of a new file, whose directory is there. The lease lasts the time given from now on, and again from each keep-alive; \
then the server removes the file and all that is attached. Whoever has the secret can keep the lease and attach to it, from any host; it is printed, once.

Removing the file revokes the lease. A server that was restarted, or that takes over, gives each lease its whole time again.

Examples:
  cistern lease create /web1 --ttl 10m --secret-file web1.secret
  export CISTERN_LEASE_SECRET=$(cistern lease create /web2 --ttl 30s)

Exit status:
  0   made
  1   there is such a file already, or none can be made
  2   wrong usage";

/// Make a named lease
#[derive(Args, Debug)]
#[command(after_help = CREATE_HELP)]
pub(crate) struct LeaseCreate {
    /// Path of the new lease
    #[arg(value_name = "LEASE")]
    path: OsString,
    /// How long it lasts when nobody keeps it: 500ms to 30d
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    ttl: Duration,
    /// New file for the secret, for this user alone; else it is printed
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Contents of the lease's file: an address, say
    #[arg(long, value_name = "TEXT")]
    data: Option<OsString>,
}

impl Run for LeaseCreate {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let path: Text = self.path.as_os_str().into();
        let data = self.data.as_ref().map(|data| Blob(Text::from(data.as_os_str()).0));
        let ttl_ms = u32::try_from(self.ttl.as_millis()).ok().filter(|ms| (LEASE_TTL_MIN_MS..=LEASE_TTL_MAX_MS).contains(ms));
        let ttl_ms = ttl_ms.ok_or_else(|| Failure::usage("--ttl is 500ms to 30d"))?;
        // A lease whose secret cannot be kept is of no use: the secret is there first.
        let secret = cistern_client::lease_secret();
        if let Some(file) = &self.secret_file {
            private::write_new(file, format!("{}\n", *secret.to_text()).as_bytes()).map_err(|e| {
                Failure::new("SECRET", EXIT_FAILED, format!("cannot write the secret to {}: {e}; no lease was made", file.display()))
            })?;
        }
        let request = Request::LeaseCreate { path, ttl_ms, secret: Some(crate::local::SecretText(secret)), data, mode: 0o644 };
        let made = ctx.agent()?.call(request).and_then(crate::local::Response::new_lease);
        if let (Err(failure), Some(file)) = (&made, &self.secret_file)
            && failure.code != "OUTCOME_UNKNOWN"
        {
            let _left = std::fs::remove_file(file);
        }
        let made = made?;
        match &self.secret_file {
            Some(_) => ctx.print_with(&serde_json::json!({ "object": made.object }), String::new),
            None => ctx.print_with(&made, || made.secret.0.to_text().to_string()),
        }
    }
}
