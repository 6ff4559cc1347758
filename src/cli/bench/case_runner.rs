//! Runs single cases over one connection, each as its own run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rgpu_case::ClockPolicy;

use crate::cli::support::app::App;
use crate::cli::support::comparison_result::write_comparison;
use crate::cli::support::fetch_consent::allow_agreed_nvcc;
use crate::cli::support::followed_run::{FollowedRun, NewRun};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::nvdisasm;
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::profile_request::{self, ProfileCommand};
use crate::cli::support::profile_result::{FinishedRun, write_result};
use crate::cli::support::run_args::{RemoteArgs, RunArgs};
use crate::cli::support::session::{self, RemoteSession};
use crate::cli::support::unmeasured::UnmeasuredArgs;
use rgpu_model::comparison::{CaseChange, Part};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::Gap;
use rgpu_model::suite::{
    GrownSizes, MissingTool, NO_GPU, PairResult, SizeSpeedup, SuiteOptions, SuiteTime,
};
use rgpu_model::{KernelCode, Profile};
use rgpu_plan::kernel::{KernelSpec, ProfileMode, find, may_be_sent};
use rgpu_plan::tool::{
    self, BundleFile, NcuOptions, PrebuiltCode, ToolOptions, python_program_word,
};
use rgpu_run::config::is_below;
use rgpu_run::run::{CompareRun, ComparisonOutcome, ProfileOutcome, ProfileRun};
use rgpu_run::store::{RunParent, RunRecord, RunState};
use rgpu_work::suite::{
    CaseEnd, CaseSettings, SideSource, SuiteCase, TargetKind, grown_sizes, inputs_digest,
    is_too_close, kernel_path, metrics, missing_tools, program_path, side_times,
};

/// The speedup below which a pair is too close to call, unless it is set.
const MIN_SPEEDUP: f64 = 1.05;

/// The smallest effect that counts, unless it is set.
pub(super) const THRESHOLD: f64 = 0.01;

/// Runs cases on one remote.
pub(super) struct CaseRunner<'a> {
    pub(super) app: &'a App,
    pub(super) options: &'a SuiteOptions,
    /// The id of the suite's run.
    pub(super) suite: &'a str,
    /// The folder that the paths of bench.toml are relative to.
    pub(super) folder: Option<&'a Path>,
    /// The flags of a sweep; `None` for the cases of a suite.
    pub(super) base: Option<&'a ProfileArgs>,
    pub(super) session: RemoteSession,
    builds: &'a Mutex<Builds>,
    /// The failure of the last case, if it lost the host.
    pub(super) lost_by: Option<Failure>,
}

/// Earlier builds, by kernel and options: one for each architecture, since hosts of one
/// remote may have different GPUs.
pub(super) type Builds = BTreeMap<String, Vec<KernelBuild>>;

/// A kernel that was built once for all cases that need the same code.
pub(super) struct KernelBuild {
    arch: String,
    files: Vec<(String, PathBuf)>,
    code: Vec<KernelCode>,
    compiler: String,
}

/// One side of a case, ready to run.
struct Side {
    command: ProfileCommand,
    source: SideSource,
    /// Names what its build depends on.
    build: String,
}

/// The mode and the set of sections of a case.
struct Measure {
    mode: ProfileMode,
    set: Option<&'static str>,
}

impl<'a> CaseRunner<'a> {
    pub(super) fn new(
        app: &'a App,
        options: &'a SuiteOptions,
        suite: &'a str,
        folder: Option<&'a Path>,
        base: Option<&'a ProfileArgs>,
        builds: &'a Mutex<Builds>,
        session: RemoteSession,
    ) -> Self {
        Self { app, options, suite, folder, base, session, builds, lost_by: None }
    }

    fn builds(&self) -> MutexGuard<'a, Builds> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a case as the run `run_id`, which is resumed if its job is still open.
    pub(super) async fn run_case(&mut self, case: &SuiteCase, run_id: &str) -> CaseEnd {
        let started_at = Instant::now();
        let end = match &case.subject {
            TargetKind::Pair { baseline, optimised } => {
                self.pair(case, [baseline, optimised], run_id).await
            }
            _ => self.single(case, run_id).await,
        };
        let mut end =
            end.unwrap_or_else(|failure| CaseEnd { failure: Some(failure), ..CaseEnd::default() });
        self.lost_by = end.failure.clone().filter(|failure| failure.lost_host);
        end.seconds = started_at.elapsed().as_secs_f64();
        end
    }

    async fn single(&mut self, case: &SuiteCase, run_id: &str) -> Result<CaseEnd> {
        let side = match &case.subject {
            TargetKind::Program(program) => self.program(case, program)?,
            TargetKind::Kernel(kernel) | TargetKind::Pair { optimised: kernel, .. } => {
                self.side(case, "kernel", kernel, None)?
            }
        };
        let Side { mut command, source, build } = side;
        self.use_build(&mut command, &build);
        tool::check(&command.request)?;
        let mode = command.request.mode;
        let mut run = self.begin(case, &command, mode.name(), run_id)?;
        let app = self.app;
        let profile_run = ProfileRun {
            request: command.request,
            project: &app.config.project,
            thresholds: &app.config.thresholds.value,
            source_folder: &command.folder,
            local_nvdisasm: &nvdisasm::search(app),
            required_rung: None,
            pulled: &mut Vec::new(),
            retry_failed_rungs: false,
        };
        let started_at = Instant::now();
        let mut outcome = {
            let (mut run_session, mut context) = run.session_and_context(app, &mut self.session);
            profile_run.run(&mut run_session, &mut context).await
        };
        run.add_duration(started_at);
        if let Ok(ProfileOutcome::Profile { profile, built, .. }) = &mut outcome {
            self.keep_build(&build, profile, std::mem::take(built));
        }
        let FinishedRun { profile, failure, status, .. } =
            write_result(app, None, UnmeasuredArgs::ALLOWED, &mut run, outcome)?;
        let found = (status == Exit::Findings as u8)
            .then(|| Failure::new(Exit::Findings, "findings", "the sanitizer found faults"));
        let profile = profile.as_deref();
        Ok(CaseEnd {
            times: profile.map(|profile| side_times(profile, &source)).unwrap_or_default(),
            warnings: profile.map(warnings).unwrap_or_default(),
            missing: profile.map(|profile| missing_tools(profile, mode)).unwrap_or_default(),
            metrics: profile.map(metrics).unwrap_or_default(),
            failure: failure.or(found),
            ..CaseEnd::default()
        })
    }

    /// Compares both sides of a pair, at larger sizes while they are too close to call.
    async fn pair(
        &mut self,
        case: &SuiteCase,
        kernels: [&str; 2],
        run_id: &str,
    ) -> Result<CaseEnd> {
        let least = self.options.min_speedup.or(case.settings.min_speedup).unwrap_or(MIN_SPEEDUP);
        let grow = case.settings.grow.as_ref();
        let mut sizes: Option<Vec<String>> = None;
        let mut grown = Vec::new();
        loop {
            let run_id = match grown.len() {
                0 => run_id.to_owned(),
                n => format!("{run_id}-grown{n}"),
            };
            let a = self.side(case, "baseline", kernels[0], sizes.as_deref())?;
            let b = self.side(case, "optimised", kernels[1], sizes.as_deref())?;
            if a.command.inputs.cases != b.command.inputs.cases {
                let what = format!("`{}` and `{}` have other sizes", kernels[0], kernels[1]);
                return Err(Failure::new(Exit::Config, "unlike_sizes", what)
                    .hint("name the sizes: `sizes = \"n=…\"`"));
            }
            let cases = a.command.inputs.cases.clone();
            let mut end = self.compare(case, [a, b], &run_id).await?;
            let Some(pair) = end.pair.as_mut() else { return Ok(end) };
            pair.too_close = is_too_close(pair.speedup, pair.ci95, least);
            let next = grow
                .filter(|grow| pair.too_close && grown.len() < grow.times as usize)
                .and_then(|grow| grown_sizes(&cases, grow));
            let Some(next) = next else {
                pair.grown = grown;
                return Ok(end);
            };
            let text = end.times.first().map(|time| time.key.sizes.clone()).unwrap_or_default();
            grown.push(GrownSizes {
                sizes: text,
                speedup: pair.speedup,
                ci95: pair.ci95,
                run: run_id,
            });
            sizes = Some(next);
        }
    }

    async fn compare(
        &mut self,
        case: &SuiteCase,
        sides: [Side; 2],
        run_id: &str,
    ) -> Result<CaseEnd> {
        let threshold = self.threshold(case);
        let measure = self.measure(case, None);
        let passes = match measure.mode {
            ProfileMode::Deep => vec![ProfileMode::Nsys, ProfileMode::Ncu],
            ProfileMode::Bench => Vec::new(),
            mode => vec![mode],
        };
        let [mut a, mut b] = sides;
        for side in [&mut a, &mut b] {
            let request = &mut side.command.request;
            request.timing.ci_target = (threshold / 4.0).min(request.timing.ci_target);
            self.use_build(&mut side.command, &side.build);
            tool::check(&side.command.request)?;
        }
        let mut run = self.begin(case, &a.command, measure.mode.name(), run_id)?;
        let app = self.app;
        let names = [a.command.name.clone(), b.command.name.clone()];
        let compare_run = CompareRun {
            requests: [a.command.request, b.command.request],
            passes: passes.clone(),
            project: &app.config.project,
            source_folder: &b.command.folder,
            thresholds: &app.config.thresholds.value,
            nvdisasm: &nvdisasm::search(app),
        };
        let started_at = Instant::now();
        let outcome = {
            let (mut run_session, mut context) = run.session_and_context(app, &mut self.session);
            compare_run.run(&mut run_session, &mut context).await
        };
        run.add_duration(started_at);
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => {
                run.record_end(Some(&failure), failure.exit as u8)?;
                return Err(failure);
            }
        };
        let ComparisonOutcome { profiles, built, .. } = &mut outcome;
        for (((profile, _), built), key) in profiles.iter_mut().zip(built).zip([&a.build, &b.build])
        {
            self.keep_build(key, profile, std::mem::take(built));
        }
        let names = names.each_ref().map(String::as_str);
        let (comparison, profiles) = write_comparison(&run.folder, names, threshold, outcome)?;
        run.record_end(None, 0)?;
        let mut times: Vec<SuiteTime> = Vec::new();
        for (profile, source) in profiles.iter().zip([&a.source, &b.source]) {
            times.extend(side_times(profile, source));
        }
        let missing = missing_of_pair(&comparison.parts, &passes, &profiles);
        let [_, optimised] = &profiles;
        let warnings = warnings(optimised);
        let time = comparison.time.as_ref();
        let of_size = |case: &CaseChange| SizeSpeedup {
            size: case.name.clone(),
            speedup: case.time.speedup,
            ci95: case.time.ci95,
            verdict: case.time.verdict,
        };
        let pair = PairResult {
            verdict: comparison.verdict,
            speedup: time.map(|time| time.speedup),
            ci95: time.and_then(|time| time.ci95),
            too_close: false,
            summary: comparison.summary.clone(),
            parts: comparison.parts.clone(),
            grown: Vec::new(),
            sizes: comparison.cases.iter().map(of_size).collect(),
        };
        let metrics = metrics(optimised);
        Ok(CaseEnd { times, pair: Some(pair), warnings, missing, metrics, ..CaseEnd::default() })
    }

    fn threshold(&self, case: &SuiteCase) -> f64 {
        self.options.threshold.or(case.settings.threshold).unwrap_or(THRESHOLD)
    }

    fn measure(&self, case: &SuiteCase, own: Option<ProfileMode>) -> Measure {
        let level = self.options.level.or(case.settings.level).unwrap_or_default();
        let given = self.options.mode.as_deref().and_then(|mode| mode.parse::<ProfileMode>().ok());
        let (mode, set) = match given {
            None => case.mode(own, level),
            Some(mode) => {
                let settings = CaseSettings { mode: given, ..case.settings.clone() };
                let (_, set) = SuiteCase { settings, ..case.clone() }.mode(own, level);
                (mode, set)
            }
        };
        Measure { mode, set }
    }

    /// A kernel with everything that the case and the command line say.
    fn side(
        &self,
        case: &SuiteCase,
        side: &'static str,
        kernel: &str,
        sizes: Option<&[String]>,
    ) -> Result<Side> {
        let kernel = self.path(kernel, "kernel", kernel_path)?;
        let spec = find::find(&kernel, &kernel_folders(self.app))?.spec;
        case.check_macros(&spec)?;
        let problem_sizes = match sizes {
            Some(sizes) => sizes.to_vec(),
            None => case.problem_sizes(&spec)?,
        };
        let args = ProfileArgs { problem_sizes, ..self.args(case, Some(kernel), spec.mode) };
        let mut command = profile_request::resolve(self.app, &args)?;
        self.complete(case, &mut command);
        let inputs = inputs_digest(&command.inputs, &case.settings);
        // Environment variables are for the steps, and change nothing that is compiled.
        let compiled = CaseSettings { env: BTreeMap::new(), ..case.settings.clone() };
        let build = format!("{}:{}", spec.name, inputs_digest(&command.inputs, &compiled));
        Ok(Side { source: self.source(case, side, Some(&spec), &command, &inputs), build, command })
    }

    fn program(&self, case: &SuiteCase, program: &[String]) -> Result<Side> {
        let mut argv = case.arguments(program);
        if let Some(first) = argv.first_mut() {
            *first = self.path(first, "program", program_path)?;
        }
        self.check_script(&argv)?;
        let args = ProfileArgs { program: argv, ..self.args(case, None, None) };
        let mut command = profile_request::resolve(self.app, &args)?;
        self.complete(case, &mut command);
        let inputs = inputs_digest(&command.inputs, &case.settings);
        let source = self.source(case, "program", None, &command, &inputs);
        Ok(Side { command, source, build: String::new() })
    }

    /// A name as it is, and a path of bench.toml as an absolute one. A project names files inside
    /// it: others could be sent to the host.
    fn path(
        &self,
        name: &str,
        key: &str,
        path_of: fn(&str, &Path) -> Option<PathBuf>,
    ) -> Result<String> {
        let folder = self.folder.map(|folder| self.app.cwd.join(folder));
        let path = folder.as_deref().and_then(|folder| path_of(name, folder));
        let (Some(folder), Some(path)) = (folder, path) else { return Ok(name.to_owned()) };
        self.check_own(name, key, &path, &folder)?;
        Ok(path.display().to_string())
    }

    /// Refuses a script of bench.toml that would be sent for Python and lies outside the project.
    fn check_script(&self, argv: &[String]) -> Result<()> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let (Some(folder), Some(at)) = (self.folder, python_program_word(&words)) else {
            return Ok(());
        };
        // The path at which the request looks for it. One that is no file here is the host's.
        let path = self.app.cwd.join(words[at]);
        if path.is_file() {
            self.check_own(words[at], "program", &path, &self.app.cwd.join(folder))?;
        }
        Ok(())
    }

    /// Refuses a path that the key of bench.toml names by `name` and that is outside the project.
    fn check_own(&self, name: &str, key: &str, path: &Path, folder: &Path) -> Result<()> {
        let is_own = may_be_sent(path, folder, &kernel_folders(self.app));
        if is_own && is_below(path, &self.app.config.project) {
            return Ok(());
        }
        let what = format!("the {key} `{name}` of bench.toml lies outside the project");
        Err(Failure::new(Exit::Config, "outside_project", what)
            .hint("put it into the project; a program of the host is named without a path"))
    }

    fn args(
        &self,
        case: &SuiteCase,
        kernel: Option<String>,
        own: Option<ProfileMode>,
    ) -> ProfileArgs {
        let (options, settings) = (self.options, &case.settings);
        let Measure { mode, set } = self.measure(case, own);
        if let Some(base) = self.base {
            let remote = Some(self.session.spec.name.clone());
            let place = RemoteArgs { remote, ..base.place.clone() };
            let arch = settings.arch.clone().or_else(|| base.arch.clone());
            let mode = base.mode.or(own);
            return ProfileArgs { kernel, mode, place, arch, ..base.clone() };
        }
        let is_kernel = kernel.is_some();
        let ncu = NcuOptions { set: set.map(str::to_owned), ..NcuOptions::default() };
        ProfileArgs {
            kernel,
            mode: Some(mode),
            place: RemoteArgs {
                remote: Some(self.session.spec.name.clone()),
                gpu: options.gpu.clone().or_else(|| settings.gpu.clone()),
                share_gpu: options.share_gpu,
                accept_new: false,
            },
            // Defaults of a suite may be those of its kernels only.
            arch: settings.arch.clone().filter(|_| is_kernel),
            seed: settings.seed.unwrap_or(1),
            warmup: settings.warmup.filter(|_| is_kernel),
            iters: options.iters.or(settings.iters).filter(|_| is_kernel),
            tools: ToolOptions { ncu, ..ToolOptions::default() },
            unmeasured: UnmeasuredArgs::ALLOWED,
            run: RunArgs {
                timeout: options
                    .timeout_s
                    .or(settings.timeout_s)
                    .map(std::time::Duration::from_secs),
                strict: options.strict,
                ..RunArgs::default()
            },
            ..ProfileArgs::default()
        }
    }

    /// Adds what the flags of `rgpu profile` cannot say.
    fn complete(&self, case: &SuiteCase, command: &mut ProfileCommand) {
        let request = &mut command.request;
        request.env.extend(case.settings.env.clone());
        let define = |(name, value): (&String, &String)| format!("-D{name}={value}");
        request.build.flags.extend(case.settings.define.iter().map(define));
        request.verify_timeout_s = self.options.verify_timeout_s.or(case.settings.verify_timeout_s);
        if let Some(sm_mhz) = self.options.lock_clocks_mhz {
            request.policies.clocks = ClockPolicy::Locked { sm_mhz };
        }
        allow_agreed_nvcc(self.app, &self.session.spec, &mut request.build);
    }

    fn source(
        &self,
        case: &SuiteCase,
        side: &'static str,
        spec: Option<&KernelSpec>,
        command: &ProfileCommand,
        inputs: &str,
    ) -> SideSource {
        let clocks = match &command.request.policies.clocks {
            ClockPolicy::AsFound => "as_found".to_owned(),
            ClockPolicy::Locked { sm_mhz } => format!("locked {sm_mhz} MHz"),
        };
        SideSource {
            case: case.id.clone(),
            side,
            dtype: spec.map(SideSource::dtype_of).unwrap_or_default(),
            clocks,
            inputs: inputs.to_owned(),
        }
    }

    /// Takes the files that earlier cases built of the same sources with the same options. The plan
    /// chooses among them by the GPU of its host.
    fn use_build(&self, command: &mut ProfileCommand, key: &str) {
        let builds = self.builds();
        let prebuilt = builds.get(key).into_iter().flatten().map(|build| {
            let files = build.files.iter().filter(|(_, local)| local.is_file());
            let files = files.map(|(path, local)| BundleFile::copy(path.clone(), local.clone()));
            PrebuiltCode { arch: build.arch.clone(), files: files.collect() }
        });
        command.request.prebuilt = prebuilt.filter(|code| !code.files.is_empty()).collect();
    }

    /// Keeps what a case built, or adds to its profile what the earlier build told.
    fn keep_build(&self, key: &str, profile: &mut Profile, files: Vec<(String, PathBuf)>) {
        let arch = profile.kernel.arch.first().cloned().unwrap_or_default();
        let mut all = self.builds();
        if !files.is_empty() && !key.is_empty() {
            let builds = all.entry(key.to_owned()).or_default();
            builds.retain(|build| build.arch != arch);
            builds.push(KernelBuild {
                arch,
                files,
                code: profile.code.clone(),
                compiler: profile.kernel.compiler.clone(),
            });
        } else if let Some(build) =
            all.get(key).into_iter().flatten().find(|build| build.arch == arch)
            && profile.kernel.compiler.is_empty()
        {
            profile.code.clone_from(&build.code);
            profile.kernel.compiler.clone_from(&build.compiler);
        }
    }

    /// Creates the run of a case, or resumes one whose job is still open.
    fn begin(
        &self,
        case: &SuiteCase,
        command: &ProfileCommand,
        mode: &str,
        run_id: &str,
    ) -> Result<FollowedRun> {
        if let Some((folder, record)) = open_run(self.app, run_id) {
            return Ok(FollowedRun::resume(folder.follow()?, record));
        }
        let new = NewRun {
            command: "bench",
            name: &command.name,
            run_id: Some(run_id),
            out: None,
            detach: false,
        };
        let spec = &self.session.spec;
        FollowedRun::begin(self.app, spec, &new, &command.inputs, |record| RunRecord {
            title: format!("bench {} ({mode})", case.id),
            mode: mode.to_owned(),
            kernel: command.name.clone(),
            parent: Some(RunParent {
                suite: Some(self.suite.to_owned()),
                ..self.app.parent.clone().unwrap_or_default()
            }),
            ..record
        })
    }
}

/// Doubts about a profile's times, and that there are none without a GPU.
fn warnings(profile: &Profile) -> Vec<Gap> {
    let no_gpu = profile.gaps.iter().filter(|gap| gap.code == NO_GPU);
    profile.warnings.iter().chain(no_gpu).cloned().collect()
}

/// The tools of these passes that gave no results on both sides, with the reason of the
/// comparison's part if it has one.
fn missing_of_pair(
    parts: &[Part],
    passes: &[ProfileMode],
    profiles: &[Profile; 2],
) -> Vec<MissingTool> {
    if profiles.iter().any(|profile| profile.gaps.iter().any(|gap| gap.code == NO_GPU)) {
        return Vec::new();
    }
    let missing = |mode: &ProfileMode| {
        let of_sides = profiles.iter().flat_map(|profile| missing_tools(profile, *mode)).next();
        let lacks = |part: &&Part| part.part.as_str() == mode.name() && !part.there;
        let Some(part) = parts.iter().find(lacks) else { return of_sides };
        let of_part = MissingTool { tool: mode.name().to_owned(), ..MissingTool::default() };
        Some(MissingTool { text: part.note.clone(), ..of_sides.unwrap_or(of_part) })
    };
    passes.iter().filter_map(missing).collect()
}

/// The run with this id if its job may still continue.
pub(super) fn open_run(app: &App, run_id: &str) -> Option<(rgpu_run::store::RunFolder, RunRecord)> {
    let folder = app.runs().find(run_id).ok()?;
    let record = folder.record().ok()?;
    let is_open = record.id == run_id
        && record.state == RunState::Running
        && record.jobs.iter().any(|job| job.outcome.is_none())
        && session::check_run(app, &record).is_ok();
    is_open.then_some((folder, record))
}
