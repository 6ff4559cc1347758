"""Compares rgpu's values of new reports with what NVIDIA's own tools print of the same files, number by number."""

import csv
import glob
import io
import shutil
import sqlite3
import subprocess
import time

REMOTE = "h200"


def find_tool(name, *patterns):
    found = shutil.which(name)
    return found or next((path for pattern in patterns for path in reversed(sorted(glob.glob(pattern)))), None)


def read_csv(text):
    """The CSV after NVIDIA's other messages. ncu quotes its cells, nsys does not."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"') or line.count(",") > 5), len(lines))
    return list(csv.reader(io.StringIO("\n".join(lines[first:]))))


def matches_printed(cell, value):
    """Whether `cell` equals `value` within the printed digits."""
    if isinstance(value, str):
        return cell == value
    plain = cell.replace(",", "")
    try:
        there = float(plain)
    except ValueError:
        return False
    decimals = len(plain.split(".")[1]) if "." in plain and "e" not in plain else 0
    return abs(there - value) <= 0.5001 * 10**-decimals + abs(value) * 1e-12


def report_file(s, profile, ending):
    path = next((a["path"] for a in profile.get("artifacts", []) if a["path"].endswith(ending)), None)
    return path and s.project / "artifacts/runs" / profile["run"]["id"] / path


def ncu_metrics(s, kernel):
    p = s.profile("--kernel", kernel, "--mode", "ncu", "--set", "full", "--remote", REMOTE)
    report = report_file(s, p, (".ncu-rep", ".ncu-repz"))
    if not s.check(f"{kernel}: there is a report", report and report.is_file(), str(report)):
        return
    began = time.monotonic()
    text = subprocess.run(["ncu", "--import", report, "--page", "raw", "--csv", "--print-units", "base"],
                          check=False, stdout=subprocess.PIPE, text=True).stdout
    theirs = time.monotonic() - began
    table = read_csv(text)
    launches = s.rgpu("report", report, "--json").json.get("launches", [])
    if not s.check(f"{kernel}: as many launches as ncu prints", len(launches) == len(table) - 2 > 0,
                   f"{len(launches)} against {len(table) - 2}"):
        return
    compared, wrong, absent = 0, [], []
    for launch, cells in zip(launches, table[2:]):
        for name, unit, cell in zip(table[0], table[1], cells):
            if "__" not in name:
                continue  # the columns before the metrics: names, geometry, NVTX state
            metric = launch["metrics"].get(name)
            if metric is None:
                # rgpu leaves out a metric without a number, and names it in the gaps.
                if cell not in ("", "no data", "nan", "n/a"):
                    absent.append(f"{name}={cell}")
                continue
            compared += 1
            if not matches_printed(cell, metric["value"]) or metric.get("unit", "") != unit:
                wrong.append(f"{name}: {cell} {unit} against {metric['value']} {metric.get('unit')}")
    s.check(f"{kernel}: every metric equals what `ncu --import` prints", compared > 1000 and not wrong and not absent,
            f"{len(wrong)} differ: {wrong[:4]}; {len(absent)} absent: {absent[:8]}",
            note=f"{compared} numbers and units; `ncu --import` took {theirs:.2f} s")


def nsys_rows(s):
    p = s.profile("--kernel", "nested-regions", "--mode", "nsys", "--remote", REMOTE)
    report = report_file(s, p, ".nsys-rep")
    nsys = find_tool("nsys", "/opt/nvidia/nsight-systems/*/target-linux-x64/nsys",
                "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys")
    if not s.check("there is an nsys report, and an nsys to read it", report and report.is_file() and nsys, f"{report} {nsys}"):
        return
    base = s.work / "values.sqlite"
    subprocess.run([nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", base, report],
                   check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not s.check("nsys exports its report", base.is_file()):
        return
    ours = s.rgpu("report", report, "--json").json
    exported = s.rgpu("report", base, "--json").json
    for key in ("kernels", "copies", "regions", "launches"):
        strip = lambda rows: [{k: v for k, v in row.items() if k != "from"} for row in rows or []]
        s.check(f"the native reader and nsys's sqlite agree on {key}", strip(ours.get(key)) == strip(exported.get(key)),
                note=f"{len(ours.get(key) or [])} rows")

    db = sqlite3.connect(base)
    names = dict(db.execute("SELECT id, value FROM StringIds"))
    kernels = [(names[n], start, end, (gx, gy, gz), (bx, by, bz)) for n, start, end, gx, gy, gz, bx, by, bz in db.execute(
        "SELECT demangledName, start, end, gridX, gridY, gridZ, blockX, blockY, blockZ FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start")]
    said = [(k["kernel"], k["duration_ns"], tuple(k["grid"]), tuple(k["block"])) for k in ours.get("launches", [])]
    s.check("every kernel equals its row in nsys's sqlite", said and said == [(n, e - b, g, t) for n, b, e, g, t in kernels],
            f"{said[:2]} against {kernels[:2]}", note=f"{len(said)} kernels")
    copies = db.execute("SELECT COUNT(*), SUM(bytes), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()
    mine = [c for c in ours.get("copies", []) if c["kind"] != "memset"]
    s.check("copies add up to nsys's", tuple(sum(c[k] for c in mine) for k in ("count", "bytes", "total_ns")) == copies,
            f"{mine} against {copies}", note=f"{copies[0]} copies")

    def stats(report_name):
        text = subprocess.run([nsys, "stats", "--report", report_name, "--format", "csv", "-o", "-", base],
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        table = read_csv(text)
        return [dict(zip(table[0], row)) for row in table[1:] if len(row) == len(table[0])] if table else []

    theirs = {r["Name"]: (int(r["Total Time (ns)"]), int(r["Instances"]), int(r["Min (ns)"]), int(r["Max (ns)"]))
              for r in stats("cuda_gpu_kern_sum")}
    sums = {k["kernel"]: (k["total_ns"], k["launches"], k["min_ns"], k["max_ns"]) for k in ours.get("kernels", [])}
    s.check("sums by kernel equal `nsys stats`", sums and sums == theirs, f"{sums} against {theirs}", note=f"{len(sums)} kernels")

    # nsys sums ranges by name over every path, so only names with one path can be compared.
    theirs = {r["Range"].removeprefix(":"): (int(r["Total Time (ns)"]), int(r["Instances"])) for r in stats("nvtx_sum")}
    mine = {}
    for r in ours.get("regions", []):
        name = r["path"][-1].replace("@", ":", 1)
        total, instances = mine.get(name, (0, 0))
        mine[name] = (total + r["host_ns"], instances + r["instances"])
    s.check("host time by range equals `nsys stats`", mine and mine == theirs, f"{mine} against {theirs}", note=f"{len(mine)} ranges")


def values(s):
    for kernel in ("tiled-matmul", "transpose-conflicts", "spill"):
        ncu_metrics(s, kernel)
    nsys_rows(s)
