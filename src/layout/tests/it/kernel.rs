//! The layouts of a whole kernel: bundles, what stands out in them, what identifies them, pictures.

use rgpu_layout::picture::{CellGrid, Coloring, PictureError, Tile};
use rgpu_layout::sm100::{MmaTile, ProblemShape, bundle};
use rgpu_layout::{Level, Limits, SwizzledLayout, compare, epilogue_checks, identity, insight};
use serde_json::Value;

use crate::brute::layout;

fn swizzled(text: &str) -> SwizzledLayout {
    text.parse().unwrap()
}

#[test]
fn bundles_are_the_golden_rows() {
    let golden: Value = serde_json::from_str(include_str!("../data/golden_layouts.json")).unwrap();
    for row in golden["rows"].as_array().unwrap() {
        let number = |value: &Value| value.as_i64().unwrap();
        let [m, n, k] = [0, 1, 2].map(|at| number(&row["tiler"][at]));
        let tile = MmaTile::new(m, n, k, false, 16).unwrap();
        let layouts = bundle(tile, number(&row["stages"]), 32, None).unwrap();
        let of =
            |name: &str| layouts.iter().find(|(known, _)| *known == name).unwrap().1.to_string();
        let joined = |operand: &str| {
            let part = |end: &str| row[format!("{operand}_{end}")].as_str().unwrap().to_owned();
            format!("{} o 0 o {}", part("inner"), part("outer"))
        };
        assert_eq!(of("a_smem"), joined("a"));
        assert_eq!(of("b_smem"), joined("b"));
        for (name, key) in [("sfa_smem", "sfa_smem"), ("tCtSFB", "tCtSFB"), ("tCtAcc", "acc")] {
            assert_eq!(of(name), row[key].as_str().unwrap(), "{name} of {m}x{n}x{k}");
        }
    }
}

#[test]
fn a_pair_of_ctas_has_what_the_dsl_prints() {
    // CuTe DSL 4.4.0, cta_group 2, a tile of 256x256x256 with 3 stages.
    let tile = MmaTile::new(256, 256, 256, true, 16).unwrap();
    let shape = ProblemShape { m: 80, n: 4096, k: 7168, l: 1 };
    let layouts = bundle(tile, 3, 128, Some(shape)).unwrap();
    for (name, printed) in [
        ("a_smem", "S<3,4,3> o 0 o ((128,64),1,4,3):((256,1),0,64,32768)"),
        ("b_smem", "S<3,4,3> o 0 o ((128,64),1,4,3):((256,1),0,64,32768)"),
        ("sfb_smem", "((((32,4),2),(16,4)),1,4,3):((((16,4),2048),(0,1)),0,512,4096)"),
        ("tCtSFB", "((((32,8),4),(16,4)),1,4):((((262144,4),8388608),(0,1)),0,32)"),
        ("tCtAcc", "((128,256),1,1):((65536,1),0,0)"),
        ("sfb_gmem", "(((32,4),32),((16,4),112),(1,1)):(((16,4),57344),((0,1),512),(0,0))"),
        ("gC", "(128,256):(4096,1)"),
    ] {
        let ours = &layouts.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(ours.to_string(), printed, "{name}");
    }
    assert!(bundle(MmaTile::new(128, 64, 256, true, 16).unwrap(), 1, 32, None).is_err());
}

#[test]
fn epilogues_that_fit_together_are_told_from_others() {
    let (acc, stores) =
        (layout("((128,128),1,1):((65536,1),0,0)"), layout("((32,1),(4)):((1,0),(32))"));
    let holds = |loads: &str, stores| {
        let checks = epilogue_checks(&acc, &layout(loads), stores, Limits::default());
        checks.iter().map(|check| check.holds).collect::<Vec<_>>()
    };
    let loads = "(((32,32),1),(4)):(((1,65536),0),(32))";
    assert_eq!(holds(loads, &stores), [true; 4]);
    // Every second column; lanes that are no rows; a part of the columns; a column for each store.
    assert_eq!(
        holds("(((32,32),1),(4)):(((2,65536),0),(64))", &stores),
        [false, true, true, false]
    );
    assert_eq!(holds("(((32,32),1),(4)):(((1,128),0),(32))", &stores), [true, false, true, true]);
    assert_eq!(holds("(((32,32),1),(2)):(((1,65536),0),(32))", &stores), [true, true, true, false]);
    assert_eq!(holds(loads, &layout("(32,4):(4096,1)")), [true, true, false, true]);
}

#[test]
fn insights_say_what_stands_out() {
    let remarks = |text: &str| insight("x", &swizzled(text), Limits::default()).remarks.join("\n");
    assert!(remarks("((32,4),(16,4)):((16,4),(0,1))").contains("16 coordinates"));
    assert!(remarks("(2,2,2):(1,1,5)").contains("two writes meet"));
    assert!(remarks("(4,8):(8,1)").contains("it fills [0, 32)"));
    assert!(remarks("(4,8):(16,1)").contains("24 of 56 offsets unused"));
    assert!(remarks("(4,3):(6,4)").contains("no divisible chain"));
    assert!(
        remarks("S<3,4,3> o 0 o (8,64):(64,1)").contains("the 128B mode, repeats every 1024 bytes")
    );
    let repeated = insight("x", &swizzled("(8,4):(1,0)"), Limits::default());
    assert_eq!((repeated.filtered_size, repeated.properties.duplication), (8, Some(4)));
}

#[test]
fn a_change_is_as_strong_as_what_it_keeps() {
    let same = |old: &str, new: &str| {
        compare(&swizzled(old), &swizzled(new), Limits::default()).unwrap().same
    };
    assert_eq!(same("(4,8):(8,1)", "(4,8):(8,1)"), Some(Level::Text));
    assert_eq!(same("(4,1):(1,0)", "(4,1):(1,9)"), Some(Level::Profile));
    assert_eq!(same("(4,8):(1,4)", "((2,2),8):((1,2),4)"), Some(Level::Function));
    assert_eq!(same("(4,8):(1,4)", "(4,8):(8,1)"), None);
    assert_eq!(same("S<3,4,3> o 0 o 8:1", "8:1"), Some(Level::Profile));
    assert_eq!(same("S<3,4,3> o 0 o (8,64):(64,1)", "S<1,4,3> o 0 o (8,64):(64,1)"), None);
    let protected = compare(&swizzled("8:1"), &swizzled("(4,2):(1,4)"), Limits::default()).unwrap();
    let broken =
        [Level::Function, Level::Profile, Level::Text].map(|level| protected.violates(level));
    assert_eq!(broken, [false, true, true]);
    let of = identity(&swizzled("S<3,4,3> o 0 o ((4,2),8):((1,4),8)"));
    assert_eq!((of.profile.as_str(), of.function.as_str()), ("((4,2),8)", "S<3,4,3> o 0 o 64:1"));
}

#[test]
fn pictures_show_every_place() {
    let picture = CellGrid::from_values(&swizzled("(2,3):(3,1)"), Coloring::Offset).unwrap();
    assert_eq!(picture.table(false), "   0  1  2\n0  0  1  2\n1  3  4  5\n");
    assert_eq!(picture.table(true).matches("\u{1b}[30;48;5;").count(), 6);
    assert_eq!(picture.svg().matches("<g class=\"cell ").count(), 6);
    // A thread-value layout of a tile with a hole, and a place that two threads hold.
    let threads = layout("(2,2):(1,1)");
    let tile = Tile { rows: 2, columns: 2, row_major: false };
    let picture = CellGrid::from_threads(&threads, tile, Coloring::Thread).unwrap();
    let expected = "        0       1\n0   T0 V0   T1 V1\n1  T1+ V0\n";
    assert_eq!(picture.table(false), expected);
    let small = Tile { rows: 1, columns: 2, row_major: true };
    let outside = CellGrid::from_threads(&threads, small, Coloring::Thread).unwrap_err();
    assert_eq!(outside, PictureError::Outside { thread: 1, value: 1, offset: 2, places: 2 });
    let large = CellGrid::from_values(&swizzled("(256,256)"), Coloring::Offset).unwrap_err();
    assert_eq!(large, PictureError::TooLarge(65536));
}
