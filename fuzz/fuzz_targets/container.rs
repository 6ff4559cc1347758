//! Treats any bytes as a file that may hold GPU code: host ELF, archive, zip, fatbin, PTX, cubin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::container::{self, Limits};
use rgpu_format::{demangle, ptx};

fuzz_target!(|file: &[u8]| {
    let limits = Limits { unpacked_bytes: 1 << 20, total_bytes: 1 << 22, members: 256 };
    let walked = container::walk(file, &limits, &mut |place, image| {
        drop(place.to_string());
        match image {
            Ok(image) => {
                if let Ok(bytes) = image.bytes(&limits)
                    && let Ok(text) = std::str::from_utf8(&bytes)
                {
                    for entry in ptx::read(text).into_iter().flat_map(|ptx| ptx.entries) {
                        drop(demangle::demangle(&entry));
                    }
                }
            }
            Err(error) => drop(error.to_string()),
        }
    });
    if let Err(error) = walked {
        drop(error.to_string());
    }
});
