# --- baselines, and the board's own program ---------------------------------------------------

# Seconds and samples for each form of the reference.
BASELINE_SECONDS, BASELINE_SAMPLES = 2.0, 100
# The most seconds that the board's program runs: all of a problem must not hold a GPU for minutes.
BOARD_SECONDS = 75
# The most that the board's program may write, in bytes.
MAX_BOARD_BYTES = 1 << 20


def time_baselines(kernel, flush):
    """Times forms of the reference on the kernel's own data."""
    reference = kernel.reference or kernel.function
    for form in ENTRY.get("baselines", []):
        announce_baseline(form)
        with JOURNAL.enter("timed", kernel.case):
            found = baseline(form, lambda thing: kernel.call_on(thing, kernel.data), reference, kernel.restore, flush)
        record_baseline(kernel.case, form, found)


def record_baselines(case, flushes):
    """Times forms of the reference in the author's process, before there is a process of the kernel."""
    AUTHOR.start(case, [])
    for form in ENTRY["baselines"]:
        announce_baseline(form)
    for form, found in zip(ENTRY["baselines"], AUTHOR.baselines(flushes)):
        record_baseline(case, form, found)


def announce_baseline(form):
    """Says what is timed next: compiling may take a minute."""
    what = "torch.compile of the reference, which may take a minute" if form == "compile" else "the reference as written"
    print(f"baseline {form}: {what}", flush=True)


def record_baseline(case, form, found):
    """Adds the time of a form to the report; one that failed is told."""
    if not isinstance(found, dict) or "median_ns" not in found:
        JOURNAL.gap(f"the reference has no time as `{form}`: {str((found or {}).get('failed'))[:300]}")
        return
    JOURNAL.record(case)
    known = next(c for c in JOURNAL.report["cases"] if c["name"] == case["name"])
    middle = number_in(found, "median_ns")
    known.setdefault("baselines", []).append({"form": form, "median_ns": middle, "samples": int(number_in(found, "samples"))})
    print(f"baseline {form}: median {middle / 1e3:.3f} us", flush=True)


def baseline(form, bound_to, reference, restore, flush):
    """The median time of a form of the reference, or why it has none. `bound_to` gives the call of a
    form on the data, `restore` makes the data as before."""
    try:
        if form == "compile":
            reference = torch.compile(reference)
        samples = baseline_samples(bound_to(reference), restore, flush)
    except Exception as error:
        return {"failed": (str(getattr(error, "text", error)).strip().splitlines() or [""])[0]}
    return {"median_ns": median(samples), "samples": len(samples)}


def baseline_samples(call, restore, flush):
    """Times of calls, in nanoseconds, measured as those of the kernel."""
    for _ in range(3):
        restore()
        call()
    synchronize()
    samples, until = [], time.perf_counter() + BASELINE_SECONDS
    hold = enqueue_cycles(call, restore) if DEVICE == "cuda" else 0
    while len(samples) < BASELINE_SAMPLES and (len(samples) < 3 or time.perf_counter() < until):
        restore()
        if DEVICE != "cuda":
            begin = time.perf_counter_ns()
            call()
            samples.append(float(time.perf_counter_ns() - begin))
            continue
        if flush is not None:
            flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(hold)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 1e6)
    return samples


def job_board():
    """Runs the board's own program in its ranked mode, and reads the lines that it writes."""
    rules = CASE["board"]
    path = os.path.join(HERE, rules["program"])
    cases = os.path.join(HERE, "board_cases.txt")
    with open(cases, "w", encoding="utf-8") as file:
        # A board that ranks by the last benchmark runs that one alone.
        lines = rules["benchmarks"][-1:] if rules["ranking_by"] == "last" else rules["benchmarks"]
        file.writelines(line + "\n" for line in lines)
    reader, writer = os.pipe()
    env = {**os.environ, "POPCORN_FD": str(writer)}
    command = [sys.executable, os.path.basename(path), "leaderboard", cases]
    with JOURNAL.enter("timed"):
        child = subprocess.Popen(command, cwd=os.path.dirname(path), env=env, pass_fds=(writer,), start_new_session=True)
        os.close(writer)
        seconds = min(rules.get("timeout_s") or 180, BOARD_SECONDS)
        text, is_late = read_pipe(reader, child, seconds)
        if is_late:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
    JOURNAL.report["board"] = board_report(text, f"it took more than {seconds} s" if is_late else f"it ended with status {status}")


def read_pipe(reader, child, seconds):
    """What a process writes into a pipe until it ends, and whether it took too long."""
    chunks, size, until = [], 0, time.monotonic() + seconds
    os.set_blocking(reader, False)
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while time.monotonic() < until and size < MAX_BOARD_BYTES:
            # A process that it has started may keep the pipe open.
            has_ended = child.poll() is not None
            if not selector.select(0.2):
                if has_ended:
                    break
                continue
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        is_late = time.monotonic() >= until
    os.close(reader)
    return b"".join(chunks).decode("utf-8", "replace"), is_late


def board_report(text, end):
    """The times of the board's program from its lines `key: value`."""
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    count = len(CASE["board"]["benchmarks"])
    means, message = [], ""
    told = [n for n in range(count) if f"benchmark.{n}.mean" in values]
    for n in told:
        with contextlib.suppress(ValueError):
            mean = float(values[f"benchmark.{n}.mean"])
            if math.isfinite(mean) and mean > 0:
                means.append(mean)
    errors = [v for k, v in values.items() if k.endswith((".error", ".message")) and v.strip()]
    passed = values.get("check", "").strip() == "pass"
    if not passed or not means or len(means) != len(told):
        message = (errors or [end])[0].strip()[:1000]
        means = []
    return {"passed": passed, "mean_ns": means, "message": message}
