//! Takes events whose times cannot be out of a trace, before operators and work are summed.

use std::collections::HashMap;

use rgpu_format::torch_trace::{EventKind, TorchEvent, TorchTrace};

use super::end;
use crate::sound_times::{
    LeftOut, RowKind, StreamKey, StreamOrder, StreamRow, TimeRule, TimeSample, is_forbidden,
};

fn kind(event: &TorchEvent) -> RowKind {
    match event.kind {
        EventKind::Kernel => RowKind::Kernel,
        EventKind::Copy => RowKind::Copy,
        EventKind::Fill => RowKind::Fill,
        EventKind::Call => RowKind::Call,
        EventKind::Operator | EventKind::Annotation => RowKind::Range,
    }
}

/// Takes them out, and tells how many there were.
pub(super) fn leave_out(trace: &mut TorchTrace) -> LeftOut {
    let mut sample = TimeSample::default();
    let sound = TimeRule::default();
    for event in &trace.events {
        if sound.allows(kind(event), event.start_ns, Some(end(event))) {
            sample.see(kind(event), event.start_ns, Some(end(event)));
        }
    }
    let rule = sample.window().map_or(sound, |window| TimeRule::within(&window));
    let mut left_out = LeftOut::default();
    trace.events.retain(|event| {
        let allows = rule.allows(kind(event), event.start_ns, Some(end(event)));
        if !allows {
            left_out.add(kind(event));
        }
        allows
    });
    trace.python_calls.retain(|call| {
        let end_ns = call.start_ns.saturating_add_unsigned(call.duration_ns);
        rule.allows(RowKind::Range, call.start_ns, Some(end_ns))
    });
    trace.memory.retain(|change| rule.allows(RowKind::Range, change.at_ns, None));
    left_out.clip(clip(trace));
    left_out
}

/// Ends work that ends after later work of its stream at the next start. Returns how many.
fn clip(trace: &mut TorchTrace) -> u64 {
    let rows = trace.events.iter().zip(0..).filter_map(|(event, row)| {
        if event.kind != EventKind::Kernel || event.graph_node.is_some() {
            return None;
        }
        let key = StreamKey {
            process: 0,
            device: event.device.unwrap_or(0),
            context: 0,
            stream: event.stream?,
        };
        let call = event.correlation.map(|id| (0, id));
        Some(StreamRow { key, start_ns: event.start_ns, end_ns: end(event), row, call })
    });
    let found = StreamOrder::from_rows(rows.collect()).finish();
    if found.is_empty() {
        return 0;
    }
    let calls = trace.events.iter().filter(|event| event.kind == EventKind::Call);
    let names: HashMap<i64, u32> =
        calls.filter_map(|event| Some((event.correlation?, event.name))).collect();
    let mut clipped = 0;
    for found in found {
        let name = |call: Option<(u64, i64)>| {
            trace.names.get(*names.get(&call?.1)? as usize).map(String::as_str)
        };
        if !is_forbidden(&found, found.calls.map(name)) {
            continue;
        }
        let row = usize::try_from(found.row).unwrap_or(usize::MAX);
        if let Some(event) = trace.events.get_mut(row) {
            let ns = found.next_ns.saturating_sub(event.start_ns);
            event.duration_ns = u64::try_from(ns).unwrap_or(0);
            clipped += 1;
        }
    }
    clipped
}
