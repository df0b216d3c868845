//! What is in flight: every message ever sent that can still matter, by kind and by age.
//!
//! The network is a set that only grows. A message in it may be delivered now, later, often, out of order or never, so loss,
//! reordering, duplication and delay need no steps of their own, and a schedule of any lossy network is a schedule of this one.
//! A packet number is represented by the age of its transmission: two transmissions of one message in the same tick are alike
//! to everybody. Ages stop growing at τ, from where on an echo is worth nothing (section 11.1). Section 11.2 of the spec.
//! Messages about one generation (demand, receipt, release, grant) lie in [`crate::state::Generation`].

use crate::bugs::Bug;
use crate::rules::Rules;

/// The ages, 0 to τ, of the transmissions of a message; τ stands for "τ or older".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ages(u8);

impl Ages {
    /// Is there none?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is there a transmission of this age?
    pub fn has(self, age: u8) -> bool {
        self.0 & (1 << age) != 0
    }

    /// Adds one of this age.
    pub fn add(&mut self, age: u8) {
        self.0 |= 1 << age;
    }

    /// All ages there are, youngest first.
    pub fn each(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |age| self.has(*age))
    }

    /// The youngest.
    pub fn youngest(self) -> Option<u8> {
        self.each().next()
    }

    fn grow_older(&mut self, tau: u8) {
        let oldest = self.0 & (1 << tau);
        self.0 = ((self.0 & !oldest) << 1) | oldest;
    }

    /// Keeps only what could still lengthen a lease of which `lease` ticks are left.
    fn drop_useless(&mut self, rules: &Rules, lease: u8) {
        self.0 = self.each().filter(|age| rules.credit(*age) > lease).fold(0, |bits, age| bits | (1 << age));
    }

    /// Makes all that cannot lengthen the lease alike.
    fn merge_useless(&mut self, rules: &Rules, lease: u8) {
        self.0 = self.each().map(|age| if rules.credit(age) > lease { age } else { rules.tau }).fold(0, |bits, age| bits | (1 << age));
    }

    /// Keeps the youngest only.
    fn keep_youngest(&mut self) {
        self.0 &= self.0.wrapping_neg();
    }
}

/// What is in flight between one agent and the server, in the agent's present session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wire {
    /// Transmissions of the lock request that the agent waits for.
    pub acquire: Ages,
    /// Answers to it, by the age of the transmission echoed; what they say is in the server's reply cache.
    pub answer: Ages,
    /// Keep-alives.
    pub renew: Ages,
    /// Answers to keep-alives, by the age of the transmission echoed.
    pub renewed: Ages,
    /// CONFIRMs of the session that the agent is opening.
    pub confirm: Ages,
    /// OPENEDs, by the age of the CONFIRM echoed.
    pub opened: Ages,
    /// A CONFIRM of the session that is open by now; kept only where a bug acts on it.
    pub old_confirm: bool,
    /// A NACK for the present session.
    pub nack: bool,
}

impl Wire {
    /// Forgets everything of a session that the agent has lost; what is left of it can change nothing.
    pub fn session_lost(&mut self, rules: &Rules) {
        let answer = if rules.has(Bug::AnswerAfterNack) { self.answer } else { Ages::default() };
        *self = Wire { answer, ..Wire::default() };
    }

    /// The lock request was answered: the agent waits for no other answer to it.
    pub fn acquire_answered(&mut self) {
        self.acquire = Ages::default();
        self.answer = Ages::default();
    }

    /// One tick passes.
    pub fn tick(&mut self, tau: u8) {
        for ages in [&mut self.acquire, &mut self.answer, &mut self.renew, &mut self.renewed, &mut self.confirm, &mut self.opened] {
            ages.grow_older(tau);
        }
    }

    /// Drops what can make no difference to an agent whose lease has `lease` ticks left. Credit and lease shrink together, so what
    /// is useless stays useless.
    pub fn tidy(&mut self, rules: &Rules, lease: u8) {
        self.renewed.drop_useless(rules, lease);
        for ages in [&mut self.acquire, &mut self.answer, &mut self.renew, &mut self.confirm, &mut self.opened] {
            ages.merge_useless(rules, lease);
        }
    }

    /// Keeps of each message the youngest transmission. An older one gives a shorter lease and is otherwise the same, and whatever
    /// an agent with the shorter lease does, one with the longer lease may do too.
    pub fn keep_youngest(&mut self) {
        for ages in [&mut self.acquire, &mut self.answer, &mut self.renew, &mut self.renewed, &mut self.confirm, &mut self.opened] {
            ages.keep_youngest();
        }
    }
}
