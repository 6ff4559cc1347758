//! Finds the `__global__` functions of a CUDA source and reads their parameters.
//!
//! This is not a C++ parser: comments, strings and preprocessor lines are blanked, and a
//! declaration is read token by token. Anything that it does not understand is reported as such, so
//! that no spec is inferred from part of a declaration.

use std::collections::HashSet;

use rgpu_case::Dtype;

/// A `__global__` function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GlobalFunction {
    pub(super) name: String,
    /// Whether it is a template.
    pub(super) template: bool,
    /// The number in `__launch_bounds__`; `None` if it is not a literal.
    pub(super) max_threads: Option<u32>,
    pub(super) params: Vec<Param>,
}

/// A parameter of a kernel's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) kind: ParamKind,
}

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParamKind {
    Pointer {
        dtype: Dtype,
        constant: bool,
    },
    Scalar(Dtype),
    /// A type without a dtype, as written.
    Other(String),
}

/// The contents of a source file, as far as inference needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScannedSource {
    pub(super) functions: Vec<GlobalFunction>,
    /// Whether it has its own `main`.
    pub(super) main: bool,
    /// Whether it defines `rgpu_launch`.
    pub(super) host_entry: bool,
    /// Whether it uses dynamic shared memory.
    pub(super) dynamic_shared: bool,
    /// Whether it uses `threadIdx.y`, `blockIdx.z` and the like.
    pub(super) several_axes: bool,
}

pub(super) fn scan(text: &str) -> ScannedSource {
    let code = blank_comments(text);
    let tokens = tokens(&code);
    let follows = |word: &str, next: &str| tokens.windows(2).any(|w| w[0] == word && w[1] == next);
    let axis = |w: &[&str]| {
        matches!(w[0], "threadIdx" | "blockIdx" | "blockDim" | "gridDim")
            && w[1] == "."
            && matches!(w[2], "y" | "z")
    };
    let mut source = ScannedSource {
        functions: Vec::new(),
        main: tokens.windows(3).any(|w| w[0] == "int" && w[1] == "main" && w[2] == "("),
        host_entry: follows("rgpu_launch", "("),
        dynamic_shared: follows("extern", "__shared__"),
        several_axes: tokens.windows(3).any(axis),
    };
    let mut names = HashSet::new();
    for (index, _) in tokens.iter().enumerate().filter(|(_, token)| **token == "__global__") {
        if let Some(function) = function(&tokens, index)
            && names.insert(function.name.clone())
        {
            source.functions.push(function);
        }
    }
    source
}

/// A line for each kernel template of a CUDA source that would instantiate it with example
/// arguments: `float` for a type, 16 for a number.
pub(super) fn example_instances(text: &str) -> Vec<String> {
    let code = blank_comments(text);
    let tokens = tokens(&code);
    let globals = tokens.iter().enumerate().filter(|(_, token)| **token == "__global__");
    globals.filter_map(|(global, _)| example_instance(&tokens, global)).collect()
}

/// The line that instantiates the kernel template whose `__global__` is at `global`. `None` if this
/// is no template with a body.
fn example_instance(tokens: &[&str], global: usize) -> Option<String> {
    if !function(tokens, global)?.template {
        return None;
    }
    let head = &tokens[start_of_declaration(tokens, global)..global];
    let open = head.iter().position(|token| *token == "<")?;
    let close = head.iter().rposition(|token| *token == ">")?;
    let arguments: Vec<(&str, &str)> =
        split_at_commas(head.get(open + 1..close)?).filter_map(example_argument).collect();
    let name_at = (global + 1..tokens.len())
        .find(|at| tokens.get(at + 1) == Some(&"(") && !tokens[*at].starts_with("__"))?;
    let end = end_of_brackets(tokens, name_at + 1)?;
    let values: Vec<&str> = arguments.iter().map(|(_, value)| *value).collect();
    let params: Vec<&str> = tokens[name_at + 2..end - 1]
        .iter()
        .map(|token| arguments.iter().find(|(name, _)| name == token).map_or(*token, |(_, v)| *v))
        .collect();
    Some(format!(
        "template __global__ void {}<{}>({});",
        tokens[name_at],
        values.join(", "),
        source_text(&params)
    ))
}

/// The name of a template parameter, with an example of its argument. `None` for an empty one.
fn example_argument<'a>(param: &[&'a str]) -> Option<(&'a str, &'static str)> {
    let end = param.iter().position(|token| *token == "=").unwrap_or(param.len());
    let name = param[..end].last()?;
    let value = match param[0] {
        "typename" | "class" => "float",
        "bool" => "true",
        _ => "16",
    };
    Some((name, value))
}

/// Tokens as a person writes them.
fn source_text(tokens: &[&str]) -> String {
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("(", |before| tokens[before]);
        let is_tight = matches!(*token, "," | ")" | ">" | "<" | ":" | "[" | "]")
            || matches!(before, "(" | "<" | ":" | "[" | "*" | "&");
        if !is_tight {
            text.push(' ');
        }
        text.push_str(token);
    }
    text
}

/// `text` with comments, string and character literals and preprocessor lines replaced by spaces.
pub(super) fn blank_comments(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut line_start = true;
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            '/' if chars.peek() == Some(&'*') => {
                chars.next();
                let mut last = ' ';
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                blanked.push(' ');
            }
            '"' | '\'' => {
                while let Some(inner) = chars.next() {
                    match inner {
                        '\\' => {
                            chars.next();
                        }
                        '\n' => break,
                        inner if inner == c => break,
                        _ => {}
                    }
                }
                // A placeholder stays, so that `extern "C"` is still two tokens.
                blanked.push_str(" \"\" ");
            }
            '#' if line_start => {
                let mut last = ' ';
                while let Some(&next) = chars.peek() {
                    if next == '\n' && last != '\\' {
                        break;
                    }
                    last = next;
                    chars.next();
                }
            }
            _ => blanked.push(c),
        }
        line_start = c == '\n' || (line_start && c.is_whitespace());
    }
    blanked
}

/// Splits into tokens: identifiers and numbers, and every other character by itself.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let len =
            if word(c) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
        let (token, after) = rest.split_at(len);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// The index after the bracket that closes the one at `open`. No bracket of a declaration has
/// another kernel in it; without this end, many open ones would take a time that is their square.
fn end_of_brackets(tokens: &[&str], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" => depth += 1,
            ")" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            "__global__" => return None,
            _ => {}
        }
    }
    None
}

/// The index where the declaration of the `__global__` at `global` begins, with its `template <…>`.
fn start_of_declaration(tokens: &[&str], global: usize) -> usize {
    let before = tokens[..global].iter();
    let is_end = |token: &&str| matches!(*token, ";" | "}" | "{" | "__global__");
    before.rev().position(is_end).map_or(0, |back| global - back)
}

fn function(tokens: &[&str], global: usize) -> Option<GlobalFunction> {
    let template = tokens[start_of_declaration(tokens, global)..global].contains(&"template");
    let mut max_threads = None;
    let mut index = global + 1;
    loop {
        let token = *tokens.get(index)?;
        let next = tokens.get(index + 1).copied();
        if next == Some("(") {
            let end = end_of_brackets(tokens, index + 1)?;
            let inside = &tokens[index + 2..end - 1];
            match token {
                "__launch_bounds__" => {
                    max_threads = inside.first().and_then(|n| n.parse().ok());
                    index = end;
                    continue;
                }
                token if token.starts_with("__") && token.ends_with("__") => {
                    index = end;
                    continue;
                }
                name => {
                    // A declaration without a body is not a kernel of this file.
                    return (tokens.get(end) == Some(&"{") && super::is_identifier(name)).then(
                        || GlobalFunction {
                            name: name.to_owned(),
                            template,
                            max_threads,
                            params: params(inside),
                        },
                    );
                }
            }
        }
        if matches!(token, ";" | "{" | "}" | "__global__") {
            return None;
        }
        index += 1;
    }
}

fn params(tokens: &[&str]) -> Vec<Param> {
    if tokens.is_empty() || tokens == ["void"] {
        return Vec::new();
    }
    split_at_commas(tokens).enumerate().map(|(i, tokens)| param(tokens, i)).collect()
}

/// Splits a list of parameters at the commas that are in no brackets of their own.
fn split_at_commas<'t, 'a>(tokens: &'t [&'a str]) -> impl Iterator<Item = &'t [&'a str]> {
    let mut depth = 0_i32;
    tokens.split(move |token| {
        match *token {
            "<" | "(" | "[" => depth += 1,
            ">" | ")" | "]" => depth -= 1,
            _ => {}
        }
        *token == "," && depth == 0
    })
}

fn param(tokens: &[&str], index: usize) -> Param {
    const QUALIFIERS: [&str; 6] =
        ["restrict", "__restrict__", "__restrict", "__grid_constant__", "volatile", "register"];
    let end = tokens.iter().position(|token| *token == "=").unwrap_or(tokens.len());
    let mut words: Vec<&str> =
        tokens[..end].iter().copied().filter(|token| !QUALIFIERS.contains(token)).collect();
    let full_type = words.join(" ");
    // The name is the last identifier that is not part of a type; a parameter may have none.
    let name = match words.last() {
        Some(last)
            if words.len() > 1
                && super::is_identifier(last)
                && dtype(&[last]).is_none()
                && *last != "const" =>
        {
            let name = (*last).to_owned();
            words.pop();
            name
        }
        _ => format!("arg{index}"),
    };
    let stars = words.iter().filter(|word| **word == "*").count();
    // `T const *p` and `const T *p` are constant; `T *const p` is not.
    let before_star = words.iter().take_while(|word| **word != "*");
    let constant = before_star.clone().any(|word| *word == "const");
    let base: Vec<&str> = before_star.copied().filter(|word| *word != "const").collect();
    let after_star = words.iter().skip_while(|word| **word != "*");
    let one_level = after_star.clone().all(|word| matches!(*word, "*" | "const"));
    let kind = match (dtype(&base), stars) {
        (Some(dtype), 1) if one_level => ParamKind::Pointer { dtype, constant },
        (Some(dtype), 0) => ParamKind::Scalar(dtype),
        _ => ParamKind::Other(full_type),
    };
    Param { name, kind }
}

fn dtype(words: &[&str]) -> Option<Dtype> {
    let words: Vec<&str> = match words {
        ["std", ":", ":", rest @ ..] => rest.to_vec(),
        words => words.to_vec(),
    };
    Some(match words.join(" ").as_str() {
        "double" => Dtype::F64,
        "float" => Dtype::F32,
        "__half" | "half" => Dtype::F16,
        "__nv_bfloat16" | "nv_bfloat16" => Dtype::Bf16,
        "__nv_fp8_e4m3" => Dtype::E4m3,
        "__nv_fp8_e5m2" => Dtype::E5m2,
        "long" | "long int" | "long long" | "long long int" | "signed long long" | "int64_t"
        | "ptrdiff_t" | "ssize_t" => Dtype::I64,
        "int" | "signed" | "signed int" | "int32_t" => Dtype::I32,
        "short" | "short int" | "int16_t" => Dtype::I16,
        "signed char" | "char" | "int8_t" => Dtype::I8,
        "unsigned long"
        | "unsigned long int"
        | "unsigned long long"
        | "unsigned long long int"
        | "uint64_t"
        | "size_t" => Dtype::U64,
        "unsigned" | "unsigned int" | "uint32_t" | "uint" => Dtype::U32,
        "unsigned short" | "uint16_t" | "ushort" => Dtype::U16,
        "unsigned char" | "uint8_t" | "uchar" => Dtype::U8,
        "bool" => Dtype::Bool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_function(text: &str) -> GlobalFunction {
        let source = scan(text);
        assert_eq!(source.functions.len(), 1, "{source:?}");
        source.functions.into_iter().next().unwrap()
    }

    #[test]
    fn pointers_scalars_and_attributes_are_read() {
        let f = only_function(
            r#"
            #include <cuda_fp16.h>
            // __global__ void not_this(int x) {}
            extern "C" __global__ void __launch_bounds__(128, 2)
            axpy(const float *__restrict__ x, __half const* y, float* const z,
                 unsigned long long n, float alpha = 1.0f) { z[0] = alpha; }
        "#,
        );
        assert_eq!((f.name.as_str(), f.max_threads, f.template), ("axpy", Some(128), false));
        let pointer = |dtype, constant| ParamKind::Pointer { dtype, constant };
        let kinds: Vec<_> = f.params.iter().map(|p| (p.name.as_str(), p.kind.clone())).collect();
        assert_eq!(
            kinds,
            [
                ("x", pointer(Dtype::F32, true)),
                ("y", pointer(Dtype::F16, true)),
                ("z", pointer(Dtype::F32, false)),
                ("n", ParamKind::Scalar(Dtype::U64)),
                ("alpha", ParamKind::Scalar(Dtype::F32)),
            ]
        );
    }

    #[test]
    fn a_template_is_instantiated_by_a_line_with_example_arguments() {
        let lines = example_instances(
            "// template <int X> __global__ void comment(X x) {}\n\
             template <typename T, int N = 4, bool FAST>\n\
             __global__ void __launch_bounds__(256)\n\
             tile(const T *__restrict__ x, T* y, std::pair<T, int> p, int n) { y[0] = N; }\n\
             __global__ void plain(float *x) {}\n\
             template <> __global__ void tile<float, 1, true>(float *x) {}\n\
             template <int N> __global__ void only_declared(float *x);",
        );
        assert_eq!(
            lines,
            ["template __global__ void tile<float, 16, true>\
              (const float *__restrict__ x, float *y, std::pair<float, int> p, int n);"]
        );
    }

    #[test]
    fn what_is_not_understood_is_kept_as_written() {
        let f = only_function(
            "template <int N> __global__ void k(float4 *a, S<int, 2> s, float **p) {}",
        );
        assert!(f.template);
        let kinds: Vec<_> = f.params.iter().map(|p| &p.kind).collect();
        assert!(kinds.iter().all(|kind| matches!(kind, ParamKind::Other(_))), "{kinds:?}");
    }

    #[test]
    fn declarations_without_a_body_do_not_count() {
        let source = scan("__global__ void k(int n); __global__ void k(int n) {} int main() {}");
        assert_eq!(source.functions.len(), 1);
        assert!(source.main);
    }

    #[test]
    fn hints_of_other_shapes_are_seen() {
        let source = scan("extern __shared__ float s[]; int x = threadIdx.y;");
        assert!(source.dynamic_shared && source.several_axes && !source.main);
    }
}
