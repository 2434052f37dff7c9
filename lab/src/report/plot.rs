//! Plots as SVG text. Colours come from classes, so that one style sheet serves light and dark.

use std::fmt::Write;

/// Width of every plot in its own units; the page scales it.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 42.0;
/// Number of colours in the style sheet.
pub(crate) const COLOURS: usize = 8;
/// Estimated width of a character at the plots' font size.
const CHARACTER: f64 = 6.3;

/// Escapes characters with a meaning in XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Round numbers that cover `low..=high`, about `wanted` of them.
pub(crate) fn ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = (high - low).max(1e-12);
    let raw = span / wanted.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= raw);
    let step = step.unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// A number as a label: no more digits than it needs.
pub(crate) fn label(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A rectangle of the plane and its scales.
struct Frame {
    height: f64,
    left: f64,
    x: (f64, f64),
    y: (f64, f64),
    svg: String,
}

impl Frame {
    fn new(title: &str, plot_height: f64, left: f64, x: (f64, f64), y: (f64, f64)) -> Self {
        let height = plot_height + TOP + BOTTOM;
        let title = escape(title);
        let svg = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title>{title}</title>\
             <text class=\"head\" x=\"{left}\" y=\"16\">{title}</text>"
        );
        Self { height, left, x, y, svg }
    }

    fn px(&self, x: f64) -> f64 {
        let share = (x - self.x.0) / (self.x.1 - self.x.0);
        self.left + share * (WIDTH - RIGHT - self.left)
    }

    fn py(&self, y: f64) -> f64 {
        let share = (y - self.y.0) / (self.y.1 - self.y.0);
        self.height - BOTTOM - share * (self.height - TOP - BOTTOM)
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escape(text);
        let _ = write!(self.svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.svg,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn x_axis(&mut self, name: &str) {
        for tick in ticks(self.x.0, self.x.1, 8) {
            let x = self.px(tick);
            self.line("grid", (x, TOP), (x, self.height - BOTTOM));
            self.text("tick middle", x, self.height - BOTTOM + 16.0, &label(tick));
        }
        let middle = (self.left + WIDTH - RIGHT) / 2.0;
        self.text("axis middle", middle, self.height - 8.0, name);
    }

    fn y_axis(&mut self, name: &str) {
        for tick in ticks(self.y.0, self.y.1, 5) {
            let y = self.py(tick);
            self.line("grid", (self.left, y), (WIDTH - RIGHT, y));
            self.text("tick end", self.left - 6.0, y + 4.0, &label(tick));
        }
        let middle = (TOP + self.height - BOTTOM) / 2.0;
        let _ = write!(
            self.svg,
            "<text class=\"axis middle\" transform=\"translate(14 {middle:.1}) rotate(-90)\">{}</text>",
            escape(name)
        );
    }

    /// Names of the series, right of the title, from right to left.
    fn legend(&mut self, names: &[&str]) {
        let mut x = WIDTH - RIGHT;
        for (index, name) in names.iter().enumerate().rev() {
            x -= name.chars().count() as f64 * CHARACTER;
            self.text("tick", x, 16.0, name);
            x -= 18.0;
            let class = format!("line s{}", index % COLOURS + 1);
            self.line(&class, (x, 12.0), (x + 14.0, 12.0));
            x -= 12.0;
        }
    }

    fn finish(mut self) -> String {
        self.svg += "</svg>";
        self.svg
    }
}

/// One line of a plot over time.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Values at equal distances; the line has a gap where one is not finite.
    pub(crate) values: Vec<f64>,
}

/// Plots series over time. `interval` is the time between values, `marks` are times to mark.
pub(crate) fn over_time(
    title: &str,
    unit: &str,
    interval: f64,
    series: &[Series],
    marks: &[f64],
) -> String {
    let count = series.iter().map(|s| s.values.len()).max().unwrap_or(0).max(1);
    let highest = series.iter().flat_map(|s| s.values.iter().copied()).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let length = count as f64 * interval;
    let (interval, name) =
        if length > 3.0 * 3600.0 { (interval / 3600.0, "time, h") } else { (interval, "time, s") };
    let mut frame = Frame::new(title, 190.0, LEFT, (0.0, count as f64 * interval), (0.0, top));
    frame.x_axis(name);
    frame.y_axis(unit);
    let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
    frame.legend(&names);
    for mark in marks {
        let x = frame.px(*mark);
        frame.line("mark", (x, TOP), (x, frame.height - BOTTOM));
    }
    for (index, one) in series.iter().enumerate() {
        let points: Vec<(f64, f64)> = one
            .values
            .iter()
            .enumerate()
            .map(|(i, value)| (frame.px((i as f64 + 0.5) * interval), frame.py(*value)))
            .collect();
        for part in points.split(|(_, y)| !y.is_finite()).filter(|part| !part.is_empty()) {
            let points: Vec<String> = part.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = write!(
                frame.svg,
                "<polyline class=\"line s{}\" points=\"{}\"/>",
                index % COLOURS + 1,
                points.join(" ")
            );
        }
    }
    frame.finish()
}

/// One row of a box plot.
pub(crate) struct Row {
    pub(crate) name: String,
    /// Measured, one each repetition.
    pub(crate) values: Vec<f64>,
    pub(crate) published: Option<f64>,
    pub(crate) limit: Option<f64>,
    /// Whether it is drawn as one that does not count.
    pub(crate) faded: bool,
}

/// Quartiles by linear interpolation: 0, 1/4, 1/2, 3/4, 1.
pub(crate) fn quartiles(values: &[f64]) -> [f64; 5] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| {
        let at = share * (sorted.len().max(1) - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        match (sorted.get(low), sorted.get(high)) {
            (Some(low), Some(high)) => low + (high - low) * at.fract(),
            _ => f64::NAN,
        }
    })
}

/// Horizontal boxes over repetitions, with the published figure and each row's limit.
pub(crate) fn boxes(title: &str, unit: &str, rows: &[Row]) -> String {
    const ROW: f64 = 30.0;
    let widest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = (widest as f64 * CHARACTER + 14.0).max(LEFT);
    let highest = rows
        .iter()
        .flat_map(|row| row.values.iter().copied().chain(row.published).chain(row.limit))
        .fold(0.0, f64::max);
    let x = (0.0, if highest > 0.0 { highest * 1.05 } else { 1.0 });
    let mut frame = Frame::new(title, ROW * rows.len() as f64, left, x, (0.0, 1.0));
    frame.x_axis(unit);
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        frame.text("tick end", left - 8.0, y + 4.0, &row.name);
        if let Some(limit) = row.limit {
            let x = frame.px(limit);
            frame.line("limit", (x, y - 12.0), (x, y + 12.0));
        }
        if !row.values.is_empty() {
            let quartiles = quartiles(&row.values).map(|value| frame.px(value));
            let class = if row.faded { "faded" } else { "s1" };
            frame.line(&format!("line {class}"), (quartiles[0], y), (quartiles[4], y));
            let _ = write!(
                frame.svg,
                "<rect class=\"box {class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>",
                quartiles[1],
                y - 7.0,
                (quartiles[3] - quartiles[1]).max(1.0)
            );
            frame.line(
                &format!("median {class}"),
                (quartiles[2], y - 10.0),
                (quartiles[2], y + 10.0),
            );
        }
        if let Some(published) = row.published {
            let x = frame.px(published);
            let _ = write!(
                frame.svg,
                "<path class=\"published\" d=\"M{x:.1} {:.1}l5 6l-5 6l-5 -6z\"/>",
                y - 6.0
            );
        }
    }
    frame.finish()
}

/// Aggregation benefit over loss: a box for each system at each loss.
pub(crate) fn benefit(
    title: &str,
    losses: &[String],
    systems: &[(String, Vec<Vec<f64>>)],
) -> String {
    let mut frame = Frame::new(title, 230.0, LEFT, (0.0, losses.len().max(1) as f64), (-1.0, 1.0));
    frame.y_axis("aggregation benefit");
    let names: Vec<&str> = systems.iter().map(|(name, _)| name.as_str()).collect();
    frame.legend(&names);
    let zero = frame.py(0.0);
    frame.line("limit", (LEFT, zero), (WIDTH - RIGHT, zero));
    let slot = frame.px(1.0) - frame.px(0.0);
    let width = (slot * 0.8 / systems.len().max(1) as f64).min(26.0);
    for (index, loss) in losses.iter().enumerate() {
        let middle = frame.px(index as f64 + 0.5);
        frame.text("tick middle", middle, frame.height - BOTTOM + 16.0, loss);
        for (number, (_, values)) in systems.iter().enumerate() {
            let Some(values) = values.get(index).filter(|values| !values.is_empty()) else {
                continue;
            };
            let offset = (number as f64 - (systems.len() as f64 - 1.0) / 2.0) * width;
            let (x, class) = (middle + offset, format!("s{}", number % COLOURS + 1));
            let quartiles = quartiles(values).map(|value| frame.py(value.clamp(-1.0, 1.0)));
            frame.line(&format!("line {class}"), (x, quartiles[0]), (x, quartiles[4]));
            let _ = write!(
                frame.svg,
                "<rect class=\"box {class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                x - width * 0.4,
                quartiles[3],
                width * 0.8,
                (quartiles[1] - quartiles[3]).max(1.0)
            );
            let half = width * 0.4;
            frame.line(
                &format!("median {class}"),
                (x - half, quartiles[2]),
                (x + half, quartiles[2]),
            );
        }
    }
    let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, frame.height - 8.0);
    frame.text("axis middle", middle, bottom, "loss, %");
    frame.finish()
}

/// Cumulative distributions of sets of sorted values, one line each. Values beyond the range of `x`
/// lie at its ends.
pub(crate) fn distribution(
    title: &str,
    unit: &str,
    x: (f64, f64),
    sets: &[(String, Vec<f64>)],
) -> String {
    let mut frame = Frame::new(title, 230.0, LEFT, x, (0.0, 1.0));
    frame.x_axis(unit);
    frame.y_axis("share of the sets");
    let names: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
    frame.legend(&names);
    for (index, (_, values)) in sets.iter().enumerate() {
        let (mut points, mut last) = (String::new(), frame.py(0.0));
        for (rank, value) in values.iter().enumerate() {
            let at = frame.px(value.clamp(x.0, x.1));
            let y = frame.py((rank + 1) as f64 / values.len() as f64);
            let _ = write!(points, "{at:.1},{last:.1} {at:.1},{y:.1} ");
            last = y;
        }
        let _ = write!(
            frame.svg,
            "<polyline class=\"line s{}\" points=\"{}\"/>",
            index % COLOURS + 1,
            points.trim_end()
        );
    }
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(-1.0, 1.0, 5), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        assert_eq!(label(0.30000000000000004), "0.3");
        assert_eq!(label(-0.0), "0");
        assert_eq!(label(120.0), "120");
    }

    #[test]
    fn quartiles_interpolate() {
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(quartiles(&[1.0, 2.0])[2], 1.5);
        assert!(quartiles(&[])[2].is_nan());
    }

    #[test]
    fn a_box_stands_where_its_values_are() {
        let row = Row {
            name: "mptcp <x>".to_owned(),
            values: vec![50.0, 50.0],
            published: Some(100.0),
            limit: None,
            faded: false,
        };
        let svg = boxes("t", "Mbit/s", &[row]);
        assert!(svg.contains("mptcp &lt;x&gt;"));
        // 105 units from the left margin to the right one; 50 are at 50/105 of it.
        let left = (9.0 * CHARACTER + 14.0).max(LEFT);
        let x = left + 50.0 / 105.0 * (WIDTH - RIGHT - left);
        assert!(svg.contains(&format!("rect class=\"box s1\" x=\"{x:.1}\"")), "{svg}");
    }

    #[test]
    fn a_series_has_a_point_for_each_value() {
        let series = [Series { name: "a".to_owned(), values: vec![1.0, 2.0, 3.0] }];
        let svg = over_time("t", "Mbit/s", 0.1, &series, &[0.2]);
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(points.map(|points| points.split(' ').count()), Some(3));
    }

    #[test]
    fn a_distribution_steps_up_by_one_share_at_each_value_and_ends_at_the_top() {
        let sets = [("a".to_owned(), vec![0.25, 0.5, 7.0, 9.0])];
        let svg = distribution("t", "ratio", (0.0, 1.0), &sets);
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        let points: Vec<(f64, f64)> = points
            .expect("there is a line")
            .split(' ')
            .map(|point| point.split_once(',').expect("x and y"))
            .map(|(x, y)| (x.parse().expect("x"), y.parse().expect("y")))
            .collect();
        let (left, right) = (LEFT, WIDTH - RIGHT);
        assert_eq!(points.len(), 8);
        assert!((points[0].0 - (left + 0.25 * (right - left))).abs() < 0.06);
        assert!((points[1].1 - (TOP + 230.0 * 0.75)).abs() < 0.06);
        assert_eq!((points[7].0, points[7].1), (right, TOP));
    }
}
