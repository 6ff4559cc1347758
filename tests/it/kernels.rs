//! `rgpu kernels`, and every mistake in a kernel that is found before a host is reached.

use std::fs;

use crate::fake_host::FakeHost;
use crate::laptop::Laptop;

const SOURCE: &str = "extern \"C\" __global__ void twice(const float *x, float *y, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = 2 * x[i];\n}\n";

const SPEC: &str = r#"name = "twice"
language = "cuda"
source = "twice.cu"
entry = { device = "twice" }

[[arg]]
name = "x"
dtype = "f32"
shape = ["n"]
init = { uniform = [-1.0, 1.0] }
role = "in"

[[arg]]
name = "y"
dtype = "f32"
shape = ["n"]
role = "out"

[[arg]]
name = "n"
dtype = "i32"
role = "scalar"
value = "n"

[launch]
grid = ["ceil_div(n, 256)"]
block = [256]

[sizes]
vars = ["n"]
cases.small = { n = 1000 }
default = "small"
"#;

fn laptop_with(spec: &str) -> Laptop {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("kernels/twice/kernel.toml", spec);
    laptop.write("kernels/twice/twice.cu", SOURCE);
    laptop
}

#[test]
fn the_shipped_kernels_are_listed_and_shown() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("kernels list"));
    insta::assert_snapshot!(laptop.show("kernels show vecadd"));
    insta::assert_snapshot!(laptop.show("kernels show host-entry --json"));
}

#[test]
fn a_projects_own_kernel_is_found_by_name_folder_and_file() {
    let laptop = laptop_with(SPEC);
    let by_name = laptop.run("kernels show twice");
    assert!(by_name.status.success());
    assert_eq!(by_name.stdout, laptop.run("kernels show kernels/twice").stdout);
    for (command, schema) in [("list", "kernels"), ("show twice", "kernel")] {
        let printed = laptop.run(&format!("kernels {command} --json")).stdout;
        crate::documents::printed_keeps(schema, &serde_json::from_slice(&printed).unwrap());
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("kernels/twice"), "{printed}");
    }
}

#[test]
fn a_new_kernel_begins_with_a_skeleton_that_is_never_written_over() {
    let laptop = Laptop::new();
    laptop.write("twice.cu", SOURCE);
    insta::assert_snapshot!(laptop.show("kernels new twice.cu"));
    insta::assert_snapshot!(fs::read_to_string(laptop.project("kernel.toml")).unwrap());
    insta::assert_snapshot!(laptop.show("kernels new twice.cu"));
    insta::assert_snapshot!(laptop.show("kernels new no-such.cu"));
}

#[test]
fn an_unknown_kernel_names_the_nearest() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("profile --kernel vecad"));
    insta::assert_snapshot!(laptop.show("kernels show tiled-matmull"));
    insta::assert_snapshot!(laptop.show("profile --kernel no/such/file.cu"));
}

#[test]
fn a_bad_kernel_toml_is_an_error_with_its_line_and_key() {
    let mut story = String::new();
    for (from, to) in [
        (
            "dtype = \"f32\"\nshape = [\"n\"]\nrole = \"out\"",
            "dtype = \"f33\"\nshape = [\"n\"]\nrole = \"out\"",
        ),
        ("default = \"small\"", "default = \"tiny\""),
        ("[launch]", "[lunch]"),
        ("block = [256]", "block = [2048]"),
        ("ceil_div(n, 256)", "ceil_div(m, 256)"),
        ("ceil_div(n, 256)", "ceil_div(n,"),
        ("source = \"twice.cu\"", "source = \"thrice.cu\""),
        ("name = \"twice\"", "name = "),
    ] {
        assert!(SPEC.contains(from), "{from}");
        let laptop = laptop_with(&SPEC.replacen(from, to, 1));
        story += &laptop.show("profile --kernel twice --dry-run");
    }
    insta::assert_snapshot!(story);
}

#[test]
fn a_bad_size_is_an_error_with_an_example() {
    let laptop = laptop_with(SPEC);
    let mut story = String::new();
    for sizes in ["n=", "m=4", "4,5", "-3", "0", "n=4x", "n=99999999999999999999", "nosuch"] {
        story +=
            &laptop.show(&format!("profile --kernel twice --problem-sizes '{sizes}' --dry-run"));
    }
    insta::assert_snapshot!(story);
}

#[test]
fn presets_give_flags_and_an_unknown_one_names_the_nearest() {
    let laptop = laptop_with(SPEC);
    laptop.write("rgpu.toml", "[preset.quick]\nmode = \"bench\"\niters = 3\n");
    insta::assert_snapshot!(laptop.show("profile --kernel twice --preset quik --dry-run"));
    let shown = laptop.show("profile --kernel twice --preset quick --dry-run");
    assert!(shown.ends_with("status 0\n"), "{shown}");
    laptop.write("rgpu.toml", "[preset.quick]\nno-such-flag = 3\n");
    insta::assert_snapshot!(laptop.show("profile --kernel twice --preset quick --dry-run"));
}

#[test]
fn usage_errors_are_two_and_say_what_to_type() {
    let laptop = Laptop::new();
    let mut story = String::new();
    for line in [
        "profile",
        "profil --kernel vecadd",
        "profile --kernel vecadd --mode ncux",
        "profile --kernel vecadd --timeout never",
        "profile --kernel vecadd --set fulll",
        "profile --kernel vecadd --section SpeedOfLigth",
        "profile --kernel vecadd --at-least ncu.best",
        "profile --kernel vecadd --label nonsense",
        "profile --kernel vecadd -- ./app",
        "profile --kernel vecadd --ncu-args \"'open\"",
        "exec",
        "runs show no-such-run",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
}

#[test]
fn a_python_program_and_a_kernel_given_twice_are_told_the_command_to_type() {
    let laptop = Laptop::new();
    laptop.write("train.py", "import sys\nprint(sys.argv)\n");
    laptop.write("with.py", "def step(x):\n    return x\n");
    for (line, told) in [
        ("profile train.py --dry-run", "`train.py` is run as a script, by the host's `python3`\n"),
        (
            "profile -K train.py --dry-run",
            "`train.py` is run as a script, by the host's `python3`\n",
        ),
        ("profile with.py", "`rgpu profile -- python3 with.py`; one function of it: `rgpu kernels"),
        ("profile -- train.py --lr 1", "rgpu profile -- python3 train.py --lr 1\n"),
        ("profile -- ./train.py", "rgpu profile -- python3 ./train.py\n"),
        ("report train.py", "rgpu profile -- python3 train.py\n"),
        ("profile --kernel vecadd --kernel saxpy", "`--kernel` is there twice"),
        ("profile --kernel=vecadd -K saxpy", "`--kernel` is there twice"),
        ("build --kernel vecadd --kernel saxpy", "`--kernel` is there twice"),
    ] {
        let shown = laptop.show(line);
        assert!(shown.contains(told), "{shown}");
    }
    let shown = laptop.show("profile --remote nowhere --kernel vecadd -- x --kernel a --kernel b");
    assert!(!shown.contains("twice"), "{shown}");
    laptop.write("rgpu.toml", "[preset.quick]\nmoed = \"nsys\"\n");
    let shown = laptop.show("profile --kernel vecadd --preset quick --dry-run");
    assert!(shown.contains("did you mean `--mode`?"), "{shown}");
}

#[test]
fn a_named_file_that_does_not_exist_has_one_status_in_every_command() {
    let laptop = Laptop::new();
    for line in [
        "bench run --file nope.toml",
        "build nope.cu",
        "build nope.py --dsl triton",
        "compare nope.ncu-rep nope.ncu-rep",
        "disasm nope.cubin",
        "exec nope.rs",
        "exec --env-file nope -- true",
        "exec --mount nope -- true",
        "kernels new nope.cu",
        "layout dump nope.py --python python3",
        "layout insights nope.json",
        "loop start nope.toml",
        "loop validate nope.json",
        "profile nope.cu",
        "profile -- ./nope",
        "queue add --file nope.sh",
        "report nope.ncu-rep",
        "schema kernel-toml --check nope.toml",
    ] {
        let shown = laptop.show(line);
        assert!(shown.ends_with("status 2\n"), "{shown}");
        assert!(shown.contains("nope"), "{shown}");
    }
    assert!(!laptop.project("artifacts").exists());
}
