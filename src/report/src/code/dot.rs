//! Control flow as a Graphviz graph.

use std::fmt::Write;

use rgpu_model::code::{CodeBlock, CodeImage};

/// The maximum number of instruction classes named per block.
pub(super) const MAX_LABEL_CLASSES: usize = 4;

/// The control flow of an image's kernels: one cluster per kernel, one node per basic block. Loop
/// heads have a double border, blocks with an unknown successor a dashed one.
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

/// The label of a block: its offset, instruction count and most frequent classes.
pub(super) fn label(block: &CodeBlock) -> Vec<String> {
    let s = if block.instructions == 1 { "" } else { "s" };
    let mut lines = vec![format!("{:04x}  {} instruction{s}", block.start, block.instructions)];
    let classes = block.classes.iter().take(MAX_LABEL_CLASSES);
    lines.extend(classes.map(|c| format!("  {} {}", c.count, c.class)));
    lines
}
