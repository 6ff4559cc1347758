//! Runs the readers on the fuzzing corpus (`fuzz/corpus/`): the seeds and the inputs worth keeping.

use std::path::PathBuf;

use rgpu_format::{
    container,
    cubin::{self, Table},
    fatbin,
    ncu_csv::NcuCsv,
    ncu_rep::{NcuReadLimits, NcuReport},
    nsys_rep::NsysReport,
    nsys_stats::NsysStats,
    nvtx_log, range_log, sanitizer, sass,
    torch_trace::TorchTrace,
};

/// The files of one target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap();
    let files: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 6, "{} holds {} files", folder.display(), files.len());
    files
}

#[test]
fn readers_of_text_bear_what_fuzzing_found() {
    for file in corpus("sanitizer") {
        let log = sanitizer::read_log(&file);
        assert!(sanitizer::group(&log.records).len() <= log.records.len());
        let _ = sanitizer::read_xml(&file);
    }
    for file in corpus("logs") {
        let _ = (nvtx_log::read(&file), range_log::read(&file));
    }
    for file in corpus("csv") {
        let _ = (NcuCsv::read(&file), NsysStats::read(&file));
    }
    for file in corpus("torch_trace") {
        let _ = TorchTrace::read(&file);
    }
}

#[test]
fn readers_of_binaries_bear_what_fuzzing_found() {
    for file in corpus("cubin") {
        let _ = (cubin::read(&file), cubin::lines(&file, Table::Source));
        let _ = cubin::lines(&file, Table::Ptx);
    }
    for file in corpus("ncu_rep") {
        let Ok((report, _)) = NcuReport::read(&file, &NcuReadLimits::default()) else { continue };
        for result in report.results() {
            result.metrics().for_each(|metric| metric.instances().for_each(drop));
            result.sections().for_each(|section| drop((section.header(), section.tables())));
            let _ = (result.rules().count(), result.nvtx());
        }
        let _ = report.sources();
    }
    for file in corpus("nsys_rep") {
        let _ = NsysReport::salvage(&file).map(|report| report.events(|_| {}));
        if let Ok(report) = NsysReport::read(&file) {
            let _ = report.events(|_| {});
            assert!(report.whole_chunks().0.events(|_| {}).is_ok());
        }
    }
}

#[test]
fn readers_of_gpu_code_bear_what_fuzzing_begins_with() {
    let images = |file: &[u8]| {
        let mut images = 0;
        let walked = container::walk(file, &container::Limits::default(), &mut |_, image| {
            images += usize::from(image.is_ok_and(|image| {
                image.bytes(&container::Limits::default()).is_ok_and(|bytes| !bytes.is_empty())
            }));
        });
        walked.map_or(0, |_| images)
    };
    assert!(corpus("container").iter().all(|file| images(file) > 0));
    for file in corpus("fatbin") {
        assert!(fatbin::find(&file).all(|found| found.is_ok()));
    }
    for file in corpus("sass") {
        let Some((sm, code)) = file.split_first() else { continue };
        let summary = sass::summarize_code(code, u32::from(*sm));
        assert!(summary.bytes <= code.len());
    }
    let listings = corpus("sass_text");
    let texts: Vec<_> = listings.iter().map(|file| String::from_utf8_lossy(file)).collect();
    assert!(texts.iter().all(|text| !sass::text::read(text).is_empty()));
}
