//! The view of a lease on a terminal, redrawn in place.
//!
//! Decides: its lines, its bar, its colours (none with `NO_COLOR`). It uses the last lines of the screen and leaves them there at
//! the end; nothing is hidden or switched, so there is nothing to restore however the command ends.
//! Invariant: no line is wider than the terminal, or moving the cursor back would miss the first line.
//! Leaves to others: when it is drawn (`top`).

use super::rows;
use crate::local::{Failure, Lease};
use crate::show;
use cistern_wire::is_printable;
use terminal_size::{Height, Width};

/// Width that the view is drawn in when the terminal does not tell its own, or is wider.
const WIDTH_MAX: usize = 78;
/// Below this the bar says nothing.
const BAR_MIN: usize = 10;

/// The view: knows how many lines it has drawn, and on a terminal of which size.
pub(super) struct View {
    subject: String,
    colour: bool,
    drawn: usize,
    size: Option<(usize, usize)>,
}

impl View {
    pub(super) fn new(subject: String) -> Self {
        Self { subject, colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()), drawn: 0, size: None }
    }

    /// Draws the view over the last one.
    pub(super) fn draw(&mut self, lease: &Lease) -> Result<(), Failure> {
        let (width, height) = terminal_size::terminal_size_of(std::io::stdout())
            .map_or((WIDTH_MAX, usize::MAX), |(Width(w), Height(h))| (usize::from(w), usize::from(h)));
        let text = self.frame(lease, width, height);
        show::bytes(text.as_bytes())
    }

    /// The bytes that put the view where the last one was.
    fn frame(&mut self, lease: &Lease, width: usize, height: usize) -> String {
        let mut lines = self.lines(lease, width.min(WIDTH_MAX));
        // On a very low terminal the first lines matter most; one row stays for the cursor.
        lines.truncate(height.saturating_sub(1).max(1));
        let mut text = String::new();
        if self.size.replace((width, height)).is_some_and(|size| size != (width, height)) {
            // The terminal has moved and broken the lines as it liked: the view begins anew on an empty screen.
            text.push_str("\x1b[H\x1b[2J");
        } else if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in &lines {
            text.push_str(&format!("\r{line}\x1b[K\n"));
        }
        // What is left of a longer view before.
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        text
    }

    fn lines(&self, l: &Lease, width: usize) -> Vec<String> {
        let colour = match l.phase.as_str() {
            "valid" => "32",
            "renewing" => "33",
            _ => "31",
        };
        let subject = vec!["agent".to_owned(), self.subject.clone()];
        let line = |row: &Vec<String>| {
            let line: String = format!("{:<11}{}", row[0], row[1]).chars().filter(|c| is_printable(*c)).take(width).collect();
            if row[0] == "phase" { self.paint(&line, colour) } else { line }
        };
        let mut lines: Vec<_> = std::iter::once(subject).chain(rows(l)).map(|row| line(&row)).collect();
        // Below what is left of the lease.
        lines.insert(4, self.paint(&bar(l, width), colour));
        lines
    }

    fn paint(&self, text: &str, colour: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A bar of the time left: full at τ.
fn bar(l: &Lease, width: usize) -> String {
    let room = width.saturating_sub(2);
    if room < BAR_MIN {
        return String::new();
    }
    let left = u128::from(l.left_ms.min(l.lease_ms));
    let filled = (left * room as u128).checked_div(u128::from(l.lease_ms)).unwrap_or(0);
    let filled = usize::try_from(filled).unwrap_or(room);
    format!("[{}{}]", "█".repeat(filled), "·".repeat(room - filled))
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn view() -> View {
        View { subject: "agent at /run/cistern/a/control.sock".to_owned(), colour: false, drawn: 0, size: None }
    }

    /// The frame without its control sequences.
    fn text(frame: &str) -> Vec<String> {
        frame
            .lines()
            .map(|line| line.trim_start_matches('\r').replace("\x1b[K", "").replace("\x1b[J", ""))
            .filter(|l| !l.is_empty())
            .collect()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [1, 12, 40, 80, 300] {
            for line in text(&view().frame(&sample(), width, 50)) {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn the_next_frame_begins_where_the_last_one_did() {
        let mut view = view();
        let drawn = view.frame(&sample(), 80, 50).matches('\n').count();
        assert!(view.frame(&sample(), 80, 50).starts_with(&format!("\x1b[{drawn}A\r")));
    }

    #[test]
    fn on_a_terminal_of_another_size_the_view_begins_anew() {
        let mut view = view();
        view.frame(&sample(), 80, 50);
        let low = view.frame(&sample(), 80, 4);
        assert!(low.starts_with("\x1b[H\x1b[2J\r"));
        assert_eq!(low.matches('\n').count(), 3, "the first lines, and a row for the cursor");
        assert!(view.frame(&sample(), 80, 4).starts_with("\x1b[3A\r"));
    }

    #[test]
    fn the_bar_is_full_at_tau_and_empty_at_the_end() {
        let at = |left_ms| bar(&Lease { left_ms, ..sample() }, 22);
        assert_eq!(at(2_000), format!("[{}]", "█".repeat(20)));
        assert_eq!(at(1_000), format!("[{}{}]", "█".repeat(10), "·".repeat(10)));
        assert_eq!(at(0), format!("[{}]", "·".repeat(20)));
        assert_eq!(bar(&Lease { lease_ms: 0, left_ms: 0, ..sample() }, 22), format!("[{}]", "·".repeat(20)));
    }
}
