//! Sectors and bank conflicts of known patterns.

use rgpu_layout::access::{Access, AccessReport, Space, StoreTile, check_access, search_stores};
use rgpu_layout::{ElementSize, Limits, Swizzle};

use crate::brute::layout;

/// Elements of `bytes` bytes; of 4 bits for 0.
fn element(bytes: i64) -> ElementSize {
    ElementSize::from_bytes(bytes).unwrap_or(ElementSize::HALF_BYTE)
}

fn check(text: &str, space: Space, element_bytes: i64, vector: i64) -> AccessReport {
    swizzled(text, space, element_bytes, vector, "0,4,3")
}

fn swizzled(
    text: &str,
    space: Space,
    element_bytes: i64,
    vector: i64,
    swizzle: &str,
) -> AccessReport {
    let swizzle: Swizzle = swizzle.parse().unwrap();
    let access =
        Access { space, element_bytes: element(element_bytes), lanes: 32, vector, swizzle };
    check_access(&layout(text), access, Limits::default()).unwrap()
}

#[test]
fn sectors_of_known_patterns() {
    for (text, bytes, vector, sectors) in [
        ("32:1", 4, 1, 4),
        ("32:2", 4, 1, 8),
        ("32:8", 4, 1, 32),
        ("32:0", 4, 1, 1),
        ("32:1", 1, 1, 1),
        ("32:4", 4, 4, 16),
        ("32:8", 2, 8, 16),
        ("32:4096", 2, 8, 32),
        ("(8,4):(8,4096)", 2, 8, 16),
        ("(4,8):(1,1024)", 8, 1, 8),
    ] {
        let report = check(text, Space::Global, bytes, vector);
        assert_eq!(report.sectors.unwrap().total, sectors, "{text}");
        assert_eq!(report.requests, 1);
        let ideal = report.sectors.unwrap().ideal;
        assert_eq!(report.first_conflict.is_some(), sectors > ideal, "{text}");
    }
    // The epilogue that stores a row of f16 in each lane: 64 bytes of 32 sectors.
    let report = check("32:4096", Space::Global, 2, 1);
    assert_eq!(report.efficiency, Some(0.0625));
    let offence = report.first_conflict.unwrap();
    assert_eq!((offence.first.lane, offence.second.lane), (0, 1));
    assert_eq!(check("32:4096", Space::Global, 2, 8).efficiency, Some(0.5));
    assert_eq!(check("32:8", Space::Global, 2, 8).efficiency, Some(1.0));
}

#[test]
fn bank_conflicts_of_known_patterns() {
    for (text, bytes, vector, ways) in [
        ("32:1", 4, 1, 1.0),
        ("32:2", 4, 1, 2.0),
        ("32:32", 4, 1, 32.0),
        ("32:33", 4, 1, 1.0),
        ("32:0", 4, 1, 1.0),
        ("32:1", 2, 1, 1.0),
        ("32:64", 2, 1, 32.0),
        ("32:1", 8, 1, 1.0),
        ("32:4", 4, 4, 1.0),
        ("(8,4):(32,4)", 4, 4, 8.0),
        ("32:8", 4, 4, 2.0),
    ] {
        let report = check(text, Space::Shared, bytes, vector);
        assert_eq!(report.conflict_ways, Some(ways), "{text} of {bytes} bytes");
        assert_eq!(report.first_conflict.is_some(), ways > 1.0, "{text}");
    }
    // Rows of 128 bytes, 16 bytes of each: eight ways without the swizzle, one with it.
    let rows = "(8,4):(64,8)";
    assert_eq!(check(rows, Space::Shared, 2, 8).conflict_ways, Some(8.0));
    assert_eq!(swizzled(rows, Space::Shared, 2, 8, "3,4,3").conflict_ways, Some(1.0));
    assert_eq!(swizzled(rows, Space::Shared, 2, 8, "1,4,3").conflict_ways, Some(4.0));
}

#[test]
fn vectors_must_be_aligned_and_whole() {
    let report = check("32:9", Space::Global, 2, 8);
    assert_eq!(report.misaligned.map(|at| (at.lane, at.address)), Some((1, 18)));
    // Thread-value layouts: the second value of a thread is a row away.
    let report = check("(32,4):(4,1)", Space::Global, 4, 4);
    assert_eq!((report.requests, report.split_vector), (1, None));
    let report = check("(32,4):(1,32)", Space::Global, 4, 4);
    assert_eq!(report.split_vector.map(|at| at.lane), Some(0));
    let report = check("(32,4):(1,32)", Space::Global, 4, 1);
    assert_eq!((report.requests, report.sectors.unwrap().total), (4, 16));
    let report = check("(128,4):(1,128)", Space::Global, 4, 1);
    assert_eq!(report.requests, 16);
    let access = |lanes, vector, element_bytes| Access {
        space: Space::Shared,
        element_bytes: element(element_bytes),
        lanes,
        vector,
        swizzle: Swizzle::default(),
    };
    for (text, access) in [
        ("32:1", access(0, 1, 4)),
        ("32:1", access(32, 3, 4)),
        ("32:1", access(32, 16, 2)),
        ("32:1", access(32, 1, 0)),
        ("32:3", access(32, 2, 0)),
        ("31:1", access(32, 1, 4)),
        ("32:-1", access(32, 1, 4)),
        ("(32,3):(1,32)", access(32, 2, 4)),
        ("32:46116860184273879", access(32, 1, 4)),
        ("4611686018427387904:1", access(32, 1, 1)),
    ] {
        assert!(check_access(&layout(text), access, Limits::default()).is_err(), "{text}");
    }
}

#[test]
fn the_search_ranks_by_traffic_not_by_contiguity_of_a_thread() {
    let tile = StoreTile {
        rows: 128,
        columns: 128,
        element_bytes: element(2),
        leading: 4096,
        threads: 128,
        vectors: vec![1, 2, 4, 8, 16],
    };
    let found = search_stores(&tile, Limits::default()).unwrap();
    let best = &found[0];
    assert_eq!((best.sectors, best.ideal_sectors, best.efficiency), (1024, 1024, 1.0));
    // Stores of 32 bytes fill a sector each, so that no values go through shared memory.
    assert_eq!((best.vector, best.requests, best.direct), (16, 32, true));
    let narrow = found.iter().find(|c| c.vector == 8).unwrap();
    assert_eq!((narrow.sectors, narrow.requests, narrow.direct), (1024, 64, false));
    // One row for each thread is contiguous in the thread and wastes half of each sector.
    let direct = found.iter().find(|c| c.direct && c.vector == 8).unwrap();
    assert_eq!(direct.efficiency, 0.5);
    assert!(found.windows(2).all(|pair| pair[0].sectors <= pair[1].sectors));
    let f32 = StoreTile { element_bytes: element(4), ..tile.clone() };
    let found = search_stores(&f32, Limits::default()).unwrap();
    assert_eq!(found.iter().map(|c| c.vector).max(), Some(8));
    // Each thread has a row only where 128 threads read 128 rows.
    let small = StoreTile { rows: 64, threads: 64, ..tile.clone() };
    assert!(search_stores(&small, Limits::default()).unwrap().iter().all(|c| !c.direct));
    assert!(search_stores(&StoreTile { threads: 48, ..tile.clone() }, Limits::default()).is_err());
    assert!(
        search_stores(&StoreTile { rows: 3, columns: 100, ..tile }, Limits::default()).is_err()
    );
}

#[test]
fn global_memory_has_accesses_of_32_bytes_since_sm_100() {
    let report = check("32:8", Space::Global, 4, 8);
    assert_eq!((report.lane_bytes, report.needs_arch), (32, Some("sm_100")));
    assert_eq!((report.sectors.unwrap().total, report.efficiency), (32, Some(1.0)));
    assert_eq!(check("32:4", Space::Global, 4, 4).needs_arch, None);
    // Each row begins a sector: nothing of it is wasted.
    assert_eq!(check("32:4096", Space::Global, 2, 16).efficiency, Some(1.0));
    assert_eq!(check("32:12", Space::Global, 4, 8).misaligned.map(|at| at.lane), Some(1));
    let access = |space, vector| Access {
        space,
        element_bytes: element(4),
        lanes: 32,
        vector,
        swizzle: Swizzle::default(),
    };
    for access in [access(Space::Shared, 8), access(Space::Global, 16)] {
        assert!(check_access(&layout("32:16"), access, Limits::default()).is_err());
    }
}

#[test]
fn elements_of_4_bits_share_bytes() {
    // 32 elements of 4 bits are 16 bytes.
    let report = check("32:32", Space::Global, 0, 32);
    assert_eq!((report.lane_bytes, report.sectors.unwrap().total), (16, 16));
    // The packed operand of a kernel: rows of 128 bytes, as those of f16 above.
    let rows = "(8,4):(256,32)";
    assert_eq!(check(rows, Space::Shared, 0, 32).conflict_ways, Some(8.0));
    assert_eq!(swizzled(rows, Space::Shared, 0, 32, "3,4,3").conflict_ways, Some(1.0));
    // Values of a thread: neighbours in one byte, then in two.
    let whole = check("(32,4):(4,1)", Space::Shared, 0, 4);
    assert_eq!((whole.lane_bytes, whole.split_vector), (2, None));
    assert!(check("(32,4):(2,64)", Space::Shared, 0, 2).split_vector.is_some());
}
