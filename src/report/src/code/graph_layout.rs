//! A layered (Sugiyama) layout of a control flow graph: the sizes of boxes and the edges come in,
//! the positions of boxes and the paths of edges go out. A box is a basic block of a kernel.
//!
//! Boxes are in the order of their addresses, so an edge to a later box is a forward edge. A box's
//! row is the length of the longest path to it along forward edges. The order within rows reduces
//! crossings (barycentres, a few sweeps), then each box moves towards the boxes it has edges with.
//! An edge over several rows gets a position in each row between. Back edges and very long edges
//! run in lanes on the right. The cost is linear in boxes and edges, so a kernel with thousands of
//! blocks is laid out quickly.

/// The size of a box in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The layout of a graph, in pixels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GraphLayout {
    /// The top left corner of each box.
    pub(super) corners: Vec<(f64, f64)>,
    /// The edges, in the order given.
    pub(super) edges: Vec<Edge>,
    /// The size of the whole drawing.
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The path of an edge.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edge {
    /// Down through these points; it may bend between two of them.
    Down(Vec<(f64, f64)>),
    /// From the first point to the lane at this x, along it, and back to the last point.
    Lane { from: (f64, f64), lane: f64, to: (f64, f64) },
}

const ROW_GAP_PX: f64 = 34.0;
const BOX_GAP_PX: f64 = 26.0;
const LANE_WIDTH_PX: f64 = 11.0;
/// Edges that span more rows than this run in a lane.
const MAX_EDGE_ROWS: usize = 24;
const ORDERING_SWEEPS: usize = 6;

/// An element of a row: a box, or an edge that passes through.
#[derive(Clone, Copy)]
struct Node {
    width: f64,
    x: f64,
}

/// Lays out boxes of these sizes with these edges. An edge to its own or an earlier box is a back
/// edge.
pub(super) fn lay_out_graph(sizes: &[Size], edges: &[(usize, usize)]) -> GraphLayout {
    let rows_of = rows(sizes.len(), edges);
    let mut nodes: Vec<Node> = sizes.iter().map(|s| Node { width: s.width, x: 0.0 }).collect();
    let count = rows_of.iter().max().map_or(0, |row| row + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    rows_of.iter().enumerate().for_each(|(node, row)| rows[*row].push(node));
    // The nodes that each edge passes through; `None` for an edge that runs in a lane.
    let mut paths: Vec<Option<Vec<usize>>> = Vec::with_capacity(edges.len());
    for &(from, to) in edges {
        let forward = rows_of[to] > rows_of[from] && rows_of[to] - rows_of[from] <= MAX_EDGE_ROWS;
        paths.push(forward.then(|| {
            let mut path = vec![from];
            for row in &mut rows[rows_of[from] + 1..rows_of[to]] {
                path.push(nodes.len());
                row.push(nodes.len());
                nodes.push(Node { width: 2.0, x: 0.0 });
            }
            path.push(to);
            path
        }));
    }
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for path in paths.iter().flatten() {
        for (a, b) in path.iter().zip(path.iter().skip(1)) {
            below[*a].push(*b);
            above[*b].push(*a);
        }
    }
    order(&mut rows, &mut nodes, &above, &below);
    place_nodes(&rows, &mut nodes, &above, &below);
    build_layout(sizes, edges, &rows, &rows_of, &nodes, &paths)
}

/// The row of each box: below all boxes with forward edges to it.
fn rows(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut rows = vec![0; count];
    let mut sorted: Vec<(usize, usize)> = edges.iter().copied().filter(|(a, b)| b > a).collect();
    sorted.sort_unstable();
    for (from, to) in sorted {
        rows[to] = rows[to].max(rows[from] + 1);
    }
    rows
}

/// Sorts each row by the mean position of its nodes' neighbours.
fn order(rows: &mut [Vec<usize>], nodes: &mut [Node], above: &[Vec<usize>], below: &[Vec<usize>]) {
    let number = |row: &[usize], nodes: &mut [Node]| {
        row.iter().enumerate().for_each(|(at, node)| nodes[*node].x = at as f64);
    };
    rows.iter().for_each(|row| number(row, nodes));
    for sweep in 0..ORDERING_SWEEPS {
        let down = sweep % 2 == 0;
        let count = rows.len();
        for step in 0..count {
            let row = if down { step } else { count - 1 - step };
            let neighbours = if down { above } else { below };
            let mut keyed: Vec<(f64, usize)> = rows[row]
                .iter()
                .map(|node| (mean(&neighbours[*node], nodes).unwrap_or(nodes[*node].x), *node))
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows[row] = keyed.into_iter().map(|(_, node)| node).collect();
            number(&rows[row], nodes);
        }
    }
}

fn mean(neighbours: &[usize], nodes: &[Node]) -> Option<f64> {
    let sum: f64 = neighbours.iter().map(|n| nodes[*n].x).sum();
    (!neighbours.is_empty()).then(|| sum / neighbours.len() as f64)
}

/// Sets the x of each node's centre: near its neighbours, in its row's order, without overlaps.
fn place_nodes(
    rows: &[Vec<usize>],
    nodes: &mut [Node],
    above: &[Vec<usize>],
    below: &[Vec<usize>],
) {
    let apart = |a: &Node, b: &Node| (a.width + b.width) / 2.0 + BOX_GAP_PX;
    for row in rows {
        let mut x = 0.0;
        for (at, node) in row.iter().enumerate() {
            if at > 0 {
                x += apart(&nodes[row[at - 1]], &nodes[*node]);
            }
            nodes[*node].x = x;
        }
    }
    for sweep in 0..ORDERING_SWEEPS * 2 {
        let down = sweep % 2 == 0;
        for step in 0..rows.len() {
            let row = &rows[if down { step } else { rows.len() - 1 - step }];
            let neighbours = if down { above } else { below };
            let preferred: Vec<f64> =
                row.iter().map(|n| mean(&neighbours[*n], nodes).unwrap_or(nodes[*n].x)).collect();
            // Resolve overlaps from the left and from the right, then take the mean of both.
            let mut left = preferred.clone();
            let mut right = preferred;
            for at in 1..row.len() {
                left[at] = left[at].max(left[at - 1] + apart(&nodes[row[at - 1]], &nodes[row[at]]));
            }
            for at in (1..row.len()).rev() {
                let most = right[at] - apart(&nodes[row[at - 1]], &nodes[row[at]]);
                right[at - 1] = right[at - 1].min(most);
            }
            for (at, node) in row.iter().enumerate() {
                nodes[*node].x = f64::midpoint(left[at], right[at]);
            }
        }
    }
}

fn build_layout(
    sizes: &[Size],
    edges: &[(usize, usize)],
    rows: &[Vec<usize>],
    rows_of: &[usize],
    nodes: &[Node],
    paths: &[Option<Vec<usize>>],
) -> GraphLayout {
    let left = nodes.iter().map(|n| n.x - n.width / 2.0).fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let middle = |node: usize| nodes[node].x - left;
    let (mut tops, mut heights, mut y) = (Vec::new(), Vec::new(), 0.0);
    for row in rows {
        let height = row.iter().filter_map(|n| sizes.get(*n)).map(|s| s.height).fold(0.0, f64::max);
        tops.push(y);
        heights.push(height);
        y += height + ROW_GAP_PX;
    }
    let top = |node: usize| tops[rows_of[node]];
    let bottom = |node: usize| top(node) + sizes[node].height;
    let mut width = nodes.iter().map(|n| n.x - left + n.width / 2.0).fold(0.0, f64::max);
    let lanes_from = width;
    let mut drawn = Vec::with_capacity(edges.len());
    for (&(from, to), path) in edges.iter().zip(paths) {
        drawn.push(match path {
            Some(path) => {
                let mut points = vec![(middle(from), bottom(from))];
                let between = path.get(1..path.len() - 1).unwrap_or_default();
                for (step, node) in between.iter().enumerate() {
                    let row = rows_of[from] + 1 + step;
                    points.push((middle(*node), tops[row]));
                    points.push((middle(*node), tops[row] + heights[row]));
                }
                points.push((middle(to), top(to)));
                Edge::Down(points)
            }
            None => {
                width += LANE_WIDTH_PX;
                let side = |node: usize| middle(node) + sizes[node].width / 2.0;
                let half = |node: usize| sizes[node].height / 2.0;
                let out = (side(from), top(from) + half(from) + 4.0);
                Edge::Lane { from: out, lane: width, to: (side(to), top(to) + half(to) - 4.0) }
            }
        });
    }
    let corners = sizes.iter().enumerate().map(|(n, s)| (middle(n) - s.width / 2.0, top(n)));
    let any_lane = if width > lanes_from { LANE_WIDTH_PX } else { 0.0 };
    GraphLayout {
        corners: corners.collect(),
        edges: drawn,
        width: width + any_lane,
        height: (y - ROW_GAP_PX).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(count: usize) -> Vec<Size> {
        vec![Size { width: 100.0, height: 40.0 }; count]
    }

    #[test]
    fn no_two_boxes_overlap_and_edges_go_down() {
        // A diamond with a loop around it and a long edge.
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (3, 4), (0, 4)];
        let layout = lay_out_graph(&boxes(5), &edges);
        for (a, one) in layout.corners.iter().enumerate() {
            for other in &layout.corners[a + 1..] {
                let apart = (one.0 - other.0).abs() >= 100.0 || (one.1 - other.1).abs() >= 40.0;
                assert!(apart, "{one:?} and {other:?}");
            }
        }
        for (edge, drawn) in edges.iter().zip(&layout.edges) {
            match drawn {
                Edge::Down(points) => {
                    assert!(points.windows(2).all(|p| p[0].1 <= p[1].1), "{edge:?}");
                }
                Edge::Lane { lane, .. } => assert!(edge.0 >= edge.1 && *lane < layout.width),
            }
        }
    }

    #[test]
    fn no_boxes_and_one_box_have_a_layout() {
        assert_eq!(lay_out_graph(&[], &[]).height, 0.0);
        let one = lay_out_graph(&boxes(1), &[(0, 0)]);
        assert_eq!(one.corners, [(0.0, 0.0)]);
        assert!(matches!(one.edges[0], Edge::Lane { .. }));
    }

    #[test]
    fn thousands_of_boxes_are_drawn_in_a_moment() {
        let count = 3000;
        let edges: Vec<(usize, usize)> =
            (0..count - 1).flat_map(|n| [(n, n + 1), (n, (n * 7 + 3) % count)]).collect();
        let layout = lay_out_graph(&boxes(count), &edges);
        assert_eq!(layout.corners.len(), count);
        assert!(layout.corners.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
    }
}
