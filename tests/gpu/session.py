"""One test session on a GPU host: runs rgpu as a user would, keeps every command's output, counts the checks."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARCHIVE_LIMIT = 15 * 1024 * 1024  # bytes of one archive
FILE_LIMIT = int(os.environ.get("FILE_MIB", "3")) * 1024 * 1024  # bytes of one file in it


class Finished:
    """A command that ended."""

    def __init__(self, argv, status, stdout, stderr, seconds):
        self.argv, self.status, self.seconds = argv, status, seconds
        self.stdout, self.stderr = stdout, stderr

    @property
    def json(self):
        """The JSON document on stdout; empty if there is none, so that the check fails and not the script."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            return {}


class Session:
    def __init__(self, rgpu, out, work):
        self.rgpu_path, self.out, self.work = Path(rgpu).resolve(), Path(out), Path(work)
        self.part, self.deadline, self.numbers = "setup", None, itertools.count(1)
        self.passed, self.failed = [], []
        self.project = self.work / "project"
        self.home = self.work / "home"
        for folder in (self.project, self.home, self.out / "log"):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "kernels", self.project / "kernels", dirs_exist_ok=True)
        (self.project / "rgpu.toml").touch()
        self.env = {
            "PATH": os.environ["PATH"] + ":/opt/gpu-host/usr/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        if "RGPU_LIBEXEC" in os.environ:
            self.env["RGPU_LIBEXEC"] = str(Path(os.environ["RGPU_LIBEXEC"]).resolve())

    def begin(self, part, seconds):
        self.part, self.deadline = part, time.monotonic() + seconds
        print(f"--- {part}", flush=True)

    def time_left(self):
        return self.deadline - time.monotonic()

    def start(self, *args):
        """Starts rgpu in the background; `finish` waits for it."""
        number = next(self.numbers)
        words = [re.sub(r"\W+", "-", str(a))[:24] for a in args if not str(a).startswith("-")]
        base = self.out / "log" / f"{number:03}-{self.part}-{'-'.join(words)[:60].strip('-')}"
        argv = [str(self.rgpu_path), *map(str, args)]
        with open(f"{base}.stdout", "wb") as stdout, open(f"{base}.stderr", "wb") as stderr:
            child = subprocess.Popen(
                argv, cwd=self.project, env=self.env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        return {"child": child, "base": base, "argv": argv, "began": time.monotonic()}

    def finish(self, running, timeout=240):
        child, base = running["child"], running["base"]
        try:
            status = child.wait(max(1, min(timeout, self.time_left())))
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
            self.check(f"`{' '.join(running['argv'][1:])}` ends in time", False)
        seconds = time.monotonic() - running["began"]
        stdout = Path(f"{base}.stdout").read_text(errors="replace")
        stderr = Path(f"{base}.stderr").read_text(errors="replace")
        command = " ".join(["rgpu", *running["argv"][1:]])
        Path(f"{base}.command").write_text(f"{command}\nstatus {status}, {seconds:.2f} s\n")
        return Finished(running["argv"], status, stdout, stderr, seconds)

    def rgpu(self, *args, expect=0, timeout=240):
        """Runs rgpu and checks its exit status against one number or several."""
        allowed = expect if isinstance(expect, tuple) else (expect,)
        ended = self.finish(self.start(*args), timeout)
        tail = (ended.stderr.strip().splitlines() or [""])[-6:]
        self.check(
            f"`rgpu {' '.join(map(str, args))}` exits with {' or '.join(map(str, allowed))}",
            ended.status in allowed,
            f"status {ended.status}: " + " / ".join(tail),
            note=f"{ended.seconds:.1f} s",
        )
        return ended

    def profile(self, *args, expect=0, timeout=240):
        """Runs `rgpu profile … --json` and returns the profile."""
        split = args.index("--") if "--" in args else len(args)
        return self.rgpu("profile", *args[:split], "--json", *args[split:], expect=expect, timeout=timeout).json

    def check(self, text, holds, detail="", note=""):
        line = f"{self.part}: {text}" + (f" ({note})" if note else "")
        if holds:
            self.passed.append(line)
            print(f"ok   {line}", flush=True)
        else:
            self.failed.append(line + (f": {detail}" if detail else ""))
            print(f"FAIL {line}" + (f"\n     {detail}" if detail else ""), flush=True)
        return bool(holds)

    def top_rung(self, name, profile):
        """Checks that each step ended on the first rung that it tried."""
        first = {}
        for record in profile.get("ladder", []):
            first.setdefault(record.get("step"), record)
        lower = [f"{r.get('rung')}: {r.get('code')} {r.get('message', '')}" for r in first.values() if not r.get("ok")]
        self.check(f"{name} reaches its top rung", first and not lower, "; ".join(lower) or "no ladder",
                   note=profile.get("rung", ""))

    def archive(self):
        """Packs all output and the run folders into one file, small files first: what no longer fits are reports."""
        (self.out / "summary.txt").write_text(
            "".join(f"ok   {line}\n" for line in self.passed) + "".join(f"FAIL {line}\n" for line in self.failed)
        )
        path, total = self.out / "gpu-run.tar.xz", 0
        path.unlink(missing_ok=True)
        named = [(file, f"artifacts/{file.relative_to(self.project / 'artifacts')}") for file in self.project.glob("artifacts/**/*")]
        named += [(file, f"config/{file.relative_to(self.home / '.config')}") for file in self.home.glob(".config/**/*")]
        named += [(file, str(file.relative_to(self.out))) for file in self.out.rglob("*")]
        sizes = [(file.stat().st_size, file, name) for file, name in named if file.is_file() and not file.is_symlink()]
        with tarfile.open(path, "w:xz", preset=2) as tar:
            for size, file, name in sorted(sizes):
                total += size
                if size > FILE_LIMIT or total > 12 * ARCHIVE_LIMIT:  # reports compress to a tenth or less
                    print(f"the archive is full: {file} and larger files are left out", file=sys.stderr)
                    return
                tar.add(file, arcname=f"gpu-run/{name}")
