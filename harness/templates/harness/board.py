# --- baselines, and the board's own program ---------------------------------------------------

# Seconds and samples for each form of the reference.
BASELINE_SECONDS, BASELINE_SAMPLES = 2.0, 100
# The most seconds that the board's program runs: all of a problem must not hold a GPU for minutes.
BOARD_SECONDS = 75
# The most that the board's program may write, in bytes.
MAX_BOARD_BYTES = 1 << 20


def time_baselines(kernel, flush):
    """Times forms of the reference on the kernel's own data. A form that fails is told."""
    for form in ENTRY.get("baselines", []):
        function, other = kernel.function, kernel.reference or kernel.function
        try:
            print(f"baseline {form}: {'torch.compile of the reference, which may take a minute' if form == 'compile' else 'the reference as written'}", flush=True)
            if form == "compile":
                other = torch.compile(other)
            kernel.function = other
            with JOURNAL.enter("timed", kernel.case):
                samples = baseline_samples(kernel, flush)
        except Exception as error:
            text = (str(getattr(error, "text", error)).strip().splitlines() or [""])[0]
            JOURNAL.gap(f"the reference has no time as `{form}`: {text[:300]}")
            continue
        finally:
            kernel.function = function
        known = next(c for c in JOURNAL.report["cases"] if c["name"] == kernel.case["name"])
        known.setdefault("baselines", []).append({"form": form, "median_ns": median(samples), "samples": len(samples)})
        print(f"baseline {form}: median {median(samples) / 1e3:.3f} us", flush=True)


def baseline_samples(kernel, flush):
    """Times of calls, in nanoseconds, measured as those of the kernel."""
    for _ in range(3):
        kernel.restore()
        call(kernel)
    synchronize()
    samples, until = [], time.perf_counter() + BASELINE_SECONDS
    hold = enqueue_cycles(kernel) if DEVICE == "cuda" else 0
    while len(samples) < BASELINE_SAMPLES and (len(samples) < 3 or time.perf_counter() < until):
        kernel.restore()
        if DEVICE != "cuda":
            begin = time.perf_counter_ns()
            call(kernel)
            samples.append(float(time.perf_counter_ns() - begin))
            continue
        if flush is not None:
            flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(hold)
        start.record()
        call(kernel)
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
