//! The drawing: columns, bars, arrows and remarks as SVG.
//!
//! Decides: sizes and places; colours are in `style.css`, for light and dark pages and for paper. Place in the walk: the end of a picture.
//! Invariant: text from the wire reaches the file only as text nodes, which are escaped.
//! Leaves to others: heights (`axis`), lanes and the order of columns (`columns`), what is drawn (`mod`).

use super::axis::{Axis, REMARK, Span};
use super::columns::{LANES, lanes};
use super::{Bar, Picture, Row, Tone, is_hold};
use cistern_audit::{HostId, IntervalKind, Role};
use std::time::Duration;
use svg::Document;
use svg::node::element::{Group, Line, Polygon, Rectangle, Style, Text, Title};

/// Colours and fonts.
pub(super) const STYLE: &str = include_str!("style.css");

/// Width of a character of the labels' font.
const CHARACTER: f64 = 6.4;
/// Where times end, and the room to the first column.
const GUTTER: f64 = 104.0;
/// Room beside the outermost columns, for locks and their names.
const MARGIN: f64 = 210.0;
/// Distance of columns.
const STEP: f64 = 470.0;
/// Height of the names' line, with legend.
const HEAD: f64 = 66.0;
/// From there to the first row.
const FIRST: f64 = 14.0;
/// Half the width of a lease's bar.
const LEASE: f64 = 7.0;
/// Width of a lock's bar and its distance from the next.
const LANE: f64 = 9.0;
/// A pause from here on is told beside the times.
const PAUSE: Duration = Duration::from_millis(100);

/// The whole picture as one drawing.
pub(super) fn svg(picture: &Picture) -> Document {
    let (body, height) = rows(picture, HEAD);
    document(picture, 0.0, height).add(Style::new(STYLE)).add(paper(picture, height)).add(names(picture)).add(body)
}

/// The names of the columns alone.
pub(super) fn head(picture: &Picture) -> Document {
    document(picture, 0.0, HEAD).add(paper(picture, HEAD)).add(names(picture))
}

/// All but the names.
pub(super) fn body(picture: &Picture) -> Document {
    let (body, height) = rows(picture, 0.0);
    document(picture, 0.0, height).add(paper(picture, height)).add(body)
}

fn document(picture: &Picture, top: f64, height: f64) -> Document {
    let width = width(picture);
    Document::new().set("viewBox", (0, top, width, height)).set("width", width).set("height", height).set("class", "ladder")
}

fn paper(picture: &Picture, height: f64) -> Rectangle {
    Rectangle::new().set("class", "paper").set("width", width(picture)).set("height", height)
}

// Columns are few: exact.
#[allow(clippy::cast_precision_loss, reason = "nobody looks at a picture with 2^52 columns")]
fn place(column: usize) -> f64 {
    GUTTER + MARGIN + column as f64 * STEP
}

fn width(picture: &Picture) -> f64 {
    place(picture.columns.len().saturating_sub(1)) + MARGIN
}

fn names(picture: &Picture) -> Group {
    let mut group = Group::new().add(Text::new(&picture.title).set("class", "title").set("x", 12).set("y", 18)).add(legend());
    for (at, column) in picture.columns.iter().enumerate() {
        let role = if column.role == Role::Server { "server" } else { "agent" };
        let (x, text) =
            (place(at), |class: &str, y: f64, words: &str| Text::new(words).set("class", class).set("x", place(at)).set("y", y));
        let line = Line::new().set("class", "life").set("x1", x).set("x2", x).set("y1", HEAD - 6.0).set("y2", HEAD);
        group = group.add(text("name", HEAD - 22.0, &cut(&column.name, STEP - 20.0))).add(text("role", HEAD - 9.0, role)).add(line);
    }
    group
}

/// What the colours of bars mean.
fn legend() -> Group {
    let entries = [("lease", "lease"), ("possible", "possibly lease"), ("timing", "timed out by the server"), ("hold", "lock held")];
    let mut group = Group::new();
    let mut x = 420.0;
    for (class, words) in entries {
        let swatch = Rectangle::new().set("class", class).set("x", x).set("y", 9).set("width", 12).set("height", 10);
        group = group.add(swatch).add(Text::new(words).set("x", x + 17.0).set("y", 18));
        x += length(words) + 40.0;
    }
    group.add(Text::new("dashed: sent again").set("x", x).set("y", 18))
}

/// Everything under the names, and its height.
fn rows(picture: &Picture, top: f64) -> (Group, f64) {
    let spans: Vec<Span> = picture
        .rows
        .iter()
        .map(|row| Span { at: row.at, until: row.run.map_or(row.at, |run| run.0), remarks: row.remarks.len() })
        .collect();
    let ends: Vec<Duration> = picture.bars.iter().flat_map(|bar| [Some(bar.interval.from), bar.interval.until]).flatten().collect();
    let axis = Axis::new(top + FIRST, &spans, &ends);
    let bottom = axis.bottom + 10.0;
    let mut group = Group::new();
    for at in 0..picture.columns.len() {
        let x = place(at);
        group = group.add(Line::new().set("class", "life").set("x1", x).set("x2", x).set("y1", top).set("y2", bottom));
    }
    for (bar, lane) in picture.bars.iter().zip(lanes(&picture.bars)) {
        if let Some(drawn) = draw_bar(picture, &axis, bar, lane) {
            group = group.add(drawn);
        }
    }
    group = group.add(locks(picture, &axis));
    let begin = picture.begin();
    for (at, row) in picture.rows.iter().enumerate() {
        let y = axis.row(at);
        let after = row.at.saturating_sub(begin);
        group = group.add(Text::new(format!("{:.6}", after.as_secs_f64())).set("class", "time").set("x", GUTTER).set("y", y + 3.5));
        if let Some(pause) = at.checked_sub(1).map(|before| pause(&picture.rows[before], row)).filter(|pause| *pause >= PAUSE) {
            let text = Text::new(format!("{} later", about(pause))).set("class", "pause").set("x", GUTTER).set("y", y - 14.0);
            group = group.add(text);
        }
        group = group.add(if row.run.is_some() { draw_run(picture, &axis, row, at) } else { draw_row(picture, row, y) });
    }
    (group, bottom)
}

fn pause(before: &Row, row: &Row) -> Duration {
    row.at.saturating_sub(before.run.map_or(before.at, |run| run.0))
}

fn column_of(picture: &Picture, host: HostId) -> Option<usize> {
    picture.columns.iter().position(|column| column.host == host)
}

/// A bar on its column, or beside it on the outer side.
fn draw_bar(picture: &Picture, axis: &Axis, bar: &Bar, lane: usize) -> Option<Group> {
    let column = column_of(picture, bar.interval.host)?;
    let side = side(picture, column);
    let beside = |distance: f64| place(column) + side * distance;
    let (class, x, width) = match bar.interval.kind {
        IntervalKind::Lease => ("lease", place(column) - LEASE, 2.0 * LEASE),
        IntervalKind::PossibleLease => ("possible", place(column) - LEASE, 2.0 * LEASE),
        IntervalKind::TimingOut => ("timing", beside(-(LEASE + 5.0)) - 3.0, 6.0),
        IntervalKind::Grace => ("grace", place(column) - LEASE, 2.0 * LEASE),
        IntervalKind::Hold { .. } => ("hold", beside(offset(lane)) - LANE / 2.0, LANE - 3.0),
    };
    let top = axis.at(bar.interval.from);
    let bottom = bar.interval.until.map_or(axis.bottom + 10.0, |until| axis.at(until));
    let shape = Rectangle::new().set("class", class).set("x", x).set("y", top).set("width", width).set("height", (bottom - top).max(1.5));
    let mut group = Group::new().set("data-told", "").add(Title::new(&bar.title)).add(shape);
    if bar.interval.until.is_none() && is_hold(bar.interval.kind) {
        let edge = Line::new().set("class", "open").set("x1", x - 1.0).set("x2", x + width + 1.0).set("y1", bottom).set("y2", bottom);
        group = group.add(edge);
    }
    Some(group)
}

/// On which side of a column its locks are: away from the servers, where no arrows are.
fn side(picture: &Picture, column: usize) -> f64 {
    let servers = picture.columns.iter().position(|column| column.role == Role::Server).unwrap_or(0);
    if column < servers { -1.0 } else { 1.0 }
}

/// The names of locks where their bars begin; of several that begin close to each other, the first.
fn locks(picture: &Picture, axis: &Axis) -> Group {
    let mut group = Group::new();
    for column in 0..picture.columns.len() {
        let mut free = f64::MIN;
        for bar in picture.bars.iter().filter(|bar| column_of(picture, bar.interval.host) == Some(column)) {
            let IntervalKind::Hold { lock, mode, .. } = bar.interval.kind else { continue };
            let y = axis.at(bar.interval.from) + 9.0;
            if y < free {
                continue;
            }
            free = y + 11.0;
            let side = side(picture, column);
            let anchor = if side < 0.0 { "end" } else { "start" };
            let x = place(column) + side * offset(LANES);
            group = group.add(Text::new(format!("{mode} {lock}")).set("class", "lock").set("text-anchor", anchor).set("x", x).set("y", y));
        }
    }
    group
}

/// How far from its column a lane is.
#[allow(clippy::cast_precision_loss, reason = "there are a few lanes")]
fn offset(lane: usize) -> f64 {
    LEASE + 9.0 + lane as f64 * LANE
}

fn draw_row(picture: &Picture, row: &Row, y: f64) -> Group {
    let again = if row.again { " again" } else { "" };
    let mut group = Group::new().set("class", format!("row {}{again}", class(row.tone))).set("data-told", "").add(Title::new(&row.detail));
    if let (Some(from), Some(to)) = (column_of(picture, row.from), column_of(picture, row.to)) {
        let (x1, x2) = (place(from), place(to));
        let head = if x2 > x1 { -7.0 } else { 7.0 };
        let line = Line::new().set("class", "arrow").set("x1", x1).set("x2", x2).set("y1", y).set("y2", y);
        let tip = format!("{x2},{y} {},{} {},{}", x2 + head, y - 3.5, x2 + head, y + 3.5);
        group = group.add(line).add(Polygon::new().set("class", "head").set("points", tip));
        let (x, room) = label_place(picture, from, to);
        group = group.add(Text::new(cut(&row.label, room)).set("class", "label").set("x", x).set("y", y - 4.0));
    }
    remarks(picture, row, y, group)
}

/// A label stands next to the server, between it and the column beside it, where columns in between do not cut it.
fn label_place(picture: &Picture, from: usize, to: usize) -> (f64, f64) {
    let is_server = |column: usize| picture.columns.get(column).is_some_and(|column| column.role == Role::Server);
    let server = if is_server(from) { from } else { to };
    let agent = if server == from { to } else { from };
    let next = if agent < server { place(server) - STEP / 2.0 } else { place(server) + STEP / 2.0 };
    (next, STEP - 44.0)
}

fn draw_run(picture: &Picture, axis: &Axis, row: &Row, at: usize) -> Group {
    let (top, bottom) = (axis.row(at) - 8.0, axis.at(row.run.map_or(row.at, |run| run.0)) + 8.0);
    let (left, right) = (place(0) + 14.0, width(picture) - MARGIN - 14.0);
    let band = Rectangle::new().set("class", "band").set("rx", 4).set("x", left).set("y", top);
    let band = band.set("width", (right - left).max(1.0)).set("height", bottom - top);
    let middle = f64::midpoint(top, bottom);
    let text = Text::new(cut(&row.label, right - left)).set("class", "label").set("x", f64::midpoint(left, right)).set("y", middle + 3.5);
    Group::new().set("class", "row run").set("data-told", "").add(Title::new(&row.detail)).add(band).add(text)
}

fn remarks(picture: &Picture, row: &Row, y: f64, mut group: Group) -> Group {
    let middle = f64::midpoint(place(0), place(picture.columns.len().saturating_sub(1)));
    let mut top = y + 5.0;
    for remark in &row.remarks {
        let words = cut(remark, width(picture) - GUTTER);
        let half = length(&words) / 2.0 + 6.0;
        let back = Rectangle::new().set("rx", 3).set("x", middle - half).set("y", top).set("width", 2.0 * half).set("height", REMARK - 2.0);
        let text = Text::new(words).set("x", middle).set("y", top + 11.0);
        group = group.add(Group::new().set("class", "remark").add(back).add(text));
        top += REMARK;
    }
    group
}

const fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Handshake => "handshake",
        Tone::Renewal => "renewal",
        Tone::Notice => "notice",
        Tone::Refusal => "refusal",
        Tone::Broken => "broken",
    }
}

/// A pause to three digits.
fn about(pause: Duration) -> String {
    let millis = pause.as_secs_f64() * 1e3;
    if millis < 1e3 { format!("{millis:.0} ms") } else { format!("{:.2} s", millis / 1e3) }
}

/// The width of a label.
#[allow(clippy::cast_precision_loss, reason = "labels are short")]
fn length(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// As much of a text as there is room for.
fn cut(text: &str, room: f64) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        if length(&kept) + 2.0 * CHARACTER > room {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}
