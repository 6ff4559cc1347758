//! `rgpu_get` and `rgpu_set` of `rgpu.h`, compiled by `cc`, against the codec that fills inputs.

#![allow(clippy::unwrap_used, unsafe_code)]

use libloading::{Library, Symbol};
use rgpu_case::Dtype;
use std::process::Command;

const WRAPPERS: &str = r#"
#include "rgpu.h"
double get(uint32_t dtype, void *data, uint64_t i) {
  rgpu_tensor t = {data, 0, dtype, 0, 0};
  return rgpu_get(&t, i);
}
void set(uint32_t dtype, void *data, uint64_t i, double v) {
  rgpu_tensor t = {data, 0, dtype, 0, 0};
  rgpu_set(&t, i, v);
}
"#;

type Get = unsafe extern "C" fn(u32, *mut u8, u64) -> f64;
type Set = unsafe extern "C" fn(u32, *mut u8, u64, f64);

fn library(folder: &std::path::Path) -> Library {
    std::fs::write(folder.join("wrappers.c"), WRAPPERS).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../include");
    let flags =
        ["-O2", "-shared", "-fPIC", "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", include];
    let built = Command::new("cc")
        .args(flags)
        .args(["-o", "wrappers.so", "wrappers.c"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // SAFETY: the library is the one just built, without initialisers.
    unsafe { Library::new(folder.join("wrappers.so")).unwrap() }
}

/// Values at, between and just beside the codes of every narrow format, and far beyond.
fn interesting() -> Vec<f64> {
    let mut values = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 5e-324];
    for dtype in [Dtype::E2m1, Dtype::E4m3, Dtype::E5m2, Dtype::F16, Dtype::Bf16] {
        let codes = 0..1u64 << dtype.bits();
        let step = if dtype.bits() > 8 { 37 } else { 1 };
        for code in codes.step_by(step) {
            let [here, next] = [code, code + 1].map(|code| dtype.decode(code).as_f64());
            let middle = (here + next) / 2.0;
            values.extend([here, middle, middle.next_up(), middle.next_down()]);
        }
    }
    for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
        let edge = 2f64.powi(bits);
        values.extend([edge, -edge, edge - 1.0, edge.next_down(), 1.5 - edge, edge + 0.5]);
    }
    values.retain(|value| !value.is_nan());
    values
}

#[test]
fn the_header_reads_and_writes_as_the_codec_does() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    // SAFETY: the wrappers above have these signatures.
    let (get, set): (Symbol<'_, Get>, Symbol<'_, Set>) =
        unsafe { (library.get(b"get\0").unwrap(), library.get(b"set\0").unwrap()) };
    for dtype in Dtype::ALL {
        for value in interesting() {
            for index in [0usize, 3] {
                let mut words = [0u64; 4];
                let data = words.as_mut_ptr().cast::<u8>();
                // SAFETY: four words hold element 3 of every dtype.
                let read = unsafe {
                    set(dtype.code(), data, index as u64, value);
                    get(dtype.code(), data, index as u64)
                };
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let stored = dtype.bits_at(&bytes, index).unwrap();
                let wanted = dtype.encode_f64(value);
                assert_eq!(stored, wanted, "{dtype} {value:e} at {index}");
                let decoded = dtype.decode(stored).as_f64();
                assert!(
                    read == decoded || (read.is_nan() && decoded.is_nan()),
                    "{dtype} {value:e}"
                );
            }
        }
    }
}
