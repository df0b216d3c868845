//! Shares of tables in the whole machine: what is refused to nobody, however much others have.

use super::world::{Peer, World};
use crate::Config;
use crate::config::{PresenceLimits, StageLimits};
use crate::scheduler::prices;
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::{
    Bytes16, Claim, EndReason, EndSession, KeepAlive, Limit, Limited, Message, PathResponse, RefuseReason, Reply, SessionFate, Stage,
    Terms, Watch, Whose, Write,
};
use core::net::SocketAddr;

/// A peer that opens a session from a host.
fn on_host(world: &mut World, n: u8, host: u8) -> Peer {
    let mut peer = Peer::new(n);
    peer.path = Path::to(SocketAddr::from(([198, 51, 100, host], 4_000 + u16::from(n))));
    world.open_again(&mut peer, &[]);
    peer
}

/// Says HELLO; why it was refused.
fn refused(world: &mut World, peer: &mut Peer) -> Option<RefuseReason> {
    peer.handshake += 1;
    let cookie = world.cookie(peer);
    world.hello(peer, &cookie);
    match world.got_one(peer).message() {
        Message::Welcome(_) => None,
        Message::Refuse(refuse) => Some(refuse.reason),
        other => panic!("{other:?}"),
    }
}

/// What a request is refused for, if it is.
fn limit(world: &mut World, peer: &mut Peer, message: Message<'_>) -> Option<Limited> {
    world.send(peer, &[message]);
    match world.got_one(peer).reply() {
        Reply::Limited(limited) => Some(limited),
        Reply::Failed(failed) => panic!("{failed:?}"),
        _ => None,
    }
}

#[test]
fn all_sessions_come_back_after_a_restart_in_whichever_order() {
    let config = Config { sessions_max: 200, volatile: true, challenges_per_second: 1_000_000, ..Config::default() };
    let mut world = World::with(config);
    let mut many: Vec<Peer> = (1..=160).map(|n| on_host(&mut world, n, 1)).collect();
    let mut few: Vec<Peer> = (161..=190).map(|n| on_host(&mut world, n, 2)).collect();
    many.iter().chain(&few).for_each(|peer| drop(world.got(peer)));
    world.crash();
    for n in 191..=200 {
        on_host(&mut world, n, 3);
    }
    let mut late = Peer::new(201);
    late.path = Path::to(SocketAddr::from(([198, 51, 100, 3], 4_201)));
    assert_eq!(refused(&mut world, &mut late), Some(RefuseReason::Busy), "the rest is for those of before");
    for peer in few.iter_mut().chain(&mut many) {
        let former = (peer.session, Claim::Reclaiming);
        assert_eq!(world.open_again(peer, &[former])[0].fate, SessionFate::Reclaimable);
    }
    // Some were probed, for the table is nearly full.
    few.iter().chain(&many).for_each(|peer| drop(world.got(peer)));
}

#[test]
fn sessions_count_for_the_host_that_opened_them_until_they_end() {
    let config = Config { sessions_max: 40, volatile: true, challenges_per_second: 1_000_000, ..Config::default() };
    let mut world = World::with(config);
    let mut peers: Vec<Peer> = (1..=32).map(|n| on_host(&mut world, n, 1)).collect();
    let mut late = Peer::new(40);
    late.path = Path::to(SocketAddr::from(([198, 51, 100, 1], 5_000)));
    assert_eq!(refused(&mut world, &mut late), Some(RefuseReason::Crowded));
    // One that moves to another host counts where it was opened, as it does in its network.
    let mut away = Peer { path: Path::to(SocketAddr::from(([198, 51, 100, 2], 5_001))), packet: 10, ..peers[0].clone() };
    let serial = away.serial();
    world.send(&mut away, &[KeepAlive { serial, clock_us: 0 }.into()]);
    let token = match world.got_one(&away).message() {
        Message::PathChallenge(challenge) => challenge.token,
        other => panic!("{other:?}"),
    };
    world.send(&mut away, &[PathResponse { token }.into()]);
    assert_eq!(world.server.stats().moves, 1);
    assert_eq!(refused(&mut world, &mut late), Some(RefuseReason::Crowded));
    let serial = peers[1].serial();
    world.send(&mut peers[1], &[EndSession { serial, reason: EndReason::Close }.into()]);
    assert_eq!(refused(&mut world, &mut late), None);
    peers.iter().chain([&away]).for_each(|peer| drop(world.got(peer)));
}

#[test]
fn stage_goes_on_and_ends_whatever_its_owner_has() {
    let stages = StageLimits { bytes_per_session: 1 << 20, bytes_total: 1 << 20, stages_per_session: 4_096, ..StageLimits::default() };
    let mut world = World::with(Config { stages, volatile: true, ..Config::default() });
    let (mut first, mut second) = (world.open(1), world.open(2));
    let mut piece = |peer: &mut Peer, stage, total, offset| {
        let data = Bytes16(if total == 0 { b"" } else { b"x" });
        let piece = Stage { ask: peer.ask_only(), stage, total, offset, data };
        limit(&mut world, peer, piece.into())
    };
    let full = |piece: &mut dyn FnMut(u64) -> Option<Limited>| (1..).find(|stage| piece(*stage).is_some());
    full(&mut |stage| piece(&mut first, stage, 100_000, 99_999));
    full(&mut |stage| piece(&mut second, stage, 20_000, 19_999));
    let Limited { limit, whose, used, bound, retry_ms, .. } = piece(&mut first, 99, 20_000, 19_999).expect("its share");
    assert!((limit, whose) == (Limit::Staged, Whose::Host) && used + 20_000 > bound && bound < 1 << 20 && retry_ms > 0);
    assert_eq!(piece(&mut first, 1, 100_000, 5), None, "a piece for which there is memory");
    assert_eq!(piece(&mut first, 1, 0, 0), None, "the end of a stage");
}

#[test]
fn watch_that_is_there_is_made_again_whatever_its_owner_has() {
    let presence = PresenceLimits { watches_max: 2_000, watches_per_session: 2_000, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let (mut first, mut second) = (world.open(1), world.open(2));
    let files: Vec<_> = (0..1_610).map(|n| world.create(&mut first, &alloc::format!("f{n}")).object).collect();
    let mut watch = |peer: &mut Peer, object| {
        let ask = peer.ask_only();
        limit(&mut world, peer, Watch { ask, object }.into())
    };
    let watched = files.iter().take_while(|file| watch(&mut first, **file).is_none()).count();
    files.iter().take_while(|file| watch(&mut second, **file).is_none()).for_each(drop);
    let Limited { limit, whose, used, bound, retry_ms, .. } = watch(&mut first, files[watched]).expect("its share");
    assert_eq!((limit, whose, used, bound, retry_ms), (Limit::Watches, Whose::Host, watched as u64, watched as u64, 0));
    assert_eq!(watch(&mut first, files[0]), None);
}

#[test]
fn a_byte_in_a_full_block_is_charged_as_the_block_that_is_written() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "f").object;
    let charged = |world: &mut World, peer: &mut Peer, offset: u64, data: &[u8]| {
        let before = world.server.figures(world.now).work.charged_ns;
        let ask = peer.ask_only();
        world.send(peer, &[Write { ask, object: file, offset, truncate: false, stage: 0, data: Bytes16(data), terms: Terms::NONE }.into()]);
        assert!(matches!(world.got_one(peer).reply(), Reply::Changed(_)));
        world.server.figures(world.now).work.charged_ns - before
    };
    let alone = charged(&mut world, &mut peer, 0, b"x");
    for n in 0..65 {
        charged(&mut world, &mut peer, n * 1_000, &[7; 1_000]);
    }
    let in_a_block = charged(&mut world, &mut peer, 5, b"x");
    assert!(in_a_block >= alone + u64::from(prices::stored(60_000)), "{in_a_block} after {alone}");
}
