//! The layouts of sm_100 against golden values of CuTe DSL, and against slower statements of the
//! same facts.
//!
//! `golden_layouts.json` was printed by CuTe DSL 4.4.0 (4.8.1 agrees) for `mxf4nvf4` kernels with
//! `cta_group::1`; it holds numbers, no text of the DSL.

use rgpu_layout::sm100::{
    Advice, ElementFormat, EpilogueTile, InstructionDescriptor, LoadLanes, MatrixDescriptor,
    MmaTile, ScaleLayoutError, ScaleTensor, ScaleType, SmemSwizzle, TmemLoad, TmemRequest,
    accumulator_layout, budget, check_buffer, operand_smem, scale_smem, scale_tmem, smem_swizzle,
};
use rgpu_layout::{Layout, Limits, Method, equal};
use serde_json::Value;

use crate::brute::Random;

fn golden() -> Value {
    serde_json::from_str(include_str!("../data/golden_layouts.json")).unwrap()
}

#[test]
fn every_golden_row_is_reproduced() {
    let golden = golden();
    let rows = golden["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let tiler: Vec<i64> =
            row["tiler"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
        let [m, n, k] = tiler[..] else { panic!("{row}") };
        let stages = row["stages"].as_i64().unwrap();
        let tile = MmaTile::new(m, n, k, false, 16).unwrap();
        let swizzle = smem_swizzle(k).unwrap().to_string();
        for (name, ours) in [
            ("a_inner", swizzle.clone()),
            ("b_inner", swizzle),
            ("a_outer", operand_smem(tile, m, stages).unwrap().to_string()),
            ("b_outer", operand_smem(tile, n, stages).unwrap().to_string()),
            ("sfa_smem", scale_smem(tile, m, stages).unwrap().to_string()),
            ("sfb_smem", scale_smem(tile, n, stages).unwrap().to_string()),
            ("tCtSFA", scale_tmem(tile, m).unwrap().to_string()),
            ("tCtSFB", scale_tmem(tile, n).unwrap().to_string()),
            ("acc", accumulator_layout(tile).unwrap().to_string()),
        ] {
            assert_eq!(row[name].as_str(), Some(ours.as_str()), "{name} of {tiler:?}, {stages}");
        }
        let columns = [tile.accumulator_columns(), tile.sfa_columns(), tile.sfb_columns()];
        assert_eq!(row["cols"], serde_json::json!(columns));
    }
}

#[test]
fn golden_scale_layouts_are_reproduced_and_proved() {
    for (shape, expected) in golden()["sf_gmem"].as_object().unwrap() {
        let numbers: Vec<i64> =
            shape.trim_matches(['(', ')']).split(", ").map(|n| n.parse().unwrap()).collect();
        let tensor = ScaleTensor::new(numbers[0], numbers[1], numbers[2], 16).unwrap();
        assert_eq!(Some(tensor.layout().unwrap().to_string().as_str()), expected.as_str());
        let proof = tensor.prove(Limits::default()).unwrap();
        assert!(proof.equal && proof.filter_zeros_needed, "{shape}");
        assert_eq!(proof.broadcast, 16);
        assert!(proof.proof.method < Method::Enumeration);
    }
}

/// The order of torch's `to_blocked`: pad, view as (row blocks, 4, 32, k blocks, 4), and permute.
fn blocked(plain: &[u8], rows: usize, scales: usize) -> Vec<u8> {
    let (row_blocks, k_blocks) = (rows.div_ceil(128), scales.div_ceil(4));
    let mut blocked = Vec::new();
    for row_block in 0..row_blocks {
        for k_block in 0..k_blocks {
            for lane in 0..32 {
                for group in 0..4 {
                    for scale in 0..4 {
                        let row = row_block * 128 + group * 32 + lane;
                        let scale = k_block * 4 + scale;
                        let inside = row < rows && scale < scales;
                        blocked.push(if inside { plain[row * scales + scale] } else { 0 });
                    }
                }
            }
        }
    }
    blocked
}

#[test]
fn offsets_are_those_of_to_blocked_and_of_the_layout() {
    for (rows, k, batches, vector) in
        [(40, 2048, 1, 16), (80, 200, 1, 16), (200, 512, 2, 32), (129, 96, 3, 16)]
    {
        let tensor = ScaleTensor::new(rows, k, batches, vector).unwrap();
        let layout = tensor.layout().unwrap();
        let parts = layout.parts();
        for batch in 0..batches {
            for row in 0..rows {
                for at in 0..k {
                    let offset = tensor.offset(row, at, batch).unwrap();
                    let along = [row, at, batch];
                    let sum: i64 =
                        parts.iter().zip(along).map(|(part, c)| part.at(c).unwrap()).sum();
                    assert_eq!(offset, sum, "{rows} {k}: {row} {at} {batch}");
                    assert_eq!(tensor.coordinate(offset), Some((row, at / vector * vector, batch)));
                }
            }
        }
        assert_eq!(tensor.offset(rows, 0, 0), None);
        assert_eq!(tensor.coordinate(tensor.bytes()), None);
    }
    let mut random = Random(7);
    let plain: Vec<u8> = (0..300 * 13).map(|_| random.below(256) as u8).collect();
    let buffer = blocked(&plain, 300, 13);
    let tensor = ScaleTensor::new(300, 13 * 16, 1, 16).unwrap();
    assert_eq!(tensor.bytes() as usize, buffer.len());
    let check = check_buffer(tensor, &buffer, &plain, None).unwrap();
    assert!(check.equal && check.mistakes.is_empty());
}

/// A buffer that a place for each scale fills.
fn filled(
    plain: &[u8],
    scales: usize,
    bytes: usize,
    place: impl Fn(usize, usize) -> usize,
) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    for (index, value) in plain.iter().enumerate() {
        buffer[place(index / scales, index % scales)] = *value;
    }
    buffer
}

#[test]
fn a_wrong_buffer_has_its_first_place_and_the_mistake() {
    let mut random = Random(8);
    let (rows, scales) = (300_usize, 20_usize);
    let plain: Vec<u8> = (0..rows * scales).map(|_| random.below(256) as u8).collect();
    let other: Vec<u8> = (0..rows * scales).map(|_| random.below(256) as u8).collect();
    let tensor = ScaleTensor::new(300, 320, 1, 16).unwrap();
    let inside = |row: usize, scale: usize| row % 32 * 16 + row % 128 / 32 * 4 + scale % 4;
    let cases: [(ScaleLayoutError, Vec<u8>); 8] = [
        (ScaleLayoutError::NotSwizzled, plain.clone()),
        (ScaleLayoutError::Transposed, filled(&plain, scales, 6000, |r, s| s * rows + r)),
        (
            ScaleLayoutError::RowsNotInterleaved,
            filled(&plain, scales, 7680, |r, s| (r / 128 * 5 + s / 4) * 512 + r % 128 * 4 + s % 4),
        ),
        (
            ScaleLayoutError::ScalesAndGroupsExchanged,
            filled(&plain, scales, 7680, |r, s| {
                (r / 128 * 5 + s / 4) * 512 + r % 32 * 16 + s % 4 * 4 + r % 128 / 32
            }),
        ),
        (
            ScaleLayoutError::BlocksRowMajor,
            filled(&plain, scales, 7680, |r, s| (s / 4 * 3 + r / 128) * 512 + inside(r, s)),
        ),
        (
            ScaleLayoutError::PaddedTiles { rows: 64 },
            filled(&plain, scales, 5 * 5 * 512, |r, s| {
                (r / 64 * 5 + s / 4) * 512 + inside(r % 64, s)
            }),
        ),
        (
            ScaleLayoutError::PaddedK { blocks: 8 },
            filled(&plain, scales, 3 * 8 * 512, |r, s| (r / 128 * 8 + s / 4) * 512 + inside(r, s)),
        ),
        (ScaleLayoutError::OtherOperand, blocked(&other, rows, scales)),
    ];
    for (mistake, buffer) in cases {
        let check = check_buffer(tensor, &buffer, &plain, Some((tensor, &other))).unwrap();
        assert!(!check.equal);
        assert_eq!(check.mistakes, [mistake]);
        let first = check.first_wrong.unwrap();
        assert_eq!(tensor.offset(first.row, first.k, 0), Some(first.offset));
        assert_eq!(first.found, buffer.get(first.offset as usize).copied());
        assert_ne!(first.found, Some(first.expected));
    }
    assert!(check_buffer(tensor, &[], &plain[1..], None).is_err());
}

#[test]
fn a_permuted_buffer_is_told_apart_and_its_order_found() {
    let mut random = Random(9);
    let (rows, scales) = (300_usize, 20_usize);
    let plain: Vec<u8> = (0..rows * scales).map(|_| random.below(40) as u8).collect();
    let tensor = ScaleTensor::new(300, 320, 1, 16).unwrap();
    let found = |buffer: &[u8]| {
        let check = check_buffer(tensor, buffer, &plain, None).unwrap();
        assert!(!check.equal && check.mistakes.is_empty());
        (check.permutation, check.found_layout.map(|layout| layout.to_string()))
    };
    // Each block column by column, and rows interleaved by 16 in place of 32.
    let columns =
        filled(&plain, scales, 7680, |r, s| (r / 128 * 5 + s / 4) * 512 + s % 4 * 128 + r % 128);
    let order = "((128,3),(16,20),1):((1,2560),(0,128),0)";
    assert_eq!(found(&columns), (true, Some(order.to_owned())));
    let by_16 = filled(&plain, scales, 7680, |r, s| {
        (r / 128 * 5 + s / 4) * 512 + r % 16 * 32 + r % 128 / 16 * 4 + s % 4
    });
    let order = "((16,8,3),(16,4,5),1):((32,4,2560),(0,1,512),0)";
    assert_eq!(found(&by_16), (true, Some(order.to_owned())));
    // Blocks of K of all rows, without padding.
    let slices = filled(&plain, scales, 6000, |r, s| s / 4 * 1200 + r * 4 + s % 4);
    let order = "(300,(16,4,5),1):(4,(0,1,1200),0)";
    assert_eq!(found(&slices), (true, Some(order.to_owned())));
    // Two scales exchanged are a permutation without such an order; one other value is none.
    let mut right = blocked(&plain, rows, scales);
    let other = (1..512).find(|at| right[*at] != right[0]).unwrap();
    right.swap(0, other);
    assert_eq!(found(&right), (true, None));
    right[0] = 200;
    assert_eq!(found(&right), (false, None));
    // Any order explains equal scales, and the search ends.
    let equal = vec![7; rows * scales];
    let mut buffer = vec![7; 7680];
    buffer[7000] = 8;
    let check = check_buffer(tensor, &buffer, &equal, None).unwrap();
    assert_eq!((check.equal, check.permutation), (true, false));
}

#[test]
fn descriptors_are_those_of_working_kernels() {
    let operand = MatrixDescriptor {
        start_address: 0,
        leading_bytes: 16,
        stride_bytes: 1024,
        version: 1,
        base_offset: 0,
        absolute_leading: false,
        swizzle: SmemSwizzle::B128,
    };
    assert_eq!(operand.encode(), Ok(0x4000_4040_0001_0000));
    let scales = MatrixDescriptor { stride_bytes: 128, swizzle: SmemSwizzle::None, ..operand };
    assert_eq!(scales.encode(), Ok(0x0000_4008_0001_0000));
    for descriptor in [operand, scales, MatrixDescriptor { start_address: 0x3fff0, ..operand }] {
        assert_eq!(MatrixDescriptor::decode(descriptor.encode().unwrap()), Ok(descriptor));
    }
    assert!(MatrixDescriptor { start_address: 8, ..operand }.encode().is_err());
    assert!(MatrixDescriptor::decode(3 << 61).is_err());
    assert!(MatrixDescriptor::decode(1 << 15).is_err());
    let instruction = InstructionDescriptor {
        m: 128,
        n: 128,
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
    assert_eq!(instruction.encode(), Ok(0x0820_0480));
    assert_eq!(InstructionDescriptor::decode(0x0820_0480, true), Ok(instruction));
    assert!(InstructionDescriptor { n: 260, ..instruction }.encode().is_err());
    assert!(InstructionDescriptor { m: 64, ..instruction }.encode().is_err());
    assert!(InstructionDescriptor { m: 256, n: 24, ..instruction }.encode().is_err());
    // A column holds four scales of UE4M3, two of packed UE8M0, one of each other format.
    for (a_format, scale_type, ids) in [
        (ElementFormat::PackedE2m1, ScaleType::Ue4m3, [true, false, false, false]),
        (ElementFormat::PackedE2m1, ScaleType::Ue8m0, [true, false, true, false]),
        (ElementFormat::E4m3, ScaleType::Ue8m0, [true; 4]),
    ] {
        let with =
            InstructionDescriptor { a_format, b_format: a_format, scale_type, ..instruction };
        for (id, allowed) in (0..).zip(ids) {
            let a = InstructionDescriptor { a_scale_id: id, ..with };
            let b = InstructionDescriptor { b_scale_id: id, ..with };
            assert_eq!((a.encode().is_ok(), b.encode().is_ok()), (allowed, allowed), "{id}");
        }
    }
    for seed in 0..2000 {
        let bits = (Random(seed).below(1 << 32)) as u32;
        if let Ok(decoded) = InstructionDescriptor::decode(bits, seed % 2 == 0) {
            assert_eq!(decoded.encode(), Ok(bits));
        }
    }
}

#[test]
fn tensor_memory_has_512_columns_and_no_more() {
    let plan = |n, stages| {
        let tile = MmaTile::new(128, n, 256, false, 16).unwrap();
        budget(TmemRequest::for_tile(tile, stages).unwrap()).unwrap()
    };
    for (n, stages, used, allocation, blocks) in [
        (64, 1, 96, Some(128), 4),
        (128, 1, 160, Some(256), 2),
        (192, 1, 240, Some(256), 2),
        (256, 1, 304, Some(512), 1),
        (128, 2, 288, Some(512), 1),
        (256, 2, 560, None, 0),
    ] {
        let plan = plan(n, stages);
        assert_eq!((plan.used, plan.allocation, plan.blocks_per_sm), (used, allocation, blocks));
        for (left, right) in plan.segments.iter().zip(plan.segments.iter().skip(1)) {
            assert!(left.column + left.columns <= right.column);
        }
    }
    let full = plan(256, 2);
    assert_eq!(
        full.advice,
        [
            Advice::FewerStages { stages: 1 },
            Advice::NarrowerTile { columns: 232 },
            Advice::OverlapStages { columns: 48 },
        ]
    );
    assert_eq!(plan(256, 1).advice, [Advice::TwoBlocks { save: 48 }]);
    assert_eq!(plan(64, 1).advice, []);
    let wide = TmemRequest {
        accumulator: 600,
        sfa: 0,
        sfb: 0,
        ..TmemRequest::for_tile(MmaTile::new(128, 128, 256, false, 16).unwrap(), 1).unwrap()
    };
    let wide = budget(wide).unwrap();
    assert_eq!((wide.extent, wide.allocation, wide.blocks_per_sm), (600, None, 0));
    assert_eq!(wide.advice, [Advice::NarrowerTile { columns: 512 }]);
    // A pair of CTAs with M of 256 has the columns of one CTA with 128.
    let pair = MmaTile::new(256, 256, 256, true, 16).unwrap();
    assert_eq!([pair.accumulator_columns(), pair.sfa_columns(), pair.sfb_columns()], [256, 16, 32]);
    // Alignment makes the orders differ.
    let aligned = budget(TmemRequest {
        accumulator: 100,
        sfa: 16,
        sfb: 32,
        accumulator_stages: 1,
        scale_stages: 1,
        accumulator_alignment: 64,
        scale_alignment: 4,
    })
    .unwrap();
    assert!(aligned.orders.first().unwrap().extent < aligned.orders.last().unwrap().extent);
    let nothing = TmemRequest { accumulator: 0, ..TmemRequest::for_tile(pair, 1).unwrap() };
    assert!(budget(nothing).is_err());
    let half = MmaTile::new(128, 256, 256, true, 16).unwrap();
    assert!(TmemRequest::for_tile(half, 1).is_err());
}

#[test]
fn the_epilogue_partition_is_that_of_the_dsl() {
    for (columns, accumulator, output) in [
        (128, "(((128,32),1),(1)):(((1,65536),0),(0))", "((128,1),(1)):((1,0),(0))"),
        (64, "(((64,32),1),(2)):(((1,65536),0),(64))", "((64,1),(2)):((1,0),(64))"),
        (16, "(((16,32),1),(8)):(((1,65536),0),(16))", "((16,1),(8)):((1,0),(16))"),
    ] {
        let load = TmemLoad::new(LoadLanes::All, columns).unwrap();
        let tile = EpilogueTile::new(128, 128, false, load).unwrap();
        assert_eq!(tile.accumulator.to_string(), accumulator);
        assert_eq!(tile.output.to_string(), output);
    }
    // CuTe DSL 4.4.0 of `kind::f16`: 64 rows of one CTA, of a pair with M of 128, and of one with
    // 256.
    for (rows, n, pair, load, accumulator, output) in [
        (
            64,
            128,
            false,
            "16x32bx2.x32",
            "(((64,16),1),1,2):(((1,65536),0),0,64)",
            "((32,1),1,2):((1,0),0,64)",
        ),
        (
            64,
            64,
            false,
            "16x32bx2.x32",
            "(((64,16),1),1,1):(((1,65536),0),0,0)",
            "((32,1),1,1):((1,0),0,0)",
        ),
        (
            64,
            128,
            true,
            "32x32b.x32",
            "(((32,32),1),1,2):(((1,65536),0),0,32)",
            "((32,1),1,2):((1,0),0,32)",
        ),
        (
            64,
            64,
            true,
            "32x32b.x32",
            "(((32,32),1),1,1):(((1,65536),0),0,0)",
            "((32,1),1,1):((1,0),0,0)",
        ),
        (
            128,
            128,
            true,
            "32x32b.x32",
            "(((32,32),1),1,4):(((1,65536),0),0,32)",
            "((32,1),1,4):((1,0),0,32)",
        ),
    ] {
        let tile = EpilogueTile::new(rows, n, pair, load.parse().unwrap()).unwrap();
        let same = |ours: &Layout, dsl: &str| equal(ours, &dsl.parse().unwrap()).equal;
        assert!(same(&tile.accumulator, accumulator), "{rows} {load}: {}", tile.accumulator);
        assert!(same(&tile.output, output), "{rows} {load}: {}", tile.output);
    }
    // Thread l of a warp has row l mod 16, and the next 32 columns from thread 16 on.
    let load: TmemLoad = "16x32bx2.x32".parse().unwrap();
    assert_eq!(load.warp_layout(4096).unwrap().to_string(), "((16,2),32):((4096,32),1)");
    for (rows, n, pair, load) in [
        (7, 32, false, "32x32b.x32"),
        (256, 32, false, "32x32b.x32"),
        (128, 12, false, "32x32b.x4"),
        (128, 24, true, "32x32b.x8"),
        (128, 96, false, "32x32b.x64"),
        (64, 128, false, "32x32b.x32"),
        (128, 128, false, "16x32bx2.x32"),
        (64, 32, true, "32x32b.x32"),
    ] {
        let tile = EpilogueTile::new(rows, n, pair, load.parse().unwrap());
        assert!(tile.is_err(), "{rows}x{n} {load}");
    }
    for text in ["32x32b.x48", "32x32b.x256", "16x64b.x2", "32x32b"] {
        assert!(text.parse::<TmemLoad>().is_err(), "{text}");
    }
}
