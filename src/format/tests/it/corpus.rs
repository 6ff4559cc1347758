//! Inputs that fuzzing found worth keeping (`fuzz/corpus/`), through the readers as plain tests.

use std::path::PathBuf;

use rgpu_format::{
    cubin::{self, Table},
    ncu_csv::NcuCsv,
    ncu_rep::{Limits, NcuReport},
    nsys_rep::NsysReport,
    nsys_stats::NsysStats,
    nvtx_log, range_log, sanitizer,
    torch_trace::TorchTrace,
};

/// The files of one target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap();
    let files: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 10, "{} holds {} files", folder.display(), files.len());
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
        let Ok((report, _)) = NcuReport::read(&file, &Limits::default()) else { continue };
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
