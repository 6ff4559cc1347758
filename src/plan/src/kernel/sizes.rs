//! Parses `--problem-sizes`, which selects the cases of a kernel to run. The flag's text and the
//! kernel's [`KernelSpec`] come in; [`NamedCase`]s with the value of each size variable go out.
//!
//! ```text
//! flag   := case { "|" case }                 the flag may be repeated: more cases
//! case   := group { ";" group }               `groups = true`: one case of several groups
//!                                             otherwise `;` separates cases, as `|` does
//! group  := NAME | "all"                      a named case of kernel.toml; all of them
//!         | value { "," value }               positional, in the order of `vars` (also 64x32)
//!         | VAR "=" value { "," VAR "=" value }
//! value  := an expression without variables   16777216, 16_777_216, 4096*4096
//! ```

use super::expr::{Division, Expr, Grammar, Scope};
use super::spec::{KernelSpec, NamedCase};
use super::{KernelError, ProfileMode, is_identifier};
use rgpu_model::number_form::counted;

/// The sizes to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaseSelection {
    /// The default case of kernel.toml; every case if the cases say which jobs take them.
    #[default]
    Default,
    /// Every named case of the kernel.
    All,
    /// The values of `--problem-sizes`, one for each time that it is given.
    Given(Vec<String>),
}

impl CaseSelection {
    /// The sizes that `mode` runs where `given` are the values of `--problem-sizes`.
    pub fn for_mode(given: &[String], mode: ProfileMode) -> Self {
        match (given.is_empty(), mode) {
            (false, _) => Self::Given(given.to_vec()),
            // A check is worth running on every size.
            (true, ProfileMode::Verify) => Self::All,
            (true, _) => Self::Default,
        }
    }
}

/// The cases in `selection`; a case that is given twice is an error.
///
/// # Errors
/// [`KernelError::Sizes`] for a value that does not match the grammar or the kernel's variables.
pub fn select(spec: &KernelSpec, selection: &CaseSelection) -> Result<Vec<NamedCase>, KernelError> {
    match selection {
        CaseSelection::Default if spec.sizes.cases.iter().any(|case| !case.jobs.is_empty()) => {
            Ok(spec.sizes.cases.clone())
        }
        CaseSelection::Default => Ok(vec![default_case(spec)]),
        CaseSelection::All if spec.sizes.cases.is_empty() => Ok(vec![default_case(spec)]),
        CaseSelection::All => Ok(spec.sizes.cases.clone()),
        CaseSelection::Given(flags) => {
            let mut cases: Vec<NamedCase> = Vec::new();
            for flag in flags {
                let parser = SizesParser { spec, given: flag };
                for case in parser.flag()? {
                    let number = cases.len() + 1;
                    // What the user names goes through every job.
                    let name = name_for(&case, spec, number);
                    cases.push(NamedCase { name, jobs: Vec::new(), ..case });
                }
            }
            let duplicate = cases
                .iter()
                .enumerate()
                .find(|(i, case)| cases[..*i].iter().any(|other| other.name == case.name));
            match duplicate {
                Some((_, case)) => Err(KernelError::Sizes {
                    given: flags.join(" | "),
                    problem: format!("the case `{}` is given twice", case.name),
                    hint: "name each case once".to_owned(),
                }),
                None => Ok(cases),
            }
        }
    }
}

fn default_case(spec: &KernelSpec) -> NamedCase {
    let named = spec.sizes.default.as_ref();
    named
        .and_then(|name| spec.sizes.cases.iter().find(|case| case.name == *name))
        .cloned()
        .unwrap_or_else(|| NamedCase {
            name: "default".to_owned(),
            groups: vec![Vec::new()],
            ..NamedCase::default()
        })
}

/// The name of the case; without one, its sizes as `m=64,n=32`, with groups joined by `+`; if that
/// is longer than 80 bytes, its number and the number of groups.
fn name_for(case: &NamedCase, spec: &KernelSpec, number: usize) -> String {
    if !case.name.is_empty() {
        return case.name.clone();
    }
    let group = |row: &Vec<i64>| {
        let pairs = spec.sizes.vars.iter().zip(row).map(|(var, value)| format!("{var}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    };
    let name = case.groups.iter().map(group).collect::<Vec<_>>().join("+");
    match name.len() {
        0..=80 => name,
        _ => format!("case{number}.{}groups", case.groups.len()),
    }
}

/// The error for a case whose sizes are not valid for the kernel.
pub(super) fn invalid_sizes(spec: &KernelSpec, case: &NamedCase, problem: String) -> KernelError {
    SizesParser { spec, given: &case.name }.error(problem)
}

/// Parses one value of `--problem-sizes`.
struct SizesParser<'a> {
    spec: &'a KernelSpec,
    given: &'a str,
}

impl SizesParser<'_> {
    fn error(&self, problem: impl Into<String>) -> KernelError {
        let vars = &self.spec.sizes.vars;
        let names: Vec<_> = self.spec.sizes.cases.iter().map(|c| c.name.as_str()).collect();
        let hint = if vars.is_empty() && !names.is_empty() {
            format!("give one of the named cases: `{}`", names.join("`, `"))
        } else if vars.is_empty() {
            format!("`{}` has no size variables", self.spec.name)
        } else {
            let example: Vec<_> = vars.iter().map(|var| format!("{var}=1024")).collect();
            format!(
                "give `{}`, or one of the named cases: `{}`",
                example.join(","),
                names.join("`, `")
            )
        };
        KernelError::Sizes { given: self.given.to_owned(), problem: problem.into(), hint }
    }

    fn flag(&self) -> Result<Vec<NamedCase>, KernelError> {
        let mut cases = Vec::new();
        for part in self.given.split('|') {
            if self.spec.sizes.groups {
                cases.extend(self.grouped(part)?);
                continue;
            }
            for part in part.split(';') {
                match self.named(part) {
                    Some(named) => cases.extend(named),
                    None => cases.push(NamedCase {
                        groups: vec![self.group(part)?],
                        ..NamedCase::default()
                    }),
                }
            }
        }
        Ok(cases)
    }

    fn grouped(&self, part: &str) -> Result<Vec<NamedCase>, KernelError> {
        if let Some(named) = self.named(part) {
            return Ok(named);
        }
        let groups = part.split(';').map(|group| self.group(group)).collect::<Result<_, _>>()?;
        Ok(vec![NamedCase { groups, ..NamedCase::default() }])
    }

    fn named(&self, part: &str) -> Option<Vec<NamedCase>> {
        let cases = &self.spec.sizes.cases;
        match cases.iter().find(|case| case.name == part.trim()) {
            Some(case) => Some(vec![case.clone()]),
            None if part.trim() == "all" && !cases.is_empty() => Some(cases.clone()),
            None => None,
        }
    }

    fn group(&self, part: &str) -> Result<Vec<i64>, KernelError> {
        let vars = &self.spec.sizes.vars;
        let part = part.trim();
        if part.is_empty() {
            return Err(self.error("a case is empty"));
        }
        if is_identifier(part) {
            return Err(self.error(format!("`{part}` is none of the named cases")));
        }
        let values = split(part);
        let named = values.iter().filter(|word| word.contains('=')).count();
        if named != 0 && named != values.len() {
            return Err(self.error("either every value has a name or none has"));
        }
        if named == 0 {
            if values.len() != vars.len() {
                return Err(self.error(format!(
                    "{} for the {} variables `{}`",
                    counted(values.len(), "value", "values"),
                    vars.len(),
                    vars.join("`, `")
                )));
            }
            return values.iter().map(|word| self.value(word)).collect();
        }
        let mut row: Vec<Option<i64>> = vec![None; vars.len()];
        for word in values {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let at = vars.iter().position(|var| var == name.trim());
            let Some(slot) = at.and_then(|at| row.get_mut(at)) else {
                let near = rgpu_model::error::nearest(name.trim(), vars.iter().map(String::as_str));
                let near = near.first().map(|n| format!("; did you mean `{n}`?"));
                return Err(self.error(format!(
                    "`{}` is not a variable of `{}`{}",
                    name.trim(),
                    self.spec.name,
                    near.unwrap_or_default()
                )));
            };
            if slot.replace(self.value(value)?).is_some() {
                return Err(self.error(format!("`{}` is given twice", name.trim())));
            }
        }
        row.into_iter()
            .zip(vars)
            .map(|(value, var)| value.ok_or_else(|| self.error(format!("`{var}` is not given"))))
            .collect()
    }

    fn value(&self, text: &str) -> Result<i64, KernelError> {
        Expr::parse(text.trim(), Grammar::Size, &[])
            .and_then(|expr| expr.int(Scope { vars: &[], values: &[] }, Division::Exact))
            .map_err(|error| match error {
                super::expr::ExprError::UnknownVariable { name, .. } => {
                    self.error(format!("`{name}` is not a number"))
                }
                error => self.error(error.to_string()),
            })
    }
}

/// The values of a group, separated by commas outside of parentheses or, as in `64x32`, by `x`
/// between digits.
fn split(part: &str) -> Vec<&str> {
    let by_x: Vec<&str> = part.split('x').collect();
    if by_x.len() > 1 && by_x.iter().all(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit()))
    {
        return by_x;
    }
    let mut words = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in part.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                words.push(&part[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&part[start..]);
    words
}
