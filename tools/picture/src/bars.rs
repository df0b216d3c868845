//! Bars of what has names and no order: one row a thing, one bar for each series, and lines for limits.
//!
//! Decides: that names stand over their bars, so that long ones need no room of their own, that a bar shows its number, and how tall the
//! picture is. Place: beside `figure`; the style of both is in the crate's root. Leaves to others: what is drawn (the bench).

use crate::{Axis, COLOURS, FONT, label, styled};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// A picture of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// Along the bars; on a logarithmic one they begin at its end.
    pub axis: Axis,
    /// The names of the series, in the order of the legend; one bar of each in every row.
    pub series: Vec<String>,
    /// From top to bottom.
    pub rows: Vec<Bar>,
    /// Lines across all rows.
    pub limits: Vec<Limit>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// A value for each series; none where nothing was measured. With its number in words.
    pub values: Vec<Option<(f64, String)>>,
}

/// A line at a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What it is, for the legend.
    pub name: String,
    /// Where it stands on the axis.
    pub at: f64,
}

/// Drawn at twice the size at which it is shown.
const WIDTH: u32 = 1_600;
/// Heights: of what is around the rows, of a row's name and its distance from the row above, of a bar, of a line of the legend.
const FRAME: u32 = 210;
const NAME: u32 = 58;
const BAR: u32 = 34;
const LEGEND: u32 = 44;

/// Draws bars.
///
/// # Errors
/// What the crate that draws says; none with finite numbers and one row at least.
pub fn bars(bars: &Bars) -> Result<String, String> {
    let Axis { from, to, log, .. } = bars.axis;
    let mut svg = String::new();
    let height = FRAME + bars.rows_height() + bars.legend_height();
    if log { draw(bars, height, (from..to).log_scale(), &mut svg) } else { draw(bars, height, from..to, &mut svg) }
        .map_err(|e| format!("the picture cannot be drawn: {e}"))?;
    Ok(styled(&svg, (WIDTH, height), &bars.title, &bars.notes))
}

impl Bars {
    fn row_height(&self) -> u32 {
        NAME + BAR * count(self.series.len())
    }

    fn rows_height(&self) -> u32 {
        self.row_height() * count(self.rows.len())
    }

    /// Room for the legend below the rows.
    fn legend_height(&self) -> u32 {
        LEGEND * count(self.series.len() + self.limits.len()) + LEGEND
    }

    /// A value as far as it is in the frame.
    fn within(&self, value: f64) -> f64 {
        value.clamp(self.axis.from, self.axis.to)
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn draw<X>(bars: &Bars, height: u32, x: X, svg: &mut String) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let tall = f64::from(bars.rows_height() + bars.legend_height());
    let mut chart =
        ChartBuilder::on(&area).caption(&bars.title, (FONT, 38)).margin(28).x_label_area_size(84).build_cartesian_2d(x, 0.0..tall)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .label_style((FONT, 28))
        .axis_desc_style((FONT, 30))
        .x_desc(&bars.axis.label)
        .x_label_formatter(&|value| label(&bars.axis, *value))
        .bold_line_style(BLACK.mix(0.18))
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    let from = bars.axis.from;
    for (number, (name, (colour, _))) in bars.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let mut drawn = Vec::new();
        for (row, bar) in bars.rows.iter().enumerate() {
            let top = tall - f64::from(bars.row_height() * count(row) + NAME + BAR * count(number));
            let bottom = top - f64::from(BAR) + 4.0;
            let Some((value, words)) = bar.values.get(number).and_then(Option::as_ref) else { continue };
            let end = bars.within(*value);
            drawn.push(Rectangle::new([(from, top), (end, bottom)], colour.filled()));
            chart.draw_series([Text::new(format!("  {words}"), (end, top - 3.0), (FONT, 26).into_font().color(&BLACK))])?;
        }
        let swatch = |(x, y): (i32, i32)| Rectangle::new([(x, y - 10), (x + 64, y + 10)], colour.filled());
        chart.draw_series(drawn)?.label(name).legend(swatch);
    }
    for (row, bar) in bars.rows.iter().enumerate() {
        let top = tall - f64::from(bars.row_height() * count(row) + NAME - 32);
        chart.draw_series([Text::new(bar.name.clone(), (from, top), (FONT, 28).into_font().color(&BLACK))])?;
    }
    for (limit, (colour, _)) in bars.limits.iter().zip(COLOURS.iter().cycle().skip(bars.series.len())) {
        let (at, style) = (bars.within(limit.at), colour.stroke_width(4));
        let line = LineSeries::new([(at, f64::from(bars.legend_height())), (at, tall)], style);
        chart.draw_series(line)?.label(&limit.name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 64, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .legend_area_size(80)
        .margin(12)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.25))
        .label_font((FONT, 28))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_name_and_each_value_its_number_and_the_picture_is_as_tall_as_its_rows() {
        let value = |value: f64| Some((value, format!("{value} µs")));
        let mut picture = Bars {
            title: "a < b".to_owned(),
            axis: Axis::log("µs", 0.1, 1_000.0),
            series: vec!["ours".to_owned(), "theirs".to_owned()],
            rows: vec![
                Bar { name: "lock & unlock".to_owned(), values: vec![value(2.0), value(300.0)] },
                Bar { name: "read".to_owned(), values: vec![value(5_000.0), None] },
            ],
            limits: vec![Limit { name: "aim".to_owned(), at: 10.0 }],
            notes: vec!["One run.".to_owned()],
        };
        let svg = bars(&picture).unwrap();
        for text in ["<title>a &lt; b</title>", "lock &amp; unlock", "300 µs", "5000 µs", "aim", "prefers-color-scheme", "One run."] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        let height = |svg: &str| svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse::<u32>().ok()).unwrap();
        let before = height(&svg);
        picture.rows.push(Bar { name: "write".to_owned(), values: vec![None, value(7.0)] });
        assert_eq!(height(&bars(&picture).unwrap()) - before, (NAME + 2 * BAR) / 2);
    }
}
