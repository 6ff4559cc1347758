//! What a program did not find on its host: files that are here, with the flag that sends them, and
//! Python packages.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::app::App;
use rgpu_model::error::shell_word;
use rgpu_plan::kernel::is_private;
use rgpu_plan::tool::python_program_word;

/// How many of the last lines are looked at.
const LAST_LINES: usize = 60;

/// How a program, a shell or Python says that a file is not there.
static FILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let quoted = "No such file or directory: '([^']+)'|can't open file '([^']+)'";
    let plain = r"(?:cannot open |: |^)([^\s:'\x22]+): No such file";
    Regex::new(&format!("{quoted}|{plain}")).ok()
});

/// How Python says that a module is not there.
static MODULE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"No module named '?([\w.]+)").ok());

/// How numba says that the host's NumPy is too new for it.
static UNFIT_NUMPY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"Numba needs NumPy ([\d.]+\d) or less\. Got NumPy ([\d.]+\d)").ok()
});

/// How Python says that NumPy has no such name.
static DROPPED_BY_NUMPY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"module 'numpy' has no attribute '(\w+)'").ok());

/// How a program says that it wants other arguments.
static USAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let calls = "usage|(?:too few|not enough|missing|invalid number of|wrong number of) arguments?";
    Regex::new(&format!(r"(?i)\b(?:{calls}|please (?:select|provide|specify|enter|give))\b")).ok()
});

/// A hint for a program that ended with a word about its arguments and was given none. `named`: its
/// source or folder, as typed.
pub(in crate::cli) fn arguments_hint(printed: &str, named: &str) -> Option<String> {
    let mut lines = printed.lines().rev().take(LAST_LINES);
    let is_told = lines.any(|line| USAGE.as_ref().is_some_and(|usage| usage.is_match(line)));
    is_told.then(|| format!("give its arguments: `rgpu profile {} -- ARGS`", shell_word(named)))
}

/// Packages whose modules have another name than they.
const PACKAGES: [(&str, &str); 12] = [
    ("PIL", "pillow"),
    ("cuda", "cuda-python"),
    ("cupy", "cupy-cuda12x"),
    ("cutlass", "nvidia-cutlass-dsl"),
    ("cv2", "opencv-python"),
    ("flash_attn", "flash-attn"),
    ("jax", "jax[cuda12]"),
    ("numba", "numba-cuda"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("warp", "warp-lang"),
    ("yaml", "pyyaml"),
];

/// A hint for a program that failed because the host's Python lacks a module which is not here
/// either: the package to install.
pub(in crate::cli) fn package_hint(printed: &str) -> Option<String> {
    if let Some(said) = UNFIT_NUMPY.as_ref().and_then(|unfit| unfit.captures(printed)) {
        return Some(format!(
            "the host's numba takes NumPy {} or less and finds {}: write `numpy<={0}` into a \
             requirements.txt beside the script, which `rgpu profile FILE.py` installs once",
            &said[1], &said[2]
        ));
    }
    let is_of_numba = |line: &str| line.contains("/numba");
    if let Some(said) = DROPPED_BY_NUMPY.as_ref().and_then(|said| said.captures(printed))
        && printed.lines().any(is_of_numba)
    {
        return Some(format!(
            "the host's Numba and NumPy do not fit each other: Numba uses `numpy.{}`, which this \
             NumPy no longer has; write an older `numpy` or a newer `numba-cuda` into a \
             requirements.txt beside the script",
            &said[1]
        ));
    }
    let mut lines = printed.lines().rev().take(LAST_LINES);
    let name = lines.find_map(|line| MODULE.as_ref()?.captures(line)?.get(1))?.as_str();
    let module = name.split('.').next().unwrap_or(name);
    let package = PACKAGES.iter().find(|(known, _)| *known == module);
    let package = package.map_or(module, |(_, package)| package);
    Some(format!(
        "the host's Python has no `{module}`: install `{package}` there, or write it into a \
         requirements.txt beside the script; `rgpu profile FILE.py` and `rgpu exec FILE.py` install \
         that once"
    ))
}

/// A hint for a program that failed, if the end of what it printed names a file or a module that it
/// did not find and that is here: the flag that sends it. `words`: the program and its arguments;
/// `script`: the file of `exec`; `mounts`: those that were given.
pub(in crate::cli) fn hint(
    app: &App,
    printed: &str,
    words: &[String],
    script: Option<&str>,
    mounts: &[String],
) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let script = script.or_else(|| python_program_word(&words).map(|at| words[at]));
    let folder = script.and_then(|script| Path::new(script).parent()).unwrap_or(Path::new(""));
    let is_here = |path: &PathBuf| {
        let is_inner = path.components().all(|part| matches!(part, Component::Normal(_)));
        is_inner && !is_private(path) && std::fs::symlink_metadata(app.cwd.join(path)).is_ok()
    };
    let mut places = names(printed).into_iter().flat_map(|name| [folder.join(&name), name]);
    let found = places.find(is_here)?;
    let shown = found.display();
    let flag = if mounts.is_empty() {
        "--mount .".to_owned()
    } else {
        format!("--mount {}", shell_word(format_args!("{shown}:{shown}")))
    };
    Some(format!("`{shown}` is here, but was not sent to the host: `{flag}` sends it"))
}

/// The paths at which the names that were not found may be.
fn names(printed: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = printed.lines().collect();
    let mut found = Vec::new();
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        let file = FILE.as_ref().and_then(|said| said.captures(line));
        if let Some(path) = file.iter().flat_map(|groups| groups.iter().skip(1)).flatten().next() {
            let path = Path::new(path.as_str());
            found.push(path.strip_prefix(".").unwrap_or(path).to_owned());
        }
        if let Some(name) = MODULE.as_ref().and_then(|said| said.captures(line)?.get(1)) {
            let first = name.as_str().split('.').next().unwrap_or_default();
            found.extend([PathBuf::from(format!("{first}.py")), PathBuf::from(first)]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_the_host_lacks_is_named_with_its_package() {
        let hint = |printed: &str| package_hint(printed).unwrap_or_default();
        let told = hint("Traceback\nModuleNotFoundError: No module named 'cutlass.cute'\n");
        assert!(told.contains("no `cutlass`: install `nvidia-cutlass-dsl`"), "{told}");
        assert!(hint("No module named 'helion'").contains("install `helion`"));
        assert_eq!(package_hint("all is well"), None);
        let dropped = "  File \"/x/numba/cuda.py\", line 1\n\
                       AttributeError: module 'numpy' has no attribute 'row_stack'\n";
        assert!(hint(dropped).contains("Numba uses `numpy.row_stack`"), "{}", hint(dropped));
        let unfit = hint("ImportError: Numba needs NumPy 2.2 or less. Got NumPy 2.4.\n");
        assert!(
            unfit.contains("takes NumPy 2.2 or less and finds 2.4: write `numpy<=2.2`"),
            "{unfit}"
        );
    }

    #[test]
    fn a_program_that_wants_arguments_is_told_how_they_are_given() {
        let hint = |printed: &str| arguments_hint(printed, "my app");
        let wanted = Some("give its arguments: `rgpu profile 'my app' -- ARGS`".to_owned());
        assert_eq!(hint("Please select a kernel (range 0 - 11)\n"), wanted);
        assert_eq!(hint("x\nUsage: ./app N\n"), wanted);
        assert_eq!(hint("memory usages are fine\n"), None);
    }

    #[test]
    fn names_that_were_not_found_are_read_from_what_python_and_shells_say() {
        for (printed, expected) in [
            ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.bin'", "data/x.bin"),
            ("ModuleNotFoundError: No module named 'model.sub'", "model.py model"),
            ("/usr/bin/python3: No module named pkg", "pkg.py pkg"),
            ("python3: can't open file '/job/run.py': [Errno 2] No such file", "/job/run.py"),
            ("cat: ./data.txt: No such file or directory", "data.txt"),
            ("sh: 1: cannot open data.txt: No such file", "data.txt"),
            ("all is well", ""),
        ] {
            let found: Vec<String> =
                names(printed).iter().map(|path| path.display().to_string()).collect();
            assert_eq!(found.join(" "), expected, "{printed}");
        }
    }
}
