//! What JAX's traces have in place of categories: names of processes and threads, and details as
//! text.

use std::collections::HashMap;

use super::{EventKind, RawArgs, RawEvent};

/// Most processes and threads that are remembered: a hostile file may name any number.
const MAX_NAMED: usize = 1 << 16;

/// The processes that are GPUs, and the threads that are streams.
#[derive(Default)]
pub(super) struct Places {
    devices: HashMap<i64, u32>,
    streams: HashMap<(i64, i64), u64>,
}

/// What the places and the details of an event tell.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) device: Option<u32>,
    pub(super) stream: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) grid: Option<[u32; 3]>,
    pub(super) block: Option<[u32; 3]>,
    pub(super) registers: Option<u32>,
    pub(super) shared_bytes: Option<u64>,
}

impl Places {
    /// Takes the name of a process or thread from an event of metadata.
    pub(super) fn see(&mut self, raw: &RawEvent<'_>) {
        let (Some(pid), Some(name)) = (raw.pid.int(), raw.args().name.text()) else { return };
        if self.devices.len() + self.streams.len() >= MAX_NAMED {
            return;
        }
        match raw.name.unquoted() {
            "process_name" => {
                let number = name.strip_prefix("/device:GPU:").map(leading_number);
                if let Some(device) = number.flatten().and_then(|n| u32::try_from(n).ok()) {
                    self.devices.insert(pid, device);
                }
            }
            "thread_name" => {
                let number = name.strip_prefix("Stream #").and_then(leading_number);
                if let Some((tid, stream)) = raw.tid.int().zip(number) {
                    self.streams.insert((pid, tid), stream);
                }
            }
            _ => {}
        }
    }

    /// The kind of an event without a category, if it is work of a GPU.
    pub(super) fn event(&self, raw: &RawEvent<'_>) -> Option<EventKind> {
        self.devices.get(&raw.pid.int()?)?;
        let args = raw.args();
        if args.kernel_details.text().is_some() {
            Some(EventKind::Kernel)
        } else if args.memcpy_details.text().is_some() {
            Some(EventKind::Copy)
        } else if args.memset_details.text().is_some() {
            Some(EventKind::Fill)
        } else {
            None
        }
    }

    /// The facts of an event. None of torch's events has any.
    pub(super) fn facts(&self, raw: &RawEvent<'_>, args: &RawArgs<'_>) -> Facts {
        let mut facts = Facts::default();
        let details = [&args.kernel_details, &args.memcpy_details, &args.memset_details];
        let Some(details) = details.into_iter().find_map(|details| details.text()) else {
            return facts;
        };
        let pid = raw.pid.int().unwrap_or(-1);
        facts.device = self.devices.get(&pid).copied();
        let thread = (pid, raw.tid.int().unwrap_or(-1));
        facts.stream = self.streams.get(&thread).copied();
        let (mut fixed, mut dynamic) = (None, None);
        for (key, value) in details.split_whitespace().filter_map(|word| word.split_once(':')) {
            match key {
                "regs" => facts.registers = value.parse().ok(),
                "static_shared" => fixed = value.parse::<u64>().ok(),
                "dynamic_shared" => dynamic = value.parse::<u64>().ok(),
                "grid" => facts.grid = triple(value),
                "block" => facts.block = triple(value),
                "size" | "num_bytes" => facts.bytes = value.parse().ok(),
                _ => {}
            }
        }
        facts.shared_bytes = fixed.zip(dynamic).map(|(a, b)| a.saturating_add(b));
        facts
    }
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn triple(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split(',').map(|number| number.parse().ok());
    let triple = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(triple)
}

#[cfg(test)]
mod tests {
    use super::super::{EventKind, TorchTrace};

    #[test]
    fn kernels_and_copies_of_a_gpu_are_read_and_their_summaries_are_not() {
        let text = r#"{"displayTimeUnit":"ns","metadata":{},"traceEvents":[
            {"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:3"}},
            {"ph":"M","pid":1,"tid":13,"name":"thread_name","args":{"name":"Stream #13(Compute)"}},
            {"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}},
            {"ph":"X","pid":1,"tid":13,"ts":5.5,"dur":2,"name":"loop_add_fusion","args":{
             "correlation_id":"77","kernel_details":"regs:16 static_shared:8 dynamic_shared:4 grid:2,3,4 block:128,1,1 occ_pct:100"}},
            {"ph":"X","pid":1,"tid":13,"ts":9,"dur":1,"name":"MemcpyH2D","args":{
             "memcpy_details":"kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}},
            {"ph":"X","pid":1,"tid":20,"ts":5,"dur":9,"name":"jit_f","args":{"hlo_module":"jit_f"}},
            {"ph":"X","pid":701,"tid":2,"ts":1,"dur":3,"name":"PjitFunction(f)"},{}]}"#;
        let trace = TorchTrace::read(text.as_bytes()).unwrap();
        assert_eq!((trace.events.len(), trace.other), (2, 3));
        let kernel = &trace.events[0];
        assert_eq!(
            (kernel.kind, kernel.start_ns, kernel.duration_ns),
            (EventKind::Kernel, 5500, 2000)
        );
        assert_eq!(
            (kernel.device, kernel.stream, kernel.correlation),
            (Some(3), Some(13), Some(77))
        );
        assert_eq!((kernel.grid, kernel.block), (Some([2, 3, 4]), Some([128, 1, 1])));
        assert_eq!((kernel.registers, kernel.shared_bytes), (Some(16), Some(12)));
        assert_eq!((trace.events[1].kind, trace.events[1].bytes), (EventKind::Copy, Some(4096)));
    }
}
