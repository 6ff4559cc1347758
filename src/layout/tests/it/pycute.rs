//! Our algebra against the answers of pycute (CUTLASS 4.2.0), recorded in `data/pycute.tsv` by
//! `data/record_pycute.py`. Answers that the recording marks as wrong must not be ours.

use rgpu_layout::{
    Grouping, Layout, Limits, Tiler, coalesce, complement, compose, divide, equal, left_inverse,
    product, right_inverse,
};

use crate::brute::{composed, composition_exists, layout};

const RECORDED: &str = include_str!("../data/pycute.tsv");

/// Compositions that pycute answers wrongly: 183 too small, 4 of another function.
const KNOWN_WRONG: usize = 187;

struct Line<'a> {
    operands: Vec<&'a str>,
    answer: Option<Layout>,
    wrong: bool,
}

fn lines(operation: &str) -> Vec<Line<'static>> {
    let lines = RECORDED.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    lines
        .filter(|fields| fields[0] == operation)
        .map(|fields| {
            let (answer, operands) = fields[1..].split_last().unwrap();
            let wrong = answer.starts_with('!');
            // Of some strides pycute makes extents of 0, which are no layout.
            let answer = answer.trim_start_matches('!').parse().ok();
            Line { operands: operands.to_vec(), answer, wrong }
        })
        .collect()
}

fn limits() -> Limits {
    Limits { nearest_tries: 0, ..Limits::default() }
}

#[test]
fn compositions_are_pycutes_where_those_are_right() {
    let (mut wrong, mut found_beyond, mut agreed) = (0, 0, 0);
    for Line { operands, answer, wrong: is_wrong } in lines("compose") {
        let (a, b) = (layout(operands[0]), layout(operands[1]));
        let expected = composed(&a.modes(), &b.modes()).unwrap();
        let ours = compose(&a, &b, limits());
        assert_eq!(ours.is_ok(), composition_exists(&b.modes(), &expected), "{a} o {b}");
        match (answer, is_wrong) {
            (Some(answer), false) => {
                let ours = ours.unwrap().layout;
                assert!(equal(&ours, &answer).equal, "{a} o {b}: {ours} and {answer}");
                agreed += 1;
            }
            (Some(answer), true) => {
                wrong += 1;
                if let Ok(ours) = ours {
                    assert!(!equal(&ours.layout, &answer).equal, "{a} o {b} = {answer}");
                }
            }
            (None, _) => found_beyond += usize::from(ours.is_ok()),
        }
    }
    assert_eq!(wrong, KNOWN_WRONG);
    // Those that pycute rejects although they exist.
    assert_eq!((agreed, found_beyond), (2048, 437));
}

#[test]
fn coalesced_forms_and_complements_are_pycutes() {
    for Line { operands, answer, .. } in lines("coalesce") {
        let ours = coalesce(&layout(operands[0])).layout;
        assert!(equal(&ours, &answer.unwrap()).equal, "{}", operands[0]);
    }
    let mut both = 0;
    for Line { operands, answer, .. } in lines("complement") {
        let bound = operands[1].parse().unwrap();
        let ours = complement(&layout(operands[0]), bound, limits());
        // A complement exists wherever pycute has one.
        assert!(ours.is_ok() || answer.is_none(), "{}: {ours:?}, {answer:?}", operands[0]);
        if let (Ok(ours), Some(answer)) = (ours, answer) {
            assert!(
                equal(&ours.layout, &answer).equal,
                "{}: {} {answer}",
                operands[0],
                ours.layout
            );
            both += 1;
        }
    }
    assert!(both > 100, "{both}");
}

#[test]
fn inverses_hold_as_pycutes_do() {
    let mut both = 0;
    for Line { operands, answer, .. } in lines("right-inverse") {
        let whole = layout(operands[0]);
        let ours = right_inverse(&whole, limits()).unwrap().layout;
        for (i, x) in (0..).zip(ours.offsets()) {
            assert_eq!(whole.at(x), Some(i), "{whole}: {ours}");
        }
        let theirs = answer.unwrap();
        assert!(ours.size() >= theirs.size(), "{whole}: {ours} and {theirs}");
    }
    for Line { operands, answer, .. } in lines("left-inverse") {
        let whole = layout(operands[0]);
        let Ok(ours) = left_inverse(&whole, limits()) else { continue };
        for (i, x) in (0..).zip(whole.offsets()) {
            assert_eq!(ours.layout.at(x), Some(i), "{whole}: {}", ours.layout);
        }
        both += usize::from(answer.is_some());
    }
    assert!(both > 50, "{both}");
}

#[test]
fn divisions_and_products_are_pycutes_where_both_answer() {
    let mut both = (0, 0);
    for Line { operands, answer, .. } in lines("divide") {
        let (a, b) = (layout(operands[0]), layout(operands[1]));
        let ours = divide(&a, &Tiler::Layout(b.clone()), Grouping::Logical, limits());
        if let (Ok(ours), Some(answer)) = (ours, answer) {
            both.0 += 1;
            assert!(equal(&ours.layout, &answer).equal, "{a} / {b}: {} {answer}", ours.layout);
        }
    }
    for Line { operands, answer, .. } in lines("product") {
        let (a, b) = (layout(operands[0]), layout(operands[1]));
        let ours = product(&a, &Tiler::Layout(b.clone()), Grouping::Logical, limits());
        if let (Ok(ours), Some(answer)) = (ours, answer) {
            both.1 += 1;
            assert!(equal(&ours.layout, &answer).equal, "{a} x {b}: {} {answer}", ours.layout);
        }
    }
    assert!(both.0 > 50 && both.1 > 50, "{both:?}");
}
