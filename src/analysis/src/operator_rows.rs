//! Operators of torch as rows of measurements: the kind of kernel and its sizes, from the shapes
//! and types of the inputs.
//!
//! An operator that only moves bytes reads its inputs and writes a result as large as its largest
//! input. Attention of as many queries as keys is taken as causal, since the shapes do not tell.

use rgpu_model::Operator;
use rgpu_model::operator::OperatorInputs;
use rgpu_predict::Dtype;
use rgpu_predict::kernel::OpKind;
use rgpu_predict::measurement::{Measurement, MeasurementKind};

/// An input: its extents and the type of its elements.
struct Tensor {
    dims: Vec<f64>,
    dtype: Option<Dtype>,
    element_bytes: f64,
}

impl Tensor {
    fn elements(&self) -> f64 {
        self.dims.iter().product()
    }

    fn bytes(&self) -> f64 {
        self.elements() * self.element_bytes
    }
}

/// How the row of an operator is made.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Factors from this input on, `[m, k]` and `[k, n]`.
    Product(usize),
    /// Queries, keys and values as `[batch, heads, tokens, length]`, or with tokens before heads.
    Attention { tokens_first: bool },
    /// Rows of the first input: a norm, a softmax or a reduction.
    Rows(OpKind, &'static str),
    /// A result for each element.
    Elements(OpKind),
    /// Writes into the first input.
    InPlace,
    /// Rows of a table.
    Gather,
}

const FORMS: &[(&str, Form)] = &[
    ("mm", Form::Product(0)),
    ("bmm", Form::Product(0)),
    ("_scaled_mm", Form::Product(0)),
    ("addmm", Form::Product(1)),
    ("_addmm_activation", Form::Product(1)),
    ("baddbmm", Form::Product(1)),
    ("_scaled_dot_product_cudnn_attention", Form::Attention { tokens_first: false }),
    ("_cudnn_attention_forward", Form::Attention { tokens_first: false }),
    ("_flash_attention_forward", Form::Attention { tokens_first: true }),
    ("_efficient_attention_forward", Form::Attention { tokens_first: true }),
    ("native_layer_norm", Form::Rows(OpKind::Norm, "layer_norm")),
    ("_fused_rms_norm", Form::Rows(OpKind::Norm, "rms_norm")),
    ("_softmax", Form::Rows(OpKind::Softmax, "softmax")),
    ("_log_softmax", Form::Rows(OpKind::Softmax, "softmax")),
    ("gelu", Form::Elements(OpKind::Elementwise)),
    ("silu", Form::Elements(OpKind::Elementwise)),
    ("relu", Form::Elements(OpKind::Elementwise)),
    ("tanh", Form::Elements(OpKind::Elementwise)),
    ("sigmoid", Form::Elements(OpKind::Elementwise)),
    ("exp", Form::Elements(OpKind::Elementwise)),
    ("neg", Form::Elements(OpKind::Elementwise)),
    ("rsqrt", Form::Elements(OpKind::Elementwise)),
    ("pow", Form::Elements(OpKind::Elementwise)),
    ("add", Form::Elements(OpKind::Elementwise)),
    ("sub", Form::Elements(OpKind::Elementwise)),
    ("mul", Form::Elements(OpKind::Elementwise)),
    ("div", Form::Elements(OpKind::Elementwise)),
    ("where", Form::Elements(OpKind::Elementwise)),
    ("clamp", Form::Elements(OpKind::Elementwise)),
    ("gelu_backward", Form::Elements(OpKind::Elementwise)),
    ("silu_backward", Form::Elements(OpKind::Elementwise)),
    ("threshold_backward", Form::Elements(OpKind::Elementwise)),
    ("copy_", Form::InPlace),
    ("fill_", Form::InPlace),
    ("zero_", Form::InPlace),
    ("add_", Form::InPlace),
    ("mul_", Form::InPlace),
    ("div_", Form::InPlace),
    ("relu_", Form::InPlace),
    ("embedding", Form::Gather),
];
/// In-place operators that do not read what they write.
const ONLY_WRITES: &[&str] = &["copy_", "fill_", "zero_"];

/// A row of a call with these inputs, without its time. `None` if the operator is of no known kind,
/// or its shapes do not fit it. `default` is the type where the trace has none.
pub(super) fn row(
    operator: &Operator,
    inputs: &OperatorInputs,
    default: Option<Dtype>,
) -> Option<Measurement> {
    let name = operator.name.strip_prefix("aten::")?;
    let (_, form) = FORMS.iter().find(|(known, _)| *known == name)?;
    let tensors = tensors(inputs, default)?;
    let first = tensors.first().filter(|tensor| tensor.elements() > 0.0);
    let mut row = Measurement::new(MeasurementKind::Kernel, "", "");
    let mut set = |op: OpKind, dtype: Dtype| {
        row.op = Some(op.name().to_owned());
        row.dtype = Some(dtype);
    };
    match *form {
        Form::Product(at) => {
            let (a, b) = (tensors.get(at)?, tensors.get(at + 1)?);
            let (batch, m, k, inner, n) = match (&a.dims[..], &b.dims[..]) {
                ([m, k], [inner, n]) => (None, *m, *k, *inner, *n),
                ([batch, m, k], [others, inner, n]) if batch == others => {
                    (Some(*batch), *m, *k, *inner, *n)
                }
                _ => return None,
            };
            let is_tf32 = a.dtype? == Dtype::Fp32 && multiplies_tf32(operator);
            set(OpKind::Gemm, if is_tf32 { Dtype::Tf32 } else { a.dtype? });
            (row.m, row.n, row.k, row.batch) = (Some(m), Some(n), Some(k), batch);
            (k == inner && m * n * k > 0.0).then_some(row)
        }
        Form::Attention { tokens_first } => {
            let sizes = |tensor: &Tensor| match tensor.dims[..] {
                [batch, tokens, heads, length] if tokens_first => {
                    Some([batch, heads, tokens, length])
                }
                [batch, heads, tokens, length] => Some([batch, heads, tokens, length]),
                _ => None,
            };
            let [batch, heads, queries, length] = sizes(first?)?;
            let [_, kv_heads, keys, _] = sizes(tensors.get(1)?)?;
            let is_decode = queries == 1.0;
            let op = if is_decode { OpKind::AttentionDecode } else { OpKind::AttentionPrefill };
            set(op, first?.dtype?);
            (row.batch, row.queries, row.keys) = (Some(batch), Some(queries), Some(keys));
            (row.heads, row.kv_heads, row.head_dim) = (Some(heads), Some(kv_heads), Some(length));
            row.causal = Some(!is_decode && queries == keys);
            (kv_heads > 0.0 && heads % kv_heads == 0.0 && queries <= keys).then_some(row)
        }
        Form::Rows(op, variant) => {
            set(op, first?.dtype?);
            row.variant = Some(variant.to_owned());
            row.n = first?.dims.last().copied();
            row.m = Some(first?.elements() / row.n?);
            row.bytes = Some(2.0 * first?.bytes());
            Some(row)
        }
        Form::Elements(op) => {
            let largest = tensors.iter().map(Tensor::elements).fold(0.0, f64::max);
            let read: f64 = tensors.iter().map(Tensor::bytes).sum();
            let tensor = tensors.iter().find(|tensor| tensor.elements() == largest)?;
            set(op, tensor.dtype?);
            row.variant = (name == "gelu").then(|| name.to_owned());
            row.bytes = Some(read + largest * tensor.element_bytes);
            (largest > 0.0).then_some(row)
        }
        Form::InPlace => {
            set(OpKind::Elementwise, first?.dtype?);
            let inputs: f64 = tensors.iter().map(Tensor::bytes).sum();
            let read_again = if ONLY_WRITES.contains(&name) { 0.0 } else { first?.bytes() };
            row.bytes = Some(inputs + read_again);
            Some(row)
        }
        Form::Gather => {
            let [_, length] = first?.dims[..] else { return None };
            let taken = tensors.get(1)?.elements();
            set(OpKind::Gather, first?.dtype?);
            (row.m, row.n) = (Some(taken), Some(length));
            row.bytes = Some(2.0 * taken * length * first?.element_bytes);
            (taken > 0.0).then_some(row)
        }
    }
}

/// The inputs that are tensors or numbers, in their order. Lists are left out of both texts alike.
fn tensors(inputs: &OperatorInputs, default: Option<Dtype>) -> Option<Vec<Tensor>> {
    let shapes: Vec<serde_json::Value> = serde_json::from_str(&inputs.shapes).ok()?;
    let types: Vec<String> = serde_json::from_str(&inputs.types).unwrap_or_default();
    let tensor = |(at, shape): (usize, &serde_json::Value)| {
        let dims: Vec<f64> =
            shape.as_array()?.iter().map(serde_json::Value::as_f64).collect::<Option<_>>()?;
        let (dtype, element_bytes) = match types.get(at) {
            Some(name) => element(name),
            None => (default, default.map_or(0.0, |dtype| f64::from(dtype.bits()) / 8.0)),
        };
        let is_tensor = !dims.is_empty();
        let element_bytes = if is_tensor { element_bytes } else { 0.0 };
        let dims = if is_tensor { dims } else { vec![0.0] };
        Some(Tensor { dims, dtype, element_bytes })
    };
    Some(shapes.iter().enumerate().filter_map(tensor).collect())
}

/// The format and the bytes of an element of the type that a trace names.
fn element(name: &str) -> (Option<Dtype>, f64) {
    let name = name.strip_prefix("c10::").unwrap_or(name);
    match name {
        "double" | "long" | "long int" | "unsigned long" => (None, 8.0),
        "int" => (None, 4.0),
        "short" | "short int" => (None, 2.0),
        "bool" | "signed char" | "unsigned char" => (Some(Dtype::Int8), 1.0),
        name => {
            let dtype: Option<Dtype> = name.parse().ok();
            (dtype, dtype.map_or(0.0, |dtype| f64::from(dtype.bits()) / 8.0))
        }
    }
}

/// Whether the kernels of a product of 32-bit floats multiply TF32, as their names say.
fn multiplies_tf32(operator: &Operator) -> bool {
    let longest = operator.kernels.first().map(|sum| sum.kernel.to_lowercase());
    longest.is_some_and(|name| name.contains("tf32") || name.contains("s1688"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, shapes: &str, types: &str) -> Option<Measurement> {
        let operator = Operator { name: format!("aten::{name}"), ..Operator::default() };
        let inputs = OperatorInputs {
            shapes: shapes.to_owned(),
            types: types.to_owned(),
            calls: 1,
            gpu_self_ns: 1,
        };
        row(&operator, &inputs, None)
    }

    const HALF: &str = r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]"#;

    #[test]
    fn products_and_attention_have_the_sizes_of_their_inputs() {
        let gemm = of("mm", "[[64, 4096], [4096, 1024]]", HALF).unwrap();
        assert_eq!((gemm.m, gemm.n, gemm.k), (Some(64.0), Some(1024.0), Some(4096.0)));
        assert_eq!((gemm.op.as_deref(), gemm.dtype), (Some("gemm"), Some(Dtype::Bf16)));
        let batched = of("baddbmm", "[[8, 2, 4], [8, 2, 3], [8, 3, 4], [], []]", HALF).unwrap();
        assert_eq!((batched.batch, batched.k), (Some(8.0), Some(3.0)));
        let attention = "[[2, 128, 32, 64], [2, 128, 8, 64], [2, 128, 8, 64], [], []]";
        let attention = of("_flash_attention_forward", attention, HALF).unwrap();
        assert_eq!((attention.heads, attention.kv_heads), (Some(32.0), Some(8.0)));
        assert_eq!((attention.queries, attention.causal), (Some(128.0), Some(true)));
        for (name, shapes) in [
            ("mm", "[[64, 4096], [1024, 1024]]"),
            ("mm", "[[64, 4096]]"),
            ("mm", "not shapes"),
            ("unknown", "[[64, 64]]"),
            ("_flash_attention_forward", "[[2, 128, 32], [2, 128, 8]]"),
        ] {
            assert_eq!(of(name, shapes, HALF), None, "{name} {shapes}");
        }
    }

    #[test]
    fn other_operators_have_the_bytes_that_they_move() {
        let bytes = |name: &str, shapes: &str, types: &str| of(name, shapes, types)?.bytes;
        assert_eq!(bytes("add", "[[4, 8], [4, 8], []]", HALF), Some(3.0 * 64.0));
        assert_eq!(bytes("mul", "[[4, 8], [8]]", HALF), Some(64.0 + 16.0 + 64.0));
        assert_eq!(bytes("add_", "[[4, 8], [4, 8], []]", HALF), Some(3.0 * 64.0));
        assert_eq!(bytes("fill_", "[[4, 8], []]", HALF), Some(64.0));
        let cast = r#"["float", "c10::BFloat16", ""]"#;
        assert_eq!(bytes("copy_", "[[4, 8], [4, 8], []]", cast), Some(128.0 + 64.0));
        let table = r#"["c10::BFloat16", "long int"]"#;
        assert_eq!(bytes("embedding", "[[1000, 8], [4, 2]]", table), Some(2.0 * 8.0 * 16.0));
        let norm = of("native_layer_norm", "[[2, 4, 8], [], [8], [8], []]", HALF).unwrap();
        assert_eq!((norm.m, norm.n, norm.bytes), (Some(8.0), Some(8.0), Some(256.0)));
        assert_eq!(bytes("add", "[[0, 8], [0, 8]]", HALF), None);
    }
}
