//! Attention: prefill and decode, grouped heads, latent caches (MLA), sliding windows, and with or
//! without the score matrix in HBM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Context, KernelTime, KernelWork, OpKind, math_of};
use crate::Dtype;
use crate::hw::Gpu;

/// How attention treats its score matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// Scores stay on the chip.
    #[default]
    Flash,
    /// Scores are written, read by the softmax, written, and read again.
    Naive,
}

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Number of sequences.
    pub batch: f64,
    /// Queries per sequence: 1 in decode.
    pub queries: f64,
    /// Keys per sequence, including those of this step.
    pub keys: f64,
    /// Number of query heads.
    pub heads: f64,
    /// Number of heads of the cache: 1 for a latent cache.
    pub kv_heads: f64,
    /// The length of a query and key that is multiplied.
    pub key_dim: f64,
    /// The length of a value that is multiplied.
    pub value_dim: f64,
    /// Elements of the cache for one position and KV head: K and V, or the latent.
    pub cached: f64,
    /// Whether a query sees only keys before it.
    pub causal: bool,
    /// A query sees at most this many keys; `None`: all.
    pub window: Option<f64>,
    /// The format of queries and results.
    pub dtype: Dtype,
    /// The format of the cache.
    pub kv_dtype: Dtype,
    /// How the score matrix is treated.
    pub kind: AttentionKind,
}

/// Queries of one head that a work group of prefill computes (FlashAttention 2 and 3).
const PREFILL_ROWS: f64 = 128.0;
/// Keys that a work group of prefill multiplies at once.
const PREFILL_KEYS: f64 = 128.0;
/// The time by which the last SM ends late, as a share of how much longer the longest work group is
/// than the shortest: that of work groups which start in order, shortest first, within 8 %.
const TAIL_SHARE: f64 = 0.625;
/// Exponentials of one SM in a clock.
pub(crate) const EXP_PER_CLOCK: f64 = 16.0;
/// Where [`EXP_PER_CLOCK`] comes from.
pub(crate) const EXP_SOURCE: &str = "NVIDIA, CUDA C++ Programming Guide, throughput of native \
    arithmetic instructions: 16 results of ex2 a clock and SM (8.0, 9.0, 10.0)";
/// Rows of the smallest product (PTX ISA: mma.sync m16n8k16).
const MMA_ROWS: f64 = 16.0;
/// Products with K, softmax, products with V.
const NAIVE_LAUNCHES: f64 = 3.0;
/// Parts of the keys of decode, and their sum.
const DECODE_LAUNCHES: f64 = 2.0;

/// How prefill is cut into work groups.
#[derive(Clone, Copy, Debug)]
struct PrefillTiles {
    /// Work groups of one sequence and head.
    blocks: f64,
    /// Keys of one of them, in the mean.
    keys: f64,
    /// The time until the last has ended over the time of SMs that are always busy.
    wave_factor: f64,
}

impl Attention {
    /// Attention with the usual cache of keys and values.
    #[must_use]
    pub fn new(heads: f64, kv_heads: f64, head_dim: f64, dtype: Dtype) -> Self {
        Self {
            batch: 1.0,
            queries: 1.0,
            keys: 1.0,
            heads,
            kv_heads,
            key_dim: head_dim,
            value_dim: head_dim,
            cached: 2.0 * head_dim,
            causal: true,
            window: None,
            dtype,
            kv_dtype: dtype,
            kind: AttentionKind::Flash,
        }
    }

    /// Pairs of a query and a key that it sees, for one sequence and head.
    #[must_use]
    pub fn pairs(&self) -> f64 {
        let window = self.window.unwrap_or(f64::INFINITY);
        if !self.causal {
            return self.queries * self.keys.min(window);
        }
        // Query i of q sees min(keys - q + i, window) keys, i from 1.
        let (first, last) = ((self.keys - self.queries + 1.0).max(0.0), self.keys);
        if window >= last {
            return self.queries * (first + last) / 2.0;
        }
        if window <= first {
            return self.queries * window;
        }
        let growing = window - first;
        growing * (first + window - 1.0) / 2.0 + (self.queries - growing) * window
    }

    /// Products of queries with keys, and of scores with values.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.batch * self.heads * self.pairs() * (self.key_dim + self.value_dim)
    }

    /// Bytes of KV cache that are read.
    #[must_use]
    pub fn cache_bytes(&self) -> f64 {
        let seen =
            self.window.map_or(self.keys, |window| self.keys.min(window + self.queries - 1.0));
        self.batch * seen * self.kv_dtype.bytes(self.kv_heads, self.cached)
    }

    /// Converts it to work for the roofline.
    #[must_use]
    pub fn work(&self, gpu: &Gpu) -> KernelWork {
        let rows = self.batch * self.queries;
        let ends = self.dtype.bytes(rows * self.heads, self.key_dim + self.value_dim);
        let bytes = self.cache_bytes() + ends;
        let math = math_of(gpu, self.dtype, self.kv_dtype);
        let is_decode = self.queries <= 1.0;
        let op = if is_decode { OpKind::AttentionDecode } else { OpKind::AttentionPrefill };
        let mut work = KernelWork::ideal(op, math, self.flops(), bytes);
        (work.rows, work.columns) = (self.batch * self.heads, self.keys);
        if is_decode {
            let shared_rows = (self.heads / self.kv_heads).max(1.0);
            work.padded_flops *= (shared_rows / MMA_ROWS).ceil() * MMA_ROWS / shared_rows;
            work.launches = DECODE_LAUNCHES;
        } else {
            let tiles = self.prefill_tiles(gpu);
            let padded = tiles.keys * tiles.blocks * PREFILL_ROWS;
            work.padded_flops *= padded / self.pairs();
            work.exponentials = self.batch * self.heads * padded;
            work.wave_factor = tiles.wave_factor;
        }
        if self.kind == AttentionKind::Naive {
            let scores = self.batch * self.heads * self.queries * self.keys;
            work.added_bytes = 4.0 * self.dtype.bytes(1.0, scores);
            work.launches = NAIVE_LAUNCHES;
        }
        work
    }

    /// The blocks of queries of one head, and how evenly they fill the SMs: with a causal mask the
    /// last block of a prompt has the most keys.
    fn prefill_tiles(&self, gpu: &Gpu) -> PrefillTiles {
        let blocks = (self.queries / PREFILL_ROWS).ceil();
        let whole = |keys: f64| (keys / PREFILL_KEYS).ceil() * PREFILL_KEYS;
        // A window adds the keys of the block's other rows.
        let window = self.window.map_or(f64::INFINITY, |window| window + PREFILL_ROWS);
        let (first, last) = if self.causal {
            let before = (self.keys - self.queries).max(0.0);
            let of_block = |block: f64| whole((before + block * PREFILL_ROWS).min(window));
            (of_block(1.0), of_block(blocks))
        } else {
            (whole(self.keys.min(window)), whole(self.keys.min(window)))
        };
        // Keys grow from the first block to the last, or to the window.
        let growing = ((last - first) / PREFILL_ROWS).min(blocks - 1.0);
        let shorter = growing * (first + last - PREFILL_ROWS) / 2.0;
        let keys = (shorter + (blocks - growing) * last) / blocks;
        let waves = self.batch * self.heads * blocks / gpu.processors;
        let ends = if waves <= 1.0 {
            last
        } else {
            let in_waves = waves.ceil() * first + waves * (keys - first);
            in_waves + TAIL_SHARE * (last - first)
        };
        PrefillTiles { blocks, keys, wave_factor: ends / (waves * keys) }
    }

    /// Its bound and predicted time on one GPU.
    #[must_use]
    pub fn time(&self, context: &Context<'_>) -> KernelTime {
        self.work(context.gpu).time(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    #[test]
    fn pairs_are_those_that_a_loop_counts() {
        let mut attention = Attention::new(8., 8., 64., Dtype::Bf16);
        for (queries, keys, window) in [
            (5, 5, None),
            (5, 9, None),
            (1, 9, None),
            (7, 9, Some(4)),
            (7, 7, Some(3)),
            (2, 9, Some(20)),
        ] {
            attention.queries = f64::from(queries);
            attention.keys = f64::from(keys);
            attention.window = window.map(f64::from);
            let seen = |i: i32| (keys - queries + i).min(window.unwrap_or(keys));
            let counted: i32 = (1..=queries).map(seen).sum();
            assert_eq!(attention.pairs(), f64::from(counted), "{queries} {keys} {window:?}");
        }
    }

    #[test]
    fn decode_reads_the_cache_once_for_all_heads_of_a_group() {
        // Llama 3.1 8B: 8 KV heads of 128, ctx 4096, bf16: 16.8 MB a sequence and layer.
        let mut attention = Attention::new(32., 8., 128., Dtype::Bf16);
        attention.keys = 4096.0;
        assert_eq!(attention.cache_bytes(), 2.0 * 4096.0 * 8.0 * 128.0 * 2.0);
        let gpu = find("h200").unwrap().gpu().unwrap();
        let time = attention.time(&Context::new(&gpu));
        assert_eq!(time.bound_ns(), time.bound_memory_ns);
    }

    #[test]
    fn long_prefill_is_limited_by_products_and_scores_in_hbm_cost_more() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let mut attention = Attention::new(32., 8., 128., Dtype::Bf16);
        (attention.queries, attention.keys) = (8192., 8192.);
        let flash = attention.time(&Context::new(&gpu));
        assert_eq!(flash.bound_ns(), flash.bound_compute_ns);
        attention.kind = AttentionKind::Naive;
        let naive = attention.time(&Context::new(&gpu));
        assert!(naive.time_ns() > 2.0 * flash.time_ns());
        assert_eq!(naive.bound_ns(), flash.bound_ns());
    }

    /// Work groups start in order on the first SM that is free.
    #[test]
    fn blocks_of_a_prompt_end_when_a_schedule_in_order_does() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        for (sequences, length) in
            [(1, 512), (1, 1024), (1, 2048), (1, 4096), (4, 1024), (8, 2048), (2, 8192)]
        {
            for heads in [16, 32, 64] {
                let mut attention = Attention::new(f64::from(heads), 8., 128., Dtype::Bf16);
                attention.batch = f64::from(sequences);
                (attention.queries, attention.keys) = (f64::from(length), f64::from(length));
                let blocks = length / 128;
                let mut ends = vec![0_u32; gpu.processors as usize];
                for _ in 0..sequences * heads {
                    for block in 1..=blocks {
                        let first_free = ends.iter_mut().min().unwrap();
                        *first_free += block as u32 * 128;
                    }
                }
                let tiles = attention.prefill_tiles(&gpu);
                let waves = f64::from(sequences * heads * blocks) / gpu.processors;
                let computed = tiles.wave_factor * tiles.keys * waves;
                let simulated = f64::from(*ends.iter().max().unwrap());
                let ratio = computed / simulated;
                assert!((0.92..=1.08).contains(&ratio), "{sequences} {length} {heads}: {ratio}");
            }
        }
    }

    #[test]
    fn a_window_bounds_what_decode_reads() {
        let mut attention = Attention::new(64., 8., 64., Dtype::Bf16);
        attention.keys = 8192.0;
        let all = attention.cache_bytes();
        attention.window = Some(128.0);
        assert_eq!(attention.cache_bytes() * 64.0, all);
    }
}
