//! Outcomes: what became of a mutation, for an agent that lost its answer with its session.
//!
//! Decides what is kept (the newest mutation of each place in the window, in the batch of the mutation itself), when it goes (with the
//! session), and what OUTCOME is told. Place in the walk: under `execute`; asked in the agent's present session about a former one.
//! Implements `wire-spec.md` sections 11.2 and 11.7. Invariant: after "not executed" the mutation is never executed; "executed" is
//! said only of what is durable.
//! Leaves to others: the reply cache of a session that is still in the table (`cistern_link`).

use crate::requests::Call;
use crate::server::Server;
use crate::server::answers::{Repeatable, fate, stripped};
use crate::server::execute::{Done, Run};
use crate::sessions::standing::Standing;
use crate::sessions::{SessionKey, Sessions};
use crate::store::{self, OutcomeRecord, Seen, StoreCache};
use alloc::vec::Vec;
use cistern_link::Stored;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Ack, Bytes16, Fate, Field as _, Outcome, OutcomeTold, Reply, Status};

/// What an OUTCOME_TOLD has besides the reply.
const TOLD_AROUND: usize = Reply::KIND_LEN + OutcomeTold::MIN_LEN;

impl Server {
    /// OUTCOME.
    pub(crate) fn outcome(&mut self, call: Call, message: &Outcome) -> Run {
        let Some(agent) = self.sessions.get(call.key).map(|session| session.agent) else {
            return Ok(Done::Silent);
        };
        let former = self.sessions.find(message.session).and_then(|key| Some((key, self.sessions.get(key)?)));
        let Some((key, session)) = former.filter(|(_, session)| session.agent == agent) else {
            return self.tell(call, Fate::Unknown, &[]);
        };
        match session.standing() {
            Standing::Recorded { .. } => {
                let window = session.cache.window();
                self.recorded_outcome(call, message, window)
            }
            Standing::Ended { .. } => {
                let fate = session.fate_after_end(message.nonce);
                self.tell(call, fate, &[])
            }
            // What the store had of it is being deleted.
            Standing::Ending { .. } if session.is_of_before() => self.tell(call, Fate::Unknown, &[]),
            Standing::TimingOut { .. } | Standing::Ending { .. } => self.outcome_of(call, key, message.nonce),
            // A session in good standing tells by itself what became of its requests.
            Standing::Opening | Standing::Good => self.tell(call, Fate::Unknown, &[]),
        }
    }

    /// Of a session that has failed, or ends.
    fn outcome_of(&mut self, call: Call, key: SessionKey, nonce: u64) -> Run {
        // What has had no effect yet never will.
        self.discard_request(key, nonce);
        // What was executed stands in a batch before that of the session in which this is asked: it is durable, and its reply is kept.
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(Done::Silent);
        };
        let fate = fate(session.cache.fence(nonce));
        let mut reply = Vec::new();
        if let (Fate::Executed, Some(Stored::Bytes(stored))) = (fate, session.cache.stored(nonce)) {
            stripped(stored, &mut reply);
        }
        self.tell(call, fate, &reply)
    }

    /// Of a session of before the start: by what the store has kept. Nothing of it can execute any more.
    fn recorded_outcome(&mut self, call: Call, message: &Outcome, window: u16) -> Run {
        //= wire-spec.md#11-2-delivery
        //# A server MUST answer what became of a mutation under an earlier incarnation, and MUST NOT execute it after it said "not
        //# executed".
        let kept = self.store.view(&Seen::default()).outcome(message.session, slot(message.nonce, window))?.cloned();
        match kept {
            Some(kept) if kept.nonce == message.nonce => self.tell(call, Fate::Executed, &kept.reply),
            // The agent had said that it no longer awaits it.
            Some(kept) if kept.nonce > message.nonce => self.tell(call, Fate::Unknown, &[]),
            Some(_) | None => self.tell(call, Fate::NotExecuted, &[]),
        }
    }

    fn tell(&mut self, call: Call, fate: Fate, reply: &[u8]) -> Run {
        if self.sessions.get(call.key).is_none() {
            return Err(Status::EINVAL.into());
        }
        let room = usize::from(call.limit) - Ack::AROUND - TOLD_AROUND;
        let reply = Bytes16(if reply.len() <= room { reply } else { &[] });
        self.answer_with(&Reply::OutcomeTold(OutcomeTold { fate, reply }), Repeatable::Changes)
    }
}

/// A mutation has changed something, in the open batch: so is its outcome.
pub(crate) fn keep_outcome(cache: &mut StoreCache, sessions: &mut Sessions, call: Call, reply: &[u8]) {
    let Some(session) = sessions.get_mut(call.key) else {
        return;
    };
    let slot = slot(call.nonce, session.cache.window());
    session.outcomes = session.outcomes.max(slot + 1);
    let record = OutcomeRecord::bytes_of(if bugs::is(Bug::M31) { 0 } else { call.nonce }, reply);
    //= wire-spec.md#11-2-delivery
    //# A mutation's effects and its outcome MUST become durable in one transaction, and the outcome stays until the floor has passed it or
    //# its session is forgotten.
    cache.put(store::Key::Outcome(call.key.id(), slot), Some(record.into()));
}

/// Where the outcome of a nonce is kept.
fn slot(nonce: u64, window: u16) -> u16 {
    u16::try_from(nonce % u64::from(window.max(1))).unwrap_or(0)
}
