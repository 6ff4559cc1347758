//! Steps of transformers' LlamaForCausalLM and kernels of torch 2.11 on an H200
//! (`tests/gpu/decoder_times.py` and `kernel_times.py` on 2026-11-27): models are predicted from
//! the steps of other models.

use rgpu_predict::Calibration;
use rgpu_predict::calibration::KernelFit;
use rgpu_predict::collective::Topology;
use rgpu_predict::config::Model;
use rgpu_predict::fit::{FitOutcome, fit, fit_steps};
use rgpu_predict::kernel::{Context, Fusion, OpKind, StreamingKernel};
use rgpu_predict::measured_step::MeasuredStep;
use rgpu_predict::measurement::{Measurement, MeasurementKind, read_csv};
use rgpu_predict::{Dtype, reconcile};

use super::gpu;

const MODELS: [&str; 3] = ["llama-1024", "llama-2048", "llama-4096"];
const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/model/h200-decoder");

fn rows() -> Vec<Measurement> {
    let read = |name| read_csv(&std::fs::read(format!("{FOLDER}/{name}")).unwrap()).unwrap();
    [read("kernels.csv"), read("steps.csv")].concat()
}

fn decoder(name: &str) -> Model {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).unwrap();
    Model::from_config(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// The fit of all kernels and of the steps of these models.
fn fitted(rows: &[Measurement], names: &[&str]) -> FitOutcome {
    let gpu = gpu("h200");
    let topology = Topology::for_gpu(&gpu).unwrap();
    let models: Vec<(String, Model)> =
        names.iter().map(|name| ((*name).to_owned(), decoder(name))).collect();
    let mut outcome = fit("h200", &gpu, Some(&topology), rows);
    fit_steps(&mut outcome, &gpu, &topology, &models, rows);
    outcome
}

fn eager(calibration: &Calibration) -> &KernelFit {
    calibration.kernel.iter().find(|fit| fit.op == OpKind::EagerModule).unwrap()
}

#[test]
fn the_small_kernels_of_eager_modules_are_fitted_from_steps() {
    let rows = rows();
    let steps = rows.iter().filter(|row| row.kind == MeasurementKind::Step).count();
    let outcome = fitted(&rows, &MODELS);
    // Steps without a graph are not fitted.
    assert_eq!((outcome.unused, outcome.too_fast.len()), (steps / 2, 0));
    let fit = eager(&outcome.calibration);
    assert_eq!(fit.train.n + fit.test.n, steps / 2);
    assert!(fit.test.n >= 8 && fit.test.median <= 0.08 && fit.test.p90 <= 0.12, "{fit:?}");
    assert!(fit.active_bounds.is_empty(), "{fit:?}");
    // More than an addition that repeats itself takes, 1.1 to 1.4 us.
    let ns = fit.efficiency.launch_ns.unwrap();
    assert!((1_500.0..3_500.0).contains(&ns), "{ns}");
    let text = toml::to_string(&outcome.calibration).unwrap();
    assert_eq!(Calibration::parse(&text).unwrap(), outcome.calibration);
}

#[test]
fn a_decoder_is_predicted_from_the_steps_of_others() {
    let rows = rows();
    let gpu = gpu("h200");
    let topology = Topology::for_gpu(&gpu).unwrap();
    for held_out in MODELS {
        let seen: Vec<&str> = MODELS.into_iter().filter(|name| *name != held_out).collect();
        let calibration = fitted(&rows, &seen).calibration;
        let model = decoder(held_out);
        let own = rows.iter().filter(|row| row.model.as_deref() == Some(held_out));
        let pairs: Vec<_> = own
            .map(|row| MeasuredStep::new(row, &model, topology, &gpu).unwrap())
            .filter(MeasuredStep::is_in_graph)
            .map(|step| step.pair(&gpu, Some(&calibration)).unwrap())
            .collect();
        // The fit is not used for the longest prompt of the widest model: its rows are smaller.
        let outside = pairs.iter().filter(|pair| !pair.is_calibrated).count();
        assert_eq!(outside, usize::from(held_out == "llama-4096"));
        let errors = reconcile::reconcile(&pairs).by_quantity;
        assert_eq!((errors["prefill"].n, errors["decode"].n), (3, 12));
        for quantity in ["prefill", "decode"] {
            assert!(errors[quantity].median <= 0.1, "{held_out} {quantity}: {errors:?}");
        }
        let worst = pairs.iter().map(|pair| pair.error().abs()).fold(0.0, f64::max);
        assert!(worst <= 0.15, "{held_out}: {worst}");
    }
}

#[test]
fn without_steps_eager_modules_take_what_elementwise_kernels_take() {
    let rows = rows();
    let gpu = gpu("h200");
    let calibration = fitted(&rows, &[]).calibration;
    let time = |op, calibration| {
        let kernel = StreamingKernel {
            op,
            elements: 1e6,
            passes: 2.0,
            flops: 0.0,
            dtype: Dtype::Bf16,
            launches: Fusion::Eager.products(9.0),
        };
        let time = kernel.time(&Context { calibration, ..Context::new(&gpu) });
        (time.time_ns(), time.is_calibrated)
    };
    let known = time(OpKind::EagerModule, Some(&calibration));
    assert_eq!(known, time(OpKind::Elementwise, Some(&calibration)));
    assert!(known.1 && known.0 > time(OpKind::EagerModule, None).0);
}
