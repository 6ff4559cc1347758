//! Makes a [`KernelSpec`] of a bare CUDA source.
//!
//! The kernel is the one that the user names, or the first that can be launched without help. Its
//! template arguments, grid, block and shared memory come from a launch in the source's host code,
//! else from [`super::guess`]. Integer parameters are sizes, unless the launch gives them other
//! values. Each array gets the elements that [`super::machine`] finds it touches.

use std::collections::HashMap;
use std::path::Path;

use rgpu_case::Dtype;

use super::declare::{Declared, Function, GAP};
use super::defaults::KnownSizes;
use super::guess::{AXES, UsedAxes, guess_launch};
use super::host::{self, HostLaunch, launch_numbers};
use super::instance::{Instance, instance, instances, usual_instance};
use super::lex::{Piece, Token, lex};
use super::machine::{Machine, Memory, Pointer, Value};
use super::parse::{Parser, TypeNames, split_arguments};
use super::polynomial::Polynomial;
use super::preprocess::MAX_TOKENS;
use super::range::Range;
use super::spec_builder::SpecBuilder;
use super::tree::{Expression, LaunchExpression};
use crate::kernel::{FoundKernel, KernelError};

/// The largest random integer in an array.
pub(super) const MAX_RANDOM: i64 = 100;

/// Why no spec can be made, and the next step.
pub(super) struct Problem {
    /// The line of the source, or 0.
    pub(super) line: u32,
    pub(super) text: String,
    pub(super) hint: Option<String>,
}

impl Problem {
    pub(super) fn at(line: u32, text: impl Into<String>) -> Self {
        Self { line, text: text.into(), hint: None }
    }
}

/// What `--launch` says: a kernel, or a whole launch of one.
struct AskedLaunch {
    name: String,
    template: Vec<Vec<Token>>,
    launch: Option<LaunchExpression>,
}

/// Infers how to launch a kernel of the source `file`. `asked` is the value of `--launch`.
///
/// # Errors
/// [`KernelError::NotInferred`] with the line and what to write.
pub(in crate::kernel) fn infer(
    file: &Path,
    text: &str,
    asked: Option<&str>,
) -> Result<FoundKernel, KernelError> {
    let declared = super::read(file, text);
    let found = asked.map(parse_asked).transpose().and_then(|asked| choose(file, &declared, asked));
    let cut = declared.is_cut.then(cut_line);
    match found {
        Ok(mut found) => {
            found.assumptions.extend(cut);
            Ok(found)
        }
        Err(mut problem) => {
            problem.text.extend(cut.map(|line| format!("; {line}")));
            Err(not_inferred(file, problem))
        }
    }
}

/// Says that kernels may be missing.
fn cut_line() -> String {
    format!(
        "a part of the source was not read, and kernels there are missing: it has more than \
         {MAX_TOKENS} words with its macros and headers, or too many namespaces in one another"
    )
}

/// The lines that instantiate the kernel `entry`, such as `matmul<float, 16>`, of a source with this
/// text; empty if the source does it.
///
/// # Errors
/// [`KernelError::NotInferred`] if the source has no such template.
pub(in crate::kernel) fn instantiation_of(
    file: &Path,
    text: &str,
    entry: &str,
) -> Result<String, KernelError> {
    let declared = super::read(file, text);
    let kernels: Vec<&Function> = declared.kernels.iter().collect();
    let lines = parse_asked(entry).and_then(|asked| {
        let is_template = |kernel: &&&Function| !kernel.template.is_empty();
        let found = matching(&kernels, &asked.name);
        let Some(kernel) = found.iter().find(is_template) else {
            return Err(Problem::at(0, format!("it has no kernel template `{}`", asked.name)));
        };
        let instance = instance(&declared, kernel, &asked.template, None).map_err(|missing| {
            Problem::at(kernel.line, format!("`{entry}` does not say what `{missing}` is"))
        })?;
        // The compiler takes each once.
        let mut written = declared.instantiations.iter().filter(|(name, _)| *name == kernel.name);
        let is_written = written.any(|(_, given)| {
            super::instance::instance(&declared, kernel, given, None)
                .is_ok_and(|other| other.arguments == instance.arguments)
        });
        let line = || super::instance::instantiation(kernel, &instance);
        Ok(if is_written { String::new() } else { line() })
    });
    lines.map_err(|problem| not_inferred(file, problem))
}

/// A line for each kernel template of a source with this text that would instantiate it, with usual
/// arguments: `float` for a type, 16 for a number that has no usual value.
pub(in crate::kernel) fn example_instances_of(file: &Path, text: &str) -> Vec<String> {
    let declared = super::read(file, text);
    let templates = declared.kernels.iter().filter(|kernel| !kernel.template.is_empty());
    let line = |kernel: &Function| {
        let is_flat = UsedAxes::of(&declared, kernel).is_flat();
        let usual = usual_instance(&declared, kernel, is_flat, Some(16)).ok()?;
        Some(super::instance::instantiation(kernel, &usual).trim_end().to_owned())
    };
    templates.filter_map(line).collect()
}

fn not_inferred(file: &Path, problem: Problem) -> KernelError {
    KernelError::NotInferred {
        file: file.to_owned(),
        problem: match problem.line {
            0 => problem.text,
            line => format!("line {line}: {}", problem.text),
        },
        instead: problem.hint,
    }
}

fn parse_asked(text: &str) -> Result<AskedLaunch, Problem> {
    let pieces = lex(text, 0).0.into_iter();
    let tokens: Vec<Token> = pieces
        .filter_map(|piece| match piece {
            Piece::Token(token) => Some(token),
            Piece::Directive(_) => None,
        })
        .collect();
    let invalid = || {
        Problem {
        line: 0,
        text: format!("`--launch {text}` is no launch"),
        hint: Some("write it as in CUDA: `--launch 'matmul<float, 16><<<(64, 64), 256>>>(a, n)'`, or the kernel's name alone".to_owned()),
    }
    };
    let end = tokens.iter().position(|token| &*token.text == "<<<").unwrap_or(tokens.len());
    let head = tokens.get(..end).unwrap_or_default();
    let open = head.iter().position(|token| &*token.text == "<").unwrap_or(head.len());
    let name: String =
        head.get(..open).unwrap_or_default().iter().map(|token| &*token.text).collect();
    let template = match head.get(open..) {
        Some([_, inside @ .., close]) if &*close.text == ">" => split_arguments(inside),
        // `matmul<float, 16` is a prefix.
        Some([_, inside @ ..]) => split_arguments(inside),
        _ => Vec::new(),
    };
    if name.is_empty() {
        return Err(invalid());
    }
    let launch = if end < tokens.len() {
        let types = TypeNames::default();
        match Parser::new(&tokens, &types).assignment() {
            Expression::Launch(launch) => Some(*launch),
            _ => return Err(invalid()),
        }
    } else {
        None
    };
    Ok(AskedLaunch { name, template, launch })
}

fn choose(
    file: &Path,
    declared: &Declared,
    asked: Option<AskedLaunch>,
) -> Result<FoundKernel, Problem> {
    if declared.has_host_entry {
        return Err(Problem::at(0, "it is a host entry, whose sizes are unknown"));
    }
    let kernels = declared.own_kernels();
    if kernels.is_empty() {
        return Err(Problem {
            line: 0,
            text: "it has no `__global__` function".to_owned(),
            hint: Some("name a file that defines one".to_owned()),
        });
    }
    let launches = host::launches(declared);
    let names = list_names(&kernels);
    if let Some(asked) = asked {
        let matching = matching(&kernels, &asked.name);
        let [kernel] = matching.as_slice() else {
            let text = match matching.len() {
                0 => format!("it has no kernel `{}`", asked.name),
                _ => format!("`{}` names several of its kernels", asked.name),
            };
            return Err(Problem { line: 0, text, hint: Some(format!("its kernels: {names}")) });
        };
        return derive(&Derivation { file, declared, kernel, launches: &launches }, Some(&asked));
    }
    let mut first_problem = None;
    // A kernel that the host code launches is more likely to be understood.
    let is_launched =
        |kernel: &&Function| launches.iter().any(|l| l.met.expression.name == kernel.name);
    let (launched, others): (Vec<_>, Vec<_>) = kernels.iter().copied().partition(is_launched);
    for kernel in launched.into_iter().chain(others) {
        match derive(&Derivation { file, declared, kernel, launches: &launches }, None) {
            Ok(mut found) => {
                if kernels.len() > 1 {
                    let line = format!(
                        "of its {} kernels `{}`; `--launch NAME` chooses another: {names}",
                        kernels.len(),
                        kernel.name
                    );
                    found.assumptions.insert(0, line);
                }
                return Ok(found);
            }
            Err(problem) => {
                first_problem.get_or_insert(problem);
            }
        }
    }
    Err(first_problem.unwrap_or_else(|| Problem::at(0, "it has no kernel")))
}

fn list_names(kernels: &[&Function]) -> String {
    let names: Vec<String> = kernels.iter().map(|kernel| format!("`{}`", kernel.name)).collect();
    names.join(", ")
}

/// The kernels of this name, with or without namespaces; else those whose name begins so.
fn matching<'a>(kernels: &[&'a Function], name: &str) -> Vec<&'a Function> {
    let full = |kernel: &Function| format!("{}{}", kernel.scope, kernel.name);
    let is_it = |kernel: &&&Function| &*kernel.name == name || full(kernel) == name;
    let exact: Vec<&Function> = kernels.iter().filter(is_it).copied().collect();
    match exact.first() {
        Some(first) => vec![first],
        None => {
            let begins = |k: &&&Function| k.name.starts_with(name) || full(k).starts_with(name);
            kernels.iter().filter(begins).copied().collect()
        }
    }
}

pub(super) struct Derivation<'a> {
    pub(super) file: &'a Path,
    declared: &'a Declared,
    pub(super) kernel: &'a Function,
    launches: &'a [HostLaunch],
}

/// Grid, block and shared memory, and where they come from.
pub(super) struct Launch {
    pub(super) grid: [Polynomial; 3],
    pub(super) block: [Polynomial; 3],
    shared: Option<Polynomial>,
    origin: String,
}

fn derive(
    derivation: &Derivation<'_>,
    asked: Option<&AskedLaunch>,
) -> Result<FoundKernel, Problem> {
    let Derivation { kernel, launches, .. } = *derivation;
    let given = asked.map(|asked| asked.template.as_slice()).unwrap_or_default();
    let instance = choose_instance(derivation, given)?;
    let with_members = kernel.with_members(&instance.types);
    let taken = kernel;
    let derivation = &Derivation { kernel: &with_members, ..*derivation };
    let kernel = &with_members;
    refuse_unknown_params(kernel, &instance)?;
    let asked_launch = asked.and_then(|asked| asked.launch.as_ref());
    let known = known_launch(derivation, &instance);
    let mut sizes = KnownSizes::new();
    let mut values: HashMap<String, Polynomial> = HashMap::new();
    let mut lines = Vec::new();
    if let Some(line) = instance_line(kernel, &instance, launches) {
        lines.push(line);
    }
    if let Some(known) = known {
        sizes.extend(known.defaults.clone());
        values.extend(launched_values(taken, kernel, known));
    }
    let gaps = kernel.params.iter().filter(|param| param.name.contains(&format!(".{GAP}")));
    values.extend(gaps.map(|gap| (gap.name.to_string(), Polynomial::number(0))));
    let mut lengths: HashMap<String, Polynomial> = HashMap::new();
    if let Some(launch) = asked_launch {
        asked_values(derivation, &instance, launch, &mut values, &mut lengths)?;
    }
    let launch = find_launch(derivation, &instance, known, asked_launch, &values)?;
    lines.push(launch_line(&launch));
    let machine = follow(derivation, &instance, &values, &launch);
    if machine.gave_up() {
        let text = format!("`{}` is too long to be followed", kernel.name);
        return Err(Problem::at(kernel.line, text));
    }
    let shared = shared_bytes(&machine, &launch, kernel)?;
    let builder = SpecBuilder {
        derivation,
        instance: &instance,
        machine: &machine,
        values: &values,
        lengths,
    };
    builder.found(launch, shared, sizes, lines)
}

/// Follows the kernel. Integers in an array that it does not write are the random ones that the
/// array gets; which those are is known after a first time.
fn follow<'a>(
    derivation: &Derivation<'a>,
    instance: &Instance,
    values: &HashMap<String, Polynomial>,
    launch: &Launch,
) -> Machine<'a> {
    let run = |read_only: &[usize]| {
        let mut machine = Machine::new(derivation.declared, instance.types.clone());
        bind_params(&mut machine, derivation.kernel, instance, Some(values));
        for at in read_only {
            if let Some(memory) = machine.memories.get_mut(*at) {
                memory.values = memory.random.clone();
            }
        }
        bind_launch(&mut machine, launch);
        machine.run(&derivation.declared.shared);
        machine.run(&derivation.kernel.body);
        machine
    };
    let first = run(&[]);
    let is_read_only =
        |memory: &Memory| !memory.written && memory.values.is_none() && memory.random.is_some();
    let read_only = first.memories.iter().enumerate().filter(|(_, memory)| is_read_only(memory));
    let read_only: Vec<usize> = read_only.map(|(at, _)| at).collect();
    if read_only.is_empty() { first } else { run(&read_only) }
}

/// The values that a launch in the host code gives to parameters. `taken` is the kernel as it is
/// written, `kernel` the one with the members of structures.
fn launched_values(
    taken: &Function,
    kernel: &Function,
    launch: &HostLaunch,
) -> HashMap<String, Polynomial> {
    let mut values = HashMap::new();
    let passed = launch.met.expression.arguments.iter().zip(&launch.met.arguments);
    for (param, (argument, value)) in taken.params.iter().zip(passed) {
        if let Value::Int(range) = value
            && let Some(exact) = range.as_exact()
        {
            values.insert(param.name.to_string(), exact.clone());
        }
        // The members of a variable that is passed.
        let Expression::Name(variable) = argument else { continue };
        for member in &kernel.params {
            let path = member.name.strip_prefix(&*param.name).and_then(|p| p.strip_prefix('.'));
            let known = path.and_then(|path| {
                launch.met.template.get(format!("{variable}.{path}").as_str())?.as_exact()
            });
            if let Some(known) = known {
                values.insert(member.name.to_string(), known.clone());
            }
        }
    }
    values
}

/// The name of the size that an integer parameter is: `p_n` of the member `p.n`.
pub(super) fn size_name(param: &str) -> String {
    param.replace('.', "_")
}

/// The line that says which instance of a template was chosen.
fn instance_line(
    kernel: &Function,
    instance: &Instance,
    launches: &[HostLaunch],
) -> Option<String> {
    if instance.arguments.is_empty() || instance.origin.is_empty() {
        return None;
    }
    let is_launched = launches.iter().any(|l| l.met.expression.name == kernel.name);
    let how = if is_launched { "" } else { "; `--launch` names other arguments" };
    Some(format!("the instance is `{}`: {}{how}", instance.name(kernel), instance.origin))
}

fn choose_instance(derivation: &Derivation<'_>, given: &[Vec<Token>]) -> Result<Instance, Problem> {
    let Derivation { declared, kernel, launches, .. } = *derivation;
    let none = || Instance { types: declared.types.clone(), ..Instance::default() };
    if kernel.template.is_empty() {
        return Ok(none());
    }
    let known = instances(declared, kernel, launches);
    if !given.is_empty() {
        if let Ok(found) = instance(declared, kernel, given, None) {
            return Ok(found);
        }
        let words: Vec<String> = given
            .iter()
            .map(|tokens| tokens.iter().map(|t| t.text.to_string()).collect::<Vec<_>>().join(" "))
            .collect();
        let begins: Vec<&Instance> =
            known.iter().filter(|instance| instance.arguments.starts_with(&words)).collect();
        if let [only] = begins.as_slice() {
            return Ok(Instance { origin: String::new(), ..(*only).clone() });
        }
    } else if let Some(first) = known.first() {
        let mut first = first.clone();
        if known.len() > 1 {
            let names: Vec<String> =
                known.iter().skip(1).map(|i| format!("`{}`", i.name(kernel))).collect();
            first.origin.push_str(&format!("; there is also {}", names.join(", ")));
        }
        return Ok(first);
    }
    let is_flat = UsedAxes::of(declared, kernel).is_flat();
    let missing = if given.is_empty() {
        match usual_instance(declared, kernel, is_flat, None) {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        }
    } else {
        instance(declared, kernel, given, None).err().unwrap_or_else(|| "".into())
    };
    let example: Vec<String> = kernel
        .template
        .iter()
        .map(|p| if p.is_type { "float".to_owned() } else { p.name.to_string() })
        .collect();
    Err(Problem {
        line: kernel.line,
        text: format!("`{}` is a template, and nothing says what its `{missing}` is", kernel.name),
        hint: Some(format!(
            "name the instance: `--launch '{}<{}>'`",
            kernel.name,
            example.join(", ")
        )),
    })
}

/// Refuses parameters that are neither arrays nor numbers.
fn refuse_unknown_params(kernel: &Function, instance: &Instance) -> Result<(), Problem> {
    for param in &kernel.params {
        let kind = instance.types.resolve(&param.kind);
        let stars = kind.stars + usize::from(param.is_array);
        let element = instance.types.element(&kind);
        let is_void = kind.words.first().is_some_and(|word| &**word == "void");
        let layout = instance.types.layout(&kind);
        let has_pointers =
            layout.is_some_and(|layout| layout.members.iter().any(|m| m.kind.stars > 0));
        let text = match (stars, element) {
            (1, Some(_)) if has_pointers => "points to structures that hold pointers",
            (1, Some(_)) => continue,
            (1, None) if is_void => continue,
            (0, Some(element)) if element.scalar().is_some() => continue,
            (0, Some(_)) => "is passed by value and has several numbers",
            (0, None) => "has a type that is not known here",
            (1, None) => "points to a type that is not known here",
            _ => "is an array of pointers",
        };
        return Err(Problem {
            line: param.line,
            text: format!("the parameter `{}` of `{}` {text}", param.text(), kernel.name),
            hint: Some(
                "give the kernel a host entry: a file that defines `rgpu_launch` of rgpu.h"
                    .to_owned(),
            ),
        });
    }
    Ok(())
}

/// The launch of this instance in the host code; else any launch of the kernel.
fn known_launch<'a>(derivation: &Derivation<'a>, instance: &Instance) -> Option<&'a HostLaunch> {
    let Derivation { declared, kernel, launches, .. } = *derivation;
    let own = || launches.iter().filter(|l| l.met.expression.name == kernel.name);
    let is_this = |launch: &&HostLaunch| {
        let given = &launch.met.expression.template;
        super::instance::instance(declared, kernel, given, Some(launch))
            .is_ok_and(|other| other.arguments == instance.arguments)
    };
    own().find(is_this).or_else(|| own().next())
}

/// Sets the parameters of a kernel: arrays are memories of the machine, in their order; integers
/// are `values`, else sizes of their own.
pub(super) fn bind_params(
    machine: &mut Machine<'_>,
    kernel: &Function,
    instance: &Instance,
    values: Option<&HashMap<String, Polynomial>>,
) {
    for (name, range) in &instance.numbers {
        machine.set_range(name, range.clone());
    }
    for param in &kernel.params {
        let kind = instance.types.resolve(&param.kind);
        machine.kinds.insert(param.name.clone(), kind.clone());
        let element = instance.types.element(&kind);
        let name = param.name.to_string();
        if kind.stars > 0 || param.is_array {
            // What a kernel may write may become anything.
            let is_integer = element.is_some_and(|e| !e.dtype.is_float() && e.scalar().is_some());
            let random = is_integer.then(|| Range::between(0, MAX_RANDOM));
            let values = random.clone().filter(|_| kind.constant);
            let element = element.and_then(|element| element.bytes());
            let row: Option<Vec<i64>> = param.row.iter().map(|e| machine.number_of(e)).collect();
            machine.memories.push(Memory { values, random, element, ..Memory::default() });
            let pointer = Pointer {
                memory: Some(machine.memories.len() - 1),
                offset: Range::number(0),
                element: element.filter(|_| row.is_some()),
                row: row.unwrap_or_default(),
            };
            machine.variables.insert(name, Value::Pointer(pointer));
        } else if element.is_some_and(|e| !e.dtype.is_float() && e.dtype != Dtype::Bool) {
            let value = values.and_then(|values| values.get(&name)).cloned();
            let value = value.unwrap_or_else(|| Polynomial::variable(&size_name(&name)));
            machine.set_range(&name, Range::exact(value));
        }
    }
}

fn bind_launch(machine: &mut Machine<'_>, launch: &Launch) {
    for (at, axis) in AXES.iter().enumerate() {
        let one = Polynomial::number(1);
        let threads = launch.block.get(at).unwrap_or(&one);
        let blocks = launch.grid.get(at).unwrap_or(&one);
        machine.set_range(&format!("blockDim.{axis}"), Range::exact(threads.clone()));
        machine.set_range(&format!("gridDim.{axis}"), Range::exact(blocks.clone()));
        machine.set_range(&format!("threadIdx.{axis}"), Range::below(threads));
        machine.set_range(&format!("blockIdx.{axis}"), Range::below(blocks));
    }
}

/// The values that the arguments of `--launch` give to parameters: a number of elements for an
/// array, a value for an integer. `_` leaves one open.
fn asked_values(
    derivation: &Derivation<'_>,
    instance: &Instance,
    launch: &LaunchExpression,
    values: &mut HashMap<String, Polynomial>,
    lengths: &mut HashMap<String, Polynomial>,
) -> Result<(), Problem> {
    let kernel = derivation.kernel;
    let arguments = &launch.arguments;
    if !arguments.is_empty() && arguments.len() != kernel.params.len() {
        let text = format!(
            "`--launch` has {} arguments, and `{}` has {} parameters",
            arguments.len(),
            kernel.name,
            kernel.params.len()
        );
        let names: Vec<&str> = kernel.params.iter().map(|p| &*p.name).collect();
        let hint = format!(
            "one for each of `{}`: the elements of an array, the value of an integer, or `_`",
            names.join("`, `")
        );
        return Err(Problem { line: 0, text, hint: Some(hint) });
    }
    let mut machine = asked_machine(derivation, instance);
    for name in names_in(arguments) {
        machine.set_range(&name, Range::exact(Polynomial::variable(&name)));
    }
    for (param, argument) in kernel.params.iter().zip(arguments) {
        if *argument == Expression::Name("_".into()) {
            continue;
        }
        let is_array = param.kind.stars > 0 || param.is_array;
        let value = machine.range_of(argument).as_exact().cloned();
        match value {
            Some(value) if is_array => lengths.insert(param.name.to_string(), value),
            Some(value) => values.insert(param.name.to_string(), value),
            None => continue,
        };
    }
    Ok(())
}

/// A machine in which every name of `--launch` is a size.
fn asked_machine<'a>(derivation: &Derivation<'a>, instance: &Instance) -> Machine<'a> {
    let mut machine = Machine::new(derivation.declared, instance.types.clone());
    machine.unknown_is_size = true;
    machine
}

fn find_launch(
    derivation: &Derivation<'_>,
    instance: &Instance,
    known: Option<&HostLaunch>,
    asked: Option<&LaunchExpression>,
    values: &HashMap<String, Polynomial>,
) -> Result<Launch, Problem> {
    let Derivation { declared, kernel, .. } = *derivation;
    if let Some(asked) = asked {
        let mut machine = asked_machine(derivation, instance);
        for name in names_in(&asked.config) {
            machine.set_range(&name, Range::exact(Polynomial::variable(&name)));
        }
        let config: Vec<Value> =
            asked.config.iter().map(|e| config_value(&mut machine, e)).collect();
        let numbers = launch_numbers(&config);
        if let (Some(grid), Some(block)) = (numbers.grid, numbers.block) {
            let shared = numbers.shared.filter(|_| asked.config.len() > 2);
            let origin = "`--launch`".to_owned();
            return Ok(Launch { grid, block, shared, origin });
        }
        return Err(Problem {
            line: 0,
            text: "grid and block of `--launch` are not understood".to_owned(),
            hint: Some("write numbers or sizes: `<<<(n / 16, m / 16), (16, 16)>>>`".to_owned()),
        });
    }
    let mut block = None;
    let mut shared = None;
    if let Some(known) = known {
        let numbers = launch_numbers(&known.met.config);
        let line = known.met.expression.line;
        shared = numbers.shared.clone();
        if let (Some(grid), Some(block)) = (&numbers.grid, &numbers.block) {
            return Ok(Launch {
                grid: grid.clone(),
                block: block.clone(),
                shared,
                origin: format!("as in line {line}"),
            });
        }
        block = numbers.block.map(|block| (block, line));
    }
    let guessed = guess_launch(declared, kernel, instance, Some(values))
        .map_err(|text| Problem::at(kernel.line, text))?;
    let (block, origin) = match block {
        Some((block, line)) if block.iter().all(|axis| axis.as_number().is_some()) => {
            (block, format!("the block as in line {line}"))
        }
        _ => (guessed.block, format!("the block's shape: {}", guessed.block_origin)),
    };
    Ok(Launch { grid: guessed.grid, block, shared, origin })
}

/// `(64, 64)` or `{64, 64}` as well as a number or `dim3`.
fn config_value(machine: &mut Machine<'_>, expression: &Expression) -> Value {
    if let Expression::List(items) = expression {
        let dim3 = Expression::Call(Box::new(Expression::Name("dim3".into())), items.clone());
        return machine.evaluate(&dim3);
    }
    machine.evaluate(expression)
}

fn names_in(expressions: &[Expression]) -> Vec<String> {
    let mut names = Vec::new();
    for expression in expressions {
        let mut callees = Vec::new();
        expression.visit(&mut |part| {
            if let Expression::Call(function, _) = part
                && let Expression::Name(name) = &**function
            {
                callees.push(name.clone());
            }
        });
        expression.visit(&mut |part| {
            if let Expression::Name(name) = part
                && !callees.contains(name)
            {
                names.push(name.to_string());
            }
        });
    }
    names
}

fn launch_line(launch: &Launch) -> String {
    let axes = |axes: &[Polynomial; 3]| {
        let last = axes.iter().rposition(|axis| axis.as_number() != Some(1)).unwrap_or(0);
        let texts: Vec<String> = axes.iter().take(last + 1).map(Polynomial::text).collect();
        if texts.len() == 1 { texts.concat() } else { format!("({})", texts.join(", ")) }
    };
    let (grid, block) = (axes(&launch.grid), axes(&launch.block));
    format!("launched with `<<<{grid}, {block}>>>`, {}", launch.origin)
}

/// Bytes of dynamic shared memory: as the launch says, else what the kernel touches of it.
fn shared_bytes(
    machine: &Machine<'_>,
    launch: &Launch,
    kernel: &Function,
) -> Result<Option<Polynomial>, Problem> {
    let Some(memory) = machine.dynamic_shared.and_then(|at| machine.memories.get(at)) else {
        return Ok(launch.shared.clone().filter(|bytes| bytes.as_number() != Some(0)));
    };
    if let Some(shared) = &launch.shared {
        return Ok(Some(shared.clone()));
    }
    match (&memory.end, memory.open_line) {
        (Some(end), None) => Ok(Some(end.clone())),
        (_, line) => Err(Problem {
            line: line.unwrap_or(kernel.line),
            text: format!("the dynamic shared memory of `{}` has no size", kernel.name),
            hint: Some(format!(
                "write it, in bytes: `--launch '{}<<<GRID, BLOCK, BYTES>>>'`",
                kernel.name
            )),
        }),
    }
}
