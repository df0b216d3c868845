//! A figure as data: what it shows, its axes, curves and points.

use serde::Serialize;

/// A figure as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// Lines, in the order of their legend.
    pub curves: Vec<Curve>,
    /// Single points.
    pub marks: Vec<Mark>,
    /// What was assumed, and what else a reader must know.
    pub notes: Vec<String>,
}

/// One direction of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What is on it, with its unit.
    pub label: String,
    /// Smallest value shown.
    pub from: f64,
    /// Largest value shown.
    pub to: f64,
    /// Logarithmic.
    pub log: bool,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// A point that somebody has stated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Whose point, for the legend.
    pub of: String,
    /// Horizontal.
    pub x: f64,
    /// Vertical.
    pub y: f64,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: &str, from: f64, to: f64) -> Self {
        Self { label: label.to_owned(), from, to, log: false }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str, from: f64, to: f64) -> Self {
        Self { log: true, ..Self::linear(label, from, to) }
    }

    /// Places along it at even distances, both ends among them.
    #[must_use]
    pub fn places(&self, count: u32) -> Vec<f64> {
        let at = |i: u32| {
            let part = f64::from(i) / f64::from(count - 1);
            if self.log { self.from * (self.to / self.from).powf(part) } else { self.from + (self.to - self.from) * part }
        };
        (0..count).map(at).collect()
    }
}

impl Curve {
    /// The values of a function.
    ///
    /// # Errors
    /// The function's.
    pub fn of<E>(name: &str, xs: &[f64], f: impl Fn(f64) -> Result<f64, E>) -> Result<Self, E> {
        let points = xs.iter().map(|x| Ok((*x, f(*x)?))).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), points })
    }
}
