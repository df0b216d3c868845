//! The time axis: at which height a moment stands.
//!
//! Decides: that every row has a height of its own, and that a pause takes room by its logarithm, so that microseconds and seconds can
//! stand in one picture. Place in the walk: before anything is drawn. Invariant: later is never higher up.
//! Leaves to others: what stands there.

use std::time::Duration;

/// Height of a row.
const ROW: f64 = 24.0;
/// Height of each remark under a row.
pub(super) const REMARK: f64 = 17.0;
/// Least distance of the end of a bar from what is above it.
const END: f64 = 7.0;
/// Height of each tenfold of a pause beyond a millisecond.
const TENFOLD: f64 = 14.0;

/// Maps times to heights.
#[derive(Debug)]
pub(super) struct Axis {
    points: Vec<(Duration, f64)>,
    rows: Vec<f64>,
    /// Height of the end.
    pub(super) bottom: f64,
}

/// A row as the axis sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) at: Duration,
    /// When it ends, if it is a run.
    pub(super) until: Duration,
    pub(super) remarks: usize,
}

impl Axis {
    /// An axis that begins at `top`, for rows in order and for the ends of bars in any.
    pub(super) fn new(top: f64, rows: &[Span], ends: &[Duration]) -> Self {
        let mut ends: Vec<Duration> = ends.iter().copied().filter(|end| rows.first().is_some_and(|row| *end > row.at)).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut ends = ends.into_iter().peekable();
        let mut axis = Self { points: Vec::new(), rows: Vec::new(), bottom: top };
        for row in rows {
            while let Some(end) = ends.next_if(|end| *end < row.at) {
                axis.point(end, END);
            }
            axis.point(row.at, ROW);
            axis.rows.push(axis.bottom);
            if row.until > row.at {
                axis.point(row.until, ROW);
            }
            // Two small numbers: exact.
            #[allow(clippy::cast_precision_loss, reason = "a row has a few remarks")]
            let below = row.remarks as f64 * REMARK;
            axis.bottom += below;
        }
        for end in ends {
            axis.point(end, END);
        }
        axis.bottom += ROW;
        axis
    }

    fn point(&mut self, at: Duration, height: f64) {
        if let Some((before, _)) = self.points.last() {
            self.bottom += height + room(at.saturating_sub(*before));
        }
        // A clock that went back must not turn the axis round.
        let at = self.points.last().map_or(at, |(before, _)| at.max(*before));
        self.points.push((at, self.bottom));
    }

    /// Height of a row.
    pub(super) fn row(&self, row: usize) -> f64 {
        self.rows.get(row).copied().unwrap_or(self.bottom)
    }

    /// Height of a moment, between those around it.
    pub(super) fn at(&self, at: Duration) -> f64 {
        let next = self.points.partition_point(|(time, _)| *time <= at);
        match (next.checked_sub(1).and_then(|before| self.points.get(before)), self.points.get(next)) {
            (None, Some((_, first))) => first - END,
            (Some((from, above)), Some((to, below))) => {
                let part = (at - *from).as_secs_f64() / (*to - *from).as_secs_f64();
                above + (below - above) * part
            }
            (Some((from, above)), None) if at > *from => self.bottom.max(*above),
            (Some((_, above)), None) => *above,
            (None, None) => self.bottom,
        }
    }
}

/// Room for a pause.
fn room(pause: Duration) -> f64 {
    let millis = pause.as_secs_f64() * 1e3;
    if millis > 1.0 { TENFOLD * millis.log10() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const fn span(at: u64) -> Span {
        Span { at: ms(at), until: ms(at), remarks: 0 }
    }

    #[test]
    fn rows_of_one_moment_have_heights_of_their_own_and_later_is_never_higher() {
        let axis = Axis::new(10.0, &[span(5), span(5), span(2_005)], &[ms(1_000), ms(9_000)]);
        assert!(axis.row(0) < axis.row(1) && axis.row(1) < axis.row(2));
        let heights: Vec<f64> = (0..10_000).map(|at| axis.at(ms(at))).collect();
        assert!(heights.is_sorted(), "heights go down the page");
        assert!(axis.at(ms(1_000)) > axis.row(1) && axis.at(ms(1_000)) < axis.row(2));
        assert!(heights.iter().all(|height| *height <= axis.bottom));
    }

    #[test]
    fn clock_that_goes_back_does_not_turn_the_axis_round() {
        let axis = Axis::new(0.0, &[span(100), span(40), span(120)], &[]);
        assert!(axis.row(0) < axis.row(1) && axis.row(1) < axis.row(2));
        assert!(axis.at(ms(110)) >= axis.row(1));
    }

    #[test]
    fn tenfold_pause_takes_a_step_more_room_not_ten_times_as_much() {
        let height = |pause| {
            let axis = Axis::new(0.0, &[span(0), span(pause)], &[]);
            axis.row(1) - axis.row(0)
        };
        let steps = [height(100) - height(10), height(1_000) - height(100)];
        assert!((steps[0] - steps[1]).abs() < 1e-9 && steps[0] > 1.0);
    }
}
