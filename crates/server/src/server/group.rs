//! The servers of the group in which this one is elected, as far as people are shown them.
//!
//! Decides what SERVER_STATUS tells of them. Invariant: nothing else rests on it. Leaves to others: elections (`cistern-flease`).

use crate::server::Server;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Bytes8, Field as _, GroupMember};

/// Who the others are, and when each was heard.
#[derive(Debug)]
pub(crate) struct ServersGroup {
    /// This one's place in the list.
    pub(crate) me: u8,
    names: Vec<Vec<u8>>,
    heard: Vec<Option<Instant>>,
}

impl ServersGroup {
    /// As many of the servers as have room, in bytes.
    pub(crate) fn rows(&self, now: Instant, room: usize) -> Vec<GroupMember<'_>> {
        let mut left = room;
        let all = self.names.iter().enumerate();
        all.map_while(|(place, name)| {
            left = left.checked_sub(GroupMember::MIN_LEN + name.len())?;
            let ago = self.heard.get(place).copied().flatten().map(|heard| now.since(heard).as_millis());
            let heard_ms = match ago {
                _ if place == usize::from(self.me) => 0,
                Some(ms) => u32::try_from(ms).map_or(GroupMember::NOT_HEARD - 1, |ms| ms.min(GroupMember::NOT_HEARD - 1)),
                None => GroupMember::NOT_HEARD,
            };
            Some(GroupMember { name: Bytes8(name.get(..255).unwrap_or(name)), heard_ms })
        })
        .collect()
    }
}

impl Server {
    /// Says which of the servers of a group this one is, from 0, and what they are called.
    #[must_use]
    pub fn in_group(mut self, me: u8, names: Vec<Vec<u8>>) -> Self {
        self.group = Some(Box::new(ServersGroup { me, names, heard: Vec::new() }));
        self
    }

    /// When each server of the group was heard, in the order of their names.
    pub fn group_heard(&mut self, heard: Vec<Option<Instant>>) {
        if let Some(group) = &mut self.group {
            group.heard = heard;
        }
    }
}
