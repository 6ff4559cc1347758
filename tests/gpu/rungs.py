"""Part `rungs`: reaches every rung once by making the rungs above it fail. Tools are hidden (`hide.py`), or replaced by
wrappers that fail in one way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cupti import collector
from hide import PLACES, hidden
from session import HERE, ROOT

NCU = ("--kernel", "vecadd", "--mode", "ncu")
NSYS = ("--kernel", "nested-regions", "--mode", "nsys")
REFUSED = ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
           "target device 0. For instructions on enabling permissions and to get more information see "
           "https://developer.nvidia.com/ERR_NVGPUCTRPERM")
USER = "rgpu-test-user"
# Replaces a missing sudo: runs a command as root for everyone who may execute it, but only with `-n`.
SUDO = r"""
#include <string.h>
#include <unistd.h>
int main(int n, char **word) {
  int i = 1, quiet = 0;
  for (; i < n && word[i][0] == '-'; i++) {
    if (!strcmp(word[i], "-n")) quiet = 1;
    if (!strcmp(word[i], "--")) { i++; break; }
  }
  if (!quiet || i >= n || setgid(0) || setuid(0)) return 1;
  execvp(word[i], word + i);
  return 127;
}
"""


def tool(name):
    import glob
    found = shutil.which(name)
    return found or next(path for pattern in PLACES[name] for path in reversed(sorted(glob.glob(pattern))))


WRAPPERS = Path("/tmp") / f"rgpu-rungs-{os.getpid()}"


def wrapper(s, name, script):
    """Makes a folder with one program, for a remote's `path`."""
    folder = WRAPPERS / name / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for above in (folder, folder.parent, folder.parent.parent):
        above.chmod(0o755)
    program = folder / script[0]
    program.write_text("#!/bin/bash\n" + script[1])
    program.chmod(0o755)
    return folder


def remote(s, name, user=None, path=None):
    address = f"ssh://{user or s.ssh['GPU_SSH_USER']}@{s.ssh['GPU_SSH_HOST']}:{s.ssh['GPU_SSH_PORT']}"
    s.rgpu("remote", "add", name, address, "--identity", s.ssh["GPU_SSH_KEY"], "--accept-new", *(["--path", path] if path else []))
    return name


def told(p):
    return "; ".join(f"{r['rung']}: {r.get('code')} {r.get('message', '')[:100]}" for r in p.get("ladder", []) if not r.get("ok"))


def reached(s, text, p, rung, **refused):
    """Checks the rung that was reached, and the codes of the failed rungs. Their names are written `ncu_asked` here."""
    ladder = [(r.get("rung"), r.get("code")) for r in p.get("ladder", []) if not r.get("ok")]
    wanted = [(r.replace("_", ".", 1), code) for r, code in refused.items()]
    lost = next((r.get("loses", "") for r in reversed(p.get("ladder", [])) if r.get("ok") and r.get("rung") == rung), "")
    s.check(f"{text}: the rung is {rung}", p.get("rung") == rung and all(w in ladder for w in wanted), f"{p.get('rung')}: {told(p)}"[:700],
            note=f"{told(p)}; lost: {lost or 'nothing'}")
    return p


def hidden_tools(s):
    with hidden("ncu"):
        p = s.profile(*NCU, "--remote", remote(s, "no-ncu"))
        reached(s, "ncu hidden", p, "nsys.cuda", ncu_asked="tool_missing")
    with hidden("ncu", "nsys"):
        name = remote(s, "no-nsight")
        p = reached(s, "ncu and nsys hidden", s.profile(*NCU, "--remote", name), "cupti", ncu_asked="tool_missing", nsys_cuda="tool_missing")
        s.check("ncu and nsys hidden: kernels have times", any((x.get("duration_ns") or 0) > 1000 for x in p.get("launches", [])), str(p.get("launches"))[:200])
        s.check("and the terminal says what is lost", "lost on this rung: " in s.rgpu("profile", *NCU, "--remote", name).stdout)
        s.rgpu("profile", *NCU, "--remote", name, "--at-least", "nsys.cuda", expect=5)
    with hidden("ncu", "nsys", "libcupti"):
        reached(s, "libcupti hidden too", s.profile(*NSYS, "--remote", remote(s, "no-cupti")), "nvtx",
                nsys_full="tool_missing", cupti="cupti_missing")
        library = collector()
        moved = [path for path in {*ROOT.glob("target/*/librgpu_collector.so"), *ROOT.glob("target/*/*/librgpu_collector.so"),
                                   *([Path(library)] if library else [])} if path.exists()]
        for path in moved:
            path.rename(f"{path}.hidden")
        try:
            reached(s, "the collector hidden too", s.profile(*NSYS, "--remote", "no-cupti"), "events", nvtx="collector_missing")
        finally:
            for path in moved:
                Path(f"{path}.hidden").rename(path)
    with hidden("compute-sanitizer"):
        p = s.profile("--kernel", "vecadd", "--mode", "sanitizer", "--remote", remote(s, "no-sanitizer"))
        reached(s, "compute-sanitizer hidden", p, "guard", sanitizer="tool_missing")
    with hidden("nvidia-smi"):
        p = s.profile(*NSYS, "--remote", remote(s, "no-gpu"))
        reached(s, "nvidia-smi hidden (a host without a GPU)", p, "nvtx", nsys_full="no_gpu")


def importer(s):
    reached(s, "nothing hidden", s.profile(*NSYS, "--remote", remote(s, "stale")), "nsys.full")
    with hidden("libdw") as moved:
        if not moved:
            s.check("the importer's library is somewhere", False, "no libdw was found to be hidden")
            return
        # The stored facts say that it works. So the tool itself fails, and rgpu remembers that.
        p = reached(s, "hidden since the facts were asked", s.profile(*NSYS, "--remote", "stale"), "cupti", nsys_full="importer_broken")
        tried = [r["rung"] for r in p.get("ladder", []) if r.get("argv") and r["rung"].startswith("nsys.")]
        s.check("nsys was tried once", tried == ["nsys.full"], str(tried))
        p = reached(s, "and the second time", s.profile(*NSYS, "--remote", "stale"), "cupti", nsys_full="importer_broken")
        skipped = [r for r in p.get("ladder", []) if r["rung"].startswith("nsys.") and "skipped: failed on" in r.get("message", "")]
        # The rung cupti is above nsys.nvtx, so nsys.nvtx is not tried.
        s.check("nsys is passed over, with the reason", {r["rung"] for r in skipped} >= {"nsys.full", "nsys.cuda"}
                and not any(r.get("argv") for r in skipped), told(p), note=skipped[0]["message"] if skipped else "")
    s.check("while it is remembered, mended or not", s.profile(*NSYS, "--remote", "stale").get("rung") == "cupti")
    s.rgpu("doctor", "stale", "--fresh", timeout=300)
    reached(s, "after `doctor --fresh`", s.profile(*NSYS, "--remote", "stale"), "nsys.full")
    # Facts are stored per host. Asking under another name would also have changed the facts of `stale`.
    with hidden("libdw"):
        s.rgpu("doctor", remote(s, "no-libdw"), "--fresh", timeout=300)
        p = s.profile(*NSYS, "--remote", "no-libdw")
        p = reached(s, "the importer's library hidden", p, "cupti", nsys_full="importer_broken")
        s.check("and it is named", "libdw" in told(p), told(p))
    s.rgpu("doctor", "stale", "--fresh", timeout=300)


def add_user(s):
    """Makes a user who is not root and can log in with the same key."""
    subprocess.run(["useradd", "-m", "-s", "/bin/bash", "-p", "*", USER], check=False, capture_output=True)
    keys = Path(s.ssh["GPU_SSH_KEY"]).parent
    keys.chmod(0o711)
    (keys / "authorized").chmod(0o644)


def counters(s):
    params = Path("/proc/driver/nvidia/params")
    restricted = params.exists() and "RmProfilingAdminOnly: 1" in params.read_text()
    add_user(s)
    ncu = tool("ncu")
    path = None
    if not restricted:
        print("     this driver gives counters to everyone: a wrapper refuses them in ncu's published words", flush=True)
        path = wrapper(s, "refusing", ("ncu", f"""
if [[ $(id -u) != 0 && "$*" != *--version* && "$*" != *LaunchStats* ]]; then echo '{REFUSED}'; exit 1; fi
exec {ncu} "$@"
"""))
    if not shutil.which("sudo"):
        source = s.work / "sudo.c"
        source.write_text(SUDO)
        folder = path or wrapper(s, "refusing", ("true", "exit 0\n"))
        subprocess.run(["cc", "-o", folder / "sudo", source], check=True)
        os.chmod(folder / "sudo", 0o4755)
        path = folder
        print("     there is no sudo: a setuid program stands in for it", flush=True)
    name = remote(s, "no-counters", USER, path)
    who = s.rgpu("exec", "--remote", name, "--", "id", "-un")
    if not s.check("someone who is not root can log in", who.stdout.strip() == USER, who.stdout + who.stderr[-300:]):
        return
    p = reached(s, "counters refused", s.profile(*NCU, "--remote", name), "ncu.launch", ncu_asked="counters_refused")
    s.check("the launch is known, no counter is", p.get("launches") and not any("throughput" in m for x in p["launches"] for m in x["metrics"]),
            str(p.get("launches"))[:200])
    p = reached(s, "counters refused, the second time", s.profile(*NCU, "--remote", name), "ncu.launch", ncu_asked="counters_refused")
    words = {r["rung"]: r.get("message", "") for r in p.get("ladder", []) if not r.get("argv")}
    s.check("ncu.asked and ncu.basic are skipped, and it says so", all("skipped: failed on" in words.get(r, "") for r in ("ncu.asked", "ncu.basic")),
            str(words), note=words.get("ncu.asked", ""))
    below = s.rgpu("profile", *NCU, "--remote", name, "--at-least", "ncu.basic", expect=5)
    s.check("--at-least says it too", "skipped: failed on" in below.stderr, below.stderr[-600:])
    p = reached(s, "counters refused, with --sudo", s.profile(*NCU, "--remote", name, "--sudo"), "ncu.sudo", ncu_asked="counters_refused")
    s.check("root's ncu brings counters", any(len(x["metrics"]) > 500 for x in p.get("launches", [])), str(p.get("launches"))[:200])
    p = s.profile(*NSYS, "--remote", name)
    s.check("nsys works for that user", p.get("rung") == "nsys.full", told(p), note=p.get("rung", ""))
    with hidden("nsys"):
        p = reached(s, "that user under CUPTI", s.profile(*NSYS, "--remote", remote(s, "no-counters-no-nsys", USER, path)), "cupti")
        s.check("CUPTI traces without leave to read counters", any((x.get("duration_ns") or 0) > 0 for x in p.get("launches", [])), str(p.get("gaps"))[:300],
                note=f"restricted by the driver: {restricted}")


def spoiled(s):
    ncu, nsys = tool("ncu"), tool("nsys")
    for how, code in (("empty", "empty_report"), ("nan", "nan_counters")):
        path = wrapper(s, how, ("ncu", f"""
{ncu} "$@"; status=$?
if [[ "$*" == *"--set full"* ]]; then
  while [[ $# -gt 0 && $1 != --export ]]; do shift; done
  {sys.executable} {HERE}/spoil.py {how} "$2.ncu-rep"
fi
exit $status
"""))
        p = s.profile(*NCU, "--remote", remote(s, f"{how}-reports", path=path))
        reached(s, f"{how} reports", p, "ncu.basic", ncu_asked=code)
    path = wrapper(s, "no-rows", ("nsys", f'exec {nsys} "${{@/--trace=cuda,nvtx/--trace=nvtx}}"\n'))
    p = s.profile(*NSYS, "--remote", remote(s, "no-gpu-rows", path=path))
    reached(s, "traces without GPU rows", p, "cupti", nsys_full="no_gpu_rows", nsys_cuda="no_gpu_rows")
    path = wrapper(s, "no-cuda", ("nsys", f'if [[ "$*" == *cuda* ]]; then echo "nsys: no CUDA today" >&2; exit 1; fi\nexec {nsys} "$@"\n'))
    with hidden("libcupti"):
        p = s.profile(*NSYS, "--remote", remote(s, "no-cuda-traces", path=path))
    reached(s, "no CUDA trace and no libcupti", p, "nsys.nvtx", nsys_full="exit", nsys_cuda="exit")


def rungs(s):
    try:
        for case in (hidden_tools, importer, counters, spoiled):
            try:
                case(s)
            except Exception as problem:  # an exception of one case must not hide the other cases
                s.check(f"`{case.__name__}` runs to its end", False, repr(problem))
    finally:
        shutil.rmtree(WRAPPERS, ignore_errors=True)  # the folder has a setuid program
        subprocess.run(["userdel", "-r", USER], check=False, capture_output=True)
