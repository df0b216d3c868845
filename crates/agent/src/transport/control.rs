//! Control messages on their way: CONFIRM, KEEPALIVE, RELEASE, CANCEL, ROSTER, END_SESSION.
//!
//! CONFIRM leads every datagram until it is answered, for nothing else opens the session. Releases share a message. Each message but a keep-alive is sent again, in the same words, until it is answered; none waits for a window. At
//! most one keep-alive is out, and each is a message of its own, so that its clock reading is that of its sending (`wire-spec.md` 6.3).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::Field as _;
use cistern_wire::limits::MESSAGE_HEADER_LEN;
use cistern_wire::{
    Cancel, Confirm, EndReason, EndSession, Form, FormerClaim, KeepAlive, List, Message, Packer, Release, ReleaseItem, Released,
    ReleasedItem, RosterAsk,
};

/// The number of CONFIRM: it is the first.
const CONFIRM: u64 = 1;

/// CONFIRM, as long as it is not answered.
#[derive(Debug)]
struct Confirming {
    former: Vec<FormerClaim>,
    due: bool,
    attempts: u32,
}

/// What a control message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Renew the lease.
    KeepAlive,
    /// Locks given back.
    Release(Vec<ReleaseItem>),
    /// A request taken back.
    Cancel {
        /// The request.
        nonce: u64,
    },
    /// A part of the roster is asked for.
    Roster {
        /// Its first byte.
        offset: u16,
    },
    /// The session is closed.
    End,
}

#[derive(Debug)]
struct Unanswered {
    body: Control,
    /// Items of a release that no answer has named yet, a bit for each.
    left: u32,
    attempts: u32,
}

/// A control message that goes out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Its number.
    pub(crate) serial: u64,
    /// How often it was sent before; of a keep-alive, how many before it were not answered.
    pub(crate) before: u32,
}

/// The control messages of one session.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    last_serial: u64,
    confirm: Option<Confirming>,
    unanswered: BTreeMap<u64, Unanswered>,
    due: BTreeSet<u64>,
    /// The keep-alive that is not answered.
    keeping: Option<u64>,
    /// The requests whose cancellations are not.
    cancelling: BTreeSet<u64>,
    /// Locks to be given back that have no message yet: each gets one when there is room for it, however many they are.
    giving: VecDeque<ReleaseItem>,
}

/// CONFIRM.
impl Controls {
    /// Those of a session that is to be opened, with what is said of the agent's others.
    pub(crate) fn confirming(former: Vec<FormerClaim>) -> Self {
        Self { last_serial: CONFIRM, confirm: Some(Confirming { former, due: true, attempts: 0 }), ..Self::default() }
    }

    /// Whether CONFIRM is not answered.
    pub(crate) const fn is_confirming(&self) -> bool {
        self.confirm.is_some()
    }

    /// Whether a datagram is to be sent if only for CONFIRM.
    pub(crate) fn is_confirm_due(&self) -> bool {
        self.confirm.as_ref().is_some_and(|confirm| confirm.due)
    }

    /// Bytes that CONFIRM takes of each datagram.
    pub(crate) fn lead_len(&self) -> usize {
        self.confirm.as_ref().map_or(0, |confirm| MESSAGE_HEADER_LEN + Confirm::MIN_LEN + confirm.former.len() * FormerClaim::LEN)
    }

    /// Begins a datagram by CONFIRM, if that is not answered.
    pub(crate) fn lead(&self, packer: &mut Packer<'_>) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The agent MUST begin each datagram of a session with CONFIRM, in the same words, until that is answered.
        if let Some(confirm) = &self.confirm {
            let fits = packer.push(&Confirm { serial: CONFIRM, former: List::of(&confirm.former) }.into());
            debug_assert!(fits, "it is the first");
        }
    }

    /// A datagram that it leads goes out.
    pub(crate) fn led(&mut self) -> Option<Sent> {
        let confirm = self.confirm.as_mut()?;
        let before = confirm.attempts;
        confirm.attempts += u32::from(core::mem::replace(&mut confirm.due, false));
        Some(Sent { serial: CONFIRM, before })
    }
}

impl Controls {
    /// The number of the next message; for one that is sent when the session is over.
    pub(crate) const fn next_serial(&self) -> u64 {
        self.last_serial + 1
    }

    /// Gives a lock back, with others in one message.
    pub(crate) fn release(&mut self, item: ReleaseItem) {
        self.giving.push_back(item);
    }

    /// Takes a request back.
    pub(crate) fn cancel(&mut self, nonce: u64) {
        if self.cancelling.insert(nonce) {
            self.add(Control::Cancel { nonce }, 0);
        }
    }

    /// Renews the lease on purpose, unless that is being tried already.
    pub(crate) fn keep_alive(&mut self) {
        if self.keeping.is_none() {
            self.add(Control::KeepAlive, 0);
        }
    }

    /// The lease was renewed, or is not worth it: no further keep-alive goes out. Gives the number of the one that did.
    pub(crate) fn stop_keeping(&mut self) -> Option<u64> {
        let serial = self.keeping?;
        self.answered(serial);
        Some(serial)
    }

    /// Asks for a part of the roster.
    pub(crate) fn ask_roster(&mut self, offset: u16) {
        self.add(Control::Roster { offset }, 0);
    }

    /// The number of the message that asks for a part of the roster, and is not answered.
    pub(crate) fn roster_asked(&self) -> Option<u64> {
        self.unanswered.iter().find(|(_, message)| matches!(message.body, Control::Roster { .. })).map(|(serial, _)| *serial)
    }

    /// Whether a keep-alive is wanted and not answered.
    pub(crate) const fn is_keeping(&self) -> bool {
        self.keeping.is_some()
    }

    fn add(&mut self, body: Control, attempts: u32) {
        self.last_serial += 1;
        let left = if let Control::Release(items) = &body { all_of(items.len()) } else { 0 };
        if body == Control::KeepAlive {
            self.keeping = Some(self.last_serial);
        }
        self.unanswered.insert(self.last_serial, Unanswered { body, left, attempts });
        self.due.insert(self.last_serial);
    }

    /// Whether something is to be sent now.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty() || !self.giving.is_empty() || self.is_confirm_due()
    }

    /// Whether one is out of which nobody would see that its answer does not come.
    pub(crate) fn untimed(&self, is_timed: impl Fn(u64) -> bool) -> bool {
        let confirm = self.is_confirming() && !self.is_confirm_due() && !is_timed(CONFIRM);
        confirm || self.unanswered.keys().any(|serial| !self.due.contains(serial) && !is_timed(*serial))
    }

    /// Puts what is to be sent into a datagram, as far as it fits; gives the numbers of what went in.
    pub(crate) fn send(&mut self, packer: &mut Packer<'_>, now: Instant) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            if self.due.is_empty() && !self.giving.is_empty() {
                // So many that its answer is one message in the smallest datagram. More go into further ones.
                let count = self.giving.len().min(Released::items_max(packer.form()));
                let items = self.giving.drain(..count).collect();
                self.add(Control::Release(items), 0);
            }
            let Some(serial) = self.due.first().copied() else { break };
            if let Some(control) = self.unanswered.get_mut(&serial) {
                if !packer.push(&message(serial, &control.body, now)) {
                    break;
                }
                sent.push(Sent { serial, before: control.attempts });
                control.attempts = control.attempts.saturating_add(1);
            }
            self.due.remove(&serial);
        }
        sent
    }

    /// The timeout of a message has passed: it goes out again. False if it was answered.
    pub(crate) fn overdue(&mut self, serial: u64) -> bool {
        if let Some(confirm) = self.confirm.as_mut().filter(|_| serial == CONFIRM) {
            confirm.due = true;
            return true;
        }
        match self.unanswered.get(&serial) {
            None => false,
            Some(Unanswered { body: Control::KeepAlive, attempts, .. }) => {
                let attempts = *attempts;
                self.answered(serial);
                self.add(Control::KeepAlive, attempts);
                true
            }
            Some(_) => {
                self.due.insert(serial);
                true
            }
        }
    }

    /// A release was answered, as far as `items` goes. Whether it is answered whole now.
    pub(crate) fn released(&mut self, serial: u64, items: List<'_, ReleasedItem>) -> bool {
        let Some(control) = self.unanswered.get_mut(&serial) else { return false };
        if let Control::Release(given) = &control.body {
            //= wire-spec.md#6-3-control
            //# An agent MUST NOT take a RELEASE as answered before RELEASED messages of its serial named all its items.
            for item in items {
                // One generation may stand in it twice: kept shared at first, and then not at all.
                let names = |given: &ReleaseItem| (given.lock, given.generation) == (item.lock, item.generation);
                let named = given.iter().enumerate().filter(|(_, given)| names(given));
                control.left &= named.fold(u32::MAX, |left, (at, _)| left & !(1 << at));
            }
        }
        let whole = control.left == 0;
        if whole {
            self.answered(serial);
        }
        whole
    }

    /// Everything that is unanswered goes out again: the server may be there after all.
    pub(crate) fn wake(&mut self) {
        self.due.extend(self.unanswered.keys());
        self.confirm.iter_mut().for_each(|confirm| confirm.due = true);
    }

    /// The session is closed, and nothing else in it matters any more, but that it is opened first.
    pub(crate) fn only_end(&mut self) {
        *self = Self { last_serial: self.last_serial, confirm: self.confirm.take(), ..Self::default() };
        self.add(Control::End, 0);
    }

    /// A message was answered; gives what it said, the first time.
    pub(crate) fn answered(&mut self, serial: u64) -> Option<Control> {
        self.confirm.take_if(|_| serial == CONFIRM);
        self.due.remove(&serial);
        let body = self.unanswered.remove(&serial)?.body;
        match body {
            Control::KeepAlive => self.keeping = None,
            Control::Cancel { nonce } => {
                self.cancelling.remove(&nonce);
            }
            Control::Release(_) | Control::Roster { .. } | Control::End => {}
        }
        Some(body)
    }
}

/// A bit for each of the items of a release.
fn all_of(items: usize) -> u32 {
    debug_assert!(items <= Released::items_max(Form::Plain), "a release fits one answer");
    (1 << items) - 1
}

fn message(serial: u64, body: &Control, now: Instant) -> Message<'_> {
    match body {
        Control::KeepAlive => KeepAlive { serial, clock_us: now.raw_ns / 1_000 }.into(),
        Control::Release(items) => Release { serial, items: List::of(items) }.into(),
        Control::Cancel { nonce } => Cancel { serial, nonce: *nonce }.into(),
        Control::Roster { offset } => RosterAsk { serial, offset: *offset }.into(),
        Control::End => EndSession { serial, reason: EndReason::Close }.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::limits::DATAGRAM_MIN;
    use cistern_wire::{Generation, Header, Keep, LockClass, LockId, ObjectId, SessionId};

    const NOW: Instant = Instant::new(5_000_000, 0);

    fn item(object: u64) -> ReleaseItem {
        let lock = LockId { object: ObjectId(object), class: LockClass::Cache };
        ReleaseItem { lock, generation: Generation(object), keep: Keep::Nothing }
    }

    fn send(controls: &mut Controls) -> (Vec<Sent>, Vec<u8>) {
        let mut bytes = Vec::new();
        let header = Header { from_server: false, session: SessionId(1), packet: 1 };
        let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MIN);
        let sent = controls.send(&mut packer, NOW);
        packer.finish();
        (sent, bytes)
    }

    #[test]
    fn release_that_names_a_generation_twice_is_answered_when_that_is_named() {
        let mut controls = Controls::default();
        controls.release(ReleaseItem { keep: Keep::Shared, ..item(1) });
        controls.release(item(1));
        send(&mut controls);
        let named = ReleasedItem { lock: item(1).lock, generation: item(1).generation, now: Generation(0), keep: Keep::Nothing };
        assert!(controls.released(1, List::of(&[named])));
        assert!(!controls.overdue(1), "it is not sent again");
    }

    #[test]
    fn releases_share_a_message_and_keep_it_when_sent_again() {
        let mut controls = Controls::default();
        (1..=3).for_each(|object| controls.release(item(object)));
        let (sent, bytes) = send(&mut controls);
        assert_eq!(sent, [Sent { serial: 1, before: 0 }]);
        assert!(!controls.has_due());
        controls.release(item(4));
        assert!(controls.overdue(1));
        let (sent, again) = send(&mut controls);
        assert_eq!(sent, [Sent { serial: 1, before: 1 }, Sent { serial: 2, before: 0 }]);
        assert_eq!(again[20..bytes.len() - 4], bytes[20..bytes.len() - 4], "the same words");
        assert!(matches!(controls.answered(1), Some(Control::Release(items)) if items.len() == 3));
        assert!(controls.answered(1).is_none() && !controls.overdue(1));
    }

    #[test]
    fn more_releases_than_an_answer_can_name_go_into_several_messages_and_datagrams() {
        let mut controls = Controls::default();
        (1..=60).for_each(|object| controls.release(item(object)));
        let (mut sent, mut datagrams) = (0, 0);
        while controls.has_due() {
            sent += send(&mut controls).0.len();
            datagrams += 1;
        }
        assert_eq!((sent, datagrams), (4, 3), "19 items a message; the last three share a datagram with others");
    }

    #[test]
    fn each_keep_alive_is_a_new_message_and_only_one_is_out() {
        let mut controls = Controls::default();
        controls.keep_alive();
        controls.keep_alive();
        assert_eq!(send(&mut controls).0, [Sent { serial: 1, before: 0 }]);
        assert!(controls.overdue(1));
        assert_eq!(send(&mut controls).0, [Sent { serial: 2, before: 1 }], "and backs off");
        controls.stop_keeping();
        assert!(!controls.is_keeping() && !controls.overdue(2));
    }

    #[test]
    fn a_keep_alive_that_is_overdue_when_it_is_woken_is_replaced_not_added_to() {
        let mut controls = Controls::default();
        controls.keep_alive();
        send(&mut controls);
        controls.wake();
        assert!(controls.overdue(1));
        assert_eq!(send(&mut controls).0, [Sent { serial: 2, before: 1 }]);
        assert!(!controls.has_due(), "nothing is due that is not there to be sent");
    }

    #[test]
    fn a_request_is_taken_back_by_one_message() {
        let mut controls = Controls::default();
        controls.cancel(7);
        controls.cancel(7);
        assert_eq!(send(&mut controls).0.len(), 1);
    }
}
