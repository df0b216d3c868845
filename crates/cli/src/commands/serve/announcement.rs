//! Where the server is found, as its log or a line of JSON says it; and the service manager is told that it serves.

use crate::local::Failure;
use crate::{service_manager, show};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Told when the server answers, so that whoever waits for that is not dropped as `starting`.
pub(super) struct Announcement {
    pub(super) json: bool,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) http: Option<SocketAddr>,
    pub(super) control: PathBuf,
    /// The public key of a server that speaks sealed.
    pub(super) key: Option<String>,
    /// The group of which it is a member, and as which one.
    pub(super) group: Option<(String, String)>,
}

impl Announcement {
    /// Tells it.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn tell(self) -> Result<(), Failure> {
        service_manager::ready();
        let Self { json, listen, http, control, key, group } = self;
        if json {
            // A path that is not UTF-8 is shown as well as JSON can; who chose it knows it.
            let control = control.to_string_lossy().into_owned();
            let mut ready = json!({ "ready": true, "listen": listen, "control": control, "http": http, "key": key });
            if let Some((group, me)) = group {
                (ready["group"], ready["me"]) = (Value::from(group), Value::from(me));
            }
            return show::json(&ready);
        }
        if let Some(http) = http {
            log::info!("page at http://{http}/, metrics at http://{http}/metrics");
        }
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        match key {
            Some(key) => log::info!("sealed: this server has the key {key}, and speaks with agents that an operator admitted"),
            None => log::info!("in clear: nothing is encrypted, and no agent has to prove who it is"),
        }
        log::info!("listening on {}, control socket {}", listen.join(", "), control.display());
        if let Some((group, me)) = group {
            log::info!("{me} of the group {group}: one of them serves, the others stand by");
        }
        Ok(())
    }
}
