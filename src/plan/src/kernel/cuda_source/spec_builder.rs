//! Writes down as a [`KernelSpec`] what was found by following a kernel.

use std::collections::HashMap;
use std::path::Path;

use rgpu_case::{Dtype, Init, Number, Role};

use super::declare::Param;
use super::defaults::{KnownSizes, fit, small_size, usual_number, usual_size};
use super::infer::{Derivation, Launch, MAX_RANDOM, Problem, size_name};
use super::instance::Instance;
use super::limits::SizeLimit;
use super::machine::{Machine, Memory};
use super::polynomial::Polynomial;
use super::types::ElementType;
use crate::kernel::expr::{Expr, Grammar};
use crate::kernel::{
    ArgSpec, DeclaredWork, EntryPoint, FoundKernel, KernelSpec, LaunchSpec, NamedCase, ScalarValue,
    Sizes, name_of,
};

/// The value of an integer that is part of no extent and not of the launch.
const UNPLACED_SIZE: i64 = 64;

/// What is known when the kernel has been followed.
pub(super) struct SpecBuilder<'a> {
    pub(super) derivation: &'a Derivation<'a>,
    pub(super) instance: &'a Instance,
    pub(super) machine: &'a Machine<'a>,
    pub(super) values: &'a HashMap<String, Polynomial>,
    pub(super) lengths: HashMap<String, Polynomial>,
}

impl SpecBuilder<'_> {
    pub(super) fn found(
        &self,
        launch: Launch,
        shared: Option<Polynomial>,
        known: KnownSizes,
        mut lines: Vec<String>,
    ) -> Result<FoundKernel, Problem> {
        let kernel = self.derivation.kernel;
        let mut args: Vec<(&Param, Option<(ElementType, Polynomial)>)> = Vec::new();
        let mut memories = self.machine.memories.iter();
        for param in &kernel.params {
            if param.kind.stars == 0 && !param.is_array && !self.is_pointer(param) {
                args.push((param, None));
                continue;
            }
            let memory = memories.next().cloned().unwrap_or_default();
            let element = self.element(param);
            let length = match self.lengths.get(&*param.name) {
                Some(length) => i64::try_from(element.count).ok().and_then(|n| length.times(n)),
                None => self.length(&memory, element),
            };
            if memory.open_line.is_some() && !self.lengths.contains_key(&*param.name) {
                lines.push(self.open_line(param, &memory));
            }
            let length = length.unwrap_or_else(|| self.fallback(&launch));
            args.push((param, Some((element, length))));
        }
        let spec = self.spec(&args, &launch, shared, &known)?;
        lines.extend(self.lines(&spec));
        Ok(FoundKernel { spec, assumptions: lines })
    }

    fn is_pointer(&self, param: &Param) -> bool {
        self.instance.types.resolve(&param.kind).stars > 0
    }

    fn element(&self, param: &Param) -> ElementType {
        let kind = self.instance.types.resolve(&param.kind);
        let bytes = ElementType { dtype: Dtype::U8, count: 1 };
        self.instance.types.element(&kind).unwrap_or(bytes)
    }

    /// Numbers of an array that are touched, in units of its dtype.
    fn length(&self, memory: &Memory, element: ElementType) -> Option<Polynomial> {
        let unit = i64::try_from(element.dtype.bytes_for(1)?).ok().filter(|unit| *unit > 0)?;
        match (&memory.end, memory.open_line) {
            (Some(end), _) => end.divide_up(&Polynomial::number(unit)),
            // Its extent is a guess, as is that of an array that the source does not touch.
            (None, _) => None,
        }
    }

    /// As many elements as the largest array whose extent is known; else one for each thread.
    fn fallback(&self, launch: &Launch) -> Polynomial {
        let known = self.machine.memories.iter().filter(|memory| memory.open_line.is_none());
        let ends = known.filter_map(|memory| memory.end.clone());
        let largest = ends.max_by_key(|end| (end.degree(), end.text().len()));
        let threads = || {
            launch
                .grid
                .iter()
                .chain(&launch.block)
                .try_fold(Polynomial::number(1), |product, axis| product.multiply(axis))
        };
        largest.or_else(threads).unwrap_or_else(|| Polynomial::number(1 << 20))
    }

    fn open_line(&self, param: &Param, memory: &Memory) -> String {
        format!(
            "`{}` has a guessed number of elements: its index in line {} has no bound that the \
             source shows; `--launch` can give it",
            param.name,
            memory.open_line.unwrap_or_default()
        )
    }

    fn spec(
        &self,
        args: &[(&Param, Option<(ElementType, Polynomial)>)],
        launch: &Launch,
        shared: Option<Polynomial>,
        known: &KnownSizes,
    ) -> Result<KernelSpec, Problem> {
        let Derivation { file, kernel, .. } = *self.derivation;
        let mut polynomials: Vec<Polynomial> = args
            .iter()
            .filter_map(|(_, array)| array.as_ref().map(|(_, length)| length.clone()))
            .collect();
        polynomials.extend(launch.grid.iter().chain(&launch.block).cloned());
        polynomials.extend(shared.clone());
        let extents = polynomials.clone();
        for (param, array) in args {
            if array.is_none()
                && let Some(value) = self.integer(param)
            {
                polynomials.push(value);
            }
        }
        let mut vars: Vec<String> = Vec::new();
        // Sizes in the order of the parameters, then those of the launch.
        let by_params = kernel.params.iter().map(|param| size_name(&param.name));
        let named: Vec<String> = polynomials.iter().flat_map(Polynomial::names).collect();
        for name in by_params.filter(|name| named.contains(name)).chain(named.iter().cloned()) {
            if !vars.contains(&name) {
                vars.push(name);
            }
        }
        if let Some(odd) = vars.iter().find(|name| !crate::kernel::is_identifier(name)) {
            return Err(Problem::at(kernel.line, format!("the size `{odd}` is not understood")));
        }
        let expr = |polynomial: &Polynomial| {
            Expr::parse(&polynomial.text(), Grammar::Size, &vars)
                .map_err(|error| Problem::at(kernel.line, error.to_string()))
        };
        let axes = |axes: &[Polynomial; 3]| -> Result<Vec<Expr>, Problem> {
            let last = axes.iter().rposition(|axis| axis.as_number() != Some(1)).unwrap_or(0);
            axes.iter().take(last + 1).map(expr).collect()
        };
        let mut specs = Vec::new();
        for (param, array) in args {
            specs.push(match array {
                Some((element, length)) => array_arg(param, *element, expr(length)?),
                None => self.scalar_arg(param, &expr)?,
            });
        }
        let (row, free) = self.row(&vars, known, &extents);
        let mut spec = KernelSpec {
            name: name_of(file),
            language: "cuda",
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            file: None,
            source: file.to_owned(),
            entry: EntryPoint::Device(self.instance.name(kernel)),
            mode: None,
            arch: Vec::new(),
            flags: Vec::new(),
            args: specs,
            launch: Some(LaunchSpec {
                grid: axes(&launch.grid)?,
                block: axes(&launch.block)?,
                cluster: None,
                shared: shared.as_ref().map(expr).transpose()?,
            }),
            sizes: Sizes {
                default: (!vars.is_empty()).then(|| "large".to_owned()),
                cases: if vars.is_empty() {
                    Vec::new()
                } else {
                    vec![NamedCase {
                        name: "large".to_owned(),
                        groups: vec![row],
                        ..NamedCase::default()
                    }]
                },
                vars,
                groups: false,
            },
            reference: None,
            work: DeclaredWork::default(),
            extra_files: Vec::new(),
            model: None,
            task: None,
        };
        fit(&mut spec, &free).map_err(|text| Problem {
            line: kernel.line,
            text: format!("no sizes were found at which `{}` can be launched: {text}", kernel.name),
            hint: None,
        })?;
        Ok(spec)
    }

    /// The value of an integer parameter.
    fn integer(&self, param: &Param) -> Option<Polynomial> {
        let kind = self.instance.types.resolve(&param.kind);
        let dtype = self.instance.types.element(&kind)?.scalar()?;
        let is_size = !dtype.is_float() && dtype != Dtype::Bool;
        let value = self.values.get(&*param.name).cloned();
        is_size.then(|| value.unwrap_or_else(|| Polynomial::variable(&size_name(&param.name))))
    }

    fn scalar_arg(
        &self,
        param: &Param,
        expr: &dyn Fn(&Polynomial) -> Result<Expr, Problem>,
    ) -> Result<ArgSpec, Problem> {
        let kind = self.instance.types.resolve(&param.kind);
        let dtype = self.instance.types.element(&kind).and_then(|e| e.scalar());
        let dtype = dtype.unwrap_or(Dtype::I32);
        let value = match self.integer(param) {
            Some(value) => match value.as_number() {
                Some(number) => ScalarValue::Number(Number::Int(number)),
                None => ScalarValue::Expr(expr(&value)?),
            },
            None if dtype == Dtype::Bool => ScalarValue::Number(Number::Int(1)),
            None => ScalarValue::Number(usual_number(&param.name)),
        };
        Ok(ArgSpec {
            name: param.name.to_string(),
            dtype,
            role: Role::Scalar,
            shape: Vec::new(),
            init: None,
            value: Some(value),
        })
    }

    /// A value for each size, and the names of those that may be made smaller.
    /// Those that only a scalar gets, neither an array nor the launch, are not `placed`.
    fn row(
        &self,
        vars: &[String],
        known: &KnownSizes,
        extents: &[Polynomial],
    ) -> (Vec<i64>, Vec<String>) {
        let placed: Vec<String> = extents.iter().flat_map(Polynomial::names).collect();
        let is_free = |name: &&String| {
            !known.contains_key(*name) && small_size(name).is_none() && placed.contains(name)
        };
        let free: Vec<String> = vars.iter().filter(is_free).cloned().collect();
        let is_nested =
            self.machine.loops.iter().any(|rounds| free.iter().any(|name| rounds.grows_with(name)));
        let degree = |name: &str| extents.iter().map(|extent| extent.degree_with(name)).max();
        let row = vars
            .iter()
            .map(|name| {
                let own = known.get(name).copied().or_else(|| small_size(name));
                let own = own.or_else(|| (!placed.contains(name)).then_some(UNPLACED_SIZE));
                let usual = || usual_size(degree(name).unwrap_or_default(), is_nested);
                let value = own.unwrap_or_else(usual);
                value.min(self.limit_of(name).map_or(i64::MAX, |limit| limit.most))
            })
            .collect();
        let shrinkable =
            vars.iter().filter(|name| free.contains(name) || known.contains_key(*name));
        (row, shrinkable.cloned().collect())
    }

    /// The tightest limit of a size by the kernel's own arrays.
    fn limit_of(&self, size: &str) -> Option<&SizeLimit> {
        let limits = self.machine.limits.iter().filter(|limit| limit.size == size);
        limits.min_by_key(|limit| limit.most)
    }

    fn lines(&self, spec: &KernelSpec) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(case) = spec.sizes.cases.first() {
            let row = case.groups.first().map(Vec::as_slice).unwrap_or_default();
            let sizes: Vec<String> = spec
                .sizes
                .vars
                .iter()
                .zip(row)
                .map(|(name, value)| format!("{name} = {value}"))
                .collect();
            lines.push(format!("{}; `--problem-sizes` chooses others", sizes.join(", ")));
            for limit in spec.sizes.vars.iter().filter_map(|name| self.limit_of(name)) {
                lines.push(format!(
                    "`{}` is at most {}: line {} indexes `{}` with it",
                    limit.size, limit.most, limit.line, limit.array
                ));
            }
        }
        let arrays: Vec<String> = spec
            .args
            .iter()
            .filter(|arg| arg.role != Role::Scalar)
            .map(|arg| {
                let extents: Vec<&str> = arg.shape.iter().map(|extent| extent.text()).collect();
                let role = if arg.role == Role::In { "read" } else { "read and written" };
                format!("`{}` {}[{}] ({role})", arg.name, arg.dtype, extents.join(", "))
            })
            .collect();
        if !arrays.is_empty() {
            lines.push(format!("arrays with random values: {}", arrays.join(", ")));
        }
        let scalars: Vec<String> = spec
            .args
            .iter()
            .filter_map(|arg| match arg.value {
                Some(ScalarValue::Number(number)) if arg.dtype.is_float() => {
                    Some(format!("`{}` is {}", arg.name, number.as_f64()))
                }
                _ => None,
            })
            .collect();
        if !scalars.is_empty() {
            lines.push(scalars.join(", "));
        }
        lines.push("there is no reference: results are not checked".to_owned());
        lines
    }
}

fn array_arg(param: &Param, element: ElementType, length: Expr) -> ArgSpec {
    ArgSpec {
        name: param.name.to_string(),
        dtype: element.dtype,
        role: if param.kind.constant { Role::In } else { Role::InOut },
        shape: vec![length],
        init: Some(random(element.dtype)),
        value: None,
    }
}

/// Random values for an array.
pub(super) fn random(dtype: Dtype) -> Init {
    match dtype {
        dtype if dtype.is_float() => Init::Uniform { lo: -1.0, hi: 1.0 },
        Dtype::Bool => Init::Ints { lo: 0, hi: 1 },
        _ => Init::Ints { lo: 0, hi: MAX_RANDOM },
    }
}
