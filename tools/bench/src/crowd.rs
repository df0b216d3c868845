//! A large population: sessions, the files that they have locked, and who asks what next.
//!
//! Decides which session holds which lock, and how requests are drawn: for tables that are being filled one file after the other, for what
//! is measured at random, so that neither the session nor the file that a request is about was looked at shortly before.
//! Place: beside `traffic`, which asks it before each request; made and kept by `sessions`.
//! Invariants: a lock is asked for by the session that holds it, and by one request at a time; its generation is that of its last grant.
//! There are more sessions with locks than requests at once, so that each of these, or each group, can be another session's.
//! Leaves to others: opening the sessions (`opening`), the exchange itself (`slot`, `traffic`).

use crate::scale::FIRST;
use crate::slot::Step;
use cistern_link::Rng;
use cistern_wire::limits::ROOT;
use cistern_wire::{Generation, ObjectId};

/// Files of which one session has the locks; requests that share a datagram are about one such group.
pub(crate) const GROUP: usize = 16;

/// What is asked of the population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// GETATTR of every file once, in order, by the session that is to hold its lock: the server knows the file from then on.
    KnowAll,
    /// LOCK of every file whose lock is not held, in order.
    LockAll,
    /// GETATTR of a file drawn at random, by a session drawn at random.
    GetAttr,
    /// RELEASE and then LOCK of a lock drawn at random, by its session.
    Lock,
}

/// Sessions and locks.
#[derive(Debug)]
pub(crate) struct Crowd {
    sessions: usize,
    /// The generation of the lock of each file; 0 while it is not held.
    held: Vec<u64>,
    rng: Rng,
    draw: Draw,
    /// Requests that are drawn together: of one session, and in one datagram.
    together: usize,
    /// Of the tables that are being filled, the next file.
    next: usize,
    /// What each slot asks: the session and the file.
    drawn: Vec<(usize, usize)>,
}

impl Crowd {
    /// What a slot stands at before anything was drawn for it.
    pub(crate) const FIRST: Step = Step::GetAttr(ObjectId(ROOT));

    /// A population without locks.
    pub(crate) fn new(sessions: usize, locks: usize) -> Self {
        let held = vec![0; locks];
        Self { sessions, held, rng: Rng::from_seed([3; 32]), draw: Draw::GetAttr, together: 1, next: 0, drawn: Vec::new() }
    }

    /// From now on that is drawn, `together` requests at a time (1 or [`GROUP`]), for so many slots of which none is in flight.
    pub(crate) fn begin(&mut self, draw: Draw, together: usize, slots: usize) {
        let nobody = (usize::MAX, usize::MAX);
        (self.draw, self.together, self.next, self.drawn) = (draw, together, 0, vec![nobody; slots]);
        self.pass_over();
    }

    /// Goes on to the next file that is to be asked for.
    fn pass_over(&mut self) {
        while self.draw == Draw::LockAll && self.held.get(self.next).is_some_and(|generation| *generation != 0) {
            self.next += 1;
        }
    }

    /// Whether everything was asked that there was to be asked; never of what is drawn at random.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.draw, Draw::KnowAll | Draw::LockAll) && self.next == self.held.len()
    }

    /// How many files were asked for of those that are asked for in order.
    pub(crate) const fn asked(&self) -> usize {
        self.next
    }

    /// How many locks are held.
    #[cfg(test)]
    fn locked(&self) -> usize {
        self.held.iter().filter(|generation| **generation != 0).count()
    }

    /// Who asks next in the slot numbered `at`, and what; it stands at `step`. `None` where nothing is left to ask.
    pub(crate) fn draw(&mut self, at: usize, step: Step) -> Option<(usize, Step)> {
        let (session, file) = match (self.draw, step) {
            // Given back: now it is taken again.
            (Draw::Lock, Step::Lock(_)) => self.drawn[at],
            (Draw::GetAttr, _) => {
                let first = at.is_multiple_of(self.together);
                let session = if first { self.other(|crowd| below(&mut crowd.rng, crowd.sessions)) } else { self.drawn[at - 1].0 };
                (session, below(&mut self.rng, self.held.len()))
            }
            (Draw::Lock, _) if at.is_multiple_of(self.together) => {
                let session_of = |crowd: &mut Self| {
                    let groups = crowd.held.len() / crowd.together;
                    let file = below(&mut crowd.rng, groups) * crowd.together;
                    (crowd.holder(file), file)
                };
                self.other(session_of)
            }
            (Draw::Lock, _) => (self.drawn[at - 1].0, self.drawn[at - 1].1 + 1),
            (Draw::KnowAll | Draw::LockAll, _) => {
                let file = self.next;
                if file == self.held.len() {
                    return None;
                }
                self.next += 1;
                self.pass_over();
                (self.holder(file), file)
            }
        };
        self.drawn[at] = (session, file);
        let object = ObjectId(FIRST + file as u64);
        let step = match (self.draw, self.held[file]) {
            (Draw::KnowAll | Draw::GetAttr, _) => Step::GetAttr(object),
            (Draw::LockAll | Draw::Lock, 0) => Step::Lock(object),
            (Draw::LockAll | Draw::Lock, generation) => Step::Release(object, Generation(generation)),
        };
        Some((session, step))
    }

    /// The request of the slot numbered `at` was answered, and it stands at `step` now.
    pub(crate) fn answered(&mut self, at: usize, step: Step) {
        match step {
            Step::Release(_, generation) => self.held[self.drawn[at].1] = generation.0,
            Step::Lock(_) => self.held[self.drawn[at].1] = 0,
            _ => {}
        }
    }

    /// What `draw` gives, until it is of a session of which no slot asks: answers to two would share a datagram.
    fn other<T: Of>(&mut self, draw: impl Fn(&mut Self) -> T) -> T {
        loop {
            let drawn = draw(self);
            if !self.drawn.iter().any(|(session, _)| *session == drawn.session()) {
                return drawn;
            }
        }
    }

    /// The session that holds the lock of a file: the groups go round.
    const fn holder(&self, file: usize) -> usize {
        file / GROUP % self.sessions
    }
}

/// What is of a session.
trait Of {
    fn session(&self) -> usize;
}

impl Of for usize {
    fn session(&self) -> usize {
        *self
    }
}

impl Of for (usize, usize) {
    fn session(&self) -> usize {
        self.0
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSIONS: usize = 100;
    const LOCKS: usize = 3_200;

    /// Answers what was asked as a server does.
    fn answer(crowd: &mut Crowd, at: usize, step: Step, generation: u64) -> Step {
        let step = match step {
            Step::Lock(object) => Step::Release(object, Generation(generation)),
            Step::Release(object, _) => Step::Lock(object),
            other => other,
        };
        crowd.answered(at, step);
        step
    }

    fn filled() -> Crowd {
        let mut crowd = Crowd::new(SESSIONS, LOCKS);
        crowd.begin(Draw::LockAll, GROUP, GROUP);
        let mut asked = 0;
        while !crowd.is_over() {
            for at in 0..GROUP {
                let (session, step) = crowd.draw(at, Crowd::FIRST).unwrap();
                assert_eq!((session, step), (asked / GROUP % SESSIONS, Step::Lock(ObjectId(FIRST + asked as u64))));
                asked += 1;
                answer(&mut crowd, at, step, 1_000 + asked as u64);
            }
        }
        assert_eq!((asked, crowd.locked(), crowd.draw(0, Crowd::FIRST)), (LOCKS, LOCKS, None));
        crowd
    }

    #[test]
    fn lock_drawn_is_given_back_under_its_generation_and_taken_again_by_its_session() {
        let mut crowd = filled();
        crowd.begin(Draw::Lock, GROUP, 2 * GROUP);
        let mut steps = vec![Crowd::FIRST; 2 * GROUP];
        for round in 0..50 {
            let mut files = std::collections::BTreeSet::new();
            for (at, step) in steps.iter_mut().enumerate() {
                let (session, asked) = crowd.draw(at, *step).unwrap();
                let (Step::Release(object, _) | Step::Lock(object)) = asked else { panic!("{asked:?}") };
                let file = usize::try_from(object.0 - FIRST).unwrap();
                assert_eq!((session, matches!(asked, Step::Lock(_))), (file / GROUP % SESSIONS, round % 2 == 1), "turns are taken");
                if let Step::Release(_, generation) = asked {
                    assert!(generation.0 > 0);
                }
                assert!(files.insert(file), "one request at a time is about a lock");
                *step = answer(&mut crowd, at, asked, 5_000 + round);
            }
        }
        assert_eq!(crowd.locked(), LOCKS);
    }

    #[test]
    fn requests_that_share_a_datagram_are_of_one_session() {
        let mut crowd = filled();
        crowd.begin(Draw::GetAttr, GROUP, 2 * GROUP);
        let drawn: Vec<usize> = (0..2 * GROUP).map(|at| crowd.draw(at, Crowd::FIRST).unwrap().0).collect();
        assert!(drawn[..GROUP].iter().all(|session| *session == drawn[0]) && drawn[GROUP..].iter().all(|session| *session == drawn[GROUP]));
        assert_ne!(drawn[0], drawn[GROUP]);
    }

    #[test]
    fn lock_that_was_given_back_when_drawing_ended_is_taken_again_with_all_that_are_not_held() {
        let mut crowd = filled();
        crowd.begin(Draw::Lock, 1, 1);
        let (session, step) = crowd.draw(0, Crowd::FIRST).unwrap();
        let Step::Release(object, _) = step else { panic!("{step:?}") };
        answer(&mut crowd, 0, step, 0);
        assert_eq!(crowd.locked(), LOCKS - 1);
        crowd.begin(Draw::LockAll, 1, 64);
        assert_eq!(crowd.draw(5, Crowd::FIRST), Some((session, Step::Lock(object))));
        assert_eq!((crowd.draw(6, Crowd::FIRST), crowd.is_over()), (None, true));
        answer(&mut crowd, 5, Step::Lock(object), 7);
        assert_eq!(crowd.locked(), LOCKS);
    }
}
