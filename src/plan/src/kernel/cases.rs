//! Makes cases from a spec and selected sizes: evaluates expressions and checks limits.

use std::collections::BTreeMap;

use rgpu_case::{Arg, Case, Group, Init, LaunchShape, Number, Role};

use super::expr::{Division, Expr, Scope};
use super::spec::{ArgSpec, KernelSpec, LaunchSpec, NamedCase, ScalarValue, data_path};
use super::{CaseSelection, KernelError, sizes};

/// The seed of generated inputs when the user gives none.
pub const DEFAULT_SEED: u64 = 42;

/// Limits of every CUDA GPU: threads per block, blocks along x and along y or z, blocks per cluster
/// (the non-portable limit).
const MAX_THREADS: u64 = 1024;
const MAX_GRID_X: u32 = i32::MAX as u32;
const MAX_GRID_YZ: u32 = 65_535;
const MAX_CLUSTER: u64 = 16;

impl KernelSpec {
    /// The cases for `selection`, with every expression evaluated.
    ///
    /// # Errors
    /// [`KernelError`] for sizes that the kernel does not accept, expressions without a value, and
    /// launch shapes or extents that no GPU accepts.
    pub fn cases(&self, selection: &CaseSelection) -> Result<Vec<Case>, KernelError> {
        let is_named = |case: &NamedCase| self.sizes.cases.iter().any(|own| own.name == case.name);
        let evaluate = |case: &NamedCase| match self.evaluate_case(case) {
            // The sizes come from the user, so the error names `--problem-sizes`, not kernel.toml.
            Err(KernelError::Range { key, value, limit, .. })
                if matches!(selection, CaseSelection::Given(_)) && !is_named(case) =>
            {
                Err(sizes::invalid_sizes(self, case, format!("`{key}` would be {value}, {limit}")))
            }
            other => other,
        };
        sizes::select(self, selection)?.iter().map(evaluate).collect()
    }

    /// The cases at which a reference kernel is itself checked; empty if there is none.
    pub fn small_cases(&self) -> Result<Vec<Case>, KernelError> {
        let device = self.reference.as_ref().and_then(|reference| reference.device.as_ref());
        let names = device.map(|device| device.small.as_slice()).unwrap_or_default();
        let small = self.sizes.cases.iter().filter(|case| names.contains(&case.name));
        small.map(|case| self.evaluate_case(case)).collect()
    }

    fn evaluate_case(&self, case: &NamedCase) -> Result<Case, KernelError> {
        let eval = Evaluation { vars: &self.sizes.vars, case: &case.name };
        let mut groups = Vec::with_capacity(case.groups.len());
        for row in &case.groups {
            let args =
                self.args.iter().map(|arg| eval.arg(arg, row)).collect::<Result<Vec<_>, _>>()?;
            groups.push(Group { sizes: row.clone(), args });
        }
        // Only a host entry takes several groups, and it does its own launch.
        let launch = match (&self.launch, case.groups.first()) {
            (Some(launch), Some(row)) => Some(eval.launch("launch", launch, row)?),
            _ => None,
        };
        let device = self.reference.as_ref().and_then(|reference| reference.device.as_ref());
        let reference_spec = device.and_then(|device| device.launch.as_ref());
        let reference_launch = match (reference_spec, case.groups.first()) {
            (Some(launch), Some(row)) => Some(eval.launch("reference", launch, row)?),
            _ => None,
        };
        let work = |key: &str, expr: &Option<Expr>| match expr {
            None => Ok(None),
            Some(expr) => expr.float(&self.sizes.vars, &case.groups).map(Some).map_err(|source| {
                KernelError::Value { key: key.to_owned(), case: case.name.clone(), source }
            }),
        };
        let mut region_flops = BTreeMap::new();
        for (region, expr) in &self.work.regions {
            let key = format!("work.regions.{region}");
            if let Some(flops) = work(&key, &Some(expr.clone()))? {
                region_flops.insert(region.clone(), flops);
            }
        }
        Ok(Case {
            name: case.name.clone(),
            vars: self.sizes.vars.clone(),
            values: case.values.iter().cloned().collect(),
            jobs: case.jobs.clone(),
            groups,
            launch,
            reference_launch,
            flops: work("work.flops", &self.work.flops)?,
            bytes: work("work.bytes", &self.work.bytes)?,
            region_flops,
        })
    }
}

struct Evaluation<'a> {
    vars: &'a [String],
    case: &'a str,
}

impl Evaluation<'_> {
    fn int(
        &self,
        key: &str,
        expr: &Expr,
        row: &[i64],
        division: Division,
    ) -> Result<i64, KernelError> {
        expr.int(Scope { vars: self.vars, values: row }, division).map_err(|source| {
            KernelError::Value { key: key.to_owned(), case: self.case.to_owned(), source }
        })
    }

    fn range(&self, key: &str, value: impl ToString, limit: impl Into<String>) -> KernelError {
        KernelError::Range {
            key: key.to_owned(),
            case: self.case.to_owned(),
            value: value.to_string(),
            limit: limit.into(),
        }
    }

    fn arg(&self, spec: &ArgSpec, row: &[i64]) -> Result<Arg, KernelError> {
        let key = format!("{}.shape", spec.name);
        let mut dims = Vec::with_capacity(spec.shape.len());
        for extent in &spec.shape {
            let value = self.int(&key, extent, row, Division::Exact)?;
            match u64::try_from(value) {
                Ok(extent) if extent > 0 => dims.push(extent),
                _ => return Err(self.range(&key, value, "but every extent must be at least 1")),
            }
        }
        let value = match &spec.value {
            None => None,
            Some(ScalarValue::Number(number)) => Some(*number),
            Some(ScalarValue::Expr(expr)) => {
                let key = format!("{}.value", spec.name);
                Some(Number::Int(self.int(&key, expr, row, Division::Exact)?))
            }
        };
        let init = match (&spec.init, spec.role) {
            (Some(Init::File { path }), _) => {
                Some(Init::File { path: data_path(&spec.name, path) })
            }
            (Some(init), _) => Some(init.clone()),
            (None, Role::In | Role::InOut) => Some(Init::Zeros),
            (None, _) => None,
        };
        let arg = Arg {
            name: spec.name.clone(),
            dtype: spec.dtype,
            dims,
            role: spec.role,
            init,
            seed: None,
            value,
            tolerance: None,
        };
        if let Some(Number::Int(value)) = arg.value
            && !fits(arg.dtype, value)
        {
            let limit = format!("which does not fit in `{}`", arg.dtype);
            return Err(self.range(&format!("{}.value", spec.name), value, limit));
        }
        match arg.bytes() {
            Some(_) => Ok(arg),
            None => Err(self.range(&key, "more than 2^64 bytes", "which fits into no memory")),
        }
    }

    fn axes(
        &self,
        key: &str,
        exprs: &[Expr],
        row: &[i64],
        limits: [u32; 3],
    ) -> Result<[u32; 3], KernelError> {
        let mut axes = [1; 3];
        for (i, (axis, expr)) in axes.iter_mut().zip(exprs).enumerate() {
            let value = self.int(key, expr, row, Division::Truncating)?;
            *axis = match u32::try_from(value) {
                Ok(count) if (1..=limits[i]).contains(&count) => count,
                _ => {
                    let limit =
                        format!("but must be 1 to {} along {}", limits[i], ["x", "y", "z"][i]);
                    return Err(self.range(key, value, limit));
                }
            };
        }
        Ok(axes)
    }

    fn launch(
        &self,
        table: &str,
        spec: &LaunchSpec,
        row: &[i64],
    ) -> Result<LaunchShape, KernelError> {
        let key = |key: &str| format!("{table}.{key}");
        let grid_limits = [MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ];
        let grid = self.axes(&key("grid"), &spec.grid, row, grid_limits)?;
        let block = self.axes(&key("block"), &spec.block, row, [1024, 1024, 64])?;
        let volume = |axes: [u32; 3]| axes.iter().map(|&n| u64::from(n)).product::<u64>();
        if volume(block) > MAX_THREADS {
            let value = format!("{} threads", volume(block));
            return Err(self.range(&key("block"), value, "but a block has at most 1024"));
        }
        let cluster = match &spec.cluster {
            None => None,
            Some(exprs) => {
                let cluster = self.axes(&key("cluster"), exprs, row, [16; 3])?;
                if volume(cluster) > MAX_CLUSTER {
                    let value = format!("{} blocks", volume(cluster));
                    return Err(self.range(&key("cluster"), value, "but a cluster has at most 16"));
                }
                if let Some(i) = (0..3).find(|&i| grid[i] % cluster[i] != 0) {
                    let limit = format!("which does not divide the grid's {}", grid[i]);
                    return Err(self.range(&key("cluster"), cluster[i], limit));
                }
                Some(cluster)
            }
        };
        let dynamic_shared = match &spec.shared {
            None => 0,
            Some(expr) => {
                let value = self.int(&key("shared"), expr, row, Division::Truncating)?;
                u32::try_from(value).map_err(|_| {
                    self.range(&key("shared"), value, "but must be 0 to 4294967295 bytes")
                })?
            }
        };
        Ok(LaunchShape { grid, block, cluster, dynamic_shared })
    }
}

/// Whether a scalar of this dtype can hold the whole number; floats may round.
fn fits(dtype: rgpu_case::Dtype, value: i64) -> bool {
    use rgpu_case::Dtype::*;
    match dtype {
        I32 => i32::try_from(value).is_ok(),
        I16 => i16::try_from(value).is_ok(),
        I8 => i8::try_from(value).is_ok(),
        U64 => value >= 0,
        U32 => u32::try_from(value).is_ok(),
        U16 => u16::try_from(value).is_ok(),
        U8 => u8::try_from(value).is_ok(),
        Bool => (0..=1).contains(&value),
        I64 | F64 | F32 | F16 | Bf16 | E4m3 | E5m2 | E2m1 => true,
    }
}
