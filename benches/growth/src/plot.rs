//! Draws the figures: the number of records on a logarithmic axis, and the time of a call relative to the time at the
//! first size.

use std::path::Path;

use plotters::coord::combinators::IntoLogRange as _;
use plotters::prelude::*;

use crate::Grown;
use crate::measure::{CALLERS, Kind};
use crate::page::{grouped, relative};
use crate::subject::{Anything, Failure};

const SIZE: (u32, u32) = (1_200, 480);
const COLOURS: [RGBColor; 3] = [RGBColor(0, 90, 160), RGBColor(190, 60, 30), RGBColor(40, 130, 60)];

pub(crate) fn draw(all: &[Grown], path: &Path) -> Anything<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    for (callers, panel) in CALLERS.into_iter().zip(area.split_evenly((1, CALLERS.len()))) {
        draw_panel(all, callers, &panel)?;
    }
    area.present().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    error.to_string().into()
}

fn draw_panel(
    all: &[Grown],
    callers: usize,
    panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Anything<()> {
    let lines = || {
        all.iter().zip(COLOURS).flat_map(move |(grown, colour)| {
            Kind::ALL.map(|kind| (grown, colour, kind, relative(grown, kind, callers)))
        })
    };
    let most = lines().flat_map(|line| line.3).map(|(records, _)| records).max().unwrap_or(10_000);
    let highest =
        lines().flat_map(|line| line.3).fold(2.0_f64, |highest, (_, ratio)| highest.max(ratio * 1.1));
    let title =
        format!("p50 of a call, {callers} {} at once", if callers == 1 { "caller" } else { "callers" });
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(52)
        .build_cartesian_2d((10_000_f64..most as f64 * 1.05).log_scale(), 0.0..highest)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(4)
        .x_label_formatter(&|records| grouped(*records as u64))
        .y_label_formatter(&|ratio| format!("{ratio:.1}"))
        .x_desc("records in the store")
        .y_desc("times that at 10,000 records")
        .draw()
        .map_err(failed)?;
    for (grown, colour, kind, points) in lines() {
        let width = if kind == Kind::Fresh { 3 } else { 1 };
        let style = colour.stroke_width(width);
        let line = LineSeries::new(points.into_iter().map(|(records, ratio)| (records as f64, ratio)), style);
        chart
            .draw_series(line)
            .map_err(failed)?
            .label(format!("{}, {}", grown.store, kind.name()))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .legend_area_size(32)
        .draw()
        .map_err(failed)
}
