//! The auditor: a story, and the verdicts over it.
//!
//! Decides in which order a datagram is taken in and judged. Place in the walk: fed with datagrams in the order of the capture, asked
//! for its report at any time. Invariant: judging changes nothing of the story.
//! Leaves to others: the story (`story`), the rules (`checks`).

use crate::checks;
use crate::event::Passage;
use crate::story::{Promise, Story};
use crate::vantage::{Terms, Vantage};
use crate::verdict::{Court, Report, Violation, Why};
use cistern_wire::SessionId;
use std::time::Duration;

/// Judges a capture.
#[derive(Debug)]
pub struct Auditor {
    story: Story,
    court: Court,
    terms: Terms,
}

impl Auditor {
    /// An auditor of a capture from this vantage.
    #[must_use]
    pub fn new(vantage: Vantage, terms: Terms) -> Self {
        Self { story: Story::new(vantage, terms), court: Court::default(), terms }
    }

    /// Takes the next datagram in and judges it; gives how many violations there are since the beginning.
    pub fn take(&mut self, passage: Passage<'_>) -> u64 {
        self.story.take(passage);
        self.court.doubts(self.story.all_told_apart().err());
        let evidence = Evidence { story: &self.story, terms: &self.terms };
        for event in self.story.events() {
            checks::judge(&evidence, event, passage, &mut self.court);
        }
        checks::datagram(&evidence, passage, &mut self.court);
        self.court.found()
    }

    /// How many violations there are.
    #[must_use]
    pub const fn found(&self) -> u64 {
        self.court.found()
    }

    /// The newest violation that is kept in words.
    #[must_use]
    pub fn newest(&self) -> Option<&Violation> {
        self.court.newest()
    }

    /// What came of it so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.court.report(self.story.tally())
    }

    /// The story, for tests of its bounds.
    #[cfg(test)]
    pub(crate) const fn story_mut(&mut self) -> &mut Story {
        &mut self.story
    }

    /// The story so far.
    #[must_use]
    pub const fn story(&self) -> &Story {
        &self.story
    }
}

/// What checks look at.
pub(crate) struct Evidence<'a> {
    pub(crate) story: &'a Story,
    pub(crate) terms: &'a Terms,
}

impl Evidence<'_> {
    /// Whether what is absent of a session was never there; else why that is not certain.
    pub(crate) fn whole(&self, session: SessionId) -> Result<(), Why> {
        self.story.whole(session)
    }

    /// T as the capture's clock reads it at the least: on the server's host it is the server's own, elsewhere δ lies between.
    pub(crate) fn wait(&self, promise: &Promise) -> Duration {
        if self.story.vantage.orders_server() { promise.wait } else { promise.shortest_wait() }
    }

    /// Whether the order of what the server sends, over all sessions, is that of the capture.
    pub(crate) const fn in_order(&self) -> Result<(), Why> {
        if self.story.vantage.orders_server() { Ok(()) } else { Err(Why::Vantage) }
    }

    /// Whether the capture is what the server's process has sent and received.
    pub(crate) const fn inside_server(&self) -> Result<(), Why> {
        match self.in_order() {
            Ok(()) if !self.story.vantage.inside => Err(Why::Outside),
            order => order,
        }
    }
}
