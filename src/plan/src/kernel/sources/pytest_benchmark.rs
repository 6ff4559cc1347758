//! Tests of pytest-benchmark: functions `test_…` that take the fixture `benchmark`. They are run by
//! pytest as a program, and without the other tests of the file.

use std::path::Path;

use super::super::{KernelError, ProfileMode, name_of, python};
use super::{Found, FoundProgram, KernelSource, UsualArguments, text_of};

/// A file of tests that pytest-benchmark times.
pub(super) const PYTEST_BENCHMARK: KernelSource =
    KernelSource { name: "a file of pytest-benchmark tests", read };

/// The fixture that such a test takes.
const FIXTURE: &str = "benchmark";

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let text = text_of(path, &["py"])?;
    let tests = python::functions_with(&text, "test", FIXTURE);
    if tests.is_empty() {
        return None;
    }
    let file = path.display().to_string();
    let words = ["python3", &file, "--benchmark-only"];
    Some(Ok(Found::Program(FoundProgram {
        format: PYTEST_BENCHMARK.name,
        name: name_of(path),
        path: path.to_owned(),
        command: words.map(str::to_owned).to_vec(),
        build: None,
        files: Vec::new(),
        cwd: String::new(),
        kernels: Vec::new(),
        kernel_filter: None,
        driver: Some("tests"),
        is_rank: false,
        usual_arguments: UsualArguments::default(),
        mode: ProfileMode::Nsys,
        assumptions: vec![
            format!("the tests with the fixture `{FIXTURE}` are run: `{}`", tests.join("`, `")),
            "the host's python3 has pytest and pytest-benchmark".to_owned(),
        ],
    })))
}

#[cfg(test)]
mod tests {
    use super::super::super::find::{KernelFolders, find_source};
    use super::*;

    #[test]
    fn tests_that_take_the_fixture_are_run_by_pytest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("test_add.py");
        let text = "import pytest\ndef test_right():\n    pass\n\
            @pytest.mark.parametrize('n', [1])\ndef test_add(n, benchmark):\n    benchmark(f)\n\
            class TestMore:\n    def test_more(self, benchmark: object): pass\n\
            def helper(benchmark): pass\n";
        std::fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        let Found::Program(program) = find_source(path, &KernelFolders::default()).unwrap() else {
            panic!("no program");
        };
        assert_eq!(program.command, ["python3", path, "--benchmark-only"]);
        assert_eq!(program.driver, Some("tests"));
        assert!(program.assumptions[0].contains("`test_add`, `test_more`"));
        std::fs::write(&file, "def test_add(n):\n    # def test_x(benchmark): pass\n    pass\n")
            .unwrap();
        let Found::Program(program) = find_source(path, &KernelFolders::default()).unwrap() else {
            panic!("no program");
        };
        assert_eq!(program.command, ["python3", path], "other tests are run too");
    }
}
