use std::path::{Path, PathBuf};

use rgpu_case::{Number, RankingBy, RunnerJob, Setting};

use super::super::super::find::{FoundKernel, KernelFolders, answer_template, find, find_source};
use super::super::super::sizes::CaseSelection;
use super::Found;

const TASK: &str = "lang: py
files:
  - {name: submission.py, source: \"@SUBMISSION@\"}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
config: {main: eval.py}
templates: {Python: template.py}
tests:
  - {size: 1000, seed: 1, causal: false}
  - {size: 1024, seed: 2, dims: [3, 4], kind: normal}
benchmarks:
  - {size: 65536, seed: 3}
  - {size: 131072, seed: 4}
ranking_by: geom
ranked_timeout: 420
";
const REFERENCE: &str = "from utils import make_match_reference\n\
    def generate_input(size, seed):\n    pass\ndef ref_kernel(data):\n    pass\n\
    check_implementation = make_match_reference(ref_kernel)\n";
const SUBMISSION: &str = "import helper\ndef custom_kernel(data):\n    return data\n";

struct Problem {
    dir: tempfile::TempDir,
}

impl Problem {
    fn new() -> Self {
        let problem = Self { dir: tempfile::tempdir().unwrap() };
        for (name, text) in [
            ("set/utils.py", ""),
            ("set/eval.py", ""),
            ("set/vec/task.yml", TASK),
            ("set/vec/task.py", ""),
            ("set/vec/helper.py", ""),
            ("set/vec/reference.py", REFERENCE),
            ("set/vec/submission.py", SUBMISSION),
        ] {
            problem.write(name, text);
        }
        problem
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn find(&self, name: &str) -> FoundKernel {
        let path = self.dir.path().join(name);
        find(path.to_str().unwrap(), &KernelFolders::default()).unwrap()
    }

    /// The message and hints of the error.
    fn error(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        let error = find(path.to_str().unwrap(), &KernelFolders::default()).unwrap_err();
        let failure = rgpu_model::error::Failure::from(error);
        let text = format!("{} {:?}", failure.what, failure.hints);
        text.replace(self.dir.path().to_str().unwrap(), "")
    }
}

#[test]
fn a_problem_is_found_by_its_folder_its_task_and_its_submissions() {
    let problem = Problem::new();
    problem.write("set/vec/solutions/right/fast.py", SUBMISSION);
    for (path, name) in [
        ("set/vec", "vec"),
        ("set/vec/task.yml", "vec"),
        ("set/vec/submission.py", "vec"),
        ("set/vec/solutions/right/fast.py", "vec-fast"),
    ] {
        let spec = problem.find(path).spec;
        assert_eq!((spec.name.as_str(), spec.entry_name()), (name, "custom_kernel"), "{path}");
        let tree = spec.sources(&KernelFolders::default()).unwrap();
        let names: Vec<&str> = tree.files.iter().map(|(name, _)| name.as_str()).collect();
        for wanted in ["eval.py", "reference.py", "submission.py", "task.py", "utils.py"] {
            assert!(names.contains(&wanted), "{path}: {names:?}");
        }
        assert_eq!(names.contains(&"helper.py"), !path.contains("solutions"), "{names:?}");
        assert_eq!(tree.source, "submission.py");
        assert_eq!(tree.reference.as_deref(), Some("reference.py"));
    }
    let rules = problem.find("set/vec").spec.task.unwrap().rules;
    assert_eq!((rules.ranking_by, rules.timeout_s), (RankingBy::Geom, 420));
    assert_eq!(rules.benchmarks, ["size: 65536; seed: 3", "size: 131072; seed: 4"]);
}

#[test]
fn tests_are_checked_and_benchmarks_timed_with_values_as_the_board_reads_them() {
    let problem = Problem::new();
    let found = problem.find("set/vec");
    let cases = found.spec.cases(&CaseSelection::Default).unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["benchmark.1", "benchmark.0", "test.0", "test.1"]);
    let takes = |job| cases.iter().map(|case| case.is_for(job)).collect::<Vec<_>>();
    assert_eq!(takes(RunnerJob::Verify), [true; 4]);
    assert_eq!(takes(RunnerJob::Time), [true, true, false, false]);
    assert_eq!(takes(RunnerJob::Once), [true, false, false, false]);
    // YAML's `false` is a text on the board, and a list is a tuple.
    assert_eq!(cases[2].values["causal"], Setting::Text("False".into()));
    assert_eq!(cases[3].values["kind"], Setting::Text("normal".into()));
    let dims = [3, 4].map(|n| Setting::Number(Number::Int(n)));
    assert_eq!(cases[3].values["dims"], Setting::List(dims.to_vec()));
    assert!(found.assumptions.iter().any(|text| text.contains("count as true")));
    // A case that the user names goes through every job.
    let given = CaseSelection::Given(vec!["test.1".to_owned()]);
    let one = found.spec.cases(&given).unwrap();
    assert!(one.len() == 1 && one[0].is_for(RunnerJob::Time), "{one:?}");
    let wrong = found.spec.cases(&CaseSelection::Given(vec!["test.9".into()])).unwrap_err();
    assert!(format!("{wrong}").contains("test.9"), "{wrong}");
}

#[test]
fn a_board_that_ranks_by_the_last_benchmark_times_that_one() {
    let problem = Problem::new();
    problem.write("set/vec/task.yml", &TASK.replace("ranking_by: geom\n", ""));
    let cases = problem.find("set/vec").spec.sizes.cases;
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["benchmark.1", "test.0", "test.1"]);
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let problem = Problem::new();
    let lone = "#!POPCORN leaderboard trimul\nfrom x import custom_kernel\n";
    problem.write("lone/fast.py", lone);
    let error = problem.error("lone/fast.py");
    assert!(error.contains("leaderboard `trimul`") && error.contains("no task.yml"), "{error}");
    problem.write("lone/fast.cu", "//!POPCORN leaderboard trimul\n__global__ void k() {}\n");
    assert!(problem.error("lone/fast.cu").contains("leaderboard `trimul`"));
    problem.write("lone/unnamed.py", "def custom_kernel(data):\n    return data\n");
    assert!(problem.error("lone/unnamed.py").contains("no task.yml"));

    // One with a main of its own is a script.
    problem.write("lone/script.py", &format!("{lone}if __name__ == '__main__':\n    pass\n"));
    assert!(!problem.error("lone/script.py").contains("no task.yml"));

    // Without the board's program everything else works.
    std::fs::remove_file(problem.dir.path().join("set/eval.py")).unwrap();
    let found = problem.find("set/vec");
    assert!(found.assumptions.iter().any(|text| text.contains("no `score.board`")));
    assert_eq!(found.spec.task.unwrap().rules.program, None);
    std::fs::remove_file(problem.dir.path().join("set/utils.py")).unwrap();
    // So it does without the functions that all tasks share, for which ours stand in.
    let found = problem.find("set/vec");
    assert!(found.assumptions.iter().any(|text| text.contains("`../utils.py` is missing")));
    problem.write("set/utils.py", "");
    std::fs::remove_file(problem.dir.path().join("set/vec/task.py")).unwrap();
    let error = problem.error("set/vec");
    assert!(error.contains("`task.py`") && error.contains("missing"), "{error}");
    problem.write("set/vec/task.py", "");

    // Without a submission the task's own reference is timed.
    std::fs::remove_file(problem.dir.path().join("set/vec/submission.py")).unwrap();
    let alone = problem.find("set/vec");
    assert_eq!((alone.spec.name.as_str(), alone.spec.entry_name()), ("vec", "ref_kernel"));
    assert_eq!((alone.spec.reference, alone.spec.task.unwrap().rules.program), (None, None));
    assert!(alone.assumptions.concat().contains("there is no submission"));
    problem.write("set/vec/one.py", SUBMISSION);
    assert_eq!(problem.find("set/vec").spec.name, "vec-one");
    for name in ["submission_v0.py", "submission_v9.py", "submission_v10.py"] {
        problem.write(&format!("set/vec/{name}"), SUBMISSION);
    }
    let several = problem.find("set/vec");
    assert_eq!(several.spec.name, "vec-submission_v10");
    assert!(several.assumptions[0].contains("`submission_v0`, `submission_v9`"));
    problem.write("set/vec/reference.py", "def forward(x): pass\n");
    assert!(problem.error("set/vec/one.py").contains("`generate_input`"));
}

#[test]
fn templates_unknown_keys_and_other_vendors_are_told() {
    let problem = Problem::new();
    problem.write("set/vec/template.py", SUBMISSION);
    problem.write("set/vec/task.yml", &format!("{TASK}gpus: [MI300]\nnew_key: 3\n"));
    let text = problem.find("set/vec").assumptions.join("\n");
    for wanted in ["the task's template, unchanged", "`new_key`", "AMD's `MI300`"] {
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn a_submission_begins_as_the_tasks_own_template() {
    let problem = Problem::new();
    problem.write("set/vec/template.py", "# the template\n");
    problem.write("set/triton.py", "# in Triton\n");
    let templates = "templates: {Triton: ../triton.py, Python: template.py}";
    let task = TASK.replace("templates: {Python: template.py}", templates);
    problem.write("set/vec/task.yml", &task);
    let folder = problem.dir.path().join("set/vec");
    let (file, text) = answer_template(&folder, None).unwrap();
    assert_eq!((file, text.as_str()), (folder.join("submission.py"), "# the template\n"));
    let mine = folder.join("mine.py");
    let (file, _) = answer_template(&folder.join("task.yml"), Some(&mine)).unwrap();
    assert_eq!(file, mine);
    assert!(answer_template(&folder, Some(&folder.join("mine.cu"))).is_err());
    problem.write("set/vec/task.yml", &TASK.replace("templates: {Python: template.py}\n", ""));
    let (_, text) = answer_template(&folder, None).unwrap();
    assert!(text.contains("def custom_kernel(data: input_t)"));
    // What a task calls its template may be another file of the user's.
    let secret = problem.write("secret.py", "");
    let stolen = TASK.replace("template.py", "../../../secret.py");
    let task = problem.write("set/deep/vec/task.yml", &stolen);
    assert!(task.parent().unwrap().join("../../../secret.py").canonicalize().is_ok());
    assert!(answer_template(&task, None).is_err(), "{secret:?}");
    assert!(answer_template(&problem.write("set/other.py", ""), None).is_err());
}

#[test]
fn mistakes_in_a_task_name_the_key() {
    let problem = Problem::new();
    let billion = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
        c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\n\
        e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e]\n";
    let deep = format!("files: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    for (from, to, wanted) in [
        ("seed: 1,", "seed: one,", "`seed` of `tests[0]` is no whole number"),
        ("lang: py", "lang: rust", "`lang: rust` is unknown"),
        ("lang: py", "lang: cu", "there is no `/set/vec/submission.cu`"),
        ("ranking_by: geom", "ranking_by: best", "`ranking_by: best` is unknown"),
        ("ranking_by: geom", "multi_gpu: true", "several GPUs"),
        ("name: utils.py", "name: ../../x.py", "cannot be the name of a file"),
        ("name: utils.py", "name: task.py", "`task.py` twice"),
        ("source: \"@SUBMISSION@\"", "source: task.py", "@SUBMISSION@"),
        ("size: 1000", "size: {a: 1}", "`size` of `tests[0]` needs a number"),
        ("size: 1000", "3size: 1", "is no name of a parameter"),
        ("lang: py", "lang: [py", "not YAML"),
        ("lang: py", billion, "not YAML"),
        ("lang: py", &deep, "not YAML"),
    ] {
        problem.write("set/vec/task.yml", &TASK.replace(from, to));
        let error = problem.error("set/vec");
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    problem.write("set/vec/task.yml", &TASK.replace("lang: py", "lang: cu"));
    assert!(problem.error("set/vec/submission.py").contains("another language than its task"));
    let no_cases = TASK.split("tests:").next().unwrap();
    problem.write("set/vec/task.yml", no_cases);
    assert!(problem.error("set/vec").contains("neither `tests` nor `benchmarks`"));
    problem.write("set/vec/task.yml", "name: a\nproblems:\n  - {directory: x, name: y}\n");
    assert!(problem.error("set/vec").contains("a set of GPU MODE problems"));
}

#[test]
fn a_task_in_cpp_is_a_program_of_its_own_sources() {
    let problem = Problem::new();
    let files = "files:\n  - {name: eval.cu, source: ../eval.cu}\n  - {name: task.h, source: task.h}\n  \
        - {name: submission.cu, source: \"@SUBMISSION@\"}\n";
    let task = format!(
        "lang: cu\n{files}config: {{sources: [eval.cu, submission.cu], include_dirs: []}}\n\
         tests: [{{size: 8, seed: 1}}]\nbenchmarks: [{{size: 64, seed: 2}}]\n"
    );
    problem.write("set/id/task.yml", &task);
    problem.write("set/eval.cu", "int main() {}\n");
    problem.write("set/id/task.h", "");
    let text = "#include \"task.h\"\n__global__ void copy_kernel(float *x) {}\n\
        output_t custom_kernel(input_t data) { return data; }\n";
    let path = problem.write("set/id/submission.cu", text);
    for path in [path.as_path(), path.parent().unwrap()] {
        let found = find_source(path.to_str().unwrap(), &KernelFolders::default()).unwrap();
        let Found::Program(program) = found else { panic!("a kernel") };
        assert_eq!(
            (program.name.as_str(), &program.kernels[..]),
            ("id", &["copy_kernel".into()][..])
        );
        assert_eq!(program.command, ["benchmark", "rgpu_cases.txt"]);
        let names: Vec<&str> = program.files.iter().map(|(place, _)| place.as_str()).collect();
        let wanted = ["eval.cu", "task.h", "submission.cu", "rgpu_task.cu", "rgpu_cases.txt"];
        assert_eq!(names, wanted);
    }
    problem.write("set/id/task.yml", &task.replace("[eval.cu, ", "[main.cu, "));
    assert!(problem.error("set/id").contains("`main.cu`, which is none of its `files`"));
    // A CUDA file of this kind for no task is as any other.
    problem.write("lone/own.cu", "void custom_kernel(float *x);\n__global__ void k(float *x) {}\n");
    problem.find("lone/own.cu");
}

#[test]
fn a_task_names_sources_beside_it_and_not_what_lies_elsewhere() {
    let problem = Problem::new();
    let other = Path::new("elsewhere/deep/own.py");
    problem.write(other.to_str().unwrap(), "");
    problem.write("set/id_rsa", "");
    for source in ["../../elsewhere/deep/own.py", "../id_rsa", "/etc/hostname"] {
        problem.write("set/vec/task.yml", &TASK.replace("../utils.py", source));
        let spec = problem.find("set/vec").spec;
        let error = spec.sources(&KernelFolders::default()).unwrap_err();
        let failure = rgpu_model::error::Failure::from(error);
        assert!(failure.what.contains("is not sent"), "{source}: {}", failure.what);
        let cause = failure.cause.unwrap_or_default();
        assert!(cause.contains("task.yml names it"), "{source}: {cause}");
    }
}
