"""Makes a GPU host lack something: files are renamed, and renamed back."""

import contextlib
import glob
import os
import shutil
import subprocess

PLACES = {
    "ncu": ["/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"],
    "nsys": ["/usr/local/bin/nsys", "/usr/local/cuda*/bin/nsys", "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
             "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys"],
    "compute-sanitizer": ["/usr/local/cuda*/bin/compute-sanitizer", "/usr/local/cuda*/compute-sanitizer/compute-sanitizer"],
    "nvidia-smi": ["/usr/bin/nvidia-smi"],
    "libcupti": ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*", "/usr/local/cuda*/targets/*/lib/libcupti.so*",
                 "/usr/local/cuda*/lib64/libcupti.so*", "/usr/lib/x86_64-linux-gnu/libcupti.so*",
                 "/usr/local/lib/python3*/*-packages/nvidia/cu*/lib/libcupti.so*",
                 "/opt/*/lib/python3*/*-packages/nvidia/cu*/lib/libcupti.so*",
                 "/opt/*/.venv/lib/python3*/*-packages/nvidia/cu*/lib/libcupti.so*"],
    "libdw": ["/usr/local/lib/gpu-host/libdw.so*", "/opt/gpu-host/usr/lib/x86_64-linux-gnu/libdw*.so*",
              "/usr/lib/x86_64-linux-gnu/libdw*.so*", "/lib/x86_64-linux-gnu/libdw*.so*"],
}
HIDDEN = ".hidden-by-rgpu-tests"


def on_path(thing):
    for folder in os.environ["PATH"].split(":"):
        if shutil.which(thing, path=folder):
            yield os.path.join(folder, thing)


@contextlib.contextmanager
def hidden(*things):
    """The host without `things`; yields what was found and hidden."""
    moved = []
    try:
        for thing in things:
            places = [path for pattern in PLACES[thing] for path in sorted(glob.glob(pattern))]
            for path in [*places, *on_path(thing)]:
                if not path.endswith(HIDDEN) and os.path.lexists(path):
                    os.rename(path, path + HIDDEN)
                    moved.append(path)
        if moved:
            # -X: it would take the links away whose files were renamed.
            subprocess.run(["ldconfig", "-X"], check=False)
        yield moved
    finally:
        for path in reversed(moved):
            if os.path.lexists(path + HIDDEN):
                os.rename(path + HIDDEN, path)
        if moved:
            subprocess.run(["ldconfig", "-X"], check=False)
