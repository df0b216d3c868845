//! The one increasing counter of generations and fencing tokens.
//!
//! Decides: which number a grant gets. Place in the walk: asked by the lock table for every grant. Implements `wire-spec.md`
//! section 11.4.
//! Invariant: no number is given out twice or below an earlier one, over all objects, sessions and restarts: a block is given
//! out only after its upper end is durable, and a restart goes on above that. The top 8 bits are the store's epoch.
//! Leaves to others: making the upper end durable (the machine).

use cistern_wire::Generation;

/// Tokens in a block at first: 4,096 grants of 1,024 tokens. After a restart whatever lies below the end of the last block may have been
/// granted, so a block is no larger than it has to be: thousands of locks are asked for at once, and those that only try find it there. Half of
/// one holds the longest run beside the reserve.
const BLOCK_MIN: u64 = 1 << 22;
/// Most tokens in a block: at 1,024 tokens a grant and a million grants a second, it lasts longer than a slow disk needs.
const BLOCK_MAX: u64 = 1 << 31;
/// Kept back for downgrades, which cannot be refused: 256 of them at least, while a block is on its way to the disk; if they take of it, the
/// next block is larger.
const RESERVE: u64 = BLOCK_MIN / 4;
/// After so many blocks in a row for which nobody had to wait, the next one is half as large.
const CALM_MAX: u8 = 16;
/// The bits of a token below its epoch.
const COUNT: u32 = 56;

/// The counter.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// The next to be given out.
    next: u64,
    /// The last that may be given out.
    durable: u64,
    /// The end of the block that is on its way to the store; 0: none.
    asked: u64,
    /// Tokens in the next block.
    block: u64,
    /// A grant has had to wait for the block on its way, or a downgrade took of the reserve: the next one is larger.
    short: bool,
    /// Blocks in a row for which nobody had to wait.
    calm: u8,
    /// The last of the epoch.
    last: u64,
    /// The last that may have been given out before the start.
    pub(super) started: u64,
}

impl Tokens {
    /// Goes on after `reserved`, the value of `Counter::Tokens` in the store (0 in a new one), in `epoch` of the store. Nothing can be
    /// given out before the first block is durable.
    pub(crate) fn new(epoch: u8, reserved: u64) -> Self {
        //= wire-spec.md#11-4-locks
        //# All generations and tokens of a store MUST come from one counter that only grows, across restarts and restores.
        let first = u64::from(epoch) << COUNT;
        let before = reserved.max(first);
        Self {
            next: before + 1,
            durable: before,
            asked: 0,
            block: BLOCK_MIN,
            short: false,
            calm: 0,
            last: first | ((1 << COUNT) - 1),
            started: before,
        }
    }

    /// The number below the first of the epoch.
    pub(super) const fn epoch_start(&self) -> u64 {
        self.last & !((1 << COUNT) - 1)
    }

    /// The first of `run` consecutive tokens; `None`: a block has to become durable first.
    pub(crate) fn take(&mut self, run: u32) -> Option<Generation> {
        self.take_leaving(run, RESERVE)
    }

    /// As [`Self::take`], from the reserve if need be: for what cannot wait.
    pub(super) fn take_reserved(&mut self, run: u32) -> Option<Generation> {
        let taken = self.take_leaving(run, 0);
        self.short |= self.durable > self.started && self.durable.saturating_sub(self.next) < RESERVE;
        taken
    }

    fn take_leaving(&mut self, run: u32, leave: u64) -> Option<Generation> {
        let after = self.next.checked_add(u64::from(run.max(1)))?;
        if after.checked_add(leave)? > self.durable.checked_add(1)? {
            // Before the first block everybody waits.
            self.short |= self.durable > self.started;
            return None;
        }
        //= wire-spec.md#11-4-locks
        //# Every grant, upgrade, downgrade and extension MUST have a generation larger than all given before.
        let first = self.next;
        self.next = after;
        Some(Generation(first))
    }

    /// The upper end of a block that is to be made durable now, as `Counter::Tokens`; `None`: there is nothing to do. Each end is
    /// asked for once.
    pub(crate) fn wanted(&mut self) -> Option<u64> {
        if self.asked != 0 || self.durable - (self.next - 1) > self.block / 2 || self.durable >= self.last {
            return None;
        }
        if core::mem::take(&mut self.short) {
            (self.block, self.calm) = ((self.block * 2).min(BLOCK_MAX), 0);
        } else if self.calm < CALM_MAX {
            self.calm += 1;
        } else {
            (self.block, self.calm) = ((self.block / 2).max(BLOCK_MIN), 0);
        }
        self.asked = self.durable.saturating_add(self.block).min(self.last);
        Some(self.asked)
    }

    /// A block is durable up to its upper end.
    pub(crate) fn durable(&mut self, up_to: u64) {
        debug_assert!(up_to <= self.asked, "nobody asked for this block");
        self.durable = self.durable.max(up_to);
        self.asked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(epoch: u8, reserved: u64) -> Tokens {
        let mut tokens = Tokens::new(epoch, reserved);
        let wanted = tokens.wanted().expect("a first block");
        tokens.durable(wanted);
        tokens
    }

    #[test]
    fn nothing_is_given_out_before_its_block_is_durable() {
        let mut tokens = Tokens::new(0, 0);
        assert_eq!((tokens.take(1), tokens.take_reserved(1)), (None, None));
        let wanted = tokens.wanted().expect("a first block");
        assert_eq!((tokens.wanted(), tokens.take(1)), (None, None), "asked once");
        tokens.durable(wanted);
        assert_eq!(tokens.take(1), Some(Generation(1)), "0 is no grant");
    }

    //= wire-spec.md#11-4-locks
    //= type=test
    //# Every grant, upgrade, downgrade and extension MUST have a generation larger than all given before.
    #[test]
    fn runs_never_overlap() {
        let mut tokens = ready(0, 0);
        let first = tokens.take(1_024).unwrap();
        assert_eq!(tokens.take(1), Some(Generation(first.0 + 1_024)));
        assert_eq!(tokens.take(0), Some(Generation(first.0 + 1_025)));
        assert_eq!(tokens.take(7), Some(Generation(first.0 + 1_026)), "an empty run counts as one token");
    }

    //= wire-spec.md#11-4-locks
    //= type=test
    //# All generations and tokens of a store MUST come from one counter that only grows, across restarts and restores.
    #[test]
    fn restart_goes_on_above_all_that_may_have_been_given_out() {
        let mut tokens = Tokens::new(3, 0);
        let wanted = tokens.wanted().unwrap();
        tokens.durable(wanted);
        let before = tokens.take(1_024).unwrap();
        let after = ready(3, wanted).take(1).unwrap();
        assert!(after.0 > before.0 + 1_023 && after.0 > wanted);
        assert_eq!(after.0 >> 56, 3);
    }

    //= wire-spec.md#11-4-locks
    //= type=test
    //# All generations and tokens of a store MUST come from one counter that only grows, across restarts and restores.
    #[test]
    fn a_new_epoch_is_above_every_token_of_the_former() {
        let reserved = (3 << COUNT) | 77;
        assert_eq!(ready(4, reserved).take(1), Some(Generation((4 << COUNT) + 1)));
    }

    #[test]
    fn next_block_is_wanted_when_half_of_one_is_left_and_the_reserve_is_for_downgrades() {
        let mut tokens = ready(0, 0);
        let half = u32::try_from(BLOCK_MIN / 2).unwrap();
        assert!(tokens.take(half - 1).is_some() && tokens.wanted().is_none());
        assert!(tokens.take(2).is_some());
        assert_eq!(tokens.wanted(), Some(BLOCK_MIN * 2));
        assert!(tokens.take(half - 200_000).is_none(), "the reserve is left alone");
        assert!(tokens.take_reserved(half - 200_000).is_some());
        tokens.durable(BLOCK_MIN * 2);
        assert!(tokens.take(half).is_some());
    }

    #[test]
    fn blocks_grow_while_somebody_has_to_wait_for_them_and_shrink_when_nobody_has_to_any_more() {
        let mut tokens = ready(0, 0);
        let next = |tokens: &mut Tokens, until_short: bool| {
            let (from, mut asked) = (tokens.durable, None);
            while asked.is_none() || until_short && !tokens.short {
                tokens.take(1_024);
                asked = asked.or(tokens.wanted());
            }
            tokens.durable(asked.unwrap());
            (asked.unwrap() - from) / BLOCK_MIN
        };
        let grown: std::vec::Vec<u64> = (0..4).map(|_| next(&mut tokens, true)).collect();
        assert_eq!(grown, [1, 2, 4, 8]);
        let shrunk: std::vec::Vec<u64> = (0..100).map(|_| next(&mut tokens, false)).collect();
        assert!(shrunk.is_sorted_by(|a, b| a >= b || *b == 16) && shrunk[20] >= 8 && shrunk.last() == Some(&1), "{shrunk:?}");
        assert!(tokens.durable - tokens.next < 2 * BLOCK_MIN, "what a liar may claim after a restart");
    }

    #[test]
    fn small_blocks_cost_a_commit_in_2_048_grants() {
        let mut tokens = ready(0, 0);
        let mut commits = 0;
        for _ in 0..204_800 {
            assert!(tokens.take(1_024).is_some());
            if let Some(up_to) = tokens.wanted() {
                commits += 1;
                tokens.durable(up_to);
            }
        }
        assert!((50..=100).contains(&commits), "{commits}");
    }

    #[test]
    fn downgrades_that_take_of_the_reserve_make_the_next_block_larger() {
        let mut tokens = ready(0, 0);
        while tokens.take(1_024).is_some() {}
        tokens.short = false;
        assert!(tokens.take_reserved(1_024).is_some());
        assert_eq!(tokens.wanted(), Some(BLOCK_MIN * 3));
    }

    #[test]
    fn an_epoch_ends_instead_of_running_into_the_next() {
        let mut tokens = Tokens::new(0, (1 << COUNT) - 10);
        let wanted = tokens.wanted().unwrap();
        assert_eq!(wanted, (1 << COUNT) - 1);
        tokens.durable(wanted);
        assert_eq!(tokens.wanted(), None);
        assert!(tokens.take_reserved(10).is_none() && tokens.take_reserved(9).is_some());
    }
}
