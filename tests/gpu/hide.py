"""Hides tools and libraries of a GPU host: renames files, and renames them back. On a read-only file system it mounts
a copy of the folder without these files over it, or an empty file over each file; both need root."""

import contextlib
import errno
import glob
import os
import shutil
import subprocess
import sys
import tempfile

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
# A prefix: `libcupti.so.13` with a suffix would still be taken for a libcupti.
HIDDEN = "hidden-by-rgpu-tests."


def hidden_path(path):
    """The path of a file while it is hidden."""
    return os.path.join(os.path.dirname(path), HIDDEN + os.path.basename(path))


def find_on_path(thing):
    for folder in os.environ["PATH"].split(":"):
        if shutil.which(thing, path=folder):
            yield os.path.join(folder, thing)


def find_in_python_packages():
    """libcupti in the packages of this host's Python, found as rgpu finds them."""
    ask = "import glob, sys; [print(p) for f in sys.path for p in glob.glob(f + '/nvidia/*/lib/libcupti.so*')]"
    told = subprocess.run(["python3", "-c", ask], check=False, capture_output=True, text=True)
    return told.stdout.split("\n")[:-1]


def find_paths(thing):
    known = [path for pattern in PLACES[thing] for path in sorted(glob.glob(pattern))]
    return [*known, *find_on_path(thing), *(find_in_python_packages() if thing == "libcupti" else [])]


def try_mount(*words):
    done = subprocess.run(["mount", *words], check=False, capture_output=True, text=True)
    return done.returncode == 0


def has_mount_below(folder):
    """Whether something is mounted below a folder. A mount over the folder would hide that too."""
    with open("/proc/self/mounts") as mounts:
        return any(line.split()[1].startswith(folder.rstrip("/") + "/") for line in mounts)


class HiddenFiles:
    """The changes made so far. They are undone in reverse order."""

    def __init__(self):
        self.undo = []

    def hide(self, paths):
        fixed = {}
        for path in paths:
            try:
                os.rename(path, hidden_path(path))
                self.undo.append(lambda path=path: os.rename(hidden_path(path), path))
            except OSError as problem:
                if problem.errno not in (errno.EROFS, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES):
                    raise
                fixed.setdefault(os.path.realpath(os.path.dirname(path)), []).append(os.path.basename(path))
        for folder, names in fixed.items():
            if has_mount_below(folder) or not self.cover_folder(folder, names):
                for name in names:
                    self.cover_file(os.path.join(folder, name))

    def cover_folder(self, folder, names):
        """Mounts an overlay in which these names are marked as removed over the folder."""
        layer = tempfile.mkdtemp(prefix="rgpu-hide-")
        if not try_mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", layer):
            os.rmdir(layer)
            return False

        def forget():
            subprocess.run(["umount", "-l", layer], check=False)
            os.rmdir(layer)

        try:
            for name in names:
                os.mknod(os.path.join(layer, name), 0o600 | 0o020000, os.makedev(0, 0))
            covered = try_mount("-t", "overlay", "overlay", "-o", f"ro,lowerdir={layer}:{folder}", folder)
        except OSError:
            covered = False
        if not covered:
            forget()
            return False
        self.undo.append(forget)
        self.undo.append(lambda: subprocess.run(["umount", "-l", folder], check=True))
        return True

    def cover_file(self, path):
        """Mounts an empty file without permissions over the path, which is neither a program nor a library."""
        with tempfile.NamedTemporaryFile(prefix="rgpu-hide-", delete=False) as empty:
            os.chmod(empty.name, 0)
        self.undo.append(lambda: os.unlink(empty.name))
        if not try_mount("--bind", empty.name, path):
            raise OSError(f"`{path}` can be neither renamed nor mounted over here")
        self.undo.append(lambda: subprocess.run(["umount", "-l", path], check=True))

    def restore(self):
        for step in reversed(self.undo):
            try:
                step()
            except (OSError, subprocess.CalledProcessError) as problem:  # restore the others anyway
                print(f"     not put back: {problem}", file=sys.stderr)


@contextlib.contextmanager
def hidden(*things):
    """Hides `things` on the host; yields the paths that were found and hidden."""
    hidden_files, gone = HiddenFiles(), []
    try:
        for thing in things:
            found = [path for path in dict.fromkeys(find_paths(thing)) if not os.path.basename(path).startswith(HIDDEN) and os.path.lexists(path)]
            # Several paths may lead to the same folder; one is enough.
            found = list({(os.path.realpath(os.path.dirname(p)), os.path.basename(p)): p for p in found}.values())
            gone += found
            hidden_files.hide(found)
        if gone:
            # -X: without it, ldconfig removes links whose files were renamed.
            subprocess.run(["ldconfig", "-X"], check=False)
        yield gone
    finally:
        hidden_files.restore()
        if gone:
            subprocess.run(["ldconfig", "-X"], check=False)
