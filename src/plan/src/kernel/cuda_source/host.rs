//! Launches in the host code of a source: `kernel<float, 16><<<grid, block, shared>>>(a, b, n)`.

use std::collections::HashMap;
use std::rc::Rc;

use super::declare::{Declared, Function};
use super::infer::size_name;
use super::machine::{Machine, MetLaunch, Pointer, Value};
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::{Expression, TypeText};
use rgpu_case::Dtype;

/// A launch and the values that its sizes have in the source.
#[derive(Clone, Debug)]
pub(super) struct HostLaunch {
    pub(super) met: MetLaunch,
    /// Values of variables that the source gives numbers: defaults of the sizes.
    pub(super) defaults: HashMap<String, i64>,
}

/// All launches in host functions. A variable with a known number that is passed to a kernel is a
/// size with this number as its default, so the functions are run twice.
pub(super) fn launches(declared: &Declared) -> Vec<HostLaunch> {
    let mut found = Vec::new();
    for function in &declared.host_functions {
        let first = run(declared, function, HashMap::new());
        let mut defaults = HashMap::new();
        for launch in &first {
            let kernel = declared.kernels.iter().find(|k| k.name == launch.expression.name);
            let Some(kernel) = kernel else { continue };
            let passed = launch.expression.arguments.iter().zip(&launch.arguments);
            for ((argument, value), param) in passed.zip(&kernel.params) {
                let Expression::Name(name) = argument else { continue };
                let Value::Int(range) = value else { continue };
                let is_size = param.kind.stars == 0 && !param.is_array;
                if let (Some(number), true) = (range.as_number(), is_size)
                    && !declared.constants.contains_key(name)
                {
                    defaults.insert(name.to_string(), number);
                }
            }
        }
        let met =
            if defaults.is_empty() { first } else { run(declared, function, defaults.clone()) };
        found.extend(met.into_iter().map(|met| HostLaunch { met, defaults: defaults.clone() }));
    }
    found
}

fn run(
    declared: &Declared,
    function: &Function,
    size_names: HashMap<String, i64>,
) -> Vec<MetLaunch> {
    let mut types = declared.types.clone();
    for param in function.template.iter().filter(|param| param.is_type) {
        let words: Vec<Rc<str>> = param.default.iter().map(|token| token.text.clone()).collect();
        if !words.is_empty() {
            types.aliases.insert(param.name.clone(), TypeText { words, ..TypeText::default() });
        }
    }
    let mut machine = Machine::new(declared, types);
    machine.unknown_is_size = true;
    machine.size_names = size_names;
    for param in &function.with_members(&declared.types).params {
        machine.kinds.insert(param.name.clone(), param.kind.clone());
        let element = machine.types.element(&param.kind);
        let value = if param.kind.stars > 0 || param.is_array {
            let bytes = element.and_then(|element| element.bytes());
            Value::Pointer(Pointer {
                memory: None,
                offset: Range::default(),
                element: bytes,
                row: Vec::new(),
            })
        } else {
            match element.and_then(|element| element.scalar()) {
                Some(dtype) if !dtype.is_float() && dtype != Dtype::Bool => {
                    Value::Int(Range::exact(Polynomial::variable(&size_name(&param.name))))
                }
                _ => Value::Unknown,
            }
        };
        machine.variables.insert(param.name.to_string(), value);
    }
    machine.run(&function.body);
    machine.launches
}

/// A launch's grid, block and bytes of shared memory; `None` where they are not known exactly.
pub(super) struct LaunchNumbers {
    pub(super) grid: Option<[Polynomial; 3]>,
    pub(super) block: Option<[Polynomial; 3]>,
    pub(super) shared: Option<Polynomial>,
}

pub(super) fn launch_numbers(config: &[Value]) -> LaunchNumbers {
    LaunchNumbers {
        grid: config.first().and_then(axes),
        block: config.get(1).and_then(axes),
        shared: match config.get(2) {
            None => Some(Polynomial::number(0)),
            Some(Value::Int(range)) => range.as_exact().cloned(),
            Some(_) => None,
        },
    }
}

fn axes(value: &Value) -> Option<[Polynomial; 3]> {
    match value {
        Value::Int(range) => {
            Some([range.as_exact()?.clone(), Polynomial::number(1), Polynomial::number(1)])
        }
        Value::Dim3([x, y, z]) => {
            Some([x.as_exact()?.clone(), y.as_exact()?.clone(), z.as_exact()?.clone()])
        }
        _ => None,
    }
}
