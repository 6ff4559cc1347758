# --- ranges and report ------------------------------------------------------------------------


class Attributes(ctypes.Structure):
    """nvtxEventAttributes_t, versions 2 and 3."""

    _fields_ = [
        ("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32), ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32), ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_uint64), ("message_type", ctypes.c_int32), ("message", ctypes.c_char_p),
    ]


def nvtx_library():
    """The library with NVTX's functions, from torch's wheels or the toolkit."""
    folders = [os.path.join(path, "nvidia", "*", "lib") for path in sys.path if path]
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/lib/x86_64-linux-gnu"]
    for name in ("libnvtx3interop.so*", "libnvToolsExt.so*"):
        for path in [p for folder in folders for p in sorted(glob.glob(os.path.join(folder, name)))]:
            with contextlib.suppress(OSError, AttributeError):
                library = ctypes.CDLL(path)
                library.nvtxDomainCreateA.restype = ctypes.c_void_p
                library.nvtxDomainRangePushEx.argtypes = [ctypes.c_void_p, ctypes.POINTER(Attributes)]
                library.nvtxDomainRangePop.argtypes = [ctypes.c_void_p]
                return library
    return None


class Ranges:
    """Opens ranges in NVTX for tools, in torch's own trace, and in a log."""

    def __init__(self, log):
        self.log = open(log, "w", encoding="utf-8") if log else None  # closed with the process
        self.nvtx, self.domains, self.stack, self.annotate = nvtx_library(), {}, [], False
        self.begin = time.time_ns() - time.perf_counter_ns()
        self.line({"rgpu_ranges": 1, "clock": "unix_ns", "pid": os.getpid()})

    def line(self, what):
        if self.log:
            print(json.dumps(what), file=self.log, flush=True)

    @contextlib.contextmanager
    def open(self, name, domain=""):
        text = "".join(c if c.isascii() and c != "\0" else "?" for c in name)
        handle = None
        if self.nvtx:
            if domain and domain not in self.domains:
                self.domains[domain] = self.nvtx.nvtxDomainCreateA(domain.encode("ascii", "replace"))
            handle = self.domains.get(domain)
            attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), message_type=1, message=text.encode())
            self.nvtx.nvtxDomainRangePushEx(handle, ctypes.byref(attributes))
        self.stack.append((domain, name))
        start = time.perf_counter_ns() + self.begin
        shown = torch.profiler.record_function(f"{domain}@{text}" if domain else text) if self.annotate else contextlib.nullcontext()
        try:
            with shown:
                yield
        finally:
            end = time.perf_counter_ns() + self.begin
            domains, path = [d for d, _ in self.stack], [n for _, n in self.stack]
            self.line({"domain": "rgpu", "domains": domains, "path": path, "start_ns": start, "end_ns": end})
            self.stack.pop()
            if self.nvtx:
                self.nvtx.nvtxDomainRangePop(handle)


def region(name, domain=""):
    """A range that the kernel opens."""
    return RANGES.open(name, domain)


class Journal:
    """Builds the report. Until the end it holds the error that applies if the process dies now: after
    a signal, the report still names the phase and case. Only the process that started the job
    writes it: what a forked child measured is no result."""

    def __init__(self, job, out):
        self.out, self.phase, self.case, self.pid = out, None, None, os.getpid()
        self.report = {"abi": ABI, "runner": "harness.py", "kernel": CASE.get("kernel", ""), "job": job,
                       "cases": [], "warnings": [], "gaps": []}

    def gap(self, text):
        if text not in self.report["gaps"]:
            print(f"gap: {text}", flush=True)
            self.report["gaps"].append(text)

    def warn(self, kind, text):
        print(f"warning: {text}", flush=True)
        self.report["warnings"].append({"kind": kind, "text": text})

    def record(self, case, **what):
        cases = self.report["cases"]
        known = next((c for c in cases if c["name"] == case["name"]), None)
        if known is None:
            known = {"name": case["name"]}
            cases.append(known)
        known.update(what)

    @contextlib.contextmanager
    def enter(self, phase, case=None):
        self.phase, self.case = phase, case and case["name"]
        where = f"`{phase}` of `{self.case}`" if case else f"`{phase}`"
        if case:
            self.record(case)
        self.write(Fault("crash", f"the process ended during {where} without a message"))
        with contextlib.ExitStack() as open_ranges:
            open_ranges.enter_context(RANGES.open(phase, "rgpu"))
            if case:
                name = case["name"].replace(",", " ").replace("+", "&")
                open_ranges.enter_context(RANGES.open(name, "rgpu"))
            yield

    def write(self, fault=None):
        if os.getpid() != self.pid:
            print(f"error: process {os.getpid()} is a forked child of the harness (process {self.pid}) and writes "
                  "no report; call `os._exit` in a child that the kernel forks", file=sys.stderr, flush=True)
            os._exit(STATUS["crash"])
        if not self.out:
            return
        report = dict(self.report)
        if fault:
            error = {"class": fault.kind, "text": fault.text, "phase": self.phase, "case": self.case}
            report["error"] = {key: value for key, value in error.items() if value}
        with open(self.out + ".new", "w", encoding="utf-8") as file:
            json.dump(finite(report), file)
            file.write("\n")
        os.replace(self.out + ".new", self.out)


def finite(value):
    """Replaces values that JSON cannot express."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return sys.float_info.max if isinstance(value, float) and not math.isfinite(value) else value
