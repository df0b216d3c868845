//! A group without a server on hosts of their own, one of which is cut off (docs/flease.md).

use cistern_testkit::network::Network;
use cistern_testkit::{Group, eventually};

#[test]
fn a_command_on_a_host_that_is_cut_off_from_its_group_has_ended_before_it_runs_on_another() {
    let Some(network) = Network::of(&["a", "b", "c"]) else { return };
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let names = hosts.map(|host| format!("{}:7312", host.v4)).to_vec();
    let group = Group::at(hosts.map(|host| host.place()).to_vec(), names, &[]);
    let mut first = group.beat(0);
    eventually("the first runs", || group.newest());
    let _second = group.beat(1);
    network.isolate("a");
    eventually("the second runs", || (group.holders() == 2).then_some(()));
    assert_eq!(first.ended(), Some(79));
    network.heal();
    let _third = group.beat(0);
    // Datagrams pass one way only: the holder is heard and hears nothing, so that it cannot renew.
    network.cut("a", "b");
    network.cut("c", "b");
    eventually("the third runs", || (group.holders() == 3).then_some(()));
}
