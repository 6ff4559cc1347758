//! How a kernel in PTX uses its parameters.
//!
//! PTX says of an array only that it has an address. Each register of the kernel is followed from
//! the parameter or index that it is computed of, in the order of the text and without branches:
//! loads and stores through an address tell the type of the elements and whether they are written;
//! comparisons of an index with an integer parameter tell the size along an axis.

use std::collections::HashMap;

/// What the instructions of a kernel tell about a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParamUse {
    /// The element of the array that it points to, in C++; `None` if nothing is loaded or stored
    /// through it.
    pub(super) element: Option<&'static str>,
    /// Whether only the width of the element is known.
    is_bits: bool,
    pub(super) is_written: bool,
    /// Whether it is a floating-point number.
    pub(super) is_float: bool,
    /// What it is the size of, if an index is compared or multiplied with it.
    pub(super) size: Option<SizeUse>,
}

/// What a size counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeUse {
    /// The elements along an axis, 0 for x: a thread's index is compared with it.
    Below(usize),
    /// The elements of a row: an index is multiplied by it.
    RowLength,
    /// The rows, one for each block: a block's index is compared with it.
    Rows,
}

/// What a register is computed of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Origin {
    /// A parameter: it is its value, or an address in its array.
    param: Option<usize>,
    /// The parameter from whose array it was loaded.
    loaded: Option<usize>,
    /// The first axis of a thread's or block's index in it.
    axis: Option<usize>,
    /// Whether a thread's index is in it.
    has_thread: bool,
}

/// Formats of numbers that a kernel computes with.
struct Formats {
    has_f16: bool,
    has_bf16: bool,
    has_f64: bool,
}

const AXES: [&str; 3] = ["x", "y", "z"];

/// Reads the instructions of one kernel. `params` are the names of its parameters.
pub(super) fn uses_of(body: &str, params: &[&str]) -> Vec<ParamUse> {
    let mut uses = vec![ParamUse::default(); params.len()];
    let mut registers: HashMap<&str, Origin> = HashMap::new();
    let formats = Formats {
        has_f16: body.contains("f16"),
        has_bf16: body.contains("bf16"),
        has_f64: body.contains(".f64"),
    };
    for statement in body.split(';') {
        // A label or a predicate may stand before the instruction.
        let text = statement.rsplit('\n').find(|line| !line.trim().is_empty()).unwrap_or_default();
        let text = text.split("//").next().unwrap_or_default().trim();
        let text = text.strip_prefix('{').unwrap_or(text).trim();
        let text = match text.strip_prefix('@') {
            Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest.trim()),
            None => text,
        };
        let Some((operation, operands)) = text.split_once([' ', '\t']) else { continue };
        let operands: Vec<&str> = operands
            .split([',', '{', '}', '[', ']', '+'])
            .map(str::trim)
            .filter(|operand| !operand.is_empty())
            .collect();
        let mut instruction =
            Instruction { operation, operands: &operands, registers: &mut registers };
        instruction.read(params, &mut uses, &formats);
    }
    uses
}

struct Instruction<'a, 'r> {
    operation: &'a str,
    operands: &'r [&'a str],
    registers: &'r mut HashMap<&'a str, Origin>,
}

impl Instruction<'_, '_> {
    fn read(&mut self, params: &[&str], uses: &mut [ParamUse], formats: &Formats) {
        let mut parts = self.operation.split('.');
        let name = parts.next().unwrap_or_default();
        let has = |part: &str| self.operation.split('.').any(|own| own == part);
        let is_memory = matches!(name, "ld" | "ldu" | "st" | "atom" | "red");
        if name == "ld" && has("param") {
            let param = self.operands.iter().find_map(|o| params.iter().position(|p| p == o));
            if let (Some(param), Some(register)) = (param, self.operands.first().copied()) {
                if let Some(used) = uses.get_mut(param) {
                    used.is_float |= has("f32") || has("f64");
                }
                self.registers.insert(register, Origin { param: Some(param), ..Origin::default() });
            }
            return;
        }
        if is_memory && (has("shared") || has("local") || has("const")) {
            return;
        }
        if is_memory {
            self.access(name, uses, formats);
            return;
        }
        self.note_number_type(uses);
        if name == "setp" || (name == "mul" || name == "mad") {
            self.note_size(name, uses);
        }
        let mut origin = Origin::default();
        for operand in self.operands.iter().skip(1) {
            let own = self.origin(operand);
            // Of an address and an offset the address counts.
            origin.param = origin.param.or(own.param.filter(|_| is_address(self.operation)));
            origin.axis = origin.axis.or(own.axis);
            origin.has_thread |= own.has_thread;
            if name == "mov" {
                origin.param = own.param;
                origin.loaded = own.loaded;
            }
        }
        if let Some(register) = self.operands.first().copied() {
            self.registers.insert(register, origin);
        }
    }

    fn origin(&self, operand: &str) -> Origin {
        let axis = operand
            .strip_prefix("%tid.")
            .or_else(|| operand.strip_prefix("%ctaid."))
            .and_then(|axis| AXES.iter().position(|known| *known == axis));
        match axis {
            Some(_) => {
                let has_thread = operand.starts_with("%tid");
                Origin { axis, has_thread, ..Origin::default() }
            }
            None => self.registers.get(operand).copied().unwrap_or_default(),
        }
    }

    /// A load, a store or an atomic operation.
    fn access(&mut self, name: &str, uses: &mut [ParamUse], formats: &Formats) {
        let is_store = matches!(name, "st" | "red");
        let param = self.operands.iter().find_map(|operand| self.origin(operand).param);
        let Some(used) = param.and_then(|param| uses.get_mut(param)) else { return };
        used.is_written |= is_store || name == "atom";
        let element = element_of(self.operation, formats);
        if used.element.is_none() {
            used.element = element;
            used.is_bits = self.operation.split('.').any(|part| matches!(part, "b32" | "b64"));
        }
        if !is_store {
            let targets = self.operands.iter().copied().take_while(|o| o.starts_with('%'));
            for register in targets {
                if self.registers.get(register).is_none_or(|own| own.param.is_none()) {
                    self.registers.insert(register, Origin { loaded: param, ..Origin::default() });
                }
            }
        }
    }

    /// A number that was loaded as bits is an integer if integers are computed of it.
    fn note_number_type(&self, uses: &mut [ParamUse]) {
        let is_integer = ["s32", "u32", "s64", "u64"];
        if !self.operation.split('.').any(|part| is_integer.contains(&part)) {
            return;
        }
        for operand in self.operands.iter().skip(1) {
            let used = self.origin(operand).loaded.and_then(|param| uses.get_mut(param));
            if let Some(used) = used.filter(|used| used.is_bits) {
                used.element = match used.element {
                    Some("float") => Some("int"),
                    Some("double") => Some("long long"),
                    other => other,
                };
            }
        }
    }

    /// `setp.ge.s32 %p, index, size` and `mul.lo.s32 %r, index, row_length`.
    fn note_size(&self, name: &str, uses: &mut [ParamUse]) {
        let sources = self.operands.get(1..3).unwrap_or_default();
        let [left, right] = sources else { return };
        for (index, size) in [(left, right), (right, left)] {
            let (index, size) = (self.origin(index), self.origin(size));
            let (Some(axis), Some(param)) = (index.axis, size.param) else { continue };
            let found = match name {
                "setp" if axis == 0 && !index.has_thread => SizeUse::Rows,
                "setp" => SizeUse::Below(axis),
                _ => SizeUse::RowLength,
            };
            if let Some(used) = uses.get_mut(param) {
                used.size = used.size.or(Some(found));
            }
        }
    }
}

/// Whether an operation can compute an address of another one.
fn is_address(operation: &str) -> bool {
    let is_of_64_bits = ["s64", "u64", "b64"].iter().any(|kind| operation.ends_with(kind));
    let is_wide = operation.contains("wide");
    (is_of_64_bits || is_wide) && !operation.starts_with("setp")
}

/// The type of the elements that an operation loads or stores.
fn element_of(operation: &str, formats: &Formats) -> Option<&'static str> {
    let half = if formats.has_bf16 { "__nv_bfloat16" } else { "__half" };
    operation.split('.').find_map(|part| {
        Some(match part {
            "f32" | "b32" => "float",
            "b64" if !formats.has_f64 => "long long",
            "f64" | "b64" => "double",
            "f16" | "f16x2" => "__half",
            "bf16" | "bf16x2" => "__nv_bfloat16",
            "b16" | "u16" if formats.has_f16 => half,
            "s64" => "long long",
            "u64" => "unsigned long long",
            "s32" => "int",
            "u32" => "unsigned int",
            "s16" => "short",
            "u16" | "b16" => "unsigned short",
            "s8" => "signed char",
            "u8" | "b8" => "unsigned char",
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_stores_and_comparisons_tell_the_types_and_sizes() {
        let body = "
            ld.param.u64 %rd1, [k_param_0];
            ld.param.u64 %rd2, [k_param_1];
            ld.param.u32 %r2, [k_param_2];
            ld.param.f32 %f9, [k_param_3];
            cvta.to.global.u64 %rd3, %rd1;
            mov.u32 %r3, %ctaid.x;
            mov.u32 %r4, %ntid.x;
            mov.u32 %r5, %tid.x;
            mad.lo.s32 %r1, %r3, %r4, %r5;
            setp.ge.s32 %p1, %r1, %r2;
            @%p1 bra $L__BB0_2;
            cvta.to.global.u64 %rd4, %rd2;
            mul.wide.s32 %rd5, %r1, 8;
            add.s64 %rd6, %rd3, %rd5;
            ld.global.nc.f64 %fd1, [%rd6];
            cvt.rzi.s32.f64 %r9, %fd1;
            add.s64 %rd7, %rd4, %rd5;
            @%p2 st.global.v2.u8 [%rd7+4], {%rs1, %rs2};
        $L__BB0_2:
            ret;";
        let params = ["k_param_0", "k_param_1", "k_param_2", "k_param_3"];
        let uses = uses_of(body, &params);
        let elements: Vec<_> = uses.iter().map(|used| (used.element, used.is_written)).collect();
        assert_eq!(
            elements,
            [(Some("double"), false), (Some("unsigned char"), true), (None, false), (None, false)]
        );
        assert_eq!((uses[2].size, uses[3].is_float), (Some(SizeUse::Below(0)), true));
    }

    #[test]
    fn a_block_for_each_row_is_told_by_the_length_of_rows() {
        let body = "
            ld.param.u64 %rd1, [p0]; ld.param.u32 %r1, [p1]; ld.param.u32 %r2, [p2];
            mov.u32 %r3, %ctaid.x;
            mul.lo.s32 %r4, %r3, %r1;
            mul.wide.s32 %rd2, %r4, 4;
            add.s64 %rd3, %rd1, %rd2;
            setp.ge.s32 %p1, %r3, %r2;
            ld.global.b32 { %r7 }, [ %rd3 + 0 ];
            add.s32 %r8, %r7, 1;";
        let uses = uses_of(body, &["p0", "p1", "p2"]);
        assert_eq!(uses[0].element, Some("int"));
        let sizes: Vec<_> = uses.iter().map(|used| used.size).collect();
        assert_eq!(sizes, [None, Some(SizeUse::RowLength), Some(SizeUse::Rows)]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(ld|st|mov|setp|mad|\\.|global|param|%r1|[ \\[\\]{};,@+\n]|p0|é){0,60}") {
            uses_of(&text, &["p0"]);
        }
    }
}
