//! The options with which a CUDA program is compiled: those of the command line that its own
//! comments give, and the libraries of NVIDIA that it includes.
//!
//! People write `// nvcc -O3 -lcublas x.cu -o x` at the head of a file. Options that decide what
//! the program is are taken over. Those that name outputs, other compilers or architectures are
//! not, nor `-g` and `-G`, with which no kernel has its real speed.

use super::super::cuda_source::launches_on_device;

/// A command line in the comments of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CompileLine {
    /// The options that are taken over, in their order.
    pub(super) options: Vec<String>,
    /// The other sources that it compiles, as written.
    pub(super) sources: Vec<String>,
}

/// A comment is searched for a command line in the first lines of a file and no further.
const MAX_LINES: usize = 400;

/// The most words that are taken over.
const MAX_WORDS: usize = 100;

/// Options that decide what the program is, by the beginning of their names. `true`: the value
/// may be a word of its own.
const KEPT: &[(&str, bool)] = &[
    ("-Xcompiler", true),
    ("--compiler-options", true),
    ("-Xptxas", true),
    ("--ptxas-options", true),
    ("-Xlinker", true),
    ("--linker-options", true),
    ("-I", true),
    ("--include-path", true),
    ("-L", true),
    ("--library-path", true),
    ("-l", true),
    ("--library", true),
    ("-D", true),
    ("--define-macro", true),
    ("-U", true),
    ("-std", true),
    ("--std", true),
    ("-O", false),
    ("-rdc", true),
    ("--relocatable-device-code", true),
    ("-use_fast_math", false),
    ("--use_fast_math", false),
    ("-expt-", false),
    ("--expt-", false),
    ("-extended-lambda", false),
    ("--extended-lambda", false),
    ("-maxrregcount", true),
    ("--maxrregcount", true),
    ("-default-stream", true),
    ("--default-stream", true),
    ("-fmad", true),
    ("--fmad", true),
    ("-ftz", true),
    ("--ftz", true),
];

/// Options that are left out together with their value.
const DROPPED_WITH_VALUE: &[&str] = &[
    "-o",
    "--output-file",
    "-arch",
    "--gpu-architecture",
    "-code",
    "--gpu-code",
    "-gencode",
    "--generate-code",
    "-ccbin",
    "--compiler-bindir",
    "-odir",
    "--output-directory",
    "-x",
];

/// The command line of nvcc in the comments of `text`, the source `name`. `None`: there is none.
pub(super) fn compile_line(text: &str, name: &str) -> Option<CompileLine> {
    let mut is_block = false;
    let mut best: Option<CompileLine> = None;
    let mut lines = text.lines().take(MAX_LINES);
    while let Some(line) = lines.next() {
        let comment = comment_of(line, &mut is_block);
        let Some(command) = comment.and_then(command_of) else { continue };
        let mut command = command.to_owned();
        // A command may go on in the next lines of the comment.
        while command.ends_with('\\') {
            command.pop();
            let Some(next) = lines.next().and_then(|line| comment_of(line, &mut is_block)) else {
                break;
            };
            command.push(' ');
            command.push_str(next.trim_start_matches(['*', '/', ' ', '\t']).trim_end());
        }
        if !command.contains(name) && !command.contains(" -") {
            continue;
        }
        let line = parse(&command, name);
        // A line that names this file is better than one that names none.
        if command.contains(name) {
            return Some(line);
        }
        best.get_or_insert(line);
    }
    best
}

/// The text of a comment in a line. `is_block`: whether the line begins in a `/* … */`.
fn comment_of<'a>(line: &'a str, is_block: &mut bool) -> Option<&'a str> {
    if *is_block {
        let (comment, rest) = line.split_once("*/").map_or((line, None), |(a, b)| (a, Some(b)));
        *is_block = rest.is_none();
        return Some(comment);
    }
    if let Some((_, comment)) = line.split_once("//") {
        return Some(comment);
    }
    let (_, comment) = line.split_once("/*")?;
    match comment.split_once("*/") {
        Some((comment, _)) => Some(comment),
        None => {
            *is_block = true;
            Some(comment)
        }
    }
}

/// The words after `nvcc` in a comment, without what a shell would run after them.
fn command_of(comment: &str) -> Option<&str> {
    let at = comment.match_indices("nvcc").find_map(|(at, word)| {
        let before = comment[..at].chars().next_back();
        let after = comment[at + word.len()..].chars().next();
        let starts = before.is_none_or(|c| c.is_whitespace() || "$>:`'\"(/".contains(c));
        (starts && after == Some(' ')).then_some(at + word.len())
    })?;
    let rest = &comment[at..];
    let end = rest.find(['`', ';', '&', '|', '>']).unwrap_or(rest.len());
    Some(rest[..end].trim_end())
}

fn parse(command: &str, name: &str) -> CompileLine {
    let split = shlex::split(command);
    let words = split.unwrap_or_else(|| command.split_whitespace().map(str::to_owned).collect());
    let mut line = CompileLine::default();
    let mut words = words.into_iter().take(MAX_WORDS).peekable();
    while let Some(word) = words.next() {
        if DROPPED_WITH_VALUE.contains(&word.as_str()) {
            words.next();
            continue;
        }
        // A word that only a shell or a makefile understands.
        if word.contains(['$', '<', '*', '%', '\0']) {
            continue;
        }
        let kept = KEPT.iter().find(|(option, _)| word.starts_with(option));
        if let Some((option, has_value)) = kept {
            let is_alone = word == *option;
            if *has_value && is_alone {
                let Some(value) = words.next_if(|value| !value.contains(['$', '<', '\0'])) else {
                    continue;
                };
                line.options.extend([word, value]);
            } else if !word.starts_with("-lineinfo") {
                line.options.push(word);
            }
        } else if is_source(&word) && word != name && !word.ends_with(&format!("/{name}")) {
            line.sources.push(word);
        }
    }
    line
}

/// Whether a word names a source file.
fn is_source(word: &str) -> bool {
    let extension = word.rsplit_once('.').map(|(_, extension)| extension);
    !word.starts_with('-') && matches!(extension, Some("cu" | "cpp" | "cc" | "cxx" | "c"))
}

/// The headers of libraries, each with the options that link it.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("cublasLt.h", &["-lcublasLt"]),
    ("cublasXt.h", &["-lcublas"]),
    ("cublas_v2.h", &["-lcublas"]),
    ("cublas.h", &["-lcublas"]),
    ("cufftXt.h", &["-lcufft"]),
    ("cufft.h", &["-lcufft"]),
    ("curand.h", &["-lcurand"]),
    ("cusparse.h", &["-lcusparse"]),
    ("cusparse_v2.h", &["-lcusparse"]),
    ("cusparseLt.h", &["-lcusparseLt"]),
    ("cusolverDn.h", &["-lcusolver"]),
    ("cusolverSp.h", &["-lcusolver"]),
    ("cusolverRf.h", &["-lcusolver"]),
    ("cusolver_common.h", &["-lcusolver"]),
    ("nvToolsExt.h", &["-lnvToolsExt"]),
    ("nvtx3/nvToolsExt.h", &["-ldl"]),
    ("nvtx3/nvtx3.hpp", &["-ldl"]),
    ("cudnn.h", &["-lcudnn"]),
    ("nccl.h", &["-lnccl"]),
    ("nvml.h", &["-lnvidia-ml"]),
    ("nvrtc.h", &["-lnvrtc", "-lcuda"]),
    ("nvjpeg.h", &["-lnvjpeg"]),
    ("cutensor.h", &["-lcutensor"]),
    ("nvJitLink.h", &["-lnvJitLink"]),
    ("omp.h", &["-Xcompiler", "-fopenmp"]),
];

/// Calls of the driver's API, which need its library.
const DRIVER_CALLS: &[&str] = &[
    "cuInit(",
    "cuCtxCreate",
    "cuDeviceGet",
    "cuLaunchKernel",
    "cuModuleLoad",
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemMap",
    "cuTensorMapEncode",
    "cuGetErrorString",
];

/// The options that link what the sources `texts` use and `given` does not name yet: libraries by
/// the headers `includes`, OpenMP, the driver's API, the device runtime.
pub(super) fn libraries(includes: &[String], texts: &[String], given: &[String]) -> Vec<String> {
    let has = |word: &str| texts.iter().any(|text| text.contains(word));
    let by_header = |header: &String| LIBRARIES.iter().find(|(name, _)| name == header);
    let mut needed: Vec<&[&str]> =
        includes.iter().filter_map(by_header).map(|(_, options)| *options).collect();
    if has("#pragma omp") {
        needed.push(&["-Xcompiler", "-fopenmp"]);
    }
    if DRIVER_CALLS.iter().any(|call| has(call)) {
        needed.push(&["-lcuda"]);
    }
    if texts.iter().any(|text| launches_on_device(text)) {
        needed.push(&["-rdc=true", "-lcudadevrt"]);
    }
    let mut found: Vec<String> = Vec::new();
    for options in needed {
        // The last word tells: `-fopenmp`, not `-Xcompiler`.
        let is_new = options
            .last()
            .is_some_and(|last| !given.iter().chain(&found).any(|word| word.ends_with(last)));
        if is_new {
            found.extend(options.iter().map(|option| (*option).to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> String {
        compile_line(text, "x.cu").map(|line| line.options.join(" ")).unwrap_or_default()
    }

    #[test]
    fn a_command_line_in_a_comment_gives_its_options() {
        for (text, expected) in [
            ("// nvcc -O3 -lcublas x.cu -o x\n", "-O3 -lcublas"),
            ("// compile: nvcc -arch=sm_70 x.cu -o x -lcufft && ./x\n", "-lcufft"),
            (" * $ nvcc -std c++14 -Xcompiler -fopenmp x.cu\n", ""),
            (
                "/*\n * $ nvcc -std c++14 -Xcompiler -fopenmp x.cu\n */",
                "-std c++14 -Xcompiler -fopenmp",
            ),
            ("// nvcc -gencode arch=compute_80,code=sm_80 -G -g -DN=4 x.cu\n", "-DN=4"),
            ("// Build with `nvcc --use_fast_math -I ../inc x.cu`.\n", "--use_fast_math -I ../inc"),
            ("// nvcc -O2 y.cu\n// nvcc -O1 x.cu\n", "-O1"),
            ("// nvcc $(FLAGS) -I$(INC) -O2 x.cu -o $@\n", "-O2"),
            ("// nvcc -O3 \\\n//   -lcurand x.cu\n", "-O3 -lcurand"),
            ("// nvcc is the compiler of NVIDIA\nchar* s = \"nvcc -O3 x.cu\";\n", ""),
        ] {
            assert_eq!(options(text), expected, "{text}");
        }
        let several = compile_line("// nvcc main.cu util.cpp x.cu -c", "x.cu").unwrap();
        assert_eq!(several.sources, ["main.cu", "util.cpp"]);
    }

    #[test]
    fn libraries_are_linked_by_their_headers_once() {
        let includes = ["cublas_v2.h", "curand_kernel.h", "cublas.h", "stdio.h"].map(str::to_owned);
        assert_eq!(libraries(&includes, &[], &[]), ["-lcublas"]);
        assert!(libraries(&includes, &[], &["-lcublas".to_owned()]).is_empty());
        let text = ["#pragma omp parallel\ncuInit(0);".to_owned()];
        assert_eq!(libraries(&[], &text, &[]), ["-Xcompiler", "-fopenmp", "-lcuda"]);
    }
}
