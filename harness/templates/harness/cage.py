# --- the candidate's cage ---------------------------------------------------------------------
#
# Before the kernel's module is loaded, its process gives up what it needs to reach the judge's and the
# author's memory: the capabilities of root for that, and the system calls (a filter that its threads
# and children inherit). After the one-time work of a case, it opens no connections any more. Files can
# still be read, and programs started: compilers are programs.

# Numbers of system calls: x86-64, and 64-bit ARM.
CAGED_CALLS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "bpf": (321, 280), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "unshare": (272, 97), "setns": (308, 268), "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265), "init_module": (175, 105), "finit_module": (313, 273), "keyctl": (250, 219),
    # The judge's clock can be slewed by a tenth; a ring of the kernel opens sockets past the filter.
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "clock_settime": (227, 112), "settimeofday": (164, 170),
    "io_uring_setup": (425, 425)}
SOCKET_CALL = (41, 198)
# IPv4, IPv6 and raw packets; Unix sockets stay.
NETWORK_FAMILIES = (2, 10, 17)
# The kernel's names for both: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64.
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# net_admin, sys_module, sys_rawio, sys_ptrace, sys_admin, sys_boot, sys_time, perfmon, bpf, checkpoint_restore.
LOST_CAPABILITIES = (12, 16, 17, 19, 21, 22, 25, 38, 39, 40)
EPERM = 1


def filter_step(code, k, jt=0, jf=0):
    return struct.pack("<HBBI", code, jt, jf, k)


def load_word(offset):
    return filter_step(0x20, offset)


def refuse_if(value):
    """Refuses the call if the loaded word has this value."""
    return filter_step(0x15, value, 0, 1) + filter_step(0x06, 0x00050000 | EPERM)


def add_filter(steps):
    """Adds a filter of system calls to all threads of this process; false if the host refuses."""
    column, machine = MACHINES[os.uname().machine]
    # A call by the numbers of another machine is refused.
    head = load_word(4) + filter_step(0x15, machine, 1, 0) + filter_step(0x06, 0x00050000 | EPERM)
    program = head + load_word(0) + steps(column) + filter_step(0x06, 0x7FFF0000)
    text = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
    seccomp = 317 if column == 0 else 277
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    # 1: SECCOMP_SET_MODE_FILTER, then SECCOMP_FILTER_FLAG_TSYNC.
    return libc.syscall(ctypes.c_long(seccomp), ctypes.c_long(1), ctypes.c_long(1), ctypes.c_char_p(whole)) == 0


def caged_calls(column):
    # On x86-64, numbers from 2^30 are another form of the same calls.
    other_form = filter_step(0x35, 0x40000000, 0, 1) + filter_step(0x06, 0x00050000 | EPERM)
    return other_form + b"".join(refuse_if(numbers[column]) for numbers in CAGED_CALLS.values())


def network_calls(column):
    families = b"".join(refuse_if(family) for family in NETWORK_FAMILIES)
    return filter_step(0x15, SOCKET_CALL[column], 0, 1 + len(families) // 8) + load_word(16) + families


def lose_capabilities():
    """Gives up what lets root read other processes; does nothing for other users."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("<Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    if libc.capget(ctypes.c_char_p(header), data) != 0:
        return False
    lost = sum(1 << number for number in LOST_CAPABILITIES)
    words = list(struct.unpack("<6I", data.raw))
    for number, word in enumerate(words):
        words[number] = word & ~(lost >> 32 if number >= 3 else lost & 0xFFFFFFFF)
    return libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(struct.pack("<6I", *words))) == 0


def caged(step):
    """Whether a step of the cage holds; a host may know no filters."""
    try:
        return bool(step())
    except (OSError, AttributeError, KeyError):
        return False


def enter_cage():
    """What this host does not hold of the first part of the cage."""
    prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    missing = [] if caged(lose_capabilities) else ["capabilities"]
    return missing + ([] if caged(lambda: add_filter(caged_calls)) else ["system calls"])


def close_network():
    return [] if caged(lambda: add_filter(network_calls)) else ["the network"]


# What is kept of a file to put it back, in bytes; larger ones are removed where they were changed.
KEPT_BYTES = 16 << 20
# What Python would import, and folders whose files the kernel's process makes for itself.
IMPORTED = (".py", ".pyc", ".so")
OWN_FOLDERS = ("raw", "extension")


def files_of_job():
    """The paths of the job's code and of what lies in its folders; links are not followed. Reports and
    logs may lie beside the harness."""
    for folder, inner, names in os.walk(HERE):
        if folder == HERE:
            inner[:] = [name for name in inner if name not in OWN_FOLDERS]
            names = [name for name in names if name.endswith(IMPORTED)]
        yield from (os.path.join(folder, name) for name in names)


def identity(path):
    """What changes with a file. The time of its last change cannot be set back."""
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class JobFiles:
    """The files of this job as they were sent. A kernel's process can write to them, but the jobs that
    follow, and modules that the author's process imports late, must not run what it wrote."""

    def __init__(self):
        self.known = {path: (identity(path), self.text_of(path)) for path in files_of_job()}

    @staticmethod
    def text_of(path):
        if not os.path.isfile(path) or os.path.islink(path) or os.path.getsize(path) > KEPT_BYTES:
            return None
        with open(path, "rb") as file:
            return file.read()

    def changed(self):
        names = []
        for path, (before, _) in self.known.items():
            with contextlib.suppress(OSError):
                if identity(path) == before:
                    continue
            names.append(path)
        return names

    def restore(self):
        """Puts back what was changed, and removes modules that came to it. Returns the names of the former."""
        changed = self.changed()
        made = [path for path in files_of_job() if path not in self.known and path.endswith(IMPORTED)]
        for path in changed + made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        for path in changed:
            text = self.known[path][1]
            if text is not None:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb") as file:
                    file.write(text)
        return [os.path.relpath(path, HERE) for path in changed]


def leave_own_folder():
    """The kernel's process can write into the harness's folder: nothing is imported from there."""
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.realpath(HERE)]


def freeze_imports():
    """From here on, the folders of the job have no module that they did not have before."""
    for folder in [path for path in sys.path if os.path.realpath(path).startswith(os.path.realpath(HERE) + os.sep)]:
        finder = pkgutil.get_importer(folder)
        if hasattr(finder, "_fill_cache"):
            finder.invalidate_caches()
            finder.find_spec("rgpu_no_such_module")
            finder._fill_cache = lambda: None
