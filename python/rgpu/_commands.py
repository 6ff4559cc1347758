"""The commands as functions.

Made by `cargo xtask schemas`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, Sequence

from ._words import Pairs, Path, Progress, Time


def run(command: str, given: dict[str, Any]) -> Any:
    from ._call import run

    return run(command, given)


def profile(
    program: str | Sequence[str] = (),
    *,
    accept_new: bool = False,
    after: Time | None = None,
    allow_unmeasured: bool = False,
    arch: str | None = None,
    at_least: Literal["sanitizer", "guard", "verify", "ncu.sudo", "ncu.asked", "ncu.app_range", "ncu.kernel", "ncu.service", "ncu.basic", "ncu.launch", "ncu.service_launch", "nsys.full", "nsys.cuda", "torch", "cupti", "nsys.nvtx", "ncu.times", "nvtx", "events", "host", "cpu"] | None = None,
    budget: str | Sequence[str] | None = None,
    capture_range: str | None = None,
    clock_control: Literal["base", "boost", "force-boost", "none", "reset"] | None = None,
    cuda_graph: Literal["auto", "always", "never"] | None = None,
    detach: bool = False,
    dry_run: bool = False,
    env: Pairs | None = None,
    events: Path | None = None,
    for_: str | None = None,
    full_names: bool = False,
    gpu: str | None = None,
    gpus: str | None = None,
    hang: Time | None = None,
    iters: int | None = None,
    kernel: Path | None = None,
    kernel_exclude: str | Sequence[str] | None = None,
    kernel_name: str | Sequence[str] | None = None,
    kernel_name_base: Literal["function", "demangled", "mangled"] | None = None,
    label: Pairs | None = None,
    launch: int | str | None = None,
    launch_count: int | None = None,
    launch_skip: int | None = None,
    light: bool = False,
    log_limit: int | str | None = None,
    metrics: str | Sequence[str] | None = None,
    mode: Literal["ncu", "nsys", "sanitizer", "bench", "nvtx", "verify", "deep", "torch"] | None = None,
    mount: Path | Sequence[Path] | None = None,
    mount_limit: int | str | None = None,
    ncu_args: str | None = None,
    nodes: int | None = None,
    note: str | None = None,
    nsys_args: str | None = None,
    nvtx_include: str | Sequence[str] | None = None,
    out: Path | None = None,
    plot: str | Sequence[str] | None = None,
    preset: str | None = None,
    problem_sizes: str | Sequence[str] | None = None,
    pull: str | Sequence[str] | None = None,
    queue_timeout: Time | None = None,
    ranks: str | None = None,
    regions: str | Sequence[str] | None = None,
    remote: str | None = None,
    replay_mode: Literal["kernel", "application", "range", "app-range"] | None = None,
    require_gpu: bool = False,
    run_id: str | None = None,
    sample: Literal["none", "process-tree", "system-wide", "cpu"] | None = None,
    sanitizer_args: str | None = None,
    save_kernel: bool = False,
    section: str | Sequence[str] | None = None,
    seed: int | None = None,
    set: str | None = None,
    share_gpu: bool = False,
    strict: bool = False,
    sudo: bool = False,
    sweep: Pairs | None = None,
    target: str | None = None,
    target_processes: Literal["all", "application-only"] | None = None,
    timeout: Time | None = None,
    tool: Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"] | Sequence[Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"]] | None = None,
    top: int | None = None,
    trace: str | None = None,
    warmup: int | None = None,
    progress: Progress = None,
    cwd: Path | None = None,
) -> Any:
    """Profile a kernel or a program: how fast, why not faster, what to try.

    program: A program and its arguments, after `--`; with KERNEL, the arguments of that program
    accept_new: Accept the key of an unknown host
    after: Measure from this time after the program's start, e.g. 30s
    allow_unmeasured: Exit with 0 even if nothing was measured on a GPU [default: only on this
        machine, if it has no NVIDIA driver]
    arch: Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]
    at_least: The lowest rung that counts as success, e.g. ncu.basic
    budget: Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the
        program's time under ncu, at least 20s; 500MB]
    capture_range: Record only inside this NVTX range
    clock_control: How ncu controls the GPU clocks
    cuda_graph: Time calls inside a CUDA graph too [default: auto]
    detach: Submit the job and exit; `rgpu runs attach` fetches the results
    dry_run: Print the plan, the harness and the exact tool commands; touch nothing
    env: Set an environment variable for the program
    events: Write the run's events as JSON lines
    for_: Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to
        the end of the range of --capture-range
    full_names: Show kernels by their full names
    gpu: Which GPU: any, an index, a UUID, or part of a name
    gpus: Give a program this many GPUs, all, or those with these indexes; `--gpu` says which
        qualify. A job of Slurm asks for this many on each node. The modes ncu and deep then need
        `--ranks` [default: 1]
    hang: Stop the program as Ctrl-C does once it has printed nothing for this time, and name its
        ranks, their last collective and their stacks; what was measured is kept
    iters: Timed launches [default: until the median is known to 0.5 %]
    kernel: The kernel: a name of `rgpu kernels list`, a folder with kernel.toml, a .cu or .py file
    kernel_exclude: Leave out kernels with this name
    kernel_name: Only kernels with this name
    kernel_name_base: The form of the name to match
    label: A label to store with the run
    launch: The kernel of a bare .cu, .cuh, .cubin, .fatbin or .ptx, as in CUDA: its name,
        `matmul<float, 16>`, or all of `matmul<float, 16><<<(n / 16, m / 16), (16, 16)>>>(m * n, n)`
        with the elements of each array and the value of each integer (`_` leaves one to rgpu)
    launch_count: Number of launches to profile
    launch_skip: Launches to skip first
    light: Start with the small section set `minimal`
    log_limit: Most output to keep of each stream, e.g. 100MB
    metrics: Metrics, separated by commas
    mode: What to measure with [default: the kernel's own mode, else ncu; nsys for a program that is
        built from its source, unless flags of ncu are given]
    mount: Send a folder or file too; the first folder becomes the working folder and contains the
        others
    mount_limit: Most bytes in all mounts together, e.g. 2GB [default: 268MB]
    ncu_args: More arguments for ncu, as one string
    nodes: On a cluster of Slurm, start a program once on each of this many nodes: one profile of
        all its ranks, with nsys [default: 1]
    note: A note to store with the run; runs with a note are never pruned
    nsys_args: More arguments for nsys profile, as one string
    nvtx_include: Only launches inside this NVTX range; the name is passed to ncu unchecked: A,
        A::A1, domain@A
    out: The run's folder, which must be new or empty [default: a new one in RGPU_RUNS_DIR, or where
        your settings say]
    plot: Draw this against the first axis of `--sweep`: `time`, or the beginning of a metric's
        name; exit with 2 if no case has a number for it, or 5 if the cases have no metrics
    preset: Flags from `[preset.NAME]` of rgpu.toml
    problem_sizes: Sizes: the name of a case of kernel.toml, `all` of these, or values in the
        kernel's order or as `n=…`, with `;` between groups (or between cases, if the kernel has no
        groups) and `|` between cases
    pull: Fetch new and changed files that match, e.g. 'out/**'; relative to the working folder
    queue_timeout: How long to wait for the GPU
    ranks: The ranks to profile: ncu and deep one of them, sanitizer all by default; nsys records
        all in one report, or one alone. The program is started by torchrun, accelerate, mpirun or
        srun
    regions: Only these NVTX regions; it is an error if the program has none of them: A, A::A1,
        domain@A, decode*, regex:RE
    remote: A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port;
        `profile` accepts a comma-separated list and runs on all of them at once [default: that of
        RGPU_REMOTE, or of your settings]
    replay_mode: How passes are repeated
    require_gpu: Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA
        driver too
    run_id: The run's name, which must be new
    sample: Where nsys samples the CPU; if given, no second run records call stacks [default: none]
    sanitizer_args: More arguments for compute-sanitizer, as one string
    save_kernel: Write what was assumed of a bare kernel to the kernel.toml beside it
    section: A section by its identifier
    seed: Seed of the inputs
    set: Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal,
        sol, extended
    share_gpu: Run even if other processes use the GPU
    strict: Fail if the host is not fit to measure on (other processes, throttling, …); it is
        checked before anything is timed, and a hot GPU again before each later case
    sudo: Use `sudo -n` if reading counters needs it
    sweep: Profile at each of these values, as a suite: a size of the kernel, else a macro of its
        compiler. Several sweeps make all combinations, at most 200
    target: Of the programs that the folder KERNEL builds, profile the one of this name
    target_processes: Which processes to profile
    timeout: Time limit of each step, e.g. 90s, 10m, 1h30m
    tool: Which tools [default: all for a kernel, memcheck for a program]
    top: Number of kernels to profile with ncu, by GPU time [default: 3]
    trace: What to trace [default: cuda,nvtx]
    warmup: Launches before the first timed one
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    """
    return run("profile", locals())


def exec(
    file: Path | None = None,
    command: str | Sequence[str] = (),
    *,
    accept_new: bool = False,
    after: Time | None = None,
    allow_unmeasured: bool = False,
    at_least: Literal["sanitizer", "guard", "verify", "ncu.sudo", "ncu.asked", "ncu.app_range", "ncu.kernel", "ncu.service", "ncu.basic", "ncu.launch", "ncu.service_launch", "nsys.full", "nsys.cuda", "torch", "cupti", "nsys.nvtx", "ncu.times", "nvtx", "events", "host", "cpu"] | None = None,
    budget: str | Sequence[str] | None = None,
    capture_range: str | None = None,
    clock_control: Literal["base", "boost", "force-boost", "none", "reset"] | None = None,
    code: str | None = None,
    detach: bool = False,
    dry_run: bool = False,
    env: Pairs | None = None,
    env_file: Path | Sequence[Path] | None = None,
    events: Path | None = None,
    for_: str | None = None,
    full_names: bool = False,
    gpu: str | None = None,
    gpus: str | None = None,
    hang: Time | None = None,
    kernel_exclude: str | Sequence[str] | None = None,
    kernel_name: str | Sequence[str] | None = None,
    kernel_name_base: Literal["function", "demangled", "mangled"] | None = None,
    label: Pairs | None = None,
    lang: str | None = None,
    launch_count: int | None = None,
    launch_skip: int | None = None,
    light: bool = False,
    log_limit: int | str | None = None,
    metrics: str | Sequence[str] | None = None,
    mode: Literal["ncu", "nsys", "sanitizer", "bench", "nvtx", "verify", "deep", "torch"] | None = None,
    mount: Path | Sequence[Path] | None = None,
    mount_limit: int | str | None = None,
    ncu_args: str | None = None,
    nodes: int | None = None,
    note: str | None = None,
    nsys_args: str | None = None,
    nvtx_include: str | Sequence[str] | None = None,
    out: Path | None = None,
    preset: str | None = None,
    pull: str | Sequence[str] | None = None,
    queue_timeout: Time | None = None,
    ranks: str | None = None,
    regions: str | Sequence[str] | None = None,
    remote: str | None = None,
    replay_mode: Literal["kernel", "application", "range", "app-range"] | None = None,
    require_gpu: bool = False,
    run_id: str | None = None,
    sample: Literal["none", "process-tree", "system-wide", "cpu"] | None = None,
    sanitizer_args: str | None = None,
    section: str | Sequence[str] | None = None,
    set: str | None = None,
    share_gpu: bool = False,
    strict: bool = False,
    sudo: bool = False,
    target_processes: Literal["all", "application-only"] | None = None,
    timeout: Time | None = None,
    tool: Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"] | Sequence[Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"]] | None = None,
    top: int | None = None,
    trace: str | None = None,
    tty: bool = False,
    progress: Progress = None,
    cwd: Path | None = None,
    stdin: str | bytes | None = None,
) -> Any:
    """Run a file, a piece of code or a command on the GPU host.

    file: A Rust, Python, CUDA or shell file; `-`: standard input
    command: Arguments of the file or code, or a command with its arguments
    accept_new: Accept the key of an unknown host
    after: Measure from this time after the program's start, e.g. 30s
    allow_unmeasured: Exit with 0 even if nothing was measured on a GPU [default: only on this
        machine, if it has no NVIDIA driver]
    at_least: The lowest rung that counts as success, e.g. ncu.basic
    budget: Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the
        program's time under ncu, at least 20s; 500MB]
    capture_range: Record only inside this NVTX range
    clock_control: How ncu controls the GPU clocks
    code: The code to run
    detach: Submit the job and exit, without standard input; `rgpu runs attach` fetches output and
        status
    dry_run: Print the plan, the harness and the exact tool commands; touch nothing
    env: Set an environment variable for the program
    env_file: A file with NAME=VALUE lines; their values are kept out of every log
    events: Write the run's events as JSON lines
    for_: Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to
        the end of the range of --capture-range
    full_names: Show kernels by their full names
    gpu: Which GPU: any, an index, a UUID, or part of a name
    gpus: Lock this many GPUs, all, or those with these indexes, and hide all others from the
        program; `--gpu` says which qualify; 0 hides all. A job of Slurm asks for this many on each
        node
    hang: Stop the program as Ctrl-C does once it has printed nothing for this time, and name its
        ranks, their last collective and their stacks; what was measured is kept
    kernel_exclude: Leave out kernels with this name
    kernel_name: Only kernels with this name
    kernel_name_base: The form of the name to match
    label: A label to store with the run
    lang: The language, if the file's name and content do not tell: rs, py, cu, sh
    launch_count: Number of launches to profile
    launch_skip: Launches to skip first
    light: Start with the small section set `minimal`
    log_limit: Most output to keep of each stream, e.g. 100MB
    metrics: Metrics, separated by commas
    mode: Profile it; accepts the flags of `rgpu profile`
    mount: Send a folder or file too; the first folder becomes the working folder and contains the
        others
    mount_limit: Most bytes in all mounts together, e.g. 2GB [default: 268MB]
    ncu_args: More arguments for ncu, as one string
    nodes: With `--mode nsys` on a cluster of Slurm: start it once on each of this many nodes
    note: A note to store with the run; runs with a note are never pruned
    nsys_args: More arguments for nsys profile, as one string
    nvtx_include: Only launches inside this NVTX range; the name is passed to ncu unchecked: A,
        A::A1, domain@A
    out: The run's folder, which must be new or empty [default: a new one in RGPU_RUNS_DIR, or where
        your settings say]
    preset: Flags from `[preset.NAME]` of rgpu.toml
    pull: Fetch new and changed files that match, e.g. 'out/**'; relative to the working folder
    queue_timeout: How long to wait for the GPU
    ranks: With `--mode`: the ranks of a program that the tool looks at, as in `rgpu profile`
    regions: Only these NVTX regions; it is an error if the program has none of them: A, A::A1,
        domain@A, decode*, regex:RE
    remote: A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port;
        `profile` accepts a comma-separated list and runs on all of them at once [default: that of
        RGPU_REMOTE, or of your settings]
    replay_mode: How passes are repeated
    require_gpu: Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA
        driver too
    run_id: The run's name, which must be new
    sample: Where nsys samples the CPU; if given, no second run records call stacks [default: none]
    sanitizer_args: More arguments for compute-sanitizer, as one string
    section: A section by its identifier
    set: Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal,
        sol, extended
    share_gpu: Run even if other processes use the GPU
    strict: Fail if the host is not fit to measure on (other processes, throttling, …); it is
        checked before anything is timed, and a hot GPU again before each later case
    sudo: Use `sudo -n` if reading counters needs it
    target_processes: Which processes to profile
    timeout: Time limit of each step, e.g. 90s, 10m, 1h30m
    tool: Which tools [default: all for a kernel, memcheck for a program]
    top: Number of kernels to profile with ncu, by GPU time [default: 3]
    trace: What to trace [default: cuda,nvtx]
    tty: Allocate a pseudo-terminal (TTY) on the host: stdout and stderr become one stream, and keys
        are sent as they are typed
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    stdin: the standard input of the program; without it: nothing
    """
    return run("exec", locals())


def build(
    file: Path | None = None,
    *,
    accept_new: bool = False,
    arch: str | Sequence[str] | None = None,
    compile_options: str | None = None,
    detach: bool = False,
    dsl: Literal["cute", "triton"] | None = None,
    emit: Literal["ptx", "cubin", "sass", "ir"] | Sequence[Literal["ptx", "cubin", "sass", "ir"]] | None = None,
    events: Path | None = None,
    keep_ir: bool = False,
    kernel: Path | None = None,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
    opt_level: int | None = None,
    out: Path | None = None,
    print_ir: bool = False,
    problem_sizes: str | Sequence[str] | None = None,
    remote: str | None = None,
    run_id: str | None = None,
    timeout: Time | None = None,
    yes: bool = False,
    progress: Progress = None,
    cwd: Path | None = None,
) -> Any:
    """Compile a kernel without a GPU: PTX, cubin, SASS, registers and spills.

    file: A .cu file, a .py file of a DSL, or a kernel: its name, folder or kernel.toml
    accept_new: Accept the key of an unknown host
    arch: Compile for these architectures, e.g. sm_90a,sm_100a: one run for each [default: the
        GPU's, else kernel.toml's first]
    compile_options: More options for nvcc, NVRTC, cute.compile or Triton's ptxas, as one string
    detach: Submit the job and exit; `rgpu runs attach` fetches the results
    dsl: The file is a kernel of this Python DSL [default: the one that it imports]
    emit: What to write; `ptx` alone makes no cubin
    events: Write the run's events as JSON lines
    keep_ir: Write the intermediate code, like `--emit …,ir`
    kernel: The kernel: a name of `rgpu kernels list`, or a folder with kernel.toml
    log_level: Level of the DSL's own log
    opt_level: Optimisation level of the code
    out: FILE.ptx or FILE.cubin: where to write the main PTX or cubin; DIR: the run's folder, which
        must be new or empty
    print_ir: Have the DSL print its IR into the log
    problem_sizes: Sizes, as for profile; a DSL file's compile_kernel gets them as tuples
    remote: A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    run_id: The run's name, which must be new
    timeout: Time limit of compiling, e.g. 90s, 10m
    yes: Fetch missing compilers without asking
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    """
    return run("build", locals())


def report(
    *what: Path,
    bytes: int | str | None = None,
    force: bool = False,
    format: Literal["table", "json", "markdown", "csv", "brief", "html", "perfetto"] | None = None,
    full_names: bool = False,
    lint: Literal["nvtx"] | None = None,
    max_size: int | str | None = None,
    open: bool = False,
    out: Path | None = None,
    redact: bool = False,
    progress: Progress = None,
    cwd: Path | None = None,
) -> Any:
    """Explain a run or a report file.

    what: A run (id, prefix, latest, folder), or a file: .ncu-rep, .ncu-repz, nsys's .sqlite or
        .nsys-rep, a page of ncu or nsys stats as .csv, a sanitizer log or XML, a cubin. Several
        reports of nsys or torch, or a folder with them, are the ranks of one program
    bytes: Size limit of `--format brief`, such as 2048 or 16KiB; at least 256 [default: 4096]
    force: Overwrite a file that is not an earlier report of the same kind
    format: The format of the output [default: table, or json with --json]
    full_names: Show kernels by their full names in tables, Markdown and the brief summary; JSON and
        CSV always have them
    lint: Check the program instead of showing it: `nvtx` checks how it uses NVTX ranges. Exits with
        1 on any fault
    max_size: Refuse a file that is larger than this, compressed or unpacked
    open: Open the written file; a `perfetto` trace opens at ui.perfetto.dev, in your browser only:
        nothing is uploaded
    out: Write to this file, or into this folder if there are several files, and print the names. By
        default `html` goes to report.html and `perfetto` to trace.pftrace, in the run's folder, or
        in the current folder if the input is a file
    redact: Remove host, user, paths, command lines, environment and source text. The tools' own
        reports contain all of this and are never included
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    """
    return run("report", locals())


def disasm(
    *what: Path,
    accept_new: bool = False,
    all_kernels: bool = False,
    arch: str | Sequence[str] | None = None,
    block: int | None = None,
    control_codes: bool = False,
    diff: bool = False,
    extract: bool = False,
    fail_on: Literal["any", "instructions", "resources"] | Sequence[Literal["any", "instructions", "resources"]] | None = None,
    force: bool = False,
    format: Literal["dot", "svg", "html"] | None = None,
    hot: bool = False,
    kernel_name: str | Sequence[str] | None = None,
    line_info: bool = False,
    list: bool = False,
    normalize: Literal["registers"] | None = None,
    out: Path | None = None,
    per_kernel: bool = False,
    remote: str | None = None,
    timeout: Time | None = None,
    tool: Literal["auto", "rgpu", "nvdisasm", "none"] | None = None,
    view: Literal["sass", "ptx", "source", "mix", "cfg", "live"] | None = None,
    progress: Progress = None,
    cwd: Path | None = None,
) -> Any:
    """Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS.

    what: Files, folders (all GPU code in them), or runs (id, prefix, or latest: the newest with GPU
        code; with --hot the newest with values per instruction)
    accept_new: Accept the key of an unknown host
    all_kernels: All kernels of a run or an .ncu-rep, not only those that were launched; -k and
        --extract look at all
    arch: Only code for this architecture; repeatable. sm_100 includes sm_100a and sm_100f; sm_100a
        includes only itself
    block: Threads per block to compute the occupancy for, if the kernel does not fix the number
    control_codes: Show the control word of each instruction: barriers, yield bit, stall
    diff: Show what changed from the first input to the second: resources, spills, instructions;
        `latest~1 latest` are the last two runs of one kernel
    extract: Write the cubins and PTX too
    fail_on: With --diff: exit with 1 on this, or with 7 if nothing could be compared
    force: Overwrite a file that is not an earlier output of the same kind; inputs are never
        overwritten
    format: `html`: one page with source, PTX and SASS side by side. `dot` or `svg`: the format of
        --view cfg [default: from the extension of --out, else dot]
    hot: Print the instructions of a run, or of an .ncu-rep, with the samples and stall reasons of
        each
    kernel_name: Only kernels with this name, or matching regex:RE; mangled or not; repeatable
    line_info: Show the source line of each instruction (needs -lineinfo)
    list: Only list the content; no code is decompressed and nothing is written. Members of a wheel
        and an .ncu-repz are unpacked in memory to list them
    normalize: With --diff: what else to ignore, besides addresses, labels and padding
    out: Folder for listings, extracted files and summary.json [default: artifacts/sass]; with
        --view or --format, the file to write
    per_kernel: Write one listing for each kernel, not one for each file and architecture
    remote: Run nvdisasm on this host, in one job for all files (not with --list or --hot, which do
        not need it): a remote of `rgpu remote list`, an alias of ~/.ssh/config, or
        ssh://user@host:port [default: the default remote, if this machine has no nvdisasm]
    timeout: Limit of CPU time for each call of nvdisasm on this machine [default: 30s plus 10s per
        MiB of the cubin]
    tool: The disassembler of the listings: nvdisasm if it is found, or rgpu itself, without
        operands
    view: Print this on stdout instead of writing files
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    """
    return run("disasm", locals())


def compare(
    *what: Path,
    accept_new: bool = False,
    allow_unmeasured: bool = False,
    arch: str | None = None,
    dry_run: bool = False,
    events: Path | None = None,
    fail_on: Literal["slower", "ambiguous"] | Sequence[Literal["slower", "ambiguous"]] | None = None,
    fail_under: float | str | None = None,
    force: bool = False,
    full_names: bool = False,
    gpu: str | None = None,
    iters: int | None = None,
    kernel: Path | Sequence[Path] | None = None,
    mode: Literal["deep", "ncu", "nsys", "bench"] | None = None,
    out: Path | None = None,
    problem_sizes: str | Sequence[str] | None = None,
    queue_timeout: Time | None = None,
    remote: str | None = None,
    require_gpu: bool = False,
    run_id: str | None = None,
    seed: int | None = None,
    set: str | None = None,
    share_gpu: bool = False,
    strict: bool = False,
    sudo: bool = False,
    threshold: float | str | None = None,
    timeout: Time | None = None,
    warmup: int | None = None,
    progress: Progress = None,
    cwd: Path | None = None,
) -> Any:
    """Compare two runs or reports, or two kernels side by side on one GPU.

    what: Two runs (id, prefix, latest, folder) or two report files: the base, then the new one
    accept_new: Accept the key of an unknown host
    allow_unmeasured: Exit with 0 even if nothing was measured on a GPU [default: only on this
        machine, if it has no NVIDIA driver]
    arch: Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]
    dry_run: Print the plan and the exact tool commands; touch nothing
    events: Write the run's events as JSON lines
    fail_on: Exit with 1 on this verdict; with fewer than 5 launches of a kernel on either side the
        verdict is AMBIGUOUS, which `slower` accepts
    fail_under: Exit with 1 if the speedup is below this or unknown; the speedup is the ratio of the
        medians, even if the verdict is AMBIGUOUS
    force: Compare even if GPU, driver, sizes or clock policy differ
    full_names: Show kernels by their full names
    gpu: Which GPU: any, an index, a UUID, or part of a name
    iters: Timed launches of each side [default: until half the width of the speedup's 95 % interval
        is at most a quarter of the threshold]
    kernel: A kernel, twice: the base, then the new one; both are built, checked, timed with their
        calls interleaved, and profiled, in one job on one GPU
    mode: The tool to use in addition to timing [default: ncu]
    out: The run's folder, which must be new or empty
    problem_sizes: Sizes, as for `rgpu profile`: the name of a case that both kernels have, `all`,
        or values in the kernels' order or `n=…`; `;` between cases (or groups), `|` between cases
    queue_timeout: How long to wait for the GPU
    remote: A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port;
        `profile` accepts a comma-separated list and runs on all of them at once [default: that of
        RGPU_REMOTE, or of your settings]
    require_gpu: Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA
        driver too
    run_id: The run's name, which must be new
    seed: Seed of the inputs [default: 1]
    set: ncu's section set [default: full]
    share_gpu: Run even if other processes use the GPU
    strict: Fail if the host is not fit to measure on (other processes, throttling, …); it is
        checked before anything is timed, and a hot GPU again before each later case
    sudo: Use `sudo -n` if reading counters needs it
    threshold: The smallest effect that counts
    timeout: Time limit of each step, e.g. 90s, 10m
    warmup: Launches before the first timed one
    progress: who is told what happens: a function that takes each event of the run as a dict; True:
        lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one
    cwd: the folder of the project [default: the current one]
    """
    return run("compare", locals())
