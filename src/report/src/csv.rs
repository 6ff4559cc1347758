//! Tables for spreadsheets and scripts in CSV (RFC 4180): kernels, metrics and regions.
//!
//! Column heads contain the units, so cells are plain numbers. A text that a spreadsheet would take
//! for a formula (it begins with `=`, `+`, `-`, `@`, a tab or a carriage return) gets a leading
//! `'`, because kernel and region names come from the profiled program and are untrusted. No C++ or
//! Python name begins with these characters.
//!
//! Line breaks within a cell are in quotes, as readers of CSV expect. On a terminal and in a pipe
//! they would begin a line that looks like one of rgpu's own, so they are escaped there
//! ([`OneLineRows`]), as other control characters are.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Document, ReportInput, Style};
use rgpu_model::timeline::KernelSum;
use rgpu_model::{Launch, Profile, Region, Value};

/// Renders `kernels.csv`, `metrics.csv` and `regions.csv`.
pub(super) fn render<'p>(subject: &ReportInput<'p>, _: &Style) -> Vec<Document<'p>> {
    let profile = subject.profile;
    vec![
        Document::written("kernels.csv", profile, |profile, out| {
            kernels(&profile.kernels, profile.device.as_deref(), out)
        }),
        Document::written("metrics.csv", profile, |profile, out| {
            metrics(profile.launches.iter(), out)
        }),
        Document::written("regions.csv", profile, regions),
    ]
}

/// Renders `kernels.csv` of a region: its launches with their metrics, or its kernels if single
/// launches are not known.
pub(super) fn of_region(region: &Region, launches: &[&Launch]) -> String {
    let mut table = Vec::new();
    // Memory takes all that is written.
    let _ = match launches {
        [] => kernels(&region.kernels, None, &mut table),
        launches => metrics(launches.iter().copied(), &mut table),
    };
    String::from_utf8_lossy(&table).into_owned()
}

/// Writes a table in CSV for a terminal or a pipe: line breaks within cells become `\u000a` and
/// `\u000d`, so that each line is a row.
pub struct OneLineRows<'w> {
    out: &'w mut dyn Write,
    is_quoted: bool,
}

impl<'w> OneLineRows<'w> {
    /// Writes to `out`.
    pub fn new(out: &'w mut dyn Write) -> Self {
        Self { out, is_quoted: false }
    }
}

impl Write for OneLineRows<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r' | b'"')) {
            let (rest, escaped): (_, &[u8]) = match piece.split_last() {
                Some((b'\n', rest)) if self.is_quoted => (rest, b"\\u000a"),
                Some((b'\r', rest)) if self.is_quoted => (rest, b"\\u000d"),
                // A quote within a cell is doubled, so it ends a quotation and begins one.
                Some((b'"', _)) => {
                    self.is_quoted = !self.is_quoted;
                    (piece, b"")
                }
                _ => (piece, b""),
            };
            self.out.write_all(rest)?;
            self.out.write_all(escaped)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A table that is being written.
struct Table<'w>(csv::Writer<&'w mut dyn Write>);

impl<'w> Table<'w> {
    fn new<'a>(
        head: impl IntoIterator<Item = &'a str>,
        out: &'w mut dyn Write,
    ) -> io::Result<Self> {
        let terminator = csv::Terminator::CRLF;
        let mut table = Self(csv::WriterBuilder::new().terminator(terminator).from_writer(out));
        table.row(head.into_iter().map(str::to_owned))?;
        Ok(table)
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) -> io::Result<()> {
        Ok(self.0.write_record(cells.into_iter().map(|cell| cell.into_bytes()))?)
    }

    fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes a text of the profiled program for spreadsheets.
fn text(foreign: &str) -> String {
    if foreign.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{foreign}")
    } else {
        foreign.to_owned()
    }
}

fn number(x: Option<impl ToString>) -> String {
    x.map(|x| x.to_string()).unwrap_or_default()
}

fn kernels(kernels: &[KernelSum], device: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let head = [
        "kernel",
        "device",
        "launches",
        "total [ns]",
        "mean [ns]",
        "min [ns]",
        "max [ns]",
        "share [%]",
        "set-up [ns]",
    ];
    let mut table = Table::new(head, out)?;
    let all: u64 = kernels.iter().map(KernelSum::work_ns).sum();
    for k in kernels {
        table.row([
            text(&k.kernel),
            text(device.unwrap_or_default()),
            k.launches.to_string(),
            k.total_ns.to_string(),
            format!("{:.1}", k.total_ns as f64 / k.launches.max(1) as f64),
            k.min_ns.to_string(),
            k.max_ns.to_string(),
            format!("{:.3}", 100.0 * k.work_ns() as f64 / all.max(1) as f64),
            number(k.set_up_ns),
        ])?;
    }
    table.finish()
}

/// One row per launch. A metric with two units gets two columns.
fn metrics<'a>(
    launches: impl Iterator<Item = &'a Launch> + Clone,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut columns: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (id, metric) in launches.clone().flat_map(|l| &l.metrics) {
        columns.insert((id, &metric.unit), 0);
    }
    columns.values_mut().enumerate().for_each(|(at, column)| *column = at);
    let fixed =
        ["launch", "kernel", "region", "stream", "grid", "block", "start [ns]", "duration [ns]"];
    let heads: Vec<String> = columns
        .keys()
        .map(|(id, unit)| if unit.is_empty() { text(id) } else { text(&format!("{id} [{unit}]")) })
        .collect();
    let heads = fixed.into_iter().chain(heads.iter().map(String::as_str));
    let mut table = Table::new(heads, out)?;
    for launch in launches {
        let mut cells = vec![String::new(); columns.len()];
        for (id, metric) in &launch.metrics {
            if let Some(at) = columns.get(&(id.as_str(), metric.unit.as_str())) {
                cells[*at] = match &metric.value {
                    Value::Int(n) => n.to_string(),
                    Value::Float(x) => x.to_string(),
                    Value::Text(words) => text(words),
                };
            }
        }
        table.row(launch_cells(launch).into_iter().chain(cells))?;
    }
    table.finish()
}

fn launch_cells(launch: &Launch) -> [String; 8] {
    // The result of a whole range has no grid and no block.
    let shape = |n: [u32; 3]| match n {
        [0, 0, 0] => String::new(),
        [x, y, z] => format!("{x}x{y}x{z}"),
    };
    let region = Region { path: launch.region.to_vec(), ..Default::default() };
    [
        launch.id.to_string(),
        text(&launch.kernel),
        text(&region.display()),
        number(launch.stream),
        shape(launch.grid),
        shape(launch.block),
        number(launch.start_ns),
        number(launch.duration_ns),
    ]
}

fn regions(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let head =
        ["region", "depth", "kind", "instances", "host [ns]", "GPU [ns]", "launches", "kernels"];
    let mut table = Table::new(head, out)?;
    for r in &profile.regions {
        // If the tool did not see a region's work, the cell is empty instead of zero.
        let seen = r.gpu_ns.is_some() || !r.kernels.is_empty();
        let launches: u64 = r.kernels.iter().map(|k| k.launches).sum();
        table.row([
            text(&r.display()),
            r.path.len().to_string(),
            r.kind.to_string(),
            number(r.instances),
            number(r.host_ns),
            number(r.gpu_ns),
            number(seen.then_some(launches)),
            number(seen.then_some(r.kernels.len())),
        ])?;
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::{Metric, SharedText};

    fn hostile() -> Profile {
        let launch = |id, unit: &str| Launch {
            id,
            kernel: "void k<int, \"x\">(int*)".to_owned(),
            duration_ns: Some(1500.5),
            region: vec!["A".to_owned(), "b::c".to_owned()].into(),
            metrics: [(
                "dram__bytes.sum".into(),
                Metric { value: Value::Int(7), unit: unit.into(), from: SharedText::default() },
            )]
            .into(),
            ..Launch::default()
        };
        Profile {
            kernels: vec![KernelSum {
                kernel: "=cmd|' /C calc'!A0".to_owned(),
                launches: 2,
                total_ns: 3,
                set_up_ns: None,
                min_ns: 1,
                max_ns: 2,
            }],
            launches: vec![launch(0, "byte"), launch(1, "kbyte")],
            regions: vec![Region { path: vec!["a\nb".to_owned()], ..Region::default() }],
            ..Profile::default()
        }
    }

    #[test]
    fn names_that_look_like_formulas_quotes_and_commas_stay_texts() {
        let profile = hostile();
        let texts: Vec<String> = render(&(&profile).into(), &Style::default())
            .into_iter()
            .map(|d| format!("{}\n{}", d.name, d.clone().into_text().replace("\r\n", "\n")))
            .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn what_was_not_measured_is_an_empty_cell() {
        let range = Launch { kernel: "range of A".to_owned(), ..Launch::default() };
        let region = |gpu_ns| Region { path: vec!["A".to_owned()], gpu_ns, ..Region::default() };
        let regions = vec![region(None), region(Some(0))];
        let profile = Profile { launches: vec![range.clone()], regions, ..Profile::default() };
        let texts: Vec<String> = render(&(&profile).into(), &Style::default())
            .into_iter()
            .map(|d| d.into_text().replace("\r\n", "\n"))
            .collect();
        assert!(texts[1].ends_with("\n0,range of A,,,,,,\n"), "{}", texts[1]);
        assert!(texts[2].ends_with("\nA,1,,,,,,\nA,1,,,,0,0,0\n"), "{}", texts[2]);
        let json = serde_json::to_value(&range).unwrap();
        assert!(json.get("grid").is_none() && json.get("block").is_none(), "{json}");
        assert_eq!(serde_json::from_value::<Launch>(json).unwrap(), range);
    }

    #[test]
    fn a_line_break_in_a_name_begins_no_line_on_a_terminal() {
        let name = "k\r\nhelp: run \"curl\"\nerror: x";
        let launch = Launch { kernel: name.to_owned(), ..Launch::default() };
        let mut table = Vec::new();
        metrics([&launch].into_iter(), &mut table).unwrap();
        let mut reader = csv::Reader::from_reader(table.as_slice());
        assert_eq!(&reader.records().next().unwrap().unwrap()[1], name);
        // However the table is cut into pieces.
        let shown = |size: usize| {
            let mut shown = Vec::new();
            let mut rows = OneLineRows::new(&mut shown);
            table.chunks(size).for_each(|piece| rows.write_all(piece).unwrap());
            String::from_utf8(shown).unwrap()
        };
        assert_eq!(shown(1), shown(table.len()));
        let shown = shown(7);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.ends_with("\r\n"), "{shown}");
        let mut reader = csv::Reader::from_reader(shown.as_bytes());
        let cell = reader.records().next().unwrap().unwrap()[1].to_owned();
        assert_eq!(cell, "k\\u000d\\u000ahelp: run \"curl\"\\u000aerror: x");
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_head() {
        let profile = hostile();
        for document in render(&(&profile).into(), &Style::default()) {
            let (name, table) = (document.name, document.into_text());
            let mut reader = csv::Reader::from_reader(table.as_bytes());
            assert!(reader.records().all(|row| row.is_ok()), "{name}");
        }
    }
}
