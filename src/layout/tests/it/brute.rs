//! Definitions stated slowly: tables of offsets, and a search for layouts that equal a table.

use rgpu_layout::{Layout, Mode};

/// A sequence of numbers that a seed decides (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound) as i64
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

pub(crate) fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// The offset of an index by unranking it, without the crate's own evaluation.
pub(crate) fn value(modes: &[Mode], mut index: i64) -> i64 {
    let mut sum = 0;
    for mode in modes {
        sum += index % mode.extent * mode.stride;
        index /= mode.extent;
    }
    sum
}

pub(crate) fn table(modes: &[Mode]) -> Vec<i64> {
    let size: i64 = modes.iter().map(|mode| mode.extent).product();
    (0..size).map(|index| value(modes, index)).collect()
}

/// Whether any layout has this table: tries every extent of the first mode.
pub(crate) fn is_layout(table: &[i64]) -> bool {
    let size = table.len();
    if size == 1 {
        return table[0] == 0;
    }
    (2..=size).filter(|first| size.is_multiple_of(*first)).any(|first| {
        let stride = table[1];
        let rest: Vec<i64> = table.iter().copied().step_by(first).collect();
        let additive = table
            .iter()
            .enumerate()
            .all(|(i, x)| *x == (i % first) as i64 * stride + rest[i / first]);
        additive && is_layout(&rest)
    })
}

/// `A∘B` by table; `None` if an offset of `B` is no coordinate of `A`.
pub(crate) fn composed(a: &[Mode], b: &[Mode]) -> Option<Vec<i64>> {
    let size: i64 = a.iter().map(|mode| mode.extent).product();
    table(b).into_iter().map(|x| (0..size).contains(&x).then(|| value(a, x))).collect()
}

/// Whether a refinement of `B`, each mode split only within itself, has the table of `A∘B`.
pub(crate) fn composition_exists(b: &[Mode], table: &[i64]) -> bool {
    let mut sum = vec![0; table.len()];
    let mut distance = 1;
    for mode in b {
        let along: Vec<i64> = (0..mode.extent).map(|c| table[(c * distance) as usize]).collect();
        if !is_layout(&along) {
            return false;
        }
        for (index, sum) in sum.iter_mut().enumerate() {
            *sum += along[(index as i64 / distance % mode.extent) as usize];
        }
        distance *= mode.extent;
    }
    sum == table
}
