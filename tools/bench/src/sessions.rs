//! Requests among many sessions and their locks, beside the same among few: what large tables cost as users meet them, datagrams included.
//!
//! Decides the two populations and how each is made: sessions opened by real handshakes from a few sockets, then GETATTR of every file and
//! LOCK of every file, sixteen files to a session. Then the loads: GETATTR, and RELEASE and LOCK, session and file drawn at random, one in a
//! datagram or sixteen of one session. The files are those of a store that keeps one of them (`scale::Store`), and the server is given the
//! memory to know them all, so that no request waits for a store. Place: a workload, over `crowd` and `cases`.
//! Invariant: many and few are asked the same, in turn, by as many requests at once. Leaves to others: the core alone (`scale`).

use crate::cases::{Plan, Side, connected};
use crate::crowd::{Crowd, Draw, GROUP};
use crate::figures::{Column, Round, count, per, ratio};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section, digits};
use crate::traffic::{Idle, Manner, Pace, Traffic};
use crate::trouble::Trouble;
use std::time::{Duration, Instant};

/// Sessions where there are many, if nothing else is said.
const SESSIONS: u32 = 10_000;
/// Locks to a session, if nothing else is said.
const LOCKS_EACH: usize = 10;
/// Where there are few, as in `scale`; a tenth of many if those are fewer than ten times as many.
const FEW: usize = 1_000;
/// Fewest locks: twice as many sessions have some as ask at once.
const LOCKS_MIN: usize = 2 * AT_ONCE * GROUP;
/// Sockets that the sessions share.
const SOCKETS: usize = 16;
/// Requests at once, of what is measured and while tables are filled.
const AT_ONCE: usize = 64;
const AT_ONCE_FILLING: usize = 1_024;
/// Handshakes under way at once: the server has room for them, and was told that they are no flood.
const OPENING: usize = 512;
/// Sessions opened between two words of progress, and how long is filled between two.
const OPENED_TOGETHER: usize = 4_096;
const FILLED_FOR: Duration = Duration::from_millis(500);
/// What is asked of both.
const LOADS: [(Draw, &str, bool); 4] = [
    (Draw::GetAttr, "getattr, one in a datagram", false),
    (Draw::Lock, "lock+release, one in a datagram", false),
    (Draw::GetAttr, "getattr, 16 in a datagram", true),
    (Draw::Lock, "lock+release, 16 in a datagram", true),
];

/// How many sessions there are, and locks that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    sessions: usize,
    locks: usize,
}

impl Size {
    /// As the command line says, or less.
    pub(crate) fn of(sessions: Option<u32>, locks: Option<u32>) -> Self {
        // A u32 fits a usize on every system with a mio poll.
        let sessions = sessions.unwrap_or(SESSIONS) as usize;
        let locks = locks.map_or(sessions * LOCKS_EACH, |locks| locks as usize);
        Self { sessions, locks: locks.max(LOCKS_MIN) }
    }

    /// The few beside it, with as many locks to a session.
    fn few(self) -> Self {
        let sessions = FEW.min(self.sessions / 10);
        Self { sessions, locks: (self.locks / (self.sessions / sessions)).max(LOCKS_MIN) }
    }

    fn name(self) -> String {
        let of = |n: usize| digits(count(n as u64));
        format!("{} sessions, {} locks", of(self.sessions), of(self.locks))
    }
}

/// A server with its population.
struct Populated {
    side: Side,
    size: Size,
    /// What sessions, files and locks took, in seconds and in bytes of memory.
    made: Vec<(f64, u64)>,
}

/// Measures many beside few.
pub(crate) fn run(many: Size, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let title = "requests among many sessions and their locks, drawn at random, beside the same among few; server CPU, A B A B in one run";
    let mut section = Section::new("sessions", title);
    let mut few = populate(many.few(), plan, progress)?;
    let mut many = populate(many, plan, progress)?;
    for (draw, load, packed) in LOADS {
        progress.say(&format!("{load}, {} beside {}", many.size.name(), few.size.name()));
        let [few, many] = [&mut few, &mut many];
        for one in [&mut *few, &mut *many] {
            one.draw(draw, packed)?;
        }
        let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
        for round in 0..=plan.rounds {
            let (small, large) = (few.side.round(plan.span)?, many.side.round(plan.span)?);
            // The first does not count.
            if round > 0 {
                of_few.push(small);
                of_many.push(large);
            }
        }
        section.rows.push(Row::new(format!("{load}, {}", few.size.name())).exchanges(&column(&of_few)));
        let over = ratio(&of_many, &of_few).expect("the command line lets no plan without rounds through");
        let row = Row::new(format!("{load}, {}", many.size.name())).with("many_over_few", "many/few", over);
        section.rows.push(row.exchanges(&column(&of_many)));
    }
    section.rows.push(many.memory());
    Ok(section
        .note("Half of lock+release are RELEASE, half LOCK of what was given back. Files are known to the server; none is loaded from a store.")
        .note("Memory is what the process grew by while sessions were opened, while each file was asked for, while each lock was taken."))
}

fn column(rounds: &[Round]) -> Column {
    Column::of(rounds).expect("the command line lets no plan without rounds through")
}

/// Starts a server, opens its sessions, and has them lock their files.
fn populate(size: Size, plan: &Plan, progress: &Progress) -> Result<Populated, Trouble> {
    let host = Host::start_with(Role::Server, plan.cores, &Setup { room: Some(size.locks), ..Setup::default() })?;
    let (mut memory, mut begun, mut made) = (host.resident_bytes()?, Instant::now(), Vec::new());
    let sockets = (0..SOCKETS).map(|_| connected(&host)).collect::<Result<Vec<_>, _>>()?;
    let mut agents = Vec::with_capacity(size.sessions);
    let each = size.sessions.div_ceil(SOCKETS);
    for (line, socket) in sockets.iter().enumerate() {
        let (first, end) = (line * each, size.sessions.min((line + 1) * each));
        for start in (first..end).step_by(OPENED_TOGETHER) {
            progress.say(&format!("opening {}: {start} sessions", size.name()));
            agents.extend(opening::open(socket, line, start..end.min(start + OPENED_TOGETHER), OPENING, None)?);
        }
    }
    opening::create(&sockets[0], &mut agents[0], "every-file")?;
    let manner = Manner { pace: Pace::Together, packed: true, idle: Idle::of(plan.cores) };
    let mut traffic = Traffic::new(Role::Server, manner, sockets, agents, Vec::new())?;
    traffic.draw_from(Crowd::new(size.sessions, size.locks), 0, true);
    let mut side = Side::of(traffic, host);
    let mut note = |side: &Side| -> Result<(), Trouble> {
        let now = side.host().resident_bytes()?;
        made.push((begun.elapsed().as_secs_f64(), now.saturating_sub(memory)));
        (memory, begun) = (now, Instant::now());
        Ok(())
    };
    note(&side)?;
    for (draw, what) in [(Draw::KnowAll, "files asked for"), (Draw::LockAll, "files locked")] {
        side.draw(draw, AT_ONCE_FILLING, true);
        while let Some(crowd) = side.go_on(FILLED_FOR)?.filter(|crowd| !crowd.is_over()) {
            progress.say(&format!("filling {}: {} {what}", size.name(), crowd.asked()));
        }
        note(&side)?;
    }
    Ok(Populated { side, size, made })
}

impl Populated {
    /// From now on requests are drawn so; what was given back before is taken first.
    fn draw(&mut self, draw: Draw, packed: bool) -> Result<(), Trouble> {
        self.side.draw(Draw::LockAll, AT_ONCE, true);
        while self.side.go_on(FILLED_FOR)?.is_some_and(|crowd| !crowd.is_over()) {}
        self.side.draw(draw, AT_ONCE, packed);
        Ok(())
    }

    /// How large it is and how long it took.
    fn memory(&self) -> Row {
        let (sessions, locks) = (self.size.sessions as u64, self.size.locks as u64);
        let [opened, known, locked] = self.made[..] else { return Row::new("memory") };
        Row::new(format!("memory, {}", self.size.name()))
            .with("session_bytes", "bytes a session", per(opened.1, sessions))
            .with("file_bytes", "bytes a file asked for", per(known.1, locks))
            .with("lock_bytes", "bytes a lock", per(locked.1, locks))
            .with("opened_s", "s to open", opened.0)
            .with("locked_s", "s to know and lock", known.0 + locked.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_as_many_locks_each_as_many_and_a_tenth_of_the_sessions_at_most() {
        let size = |sessions, locks| Size { sessions, locks };
        assert_eq!(Size::of(Some(1_000_000), Some(10_000_000)).few(), size(1_000, 10_000));
        assert_eq!((Size::of(None, None), Size::of(None, None).few()), (size(10_000, 100_000), size(1_000, 10_000)));
        assert_eq!(Size::of(Some(1_000), Some(64)), size(1_000, LOCKS_MIN));
        assert!(AT_ONCE.is_multiple_of(GROUP) && AT_ONCE_FILLING.is_multiple_of(GROUP));
        assert_eq!(Size::of(Some(1_000_000), Some(10_000_000)).name(), "1,000,000 sessions, 10,000,000 locks");
    }
}
