//! Control flow as SVG for any browser, light and dark, without scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::dot::label;
use super::graph_layout::{Edge, GraphLayout, Size, lay_out_graph};
use rgpu_model::code::{CodeImage, CodeKernel};

const LINE_HEIGHT_PX: f64 = 16.0;
const CHARACTER_WIDTH_PX: f64 = 7.3;
const BOX_PADDING_PX: f64 = 9.0;
const MARGIN_PX: f64 = 24.0;
const HEAD_HEIGHT_PX: f64 = 34.0;

const STYLE: &str = "\
svg{background:#fff;font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
text{fill:#161b24;white-space:pre}.h{font-weight:700}.n{fill:#5a6474}\
rect{fill:#f5f6f8;stroke:#8a94a4}.l{stroke:#2b5bd7;stroke-width:2.5}.i{stroke-dasharray:5 3}\
path{fill:none;stroke:#5a6474;stroke-width:1.2}.b{stroke:#2b5bd7}.t{fill:#5a6474}.u{fill:#2b5bd7}\
@media(prefers-color-scheme:dark){svg{background:#0e1117}text{fill:#e7eaf0}.n{fill:#9aa5b5}\
rect{fill:#161b23;stroke:#5a6474}.l,.b{stroke:#8fb0ff}path{stroke:#9aa5b5}.b{stroke:#8fb0ff}.t{fill:#9aa5b5}.u{fill:#8fb0ff}}";

/// The kernels of these images, one below the other. Loop heads have a thick border, back edges run
/// on the right in the same colour, blocks with an unknown branch target are dashed.
pub fn svg(images: &[CodeImage]) -> String {
    let mut body = String::new();
    let (mut width, mut y) = (0.0_f64, MARGIN_PX);
    let kernels = images.iter().flat_map(|i| i.kernels.iter().map(move |k| (i, k)));
    for (image, kernel) in kernels {
        let head = format!("{} ({})", kernel.shown(), image.arch);
        let _ = writeln!(
            body,
            "<text class=\"h\" x=\"{MARGIN_PX}\" y=\"{:.0}\">{}</text>",
            y + 12.0,
            escape(&head)
        );
        y += HEAD_HEIGHT_PX;
        let drawing = draw_kernel(&mut body, kernel, y);
        let head = (head.chars().count() as f64) * CHARACTER_WIDTH_PX;
        width = width.max(drawing.width).max(head);
        y += drawing.height + HEAD_HEIGHT_PX;
    }
    let (width, height) = (width + MARGIN_PX * 2.0, y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path class=\"t\" d=\"M0 0L8 4L0 8Z\"/></marker>\
         <marker id=\"b\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path class=\"u\" d=\"M0 0L8 4L0 8Z\"/></marker></defs>\n\
         {body}</svg>\n"
    )
}

fn draw_kernel(body: &mut String, kernel: &CodeKernel, top: f64) -> GraphLayout {
    let labels: Vec<Vec<String>> = kernel.blocks.iter().map(label).collect();
    let sizes: Vec<Size> = labels
        .iter()
        .map(|lines| {
            let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
            let width = longest as f64 * CHARACTER_WIDTH_PX + BOX_PADDING_PX * 2.0;
            Size { width, height: lines.len() as f64 * LINE_HEIGHT_PX + BOX_PADDING_PX }
        })
        .collect();
    let numbers: BTreeMap<u64, usize> =
        kernel.blocks.iter().enumerate().map(|(n, block)| (block.start, n)).collect();
    let edges: Vec<(usize, usize)> = kernel
        .blocks
        .iter()
        .enumerate()
        .flat_map(|(n, block)| block.next.iter().map(move |to| (n, *to)))
        .filter_map(|(n, to)| Some((n, *numbers.get(&to)?)))
        .collect();
    let drawing = lay_out_graph(&sizes, &edges);
    let at = |(x, y): (f64, f64)| format!("{:.1} {:.1}", x + MARGIN_PX, y + top);
    for (edge, ends) in drawing.edges.iter().zip(&edges) {
        let (class, marker) = if ends.1 <= ends.0 { (" class=\"b\"", "b") } else { ("", "a") };
        let path = match edge {
            Edge::Down(points) => {
                let mut path = format!("M{}", points.first().map_or(String::new(), |p| at(*p)));
                for (from, to) in points.iter().zip(points.iter().skip(1)) {
                    let half = f64::midpoint(from.1, to.1);
                    let _ =
                        write!(path, "C{} {} {}", at((from.0, half)), at((to.0, half)), at(*to));
                }
                path
            }
            Edge::Lane { from, lane, to } => {
                let out = format!("L{} L{}", at((*lane, from.1)), at((*lane, to.1)));
                format!("M{} {out} L{}", at(*from), at((to.0 + 1.0, to.1)))
            }
        };
        let _ = writeln!(body, "<path{class} d=\"{path}\" marker-end=\"url(#{marker})\"/>");
    }
    for (((block, lines), size), (x, y)) in
        kernel.blocks.iter().zip(&labels).zip(&sizes).zip(&drawing.corners)
    {
        let class = match (block.loop_head, block.indirect) {
            (true, true) => " class=\"l i\"",
            (true, false) => " class=\"l\"",
            (false, true) => " class=\"i\"",
            (false, false) => "",
        };
        let (x, y) = (x + MARGIN_PX, y + top);
        let Size { width, height } = size;
        let _ = writeln!(
            body,
            "<rect{class} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>"
        );
        for (n, line) in lines.iter().enumerate() {
            let class = if n == 0 { "" } else { " class=\"n\"" };
            let down = y + BOX_PADDING_PX / 2.0 + LINE_HEIGHT_PX * (n as f64 + 0.75);
            let right = x + BOX_PADDING_PX;
            let _ = writeln!(
                body,
                "<text{class} x=\"{right:.1}\" y=\"{down:.1}\">{}</text>",
                escape(line)
            );
        }
    }
    drawing
}

/// Escapes text for XML and drops control characters, which XML forbids.
fn escape(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
