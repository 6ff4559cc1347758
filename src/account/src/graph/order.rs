//! Puts the points of a graph in an order in which each edge goes forward.

use super::calls::CallNode;
use super::edges::{Edge, NumberedEdge, point_number};
use super::works::WorkNode;
use super::{NONE, Point, PointKind, position};

/// The points in order, the edges grouped by the point where they end, and the position of each
/// point by its number.
///
/// Points are in order of time. Among points of the same time, which clocks of microseconds have
/// many of, edges decide (Kahn's algorithm). Edges that still go back are left out: the time along
/// them is zero, so that the recorded times stay as they are.
pub(super) fn arrange(
    works: &[WorkNode],
    calls: &[CallNode],
    mut made: Vec<NumberedEdge>,
) -> (Vec<Point>, Vec<Edge>, Vec<u32>) {
    let numbered = number_points(works, calls);
    let count = numbered.len();
    let time_of = |number: u32| numbered.get(number as usize).map_or(0, |(_, time_ns)| *time_ns);
    let mut order: Vec<u32> = (0..position(count)).collect();
    order.sort_by_key(|number| time_of(*number));
    let mut point_at = vec![NONE; count];
    set_positions(&order, 0, &mut point_at);
    let at = |point_at: &[u32], number: u32| point_at.get(number as usize).copied().unwrap_or(NONE);
    // Edges within groups of the same time, if one of them goes back.
    let tied: Vec<&NumberedEdge> =
        made.iter().filter(|edge| time_of(edge.from) == time_of(edge.to)).collect();
    if tied.iter().any(|edge| at(&point_at, edge.from) >= at(&point_at, edge.to)) {
        order_ties(&mut order, &tied, &time_of, &mut point_at);
    }
    drop(tied);
    // There are several edges for each point, so they are renumbered and sorted where they are.
    made.retain_mut(|edge| {
        (edge.from, edge.to) = (at(&point_at, edge.from), at(&point_at, edge.to));
        edge.from < edge.to && edge.to != NONE
    });
    made.sort_by_key(|edge| (edge.to, edge.kind));
    let points = order.iter().filter_map(|number| numbered.get(*number as usize));
    let points = points.map(|(what, time_ns)| Point {
        what: *what,
        time_ns: *time_ns,
        first_edge: 0,
        end_edge: 0,
        binding: NONE,
    });
    let points: Vec<Point> = points.collect();
    drop((order, numbered));
    let (points, edges) = group(points, made);
    (points, edges, point_at)
}

/// Each point and its time, by number.
fn number_points(works: &[WorkNode], calls: &[CallNode]) -> Vec<(PointKind, i64)> {
    let mut numbered = Vec::with_capacity(2 * (works.len() + calls.len()));
    for (at, work) in works.iter().enumerate() {
        let at = position(at);
        numbered.push((PointKind::WorkStart(at), work.start_ns));
        numbered.push((PointKind::WorkEnd(at), work.end_ns));
    }
    for (at, call) in calls.iter().enumerate() {
        let at = position(at);
        numbered.push((PointKind::CallStart(at), call.start_ns));
        numbered.push((PointKind::CallEnd(at), call.end_ns));
    }
    debug_assert!(
        numbered.iter().enumerate().all(|(number, (what, _))| {
            point_number(works.len(), *what) == Some(position(number))
        })
    );
    numbered
}

fn set_positions(order: &[u32], first: usize, point_at: &mut [u32]) {
    for (at, number) in order.iter().enumerate() {
        if let Some(slot) = point_at.get_mut(*number as usize) {
            *slot = position(first + at);
        }
    }
}

/// Orders the points of each time by the edges among them. Points on a circle come last.
fn order_ties(
    order: &mut [u32],
    tied: &[&NumberedEdge],
    time_of: &impl Fn(u32) -> i64,
    point_at: &mut [u32],
) {
    let count = order.len();
    let mut incoming = vec![0_u32; count];
    let mut outgoing: Vec<(u32, u32)> = tied.iter().map(|edge| (edge.from, edge.to)).collect();
    outgoing.sort_unstable();
    for (_, to) in &outgoing {
        if let Some(slot) = incoming.get_mut(*to as usize) {
            *slot += 1;
        }
    }
    let mut first = 0;
    let groups: Vec<usize> =
        order.chunk_by(|a, b| time_of(*a) == time_of(*b)).map(<[u32]>::len).collect();
    for length in groups {
        let Some(group) = order.get_mut(first..first + length) else { break };
        if length > 1 {
            order_group(group, &outgoing, &mut incoming);
            set_positions(group, first, point_at);
        }
        first += length;
    }
}

fn order_group(group: &mut [u32], outgoing: &[(u32, u32)], incoming: &mut [u32]) {
    let mut sorted: Vec<u32> = Vec::with_capacity(group.len());
    let mut ready: Vec<u32> = Vec::new();
    for start in group.iter() {
        if incoming.get(*start as usize) != Some(&0) {
            continue;
        }
        // Taken as soon as nothing is before it: no later edge makes it ready again.
        ready.push(*start);
        while let Some(number) = ready.pop() {
            if let Some(slot) = incoming.get_mut(number as usize) {
                *slot = NONE;
            }
            sorted.push(number);
            let begin = outgoing.partition_point(|(from, _)| *from < number);
            let edges = outgoing.get(begin..).unwrap_or_default();
            for (_, to) in edges.iter().take_while(|(from, _)| *from == number) {
                if let Some(slot) = incoming.get_mut(*to as usize)
                    && *slot != NONE
                {
                    *slot = slot.saturating_sub(1);
                    if *slot == 0 {
                        ready.push(*to);
                    }
                }
            }
        }
    }
    let circle = group.iter().filter(|n| incoming.get(**n as usize) != Some(&NONE));
    sorted.extend(circle.copied().collect::<Vec<_>>());
    group.copy_from_slice(&sorted);
}

/// Files the edges, which are sorted by the position where they end, under their points. Finds the
/// edge of each that arrives last, and gives it the rest of the recorded time.
fn group(mut points: Vec<Point>, sorted: Vec<NumberedEdge>) -> (Vec<Point>, Vec<Edge>) {
    let time_of = |points: &[Point], at: u32| points.get(at as usize).map_or(0, |at| at.time_ns);
    let mut next = 0;
    for at in 0..points.len() {
        let first = next;
        let mut last: Option<(i64, usize)> = None;
        while let Some(edge) = sorted.get(next).filter(|edge| edge.to as usize == at) {
            let arrival = time_of(&points, edge.from) + edge.delay_ns;
            // Edges are in order of preference: a later one must arrive later to be the last.
            if last.is_none_or(|(known, _)| arrival > known) {
                last = Some((arrival, next));
            }
            next += 1;
        }
        if let Some(point) = points.get_mut(at) {
            (point.first_edge, point.end_edge) = (position(first), position(next));
            point.binding = last.map_or(NONE, |(_, binding)| position(binding));
        }
    }
    // Both kinds of edges have the same size, so the list stays where it is.
    let mut edges: Vec<Edge> = sorted
        .into_iter()
        .map(|NumberedEdge { from, delay_ns, kind, label, .. }| Edge {
            from,
            delay_ns,
            residual_ns: 0,
            kind,
            label,
        })
        .collect();
    for point in &points {
        if let Some(edge) = edges.get_mut(point.binding as usize) {
            let arrival = time_of(&points, edge.from) + edge.delay_ns;
            edge.residual_ns = (point.time_ns - arrival).max(0);
        }
    }
    (points, edges)
}
