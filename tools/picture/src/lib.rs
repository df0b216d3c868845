//! Pictures of figures, as SVG: curves and points between two axes ([`svg`]), and bars of what has names ([`bars`]).
//!
//! Decides: colours, dashes, and that a picture is legible on paper (dashes tell curves apart without colour) and on a dark page (a style
//! sheet in the picture follows the reader's preference). The same figure gives the same bytes.
//! Leaves to others: what is drawn (the lab, the bench), where the file goes (the commands).

mod bars;
mod data;
mod figure;

pub use bars::{Bar, Bars, Limit, bars};
pub use data::{Axis, Curve, Figure, Mark};
pub use figure::svg;

use plotters::style::RGBColor;

/// Colours that people with any colour vision tell apart (Okabe, Ito), and their dashes.
const COLOURS: [(RGBColor, &str); 6] = [
    (RGBColor(0x00, 0x72, 0xB2), ""),
    (RGBColor(0xD5, 0x5E, 0x00), "20 8"),
    (RGBColor(0x00, 0x9E, 0x73), "5 7"),
    (RGBColor(0xAA, 0x4A, 0x8C), "24 7 5 7"),
    (RGBColor(0xC4, 0x8A, 0x00), "12 6 3 6 3 6"),
    (RGBColor(0x66, 0x66, 0x66), "3 4"),
];

const FONT: &str = "sans-serif";

/// A number at an axis: on a logarithmic one with a power of ten where it is far from 1.
fn label(axis: &Axis, value: f64) -> String {
    if axis.log && value > 0.0 && !(0.01..10_000.0).contains(&value) {
        return format!("{:.0}", value.log10()).chars().fold("10".to_owned(), |text, c| text + raised(c));
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn raised(c: char) -> &'static str {
    match c {
        '-' => "⁻",
        '0' => "⁰",
        '1' => "¹",
        '2' => "²",
        '3' => "³",
        '4' => "⁴",
        '5' => "⁵",
        '6' => "⁶",
        '7' => "⁷",
        '8' => "⁸",
        _ => "⁹",
    }
}

/// Adds a title for those who cannot see it, dashes, and colours for a dark page; drawn at that size, it is shown at half of it.
fn styled(svg: &str, size: (u32, u32), title: &str, notes: &[String]) -> String {
    let dashes: String = COLOURS
        .iter()
        .filter(|(_, dashes)| !dashes.is_empty())
        .map(|(RGBColor(r, g, b), dashes)| format!("polyline[stroke=\"#{r:02X}{g:02X}{b:02X}\"]{{stroke-dasharray:{dashes}}}\n"))
        .collect();
    let notes = notes.join(" ");
    let head = format!(
        "<title>{}</title>\n<desc>{}</desc>\n<style>\n{dashes}\
         @media (prefers-color-scheme: dark) {{\n\
         [fill=\"#FFFFFF\"] {{ fill: #15181c }}\n\
         [fill=\"#000000\"] {{ fill: #e4e7ea }}\n\
         [stroke=\"#000000\"] {{ stroke: #e4e7ea }}\n\
         [stroke=\"#0072B2\"] {{ stroke: #56b4e9 }}\n\
         [stroke=\"#D55E00\"] {{ stroke: #ff9a4d }}\n\
         [stroke=\"#009E73\"] {{ stroke: #35cfa0 }}\n\
         [stroke=\"#AA4A8C\"] {{ stroke: #e59fcf }}\n\
         [stroke=\"#C48A00\"] {{ stroke: #f0c75e }}\n\
         [stroke=\"#666666\"] {{ stroke: #a8adb3 }}\n\
         }}\n</style>\n",
        escaped(title),
        escaped(&notes)
    );
    let shown = format!("width=\"{}\" height=\"{}\"", size.0 / 2, size.1 / 2);
    let svg = svg.replacen(&format!("width=\"{}\" height=\"{}\"", size.0, size.1), &shown, 1);
    match svg.find(">\n") {
        Some(at) => format!("{}{head}{}", &svg[..at + 2], &svg[at + 2..]),
        None => svg,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_axes_are_short() {
        let (log, linear) = (Axis::log("", 1e-6, 1e2), Axis::linear("", 0.0, 30.0));
        for (axis, value, text) in
            [(&log, 1e-5, "10⁻⁵"), (&log, 1.0, "1"), (&log, 0.1, "0.1"), (&log, 1e12, "10¹²"), (&linear, 5.0, "5"), (&linear, 0.25, "0.25")]
        {
            assert_eq!(label(axis, value), text);
        }
    }
}
