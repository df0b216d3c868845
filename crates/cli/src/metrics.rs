//! The HTTP port: the figures of a running server for those who watch it over time, and a page for those who look at it now.
//!
//! Decides: how a figure becomes a family of samples, once, for the Prometheus text format and for `cistern admin stats` alike.
//! Place in the walk: beside it. The server's thread only copies its counters when somebody asks; everything else happens in the
//! thread of the HTTP port.
//!
//! | file | decides |
//! |---|---|
//! | `families` | which metrics there are: names, help, values |
//! | `text` | the text format |
//! | `http` | the port: what is answered to whom, and how long anybody may take |
//! | `page` | the page, its files, and who may have it |
//! | `process` | what the system says of this process |
//!
//! Invariant: a scrape costs the server's loop one copy of some tens of kilobytes, whatever the number of sessions, locks and objects;
//! without scrapes metrics cost one look at a flag in a turn. The page costs a bounded number of rows more, at most twice a second, however
//! many look at it.
//! Leaves to others: what is counted (`cistern_server::stats`, `cistern_driver::stats`), what is seen (`cistern_server::overview`).

mod families;
mod http;
mod page;
mod process;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use families::{all, as_json};
pub(crate) use http::{Port, Publisher};

use cistern_driver::stats::Counts;
use cistern_server::{Figures, Overview};
use cistern_store::CommitStats;

/// Everything that is known of a server at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The core's.
    pub(crate) figures: Figures,
    /// The driver's.
    pub(crate) driver: Counts,
    /// The store's, if it is in a directory.
    pub(crate) store: Option<CommitStats>,
    /// What is to be seen of the tables, for who asks for the page.
    pub(crate) overview: Option<Overview>,
    /// What there is to say of the server's group, if it has one.
    pub(crate) group: Option<serde_json::Value>,
}

/// What is known at one moment of a server that stands by in its group.
#[derive(Clone, Debug)]
pub(crate) struct StandbySnapshot {
    /// The driver's.
    pub(crate) driver: Counts,
    /// What there is to say of its group.
    pub(crate) group: serde_json::Value,
}

/// What the HTTP port is given.
#[derive(Clone, Debug)]
pub(crate) enum Published {
    /// By a server that serves, or starts to.
    Core(Box<Snapshot>),
    /// By one that stands by.
    Standby(Box<StandbySnapshot>),
}

/// What a family's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Only grows, from the start of the process on.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts below bounds, their sum, and their number.
    Histogram,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Figure {
    /// A count, or a size in bytes.
    Whole(u64),
    /// A span, in nanoseconds; shown in seconds.
    Nanoseconds(u64),
}

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// What is appended to the family's name: parts of a histogram.
    pub(crate) suffix: &'static str,
    /// Names and values.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// The value.
    pub(crate) value: Figure,
}

/// Metrics of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Family {
    /// Its name, with its unit.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Type,
    /// What it says, and what to do about it.
    pub(crate) help: &'static str,
    /// Names of its labels.
    pub(crate) labels: &'static [&'static str],
    /// Its samples; none: nothing has been counted yet.
    pub(crate) samples: Vec<Sample>,
}
