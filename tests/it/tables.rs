//! The tables of the documentation equal those of the code: modes and rungs.

use std::path::Path;

use rgpu_plan::kernel::MODES;
use rgpu_plan::tool::{RUNGS, RungInfo};

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The lines of a document's table that begins with this head.
fn table(path: &str, head: &str) -> Vec<String> {
    let text = text(path);
    let lines = text.lines().skip_while(|line| *line != head);
    lines.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

fn loses(info: &RungInfo) -> String {
    let under_ncu = info.loses_in_ncu_mode.map(|loses| format!("in mode `ncu`: {loses}"));
    let parts = [Some(info.loses.to_owned()).filter(|text| !text.is_empty()), under_ncu];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[test]
fn the_ladders_page_has_every_rung_in_its_order() {
    let mut expected =
        vec!["| rung | tool | gives | loses |".to_owned(), "|---|---|---|---|".into()];
    for info in RUNGS {
        let tool = info.tool.name().unwrap_or("rgpu");
        expected.push(format!("| `{}` | {tool} | {} | {} |", info.id, info.gives, loses(info)));
    }
    assert_eq!(table("docs/ladders.md", &expected[0]).join("\n"), expected.join("\n"));
}

#[test]
fn the_ladders_page_has_every_mode_with_its_steps_and_rungs() {
    let mut expected =
        vec!["| mode | gives | steps | rungs |".to_owned(), "|---|---|---|---|".into()];
    for info in MODES {
        let steps: Vec<String> = info.steps.iter().map(|s| format!("`{}`", s.name())).collect();
        let rungs: Vec<String> = info.rungs.iter().map(|id| format!("`{id}`")).collect();
        expected.push(format!(
            "| `{}` | {} | {} | {} |",
            info.name,
            info.gives,
            steps.join(", "),
            rungs.join(" ")
        ));
    }
    assert_eq!(table("docs/ladders.md", &expected[0]).join("\n"), expected.join("\n"));
}
