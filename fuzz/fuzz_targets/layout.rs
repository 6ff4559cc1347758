//! Treats lines of any text as layouts, tilers, coordinates and swizzles, and computes with them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_layout::{
    Coordinate, Grouping, Layout, Limits, Swizzle, SwizzledLayout, Tiler, coalesce, complement,
    compose, divide, equal, equal_swizzled, f2_matrix, left_inverse, product, properties, recast,
    right_inverse,
};

fuzz_target!(|text: &str| {
    let limits = Limits { points: 4096, nearest_tries: 16 };
    let layouts: Vec<Layout> = text.lines().take(3).filter_map(|l| l.parse().ok()).collect();
    for line in text.lines().take(3) {
        if let Err(error) = line.parse::<Layout>() {
            assert!(error.column <= line.chars().count() + 1);
            assert!(error.caret().ends_with('^'));
        }
        if let Ok(swizzle) = line.parse::<Swizzle>() {
            assert_eq!(swizzle.apply(swizzle.apply(1 << 40)), 1 << 40);
        }
        if let Ok(layout) = line.parse::<SwizzledLayout>() {
            assert_eq!(layout.to_string().parse::<SwizzledLayout>().unwrap(), layout);
            let _ = f2_matrix(&layout);
            assert!(equal_swizzled(&layout, &layout, limits).unwrap().equal);
        }
        if let (Ok(coordinate), Some(layout)) = (line.parse::<Coordinate>(), layouts.first()) {
            let _ = layout.at_coordinate(&coordinate);
        }
    }
    for layout in &layouts {
        assert_eq!(layout.to_string().parse::<Layout>().unwrap(), *layout);
        assert!(equal(layout, &coalesce(layout).layout).equal);
        let facts = properties(layout, limits);
        assert!(facts.image_size.is_none_or(|image| image <= facts.size));
        let _ = recast(layout, 4, 8);
        if let Ok(inverse) = right_inverse(layout, limits) {
            let last = inverse.layout.size() - 1;
            assert_eq!(inverse.layout.at(last).and_then(|x| layout.at(x)), Some(last));
        }
        let _ = left_inverse(layout, limits);
        let _ = complement(layout, layout.size(), limits);
    }
    let [a, b, ..] = layouts.as_slice() else { return };
    if let Ok(result) = compose(a, b, limits) {
        let last = b.size() - 1;
        assert_eq!(result.layout.at(last), b.at(last).and_then(|x| a.at(x)));
    }
    let tiler = Tiler::Layout(b.clone());
    let _ = divide(a, &tiler, Grouping::Logical, limits);
    let _ = product(a, &tiler, Grouping::Logical, limits);
});
