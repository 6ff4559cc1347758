//! Where NVRTC finds headers: the toolkit's folders, and replacements for headers of the host.
//!
//! NVRTC has CUDA's own declarations built in and searches no folder by itself. Kernels written for
//! nvcc still include headers. CUDA's lie beside the library in a toolkit and in NVIDIA's wheels.
//! The C library's declare host functions, and only a few of their types and constants are useful
//! here. If no folder has such a header, NVRTC gets a replacement text from this module.

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Header folders relative to the library's folder: a toolkit or the wheels of CUDA 13, then the
/// wheels of CUDA 12, which have one folder each.
const HEADER_FOLDERS: [&str; 3] =
    ["../include", "../../cuda_runtime/include", "../../cuda_cccl/include"];

/// The folders to search, in order: `requested`, then those of the library. Each is followed by its
/// `cccl`, where CUDA 13 has libcu++, as with nvcc.
pub(super) fn header_folders(requested: &[PathBuf], library: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    let beside = library.and_then(Path::parent).into_iter().flat_map(|folder| {
        HEADER_FOLDERS
            .iter()
            .filter_map(|relative| std::fs::canonicalize(folder.join(relative)).ok())
    });
    // `/usr/include` belongs to the host: its C headers do not compile for a device.
    let of_cuda = |folder: &PathBuf| {
        ["cuda_runtime.h", "cuda/std/cstdint"].iter().any(|name| folder.join(name).is_file())
            && !folder.join("stdlib.h").exists()
    };
    for folder in requested.iter().cloned().chain(beside.filter(of_cuda)) {
        let cccl = folder.join("cccl");
        add(folder);
        if cccl.join("cuda/std").is_dir() {
            add(cccl);
        }
    }
    folders
}

/// Included before the source. nvcc includes `cuda_runtime.h` and with it host headers there, so
/// many kernels use `uint32_t` and `INFINITY` without an include.
pub(super) const FIRST_HEADER: &str = "rgpu_nvrtc_first.h";

/// (name, text) of each replacement header that none of the folders has.
pub(super) fn replacement_headers(folders: &[PathBuf]) -> Vec<(CString, CString)> {
    let is_found = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
    let cccl = is_found("cuda/std/cstdint");
    let mut found = Vec::new();
    for (names, text) in STAND_INS {
        // libcu++ defines the same differently, and a program may include both.
        let own = match (names[0], cccl) {
            ("stdint.h", true) => STDINT_OF_CCCL,
            ("limits.h", true) => "#pragma once\n#include <cuda/std/climits>\n",
            _ => text,
        };
        // CUDA's own version declares host functions, which NVRTC refuses.
        for name in names.iter().filter(|&&name| name == "cuda.h" || !is_found(name)) {
            if let (Ok(name), Ok(text)) = (CString::new(*name), CString::new(own)) {
                found.push((name, text));
            }
        }
    }
    found
}

/// Replacement headers with all their names. An empty text means that NVRTC has the contents built
/// in.
const STAND_INS: &[(&[&str], &str)] = &[
    (&[FIRST_HEADER], BEFORE_ALL),
    (&["cuda.h"], CUDA),
    (&["stdint.h", "cstdint", "inttypes.h", "cinttypes"], STDINT),
    (&["stddef.h", "cstddef"], STDDEF),
    (&["limits.h", "climits"], LIMITS),
    (&["float.h", "cfloat"], FLOAT),
    (&["math.h", "cmath"], MATH),
    (&["stdbool.h", "cstdbool", "stdio.h", "cstdio", "stdlib.h", "cstdlib"], ""),
    (&["string.h", "cstring", "assert.h", "cassert"], ""),
    (&["cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"], ""),
    (&["vector_types.h", "vector_functions.h", "builtin_types.h"], ""),
];

const STDINT: &str = "#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
typedef int64_t intmax_t;
typedef uint64_t uintmax_t;
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ull
#define SIZE_MAX UINT64_MAX
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;
}
";

/// libcu++ redefines `INFINITY` and similar macros, which would give warning 47.
const BEFORE_ALL: &str = "#pragma nv_diag_suppress 47
#include <stdint.h>
#include <math.h>
";

/// The part of `cuda.h` that a kernel needs: the argument of tensor copies, 128 opaque bytes.
const CUDA: &str = "#pragma once
typedef struct CUtensorMap_st { alignas(64) unsigned long long opaque[16]; } CUtensorMap;
";

const STDINT_OF_CCCL: &str = "#pragma once
#include <cuda/std/cstdint>
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;
}
";

const STDDEF: &str = "#pragma once
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
";

const LIMITS: &str = "#pragma once
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615ull
";

const FLOAT: &str = "#pragma once
#ifndef FLT_MAX
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_EPSILON 1.1920928955078125e-7f
#define FLT_MIN 1.175494350822287508e-38f
#define FLT_MAX 3.402823466385288598e38f
#define DBL_MANT_DIG 53
#define DBL_EPSILON 2.2204460492503130808e-16
#define DBL_MIN 2.2250738585072013831e-308
#define DBL_MAX 1.7976931348623157081e308
#endif
";

const MATH: &str = "#pragma once
#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
#ifndef NAN
#define NAN (__int_as_float(0x7fffffff))
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#define HUGE_VAL (__longlong_as_double(0x7ff0000000000000ll))
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880
#endif
";

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn the_librarys_own_headers_come_after_those_asked_for_with_cccl_after_each() {
        let home = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(home.path()).unwrap();
        touch(&at.join("cu13/lib/libnvrtc.so.13"));
        touch(&at.join("cu13/include/cuda_runtime.h"));
        touch(&at.join("cu13/include/cccl/cuda/std/cstdint"));
        let library = at.join("cu13/lib/libnvrtc.so.13");
        let found = header_folders(&["mine".into()], Some(&library));
        let include = at.join("cu13/include");
        assert_eq!(found, [PathBuf::from("mine"), include.clone(), include.join("cccl")]);
    }

    #[test]
    fn headers_of_the_host_are_not_searched() {
        let home = tempfile::tempdir().unwrap();
        touch(&home.path().join("lib/libnvrtc.so.12"));
        touch(&home.path().join("include/cuda_runtime.h"));
        touch(&home.path().join("include/stdlib.h"));
        assert!(header_folders(&[], Some(&home.path().join("lib/libnvrtc.so.12"))).is_empty());
    }

    #[test]
    fn a_header_that_a_folder_has_needs_no_stand_in() {
        let home = tempfile::tempdir().unwrap();
        touch(&home.path().join("cuda_runtime.h"));
        let names: Vec<CString> =
            replacement_headers(&[home.path().into()]).into_iter().map(|(name, _)| name).collect();
        assert!(!names.contains(&c"cuda_runtime.h".into()));
        assert!(names.contains(&c"stdint.h".into()) && names.contains(&c"cstdint".into()));
    }
}
