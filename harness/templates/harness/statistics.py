# --- statistics -------------------------------------------------------------------------------


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(values):
    """The order-statistic interval of the median at 95 % or more."""
    ordered, n = sorted(values), len(values)
    log_term, rank = -n * math.log(2), 1
    below = math.exp(log_term)
    for k in range(1, n // 2 + 1):
        if 2 * below > 0.05:
            break
        rank = k
        log_term += math.log(n - k + 1) - math.log(k)
        below += math.exp(log_term)
    return [ordered[rank - 1], ordered[n - rank]]


class Sampling:
    """Decides when to stop and which samples count, and summarises them."""

    def __init__(self, least, seconds):
        self.samples, self.clocks, self.least = [], [], least
        self.deadline = time.perf_counter() + seconds

    def converged(self, values):
        low, high = interval(values)
        return (high - low) / 2 <= TIMING.get("ci_target", 0.005) * median(values)

    def wanted(self):
        if TIMING.get("iters"):
            return TIMING["iters"] - len(self.samples)
        enough = len(self.samples) >= self.least and self.converged(self.kept())
        late = len(self.samples) >= 3 and time.perf_counter() >= self.deadline
        return 0 if enough or late else 10_000 - len(self.samples)

    def discarded(self):
        """Samples of batches at a slow clock or while throttled; none if that is the GPU's normal state."""
        usual = median([c["sm_mhz"] for c in self.clocks if c.get("sm_mhz")] or [0])
        out = []
        for i, clock in enumerate(self.clocks):
            end = self.clocks[i + 1]["first_sample"] if i + 1 < len(self.clocks) else len(self.samples)
            if clock.get("throttle") or clock.get("sm_mhz", usual) < 0.95 * usual:
                out += range(clock["first_sample"], end)
        return [] if len(out) * 2 > len(self.samples) else out

    def kept(self):
        out = set(self.discarded())
        return [s for i, s in enumerate(self.samples) if i not in out]

    def finish(self, source, flushed, verified, overhead=None):
        kept = self.kept()
        middle = median(kept)
        return {
            "source": source, "median_ns": middle, "ci95_ns": interval(kept), "samples": len(kept),
            "min_ns": min(kept), "mad_ns": median([abs(s - middle) for s in kept]),
            "sample_ns": self.samples, "discarded": self.discarded(), "converged": self.converged(kept),
            "overhead_ns": overhead, "l2_flushed": flushed, "clocks": self.clocks,
            "verified": verified if REFERENCE else None,
        }


class Nvml:
    """Reads clocks, temperature, power and throttling, if the driver's library is present."""

    REASONS = {0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost", 0x20: "sw_thermal",
               0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clock"}

    def __init__(self, uuid):
        self.handle = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self.library.nvmlInit_v2() == 0 and self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                self.handle = handle
        except (OSError, AttributeError):
            pass
        if self.handle is None:
            JOURNAL.gap("NVML does not tell the GPU's clocks")

    def number(self, function, *before):
        value = ctypes.c_ulonglong(0)
        try:
            ok = getattr(self.library, function)(self.handle, *before, ctypes.byref(value)) == 0
        except AttributeError:
            return None
        return value.value if ok else None

    def reading(self, first):
        if self.handle is None:
            return None
        reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return {"first_sample": first, "sm_mhz": self.number("nvmlDeviceGetClockInfo", 1),
                "mem_mhz": self.number("nvmlDeviceGetClockInfo", 2),
                "temperature_c": self.number("nvmlDeviceGetTemperature", 0),
                "power_mw": self.number("nvmlDeviceGetPowerUsage"),
                "throttle": [name for bit, name in self.REASONS.items() if reasons & bit]}
