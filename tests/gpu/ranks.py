"""Programs of two ranks under nsys. With one GPU both ranks share it and reduce with gloo; with two, NCCL reduces, and the
rank that comes last must be named."""

import json
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
PROGRAM = PROGRAMS / "ranks.py"
# NVLink multicast of one user can disturb the GPUs of others.
SAFE = [word for pair in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1")
        for word in ("--env", pair)]
# Steps of the programs below, and the bytes and calls of their collectives: 8 layers are gathered twice a step and reduced
# once, or 4 blocks reduce twice a step.
STEPS = 10
PARALLEL = {
    "fsdp": {"all_gather": (64 << 20, 16 * STEPS), "reduce_scatter": (64 << 20, 8 * STEPS)},
    "tensor_parallel": {"all_reduce": (32 << 20, 8 * STEPS)},
}
# The exit status of a failure of the host.
HOST_FAILED = 4
# The exit status of `exec` for a program that hung.
PROGRAM_HUNG = 124


def gpus_of(s):
    """Number of GPUs of the host."""
    listed = s.rgpu("exec", "--remote", "h200", *SAFE, "--", "nvidia-smi", "-L")
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def profile_two_ranks(s, gpus, name, *flags, program=PROGRAM, fault=""):
    """The profile of a program on two ranks with these flags; None if it failed."""
    ended = s.rgpu("exec", *flags, "--remote", "h200", "--gpus", str(gpus), *SAFE, "--run-id", name, "--json",
                   "--", "torchrun", "--nproc-per-node", "2", str(program), *([fault] if fault else []))
    return ended.json if ended.status == 0 else None


def finding(profile, name):
    return next((found for found in profile["findings"] if found["id"] == name), {})


def times_of_two_ranks(s, name, profile):
    """Checks that both ranks are there and their times add up. The ranks; empty if they are not both there."""
    all_ranks = (profile.get("ranks") or {}).get("ranks", [])
    if not s.check(f"{name}: both ranks are there", [r["rank"] for r in all_ranks] == [0, 1], str(all_ranks)[:500]):
        return []
    for rank in all_ranks:
        parts = sum(rank[part] for part in ("compute_ns", "exposed_ns", "copy_ns", "idle_ns"))
        s.check(f"{name}: the times of rank {rank['rank']} add up", parts == rank["span_ns"], str(rank))
    return all_ranks


def sharded_programs(s, gpus):
    """Sharded parameters and split layers: every collective of the program is matched, with its operation and size."""
    if gpus < 2:
        return
    for name, expected in PARALLEL.items():
        profile = profile_two_ranks(s, gpus, f"ranks-{name}", "--mode", "nsys", program=PROGRAMS / f"{name}.py")
        all_ranks = times_of_two_ranks(s, name, profile or {})
        if not all_ranks:
            continue
        of = profile["ranks"]
        steps = (of.get("steps") or {}).get("steps", [])
        s.check(f"{name}: {STEPS} steps", len(steps) == STEPS, str(of.get("steps"))[:300])
        calls = dict.fromkeys(expected, 0)
        for one in of["collectives"]:
            calls[one["operation"]] = calls.get(one["operation"], 0) + one["calls"]
        s.check(f"{name}: every collective is matched with its operation", of["unmatched"] == 0
                and calls == {operation: many for operation, (_, many) in expected.items()}, str(of["collectives"])[:2000])
        # A report without NCCL's payloads tells no sizes.
        sizes = {one["operation"]: one["bytes"] for one in of["collectives"] if "bytes" in one}
        s.check(f"{name}: collectives have their sizes", all(expected.get(operation, (0,))[0] == size
                for operation, size in sizes.items()), str(sizes), note=f"{len(sizes)} told")
        overlap = [rank["overlapped_ns"] / max(1, rank["communication_ns"]) for rank in all_ranks]
        if name == "fsdp":
            s.check("fsdp: layers are gathered beside kernels", min(overlap) > 0.1, str(overlap))
        else:
            s.check(f"{name}: no kernel runs beside an all-reduce", max(overlap) < 0.1, str(overlap))


def one_rank_under_ncu(s, gpus):
    profile = profile_two_ranks(s, gpus, "ranks-ncu", "--mode", "ncu", "--ranks", "0", "--launch-count", "6")
    if profile is None:
        return
    launches = profile["launches"]
    s.check("ncu measures rank 0 of two", 0 < len(launches) <= 6 and any(launch["metrics"] for launch in launches),
            str(launches)[:500])
    s.check("no collective is under ncu", not any("nccl" in launch["kernel"].lower() for launch in launches),
            str([launch["kernel"] for launch in launches]))
    s.check("the report says that one rank runs under ncu",
            any("only rank 0 runs under ncu" in gap["text"] for gap in profile["gaps"]), str(profile["gaps"])[:500])


def each_rank_under_the_sanitizer(s, gpus):
    profile = profile_two_ranks(s, gpus, "ranks-sanitizer", "--mode", "sanitizer")
    if profile is None:
        return
    results = [(one.get("rank"), one["verdict"]) for one in profile["sanitizer"]]
    s.check("the sanitizer checks both ranks", results == [(0, "clean"), (1, "clean")], str(profile["sanitizer"])[:1000])


def collectives(s, gpus):
    """The bus bandwidth of NCCL is that of torch's events around the same call, and the cost model takes the fit."""
    if gpus < 2:
        refused = s.rgpu("doctor", "h200", "--collectives", expect=HOST_FAILED)
        s.check("collectives need two GPUs", "at least 2 GPUs" in refused.stderr, refused.stderr)
        return
    calibration = s.work / "collectives.toml"
    measured = s.rgpu("doctor", "h200", "--collectives", "--gpus", "2", "--out", str(calibration), "--json")
    timed = s.rgpu("exec", "--remote", "h200", "--gpus", "2", *SAFE, "--", "torchrun", "--nproc-per-node", "2",
                   str(PROGRAMS / "all_reduce.py"))
    if measured.status != 0 or timed.status != 0:
        return
    s.check("NVLS is off", measured.json["nvls"] == "off", str(measured.json["log"]))
    all_reduce = next(one for one in measured.json["collectives"] if one["op"] == "all_reduce")
    largest = all_reduce["sizes"][-1]
    torch_ns = next(json.loads(line)["ns"] for line in timed.stdout.splitlines() if line.startswith("{"))
    s.check("an all-reduce of 512 MiB takes what torch's events say", largest["bytes"] == 512 << 20
            and abs(largest["time_ns"] / torch_ns - 1) < 0.05, f"{largest} and {torch_ns} ns")
    predicted = s.rgpu("model", "coll", "allreduce", "--bytes", "512M", "--gpus", "2", "--gpu", "h200", "--calib",
                       str(calibration), "--json")
    s.check("the cost model takes the fit", predicted.json["calibration"] == "calibrated"
            and abs(predicted.json["time_ns"] / largest["time_ns"] - 1) < 0.1, str(predicted.json)[:500])


def hang(s, gpus):
    """Rank 1 never comes to a collective. The program is stopped, both ranks are named and the report is kept."""
    ended = s.rgpu("exec", "--mode", "nsys", "--hang", "20s", "--remote", "h200", "--gpus", str(gpus), *SAFE, "--run-id",
                   "ranks-hang", "--", "torchrun", "--nproc-per-node", "2", str(PROGRAM), "hang", expect=PROGRAM_HUNG)
    s.check("it is told that the program hung", "the program hung and was stopped" in ended.stderr, ended.stderr[-2000:])
    s.check("both ranks are named", all(f"rank {rank} (process" in ended.stderr for rank in (0, 1)), ended.stderr[-2000:])
    shown = s.rgpu("report", "ranks-hang", "--json")
    regions = [region["path"] for region in shown.json.get("regions", [])]
    s.check("the ranges before the hang are kept", ["step", "forward"] in regions, str(regions)[:500])


def ranks(s):
    gpus = gpus_of(s)
    collectives(s, gpus)
    for mode in ("ncu", "deep"):
        refused = s.rgpu("profile", "--mode", mode, "--gpus", "2", "--remote", "h200", "--", "true", expect=2)
        s.check(f"{mode} on two GPUs is refused with the reason", "waits for another rank" in refused.stderr, refused.stderr)
    too_many = s.rgpu("profile", "--mode", "nsys", "--gpus", str(gpus + 1), "--remote", "h200", "--", "true", expect=HOST_FAILED)
    s.check("more GPUs than there are is an error", f"but {gpus + 1} are requested" in too_many.stderr, too_many.stderr)
    use = min(gpus, 2)
    one_rank_under_ncu(s, use)
    each_rank_under_the_sanitizer(s, use)
    hang(s, use)
    sharded_programs(s, use)
    for fault in ("", "slow", "sleep"):
        profile = profile_two_ranks(s, use, f"ranks-{fault or 'equal'}", "--mode", "nsys", fault=fault)
        if profile is None:
            continue
        if not times_of_two_ranks(s, fault or "equal", profile):
            continue
        of = profile["ranks"]
        steps = (of.get("steps") or {}).get("steps", [])
        s.check(f"{fault or 'equal'}: 12 steps", len(steps) == 12, str(of.get("steps"))[:300])
        if fault == "slow":
            s.check("the rank that computes longer is named", finding(profile, "rank_imbalance").get("rank") == 1
                    or finding(profile, "straggler").get("rank") == 1, json.dumps(profile["findings"])[:2000])
        if fault == "sleep" and len(steps) == 12:
            host = steps[6]["host_ns"]
            s.check("the step in which rank 1 sleeps is the longest", host[1] >= 100e6, str(host))
        if use < 2:
            continue
        sums = [one for one in of["collectives"] if one["operation"] == "all_reduce"]
        s.check("all-reduces are matched", sum(one["calls"] for one in sums) == 15, str(of["collectives"]))
        if fault:
            straggler = (of["stragglers"] or [{}])[0]
            expected = ("host", "step::load_batch") if fault == "sleep" else ("compute", "step::forward")
            s.check(f"{fault}: rank 1 is the straggler with its region", straggler.get("rank") == 1
                    and (straggler["cause"], straggler.get("region")) == expected, str(straggler))
        if fault == "sleep":
            late = of["waits"][0]["late_ns"]
            s.check("it is late by what it slept", 95e6 < late < 110e6, str(late))
