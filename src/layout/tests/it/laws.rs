//! Every operation against its definition, by enumeration.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rgpu_layout::{
    Condition, ElementSize, Grouping, Layout, Limits, Method, Mode, Swizzle, SwizzledLayout, Tiler,
    coalesce, coalesce_by_mode, complement, compose_tiler, divide, equal, equal_swizzled,
    f2_matrix, filter, injective, left_inverse, product, properties, recast, right_inverse,
};

use crate::brute::{layout, table};

fn modes() -> impl Strategy<Value = Vec<Mode>> {
    let stride = prop_oneof![Just(0), 1_i64..20, (0_u32..8).prop_map(|b| 1 << b), -4_i64..0];
    prop::collection::vec((1_i64..9, stride).prop_map(|(e, s)| Mode::new(e, s)), 1..5)
}

/// Layouts whose modes tile an interval, in any order.
fn compact() -> impl Strategy<Value = Layout> {
    prop::collection::vec(1_i64..6, 1..4).prop_flat_map(|extents| {
        let mut next = 1;
        let modes: Vec<Mode> = extents
            .iter()
            .map(|extent| {
                let mode = Mode::new(*extent, next);
                next *= extent;
                mode
            })
            .collect();
        Just(modes).prop_shuffle().prop_map(|modes| Layout::flat(&modes).unwrap())
    })
}

fn offsets(layout: &Layout) -> Vec<i64> {
    table(&layout.modes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evaluation_is_unranking(modes in modes()) {
        let layout = Layout::flat(&modes).unwrap();
        let expected = table(&modes);
        prop_assert_eq!(layout.offsets().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(*expected.iter().max().unwrap(), layout.high());
        prop_assert_eq!(*expected.iter().min().unwrap(), layout.low());
        for (index, offset) in expected.iter().enumerate() {
            prop_assert_eq!(layout.at(index as i64), Some(*offset));
        }
        prop_assert_eq!(layout.at(layout.size()), None);
    }

    #[test]
    fn coalescing_keeps_the_function(modes in modes()) {
        let layout = Layout::flat(&modes).unwrap();
        prop_assert_eq!(offsets(&coalesce(&layout).layout), offsets(&layout));
        prop_assert_eq!(offsets(&coalesce_by_mode(&layout).layout), offsets(&layout));
    }

    #[test]
    fn equality_is_that_of_tables(a in modes(), b in modes()) {
        let (a, b) = (Layout::flat(&a).unwrap(), Layout::flat(&b).unwrap());
        let equality = equal(&a, &b);
        prop_assert_eq!(equality.equal, offsets(&a) == offsets(&b));
        let first = a.offsets().zip(b.offsets()).position(|(a, b)| a != b);
        prop_assert_eq!(equality.first_difference.map(|d| d.index as usize), first);
        prop_assert!(equal(&a, &coalesce(&a).layout).equal);
    }

    #[test]
    fn facts_are_those_of_tables(modes in modes()) {
        let layout = Layout::flat(&modes).unwrap();
        let values = offsets(&layout);
        let image: BTreeSet<i64> = values.iter().copied().collect();
        let facts = properties(&layout, Limits::default());
        prop_assert_eq!(facts.image_size, Some(image.len() as i64));
        let span = image.last().unwrap() - image.first().unwrap() + 1;
        prop_assert_eq!(facts.cosize, span);
        prop_assert_eq!(facts.injective, Some(image.len() == values.len()));
        let onto = image.iter().copied().eq(0..layout.size());
        prop_assert_eq!(facts.compact, onto && image.len() == values.len());
        if let Some(times) = facts.duplication {
            for offset in &image {
                let count = values.iter().filter(|v| *v == offset).count();
                prop_assert_eq!(count as i64, times);
            }
        }
        let filtered: BTreeSet<i64> = offsets(&filter(&layout).layout).into_iter().collect();
        prop_assert_eq!(filtered, image);
    }

    #[test]
    fn a_complement_counts_the_other_places(modes in modes(), bound in 1_i64..600) {
        let layout = Layout::flat(&modes).unwrap();
        let Ok(result) = complement(&layout, bound, Limits::default()) else { return Ok(()) };
        let rest = offsets(&result.layout);
        prop_assert!(rest.windows(2).all(|pair| pair[0] < pair[1]));
        let moving = filter(&layout).layout;
        let mut all = BTreeSet::new();
        for x in offsets(&moving) {
            for y in &rest {
                prop_assert!(all.insert(x + y), "{} and {} meet", moving, result.layout);
            }
        }
        if result.proof.claim.contains("bijection") {
            prop_assert!(all.iter().copied().eq(0..all.len() as i64));
            prop_assert!(all.len() as i64 >= bound);
        }
    }

    #[test]
    fn inverses_invert(modes in modes()) {
        let layout = Layout::flat(&modes).unwrap();
        if let Ok(right) = right_inverse(&layout, Limits::default()) {
            for i in 0..right.layout.size() {
                prop_assert_eq!(layout.at(right.layout.at(i).unwrap()), Some(i));
            }
        }
        if let Ok(left) = left_inverse(&layout, Limits::default()) {
            for i in 0..layout.size() {
                prop_assert_eq!(left.layout.at(layout.at(i).unwrap()), Some(i));
            }
        }
    }

    #[test]
    fn a_compact_layout_has_whole_inverses(layout in compact()) {
        let right = right_inverse(&layout, Limits::default()).unwrap().layout;
        let left = left_inverse(&layout, Limits::default()).unwrap().layout;
        prop_assert_eq!(right.size(), layout.size());
        prop_assert!(equal(&left, &right).equal);
    }

    #[test]
    fn a_division_is_a_rearrangement(layout in compact(), extent in 1_i64..9, stride in 1_i64..9) {
        let tile = Layout::flat(&[Mode::new(extent, stride)]).unwrap();
        let tiler = Tiler::Layout(tile);
        if let Ok(divided) = divide(&layout, &tiler, Grouping::Logical, Limits::default()) {
            let mut moved = offsets(&divided.layout);
            let mut whole = offsets(&layout);
            moved.sort_unstable();
            whole.sort_unstable();
            prop_assert_eq!(moved, whole);
        }
    }

    #[test]
    fn a_product_repeats_the_tile(tile in compact(), copies in compact()) {
        let tiler = Tiler::Layout(copies.clone());
        let result = product(&tile, &tiler, Grouping::Logical, Limits::default()).unwrap().layout;
        prop_assert_eq!(result.size(), tile.size() * copies.size());
        let mut values = offsets(&result);
        values.sort_unstable();
        prop_assert!(values.iter().copied().eq(0..result.size()));
        for (i, x) in offsets(&tile).into_iter().enumerate() {
            prop_assert_eq!(result.at(i as i64), Some(x));
        }
    }

    #[test]
    fn joined_and_split_elements_hold_the_same_bytes(layout in compact(), bits in 1_u32..3) {
        let count = 1 << bits;
        let Ok(split) = recast(&layout, 8 * count, 8) else { return Ok(()) };
        let parts: BTreeSet<i64> = offsets(&split.layout).into_iter().collect();
        let expected: BTreeSet<i64> =
            offsets(&layout).iter().flat_map(|x| (0..count).map(move |p| x * count + p)).collect();
        prop_assert_eq!(parts, expected);
        let joined = recast(&split.layout, 8, 8 * count).unwrap();
        prop_assert!(equal(&joined.layout, &layout).equal);
    }

    #[test]
    fn a_matrix_over_f2_is_the_layout(order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(), b in 0_i32..4, m in 0_i32..4) {
        let strides = [1, 4, 32, 64];
        let extents = [4, 8, 2, 4];
        let modes: Vec<Mode> = order.iter().map(|i| Mode::new(extents[*i], strides[*i])).collect();
        let swizzle = Swizzle::new(b, m, 3).unwrap();
        let layout = SwizzledLayout::new(swizzle, 0, Layout::flat(&modes).unwrap()).unwrap();
        let matrix = f2_matrix(&layout).unwrap();
        prop_assert_eq!(matrix.rank, 8);
        for (index, offset) in layout.offsets().enumerate() {
            let mut sum = 0;
            for (bit, column) in matrix.columns.iter().enumerate() {
                sum ^= if index >> bit & 1 == 1 { *column } else { 0 };
            }
            prop_assert_eq!(sum, offset);
        }
    }

    #[test]
    fn a_swizzle_is_its_own_inverse(b in 0_i32..5, m in 0_i32..6, s in -9_i32..10, x in 0_i64..1 << 20) {
        let Ok(swizzle) = Swizzle::new(b, m, s) else { return Ok(()) };
        prop_assert_eq!(swizzle.apply(swizzle.apply(x)), x);
        prop_assert_eq!(swizzle.apply(x + swizzle.period()), swizzle.apply(x) + swizzle.period());
    }

    #[test]
    fn swizzled_equality_is_that_of_tables(
        a in compact(), b in compact(), s in 0_i32..3, t in 0_i32..3,
    ) {
        let swizzled = |bits, layout| SwizzledLayout::new(Swizzle::new(bits, 1, 3).unwrap(), 0, layout).unwrap();
        let (a, b) = (swizzled(s, a), swizzled(t, b));
        let equality = equal_swizzled(&a, &b, Limits::default()).unwrap();
        prop_assert_eq!(equality.equal, a.offsets().eq(b.offsets()));
        if a.layout().size() == b.layout().size() {
            let first = a.offsets().zip(b.offsets()).position(|(a, b)| a != b);
            prop_assert_eq!(equality.first_difference.map(|d| d.index as usize), first);
        }
    }
}

#[test]
fn size_equal_to_cosize_is_not_enough_to_be_compact() {
    let facts = properties(&layout("(2,2,2):(1,1,5)"), Limits::default());
    assert_eq!((facts.size, facts.cosize, facts.compact), (8, 8, false));
    assert_eq!(facts.injective, Some(false));
}

#[test]
fn negative_strides_count_by_their_size_for_the_cosize() {
    // CuTe takes the absolute strides, so that the cosize is the room that the layout needs.
    for (text, cosize) in [("4:-1", 4), ("(3,4):(-1,2)", 9), ("(2,2):(-4,-1)", 6), ("4:2", 7)] {
        assert_eq!(layout(text).cosize(), cosize, "{text}");
    }
    let text = format!("(2,2):({},-{})", i64::MAX / 2, i64::MAX / 2 + 1);
    assert!(text.parse::<Layout>().is_err(), "its cosize does not fit");
}

#[test]
fn what_is_not_counted_is_not_known_or_has_another_proof() {
    let few = Limits { points: 4, ..Limits::default() };
    let facts = properties(&layout("(4,4):(1,3)"), few);
    assert_eq!((facts.image_size, facts.injective), (None, Some(false)));
    assert_eq!(facts.proof, None);
    assert!(facts.injective_proof.unwrap().claim.contains("fewer offsets"));
    let facts = properties(&layout("(4,4):(2,5)"), few);
    assert_eq!((facts.image_size, facts.injective, facts.injective_proof), (None, None, None));
    let facts = properties(&layout("(4,4):(2,5)"), Limits::default());
    assert!(facts.proof.is_some() && facts.injective_proof.is_none());
}

#[test]
fn a_swizzle_of_byte_addresses_is_one_of_the_offsets_of_elements() {
    for swizzle in ["1,4,3", "2,4,3", "3,4,3", "2,5,2", "2,4,-3"] {
        let bytes: Swizzle = swizzle.parse().unwrap();
        for element in ["0.5", "1", "2", "4", "8", "16"] {
            let size: ElementSize = element.parse().unwrap();
            let elements = bytes.for_elements(size.bits()).unwrap();
            for offset in 0..4096 {
                let bit = offset * size.bits();
                let moved = bytes.apply(bit / 8) * 8 + bit % 8;
                assert_eq!(elements.apply(offset) * size.bits(), moved, "{swizzle} {element}");
            }
        }
        assert!(bytes.for_elements(24).is_err() && bytes.for_elements(512).is_err());
    }
    let fp4: Swizzle = "3,4,3".parse().unwrap();
    assert_eq!(fp4.for_elements(4).unwrap().to_string(), "S<3,5,3>");
}

#[test]
fn published_divisions_and_products() {
    let limits = Limits::default();
    let divided = |a: &str, tiler: &str, grouping| {
        divide(&layout(a), &tiler.parse().unwrap(), grouping, limits).unwrap().layout.to_string()
    };
    assert_eq!(divided("(4,2,3):(2,1,8)", "4:2", Grouping::Logical), "((2,2),(2,3)):((4,1),(2,8))");
    let (a, tiler) = ("(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>");
    assert_eq!(
        divided(a, tiler, Grouping::Logical),
        "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"
    );
    assert_eq!(
        divided(a, tiler, Grouping::Zipped),
        "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"
    );
    assert_eq!(divided(a, tiler, Grouping::Tiled), "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))");
    assert_eq!(divided(a, tiler, Grouping::Flat), "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))");
    let multiplied = |a: &str, b: &str| {
        let tiler = b.parse().unwrap();
        product(&layout(a), &tiler, Grouping::Logical, limits).unwrap().layout.to_string()
    };
    assert_eq!(multiplied("(2,2):(4,1)", "6:1"), "((2,2),(2,3)):((4,1),(2,8))");
    assert_eq!(multiplied("(2,2):(4,1)", "(4,2):(2,1)"), "((2,2),(4,2)):((4,1),(8,2))");
    let by_mode =
        compose_tiler(&layout("(12,(4,8)):(59,(13,1))"), &"<3:4,8:2>".parse().unwrap(), limits);
    assert_eq!(by_mode.unwrap().layout.to_string(), "(3,(2,4)):(236,(26,1))");
}

#[test]
fn published_complements() {
    for (l, bound, expected) in [
        ("4:1", 24, "6:4"),
        ("6:4", 24, "4:1"),
        ("(4,6):(1,4)", 24, "1:0"),
        ("4:2", 24, "(2,3):(1,8)"),
        ("(2,4):(1,6)", 24, "3:2"),
        ("(2,2):(1,6)", 24, "(3,2):(2,12)"),
    ] {
        let result = complement(&layout(l), bound, Limits::default()).unwrap();
        assert_eq!(result.layout, layout(expected), "complement of {l} in {bound}");
        assert!(result.proof.claim.contains("bijection"));
    }
}

#[test]
fn injectivity_of_huge_layouts_is_decided_or_left_open() {
    let limits = Limits::default();
    let (decided, proof) = injective(&layout("(1048576,1048576):(1,1048576)"), limits).unwrap();
    assert!(decided);
    assert_eq!(proof.method, Method::Algebraic);
    // 3·2^20 + 5·2^20 coordinates interleave: nothing but looking at them decides.
    assert_eq!(injective(&layout("(16777216,3):(3,16777217)"), limits), None);
}

#[test]
fn an_inverse_that_does_not_exist_is_rejected() {
    let rejection = left_inverse(&layout("(4,2):(1,2)"), Limits::default()).unwrap_err();
    assert_eq!(rejection.condition, Condition::NotInjective);
    // Modes are numbered as written, not by their strides.
    let rejection = left_inverse(&layout("(2,3):(3,2)"), Limits::default()).unwrap_err();
    assert_eq!(rejection.condition, Condition::StrideOrder);
    assert_eq!((rejection.modes[0].index, rejection.modes[0].mode), (0, Mode::new(2, 3)));
    // Also where modes before it are merged: (2,2):(3,6) is one mode for the algorithm.
    let rejection = left_inverse(&layout("(2,2,3):(3,6,2)"), Limits::default()).unwrap_err();
    assert_eq!((rejection.modes[0].index, rejection.modes[0].mode), (0, Mode::new(2, 3)));
    let rejection = left_inverse(&layout("(1,2,2,3):(9,1,2,-4)"), Limits::default()).unwrap_err();
    assert_eq!((rejection.modes[0].index, rejection.modes[0].mode), (3, Mode::new(3, -4)));
    let rejection = left_inverse(&layout("4:-1"), Limits::default()).unwrap_err();
    assert_eq!(rejection.condition, Condition::NegativeStride);
}
