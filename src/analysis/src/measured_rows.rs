//! The kernels of a run as rows of measurements, for `rgpu model fit` and `reconcile`: the analysed
//! profile comes in, [`RunRows`] goes out.

use rgpu_predict::Dtype;
use rgpu_predict::hw::{self, Hardware};
use rgpu_predict::kernel::{Gemm, OpKind};
use rgpu_predict::measurement::{Measurement, MeasurementKind, products_text};

use super::counted_work::CountedWork;
use super::device;
use super::operator_rows::row as operator_row;
use rgpu_model::Profile;
use rgpu_model::operator::OperatorInputs;
use rgpu_model::speed_of_light::SpeedBound;

/// The measurement rows of a run, and the cases that give no row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRows {
    /// One row for each case or operator whose work is known.
    pub rows: Vec<Measurement>,
    /// The cases without a row, each with the reason.
    pub skipped: Vec<String>,
}

/// Makes the rows of a profile, from its timed cases and its operators. A case is a row if its
/// sizes and `[work]` are those of matrix products, or if memory limits it. An operator is a row if
/// it is a matrix product with recorded shapes; its calls with the same inputs are one row.
#[must_use]
pub fn measured_rows(profile: &Profile) -> RunRows {
    let gpu = gpu_of(profile).map_or_else(|name| name, |hardware| hardware.id.clone());
    let row = |op: OpKind, dtype: Dtype, time_ns: f64| {
        let mut row = Measurement::new(MeasurementKind::Kernel, &profile.run.id, &gpu);
        row.gpus = Some(1);
        row.framework = Some("rgpu".to_owned());
        row.version = Some(profile.run.rgpu.clone());
        row.date = profile.run.started.get(..10).map(str::to_owned);
        row.op = Some(op.name().to_owned());
        row.dtype = Some(dtype);
        row.time_ns = Some(time_ns);
        row
    };
    let mut found = RunRows::default();
    for case in &profile.cases {
        let Some(timing) = &case.timing else { continue };
        let Some(work) = CountedWork::from_timing(timing) else {
            found.skipped.push(format!(
                "case `{}`: its kernel.toml has no `[work]`, or it was not timed on a GPU",
                case.name
            ));
            continue;
        };
        let products = work.matrix_products(&case.sizes).unwrap_or_default();
        let mut limits = profile.speed_of_light.iter().filter(|limit| limit.case == case.name);
        let is_memory_bound = limits.next().is_some_and(|limit| limit.bound == SpeedBound::Memory);
        match (&products[..], work.bytes) {
            ([gemm], _) => {
                let mut row = row(OpKind::Gemm, gemm.a, timing.median_ns);
                set_sizes(&mut row, gemm);
                found.rows.push(row);
            }
            ([first, ..], _) => {
                let mut row = row(OpKind::GroupedGemm, first.a, timing.median_ns);
                row.groups = Some(products_text(&products));
                found.rows.push(row);
            }
            ([], Some(bytes)) if is_memory_bound => {
                // `[work]` does not name a format, and the bytes alone set the time.
                let mut row = row(OpKind::Elementwise, Dtype::Fp32, timing.median_ns);
                row.bytes = Some(bytes.round());
                found.rows.push(row);
            }
            ([], _) => found.skipped.push(format!(
                "case `{}`: its sizes and its work are not those of a matrix product, and it is \
                 not limited by memory",
                case.name
            )),
        }
    }
    found.rows.extend(operator_rows(profile).into_iter().filter(is_product).map(|operator| {
        let common = row(OpKind::Gemm, Dtype::Bf16, operator.call_ns());
        Measurement {
            kind: common.kind,
            source: common.source,
            gpu: common.gpu,
            gpus: common.gpus,
            framework: common.framework,
            version: common.version,
            date: common.date,
            time_ns: common.time_ns,
            ..operator.row
        }
    }));
    found
}

/// The calls of an operator with the same inputs, as a row without a time.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorRow {
    /// The operator: `aten::mm`.
    pub operator: String,
    /// Shapes of the inputs, in the trace's notation.
    pub shapes: String,
    /// Number of calls.
    pub calls: u64,
    /// GPU time of all these calls, in nanoseconds.
    pub measured_ns: u64,
    /// The kind of kernel and its sizes.
    pub row: Measurement,
}

impl OperatorRow {
    /// The mean GPU time of a call, in nanoseconds.
    #[must_use]
    pub fn call_ns(&self) -> f64 {
        self.measured_ns as f64 / self.calls.max(1) as f64
    }
}

/// The operators of a profile whose kind of kernel and sizes are known, by their inputs.
#[must_use]
pub fn operator_rows(profile: &Profile) -> Vec<OperatorRow> {
    let dtype = profile.kernel.model.as_ref().and_then(|model| model.dtype.parse().ok());
    let mut rows = Vec::new();
    for operator in &profile.operators {
        // A profile of an older rgpu has the shapes of the first call only.
        let only = || {
            let one = OperatorInputs {
                shapes: operator.shapes.clone(),
                calls: 1,
                gpu_self_ns: operator.gpu_self_ns?,
                ..OperatorInputs::default()
            };
            (operator.calls == 1).then_some(one)
        };
        let first = if operator.inputs.is_empty() { only() } else { None };
        for inputs in operator.inputs.iter().chain(&first).filter(|inputs| inputs.gpu_self_ns > 0) {
            if let Some(row) = operator_row(operator, inputs, dtype) {
                rows.push(OperatorRow {
                    operator: operator.name.clone(),
                    shapes: inputs.shapes.clone(),
                    calls: inputs.calls,
                    measured_ns: inputs.gpu_self_ns,
                    row,
                });
            }
        }
    }
    rows
}

/// Operators of other kinds find their inputs in the L2, as rows of calls alone do not.
fn is_product(operator: &OperatorRow) -> bool {
    operator.row.op.as_deref() == Some(OpKind::Gemm.name())
}

/// The GPU of the run in the catalogue, or the name that it has.
///
/// # Errors
/// The catalogue has no such GPU.
pub fn gpu_of(profile: &Profile) -> Result<&'static Hardware, String> {
    let name = device::find_device(profile).name.unwrap_or_default();
    hw::for_device(&name).ok_or(name)
}

fn set_sizes(row: &mut Measurement, gemm: &Gemm) {
    (row.m, row.n, row.k) = (Some(gemm.m), Some(gemm.n), Some(gemm.k));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze;
    use rgpu_model::Operator;
    use rgpu_model::profile::{CaseResult, ModelInfo, RunInfo, Timing};
    use rgpu_model::timeline::KernelSum;

    fn case(name: &str, sizes: &[(&str, i64)], flops: f64, bytes: f64) -> CaseResult {
        let median_ns = 20_000.0;
        let rate = |count: f64| Some(count / median_ns * 1e9);
        let timing = Timing {
            median_ns,
            flops_per_s: rate(flops),
            bytes_per_s: rate(bytes),
            ..Timing::default()
        };
        let sizes: BTreeMap<String, i64> =
            sizes.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        CaseResult {
            name: name.to_owned(),
            sizes: vec![sizes],
            timing: Some(timing),
            ..CaseResult::default()
        }
    }

    #[test]
    fn cases_become_rows_by_their_sizes_and_work() {
        let run = RunInfo {
            id: "20261123-1".to_owned(),
            started: "2026-11-23T10:00:00Z".to_owned(),
            ..RunInfo::default()
        };
        let product = case(
            "large",
            &[("m", 1024), ("n", 512), ("k", 256)],
            2.0 * 1024.0 * 512.0 * 256.0,
            4.0 * (1024.0 * 256.0 + 256.0 * 512.0 + 1024.0 * 512.0),
        );
        let copy = case("copy", &[("n", 1 << 20)], f64::from(1 << 20), f64::from(12 << 20));
        let other = case("other", &[("rows", 64)], 1e9, 64.0);
        let mut profile = Profile {
            run,
            device: Some("NVIDIA H200".to_owned()),
            cases: vec![product, copy, other],
            ..Profile::default()
        };
        analyze(&mut profile);
        let found = measured_rows(&profile);
        let [gemm, copy] = &found.rows[..] else { panic!("{found:?}") };
        assert_eq!((gemm.op.as_deref(), gemm.dtype), (Some("gemm"), Some(Dtype::Fp32)));
        assert_eq!((gemm.m, gemm.n, gemm.k), (Some(1024.0), Some(512.0), Some(256.0)));
        assert_eq!((gemm.gpu.as_str(), gemm.date.as_deref()), ("h200", Some("2026-11-23")));
        assert_eq!((copy.op.as_deref(), copy.bytes), (Some("elementwise"), Some(12582912.0)));
        assert_eq!(found.skipped.len(), 1);
        assert!(found.skipped[0].contains("`other`"));
    }

    #[test]
    fn calls_of_a_product_with_the_same_inputs_are_a_row() {
        let inputs = |n: u64, calls: u64| OperatorInputs {
            shapes: format!("[[64, 4096], [4096, {n}]]"),
            types: r#"["c10::Half", "c10::Half"]"#.to_owned(),
            calls,
            gpu_self_ns: calls * 5000,
        };
        let operator = Operator {
            name: "aten::mm".to_owned(),
            calls: 9,
            inputs: vec![inputs(1024, 6), inputs(512, 3)],
            ..Operator::default()
        };
        let profile = Profile { operators: vec![operator], ..Profile::default() };
        let [large, small] = &measured_rows(&profile).rows[..] else { panic!() };
        assert_eq!((large.n, large.time_ns), (Some(1024.0), Some(5000.0)));
        assert_eq!((small.n, small.dtype), (Some(512.0), Some(Dtype::Fp16)));
    }

    #[test]
    fn a_product_that_a_framework_called_once_is_a_row() {
        let operator = |name: &str, calls: u64, shapes: &str| Operator {
            name: name.to_owned(),
            calls,
            gpu_self_ns: Some(5000),
            kernels: vec![KernelSum::default()],
            shapes: shapes.to_owned(),
            ..Operator::default()
        };
        let model = ModelInfo { dtype: "bfloat16".to_owned(), ..ModelInfo::default() };
        let mut profile = Profile {
            operators: vec![
                operator("aten::mm", 1, "[[64, 4096], [4096, 1024]]"),
                operator("aten::addmm", 1, "[[1024], [64, 4096], [4096, 1024], [], []]"),
                operator("aten::mm", 2, "[[64, 4096], [4096, 1024]]"),
                operator("aten::mm", 1, "[[64, 4096], [1024, 1024]]"),
                operator("aten::mm", 1, "not shapes"),
                operator("aten::add", 1, "[[64, 64], [64, 64]]"),
            ],
            ..Profile::default()
        };
        assert!(measured_rows(&profile).rows.is_empty(), "the number format is not known");
        profile.kernel.model = Some(model);
        let rows = measured_rows(&profile).rows;
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((row.m, row.n, row.k), (Some(64.0), Some(1024.0), Some(4096.0)));
            assert_eq!((row.dtype, row.time_ns), (Some(Dtype::Bf16), Some(5000.0)));
        }
    }
}
