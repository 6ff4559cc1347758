//! Makes damaged copies of a fixture: cut at every byte, or with flipped bits.

/// Calls `read` with `data` cut at every length. If that would read more than 16 MiB, the cuts are
/// spread evenly over the file.
pub(crate) fn cut_everywhere(data: &[u8], read: impl Fn(&[u8])) {
    let all = data.len() * data.len() / 2;
    let step = all / (16 << 20) + 1;
    for len in (0..data.len()).step_by(step) {
        read(&data[..len]);
    }
}

/// Calls `read` with copies of `data`, each with one byte changed, at up to `places` offsets that
/// are spread evenly and shifted by a fixed pseudo-random step.
pub(crate) fn flip_bits(data: &[u8], places: usize, read: impl Fn(&[u8])) {
    let mut copy = data.to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 0..places.min(data.len() * 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at =
            (n * data.len() / places.min(data.len() * 8) + (state >> 32) as usize % 7) % data.len();
        let mask = match state & 3 {
            0 => 0xff,
            _ => 1 << (state >> 8 & 7),
        };
        copy[at] ^= mask;
        read(&copy);
        copy[at] ^= mask;
    }
}
