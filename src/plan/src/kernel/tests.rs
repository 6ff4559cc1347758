//! Tests of whole kernels: the worked ones, errors in kernel.toml, sizes, bare sources.

use std::path::{Path, PathBuf};

use rgpu_case::{Number, Role};

use super::*;
use rgpu_model::error::Failure;

fn kernel_folders() -> KernelFolders {
    KernelFolders {
        project: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")),
        kernel_path: Vec::new(),
        shipped: None,
    }
}

fn vecadd() -> KernelSpec {
    find::find("vecadd", &kernel_folders()).unwrap().spec
}

fn failure(error: KernelError) -> String {
    Failure::from(error)
        .to_string()
        .replace(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), "<repo>")
}

/// vecadd's kernel.toml with `from` replaced by `to`.
fn read_changed(from: &str, to: &str) -> Result<KernelSpec, KernelError> {
    let folder = kernel_folders().project.join("kernels/vecadd");
    let text = std::fs::read_to_string(folder.join("kernel.toml")).unwrap();
    assert!(text.contains(from), "{from}");
    read(&folder.join("kernel.toml"), &text.replacen(from, to, 1))
}

#[test]
fn every_worked_kernel_has_a_value_for_every_named_size() {
    let kernels = find::list(&kernel_folders());
    assert!(kernels.len() >= 14, "{}", kernels.len());
    for kernel in kernels {
        let spec = kernel.spec.unwrap();
        assert_eq!(spec.name, kernel.name);
        let sets = spec.cases(&CaseSelection::All).unwrap();
        assert_eq!(sets.len(), spec.sizes.cases.len());
        for set in sets {
            assert_eq!(set.launch.is_some(), matches!(spec.entry, EntryPoint::Device(_)));
            assert!(set.flops.is_some() && set.bytes.is_some());
        }
    }
}

#[test]
fn a_case_holds_numbers_only() {
    let sets = vecadd().cases(&CaseSelection::Given(vec!["n=1000; 4096*2".into()])).unwrap();
    let names: Vec<_> = sets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["n=1000", "n=8192"]);
    let set = &sets[0];
    assert_eq!(set.launch.as_ref().unwrap().grid, [4, 1, 1]);
    assert_eq!(set.groups[0].args[2].dims, [1000]);
    assert_eq!(set.groups[0].args[3].value, Some(Number::Int(1000)));
    assert_eq!((set.flops, set.bytes), (Some(1000.0), Some(12000.0)));
}

#[test]
fn sizes_are_positional_named_or_cases_of_kernel_toml() {
    let matmul = find::find("tiled-matmul", &kernel_folders()).unwrap().spec;
    let names = |flags: &[&str]| -> Vec<String> {
        let flags = flags.iter().map(|f| (*f).to_owned()).collect();
        let sets = matmul.cases(&CaseSelection::Given(flags)).unwrap();
        sets.into_iter().map(|set| set.name).collect()
    };
    assert_eq!(names(&["64,32,16"]), ["m=64,n=32,k=16"]);
    assert_eq!(
        names(&["64x32x16 | tiny", "k=1,n=2,m=3"]),
        ["m=64,n=32,k=16", "tiny", "m=3,n=2,k=1"]
    );
    assert_eq!(names(&["all"]), ["tiny", "odd", "large"]);
    let default = matmul.cases(&CaseSelection::Default).unwrap();
    assert_eq!(default[0].name, "large");
}

#[test]
fn groups_are_parted_by_semicolons_and_work_is_their_sum() {
    let folder = kernel_folders().project.join("kernels/vecadd");
    let text = std::fs::read_to_string(folder.join("kernel.toml")).unwrap();
    let (launch, start) = (text.find("[launch]").unwrap(), text.find("[sizes]").unwrap());
    let end = text.find("[reference]").unwrap();
    let sizes = "[sizes]\nvars = [\"n\"]\ngroups = true\ncases.two = [{ n = 10 }, { n = 20 }]\n\n";
    let device = format!("{}{sizes}{}", &text[..start], &text[end..]);
    let error = read(&folder.join("kernel.toml"), &device).unwrap_err();
    assert!(failure(error).contains("needs a host entry"));
    let host = format!("{}{sizes}{}", &text[..launch], &text[end..])
        .replace("{ device = \"vecadd\" }", "{ host = 1 }");
    let spec = read(&folder.join("kernel.toml"), &host).unwrap();
    let sets = spec.cases(&CaseSelection::Given(vec!["1;2;3|4".into(), "two".into()])).unwrap();
    let shapes: Vec<_> = sets
        .iter()
        .map(|set| {
            let sizes: Vec<_> = set.groups.iter().map(|g| g.sizes[0]).collect();
            (set.name.as_str(), sizes, set.flops)
        })
        .collect();
    assert_eq!(
        shapes,
        [
            ("n=1+n=2+n=3", vec![1, 2, 3], Some(6.0)),
            ("n=4", vec![4], Some(4.0)),
            ("two", vec![10, 20], Some(30.0)),
        ]
    );
}

#[test]
fn wrong_sizes_say_what_is_wrong_and_show_an_example() {
    let matmul = find::find("tiled-matmul", &kernel_folders()).unwrap().spec;
    let message = |flag: &str| {
        failure(matmul.cases(&CaseSelection::Given(vec![flag.to_owned()])).unwrap_err())
    };
    insta::assert_snapshot!(
        ["64,32", "m=1,n=2", "m=1,n=2,q=3", "m=1,2,3", "m=1,m=2,n=3,k=4", "huge", "1,2,3+", ""]
            .map(|flag| message(flag).lines().next().unwrap().to_owned())
            .join("\n")
    );
    insta::assert_snapshot!(message("64,32"));
    insta::assert_snapshot!(message("m=0,n=1,k=1"));
}

#[test]
fn mistakes_in_kernel_toml_name_line_and_key() {
    let cases = [
        ("dtype = \"f32\"", "dtpye = \"f32\""),
        ("dtype = \"f32\"", "dtype = \"f33\""),
        ("shape = [\"n\"]", "shape = [\"m\"]"),
        ("mode = \"ncu\"", "mode = \"nqu\""),
        ("language = \"cuda\"", "language = \"cudda\""),
        ("entry = { device = \"vecadd\" }", "entry = { host = 2 }"),
        ("grid = [\"ceil_div(n, 256)\"]", "grid = [\"ceil_div(n 256)\"]"),
        ("value = \"n\"", "value = 1.5"),
        ("default = \"large\"", "default = \"big\""),
        ("name = \"vecadd\"", "name = \"../vecadd\""),
        ("role = \"out\"", "role = \"out\"\ninit = { ints = [0, 1] }"),
        ("[launch]", "[lunch]"),
        ("block = [256]", "block = [256"),
        ("cases.tiny = { n = 1 }", "cases.tiny = { m = 1 }"),
    ];
    let messages: Vec<String> =
        cases.iter().filter_map(|(from, to)| read_changed(from, to).err()).map(failure).collect();
    assert_eq!(messages.len(), cases.len());
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn launches_that_no_gpu_takes_are_refused_with_their_numbers() {
    let message = |from, to| {
        let spec = read_changed(from, to).unwrap();
        failure(spec.cases(&CaseSelection::Default).unwrap_err())
    };
    insta::assert_snapshot!(
        [
            message("block = [256]", "block = [32, 64]"),
            message("block = [256]", "block = [\"n\"]"),
            message("block = [256]", "block = [256]\ncluster = [3]"),
            message("shape = [\"n\"]", "shape = [\"n / 3\"]"),
            message("shape = [\"n\"]", "shape = [\"n * n * n * n\"]"),
        ]
        .join("\n\n")
    );
}

#[test]
fn where_no_kernel_is_found_the_hint_says_where_they_are() {
    let error = find::find("vecadd", &KernelFolders::default()).unwrap_err();
    assert_eq!(Failure::from(error).hints, [NO_KERNELS]);
}

#[test]
fn an_unknown_kernel_offers_the_nearest_names() {
    let error = find::find("vecad", &kernel_folders()).unwrap_err();
    let text = failure(error);
    assert!(text.contains("unknown kernel `vecad`") && text.contains("did you mean `vecadd`?"));
}

#[test]
fn a_longer_word_for_a_role_offers_the_role_that_it_begins_with() {
    for (written, offered) in [("input", "in"), ("output", "out"), ("scaler", "scalar")] {
        let error = read_changed("role = \"in\"", &format!("role = \"{written}\"")).unwrap_err();
        let text = failure(error);
        let expected = format!("did you mean `{offered}`?");
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_missing_source_is_named_with_its_key() {
    let error = read_changed("source = \"vecadd.cu\"", "source = \"gone.cu\"").unwrap_err();
    let text = failure(error);
    assert!(text.contains("cannot read `<repo>/kernels/vecadd/gone.cu`"), "{text}");
    assert!(text.contains("`source`"), "{text}");
}

#[test]
fn a_reference_kernel_has_a_launch_of_its_own_and_small_cases() {
    let device = "[reference]\ndevice = \"vecadd\"\ngrid = [\"n\"]\nblock = [1]\nsmall = [\"tiny\", \"odd\"]";
    let spec = read_changed("[reference]", device).unwrap();
    let set = &spec.cases(&CaseSelection::Default).unwrap()[0];
    assert_eq!(set.reference_launch.as_ref().unwrap().grid, [16777216, 1, 1]);
    let small: Vec<_> = spec.small_cases().unwrap().into_iter().map(|set| set.name).collect();
    assert_eq!(small, ["tiny", "odd"]);
    let error = read_changed("[reference]", "[reference]\nsmall = [\"tiny\"]").unwrap_err();
    assert!(failure(error).contains("belongs to a `reference.device`"));
    let error = read_changed("[reference]", &device.replace("odd", "odds")).unwrap_err();
    assert!(failure(error).contains("did you mean `odd`?"));
}

#[test]
fn beside_a_host_entry_a_reference_on_the_gpu_launches_by_itself() {
    let entry = |launch: &str| {
        let file = kernel_folders().project.join("kernels/host-entry/kernel.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let device = format!("[reference]\ndevice = \"slow\"\nsmall = [\"tiny\"]\n{launch}");
        read(&file, &text.replace("[reference]", &device))
    };
    let spec = entry("").unwrap();
    assert_eq!(spec.cases(&CaseSelection::Default).unwrap()[0].reference_launch, None);
    assert_eq!(spec.small_cases().unwrap().len(), 1);
    assert!(failure(entry("grid = [1]").unwrap_err()).contains("it takes no `reference.grid`"));
}

#[test]
fn a_python_kernel_names_callables_and_its_model() {
    let text = |name: &str| {
        let folder = kernel_folders().project.join("kernels").join(name);
        (folder.join("kernel.toml"), std::fs::read_to_string(folder.join("kernel.toml")).unwrap())
    };
    let (file, decoder) = text("decoder-gqa");
    let spec = read(&file, &decoder).unwrap();
    let EntryPoint::Python(python) = &spec.entry else { panic!("{:?}", spec.entry) };
    assert_eq!((python.function.as_str(), python.prepare.as_deref()), ("generate", Some("build")));
    let model = spec.model.as_ref().unwrap();
    assert_eq!((model.name.as_str(), model.dtype.as_str()), ("decoder", "float32"));
    assert!(model.settings.contains(&("kv_heads".into(), rgpu_case::Setting::Number(2.into()))));
    let set = &spec.cases(&CaseSelection::Default).unwrap()[0];
    let stages: f64 = set.region_flops.values().sum();
    assert!((stages - set.flops.unwrap()).abs() < 1.0, "the stages are all of it");
    let tree = spec.sources(&kernel_folders()).unwrap();
    assert_eq!(tree.source, "decoder.py");

    let message_for = |from: &str, to: &str| {
        assert!(decoder.contains(from), "{from}");
        failure(read(&file, &decoder.replacen(from, to, 1)).unwrap_err())
    };
    let all = [
        message_for("{ python = \"generate\", prepare = \"build\" }", "{ device = \"generate\" }"),
        message_for("prepare = \"build\"", "prepare = 1"),
        message_for("name = \"decoder\"\nvariant", "variant"),
        message_for("layers = 6", "layers = [6]"),
        message_for("[reference]", "[launch]\ngrid = [1]\nblock = [1]\n[reference]"),
        message_for("[reference]", "[reference]\nsource = \"gone.py\""),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn kernels_are_found_by_folder_file_and_source() {
    let folder = kernel_folders().project.join("kernels/vecadd");
    for path in [folder.clone(), folder.join("kernel.toml"), folder.join("vecadd.cu")] {
        let loaded = find::find(path.to_str().unwrap(), &kernel_folders()).unwrap();
        assert_eq!(loaded.spec, vecadd_at(&folder), "{}", path.display());
        assert!(loaded.assumptions.is_empty());
    }
}

fn vecadd_at(folder: &Path) -> KernelSpec {
    let file = folder.join("kernel.toml");
    read(&file, &std::fs::read_to_string(&file).unwrap()).unwrap()
}

#[test]
fn a_bare_source_is_inferred_with_its_assumptions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.cu");
    let source = "__global__ void axpy(const float *x, float *y, float alpha, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += alpha * x[i];
    }";
    std::fs::write(&file, source).unwrap();
    let loaded = find::find(file.to_str().unwrap(), &kernel_folders()).unwrap();
    assert_eq!(loaded.spec.entry, EntryPoint::Device("axpy".into()));
    let roles: Vec<_> = loaded.spec.args.iter().map(|a| a.role).collect();
    assert_eq!(roles, [Role::In, Role::InOut, Role::Scalar, Role::Scalar]);
    let set = &loaded.spec.cases(&CaseSelection::Default).unwrap()[0];
    assert_eq!(set.launch.as_ref().unwrap().grid, [65536, 1, 1]);
    insta::assert_snapshot!(loaded.assumptions.join("\n"), @r"
    launched with `<<<ceil_div(n, 256), 256>>>`, the block's shape: usual
    n = 16777216; `--problem-sizes` chooses others
    arrays with random values: `x` f32[n] (read), `y` f32[n] (read and written)
    `alpha` is 1
    there is no reference: results are not checked
    ");
}

#[test]
fn a_source_that_leaves_choices_open_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.cu");
    let message = |source: &str| {
        std::fs::write(&file, source).unwrap();
        let error = find::find(file.to_str().unwrap(), &kernel_folders()).unwrap_err();
        failure(error).replace(folder.path().to_str().unwrap(), "<dir>")
    };
    insta::assert_snapshot!(
        [
            message(
                "struct P { int n; Q q; };\n__global__ void k(P p, float *x) { x[0] = p.n; }"
            ),
            message("__global__ void k(float **rows, int n) { rows[0][0] = n; }"),
            message("template <int MODE> __global__ void k(float *a) { a[MODE] = 0; }"),
            message(
                "__global__ void k(float *a, int *i) { extern __shared__ float s[]; s[i[0]] = *a; i[0] = 1; }"
            ),
            message("__global__ void k(float *a) {} int main() {}"),
            message("void f() {}"),
        ]
        .join("\n\n")
    );
}

#[test]
fn a_skeleton_is_a_kernel_toml_that_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.cu");
    for source in [
        "__global__ void mm(const __half *a, float *c, int m, int n, float alpha) {}",
        "template <int TILE> __global__ void t(float4 *a) { a[threadIdx.x] = a[TILE]; }",
        "__global__ void a(float *x, int n) {} __global__ void b(float *x, int n) {}",
        "extern \"C\" int rgpu_launch(void *s, cudaStream_t t) { return 0; }",
    ] {
        std::fs::write(&file, source).unwrap();
        let text = find::skeleton(&file, None).unwrap();
        let spec = read(&folder.path().join("kernel.toml"), &text).unwrap();
        spec.cases(&CaseSelection::All).unwrap();
    }
    std::fs::write(&file, "__global__ void mm(const __half *a, float *c, int m, int n) {}")
        .unwrap();
    insta::assert_snapshot!(find::skeleton(&file, None).unwrap());
}

#[test]
fn a_skeleton_and_a_bare_source_are_inferred_alike() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saxpy.cu");
    let source = "__global__ void saxpy(const float *x, float *y, int *hits, float a, int n) {}";
    std::fs::write(&file, source).unwrap();
    let bare = find::find(file.to_str().unwrap(), &kernel_folders()).unwrap().spec;
    let text = find::skeleton(&file, None).unwrap();
    let written = read(&folder.path().join("kernel.toml"), &text).unwrap();
    let describe_args = |spec: &KernelSpec| -> Vec<String> {
        let args = spec.args.iter();
        args.map(|arg| format!("{} {:?} {:?}", arg.name, arg.role, arg.init)).collect()
    };
    assert_eq!(describe_args(&written), describe_args(&bare));
}

#[test]
fn templates_alone_are_compiled_as_the_instance_that_would_be_launched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.cu");
    let entry = |source: &str| {
        std::fs::write(&file, source).unwrap();
        let found = find::find_to_compile(file.to_str().unwrap(), &kernel_folders()).unwrap();
        found.spec.entry_name().to_owned()
    };
    let template = "template <typename T> __global__ void k(T *x) { x[threadIdx.x] = 0; }\n";
    let launch = "void run(float *x) { k<<<1, 32>>>(x); }\n";
    assert_eq!(entry(template), "k<float>");
    assert_eq!(entry(&format!("{template}{launch}")), "k");
    assert_eq!(entry(&format!("{template}template __global__ void k<int>(int *x);")), "k");
    // The host functions of an extension of torch are not compiled.
    assert_eq!(entry(&format!("#include <torch/extension.h>\n{template}{launch}")), "k<float>");
}

proptest::proptest! {
    /// Any text that users may write is refused, without a panic.
    #[test]
    fn no_text_brings_the_readers_down(
        text in "[ -~é\n]{0,60}|([nmx=,;|()*/%+.0-9 -]|min|sum|ceil_div){0,24}",
    ) {
        let vars = ["n".to_owned(), "m".to_owned()];
        if let Ok(expr) = expr::Expr::parse(&text, expr::Grammar::Work, &vars) {
            let _ = expr.float(&vars, &[vec![3, 5], vec![i64::MAX, 0]]);
            let _ = expr.int(expr::Scope { vars: &vars, values: &[3, 5] }, expr::Division::Exact);
        }
        let matmul = find::find("tiled-matmul", &kernel_folders()).unwrap().spec;
        let _ = matmul.cases(&CaseSelection::Given(vec![text.clone()]));
        let _ = read(Path::new("kernel.toml"), &text);
    }

    #[test]
    fn no_source_brings_the_scanner_down(
        text in "([ -~é\n]|__global__ void k|__launch_bounds__|[(){};,*<>\"'/#]){0,80}",
    ) {
        super::cuda_source::kernel_names(&text);
        let _ = super::cuda_source::infer::infer(Path::new("x.cu"), &text, None);
        let source = format!("__global__ void k(float *x, int n) {{ {text} }}");
        let _ = super::cuda_source::infer::infer(Path::new("x.cu"), &source, Some(&text));
    }
}

#[test]
fn a_bare_source_gives_its_kernel_a_name_of_its_own() {
    for (file, name) in [
        ("a/x.cu", "x"),
        ("k ü/my kern.cu", "my-kern"),
        ("other one.cu", "other-one"),
        ("größe (2).py", "gr-e-2"),
        ("_k.cu", "k"),
        ("", "kernel"),
    ] {
        assert_eq!(name_of(Path::new(file)), name, "{file}");
        assert!(valid_name(name));
    }
    let other = ["ü.cu", "ö.cu"].map(|file| name_of(Path::new(file)));
    assert!(other[0] != other[1], "{other:?}");
    for name in other {
        assert!(name.starts_with("kernel-") && valid_name(&name), "{name}");
    }
    let long = name_of(Path::new(&format!("{} x.cu", "k".repeat(90))));
    assert!(valid_name(&long), "{long}");
}

#[test]
fn the_schema_for_editors_has_the_keys_that_are_read() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../schemas/kernel-toml.json")).unwrap();
    let keys: Vec<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, super::read::KEYS);
    let list = |pointer: &str| schema.pointer(pointer).unwrap().as_array().unwrap().clone();
    let modes: Vec<&str> = super::MODES.iter().map(|mode| mode.name).collect();
    assert_eq!(list("/properties/mode/enum"), modes);
    assert_eq!(list("/$defs/arg/properties/dtype/enum"), rgpu_case::Dtype::ALL.map(|d| d.name()));
    let mut languages: Vec<&str> = super::LANGUAGES.iter().map(|one| one.name()).collect();
    languages.sort_unstable();
    assert_eq!(list("/properties/language/enum"), languages);
}
