//! The inputs of pycute's published tests (CUTLASS, `test/python/pycute`, BSD-3-Clause) as data.
//! The post-conditions are ours, which are stronger: the whole of `B`, and the result proved.

use rgpu_layout::{Condition, Limits, complement, compose, left_inverse, right_inverse};

use crate::brute::{composed, layout, table};

const COMPOSITIONS: &[(&str, &str)] = &[
    ("1:0", "1:0"),
    ("1:0", "1:1"),
    ("1:1", "1:0"),
    ("1:1", "1:1"),
    ("4", "4"),
    ("4:2", "4"),
    ("4", "4:0"),
    ("4:0", "4"),
    ("4", "1:0"),
    ("4", "2"),
    ("4:2", "2"),
    ("4", "2:2"),
    ("4:2", "2:2"),
    ("12", "(4,3)"),
    ("12:2", "(4,3)"),
    ("12", "(4,3):(3,1)"),
    ("12:2", "(4,3):(3,1)"),
    ("12", "(2,3):(2,4)"),
    ("(4,3)", "(4,3)"),
    ("(4,3)", "12"),
    ("(4,3)", "6:2"),
    ("(4,3)", "(6,2):(2,1)"),
    ("(4,3):(3,1)", "(4,3)"),
    ("(4,3):(3,1)", "12"),
    ("(4,3):(3,1)", "6:2"),
    ("(4,3):(3,1)", "(6,2):(2,1)"),
    ("(8,8)", "((2,2,2),(2,2,2)):((1,16,4),(8,2,32))"),
    ("(8,8):(8,1)", "((2,2,2),(2,2,2)):((1,16,4),(8,2,32))"),
    ("((2,2,2),(2,2,2)):((1,16,4),(8,2,32))", "8:4"),
    ("((4,2)):((1,16))", "(4,2):(2,1)"),
    ("(2,2):(2,1)", "(2,2):(2,1)"),
    ("(4,8,2)", "(2,2,2):(2,8,1)"),
    ("(4,8,2):(2,8,1)", "(2,2,2):(1,8,2)"),
    ("(4,8,2):(2,8,1)", "(4,2,2):(2,8,1)"),
    ("(4,6,8):(1,4,7)", "6:1"),
    ("(4,6,8,10):(2,3,5,7)", "6:12"),
];

#[test]
fn published_compositions_hold_on_all_of_b() {
    for (a, b) in COMPOSITIONS {
        let (a, b) = (layout(a), layout(b));
        let result = compose(&a, &b, Limits::default()).unwrap();
        let expected = composed(&a.modes(), &b.modes()).unwrap();
        assert_eq!(table(&result.layout.modes()), expected, "{a} o {b}");
    }
    // Two whose inner offsets are no coordinates of the outer layout.
    for (a, b) in [("4", "4:2"), ("1:0", "4")] {
        let rejection = compose(&layout(a), &layout(b), Limits::default()).unwrap_err();
        assert_eq!(rejection.condition, Condition::ImageOutside, "{a} o {b}");
    }
}

#[test]
fn published_complements_are_disjoint() {
    for text in [
        "1:0",
        "1:1",
        "4:0",
        "(2,4):(1,2)",
        "(2,3):(1,2)",
        "(2,4):(1,4)",
        "(2,4,8):(8,1,64)",
        "((2,2),(2,2)):((1,4),(8,32))",
        "(2,(3,4)):(3,(1,6))",
        "(4,6):(1,6)",
        "(4,10):(1,10)",
    ] {
        let layout = layout(text);
        let rest = complement(&layout, layout.cosize(), Limits::default()).unwrap().layout;
        for x in layout.offsets().filter(|x| *x != 0) {
            assert!(rest.offsets().all(|y| y != x), "{text}: {rest}");
        }
    }
}

#[test]
fn published_inverses_invert() {
    for text in [
        "1:0",
        "(1,1):(0,0)",
        "1:1",
        "4:1",
        "4:2",
        "(8,4):(1,8)",
        "(8,4):(4,1)",
        "(2,4,6):(1,2,8)",
        "(2,4,6):(4,1,8)",
        "(4,2):(1,16)",
    ] {
        let layout = layout(text);
        let left = left_inverse(&layout, Limits::default()).unwrap().layout;
        for (i, x) in layout.offsets().enumerate() {
            assert_eq!(left.at(x), Some(i as i64), "{text}: {left}");
        }
        let right = right_inverse(&layout, Limits::default()).unwrap().layout;
        for (i, x) in right.offsets().enumerate() {
            assert_eq!(layout.at(x), Some(i as i64), "{text}: {right}");
        }
    }
}
