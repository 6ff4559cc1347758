"""This host as a Slurm cluster of one node, over SSH to its login node: profiles, ranks, a job that waits and one that is
cancelled."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from ranks import PROGRAM, SAFE, times_of_two_ranks
from session import HERE

CLUSTER = "cluster"
# What a job's own environment may lack: it is that of a login of the user, not that of the SSH server.
TOOLS = ("nvcc", "ncu", "nsys", "compute-sanitizer", "nvidia-smi", "c++", "python3", "torchrun")
# The exit status of `exec` for a failure of its own.
EXEC_FAILED = 125
# How a program on the cluster can be told from other processes.
HELD_SECONDS = "98765"


def ask(*command):
    """What a command on the cluster prints."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout.strip()


def jobs():
    """States of the jobs that have not ended, one a line."""
    return ask("squeue", "--noheader", "--format=%T")


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.2)
    return False


def held_programs():
    """Processes of the program that waits on the cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
        except OSError:
            continue
        if argv[0].endswith(b"sleep") and argv[1:2] == [HELD_SECONDS.encode()]:
            found.append(int(entry.name))
    return found


def nothing_is_left(s, after):
    s.check(f"nothing is left in the queue after {after}", wait_for(lambda: jobs() == "", 30), ask("squeue"))


def add_cluster(s):
    folders = dict.fromkeys(str(Path(found).parent) for tool in TOOLS if (found := shutil.which(tool)))
    paths = [word for folder in folders for word in ("--path", folder)]
    login = f"ssh://{s.ssh['GPU_SSH_USER']}@{s.ssh['GPU_SSH_HOST']}:{s.ssh['GPU_SSH_PORT']}"
    s.rgpu("remote", "add", CLUSTER, "slurm", "--login", login, "--identity", s.ssh["GPU_SSH_KEY"], "--accept-new",
           "--partition", "gpu", "--gpus", "1", *paths)


def sees_its_gpus(s, gpus):
    seen = s.rgpu("exec", "--remote", CLUSTER, "--", "sh", "-c", "echo $SLURM_JOB_ID; nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")
    lines = seen.stdout.splitlines() or [""]
    s.check("a program runs in a job of Slurm and has one GPU", lines[0].isdigit() and len(lines) > 2
            and len(lines[-1].split(",")) == 1 and lines[-1], seen.stdout, note=lines[-1])
    too_many = s.rgpu("exec", "--remote", CLUSTER, "--gpus", str(gpus + 1), "--", "true", expect=EXEC_FAILED)
    s.check("more GPUs than the cluster has are refused", "no node of the partition has what was asked for" in too_many.stderr,
            too_many.stderr)
    nothing_is_left(s, "a job that cannot run")


def profiles(s):
    for mode in ("bench", "ncu", "nsys"):
        p = s.profile("--kernel", "vecadd", "--mode", mode, "--remote", CLUSTER)
        s.top_rung(f"{mode} on the cluster", p)
        s.check(f"{mode}: it ran through Slurm", (p.get("host") or {}).get("transport") == "slurm", str(p.get("host"))[:300])
        if mode == "bench":
            timing = p.get("timing") or {}
            s.check("bench: vecadd is right and has a time", (p.get("correctness") or {}).get("verdict") == "right"
                    and (timing.get("median_ns") or 0) > 1000, str(timing), note=f"{(timing.get('median_ns') or 0) / 1000:.1f} us")
        else:
            found = p.get("launches" if mode == "ncu" else "kernels", [])
            s.check(f"{mode}: vecadd is in the report", any(one["kernel"].split("(")[0] == "vecadd" for one in found), str(found)[:300])
        if mode == "ncu":
            counters = len(p["launches"][0]["metrics"]) if p.get("launches") else 0
            s.check("ncu: its counters are there", counters > 100, str(counters), note=f"{counters} metrics")
        nothing_is_left(s, mode)


def two_ranks(s, gpus):
    p = s.rgpu("exec", "--mode", "nsys", "--remote", CLUSTER, "--gpus", str(min(gpus, 2)), *SAFE, "--json", "--",
               "torchrun", "--nproc-per-node", "2", str(PROGRAM)).json
    times_of_two_ranks(s, "two ranks in a job", p)
    nothing_is_left(s, "two ranks")


def waits_for_the_gpus(s, gpus):
    """A job has all GPUs. Another says why it waits, and runs once the first is cancelled."""
    holder = s.start("exec", "--remote", CLUSTER, "--gpus", str(gpus), "--run-id", "slurm-holder", "--", "sleep", HELD_SECONDS)
    s.check("a program has all GPUs", wait_for(held_programs, 120), ask("squeue"))
    over = s.rgpu("exec", "--remote", CLUSTER, "--queue-timeout", "6s", "--", "true", expect=EXEC_FAILED)
    s.check("a job that waits says Slurm's reason and its position", "Resources" in over.stderr
            and "position 1 of 1 in `gpu`" in over.stderr, over.stderr, note=" / ".join(over.stderr.splitlines())[-300:])
    s.check("it leaves the queue at its limit", wait_for(lambda: jobs() == "RUNNING", 10), ask("squeue"))
    second = s.start("exec", "--remote", CLUSTER, "--", "echo", "ran")
    s.check("the next job waits", wait_for(lambda: "PENDING" in jobs(), 30), ask("squeue"))
    s.rgpu("runs", "cancel", "slurm-holder")
    ended = s.finish(holder, 60)
    s.check("the cancelled command ends and says so", ended.status != 0 and "cancel" in ended.stderr,
            f"status {ended.status}: {ended.stderr[-400:]}", note=f"status {ended.status}")
    ran = s.finish(second, 60)
    s.check("and then the next one runs", (ran.status, ran.stdout) == (0, "ran\n"),
            f"status {ran.status}: {ran.stdout} {ran.stderr[-400:]}", note=f"{ran.seconds:.1f} s")
    s.check("the cancelled program is gone", wait_for(lambda: not held_programs(), 20), str(held_programs()))
    nothing_is_left(s, "a cancelled job")


def slurm(s):
    packages = str(Path(os.environ["GPU_DEBS"]) / "slurm") if "GPU_DEBS" in os.environ else ""
    up = subprocess.run([HERE / "host/slurm", "up", packages], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True, timeout=120)
    try:
        if not s.check("a cluster of this machine comes up", up.returncode == 0, up.stdout[-3000:], note=up.stdout.strip()[-100:]):
            return
        gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
        add_cluster(s)
        s.rgpu("remote", "check", CLUSTER)
        sees_its_gpus(s, gpus)
        profiles(s)
        waits_for_the_gpus(s, gpus)
        two_ranks(s, gpus)
    finally:
        for log in Path("/opt/gpu-slurm").glob("slurm*.log"):
            shutil.copy(log, s.out / "log" / f"slurm-{log.name}")
        subprocess.run([HERE / "host/slurm", "down"], check=False)
