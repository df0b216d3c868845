//! The servers of the group: learned from the store, and changed by the one that serves.
//!
//! Decides which change an operator may make: of one server, while a majority of the next list is heard, and when the last change is agreed on. Invariant:
//! the list that is shown, looked up and sealed for is that of the machine.
//! Leaves to others: from when on a list counts (`cistern_group`), the one transaction that writes it (`cistern_store_etcd`).

use super::{GroupServices, key_of, named};
use crate::group::{GroupList, LookFor, Troubles};
use crate::local::Failure;
use crate::on_etcd::StoredServers;
use cistern_driver::{Address, AddressError, ConnectionId};
use cistern_group::GroupServer;
use cistern_link::Instant;
use serde_json::json;

/// A list that was written, and who waits until it is agreed on.
pub(super) struct ServersChange {
    asked: ConnectionId,
    number: u32,
    until: Instant,
}

impl GroupServices {
    /// The store has answered, with this list of servers.
    pub(super) fn learn_servers(&mut self, machine: &mut GroupServer, now: Instant, stored: Option<StoredServers>) {
        if stored.is_some() && self.stored == stored {
            return;
        }
        let before = std::mem::replace(&mut self.stored, stored.clone());
        let list = match stored.as_ref().map(|(_, text)| GroupList::of_store(text)).transpose() {
            Ok(list) => list,
            Err(why) => return log::error!("the servers of the store cannot be read, and this one takes no part: {why}"),
        };
        let names = list.as_ref().map(GroupList::names);
        let numbered = stored.as_ref().map(|(number, _)| *number).zip(names.as_deref());
        let me = self.member.list.members()[usize::from(self.member.me)].clone();
        if machine.learn_servers(now, numbered)
            && let Some(list) = list
        {
            log::info!("the servers of the store are {list} (list number {})", machine.node().list_number());
            if before.is_none() && list != self.member.list {
                log::warn!("--group says {}: the list of the store counts", self.member.list);
            }
            (self.member.me, self.troubles) = (machine.node().group().me, Troubles::new(&list));
            // Whoever looks lives as long as the process.
            let _ = self.look.send(LookFor::Members(list.clone()));
            self.seal_for(machine, &list);
            self.member.list = list;
        } else if let Some(list) = list.filter(|_| !machine.node().is_listed()) {
            log::warn!(
                "the servers of the store are {list}, and {me} is none of them: `cistern admin add-server {me}` on the host of the one that serves adds it"
            );
        }
    }

    /// Seals for these servers from now on.
    fn seal_for(&mut self, machine: &mut GroupServer, list: &GroupList) {
        let keys = match self.opener.keys() {
            Ok(Some(keys)) => keys,
            Ok(None) => return,
            Err(failure) => return log::error!("the keys of the servers cannot be read: {}", failure.message),
        };
        let mut of_places = vec![None; list.members().len()];
        for (place, member) in list.present() {
            match key_of(&keys, member) {
                Ok(key) => of_places[usize::from(place)] = Some(key),
                Err(failure) => self.troubles.tell(place, failure.message, list),
            }
        }
        if let Some(own) = keys.keys.first()
            && let Err(e) = machine.node_mut().change_keys(own, self.member.me, &of_places)
        {
            log::error!("datagrams to the other servers cannot be sealed: {e}");
        }
    }

    /// The servers that the store has, where this one is none of them.
    pub(super) fn outside_of(&self, machine: &GroupServer) -> Option<String> {
        let (number, text) = self.stored.as_ref().filter(|_| !machine.node().is_listed())?;
        Some(format!("{} (list number {number})", GroupList::of_store(text).ok()?))
    }

    /// Has one server more or less from now on, as an operator wants it; answered when that is agreed on.
    pub(super) fn change_servers(
        &mut self,
        machine: &GroupServer,
        now: Instant,
        asked: ConnectionId,
        name: &str,
        change: fn(&GroupList, &Address) -> Result<GroupList, Failure>,
    ) -> Result<(), Failure> {
        let member = address(name)?;
        let list = change(&self.member.list, &member)?;
        if list.place_of(&self.member.list.members()[usize::from(self.member.me)]).is_err() {
            return Err(Failure::usage(format!(
                "{member} is this server, which serves: `cistern admin hand-over` first, then ask the next one"
            )));
        }
        if self.changing.is_some() || !machine.may_change_servers(now, machine.node().list_number()) {
            return Err(Failure::failed("no majority has agreed to the last list of servers yet: ask again"));
        }
        let (node, recently) = (machine.node(), machine.node().group().terms.lease);
        let is_heard = |place: u8| place == self.member.me || node.heard(place).is_some_and(|heard| now.since(heard) < recently);
        let before = &self.member.list;
        let (heard, count) =
            (list.present().filter(|(place, name)| before.place_of(name).is_ok() && is_heard(*place)).count(), list.present().count());
        // A group of one grows by who is to be the second.
        if heard < count / 2 + 1 && before.present().count() > 1 {
            return Err(Failure::failed(format!(
                "{heard} of the {count} servers {list} were heard within {recently:?}, and a majority must be: otherwise nobody could serve; start those \
                 that are down, or remove them first"
            )));
        }
        if before.place_of(&member).is_err()
            && let Some(keys) = self.opener.keys()?
        {
            key_of(&keys, &member.with_port(before.port()))?;
        }
        let Some((_, backing)) = &mut self.backing else { return Err(Failure::failed("this server does not serve yet: ask again")) };
        let number = node.list_number() + 1;
        backing.change_servers((number, list.to_store()));
        self.changing = Some(ServersChange { asked, number, until: now.plus(20 * recently) });
        Ok(())
    }

    /// Tells who waits for another list that it counts, or why that is not known.
    pub(super) fn servers_changed(&mut self, machine: &GroupServer, now: Instant) {
        let Some(ServersChange { asked, number, until }) = self.changing else { return };
        let came = match () {
            () if machine.may_change_servers(now, number) => {
                let servers: Vec<String> = self.member.list.present().map(|(_, member)| member.to_string()).collect();
                Ok(json!({ "number": machine.node().list_number(), "servers": servers }))
            }
            () if machine.core().is_none() || now.waited(until) => Err(Failure::failed(format!(
                "it is not known yet whether the list of servers was changed: `cistern admin status` shows which one counts, {} serves as far as this one knows",
                machine.owner(now).map_or_else(|| "nobody".to_owned(), |owner| named(&self.member.list, owner))
            ))),
            () => return,
        };
        self.changing = None;
        self.guests.operators.group_answered(asked, came);
    }
}

/// A server as an operator names it.
pub(super) fn address(name: &str) -> Result<Address, Failure> {
    name.parse().map_err(|e: AddressError| Failure::usage(e.to_string()))
}
