//! Floating-point operations of matrix products, from the shapes of their inputs.

/// Operators that multiply matrices themselves, and the place of the first factor among their
/// inputs.
const PRODUCTS: &[(&str, usize)] = &[
    ("aten::mm", 0),
    ("aten::bmm", 0),
    ("aten::_scaled_mm", 0),
    ("aten::addmm", 1),
    ("aten::_addmm_activation", 1),
    ("aten::baddbmm", 1),
];

/// The operations of a call: 2 m n k for each product of a batch. `None` if the operator is no
/// product, or the trace has no shapes.
pub(super) fn flops(operator: &str, shapes: &str) -> Option<f64> {
    let (_, first) = PRODUCTS.iter().find(|(known, _)| *known == operator)?;
    let shapes: Vec<serde_json::Value> = serde_json::from_str(shapes).ok()?;
    let factor = |at: usize| -> Option<Vec<f64>> {
        shapes.get(at)?.as_array()?.iter().map(serde_json::Value::as_f64).collect()
    };
    let (batch, m, k, inner, n) = match (&factor(*first)?[..], &factor(first + 1)?[..]) {
        ([m, k], [inner, n]) => (1.0, *m, *k, *inner, *n),
        ([batch, m, k], [others, inner, n]) if batch == others => (*batch, *m, *k, *inner, *n),
        _ => return None,
    };
    (k == inner).then_some(2.0 * batch * m * n * k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_counts_two_operations_for_each_pair() {
        assert_eq!(flops("aten::mm", "[[2,3],[3,4]]"), Some(48.0));
        assert_eq!(flops("aten::addmm", "[[4],[2,3],[3,4],[],[]]"), Some(48.0));
        assert_eq!(flops("aten::bmm", "[[5,2,3],[5,3,4]]"), Some(240.0));
        for (operator, shapes) in [
            ("aten::add", "[[2,3],[3,4]]"),
            ("aten::mm", ""),
            ("aten::mm", "[[2,3],[4,4]]"),
            ("aten::mm", "[[2,3]]"),
            ("aten::bmm", "[[5,2,3],[6,3,4]]"),
        ] {
            assert_eq!(flops(operator, shapes), None, "{operator} {shapes}");
        }
    }
}
