//! Treats any bytes as a cubin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::cubin;

fuzz_target!(|file: &[u8]| match cubin::read(file) {
    Ok(cubin) => {
        // Every list is read from records in the file, so it cannot be longer than the file.
        let params: usize = cubin.kernels.iter().map(|kernel| kernel.params.len()).sum();
        let exits: usize = cubin.kernels.iter().map(|kernel| kernel.exits.len()).sum();
        assert!(params + exits + cubin.kernels.len() <= file.len());
        let _ = cubin.sm.to_string();
    }
    Err(error) => drop(error.to_string()),
});
