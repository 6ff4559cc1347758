//! The targets of bench.toml, and what is wrong with them.

use std::fs;

use super::{SUITE, laptop_with, suite};
use crate::documents::printed_keeps;
use crate::laptop::status;

#[test]
fn targets_are_listed_and_wrong_files_and_names_are_told() {
    let (laptop, _host) = laptop_with(SUITE);
    let listed = laptop.run("bench list --json");
    let value: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    printed_keeps("targets", &value);
    assert_eq!(value["cases"].as_array().unwrap().len(), 3);
    let shown = laptop.show("bench list -t pairs");
    assert!(shown.contains("memory:transpose") && !shown.contains("vecadd"), "{shown}");
    let shown = laptop.show("bench run -t memory:vecad");
    assert!(
        shown.contains("did you mean `memory:vecadd`?") && shown.ends_with("status 3\n"),
        "{shown}"
    );
    let shown = laptop.show("bench");
    assert!(shown.contains("--mode bench") && shown.ends_with("status 2\n"), "{shown}");
    suite(&laptop, "bench run -t pairs --run-id night", 0);
    let shown = laptop.show("bench run -t pairs --run-id night");
    assert!(shown.contains("there is already a run `night`"), "{shown}");
    let lost = "[[target]]\nname = \"a:lost\"\nkernel = \"kernels/lost.cu\"\n\
                [[target]]\nname = \"a:there\"\nkernel = \"vecadd\"\n\
                [[target]]\nname = \"a:typo\"\nkernel = \"vecad\"\n";
    laptop.write("bench.toml", lost);
    let shown = laptop.show("bench list");
    for warning in [
        "warning: bench.toml:3: `a:lost` at key `kernel`: there is no file `kernels/lost.cu`",
        "warning: bench.toml:9: `a:typo` at key `kernel`: there is no kernel `vecad`; did you mean \
         `vecadd`?",
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    assert!(shown.ends_with("status 0\n") && shown.matches("warning").count() == 2, "{shown}");
    let shown = laptop.show("bench list -t a:there");
    assert!(!shown.contains("warning"), "{shown}");
    // `run` refuses them with the same words, before anything begins.
    let shown = laptop.show("bench run --run-id refused --remote h200");
    for words in [
        "error: `a:lost` at key `kernel`: there is no file `kernels/lost.cu`",
        "in `bench.toml:3`",
        "also bench.toml:9: `a:typo` at key `kernel`: there is no kernel `vecad`; did you mean \
         `vecadd`?",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 3\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/refused").exists());
    suite(&laptop, "bench run -t a:there --mode bench --remote h200", 0);
    let audit = laptop.run("bench audit --json");
    let value: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    // Before what the results of the last suite have.
    let findings = value["findings"].as_array().unwrap();
    assert_eq!(findings[0]["code"], "missing_source", "{value:#}");
    assert_eq!(findings[1]["code"], "unknown_kernel", "{value:#}");
    assert!(findings[1]["place"].as_str().unwrap().ends_with("bench.toml:9"), "{value:#}");
    assert_eq!(status(&audit), 1);
    // What `run` fails for with other keys, and a remote that nobody has.
    let wrong = "[defaults]\nremote = \"h20\"\n\
                 [[target]]\nname = \"a:axis\"\nkernel = \"vecadd\"\n\
                 [target.matrix]\nsizes.n = [1000, 4000]\nsizes.m = [1]\n\
                 [[target]]\nname = \"a:outside\"\nprogram = [\"../tools/app\"]\n\
                 [[target]]\nname = \"a:kernel\"\nkernel = \"../other/k.cu\"\n";
    laptop.write("bench.toml", wrong);
    let shown = laptop.show("bench list");
    for warning in [
        "warning: bench.toml:2: `a:axis` at key `remote`: there is no remote `h20`; did you mean \
         `h200`?",
        "warning: bench.toml:8: `a:axis` at key `matrix.sizes.m`: axis `m` of `a:axis` is not a \
         size of `vecadd`; its sizes: `n`",
        "warning: bench.toml:11: `a:outside` at key `program`: `../tools/app` lies outside the \
         project",
        "warning: bench.toml:14: `a:kernel` at key `kernel`: `../other/k.cu` lies outside the \
         project",
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    assert!(shown.ends_with("status 0\n") && shown.matches("warning").count() == 4, "{shown}");
    let shown = laptop.show("bench run --run-id lost");
    for words in [
        "error: `a:axis` at key `remote`: there is no remote `h20`",
        "in `bench.toml:2`",
        "help: did you mean `h200`?",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 3\n"), "{shown}");
    // Sizes that the kernel does not have are refused in the same way.
    let sizes = "[[target]]\nname = \"a:sizes\"\nkernel = \"vecadd\"\nsizes = \"huge\"\n";
    laptop.write("bench.toml", sizes);
    let told = "`a:sizes` at key `sizes`: `--problem-sizes huge`: ";
    let shown = laptop.show("bench list");
    assert!(shown.contains(&format!("warning: bench.toml:4: {told}")), "{shown}");
    let shown = laptop.show("bench run --run-id sizes --remote h200");
    assert!(shown.contains(&format!("error: {told}")), "{shown}");
    assert!(shown.contains("in `bench.toml:4`") && shown.ends_with("status 3\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/sizes").exists());
    // Entries that have no effect, too.
    let idle = "[[target]]\nname = \"a:idle\"\nkernel = \"vecadd\"\n[target.matrix]\n\
                sizes.n = [1000]\nexclude = [{ n = 2000 }]\n";
    laptop.write("bench.toml", idle);
    let told = "`a:idle` at key `matrix.exclude[0]`: it excludes no case: axis `n` has no value \
                `2000`; its values: `1000`";
    let shown = laptop.show("bench list");
    assert!(shown.contains(&format!("warning: bench.toml:6: {told}")), "{shown}");
    let shown = laptop.show("bench run --run-id idle --remote h200");
    assert!(shown.contains(&format!("error: {told}")), "{shown}");
    assert!(shown.ends_with("status 3\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/idle").exists());
    laptop.write("bench.toml", "[defaults]\nlevle = \"sol\"\n");
    let shown = laptop.show("bench list");
    assert!(shown.contains("bench.toml:2") && shown.contains("did you mean `level`?"), "{shown}");
    let many =
        "[[target]]\nname = \"a:b\"\nkernel = \"vecadd\"\n[target.matrix]\nsizes.n = \"1..5000\"\n";
    laptop.write("bench.toml", many);
    let shown = laptop.show("bench run");
    assert!(shown.contains("5000 cases, above the limit of 200"), "{shown}");
    laptop.write("bench.toml", &many.replace("\"1..5000\"", "[1]\nexclude = [{ n = 1 }]"));
    for command in ["bench run", "bench list", "bench run -t a:b"] {
        let shown = laptop.show(command);
        let told = "target `a:b` has no case: `exclude` leaves none of its matrix";
        assert!(shown.contains(told) && shown.contains("bench.toml:6"), "{shown}");
        assert!(shown.ends_with("status 3\n"), "{shown}");
    }
    fs::remove_file(laptop.project("bench.toml")).unwrap();
    let shown = laptop.show("bench list");
    assert!(shown.contains("this project has nothing to run"), "{shown}");
    // Kernels of `kernel_path` are run only if they are named, or after a yes.
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
    let config = laptop.path("config/config.toml");
    let settings = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("kernel_path = [{kernels:?}]\n{settings}")).unwrap();
    let shown = laptop.show("bench run --remote h200");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    assert!(shown.contains("no bench.toml, and 22 of 22 cases are kernels of"), "{shown}");
    assert!(shown.contains("`-t '*'` runs all"), "{shown}");
    let shown = laptop.show("bench list");
    assert!(shown.contains("of this project and of `kernel_path`"), "{shown}");
    suite(&laptop, "bench run -t kernels:vecadd --remote h200 --mode bench", 0);
    fs::write(&config, settings).unwrap();
    fs::create_dir_all(laptop.project("kernels/mine")).unwrap();
    laptop.write("kernels/mine/kernel.toml", "");
    let shown = laptop.show("bench list");
    assert!(shown.contains("kernels:mine"), "{shown}");
    laptop.write("kernels/mine/kernel.toml", "x");
    let audit = laptop.run("bench audit --json");
    let value: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    let finding = &value["findings"][0];
    assert_eq!(finding["code"], "bad_kernel_toml", "{value:#}");
    assert!(finding["place"].as_str().unwrap().ends_with("kernel.toml:1"), "{value:#}");
    assert_eq!(status(&audit), 1);
}

#[test]
fn every_kernel_that_the_worked_suite_names_by_path_exists() {
    let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let text = std::fs::read_to_string(kernels.join("bench.toml")).unwrap();
    let file: toml::Table = text.parse().unwrap();
    let mut paths = 0;
    for target in file["target"].as_array().unwrap() {
        for key in ["kernel", "baseline", "optimised"] {
            let Some(path) = target.get(key).and_then(toml::Value::as_str) else { continue };
            if path.contains('/') {
                paths += 1;
                assert!(kernels.join(path).join("kernel.toml").is_file(), "{key} = \"{path}\"");
            }
        }
    }
    assert!(paths > 5, "{paths}");
}

#[test]
fn a_dry_run_lists_the_cases_with_their_remotes_and_runs_nothing() {
    let (laptop, _host) = laptop_with(SUITE);
    let shown = laptop.show("bench run -t memory:vecadd --dry-run");
    for case in ["memory:vecadd[n=1000]  h200", "memory:vecadd[n=4000]  h200", "would run 2 cases"]
    {
        assert!(shown.contains(case), "{shown}");
    }
    assert!(shown.ends_with("status 0\n"), "{shown}");
    let output = laptop.run("bench run --remote local --dry-run --json");
    let planned: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(planned["cases"][0]["remote"], "local", "{planned}");
    assert!(!laptop.project("artifacts").exists());
}
