//! What each kind of message means, in words.
//!
//! Decides: the sentence for every kind, from the message alone; one exhaustive `match`, an arm a call, so that a kind without words does
//! not compile. Vocabulary: section 1 of `wire-spec.md`, with `wire`'s own names for codes and results.
//! Invariant: names and labels from the wire are escaped, so that nobody's traffic writes to somebody's terminal.
//! Leaves to others: what the rest of the capture adds (which request an answer is about, since when a lease counts: `line`), and whole
//! fields (`detail`).

mod answers;
mod files;
mod leases;
mod locks;
mod session;

use cistern_wire::{CacheGrant, Escaped, Expect, Generation, LockId, Message, Mode, SessionId, Terms, Want};
use std::fmt::Write as _;

/// What the message means.
#[must_use]
pub fn words(message: &Message<'_>) -> String {
    match message {
        Message::Hello(m) => session::hello(m),
        Message::Challenge(m) => session::challenge(m),
        Message::Welcome(m) => session::welcome(m),
        Message::Refuse(m) => session::refuse(m),
        Message::Confirm(m) => session::confirm(m),
        Message::Opened(m) => session::opened(m),
        Message::Known(m) => session::known(m),
        Message::Join(_) => "joins with the key and the invite by which this session was opened".to_owned(),
        Message::Joined(m) => session::joined(m),
        Message::Roster(m) => format!("asks for the roster from byte {} on", m.offset),
        Message::RosterPart(m) => session::roster_part(m),
        Message::KeepAlive(_) => "asks for nothing but to renew the lease".to_owned(),
        Message::Release(m) => locks::release(m),
        Message::Cancel(m) => format!("ends the wait of n{}", m.nonce),
        Message::EndSession(m) => session::end(m),
        Message::PathChallenge(_) => "asks for proof that it is reached at this address".to_owned(),
        Message::PathResponse(_) => "proves that it is reached at this address".to_owned(),
        Message::Demand(m) => locks::demand(m),
        Message::Grant(m) => locks::grant(m),
        Message::WaitOver(m) => locks::wait_over(m),
        Message::Probe(_) => "asks whether the agent's application is there".to_owned(),
        Message::WatchEvent(m) => files::watch_event(m),
        Message::Receipt(m) => locks::receipt(m),
        Message::Reclaim(m) => locks::reclaim(m),
        Message::ReclaimComplete(m) => format!("has reclaimed all that it wants of session {}", short(m.from)),
        Message::Outcome(m) => format!("asks what became of n{} of session {}, which must not happen later", m.nonce, short(m.session)),
        Message::Lookup(m) => files::lookup(m),
        Message::GetAttr(m) => format!("asks for the attributes of {}{}", m.object, wanted(m.want)),
        Message::SetAttr(m) => files::set_attr(m) + &terms(&m.terms),
        Message::ReadDir(m) => files::read_dir(m),
        Message::Create(m) => files::create(m) + &terms(&m.terms),
        Message::Mkdir(m) => files::mkdir(m) + &terms(&m.terms),
        Message::Symlink(m) => files::symlink(m) + &terms(&m.terms),
        Message::Link(m) => files::link(m) + &terms(&m.terms),
        Message::Unlink(m) => files::unlink(m) + &terms(&m.terms),
        Message::Rmdir(m) => files::rmdir(m) + &terms(&m.terms),
        Message::Rename(m) => files::rename(m) + &terms(&m.terms),
        Message::MakeRealm(m) => files::make_realm(m) + &terms(&m.terms),
        Message::SetQuota(m) => files::set_quota(m) + &terms(&m.terms),
        Message::MakeLease(m) => leases::make(m) + &terms(&m.terms),
        Message::Attach(m) => leases::attach(m) + &terms(&m.terms),
        Message::KeepLease(m) => format!("gives the named lease {} its full time again", m.lease),
        Message::ListLeases(m) if m.lease.0 == 0 => "asks which named leases there are".to_owned(),
        Message::ListLeases(m) => format!("asks what goes with the named lease {}", m.lease),
        Message::ListRealms(m) if m.realm.0 == 0 => "asks which realms there are, and what they use".to_owned(),
        Message::ListRealms(m) => format!("asks what realm {} uses", m.realm),
        Message::Read(m) => files::read(m),
        Message::Stage(m) => files::stage(m),
        Message::Write(m) => files::write(m) + &terms(&m.terms),
        Message::Batch(m) => files::batch(m) + &terms(&m.terms),
        Message::GetXattr(m) => files::get_xattr(m),
        Message::ListXattr(m) => files::list_xattr(m),
        Message::SetXattr(m) => files::set_xattr(m) + &terms(&m.terms),
        Message::RemoveXattr(m) => files::remove_xattr(m) + &terms(&m.terms),
        Message::Lock(m) => locks::lock(m),
        Message::ListLocks(m) => locks::list(m),
        Message::ServerStatus(_) => "asks what the server is and how it is".to_owned(),
        Message::Watch(m) => format!("wants to be told when {} changes", m.object),
        Message::Unwatch(m) => format!("need not be told of {} any more", m.object),
        Message::Admin(m) if m.answer == 0 => "gives the server an operator's line".to_owned(),
        Message::Admin(m) => format!("asks for more of what n{} was answered, from byte {}", m.answer, m.offset),
        Message::Ack(m) => answers::reply(&m.reply),
        Message::Pending(_) => "is being executed; the answer follows".to_owned(),
        Message::Queued(m) => answers::queued(m),
        Message::Result(m) => answers::result(m),
        Message::Nack(m) => answers::nack(m),
        Message::Alive(_) => "the server's application is there".to_owned(),
        Message::Released(m) => answers::released(m),
        Message::Cancelled(m) => answers::cancelled(m),
        Message::Ended(_) => "the session has ended, as was asked".to_owned(),
        Message::Hint(_) => "does not know the session; a handshake will tell".to_owned(),
    }
}

/// A session as lines show it: the first 8 of its 16 hexadecimal digits.
#[must_use]
pub fn short(session: SessionId) -> String {
    format!("{:08x}", session.0 >> 32)
}

/// A span of microseconds as people say it.
#[must_use]
pub fn micros(us: u64) -> String {
    let scaled = |unit: u64, name: &str| {
        let thousandths = us.saturating_mul(1_000) / unit;
        let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
        format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => scaled(1_000, "ms"),
        _ => scaled(1_000_000, "s"),
    }
}

/// A span of milliseconds as people say it.
fn millis(ms: u64) -> String {
    micros(ms.saturating_mul(1_000))
}

/// "the advisory lock on #42".
fn lock_name(lock: LockId) -> String {
    format!("the {} lock on {}", lock.class, lock.object)
}

/// "an exclusive", "a shared".
fn a_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "a shared",
        Mode::Exclusive => "an exclusive",
    }
}

/// The tokens of a grant; a cache lock has a generation and no run.
fn tokens(generation: Generation, run: u32) -> String {
    match run {
        0 => format!("generation {generation}"),
        1 => format!("token {generation}"),
        _ => format!("tokens {generation} to {}", generation.0.saturating_add(u64::from(run) - 1)),
    }
}

/// Which cache lock would be welcome with the answer.
fn wanted(want: Want) -> String {
    want.mode().map_or(String::new(), |mode| format!(", with {} cache lock", a_mode(mode)))
}

/// The cache lock that came with data.
fn cached(grant: &CacheGrant) -> String {
    match grant.mode.mode() {
        Some(mode) => format!(", with {} cache lock, generation {}", a_mode(mode), grant.generation),
        None => String::new(),
    }
}

/// Under which conditions a mutation is asked for.
fn terms(terms: &Terms<'_>) -> String {
    let mut text = String::new();
    for Expect { object, version } in terms.expect {
        // Writing to a string does not fail.
        let _ = match version {
            0 => write!(text, ", only if {object} does not exist"),
            _ => write!(text, ", only if {object} has version {version}"),
        };
    }
    if terms.guard_object.0 != 0 {
        let _ = write!(text, ", guarded by token {} on {}", terms.guard_generation, terms.guard_object);
    }
    if !terms.held.is_empty() {
        let _ = write!(text, ", meanwhile not using its cache of {}", list(terms.held.iter().map(|held| held.object.to_string())));
    }
    text + &wanted(terms.want)
}

/// A name or a label in quotes, escaped.
fn text(bytes: &[u8]) -> String {
    format!("\"{}\"", Escaped(bytes))
}

/// "a, b and c".
fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<_> = items.collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        Some(last) => last,
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Kind, samples};
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_words_of_its_own() {
        let mut seen = BTreeSet::new();
        let mut said = BTreeSet::new();
        for message in samples() {
            let text = words(&message);
            assert!(!text.is_empty() && !text.contains('\n'), "{message:?}: {text:?}");
            if seen.insert(message.kind()) {
                assert!(said.insert(text.clone()), "{message:?} says the same as another kind: {text}");
            }
        }
        assert!(Kind::ALL.iter().all(|kind| seen.contains(kind)), "a kind without a sample");
    }

    #[test]
    fn words_of_the_samples_are_these() {
        let text: String = samples().iter().map(|message| format!("{:<16} {}\n", message.kind().name(), words(message))).collect();
        expect_test::expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/words.txt")].assert_eq(&text);
    }

    #[test]
    fn a_name_from_the_wire_cannot_write_to_the_terminal() {
        let hostile = cistern_wire::Bytes8(b"\x1b[31mred\n");
        let ask = cistern_wire::Ask::NONE;
        let dir = cistern_wire::ObjectId(1);
        let rmdir = cistern_wire::Rmdir { ask, dir, name: hostile, terms: Terms::NONE };
        let text = words(&Message::Rmdir(rmdir));
        assert!(text.contains(r"\x1b[31mred\x0a"), "{text}");
        assert!(!text.chars().any(char::is_control), "{text}");
    }

    #[test]
    fn spans_keep_three_decimals_and_no_more() {
        let spans = [(999, "999 µs"), (1_000, "1 ms"), (1_234, "1.234 ms"), (500_000, "500 ms"), (2_021_000, "2.021 s"), (0, "0 µs")];
        for (us, text) in spans {
            assert_eq!(micros(us), text);
        }
        assert_eq!(micros(u64::MAX / 1_000), "18446744073.709 s");
    }
}
