//! How a session stands after everything that can happen to it: each cell of the table in `session/mod.rs`.

use super::script::*;
use crate::api::{Command, HolderId, Wait};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{
    Ack, Bytes8, Done, Ended, Fate, Hint, Known, LockId, Message, Mode, Nack, NackReason, Reclaimed, ReclaimedItem, Reply, SessionFate,
    SessionId, Status,
};

const SECOND: SessionId = SessionId(0xCD);
const THIRD: SessionId = SessionId(0xEF);

/// A session, brought into a state.
struct Stage {
    script: Script,
    /// A local user of it.
    user: Option<HolderId>,
    /// A packet of it that may be echoed.
    echo: u64,
}

impl Stage {
    fn of(state: &str) -> Self {
        let mut script = Script::open(Config::default());
        let mut user = None;
        if matches!(state, "open" | "source" | "lost") {
            user = Some(script.hold(7, 2, 40, 16).holder);
        }
        let mut stage = Self { script, user, echo: 0 };
        match state {
            "open" => stage.ping(),
            "unused" => stage.ping(),
            "closing" => stage.script.agent.close(stage.script.now()),
            "source" => stage.open(SECOND, &[(SESSION, SessionFate::Reclaimable)]),
            "lost" | "ending" => stage.nack(NackReason::TimingOut),
            other => panic!("{other}"),
        }
        stage.turn();
        if state != "unused" {
            assert_eq!(stage.state(), state);
        }
        stage
    }

    fn state(&self) -> &'static str {
        let states = self.script.agent.session_states();
        states.into_iter().find(|(id, _)| *id == SESSION).map_or("gone", |(_, state)| state)
    }

    /// What is sent last in a session may be echoed.
    fn turn(&mut self) {
        let sent = self.script.turn();
        if let Some(sent) = sent.iter().rfind(|sent| sent.datagram().header.session != SessionId(0)) {
            self.echo = sent.packet();
        }
    }

    /// The agent asks something in the present session, which may be echoed.
    fn ping(&mut self) {
        self.script.start(Command::Ping);
        self.turn();
    }

    fn nack(&mut self, reason: NackReason) {
        if self.state() != "source" {
            self.ping();
        }
        self.script.say(&[Nack { nonce: 0, echo: self.echo, reason, fate: Fate::Unknown }.into()]);
        self.turn();
    }

    /// Another session opens; what the server says of the former ones.
    fn open(&mut self, next: SessionId, fates: &[(SessionId, SessionFate)]) {
        if self.state() == "source" {
            // Only what the reclaim needs is asked now, and that may be echoed.
            self.script.say(&[Hint { echo: self.echo, detail: Bytes8(b"") }.into()]);
        } else if self.script.agent.view(self.script.now()).session.is_some() {
            self.script.hint();
        } else {
            self.script.start(Command::Ping);
        }
        self.script.shake_amid(next, fates);
        self.turn();
    }

    /// The server says this in the session, whatever has become of it.
    fn say(&mut self, message: Message<'_>) {
        if matches!(self.state(), "open" | "closing") {
            self.script.say(&[message]);
        } else {
            self.script.say_in(SESSION, &[message]);
        }
        self.script.turn();
    }

    fn stop(&mut self) {
        if let Some(holder) = self.user {
            let _ = self.script.submit(Command::Unlock { holder });
        }
        self.script.turn();
    }

    /// All that is named is given back, and the end of the reclaim is answered.
    fn complete(&mut self) {
        let kept: Vec<ReclaimedItem> = [object(7)].map(|lock: LockId| item(lock)).into();
        for nonce in 1..3 {
            let echo = self.script.turn().last().map_or(self.echo, Sent::packet);
            let reply =
                if nonce == 1 { Reply::Reclaimed(Reclaimed { items: cistern_wire::List::of(&kept) }) } else { Reply::Done(Done {}) };
            self.script.say(&[Ack { nonce, echo, reply }.into()]);
        }
    }
}

fn item(lock: LockId) -> ReclaimedItem {
    ReclaimedItem { lock, generation: cistern_wire::Generation(40), status: Status::OK, version: 0 }
}

/// What can happen, by name.
fn happens(stage: &mut Stage, event: &str) {
    use SessionFate::{Ended as Gone, Reclaimable, TimingOut};
    let echo = stage.echo;
    let sourced = stage.state() == "source";
    let open = |stage: &mut Stage, fate: SessionFate| {
        if sourced {
            stage.open(THIRD, &[(SESSION, fate), (SECOND, Reclaimable)]);
        } else {
            stage.open(SECOND, &[(SESSION, fate)]);
        }
    };
    match event {
        "OPENED, reclaimable" => open(stage, Reclaimable),
        "OPENED, timing out" => open(stage, TimingOut),
        "OPENED, ended" => open(stage, Gone),
        "NACK, timing out" => stage.say(Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()),
        "NACK, ended" => stage.say(Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()),
        "NACK of the next" => stage.nack(NackReason::TimingOut),
        "KNOWN" => stage.say(Known { serial: 1, echo, session: SESSION }.into()),
        "HINT" => stage.say(Hint { echo, detail: Bytes8(b"") }.into()),
        "ENDED" => stage.say(Ended { serial: 2, echo }.into()),
        "complete" => stage.complete(),
        "users stop" => stage.stop(),
        "close" => {
            stage.script.agent.close(stage.script.now());
            stage.script.turn();
        }
        "time" => drop(stage.script.run(20_000)),
        other => panic!("{other}"),
    }
}

#[test]
fn every_state_goes_where_the_table_says() {
    // Of each state what becomes of it, in the order of the events; "" where the event cannot happen.
    let events = [
        "OPENED, reclaimable",
        "OPENED, timing out",
        "OPENED, ended",
        "NACK, timing out",
        "NACK, ended",
        "NACK of the next",
        "KNOWN",
        "HINT",
        "ENDED",
        "complete",
        "users stop",
        "close",
        "time",
    ];
    #[rustfmt::skip]
    let table = [
        ("open",    ["source", "lost",   "gone", "lost",   "gone",   "",     "open",    "open",   "open",   "",     "open",   "lost",    "open"]),
        ("unused",  ["source", "ending", "gone", "ending", "gone",   "",     "open",    "open",   "open",   "",     "open",   "closing", "open"]),
        ("closing", ["",       "",       "",     "gone",   "gone",   "",     "closing", "gone",   "gone",   "",     "closing", "closing", "gone"]),
        ("source",  ["source", "lost",   "gone", "source", "source", "lost", "source",  "source", "source", "gone", "source", "lost",    "source"]),
        ("lost",    ["lost",   "lost",   "gone", "lost",   "lost",   "",     "lost",    "lost",   "lost",   "",     "ending", "lost",    "ending"]),
        ("ending",  ["ending", "ending", "gone", "ending", "gone",   "",     "ending",  "ending", "gone",   "",     "ending", "ending",  "ending"]),
    ];
    for (state, goes) in table {
        for (event, expected) in events.into_iter().zip(goes).filter(|(_, expected)| !expected.is_empty()) {
            let mut stage = Stage::of(state);
            happens(&mut stage, event);
            assert_eq!(stage.state(), expected, "{state}, {event}");
            // What a former session is told is dropped with a name; that is not what this is about.
            stage.script.drops = stage.script.agent.drops().total();
        }
    }
}

#[test]
fn next_session_after_a_reclaim_is_the_only_one() {
    let mut stage = Stage::of("source");
    assert_eq!(stage.script.agent.session_states(), [(SESSION, "source"), (SECOND, "open")]);
    happens(&mut stage, "complete");
    assert_eq!(stage.script.agent.session_states(), [(SECOND, "open")]);
    assert!(matches!(stage.script.submit(lock(7, Mode::Exclusive, Wait::Try)), crate::api::Submitted::Now(Err(_))), "it is held as before");
    stage.script.drops = stage.script.agent.drops().total();
}
