//! The words of commands: split with their places, and read as times, shares, rates, kinds and agents.
//!
//! Decides how quantities are written and what is said of one that cannot be read. Invariant: a mistake names the column of the word that
//! it is about. Leaves to others: which words a command has (`command`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use cistern_wire::Kind;

/// What is wrong with a command, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct Mistake {
    /// The column of the word, in characters from 1.
    pub column: usize,
    /// What is wrong with it, and what would be right.
    pub what: String,
}

/// A word and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) column: usize,
}

impl Word<'_> {
    pub(crate) fn wrong(&self, what: impl Into<String>) -> Mistake {
        Mistake { column: self.column, what: what.into() }
    }
}

/// The words of a line, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    words: std::vec::IntoIter<Word<'a>>,
    /// The column behind the last word.
    end: usize,
}

impl<'a> Words<'a> {
    /// The words of `line`, up to a `#` that begins a word.
    pub(crate) fn of(line: &'a str) -> Self {
        let mut words = Vec::new();
        let mut rest = line.char_indices().enumerate().peekable();
        while let Some((column, (start, first))) = rest.next() {
            if first.is_whitespace() {
                continue;
            }
            // `#3` names a rule or an agent; `# text` is a remark.
            if first == '#' && !rest.peek().is_some_and(|(_, (_, next))| next.is_ascii_digit()) {
                break;
            }
            let end = loop {
                match rest.next_if(|(_, (_, next))| !next.is_whitespace()) {
                    Some(_) => {}
                    None => break rest.peek().map_or(line.len(), |(_, (at, _))| *at),
                }
            };
            words.push(Word { text: &line[start..end], column: column + 1 });
        }
        let end = words.last().map_or(1, |word| word.column + word.text.chars().count());
        Self { words: words.into_iter(), end }
    }

    pub(crate) fn next(&mut self) -> Option<Word<'a>> {
        self.words.next()
    }

    pub(crate) fn peek(&self) -> Option<Word<'a>> {
        self.words.as_slice().first().copied()
    }

    /// The next word, which must be there; `what` says what it would be.
    pub(crate) fn need(&mut self, what: &str) -> Result<Word<'a>, Mistake> {
        self.next().ok_or_else(|| Mistake { column: self.end, what: format!("{what} is missing here") })
    }

    /// Takes the next word if it is this one.
    pub(crate) fn takes(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == text);
        if found {
            self.next();
        }
        found
    }
}

/// A year is longer than any run, and keeps sums far from their end.
const YEAR_NS: u64 = 31_536_000_000_000_000;

/// A span of time, in nanoseconds.
pub(crate) fn span(word: Word<'_>) -> Result<u64, Mistake> {
    let span = cistern_text::duration(word.text).map_err(|what| word.wrong(what))?;
    u64::try_from(span.as_nanos()).ok().filter(|ns| *ns <= YEAR_NS).ok_or_else(|| word.wrong("a time must be at most a year"))
}

/// `10%`, `0.5%`; in parts per million.
pub(crate) fn share(word: Word<'_>) -> Result<u64, Mistake> {
    let wrong = || word.wrong(format!("{:?} is no share: write 10% or 0.5%, from 0% to 100%", word.text));
    let percent: f64 = word.text.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1,000,000")]
    Ok((percent * 10_000.0).round() as u64)
}

/// How fast datagrams leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bits of UDP payload per second.
    Bits(u64),
    /// Datagrams per second.
    Datagrams(u64),
}

/// `1mbit`, `64kbit`, `100pps`.
pub(crate) fn rate(word: Word<'_>) -> Result<Rate, Mistake> {
    let wrong = || word.wrong(format!("{:?} is no rate: write 64kbit, 1mbit or 100pps", word.text));
    let digits = word.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let bits = |thousands: u32| number.checked_mul(1_000_u64.pow(thousands)).map(Rate::Bits).ok_or_else(wrong);
    match &word.text[digits.len()..] {
        "pps" => Ok(Rate::Datagrams(number)),
        "bit" => bits(0),
        "kbit" => bits(1),
        "mbit" => bits(2),
        "gbit" => bits(3),
        _ => Err(wrong()),
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Datagrams(number) => write!(f, "{number}pps"),
            Self::Bits(bits) if bits.is_multiple_of(1_000_000_000) => write!(f, "{}gbit", bits / 1_000_000_000),
            Self::Bits(bits) if bits.is_multiple_of(1_000_000) => write!(f, "{}mbit", bits / 1_000_000),
            Self::Bits(bits) if bits.is_multiple_of(1_000) => write!(f, "{}kbit", bits / 1_000),
            Self::Bits(bits) => write!(f, "{bits}bit"),
        }
    }
}

/// A kind of message by its name, in any case.
pub(crate) fn kind(word: Word<'_>) -> Result<Kind, Mistake> {
    let name = word.text.to_ascii_uppercase().replace('-', "_");
    let near = |kind: &&Kind| strsim::damerau_levenshtein(kind.name(), &name);
    Kind::ALL.iter().find(|kind| kind.name() == name).copied().ok_or_else(|| {
        let nearest = Kind::ALL.iter().min_by_key(near).map_or("DEMAND", |kind| kind.name());
        word.wrong(format!("{:?} is no kind of message; is it {nearest}? wire-spec.md section 5 has all", word.text))
    })
}

/// Which agent is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The how-many-eth that was seen, from 1.
    Number(u32),
    /// All of a host.
    Host(IpAddr),
    /// One address.
    Address(SocketAddr),
    /// The one that calls itself so in its HELLO (`--label`).
    Label(String),
}

impl Who {
    pub(crate) fn of(word: Word<'_>) -> Self {
        let text = word.text;
        if let Ok(number) = text.strip_prefix('#').unwrap_or(text).parse() {
            return Self::Number(number);
        }
        text.parse().map(Self::Address).or_else(|_| text.parse().map(Self::Host)).unwrap_or_else(|_| Self::Label(text.to_owned()))
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "#{number}"),
            Self::Host(host) => write!(f, "{host}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Label(label) => f.write_str(label),
        }
    }
}

/// A span for people, as it may be written.
pub(crate) fn shown_span(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1_000),
    }
}

/// A share for people, as it may be written.
pub(crate) fn shown_share(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
