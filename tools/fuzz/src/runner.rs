//! Runs a target on inputs made from its seeds, for some time or for a number of inputs.

use crate::mutate::mutate;
use crate::{Target, corpus};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Inputs that came to something new are kept, up to so many.
const KEPT: usize = 4_096;

/// When it ends.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After so long.
    Time(Duration),
    /// After so many inputs.
    Inputs(u64),
}

/// An input that made a target panic.
#[derive(Debug)]
pub struct Failed {
    /// The input, as short as it could be made.
    pub input: Vec<u8>,
    /// How many inputs were tried before.
    pub tried: u64,
}

/// Feeds a target; gives how many inputs it took and how many things they came to.
///
/// # Errors
///
/// The first input that made it panic.
///
/// # Panics
///
/// If the corpus cannot be read.
pub fn fuzz(target: &Target, seed: u64, limit: Limit) -> Result<(u64, usize), Failed> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut pool = (target.seeds)();
    pool.extend(corpus(target.name).expect("the corpus is readable").into_iter().map(|(_, input)| input));
    let (mut seen, mut tried, begun) = (HashSet::new(), 0, Instant::now());
    for input in &pool {
        let came_to = run(target, input).ok_or_else(|| Failed { input: input.clone(), tried })?;
        seen.insert(came_to);
        tried += 1;
    }
    let goes_on = |tried: u64| match limit {
        Limit::Time(time) => !tried.is_multiple_of(256) || begun.elapsed() < time,
        Limit::Inputs(inputs) => tried < inputs,
    };
    while goes_on(tried) {
        let mut input = pool[rng.random_range(0..pool.len())].clone();
        let other = rng.random_range(0..pool.len());
        mutate(&mut rng, &mut input, &pool[other]);
        // As often as not what holds the input together is made right again, so that what is behind it is reached.
        if rng.random() {
            (target.mend)(&mut input);
        }
        tried += 1;
        match run(target, &input) {
            None => return Err(Failed { input: shorter(target, input), tried }),
            Some(came_to) => {
                if seen.insert(came_to) && pool.len() < KEPT {
                    pool.push(input);
                }
            }
        }
    }
    Ok((tried, seen.len()))
}

/// What an input comes to; `None` if it makes the target panic.
fn run(target: &Target, input: &[u8]) -> Option<u64> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).ok()
}

/// The same failure with less input, if that is found soon: pieces are left out, the large ones first.
fn shorter(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at + piece <= input.len() {
            let mut less = input.clone();
            less.drain(at..at + piece);
            (target.mend)(&mut less);
            if run(target, &less).is_none() { input = less } else { at += piece }
        }
        piece /= 2;
    }
    input
}
