# The types of `_commands.py`. Made by `cargo xtask schemas`; do not edit.
from typing import Literal, Sequence, TypedDict, overload

from typing_extensions import Unpack

from ._documents import Records
from ._types import Build, Code, Comparison, Disasm, DisasmDiff, ExecResult, FanOut, Finding, HotSpots, Plan, Profile, Run, Suite
from ._words import Pairs, Path, Progress, Time

class ProfileOptions(TypedDict, total=False):
    accept_new: bool
    """Accept the key of an unknown host."""
    after: Time | None
    """Measure from this time after the program's start, e.g. 30s."""
    allow_unmeasured: bool
    """Exit with 0 even if nothing was measured on a GPU [default: only on this machine, if it has
    no NVIDIA driver]
    """
    arch: str | None
    """Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]"""
    at_least: Literal["sanitizer", "guard", "verify", "ncu.sudo", "ncu.asked", "ncu.app_range", "ncu.kernel", "ncu.service", "ncu.basic", "ncu.launch", "ncu.service_launch", "nsys.full", "nsys.cuda", "torch", "cupti", "nsys.nvtx", "ncu.times", "nvtx", "events", "host", "cpu"] | None
    """The lowest rung that counts as success, e.g. ncu.basic."""
    budget: str | Sequence[str] | None
    """Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the program's
    time under ncu, at least 20s; 500MB]
    """
    capture_range: str | None
    """Record only inside this NVTX range."""
    clock_control: Literal["base", "boost", "force-boost", "none", "reset"] | None
    """How ncu controls the GPU clocks."""
    cuda_graph: Literal["auto", "always", "never"] | None
    """Time calls inside a CUDA graph too [default: auto]"""
    env: Pairs | None
    """Set an environment variable for the program."""
    events: Path | None
    """Write the run's events as JSON lines."""
    for_: str | None
    """Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to the
    end of the range of --capture-range.
    """
    full_names: bool
    """Show kernels by their full names."""
    gpu: str | None
    """Which GPU: any, an index, a UUID, or part of a name."""
    gpus: str | None
    """Give a program this many GPUs, all, or those with these indexes; `--gpu` says which qualify.
    A job of Slurm asks for this many on each node. The modes ncu and deep then need `--ranks`
    [default: 1]
    """
    hang: Time | None
    """Stop the program as Ctrl-C does once it has printed nothing for this time, and name its
    ranks, their last collective and their stacks; what was measured is kept.
    """
    iters: int | None
    """Timed launches [default: until the median is known to 0.5 %]"""
    kernel: Path | None
    """The kernel: a name of `rgpu kernels list`, a folder with kernel.toml, a .cu or .py file."""
    kernel_exclude: str | Sequence[str] | None
    """Leave out kernels with this name."""
    kernel_name: str | Sequence[str] | None
    """Only kernels with this name."""
    kernel_name_base: Literal["function", "demangled", "mangled"] | None
    """The form of the name to match."""
    label: Pairs | None
    """A label to store with the run."""
    launch: int | str | None
    """The kernel of a bare .cu, .cuh, .cubin, .fatbin or .ptx, as in CUDA: its name, `matmul<float,
    16>`, or all of `matmul<float, 16><<<(n / 16, m / 16), (16, 16)>>>(m * n, n)` with the
    elements of each array and the value of each integer (`_` leaves one to rgpu).
    """
    launch_count: int | None
    """Number of launches to profile."""
    launch_skip: int | None
    """Launches to skip first."""
    light: bool
    """Start with the small section set `minimal`."""
    log_limit: int | str | None
    """Most output to keep of each stream, e.g. 100MB."""
    metrics: str | Sequence[str] | None
    """Metrics, separated by commas."""
    mode: Literal["ncu", "nsys", "sanitizer", "bench", "nvtx", "verify", "deep", "torch"] | None
    """What to measure with [default: the kernel's own mode, else ncu; nsys for a program that is
    built from its source, unless flags of ncu are given]
    """
    mount: Path | Sequence[Path] | None
    """Send a folder or file too; the first folder becomes the working folder and contains the
    others.
    """
    mount_limit: int | str | None
    """Most bytes in all mounts together, e.g. 2GB [default: 268MB]"""
    ncu_args: str | None
    """More arguments for ncu, as one string."""
    nodes: int | None
    """On a cluster of Slurm, start a program once on each of this many nodes: one profile of all
    its ranks, with nsys [default: 1]
    """
    note: str | None
    """A note to store with the run; runs with a note are never pruned."""
    nsys_args: str | None
    """More arguments for nsys profile, as one string."""
    nvtx_include: str | Sequence[str] | None
    """Only launches inside this NVTX range; the name is passed to ncu unchecked: A, A::A1,
    domain@A.
    """
    out: Path | None
    """The run's folder, which must be new or empty [default: a new one in RGPU_RUNS_DIR, or where
    your settings say]
    """
    plot: str | Sequence[str] | None
    """Draw this against the first axis of `--sweep`: `time`, or the beginning of a metric's name;
    exit with 2 if no case has a number for it, or 5 if the cases have no metrics.
    """
    preset: str | None
    """Flags from `[preset.NAME]` of rgpu.toml."""
    problem_sizes: str | Sequence[str] | None
    """Sizes: the name of a case of kernel.toml, `all` of these, or values in the kernel's order or
    as `n=…`, with `;` between groups (or between cases, if the kernel has no groups) and `|`
    between cases.
    """
    pull: str | Sequence[str] | None
    """Fetch new and changed files that match, e.g. 'out/**'; relative to the working folder."""
    queue_timeout: Time | None
    """How long to wait for the GPU."""
    ranks: str | None
    """The ranks to profile: ncu and deep one of them, sanitizer all by default; nsys records all in
    one report, or one alone. The program is started by torchrun, accelerate, mpirun or srun.
    """
    regions: str | Sequence[str] | None
    """Only these NVTX regions; it is an error if the program has none of them: A, A::A1, domain@A,
    decode*, regex:RE.
    """
    replay_mode: Literal["kernel", "application", "range", "app-range"] | None
    """How passes are repeated."""
    require_gpu: bool
    """Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA driver too."""
    run_id: str | None
    """The run's name, which must be new."""
    sample: Literal["none", "process-tree", "system-wide", "cpu"] | None
    """Where nsys samples the CPU; if given, no second run records call stacks [default: none]"""
    sanitizer_args: str | None
    """More arguments for compute-sanitizer, as one string."""
    save_kernel: bool
    """Write what was assumed of a bare kernel to the kernel.toml beside it."""
    section: str | Sequence[str] | None
    """A section by its identifier."""
    seed: int | None
    """Seed of the inputs."""
    set: str | None
    """Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal, sol,
    extended.
    """
    share_gpu: bool
    """Run even if other processes use the GPU."""
    strict: bool
    """Fail if the host is not fit to measure on (other processes, throttling, …); it is checked
    before anything is timed, and a hot GPU again before each later case.
    """
    sudo: bool
    """Use `sudo -n` if reading counters needs it."""
    target: str | None
    """Of the programs that the folder KERNEL builds, profile the one of this name."""
    target_processes: Literal["all", "application-only"] | None
    """Which processes to profile."""
    timeout: Time | None
    """Time limit of each step, e.g. 90s, 10m, 1h30m."""
    tool: Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"] | Sequence[Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"]] | None
    """Which tools [default: all for a kernel, memcheck for a program]"""
    top: int | None
    """Number of kernels to profile with ncu, by GPU time [default: 3]"""
    trace: str | None
    """What to trace [default: cuda,nvtx]"""
    warmup: int | None
    """Launches before the first timed one."""
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""

@overload
def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[True],
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[ProfileOptions],
) -> Plan: ...
@overload
def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[True],
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[ProfileOptions],
) -> Run: ...
@overload
def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: Pairs,
    **options: Unpack[ProfileOptions],
) -> Suite: ...
@overload
def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: list[str] | tuple[str, ...],
    sweep: None = ...,
    **options: Unpack[ProfileOptions],
) -> FanOut | Profile: ...
@overload
def profile(
    program: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    remote: str | None = ...,
    sweep: None = ...,
    **options: Unpack[ProfileOptions],
) -> Profile: ...
class ExecOptions(TypedDict, total=False):
    accept_new: bool
    """Accept the key of an unknown host."""
    after: Time | None
    """Measure from this time after the program's start, e.g. 30s."""
    allow_unmeasured: bool
    """Exit with 0 even if nothing was measured on a GPU [default: only on this machine, if it has
    no NVIDIA driver]
    """
    at_least: Literal["sanitizer", "guard", "verify", "ncu.sudo", "ncu.asked", "ncu.app_range", "ncu.kernel", "ncu.service", "ncu.basic", "ncu.launch", "ncu.service_launch", "nsys.full", "nsys.cuda", "torch", "cupti", "nsys.nvtx", "ncu.times", "nvtx", "events", "host", "cpu"] | None
    """The lowest rung that counts as success, e.g. ncu.basic."""
    budget: str | Sequence[str] | None
    """Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the program's
    time under ncu, at least 20s; 500MB]
    """
    capture_range: str | None
    """Record only inside this NVTX range."""
    clock_control: Literal["base", "boost", "force-boost", "none", "reset"] | None
    """How ncu controls the GPU clocks."""
    code: str | None
    """The code to run."""
    env: Pairs | None
    """Set an environment variable for the program."""
    env_file: Path | Sequence[Path] | None
    """A file with NAME=VALUE lines; their values are kept out of every log."""
    events: Path | None
    """Write the run's events as JSON lines."""
    for_: str | None
    """Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to the
    end of the range of --capture-range.
    """
    full_names: bool
    """Show kernels by their full names."""
    gpu: str | None
    """Which GPU: any, an index, a UUID, or part of a name."""
    gpus: str | None
    """Lock this many GPUs, all, or those with these indexes, and hide all others from the program;
    `--gpu` says which qualify; 0 hides all. A job of Slurm asks for this many on each node.
    """
    hang: Time | None
    """Stop the program as Ctrl-C does once it has printed nothing for this time, and name its
    ranks, their last collective and their stacks; what was measured is kept.
    """
    kernel_exclude: str | Sequence[str] | None
    """Leave out kernels with this name."""
    kernel_name: str | Sequence[str] | None
    """Only kernels with this name."""
    kernel_name_base: Literal["function", "demangled", "mangled"] | None
    """The form of the name to match."""
    label: Pairs | None
    """A label to store with the run."""
    lang: str | None
    """The language, if the file's name and content do not tell: rs, py, cu, sh."""
    launch_count: int | None
    """Number of launches to profile."""
    launch_skip: int | None
    """Launches to skip first."""
    light: bool
    """Start with the small section set `minimal`."""
    log_limit: int | str | None
    """Most output to keep of each stream, e.g. 100MB."""
    metrics: str | Sequence[str] | None
    """Metrics, separated by commas."""
    mount: Path | Sequence[Path] | None
    """Send a folder or file too; the first folder becomes the working folder and contains the
    others.
    """
    mount_limit: int | str | None
    """Most bytes in all mounts together, e.g. 2GB [default: 268MB]"""
    ncu_args: str | None
    """More arguments for ncu, as one string."""
    nodes: int | None
    """With `--mode nsys` on a cluster of Slurm: start it once on each of this many nodes."""
    note: str | None
    """A note to store with the run; runs with a note are never pruned."""
    nsys_args: str | None
    """More arguments for nsys profile, as one string."""
    nvtx_include: str | Sequence[str] | None
    """Only launches inside this NVTX range; the name is passed to ncu unchecked: A, A::A1,
    domain@A.
    """
    out: Path | None
    """The run's folder, which must be new or empty [default: a new one in RGPU_RUNS_DIR, or where
    your settings say]
    """
    preset: str | None
    """Flags from `[preset.NAME]` of rgpu.toml."""
    pull: str | Sequence[str] | None
    """Fetch new and changed files that match, e.g. 'out/**'; relative to the working folder."""
    queue_timeout: Time | None
    """How long to wait for the GPU."""
    ranks: str | None
    """With `--mode`: the ranks of a program that the tool looks at, as in `rgpu profile`."""
    regions: str | Sequence[str] | None
    """Only these NVTX regions; it is an error if the program has none of them: A, A::A1, domain@A,
    decode*, regex:RE.
    """
    remote: str | None
    """A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port; `profile`
    accepts a comma-separated list and runs on all of them at once [default: that of RGPU_REMOTE,
    or of your settings]
    """
    replay_mode: Literal["kernel", "application", "range", "app-range"] | None
    """How passes are repeated."""
    require_gpu: bool
    """Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA driver too."""
    run_id: str | None
    """The run's name, which must be new."""
    sample: Literal["none", "process-tree", "system-wide", "cpu"] | None
    """Where nsys samples the CPU; if given, no second run records call stacks [default: none]"""
    sanitizer_args: str | None
    """More arguments for compute-sanitizer, as one string."""
    section: str | Sequence[str] | None
    """A section by its identifier."""
    set: str | None
    """Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal, sol,
    extended.
    """
    share_gpu: bool
    """Run even if other processes use the GPU."""
    strict: bool
    """Fail if the host is not fit to measure on (other processes, throttling, …); it is checked
    before anything is timed, and a hot GPU again before each later case.
    """
    sudo: bool
    """Use `sudo -n` if reading counters needs it."""
    target_processes: Literal["all", "application-only"] | None
    """Which processes to profile."""
    timeout: Time | None
    """Time limit of each step, e.g. 90s, 10m, 1h30m."""
    tool: Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"] | Sequence[Literal["memcheck", "racecheck", "initcheck", "synccheck", "all"]] | None
    """Which tools [default: all for a kernel, memcheck for a program]"""
    top: int | None
    """Number of kernels to profile with ncu, by GPU time [default: 3]"""
    trace: str | None
    """What to trace [default: cuda,nvtx]"""
    tty: bool
    """Allocate a pseudo-terminal (TTY) on the host: stdout and stderr become one stream, and keys
    are sent as they are typed.
    """
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""
    stdin: str | bytes | None
    """The standard input of the program; without it: nothing."""

@overload
def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[True],
    mode: None = ...,
    **options: Unpack[ExecOptions],
) -> Plan: ...
@overload
def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[True],
    dry_run: Literal[False] = ...,
    mode: None = ...,
    **options: Unpack[ExecOptions],
) -> Run: ...
@overload
def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    mode: Literal["ncu", "nsys", "sanitizer", "bench", "nvtx", "verify", "deep", "torch"],
    **options: Unpack[ExecOptions],
) -> Profile: ...
@overload
def exec(
    file: Path | None = ...,
    command: str | Sequence[str] = ...,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    mode: None = ...,
    **options: Unpack[ExecOptions],
) -> ExecResult: ...
class BuildOptions(TypedDict, total=False):
    accept_new: bool
    """Accept the key of an unknown host."""
    arch: str | Sequence[str] | None
    """Compile for these architectures, e.g. sm_90a,sm_100a: one run for each [default: the GPU's,
    else kernel.toml's first]
    """
    compile_options: str | None
    """More options for nvcc, NVRTC, cute.compile or Triton's ptxas, as one string."""
    dsl: Literal["cute", "triton"] | None
    """The file is a kernel of this Python DSL [default: the one that it imports]"""
    emit: Literal["ptx", "cubin", "sass", "ir"] | Sequence[Literal["ptx", "cubin", "sass", "ir"]] | None
    """What to write; `ptx` alone makes no cubin."""
    events: Path | None
    """Write the run's events as JSON lines."""
    keep_ir: bool
    """Write the intermediate code, like `--emit …,ir`."""
    kernel: Path | None
    """The kernel: a name of `rgpu kernels list`, or a folder with kernel.toml."""
    log_level: Literal["debug", "info", "warning", "error"] | None
    """Level of the DSL's own log."""
    opt_level: int | None
    """Optimisation level of the code."""
    out: Path | None
    """FILE.ptx or FILE.cubin: where to write the main PTX or cubin; DIR: the run's folder, which
    must be new or empty.
    """
    print_ir: bool
    """Have the DSL print its IR into the log."""
    problem_sizes: str | Sequence[str] | None
    """Sizes, as for profile; a DSL file's compile_kernel gets them as tuples."""
    remote: str | None
    """A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port."""
    run_id: str | None
    """The run's name, which must be new."""
    timeout: Time | None
    """Time limit of compiling, e.g. 90s, 10m."""
    yes: bool
    """Fetch missing compilers without asking."""
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""

@overload
def build(
    file: Path | None = ...,
    *,
    detach: Literal[True],
    **options: Unpack[BuildOptions],
) -> Run: ...
@overload
def build(
    file: Path | None = ...,
    *,
    detach: Literal[False] = ...,
    **options: Unpack[BuildOptions],
) -> Build: ...
class ReportOptions(TypedDict, total=False):
    bytes: int | str | None
    """Size limit of `--format brief`, such as 2048 or 16KiB; at least 256 [default: 4096]"""
    force: bool
    """Overwrite a file that is not an earlier report of the same kind."""
    full_names: bool
    """Show kernels by their full names in tables, Markdown and the brief summary; JSON and CSV
    always have them.
    """
    max_size: int | str | None
    """Refuse a file that is larger than this, compressed or unpacked."""
    open: bool
    """Open the written file; a `perfetto` trace opens at ui.perfetto.dev, in your browser only:
    nothing is uploaded.
    """
    out: Path | None
    """Write to this file, or into this folder if there are several files, and print the names. By
    default `html` goes to report.html and `perfetto` to trace.pftrace, in the run's folder, or
    in the current folder if the input is a file.
    """
    redact: bool
    """Remove host, user, paths, command lines, environment and source text. The tools' own reports
    contain all of this and are never included.
    """
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""

@overload
def report(
    *what: Path,
    format: None = ...,
    lint: Literal["nvtx"],
    **options: Unpack[ReportOptions],
) -> Records[Finding]: ...
@overload
def report(
    *what: Path,
    format: Literal["table", "json", "markdown", "csv", "brief", "html", "perfetto"],
    lint: None = ...,
    **options: Unpack[ReportOptions],
) -> str: ...
@overload
def report(
    *what: Path,
    format: None = ...,
    lint: None = ...,
    **options: Unpack[ReportOptions],
) -> Profile: ...
class DisasmOptions(TypedDict, total=False):
    accept_new: bool
    """Accept the key of an unknown host."""
    all_kernels: bool
    """All kernels of a run or an .ncu-rep, not only those that were launched; -k and --extract look
    at all.
    """
    arch: str | Sequence[str] | None
    """Only code for this architecture; repeatable. sm_100 includes sm_100a and sm_100f; sm_100a
    includes only itself.
    """
    block: int | None
    """Threads per block to compute the occupancy for, if the kernel does not fix the number."""
    control_codes: bool
    """Show the control word of each instruction: barriers, yield bit, stall."""
    extract: bool
    """Write the cubins and PTX too."""
    fail_on: Literal["any", "instructions", "resources"] | Sequence[Literal["any", "instructions", "resources"]] | None
    """With --diff: exit with 1 on this, or with 7 if nothing could be compared."""
    force: bool
    """Overwrite a file that is not an earlier output of the same kind; inputs are never
    overwritten.
    """
    format: Literal["dot", "svg", "html"] | None
    """`html`: one page with source, PTX and SASS side by side. `dot` or `svg`: the format of --view
    cfg [default: from the extension of --out, else dot]
    """
    kernel_name: str | Sequence[str] | None
    """Only kernels with this name, or matching regex:RE; mangled or not; repeatable."""
    line_info: bool
    """Show the source line of each instruction (needs -lineinfo)."""
    list: bool
    """Only list the content; no code is decompressed and nothing is written. Members of a wheel and
    an .ncu-repz are unpacked in memory to list them.
    """
    normalize: Literal["registers"] | None
    """With --diff: what else to ignore, besides addresses, labels and padding."""
    out: Path | None
    """Folder for listings, extracted files and summary.json [default: artifacts/sass]; with --view
    or --format, the file to write.
    """
    per_kernel: bool
    """Write one listing for each kernel, not one for each file and architecture."""
    remote: str | None
    """Run nvdisasm on this host, in one job for all files (not with --list or --hot, which do not
    need it): a remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    [default: the default remote, if this machine has no nvdisasm]
    """
    timeout: Time | None
    """Limit of CPU time for each call of nvdisasm on this machine [default: 30s plus 10s per MiB of
    the cubin]
    """
    tool: Literal["auto", "rgpu", "nvdisasm", "none"] | None
    """The disassembler of the listings: nvdisasm if it is found, or rgpu itself, without operands."""
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""

@overload
def disasm(
    *what: Path,
    diff: Literal[True],
    hot: Literal[False] = ...,
    view: None = ...,
    **options: Unpack[DisasmOptions],
) -> DisasmDiff: ...
@overload
def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[False] = ...,
    view: Literal["sass", "ptx", "source", "mix", "cfg", "live"],
    **options: Unpack[DisasmOptions],
) -> Code: ...
@overload
def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[True],
    view: None = ...,
    **options: Unpack[DisasmOptions],
) -> HotSpots: ...
@overload
def disasm(
    *what: Path,
    diff: Literal[False] = ...,
    hot: Literal[False] = ...,
    view: None = ...,
    **options: Unpack[DisasmOptions],
) -> Disasm: ...
class CompareOptions(TypedDict, total=False):
    accept_new: bool
    """Accept the key of an unknown host."""
    allow_unmeasured: bool
    """Exit with 0 even if nothing was measured on a GPU [default: only on this machine, if it has
    no NVIDIA driver]
    """
    arch: str | None
    """Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]"""
    events: Path | None
    """Write the run's events as JSON lines."""
    fail_on: Literal["slower", "ambiguous"] | Sequence[Literal["slower", "ambiguous"]] | None
    """Exit with 1 on this verdict; with fewer than 5 launches of a kernel on either side the
    verdict is AMBIGUOUS, which `slower` accepts.
    """
    fail_under: float | str | None
    """Exit with 1 if the speedup is below this or unknown; the speedup is the ratio of the medians,
    even if the verdict is AMBIGUOUS.
    """
    force: bool
    """Compare even if GPU, driver, sizes or clock policy differ."""
    full_names: bool
    """Show kernels by their full names."""
    gpu: str | None
    """Which GPU: any, an index, a UUID, or part of a name."""
    iters: int | None
    """Timed launches of each side [default: until half the width of the speedup's 95 % interval is
    at most a quarter of the threshold]
    """
    kernel: Path | Sequence[Path] | None
    """A kernel, twice: the base, then the new one; both are built, checked, timed with their calls
    interleaved, and profiled, in one job on one GPU.
    """
    mode: Literal["deep", "ncu", "nsys", "bench"] | None
    """The tool to use in addition to timing [default: ncu]"""
    out: Path | None
    """The run's folder, which must be new or empty."""
    problem_sizes: str | Sequence[str] | None
    """Sizes, as for `rgpu profile`: the name of a case that both kernels have, `all`, or values in
    the kernels' order or `n=…`; `;` between cases (or groups), `|` between cases.
    """
    queue_timeout: Time | None
    """How long to wait for the GPU."""
    remote: str | None
    """A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port; `profile`
    accepts a comma-separated list and runs on all of them at once [default: that of RGPU_REMOTE,
    or of your settings]
    """
    require_gpu: bool
    """Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA driver too."""
    run_id: str | None
    """The run's name, which must be new."""
    seed: int | None
    """Seed of the inputs [default: 1]"""
    set: str | None
    """Ncu's section set [default: full]"""
    share_gpu: bool
    """Run even if other processes use the GPU."""
    strict: bool
    """Fail if the host is not fit to measure on (other processes, throttling, …); it is checked
    before anything is timed, and a hot GPU again before each later case.
    """
    sudo: bool
    """Use `sudo -n` if reading counters needs it."""
    threshold: float | str | None
    """The smallest effect that counts."""
    timeout: Time | None
    """Time limit of each step, e.g. 90s, 10m."""
    warmup: int | None
    """Launches before the first timed one."""
    progress: Progress
    """Who is told what happens: a function that takes each event of the run as a dict; True: lines
    on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one.
    """
    cwd: Path | None
    """The folder of the project [default: the current one]"""

@overload
def compare(
    *what: Path,
    dry_run: Literal[True],
    **options: Unpack[CompareOptions],
) -> Plan: ...
@overload
def compare(
    *what: Path,
    dry_run: Literal[False] = ...,
    **options: Unpack[CompareOptions],
) -> Comparison: ...
