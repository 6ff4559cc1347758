//! Treats any bytes as a section of fatbins.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::fatbin;

fuzz_target!(|section: &[u8]| {
    let mut entries = 0;
    for found in fatbin::find(section) {
        match found {
            Ok(fatbin) => {
                entries += fatbin.entries.len();
                for entry in fatbin.entries.iter().take(16) {
                    match entry.unpack(1 << 20) {
                        Ok(image) => assert!(image.len() <= 1 << 20),
                        Err(error) => drop(error.to_string()),
                    }
                }
            }
            Err(error) => drop(error.to_string()),
        }
    }
    // Entries never overlap, since each has its own header.
    assert!(entries * 64 <= section.len());
});
