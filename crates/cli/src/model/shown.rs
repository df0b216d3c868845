//! How the result of a model is shown: words and columns for people, JSON or comma-separated values for scripts, a picture for both.
//!
//! Decides: which of them goes to standard output, and that the picture is written besides. Leaves to others: results, and how a
//! picture looks (`picture`).

use crate::args::model::Shown;
use crate::local::Failure;
use crate::show;
use cistern_model::Invalid;
use cistern_model::figures::Figure;
use serde::Serialize;

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
        (true, _) => show::json(json),
        (false, true) => show::bytes(csv_of(rows).as_bytes()),
        (false, false) => people(),
    }
}

/// What a model refuses is the fault of whoever gave it.
pub(crate) fn refused(e: Invalid) -> Failure {
    Failure::usage(e.to_string())
}

/// The same, with the flags from which the quantity comes; `flags` has them by its name in the models.
pub(crate) fn refused_for(flags: &'static [(&'static str, &'static str)]) -> impl Fn(Invalid) -> Failure + Copy {
    move |e| match flags.iter().find(|(what, _)| *what == e.what) {
        Some((_, flags)) => Failure::usage(format!("{e} (from {flags})")),
        None => refused(e),
    }
}

/// As RFC 4180 has it, but for the ends of lines.
fn csv_of(rows: &[Vec<String>]) -> String {
    let quoted = |cell: &String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect()
}

/// A row of texts.
pub(crate) fn row<const N: usize>(cells: [&dyn ToString; N]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// A number with all its digits, as JSON writes it.
pub(crate) fn digits(number: &impl Serialize) -> String {
    serde_json::to_string(number).unwrap_or_default()
}
