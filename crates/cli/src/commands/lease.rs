//! `cistern lease`: named leases, which outlive the command that makes them.

mod attach;
mod create;
mod keepalive;
mod list;
mod revoke;

use crate::local::{Failure, LeaseFileRow, SecretText};
use crate::show;
use cistern_capture::private::{self, Others};
use cistern_client::LeaseSecret;
use cistern_trust::TextForm as _;
use clap::Args;
use std::path::PathBuf;

super::commands! {
    /// Make and keep named leases: files with a time to live, and what goes with them
    NamedLease:
    Create(create::LeaseCreate),
    Attach(attach::LeaseAttach),
    Keepalive(keepalive::LeaseKeepalive),
    Revoke(revoke::LeaseRevoke),
    List(list::LeaseList),
}

/// Environment variable with a secret.
const SECRET_VARIABLE: &str = "CISTERN_LEASE_SECRET";

/// Largest file of a secret that is read, in bytes.
const SECRET_MAX: usize = 256;

/// The secret of a lease. It is no argument, for those are seen by every user of the host.
#[derive(Args, Debug)]
pub(crate) struct SecretSource {
    /// File with the secret of the lease, as `create` has written it; else the environment variable CISTERN_LEASE_SECRET has it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretSource {
    fn read(&self) -> Result<SecretText, Failure> {
        let (text, place) = match (&self.secret_file, std::env::var(SECRET_VARIABLE)) {
            (Some(file), _) => {
                let bytes = private::read(file, Others::Nothing, SECRET_MAX)
                    .map_err(|e| Failure::usage(format!("cannot read the secret of the lease from {}: {e}", file.display())))?;
                (String::from_utf8_lossy(&bytes).into_owned(), file.display().to_string())
            }
            (None, Ok(text)) => (text, SECRET_VARIABLE.to_owned()),
            (None, Err(_)) => {
                return Err(Failure::usage(
                    "no secret of the lease: give --secret-file FILE, or set CISTERN_LEASE_SECRET to what `create` has printed",
                ));
            }
        };
        LeaseSecret::from_text(&text).map(SecretText).map_err(|e| Failure::usage(format!("the secret of the lease in {place} {e}")))
    }
}

/// Named leases, or the files of one, for people.
fn table(rows: &[LeaseFileRow]) -> String {
    let mut cells = vec![["LEASE", "TTL", "LEFT", "FILES", "PATH"].map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let path = if row.path.0.is_empty() { format!("#{}", row.object) } else { row.path.to_string() };
        vec![format!("#{}", row.lease), show::span(row.ttl_ms), show::span(row.left_ms), row.files.to_string(), path]
    }));
    show::columns(&cells)
}
