//! `rgpu disasm` on real cubins, fatbins, libraries and wheels, with nvdisasm played and without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::exec::on_a_terminal;
use crate::laptop::{Laptop, fixture, status, wait_for, words};

const VECADD: &str = "fatbin/13.5/vecadd";
const TENSOR: &str = "cubin/13.5/instructions/tcgen05.sm_100a.O3";

/// A laptop with these fixtures in its project, under these names.
fn laptop(files: &[(&str, &str)]) -> Laptop {
    let laptop = Laptop::new();
    for (from, to) in files {
        let to = laptop.project(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(fixture(from), to).unwrap();
    }
    laptop
}

pub(crate) fn summary(laptop: &Laptop) -> serde_json::Value {
    let text = fs::read(laptop.project("artifacts/sass/summary.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn cubins_become_listings_a_summary_and_a_table() {
    let laptop = laptop(&[
        ("cubin/13.5/facts/sm_90a.cubin", "a/facts.cubin"),
        ("cubin/12.9/facts/sm_90a.cubin", "b/facts.cubin"),
        (&format!("{TENSOR}.cubin"), "tensor.cubin"),
    ]);
    let line = "disasm a/facts.cubin b/facts.cubin tensor.cubin --tool rgpu --control-codes";
    insta::assert_snapshot!(laptop.show(line));
    let listing = |name: &str| fs::read_to_string(laptop.project("artifacts/sass").join(name));
    // Two inputs of one stem.
    assert!(listing("facts.sm_90a.sass").unwrap().contains(".text.block_sum"));
    assert!(listing("facts.sm_90a-2.sass").unwrap().contains("EXIT"));
    let tensor = listing("tensor.sm_100a.sass").unwrap();
    for name in ["UTCHMMA", "UTCCP", "LDTM", "UTMALDG", ":S12]"] {
        assert!(tensor.contains(name), "{name}");
    }
    let summary = summary(&laptop);
    assert_eq!(summary["schema"], "rgpu.disasm/1");
    let kernel = &summary["inputs"][2]["images"][0]["kernels"][0];
    assert_eq!(kernel["tensor_memory"], true);
    assert_eq!(kernel["mnemonics"]["LDTM"], 2);
}

#[test]
fn one_bad_file_does_not_keep_the_others_from_being_done() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "good.cubin")]);
    laptop.write("bad.cubin", "no cubin at all\n");
    let cut = &fs::read(fixture("cubin/13.5/facts/sm_80.cubin")).unwrap()[..3000];
    fs::write(laptop.project("cut.cubin"), cut).unwrap();
    insta::assert_snapshot!(laptop.show("disasm bad.cubin good.cubin cut.cubin --tool rgpu -q"));
    let inputs = &summary(&laptop)["inputs"];
    let ended: Vec<_> = (0..3).map(|n| inputs[n]["status"].as_str().unwrap()).collect();
    assert_eq!(ended, ["failed", "ok", "failed"]);
    insta::assert_snapshot!(laptop.show("disasm nothing*.cubin"));
    fs::create_dir(laptop.project("none")).unwrap();
    fs::write(laptop.project("void.cubin"), "").unwrap();
    let line = "disasm nothing.cubin none void.cubin /dev/zero good.cubin --tool none";
    insta::assert_snapshot!(laptop.show(line));
}

#[test]
fn code_in_libraries_and_wheels_is_listed_and_extracted() {
    let laptop = laptop(&[
        (&format!("{VECADD}/vecadd-1.0-py3-none-any.whl"), "dist/vecadd.whl"),
        (&format!("{VECADD}/size.fatbin"), "dist/size.fatbin"),
    ]);
    laptop.write("dist/README", "not code\n");
    insta::assert_snapshot!(laptop.show("disasm dist --list"));
    assert!(!laptop.project("artifacts").exists());
    let output = laptop.run("disasm dist/size.fatbin --extract --tool rgpu --arch sm_100a");
    assert_eq!(status(&output), 0);
    let extracted = fs::read(laptop.project("artifacts/sass/size.sm_100a.cubin")).unwrap();
    assert!(extracted == fs::read(fixture(&format!("{VECADD}/vecadd.sm_100a.cubin"))).unwrap());
    assert!(!laptop.project("artifacts/sass/size.sm_80.cubin").exists());
    let output = laptop.run("disasm dist --arch sm_75");
    assert_eq!(status(&output), 7);
}

#[test]
fn compressed_bytes_that_would_fill_memory_are_refused_by_name() {
    let laptop = laptop(&[]);
    let report = [b"NVR\0".as_slice(), &vec![0; 80 << 20]].concat();
    let packed = zstd::encode_all(report.as_slice(), 3).unwrap();
    fs::write(laptop.project("bomb.ncu-repz"), packed).unwrap();
    for line in ["report bomb.ncu-repz", "disasm bomb.ncu-repz --list"] {
        let output = laptop.run(line);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(status(&output), 7, "{words}");
        for word in ["bomb.ncu-repz", "more than 67108864", "unpack it with another tool"] {
            assert!(words.contains(word), "{words}");
        }
    }
}

#[test]
fn facts_and_files_come_without_listings_where_none_are_wanted() {
    let laptop = laptop(&[(&format!("{VECADD}/size.fatbin"), "size.fatbin")]);
    let output = laptop.run("disasm size.fatbin --extract --tool none --arch sm_100a");
    assert_eq!(status(&output), 0);
    let image = &summary(&laptop)["inputs"][0]["images"][0];
    assert_eq!(image["files"], serde_json::json!(["size.sm_100a.cubin", "size.sm_100a.ptx"]));
    assert!(image["kernels"][0]["registers"].as_u64() > Some(0));
    let refused = laptop.run("disasm size.fatbin --view sass --tool none");
    assert_eq!(status(&refused), 2);
}

#[test]
fn views_print_one_thing_and_write_nothing() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    for view in ["mix", "cfg", "source"] {
        let line = format!("disasm inlined.cubin -k second --tool rgpu --view {view}");
        insta::assert_snapshot!(laptop.show(&line));
    }
    let ptx = laptop.run("disasm inlined.cubin --view ptx");
    assert!(String::from_utf8_lossy(&ptx.stdout).contains(".target sm_90a"));
    let line = "disasm inlined.cubin --tool rgpu --view sass --line-info --control-codes";
    let sass = laptop.run(line);
    assert!(String::from_utf8_lossy(&sass.stdout).contains("inlined at"));
    assert!(!laptop.project("artifacts").exists());
    insta::assert_snapshot!(laptop.show("disasm inlined.cubin -k nobody --view mix --tool rgpu"));
}

/// Puts a program in place of nvdisasm.
fn played(laptop: &Laptop, script: &str) -> PathBuf {
    let path = laptop.write("cuda/bin/nvdisasm", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.parent().unwrap().to_owned()
}

#[test]
fn nvdisasm_gives_the_operands_and_rgpu_the_control_words() {
    let laptop = laptop(&[(&format!("{TENSOR}.cubin"), "tensor.cubin")]);
    let answer = fixture(&format!("{TENSOR}.sass"));
    let bin = played(
        &laptop,
        &format!(
            "case $1 in --version) echo 'release 13.5, V13.5.37';; *) cat {};; esac",
            answer.display()
        ),
    );
    let mut command = laptop.rgpu(words("disasm tensor.cubin --view sass --control-codes"));
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|l| l.contains("UTCOMMA.2CTA")).unwrap();
    assert!(line.contains("[B------:R0:W-:y1:S10]") && line.contains("gdesc[UR16]"), "{line}");
}

#[test]
fn where_nvdisasm_fails_rgpu_lists_and_says_why() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    let bin = played(
        &laptop,
        "case $1 in --version) echo 'release 13.5, V13.5.37';; \
         *) echo 'nvdisasm fatal   : no such SM' >&2; exit 1;; esac",
    );
    let mut command = laptop.rgpu(words("disasm k.cubin"));
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
    assert_eq!(status(&output), 0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nvdisasm fatal   : no such SM"), "{said}");
    assert!(fs::read_to_string(laptop.project("artifacts/sass/k.sm_80.sass")).is_ok());
    let image = &summary(&laptop)["inputs"][0]["images"][0];
    assert!(image["tool"].as_str().unwrap().starts_with("rgpu "));
}

#[test]
fn an_nvdisasm_that_comes_to_no_end_is_ended_and_the_cubin_is_listed_without_it() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    let bin = played(
        &laptop,
        "case $1 in --version) echo 'release 13.5, V13.5.37';; *) while :; do :; done;; esac",
    );
    let mut command = laptop.rgpu(words("disasm k.cubin --timeout 1s"));
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
    assert_eq!(status(&output), 0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ended after 1 s of processor time"), "{said}");
    assert!(said.contains("raise the limit with `--timeout`"), "{said}");
    assert!(fs::read_to_string(laptop.project("artifacts/sass/k.sm_80.sass")).is_ok());
}

#[test]
fn nvdisasm_ends_with_the_rgpu_that_is_killed() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    let bin = played(
        &laptop,
        "case $1 in --version) echo 'release 13.5, V13.5.37';; \
         *) echo $$ > pid; while :; do :; done;; esac",
    );
    let mut command = laptop.rgpu(words("disasm k.cubin"));
    let mut rgpu = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).spawn().unwrap();
    let mut pid = || fs::read_to_string(laptop.project("pid")).ok()?.trim().parse::<u32>().ok();
    wait_for("nvdisasm to run", &mut pid);
    let there = format!("/proc/{}/exe", pid().unwrap());
    assert!(Path::new(&there).exists());
    rgpu.kill().unwrap();
    rgpu.wait().unwrap();
    wait_for("nvdisasm to end", || (!Path::new(&there).exists()).then_some(()));
}

#[test]
fn listings_that_cannot_be_written_are_a_failure_of_our_disk() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "k.cubin")]);
    laptop.write("file", "no folder\n");
    insta::assert_snapshot!(laptop.show("disasm k.cubin k.cubin --tool rgpu --out file/inside"));
}

#[test]
fn what_could_not_be_compared_does_not_pass_fail_on() {
    let laptop = laptop(&[
        ("cubin/13.5/facts/sm_100a.cubin", "a.cubin"),
        ("cubin/13.5/instructions/tcgen05.sm_100a.O3.cubin", "b.cubin"),
    ]);
    let shown = laptop.show("disasm --diff a.cubin b.cubin --fail-on resources");
    assert!(shown.contains("nothing was compared for `--fail-on`"), "{shown}");
    assert!(shown.ends_with("status 7\n"), "{shown}");
    assert_eq!(status(&laptop.run("disasm --diff a.cubin b.cubin --fail-on any")), 1);
    assert_eq!(status(&laptop.run("disasm --diff a.cubin b.cubin")), 0);
}

#[test]
fn two_builds_are_compared_without_addresses() {
    let laptop = laptop(&[
        ("cubin/12.9/facts/sm_90a.cubin", "old.cubin"),
        ("cubin/13.5/facts/sm_90a.cubin", "new.cubin"),
    ]);
    insta::assert_snapshot!(laptop.show("disasm --diff old.cubin new.cubin --fail-on any"));
    let same = laptop.run("disasm --diff new.cubin new.cubin --fail-on any,resources");
    assert_eq!(status(&same), 0);
    assert!(String::from_utf8_lossy(&same.stdout).contains("identical code"));
    assert_eq!(status(&laptop.run("disasm --diff new.cubin")), 2);
    let json = laptop.run("disasm --diff old.cubin new.cubin --normalize registers --json");
    laptop.write("diff.json", &String::from_utf8(json.stdout).unwrap());
    assert_eq!(status(&laptop.run("schema disasm-diff --check diff.json")), 0);
}

#[test]
fn hot_instructions_are_listed_with_their_samples_and_waits() {
    let report = "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz";
    let laptop = laptop(&[(report, "report.ncu-repz")]);
    insta::assert_snapshot!(laptop.show("disasm report.ncu-repz --hot"));
    assert!(!laptop.project("artifacts").exists());
    insta::assert_snapshot!(laptop.show("disasm report.ncu-repz --hot -k nobody"));
    let json = laptop.run("disasm report.ncu-repz --hot --json");
    let spots: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(spots["schema"], "rgpu.hotspots/1");
    assert_eq!(spots["launches"][0]["instructions"][0]["sass"], "LDC");
}

#[test]
fn a_local_nvdisasm_makes_hot_instructions_read_as_on_ncus_source_page() {
    let case = "ncu/2025.3.1/full-tiled-matmul";
    let laptop = laptop(&[(&format!("{case}/report.ncu-repz"), "report.ncu-repz")]);
    let answer = fixture(&format!("{case}/nvdisasm.sass"));
    let bin = played(
        &laptop,
        &format!(
            "case $1 in --version) echo 'release 13.5, V13.5.37';; *) cat {};; esac",
            answer.display()
        ),
    );
    let mut command = laptop.rgpu(words("disasm report.ncu-repz --hot --json"));
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
    let spots: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = fs::read_to_string(fixture(&format!("{case}/source.csv"))).unwrap();
    let rows: Vec<(u64, &str)> = page
        .lines()
        .filter_map(|line| {
            let (address, rest) = line.strip_prefix("\"0x")?.split_once("\",\"")?;
            Some((u64::from_str_radix(address, 16).ok()?, rest.split_once('"')?.0))
        })
        .collect();
    let base = rows[0].0;
    let mut held = 0;
    for spot in spots["launches"][0]["instructions"].as_array().unwrap() {
        let address = spot["address"].as_u64().unwrap();
        let row = rows.iter().find(|(at, _)| *at == address).unwrap().1;
        // The page has absolute addresses where branches go, and no hints of register reuse.
        let word = |word: &str| match word.strip_prefix("0x").map(|n| u64::from_str_radix(n, 16)) {
            Some(Ok(to)) if to > base => format!("{:#x}", to - base),
            _ => word.to_owned(),
        };
        let row: Vec<String> = row.split_whitespace().map(word).collect();
        assert_eq!(spot["sass"].as_str().unwrap().replace(".reuse", ""), row.join(" "));
        held += 1;
    }
    assert_eq!(held, 147);
}

#[test]
fn filters_that_leave_nothing_name_what_is_there() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    let mut shown = String::new();
    for line in [
        "disasm inlined.cubin --tool rgpu -k secnd",
        "disasm inlined.cubin --tool rgpu -k nobody --json",
        "disasm inlined.cubin --tool rgpu --arch sm_80",
        "disasm inlined.cubin --arch foo",
        "disasm inlined.cubin --block 0",
        "disasm nothing.cubin",
    ] {
        shown += &laptop.show(line);
    }
    insta::assert_snapshot!(shown);
    assert!(!laptop.project("artifacts").exists());
}

#[test]
fn a_command_that_reads_nothing_leaves_an_earlier_summary_alone() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_80.cubin", "good.cubin")]);
    laptop.write("bad.cubin", "no cubin at all\n");
    assert_eq!(status(&laptop.run("disasm good.cubin --tool rgpu")), 0);
    let output = laptop.run("disasm bad.cubin --tool rgpu");
    assert_eq!(status(&output), 7);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("listings"));
    assert_eq!(summary(&laptop)["inputs"][0]["status"], "ok");
}

#[test]
fn each_kernel_has_a_listing_of_its_own_where_that_is_asked() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_90a.cubin", "facts.cubin")]);
    assert_eq!(status(&laptop.run("disasm facts.cubin --per-kernel --tool rgpu")), 0);
    let files = &summary(&laptop)["inputs"][0]["images"][0]["files"];
    let files: Vec<&str> = files.as_array().unwrap().iter().filter_map(|f| f.as_str()).collect();
    assert!(files.contains(&"facts.sm_90a.spilling.sass"), "{files:?}");
    let text = fs::read_to_string(laptop.project("artifacts/sass/facts.sm_90a.spilling.sass"));
    assert_eq!(text.unwrap().matches(".section\t.text.").count(), 1);
}

#[test]
fn every_view_is_one_json_document_of_the_published_schema() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    for view in ["sass", "ptx", "source", "mix", "cfg"] {
        let output = laptop.run(&format!("disasm inlined.cubin --tool rgpu --view {view} --json"));
        assert_eq!(status(&output), 0, "{view}");
        let text = String::from_utf8(output.stdout).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&document["schema"], &document["view"]), (&"rgpu.code/1".into(), &view.into()));
        laptop.write("code.json", &text);
        assert_eq!(status(&laptop.run("schema code --check code.json")), 0, "{view}");
    }
}

#[test]
fn life_ranges_are_nvdisasms_and_not_rgpus_own_listers() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    let bin = played(
        &laptop,
        &format!(
            "case $1 in --version) echo 'release 13.5, V13.5.37';; *) cat {};; esac",
            fixture("cubin/13.5/inlined/nvdisasm.lives.txt").display()
        ),
    );
    let line = "disasm inlined.cubin -k first --view live";
    let mut command = laptop.rgpu(words(line));
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).output().unwrap();
    let none = laptop.show("disasm inlined.cubin --tool rgpu --view live --json");
    insta::assert_snapshot!(laptop.shown(line, &output) + &none);
}

#[test]
fn control_flow_is_drawn_by_the_ending_of_the_file() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    let output = laptop.run("disasm inlined.cubin --view cfg --out pictures/cfg.svg");
    assert_eq!((status(&output), &*output.stdout), (0, &b"pictures/cfg.svg\n"[..]));
    let svg = fs::read_to_string(laptop.project("pictures/cfg.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let blocks = laptop.run("disasm inlined.cubin --view cfg --json");
    let blocks: serde_json::Value = serde_json::from_slice(&blocks.stdout).unwrap();
    let kernels = blocks["images"][0]["kernels"].as_array().unwrap();
    let count: usize = kernels.iter().map(|k| k["blocks"].as_array().unwrap().len()).sum();
    assert_eq!(svg.matches("<rect").count(), count);
    assert_eq!(status(&laptop.run("disasm inlined.cubin --view mix --format svg")), 2);
}

#[test]
fn lto_ir_is_named_and_no_damage() {
    let laptop = laptop(&[("fatbin/13.5/lto/lto.fatbin", "lto.fatbin")]);
    let listed = laptop.run("disasm lto.fatbin --tool rgpu");
    assert_eq!(status(&listed), 0);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("lto_ir for sm_90: no SASS yet"), "{text}");
    let view = laptop.run("disasm lto.fatbin --tool rgpu --view sass");
    assert_eq!(status(&view), 7);
    let words = String::from_utf8_lossy(&view.stderr);
    assert!(words.contains("the files have nothing for") && !words.contains("decompressed"));
}

#[test]
fn a_view_is_never_written_over_its_input_nor_unasked_over_a_text_of_the_users() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "in.cubin")]);
    let cubin = fs::read(laptop.project("in.cubin")).unwrap();
    for line in [
        "disasm in.cubin --tool rgpu --view sass --out ./in.cubin",
        "disasm in.cubin --tool rgpu --view sass --out in.cubin --force",
        "disasm in.cubin --tool rgpu --format html --out in.cubin --force",
    ] {
        assert_eq!(status(&laptop.run(line)), 2, "{line}");
    }
    laptop.write("notes.txt", "buy milk\n");
    let refused = laptop.run("disasm in.cubin --view mix --tool rgpu --out notes.txt");
    assert_eq!(status(&refused), 2);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    assert_eq!(fs::read(laptop.project("notes.txt")).unwrap(), b"buy milk\n");
    // Its own kind it replaces, another only on the user's word.
    let runs = [
        ("disasm in.cubin --view mix --tool rgpu --out notes.txt --force", 0),
        ("disasm in.cubin --view mix -k second --tool rgpu --out notes.txt", 0),
        ("disasm in.cubin --view sass --tool rgpu --out notes.txt", 2),
        ("disasm in.cubin --view sass --tool rgpu --out in.sass", 0),
        ("disasm in.cubin --view sass --tool rgpu --out in.sass", 0),
        ("disasm in.cubin --view ptx --out in.ptx", 0),
        ("disasm in.cubin --view ptx --out in.ptx", 0),
    ];
    for (line, ends) in runs {
        assert_eq!(status(&laptop.run(line)), ends, "{line}");
    }
    assert!(fs::read(laptop.project("in.cubin")).unwrap() == cubin);
}

#[test]
fn files_are_extracted_beside_an_input_and_not_over_it() {
    let laptop = laptop(&[(&format!("{VECADD}/size.fatbin"), "out/size.sm_100a.cubin")]);
    let before = fs::read(laptop.project("out/size.sm_100a.cubin")).unwrap();
    let line = "disasm out/size.sm_100a.cubin --extract --tool none --arch sm_100a --out out";
    assert_eq!(status(&laptop.run(line)), 0);
    assert!(fs::read(laptop.project("out/size.sm_100a.cubin")).unwrap() == before);
    assert!(laptop.project("out/size.sm_100a-2.cubin").is_file());
    laptop.write("mine/summary.json", "{\"mine\": 1}\n");
    let refused = laptop.run("disasm out/size.sm_100a.cubin --tool none --out mine");
    assert_eq!(status(&refused), 2);
    assert_eq!(fs::read_dir(laptop.project("mine")).unwrap().count(), 1);
}

#[test]
fn a_filter_without_suffix_lets_every_suffix_through_and_one_with_it_none_else() {
    let laptop = laptop(&[(&format!("{TENSOR}.cubin"), "tensor.cubin")]);
    for (arch, ends) in [("sm_100", 0), ("100", 0), ("sm_100a", 0), ("sm_100f", 7), ("sm_10", 2)] {
        let output = laptop.run(&format!("disasm tensor.cubin --view mix --arch {arch}"));
        assert_eq!(status(&output), ends, "{arch}");
    }
}

#[test]
fn builds_for_two_architectures_are_compared_where_each_is_for_one_alone() {
    let laptop = laptop(&[
        ("cubin/13.5/facts/sm_80.cubin", "old.cubin"),
        ("cubin/13.5/facts/sm_90a.cubin", "new.cubin"),
    ]);
    let output = laptop.run("disasm --diff old.cubin new.cubin --tool rgpu");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("sm_80 → sm_90a spilling("), "{text}");
    assert!(text.contains("@@") && !text.contains("unsigned short): only in"), "{text}");
    let json = laptop.run("disasm --diff old.cubin new.cubin --tool rgpu --json");
    laptop.write("diff.json", &String::from_utf8(json.stdout).unwrap());
    assert_eq!(status(&laptop.run("schema disasm-diff --check diff.json")), 0);
}

#[test]
fn the_table_the_mix_and_the_page_count_the_same_instructions() {
    let laptop = laptop(&[("cubin/13.5/facts/sm_90a.cubin", "facts.cubin")]);
    assert_eq!(status(&laptop.run("disasm facts.cubin --tool rgpu")), 0);
    let json = laptop.run("disasm facts.cubin --tool rgpu --view sass --json");
    let code: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let mix = laptop.run("disasm facts.cubin --tool rgpu --view mix");
    let mix = String::from_utf8_lossy(&mix.stdout);
    let summary = summary(&laptop);
    let kernels = summary["inputs"][0]["images"][0]["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 3);
    for kernel in kernels {
        let listed = code["images"][0]["kernels"].as_array().unwrap();
        let listed = listed.iter().find(|k| k["symbol"] == kernel["symbol"]).unwrap();
        let count = listed["instructions"].as_array().unwrap().len() as u64;
        assert_eq!(kernel["instructions"].as_u64(), Some(count));
        assert!(mix.contains(&format!("(sm_90a): {count} instructions")), "{mix}");
    }
}

#[test]
fn a_report_shows_the_kernels_that_were_launched_unless_all_are_asked_for() {
    let report = "ncu/2025.3.1/select-mangled/report.ncu-repz";
    let laptop = laptop(&[(report, "report.ncu-repz")]);
    let kernels = |flags: &str| {
        let output = laptop.run(&format!("disasm report.ncu-repz --tool none --json {flags}"));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let kernels = document["inputs"][0]["images"][0]["kernels"].as_array().unwrap();
        let symbols = kernels.iter().map(|k| k["symbol"].as_str().unwrap().to_owned());
        let said = String::from_utf8_lossy(&output.stderr).contains("`--all-kernels` shows all");
        (symbols.collect::<Vec<_>>(), said)
    };
    let launched = ["_Z4tileIfLi4EEvPT_x", "cost$each", "_Z5heavyPfx"].map(str::to_owned).to_vec();
    assert_eq!(kernels(""), (launched, true));
    let (all, said) = kernels("--all-kernels");
    assert_eq!((all.len(), said), (10, false));
    assert_eq!(kernels("-k heavy"), (vec!["_Z5heavyPfx".to_owned()], false));
}

#[test]
fn the_cubins_of_a_report_are_read_like_any_file() {
    let report = "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz";
    let laptop = laptop(&[(report, "report.ncu-repz")]);
    let mix = laptop.run("disasm report.ncu-repz --view mix --tool rgpu");
    assert!(String::from_utf8_lossy(&mix.stdout).contains("instructions"));
    assert_eq!(status(&laptop.run("disasm report.ncu-repz --tool rgpu")), 0);
    assert_eq!(summary(&laptop)["inputs"][0]["kind"], "ncu_rep");
}

#[test]
fn printed_ptx_begins_with_its_first_line() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin")]);
    let ptx = laptop.run("disasm inlined.cubin --view ptx");
    let json = laptop.run("disasm inlined.cubin --view ptx --json");
    let code: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let kept = code["images"][0]["ptx"].as_str().unwrap();
    assert!(kept.starts_with('\n'), "the line table counts empty lines");
    assert_eq!(String::from_utf8_lossy(&ptx.stdout), kept.trim_start());
}

#[test]
fn text_of_files_has_no_control_sequences_in_a_pipe_and_files_keep_their_bytes() {
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}2J\u{202e}";
    let head = ".version 8.0\n.target sm_90a\n.address_size 64\n";
    let ptx = format!("{head}// {evil}\n.visible .entry k() {{ ret; }}\n");
    let columns = "\"ID\",\"Process ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"a__b\"";
    let units = format!("\"\",\"\",\"\",\"ns\",\"{evil}\"");
    let page = format!("{columns}\n{units}\n\"1\",\"1\",\"k{evil}\",\"5\",\"1\"\n");
    let laptop = Laptop::new();
    fs::write(laptop.path("project/evil.ptx"), &ptx).unwrap();
    fs::write(laptop.path("project/evil.csv"), page).unwrap();
    for line in [
        "disasm evil.ptx --view ptx",
        "disasm evil.ptx --view ptx --json",
        "report evil.csv",
        "report evil.csv --json",
        "report evil.csv --format csv",
        "report evil.csv --format markdown",
    ] {
        let output = laptop.run(line);
        for (text, stream) in [(&output.stdout, "stdout"), (&output.stderr, "stderr")] {
            let text = String::from_utf8_lossy(text);
            let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
            assert!(!text.contains(is_harmful), "{line} {stream}: {text:?}");
        }
        let shown = String::from_utf8_lossy(&output.stdout);
        // Markdown has its own form.
        let is_shown = shown.contains("\\u001b") || shown.contains("\\u{1b}");
        assert!(is_shown, "{line}: {shown}");
    }
    assert_eq!(status(&laptop.run("disasm evil.ptx --view ptx --out kept.ptx")), 0);
    let kept = fs::read_to_string(laptop.path("project/kept.ptx")).unwrap();
    assert!(kept.contains(evil), "{kept:?}");
}

#[test]
fn code_from_before_volta_has_facts_and_bits_and_no_instructions_that_are_none() {
    let laptop = laptop(&[("cubin/12.9/pascal/sm_60.cubin", "old.cubin")]);
    // The words of nvdisasm 13.5.
    let bin = played(
        &laptop,
        "case $1 in --version) echo 'release 13.5, V13.5.37';; *) echo 'nvdisasm fatal   : CUDA \
         architecture \"SM60\" is deprecated. Please use CUDA toolkit 13.0 or earlier' >&2; \
         exit 1;; esac",
    );
    let show = |line: &str| {
        let mut command = laptop.rgpu(words(line));
        let path = format!("{}:/usr/bin:/bin", bin.display());
        laptop.shown(line, &command.env("PATH", path).output().unwrap())
    };
    insta::assert_snapshot!(show("disasm old.cubin"));
    let summary = summary(&laptop);
    let kernel = &summary["inputs"][0]["images"][0]["kernels"][0];
    assert_eq!(kernel["registers"], 7);
    assert!(kernel.get("instructions").is_none() && kernel.get("blocks").is_none());
    let listing = fs::read_to_string(laptop.project("artifacts/sass/old.sm_60.sass")).unwrap();
    insta::assert_snapshot!(listing);
    insta::assert_snapshot!(show("disasm old.cubin --view live"));
    insta::assert_snapshot!(show("disasm old.cubin --view mix"));
}

#[test]
fn reports_in_a_folder_are_told_of_and_read_where_nothing_else_is() {
    let report = "ncu/2025.3.1/full-tiled-matmul/report.ncu-repz";
    let laptop = laptop(&[
        (report, "both/one.ncu-repz"),
        ("cubin/13.5/facts/sm_80.cubin", "both/k.cubin"),
        (report, "alone/one.ncu-repz"),
    ]);
    insta::assert_snapshot!(laptop.show("disasm both --tool none"));
    insta::assert_snapshot!(laptop.show("disasm alone --tool none"));
}

/// A laptop whose nvdisasm knows the life ranges of `inlined.cubin`, and refuses all else as a
/// newer one does code of old GPUs; and its PATH.
fn with_lives() -> (Laptop, String) {
    let laptop = laptop(&[
        ("cubin/13.5/inlined/sm_90a.cubin", "inlined.cubin"),
        ("cubin/12.9/pascal/sm_60.cubin", "old.cubin"),
    ]);
    let script = format!(
        "[ \"$1\" = --version ] && exec echo 'release 13.5, V13.5.37'\n\
         for file; do :; done\ncmp -s \"$file\" '{}' && exec cat '{}'\n\
         echo 'nvdisasm fatal   : CUDA architecture \"SM60\" is deprecated' >&2; exit 1",
        fixture("cubin/13.5/inlined/sm_90a.cubin").display(),
        fixture("cubin/13.5/inlined/nvdisasm.lives.txt").display()
    );
    let bin = played(&laptop, &script);
    (laptop, format!("{}:/usr/bin:/bin", bin.display()))
}

#[test]
fn a_file_that_nvdisasm_refuses_keeps_no_other_from_being_shown() {
    let (laptop, path) = with_lives();
    let run = |line: &str| laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
    let alone = run("disasm inlined.cubin -k second --view live");
    assert_eq!(status(&alone), 0);
    // What `-k` leaves out is not looked at.
    let output = run("disasm old.cubin inlined.cubin -k second --view live");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm", &output));
    assert_eq!(output.stdout, alone.stdout);
    let output = run("disasm old.cubin inlined.cubin --view live");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 5, "{said}");
    assert!(said.contains("`old.cubin`: sm_60: nvdisasm gave no life ranges"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("second"));
}

#[test]
fn rows_of_tables_are_one_line_in_a_pipe_and_as_long_as_columns_says_on_a_terminal() {
    let long = format!("{}/k.cubin", "a_folder_with_a_long_name/".repeat(6));
    let laptop = laptop(&[("cubin/13.5/facts/sm_90a.cubin", &long)]);
    let rows = |columns: Option<&str>| {
        let mut command = laptop.rgpu(words("disasm . --tool none"));
        let command = columns.iter().fold(&mut command, |c, n| c.env("COLUMNS", n));
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().skip(1).map(str::to_owned).collect::<Vec<String>>()
    };
    let whole = rows(None);
    assert!(whole.len() == 4 && whole[0].contains("barriers"), "{whole:?}");
    assert_eq!(rows(Some("60")), whole, "a shell may export `COLUMNS`");
    let columns = [("COLUMNS", "60")];
    let Some(seen) = on_a_terminal(&laptop, "disasm . --tool none", &columns) else { return };
    let narrow: Vec<&str> = seen.lines().skip(1).map(str::trim_end).collect();
    assert!(narrow.iter().all(|row| row.chars().count() <= 60), "{narrow:?}");
    assert!(!narrow[0].contains("barriers"), "{narrow:?}");
}

#[test]
fn what_a_view_cannot_be_written_as_is_refused_with_what_it_can() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "k.cubin")]);
    let mut shown = String::new();
    for line in [
        "disasm k.cubin --view cfg --out x.png",
        "disasm k.cubin --view mix --out x.svg",
        "disasm k.cubin --view sass --out x.json",
        "disasm k.cubin --view sass --out x.html",
        "disasm k.cubin --out k.cubin",
        "disasm k.cubin --list --remote box",
        "disasm k.cubin --tool rgpu --remote box",
        "disasm k.cubin --list -k second",
    ] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 2, "{}", laptop.shown(line, &output));
        shown += &laptop.shown(line, &output);
    }
    insta::assert_snapshot!(shown);
    assert_eq!(fs::read_dir(laptop.project("")).unwrap().count(), 1);
    assert_eq!(status(&laptop.run("disasm k.cubin --view cfg --format dot --out x.png")), 0);
}

#[test]
fn kernels_of_ptx_are_counted_and_a_text_that_is_not_whole_is_no_ptx() {
    let laptop = laptop(&[("fatbin/13.5/vecadd/vecadd.sm_90.ptx", "k.ptx")]);
    let text = fs::read_to_string(laptop.project("k.ptx")).unwrap();
    laptop.write("cut.ptx", &text[..text.rfind('}').unwrap()]);
    laptop.write("bare.ptx", ".version 8.8\n");
    let shown = laptop.show("disasm k.ptx cut.ptx bare.ptx --tool none");
    assert!(shown.contains("--- status 7"), "{shown}");
    insta::assert_snapshot!(shown);
    let view = laptop.run("disasm cut.ptx --view ptx");
    assert_eq!(status(&view), 7);
    assert!(String::from_utf8_lossy(&view.stderr).contains("broken PTX: it ends within"));
}

#[test]
fn of_several_kernels_named_those_that_are_not_there_are_said() {
    let laptop = laptop(&[("cubin/13.5/inlined/sm_90a.cubin", "k.cubin")]);
    for line in [
        "disasm k.cubin -k second -k nobody --tool rgpu",
        "disasm k.cubin -k second -k nobody --tool rgpu --json",
        "disasm k.cubin -k second -k nobody --tool rgpu --view mix",
    ] {
        let output = laptop.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(status(&output), 0, "{said}");
        assert_eq!(said.matches("no kernel is named `nobody`").count(), 1, "{said}");
        assert!(!said.contains("`second`"), "{said}");
    }
}

#[test]
fn latest_is_the_newest_run_with_gpu_code_and_it_is_named() {
    let laptop =
        laptop(&[(&format!("{VECADD}/vecadd.sm_80.cubin"), "artifacts/runs/built/cubin/v.cubin")]);
    let record = |id: &str, started: &str| {
        let record = serde_json::json!({
            "schema": "rgpu.run/1", "id": id, "started": started, "title": "t", "command": "exec",
            "argv": [], "mode": "", "kernel": "", "remote": "local", "address": "local",
            "labels": {}, "jobs": [], "state": "done", "exit": 0, "seconds": 0.1,
        });
        laptop.write(&format!("artifacts/runs/{id}/run.json"), &record.to_string());
    };
    record("built", "2026-11-20T10:00:00Z");
    let shown = laptop.show("disasm latest --tool rgpu --list");
    assert!(shown.contains("built/cubin/v.cubin") && !shown.contains("newer runs"), "{shown}");
    record("command", "2026-11-21T10:00:00Z");
    let shown = laptop.show("disasm latest --tool rgpu --list");
    assert!(shown.contains("`latest` is `built` here: newer runs have no GPU code"), "{shown}");
    assert!(shown.contains("built/cubin/v.cubin") && shown.ends_with("status 0\n"), "{shown}");
    // A run that is named is taken as it is.
    let shown = laptop.show("disasm command --tool rgpu --list");
    assert!(shown.contains("holds GPU code") && shown.ends_with("status 7\n"), "{shown}");
}
