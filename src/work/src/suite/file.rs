//! Reads `bench.toml`. Its keys are described in docs/bench.md.
//!
//! The file belongs to a project, so it is not trusted: it may name remotes of the user's settings
//! and files of the project, and no others (docs/settings.md).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::matches;
use super::matrix::{Axis, AxisKind, Matrix, sweep_values};
use super::target::{CaseSettings, SizeGrowth, TargetKind, TargetSpec};
use rgpu_model::duration::parse_duration;
use rgpu_model::error::{Exit, Failure, Result, no_such_file};
use rgpu_model::suite::Level;
use rgpu_plan::kernel::document::{Item, Origin, Table};
use rgpu_plan::kernel::{
    KernelError, KernelFolders, MODES, ProfileMode, SetProblem, check_architecture, find,
    is_identifier, name_of, problem_set, valid_name,
};

/// The name of the file in a project.
const FILE: &str = "bench.toml";

/// The suite of a project without a file: every kernel is a target of it.
const KERNELS: &str = "kernels";

/// The maximum number of cases of a target, unless the file has another, and of a sweep.
pub const MAX_CASES: usize = 200;

/// The largest limit that a file may set: each case takes memory before it runs.
pub(super) const MOST_CASES: u64 = 10_000;

/// Most values of all axes of a file together: several for each case that a file may have.
const MOST_VALUES: usize = 50_000;

const KEYS: &[&str] = &["defaults", "target", "generated"];
const DEFAULTS: &[&str] = &[
    "level",
    "mode",
    "remote",
    "gpu",
    "arch",
    "sizes",
    "env",
    "define",
    "seed",
    "warmup",
    "iters",
    "timeout",
    "verify_timeout",
    "min_speedup",
    "threshold",
    "grow",
    "max_cases",
];
const TARGET: &[&str] = &[
    "name",
    "suites",
    "kernel",
    "baseline",
    "optimised",
    "program",
    "matrix",
    "generated",
    "level",
    "mode",
    "remote",
    "gpu",
    "arch",
    "sizes",
    "env",
    "define",
    "seed",
    "warmup",
    "iters",
    "timeout",
    "verify_timeout",
    "min_speedup",
    "threshold",
    "grow",
];
const GROW: &[&str] = &["vars", "factor", "times"];
const MATRIX: &[&str] = &["sizes", "define", "env", "arch", "include", "exclude"];

/// The targets of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteFile {
    /// The bench.toml; `None` if every kernel is a target.
    pub file: Option<PathBuf>,
    /// The targets, in the order written.
    pub targets: Vec<TargetSpec>,
    /// The maximum number of cases of a target.
    pub max_cases: usize,
    /// Patterns for the names and paths of kernels that a program writes.
    pub generated: Vec<String>,
}

/// The bench.toml that a project has.
fn file_of_project(project: &Path) -> Option<PathBuf> {
    let usual = [project.join(FILE), project.join("kernels").join(FILE)];
    usual.into_iter().find(|file| file.is_file())
}

/// Whether a file is a set of GPU MODE problems, and no bench.toml.
fn is_problem_set(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

impl SuiteFile {
    /// The suite of a project: the file `chosen`, else `bench.toml` of the project or of its folder
    /// of kernels, else every kernel.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong; then the failure has its line and key.
    pub fn load(chosen: Option<&Path>, kernels: &KernelFolders) -> Result<Self> {
        let file = chosen.map(Path::to_owned).or_else(|| file_of_project(&kernels.project));
        let Some(file) = file else { return Ok(Self::from_kernels(kernels)) };
        if is_problem_set(&file) {
            return Self::from_problem_set(&file);
        }
        let text = rgpu_model::agent_files::read_to_string(
            &file,
            rgpu_model::regular_file::MAX_TOML_BYTES,
        )
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => no_such_file(file.display()),
            _ => Failure::new(Exit::Config, "missing_bench_toml", "the suite cannot be read")
                .file(file.display())
                .cause(e),
        })?;
        Self::read(&file, &text)
    }

    /// Every kernel of the project and its `kernel_path`.
    fn from_kernels(kernels: &KernelFolders) -> Self {
        let own = KernelFolders { shipped: None, ..kernels.clone() };
        let target = |kernel: find::ListedKernel| TargetSpec {
            suite: KERNELS.to_owned(),
            case: kernel.name.clone(),
            work: TargetKind::Kernel(kernel.name),
            ..TargetSpec::default()
        };
        let targets = find::list(&own).into_iter().map(target).collect();
        Self { targets, max_cases: MAX_CASES, ..Self::default() }
    }

    /// The problems of a GPU MODE set, each a target that is checked, timed and scored.
    fn from_problem_set(file: &Path) -> Result<Self> {
        let problems = problem_set(file).map_err(Failure::from)?;
        let target = |problem: SetProblem| TargetSpec {
            suite: name_of(file),
            case: problem.name,
            work: TargetKind::Kernel(format!("./{}", problem.folder)),
            settings: CaseSettings { mode: Some(ProfileMode::Bench), ..CaseSettings::default() },
            ..TargetSpec::default()
        };
        let targets = problems.into_iter().map(target).collect();
        Ok(Self { file: Some(file.to_owned()), targets, max_cases: MAX_CASES, ..Self::default() })
    }

    /// Whether it is a set of problems that somebody published.
    pub fn is_problem_set(&self) -> bool {
        self.file.as_deref().is_some_and(is_problem_set)
    }

    /// Reads the `text` of `file`.
    ///
    /// # Errors
    /// It is wrong; the failure has the line and the key.
    pub fn read(file: &Path, text: &str) -> Result<Self> {
        parse(file, text).map_err(|error| {
            let mut failure = Failure::from(error);
            if failure.code == "bad_kernel_toml" {
                "bad_bench_toml".clone_into(&mut failure.code);
            }
            failure
        })
    }

    /// Whether it is the file of the project's own suite, whose cases the expectations are of.
    pub fn is_of_project(&self, project: &Path) -> bool {
        let real = |file: PathBuf| file.canonicalize().ok();
        let own = file_of_project(project).and_then(real);
        own.is_some() && own == self.file.clone().and_then(real)
    }

    /// The folder that its paths are relative to.
    pub fn folder(&self) -> Option<&Path> {
        self.file.as_deref().and_then(Path::parent)
    }

    /// Whether a program writes this kernel: a pattern of the file matches its name or path.
    pub fn is_generated(&self, kernel: &str) -> bool {
        self.generated.iter().any(|pattern| matches(pattern, kernel))
    }

    /// The names of all suites, each once.
    pub fn suites(&self) -> Vec<&str> {
        let own = self.targets.iter().map(|target| target.suite.as_str());
        let further = self.targets.iter().flat_map(|t| t.suites.iter().map(String::as_str));
        let mut names: Vec<&str> = Vec::new();
        own.chain(further).for_each(|name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names
    }
}

fn parse(file: &Path, text: &str) -> Result<SuiteFile, KernelError> {
    let origin = Origin { file, text };
    let document = DeTable::parse(text).map_err(|error| {
        let problem = format!("not TOML: {}", error.message());
        origin.error(error.span().unwrap_or(0..0), "", problem, None)
    })?;
    let top = Table::new(&origin, "", document.get_ref(), 0..0, KEYS)?;
    let (mut defaults, mut max_cases) = (CaseSettings::default(), MAX_CASES);
    let default_table = top.optional("defaults").map(|item| item.table(DEFAULTS)).transpose()?;
    if let Some(table) = &default_table {
        defaults = settings(table)?;
        if let Some(item) = table.optional("max_cases") {
            max_cases = count(&item, 1, MOST_CASES)? as usize;
        }
    }
    let generated = texts(top.optional("generated"), |_, _| Ok(()))?;
    let mut targets: Vec<TargetSpec> = Vec::new();
    let mut values = 0_usize;
    for item in top.optional("target").map(|item| item.list()).transpose()?.unwrap_or_default() {
        let table = item.table(TARGET)?;
        let mut read = target(&table, &defaults)?;
        // A few characters write thousands of values, and each target may have its own.
        values += read.matrix.axes.iter().map(|axis| axis.values.len()).sum::<usize>();
        if values > MOST_VALUES {
            let name = table.required("name")?;
            return Err(name.error(format!(
                "the targets up to this one list {values} values; a file may list {MOST_VALUES}"
            )));
        }
        read.lines = key_lines(&table, default_table.as_ref())?;
        if targets.iter().any(|other| other.suite == read.suite && other.case == read.case) {
            let name = table.required("name")?;
            return Err(name.error(format!("there are two targets `{}`", read.name())));
        }
        targets.push(read);
    }
    if targets.is_empty() {
        return Err(top.error("there is no `[[target]]`"));
    }
    let mut read =
        SuiteFile { file: Some(file.to_owned()), targets: Vec::new(), max_cases, generated };
    for target in &mut targets {
        target.generated |= target.kernels().iter().any(|kernel| read.is_generated(kernel));
    }
    read.targets = targets;
    Ok(read)
}

fn target(table: &Table<'_>, defaults: &CaseSettings) -> Result<TargetSpec, KernelError> {
    let item = table.required("name")?;
    let name = item.text()?;
    let (suite, case) = name.split_once(':').unwrap_or(("", ""));
    if !valid_name(suite) || !valid_name(case) {
        return Err(item.error_with(
            format!("`{name}` is not a valid name of a target"),
            "write `suite:case`, each of letters, digits, `.`, `_` and `-`".to_owned(),
        ));
    }
    let suites = texts(table.optional("suites"), |item, text| {
        if valid_name(text) {
            Ok(())
        } else {
            Err(item.error(format!("`{text}` is not a valid name of a suite")))
        }
    })?;
    let matrix = table.optional("matrix").map(|item| matrix(&item)).transpose()?;
    let matrix = matrix.unwrap_or_default();
    let work = work(table)?;
    if let (TargetKind::Program(_), Some(axis)) =
        (&work, matrix.axes.iter().find(|axis| matches!(axis.kind, AxisKind::Arch)))
    {
        let problem =
            format!("axis `{}` is for kernels; a program has `sizes` and `env`", axis.name);
        return Err(table.error(problem));
    }
    if let (Some(grow), false) = (table.optional("grow"), matches!(work, TargetKind::Pair { .. })) {
        return Err(grow.error_with(
            "only a pair can be too close to call, so only a pair grows".to_owned(),
            "name `baseline` and `optimised`, or remove `grow`".to_owned(),
        ));
    }
    let generated = table.optional("generated").map(|item| item.boolean()).transpose()?;
    Ok(TargetSpec {
        suite: suite.to_owned(),
        case: case.to_owned(),
        suites,
        work,
        settings: settings(table)?.or(defaults),
        matrix,
        generated: generated.unwrap_or_default(),
        ..TargetSpec::default()
    })
}

/// The line of each key of a target, such as `matrix.sizes.n`. A setting that the target does not
/// have is on its line of `[defaults]`.
fn key_lines(
    target: &Table<'_>,
    defaults: Option<&Table<'_>>,
) -> Result<BTreeMap<String, usize>, KernelError> {
    let mut lines = BTreeMap::new();
    for (table, keys) in [(defaults, DEFAULTS), (Some(target), TARGET)] {
        for key in keys {
            if let Some(item) = table.and_then(|table| table.optional(key)) {
                lines.insert((*key).to_owned(), item.line());
            }
        }
    }
    let Some(item) = target.optional("matrix") else { return Ok(lines) };
    let matrix = item.table(MATRIX)?;
    for key in MATRIX {
        let Some(item) = matrix.optional(key) else { continue };
        lines.insert(format!("matrix.{key}"), item.line());
        match *key {
            "sizes" | "define" | "env" => {
                for (name, item) in item.entries()? {
                    lines.insert(format!("matrix.{key}.{name}"), item.line());
                }
            }
            "include" | "exclude" => {
                for (at, item) in item.list()?.iter().enumerate() {
                    lines.insert(format!("matrix.{key}[{at}]"), item.line());
                }
            }
            _ => {}
        }
    }
    Ok(lines)
}

fn work(table: &Table<'_>) -> Result<TargetKind, KernelError> {
    let text = |key| table.optional(key).map(|item| item.text().map(str::to_owned)).transpose();
    let program = texts(table.optional("program"), |_, _| Ok(()))?;
    match (text("kernel")?, text("baseline")?, text("optimised")?, program.is_empty()) {
        (Some(kernel), None, None, true) => Ok(TargetKind::Kernel(kernel)),
        (None, Some(baseline), Some(optimised), true) => {
            Ok(TargetKind::Pair { baseline, optimised })
        }
        (None, None, None, false) => Ok(TargetKind::Program(program)),
        (None, Some(_), None, true) => {
            Err(table.error("`baseline` has no `optimised` beside it: both sides make a pair"))
        }
        (None, None, Some(_), true) => {
            Err(table.error("`optimised` has no `baseline` beside it: both sides make a pair"))
        }
        _ => Err(table.error(
            "a target has `kernel`, or `baseline` and `optimised`, or `program`, and only one of \
             these",
        )),
    }
}

fn settings(table: &Table<'_>) -> Result<CaseSettings, KernelError> {
    let text = |key| table.optional(key).map(|item| item.text().map(str::to_owned)).transpose();
    let number =
        |key, least, most| table.optional(key).map(|item| count(&item, least, most)).transpose();
    let fraction = |key, least: f64, most: f64| {
        let read = |item: Item<'_>| {
            let value = item.float()?;
            if value >= least && value <= most {
                Ok(value)
            } else {
                Err(item.error(format!("`{key}` must lie between {least} and {most}")))
            }
        };
        table.optional(key).map(read).transpose()
    };
    let arch = table.optional("arch").map(|item| architecture(&item)).transpose()?;
    let most = u64::from(u32::MAX);
    Ok(CaseSettings {
        level: table.optional("level").map(|item| level(&item)).transpose()?,
        mode: table.optional("mode").map(|item| mode(&item)).transpose()?,
        remote: text("remote")?,
        gpu: text("gpu")?,
        arch,
        sizes: texts(table.optional("sizes"), |_, _| Ok(()))?,
        env: words(table.optional("env"))?,
        define: words(table.optional("define"))?,
        seed: number("seed", 0, u64::MAX / 2)?,
        warmup: number("warmup", 0, most)?.map(|n| n as u32),
        iters: number("iters", 1, most)?.map(|n| n as u32),
        timeout_s: table.optional("timeout").map(|item| timeout(&item)).transpose()?,
        verify_timeout_s: table
            .optional("verify_timeout")
            .map(|item| timeout(&item))
            .transpose()?,
        min_speedup: fraction("min_speedup", 0.01, 1000.0)?,
        threshold: fraction("threshold", 0.0001, 0.9999)?,
        grow: table.optional("grow").map(|item| grow(&item)).transpose()?,
    })
}

fn level(item: &Item<'_>) -> Result<Level, KernelError> {
    let name = item.text()?;
    Level::parse(name).ok_or_else(|| {
        item.error_with(
            format!("`{name}` is not a valid level"),
            "the levels are `minimal`, `sol` and `deep`".to_owned(),
        )
    })
}

fn mode(item: &Item<'_>) -> Result<ProfileMode, KernelError> {
    let name = item.text()?;
    name.parse::<ProfileMode>().map_err(|_| {
        let names: Vec<&str> = MODES.iter().map(|info| info.name).collect();
        let near = rgpu_model::error::nearest(name, names.iter().copied());
        let hint = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the modes are `{}`", names.join("`, `")),
        };
        item.error_with(format!("`{name}` is not a valid mode"), hint)
    })
}

fn architecture(item: &Item<'_>) -> Result<String, KernelError> {
    let name = item.text()?;
    match check_architecture(name) {
        Ok(()) => Ok(name.to_owned()),
        Err(failure) => Err(item.error(failure.what)),
    }
}

/// A time such as `90`, `90s`, `1h30m`, in whole seconds.
fn timeout(item: &Item<'_>) -> Result<u64, KernelError> {
    if let Some(seconds) = item.as_integer()? {
        return u64::try_from(seconds)
            .ok()
            .filter(|s| *s > 0)
            .ok_or_else(|| item.error("a time limit is at least 1 second"));
    }
    let text = item.text()?;
    parse_duration(text)
        .filter(|time| time.subsec_nanos() == 0)
        .map(|time| time.as_secs())
        .filter(|s| (1..=7 * 24 * 3600).contains(s))
        .ok_or_else(|| {
            item.error(format!("`{text}` is not a valid time: write `90s`, `10m` or `1h30m`"))
        })
}

fn grow(item: &Item<'_>) -> Result<SizeGrowth, KernelError> {
    let table = item.table(GROW)?;
    let vars = texts(table.optional("vars"), |_, _| Ok(()))?;
    if vars.is_empty() {
        return Err(table.error("`grow` names no `vars`"));
    }
    let number = |key, least, most, default| match table.optional(key) {
        Some(item) => count(&item, least, most),
        None => Ok(default),
    };
    Ok(SizeGrowth {
        vars,
        factor: number("factor", 2, 1 << 20, 2)? as i64,
        times: number("times", 1, 16, 2)? as u32,
    })
}

fn matrix(item: &Item<'_>) -> Result<Matrix, KernelError> {
    let table = item.table(MATRIX)?;
    let mut axes: Vec<Axis> = Vec::new();
    let kinds = [("sizes", AxisKind::Size), ("define", AxisKind::Define), ("env", AxisKind::Env)];
    for (key, kind) in kinds {
        let Some(item) = table.optional(key) else { continue };
        for (name, item) in item.entries()? {
            if !is_identifier(name) {
                return Err(item.error(format!("`{name}` is not a valid name of a variable")));
            }
            axes.push(Axis { kind, name: name.to_owned(), values: values(&item, kind)? });
        }
    }
    if let Some(item) = table.optional("arch") {
        let values: Vec<String> =
            item.list()?.iter().map(architecture).collect::<Result<_, _>>()?;
        axes.push(Axis { kind: AxisKind::Arch, name: "arch".to_owned(), values });
    }
    for (at, axis) in axes.iter().enumerate() {
        if axes[..at].iter().any(|other| other.name == axis.name) {
            return Err(table.error(format!("two axes are called `{}`", axis.name)));
        }
        if axis.values.is_empty() {
            return Err(table.error(format!("axis `{}` has no value", axis.name)));
        }
    }
    let rules = |key| -> Result<Vec<Vec<(String, String)>>, KernelError> {
        let Some(item) = table.optional(key) else { return Ok(Vec::new()) };
        item.list()?.iter().map(|item| rule(item, &axes)).collect()
    };
    let exclude = rules("exclude")?;
    let mut include = Vec::new();
    for (at, rule) in rules("include")?.into_iter().enumerate() {
        let value = |axis: &Axis| {
            let found = rule.iter().find(|(name, _)| *name == axis.name);
            found.map(|(_, value)| value.clone()).ok_or_else(|| {
                table.error(format!("`include[{at}]` has no value for axis `{}`", axis.name))
            })
        };
        include.push(axes.iter().map(value).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(Matrix { axes, include, exclude })
}

/// One table of `include` or `exclude`.
fn rule(item: &Item<'_>, axes: &[Axis]) -> Result<Vec<(String, String)>, KernelError> {
    let mut pairs = Vec::new();
    for (name, item) in item.entries()? {
        if !axes.iter().any(|axis| axis.name == name) {
            let near = rgpu_model::error::nearest(name, axes.iter().map(|axis| axis.name.as_str()));
            let hint = match near.first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => "name an axis of this matrix".to_owned(),
            };
            return Err(item.error_with(format!("there is no axis `{name}`"), hint));
        }
        pairs.push((name.to_owned(), scalar(&item)?));
    }
    if pairs.is_empty() { Err(item.error("it names no axis")) } else { Ok(pairs) }
}

/// The values of an axis: a list, or a range such as `256..8192:x2`.
fn values(item: &Item<'_>, kind: AxisKind) -> Result<Vec<String>, KernelError> {
    let values = match item.text() {
        Ok(range) => sweep_values(range).map_err(|problem| item.error(problem))?,
        Err(_) => item.list()?.iter().map(scalar).collect::<Result<_, _>>()?,
    };
    let mut seen = std::collections::BTreeSet::new();
    for value in &values {
        if kind == AxisKind::Size && value.parse::<i64>().is_err() {
            return Err(item.error(format!("`{value}` is not a whole number, as sizes are")));
        }
        if !seen.insert(value) {
            return Err(item.error(format!("the value `{value}` is repeated")));
        }
    }
    Ok(values)
}

/// A string or a whole number, as text.
fn scalar(item: &Item<'_>) -> Result<String, KernelError> {
    match item.as_integer()? {
        Some(number) => Ok(number.to_string()),
        None => Ok(item.text()?.to_owned()),
    }
}

/// A string or a list of strings.
fn texts(
    item: Option<Item<'_>>,
    check: impl Fn(&Item<'_>, &str) -> Result<(), KernelError>,
) -> Result<Vec<String>, KernelError> {
    let Some(item) = item else { return Ok(Vec::new()) };
    let one = |item: &Item<'_>| {
        let text = scalar(item)?;
        check(item, &text)?;
        Ok(text)
    };
    match item.list() {
        Ok(items) => items.iter().map(one).collect(),
        Err(_) => Ok(vec![one(&item)?]),
    }
}

/// A table of variables with text values.
fn words(item: Option<Item<'_>>) -> Result<BTreeMap<String, String>, KernelError> {
    let Some(item) = item else { return Ok(BTreeMap::new()) };
    let mut words = BTreeMap::new();
    for (name, item) in item.entries()? {
        if !is_identifier(name) {
            return Err(item.error(format!("`{name}` is not a valid name of a variable")));
        }
        words.insert(name.to_owned(), scalar(&item)?);
    }
    Ok(words)
}

fn count(item: &Item<'_>, least: u64, most: u64) -> Result<u64, KernelError> {
    let value = item.integer()?;
    let fits = u64::try_from(value).ok().filter(|n| (least..=most).contains(n));
    fits.ok_or_else(|| item.error(format!("`{}` must lie between {least} and {most}", item.key)))
}

#[cfg(test)]
mod tests;
