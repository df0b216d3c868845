//! What the server writes for one mutation, as keys and values of the lengths and orders that it really uses.
//!
//! Decides the two loads: files made in one directory (keys that follow each other) and attributes set on files chosen at random
//! (keys all over the store). Each also writes the outcome that is kept for its session (section 11.2) and the counters that it changes.
//! Leaves to others: what the bytes mean (`cistern_server::store`).

/// A key and its value; `None`: deleted.
pub(crate) type Write = (Vec<u8>, Option<Vec<u8>>);

/// Sessions whose outcomes are kept, and places for outcomes of each.
const SESSIONS: u64 = 16;
const WINDOW: u64 = 64;
/// Lengths of values: an object's record, an entry, an outcome, a counter.
const OBJECT_LEN: usize = 96;
const ENTRY_LEN: usize = 10;
const OUTCOME_LEN: usize = 120;
const COUNTER_LEN: usize = 9;

/// A deterministic stream of numbers (xorshift64*).
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number below `bound`.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap_or_default()).collect()
    }
}

/// Makes writes.
#[derive(Debug)]
pub(crate) struct Shape {
    numbers: Numbers,
    /// Files made so far.
    pub(crate) files: u64,
    mutations: u64,
}

impl Shape {
    pub(crate) const fn new(seed: u64, files: u64) -> Self {
        Self { numbers: Numbers::from_seed(seed), files, mutations: 0 }
    }

    /// Key of an object.
    pub(crate) fn object(id: u64) -> Vec<u8> {
        tagged(0x10, id)
    }

    /// What one CREATE writes: the file, its name, its directory, the outcome.
    pub(crate) fn create(&mut self) -> Vec<Write> {
        let id = self.files;
        self.files += 1;
        let mut entry = tagged(0x11, id / 1_000);
        entry.extend_from_slice(format!("file-{id:08}").as_bytes());
        vec![
            self.put(Self::object(id + 1_000_000_000), OBJECT_LEN),
            self.put(entry, ENTRY_LEN),
            self.put(Self::object(id / 1_000), OBJECT_LEN),
            self.outcome(),
        ]
    }

    /// What one SETATTR writes: a file anywhere, the outcome.
    pub(crate) fn set_attr(&mut self) -> Vec<Write> {
        let id = self.any_file();
        vec![self.put(id, OBJECT_LEN), self.outcome()]
    }

    /// The key of any file made before.
    pub(crate) fn any_file(&mut self) -> Vec<u8> {
        let id = self.numbers.below(self.files.max(1));
        Self::object(id + 1_000_000_000)
    }

    /// What every transaction writes once: next id, objects, bytes.
    pub(crate) fn counters(&mut self) -> Vec<Write> {
        (1..=3).map(|code| self.put(vec![0x01, code], COUNTER_LEN)).collect()
    }

    fn outcome(&mut self) -> Write {
        self.mutations += 1;
        let mut key = tagged(0x03, self.mutations % SESSIONS);
        key.extend_from_slice(&u16::try_from(self.mutations / SESSIONS % WINDOW).unwrap_or_default().to_be_bytes());
        self.put(key, OUTCOME_LEN)
    }

    fn put(&mut self, key: Vec<u8>, len: usize) -> Write {
        (key, Some(self.numbers.bytes(len)))
    }
}

fn tagged(tag: u8, number: u64) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(&number.to_be_bytes());
    key
}
