//! Control flow as a Graphviz graph.

use std::fmt::Write;

use crate::model::code::{CodeBlock, CodeImage};

/// Classes named of each block.
pub(super) const CLASSES: usize = 4;

/// The kernels of an image: one cluster a kernel, one node a basic block, loop heads drawn with a
/// double line, blocks with an unknown successor dashed.
pub fn dot(image: &CodeImage) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = String::from("digraph cfg {\n  node [shape=box fontname=monospace];\n");
    for (number, kernel) in image.kernels.iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster_{number} {{");
        let head = format!("{} ({})", kernel.shown(), image.arch);
        let _ = writeln!(text, "    label=\"{}\";", escape(&head));
        for block in &kernel.blocks {
            let label: String = label(block).iter().map(|line| format!("{line}\\l")).collect();
            let style = match (block.loop_head, block.indirect) {
                (true, _) => " peripheries=2",
                (_, true) => " style=dashed",
                _ => "",
            };
            let _ = writeln!(text, "    b{number}_{:x} [label=\"{label}\"{style}];", block.start);
        }
        for block in &kernel.blocks {
            for next in &block.next {
                let _ = writeln!(text, "    b{number}_{:x} -> b{number}_{next:x};", block.start);
            }
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

/// What stands in a block: its offset and what it does most.
pub(super) fn label(block: &CodeBlock) -> Vec<String> {
    let s = if block.instructions == 1 { "" } else { "s" };
    let mut lines = vec![format!("{:04x}  {} instruction{s}", block.start, block.instructions)];
    let classes = block.classes.iter().take(CLASSES);
    lines.extend(classes.map(|c| format!("  {} {}", c.count, c.class)));
    lines
}
