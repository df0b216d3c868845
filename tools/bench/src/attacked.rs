//! One agent that asks little beside a host that asks without end: what the victim notices.
//!
//! Decides the attacks: requests of little work, and lists of locks with places far down, from another address of loopback, as fast as one thread
//! sends them. The victim's requests come at fixed ticks, so one that had to wait counts in full. Place: a workload, over `cases`.
//! Leaves to others: whose turn it is (the server's `scheduler`), whether leases hold (`tests/system`).

use crate::agent::LIMIT;
use crate::cases::{Case, Plan, Side, Work};
use crate::figures::Column;
use crate::host::{Host, Role};
use crate::opening::{self, TOGETHER};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use cistern_wire::limits::{DATAGRAM_MAX, ROOT};
use cistern_wire::{Ask, Datagram, GetAttr, ListLocks, Message, ObjectId, Want};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Another host than the victim's.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Sessions of the attacker, and the requests that each puts into a datagram.
const SESSIONS: usize = 8;
const PACKED: u64 = 30;
/// From one request of the victim to the next.
const TICK: Duration = Duration::from_millis(5);

/// What the attacker sends.
#[derive(Clone, Copy)]
enum Attack {
    GetAttr,
    ListLocks,
}

impl Attack {
    /// The request of this nonce; nothing before it is awaited.
    fn message(self, nonce: u64) -> Message<'static> {
        let (ask, none) = (Ask { nonce, back: 0, limit: LIMIT }, ObjectId(0));
        match self {
            Self::GetAttr => GetAttr { ask, object: ObjectId(ROOT), want: Want::Nothing }.into(),
            Self::ListLocks => ListLocks { ask, object: none, after_object: none, after_row: 0, places: true }.into(),
        }
    }
}

/// Measures the victim alone, then under each attack.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("attacked", "getattr each 5 ms, while another host sends what it can");
    let host = Host::start(Role::Server, plan.cores)?;
    let address = host.address;
    let case = Case { pace: Pace::Every(TICK), ..Case::one(Work::GetAttr) };
    let mut victim = Side::on(host, Role::Server, &case, plan.cores)?;
    progress.say("alone");
    let alone = victim.rounds(plan)?;
    for (name, attack) in [("requests of little work", Attack::GetAttr), ("lists of locks", Attack::ListLocks)] {
        progress.say(name);
        let socket = UdpSocket::bind((HOSTILE, 0)).map_err(Trouble::at("opening the attacker's socket"))?;
        socket.connect(address).map_err(Trouble::at("connecting the attacker's socket"))?;
        let over = AtomicBool::new(false);
        let attacked: Column = thread::scope(|scope| {
            let attacker = scope.spawn(|| send(&socket, attack, &over));
            let column = victim.rounds(plan);
            over.store(true, Relaxed);
            attacker.join().expect("the attacker does not panic")?;
            column
        })?;
        let ratio = attacked.p99_us.median / alone.p99_us.median.max(f64::MIN_POSITIVE);
        section.rows.push(Row::new(format!("beside {name}")).with("p99_over_alone", "p99: attacked/alone", ratio).exchanges(&attacked));
    }
    section.rows.push(Row::new("alone").exchanges(&alone));
    Ok(section.note("What a victim notices is to stay within 50 ms."))
}

/// Sends until it is over: again and again as many requests as were answered last, whatever comes of them.
fn send(socket: &UdpSocket, attack: Attack, over: &AtomicBool) -> Result<(), Trouble> {
    let number = 1 << 20 | usize::from(matches!(attack, Attack::ListLocks)) << 10;
    let mut agents = opening::open(socket, 0, number..number + SESSIONS, TOGETHER)?;
    socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
    let (mut answered, mut bytes, mut answers) = ([0; SESSIONS], Vec::new(), [0; DATAGRAM_MAX]);
    while !over.load(Relaxed) {
        for (agent, answered) in agents.iter_mut().zip(&answered) {
            let messages: Vec<_> = (1..=PACKED).map(|n| attack.message(answered + n).to_bytes()).collect();
            agent.pack_first(messages.iter().map(Vec::as_slice), &mut bytes);
            // A buffer that is full is no reason to wait.
            let _full = socket.send(&bytes);
        }
        while let Ok(length) = socket.recv(&mut answers) {
            let Ok(datagram) = Datagram::at_agent(&answers[..length]) else { continue };
            let Some(at) = agents.iter().position(|agent| agent.session == datagram.header.session) else { continue };
            let acks = datagram.messages().filter_map(|message| if let Message::Ack(ack) = message { Some(ack.nonce) } else { None });
            answered[at] = acks.fold(answered[at], u64::max);
        }
    }
    Ok(())
}
