//! Applies ncu's kernel filters on the laptop, to find which kernels of a first pass `-k` selects.

use regex::Regex;

use super::draft::PlanError;
use super::options::NcuOptions;

/// The `-k` and `--kernel-exclude` filters of a request.
#[derive(Clone, Debug)]
pub struct KernelFilter {
    base: NameBase,
    names: Vec<NamePattern>,
    excluded: Vec<NamePattern>,
}

/// The form of the kernel's name that is compared: ncu's `--kernel-name-base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameBase {
    Function,
    Demangled,
    Mangled,
}

#[derive(Clone, Debug)]
enum NamePattern {
    Exact(String),
    Search(Regex),
}

impl NamePattern {
    fn parse(flag: &'static str, text: &str) -> Result<Self, PlanError> {
        let Some(expression) = text.strip_prefix("regex:") else {
            return Ok(Self::Exact(text.to_owned()));
        };
        let error = |e: regex::Error| PlanError::Option {
            flag,
            value: text.to_owned(),
            problem: format!("the regular expression is broken: {e}"),
            near: Vec::new(),
        };
        Regex::new(expression).map(Self::Search).map_err(error)
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Search(regex) => regex.is_match(name),
        }
    }
}

impl KernelFilter {
    /// The filters of a request.
    pub fn new(options: &NcuOptions) -> Result<Self, PlanError> {
        let patterns = |flag, list: &[String]| {
            list.iter().map(|text| NamePattern::parse(flag, text)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            base: match options.kernel_name_base.as_deref() {
                Some("demangled") => NameBase::Demangled,
                Some("mangled") => NameBase::Mangled,
                _ => NameBase::Function,
            },
            names: patterns("--kernel-name", &options.kernel_name)?,
            excluded: patterns("--kernel-exclude", &options.kernel_exclude)?,
        })
    }

    /// Whether a kernel passes the filters. If its mangled name is unknown, the demangled one is
    /// used.
    pub fn matches(&self, demangled: &str, mangled: Option<&str>) -> bool {
        let name = match self.base {
            NameBase::Function => function_name(demangled),
            NameBase::Demangled => demangled,
            NameBase::Mangled => mangled.unwrap_or(demangled),
        };
        (self.names.is_empty() || self.names.iter().any(|pattern| pattern.matches(name)))
            && !self.excluded.iter().any(|pattern| pattern.matches(name))
    }
}

/// The bare name of a function, without its return type, scopes, template arguments and parameters.
pub fn function_name(demangled: &str) -> &str {
    // A name may begin with a bracketed scope.
    let text = demangled;
    let mut depth = 0_i32;
    let mut start = 0;
    let mut end = text.len();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if depth == 0
            && let Some(scope) = ["(anonymous namespace)", "<unnamed>"]
                .iter()
                .find(|scope| rest.starts_with(**scope))
        {
            at += scope.len();
            continue;
        }
        let c = rest.chars().next().unwrap_or(' ');
        match c {
            '<' | '(' if depth == 0 => {
                end = at;
                // `operator<` and `operator()` are names that contain a bracket.
                let operator = text[start..at].ends_with("operator");
                if !operator {
                    // Template arguments of a scope are followed by the rest of the path.
                    match closing(text, at) {
                        Some(close) if text[close..].starts_with("::") => {
                            at = close;
                            end = text.len();
                            continue;
                        }
                        _ => break,
                    }
                }
                depth += 1;
            }
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ' ' if depth == 0 => start = at + 1,
            ':' if depth == 0 && rest.starts_with("::") => {
                start = at + 2;
                at += 1;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    text.get(start..end).filter(|name| !name.is_empty()).unwrap_or(demangled)
}

/// The index after the bracket that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in text.get(open..)?.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + at + c.len_utf8());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_name_of_a_function_is_found_among_scopes_templates_and_parameters() {
        for (demangled, bare) in [
            ("vecadd", "vecadd"),
            ("heavy(float *, long long)", "heavy"),
            ("void tile<float, (int)4>(T1 *, long long)", "tile"),
            ("(anonymous namespace)::quiet(float *, long long)", "quiet"),
            ("void <unnamed>::quiet(float *)", "quiet"),
            ("void a::b<int>::step<a::pair<std::pair<int, float>>, const char *>(float *)", "step"),
            ("cost$each", "cost$each"),
            ("void apply<main::[lambda(int) (instance 1)]>(T1, float *)", "apply"),
        ] {
            assert_eq!(function_name(demangled), bare, "{demangled}");
        }
    }

    #[test]
    fn filters_let_through_what_is_named_and_not_excluded() {
        let filter = |names: &[&str], excluded: &[&str], base: Option<&str>| {
            let own = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
            KernelFilter::new(&NcuOptions {
                kernel_name: own(names),
                kernel_exclude: own(excluded),
                kernel_name_base: base.map(str::to_owned),
                ..NcuOptions::default()
            })
            .unwrap()
        };
        let add = ("void add<float>(T1 *)", Some("_Z3addIfEvPT_"));
        let lets = |filter: KernelFilter| filter.matches(add.0, add.1);
        assert!(lets(filter(&[], &[], None)));
        assert!(lets(filter(&["add"], &[], None)));
        assert!(lets(filter(&["regex:^a"], &["sub"], None)));
        assert!(!lets(filter(&["sub"], &[], None)));
        assert!(!lets(filter(&[], &["regex:dd"], None)));
        assert!(lets(filter(&["regex:float"], &[], Some("demangled"))));
        assert!(!lets(filter(&["regex:float"], &[], None)));
        assert!(lets(filter(&["_Z3addIfEvPT_"], &[], Some("mangled"))));
    }
}
