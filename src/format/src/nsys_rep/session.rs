//! Reads the target's GPUs from the session at the start of the event section.
//!
//! They are at 1.2.1.2.1 of the session: {1 id, 2 name, 5 uuid, 7 chip, 10 L2 bytes, 11 memory
//! bytes, 12 memory bytes per second, 13 SM clock in Hz, 14 SMs, 41 and 42 compute capability}.

use crate::nsys_row::Gpu;
use crate::wire::Message;

/// All GPUs. Unreadable ones are skipped, since a trace is useful without them.
pub(super) fn gpus(session: Message<'_>) -> Vec<Gpu> {
    let mut level = vec![session];
    for number in [1, 2, 1, 2, 1] {
        level = level.iter().flat_map(|message| nested(*message, number)).collect();
    }
    level.into_iter().filter_map(gpu).collect()
}

fn nested(message: Message<'_>, number: u32) -> impl Iterator<Item = Message<'_>> {
    let fields = message.fields().map_while(Result::ok);
    fields.filter(move |field| field.number == number).filter_map(|field| field.message())
}

fn gpu(message: Message<'_>) -> Option<Gpu> {
    let mut gpu = Gpu::default();
    let (mut major, mut minor) = (None, Some(0));
    for field in message.fields() {
        let field = field.ok()?;
        let text = || field.text().map(|text| text.into_owned());
        match field.number {
            1 => gpu.id = field.uint32(),
            2 => gpu.name = text(),
            5 => gpu.uuid = text(),
            7 => gpu.chip = text(),
            10 => gpu.l2_bytes = field.varint(),
            11 => gpu.memory_bytes = field.varint(),
            12 => gpu.memory_bytes_per_s = field.varint(),
            13 => gpu.clock_hz = field.varint(),
            14 => gpu.sms = field.uint32(),
            41 => major = field.uint32(),
            42 => minor = field.uint32(),
            _ => {}
        }
    }
    gpu.compute = major.zip(minor);
    // Other parts of the session have the same path; a GPU has a name, a UUID and SMs.
    (gpu.name.is_some() && gpu.uuid.is_some() && gpu.sms.is_some()).then_some(gpu)
}
