//! A Parquet table as aiconfigurator writes it: dictionaries, optional values, several pages.

use rgpu_predict::Dtype;
use rgpu_predict::import::{aic, parquet};

fn table() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tables/gemm_perf.parquet");
    std::fs::read(path).unwrap()
}

#[test]
fn a_table_of_products_is_read() {
    let rows = aic::read("h200/gemm_perf.parquet", &table()).unwrap();
    // The row without a format is none that can be predicted.
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].gpu.as_str(), rows[0].dtype), ("h200", Some(Dtype::Bf16)));
    assert_eq!((rows[0].m, rows[0].n, rows[0].k), (Some(1.0), Some(4096.0), Some(7168.0)));
    assert_eq!((rows[1].dtype, rows[1].k), (Some(Dtype::Fp8), Some(2048.0)));
    assert_eq!((rows[0].time_ns, rows[1].time_ns), (Some(0.5e6), Some(0.125e6)));
}

#[test]
fn a_damaged_table_is_refused_or_read_but_never_a_panic() {
    let whole = table();
    for end in 0..whole.len() {
        assert!(parquet::read(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for value in [0, 0x7f, 0xff, whole[at] ^ 1] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let _ = parquet::read(&damaged);
        }
    }
}
