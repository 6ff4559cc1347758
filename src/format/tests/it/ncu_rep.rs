//! Tests the reader of ncu reports with reports built byte by byte.

pub(crate) mod repeat;
mod writer;

use rgpu_format::ncu_rep::{
    Dim3, Error, MessageKind, MetricValue, NcuReadLimits, NcuReport, Problem, ResultKind,
    SpeedupScope,
};
use writer::{Block, Pb, dim, metric, report};

/// Two blocks with strings in the wrong order, one kernel with every field, one range.
fn sample() -> Vec<u8> {
    let strings = |names: &[&str]| names.iter().fold(Pb::new(), |table, name| table.text(1, name));
    let stack = Pb::new()
        .varint(1, 9)
        .message(3, Pb::new().text(1, "A"))
        .message(3, Pb::new().text(1, "A1").varint(3, 4));
    let registered = Pb::new().varint(1, 1).message(
        3,
        Pb::new()
            .text(1, "")
            .message(2, Pb::new().message(5, Pb::new().varint(1, 3).varint(3, 77))),
    );
    let nvtx = Pb::new()
        .message(2, Pb::new().varint(1, 100).message(2, stack).message(2, registered))
        .message(1, Pb::new().varint(1, 9).text(2, "<default domain>"))
        .message(
            1,
            Pb::new()
                .varint(1, 1)
                .text(2, "lib")
                .message(3, Pb::new().varint(1, 77).text(2, "step")),
        )
        .message(
            3,
            Pb::new()
                .varint(1, 1)
                .message(3, Pb::new().varint(1, 5).text(2, "whole").varint(5, 100)),
        );
    let item = Pb::new()
        .message(1, Pb::new().text(1, "see @section:X:Other@").varint(2, 4).text(4, "Title"))
        .message(
            8,
            Pb::new().varint(1, 0).text(2, "sm__x.sum").double(3, 3.5).varint(4, 2).text(5, "less"),
        )
        .message(10, Pb::new().varint(1, 2).double(2, 12.5));
    let rule = Pb::new()
        .text(1, "SOLBottleneck")
        .text(2, "Bottleneck")
        .message(3, Pb::new().message(1, item))
        .text(4, "SpeedOfLight");
    let instance = |pc: u64, count: u64| {
        Pb::new().message(1, Pb::new().varint(5, pc)).message(2, Pb::new().varint(5, count))
    };
    let kernel = Pb::new()
        .varint(1, 100)
        .varint(2, 8)
        .text(5, "_Z6vecaddPf")
        .text(6, "vecadd")
        .text(7, "vecadd(float *)")
        .message(10, dim(4, 2, 1))
        .message(11, dim(256, 1, 1))
        .message(13, metric(0, Pb::new().double(3, 59712.0)))
        .message(13, metric(1, Pb::new().double(3, f64::NAN)))
        .message(13, metric(2, Pb::new()))
        .message(
            13,
            metric(3, Pb::new().varint(5, 7351))
                .message(3, instance(0x7f00_0010, 51))
                .message(3, instance(0x7f00_0020, 49)),
        )
        .message(13, metric(4, Pb::new().text(1, "Static")))
        .message(15, Pb::new().varint(1, 42))
        .message(17, Pb::new().text(1, "SpeedOfLight").text(2, "GPU Speed Of Light Throughput"))
        .message(19, rule)
        .message(21, nvtx)
        .varint(22, 1)
        .varint(23, 7)
        .varint(60, 1);
    let range = Pb::new().message(4, metric(0, Pb::new().double(3, 10.0))).varint(15, 42);
    let attribute = Pb::new().text(1, "multiprocessor_count").message(2, Pb::new().varint(4, 132));
    let session = Pb::new()
        .message(6, Pb::new().varint(1, 0).text(2, "NVIDIA H200").message(3, attribute))
        .message(8, Pb::new().text(1, "CUDA").text(2, "13.0"))
        .text(11, "ncu --set full ./app");
    let source = Pb::new()
        .varint(1, 42)
        .bytes(4, b"\x7fELF")
        .varint(6, 9 << 16)
        .message(9, Pb::new().message(1, Pb::new().text(1, "_Z6vecaddPf").varint(2, 0x7f00_0000)));
    let more = Pb::new()
        .varint(1, 42)
        .message(9, Pb::new().message(1, Pb::new().text(1, "other").varint(2, 0x7f00_0100)));
    report(&[
        Block { header: Pb::new().message(3, session), ..Block::default() },
        Block {
            header: Pb::new().message(4, strings(&["gpu__time_duration.sum", "nan.sum", "empty"])),
            sources: vec![source],
            kernels: vec![kernel],
            ..Block::default()
        },
        Block {
            header: Pb::new()
                .message(4, strings(&["smsp__pcsamp_sample_count", "launch__occupancy_kind"]))
                .message(3, Pb::new().message(8, Pb::new().text(1, "Nsight").text(2, "2025.3.1.0")))
                .message(6, Pb::new().varint(1, 4242).text(2, "gpu-box").text(3, "app")),
            sources: vec![more],
            ranges: vec![range],
            ..Block::default()
        },
    ])
}

fn read(bytes: &[u8]) -> (NcuReport<'_>, Vec<Problem>) {
    NcuReport::read(bytes, &NcuReadLimits::default()).expect("a report")
}

#[test]
fn a_whole_report_is_read_without_problems() {
    let bytes = sample();
    let (report, problems) = read(&bytes);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!((report.version(), report.blocks(), report.size()), (7, 3, bytes.len()));
    let session = report.session();
    assert_eq!(session.command_line, "ncu --set full ./app");
    assert_eq!(session.version("Nsight"), Some("2025.3.1.0"));
    let device = &session.devices[0];
    assert_eq!(device.name, "NVIDIA H200");
    assert_eq!(device.attribute("multiprocessor_count"), Some(&MetricValue::Uint32(132)));
    assert_eq!(report.processes()[0].host, "gpu-box");
    let unknown: Vec<_> = report.unknown_fields().fields().collect();
    assert_eq!(unknown, [("kernel result", 60, 1)]);
}

#[test]
fn a_kernel_has_its_launch_and_metrics_with_units() {
    let bytes = sample();
    let (report, _) = read(&bytes);
    let kernel = report.results().next().unwrap();
    let launch = kernel.launch().unwrap();
    assert_eq!(launch.function_name, "vecadd");
    assert_eq!(launch.grid, Dim3 { x: 4, y: 2, z: 1 });
    assert_eq!((launch.context, launch.stream, launch.thread), (1, 7, 100));
    let metrics: Vec<_> = kernel.metrics().collect();
    assert_eq!(metrics[0].name(), "gpu__time_duration.sum");
    assert_eq!(metrics[0].value().finite(), Some(59712.0));
    assert_eq!(metrics[0].unit().as_deref(), Some("ns"));
    assert!(metrics[1].value().number().unwrap().is_nan());
    assert_eq!(metrics[1].value().finite(), None);
    assert_eq!(metrics[2].value(), &MetricValue::Missing);
    assert_eq!(metrics[4].value().text(), Some("Static"));
    let sampled = kernel.metric("smsp__pcsamp_sample_count").unwrap();
    assert_eq!(sampled.value().integer(), Some(7351));
    let instances: Vec<_> =
        sampled.instances().map(|i| (i.correlation.integer(), i.value.integer())).collect();
    assert_eq!(instances, [(Some(0x7f00_0010), Some(51)), (Some(0x7f00_0020), Some(49))]);
    assert!(kernel.metric("no__such").is_none());
    assert_eq!(kernel.sections().next().unwrap().identifier, "SpeedOfLight");
}

#[test]
fn nested_ranges_come_outermost_first_and_registered_names_are_resolved() {
    let bytes = sample();
    let (report, _) = read(&bytes);
    let nvtx = report.results().next().unwrap().nvtx().unwrap();
    assert_eq!(nvtx.stacks[0].path, ["A", "A1"]);
    assert_eq!((nvtx.stacks[0].thread, nvtx.domain_name(nvtx.stacks[0].domain)), (100, None));
    assert_eq!(nvtx.stacks[1].path, ["step"]);
    assert_eq!(nvtx.domain_name(nvtx.stacks[1].domain), Some("lib"));
    assert_eq!((nvtx.ranges[0].name.as_str(), nvtx.ranges[0].thread), ("whole", 100));
}

#[test]
fn rules_come_with_plain_text_and_their_gain() {
    let bytes = sample();
    let (report, _) = read(&bytes);
    let rule = report.results().next().unwrap().rules().next().unwrap();
    assert_eq!(rule.identifier, "SOLBottleneck");
    assert_eq!(rule.messages[0].text, "see Other");
    assert_eq!(rule.messages[0].kind, MessageKind::Optimization);
    assert_eq!((rule.focus[0].value, rule.focus[0].severity), (3.5, 2));
    let speedup = rule.speedup.unwrap();
    assert_eq!((speedup.scope, speedup.percent), (SpeedupScope::Global, 12.5));
}

#[test]
fn sources_of_one_reference_are_merged() {
    let bytes = sample();
    let (report, _) = read(&bytes);
    let sources = report.sources();
    assert_eq!(sources.len(), 1);
    assert_eq!(sources[0].cubin, b"\x7fELF");
    assert_eq!(sources[0].compute_capability, Some((9, 0)));
    let (function, offset) = sources[0].function_at(0x7f00_0020).unwrap();
    assert_eq!((function.symbol.as_str(), offset), ("_Z6vecaddPf", 0x20));
    assert_eq!(sources[0].function_at(0x7f00_0110).unwrap().0.symbol, "other");
    assert!(sources[0].function_at(1).is_none());
}

#[test]
fn a_range_has_metrics_and_no_launch() {
    let bytes = sample();
    let (report, _) = read(&bytes);
    let range = report.results().last().unwrap();
    assert_eq!(range.kind(), ResultKind::Range);
    assert!(range.launch().is_none());
    assert_eq!(range.source_references(), [42]);
    assert_eq!(range.metrics().next().unwrap().value().finite(), Some(10.0));
}

#[test]
fn command_lists_and_graphs_have_metrics_sections_rules_and_sources() {
    let result = |rules: u32| {
        Pb::new()
            .message(4, metric(0, Pb::new().double(3, 7.0)))
            .message(7, Pb::new().text(1, "SpeedOfLight"))
            .varint(17, 42)
            .message(rules, Pb::new().text(1, "SOLBottleneck"))
    };
    let bytes = report(&[Block {
        header: Pb::new().message(4, Pb::new().text(1, "gpu__time_duration.sum")),
        command_lists: vec![result(21)],
        graphs: vec![result(22)],
        ..Block::default()
    }]);
    let (report, problems) = read(&bytes);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(report.unknown_fields().total(), 0);
    let kinds: Vec<_> = report.results().map(|result| result.kind()).collect();
    assert_eq!(kinds, [ResultKind::CommandList, ResultKind::Graph]);
    for result in report.results() {
        let duration = result.metric("gpu__time_duration.sum").unwrap();
        assert_eq!(duration.value().finite(), Some(7.0));
        assert_eq!(result.sections().next().unwrap().identifier, "SpeedOfLight");
        assert_eq!(result.rules().next().unwrap().identifier, "SOLBottleneck");
        assert_eq!(result.source_references(), [42]);
        assert!(result.launch().is_none() && result.nvtx().is_none());
    }
}

#[test]
fn a_compressed_report_reads_like_the_plain_one() {
    let bytes = sample();
    let packed = zstd::encode_all(bytes.as_slice(), 3).unwrap();
    let (report, problems) = read(&packed);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(report.size(), bytes.len());
    assert_eq!(report.results().count(), 2);
    let limits = NcuReadLimits { max_size: bytes.len() as u64 - 1 };
    for file in [&packed, &bytes] {
        let error = NcuReport::read(file, &limits).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. } | Error::Unpacked(_)), "{error}");
    }
    for cut in 0..packed.len() {
        let _ = NcuReport::read(&packed[..cut], &NcuReadLimits::default());
    }
}

#[test]
fn files_of_another_kind_are_named() {
    let case =
        |bytes: &[u8]| NcuReport::read(bytes, &NcuReadLimits::default()).unwrap_err().to_string();
    assert_eq!(case(b""), "file is empty");
    assert!(case(b"SQLite format 3\0rest").contains("an sqlite database"));
    assert!(case(b"==PROF== Connected").contains("ncu's log"));
    assert!(case(b"hello").contains("`hello`"));
    assert!(case(&[1, 2, 3]).contains("the bytes 01 02 03"));
    let wrapped = zstd::encode_all(&b"PK\x03\x04"[..], 1).unwrap();
    assert!(case(&wrapped).contains("a zstd frame around the header of a zip archive"));
}

#[test]
fn a_report_cut_at_any_byte_keeps_what_is_whole_and_says_where_it_breaks() {
    let bytes = sample();
    let mut most = 0;
    for cut in 0..bytes.len() {
        match NcuReport::read(&bytes[..cut], &NcuReadLimits::default()) {
            Ok((report, problems)) => {
                let results = report.results().count();
                assert!(results >= most, "a longer file has no fewer results");
                most = results;
                for result in report.results() {
                    result.metrics().for_each(drop);
                }
                // A cut between two blocks leaves a complete report.
                for problem in problems {
                    let at = match &problem {
                        Problem::Cut { end, offset, .. } => offset.min(end).to_owned(),
                        Problem::Entries { offset } | Problem::Name { offset, .. } => *offset,
                        other => panic!("cut at {cut}: {other}"),
                    };
                    assert!(at <= cut);
                }
            }
            Err(error) => assert!(cut < 10, "cut at {cut}: {error}"),
        }
    }
    assert_eq!(most, 1, "the range is the last byte's");
}

#[test]
fn a_flipped_bit_anywhere_never_panics() {
    let mut bytes = sample();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if let Ok((report, problems)) = NcuReport::read(&bytes, &NcuReadLimits::default()) {
                for problem in problems {
                    assert!(!problem.to_string().is_empty());
                }
                for result in report.results() {
                    for metric in result.metrics() {
                        metric.instances().for_each(drop);
                        let _ = (metric.unit(), metric.value().number());
                    }
                    result.rules().for_each(drop);
                    let _ = (result.nvtx(), result.sections().count());
                }
                let _ = report.sources();
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn a_metric_is_found_by_the_name_it_is_listed_under_and_an_unnamed_one_is_noted() {
    let twice = Pb::new().varint(1, 0).varint(1, 1).message(2, Pb::new().varint(5, 3));
    let kernel = Pb::new().message(13, twice).message(13, Pb::new().message(2, Pb::new()));
    let strings = Pb::new().text(1, "zero").text(1, "one");
    let bytes = report(&[Block {
        header: Pb::new().message(4, strings),
        kernels: vec![kernel],
        ..Block::default()
    }]);
    let (report, problems) = read(&bytes);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().ends_with("has no name: it gives no number"), "{problems:?}");
    let kernel = report.results().next().unwrap();
    assert_eq!(kernel.metrics().map(|m| m.name().to_owned()).collect::<Vec<_>>(), ["one"]);
    assert!(kernel.metric("one").is_some() && kernel.metric("zero").is_none());
}

#[test]
fn absurd_counts_and_sizes_cost_no_memory() {
    let header = Pb::new().varint(2, u64::MAX).varint(5, u64::from(u32::MAX));
    let mut bytes = report(&[]);
    bytes.extend_from_slice(&(header.0.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&header.0);
    bytes.extend_from_slice(&[0; 4000]);
    let (report, problems) = read(&bytes);
    assert_eq!(report.results().count(), 0);
    assert!(problems.len() <= 101, "{}", problems.len());
    assert!(matches!(problems.last(), Some(Problem::More { .. })));
}

#[test]
fn a_newer_version_is_read_and_noted() {
    let mut bytes = sample();
    assert_eq!(bytes[9], 7);
    bytes[9] = 8;
    let (report, problems) = read(&bytes);
    assert_eq!(report.results().count(), 2);
    assert!(matches!(problems[..], [Problem::Version { version: 8, known: 7 }]));
}
