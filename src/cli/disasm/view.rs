//! `--view`: one thing of the files, on stdout.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use rgpu_format::cubin::{self, Cubin, Table, lines};
use rgpu_format::ptx;
use rgpu_format::sass::{self, Columns};

use super::args::View;
use crate::cli::app::{App, Status};
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::import::gpu_code;
use crate::report::{Align, Grid};
use crate::run::disasm::{What, image_bytes, listing};

/// Prints the view of every image of every file.
pub(super) fn print(app: &App, files: &[PathBuf], what: &What, view: View) -> Result<Status> {
    let (mut failed, mut shown) = (false, false);
    for file in files {
        let images = match image_bytes(file, what) {
            Ok(images) => images,
            Err(error) => {
                app.complain(&format!("`{}`: {error}", file.display()));
                failed = true;
                continue;
            }
        };
        for (place, bytes) in images {
            let text = if cubin::is_cubin(&bytes) {
                match cubin::read(&bytes) {
                    Ok(cubin) => of_cubin(app, &cubin, &bytes, what, view),
                    Err(error) => {
                        app.complain(&format!("`{}` {place}: {error}", file.display()));
                        failed = true;
                        continue;
                    }
                }
            } else if view == View::Ptx && ptx::is_ptx(&bytes) {
                Some(String::from_utf8_lossy(&bytes).into_owned())
            } else {
                None
            };
            let Some(text) = text.filter(|t| !t.is_empty()) else { continue };
            shown = true;
            if app.terminal.stdout_tty {
                app.print(&safe(text.as_bytes()));
            } else {
                app.print(&text);
            }
        }
    }
    if !shown && !failed {
        let hint = match view {
            View::Ptx => "PTX is in fatbins and in cubins built with -lineinfo",
            View::Source => "source lines are in cubins built with -lineinfo or -G",
            _ => "--arch and -k may leave nothing; `--list` shows what is there",
        };
        return Err(
            Failure::new(Exit::Artifact, "nothing_to_show", "there is nothing to show").hint(hint)
        );
    }
    Ok(if failed { Exit::Artifact as u8 } else { 0 })
}

fn of_cubin(app: &App, cubin: &Cubin, file: &[u8], what: &What, view: View) -> Option<String> {
    let wanted = |section: &cubin::CodeSection| what.wanted.kernel(&section.name);
    let nothing = !cubin.code.iter().any(wanted);
    match view {
        _ if nothing => None,
        View::Sass => {
            let (text, tool, problem) = listing(cubin, file, what);
            if let Some(problem) = problem {
                app.say(&format!("nvdisasm did not serve: {problem}"));
            }
            app.say(&format!("{}: listed by {tool}", cubin.sm));
            Some(text)
        }
        View::Ptx => cubin.ptx.clone(),
        View::Source => source(cubin, file, what),
        View::Mix => Some(mix(app, cubin, file, what)),
        View::Cfg => Some(gpu_code::graph(cubin, file, &wanted)),
    }
}

/// Classes of each kernel, most frequent first.
fn mix(app: &App, cubin: &Cubin, file: &[u8], what: &What) -> String {
    let mut text = String::new();
    for section in cubin.code.iter().filter(|s| what.wanted.kernel(&s.name)) {
        let code = gpu_code::instructions(section, file);
        let code = sass::trimmed(&code, cubin.sm.number);
        let mix = sass::mix(code, cubin.sm.number);
        let name = rgpu_format::demangle::demangle(&section.name);
        let name = name.as_deref().unwrap_or(&section.name);
        let _ = writeln!(text, "{name} ({}): {} instructions", cubin.sm, mix.instructions);
        let mut grid = Grid::new(&[
            ("class", Align::Left),
            ("count", Align::Right),
            ("share", Align::Right),
            ("instructions", Align::Left),
        ]);
        for class in &mix.classes {
            let names = mix.mnemonics.iter().filter(|(m, _)| sass::Class::of(*m) == class.class);
            let names: Vec<String> = names.map(|(m, n)| format!("{m} {n}")).collect();
            let share = class.count as f64 / mix.instructions.max(1) as f64 * 100.0;
            grid.row([
                class.class.name().to_owned(),
                class.count.to_string(),
                format!("{share:.1} %"),
                names.join(", "),
            ]);
        }
        text.push_str(&grid.plain(app.style().width, 2));
    }
    text
}

/// Each source line, with its text where the file is there, and the instructions it became.
fn source(cubin: &Cubin, file: &[u8], what: &What) -> Option<String> {
    let table = lines(file, Table::Source).ok().filter(|t| !t.is_empty())?;
    let mut text = String::new();
    let mut files: BTreeMap<String, Option<Vec<String>>> = BTreeMap::new();
    for section in cubin.code.iter().filter(|s| what.wanted.kernel(&s.name)) {
        let Some(symbol) = section.functions.iter().find(|f| f.offset == 0) else { continue };
        let Some(of_section) = table.function(&symbol.name, symbol.symbol_index) else { continue };
        let code = gpu_code::instructions(section, file);
        let code = sass::trimmed(&code, cubin.sm.number);
        // Listed as one, so that labels mean the same everywhere.
        let columns = Columns { control: what.shown.control, bits: false };
        let body = sass::listing(code, cubin.sm.number, columns, &BTreeMap::new());
        let mut by_line: BTreeMap<(String, u32), Vec<&str>> = BTreeMap::new();
        let (mut at, mut labels) = (0, Vec::new());
        for line in body.lines() {
            if line.ends_with(':') {
                labels.push(line);
            } else if let Some(instruction) = code.get(at) {
                at += 1;
                let place = of_section.at(instruction.offset);
                let Some(place) = place.first() else { continue };
                let lines = by_line.entry((place.file.to_owned(), place.line)).or_default();
                lines.append(&mut labels);
                lines.push(line);
            }
        }
        let name = rgpu_format::demangle::demangle(&section.name);
        let _ = writeln!(text, "{} ({})", name.as_deref().unwrap_or(&section.name), cubin.sm);
        for ((file, line), code) in by_line {
            let lines = files.entry(file.clone()).or_insert_with(|| {
                let text = std::fs::read_to_string(&file).ok()?;
                Some(text.lines().map(str::to_owned).collect())
            });
            let at = (line as usize).saturating_sub(1);
            let source = lines.as_ref().and_then(|l| l.get(at)).map_or("", |l| l.trim_end());
            let _ = writeln!(text, "{file}:{line}: {source}");
            for line in code {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    Some(text)
}
