//! `cistern peer`: this host's member of a group that agrees on locks without a server.
//!
//! Decides: which member of the list this process is, on which address it listens, and when it ends. Place in the walk: datagrams go through
//! the loop of `cistern_driver` to a `cistern_flease::Node`; local programs come by the control socket (`daemon`).
//! Leaves to others: the algorithm (`cistern_flease`), the lock of a command (`lock`).

mod daemon;
mod holders;
mod report;
mod reserve;
mod status;

pub(crate) use status::{member_of, member_table};

use super::Run;
use crate::capture;
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::group::{GroupList, LookFor, Troubles, look_for_others};
use crate::local::{Failure, millis};
use crate::places::make_above;
use crate::settings::ppm;
use crate::{show, signals};
use cistern_credentials::Places;
use cistern_driver::{Address, Clock, ControlLimits, ControlServer, Ended, EventLoop, LoopOptions, Owned, seed};
use cistern_flease::{Config, Node, Peer as Member, Terms};
use cistern_group::SealedNode;
use cistern_seal::GroupSealer;
use cistern_text::duration;
use clap::Args;
use daemon::PeerServices;
use holders::Holders;
use reserve::Reserve;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PEER_HELP: &str = "\
Each host of the group runs one. A command on any of them takes a lock by `cistern lock --group`; a majority of the members must be up. No server takes part, \
and nothing is on disk, unless --state says so.

Datagrams are sealed with the keys of the hosts: the list is a file, the same on each of them, with a member a line and its public key behind it (`cistern key \
new` makes a host's key, `cistern key show` shows it): `cistern peer --group /etc/cistern/group`. Without keys it takes --insecure, as below.

A member that starts takes no part until what it may have forgotten has ended: 1 % and 1 ms longer than the lease, with the default settings. Asked to end by \
a signal it ends its programs' connections, and hands over what they held when none of them can act any more.

Lease, drift, list and number must be the same at all members; what differs is refused, logged once, and shown by `cistern peer status`. To change the list, end \
all members, and start them with the new list and a larger number.

Examples:
  cistern peer --insecure --group a:7312,b:7312,c:7312
  cistern peer --insecure --group a:7312,b:7312,c:7312 --state /var/lib/cistern/peer
  cistern peer status --group a:7312,b:7312,c:7312
  cistern lock --group a:7312,b:7312,c:7312 nightly -- ./backup.sh

Exit status:
  0   ended by a signal
  1   an address, the control socket or a key cannot be used
  2   wrong usage or settings
  70  a defect of cistern itself
  74  the state directory cannot be written";

/// Be this host's member of a group that agrees on locks without a server
#[derive(Args, Debug)]
#[command(after_help = PEER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Peer {
    #[command(subcommand)]
    command: Option<PeerCommand>,
    /// The members of the group, in their order (host:port,...), or a file with one a line, its key behind it; without a port it is 7312
    #[arg(long, value_parser = GroupList::parse, required = true, value_name = "MEMBERS")]
    group: Option<GroupList>,
    /// Which of them this is, as the list names it; else the one with an address of this host
    #[arg(long, value_name = "MEMBER")]
    me: Option<Address>,
    /// Number of the list of members: another list has a larger one
    #[arg(long, default_value = "1", value_name = "NUMBER")]
    group_number: u32,
    /// Length of a lease, 300 ms to 60 s: how long a resource is nobody's after its owner has died
    #[arg(long, value_parser = duration, default_value = "500ms", value_name = "DURATION")]
    lease: Duration,
    /// How much faster one member's clock may run than another's
    #[arg(long, default_value = "0.01", value_name = "FRACTION")]
    delta: f64,
    /// Renew in one round trip instead of two: half the messages
    #[arg(long)]
    renew_by_write: bool,
    /// Keep tokens in this directory, at every member: each owner's is larger than any before, for ever
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Control socket, by which local programs take locks; else $XDG_RUNTIME_DIR/cistern/peer/HASH.sock, for root /var/lib/cistern/peer/HASH.sock, by a hash of
    /// the list
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Speak in clear, with everybody who can send datagrams to the members: for a list without keys
    #[arg(long)]
    insecure: bool,
    /// Most locks that are known at once
    #[arg(long, default_value = "100000", value_name = "COUNT")]
    max_locks: usize,
}

super::commands! {
    /// The commands below `peer`.
    PeerCommand:
    Status(status::PeerStatus),
}

/// Most programs that are connected at once.
const CONNECTIONS_MAX: usize = 512;

/// Longest line of a program: a name of 200 bytes in base64, and what is around it.
const LINE_MAX: usize = 4_096;

impl Run for Peer {
    fn takes(below: &[&str]) -> &'static [&'static str] {
        if below.is_empty() { &["json", "key_file", "pcap"] } else { PeerCommand::takes(below) }
    }

    fn is_daemon(&self) -> bool {
        self.command.is_none()
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        match (&self.command, &self.group) {
            (Some(command), _) => command.run(ctx),
            (None, Some(group)) => serve(self, group, ctx),
            (None, None) => Err(Failure::usage("--group says who the members are")),
        }
    }
}

/// Runs a member until it is asked to end.
fn serve(args: &Peer, group: &GroupList, ctx: &Ctx) -> Result<(), Failure> {
    match (group.keys().is_empty(), args.insecure) {
        (true, false) => {
            return Err(Failure::usage(
                "the list has no keys: write each member's behind it (`cistern key show` there), or give --insecure, with which everybody who \
                 can send datagrams to the members takes part",
            ));
        }
        (false, true) => return Err(Failure::usage("the list has keys: --insecure would not use them")),
        _ => {}
    }
    let internal = |e: &dyn std::error::Error| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string());
    capture::start(ctx.options().pcap.as_deref())?;
    let me = args.me.as_ref().map_or_else(|| group.place_of_this_host(), |named| group.place_of(named))?;
    let reserve = args.state.as_deref().map(Reserve::hold).transpose()?;
    let (reserve, waking) = reserve.map_or((None, None), |(reserve, waking)| (Some(reserve), Some(waking)));
    let config = Config {
        terms: Terms { lease: args.lease, drift_ppm: drift(args.delta)?, ..Terms::default() },
        list_number: args.group_number,
        members: group.names(),
        me,
        renew_by_write: args.renew_by_write,
        resources_max: args.max_locks,
        reserved: reserve.as_ref().map(Reserve::before),
    };
    let port = group.open(me)?;
    let socket = group.socket(args.socket.as_ref())?;
    make_above(&socket)?;
    let limits = ControlLimits { connections_max: CONNECTIONS_MAX, line_max: LINE_MAX, ..ControlLimits::default() };
    let control = ControlServer::bind(&socket, limits).map_err(|e| Failure::new("CONTROL", EXIT_FAILED, e.to_string()))?;
    let clock = Clock::new().map_err(|e| internal(&e))?;
    // The restart wait counts from here: from when the port was this process's, and no earlier one could send.
    let member = Member::new(&config, *seed().map_err(|e| internal(&e))?, clock.now()).map_err(|e| Failure::usage(e.to_string()))?;
    let ours = port.local_addr();
    let (found, give) = look_for_others(group.clone(), me, ours)?;
    let stop = Arc::new(AtomicBool::new(false));
    let daemon = PeerServices {
        group: group.clone(),
        control: Some(control),
        holders: Holders::default(),
        greeted: BTreeSet::new(),
        found,
        reserve,
        waking,
        stop: Arc::clone(&stop),
        leaves_by: None,
        troubles: Troubles::new(group),
        failure: None,
    };
    let name = format!("peer {}", group.members()[usize::from(me)]);
    let options = LoopOptions { name, tap: capture::tap(), ..LoopOptions::default() };
    let node = SealedNode::in_clear(Node::new(member));
    let node = match sealer(group, me, ctx.options().key_file.as_deref())? {
        Some(sealer) => node.sealed(sealer),
        None => node,
    };
    let mut event_loop =
        EventLoop::new(vec![port], Owned(node), daemon, clock, options).map_err(|e| Failure::new("ADDRESS", EXIT_FAILED, e.to_string()))?;
    let handle = event_loop.handle();
    // It waits for it, and lives as long as the process.
    let _ = give.send(LookFor::Loop(handle.clone()));
    signals::at_end(move || {
        stop.store(true, Ordering::Release);
        handle.wake();
    })?;
    announce(ctx.is_json(), group, me, ours, &socket, config.terms)?;
    match event_loop.run() {
        Ok(Ended::Stopped) => Ok(()),
        Ok(Ended::ByServices) => event_loop.services_mut().failure.take().map_or(Ok(()), Err),
        Err(e) => Err(internal(&e)),
    }
}

fn drift(delta: f64) -> Result<u32, Failure> {
    ppm(delta).ok_or_else(|| Failure::usage(format!("--delta is {delta}; it must be 0.003 to 0.2")))
}

/// What seals this member's datagrams, if the list has keys.
fn sealer(group: &GroupList, me: u8, key: Option<&Path>) -> Result<Option<GroupSealer>, Failure> {
    if group.keys().is_empty() {
        return Ok(None);
    }
    let none = || Failure::new("NO_KEY", EXIT_FAILED, "the list has keys, and there is none here; `cistern key new` makes one");
    let own = Places::of_this_process(key).find()?.ok_or_else(none)?;
    group.sealer(me, group.keys().to_vec(), &own.key, &own.place.key_path()).map(Some)
}

fn announce(json: bool, group: &GroupList, me: u8, listen: SocketAddr, socket: &Path, terms: Terms) -> Result<(), Failure> {
    let member = &group.members()[usize::from(me)];
    if json {
        let shown = socket.to_string_lossy();
        let wait_ms = millis(terms.restart_wait());
        let sealed = !group.keys().is_empty();
        let ready = json!({
            "ready": true, "me": member.to_string(), "listen": listen, "sealed": sealed, "socket": shown, "starts_in_ms": wait_ms
        });
        return show::json(&ready);
    }
    if group.keys().is_empty() {
        log::warn!("in clear: everybody who can send datagrams to {listen} takes part (--insecure)");
    }
    log::info!("member {member} of the group {group}: listening on {listen}, control socket {}", socket.display());
    log::info!("takes part in {:?}: until then what an earlier process may have promised holds", terms.restart_wait());
    Ok(())
}
