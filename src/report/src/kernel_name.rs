//! Names of kernels as people say them: `mul bf16` for 200 columns of torch's template.
//!
//! A library's kernel is one template around a functor; the functor is what the user called. The
//! name is taken from the text alone, since reports give no more. nsys writes `(int)4` and
//! `[lambda(float) (instance 1)]`, ncu and torch write `4` and `{lambda(float)#1}`; both give the
//! same name. The full name stays in the profile.

use std::collections::{BTreeSet, HashMap};

use rgpu_format::demangle::demangle;

use super::text::cut_middle;
use rgpu_model::Profile;

/// Columns of a short name.
const MAX_COLUMNS: usize = 44;
/// Longer names are only cut: no library makes them, and each level of a name costs a pass over it.
const MAX_BYTES: usize = 16 << 10;
/// Functors within functors that are looked into.
const MAX_DEPTH: usize = 8;

/// Kernels of torch that apply a functor to elements, and what distinguishes them.
const ELEMENTWISE: &[(&str, &str)] = &[
    ("vectorized_elementwise_kernel", "vectorized"),
    ("unrolled_elementwise_kernel", "unrolled"),
    ("elementwise_kernel_with_index", "with index"),
    ("elementwise_kernel", "strided"),
    ("index_elementwise_kernel", "indexed"),
    ("vectorized_gather_kernel", "gather"),
    ("reduce_kernel", ""),
    ("multi_tensor_apply_kernel", ""),
    ("distribution_elementwise_grid_stride_kernel", ""),
];
/// Functors that wrap another one, which is the last of their template arguments.
const WRAPPERS: &[&str] = &[
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "func_wrapper_t",
    "gpu_kernel_impl_nocast",
    "gpu_kernel_impl",
    "normal_and_transform",
    "uniform_and_transform",
];
const TYPES: &[(&str, &str)] = &[
    ("c10::BFloat16", "bf16"),
    ("__nv_bfloat16", "bf16"),
    ("c10::Half", "f16"),
    ("__half", "f16"),
    ("c10::Float8_e4m3fn", "e4m3"),
    ("c10::Float8_e5m2", "e5m2"),
    ("c10::complex<float>", "c64"),
    ("c10::complex<double>", "c128"),
    ("unsigned char", "u8"),
    ("unsigned int", "u32"),
    ("unsigned long", "u64"),
    ("unsigned long long", "u64"),
    ("signed char", "i8"),
    ("float", "f32"),
    ("double", "f64"),
    ("short", "i16"),
    ("int", "i32"),
    ("long", "i64"),
    ("long long", "i64"),
    ("bool", "bool"),
];

/// How reports write the names of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelNames {
    /// As people say them, in at most 44 columns.
    #[default]
    Short,
    /// As the tool gives them.
    Full,
}

impl KernelNames {
    /// The name of one kernel.
    pub fn name(self, name: &str) -> String {
        match self {
            Self::Short => short_name(name),
            Self::Full => name.to_owned(),
        }
    }

    /// The names of a list of kernels of no single profile.
    pub(super) fn distinct<'a>(self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        match self {
            Self::Short => distinct_names(names),
            Self::Full => names.map(str::to_owned).collect(),
        }
    }

    /// The names of a profile's kernels.
    pub(super) fn labels(self, profile: &Profile) -> KernelLabels<'_> {
        let of_full_name = match self {
            Self::Short => labels(profile),
            Self::Full => HashMap::new(),
        };
        KernelLabels { names: self, of_full_name }
    }
}

/// The names of a profile's kernels: one for each, in tables and in sentences.
pub(super) struct KernelLabels<'a> {
    names: KernelNames,
    /// Short names by full ones; empty for [`KernelNames::Full`].
    of_full_name: HashMap<&'a str, String>,
}

impl KernelLabels<'_> {
    /// The name of one kernel, whose full name this is.
    pub(super) fn name(&self, full: &str) -> String {
        self.of_full_name.get(full).cloned().unwrap_or_else(|| self.names.name(full))
    }

    /// The short name of a kernel of the profile; `None` of another text, and where full names are
    /// shown.
    pub(super) fn of_kernel(&self, full: &str) -> Option<&str> {
        self.of_full_name.get(full).map(String::as_str)
    }
}

/// The short name of each kernel of a profile; those of different kernels differ.
fn labels(profile: &Profile) -> HashMap<&str, String> {
    let kernels = profile.kernels.iter().map(|k| &k.kernel);
    let launches = profile.launches.iter().map(|l| &l.kernel);
    let regions = profile.regions.iter().flat_map(|r| &r.kernels).map(|k| &k.kernel);
    let operators = profile.operators.iter().flat_map(|o| &o.kernels).map(|k| &k.kernel);
    let selected = profile.selection.iter().flat_map(|s| &s.kernels).map(|k| &k.kernel);
    let mut seen = BTreeSet::new();
    let all = kernels.chain(launches).chain(regions).chain(operators).chain(selected);
    let all = all.map(String::as_str);
    let all: Vec<&str> = all.filter(|name| seen.insert(*name)).collect();
    let short = distinct_names(all.iter().copied());
    all.into_iter().zip(short).collect()
}

/// A kernel's name in at most 44 columns.
fn short_name(name: &str) -> String {
    cut_middle(&full_short_name(name), MAX_COLUMNS)
}

/// Short names of a table's rows. Equal ones get what distinguishes them; as a last resort a
/// number.
pub(super) fn distinct_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let mut labels: Vec<String> = names.iter().map(|name| short_name(name)).collect();
    for suffixes in [variants, numbers] {
        let mut same: HashMap<String, Vec<&str>> = HashMap::new();
        for (label, name) in labels.iter().zip(&names) {
            let full = same.entry(label.clone()).or_default();
            if !full.contains(name) {
                full.push(name);
            }
        }
        let mut suffix_of: HashMap<&str, String> = HashMap::new();
        for full in same.values().filter(|full| full.len() > 1) {
            suffix_of.extend(full.iter().copied().zip(suffixes(full)));
        }
        for (label, name) in labels.iter_mut().zip(&names) {
            let Some(suffix) = suffix_of.get(name).filter(|s| !s.is_empty()) else { continue };
            let room = MAX_COLUMNS.saturating_sub(suffix.chars().count() + 1);
            *label = format!("{} {suffix}", cut_middle(label, room));
        }
    }
    labels
}

/// `#2`, `#3`, for all but the first.
fn numbers(names: &[&str]) -> Vec<String> {
    let number = |n: usize| if n == 0 { String::new() } else { format!("#{}", n + 1) };
    (0..names.len()).map(number).collect()
}

/// The short name before it is cut.
fn full_short_name(name: &str) -> String {
    if name.len() > MAX_BYTES {
        return name.to_owned();
    }
    // torch leaves long names as the compiler has them.
    let demangled = demangle(name);
    let name = demangled.as_deref().unwrap_or(name);
    let path = segments(without_return_type(name));
    let Some(last) = path.last() else { return name.to_owned() };
    let (kernel, args) = (ident(last), template_args(last));
    elementwise(kernel, &args)
        .or_else(|| nccl(kernel))
        .or_else(|| xmma(kernel))
        .or_else(|| cudnn(kernel))
        .or_else(|| cupy(kernel))
        .or_else(|| cutlass(&path, &args))
        .or_else(|| library(&path, kernel, &args))
        .unwrap_or_else(|| own(&path))
}

/// What distinguishes kernels with one short name, if the texts tell: a word, or the numbers among
/// the template arguments that differ.
fn variants(names: &[&str]) -> Vec<String> {
    let words: Vec<_> = names.iter().map(|name| variant(name)).collect();
    let numbers_of = |word: &Result<String, Vec<String>>| match word {
        Ok(_) => Vec::new(),
        Err(numbers) => numbers.clone(),
    };
    let all: Vec<Vec<String>> = words.iter().map(numbers_of).collect();
    let columns = all.iter().map(Vec::len).max().unwrap_or_default();
    let same_length = all.iter().all(|numbers| numbers.len() == columns);
    let differs = |at: &usize| !same_length || all.iter().any(|n| n[*at] != all[0][*at]);
    let suffix = |(word, numbers): (Result<String, Vec<String>>, &Vec<String>)| match word {
        Ok(word) => word,
        Err(_) => {
            let telling: Vec<&str> =
                (0..numbers.len()).filter(differs).map(|at| numbers[at].as_str()).collect();
            if telling.is_empty() { String::new() } else { format!("<{}>", telling.join(", ")) }
        }
    };
    words.into_iter().zip(&all).map(suffix).collect()
}

/// The word that names a variant of a kernel; `Err` with the numbers among its template arguments
/// if there is none.
fn variant(name: &str) -> Result<String, Vec<String>> {
    let demangled = demangle(name);
    let path = segments(without_return_type(demangled.as_deref().unwrap_or(name)));
    let Some(last) = path.last() else { return Ok(String::new()) };
    let kernel = ident(last);
    if let Some((_, variant)) = ELEMENTWISE.iter().find(|(known, _)| *known == kernel) {
        return Ok((*variant).to_owned());
    }
    if let Some((_, way)) = kernel.split_once("_execute_") {
        return Ok(way.split("_kernel").next().unwrap_or_default().to_owned());
    }
    Err(template_args(last).into_iter().filter_map(number).collect())
}

/// torch's kernels that apply a functor: `mul bf16`, `reduce sum f32`, `foreach add f32`.
fn elementwise(kernel: &str, args: &[&str]) -> Option<String> {
    ELEMENTWISE.iter().find(|(known, _)| *known == kernel)?;
    let mut functors = args.iter().filter(|arg| number(arg).is_none() && scalar(arg).is_none());
    let (prefix, functor) = match kernel {
        "multi_tensor_apply_kernel" => {
            let mut operands = functors.filter(|arg| !arg.contains("TensorList"));
            // The operator comes after the functor that reads the lists: `std::plus<float>`.
            ("foreach ", operands.next_back()?)
        }
        "reduce_kernel" => ("reduce ", functors.next()?),
        "distribution_elementwise_grid_stride_kernel" => ("random ", functors.next()?),
        _ => ("", functors.next()?),
    };
    let (operator, element) = operator_of(functor, 0)?;
    // `addcmul` and `addcdiv`: their own functor has the operator on its operands.
    let is_pointwise = prefix == "foreach " && args.iter().any(|arg| arg.contains("PointwiseOp"));
    let operator = if is_pointwise { format!("addc{operator}") } else { operator };
    let prefix = if operator.starts_with(prefix) { "" } else { prefix };
    // The name of a cast has the type of the result alone; the kernel reads the other one at run
    // time.
    let is_cast = operator == "copy" && args.iter().any(|arg| arg.contains("::LoadWithCast<"));
    Some(match element {
        Some(element) if is_cast && !element.contains('→') => format!("cast to {element}"),
        Some(element) => format!("{prefix}{operator} {element}"),
        None => format!("{prefix}{operator}"),
    })
}

/// The operator that a functor applies, and the type of its elements.
fn operator_of(functor: &str, depth: usize) -> Option<(String, Option<String>)> {
    let path = segments(without_return_type(functor.trim()));
    let named = |segment: &&&str| segment.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let inner = path.iter().filter(named).find(|s| s.contains(['<', '(']));
    let segment = inner.or_else(|| path.iter().rfind(|s| named(s)))?;
    let (name, args) = (ident(segment), template_args(segment));
    let element = element_of(&args);
    if depth < MAX_DEPTH {
        let wrapped = match name {
            "ReduceOp" => args.get(1),
            _ if WRAPPERS.contains(&name) => args.last(),
            _ => None,
        };
        if let Some((operator, of_operator)) = wrapped.and_then(|w| operator_of(w, depth + 1)) {
            let operator = match name {
                "AUnaryFunctor" | "BUnaryFunctor" => format!("{operator} scalar"),
                _ => operator,
            };
            return Some((operator, element.map(str::to_owned).or(of_operator)));
        }
    }
    let element = element.or_else(|| lambda_element(functor));
    let element = match name {
        "bfloat16_copy_kernel_cuda" => element.map(|from| format!("{from}→bf16")),
        "float16_copy_kernel_cuda" => element.map(|from| format!("{from}→f16")),
        _ => element.map(str::to_owned),
    };
    Some((operator_words(name), element))
}

/// `GeluBackwardCUDAKernelImpl` as `gelu backward`, `CUDAFunctor_add` as `add`.
fn operator_words(name: &str) -> String {
    const LEFT_OUT: &[&str] = &[
        "kernel",
        "cuda",
        "cudakernel",
        "impl",
        "functor",
        "cudafunctor",
        "ops",
        "op",
        "launch",
        "direct",
        "nan",
        "tensor",
        "scalar",
        "out",
        "on",
        "self",
        "bfloat16",
        "float16",
    ];
    let mut spaced = String::with_capacity(name.len() + 8);
    let mut before = '_';
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            spaced.push('_');
        }
        before = c;
        spaced.extend(c.to_lowercase());
    }
    let words: Vec<&str> = spaced.split('_').filter(|w| !w.is_empty()).collect();
    let telling: Vec<&str> = words.iter().copied().filter(|w| !LEFT_OUT.contains(w)).collect();
    match telling.join(" ").as_str() {
        "" => name.to_owned(),
        "multiplies" => "mul".to_owned(),
        "divides" => "div".to_owned(),
        "plus" => "add".to_owned(),
        "minus" => "sub".to_owned(),
        "arg max" => "argmax".to_owned(),
        "arg min" => "argmin".to_owned(),
        words => words.to_owned(),
    }
}

/// The element type among template arguments: the first floating-point one, since integers are
/// often sizes or indices.
fn element_of(args: &[&str]) -> Option<&'static str> {
    let known = || args.iter().filter_map(|arg| scalar(arg));
    known()
        .find(|known| !known.starts_with(['i', 'u']) && *known != "bool")
        .or_else(|| known().next())
}

/// The type of the first parameter of the last lambda.
fn lambda_element(text: &str) -> Option<&'static str> {
    let at = text.rfind("lambda(")? + "lambda(".len();
    let rest = &text[at..];
    scalar(rest[..rest.find([')', ','])?].trim())
}

/// NCCL's kernels: `ncclDevKernel_AllReduce_Sum_f32_RING_LL` as `nccl AllReduce Sum f32 RING LL`.
fn nccl(kernel: &str) -> Option<String> {
    Some(format!("nccl {}", kernel.strip_prefix("ncclDevKernel_")?.replace('_', " ")))
}

/// cuBLAS' and cuDNN's kernels of the xmma family: operation, type, layout and tile.
fn xmma(kernel: &str) -> Option<String> {
    let (_, rest) = kernel.split_once("_xmma_")?;
    let words: Vec<&str> = rest.split('_').collect();
    let tile = words.iter().find_map(|word| word.strip_prefix("tilesize"))?;
    let types = words.iter().position(|word| {
        let half = word.len() / 2;
        word.len() % 2 == 0 && word.is_char_boundary(half) && {
            let (a, b) = word.split_at(half);
            a == b && a.ends_with(|c: char| c.is_ascii_digit())
        }
    })?;
    let operation = words[..types].join(" ").replace("implicit gemm", "conv");
    let element = match words.get(types + 1) {
        Some(compute) if compute.starts_with("tf32") => "tf32",
        _ => &words[types][..words[types].len() / 2],
    };
    // Matrix products name their layouts in one or two letters; convolutions have one layout.
    let layout = words.get(types + 3).filter(|l| l.len() == 2).map(|l| format!(" {l}"));
    Some(format!("xmma {operation} {element}{} {tile}", layout.unwrap_or_default()))
}

/// cuDNN's generated kernels: `cudnn sdpa flash fprop f16 16x128x64`.
fn cudnn(kernel: &str) -> Option<String> {
    let rest = kernel.strip_prefix("cudnn_generated_fort_native_")?;
    let words: Vec<&str> = rest.split('_').collect();
    let knob = words.iter().position(|word| *word == "knob")?;
    let said =
        words[..knob].iter().filter(|word| !word.starts_with("sm") && !word.ends_with("mma"));
    let tile = words.get(knob + 2).copied().unwrap_or_default();
    Some(format!("cudnn {} {tile}", said.copied().collect::<Vec<_>>().join(" ")))
}

/// CuPy's kernels for elements, which it names by operation, types of the arguments and type of the
/// result: `cupy_add__float32_float_float32` as `cupy add f32`, `float` being a number of Python.
fn cupy(kernel: &str) -> Option<String> {
    const ARRAYS: &[(&str, &str)] = &[
        ("float16", "f16"),
        ("float32", "f32"),
        ("float64", "f64"),
        ("int8", "i8"),
        ("int16", "i16"),
        ("int32", "i32"),
        ("int64", "i64"),
        ("uint8", "u8"),
        ("uint16", "u16"),
        ("uint32", "u32"),
        ("uint64", "u64"),
        ("complex64", "c64"),
        ("complex128", "c128"),
        ("bool", "bool"),
    ];
    let (operation, types) = kernel.strip_prefix("cupy_")?.split_once("__")?;
    let is_number = |word: &&str| matches!(*word, "float" | "int" | "complex");
    let arrays = types.split('_').filter(|word| !is_number(word));
    let short = arrays.map(|word| ARRAYS.iter().find(|(known, _)| *known == word).map(|a| a.1));
    let arrays: Vec<&str> = short.collect::<Option<_>>()?;
    let (result, arguments) = arrays.split_last()?;
    let mut from: Vec<&str> = Vec::new();
    for argument in arguments {
        if argument != result && !from.contains(argument) {
            from.push(argument);
        }
    }
    let arrow = if from.is_empty() { String::new() } else { format!("{}→", from.join(",")) };
    Some(format!("cupy {} {arrow}{result}", operation.replace('_', " ")))
}

/// CUTLASS' kernels: the name that the instance has, else operation, type and tile.
fn cutlass(path: &[&str], args: &[&str]) -> Option<String> {
    path.first().filter(|first| first.starts_with("cutlass"))?;
    let instance = args.first()?;
    if !instance.contains('<') {
        return Some((*instance).to_owned());
    }
    const OPERATIONS: &[(&str, &str)] = &[
        ("Wgrad", "conv wgrad"),
        ("Dgrad", "conv dgrad"),
        ("Fprop", "conv fprop"),
        ("Attention", "attention"),
        ("ReduceSplitK", "reduce split-k"),
        ("gemm", "gemm"),
        ("Gemm", "gemm"),
    ];
    const ELEMENTS: &[(&str, &str)] = &[
        ("bfloat16_t", "bf16"),
        ("half_t", "f16"),
        ("float_e4m3_t", "e4m3"),
        ("float_e5m2_t", "e5m2"),
        ("float_e2m1_t", "e2m1"),
        ("tfloat32_t", "tf32"),
        ("float", "f32"),
    ];
    let first = |table: &[(&'static str, &'static str)]| {
        table.iter().find(|(word, _)| instance.contains(word)).map(|(_, name)| *name)
    };
    let tile = ["GemmShape<", "tuple<"].iter().find_map(|word| {
        let at = instance.find(word)? + word.len() - 1;
        let sizes = bracketed(&instance[at..])?;
        let sizes: Vec<String> = split_args(sizes).into_iter().filter_map(tile_size).collect();
        (sizes.len() >= 2).then(|| sizes.join("x"))
    });
    let words =
        ["cutlass", first(OPERATIONS).unwrap_or_default(), first(ELEMENTS).unwrap_or_default()];
    let words = words.into_iter().chain(tile.as_deref()).filter(|word| !word.is_empty());
    Some(words.collect::<Vec<_>>().join(" "))
}

/// A tile's size: `(int)128`, `128`, `cute::C<128>`.
fn tile_size(text: &str) -> Option<String> {
    let inner = bracketed(text).unwrap_or(text);
    number(inner).filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// Kernels of libraries: their last name and the type of their elements.
fn library(path: &[&str], kernel: &str, args: &[&str]) -> Option<String> {
    const LIBRARIES: &[(&str, &str)] = &[
        ("cub", "cub::"),
        ("thrust", "thrust::"),
        ("cublasLt", "cublasLt::"),
        ("cudnn", "cudnn::"),
        ("stream_executor", "xla::"),
        ("native", ""),
        ("at", ""),
    ];
    if let Some(way) = kernel.strip_prefix("CatArrayBatchedCopy") {
        return Some(format!("cat{}{}", way.replace('_', " "), opaque_bits(args)));
    }
    // CuPy's kernels for random numbers.
    if args.iter().any(|arg| arg.contains("curand_pseudo_state<")) {
        let functor = args.iter().find(|arg| arg.ends_with("_functor"));
        return Some(format!("cupy {}", functor.map_or(kernel.to_owned(), |f| operator_words(f))));
    }
    let spaces = &path[..path.len() - 1];
    let is_cudnn = |word: &&str| word.ends_with("__5x_cudnn") || word.contains("cudnnKernelData");
    let of_cudnn = spaces.iter().chain(args).any(is_cudnn);
    // torch has kernels outside its namespace; their arguments give them away.
    let known = LIBRARIES.iter().find(|(space, _)| spaces.contains(space));
    let prefix = match known {
        Some((_, prefix)) => prefix,
        None if of_cudnn => "cudnn::",
        None if args.iter().any(|arg| arg.starts_with("c10::")) => "",
        None => return None,
    };
    let element = element_of(args);
    Some(match element {
        Some(element) => format!("{prefix}{kernel} {element}"),
        None => format!("{prefix}{kernel}"),
    })
}

/// The size of elements that torch copies whatever their type: ` 16-bit`.
fn opaque_bits(args: &[&str]) -> String {
    let size = args.iter().find_map(|arg| bracketed(&arg[arg.find("OpaqueType<")?..]));
    let bytes = size.and_then(number).and_then(|bytes| bytes.parse::<u32>().ok());
    bytes.map_or_else(String::new, |bytes| format!(" {}-bit", bytes.saturating_mul(8)))
}

/// A user's kernel: its path and template arguments, without parameters, casts and unnamed
/// namespaces.
fn own(path: &[&str]) -> String {
    let named = path.iter().filter(|s| !matches!(**s, "<unnamed>" | "(anonymous namespace)"));
    let mut text = named.copied().collect::<Vec<_>>().join("::");
    if let Some(at) = parameters(&text) {
        text.truncate(at);
    }
    without_casts(text.trim())
}

/// `tile<float, (int)4>` as `tile<float, 4>`.
fn without_casts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('(') {
        let (before, cast) = rest.split_at(at);
        out.push_str(before);
        let end = cast.find(')').map(|end| end + 1);
        rest = match end {
            Some(end) if cast[end..].starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                &cast[end..]
            }
            _ => {
                out.push('(');
                &cast[1..]
            }
        };
    }
    out.push_str(rest);
    out
}

/// The offset of the parameter list: the first parenthesis after a name that is not inside template
/// arguments.
fn parameters(name: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 && at > 0 && !name[..at].ends_with([':', ' ']) => return Some(at),
            _ => {}
        }
    }
    None
}

fn without_return_type(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("void ").unwrap_or(name)
}

/// The parts of a path: `at`, `native`, `fill<int>(int)`. Brackets keep what is inside together.
fn segments(text: &str) -> Vec<&str> {
    split_outside(text, "::")
}

/// The arguments of a list.
fn split_args(text: &str) -> Vec<&str> {
    split_outside(text, ",").into_iter().map(str::trim).filter(|arg| !arg.is_empty()).collect()
}

fn split_outside<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ if depth == 0 && bytes[at..].starts_with(separator.as_bytes()) => {
                parts.push(&text[start..at]);
                at += separator.len();
                start = at;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&text[start..]);
    parts
}

/// A segment's own name: `fill` of `fill<int>(int)`.
fn ident(segment: &str) -> &str {
    segment.split(['<', '(']).next().unwrap_or_default().trim()
}

/// A segment's template arguments.
fn template_args(segment: &str) -> Vec<&str> {
    let own = segment.split('(').next().unwrap_or_default();
    match own.find('<').and_then(|at| bracketed(&segment[at..])) {
        Some(args) => split_args(args),
        None => Vec::new(),
    }
}

/// The text within the first pair of angle brackets.
fn bracketed(text: &str) -> Option<&str> {
    let start = text.find('<')? + 1;
    let (mut depth, bytes) = (1_usize, text.as_bytes());
    for at in start..bytes.len() {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' if bytes[at - 1] == b'-' => {}
            b'>' if depth == 1 => return Some(&text[start..at]),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A template argument that is a number, without its cast.
fn number(arg: &str) -> Option<String> {
    let value = match arg.strip_prefix('(').and_then(|cast| cast.split_once(')')) {
        Some((_, value)) => value,
        None => arg,
    };
    let value = value.trim().trim_end_matches(['u', 'U', 'l', 'L']);
    let digits = value.strip_prefix('-').unwrap_or(value);
    let known = matches!(value, "true" | "false");
    (known || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())))
        .then(|| value.to_owned())
}

/// The short form of an element type.
fn scalar(text: &str) -> Option<&'static str> {
    let text = text.trim().trim_start_matches("const ");
    TYPES.iter().find(|(known, _)| *known == text).map(|(_, short)| *short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that nsys 2025.3.1 gave of twelve programs on an H200: `tests/gpu/programs`.
    const RECORDED: &str =
        include_str!("../../../tests/fixtures/kernel_names/nsys-2025.3.1-h200.txt");

    #[test]
    fn recorded_names_of_libraries_become_these() {
        let names: Vec<&str> = RECORDED.lines().collect();
        let labels = distinct_names(names.iter().copied());
        let mut unique = labels.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(labels.iter().all(|label| label.chars().count() <= MAX_COLUMNS));
        let lines = labels.iter().zip(&names).map(|(label, name)| {
            format!("{label:MAX_COLUMNS$} {}\n", name.chars().take(100).collect::<String>())
        });
        insta::assert_snapshot!(lines.collect::<String>());
    }

    #[test]
    fn nsys_ncu_and_torch_spell_one_kernel_in_their_own_ways() {
        for name in [
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int, at::native::FillFunctor<int>, std::array<char*, 1ul>)",
            "vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >",
        ] {
            assert_eq!(short_name(name), "fill i32");
        }
        for name in [
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)], X>(int)",
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}, X>(int)",
        ] {
            assert_eq!(short_name(name), "copy f32");
        }
    }

    #[test]
    fn a_copy_that_changes_the_type_is_a_cast() {
        let copy = |loader: &str, storer: &str| {
            short_name(&format!(
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3}}::operator()() const::{{lambda(float)#1}}, std::array<char*, 2ul>, 4, at::native::memory::{loader}, at::native::memory::{storer}>(int)"
            ))
        };
        assert_eq!(copy("LoadWithCast<1>", "StoreWithCast<1>"), "cast to f32");
        assert_eq!(copy("LoadWithoutCast", "StoreWithoutCast"), "copy f32");
        let sum = "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4, at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1> >(int)";
        assert_eq!(short_name(sum), "add f32");
    }

    #[test]
    fn a_users_names_lose_parameters_casts_and_unnamed_namespaces() {
        assert_eq!(short_name("void add<float>(float*, int)"), "add<float>");
        assert_eq!(short_name("(anonymous namespace)::k(int)"), "k");
        assert_eq!(short_name("<unnamed>::k(int)"), "k");
        assert_eq!(short_name("void tile<float, (int)4>(T1 *)"), "tile<float, 4>");
        assert_eq!(short_name("mine::deep::k<(bool)1>()"), "mine::deep::k<1>");
        assert_eq!(short_name(&"x".repeat(60)).chars().count(), MAX_COLUMNS);
        assert_eq!(
            short_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"),
            "nccl AllReduce Sum f32 RING LL"
        );
    }

    #[test]
    fn kernels_without_a_namespace_of_their_library_are_known() {
        for (name, short) in [
            (
                "void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<at::native::<unnamed>::OpaqueType<(unsigned int)2>, unsigned int, (int)3, (int)128>(char *, int)",
                "cat vectorized 16-bit",
            ),
            (
                "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int)",
                "cudnn::nhwcAddPaddingKernel bf16",
            ),
            (
                "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::P<xmma__5x_cudnn::G> >(xmma__5x_cudnn::P<xmma__5x_cudnn::G>, bool)",
                "cudnn::init_device_workspace_kernel",
            ),
            (
                "void init_curand<curand_pseudo_state<curandStateXORWOW>>(long, unsigned long, long)",
                "cupy init_curand",
            ),
            (
                "void execute_dist<random_uniform_float_functor, curand_pseudo_state<curandStateXORWOW>, float, >(long, T4...)",
                "cupy random uniform float",
            ),
            ("_ZN2at6native11FillFunctorIfEEvv", "FillFunctor f32"),
            ("cupy_multiply__float_float32_float32", "cupy multiply f32"),
            ("cupy_copy__int32_float64", "cupy copy i32→f64"),
            ("cupy_mine", "cupy_mine"),
        ] {
            assert_eq!(short_name(name), short);
        }
    }

    #[test]
    fn equal_names_get_only_the_numbers_that_differ() {
        let names =
            ["k<(int)4, float, (int)64, (int)1>(int)", "k<(int)4, float, (int)32, (int)1>(int)"];
        let names = names.map(|name| format!("void at::native::{name}"));
        assert_eq!(distinct_names(names.iter().map(String::as_str)), ["k f32 <64>", "k f32 <32>"]);
    }

    #[test]
    fn names_that_no_compiler_makes_do_no_harm() {
        let deep = format!("reduce_kernel<{}", "func_wrapper_t<".repeat(1000));
        for name in [
            "",
            "::",
            "<",
            ">",
            "(",
            "void ",
            "reduce_kernel<>",
            "reduce_kernel<(",
            "é_xmma_é_tilesize",
            "cutlass<",
            &deep,
        ] {
            assert!(short_name(name).chars().count() <= MAX_COLUMNS, "{name}");
        }
    }
}
