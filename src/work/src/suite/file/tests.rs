use super::*;

fn read(text: &str) -> Result<SuiteFile> {
    SuiteFile::read(Path::new("bench.toml"), text)
}

const PAIR: &str = r#"
[defaults]
level = "sol"
iters = 100
verify_timeout = "2m"
env = { A = "1", B = "2" }
grow = { vars = ["m"], factor = 4 }

[[target]]
name = "gemm:wagmiv67"
suites = ["nightly"]
baseline = "wagmiv67-triton"
optimised = "wagmiv67"
env = { B = "3" }

[[target]]
name = "copy:vecadd"
kernel = "vecadd"
level = "deep_dive"
[target.matrix]
sizes.n = "1024..4096:x2"
define.TILE = [16, 32]
exclude = [{ n = 1024, TILE = 32 }]
include = [{ n = 7, TILE = 1 }]
"#;

#[test]
fn targets_have_the_defaults_of_the_file_and_a_case_for_each_combination() {
    let file = read(PAIR).unwrap();
    let settings = &file.targets[0].settings;
    assert_eq!((settings.level, settings.iters), (Some(Level::Sol), Some(100)));
    assert_eq!((settings.verify_timeout_s, settings.timeout_s), (Some(120), None));
    assert_eq!(settings.env["A"], "1");
    assert_eq!(settings.env["B"], "3");
    assert_eq!(settings.grow.as_ref().unwrap().factor, 4);
    assert_eq!(file.suites(), ["gemm", "copy", "nightly"]);
    let cases = super::super::select(&file, &[], false).unwrap();
    let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "gemm:wagmiv67",
            "copy:vecadd[n=1024,TILE=16]",
            "copy:vecadd[n=2048,TILE=16]",
            "copy:vecadd[n=2048,TILE=32]",
            "copy:vecadd[n=4096,TILE=16]",
            "copy:vecadd[n=4096,TILE=32]",
            "copy:vecadd[n=7,TILE=1]",
        ]
    );
    assert_eq!(cases[1].settings.level, Some(Level::Deep));
    assert_eq!(cases[1].settings.define["TILE"], "16");
    for (pattern, count) in [("nightly", 1), ("nightly:*", 1), ("copy", 6), ("*[n=2048*", 2)] {
        let chosen = super::super::select(&file, &[pattern.to_owned()], false).unwrap();
        assert_eq!(chosen.len(), count, "{pattern}");
    }
    let failure = super::super::select(&file, &["gemm:wagmi".to_owned()], false).unwrap_err();
    assert!(failure.hints[0].contains("gemm:wagmiv67"), "{failure}");
}

#[test]
fn a_wrong_file_is_refused_with_line_key_and_the_nearest_name() {
    for (text, line, key, words) in [
        ("[defaults]\nlevle = \"sol\"\n", 2, "defaults.levle", "did you mean `level`?"),
        ("[remote.h200]\nurl = \"ssh://x\"\n", 1, "remote", "known here: `defaults`, `target`"),
        ("\n[[target]]\nname = \"x\"\nkernel = \"k\"\n", 3, "target[0].name", "write `suite:case`"),
        ("[[target]]\nname = \"a:b\"\n", 1, "target[0]", "only one of"),
        ("[[target]]\nname = \"a:b\"\nbaseline = \"k\"\n", 1, "target[0]", "no `optimised`"),
        ("[defaults]\nmode = \"nuc\"\n[[target]]\n", 2, "defaults.mode", "did you mean `ncu`?"),
        ("[defaults]\ntimeout = \"5x\"\n", 2, "defaults.timeout", "`5x` is not a valid time"),
        ("[defaults]\nthreshold = 5.0\n", 2, "defaults.threshold", "between"),
        ("", 1, "", "there is no `[[target]]`"),
        ("[[target]\n", 1, "", "not TOML"),
    ] {
        let failure = read(text).unwrap_err();
        let shown = failure.to_string();
        assert_eq!(failure.code, "bad_bench_toml");
        assert_eq!(failure.place.file, Some(format!("bench.toml:{line}")), "{shown}");
        assert!(shown.contains(words), "{shown}");
        assert!(shown.contains(&format!("`{key}`")) || key.is_empty(), "{shown}");
    }
    let grow = "[[target]]\nname = \"a:b\"\nkernel = \"k\"\ngrow = { vars = [\"n\"] }\n";
    let failure = read(grow).unwrap_err();
    assert_eq!(failure.place.file.as_deref(), Some("bench.toml:4"), "{failure}");
    assert!(failure.to_string().contains("only a pair grows"), "{failure}");
    let matrix = |inner: &str| {
        let text =
            format!("[[target]]\nname = \"a:b\"\nkernel = \"k\"\n[target.matrix]\n{inner}\n");
        read(&text).unwrap_err().to_string()
    };
    assert!(matrix("sizes.n = [\"x\"]").contains("is not a whole number"));
    assert!(matrix("sizes.n = [1, 1]").contains("is repeated"));
    assert!(matrix("sizes.n = [1]\ninclude = [{ m = 1 }]").contains("there is no axis `m`"));
    assert!(matrix("sizes.n = [1]\nenv.T = [2]\ninclude = [{ n = 1 }]").contains("axis `T`"));
    let twice =
        "[[target]]\nname = \"a:b\"\nkernel = \"k\"\n[[target]]\nname = \"a:b\"\nkernel = \"l\"\n";
    assert!(read(twice).unwrap_err().to_string().contains("two targets `a:b`"));
}

#[test]
fn a_matrix_without_a_case_or_with_too_many_is_refused_with_its_line() {
    let refused = |matrix: &str| {
        let text = format!(
            "[[target]]\nname = \"a:b\"\nkernel = \"k\"\n[target.matrix]\nsizes.n = [1, 2]\n{matrix}\n"
        );
        super::super::select(&read(&text).unwrap(), &[], false).unwrap_err()
    };
    let nothing = refused("exclude = [{ n = 1 }, { n = 2 }]");
    assert_eq!(nothing.code, "all_excluded");
    assert_eq!(nothing.place.file.as_deref(), Some("bench.toml:6"), "{nothing}");
    assert!(nothing.what.contains("`a:b`") && nothing.what.contains("`exclude`"), "{nothing}");
    let raised = "[defaults]\nmax_cases = 1000000\n";
    assert!(read(raised).unwrap_err().to_string().contains("between 1 and 10000"));
    let many = refused("define.T = \"1..500\"");
    assert_eq!(many.code, "too_many_cases");
    assert_eq!(many.place.file.as_deref(), Some("bench.toml:4"), "{many}");
    assert!(many.hints[0].contains("`max_cases`"), "{many}");
}

#[test]
fn targets_with_too_many_values_together_are_refused_while_they_are_read() {
    let target = |at: usize| {
        format!("[[target]]\nname = \"s:t{at}\"\nkernel = \"k\"\nmatrix.sizes.n = \"1..10000\"\n")
    };
    let refused = read(&(0..8).map(target).collect::<String>()).unwrap_err().to_string();
    assert!(refused.contains("list 60000 values; a file may list 50000"), "{refused}");
}

#[test]
fn targets_with_too_many_cases_together_are_refused() {
    let text = |count: usize| -> String {
        let target = |n: usize| {
            format!(
                "[[target]]\nname = \"a:t{n}\"\nkernel = \"k\"\n[target.matrix]\n\
                 sizes.n = \"1..200\"\n"
            )
        };
        (0..count).map(target).collect()
    };
    let cases = |count| super::super::select(&read(&text(count)).unwrap(), &[], false);
    assert_eq!(cases(50).unwrap().len(), 10_000);
    let refused = cases(51).unwrap_err();
    assert_eq!(refused.code, "too_many_cases");
    assert!(refused.what.contains("more than 10000 cases together"), "{refused}");
}

#[test]
fn generated_targets_are_left_out_unless_asked_for() {
    let text = "[[target]]\nname = \"a:b\"\nkernel = \"k\"\n[[target]]\nname = \"a:gen\"\nkernel = \"k\"\n\
                generated = true\n";
    let file = read(text).unwrap();
    let count = |patterns: &[&str], generated| {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        super::super::select(&file, &patterns, generated).unwrap().len()
    };
    assert_eq!((count(&[], false), count(&["a:*"], false), count(&["all"], true)), (1, 1, 2));
    assert_eq!(count(&["a:gen"], false), 1);
    // Only targets that were asked for are left out.
    let left_out = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        super::super::left_out_targets(&file, &patterns).unwrap().len()
    };
    let counts = [&[] as &[&str], &["a:*"], &["a"], &["a:b"], &["a:gen"], &["all"]].map(left_out);
    assert_eq!(counts, [1, 1, 0, 0, 0, 1]);
}

#[test]
fn the_schema_for_editors_has_the_keys_that_are_read() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../schemas/bench-toml.json")).unwrap();
    let has = |pointer: &str, read: &[&str]| {
        let keys = schema.pointer(pointer).unwrap().as_object().unwrap().keys();
        let mut keys: Vec<&str> = keys.map(String::as_str).collect();
        let mut read = read.to_vec();
        keys.sort_unstable();
        read.sort_unstable();
        assert_eq!(keys, read, "{pointer}");
    };
    has("/properties", KEYS);
    has("/properties/defaults/properties", DEFAULTS);
    let target = "/properties/target/items/properties";
    has(target, TARGET);
    has(&format!("{target}/matrix/properties"), MATRIX);
    has(&format!("{target}/grow/properties"), GROW);
}

#[test]
fn a_set_of_gpu_mode_problems_is_a_suite() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pmpp.yaml");
    std::fs::write(
        &file,
        "name: pmpp\nproblems:\n  - {directory: pmpp/vectoradd_py, name: vector add, gpus: [H100]}\n\
         \x20 - {directory: pmpp/sort_py, name: sort}\n  - {directory: pmpp/sort2, name: sort}\n",
    )
    .unwrap();
    let read = SuiteFile::load(Some(&file), &KernelFolders::default()).unwrap();
    let names: Vec<String> = read.targets.iter().map(TargetSpec::name).collect();
    assert_eq!(names, ["pmpp:vector-add", "pmpp:sort", "pmpp:sort-2"]);
    assert_eq!(read.targets[0].kernels(), ["./pmpp/vectoradd_py"]);
    assert_eq!(read.targets[0].settings.mode, Some(ProfileMode::Bench));
    for text in ["problems: []\n", "problems: x\n", "a: 1\n", "problems: [{name: x}]\n", "["] {
        std::fs::write(&file, text).unwrap();
        let failure = SuiteFile::load(Some(&file), &KernelFolders::default()).unwrap_err();
        assert_eq!(failure.code, "bad_source_format", "{text}");
    }
}
