use std::path::Path;

use rgpu_case::Baseline;

use super::super::super::find::{KernelFolders, answer_template, find};
use super::super::super::spec::EntryPoint;

const PROBLEM: &str = "import torch\nclass Model(torch.nn.Module):\n    pass\n\
    def get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n";
const ANSWER: &str = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n";

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn reference_of(path: &str) -> String {
    let found = find(path, &KernelFolders::default()).unwrap();
    let reference = found.spec.reference.map(|reference| reference.source);
    reference.map_or_else(String::new, |source| source.file_name().unwrap().display().to_string())
}

fn error_of(path: &str) -> String {
    let error = find(path, &KernelFolders::default()).unwrap_err();
    let failure = rgpu_model::error::Failure::from(error);
    format!("{} {:?}", failure.what, failure.hints)
}

#[test]
fn an_answer_finds_its_problem_beside_it_or_in_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let answer = write(dir.path(), "model_new_ex_gelu.py", ANSWER);
    assert!(error_of(&answer).contains("is not beside it"));
    write(dir.path(), "model_ex_gelu.py", PROBLEM);
    assert_eq!(reference_of(&answer), "model_ex_gelu.py");
    // Of several, that of the same name.
    write(dir.path(), "model_ex_tanh.py", PROBLEM);
    assert_eq!(reference_of(&answer), "model_ex_gelu.py");
    let lonely = write(dir.path(), "other.py", ANSWER);
    let error = error_of(&lonely);
    assert!(error.contains("model_ex_gelu.py") && error.contains("model_ex_tanh.py"), "{error}");
    let both = write(dir.path(), "both.py", &format!("{PROBLEM}{ANSWER}"));
    assert_eq!(reference_of(&both), "both.py");
    let found = find(&both, &KernelFolders::default()).unwrap().spec;
    assert_eq!(found.reference.as_ref().unwrap().function, "Model");
    let EntryPoint::Python(entry) = &found.entry else { panic!("{:?}", found.entry) };
    assert_eq!(entry.baselines, [Baseline::Eager, Baseline::Compile]);
    assert_eq!(entry.inputs.as_ref().unwrap().constructor.as_deref(), Some("get_init_inputs"));
    // The files of both go along.
    let spec = find(&answer, &KernelFolders::default()).unwrap().spec;
    let tree = spec.sources(&KernelFolders::default()).unwrap();
    assert_eq!(tree.reference.as_deref(), Some("model_ex_gelu.py"));
}

#[test]
fn an_answer_of_a_collection_finds_its_problem_by_level_and_number() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "KernelBench/level1/2_Other.py", PROBLEM);
    write(dir.path(), "KernelBench/level1/23_Softmax.py", PROBLEM);
    let answer = write(dir.path(), "runs/mine/level_1_problem_23_sample_0_kernel.py", ANSWER);
    assert_eq!(reference_of(&answer), "23_Softmax.py");
}

#[test]
fn a_problem_alone_runs_itself_and_an_answer_with_inputs_runs_unchecked() {
    let dir = tempfile::tempdir().unwrap();
    let problem = write(dir.path(), "a/23_Softmax.py", PROBLEM);
    let found = find(&problem, &KernelFolders::default()).unwrap();
    assert_eq!((found.spec.entry_name(), found.spec.reference.is_none()), ("Model", true));
    assert!(found.assumptions[1].contains("nothing to check"), "{:?}", found.assumptions);
    let inputs = PROBLEM.replace("class Model(torch.nn.Module):\n    pass\n", "");
    let answer = write(dir.path(), "b/answer.py", &format!("{ANSWER}{inputs}"));
    let found = find(&answer, &KernelFolders::default()).unwrap();
    assert!(found.spec.reference.is_none() && found.assumptions[1].contains("not checked"));
    // A folder with one answer is that answer's.
    write(dir.path(), "b/problem.py", PROBLEM);
    let folder = dir.path().join("b").display().to_string();
    assert_eq!(reference_of(&folder), "problem.py");
    let folder = dir.path().join("a").display().to_string();
    assert_eq!(find(&folder, &KernelFolders::default()).unwrap().spec.name, "23_Softmax");
    // A script with a class of that name is no problem.
    let script = write(dir.path(), "c/train.py", "class Model:\n    pass\n");
    assert!(error_of(&script).contains("custom_kernel"), "{}", error_of(&script));
}

#[test]
fn an_answer_begins_as_the_problems_model_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        PROBLEM.replace("    pass\n", "    def __init__(self): super(Model, self).__init__()\n");
    write(dir.path(), "1_add.py", &format!("{text}# é zoo.Model is none\n"));
    write(dir.path(), "2_sub.py", PROBLEM);
    let (file, text) = answer_template(&dir.path().join("1_add.py"), None).unwrap();
    assert_eq!(file, dir.path().join("1_add_new.py"));
    assert!(text.contains("class ModelNew(torch") && text.contains("super(ModelNew, self)"));
    assert!(text.contains("# é zoo.Model is none") && text.contains("def get_inputs"));
    // It finds its problem again.
    let answer = write(dir.path(), "1_add_new.py", &text);
    assert_eq!(reference_of(&answer), "1_add.py");
}

#[test]
fn an_answer_brings_the_sources_of_the_extension_that_it_imports() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "model.py", PROBLEM);
    let answer = write(dir.path(), "model_new.py", &format!("import my_ext, os\n{ANSWER}"));
    assert_eq!(find(&answer, &KernelFolders::default()).unwrap().spec.extra_files.len(), 0);
    write(dir.path(), "binding.cpp", "#include \"deep.h\"\nPYBIND11_MODULE(my_ext, m) {}\n");
    write(dir.path(), "deep.h", "");
    write(dir.path(), "kernels/add.cu", "__global__ void add() {}\n");
    write(dir.path(), "tests/other.cu", "");
    let found = find(&answer, &KernelFolders::default()).unwrap();
    assert!(found.assumptions[1].contains("`my_ext`, which it imports, from 2 sources"));
    let sent = found.spec.sources(&KernelFolders::default()).unwrap().files;
    let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["binding.cpp", "deep.h", "kernels/add.cu", "model.py", "model_new.py"];
    assert_eq!(names, expected);
}
