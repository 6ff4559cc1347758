//! Sizes of types in device memory.

use std::collections::HashMap;
use std::rc::Rc;

use rgpu_case::Dtype;

use super::tree::TypeText;

/// A type of which arrays are made: `count` numbers of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) struct ElementType {
    pub(in crate::kernel) dtype: Dtype,
    /// 4 for `float4`; for a structure its size in bytes, with dtype `u8`.
    pub(in crate::kernel) count: u64,
}

impl ElementType {
    pub(super) fn bytes(self) -> Option<u64> {
        self.dtype.bytes_for(self.count)
    }

    /// As the type of a scalar.
    pub(in crate::kernel) fn scalar(self) -> Option<Dtype> {
        (self.count == 1).then_some(self.dtype)
    }
}

/// The names of types that a source gives, and what templates' parameters stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeTable {
    /// `using T = float`, `typedef`, and parameters of the instance that is looked at.
    pub(super) aliases: HashMap<Rc<str>, TypeText>,
    pub(super) structures: HashMap<Rc<str>, Vec<Field>>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct Field {
    pub(super) name: Rc<str>,
    pub(super) kind: TypeText,
    pub(super) count: u64,
}

impl TypeTable {
    /// What a type stands for after aliases.
    pub(super) fn resolve(&self, kind: &TypeText) -> TypeText {
        let mut kind = kind.clone();
        for _ in 0..16 {
            let [name] = kind.words.as_slice() else { return kind };
            let Some(alias) = self.aliases.get(name) else { return kind };
            if alias.words == kind.words {
                return kind;
            }
            kind = TypeText {
                words: alias.words.clone(),
                stars: kind.stars + alias.stars,
                constant: kind.constant || alias.constant,
                reference: kind.reference,
            };
        }
        kind
    }

    /// The elements of an array of this type, whose stars do not count.
    pub(super) fn element(&self, kind: &TypeText) -> Option<ElementType> {
        self.element_within(kind, 0)
    }

    fn element_within(&self, kind: &TypeText, depth: u32) -> Option<ElementType> {
        let kind = self.resolve(kind);
        if let Some(dtype) = dtype(&kind.words) {
            return Some(ElementType { dtype, count: 1 });
        }
        let [name] = kind.words.as_slice() else { return None };
        if let Some(vector) = vector(name) {
            return Some(vector);
        }
        let fields = self.structures.get(name)?;
        if depth > 8 {
            return None;
        }
        let members: Vec<(Option<ElementType>, u64)> = fields
            .iter()
            .map(|field| {
                let element = match field.kind.stars {
                    0 => self.element_within(&field.kind, depth + 1),
                    _ => Some(ElementType { dtype: Dtype::U64, count: 1 }),
                };
                (element, field.count)
            })
            .collect();
        let first = members.first()?.0?;
        if members.iter().all(|(element, _)| element.is_some_and(|e| e.dtype == first.dtype)) {
            let counts = members.iter().map(|(e, n)| e.map_or(0, |e| e.count).checked_mul(*n));
            let count = counts.sum::<Option<u64>>()?;
            return Some(ElementType { dtype: first.dtype, count });
        }
        let (mut end, mut alignment) = (0_u64, 1_u64);
        for (element, count) in members {
            let element = element?;
            let unit = element.dtype.bytes_for(1)?.max(1);
            alignment = alignment.max(unit);
            end = end.checked_next_multiple_of(unit)?;
            end = end.checked_add(element.bytes()?.checked_mul(count)?)?;
        }
        Some(ElementType { dtype: Dtype::U8, count: end.checked_next_multiple_of(alignment)? })
    }
}

fn vector(name: &str) -> Option<ElementType> {
    let of = |dtype, count| Some(ElementType { dtype, count });
    match name {
        "half2" | "__half2" => return of(Dtype::F16, 2),
        "nv_bfloat162" | "__nv_bfloat162" => return of(Dtype::Bf16, 2),
        "cuComplex" | "cuFloatComplex" | "cufftComplex" => return of(Dtype::F32, 2),
        "cuDoubleComplex" | "cufftDoubleComplex" => return of(Dtype::F64, 2),
        _ => {}
    }
    let last = name.chars().last()?;
    let count = last.to_digit(10).filter(|count| (1..=4).contains(count))?;
    let dtype = match name.strip_suffix(last)? {
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "int" => Dtype::I32,
        "uint" => Dtype::U32,
        "char" => Dtype::I8,
        "uchar" => Dtype::U8,
        "short" => Dtype::I16,
        "ushort" => Dtype::U16,
        "long" | "longlong" => Dtype::I64,
        "ulong" | "ulonglong" => Dtype::U64,
        _ => return None,
    };
    of(dtype, count.into())
}

/// The dtype of a type that is one number.
pub(super) fn dtype(words: &[Rc<str>]) -> Option<Dtype> {
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let words = match words.as_slice() {
        ["std", "::", rest @ ..] | ["at", "::", rest @ ..] | ["c10", "::", rest @ ..] => {
            rest.to_vec()
        }
        words => words.to_vec(),
    };
    // `int unsigned long` is rare, but a valid order of words.
    let has = |word: &str| words.contains(&word);
    let integers = ["unsigned", "signed", "int", "long", "short", "char"];
    if words.len() > 1 && words.iter().all(|word| integers.contains(word)) {
        return Some(match (has("unsigned"), has("long"), has("short"), has("char")) {
            (true, true, _, _) => Dtype::U64,
            (false, true, _, _) => Dtype::I64,
            (true, _, true, _) => Dtype::U16,
            (false, _, true, _) => Dtype::I16,
            (true, _, _, true) => Dtype::U8,
            (false, _, _, true) => Dtype::I8,
            (true, ..) => Dtype::U32,
            (false, ..) => Dtype::I32,
        });
    }
    Some(match words.join(" ").as_str() {
        "double" => Dtype::F64,
        "float" | "float_t" => Dtype::F32,
        "__half" | "half" | "Half" => Dtype::F16,
        "__nv_bfloat16" | "nv_bfloat16" | "BFloat16" => Dtype::Bf16,
        "__nv_fp8_e4m3" => Dtype::E4m3,
        "__nv_fp8_e5m2" => Dtype::E5m2,
        "long" | "int64_t" | "ptrdiff_t" | "ssize_t" | "longlong" | "intptr_t" => Dtype::I64,
        "int" | "signed" | "int32_t" => Dtype::I32,
        "short" | "int16_t" => Dtype::I16,
        "char" | "int8_t" => Dtype::I8,
        "uint64_t" | "size_t" | "ulong" | "uintptr_t" => Dtype::U64,
        "unsigned" | "uint32_t" | "uint" => Dtype::U32,
        "uint16_t" | "ushort" => Dtype::U16,
        "uint8_t" | "uchar" => Dtype::U8,
        "bool" => Dtype::Bool,
        _ => return None,
    })
}
