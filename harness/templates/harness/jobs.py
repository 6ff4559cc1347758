# --- jobs -------------------------------------------------------------------------------------


def prepared(case):
    with JOURNAL.enter("setup", case):
        return Kernel(case)


def warm_up(kernel, calls):
    with JOURNAL.enter("warmup", kernel.case):
        for _ in range(calls):
            kernel.restore()
            call(kernel)
        synchronize()


def cases_for(job):
    """The cases that a job takes."""
    return [case for case in CASE["cases"] if not case.get("jobs") or job in case["jobs"]]


class Budget:
    """Shares the time of a job among the cases of a problem, which may have dozens: a GPU is not held
    for minutes. Each case is checked and timed all the same."""

    # Seconds of the cases together.
    SECONDS = {"verify": 30.0, "time": 45.0}
    # The least for the samples of a case.
    LEAST = 0.3

    def __init__(self, job, count):
        seconds = self.SECONDS.get(job) if CASE.get("board") and count > 1 else None
        self.until = math.inf if seconds is None else time.monotonic() + seconds
        self.count, self.asked, self.checked_once, self.is_short = count, TIMING.get("max_seconds", 10.0), [], False

    def is_spent(self):
        return time.monotonic() >= self.until

    def start(self, number):
        """Sets the seconds for the samples of a case: its share of what is left."""
        if math.isfinite(self.until):
            share = (self.until - time.monotonic()) / (self.count - number)
            TIMING["max_seconds"] = min(self.asked, max(share, self.LEAST))
            self.is_short = self.is_short or share < self.LEAST

    def tell(self):
        if self.checked_once:
            JOURNAL.gap(f"{len(self.checked_once)} of {self.count} cases, from `{self.checked_once[0]}` on, were checked on their own "
                        f"data alone and not on unknown data too: all cases together have {self.SECONDS['verify']:.0f} s")
        if self.is_short:
            JOURNAL.gap(f"the {self.count} benchmarks share {self.SECONDS['time']:.0f} s, so that the last ones have few samples; "
                        "`--problem-sizes NAME` times one for longer")


BUDGET = None


def verify(kernel):
    """Makes two calls on the same data, each with its own poison in the outputs."""
    with JOURNAL.enter("verify", kernel.case):
        runs, kernel.refused, changed = [], [], []
        if kernel.popcorn:
            # Calls before may have changed them.
            restore_tensors([(now, before) for _, now, before in kernel.kept])
        for pattern in (0, 1):
            kernel.restore(pattern)
            outputs = call(kernel)
            synchronize()
            kernel.check_shapes(outputs)
            changed += [name for name in kernel.changed_inputs() if name not in changed]
            if kernel.checker:
                kernel.refused.append(kernel.refusal(kernel.given))
            runs.append([(name, g, copied(t)) for name, g, t in outputs])
            if changed and kernel.popcorn:
                restore_tensors([(now, before) for _, now, before in kernel.kept])
        return conclude(kernel, runs, changed)


def conclude(kernel, runs, changed):
    """Records what two calls on the same data gave. The fault if that is wrong."""
    first, second = runs
    equal = all(same_bytes(a, b) for (_, _, a), (_, _, b) in zip(first, second))
    checked, problem = [], checked_by_task(kernel, first)
    for i, (name, group, got) in enumerate(first):
        if kernel.checker:
            # It decides which elements matter.
            checked.append({"name": name, "group": group, "elements": got.numel(), "mismatches": 0, "max_abs_error": 0.0, "max_rel_error": 0.0})
        if kernel.expected is None or kernel.checker:
            continue
        left = unwritten(got, second[i][2])
        wanted = kernel.expected[i][2]
        bad, most_abs, most_rel = (x.item() for x in difference(got, wanted))
        entry = {"name": name, "group": group, "elements": got.numel(), "mismatches": bad,
                 "unwritten": left, "max_abs_error": most_abs, "max_rel_error": most_rel}
        if bad:
            entry["first_mismatch"] = first_mismatch(got, wanted)
        checked.append(entry)
    passed = not problem and not changed and all(not c.get("unwritten") and passes(c["mismatches"], c["elements"]) for c in checked)
    JOURNAL.record(kernel.case, correctness={"passed": passed, "outputs": checked, "bit_equal": equal, "changed_inputs": changed,
                                             "checker": problem if kernel.checker else None})
    if kernel.expected is None and not kernel.checker:
        JOURNAL.gap("the kernel has no reference: its values were not checked")
    verdict = "right" if passed else problem or (f"input `{changed[0]}` was changed" if changed else "wrong values")
    if kernel.expected is None and not kernel.checker and passed:
        verdict = "nothing to compare with"
    print(f"verify {kernel.case['name']}: {verdict}", flush=True)
    return None if passed else Fault("wrong_result", f"the kernel's results are wrong for `{kernel.case['name']}`: {verdict}")


def checked_by_task(kernel, outputs):
    """The message of the task's own check; none if it passes."""
    if kernel.checker or kernel.refused:
        return next(filter(None, kernel.refused), "")
    check = getattr(kernel.reference_module, "check_implementation", None)
    if not kernel.popcorn or not callable(check):
        return ""
    given = [t for _, _, t in outputs]
    said = blamed(lambda: check(kernel.data, given[0] if len(given) == 1 else type(given)(given)), "check_implementation", "reference")
    return message_of(said, "check_implementation")


class Watch:
    """Compares timed outputs on the device without synchronising."""

    def __init__(self):
        self.bad, self.calls = None, 0

    def see(self, kernel, outputs):
        if kernel.expected is None:
            return
        for (name, _, got), (_, _, wanted) in zip(outputs, kernel.expected):
            bad, _, _ = difference(got, wanted)
            over = (bad - CASE.get("tolerance", {}).get("mismatch_fraction", 0.0) * got.numel()).clamp(min=0)
            self.bad = over if self.bad is None else self.bad + over
        self.calls += 1

    def check(self, kernel):
        """Lets the task's own function judge the last call; it waits for the GPU."""
        if kernel.checker:
            self.calls += 1
            problem = kernel.refusal(kernel.given)
            if problem:
                raise Fault("wrong_result", f"a timed call on `{kernel.case['name']}` gave wrong values: {problem}")

    def judge(self, kernel):
        if self.bad is not None and self.bad.item() > 0:
            raise Fault("wrong_result", f"a timed call on `{kernel.case['name']}` gave wrong values, {int(self.bad.item())} over {self.calls} calls, where the check before was content")


def flush_buffer():
    if not TIMING.get("flush_l2", True) or DEVICE != "cuda":
        return None
    # Twice the size of L2, since writing just its size need not replace every line.
    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return torch.empty(max(2 * size, 1 << 20), dtype=torch.uint8, device=DEVICE)


def reset_persisting_l2():
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()


def is_late(rest_ns, took_ns):
    """Whether the GPU was still busy after a call's events, because it uses a stream of its own."""
    return rest_ns > max(50_000.0, 0.2 * took_ns)


def on_a_stream_of_its_own(kernel):
    JOURNAL.gap(f"`{kernel.case['name']}`: the GPU is still busy after the events around a call, so the kernel uses its own stream; it was timed with the host's clock")


def whole_calls(kernel):
    """Whether calls end later than their events, and the duration of one by the host's clock."""
    late, took, whole = [], [], []
    for _ in range(5):
        kernel.restore()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin = time.perf_counter_ns()
        start.record()
        call(kernel)
        end.record()
        end.synchronize()
        passed = time.perf_counter_ns()
        torch.cuda.synchronize()
        whole.append(time.perf_counter_ns() - begin)
        late.append(time.perf_counter_ns() - passed)
        took.append(start.elapsed_time(end) * 1e6)
    return is_late(median(late), median(took)), float(median(whole))


def matrix_rate(dtype):
    """The best measured rate of large matrix products in FLOP/s, used as peak without a datasheet."""
    size = 8192 if DEVICE == "cuda" else 1024
    a, b = (torch.ones(size, size, dtype=dtype, device=DEVICE) for _ in range(2))
    best, until = math.inf, time.perf_counter() + 1.0
    while time.perf_counter() < until:
        synchronize()
        begin = time.perf_counter()
        a @ b
        synchronize()
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best


def rate_of_model():
    """Measured once, beside the model's own times."""
    model = JOURNAL.report.get("model")
    dtype = model and getattr(torch, model.get("dtype") or "", None)
    if dtype is not None and "matmul_flops_per_s" not in model:
        with contextlib.suppress(RuntimeError):
            model["matmul_flops_per_s"] = matrix_rate(dtype)


def enqueue_cycles(call, restore):
    """Clock cycles, at 2 GHz, that keep the GPU busy twice as long as the host needs to enqueue a call,
    so that the time between the events contains no launch latency; on new data the host needs longer.
    A call of many launches is not fully covered: waiting between its launches counts as its time."""
    took = []
    for _ in range(5):
        restore()
        synchronize()
        begin = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - begin)
    synchronize()
    return int(min(max(took), 500_000.0) * 4)


# With fewer calls on new data within the time limit, all calls share one set.
FEWEST_FRESH_CALLS = 10


def gets_new_data(kernel):
    """Whether each timed call gets its own contents: by default if a reference gives the expected
    outputs. Only on request for a model, whose reference may take a thousand times as long and whose
    tolerance was chosen for certain data, and on a CPU, where it would double the time."""
    is_judged = kernel.reference is not None or kernel.checker is not None
    by_itself = DEVICE == "cuda" and is_judged and not ENTRY.get("prepare")
    if by_itself and kernel.popcorn and not ENTRY.get("fresh") and kernel.fill_s * FEWEST_FRESH_CALLS > TIMING.get("max_seconds", 10.0):
        JOURNAL.gap(f"`{kernel.case['name']}`: its data take {kernel.fill_s:.1f} s to make, so that all timed calls share one set")
        return False
    return ENTRY.get("fresh") or by_itself


def timed(kernel, clock, flush, nvml, wall_ns, why):
    """Samples one case with CUDA events or the host's clock."""
    on_cpu, fresh, late = DEVICE == "cpu", gets_new_data(kernel), 0
    least, seconds = TIMING.get("min_iters", 30), TIMING.get("max_seconds", 10.0)
    sampling, watch = Sampling(min(least, 5) if on_cpu else least, min(seconds, 2.0) if on_cpu else seconds), Watch()
    batch, number, overhead = 1, 0, None
    if clock == "events":
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(64)]
        for start, end in pairs[:25]:
            start.record()
            end.record()
        torch.cuda.synchronize()
        overhead = median([start.elapsed_time(end) * 1e6 for start, end in pairs[:25]])
        hold = enqueue_cycles(lambda: call(kernel), kernel.restore)
    with JOURNAL.enter("timed", kernel.case):
        while (wanted := sampling.wanted()) > 0:
            # A batch keeps the GPU busy for about 50 ms, so that readings fall within it.
            if sampling.samples and clock == "events" and not fresh:
                batch = max(1, min(64, int(50e6 / max(median(sampling.samples), 1.0))))
            batch = min(batch, wanted)
            taken = []
            for i in range(batch):
                number += 1
                if fresh:
                    kernel.refill(SEED + SEED_STEP * number)
                kernel.restore()
                if flush is not None:
                    reset_persisting_l2()
                    flush.zero_()
                if clock == "events":
                    torch.cuda._sleep(hold)
                    pairs[i][0].record()
                    outputs = call(kernel)
                    pairs[i][1].record()
                    if fresh:
                        pairs[i][1].synchronize()
                        passed = time.perf_counter_ns()
                        torch.cuda.synchronize()
                        late += is_late(time.perf_counter_ns() - passed, pairs[i][0].elapsed_time(pairs[i][1]) * 1e6)
                else:
                    synchronize()
                    begin = time.perf_counter_ns()
                    outputs = call(kernel)
                    synchronize()
                    taken.append(float(time.perf_counter_ns() - begin))
                watch.see(kernel, outputs)
                del outputs
            reading = nvml and nvml.reading(len(sampling.samples))
            synchronize()
            if clock == "events":
                taken = [start.elapsed_time(end) * 1e6 for start, end in pairs[:batch]]
            sampling.samples += taken
            if reading:
                sampling.clocks.append(reading)
            watch.check(kernel)
            watch.judge(kernel)
    if 2 * late > len(sampling.samples):
        on_a_stream_of_its_own(kernel)
        return timed(kernel, "host", flush, nvml, wall_ns, why)
    timing = sampling.finish("events" if clock == "events" else "host", flush is not None, watch.calls, overhead)
    timing.update(distinct_inputs=number if fresh and kernel.varies() else 1, wall_ns=wall_ns, flushed_bytes=None if flush is None else flush.numel(),
                  trust="unprotected", trust_reason=why)
    JOURNAL.record(kernel.case, timing=timing)
    print(f"{JOURNAL.report['job']} {kernel.case['name']}: median {timing['median_ns'] / 1e3:.3f} us, "
          f"{timing['samples']} samples, {watch.calls} outputs compared", flush=True)


def judged(case, work):
    """Does `work` with a judge of this case; the reason if the kernel cannot be judged."""
    judge = None
    try:
        with JOURNAL.enter("setup", case):
            judge = Judge(case)
            judge.open(1)
        return work(judge), None
    except Unsuited as why:
        return None, str(why)
    finally:
        if judge is not None:
            judge.close()


def each_case(with_judge, alone, before=lambda case: None):
    """Does a job's work on each case: with kernel and reference in processes of their own, or where
    that cannot be, `alone` with the reason. `before` comes before the kernel is loaded."""
    global BUDGET, CANDIDATE, AUTHOR
    cases = cases_for(JOURNAL.report["job"])
    BUDGET = Budget(JOURNAL.report["job"], len(cases))
    if not REFERENCE:
        return [alone(case, i, "nothing checks its results") for i, case in enumerate(cases)]
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing holds the GPU when whoever started this is killed
    prctl(4, 0)  # PR_SET_DUMPABLE: a process of the same user can neither trace nor read this one
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what the candidate leaves behind becomes our child
    leave_own_folder()
    results, processes, files = [], [], JobFiles()
    try:
        with JOURNAL.enter("setup"):
            AUTHOR, CANDIDATE = AuthorProcess(), CandidateProcess()
            processes += [AUTHOR, CANDIDATE]
            # Nothing of the kernel runs before `CANDIDATE.begin`.
            AUTHOR.measure_turns()
            AUTHOR.begin()
            for case in cases if ENTRY.get("baselines") else []:
                before(case)
            CANDIDATE.begin()
        for i, case in enumerate(cases):
            BUDGET.start(i)
            done, why = judged(case, lambda judge: with_judge(judge, i))
            results.append(alone(case, i, why) if why is not None else done)
        BUDGET.tell()
    finally:
        try:
            end_all(processes)
        finally:
            changed = files.restore()
    if changed:
        raise Fault("not_credible", f"not credible: the kernel's process changed `{changed[0]}`, which is not its own")
    return results


def verify_judged(judge):
    """Two calls on the same data, from the seed that was asked for and from one that nobody knew."""
    case = judge.case
    with JOURNAL.enter("verify", case):
        judge.find_outputs(judge.warm_up(1, 0.0)["outputs"])
        is_again = judge.makes_new and not BUDGET.is_spent()
        if judge.makes_new and not is_again:
            BUDGET.checked_once.append(case["name"])
        for data in [judge.first] + ([judge.fresh()] if is_again else []):
            runs, changed = [], []
            for pattern in (0, 1):
                order = judge.prepare([data], pattern)
                judge.show()
                CANDIDATE.ask("plain", order=order)
                answer = CANDIDATE.hear(ANSWER_SECONDS)
                memory = judge.arena.bytes.clone()
                outputs = judge.outputs(0, listed(answer, "outputs", 1)[0], memory)
                names = [(name, g) for name, g, _ in data.expected]
                runs.append([(name, g, t) for (name, g), t in zip(names, outputs)])
                changed = changed or judge.changed_inputs()
                data.refused = [*data.refused, AUTHOR.refusal(data, outputs)]
            fault = conclude(data, runs, changed)
            if fault:
                return fault
    return None


def time_judged(judge, asked, nvml, flush):
    """Samples one case: rounds that bound the time, then rounds with the candidate's own events."""
    case, on_cpu = judge.case, DEVICE == "cpu"
    with JOURNAL.enter("setup", case):
        differs, needed = AUTHOR.needed() if judge.makes_new else (True, None)
    if not differs:
        raise Fault("not_credible", f"not credible: the outputs of `{case['name']}` are the same for other inputs, so that any kernel that keeps them is right")
    with JOURNAL.enter("warmup", case):
        warmed = judge.warm_up(asked.warmup, 0.0 if on_cpu else 0.2)
        judge.find_outputs(warmed["outputs"])
        whole, enqueue = (number_in(warmed, name) for name in ("whole_ns", "enqueue_ns"))
        judge.open(judge.slots_for(whole))
        judge.warm_up(1, 0.0)
    # Making new data for each call may take longer than the calls.
    least, seconds = TIMING.get("min_iters", 30), min(TIMING.get("max_seconds", 10.0), JUDGED_SECONDS)
    sampling = Sampling(min(least, 5) if on_cpu else least, min(seconds, 2.0) if on_cpu else seconds)
    with JOURNAL.enter("timed", case):
        bounds, graphs = [], []
        for _ in range(BOUND_ROUNDS):
            wall, _, in_graph = judge.round("graph", judge.arena.slots)
            bounds.append(wall / judge.arena.slots)
            graphs.append(in_graph)
        while not asked.host_clock and sampling.wanted() > 0:
            reading = nvml and nvml.reading(len(sampling.samples))
            calls = min(COLD_SLOTS, judge.arena.slots)
            _, answer, _ = judge.round("cold", calls, flush=flush or 0, hold=int(min(enqueue, 500_000.0) * 4))
            sampling.samples += [positive(claim) for claim in listed(answer, "claims", calls)]
            if reading:
                sampling.clocks.append(reading)
    bound = median(bounds)
    claim = None if asked.host_clock else median(sampling.kept())
    reported, trust, why = trusted(judge, claim, bound, all(graphs))
    if reported is None:
        raise Fault("clocks_disagree", f"clocks disagree on `{case['name']}`: the kernel's process claims {claim / 1e3:.3f} us a call, "
                    f"but {judge.arena.slots} calls on new data took {bound / 1e3:.3f} us each by the judge's clock")
    by_host = on_cpu or reported == bound
    if reported == bound:
        sampling.samples, sampling.clocks = bounds, []
    timing = sampling.finish("host" if by_host else "events", bool(flush) and not by_host, judge.verified)
    timing.update(distinct_inputs=judge.distinct or 1, wall_ns=whole, flushed_bytes=flush if flush and not by_host else None,
                  trust=trust, trust_reason=why, bound_ns=bound, bound_range_ns=[min(bounds), max(bounds)], claimed_ns=claim, needed_bytes=needed)
    JOURNAL.record(case, timing=timing)
    print(f"{JOURNAL.report['job']} {case['name']}: median {timing['median_ns'] / 1e3:.3f} us, {timing['samples']} samples, "
          f"{judge.verified} outputs compared, {trust}: at most {bound / 1e3:.3f} us by the judge's clock", flush=True)


def trusted(judge, claim, bound, in_graph):
    """The reported time in ns, its trust, and what lowers the trust."""
    reported, trust = (bound, "bounded") if claim is None else verdict_of(claim, bound, in_graph)
    if not judge.makes_new and reported is not None:
        return bound, "unprotected", "every call has the same data, so that an answer can be kept from an earlier call"
    if AUTHOR.shares and reported is not None:
        return bound, "bounded", str(AUTHOR.shares)[:200]
    return reported, trust, None


def time_alone(case, i, why, asked, nvml, flush):
    """Samples one case in this process, which the kernel can reach."""
    kernel = prepared(case)
    warm_up(kernel, asked.warmup)
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.2:
        warm_up(kernel, 1)
    clock = "host" if asked.host_clock else "events"
    elsewhere, wall_ns = whole_calls(kernel)
    if clock == "events" and elsewhere:
        on_a_stream_of_its_own(kernel)
        clock = "host"
    timed(kernel, clock, flush, nvml, wall_ns, why)
    time_baselines(kernel, flush)


def first_reading(nvml, asked):
    """Warns of a GPU that is held back; ends the job if that was asked for."""
    for reason in (nvml.reading(0) or {}).get("throttle", []):
        JOURNAL.warn("thermal_limit" if "thermal" in reason else "power_limit", f"the GPU is held back: {reason}")
    if asked.strict and JOURNAL.report["warnings"]:
        raise Fault("host_unfit", "the host is not suitable for measurements: " + "; ".join(w["text"] for w in JOURNAL.report["warnings"]))


def job_verify(_):
    largest = [(0, "")]

    def alone(case, i, why):
        kernel = prepared(case)
        fault = verify(kernel)
        largest.append((bytes_of(kernel.data) if kernel.popcorn else 0, case["name"]))
        return fault

    def fitting(case, work):
        """What `work` gives; running out of memory is a fault of this case alone."""
        try:
            return work()
        except Fault as fault:
            if fault.kind != "out_of_memory":
                raise
            return Fault(fault.kind, f"`{case['name']}` does not fit into the GPU's memory: {fault.text}")
        finally:
            gc.collect()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()

    faults = each_case(lambda judge, i: verify_judged(judge),
                       lambda case, i, why: fitting(case, lambda: alone(case, i, why)))
    for fault in filter(None, faults):
        if fault.kind == "out_of_memory" and max(largest)[1]:
            raise Fault(fault.kind, f"{fault.text}; the largest case that fits is `{max(largest)[1]}`")
        raise fault


def job_time(asked):
    nvml, flush = Nvml(JOURNAL.report["device"]["uuid"]), flush_buffer()

    def with_judge(judge, i):
        if i == 0:
            first_reading(nvml, asked)
        time_judged(judge, asked, nvml, None if flush is None else flush.numel())

    def alone(case, i, why):
        if i == 0:
            first_reading(nvml, asked)
        time_alone(case, i, why, asked, nvml, flush)

    each_case(with_judge, alone, lambda case: record_baselines(case, flush is not None))
    rate_of_model()


def job_once(asked):
    for case in cases_for(asked.job):
        kernel = prepared(case)
        warm_up(kernel, asked.warmup)
        kernel.restore()
        synchronize()
        with JOURNAL.enter("timed", case):
            call(kernel)
            synchronize()
        print(f"once {case['name']}: called", flush=True)


def job_torch(asked):
    kernels = []
    for case in cases_for(asked.job):
        kernels.append(prepared(case))
        warm_up(kernels[-1], max(asked.warmup, 1))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        RANGES.annotate = True
        for kernel in kernels:
            with JOURNAL.enter("timed", kernel.case):
                for _ in range(TRACED_CALLS):
                    call(kernel)
                    synchronize()
        RANGES.annotate = False
    profiler.export_chrome_trace(asked.trace or "torch.trace.json")
    print(f"torch: {TRACED_CALLS} calls of each case traced", flush=True)


def job_cpu(asked):
    has_triton = []

    def with_judge(judge, i):
        has_triton.append(CANDIDATE.interpreted)
        fault = verify_judged(judge)
        if fault is None:
            time_judged(judge, argparse.Namespace(warmup=min(asked.warmup, 1), host_clock=False), None, None)
        return fault

    def alone(case, i, why):
        kernel = prepared(case)
        warm_up(kernel, min(asked.warmup, 1))
        fault = verify(kernel)
        # torch.compile, a baseline, imports Triton too.
        has_triton.append("triton" in sys.modules)
        if fault is None:
            timed(kernel, "host", None, None, None, why)
            time_baselines(kernel, None)
        return fault

    faults = each_case(with_judge, alone, lambda case: record_baselines(case, False))
    rate_of_model()
    if any(has_triton):
        JOURNAL.gap("Triton's kernels ran in its interpreter: what they compute is checked, their time says nothing")
    for fault in filter(None, faults):
        raise fault


def cuda_of_driver():
    """The CUDA version of the driver, as 1000 * major + 10 * minor; not every torch reports it."""
    version = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value


def open_device(job):
    """The device of the tensors. Without a GPU only `cpu` and `torch` can run."""
    if job == "cpu" or not torch.cuda.is_available():
        if job not in ("cpu", "torch", "candidate", "author"):
            raise Fault("no_driver", "torch sees no GPU: " + (f"it is built for CUDA {torch.version.cuda}" if torch.version.cuda else "it is built without CUDA"))
        # Triton compiles only for GPUs, but can be interpreted.
        os.environ["TRITON_INTERPRET"] = "1"
        return "cpu"
    torch.cuda.init()
    facts = torch.cuda.get_device_properties(0)
    uuid = str(getattr(facts, "uuid", ""))
    JOURNAL.report["device"] = {
        "name": facts.name, "uuid": uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
        "compute_capability": [facts.major, facts.minor],
        "cuda_version": cuda_of_driver(), "memory_bytes": facts.total_memory,
        "l2_bytes": getattr(facts, "L2_cache_size", 0), "sms": facts.multi_processor_count,
    }
    return "cuda"


def work(asked):
    global torch, DEVICE
    try:
        import torch
    except ImportError as error:
        raise Fault("load", f"this Python has no torch that loads ({sys.executable}): {error}") from error
    if asked.job == "board":
        # Its own process opens the device.
        DEVICE = "cpu"
        job_board()
        return
    with JOURNAL.enter("setup"):
        DEVICE = open_device(asked.job)
        print(f"harness.py: {asked.job} {CASE['kernel']} on {JOURNAL.report.get('device', {}).get('name', 'the CPU')}, torch {torch.__version__}", flush=True)
    if RANGES.nvtx is None:
        JOURNAL.gap("there is no NVTX library, so tools see no ranges: the package nvidia-nvtx has it")
    with torch.no_grad():
        {"verify": job_verify, "time": job_time, "once": job_once, "torch": job_torch, "cpu": job_cpu,
         "candidate": job_candidate, "author": job_author}[asked.job](asked)


def users_frames(error):
    """The frames of an error that are in the user's code."""
    return [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(os.path.join(HERE, "src"))]


def show(error):
    """The traceback of an error in the user's code, with only the user's frames."""
    frames = users_frames(error)
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    print("".join(lines), end="", file=sys.stderr, flush=True)


def main():
    global RANGES, JOURNAL
    asked = options()
    sys.modules["rgpu_harness"] = sys.modules[__name__]
    RANGES, JOURNAL = Ranges(asked.ranges), Journal(asked.job, asked.out)
    fault = None
    try:
        work(asked)
    except Fault as error:
        fault = error
        if error.__cause__ is not None:
            show(error.__cause__)
    except Exception as error:
        if users_frames(error):
            show(error)
        else:
            traceback.print_exc()
        # An error outside the user's code is a bug of ours, unless torch itself failed.
        fault = fault_of(error, ENTRY.get("function", "the kernel"), "internal") if "torch" in globals() else Fault("internal", str(error))
    JOURNAL.write(fault)
    if fault:
        print(f"error: {fault.text}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        # Unwinding may hang or crash after a fault of the context.
        os._exit(STATUS.get(fault.kind, 70))


if __name__ == "__main__":
    main()
