//! Whether a project's kernel may be compiled on this machine for another host.
//!
//! A project gives the names of sources, the flags and the sources themselves. nvcc starts its
//! steps through a shell, so names and flags hold no character that means something to one, and no
//! flag starts a program or names a file. What a kernel includes can become part of its code, which
//! is sent to the host: so it includes only the files that are sent anyway, and headers by their
//! names below the folders of headers.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use rgpu_model::regular_file::{self, MAX_FILE_BYTES};
use rgpu_plan::kernel::SourceTree;
use rgpu_plan::tool::{ProfileTarget, Request};

/// Flags of nvcc that say how code is compiled, by their beginnings. A project gives them, and nvcc
/// has others that start programs (`-ccbin`, `-run`, `-Xcompiler`).
const CODE_FLAGS: &[&str] = &[
    "-D",
    "-U",
    "-I",
    "-O",
    "-std",
    "--std",
    "-lineinfo",
    "--generate-line-info",
    "-use_fast_math",
    "--use_fast_math",
    "-fmad",
    "--fmad",
    "-ftz",
    "--ftz",
    "-prec-",
    "--prec-",
    "-maxrregcount",
    "--maxrregcount",
    "-expt-",
    "--expt-",
    "-extended-lambda",
    "--extended-lambda",
    "-extra-device-vectorization",
    "--extra-device-vectorization",
    "-restrict",
    "--restrict",
    "-arch",
    "--gpu-architecture",
    "-Xptxas",
    "--ptxas-options",
    "-default-stream",
    "--default-stream",
    "--define-macro",
    "--include-path",
    "--device-debug",
    "-Werror",
    "--Werror",
];

/// Flags that name a folder of headers, also in the next word.
const FOLDER_FLAGS: [&str; 2] = ["-I", "--include-path"];

/// Folders of this machine whose headers a project may name. They hold no files of the user.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr", "/opt"];

/// Characters, besides letters and digits, that mean nothing to a shell.
const PLAIN: &str = "_-+=.,:/";

/// Endings of the files that a source may include, besides names without one. Other files of a
/// kernel, such as data and Python, are not searched for directives.
const CODE_ENDINGS: [&str; 14] =
    ["cu", "cuh", "h", "hh", "hpp", "hxx", "c", "cc", "cpp", "cxx", "inc", "inl", "ipp", "def"];

/// Directives that read a file.
const READING_DIRECTIVES: [&str; 4] = ["include", "include_next", "import", "embed"];

/// Operators that tell whether there is a file.
const ASKING_OPERATORS: [&str; 3] = ["__has_include", "__has_include_next", "__has_embed"];

/// Why the request's kernel is not compiled on this machine for another host. `None` if it may be.
pub fn why_not_compiled_here(request: &Request) -> Option<String> {
    let ProfileTarget::Kernel { spec, sources, .. } = &request.target else { return None };
    let flags = spec.flags.iter().chain(&request.build.flags);
    let flags: Vec<&str> = flags.map(String::as_str).collect();
    if let Some(flag) = first_refused_flag(&flags) {
        return Some(format!(
            "the flag `{flag}` of the kernel could start a program or read a file here"
        ));
    }
    if let Some(arch) = request.arch.iter().chain(&spec.arch).find(|arch| !is_plain(arch)) {
        return Some(format!("`{arch}` is no name of an architecture"));
    }
    let mut names = sources.files.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| !is_plain(name)) {
        return Some(format!("the name `{name}` has a character that a shell could take"));
    }
    let is_source = |name: &String| name == &sources.source || is_code(name);
    let files = sources.files.iter().filter(|(name, _)| is_source(name));
    let files = files.filter_map(|(name, path)| {
        Some((name, code_text(&regular_file::read(path, MAX_FILE_BYTES).ok()?)))
    });
    let files: Vec<(&String, String)> = files.collect();
    let outside = files.iter().find_map(|(name, text)| {
        let what = first_outside(text, name, sources)?;
        Some(format!("`{name}` has {what}, which could read a file of this machine"))
    });
    outside.or_else(|| {
        let texts: Vec<&str> = files.iter().map(|(_, text)| text.as_str()).collect();
        let operator = pasted_operator(&texts)?;
        Some(format!("the kernel's macros could make `{operator}`, which asks for any file here"))
    })
}

/// A source as the compiler splits it into words: without trigraphs and joined lines.
fn code_text(source: &[u8]) -> String {
    let text = String::from_utf8_lossy(source);
    let text = text.replace("??=", "#").replace("??/", "\\").replace("%:", "#");
    without_line_splices(&text)
}

/// An operator that asks for a file and that the sources could paste together with `##`: the text
/// of each operand is a word of theirs. `None` if they could make none.
fn pasted_operator(texts: &[&str]) -> Option<&'static str> {
    if !texts.iter().any(|text| text.contains("##")) {
        return None;
    }
    let words: BTreeSet<&str> = texts.iter().flat_map(|text| words(text)).collect();
    ASKING_OPERATORS.into_iter().find(|operator| {
        // Whether words make the first `end` bytes, for each `end`. One word alone is seen by
        // `first_outside`.
        let mut made = vec![false; operator.len() + 1];
        made[0] = true;
        for end in 1..=operator.len() {
            made[end] = (0..end).any(|start| {
                let is_whole = start == 0 && end == operator.len();
                made[start] && !is_whole && words.contains(&operator[start..end])
            });
        }
        made[operator.len()]
    })
}

/// The words of a text: letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    text.split(is_end).filter(|word| !word.is_empty())
}

/// Whether a word is an operator that asks for a file, or a macro named after one, as libraries
/// have them (`_CCCL_HAS_INCLUDE`).
fn asks_for_file(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["has_include", "has_include_next", "has_embed"].iter().any(|ending| word.ends_with(ending))
}

/// Whether a name or flag has only characters that mean nothing to a shell.
fn is_plain(word: &str) -> bool {
    word.chars().all(|letter| letter.is_alphanumeric() || PLAIN.contains(letter))
}

/// Whether a file's name is one of code that another file may include.
fn is_code(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    ending.is_none_or(|ending| CODE_ENDINGS.contains(&ending))
}

/// The first flag that is not only about how code is compiled.
fn first_refused_flag<'a>(flags: &[&'a str]) -> Option<&'a str> {
    let mut before = "";
    for &flag in flags {
        if !is_for_code(flag, before) {
            return Some(flag);
        }
        before = flag;
    }
    None
}

/// Whether a flag, or the value of the one before it, says how code is compiled.
fn is_for_code(flag: &str, before: &str) -> bool {
    if !is_plain(flag) {
        return false;
    }
    if !flag.starts_with('-') {
        return match before {
            "-I" | "--include-path" => is_folder_of_headers(flag),
            "-D" | "--define-macro" => true,
            // Otherwise it could be one more file to compile, or a file for an option of ptxas.
            _ => !flag.contains('/'),
        };
    }
    if let Some(folder) = FOLDER_FLAGS.iter().find_map(|known| flag.strip_prefix(known)) {
        let folder = folder.strip_prefix('=').unwrap_or(folder);
        return folder.is_empty() || is_folder_of_headers(folder);
    }
    let is_known = matches!(flag, "-G" | "-g" | "-w" | "-v")
        || CODE_FLAGS.iter().any(|known| flag.starts_with(known));
    is_known && (!flag.contains('/') || flag.starts_with("-D") || flag.starts_with("--define-m"))
}

/// Whether a folder is below the job's own, or one of the system's.
fn is_folder_of_headers(folder: &str) -> bool {
    let path = Path::new(folder);
    let is_below = path.components().all(|part| part != Component::ParentDir);
    let is_of_system = SYSTEM_FOLDERS.iter().any(|known| path.starts_with(known));
    // nvcc takes several, with commas between them.
    is_below && !folder.contains(',') && (path.is_relative() || is_of_system)
}

/// The first directive or operator of a source that could lead out of the kernel's own files and
/// the folders of headers. What stands in comments and strings counts as well: to tell them apart
/// would need all rules of the language.
fn first_outside(text: &str, name: &str, sources: &SourceTree) -> Option<String> {
    if text.contains('\0') {
        return Some("a zero byte".to_owned());
    }
    let is_inside = |rest: &str| operand(rest).is_some_and(|named| named.is_in(name, sources));
    for (at, _) in text.match_indices('#') {
        let rest = skip_blanks(&text[at + 1..]);
        let word = first_word(rest);
        if READING_DIRECTIVES.contains(&word) && !is_inside(&rest[word.len()..]) {
            let line = rest.lines().next().unwrap_or_default();
            return Some(format!("`#{}`", line.trim_end()));
        }
    }
    for word in words(text).filter(|word| asks_for_file(word)) {
        // A word is a part of the text.
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        let rest = skip_blanks(&text[at + word.len()..]);
        let before = text[..at].trim_end_matches([' ', '\t', '(']);
        let is_asked_for = last_word(before) == "defined"
            || before.ends_with("#ifdef")
            || before.ends_with("#ifndef");
        let is_asked_for = is_asked_for && !rest.starts_with('(');
        if !is_asked_for && !rest.strip_prefix('(').is_some_and(is_inside) {
            return Some(format!("`{word}` without a name"));
        }
    }
    if asks_for_age(text) {
        return Some("`GCC dependency`".to_owned());
    }
    None
}

/// Whether a source could hold `#pragma GCC dependency FILE`, which compares the age of any file:
/// as it is, or made by `_Pragma` of words that macros may have joined.
fn asks_for_age(text: &str) -> bool {
    let has = |wanted: &str| words(text).any(|word| word == wanted);
    let has_word = has("dependency");
    has_word && has("GCC") || has("_Pragma") && (has_word || text.contains("##"))
}

/// The word that a text ends with.
fn last_word(text: &str) -> &str {
    let is_end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    text.rsplit(is_end).next().unwrap_or_default()
}

/// The text without the ends of lines that a backslash joins.
fn without_line_splices(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        kept.push_str(before);
        let end = after.trim_start_matches([' ', '\t', '\u{b}', '\u{c}']);
        let next = end
            .strip_prefix("\r\n")
            .or_else(|| end.strip_prefix('\n'))
            .or_else(|| end.strip_prefix('\r'));
        if next.is_none() {
            kept.push('\\');
        }
        rest = next.unwrap_or(after);
    }
    kept.push_str(rest);
    kept
}

/// The text after blanks and comments within a line.
fn skip_blanks(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\u{b}', '\u{c}']);
        match rest.strip_prefix("/*").and_then(|comment| comment.split_once("*/")) {
            Some((_, after)) => rest = after,
            None => return rest,
        }
    }
}

/// The word that a text begins with.
fn first_word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The name of a file in a directive.
struct Named<'a> {
    path: &'a str,
    /// Whether it is looked for beside the file that names it.
    is_quoted: bool,
}

/// The name that stands first in a text; `None` for a macro.
fn operand(text: &str) -> Option<Named<'_>> {
    let text = skip_blanks(text);
    let line = text.lines().next()?;
    let (rest, end, is_quoted) = match line.strip_prefix('"') {
        Some(rest) => (rest, '"', true),
        None => (line.strip_prefix('<')?, '>', false),
    };
    Some(Named { path: rest.split_once(end)?.0, is_quoted })
}

impl Named<'_> {
    /// Whether the name leads nowhere else than to the kernel's files and the folders of headers.
    /// `file` is the name of the file that has it.
    fn is_in(&self, file: &str, sources: &SourceTree) -> bool {
        let path = Path::new(self.path);
        if path.is_absolute() || !is_code(self.path) {
            return false;
        }
        if path.components().all(|part| part != Component::ParentDir) {
            return true;
        }
        let mut found = Path::new(file).parent().unwrap_or(Path::new("")).to_path_buf();
        for part in path.components() {
            match part {
                Component::Normal(name) => found.push(name),
                Component::ParentDir if !found.pop() => return false,
                _ => {}
            }
        }
        let is_sent = |(name, _): &(String, PathBuf)| Path::new(name) == found;
        self.is_quoted && sources.files.iter().any(is_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_start_programs_or_name_files_are_not_taken_here() {
        let fine: [&[&str]; 7] = [
            &["-O3", "-DN=4", "-std=c++17", "--use_fast_math", "-lineinfo"],
            &["-Xptxas", "-v"],
            &["-Xptxas=-O3,-v"],
            &["-I", "include", "-Iinclude/k", "--include-path=/usr/local/cuda/include"],
            &["-D", "N=4/2", "--define-macro=T=float"],
            &["-maxrregcount", "64"],
            &[],
        ];
        for flags in fine {
            assert_eq!(first_refused_flag(flags), None, "{flags:?}");
        }
        for wrong in [
            "-ccbin=./x",
            "-ccbin",
            "--compiler-bindir=./x",
            "-run",
            "--run",
            "-Xcompiler",
            "-Xcompiler=-B.",
            "-Xlinker=-x",
            "--options-file=x",
            "@x",
            "-o",
            "--output-file=x",
            "-DN=$(id>x)",
            "-DN=`id`",
            "-DN=1;id",
            "-DN=1&id",
            "-DN=1|id",
            "-DN=1\nid",
            "-DN=\"1\"",
            "-DN='1'",
            "-Xptxas=;id;",
            "-Xptxas=--options-file,/home/x",
            "-Xptxas=-o=../x",
            "-I/home/x",
            "-I../../x",
            "-I=/home/x",
            "-Iinclude,/home/x",
            "--include-path=/usr/../home",
            "../x.cu",
            "$(id)",
        ] {
            assert_eq!(first_refused_flag(&[wrong]), Some(wrong));
        }
        assert_eq!(first_refused_flag(&["-I", "/home/x"]), Some("/home/x"));
        assert_eq!(first_refused_flag(&["-Xptxas", "-o", "/home/x"]), Some("-o"));
        for wrong in ["v$(cd;id).cu", "a b.cu", "a;b.cu", "a'b.cu", "a`b`.cu", "a\\b.cu"] {
            assert!(!is_plain(wrong), "{wrong}");
        }
        assert!(is_plain("common/k-1.2_x.cuh"));
    }

    #[test]
    fn sources_include_only_what_is_sent_and_headers() {
        let file = |name: &str| (name.to_owned(), PathBuf::new());
        let sources = SourceTree {
            wrapper: None,
            files: vec![file("k/mine.cu"), file("common/a.cuh")],
            ..SourceTree::default()
        };
        let outside =
            |text: &str| first_outside(&code_text(text.as_bytes()), "k/mine.cu", &sources);
        for fine in [
            "#include <cuda_fp16.h>\n#include \"b.cuh\"\n",
            "# include \"../common/a.cuh\" // shared\n",
            "#/* x */include <cuda/std/limits>\n",
            "#ifdef __has_include\n#if __has_include(<cuda_fp8.h>)\n#endif\n#endif\n",
            "#if defined(__has_include) && __has_include( \"b.cuh\" )\n#endif\n",
            "#define N 4\n#pragma unroll\nint included; // no dependency\n",
        ] {
            assert_eq!(outside(fine), None, "{fine}");
        }
        for wrong in [
            "#define P </home/x>\n#include P\n",
            "#include \"/home/x\"\n",
            "#include </home/x>\n",
            "#include <../common/a.cuh>\n",
            "#include \"../other/a.cuh\"\n",
            "#include \"../../a.cuh\"\n",
            "#include \"sub/../../../../x\"\n",
            "const char *s = \"/*\";\n#include P\nconst char *t = \"*/\";\n",
            "#inc\\\nlude \"/home/x\"\n",
            "#inc\\ \t\r\nlude P\n",
            "#/* a\n b */include/**/P\n",
            "%:include P\n",
            "??=include P\n",
            "#inc??/\nlude P\n",
            "#include_next P\n",
            "#import P\n",
            "#embed \"/home/x\"\n",
            "#include \"data.bin\"\n",
            "#if __has_include(P)\n",
            "#if __has_include(\"/home/x\")\n",
            "#define H __has_include\n#if H(\"/home/x\")\n",
            "#define isdefined(x) x\n#if isdefined(__has_include(\"/home/x\"))\n",
            "#if defined(__has_include(\"/home/x\"))\n",
            "#pragma GCC dependency \"/home/x\"\n",
            "#pragma GCC /*x\n*/ dependency \"/home/x\"\n",
            "#define P(x) _Pragma(#x)\n#define Q(a,b,c,d) P(a##b c##d \"/x\")\nQ(GC,C,depend,ency)\n",
            "#define DO(x) _Pragma(#x)\n#define D dependency\nDO(GCC D \"/home/x\")\n",
            "#include <cuda/std/version>\n#if _CCCL_HAS_INCLUDE(</home/x>)\n",
            "#include",
            "\0",
        ] {
            assert!(outside(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn an_operator_that_macros_paste_together_is_found_in_all_files_of_a_kernel() {
        let pasted = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| code_text(text.as_bytes())).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            pasted_operator(&texts)
        };
        let join = "#define JOIN(a, b) a##b\n";
        for wrong in [
            "#if JOIN(__has_, include)(\"/home/x\")\n",
            "#if JOIN(__ha, s_include)(\"/home/x\")\n",
            "#define H JOIN(_, _has_include)\n#if H(</home/x>)\n",
            "#if JOIN(JOIN(__, has_i), nclude)(P)\n",
        ] {
            assert_eq!(pasted(&[join, wrong]), Some("__has_include"), "{wrong}");
            // Without an operator that pastes, they are words.
            assert_eq!(pasted(&[wrong]), None, "{wrong}");
        }
        assert_eq!(pasted(&["%:define J(a,b) a%:%:b\n", "J(__has,_embed)"]), Some("__has_embed"));
        for fine in [
            "#include \"b.cuh\"\n#define KERNEL(name, T) void name##_##T(T *x, int n) {}\n",
            "#if defined(__has_include) && __has_include(<cuda_fp8.h>)\n#endif\nint a, b, c;\n",
        ] {
            assert_eq!(pasted(&[join, fine]), None, "{fine}");
        }
    }
}
