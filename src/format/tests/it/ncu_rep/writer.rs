//! Writes small reports, so that tests control their exact contents.

/// A protobuf message under construction.
#[derive(Clone, Default)]
pub(crate) struct Pb(pub(crate) Vec<u8>);

impl Pb {
    pub(crate) fn new() -> Self {
        Pb::default()
    }

    fn raw_varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub(crate) fn varint(self, number: u32, value: u64) -> Self {
        self.raw_varint(u64::from(number) << 3).raw_varint(value)
    }

    pub(crate) fn bytes(self, number: u32, bytes: &[u8]) -> Self {
        let mut message =
            self.raw_varint(u64::from(number) << 3 | 2).raw_varint(bytes.len() as u64);
        message.0.extend_from_slice(bytes);
        message
    }

    pub(crate) fn text(self, number: u32, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    pub(crate) fn message(self, number: u32, message: Pb) -> Self {
        self.bytes(number, &message.0)
    }

    pub(crate) fn double(self, number: u32, value: f64) -> Self {
        let mut message = self.raw_varint(u64::from(number) << 3 | 1);
        message.0.extend_from_slice(&value.to_le_bytes());
        message
    }
}

/// A block: the extra fields of its header and its entries, by kind.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) header: Pb,
    pub(crate) sources: Vec<Pb>,
    pub(crate) kernels: Vec<Pb>,
    pub(crate) ranges: Vec<Pb>,
    pub(crate) command_lists: Vec<Pb>,
    pub(crate) graphs: Vec<Pb>,
}

fn prefixed(out: &mut Vec<u8>, message: &Pb) {
    out.extend_from_slice(&(message.0.len() as u32).to_le_bytes());
    out.extend_from_slice(&message.0);
}

/// Builds a complete report.
pub(crate) fn report(blocks: &[Block]) -> Vec<u8> {
    let mut out = b"NVR\0".to_vec();
    prefixed(&mut out, &Pb::new().varint(1, 7));
    for block in blocks {
        let mut payload = Vec::new();
        let mut header = block.header.clone();
        for (number, list) in [
            (1, &block.sources),
            (2, &block.kernels),
            (7, &block.ranges),
            (8, &block.command_lists),
            (9, &block.graphs),
        ] {
            list.iter().for_each(|entry| prefixed(&mut payload, entry));
            if !list.is_empty() {
                header = header.varint(number, list.len() as u64);
            }
        }
        prefixed(&mut out, &header.varint(5, payload.len() as u64));
        out.extend_from_slice(&payload);
    }
    out
}

/// A metric whose name has this number in the string table.
pub(crate) fn metric(name: u64, value: Pb) -> Pb {
    Pb::new().varint(1, name).message(2, value)
}

/// A size with three dimensions.
pub(crate) fn dim(x: u64, y: u64, z: u64) -> Pb {
    Pb::new().varint(1, x).varint(2, y).varint(3, z)
}
