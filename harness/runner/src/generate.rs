//! Makes the contents of inputs: from a seed, a constant or a file.
//!
//! The generator is counter-based: element `i` depends only on the key and `i`, so several threads
//! can fill a tensor and every machine gets the same bytes.
//!
//! - `mix(z)`: `z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb;
//!   z ^= z >> 31` (the finaliser of SplitMix64, Steele, Lea, Flood 2014).
//! - `draw(key, j) = mix(key + (j + 1) * 0x9e3779b97f4a7c15)`, the `j`-th output of SplitMix64
//!   seeded with `key`.
//! - If an argument has a seed, its key is `mix(seed)`; otherwise
//!   `mix(mix(mix(input seed) + group) + position among the arguments)`. The sizes are not part of
//!   it: a larger size starts with the elements of a smaller one.
//! - uniform: `lo + (hi - lo) * u`, `u = (draw(i) >> 11) * 2^-53`
//! - normal: Box–Muller on `draw(2i)` and `draw(2i + 1)`, cosine branch, with the first in (0, 1].
//!   `ln` and `cos` come from the host's libm, so the last bit may differ between machines; on one
//!   machine the kernel and every reference get the same copy.
//! - bits: the upper bits of `draw(i)`, as many as the dtype has, ANDed with the mask; NaN and
//!   infinity become 0
//! - ints: `lo + (draw(i) * (hi - lo + 1)) >> 64`, in 128 bits

use crate::fault::{Fault, Result, bad_case};
use crate::host_memory::HostBuffer;
use rgpu_case::{Arg, Dtype, ErrorClass, Init};
use std::path::Path;

/// Elements that one thread fills at a time. Even, so that no two threads share a byte of packed
/// nibbles.
const CHUNK_ELEMENTS: usize = 1 << 18;

/// The generator's key for an argument at `position` of a group of arguments
/// ([`rgpu_case::Group`]).
pub(crate) fn arg_key(input_seed: u64, arg: &Arg, group: usize, position: usize) -> u64 {
    match arg.seed {
        Some(seed) => mix(seed),
        None => {
            let of_group = mix(mix(input_seed).wrapping_add(group as u64));
            mix(of_group.wrapping_add(position as u64))
        }
    }
}

/// The generator's key for an argument's contents in the timed call number `call`; `arg_key` is the
/// argument's own key.
pub(crate) fn call_key(input_seed: u64, call: u64, arg_key: u64) -> u64 {
    mix(mix(mix(input_seed).wrapping_add(call)).wrapping_add(arg_key))
}

/// The initial contents of an `in` or `inout` tensor. `folder` is the folder of the runner input.
pub(crate) fn contents(arg: &Arg, key: u64, folder: &Path) -> Result<HostBuffer> {
    let size = arg.bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let size = size.ok_or_else(|| bad_case(format!("argument `{}` is too large", arg.name)))?;
    let mut buffer = HostBuffer::new(size)?;
    let dtype = arg.dtype;
    match arg.init.as_ref().unwrap_or(&Init::Zeros) {
        Init::Zeros => {}
        Init::File { path } => {
            let path = folder.join(path);
            let bytes = std::fs::read(&path).map_err(|e| {
                let message = format!("cannot read `{}` for `{}`: {e}", path.display(), arg.name);
                Fault::new(ErrorClass::MissingFile, message)
            })?;
            if bytes.len() != size {
                return Err(bad_case(format!(
                    "`{}` has {} bytes, but argument `{}` needs {size}",
                    path.display(),
                    bytes.len(),
                    arg.name
                )));
            }
            buffer.bytes_mut().copy_from_slice(&bytes);
        }
        Init::Const { value } => {
            let bits = dtype.encode(*value);
            fill(dtype, count(arg), buffer.bytes_mut(), |_| bits);
        }
        Init::Uniform { lo, hi } => {
            fill(dtype, count(arg), buffer.bytes_mut(), |i| {
                dtype.encode_f64(lo + (hi - lo) * unit(draw(key, i)))
            });
        }
        Init::Normal { mean, sd } => {
            fill(dtype, count(arg), buffer.bytes_mut(), |i| {
                let radius = (-2.0 * (unit(draw(key, 2 * i)) + 2f64.powi(-53)).ln()).sqrt();
                let angle = std::f64::consts::TAU * unit(draw(key, 2 * i + 1));
                dtype.encode_f64(mean + sd * radius * angle.cos())
            });
        }
        Init::Bits { mask } => {
            fill(dtype, count(arg), buffer.bytes_mut(), |i| {
                let bits = draw(key, i) >> (64 - dtype.bits()) & mask;
                let finite = !dtype.is_float() || dtype.decode(bits).as_f64().is_finite();
                if finite { bits } else { 0 }
            });
        }
        Init::Ints { lo, hi } => {
            if lo > hi {
                let name = &arg.name;
                return Err(bad_case(format!(
                    "argument `{name}`: `lo` ({lo}) is greater than `hi` ({hi})"
                )));
            }
            let span = (i128::from(*hi) - i128::from(*lo) + 1) as u128;
            fill(dtype, count(arg), buffer.bytes_mut(), |i| {
                let step = (u128::from(draw(key, i)) * span) >> 64;
                dtype.encode_int(i128::from(*lo) + step as i128)
            });
        }
    }
    Ok(buffer)
}

fn count(arg: &Arg) -> usize {
    // The caller has checked that the byte count fits; the element count is at most twice that.
    arg.count().unwrap_or(0) as usize
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn draw(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Converts a draw to a number in [0, 1), in steps of 2^-53.
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 * 2f64.powi(-53)
}

/// Fills packed data with `bits_of(element index)`, on several threads when it is large.
fn fill(dtype: Dtype, count: usize, bytes: &mut [u8], bits_of: impl Fn(u64) -> u64 + Sync) {
    let fill_chunk = |first: usize, chunk: &mut [u8]| {
        let in_chunk = CHUNK_ELEMENTS.min(count - first);
        for i in 0..in_chunk {
            // In range: the chunk holds `in_chunk` packed elements.
            let _ = dtype.set_bits(chunk, i, bits_of((first + i) as u64));
        }
    };
    let chunk_bytes = CHUNK_ELEMENTS * dtype.bits() as usize / 8;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(16);
    if count <= CHUNK_ELEMENTS || threads == 1 {
        for (i, chunk) in bytes.chunks_mut(chunk_bytes).enumerate() {
            fill_chunk(i * CHUNK_ELEMENTS, chunk);
        }
        return;
    }
    let chunks = std::sync::Mutex::new(bytes.chunks_mut(chunk_bytes).enumerate());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = chunks.lock().ok().and_then(|mut chunks| chunks.next());
                    let Some((i, chunk)) = next else { break };
                    fill_chunk(i * CHUNK_ELEMENTS, chunk);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_case::{Number, Role};

    fn arg(dtype: Dtype, count: u64, init: Init) -> Arg {
        Arg {
            name: "x".into(),
            dtype,
            dims: vec![count],
            role: Role::In,
            init: Some(init),
            seed: None,
            value: None,
            tolerance: None,
        }
    }

    fn values(arg: &Arg, key: u64) -> Vec<f64> {
        let buffer = contents(arg, key, Path::new(".")).unwrap();
        (0..count(arg))
            .map(|i| arg.dtype.decode(arg.dtype.bits_at(buffer.bytes(), i).unwrap()).as_f64())
            .collect()
    }

    /// First outputs of SplitMix64 with seed 1234567, from its reference implementation.
    #[test]
    fn draws_are_those_of_splitmix64() {
        assert_eq!(draw(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(draw(1_234_567, 1), 3_203_168_211_198_807_973);
        assert_eq!(draw(1_234_567, 2), 9_817_491_932_198_370_423);
    }

    #[test]
    fn a_tensor_filled_by_threads_starts_like_a_small_one() {
        let init = Init::Uniform { lo: -1.0, hi: 1.0 };
        for dtype in [Dtype::F32, Dtype::E2m1] {
            let large = values(&arg(dtype, 3 * CHUNK_ELEMENTS as u64 + 5, init.clone()), 9);
            let small = values(&arg(dtype, 1000, init.clone()), 9);
            assert_eq!(large[..1000], small[..]);
            let third = &large[2 * CHUNK_ELEMENTS..];
            assert!(third.iter().any(|&x| x != 0.0), "no chunk is left out");
        }
    }

    #[test]
    fn uniform_and_normal_have_the_asked_moments() {
        let moments = |values: &[f64]| {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            (mean, (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
        };
        let uniform = values(&arg(Dtype::F64, 100_000, Init::Uniform { lo: 2.0, hi: 6.0 }), 1);
        assert!(uniform.iter().all(|x| (2.0..6.0).contains(x)));
        let (mean, sd) = moments(&uniform);
        assert!((mean - 4.0).abs() < 0.02 && (sd - 4.0 / 12f64.sqrt()).abs() < 0.02);
        let (mean, sd) =
            moments(&values(&arg(Dtype::F64, 100_000, Init::Normal { mean: -3.0, sd: 0.5 }), 1));
        assert!((mean + 3.0).abs() < 0.01 && (sd - 0.5).abs() < 0.01);
    }

    #[test]
    fn random_bits_reach_every_code_under_the_mask_and_no_nan() {
        let seen = |dtype, mask| {
            let mut seen = values(&arg(dtype, 20_000, Init::Bits { mask }), 5);
            seen.sort_by(f64::total_cmp);
            seen.dedup_by(|a, b| a.to_bits() == b.to_bits());
            seen
        };
        assert_eq!(seen(Dtype::E2m1, 0xb), [-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5]);
        assert_eq!(seen(Dtype::E2m1, 0xf).len(), 16);
        let scales = seen(Dtype::E4m3, 0x7f);
        assert_eq!((scales.len(), scales[126]), (127, 448.0));
        assert!(seen(Dtype::F16, 0xffff).iter().all(|x| x.is_finite()));
    }

    #[test]
    fn ints_reach_both_ends_and_nothing_beyond() {
        let seen = values(&arg(Dtype::I8, 1000, Init::Ints { lo: -2, hi: 2 }), 5);
        for value in [-2.0, -1.0, 0.0, 1.0, 2.0] {
            assert!(seen.contains(&value));
        }
        assert!(seen.iter().all(|x| (-2.0..=2.0).contains(x)));
        let init = Init::Ints { lo: i64::MIN, hi: i64::MAX };
        assert!(values(&arg(Dtype::I64, 100, init), 5).iter().any(|&x| x < -1e18));
    }

    #[test]
    fn keys_differ_by_seed_group_and_position_unless_the_argument_has_its_own() {
        let mut x = arg(Dtype::F32, 1, Init::Zeros);
        let keys = [
            arg_key(0, &x, 0, 0),
            arg_key(1, &x, 0, 0),
            arg_key(0, &x, 1, 0),
            arg_key(0, &x, 0, 1),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), 4);
        x.seed = Some(7);
        assert_eq!(arg_key(0, &x, 0, 0), arg_key(1, &x, 3, 2));
    }

    #[test]
    fn a_constant_fills_every_nibble() {
        let init = Init::Const { value: Number::Float(1.5) };
        assert_eq!(values(&arg(Dtype::E2m1, 5, init), 0), [1.5; 5]);
    }

    #[test]
    fn a_file_of_the_wrong_length_is_refused_with_both_sizes() {
        let file = std::env::temp_dir().join(format!("rgpu-runner-short-{}", std::process::id()));
        std::fs::write(&file, [0; 3]).unwrap();
        let init = Init::File { path: file.to_string_lossy().into_owned() };
        let fault = contents(&arg(Dtype::F32, 1, init), 0, Path::new("/")).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(fault.0.text.contains("has 3 bytes") && fault.0.text.contains("needs 4"));
    }
}
