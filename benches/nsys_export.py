#!/usr/bin/env python3
"""Times `rgpu report` and its page beside `nsys export`, which every reader of a report needs first, on one real report.
Prints medians, each as a share of the export of the same run. Status 1 if the table or the page takes more than LIMIT of it.

    benches/nsys_export.py RGPU [SIZE | REPORT.nsys-rep]

Without a report, nsys records a program of NVTX ranges until its export has about SIZE (1G is the default): that needs
a C compiler and no GPU, so the report has no kernels. tests/gpu/large.py makes one with kernels. `NSYS` names the nsys
to use. Debian's packages nsight-systems and nsight-systems-target (non-free; unpack them with `dpkg -x`) have nsys 2023.4
at usr/lib/nsight-systems/target-linux-x64/nsys; it reads only reports of its own version or older ones.
"""
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from make_nsys_sqlite import size_of
from nsys_sums import find_nsys, timed

LIMIT, RUNS, ENOUGH_S = 0.5, 3, 120
LAYERS, BYTES_PER_RANGE = 12, 53  # ranges in a step, and bytes of a range in the export
PROGRAM = """
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char names[%d][16];
    for (int layer = 0; layer < %d; ++layer) snprintf(names[layer], 16, "layer %%d", layer);
    for (long step = atol(argv[1]); step > 0; --step) {
        nvtxRangePushA("step");
        for (int layer = 0; layer < %d; ++layer) {
            nvtxRangePushA(names[layer]);
            nvtxRangePop();
        }
        nvtxRangePop();
    }
}
""" % (LAYERS, LAYERS, LAYERS)


def run(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{argv} failed:\n{done.stdout[-2000:]}")


def record(nsys, size):
    """Path of a report whose export has about `size` bytes."""
    target = Path(nsys).resolve().parent
    Path("ranges.c").write_text(PROGRAM)
    run(["cc", "-O1", "-I", target / "nvtx/include", "ranges.c", "-o", "ranges", "-ldl"])
    steps = size // (BYTES_PER_RANGE * (LAYERS + 1))
    run([nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--output", "large", "./ranges", str(steps)])
    if not os.path.exists("large.nsys-rep"):
        # Debian's nsys does not find its importer.
        importers = [folder / "host-linux-x64/QdstrmImporter" for folder in Path(nsys).parents]
        importer = next((path for path in importers if path.exists()), None)
        if not importer:
            sys.exit("nsys made no report, and its importer QdstrmImporter is not beside it")
        run([importer, "-i", "large.qdstrm", "-o", "large.nsys-rep"])
    return "large.nsys-rep"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rgpu, given = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "1G"
    nsys = find_nsys()
    if not nsys:
        sys.exit("nsys is not here: nothing to compare with")
    given = os.path.abspath(given) if os.path.exists(given) else given
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        os.chdir(folder)
        report = given if os.path.exists(given) else record(nsys, size_of(given))
        # Of a report with its export beside it, rgpu reads both.
        os.mkdir("export")
        export = "export/large.sqlite"
        tools = {
            "nsys export": [nsys, "export", "--type", "sqlite", "--force-overwrite=true", "--output", export, report],
            "table": [rgpu, "report", export],
            "page": [rgpu, "report", export, "--format", "html", "--out", "large.html"],
            "table of the .nsys-rep": [rgpu, "report", report],
        }
        runs = {name: [] for name in tools}
        # In turn, so that a slow moment of the machine affects all.
        for _ in range(RUNS):
            for name, argv in tools.items():
                if sum(took for took, _ in runs[name]) < ENOUGH_S:
                    runs[name].append(timed(argv, "out"))
        mib = lambda path: os.path.getsize(path) / 2**20
        print(f"a report of {mib(report):.0f} MiB, {mib(export):.0f} MiB as its export; {nsys}")
        median = {name: statistics.median(took for took, _ in all_runs) for name, all_runs in runs.items()}
        print(f"{'tool':<24}{'median s':>10}{'runs':>6}{'peak MiB':>10}{'of the export':>15}")
        for name, all_runs in runs.items():
            peak = max(mib for _, mib in all_runs)
            print(f"{name:<24}{median[name]:>10.2f}{len(all_runs):>6}{peak:>10.0f}{median[name] / median['nsys export']:>15.2f}")
    return 0 if max(median["table"], median["page"]) <= LIMIT * median["nsys export"] else 1


if __name__ == "__main__":
    sys.exit(main())
