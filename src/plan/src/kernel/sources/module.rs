//! Compiled code: a cubin, a fatbin, or PTX.
//!
//! A mangled symbol tells the types of a kernel's parameters, as does PTX; a cubin alone tells
//! their sizes. From these a declaration in C++ is made with a body that touches arrays as most
//! kernels with such parameters do, and it is read as if it were a source
//! ([`super::super::cuda_source`]). `--launch` says what is known better.

mod ptx_use;

use std::path::Path;

use rgpu_format::container::{Image, Limits, walk};
use rgpu_format::{cubin, demangle, ptx};

use self::ptx_use::{ParamUse, SizeUse, uses_of};
use super::super::cuda_source::infer::infer;
use super::super::{EntryPoint, FoundKernel, is_identifier, plain_kernel_name};
use super::{Found, KernelSource};
use crate::kernel::KernelError;
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// Compiled code.
pub(super) static MODULE: KernelSource = KernelSource {
    name: "compiled GPU code",
    read: |path| read(path, None).map(|found| found.map(Found::Kernel)),
};

/// Bytes of one image of a fatbin after it is unpacked.
const MAX_IMAGE_BYTES: u64 = 256 << 20;

/// A kernel of a module.
struct ModuleKernel {
    symbol: String,
    /// The name with template arguments and parameters, if the symbol is mangled.
    demangled: Option<String>,
    params: Vec<ModuleParam>,
    /// Threads of a block, if the code limits or demands them.
    block: Option<u32>,
    /// How it uses its parameters; empty if that is not known.
    uses: Vec<ParamUse>,
    /// Whether it reads `%tid.y` or `%ctaid.y`; `None` if that is not known.
    is_flat: Option<bool>,
}

/// A parameter, as far as the code tells.
struct ModuleParam {
    bytes: u32,
    /// Its type in C++; `None` if only its size is known.
    kind: Option<String>,
}

/// Reads a module with the value of `--launch`. `None` if the file is no module.
pub(in crate::kernel) fn read(
    path: &Path,
    launch: Option<&str>,
) -> Option<Result<FoundKernel, KernelError>> {
    let extension = path.extension()?.to_str()?;
    if !super::super::spec::COMPILED_EXTENSIONS.contains(&extension) {
        return None;
    }
    let bytes = match agent_files::read(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => return Some(Err(KernelError::unreadable(path, None)(error))),
    };
    let kernels = match kernels(&bytes) {
        Ok(kernels) => kernels,
        Err(problem) => return Some(Err(refused(path, problem, None))),
    };
    Some(found(path, &kernels, launch))
}

fn refused(path: &Path, problem: String, instead: Option<String>) -> KernelError {
    let fallback = format!("`rgpu disasm {}` shows its code", shell_word(path.display()));
    KernelError::NotInferred {
        file: path.to_owned(),
        problem,
        instead: Some(instead.unwrap_or(fallback)),
    }
}

/// The kernels of a module, of a fatbin those of its first image that can be read.
fn kernels(bytes: &[u8]) -> Result<Vec<ModuleKernel>, String> {
    if cubin::is_cubin(bytes) {
        return of_cubin(bytes);
    }
    if ptx::is_ptx(bytes) {
        return Ok(of_ptx(&String::from_utf8_lossy(bytes)));
    }
    let limits = Limits { unpacked_bytes: MAX_IMAGE_BYTES, ..Limits::default() };
    let mut found: Result<Vec<ModuleKernel>, String> = Err("it holds no GPU code".to_owned());
    let walked = walk(bytes, &limits, &mut |_, image: Result<Image<'_>, _>| {
        if found.as_ref().is_ok_and(|kernels| !kernels.is_empty()) {
            return;
        }
        let Ok(image) = image else { return };
        let Ok(bytes) = image.bytes(&limits) else { return };
        found = if cubin::is_cubin(&bytes) {
            of_cubin(&bytes)
        } else {
            Ok(of_ptx(&String::from_utf8_lossy(&bytes)))
        };
    });
    match walked {
        Ok(_) => found,
        Err(error) => Err(error.to_string()),
    }
}

fn of_cubin(bytes: &[u8]) -> Result<Vec<ModuleKernel>, String> {
    let cubin = cubin::read(bytes).map_err(|error| error.to_string())?;
    let kernels = cubin.kernels.into_iter();
    Ok(kernels
        .map(|kernel| {
            let threads = |shape: [u32; 3]| shape.into_iter().try_fold(1_u32, u32::checked_mul);
            let block = kernel.required_block.or(kernel.max_threads).and_then(threads);
            let params = kernel.params.iter();
            let params = params.map(|param| ModuleParam { bytes: param.bytes, kind: None });
            named(kernel.name, params.collect(), block, None, Vec::new())
        })
        .collect())
}

/// The kernels of PTX: `.entry name( .param .u64 name, … )`.
fn of_ptx(text: &str) -> Vec<ModuleKernel> {
    let mut kernels = Vec::new();
    // The text of a kernel ends where the next begins.
    for rest in text.split(".entry").skip(1) {
        let end = rest.find('{').unwrap_or(rest.len());
        let (head, body) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let body = body.split("\n}").next().unwrap_or_default();
        let name = head.trim_start().split(['(', ' ', '\n', '\r']).next().unwrap_or_default();
        if name.is_empty() {
            continue;
        }
        let inside = head.split_once('(').map_or("", |(_, inside)| inside);
        let inside = inside.rsplit_once(')').map_or(inside, |(inside, _)| inside);
        let after = head.rsplit_once(')').map_or("", |(_, after)| after);
        let params = inside.split(',').filter(|param| param.contains(".param"));
        let is_flat =
            !["%tid.y", "%tid.z", "%ctaid.y", "%ctaid.z"].iter().any(|r| body.contains(r));
        let block = ptx_threads(after);
        let names: Vec<&str> = params.clone().map(ptx_param_name).collect();
        let uses = uses_of(body, &names);
        let mut params: Vec<ModuleParam> = params.map(ptx_param).collect();
        for (param, used) in params.iter_mut().zip(&uses) {
            param.narrow(used, body);
        }
        kernels.push(named(name.to_owned(), params, block, Some(is_flat), uses));
    }
    kernels
}

/// `.maxntid 256, 1, 1` or `.reqntid 256`.
fn ptx_threads(directives: &str) -> Option<u32> {
    let rest = [".reqntid", ".maxntid"].iter().find_map(|d| directives.split_once(d))?.1;
    let numbers = rest.split(['.', '{']).next().unwrap_or_default();
    numbers
        .split(',')
        .map(|number| number.split_whitespace().next().unwrap_or_default().parse::<u32>().ok())
        .try_fold(1_u32, |product, number| product.checked_mul(number?))
}

/// The last word without its extent.
fn ptx_param_name(param: &str) -> &str {
    let word = param.split_whitespace().last().unwrap_or_default();
    word.split('[').next().unwrap_or_default()
}

impl ModuleParam {
    /// Takes over what the kernel's instructions tell of its type.
    fn narrow(&mut self, used: &ParamUse, body: &str) {
        let is_array = self.kind.as_deref() == Some("float *");
        self.kind = match (used.element, self.bytes) {
            (Some(element), 8) if is_array => {
                let constant = if used.is_written { "" } else { "const " };
                Some(format!("{constant}{element} *"))
            }
            // What no address is computed of is a number, unless another function gets it.
            (None, 8) if is_array && used.size.is_some() && !body.contains("call") => {
                Some("long long".to_owned())
            }
            (None, 4) if used.is_float => Some("float".to_owned()),
            _ => self.kind.take(),
        };
    }
}

/// `.param .u64 .ptr .global .align 1 name`, `.param .align 8 .b8 name[16]`.
fn ptx_param(param: &str) -> ModuleParam {
    let words: Vec<&str> = param.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let element = ["64", "32", "16", "8"]
        .iter()
        .find(|bits| ["u", "s", "b", "f"].iter().any(|k| has(&format!(".{k}{bits}"))));
    let unit: u32 = element.and_then(|bits| bits.parse::<u32>().ok()).unwrap_or(64) / 8;
    let count = param
        .rsplit_once('[')
        .and_then(|(_, count)| count.trim_end().trim_end_matches(']').parse::<u32>().ok());
    let kind = match (unit, count) {
        (_, Some(_)) => None,
        _ if has(".f32") => Some("float"),
        _ if has(".f64") => Some("double"),
        (8, None) => Some("float *"),
        (4, None) => Some("int"),
        (2, None) => Some("unsigned short"),
        (1, None) => Some("unsigned char"),
        _ => None,
    };
    ModuleParam { bytes: unit.saturating_mul(count.unwrap_or(1)), kind: kind.map(str::to_owned) }
}

/// A kernel whose mangled symbol, if it has one, gives the types of its parameters.
fn named(
    symbol: String,
    mut params: Vec<ModuleParam>,
    block: Option<u32>,
    is_flat: Option<bool>,
    uses: Vec<ParamUse>,
) -> ModuleKernel {
    let demangled = demangle::demangle(&symbol).filter(|text| text.ends_with(')'));
    if let Some(text) = &demangled {
        let short = demangle::short(text);
        let start = text.find(short).map(|at| at + short.len());
        let inside = start.and_then(|start| text.get(start..)).unwrap_or_default();
        let inside = inside.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let kinds = split_types(inside.unwrap_or_default());
        if kinds.len() == params.len() {
            for (param, kind) in params.iter_mut().zip(kinds) {
                param.kind = Some(kind);
            }
        }
    }
    for param in params.iter_mut().filter(|param| param.kind.is_none()) {
        param.kind = match param.bytes {
            8 => Some("float *".to_owned()),
            4 => Some("int".to_owned()),
            2 => Some("unsigned short".to_owned()),
            1 => Some("unsigned char".to_owned()),
            _ => None,
        };
    }
    ModuleKernel { symbol, demangled, params, block, uses, is_flat }
}

/// Splits a list of types at the commas outside of brackets.
fn split_types(text: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let parts = text.split(|c: char| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

impl ModuleKernel {
    /// The name as people write it: `matmul<float, 16>`.
    fn name(&self) -> &str {
        self.demangled.as_deref().map_or(&self.symbol, demangle::short)
    }

    /// The name without namespaces and template arguments.
    fn plain(&self) -> &str {
        plain_kernel_name(self.name())
    }

    /// The plain name as an identifier of C++.
    fn declared_name(&self) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name: String = self.plain().chars().map(|c| if is_part(c) { c } else { '_' }).collect();
        if is_identifier(&name) { name } else { "kernel".to_owned() }
    }
}

fn found(
    path: &Path,
    kernels: &[ModuleKernel],
    launch: Option<&str>,
) -> Result<FoundKernel, KernelError> {
    let names: Vec<String> = kernels.iter().map(|k| format!("`{}`", k.name())).collect();
    let list = names.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
    let word = shell_word(path.display());
    let (name, rest) = match launch {
        Some(text) => text.split_at(text.find("<<<").unwrap_or(text.len())),
        None => ("", ""),
    };
    let squeezed = |text: &str| text.replace(' ', "");
    let wanted = squeezed(name);
    let is_exact = |k: &&ModuleKernel| {
        k.symbol == wanted || squeezed(k.name()) == wanted || k.plain() == wanted
    };
    let mut matching: Vec<&ModuleKernel> = kernels.iter().filter(is_exact).collect();
    if matching.is_empty() {
        let begins = |k: &&ModuleKernel| {
            squeezed(k.name()).starts_with(&wanted) || k.plain().starts_with(&wanted)
        };
        matching = kernels.iter().filter(begins).collect();
    }
    if let (None, [_, _, ..]) = (launch, matching.as_slice()) {
        // The first that can be launched without help.
        let found = matching.iter().find_map(|kernel| {
            let found = infer_kernel(path, kernel, "").ok()?;
            Some((kernel, found))
        });
        if let Some((kernel, mut found)) = found {
            let line = format!(
                "of its {} kernels `{}`; `--launch NAME` chooses another: {list}",
                kernels.len(),
                kernel.name()
            );
            found.assumptions.insert(0, line);
            return Ok(found);
        }
    }
    let [kernel] = matching.as_slice() else {
        let problem = match (kernels.len(), matching.len()) {
            (0, _) => "it has no kernel".to_owned(),
            (_, 0) => format!("it has no kernel `{name}`"),
            (_, several) => format!("{several} of its kernels could be meant"),
        };
        let hint = format!("name one: `rgpu profile {word} --launch NAME`; it has {list}");
        return Err(refused(path, problem, Some(hint)));
    };
    infer_kernel(path, kernel, rest)
}

/// The launch of one kernel; `rest` is what follows its name in `--launch`.
fn infer_kernel(
    path: &Path,
    kernel: &ModuleKernel,
    rest: &str,
) -> Result<FoundKernel, KernelError> {
    let source = declaration(path, kernel)?;
    let asked = format!("{}{rest}", kernel.declared_name());
    let mut found = infer(path, &source, Some(&asked))?;
    found.spec.entry = EntryPoint::Device(kernel.symbol.clone());
    let types: Vec<&str> = kernel.params.iter().filter_map(|p| p.kind.as_deref()).collect();
    let origin = match (&kernel.demangled, kernel.uses.is_empty()) {
        (Some(_), _) => "its symbol says so",
        (None, false) => "by its instructions",
        (None, true) => "by their sizes",
    };
    let line = format!("`{}` takes ({}): {origin}", kernel.name(), types.join(", "));
    found.assumptions.insert(0, line);
    if rest.is_empty() {
        let hint = if kernel.uses.iter().any(|used| used.size.is_some()) {
            "launch and elements fit its comparisons and rows; `--launch` gives others"
        } else {
            "what it does with its arrays is not known: `--launch` gives launch and elements"
        };
        found.assumptions.insert(1, hint.to_owned());
    }
    Ok(found)
}

/// A source with the kernel's declaration and a body that touches its arrays as a kernel of this
/// kind usually does, so that a launch can be guessed.
fn declaration(path: &Path, kernel: &ModuleKernel) -> Result<String, KernelError> {
    let (mut params, mut arrays, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let mut by_use: Vec<(SizeUse, String)> = Vec::new();
    let integers = kernel.params.iter().filter(|p| p.kind.as_deref().is_some_and(is_size)).count();
    for (at, param) in kernel.params.iter().enumerate() {
        let Some(kind) = &param.kind else {
            let problem = format!(
                "parameter {at} of `{}` has {} bytes: a structure, of which only the source tells",
                kernel.name(),
                param.bytes
            );
            return Err(refused(
                path,
                problem,
                Some("profile its source, or the program that launches it".to_owned()),
            ));
        };
        let name = if is_size(kind) {
            let name = if integers == 1 { "n".to_owned() } else { format!("n{}", sizes.len()) };
            sizes.push(name.clone());
            let used = kernel.uses.get(at).and_then(|used| used.size);
            by_use.extend(used.map(|used| (used, name.clone())));
            name
        } else if kind.contains('*') {
            let name = format!("p{at}");
            arrays.push(name.clone());
            name
        } else {
            format!("x{at}")
        };
        params.push(format!("{kind} {name}"));
    }
    let touch = |index: &str| -> String {
        arrays.iter().map(|name| format!("{name}[{index}]; ")).collect()
    };
    let index = "int x = blockIdx.x * blockDim.x + threadIdx.x; ";
    let body = body_by_use(kernel, &by_use, &touch).unwrap_or_else(|| match (sizes.as_slice(), kernel.is_flat) {
        // One element for each thread.
        ([], _) => format!("{index}{}", touch("x")),
        ([only], _) => format!("{index}if (x < {only}) {{ {}}}", touch("x")),
        ([rows, columns, ..], Some(false)) => format!(
            "{index}int y = blockIdx.y * blockDim.y + threadIdx.y; \
             if (x < {columns} && y < {rows}) {{ {}}}",
            touch(&format!("y * {columns} + x"))
        ),
        // A block for each row.
        ([rows, columns, ..], _) => format!(
            "if (blockIdx.x < {rows}) for (int i = threadIdx.x; i < {columns}; i += blockDim.x) \
             {{ {}}}",
            touch(&format!("blockIdx.x * {columns} + i"))
        ),
    });
    let bounds = kernel.block.map(|threads| format!("__launch_bounds__({threads}) "));
    Ok(format!(
        "__global__ void {}{}({}) {{ {body} }}",
        bounds.unwrap_or_default(),
        kernel.declared_name(),
        params.join(", ")
    ))
}

/// A body that touches the arrays as the sizes are used; `None` if no size is seen to be used.
fn body_by_use(
    kernel: &ModuleKernel,
    by_use: &[(SizeUse, String)],
    touch: &dyn Fn(&str) -> String,
) -> Option<String> {
    let named = |wanted: &[SizeUse]| -> Vec<&str> {
        let found = by_use.iter().filter(|(used, _)| wanted.contains(used));
        found.map(|(_, name)| name.as_str()).collect()
    };
    let index = "int x = blockIdx.x * blockDim.x + threadIdx.x; ";
    let columns = named(&[SizeUse::Below(0), SizeUse::RowLength]);
    let has_rows = !named(&[SizeUse::RowLength]).is_empty();
    if let ([column, ..], [row, ..], Some(false)) =
        (columns.as_slice(), named(&[SizeUse::Below(1)]).as_slice(), kernel.is_flat)
    {
        return Some(format!(
            "{index}int y = blockIdx.y * blockDim.y + threadIdx.y; \
             if (x < {column} && y < {row}) {{ {}}}",
            touch(&format!("y * {column} + x"))
        ));
    }
    if has_rows && kernel.is_flat == Some(true) {
        // A block for each row, whose lengths may differ from array to array.
        let limit = named(&[SizeUse::Rows]);
        let limit = limit.first().map(|rows| format!("if (blockIdx.x < {rows}) "));
        let loops = columns.iter().map(|length| {
            format!(
                "for (int i = threadIdx.x; i < {length}; i += blockDim.x) {{ {}}} ",
                touch(&format!("blockIdx.x * {length} + i"))
            )
        });
        return Some(format!("{}{{ {}}}", limit.unwrap_or_default(), loops.collect::<String>()));
    }
    match (columns.as_slice(), kernel.is_flat) {
        ([only], Some(true)) => Some(format!("{index}if (x < {only}) {{ {}}}", touch("x"))),
        _ => None,
    }
}

/// Whether a type is that of a size.
fn is_size(kind: &str) -> bool {
    let integers =
        ["int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long"];
    integers.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::{kernels, read};
    use crate::kernel::EntryPoint;

    #[test]
    fn a_kernel_of_ptx_is_launched_for_its_one_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("add.ptx");
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry _Z3addPKfPfi(\n\
                    .param .u64 _Z3addPKfPfi_param_0,\n.param .u64 _Z3addPKfPfi_param_1,\n\
                    .param .u32 _Z3addPKfPfi_param_2\n)\n.maxntid 128, 1, 1\n{\nmov.u32 %r1, %tid.x;\nret;\n}\n";
        std::fs::write(&file, text).unwrap();
        let found = read(&file, None).unwrap().unwrap();
        assert_eq!(found.spec.entry, EntryPoint::Device("_Z3addPKfPfi".into()));
        let case = &found.spec.cases(&Default::default()).unwrap()[0];
        let launch = case.launch.as_ref().unwrap();
        assert_eq!((launch.grid[0], launch.block[0]), (1 << 17, 128));
        let given = read(&file, Some("add<<<n / 64, 64>>>(n, 2 * n, n)")).unwrap().unwrap();
        let shapes: Vec<&str> =
            given.spec.args.iter().filter_map(|a| a.shape.first()).map(|e| e.text()).collect();
        assert_eq!(shapes, ["n", "2 * n"]);
        let wrong = read(&file, Some("sub")).unwrap().unwrap_err();
        assert!(wrong.to_string().contains("no kernel `sub`"), "{wrong}");
    }

    #[test]
    fn kernels_of_real_cubins_have_the_types_of_their_symbols() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cubin");
        let image = std::fs::read(format!("{fixtures}/13.5/facts/sm_100a.cubin")).unwrap();
        let found = kernels(&image).unwrap();
        let spilling = found.iter().find(|kernel| kernel.plain() == "spilling").unwrap();
        let kinds: Vec<_> = spilling.params.iter().map(|param| param.kind.as_deref()).collect();
        assert_eq!(kinds, [Some("float*"), Some("Pair"), Some("char"), Some("unsigned short")]);
        assert!(kernels(b"no module").is_err());
    }
}
