//! `rgpu layout` as a user runs it: results with proofs, rejections, bad input, files, and a DSL
//! that is played by a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::documents::printed_keeps;
use crate::laptop::{Laptop, status};

/// The document of a command, which keeps to its schema, and the exit status.
fn document(laptop: &Laptop, line: &str) -> (Value, i32) {
    let output = laptop.run(&format!("layout {line} --json"));
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{line}: {e}: {text}"));
    let schema = value["schema"].as_str().unwrap().trim_start_matches("rgpu.");
    printed_keeps(schema.trim_end_matches("/1"), &value);
    (value, status(&output))
}

#[test]
fn descriptors_are_encoded_and_decoded() {
    let laptop = Laptop::new();
    let (value, _) = document(&laptop, "umma matrix --start 0x1c00 --swizzle 128b");
    assert_eq!(value["bits"], "0x40004040000101c0");
    let (decoded, _) = document(&laptop, "umma matrix 0x40004040000101c0");
    assert_eq!(decoded, value);
    let (value, _) = document(&laptop, "umma instruction --m 128 --n 128");
    assert_eq!((&value["bits"], &value["instruction"]["n"]), (&json!("0x08200480"), &json!(128)));
    let (decoded, _) = document(&laptop, "umma instruction 0x08200480");
    assert_eq!(decoded, value);
    let (value, _) = document(
        &laptop,
        "umma instruction --m 256 --n 64 --kind mxf8f6f4 --a e4m3 --b e2m1 --transpose-a --a-scale-id 2",
    );
    assert_eq!(value["bits"], "0x50909400");
    for (line, error) in [
        ("matrix --start 8", "the start address of 8 bytes"),
        ("instruction 0x08200481", "reserved bits are set: 0x1"),
        ("instruction 0x08200480 --n 8", "cannot be used with"),
        ("instruction 0x108200480", "does not fit 32 bits"),
        ("instruction --m 256 --n 8", "a pair of CTAs (M of 256)"),
        ("instruction --m 128 --n 8 --a e4m3", "multiply E2M1 alone"),
        ("instruction --m 128 --n 8 --kind mxf4 --scale ue4m3", "only mxf4nvf4"),
        (
            "instruction --m 128 --n 8 --b-scale-id 1",
            "the scale id of B is 1: 0, because four scales",
        ),
        ("instruction --m 128 --n 8 --kind mxf4 --a-scale-id 3", "the scale id of A is 3: 0 or 2"),
        ("instruction --m 128 --n 8 --kind mxf8f6f4 --a e4m3 --b e4m3 --a-scale-id 4", "0 to 3"),
    ] {
        let output = laptop.run(&format!("layout umma {line}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(status(&output), 2, "{line}");
        assert!(told.contains(error), "{line}: {told}");
    }
}

#[test]
fn results_carry_their_proofs() {
    let laptop = Laptop::new();
    for (line, layout, method) in [
        ("compose '(4,8):(8,1)' 4:8", "4:2", "algebraic"),
        ("compose '(2,2,4):(1,3,5)' '(2,2):(3,1)'", "(2,2):(4,1)", "enumeration"),
        ("compose '(4,8):(1,8)' '<2:1,4:2>'", "(2,4):(1,16)", "algebraic"),
        ("complement 4:2 24", "(2,3):(1,8)", "algebraic"),
        ("complement 4:2 '(4,6)'", "(2,3):(1,8)", "algebraic"),
        ("divide 32:1 4:1", "(4,8):(1,4)", "algebraic"),
        (
            "divide '(8,8):(1,8)' '<4:1,2:1>' --form zipped",
            "((4,2),(2,4)):((1,8),(4,16))",
            "algebraic",
        ),
        ("divide '(8,8):(1,8)' '<4:1,2:1>' --form tiled", "((4,2),2,4):((1,8),4,16)", "algebraic"),
        ("divide '(8,8):(1,8)' '<4:1,2:1>' --form flat", "(4,2,2,4):(1,8,4,16)", "algebraic"),
        ("product '(2,2):(1,2)' 3", "((2,2),3):((1,2),4)", "algebraic"),
        ("inverse --right '(4,8):(8,1)'", "(8,4):(4,1)", "algebraic"),
        ("inverse --left '(4,8):(8,1)'", "(8,4):(4,1)", "algebraic"),
        ("coalesce '(2,(1,6)):(1,(6,2))'", "12:1", "normal-form"),
        ("coalesce --by-mode '((2,2),3):((1,2),4)'", "(4,3):(1,4)", "normal-form"),
        ("filter '(2,4):(0,1)'", "4:1", "normal-form"),
        ("recast '(4,8):(8,1)' --from 4 --to 8", "(4,4):(4,1)", "algebraic"),
        (
            "compose 'S<3,4,3> o 0 o (8,64):(64,1)' '<4:2,8:1>'",
            "S<3,4,3> o 0 o (4,8):(128,1)",
            "algebraic",
        ),
        (
            "divide 'S<3,4,3> o 8 o (8,64):(64,1)' '<2:1,8:1>' --form zipped",
            "S<3,4,3> o 8 o ((2,8),(4,8)):((64,1),(128,8))",
            "algebraic",
        ),
        (
            "product 'S<1,4,3> o 0 o (8,8):(8,1)' 2",
            "S<1,4,3> o 0 o ((8,8),2):((8,1),64)",
            "algebraic",
        ),
        ("coalesce 'Sw<3,4,3> o (2,4):(1,2)'", "S<3,4,3> o 0 o 8:1", "normal-form"),
        (
            "recast 'S<3,4,3> o 4 o (8,64):(64,1)' --from 4 --to 8",
            "S<3,4,3> o 2 o (8,32):(32,1)",
            "algebraic",
        ),
    ] {
        let (value, status) = document(&laptop, line);
        assert_eq!(status, 0, "{line}");
        assert_eq!(value["layout"], layout, "{line}");
        assert_eq!(value["proof"]["method"], method, "{line}");
        assert_eq!(value["command"], line.split(' ').next().unwrap());
    }
}

#[test]
fn a_layout_that_does_not_exist_is_refused_with_a_witness() {
    let laptop = Laptop::new();
    let (value, status) = document(&laptop, "compose '(4,8):(8,1)' '(3,2):(1,3)'");
    assert_eq!(status, 1);
    assert!(value.get("layout").is_none());
    let rejection = &value["rejection"];
    assert_eq!(rejection["condition"], "carry");
    assert_eq!(rejection["witness"]["coordinate"], json!([2, 1]));
    assert_eq!(rejection["witness"]["required"], 9);
    assert_eq!(rejection["modes"][1]["mode"], "2:3");
    assert_eq!(rejection["proof"]["method"], "algebraic");
    let nearest = rejection["nearest"].as_str().unwrap();
    let (found, status) = document(&laptop, &format!("compose '(4,8):(8,1)' '{nearest}'"));
    assert_eq!((status, found["proof"]["method"].as_str()), (0, Some("algebraic")));
    for line in ["inverse --left '(4,8):(8,2)'", "complement '(4,4):(1,2)' 64", "divide 10:1 4:1"] {
        let (value, status) = document(&laptop, line);
        assert_eq!(status, 1, "{line}");
        assert!(value["rejection"]["reason"].is_string(), "{line}");
    }
    // A ragged tile: CuTe's result is that of a larger outer layout.
    for (line, enlarged) in [("divide 10:1 4:1", "12:1"), ("compose 4:2 8:12", "85:2")] {
        let (value, _) = document(&laptop, line);
        assert_eq!(value["rejection"]["enlarged"], enlarged, "{line}");
        let (operation, rest) = line.split_once(' ').unwrap();
        let (_, b) = rest.split_once(' ').unwrap();
        let (_, status) = document(&laptop, &format!("{operation} {enlarged} {b}"));
        assert_eq!(status, 0, "{line}");
    }
    // Facts that are not counted are undecided.
    let (value, status) = document(&laptop, "eval '(4,4):(1,3)' --max-points 4");
    assert_eq!((status, &value["image_size"], &value["proof"]), (1, &json!(null), &json!(null)));
    assert_eq!(
        (&value["injective"], &value["injective_proof"]["method"]),
        (&json!(false), &json!("algebraic"))
    );
    // A proof beyond the limit is no proof that there is none.
    let few = "compose '(2,2,4):(1,3,5)' '(2,2):(3,1)' --max-points 3";
    let (value, status) = document(&laptop, few);
    assert_eq!((status, &value["rejection"]["condition"]), (1, &json!("undecided")));
    assert!(value["rejection"]["proof"].is_null());
}

#[test]
fn what_a_user_sees() {
    let laptop = Laptop::new();
    let shown: String = [
        "eval '((32,4),(16,4)):((16,4),(0,1))' --at '(5,3)' --at 33",
        "eval '(4,2):(2,1)' --table --f2",
        "eval '((4,2),(2,1)):((2,1),(8,0))' --tile 4x4 --table",
        "compose '(4,8):(8,1)' '(3,2):(1,3)'",
        "equal '(4,8):(8,1)' 32:1",
        "check 32:32 --elem-bytes 4 --access smem",
        "check 32:9 --elem-bytes 2 --vector 8 --access gmem",
        "check 32:8 --elem-bytes 4 --vector 8 --access gmem",
        "check 'S<3,4,3> o 0 o (8,4):(256,32)' --elem-bytes 0.5 --vector 32 --access smem",
        "eval 'S<3,4,3> o 0 o (8,256):(256,1)' --at '(4,0)'",
        "eval 'S<3,4,3> o 0 o (8,256):(256,1)' --at '(4,0)' --elem-bytes 0.5",
        "eval 32:-1",
        "eval '(4,4):(2,5)' --max-points 4",
        "divide 10:1 4:1",
        "sf --mn 80 --k 7168 --at 5,32 --offset 57343 --prove",
        "tmem --tile 128x256x256 --acc-stages 2",
        "tmem --acc-cols 128 --sfa-cols 16 --sfb-cols 16 --top-k 1 --format csv",
        "epilogue --tile 128x128 --ldtm 32x32b.x32 --elem-bytes 2 --ldc 4096 --search --top-k 3",
        "epilogue --tile 64x128 --ldtm 16x32bx2.x32 --elem-bytes 2 --ldc 4096",
        "epilogue --tile 64x128 --cta-group 2 --elem-bytes 0.5 --ldc 4096",
        "cta --groups '80,4096;0,7;40,7168' --tile 128x128 --swap-ab --raster swizzle:2 --block 40",
        "snapshot --format markdown",
    ]
    .iter()
    .map(|line| laptop.show(&format!("layout {line}")))
    .collect();
    insta::assert_snapshot!(shown);
}

/// What ncu 2025.3.1 counted on an H200 (driver 580.159.04) for one warp and one load each, by the
/// part `layout` of `tests/gpu/run`: sectors of a request, or shared wavefronts and their ideal.
#[test]
fn what_the_hardware_counts_is_predicted() {
    let laptop = Laptop::new();
    for (layout, elem_bytes, vector, sectors) in [
        ("32:1", 4, 1, 4.0),
        ("32:2", 4, 1, 8.0),
        ("32:8", 4, 1, 32.0),
        ("32:1024", 2, 1, 32.0),
        ("32:1024", 2, 8, 32.0),
        ("(8,4):(8,1024)", 2, 8, 16.0),
    ] {
        let line =
            format!("check {layout} --elem-bytes {elem_bytes} --vector {vector} --access gmem");
        let said = document(&laptop, &line).0;
        assert_eq!(said["sectors_per_request"], sectors, "{line}");
    }
    for (layout, elem_bytes, vector, swizzle, wavefronts, ideal) in [
        ("32:1", 4, 1, "", 1, 1),
        ("32:2", 4, 1, "", 2, 1),
        ("32:32", 4, 1, "", 32, 1),
        ("32:33", 4, 1, "", 1, 1),
        ("(8,4):(64,8)", 2, 8, "", 32, 4),
        ("(8,4):(64,8)", 2, 8, "--swizzle 3,4,3", 4, 4),
    ] {
        let line = format!(
            "check {layout} --elem-bytes {elem_bytes} --vector {vector} --access smem {swizzle}"
        );
        let said = document(&laptop, &line).0;
        let counts = (&said["wavefronts"]["total"], &said["wavefronts"]["ideal"]);
        assert_eq!(counts, (&json!(wavefronts), &json!(ideal)), "{line}");
        assert_eq!(said["conflict_ways"], f64::from(wavefronts) / f64::from(ideal), "{line}");
    }
}

#[test]
fn bad_input_names_the_place() {
    let laptop = Laptop::new();
    let shown: String = [
        "eval '(4,8'",
        "eval '(4,0):(1,1)'",
        "eval '(4,8):(1,(2,3))'",
        "eval '(9223372036854775807,2)'",
        "eval 9223372036854775808",
        "eval '(4,8):(8,1)' --at '(4,0)'",
        "eval '(256,256)' --table",
        "compose '(4,8):(8,1)' '<4:1,2:x>'",
        "check 33:1 --elem-bytes 4 --access smem",
        "check 32:1 --elem-bytes 3 --access gmem",
        "check 32:1 --elem-bytes 4 --access smem --swizzle 3,4,1",
        "check 32:-1 --elem-bytes 4 --access gmem",
        "sf --mn 0 --k 64",
        "sf --mn 80 --k 64 --at 80,0",
        "sf --mn 80 --k 64 --sf-vec 8",
        "tmem --tile 64x256x256",
        "tmem --tile 128x256",
        "tmem --acc-cols 0",
        "epilogue --tile 128x96 --ldtm 32x32b.x64 --elem-bytes 2 --ldc 4096",
        "epilogue --tile 128x96 --ldtm 16x64b.x2 --elem-bytes 2 --ldc 4096",
        "cta --groups '80' --tile 128x128",
        "cta --groups '80,-1' --tile 128x128",
        "cta --groups '300,200;' --tile 128x128",
        "epilogue --tile 7x32 --elem-bytes 2 --ldc 4096",
        "epilogue --tile 256x32 --elem-bytes 2 --ldc 4096",
        "epilogue --tile 64x128 --elem-bytes 2 --ldc 4096",
        "epilogue --tile 128x128 --elem-bytes 3 --ldc 4096",
        "epilogue --tile 128x128 --elem-bytes 0.25 --ldc 4096",
        "check 32:1 --elem-bytes 0.5 --access smem",
        "check 'S<3,4,3> o 0 o 32:1' --elem-bytes 2 --access smem --swizzle 2,4,3",
        "eval 'S<3,4,3> o 0 o (8,64):(64,1)' --color-by bank --table",
        "inverse --right 'S<3,4,3> o 0 o (8,64):(64,1)'",
        "compose '(8,64):(64,1)' 'S<3,4,3> o 0 o 8:1'",
        "recast 'S<3,4,3> o 0 o (8,64):(64,1)' --from 8 --to 256",
        "inverse '(4,8):(8,1)'",
        "insights no.json",
    ]
    .iter()
    .map(|line| laptop.show(&format!("layout {line}")))
    .collect();
    insta::assert_snapshot!(shown);
}

#[test]
fn layouts_are_compared_for_each_shape() {
    let laptop = Laptop::new();
    laptop.write("shapes.txt", "# M,N,K,L\n256,4096,7168,1\n\nM=384 K=64\n");
    let a = "'(128,{M / 128}):(1,128)'";
    let (value, status) = document(&laptop, &format!("equal {a} '{{M}}:1' --on shapes.txt"));
    assert_eq!((status, &value["equal"]), (0, &json!(true)));
    assert_eq!(value["shapes"][1]["left"], "(128,3):(1,128)");
    let (value, status) =
        document(&laptop, &format!("equal {a} '{{M}}:K' --on shapes.txt").replace(":K", ":{K}"));
    assert_eq!((status, &value["equal"]), (1, &json!(false)));
    assert_eq!(
        value["shapes"][0]["first_difference"],
        json!({"index": 1, "left": 1, "right": 7168})
    );
    let shown = laptop.show("layout equal '{X}' 1 --on shapes.txt")
        + &laptop.show("layout equal '{M / 100}' 1 --on shapes.txt");
    insta::assert_snapshot!(shown);
    // Different swizzles can make one function.
    let (value, _) = document(&laptop, "equal 'S<1,0,3> o 0 o 8:1' 8:1");
    assert_eq!((&value["equal"], &value["proof"]["method"]), (&json!(true), &json!("algebraic")));
}

#[test]
fn a_wrong_buffer_of_scales_is_explained() {
    let laptop = Laptop::new();
    // 200 rows of 8 scales; two blocks of rows, two along K.
    let plain: Vec<u8> = (0..200_usize * 8).map(|i| (i * 31 % 251) as u8).collect();
    let place = |row: usize, scale: usize| {
        (row / 128 * 2 + scale / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + scale % 4
    };
    let mut right = vec![0; 2048];
    for (index, byte) in plain.iter().enumerate() {
        right[place(index / 8, index % 8)] = *byte;
    }
    for (name, bytes) in [("plain.bin", &plain), ("right.bin", &right)] {
        fs::write(laptop.project(name), bytes).unwrap();
    }
    let line = "sf --mn 200 --k 128 --expect plain.bin --file";
    let (value, status) = document(&laptop, &format!("{line} right.bin"));
    assert_eq!((status, &value["check"]["equal"]), (0, &json!(true)));
    let (value, status) = document(&laptop, &format!("{line} plain.bin"));
    assert_eq!((status, &value["check"]["mistakes"]), (1, &json!(["not-swizzled"])));
    let first = json!({"row": 0, "k": 64, "batch": 0, "offset": 512, "expected": plain[4], "found": plain[512]});
    assert_eq!(value["check"]["first_wrong"], first);
    // Blocks whose scales run column by column: a permutation that no known mistake is.
    let mut columns = vec![0; 2048];
    for (index, byte) in plain.iter().enumerate() {
        let (row, scale) = (index / 8, index % 8);
        columns[(row / 128 * 2 + scale / 4) * 512 + scale % 4 * 128 + row % 128] = *byte;
    }
    fs::write(laptop.project("columns.bin"), &columns).unwrap();
    let (value, status) = document(&laptop, &format!("{line} columns.bin"));
    assert_eq!((status, &value["check"]["permutation"]), (1, &json!(true)));
    assert_eq!(value["check"]["found_layout"], "((128,2),(16,8),1):((1,1024),(0,128),0)");
    let columns = laptop.show(&format!("layout {line} columns.bin"));
    right.swap(place(0, 0), place(1, 1));
    fs::write(laptop.project("swapped.bin"), &right).unwrap();
    let swapped = laptop.show(&format!("layout {line} swapped.bin"));
    right.swap(place(0, 0), place(1, 1));
    right[place(150, 5)] ^= 1;
    fs::write(laptop.project("wrong.bin"), &right).unwrap();
    let shown = columns
        + &swapped
        + &laptop.show(&format!("layout {line} wrong.bin"))
        + &laptop.show("layout sf --mn 201 --k 128 --expect plain.bin --file right.bin");
    insta::assert_snapshot!(shown);
}

#[test]
fn pictures_are_written_and_only_pictures_overwritten() {
    let laptop = Laptop::new();
    let (value, _) = document(
        &laptop,
        "eval '(8,8):(8,1)' --svg a.svg --color-by bank --elem-bytes 4 --format html",
    );
    assert_eq!(value["files"], json!(["a.svg", "layout.html"]));
    let svg = fs::read_to_string(laptop.project("a.svg")).unwrap();
    assert_eq!(svg.matches("class=\"cell ").count(), 64);
    assert!(svg.contains("(3,1) index 11 offset 25 · bank 25"), "{svg}");
    let page = fs::read_to_string(laptop.project("layout.html")).unwrap();
    assert!(page.contains("prefers-color-scheme:dark") && page.contains(&svg));
    // The swizzle of a packed operand acts on bytes: row 1 begins at byte 128, which becomes 144,
    // and row 4 at byte 512, which becomes 576.
    let operand =
        "eval 'S<3,4,3> o 0 o ((8,64),1,4,1):((256,1),0,64,0)' --color-by bank --elem-bytes 0.5";
    let (value, _) = document(&laptop, &format!("{operand} --svg deep/b.svg"));
    assert_eq!(
        (&value["element_bytes"], &value["element_swizzle"]),
        (&json!(0.5), &json!("S<3,5,3>"))
    );
    let svg = fs::read_to_string(laptop.project("deep/b.svg")).unwrap();
    assert!(svg.contains("(1,0) index 1 offset 288 · bank 4"), "{svg}");
    assert!(svg.contains("(4,0) index 4 offset 1152 · bank 16"), "{svg}");
    // Again is well; another file is not overwritten.
    document(&laptop, "eval '(8,8):(8,1)' --svg a.svg --format html");
    laptop.write("a.svg", "my notes");
    let refused = laptop.run("layout eval 8 --svg a.svg");
    assert_eq!(status(&refused), 2);
    assert_eq!(fs::read_to_string(laptop.project("a.svg")).unwrap(), "my notes");
}

#[test]
fn snippets_are_code_alone_on_stdout() {
    let laptop = Laptop::new();
    let cta = "layout cta --groups '80,4096;0,7;40,7168' --tile 128x128 --emit";
    let python = laptop.run(&format!("{cta} python"));
    laptop.write(
        "t.py",
        &(String::from_utf8(python.stdout).unwrap() + "print(rgpu_block_tile(40))\n"),
    );
    let printed = Command::new("python3").arg(laptop.project("t.py")).output().unwrap();
    assert_eq!(printed.stdout, b"(2, 0, 8, 0, 1024)\n");
    let cpp = laptop.run(&format!("{cta} cpp"));
    let main = "#include <cstdio>\nint main() { RgpuBlockTile t; if (!rgpu_block_tile(40, t)) return 1; \
                printf(\"%d %d %d %lld %lld\\n\", t.group, t.tile_m, t.tile_n, t.row, t.column); }\n";
    laptop.write("t.cpp", &(String::from_utf8(cpp.stdout).unwrap() + main));
    let program = laptop.project("t");
    let compiled =
        Command::new("g++").arg("-o").arg(&program).arg(laptop.project("t.cpp")).status().unwrap();
    assert!(compiled.success());
    assert_eq!(Command::new(program).output().unwrap().stdout, b"2 0 8 0 1024\n");
}

#[test]
fn a_protected_layout_gates_a_change() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("layout snapshot --tile 128x128x256 --out old.json")), 0);
    assert_eq!(status(&laptop.run("layout snapshot --tile 128x192x256 --out new.json")), 0);
    let (value, code) = document(&laptop, "diff old.json new.json");
    assert_eq!((code, &value["kept"]), (0, &json!(true)));
    let (value, code) =
        document(&laptop, "diff old.json new.json --protect tCtAcc --protect sfa_smem=text");
    assert_eq!((code, &value["kept"]), (1, &json!(false)));
    let broken: Vec<&str> = value["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["broken"] == true)
        .map(|change| change["name"].as_str().unwrap())
        .collect();
    assert_eq!(broken, ["tCtAcc"]);
    // A split of a mode keeps the function, a stride of an extent of 1 also the profile.
    laptop.write("a.json", r#"{"x": "(8,1):(1,0)", "y": "8:1", "z": "4:1"}"#);
    laptop.write("b.json", r#"{"x": "(8,1):(1,8)", "y": "(4,2):(1,4)"}"#);
    for (protect, code) in
        [("x=profile", 0), ("x=text", 1), ("y=function", 0), ("y=profile", 1), ("z", 1), ("all", 1)]
    {
        let output = laptop.run(&format!("layout diff a.json b.json --protect {protect}"));
        assert_eq!(status(&output), code, "{protect}");
    }
    let shown = laptop.show("layout diff a.json b.json --protect y=profile --protect x")
        + &laptop.show("layout diff a.json b.json --protect w")
        + &laptop.show("layout diff a.json b.json --protect x=most");
    insta::assert_snapshot!(shown);
}

/// A Python that answers with a report instead of the DSL's.
fn played_dsl(laptop: &Laptop, report: &Value) -> String {
    let path = laptop.write("dsl.sh", "");
    let script = format!("#!/bin/sh\ncat > out/layouts.json <<'END'\n{report}\nEND\n");
    fs::write(&path, format!("{}mkdir -p out\n{}", "#!/bin/sh\n", &script[10..])).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_dump_is_compared_with_the_formulas() {
    let laptop = Laptop::new();
    laptop.write("kernel.py", "");
    let report = json!({
        "dsl": "nvidia-cutlass-dsl 9", "python": "3.11.7",
        "settings": {"tile": [128, 128, 256], "stages": 1, "sf_vec": 16, "cta_group": 1, "load_columns": 128},
        "layouts": [
            {"name": "tCtAcc", "layout": "((128,128),1,1):((65536,1),0,0)"},
            {"name": "tDtAcc", "layout": "(((128,32),1),1,1):(((1,65536),0),0,0)"},
            {"name": "tDgC", "layout": "((128,1),1,1):((1,0),0,0)"},
            {"name": "a_smem", "layout": "S<3,4,3> o 0 o ((128,64),1,4,1):((128,1),0,64,0)"},
            {"name": "tAgA", "layout": "(256,128):(1@0,1@1)"},
        ],
        "records": [{"name": "cpasync.A.stages", "text": "1"}],
        "failures": [{"probe": "bare", "what": "all", "class": "RuntimeError", "message": "no context"}],
        "notes": [], "error": null,
    });
    let dsl = played_dsl(&laptop, &report);
    let dump = format!("dump kernel.py --shape 80,4096,7168,1 --python {dsl} --epilogue");
    let (value, code) = document(&laptop, &format!("{dump} --out dump.json"));
    assert_eq!(code, 0);
    let agrees: Vec<&Value> =
        value["layouts"].as_array().unwrap().iter().map(|layout| &layout["agrees"]).collect();
    assert_eq!(agrees, [&json!(true), &json!(true), &json!(true), &json!(false), &Value::Null]);
    assert_eq!(laptop.latest_json("layouts.json"), value);
    insta::assert_snapshot!(laptop.show(&format!("layout {dump}")));
    let (insights, _) = document(&laptop, "insights dump.json");
    let holds = insights["epilogue"].as_array().unwrap().iter().all(|check| check["holds"] == true);
    assert!(holds, "{insights}");
    // Layouts without numbers are in the dump, and cannot be in a snapshot.
    let (snapshot, _) =
        document(&laptop, &format!("snapshot kernel.py --python {dsl} --out s.json"));
    assert_eq!(snapshot["layouts"].as_array().unwrap().len(), 4);
}

#[test]
fn a_dsl_that_fails_is_told_apart_from_a_kernel_that_does() {
    let laptop = Laptop::new();
    laptop.write("kernel.py", "");
    let failing = |kind: &str, class: &str, message: &str| {
        json!({"dsl": "nvidia-cutlass-dsl 9", "layouts": [], "failures": [],
               "error": {"kind": kind, "class": class, "message": message}})
    };
    let mut shown = String::new();
    for (kind, class, message) in [
        ("missing", "ModuleNotFoundError", "No module named 'cutlass'"),
        ("dsl", "AttributeError", "no attribute 'make_smem_layout_a'"),
        ("kernel", "NameError", "name 'x' is not defined"),
    ] {
        let dsl = played_dsl(&laptop, &failing(kind, class, message));
        shown += &laptop.show(&format!("layout dump kernel.py -q --python {dsl}"));
    }
    shown += &laptop.show("layout dump kernel.py -q");
    shown += &laptop.show("layout dump no.py -q --python python3");
    shown += &laptop.show("layout dump kernel.cu -q --python python3");
    insta::assert_snapshot!(shown);
    // The script itself, where there is no DSL.
    let missing = laptop.run("layout dump kernel.py -q --python python3 --json");
    let value: Value = serde_json::from_slice(&missing.stdout).unwrap();
    assert_eq!(value["error"]["code"], "dsl_missing");
}

/// A Python that has the DSL as rgpu pins it. It is fetched once.
fn cute_dsl() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cute-dsl");
    let python = folder.join("bin/python");
    let wheels = concat!(env!("CARGO_MANIFEST_DIR"), "/src/plan/src/tool/plan/wheels/cute.txt");
    let run = |program: &Path, args: &[&str]| {
        let status = Command::new(program).args(args).status().unwrap();
        assert!(status.success(), "{program:?} {args:?}");
    };
    if !folder.join("made").exists() {
        run(Path::new("python3"), &["-m", "venv", "--clear", folder.to_str().unwrap()]);
        run(&python, &["-m", "pip", "install", "--quiet", "--require-hashes", "-r", wheels]);
        fs::write(folder.join("made"), "").unwrap();
    }
    python.display().to_string()
}

/// It needs the real DSL, so only `.ci/long` runs it.
#[test]
fn the_real_dsl_agrees_with_the_formulas() {
    let laptop = Laptop::new();
    laptop.write("kernel.py", "num_ab_stage = 2\n");
    let python = cute_dsl();
    for (tile, group) in [
        ("128x64x256", 1),
        ("128x128x128", 1),
        ("128x192x256", 1),
        ("128x256x64", 1),
        ("256x256x256", 2),
    ] {
        let line = format!(
            "dump kernel.py --shape 80,4096,7168,1 --epilogue --tile {tile} --cta-group {group} --python {python}"
        );
        let (value, _) = document(&laptop, &line);
        let layouts = value["layouts"].as_array().unwrap();
        let compared: Vec<&Value> = layouts.iter().filter(|l| l.get("formula").is_some()).collect();
        assert_eq!(compared.len(), 12, "{tile}: {value}");
        assert!(compared.iter().all(|layout| layout["agrees"] == true), "{tile}: {value}");
        assert_eq!(value["failures"], json!([]), "{tile}");
    }
}

#[test]
fn the_first_examples_of_documents_and_help_have_a_result() {
    let laptop = Laptop::new();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let help = laptop.show("layout compose --help");
    for (place, text) in [("docs/commands.md", page), ("help", help)] {
        let begin = "rgpu layout compose ";
        let line = text.lines().map(str::trim).find(|line| line.starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("no example in {place}: {text}"));
        let command = line.split(" #").next().unwrap().trim_end().strip_prefix("rgpu ").unwrap();
        let output = laptop.run(command);
        assert_eq!(status(&output), 0, "{place}: {}", laptop.shown(command, &output));
    }
}
