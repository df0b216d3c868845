//! Curves and points between two axes.
//!
//! Decides: the frame, the legend and where it stands, and how points of different origin look. Place: beside `bars`; the style of both is
//! in the crate's root. Leaves to others: what is drawn (`data`).

use crate::{Axis, COLOURS, Curve, FONT, Figure, Mark, label, styled};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// Drawn at twice the size at which it is shown: the crate that draws puts points on whole units.
const SIZE: (u32, u32) = (1_600, 1_040);

/// Draws a figure.
///
/// # Errors
/// What the crate that draws says; none with finite numbers.
pub fn svg(figure: &Figure) -> Result<String, String> {
    let mut svg = String::new();
    let (x, y) = (&figure.x, &figure.y);
    match (x.log, y.log) {
        (false, false) => draw(figure, x.from..x.to, y.from..y.to, &mut svg),
        (false, true) => draw(figure, x.from..x.to, (y.from..y.to).log_scale(), &mut svg),
        (true, false) => draw(figure, (x.from..x.to).log_scale(), y.from..y.to, &mut svg),
        (true, true) => draw(figure, (x.from..x.to).log_scale(), (y.from..y.to).log_scale(), &mut svg),
    }
    .map_err(|e| format!("the picture cannot be drawn: {e}"))?;
    Ok(styled(&svg, SIZE, &figure.title, &figure.notes))
}

fn draw<X, Y>(figure: &Figure, x: X, y: Y, svg: &mut String) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&figure.title, (FONT, 38))
        .margin(28)
        .x_label_area_size(84)
        .y_label_area_size(130)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .label_style((FONT, 28))
        .axis_desc_style((FONT, 30))
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_label_formatter(&|value| label(&figure.x, *value))
        .y_label_formatter(&|value| label(&figure.y, *value))
        .bold_line_style(BLACK.mix(0.18))
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for (curve, (colour, _)) in figure.curves.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(4);
        for (i, part) in within(figure, curve).into_iter().enumerate() {
            let drawn = chart.draw_series(LineSeries::new(part, style))?;
            if i == 0 {
                drawn.label(&curve.name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 64, y)], style));
            }
        }
    }
    let mut whose: Vec<&str> = Vec::new();
    for mark in figure.marks.iter().filter(|mark| visible(figure, mark)) {
        let is_first = !whose.contains(&mark.of.as_str());
        if is_first {
            whose.push(&mark.of);
        }
        let (at, shape) = ((mark.x, mark.y), shape(&whose, &mark.of));
        let drawn = match shape {
            Shape::Dot => chart.draw_series([Circle::new(at, 9, BLACK.filled())])?,
            Shape::Triangle => chart.draw_series([TriangleMarker::new(at, 14, BLACK.filled())])?,
            Shape::Cross => chart.draw_series([Cross::new(at, 10, BLACK.stroke_width(4))])?,
            Shape::Ring => chart.draw_series([Circle::new(at, 15, BLACK.stroke_width(3))])?,
        };
        if is_first {
            let drawn = drawn.label(&mark.of);
            match shape {
                Shape::Dot => drawn.legend(|at| Circle::new((at.0 + 32, at.1), 9, BLACK.filled())),
                Shape::Triangle => drawn.legend(|at| TriangleMarker::new((at.0 + 32, at.1), 14, BLACK.filled())),
                Shape::Cross => drawn.legend(|at| Cross::new((at.0 + 32, at.1), 10, BLACK.stroke_width(4))),
                Shape::Ring => drawn.legend(|at| Circle::new((at.0 + 32, at.1), 15, BLACK.stroke_width(3))),
            };
        }
    }
    chart
        .configure_series_labels()
        .position(legend(figure))
        .legend_area_size(80)
        .margin(20)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.25))
        .label_font((FONT, 28))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Where the legend is in the way of the least: the first corner without a point behind it.
fn legend(figure: &Figure) -> SeriesLabelPosition {
    use SeriesLabelPosition::{LowerLeft, LowerRight, UpperLeft, UpperRight};
    let names: Vec<&str> =
        figure.curves.iter().map(|curve| &curve.name).chain(figure.marks.iter().map(|mark| &mark.of)).map(String::as_str).collect();
    let rows = names.iter().collect::<std::collections::BTreeSet<_>>().len();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a few lines of text")]
    let (width, height) = ((100.0 + 6.9 * longest as f64) / FRAME.0, (22.0 + 18.0 * rows as f64) / FRAME.1);
    let points = figure.curves.iter().flat_map(|curve| within(figure, curve).concat());
    let marks = figure.marks.iter().filter(|mark| visible(figure, mark)).map(|mark| (mark.x, mark.y));
    let points: Vec<_> = points.chain(marks).map(|(x, y)| (part(&figure.x, x), part(&figure.y, y))).collect();
    let behind = |right: bool, upper: bool| {
        let is_behind = |(x, y): &&(f64, f64)| (if right { 1.0 - x } else { *x }) < width && (if upper { 1.0 - y } else { *y }) < height;
        points.iter().filter(is_behind).count()
    };
    let corners = [(UpperRight, true, true), (LowerLeft, false, false), (LowerRight, true, false), (UpperLeft, false, true)];
    corners.into_iter().min_by_key(|(_, right, upper)| behind(*right, *upper)).map_or(UpperRight, |(position, ..)| position)
}

/// The frame's width and height as shown, about.
const FRAME: (f64, f64) = (706.0, 430.0);

/// How far along an axis a value is, from 0 to 1.
fn part(axis: &Axis, value: f64) -> f64 {
    if axis.log { (value / axis.from).ln() / (axis.to / axis.from).ln() } else { (value - axis.from) / (axis.to - axis.from) }
}

/// How a point looks.
#[derive(Clone, Copy)]
enum Shape {
    Dot,
    Triangle,
    Cross,
    /// Around another point, which stays visible in it.
    Ring,
}

/// What the points of one origin look like; those of the real cores lie where others do.
fn shape(whose: &[&str], of: &str) -> Shape {
    let rings = |of: &str| of.contains("real cores");
    let before = whose.iter().take_while(|known| **known != of).filter(|known| !rings(known)).count();
    match before {
        _ if rings(of) => Shape::Ring,
        0 => Shape::Dot,
        1 => Shape::Triangle,
        _ => Shape::Cross,
    }
}

/// The parts of a curve that are inside the frame.
fn within(figure: &Figure, curve: &Curve) -> Vec<Vec<(f64, f64)>> {
    let inside = |(x, y): &(f64, f64)| (figure.x.from..=figure.x.to).contains(x) && (figure.y.from..=figure.y.to).contains(y);
    curve.points.split(|point| !inside(point)).filter(|part| part.len() > 1).map(<[_]>::to_vec).collect()
}

fn visible(figure: &Figure, mark: &Mark) -> bool {
    (figure.x.from..=figure.x.to).contains(&mark.x) && (figure.y.from..=figure.y.to).contains(&mark.y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_is_where_nothing_is() {
        let from = |y: [f64; 3]| Figure {
            title: String::new(),
            x: Axis::log("x", 1.0, 100.0),
            y: Axis::linear("y", 0.0, 1.0),
            curves: vec![Curve { name: "c".to_owned(), points: [1.0, 10.0, 100.0].into_iter().zip(y).collect() }],
            marks: vec![],
            notes: vec![],
        };
        assert!(matches!(legend(&from([0.99, 0.5, 0.01])), SeriesLabelPosition::UpperRight));
        assert!(matches!(legend(&from([0.99, 0.5, 0.99])), SeriesLabelPosition::LowerLeft));
        assert!(matches!(legend(&from([0.01, 0.5, 0.99])), SeriesLabelPosition::LowerRight));
    }

    #[test]
    fn a_curve_that_leaves_the_frame_is_drawn_in_parts() {
        let figure = Figure {
            title: "a < b & c".to_owned(),
            x: Axis::linear("x", 0.0, 10.0),
            y: Axis::linear("y", 0.0, 1.0),
            curves: vec![Curve { name: "c".to_owned(), points: vec![(0.0, 0.5), (1.0, 0.6), (2.0, 3.0), (3.0, 0.6), (4.0, 0.5)] }],
            marks: vec![Mark { of: "m".to_owned(), x: 1.0, y: 0.5 }, Mark { of: "m".to_owned(), x: 99.0, y: 0.5 }],
            notes: vec![],
        };
        assert_eq!(within(&figure, &figure.curves[0]).len(), 2);
        let svg = svg(&figure).unwrap();
        assert!(svg.contains("<title>a &lt; b &amp; c</title>") && svg.contains("prefers-color-scheme"));
        assert_eq!(svg, super::svg(&figure).unwrap());
    }
}
