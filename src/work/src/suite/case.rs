//! A case of a suite: a target with one value for each of its axes.

use super::file::{MOST_CASES, SuiteFile};
use super::matrix::AxisKind;
use super::target::{CaseSettings, TargetKind, TargetSpec};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::suite::Level;
use rgpu_plan::kernel::sizes::{self, CaseSelection};
use rgpu_plan::kernel::{KernelSpec, ProfileMode, is_identifier};

/// A case: a target with one value for each axis of its matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// The target, with the values of its axes in brackets: `gemm:tiled[n=256,TILE=16]`.
    pub id: String,
    /// The target, `suite:case`.
    pub target: String,
    /// Every suite that it belongs to, its own first.
    pub suites: Vec<String>,
    /// The axes with their values.
    pub axes: Vec<(AxisKind, String, String)>,
    /// The kernel, pair of kernels or program that it runs.
    pub subject: TargetKind,
    /// Its settings; those that axes set are set.
    pub settings: CaseSettings,
    /// Whether its target is generated.
    pub generated: bool,
}

/// A part of a word of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordPiece<'a> {
    /// A text as it is.
    Text(&'a str),
    /// `{name}`: the value of an axis.
    Placeholder(&'a str),
    /// `{{name}}`: the text `{name}`.
    Braced(&'a str),
}

/// The parts of a word. `${name}` is a variable of a shell, so it is a text.
pub(super) fn word_pieces(word: &str) -> Vec<WordPiece<'_>> {
    let mut pieces = Vec::new();
    let (mut text_from, mut at) = (0, 0);
    while let Some(found) = word[at..].find('{') {
        let open = at + found;
        let is_braced = word[open..].starts_with("{{");
        let name_from = open + if is_braced { 2 } else { 1 };
        let name = word[name_from..].split('}').next().unwrap_or_default();
        let closing = if is_braced { "}}" } else { "}" };
        let name_to = name_from + name.len();
        let is_placeholder = is_identifier(name)
            && word[name_to..].starts_with(closing)
            && !word[..open].ends_with('$');
        if !is_placeholder {
            at = open + 1;
            continue;
        }
        if text_from < open {
            pieces.push(WordPiece::Text(&word[text_from..open]));
        }
        pieces.push(if is_braced { WordPiece::Braced(name) } else { WordPiece::Placeholder(name) });
        (text_from, at) = (name_to + closing.len(), name_to + closing.len());
    }
    if text_from < word.len() {
        pieces.push(WordPiece::Text(&word[text_from..]));
    }
    pieces
}

impl SuiteCase {
    /// Every case of the file, in the order of the targets.
    pub(super) fn all(file: &SuiteFile) -> Result<Vec<Self>> {
        let too_many = || {
            let what = format!("the targets have more than {MOST_CASES} cases together");
            Failure::new(Exit::Config, "too_many_cases", what)
                .hint("split the file, or leave values out")
        };
        // Nothing is made before the number is known.
        let mut count = 0_u64;
        for target in &file.targets {
            // A target with too many of its own is refused below, with its line.
            let product = target.matrix.product().filter(|n| *n <= file.max_cases);
            let Some(product) = product else { break };
            count = count.saturating_add(product as u64);
            if count > MOST_CASES {
                return Err(too_many());
            }
        }
        let mut cases = Vec::new();
        for target in &file.targets {
            cases.extend(Self::for_target(file, target)?);
            if cases.len() as u64 > MOST_CASES {
                return Err(too_many());
            }
        }
        Ok(cases)
    }

    /// The cases of a target of the file, in the order of its matrix.
    pub(super) fn for_target(file: &SuiteFile, target: &TargetSpec) -> Result<Vec<Self>> {
        let combinations = target.matrix.combinations(&target.name(), file.max_cases);
        let combinations = combinations.map_err(|failure| {
            let is_too_large = failure.code == "too_many_cases";
            let key = if is_too_large { "matrix" } else { "matrix.exclude" };
            let Some(path) = &file.file else {
                return failure.hint("leave values out, or sweep them in several commands");
            };
            let line = target.lines.get(key).copied().unwrap_or(1);
            let failure = failure.file(format!("{}:{line}", path.display()));
            if is_too_large {
                failure.hint("leave values out, or raise `max_cases` in `[defaults]`")
            } else {
                failure
            }
        })?;
        Ok(combinations.into_iter().map(|values| Self::new(target, values)).collect())
    }

    fn new(target: &TargetSpec, values: Vec<String>) -> Self {
        let axes: Vec<(AxisKind, String, String)> = (target.matrix.axes.iter().zip(values))
            .map(|(axis, value)| (axis.kind, axis.name.clone(), value))
            .collect();
        let mut settings = target.settings.clone();
        for (kind, name, value) in &axes {
            match kind {
                AxisKind::Define => drop(settings.define.insert(name.clone(), value.clone())),
                AxisKind::Env => drop(settings.env.insert(name.clone(), value.clone())),
                AxisKind::Arch => settings.arch = Some(value.clone()),
                AxisKind::Size => {}
            }
        }
        let name = target.name();
        let words: Vec<String> =
            axes.iter().map(|(_, axis, value)| format!("{axis}={value}")).collect();
        Self {
            id: if words.is_empty() {
                name.clone()
            } else {
                format!("{name}[{}]", words.join(","))
            },
            target: name,
            suites: [std::slice::from_ref(&target.suite), &target.suites].concat(),
            axes,
            subject: target.work.clone(),
            settings,
            generated: target.generated,
        }
    }

    /// Whether a pair is compared in its mode, or in the mode `given` instead: the others have
    /// nothing to compare.
    pub fn is_compared(&self, given: Option<ProfileMode>) -> bool {
        given.or(self.settings.mode).is_none_or(|mode| {
            matches!(
                mode,
                ProfileMode::Bench | ProfileMode::Ncu | ProfileMode::Nsys | ProfileMode::Deep
            )
        })
    }

    /// The two sides of a pair as separate cases, for a mode that compares nothing; else itself.
    pub fn sides(self) -> Vec<Self> {
        let TargetKind::Pair { baseline, optimised } = &self.subject else { return vec![self] };
        let side = |side: &str, kernel: &String| Self {
            id: format!("{}/{side}", self.id),
            subject: TargetKind::Kernel(kernel.clone()),
            ..self.clone()
        };
        vec![side("baseline", baseline), side("optimised", optimised)]
    }

    /// Refuses macros for a kernel that no compiler builds.
    pub fn check_macros(&self, spec: &KernelSpec) -> Result<()> {
        if !spec.is_python() || self.settings.define.is_empty() {
            return Ok(());
        }
        let what = format!("`{}` is Python: macros (`define`) have no effect", spec.name);
        Err(Failure::new(Exit::Config, "define_without_compiler", what)
            .hint("pass values to Python in `env`"))
    }

    /// What to select with `--problem-sizes` for this kernel: the axes' values, and those of the
    /// base case for all other variables. `sizes` replaces the base case.
    pub fn problem_sizes(&self, spec: &KernelSpec) -> Result<Vec<String>> {
        let sizes: Vec<&(AxisKind, String, String)> =
            self.axes.iter().filter(|(kind, ..)| *kind == AxisKind::Size).collect();
        if sizes.is_empty() {
            return Ok(self.settings.sizes.clone());
        }
        for (_, name, _) in &sizes {
            if !spec.sizes.vars.contains(name) {
                let vars = spec.sizes.vars.iter().map(String::as_str);
                let near = rgpu_model::error::nearest(name, vars);
                let what =
                    format!("axis `{name}` of `{}` is not a size of `{}`", self.target, spec.name);
                let failure = Failure::new(Exit::Config, "unknown_axis", what);
                return Err(match near.first() {
                    Some(near) => failure.hint(format!("did you mean `{near}`?")),
                    None => failure.hint(format!("its sizes: `{}`", spec.sizes.vars.join("`, `"))),
                });
            }
        }
        let covers_all = spec.sizes.vars.iter().all(|var| sizes.iter().any(|s| s.1 == *var));
        if covers_all && self.settings.sizes.is_empty() {
            let words: Vec<String> = sizes.iter().map(|s| format!("{}={}", s.1, s.2)).collect();
            return Ok(vec![words.join(",")]);
        }
        let selection = if self.settings.sizes.is_empty() {
            CaseSelection::Default
        } else {
            CaseSelection::Given(self.settings.sizes.clone())
        };
        let base = sizes::select(spec, &selection)?;
        let [base] = base.as_slice() else {
            let what =
                format!("the axes of `{}` need one base case, not {}", self.target, base.len());
            return Err(Failure::new(Exit::Config, "several_base_cases", what)
                .hint("name one of the kernel's cases under `sizes`"));
        };
        let replaced = |row: &Vec<i64>| {
            let words = spec.sizes.vars.iter().zip(row).map(|(var, value)| {
                let axis = sizes.iter().find(|size| size.1 == *var);
                let value = axis.map_or_else(|| value.to_string(), |axis| axis.2.clone());
                format!("{var}={value}")
            });
            words.collect::<Vec<_>>().join(",")
        };
        Ok(vec![base.groups.iter().map(replaced).collect::<Vec<_>>().join(";")])
    }

    /// The program with the values of its axes in place of `{name}`, and with `{name}` in place of
    /// `{{name}}`.
    pub fn arguments(&self, program: &[String]) -> Vec<String> {
        let value_of = |name: &str| self.axes.iter().find(|(_, axis, _)| axis == name);
        let filled = |word: &String| {
            let piece = |piece: WordPiece<'_>| match piece {
                WordPiece::Text(text) => text.to_owned(),
                WordPiece::Placeholder(name) => match value_of(name) {
                    Some((_, _, value)) => value.clone(),
                    None => format!("{{{name}}}"),
                },
                WordPiece::Braced(name) => format!("{{{name}}}"),
            };
            word_pieces(word).into_iter().map(piece).collect()
        };
        program.iter().map(filled).collect()
    }

    /// The mode of its run, and ncu's set of sections, if any. `given` is the mode that the command
    /// line or bench.toml names, `own` that of its kernel.
    pub fn mode(
        &self,
        own: Option<ProfileMode>,
        level: Level,
    ) -> (ProfileMode, Option<&'static str>) {
        let by_tool = !matches!(
            own,
            Some(
                ProfileMode::Sanitizer
                    | ProfileMode::Torch
                    | ProfileMode::Nvtx
                    | ProfileMode::Verify
            )
        );
        let set = match level {
            Level::Minimal => Some("minimal"),
            Level::Sol => Some("sol"),
            Level::Deep => None,
        };
        let mode = match (self.settings.mode, &self.subject) {
            (Some(mode), _) => mode,
            (None, TargetKind::Kernel(_)) if !by_tool => own.unwrap_or(ProfileMode::Bench),
            (None, TargetKind::Program(_)) if level == Level::Minimal => ProfileMode::Nsys,
            (None, _) if level == Level::Deep => ProfileMode::Deep,
            (None, _) => ProfileMode::Ncu,
        };
        (mode, set.filter(|_| mode == ProfileMode::Ncu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_values_of_axes_and_braces_that_are_written_twice() {
        let axes = [("n", "7"), ("T", "x")];
        let axes = axes.map(|(name, value)| (AxisKind::Size, name.to_owned(), value.to_owned()));
        let case = SuiteCase {
            id: String::new(),
            target: String::new(),
            suites: Vec::new(),
            axes: axes.to_vec(),
            subject: TargetKind::default(),
            settings: CaseSettings::default(),
            generated: false,
        };
        for (word, filled) in [
            ("{n}", "7"),
            ("a{n}b{T}c", "a7bxc"),
            ("{\"n\":{n}}", "{\"n\":7}"),
            ("{{n}}", "{n}"),
            ("echo ${n} {}{ {n", "echo ${n} {}{ {n"),
            ("{unknown}", "{unknown}"),
            ("{print $1}", "{print $1}"),
            ("é{n}é", "é7é"),
            ("", ""),
        ] {
            assert_eq!(case.arguments(&[word.to_owned()]), [filled], "{word}");
        }
    }
}
