//! The first contact of an agent with its server: which server, and what is said while nobody answers.
//!
//! Decides: that a port that refuses datagrams is reported at once, and tried again quietly until the time is up: a server that is
//! being started anew refuses, too. Leaves to others: settings (`settings`), handshakes (the agent).

use crate::local::Failure;
use crate::options::Options;
use crate::rosters::{ClusterRoster, ServersToUse};
use crate::settings::Servers;
use crate::{capture, key_log, settings, show};
use cistern_client::{Client, Error, KeySource, Op, Operation, PublicKey, SecretKey};
use cistern_credentials::{Found, Place, Places};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a call looks whether the port has refused.
const LOOK: Duration = Duration::from_millis(20);

/// An agent that has started, and may have no session yet.
pub(crate) struct Contact {
    pub(crate) client: Client,
    /// The servers, for a person.
    servers: String,
    /// Nobody named them.
    default: bool,
    /// How long an operation may take.
    pub(crate) give_up: Duration,
    /// How long the clean end of its session may take.
    pub(crate) close_within: Duration,
}

/// For how long a command tries to reach the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tries {
    /// As long as an operation may take.
    UntilGivenUp,
    For(Duration),
    /// Until the command is asked to end.
    UntilEnded,
}

/// What is asked of an agent besides [`Options`].
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// What people see of it in listings.
    pub(crate) label: Option<String>,
    /// Where its identity is kept; else it is fresh.
    pub(crate) state: Option<&'a Path>,
    pub(crate) idle: Option<cistern_client::IdlePolicy>,
}

/// Starts an agent.
///
/// # Errors
/// Its settings, its state directory or the server's name cannot be used.
pub(crate) fn start(options: &Options, wanted: Wanted<'_>) -> Result<Contact, Failure> {
    capture::start(options.pcap.as_deref())?;
    let settings = settings::load(options.config.as_deref())?;
    let mut config = settings.agent_config_of(options)?;
    config.idle = wanted.idle.unwrap_or(config.idle);
    let (give_up, close_within) = (config.give_up_after, config.close_within);
    let mut servers = settings.servers(&options.server);
    let mut builder = Client::builder().config(config);
    if options.insecure {
        builder = builder.insecure();
    }
    if let Some(Sealed { found, server, addresses, rosters }) = keys(options, &servers)? {
        builder = builder.key(found.key, server).key_source(Arc::new(OwnKey(found.place)));
        if let Some(rosters) = rosters {
            builder = builder.rosters(Arc::new(rosters));
        }
        if servers.default && !addresses.is_empty() {
            servers = Servers { names: addresses, default: false };
        }
    }
    for server in &servers.names {
        builder = builder.server(server);
    }
    if let Some(label) = wanted.label {
        builder = builder.label(label);
    }
    if let Some(state) = wanted.state {
        builder = builder.state_dir(state);
    }
    if let Some(tap) = capture::tap() {
        builder = builder.tap(tap);
    }
    if let Some(sink) = key_log::open(options.key_log.as_deref())? {
        builder = builder.key_log(sink);
    }
    let client = builder.start().map_err(|error| {
        let hint = match () {
            () if error.is_state_directory() => "; --state DIR names another",
            () if error.is_no_key() => ": `cistern join` makes a key and has it admitted, --insecure speaks in clear",
            () => "",
        };
        with_hint(error, hint)
    })?;
    Ok(Contact { client, servers: servers.names.join(", "), default: servers.default, give_up, close_within })
}

/// A key's file, which is read at each handshake: the key may have been rotated.
#[derive(Debug)]
struct OwnKey(Place);

impl KeySource for OwnKey {
    fn key(&self) -> Option<SecretKey> {
        self.0.key().map_err(|error| log::debug!("the key of before is used: {error}")).ok()
    }
}

/// By what an agent seals.
struct Sealed {
    found: Found,
    server: PublicKey,
    /// Where the cluster's servers are, as far as that is known.
    addresses: Vec<String>,
    /// None: the server's key was named.
    rosters: Option<ClusterRoster>,
}

/// By which key the agent is known, and that of its server; `None`: it has none.
fn keys(options: &Options, servers: &Servers) -> Result<Option<Sealed>, Failure> {
    if options.insecure {
        return Ok(None);
    }
    let found = Places::of_this_process(options.key_file.as_deref()).find()?;
    let Some(found) = found else {
        return match options.server_key {
            None => Ok(None),
            Some(_) => Err(Failure::usage(
                "--server-key is for agents that have a key: `cistern key new` makes one, which an operator of the server then admits",
            )),
        };
    };
    if let Some(server) = options.server_key {
        return Ok(Some(Sealed { found, server, addresses: Vec::new(), rosters: None }));
    }
    let Some(pinned) = found.place.cluster()? else {
        return Err(Failure::usage(format!(
            "{}: there is a key, so nothing is said in clear, but it has joined no cluster: `cistern join`, or name the server's key by \
             --server-key; --insecure speaks in clear",
            found.place.key_path().display()
        )));
    };
    let named = if servers.default { Vec::new() } else { servers.names.clone() };
    let rosters = ClusterRoster::new(found.place.clone(), named, pinned);
    let ServersToUse { keys, addresses } =
        rosters.servers().ok_or_else(|| Failure::usage("the cluster's roster names no server that serves"))?;
    Ok(keys.first().map(|(server, _)| Sealed { found, server: *server, addresses, rosters: Some(rosters) }))
}

/// Tells a person that the server's port is closed.
pub(crate) fn tell_refused(what: &str) {
    show::error("cistern", &Failure::new("PORT_REFUSED", 0, what));
}

/// Closes the session, so that nothing of it has to be timed out; why that is not confirmed within `span`, after which it ends by its lease.
pub(crate) fn close(client: &Client, span: Duration) -> Result<(), String> {
    match client.close().wait_timeout(span) {
        Some(closed) => closed.map_err(|error| error.to_string()),
        None => Err(format!("not confirmed within {} s", span.as_secs_f64())),
    }
}

fn with_hint(error: Error, hint: &str) -> Failure {
    let failure = Failure::from(error);
    Failure { message: format!("{}{hint}", failure.message), ..failure }
}

impl Contact {
    /// Opens a session.
    ///
    /// # Errors
    /// No server answers, or it refuses.
    pub(crate) fn open(self) -> Result<Client, Failure> {
        match self.wait(self.client.ping(), tell_refused) {
            Ok(_) => Ok(self.client),
            Err(error) => Err(with_hint(error, self.hint())),
        }
    }

    /// Waits for a call, and says once if the port refuses.
    pub(crate) fn wait<K: Operation>(&self, op: Op<K>, tell: impl FnOnce(&str)) -> Result<K::Output, Error> {
        let mut call = op.start();
        let before = self.client.refusals();
        let mut tell = Some(tell);
        loop {
            if let Some(result) = call.wait_timeout(LOOK) {
                return result;
            }
            if self.client.refusals() > before
                && let Some(tell) = tell.take()
            {
                tell(&self.refused(Tries::UntilGivenUp));
            }
        }
    }

    /// The agent, of a command that waits for its first answer by itself; until there is a session a thread says once if the port refuses.
    pub(crate) fn unopened(self, tries: Tries) -> Client {
        let (client, what) = (self.client.clone(), self.refused(tries));
        let look = move || {
            while client.lease().is_ok_and(|lease| lease.session.is_none()) {
                if client.refusals() > 0 {
                    return tell_refused(&what);
                }
                std::thread::sleep(LOOK);
            }
        };
        // Without the thread nothing but that word is missing.
        if let Err(error) = std::thread::Builder::new().name("cistern-hello".to_owned()).spawn(look) {
            log::debug!("no thread for the first answer: {error}");
        }
        self.client
    }

    fn refused(&self, tries: Tries) -> String {
        let span = match tries {
            Tries::UntilGivenUp => Some(self.give_up),
            Tries::For(span) => Some(span),
            Tries::UntilEnded => None,
        };
        let span = span.map_or_else(|| "until it is ended".to_owned(), |span| format!("for {} s", span.as_secs_f64()));
        format!("server {}: the port is closed (ICMP); trying {span}{}", self.servers, self.hint())
    }

    const fn hint(&self) -> &'static str {
        if self.default { " (no server was named: --server, CISTERN_SERVER or the settings file names one)" } else { "" }
    }
}
