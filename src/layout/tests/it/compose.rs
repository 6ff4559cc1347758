//! Composition against brute force.

use rgpu_layout::{Condition, Grouping, Layout, Limits, Method, Mode, Tree, compose, divide};

use crate::brute::{Random, composed, composition_exists, layout, table};

/// Extents and strides as kernels have them, and some that they do not have.
fn outer(random: &mut Random) -> Vec<Mode> {
    let rank = 1 + random.below(4);
    let ordered = random.below(2) == 0;
    let mut next = 1;
    (0..rank)
        .map(|_| {
            let extent = random.pick(&[1, 2, 2, 3, 4, 4, 5, 6, 8, 12, 16]);
            let stride = match random.below(8) {
                0 => 0,
                1 => -random.below(6),
                2 => random.below(24),
                _ if ordered => next,
                _ => random.pick(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]),
            };
            next *= extent;
            Mode::new(extent, stride)
        })
        .collect()
}

fn inner(random: &mut Random, size: i64) -> Vec<Mode> {
    let rank = 1 + random.below(3);
    let mut room = size - 1;
    (0..rank)
        .map(|_| {
            let extent = random.pick(&[1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 16]);
            // Mostly inside the outer layout, sometimes beyond.
            let most =
                (room / (extent - 1).max(1)).max(0) as u64 + u64::from(random.below(12) == 0);
            let stride = match random.below(6) {
                0 => 0,
                1 | 2 => random.below(most + 1),
                _ => (1 << random.below(7)).min(most as i64),
            };
            room -= (extent - 1) * stride;
            Mode::new(extent, stride)
        })
        .collect()
}

fn nested(modes: &[Mode]) -> Layout {
    match modes {
        [a, b, rest @ ..] if rest.len() == 1 => {
            let inner = Tree::Node(vec![Tree::Leaf(*a), Tree::Leaf(*b)]);
            Layout::new(Tree::Node(vec![inner, Tree::Leaf(rest[0])])).unwrap()
        }
        modes => Layout::flat(modes).unwrap(),
    }
}

/// The extents of the result, leaf by leaf of `b`, multiply to those of `b`.
fn refines(result: &Layout, b: &Layout) -> bool {
    fn walk(result: &Tree, b: &Tree) -> bool {
        match (result, b) {
            (Tree::Node(r), Tree::Node(b)) => {
                r.len() == b.len() && r.iter().zip(b).all(|(r, b)| walk(r, b))
            }
            (result, Tree::Leaf(leaf)) => {
                Layout::new(result.clone()).unwrap().size() == leaf.extent
            }
            (Tree::Leaf(_), Tree::Node(_)) => false,
        }
    }
    walk(result.tree(), b.tree())
}

#[test]
fn brute_force_agrees_on_twenty_thousand_pairs() {
    let mut random = Random(26);
    let limits = Limits { nearest_tries: 0, ..Limits::default() };
    let (mut exist, mut inside, mut methods) = (0, 0, std::collections::BTreeMap::new());
    for _ in 0..20_000 {
        let a = outer(&mut random);
        let size = a.iter().map(|mode| mode.extent).product();
        let b = inner(&mut random, size);
        let (la, lb) = (nested(&a), nested(&b));
        let result = compose(&la, &lb, limits);
        let Some(expected) = composed(&a, &b) else {
            let rejection = result.unwrap_err();
            assert_eq!(rejection.condition, Condition::ImageOutside, "{la} o {lb}");
            continue;
        };
        inside += 1;
        let exists = composition_exists(&b, &expected);
        match result {
            Ok(result) => {
                assert!(exists, "{la} o {lb} has no result, and {} was found", result.layout);
                assert_eq!(table(&result.layout.modes()), expected, "{la} o {lb}");
                assert!(refines(&result.layout, &lb), "{la} o {lb} = {}", result.layout);
                *methods.entry(result.proof.method).or_insert(0) += 1;
                exist += 1;
            }
            Err(rejection) => {
                assert!(!exists, "{la} o {lb} exists: {rejection}");
                assert_ne!(rejection.condition, Condition::Undecided, "{la} o {lb}");
                let witness = rejection.witness.unwrap();
                let at: i64 = witness.coordinate.iter().zip(&b).map(|(c, m)| c * m.stride).sum();
                let required = crate::brute::value(&a, at);
                assert_eq!(Some(required), witness.required, "{la} o {lb}");
                assert_ne!(witness.candidate, witness.required, "{la} o {lb}");
            }
        }
    }
    // The pairs are of all kinds.
    assert!(inside > 15_000 && exist > 8_000 && inside - exist > 2_000, "{inside} {exist}");
    assert!(methods[&Method::Algebraic] > 7_000, "{methods:?}");
    assert!(methods[&Method::Enumeration] > 0, "{methods:?}");
}

#[test]
fn peers_faults_are_not_ours() {
    let limits = Limits::default();
    // tensor-layouts 0.3.2 returns (3,2):(8,24), whose offset at (2,1) is 40; it is 9.
    let rejection = compose(&layout("(4,8):(8,1)"), &layout("(3,2):(1,3)"), limits).unwrap_err();
    assert_eq!(rejection.condition, Condition::Carry);
    let witness = rejection.witness.unwrap();
    assert_eq!(witness.coordinate.as_slice(), [2, 1]);
    assert_eq!((witness.required, witness.candidate), (Some(9), Some(40)));
    // pycute returns (3):(24), three coordinates of four.
    let rejection = compose(&layout("(3,3,2):(24,12,2)"), &layout("4:1"), limits).unwrap_err();
    assert_eq!(rejection.condition, Condition::ShapeDivisibility);
    assert_eq!(rejection.nearest.unwrap(), layout("3:1"));
    // pycute and the DSL reject this one, and it exists.
    let result = compose(&layout("(23,5):(2,120)"), &layout("7:3"), limits).unwrap();
    assert_eq!(result.layout, layout("7:6"));
}

#[test]
fn carries_that_cancel_are_found_by_enumeration() {
    // 3 + 1 carries over 2 and over 4, and the strides 3 and 5 make up for each other.
    let (a, b) = (layout("(2,2,4):(1,3,5)"), layout("(2,2):(3,1)"));
    let result = compose(&a, &b, Limits::default()).unwrap();
    assert_eq!(result.layout, layout("(2,2):(4,1)"));
    assert_eq!((result.proof.method, result.proof.points), (Method::Enumeration, 4));
    let none = Limits { points: 3, ..Limits::default() };
    assert_eq!(compose(&a, &b, none).unwrap_err().condition, Condition::Undecided);
}

#[test]
fn sizes_beyond_enumeration_are_decided() {
    let limits = Limits::default();
    let a = layout("(1048576,1048576,1048576):(1,2097152,8796093022208)");
    let result = compose(&a, &layout("(1099511627776,4):(4,288230376151711744)"), limits).unwrap();
    let modes = "((262144,1048576,4),4):((4,2097152,8796093022208),2305843009213693952)";
    assert_eq!(result.layout, layout(modes));
    assert_eq!(result.proof.method, Method::Algebraic);
    let rejection = compose(&a, &layout("(1048576,3):(1,349525)"), limits).unwrap_err();
    assert_eq!(rejection.condition, Condition::Carry);
    assert_eq!(rejection.proof.unwrap().points, 0);
}

#[test]
fn a_rejection_names_modes_and_the_nearest_tiler() {
    let limits = Limits::default();
    for (a, b) in [
        ("(4,8):(8,1)", "(3,2):(1,3)"),
        ("(6,4):(1,8)", "4:4"),
        ("(8,8):(1,16)", "(3,3):(5,16)"),
        ("10:1", "(4,3):(1,4)"),
        ("(4,4):(1,8)", "4:-1"),
    ] {
        let rejection = compose(&layout(a), &layout(b), limits).unwrap_err();
        assert!(!rejection.modes.is_empty(), "{a} o {b}: {rejection}");
        let nearest = rejection.nearest.unwrap_or_else(|| panic!("{a} o {b} names no tiler"));
        compose(&layout(a), &nearest, limits).unwrap();
    }
}

#[test]
fn a_ragged_tile_names_the_outer_layout_that_has_a_result() {
    let enlarged = |a: &str, b: &str| {
        let rejection = compose(&layout(a), &layout(b), Limits::default()).unwrap_err();
        assert_eq!(rejection.condition, Condition::ImageOutside, "{a} o {b}");
        rejection.enlarged.map(|layout| layout.to_string())
    };
    assert_eq!(enlarged("10:1", "(4,3):(1,4)"), Some("12:1".to_owned()));
    assert_eq!(enlarged("4:2", "8:12"), Some("85:2".to_owned()));
    // The last mode that has coordinates grows, and the nesting stays.
    assert_eq!(
        enlarged("((4,5),1):((1,8),0)", "(4,6):(1,4)"),
        Some("((4,6),1):((1,8),0)".to_owned())
    );
    assert_eq!(enlarged("4:1", "4:-1"), None);
    // Growth does not help where the tile crosses another mode.
    assert_eq!(enlarged("(4,5):(8,1)", "(3,8):(1,3)"), None);
    for tiler in ["4:1", "<4:1>"] {
        let rejection = divide(
            &layout("(10,3):(1,16)").parts()[0],
            &tiler.parse().unwrap(),
            Grouping::Logical,
            Limits::default(),
        );
        let enlarged = rejection.unwrap_err().enlarged.unwrap();
        assert_eq!(enlarged.to_string(), "12:1", "{tiler}");
    }
}
