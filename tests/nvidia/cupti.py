#!/usr/bin/env python3
"""Compares the collector's table of CUPTI's records with NVIDIA's own headers, version by version.

    tests/nvidia/cupti.py [FOLDER]
        FOLDER    where the wheels are kept [default: a temporary folder]

Fetches the wheels below with pip, compiles one C program against the headers of each, and compares every line of
`harness/collector/src/cupti/record.rs` with it: the kinds, and the offset of each field in every version of its
record that the header knows, from number 3 on (older ones were CUDA 8's). Prints one line for each version; the exit
code is 1 when a line differs.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "harness/collector/src/cupti/record.rs"
# (the wheel with CUPTI's headers, the wheel with cuda.h)
VERSIONS = [
    ("nvidia-cuda-cupti-cu12==12.1.105", "nvidia-cuda-runtime-cu12==12.1.105"),
    ("nvidia-cuda-cupti-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127"),
    ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"),
    ("nvidia-cuda-cupti==13.0.85", "nvidia-cuda-runtime==13.0.96"),
    ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.37"),
]
# cuda.h's own includes, which later wheels have apart; they only hold macros.
MACROS = "nvidia-cuda-crt==13.5.37"
# What the collector passes to CUPTI and expects of it, besides the records.
OTHERS = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": 1, "CUPTI_ACTIVITY_KIND_MEMSET": 2, "CUPTI_ACTIVITY_KIND_KERNEL": 3,
    "CUPTI_ACTIVITY_KIND_DRIVER": 4, "CUPTI_ACTIVITY_KIND_RUNTIME": 5, "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": 10,
    "CUPTI_ACTIVITY_KIND_MEMCPY2": 22, "CUPTI_ERROR_MAX_LIMIT_REACHED": 12, "CUPTI_CB_DOMAIN_DRIVER_API": 1,
    "CUPTI_CB_DOMAIN_RUNTIME_API": 2, "CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM": 1,
    "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED": 1, "CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER": 5,
}
OLDEST = 3


def headers(requirement, folder):
    name = requirement.replace("==", "-")
    there = folder / name
    if not there.is_dir():
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                        "-d", there, requirement], check=True)
        for wheel in there.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(there)
    found = list(there.rglob("cupti_activity.h")) or list(there.rglob("cuda.h")) or [path.parent for path in there.rglob("host_defines.h")]
    return found[0].parent


def table():
    """(record, field, offset), records perhaps with a `*` for their number."""
    line = re.compile(r"const \w+: usize = (\d+); // (\w+\*?)\.(\w+)")
    return [(m[2], m[3], int(m[1])) for m in line.finditer(TABLE.read_text())]


def records(pattern, text):
    if not pattern.endswith("*"):
        return [pattern]
    names = set(re.findall(rf"}} ({pattern[:-1]}(\d*));", text))
    # Those for copies between GPUs began anew: their first one has no number.
    oldest = 0 if "PtoP" in pattern or "Memset" in pattern else OLDEST
    return sorted(name for name, number in names if int(number or 1) >= oldest)


def compare(cupti, cuda, macros, folder):
    text = "".join(path.read_text(errors="replace") for path in cupti.glob("cupti_activity*.h"))
    lines, wanted = [], []
    for pattern, field, offset in table():
        for record in records(pattern, text):
            # Older records have no such field.
            body = re.search(rf"typedef struct PACKED_ALIGNMENT {{((?:(?!typedef).)*?)}} {record};", text, re.S)
            if body and not re.search(rf"\b{field}\b", re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)):
                continue
            lines.append(f'printf("%zu\\n", offsetof({record}, {field}));')
            wanted.append((f"{record}.{field}", offset))
    for name, value in OTHERS.items():
        lines.append(f'printf("%zu\\n", (size_t){name});')
        wanted.append((name, value))
    newest = max(records("CUpti_ActivityKernel*", text), key=lambda name: int(re.sub(r"\D", "", name) or 0))
    lines.append(f'printf("%u {newest} %zu\\n", CUPTI_API_VERSION, sizeof({newest}));')
    source = folder / "layout.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <cupti.h>\nint main(void) {\n"
                      + "\n".join(lines) + "\nreturn 0; }\n")
    program = folder / "layout"
    subprocess.run(["cc", "-w", "-I", cupti, "-I", cuda, "-I", macros, "-o", program, source], check=True)
    *values, last = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = [f"{name}: {value}, expected {want}" for (name, want), value in zip(wanted, values) if int(value) != want]
    return last, len(wanted), wrong


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        bad = 0
        for cupti, cuda in VERSIONS:
            last, many, wrong = compare(headers(cupti, folder), headers(cuda, folder), headers(MACROS, folder), pathlib.Path(scratch))
            version, newest, size = last.split()
            print(f"{cupti}: API {version}, {newest} of {size} bytes, {many} values, {len(wrong)} differ")
            print("".join(f"  {line}\n" for line in wrong), end="")
            bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
