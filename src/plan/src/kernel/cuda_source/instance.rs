//! The arguments of a kernel template, and how they were found.

use std::collections::HashMap;
use std::rc::Rc;

use super::declare::{Declared, Function, Param};
use super::host::HostLaunch;
use super::lex::{Token, text_of};
use super::machine::Machine;
use super::range::Range;
use super::tree::{Expression, TypeText};
use super::types::TypeTable;

/// A kernel with what its template parameters stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// The arguments as they are written, one for each parameter; empty for no template.
    pub(super) arguments: Vec<String>,
    pub(super) numbers: HashMap<Rc<str>, Range>,
    pub(super) types: TypeTable,
    /// Where it comes from, in words; empty: the user named it, or there is no template.
    pub(super) origin: String,
}

impl Instance {
    /// `matmul<float, 16>`.
    pub(super) fn name(&self, kernel: &Function) -> String {
        let plain = format!("{}{}", kernel.scope, kernel.name);
        match self.arguments.as_slice() {
            [] => plain,
            arguments => format!("{plain}<{}>", arguments.join(", ")),
        }
    }
}

/// The instance with these arguments; those not given have their defaults.
///
/// # Errors
/// The name of a parameter without an argument.
pub(super) fn instance(
    declared: &Declared,
    kernel: &Function,
    given: &[Vec<Token>],
    known: Option<&HostLaunch>,
) -> Result<Instance, Rc<str>> {
    let mut found = Instance { types: declared.types.clone(), ..Instance::default() };
    if let Some(launch) = known {
        found.types.aliases.extend(launch.met.aliases.clone());
    }
    for (at, param) in kernel.template.iter().enumerate() {
        let words: Vec<Rc<str>> = match given.get(at) {
            Some(argument) => argument.iter().map(|token| token.text.clone()).collect(),
            None => param.default.iter().map(|token| token.text.clone()).collect(),
        };
        let deduced = known.and_then(|launch| deduce(kernel, &param.name, launch, &found.types));
        if param.is_type {
            let kind = if words.is_empty() { deduced } else { Some(type_of(&words)) };
            let kind = kind.map(|kind| found.types.resolve(&kind));
            let is_known = |kind: &TypeText| !kind.words.is_empty() && !is_open(declared, kind);
            let Some(kind) = kind.filter(is_known) else {
                return Err(param.name.clone());
            };
            found.arguments.push(kind.text());
            found.types.aliases.insert(param.name.clone(), kind);
            continue;
        }
        let mut machine = Machine::new(declared, found.types.clone());
        let outer = known.map(|launch| &launch.met.template).into_iter().flatten();
        for (name, range) in outer.chain(&found.numbers) {
            machine.set_range(name, range.clone());
        }
        let value = if words.is_empty() { None } else { machine.template_value(&words) };
        let number = value.and_then(|value| value.as_number());
        let Some(number) = number else { return Err(param.name.clone()) };
        found.arguments.push(number.to_string());
        found.numbers.insert(param.name.clone(), Range::number(number));
    }
    Ok(found)
}

/// Whether a type is a parameter of the function that launches, of which no instance is known:
/// `scalar_t` of torch's `AT_DISPATCH`, or `T` of a wrapper.
fn is_open(declared: &Declared, kind: &TypeText) -> bool {
    let [name] = kind.words.as_slice() else { return false };
    let mut params = declared.host_functions.iter().flat_map(|function| &function.template);
    &**name == "scalar_t" || params.any(|param| param.is_type && param.name == *name)
}

fn type_of(words: &[Rc<str>]) -> TypeText {
    let stars = words.iter().rev().take_while(|word| &***word == "*").count();
    let words = words.iter().filter(|word| !matches!(&***word, "*" | "const"));
    TypeText { words: words.cloned().collect(), stars, ..TypeText::default() }
}

/// The type that a launch's arguments give a template parameter: `T` from a `T *` that gets a
/// `float *`.
fn deduce(
    kernel: &Function,
    name: &Rc<str>,
    launch: &HostLaunch,
    types: &TypeTable,
) -> Option<TypeText> {
    let arguments = launch.met.expression.arguments.iter();
    kernel.params.iter().zip(arguments).find_map(|(param, argument)| {
        if param.kind.words.as_slice() != std::slice::from_ref(name) {
            return None;
        }
        let kind = match argument {
            Expression::Name(variable) => launch.met.kinds.get(variable)?.clone(),
            // `Add()`, `Add{}`.
            Expression::Call(function, _) => match &**function {
                Expression::Name(name) if types.structures.contains_key(name) => {
                    TypeText { words: vec![name.clone()], ..TypeText::default() }
                }
                _ => return None,
            },
            _ => return None,
        };
        let kind = types.resolve(&kind);
        let stars = kind.stars.checked_sub(param_stars(param))?;
        (types.element(&kind).is_some() || stars > 0).then_some(TypeText {
            stars,
            constant: false,
            reference: false,
            ..kind
        })
    })
}

fn param_stars(param: &Param) -> usize {
    param.kind.stars + usize::from(param.is_array)
}

/// Every instance of a kernel that the source names, the first of each.
pub(super) fn instances(
    declared: &Declared,
    kernel: &Function,
    launches: &[HostLaunch],
) -> Vec<Instance> {
    let of_launches = launches.iter().filter(|l| l.met.expression.name == kernel.name);
    let of_launches = of_launches.map(|launch| {
        let given = &launch.met.expression.template;
        let origin = format!("launched so in line {}", launch.met.expression.line);
        (instance(declared, kernel, given, Some(launch)), origin)
    });
    let named = declared.instantiations.iter().filter(|(name, _)| *name == kernel.name);
    let named = named.map(|(_, given)| {
        (instance(declared, kernel, given, None), "the source instantiates it so".to_owned())
    });
    let mut found: Vec<Instance> = Vec::new();
    for (result, origin) in of_launches.chain(named) {
        if let Ok(instance) = result
            && !found.iter().any(|known| known.arguments == instance.arguments)
        {
            found.push(Instance { origin, ..instance });
        }
    }
    if found.is_empty() {
        found.extend(instance(declared, kernel, &[], None));
    }
    found
}

/// An instance with usual arguments: `float` for a type, and a size of a tile or block for a number
/// whose name says that it is one, else `otherwise`.
///
/// # Errors
/// The name of a parameter for which there is no usual argument.
pub(super) fn usual_instance(
    declared: &Declared,
    kernel: &Function,
    is_flat: bool,
    otherwise: Option<i64>,
) -> Result<Instance, Rc<str>> {
    let mut given = Vec::new();
    let mut chosen = Vec::new();
    for param in &kernel.template {
        if !param.default.is_empty() && !param.is_unusual {
            given.push(param.default.clone());
            continue;
        }
        if param.is_unusual {
            return Err(param.name.clone());
        }
        let value = if param.is_bool {
            "true".to_owned()
        } else if !param.is_type {
            let usual = usual_number(&param.name, kernel, is_flat);
            usual.or(otherwise).ok_or_else(|| param.name.clone())?.to_string()
        } else if is_integer_type_name(&param.name) {
            "int".to_owned()
        } else {
            "float".to_owned()
        };
        chosen.push(format!("`{}` is {value}", param.name));
        given.push(vec![Token::made(&value)]);
    }
    let found = instance(declared, kernel, &given, None)?;
    Ok(Instance { origin: chosen.join(", "), ..found })
}

/// Opens the namespaces of a kernel, and declares this instance of it in them.
pub(super) fn instantiation(kernel: &Function, instance: &Instance) -> String {
    let with_argument = |token: &Token| {
        let at = kernel.template.iter().position(|param| param.name == token.text);
        let argument = at.and_then(|at| instance.arguments.get(at));
        Token {
            text: argument.map_or(token.text.clone(), |text| text.as_str().into()),
            ..token.clone()
        }
    };
    let written = |param: &Param| {
        let tokens: Vec<Token> = param.tokens.iter().map(with_argument).collect();
        text_of(&tokens)
    };
    let params: Vec<String> = kernel.params.iter().map(written).collect();
    let arguments = instance.arguments.join(", ");
    let name = &kernel.name;
    let line = format!("template __global__ void {name}<{arguments}>({});", params.join(", "));
    let open: String =
        kernel.namespaces.iter().map(|name| format!("namespace {name} {{ ")).collect();
    let close = " }".repeat(kernel.namespaces.len());
    format!("{open}{line}{close}\n")
}

fn is_integer_type_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("index") || name.contains("idx") || name.contains("int")
}

/// The usual value of a number by its name. Tiles of matrix products have names of their own: `BM`,
/// `BN` and `BK` of a block, `WM` and `WN` of a warp, `TM` and `TN` of a thread.
fn usual_number(name: &str, kernel: &Function, is_flat: bool) -> Option<i64> {
    let lower = name.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let has_param =
        |wanted: &str| kernel.template.iter().any(|param| param.name.eq_ignore_ascii_case(wanted));
    let by_warps = has_param("wm");
    let by_two = has_param("tn");
    match lower.as_str() {
        "bm" | "bn" => return Some(if by_two || by_warps { 128 } else { 64 }),
        "bk" => return Some(if by_warps { 16 } else { 8 }),
        "wm" | "wn" => return Some(64),
        "tm" => return Some(8),
        "tn" => return Some(if by_warps { 4 } else { 8 }),
        "wniter" | "wmiter" => return Some(4),
        _ => {}
    }
    // `threadIdx.x / B` and `threadIdx.x % B` make a square of a flat block.
    let mut divides = false;
    super::tree::visit_expressions(&kernel.body, &mut |expression| {
        if let super::tree::Expression::Binary("/" | "%", left, right) = expression {
            divides |= left.text() == "threadIdx.x" && right.text() == name;
        }
    });
    Some(match () {
        () if divides => 32,
        () if has("warp") && !has("warps") => 32,
        () if has("per_row") || has("perrow") => 32,
        () if has("thread") || has("block") || has("tpb") || lower == "bs" => {
            match (is_flat, by_warps) {
                (true, true) => 128,
                (true, false) => 256,
                (false, _) => 16,
            }
        }
        () if has("tile") || lower == "ts" => 16,
        () if has("dim") || lower == "d" => 64,
        () if has("unroll") || has("vec") || has("per") || has("coarse") => 4,
        () if has("radius") => 3,
        _ => return None,
    })
}
