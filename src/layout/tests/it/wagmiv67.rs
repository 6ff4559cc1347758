//! The layouts of the kernel `kernels/wagmiv67`, compiled from its own header, against ours.

use std::process::Command;

use rgpu_layout::Swizzle;
use rgpu_layout::sm100::{
    ElementFormat, InstructionDescriptor, MatrixDescriptor, ScaleTensor, ScaleType, SmemSwizzle,
    TmemRequest, budget,
};

const PROGRAM: &str = r#"
#include "layout.h"
#include <stdio.h>
using namespace wagmi;
int main() {
    for (int row = 0; row < 200; row += 3)
        for (int k = 0; k < 320; k += 16) printf("%lld\n", (long long)scale_offset(row, k, 320));
    for (int row = 0; row < 16; row++)
        for (int byte = 0; byte < 128; byte++) printf("%d\n", swizzled_byte(row, byte));
    printf("%llu\n", (unsigned long long)operand_descriptor(0x1c00));
    printf("%llu\n", (unsigned long long)scale_descriptor(0x1c00));
    for (int n = 8; n <= N_MOST; n += 8) printf("%u\n", instruction_descriptor(n));
    printf("%d\n", token_scale_column(STEPS - 1, 1) + ATOM_COLUMNS);
}
"#;

fn expected() -> Vec<String> {
    let mut lines = Vec::new();
    let scales = ScaleTensor::new(200, 320, 1, 16).unwrap();
    for row in (0..200).step_by(3) {
        for k in (0..320).step_by(16) {
            lines.push(scales.offset(row, k, 0).unwrap().to_string());
        }
    }
    let swizzle: Swizzle = "3,4,3".parse().unwrap();
    lines.extend((0..16 * 128).map(|byte| swizzle.apply(byte).to_string()));
    let operand = MatrixDescriptor {
        start_address: 0x1c00,
        leading_bytes: 16,
        stride_bytes: 1024,
        version: 1,
        base_offset: 0,
        absolute_leading: false,
        swizzle: SmemSwizzle::B128,
    };
    let scale = MatrixDescriptor { stride_bytes: 128, swizzle: SmemSwizzle::None, ..operand };
    lines.extend([operand, scale].map(|d| d.encode().unwrap().to_string()));
    for n in (8..=224).step_by(8) {
        let instruction = InstructionDescriptor {
            m: 128,
            n,
            a_format: ElementFormat::PackedE2m1,
            b_format: ElementFormat::PackedE2m1,
            scale_type: ScaleType::Ue4m3,
            a_negate: false,
            b_negate: false,
            a_transpose: false,
            b_transpose: false,
            a_scale_id: 0,
            b_scale_id: 0,
        };
        lines.push(instruction.encode().unwrap().to_string());
    }
    // Two accumulators of 224 columns, and the scales of four steps for 128 and up to 256 rows.
    let request = TmemRequest {
        accumulator: 224,
        sfa: 16,
        sfb: 32,
        accumulator_stages: 2,
        scale_stages: 1,
        accumulator_alignment: 1,
        scale_alignment: 4,
    };
    lines.push(budget(request).unwrap().extent.to_string());
    lines
}

#[test]
fn the_kernels_formulas_are_ours() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/wagmiv67");
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("main.cpp"), folder.path().join("main"));
    std::fs::write(&file, PROGRAM).unwrap();
    let mut compile = Command::new("g++");
    compile.args(["-std=c++17", "-I", kernel, "-o"]).arg(&program).arg(&file);
    let compiled = match compile.status() {
        Err(_) if std::env::var_os("CI").is_none() => return,
        status => status.unwrap(),
    };
    assert!(compiled.success());
    let output = Command::new(&program).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected());
}
