//! The syntax, its errors, and inputs at the ends of their ranges.

use proptest::prelude::*;
use rgpu_layout::{
    Coordinate, Grouping, Layout, Limits, ParseError, Swizzle, SwizzledLayout, Tiler, coalesce,
    complement, compose, divide, equal, f2_matrix, filter, left_inverse, product, properties,
    recast, right_inverse,
};

use crate::brute::layout;

#[test]
fn layouts_are_read_and_written() {
    for text in ["((32,4),(16,4)):((16,4),(0,1))", "8:-1", "(1):(0)", "((((3)))):((((1))))"] {
        assert_eq!(layout(text).to_string(), text);
    }
    assert_eq!(layout(" ( _4 , _8 ) : ( _8 , _1 ) ").to_string(), "(4,8):(8,1)");
    assert_eq!(layout("(4,(2,3))").to_string(), "(4,(2,3)):(1,(4,8))");
    assert_eq!(layout("(4,):(2,)").to_string(), "(4):(2)");
    // A swizzle without bits stays in the text: its base names a mode of the tensor core.
    let identity: SwizzledLayout = "S<0,4,3> o (2,4):(4,1)".parse().unwrap();
    assert_eq!(identity.to_string().parse::<SwizzledLayout>().unwrap(), identity);
    let swizzled: SwizzledLayout = "Sw<3,4,3> o 16 o (8,64):(64,1)".parse().unwrap();
    assert_eq!(swizzled.to_string(), "S<3,4,3> o 16 o (8,64):(64,1)");
    assert_eq!("S<3,4,3>".parse::<Swizzle>().unwrap().umma_mode(), Some("128B"));
    assert_eq!("2,5,2".parse::<Swizzle>().unwrap().umma_mode(), Some("128B_BASE32B"));
}

#[test]
fn results_and_rejections_have_a_form_in_json() {
    let limits = Limits::default();
    let result = compose(&layout("(4,8):(8,1)"), &layout("2:2"), limits).unwrap();
    assert_eq!(
        serde_json::to_value(&result).unwrap(),
        serde_json::json!({
            "layout": "2:16",
            "proof": {
                "method": "algebraic",
                "points": 0,
                "claim": "R refines B, and R(i) = A(B(i)) for all i",
            },
        })
    );
    let rejection = compose(&layout("(3,3,2):(24,12,2)"), &layout("4:1"), limits).unwrap_err();
    let json = serde_json::to_value(&rejection).unwrap();
    assert_eq!(json["condition"], "shape-divisibility");
    assert_eq!(json["modes"], serde_json::json!([{ "index": 0, "mode": "4:1" }]));
    assert_eq!(
        json["witness"],
        serde_json::json!({ "coordinate": [3], "required": 12, "candidate": 72 })
    );
    assert_eq!(json["nearest"], "3:1");
}

#[test]
fn coordinates_follow_the_nesting() {
    let atom = layout("((32,4),(16,4)):((16,4),(0,1))");
    let at = |text: &str| atom.at_coordinate(&text.parse::<Coordinate>().unwrap());
    assert_eq!(at("(33,17)"), Some(16 + 4 + 1));
    assert_eq!(at("((1,1),(1,1))"), Some(16 + 4 + 1));
    assert_eq!(at("((1,1),17)"), Some(16 + 4 + 1));
    assert_eq!(at("(128,0)"), None);
    assert_eq!(at("(1,2,3)"), None);
    assert_eq!(at("8191"), Some(511));
}

#[test]
fn an_error_has_its_place_and_a_caret() {
    let error = |text: &str| text.parse::<Layout>().unwrap_err();
    for (text, column, reason) in [
        ("(4,8:(1,4)", 5, "`,` or `)` is expected, not `:`"),
        ("(4,8):(1,4", 11, "`,` or `)` is expected, not the end"),
        ("(4,0):(1,4)", 4, "the extent 0 has no coordinates: extents begin at 1"),
        ("(4,-2):(1,4)", 4, "the extent -2 has no coordinates: extents begin at 1"),
        (
            "(4,8):(1,(4))",
            10,
            "the stride is a tuple of 1, but the shape is a number: they must nest alike",
        ),
        (
            "(4,8):(1,4,8)",
            7,
            "the stride is a tuple of 3, but the shape is a tuple of 2: they must nest alike",
        ),
        ("4:1 x", 5, "the end is expected, not `x`"),
        ("4:?", 3, "a number is expected, not `?`"),
        ("", 1, "a number is expected, not the end"),
        ("99999999999999999999:1", 1, "a number beyond 2^63 - 1 does not fit"),
        ("(4294967296,4294967296)", 1, "the layout has more than 2^63 - 1 coordinates"),
        ("4:9223372036854775807", 1, "the layout reaches offsets beyond 2^63 - 1"),
    ] {
        let error = error(text);
        assert_eq!((error.column, error.reason.as_str()), (column, reason), "{text}");
    }
    assert_eq!(error("(4,8:(1,4)").caret(), "(4,8:(1,4)\n    ^");
    let deep = format!("{}4{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(error(&deep).reason.contains("nest"));
    let tiler: ParseError = "<4:1,8:2".parse::<Tiler>().unwrap_err();
    assert_eq!(tiler.column, 9);
    assert!("S<3,0,1> o 8:1".parse::<SwizzledLayout>().is_err());
}

/// Any mode at all: small, at powers of two, at the ends of the range.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        1_i64..40,
        (0_u32..63).prop_map(|b| 1 << b),
        (0_u32..63).prop_map(|b| (1 << b) - 1),
        (0_u32..63).prop_map(|b| -(1 << b)),
        any::<i64>(),
    ]
}

fn any_layout() -> impl Strategy<Value = Layout> {
    prop::collection::vec((number(), number()), 0..4).prop_filter_map("no layout", |modes| {
        let modes: Vec<_> = modes.into_iter().map(|(e, s)| rgpu_layout::Mode::new(e, s)).collect();
        Layout::flat(&modes).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: 1 << 20,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_panics(text in "[()<>:,_SwoE0-9 -]{0,24}") {
        if let Err(error) = text.parse::<Layout>() {
            prop_assert!(error.column <= text.chars().count() + 1);
            prop_assert!(error.caret().ends_with('^'));
        }
        let _ = text.parse::<Tiler>();
        let _ = text.parse::<SwizzledLayout>();
        let _ = text.parse::<Coordinate>();
    }

    #[test]
    fn no_layout_panics(a in any_layout(), b in any_layout(), n in number()) {
        let limits = Limits { points: 1 << 10, nearest_tries: 40 };
        let tiler = Tiler::Layout(b.clone());
        let _ = compose(&a, &b, limits);
        let _ = complement(&a, n, limits);
        let _ = left_inverse(&a, limits);
        let _ = right_inverse(&a, limits);
        let _ = divide(&a, &tiler, Grouping::Zipped, limits);
        let _ = product(&a, &tiler, Grouping::Flat, limits);
        let _ = recast(&a, n, 8);
        let _ = recast(&a, 8, n);
        let _ = (coalesce(&a), filter(&a), equal(&a, &b), properties(&a, limits));
        if let Ok(swizzled) = SwizzledLayout::new(Swizzle::new(3, 4, 3).unwrap(), 0, a) {
            let _ = f2_matrix(&swizzled);
        }
    }
}
