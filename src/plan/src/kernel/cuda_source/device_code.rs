//! The device code of a CUDA text that was written for an extension of torch: without its host
//! functions, which need torch's headers to compile.
//!
//! The text is cut into declarations at its top level: each ends with a `;` or with the brace that
//! closes it. Namespaces and `extern "C"` blocks are looked into. A declaration that speaks of torch
//! or launches a kernel is replaced by its line breaks, so that the others keep their lines.

/// Words that only host code has, or code that needs torch's headers.
const HOST_WORDS: [&str; 16] = [
    "<<<",
    "AT_DISPATCH",
    "PYBIND11_",
    "STD_TORCH_",
    "TORCH_CHECK",
    "TORCH_LIBRARY",
    "at::",
    "c10::",
    "cudaDeviceSynchronize(",
    "cudaGetLastError(",
    "cudaMalloc(",
    "cudaMemcpy",
    "cudaStream_t",
    "py::",
    "pybind11::",
    "torch::",
];

/// Beginnings of the names of headers that only a machine with torch has.
const HOST_HEADERS: [&str; 6] = ["ATen/", "c10/", "pybind11/", "torch/", "THC/", "Python.h"];

/// The device code of a text, and how many declarations were left out.
pub(in crate::kernel) fn device_code(text: &str) -> (String, usize) {
    let mut code = String::with_capacity(text.len());
    let mut left_out = 0;
    for part in declarations(text) {
        if is_host_code(part) {
            left_out += 1;
            code.extend(part.chars().filter(|c| *c == '\n'));
        } else {
            code.push_str(part);
        }
    }
    (code, left_out)
}

/// Whether a text includes a header of torch or Python.
pub(in crate::kernel) fn includes_torch(text: &str) -> bool {
    text.lines().any(|line| {
        let directive = line.trim_start().strip_prefix('#').unwrap_or_default();
        let name = directive.trim_start().strip_prefix("include").unwrap_or_default();
        let name = name.trim_start().trim_start_matches(['<', '"']);
        HOST_HEADERS.iter().any(|header| name.starts_with(header))
    })
}

fn is_host_code(part: &str) -> bool {
    let line = part.trim_start();
    // A comment before a declaration is a part of its own.
    if line.starts_with("//") || line.starts_with("/*") {
        return false;
    }
    if line.starts_with('#') {
        return includes_torch(line);
    }
    let is_whole_program = line.contains("int main(");
    is_whole_program || HOST_WORDS.iter().any(|word| contains_word(part, word))
}

/// Whether a text has a word that does not continue another one: `at::` is none of `float::`.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let continues = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !continues || !word.starts_with(|c: char| c.is_alphanumeric())
    })
}

/// Cuts a text into declarations and preprocessor lines. The parts together are the text.
fn declarations(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    let mut scopes = 0_usize;
    let mut is_line_start = true;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let was_line_start = is_line_start;
        is_line_start = *byte == b'\n' || is_line_start && byte.is_ascii_whitespace();
        let mut end = at + 1;
        let mut cut = false;
        match byte {
            b'/' if rest.starts_with(b"//") => {
                end = at + line_length(rest);
                cut = depth == 0 && text[start..at].trim().is_empty();
            }
            b'/' if rest.starts_with(b"/*") => {
                end = at + 2 + length_to(&rest[2..], b"*/");
                cut = depth == 0 && text[start..at].trim().is_empty();
            }
            b'"' | b'\'' => end = at + quoted_length(rest),
            b'#' if was_line_start && depth == 0 && text[start..at].trim().is_empty() => {
                end = at + directive_length(rest);
                cut = true;
                is_line_start = true;
            }
            b'{' if depth == 0 && opens_scope(&text[start..at]) => {
                scopes += 1;
                cut = true;
            }
            b'{' | b'(' => depth += 1,
            b'}' if depth == 0 && scopes > 0 => {
                scopes -= 1;
                cut = true;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                // A `;` behind a class belongs to it.
                let behind = text[at + 1..].trim_start();
                cut = depth == 0 && !behind.starts_with([';', ',', ')', '=']);
            }
            b')' => depth = depth.saturating_sub(1),
            b';' => cut = depth == 0,
            _ => {}
        }
        at = end.min(bytes.len());
        while !text.is_char_boundary(at) {
            at += 1;
        }
        if cut {
            parts.push(&text[start..at]);
            start = at;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Whether the words before a brace open a namespace or a block of `extern "C"`.
fn opens_scope(head: &str) -> bool {
    let words = head.trim_start();
    let words = words.strip_prefix("inline ").unwrap_or(words);
    words.starts_with("namespace")
        || words.strip_prefix("extern").is_some_and(|rest| rest.trim_end().ends_with('"'))
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
}

/// The length of a preprocessor line with those that continue it, and the line break behind it.
fn directive_length(rest: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let line = line_length(&rest[length..]);
        length = (length + line + 1).min(rest.len());
        let continues = length >= 2 && rest.get(length - 2) == Some(&b'\\');
        if !continues || length == rest.len() {
            return length;
        }
    }
}

/// The length of a text up to and with these bytes; all of it, if they do not follow.
fn length_to(rest: &[u8], end: &[u8]) -> usize {
    rest.windows(end.len()).position(|part| part == end).map_or(rest.len(), |at| at + end.len())
}

/// The length of a string or character with its quotes. It ends with its line at the latest.
fn quoted_length(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in rest.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'\n' => return at,
            byte if Some(byte) == rest.first() => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENSION: &str = "#include <torch/extension.h>\n#include <cuda_fp16.h>\n\
        #define N 4 /* { */\n// torch::x\n\
        struct P { int x; float at[2]; };\n\
        namespace {\n__device__ float twice(float x) { return 2 * x; } // }\n\
        template <typename T>\n__global__ void k(const T *x, T *y) { if (x) { y[0] = twice(x[0]); } }\n}\n\
        extern \"C\" __global__ void c(int *x) { printf(\"{\\\"\"); }\n\
        torch::Tensor run(torch::Tensor x) {\n  k<<<1, 2>>>(x.data_ptr<float>(), nullptr);\n  return x;\n}\n\
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(\"run\", &run); }\n";

    #[test]
    fn host_code_is_left_out_and_lines_stay() {
        let (code, left_out) = device_code(EXTENSION);
        assert_eq!(left_out, 3, "{code}");
        assert_eq!(code.lines().count(), EXTENSION.lines().count(), "{code}");
        for kept in [
            "#include <cuda_fp16.h>",
            "#define N 4",
            "struct P",
            "twice(float",
            "void k(",
            "void c(",
        ] {
            assert!(code.contains(kept), "{kept}: {code}");
        }
        for gone in ["extension.h", "<<<", "PYBIND11"] {
            assert!(!code.contains(gone), "{gone}: {code}");
        }
        let line = |text: &str| text.lines().position(|line| line.contains("void c("));
        assert_eq!(line(&code), line(EXTENSION));
    }

    #[test]
    fn directives_in_a_row_are_parts_of_their_own() {
        let text = "#include <cuda_fp16.h>\n#include <torch/extension.h>\n\n\
            /* as torch::add */ __global__ void k(float *x) { x[0] = 1; }\n";
        let (code, left_out) = device_code(text);
        assert_eq!(left_out, 1, "{code}");
        assert!(code.contains("void k(") && !code.contains("extension.h"), "{code}");
    }

    #[test]
    fn device_code_alone_stays_as_it_is() {
        for text in [
            "__global__ void k(float *x) { x[0] = float::max(); }\n",
            "extern \"C\" {\n__global__ void k() {}\n}\n",
            "constexpr int A[] = {1, 2};\nauto f = [] { return 1; };\n__global__ void k() {}",
            "é { ' \" /* ",
            "",
        ] {
            assert_eq!(device_code(text), (text.to_owned(), 0));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[a-z#{}()<>;\"'/*\\\\\n é]{0,200}") {
            let parts = declarations(&text);
            proptest::prop_assert_eq!(parts.concat(), text.clone());
            device_code(&text);
        }
    }
}
