//! Treats any bytes as a trace of torch.profiler.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::torch_trace::TorchTrace;

fuzz_target!(|file: &[u8]| {
    let _ = TorchTrace::is_trace(file);
    if let Ok(trace) = TorchTrace::read(file) {
        // An event takes at least a pair of braces.
        assert!(trace.events.len() <= file.len());
        assert!(trace.names.len() <= trace.events.len());
    }
});
