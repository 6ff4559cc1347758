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

/// A structure in memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) bytes: u64,
    alignment: u64,
    /// Its numbers and pointers, those of inner structures included, in their order.
    pub(super) members: Vec<Member>,
}

/// A number or pointer in a structure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    /// As it is written behind the structure's name: `scale`, `size.x`, `strides.0`.
    pub(super) path: String,
    pub(super) kind: TypeText,
    pub(super) offset: u64,
}

/// The most members of a structure, with those of inner ones.
const MAX_MEMBERS: usize = 256;

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
        if let Some(bytes) = random_state(name) {
            return Some(ElementType { dtype: Dtype::U8, count: bytes });
        }
        let layout = self.layout_within(&kind, depth)?;
        let dtypes: Option<Vec<Dtype>> =
            layout.members.iter().map(|m| dtype(&m.kind.words)).collect();
        let same = dtypes.filter(|_| layout.members.iter().all(|member| member.kind.stars == 0));
        let same =
            same.and_then(|found| found.first().copied().filter(|d| found.iter().all(|o| o == d)));
        let dtype = same.unwrap_or(Dtype::U8);
        Some(ElementType { dtype, count: layout.bytes.checked_div(dtype.bytes_for(1)?)? })
    }

    /// The members of a structure or vector, as a C++ compiler lays them out. `None` for another
    /// type, and if a member is not known.
    pub(super) fn layout(&self, kind: &TypeText) -> Option<Layout> {
        self.layout_within(&self.resolve(kind), 0)
    }

    fn layout_within(&self, kind: &TypeText, depth: u32) -> Option<Layout> {
        let [name] = kind.words.as_slice() else { return None };
        if let Some(ElementType { dtype, count }) = vector(name) {
            let unit = dtype.bytes_for(1)?;
            let names = ["x", "y", "z", "w"].iter().take(usize::try_from(count).ok()?);
            let kind = TypeText { words: vec![dtype_word(dtype).into()], ..TypeText::default() };
            let members = names.zip(0..).map(|(name, at)| Member {
                path: (*name).to_owned(),
                kind: kind.clone(),
                offset: at * unit,
            });
            let alignment = if count == 3 { unit } else { (count * unit).min(16) };
            return Some(Layout { bytes: count * unit, alignment, members: members.collect() });
        }
        let fields = self.structures.get(name).filter(|_| depth <= 8)?;
        let mut layout = Layout { bytes: 0, alignment: 1, members: Vec::new() };
        for field in fields {
            let inner = self.field_layout(field, depth)?;
            layout.alignment = layout.alignment.max(inner.alignment);
            for at in 0..field.count {
                let start = layout.bytes.checked_next_multiple_of(inner.alignment)?;
                let index = if field.count == 1 { String::new() } else { format!(".{at}") };
                for member in &inner.members {
                    let rest = if member.path.is_empty() { "" } else { "." };
                    layout.members.push(Member {
                        path: format!("{}{index}{rest}{}", field.name, member.path),
                        kind: member.kind.clone(),
                        offset: start.checked_add(member.offset)?,
                    });
                }
                layout.bytes = start.checked_add(inner.bytes)?;
                if layout.members.len() > MAX_MEMBERS {
                    return None;
                }
            }
        }
        layout.bytes = layout.bytes.max(1).checked_next_multiple_of(layout.alignment)?;
        Some(layout)
    }

    /// One element of a field.
    fn field_layout(&self, field: &Field, depth: u32) -> Option<Layout> {
        let kind = self.resolve(&field.kind);
        let unit = match kind.stars {
            0 => dtype(&kind.words).and_then(|dtype| dtype.bytes_for(1)).filter(|bytes| *bytes > 0),
            _ => Some(8),
        };
        let Some(bytes) = unit else { return self.layout_within(&kind, depth + 1) };
        let members = vec![Member { path: String::new(), kind, offset: 0 }];
        Some(Layout { bytes, alignment: bytes, members })
    }
}

/// The size of a generator's state of cuRAND.
fn random_state(name: &str) -> Option<u64> {
    Some(match name {
        "curandState" | "curandState_t" | "curandStateXORWOW" | "curandStateXORWOW_t" => 48,
        "curandStatePhilox4_32_10" | "curandStatePhilox4_32_10_t" => 64,
        "curandStateMRG32k3a" | "curandStateMRG32k3a_t" => 72,
        _ => return None,
    })
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

/// The type in C++ of one number.
fn dtype_word(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "double",
        Dtype::F16 => "half",
        Dtype::Bf16 => "nv_bfloat16",
        Dtype::I64 => "int64_t",
        Dtype::I32 => "int",
        Dtype::I16 => "int16_t",
        Dtype::I8 => "int8_t",
        Dtype::U64 => "uint64_t",
        Dtype::U32 => "uint32_t",
        Dtype::U16 => "uint16_t",
        Dtype::U8 => "uint8_t",
        _ => "float",
    }
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
