"""python_env.py ENV SPEC: makes a Python environment in the folder ENV, once.

SPEC is a JSON file: requirements, requires_python (or null), host_packages, is_optional. An optional
environment falls back to the host's Python, and leaves its torch as it is. If several jobs need
the same environment at once, one makes it under a lock and the others wait. Requirements with
hashes are a complete list: exactly those wheels are installed. uv makes the environment if the host
has it, else venv and pip; nothing outside ENV is written.
"""

import fcntl
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
from importlib import metadata


# Packages that come with torch, and so with CUDA's libraries.
BRING_TORCH = set(
    "torch torchvision torchaudio accelerate bitsandbytes deepspeed flash-attn lightning sglang vllm xformers".split()
)

# Packages that fit the host's driver and each other: an optional environment leaves them as they are.
OF_HOST = BRING_TORCH | {"cupy", "jax", "jaxlib", "numba", "tensorflow", "triton"}

# Lines of uv that only say that all goes well.
CHATTER = re.compile(
    r"(Using|Resolved|Prepared|Installed|Uninstalled|Audited|Building|Downloading|Updating) "
    r"|\s+([-+~]|Downloaded|Built|Updated) |\s*$"
)


def say(text):
    print("python_env: " + text, file=sys.stderr, flush=True)


def find_uv():
    places = [os.path.expanduser(place) for place in ("~/.local/bin/uv", "~/.cargo/bin/uv")]
    return next((uv for uv in [shutil.which("uv"), *places] if uv and os.access(uv, os.X_OK)), None)


def packaging():
    """The library that parses requirements, installed or from inside pip."""
    try:
        import packaging.requirements as found
    except ImportError:
        try:
            import pip._vendor.packaging.requirements as found
        except ImportError:
            return None
    return found


def satisfied(text, reader):
    """Whether the host's packages meet a requirement."""
    try:
        wanted = reader.Requirement(text)
        if wanted.url or wanted.extras:
            return False
        if wanted.marker is not None and not wanted.marker.evaluate():
            return True
        return wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except Exception:  # no such package or requirement: the installer decides
        return False


def is_for_this_python(text, reader):
    """Whether a requirement's marker, if it has one, is true for this Python."""
    try:
        marker = reader.Requirement(text.split(" --hash=")[0]).marker
        return marker is None or marker.evaluate()
    except Exception:  # no reader, or no requirement: the installer decides
        return True


def brings_torch(wanted, visible, reader):
    """Whether torch will be downloaded."""
    names = {re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0].lower().replace("_", "-") for text in wanted}
    return "torch" in names or bool(names & BRING_TORCH) and not (visible and satisfied("torch", reader))


def kept_on_host(text):
    """Whether the host has a package of torch or CUDA that a requirement names, in whatever version."""
    name = re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0].lower().replace("_", "-")
    if name not in OF_HOST and not name.startswith(("nvidia-", "cupy-", "jax-cuda")):
        return False
    try:
        version = metadata.version(name)
    except Exception:  # there is no such package
        return False
    say(f"the host's own {name} {version} is used, where {text} is asked for")
    return True


def use_host_python(env):
    """Makes ENV a folder with the host's own Python in it."""
    shutil.rmtree(env, ignore_errors=True)
    os.makedirs(os.path.join(env, "bin"))
    python = os.path.join(env, "bin", "python")
    with open(python, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexec " + shlex.quote(sys.executable) + ' "$@"\n')
    os.chmod(python, 0o755)


def large_download(line):
    """Name and size of a download that takes a while, from a line of uv or pip."""
    found = re.match(r"\s*Downloading (\S+) \((\d[\d.]* ?[MG]i?B)\)", line)
    if not found:
        return None
    name = found.group(1).rsplit("/", 1)[-1]
    if name.endswith((".whl", ".tar.gz", ".zip")):
        name = name.split("-")[0]
    return f"{name} ({found.group(2)})"


def install(command, uv):
    """Runs uv or pip, and passes on large downloads and what goes wrong. uv tells both on stderr, pip tells
    the downloads on stdout."""
    streams = {"stdout": sys.stderr, "stderr": subprocess.PIPE} if uv else {"stdout": subprocess.PIPE}
    with subprocess.Popen(command, universal_newlines=True, errors="replace", **streams) as process:
        for line in process.stderr if uv else process.stdout:
            download = large_download(line)
            if download:
                say("downloading " + download)
            elif uv and not CHATTER.match(line):
                print(line, end="", file=sys.stderr, flush=True)
    return process.returncode


def this_python_fits(spec):
    wanted, reader = spec["requires_python"], packaging()
    if not wanted or reader is None:
        return True
    version = ".".join(map(str, sys.version_info[:3]))
    return reader.Requirement("python" + wanted).specifier.contains(version, prereleases=True)


def show_packages_of_own_venv(env):
    """If this Python is a venv itself, `--system-site-packages` means the packages of the Python below it. Adds
    those of the venv after the environment's own."""
    if sys.prefix == sys.base_prefix:
        return
    for place in site.getsitepackages():
        inside = os.path.join(env, os.path.relpath(place, sys.prefix))
        if os.path.isdir(inside):
            with open(os.path.join(inside, "host_packages.pth"), "w", encoding="utf-8") as file:
                file.write(f"import site; site.addsitedir({place!r})\n")


def make(env, spec):
    uv = find_uv()
    fits = this_python_fits(spec)
    if not fits and uv is None:
        version = sys.version.split()[0]
        say(f"the host's Python is {version}, the file wants {spec['requires_python']}, and there is no uv to bring another")
        return 4
    wanted, visible, reader = spec["requirements"], [], packaging()
    if spec["host_packages"] and fits:
        visible = ["--system-site-packages"]
        wanted = [text for text in wanted if reader is None or not satisfied(text, reader)]
    if spec.get("is_optional") and fits:
        wanted = [text for text in wanted if is_for_this_python(text, reader) and not kept_on_host(text)]
        if not wanted:
            use_host_python(env)
            return ready(env, spec)
    shutil.rmtree(env, ignore_errors=True)
    if uv:
        python = sys.executable if fits else spec["requires_python"]
        done = subprocess.run([uv, "venv", "--quiet", "--python", python, *visible, env])
    else:
        done = subprocess.run([sys.executable, "-m", "venv", *visible, env], stdout=sys.stderr)
    if done.returncode:
        say("the environment cannot be made: install python3-venv, or uv, on the host")
        return 5
    if visible:
        show_packages_of_own_venv(env)
    if wanted:
        locked = any(" --hash=" in text for text in wanted)
        here = [text for text in wanted if is_for_this_python(text, reader)]
        names = dict.fromkeys(text.split(" ;")[0].split(" --hash=")[0] if locked else text for text in here)
        large = ": about 5 GB with CUDA's libraries, which takes minutes, once on this host"
        say("installing " + ", ".join(names) + (large if brings_torch(wanted, visible, reader) else ""))
        inside = os.path.join(env, "bin", "python")
        command = [inside, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        if uv:
            command = [uv, "pip", "install", "--python", inside]
        what = ["--", *wanted]
        if locked:  # exactly these wheels
            what = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", env + ".txt"]
            with open(what[-1], "w", encoding="utf-8") as listed:
                listed.write("\n".join(wanted) + "\n")
        if install([*command, *what], uv):
            return 6
    return ready(env, spec)


def ready(env, spec):
    with open(os.path.join(env, ".ready"), "w", encoding="utf-8") as file:
        json.dump(spec, file)
    return 0


def main():
    env, spec_file = sys.argv[1:]
    with open(spec_file, encoding="utf-8") as file:
        spec = json.load(file)
    os.makedirs(os.path.dirname(env), mode=0o700, exist_ok=True)
    with open(env + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(env, ".ready")):
            return 0
        try:
            status = make(env, spec)
        except KeyboardInterrupt:  # Ctrl-C ends the job
            say("stopped before the environment was complete")
            status = 130
        if status in (4, 5, 6) and spec.get("is_optional"):
            say("not all packages could be installed: the host's own Python runs the program, without them")
            use_host_python(env)
            return 0
        if status:
            shutil.rmtree(env, ignore_errors=True)
        return status


try:
    sys.exit(main())
except KeyboardInterrupt:  # while another job makes the environment
    sys.exit(130)
