//! What is wrong between this member and each other one, as the log and the reports say it.

use super::GroupList;
use cistern_flease::Event;
use cistern_group::SealedNode;

/// What was last wrong with each member.
#[derive(Debug)]
pub(crate) struct Troubles(Vec<Option<String>>);

impl Troubles {
    /// None yet.
    pub(crate) fn new(group: &GroupList) -> Self {
        Self(vec![None; group.members().len()])
    }

    /// Of a member.
    pub(crate) fn of(&self, member: usize) -> Option<&String> {
        self.0[member].as_ref()
    }

    /// Notes from whom something came that does not open.
    pub(crate) fn look_at(&mut self, node: &mut SealedNode, group: &GroupList) {
        while let Some(member) = node.poll_unopened() {
            let what = "what comes from there does not open: it has another key in its list, or none, or is not that member";
            self.tell(member, what.to_owned(), group);
        }
    }

    /// Notes what an event says of a member, if it does.
    pub(crate) fn note(&mut self, event: &Event, group: &GroupList) {
        match event {
            Event::Refused { member, mismatch } => self.tell(*member, mismatch.to_string(), group),
            Event::Cloned { member } => self.tell(*member, "two processes act as this member; end one of them".to_owned(), group),
            Event::Acquired { .. } | Event::Lost { .. } | Event::Held { .. } => {}
        }
    }

    /// Says what is wrong with a member.
    pub(crate) fn tell(&mut self, member: u8, what: String, group: &GroupList) {
        log::warn!("{}: {what}", group.members()[usize::from(member)]);
        self.0[usize::from(member)] = Some(what);
    }
}
