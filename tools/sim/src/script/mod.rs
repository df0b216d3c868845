//! Scripts: scenarios told by hand over the real cores, in the words of network tests: cut, hold, duplicate, pause, crash, pass.
//!
//! Decides the vocabulary. A script reads from top to bottom: what users do and expect ([`Agent`], [`Op`], [`Held`]), what the network,
//! the machines and the disk do to them, and how much virtual time passes. Place: beside `world`, which draws what a script tells.
//! Invariants: all judges watch every script; nothing is dropped that it did not announce, and everything that it announced has
//! happened ([`Script::finish`]). A script that fails prints its trace.
//! Leaves to others: time (`course`), turns (`turns`), datagrams on their way (`wires`), what a script is set in (`setting`).

mod agent;
mod attacker;
mod costs;
mod course;
mod machines;
mod processes;
mod setting;
mod turns;
mod user;
mod wires;

pub use agent::Agent;
pub use attacker::Attacker;
pub use costs::{Costs, Load, costs, lease};
pub use course::Ending;
pub use machines::{DiskAccess, Server};
pub use setting::Setting;
pub use user::{Held, LockAsk, Op};
pub use wires::{Sent, Way};

use crate::host::ADDRESS;
use crate::observe::{Node, Seen};
use crate::plan::{MS, SEC};
use crate::sealing::Sealing;
use cistern_server::store::Key;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Form, Header, Kind, Message, Packer, SessionId, Status};
use course::Course;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use wires::Act;

/// How long something that must come is waited for, in virtual time.
const PATIENCE: u64 = 60 * SEC;

/// The course that all handles of a script share.
#[derive(Clone)]
struct Shared(Rc<RefCell<Course>>);

impl Shared {
    fn course(&self) -> RefMut<'_, Course> {
        self.0.borrow_mut()
    }
}

/// A scenario under way.
pub struct Script {
    /// The server's machine.
    pub server: Server,
    /// The server's disk.
    pub disk: DiskAccess,
    shared: Shared,
    /// Agents that run on a copy of another one's state.
    copies: Vec<(usize, usize)>,
}

/// The way from the server to an agent.
#[must_use]
pub fn to(agent: &Agent) -> Way {
    Way { agent: agent.number(), up: false }
}

/// The way from an agent to the server.
#[must_use]
pub fn from(agent: &Agent) -> Way {
    Way { agent: agent.number(), up: true }
}

impl Script {
    fn new(course: Course, copies: Vec<(usize, usize)>) -> Self {
        let shared = Shared(Rc::new(RefCell::new(course)));
        Self { server: Server::new(shared.clone()), disk: DiskAccess::new(shared.clone()), shared, copies }
    }

    fn agent(&self, number: usize) -> Agent {
        let copied = self.copies.iter().find(|(copy, _)| *copy == number).map(|(_, of)| *of);
        Agent::new(self.shared.clone(), number, copied)
    }

    /// A line in the trace.
    pub fn says(&self, text: &str) {
        self.shared.course().remark(text);
    }

    /// τ, in milliseconds.
    #[must_use]
    pub fn tau(&self) -> u64 {
        self.shared.course().plan.server.lease_ns() / MS
    }

    /// T = τ(1+δ)+ε, in milliseconds, rounded up.
    #[must_use]
    pub fn wait(&self) -> u64 {
        self.shared.course().plan.server.wait_ns().div_ceil(MS)
    }

    /// Td, in milliseconds.
    #[must_use]
    pub fn delivery_timeout(&self) -> u64 {
        self.shared.course().plan.server.delivery_timeout_us / 1_000
    }

    /// Virtual time since the run began, in milliseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.shared.course().stage.now / MS
    }

    /// Virtual time passes, and everything that is due in it happens.
    pub fn pass(&self, ms: u64) {
        let mut course = self.shared.course();
        let until = course.stage.now + ms * MS;
        course.pass_until(until);
    }

    /// Time passes until something is seen, and no further.
    ///
    /// # Panics
    /// If it is not seen within a minute.
    pub fn until(&self, what: &str, seen: impl FnMut(&Seen<'_>) -> bool + 'static) {
        let mut course = self.shared.course();
        let until = course.stage.now + PATIENCE;
        assert!(course.pass_until_seen(until, Box::new(seen)), "waited for a minute, and this did not happen: {what}");
    }

    /// Time passes until something is so, and no further.
    ///
    /// # Panics
    /// If it is not so within a minute.
    pub fn until_so(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = self.shared.course().stage.now + PATIENCE;
        while !is_so() {
            assert!(self.shared.course().step(until), "waited for a minute, and this did not come true: {what}");
        }
    }

    /// Time passes until the server has decided that deliveries to this agent fail (D).
    ///
    /// # Panics
    /// If it does not within a minute.
    pub fn until_timing_out(&self, agent: &Agent) {
        self.until_so("the agent is timing out", || self.server.standing_of(agent) == Some("timing out"));
    }

    /// Time passes until a message of this kind was handed to the network there.
    ///
    /// # Panics
    /// If none is within a minute.
    pub fn until_sent(&self, kind: Kind, way: Way) {
        let address = self.shared.course().stage.agents[way.agent].address;
        self.until(&format!("{} is sent", kind.name()), move |seen| match seen {
            Seen::Sent { from, to, bytes } => {
                let goes = if way.up { *from == Node::Agent(way.agent) } else { *from == Node::Server && *to == address };
                goes && wires::has(bytes, kind)
            }
            _ => false,
        });
    }

    /// Time passes until a message of this kind was received there.
    ///
    /// # Panics
    /// If none is within a minute.
    pub fn until_received(&self, kind: Kind, way: Way) {
        let address = self.shared.course().stage.agents[way.agent].address;
        self.until(&format!("{} is received", kind.name()), move |seen| match seen {
            Seen::Received { by, from, bytes } => {
                let goes = if way.up { *by == Node::Server && *from == address } else { *by == Node::Agent(way.agent) };
                goes && wires::has(bytes, kind)
            }
            _ => false,
        });
    }

    /// Time passes until the server has handed the end of a session to its store, where it is not durable yet.
    ///
    /// # Panics
    /// If it does not within a minute.
    pub fn until_end_is_written(&self, session: SessionId) {
        let end = (Key::Session(session), None);
        self.until("the session's end is written", move |seen| matches!(seen, Seen::Persisted { batch } if batch.writes.contains(&end)));
    }

    /// How many datagrams with a message of this kind have been sent there so far.
    #[must_use]
    pub fn sent(&self, kind: Kind, way: Way) -> usize {
        self.shared.course().wires.recorded.iter().filter(|passed| passed.way == way && wires::has(&passed.plain, kind)).count()
    }

    /// What the server's application has refused in answers that went there, in order; copies count again.
    #[must_use]
    pub fn refusals(&self, way: Way) -> Vec<Status> {
        let course = self.shared.course();
        let passed = course.wires.recorded.iter().filter(|passed| passed.way == way);
        passed.flat_map(|passed| wires::refusals(&passed.plain)).collect()
    }

    /// Nothing passes between the server and this agent.
    pub fn cut(&self, agent: &Agent) {
        self.cut_one_way(to(agent));
        self.cut_one_way(from(agent));
    }

    /// Nothing passes in this direction.
    pub fn cut_one_way(&self, way: Way) {
        self.shared.course().wires.rule(way, None, Act::Lose, None);
    }

    /// Nothing passes between the server and anybody.
    pub fn isolate_server(&self) {
        let mut course = self.shared.course();
        for agent in 0..course.stage.agents.len() {
            for up in [false, true] {
                course.wires.rule(Way { agent, up }, None, Act::Lose, None);
            }
        }
    }

    /// Everything passes again, as quickly as ever; what is held stays held.
    pub fn heal(&self) {
        self.shared.course().wires.lift(|act| matches!(act, Act::Lose | Act::Slow(_)));
    }

    /// The next datagram with such a message is lost.
    pub fn drop_next(&self, kind: Kind, way: Way) {
        self.shared.course().wires.rule(way, Some(kind), Act::Lose, Some(1));
    }

    /// Every datagram with such a message is lost, until healed.
    pub fn drop_all(&self, kind: Kind, way: Way) {
        self.shared.course().wires.rule(way, Some(kind), Act::Lose, None);
    }

    /// The next datagram with such a message is kept on the way until [`Script::release_held`].
    pub fn hold_next(&self, kind: Kind, way: Way) {
        self.shared.course().wires.rule(way, Some(kind), Act::Hold, Some(1));
    }

    /// Every datagram with such a message is kept on the way until [`Script::release_held`].
    pub fn hold(&self, kind: Kind, way: Way) {
        self.shared.course().wires.rule(way, Some(kind), Act::Hold, None);
    }

    /// What was kept on the way goes on, in its order, and nothing more is kept.
    ///
    /// # Panics
    /// If nothing was kept.
    pub fn release_held(&self) {
        let mut course = self.shared.course();
        course.wires.lift(|act| act == Act::Hold);
        let held = std::mem::take(&mut course.wires.held);
        assert!(!held.is_empty(), "nothing was held");
        let delay = course.wires.delay();
        for passed in held {
            course.travel(passed.way, passed.from, passed.to, passed.bytes, delay);
        }
    }

    /// The next datagram with such a message arrives again, `ms` after its first arrival.
    pub fn duplicate_next(&self, kind: Kind, way: Way, ms: u64) {
        self.shared.course().wires.rule(way, Some(kind), Act::Twice(ms * MS), Some(1));
    }

    /// Datagrams take so much longer, until healed.
    pub fn slow(&self, way: Way, ms: u64) {
        self.shared.course().wires.rule(way, None, Act::Slow(ms * MS), None);
    }

    /// Every datagram that was sent so far, in order.
    #[must_use]
    pub fn datagrams(&self) -> Vec<Sent> {
        let course = self.shared.course();
        let sent = |passed: &wires::Passed| {
            let wires::Passed { way, plain: bytes, lost, .. } = passed.clone();
            Sent { agent: way.agent, up: way.up, bytes, lost }
        };
        course.wires.recorded.iter().map(sent).collect()
    }

    /// Every datagram that ever went there with such a message arrives again, in order.
    ///
    /// # Panics
    /// If there was none.
    pub fn replay_recorded(&self, kind: Kind, way: Way) {
        let mut course = self.shared.course();
        let delay = course.wires.delay();
        let here = course.stage.agents[way.agent].address;
        let again: Vec<_> =
            course.wires.recorded.iter().filter(|passed| passed.way == way && wires::has(&passed.plain, kind)).cloned().collect();
        assert!(!again.is_empty(), "no {} went there", kind.name());
        for passed in again {
            let (from, to) = if way.up { (here, passed.to) } else { (passed.from, here) };
            course.travel(way, from, to, passed.bytes, delay);
        }
    }

    /// Every datagram that ever went there arrives again, in order.
    pub fn replay_everything(&self, way: Way) {
        let mut course = self.shared.course();
        let delay = course.wires.delay();
        let here = course.stage.agents[way.agent].address;
        let again: Vec<_> = course.wires.recorded.iter().filter(|passed| passed.way == way).cloned().collect();
        for passed in again {
            let (from, to) = if way.up { (here, passed.to) } else { (passed.from, here) };
            course.travel(way, from, to, passed.bytes, delay);
        }
    }

    /// Somebody on the path sends the newest record that went there once more, changed, in the name of who sent it.
    ///
    /// # Panics
    /// If there was none.
    pub fn changes_newest(&self, way: Way, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.newest_record(way);
        change(&mut bytes);
        self.sends(way, bytes);
    }

    /// The newest record that went there.
    ///
    /// # Panics
    /// If there was none.
    #[must_use]
    pub fn newest_record(&self, way: Way) -> Vec<u8> {
        self.shared.course().wires.newest(Form::Record, way)
    }

    /// The same with the newest datagram of a handshake, by somebody who knows the server's key.
    ///
    /// # Panics
    /// If there was none.
    pub fn changes_handshake(&self, way: Way, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.shared.course().wires.newest(Form::Handshake, way);
        change(&mut bytes);
        self.forges_handshake(way, bytes);
    }

    /// Somebody who knows the server's key says this on the path, in the name of who sends that way.
    ///
    /// # Panics
    /// If nothing is sealed.
    pub fn forges_handshake(&self, way: Way, mut handshake: Vec<u8>) {
        let check = self.shared.course().stage.sealing.as_ref().map(Sealing::first_check);
        check.expect("a sealed run").complete(&mut handshake);
        self.sends(way, handshake);
    }

    fn sends(&self, way: Way, bytes: Vec<u8>) {
        let mut course = self.shared.course();
        let (delay, here) = (course.wires.delay(), course.stage.agents[way.agent].address);
        let (from, to) = if way.up { (here, ADDRESS) } else { (ADDRESS, here) };
        course.travel(way, from, to, bytes.into(), delay);
    }

    /// A stranger, who has the number of a session and forges the address of who sends that way, says something under a packet number that
    /// it has guessed.
    ///
    /// # Panics
    /// If the message fits no datagram.
    pub fn forge(&self, way: Way, session: SessionId, packet: u64, message: &Message<'_>) {
        let mut course = self.shared.course();
        let delay = course.wires.delay();
        let address = course.stage.agents[way.agent].address;
        let (from, to) = if way.up { (address, ADDRESS) } else { (ADDRESS, address) };
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: !way.up, session, packet }, DATAGRAM_MIN);
        assert!(packer.push(message), "one message fits");
        packer.finish();
        course.travel(way, from, to, bytes.into(), delay);
    }

    /// The end: every rule was met, nothing is held, no process dropped anything, and no judge objects.
    ///
    /// # Panics
    /// If one of that is not so.
    pub fn finish(self) {
        self.finish_with_drops([]);
    }

    /// The end, with the reasons for which processes dropped something, as "agent: reason": these and no others. A server that was started
    /// again is bound to drop what comes before it serves, or of sessions of before, and agents may get more hints than they need, and
    /// some when they have another session already.
    ///
    /// # Panics
    /// As [`Script::finish`].
    pub fn finish_with_drops<const N: usize>(self, announced: [&str; N]) {
        self.pass(100);
        let mut course = self.shared.course();
        assert!(course.wires.held.is_empty(), "datagrams are still held");
        let unmet = course.wires.unmet();
        assert!(unmet.is_empty(), "the script planned what never happened: {unmet:?}");
        for node in std::iter::once(Node::Server).chain((0..course.stage.agents.len()).map(Node::Agent)) {
            course.note_drops(node);
        }
        let mut announced: Vec<String> = announced.into_iter().map(str::to_owned).collect();
        announced.sort_unstable();
        let restarted = course.stage.server.process.starts > 1;
        let dropped: Vec<String> = course.dropped.keys().filter(|reason| !(restarted && by_a_restart(reason))).cloned().collect();
        if course.stage.sealing.is_some() {
            // What comes again is dropped for other reasons there.
            let is_meant = |reason: &&String| announced.contains(reason) || BY_SEALING.contains(&reason.as_str());
            assert!(dropped.iter().all(|reason| is_meant(&reason)), "drops that happened: {dropped:?}, and were announced: {announced:?}");
        } else {
            assert_eq!(dropped, announced, "drops that happened, and drops that were announced");
        }
        course.judge_the_end();
    }
}

/// Drops that a script of plain mode does not announce.
const BY_SEALING: [&str; 2] = ["server: cookie_used", "server: duplicate_packet"];

/// Whether a drop is one that a restart of the server leads to by itself.
fn by_a_restart(reason: &str) -> bool {
    let of_server = ["starting", "amplification", "rate_limited"];
    let of_all = [": stray_hint", ": unknown_session"];
    of_all.iter().any(|end| reason.ends_with(end)) || reason.strip_prefix("server: ").is_some_and(|reason| of_server.contains(&reason))
}
