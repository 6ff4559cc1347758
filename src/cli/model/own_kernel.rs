//! `rgpu model kernel PATH`: a kernel of one's own, from its `[work]` or from its arguments.

use std::collections::BTreeMap;

use rgpu_analysis::counted_work::CountedWork;
use rgpu_case::{Arg, Case, Role};
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::kernel::sources::Found;
use rgpu_plan::kernel::{CaseSelection, find};
use rgpu_predict::Dtype;
use rgpu_predict::dtype::MathKind;

use crate::cli::support::app::App;
use crate::cli::support::kernel_folders::kernel_folders;

/// A case of a kernel with the work that is predicted.
pub(super) struct CaseWork {
    /// The kernel's name with that of the case.
    pub(super) subject: String,
    /// The counted work.
    pub(super) work: CountedWork,
    /// The sizes of each group, by variable.
    pub(super) sizes: Vec<BTreeMap<String, i64>>,
    /// The arithmetic of its operations: that of its first floating-point input.
    pub(super) math: Option<MathKind>,
    /// What was assumed, in words.
    pub(super) assumption: Option<&'static str>,
}

/// The work of the kernel's cases at `path`.
pub(super) fn cases(app: &App, path: &str, problem_sizes: &[String]) -> Result<Vec<CaseWork>> {
    let loaded = match find::find_source(path, &kernel_folders(app)).map_err(Failure::from)? {
        Found::Kernel(loaded) => loaded,
        Found::Program(program) => {
            let what = format!("`{path}` is {}: only a run tells its kernels", program.format);
            return Err(Failure::new(Exit::Usage, "usage", what)
                .hint(format!("run it: `rgpu profile {}`", shell_word(path)))
                .hint("then `rgpu model compare latest` predicts its operators"));
        }
    };
    let selection = if problem_sizes.is_empty() {
        CaseSelection::Default
    } else {
        CaseSelection::Given(problem_sizes.to_vec())
    };
    let cases = loaded.spec.cases(&selection).map_err(Failure::from)?;
    let work = |case: &Case| {
        case_work(&loaded.spec.name, case).ok_or_else(|| {
            let what = format!(
                "the case `{}` of `{}` has neither `[work]` nor array arguments",
                case.name, loaded.spec.name
            );
            Failure::new(Exit::Config, "no_work", what)
                .hint("add `[work]` with `flops` and `bytes` to its kernel.toml")
        })
    };
    cases.iter().map(work).collect()
}

/// `None` if nothing tells the work of the case.
fn case_work(kernel: &str, case: &Case) -> Option<CaseWork> {
    let sizes: Vec<BTreeMap<String, i64>> = (case.groups.iter())
        .map(|group| case.vars.iter().cloned().zip(group.sizes.iter().copied()).collect())
        .collect();
    let declared = CountedWork { flops: case.flops, bytes: case.bytes };
    let (work, assumption) = if declared.flops.is_some() || declared.bytes.is_some() {
        (declared, None)
    } else {
        let bytes = argument_bytes(case);
        let work = CountedWork { flops: product_flops(&sizes), bytes: Some(bytes) };
        let assumed =
            "there is no `[work]`: each array argument is counted as read or written once";
        (work, (bytes > 0.0).then_some(assumed).map(Some)?)
    };
    let arrays = case.groups.first().into_iter().flat_map(|group| &group.args);
    let inputs = arrays.filter(|arg| !arg.dims.is_empty() && arg.role != Role::Out);
    let dtype = |arg: &Arg| arg.dtype.name().parse::<Dtype>().ok();
    let name = &case.name;
    Some(CaseWork {
        subject: if name.is_empty() { kernel.to_owned() } else { format!("{kernel} {name}") },
        work,
        sizes,
        math: inputs.filter_map(dtype).map(Dtype::math).next(),
        assumption,
    })
}

/// The bytes of all array arguments; those that are read and written count twice.
fn argument_bytes(case: &Case) -> f64 {
    let arrays = case.groups.iter().flat_map(|group| &group.args);
    let bytes = |arg: &Arg| {
        let times = if arg.role == Role::InOut { 2.0 } else { 1.0 };
        times * arg.bytes().unwrap_or(0) as f64
    };
    arrays.filter(|arg| !arg.dims.is_empty()).map(bytes).sum()
}

/// The FLOPs of matrix products whose sizes are called m, n and k. `None` for other sizes.
fn product_flops(sizes: &[BTreeMap<String, i64>]) -> Option<f64> {
    let of = |group: &BTreeMap<String, i64>| {
        let size = |wanted: &str| {
            let mut found = group.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().map(|(_, size)| *size as f64)
        };
        let batch = size("l").or_else(|| size("batch")).unwrap_or(1.0);
        Some(2.0 * batch * size("m")? * size("n")? * size("k")?)
    };
    sizes.iter().map(of).sum()
}

/// Whether it is a path of a kernel, not a kind of kernel: a path has a slash or an ending.
pub(super) fn is_path(typed: &str) -> bool {
    typed.contains(['/', std::path::MAIN_SEPARATOR]) || typed.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_case::{Dtype as ArrayType, Group};

    fn case(vars: &[(&str, i64)], arrays: &[(ArrayType, &[u64], Role)]) -> Case {
        let arg = |(dtype, dims, role): &(ArrayType, &[u64], Role)| Arg {
            name: "x".to_owned(),
            dtype: *dtype,
            dims: dims.to_vec(),
            role: *role,
            init: None,
            seed: None,
            value: None,
            tolerance: None,
        };
        let group = Group {
            sizes: vars.iter().map(|(_, value)| *value).collect(),
            args: arrays.iter().map(arg).collect(),
        };
        Case {
            name: "small".to_owned(),
            vars: vars.iter().map(|(name, _)| (*name).to_owned()).collect(),
            values: BTreeMap::new(),
            jobs: Vec::new(),
            groups: vec![group],
            launch: None,
            reference_launch: None,
            flops: None,
            bytes: None,
            region_flops: BTreeMap::new(),
        }
    }

    #[test]
    fn without_work_the_arguments_are_the_bytes_and_sizes_m_n_k_a_product() {
        let half = ArrayType::Bf16;
        let product = case(
            &[("M", 64), ("n", 32), ("k", 128)],
            &[
                (half, &[64, 128], Role::In),
                (half, &[128, 32], Role::In),
                (ArrayType::F32, &[64, 32], Role::Out),
            ],
        );
        let found = case_work("mine", &product).unwrap();
        assert_eq!(found.subject, "mine small");
        assert_eq!(found.math, Some(MathKind::Half));
        let [gemm] = &found.work.matrix_products(&found.sizes).unwrap()[..] else { panic!() };
        assert_eq!((gemm.a, gemm.c, gemm.k), (Dtype::Bf16, Dtype::Fp32, 128.0));
        let copy = case(&[("n", 1000)], &[(ArrayType::F32, &[1000], Role::InOut)]);
        let found = case_work("mine", &copy).unwrap();
        assert_eq!((found.work.flops, found.work.bytes), (None, Some(8000.0)));
        assert!(found.assumption.is_some());
        assert!(case_work("mine", &case(&[("n", 1)], &[])).is_none());
    }

    #[test]
    fn a_path_has_a_slash_or_an_ending() {
        assert!(is_path("mine.cu") && is_path("kernels/vecadd") && is_path("."));
        assert!(!is_path("gemm") && !is_path("vecadd"));
    }
}
