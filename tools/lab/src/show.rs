//! How the result of a model is shown: words and columns for people, JSON or comma-separated values for scripts, a picture for both; and
//! how a failure is.
//!
//! Decides: which of them goes to standard output, and that the picture is written besides. Leaves to others: results, and how a
//! picture looks (`picture`).

use crate::args::Shown;
use cistern_model::Invalid;
use cistern_picture::Figure;
use serde::Serialize;
use std::io;

/// Why the program ends, and with which status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    /// Empty: nobody needs a word.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: String) -> Self {
        Self { exit: 2, message }
    }

    pub(crate) fn failed(message: String) -> Self {
        Self { exit: 1, message }
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        // Whoever read the output has had enough: the convention is to end without a word.
        Self::failed(if e.kind() == io::ErrorKind::BrokenPipe { String::new() } else { format!("standard output: {e}") })
    }
}

impl From<cistern_client::Error> for Failure {
    fn from(e: cistern_client::Error) -> Self {
        Self::failed(e.to_string())
    }
}

/// A line for a person.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    Ok(cistern_text::line(text)?)
}

/// Columns for a person.
pub(crate) fn table(rows: &[Vec<String>]) -> Result<(), Failure> {
    line(cistern_text::table(rows, 0..0))
}

/// Shows a result: `json`, or `rows` (the names first), or what `people` prints; and the picture, if one is asked for.
pub(crate) fn show<T: Serialize>(
    shown: &Shown,
    json: &T,
    rows: &[Vec<String>],
    picture: impl FnOnce() -> Result<Figure, Invalid>,
    people: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Some(path) = &shown.svg {
        let svg = cistern_picture::svg(&picture().map_err(refused)?).map_err(Failure::failed)?;
        std::fs::write(path, svg).map_err(|e| Failure::failed(format!("cannot write the picture {}: {e}", path.display())))?;
    }
    match (shown.json, shown.csv) {
        (true, _) => Ok(cistern_text::json(json)?),
        (false, true) => Ok(cistern_text::bytes(cistern_text::csv(rows).as_bytes())?),
        (false, false) => people(),
    }
}

/// What a model refuses is the fault of whoever gave it.
pub(crate) fn refused(e: Invalid) -> Failure {
    Failure::usage(e.to_string())
}

/// The same, with the flags from which the quantity comes; `flags` has them by its name in the models.
pub(crate) fn refused_for(flags: &'static [(&'static str, &'static str)]) -> impl Fn(Invalid) -> Failure + Copy {
    move |e| Failure::usage(e.in_flags(flags))
}
