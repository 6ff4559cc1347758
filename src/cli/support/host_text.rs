//! The facts of a host as text.

use rgpu_protocol::HostFacts;

use rgpu_report::{TextTable, one_line, wrap};

/// The facts of a host in a few lines of `width` columns.
pub(in crate::cli) fn host_text(
    name: &str,
    facts: &HostFacts,
    seconds: f64,
    width: usize,
) -> String {
    let clean = one_line;
    let agent = &facts.agent;
    let head = format!(
        "{name}  {} ({}, {} CPUs, {}), as {}  [{seconds:.1} s]",
        clean(&agent.os),
        clean(&agent.arch),
        agent.cpus,
        rgpu_report::bytes(agent.memory_bytes as f64),
        clean(&agent.user),
    );
    let mut out = lines(&head, width, "  ");
    for gpu in &facts.gpus {
        let line = format!(
            "  GPU {}      {}, {}, sm_{}  {}",
            gpu.index,
            clean(&gpu.name),
            rgpu_report::bytes(gpu.memory_bytes as f64),
            gpu.sm,
            clean(&gpu.uuid),
        );
        out += &lines(&line, width, "             ");
    }
    match &facts.driver {
        Some(driver) => {
            let cuda =
                facts.cuda.as_deref().map(|c| format!(", CUDA {}", clean(c))).unwrap_or_default();
            out += &format!("  driver     {}{cuda}\n", clean(driver));
        }
        None => out += "  driver     none: no GPU work can run there\n",
    }
    let mut grid = TextTable::new("tool | version | path");
    for tool in &facts.tools {
        grid.add_row([clean(&tool.name), clean(&tool.version), clean(&tool.path)]);
        for problem in &tool.problems {
            grid.add_row([String::new(), String::new(), clean(problem)]);
        }
    }
    out += "\n";
    out += &grid.fitted(width, 2);
    out
}

/// Wraps a line at blanks and indents the following lines.
fn lines(text: &str, width: usize, indent: &str) -> String {
    let wrapped = wrap(text, width.saturating_sub(indent.len()));
    let mut out = String::new();
    for (at, line) in wrapped.iter().enumerate() {
        out += &format!("{}{line}\n", if at == 0 { "" } else { indent });
    }
    out
}
