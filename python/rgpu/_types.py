"""The types of results.

Made by `cargo xtask schemas`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union

from ._documents import DetachedMethods, Document, ExecMethods, ProfileMethods, Record, Records, RunMethods

if TYPE_CHECKING:
    Arg = Union[str, dict[str, Any]]
    """An argument, or the value of an environment variable."""
    BuildStatus = Literal['done', 'failed']
    """Whether a build succeeded."""
    CodeSimilarity = Literal['identical', 'same_text', 'same_instructions', 'different']
    """How similar the code of two kernels is."""
    Condition = Literal['always', 'failed']
    """When a diagnosis row applies."""
    CostSource = Literal['provider', 'price']
    """Where a cost comes from."""
    Digest = str
    """A sha256 in lower-case hex. Parsing checks the form, so a digest is safe as a file name."""
    Exit = Literal['done', 'findings', 'usage', 'config', 'host', 'tool', 'kernel', 'artifact', 'disk', 'bug', 'cancelled']
    """The exit statuses of `rgpu`. `rgpu exec` exits with the program's own status instead."""
    GpuChoice = Union[Literal['any'], dict[str, Any]]
    """The GPU that the user asked for with `--gpu`."""
    LadderAction = Union[Literal['next', 'stop', 'note'], dict[str, Any]]
    """The action of a diagnosis on the rung."""
    Level = Literal['minimal', 'sol', 'deep']
    """How much is measured besides times."""
    OnFailure = Literal['stop', 'continue']
    """The effect on the job when a step fails on its last rung."""
    Outcome = dict[str, Any]
    """How a job ended."""
    Pattern = str
    """Substrings that must occur in this order on one line, written with `*` between them."""
    ReadStatus = Literal['ok', 'partial', 'failed']
    """Whether an input could be read."""
    RowState = Literal['waiting', 'running', 'ok', 'no_gpu', 'failed', 'cancelled', 'no_budget']
    """The state of a case."""
    RunState = Literal['running', 'detached', 'done', 'failed', 'cancelled', 'never_submitted']
    """The state of a run."""
    Side = Literal['local', 'transport', 'host', 'tool', 'kernel']
    """Which side failed."""
    Source = Literal['output', 'stdout', 'stderr']
    """The text in which a pattern is searched."""
    StartError = Literal['not_found', 'not_executable']
    """Why a program did not start."""
    Stdin = Union[Literal['null', 'client'], dict[str, Any]]
    """Source of a step's standard input."""
    SuiteState = Literal['running', 'open', 'done']
    """Whether a suite runs, can be resumed, or is done."""
    SuiteVerdict = Literal['FASTER', 'SLOWER', 'SAME', 'AMBIGUOUS', 'NEW', 'INCOMPARABLE']
    """The verdict on a time."""
    TimeVerdict = Literal['FASTER', 'SLOWER', 'SAME', 'AMBIGUOUS']
    """Verdict on the change of a time."""
    TraceWorkKind = Literal['kernel', 'copy', 'set', 'graph']
    """Kinds of GPU work."""
    Trust = Literal['proven', 'bounded', 'unprotected']
    """How far the kernel could have influenced its times."""
    Value = Union[int, float, str]
    """A finite number or a text."""


class Access(Record):
    """How an instruction accesses memory."""

    __slots__ = ()
    space: str
    """Memory space: `global`, `shared`, `local` …"""
    operation: str
    """Operation: `load`, `store` …"""
    bits: int
    """Bits accessed by one thread."""


class Account(Record):
    """The account of one process of a trace."""

    __slots__ = ()
    step: StepTime | None
    """The unit that the program repeats; absent if none was found."""
    parts: Records[AccountPart]
    """The time of a step by cause, most time first; empty without a step."""
    program_ns: int
    """From the first event of the program to its last, in nanoseconds."""
    program_parts: Records[AccountPart]
    """The time of the whole program by cause, start-up included, most time first."""
    replayed_ns: int | None
    """The time of a step in nanoseconds by the replay of the unchanged graph; absent without one."""
    no_gains: str | None
    """Why no gains are given; absent if they are."""
    together: TogetherGain | None
    """What a step would take with the first changes together; absent if none is known."""
    rank: int | None
    """Number of the rank that it is about; absent for one process."""
    from_: str | None
    """The artifact that it was made from, as its path in the run folder."""


class AccountChange(Record):
    """The accounts of both sides, base first."""

    __slots__ = ()
    of: str
    """What the times are of: a step, or the whole program if not both sides have steps."""
    ns: list[int]
    """Time of it in nanoseconds."""
    note: str | None
    """What to know when reading it; absent if nothing."""
    parts: Records[PartChange]
    """The causes whose time changed, largest change first."""


class AccountPart(Record):
    """The time that has one cause."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'hidden_ns': 0}
    cause: str
    """The cause."""
    ns: int
    """Time on the critical path in nanoseconds; of a step, or of the program."""
    share: float
    """The part of the step's or program's time, 0 to 1."""
    hidden_ns: int
    """Time in nanoseconds in which other work hides it."""
    count: float
    """Number of kernels, copies or calls; of a step, or of the program."""
    rows: Records[AccountRow]
    """The kernels, calls or operators with most of that time, most time first."""


class AccountRow(Record):
    """A kernel, call or operator within a part of an account."""

    __slots__ = ()
    name: str
    """Demangled name of a kernel, name of a call, or what the host did."""
    ns: int
    """Time on the critical path in nanoseconds."""
    count: float
    """Number of kernels or calls."""
    place: str | None
    """The region or operator in which most of it is, if one is known."""


class AgentFacts(Record):
    """Facts that the agent collects itself, and the probes' answers."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'glibc': ''}
    host_id: str
    """sha256 of the machine id: identifies the host without naming it."""
    boot_id: str
    """The kernel's boot id."""
    hostname: str
    """Host name."""
    os: str
    """`PRETTY_NAME` of os-release."""
    arch: str
    """Architecture of the CPU, e.g. `x86_64`."""
    kernel: str
    """Release of the Linux kernel, as `uname -r` prints it."""
    user: str
    """The user the agent runs as."""
    root: bool
    """Whether that user is root."""
    cpus: int
    """Number of processors the agent may use."""
    memory_bytes: int
    """Size of the host's memory in bytes; 0 if unknown."""
    agent: str
    """Version of the agent."""
    folder: str
    """The folder under which the agent keeps blobs and jobs."""
    glibc: str
    """glibc's version, e.g. `2.39`; empty if unknown."""
    answers: Records[ProbeAnswer]
    """The answers, in the order of the probes."""


class Artifact(Record):
    """A file of the run folder."""

    __slots__ = ()
    path: str
    """Path in the run folder."""
    kind: str
    """Kind of file: `ncu_rep`, `cubin`, `ptx` …"""
    step: str | None
    """Id of the step that produced it."""
    size: int
    """Size in bytes."""
    sha256: str
    """sha256 of the content."""


class ArtifactSpec(Record):
    """The files of a step to fetch."""

    __slots__ = ()
    path: str
    """Path in the job's folder; `*` matches any characters but `/`, `**` matches any."""
    kind: str
    """The artifact's kind, which the laptop's importers know: `ncu_rep`, `nsys_sqlite`, `cubin` …"""


class BaselineTime(Record):
    """The time of a form of the reference, beside the kernel's."""

    __slots__ = ()
    form: str
    """The form: `eager` (as written) or `compile` (after `torch.compile`)."""
    median_ns: float
    """Median of its samples in nanoseconds."""
    speedup: float | None
    """This time over the kernel's; absent if the kernel was not timed."""


class BilledCost(Record):
    """A provider's bill for a run."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'times': 0}
    usd: float | None
    """US dollars that the provider billed, summed over its separate items. Absent if no amount can
    be distinguished from a balance or an hourly price.
    """
    times: int
    """Number of billed items."""
    words: list[str]
    """The first different messages of the provider."""


class BoardScore(Record):
    """The result of a leaderboard's own program, which measures by its own rules."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'message': ''}
    time_ns: float | None
    """One time of that program's means, in nanoseconds; absent if it gave none."""
    mean_ns: list[float]
    """That program's mean time of each benchmark in nanoseconds, in the board's order."""
    trust: Trust
    """How far the kernel could have influenced these times: it shares that program's process."""
    message: str
    """Why there is no time. Empty if there is one."""


class BoundShare(Record):
    """A measured time of one case as a share of its bound: no run of this work on this GPU is
    faster, unless its data were in a cache.
    """

    __slots__ = ()
    case: str
    """Name of the case."""
    gpu: str
    """The GPU's name in the catalogue of `rgpu model hw list`."""
    limit: str
    """The resource that sets the bound at the specified clock: `compute` or `memory`."""
    unit: str
    """That resource in words: `the tensor cores (bf16)`, `the FP32 units`, `HBM`."""
    bound_ns: float
    """The bound at the clock for which the peaks are specified, in nanoseconds."""
    percent: float
    """`bound_ns` as a share of the measured median, in percent. Above 100 the measurement or the
    counted work is wrong, or data was in a cache.
    """
    specified_mhz: float | None
    """The clock for which the peaks are specified, in MHz; absent if it is not known."""
    at_measured_clock: ShareAtClock | None
    """The same at the clock that was measured; absent if either clock is not known."""
    predicted: PredictedTime | None
    """What kernels with this work were measured to take; absent if none such were measured."""


class BuildError(Record):
    """Why a build failed."""

    __slots__ = ()
    code: str
    """Stable code of the failure, e.g. `does_not_compile`."""
    class_: str | None
    """Class of the exception; absent for compilers without exceptions."""
    message: str
    """The compiler's own message."""
    chain: Records[ErrorLink]
    """The exceptions that led to it, the first cause first."""
    traceback: str | None
    """The file with the full traceback."""
    diagnoses: Records[Diagnosis]
    """Known messages found in the log, each with its meaning."""


class CallEvent(Record):
    """One call into CUDA on the host."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'waits': False}
    name: int
    """Index into `names`: `cudaLaunchKernel` …"""
    start_ns: int
    """Start in nanoseconds since the first event."""
    duration_ns: int
    """Duration in nanoseconds."""
    thread: int
    """Id of the thread, as the tool gives it."""
    waits: bool
    """Whether the call waits for the GPU: a synchronisation, a copy that does not return before the
    GPU has reached it, or one that frees memory of a GPU at work.
    """
    rank: int | None
    """Number of the rank; absent for one process."""


class CallSite(Record):
    """A Python function in which an operator was called."""

    __slots__ = ()
    function: str
    """File, line of the function's `def`, and name: `net.py(9): forward`; code outside of functions
    has no line: `train.py: <module>`.
    """
    calls: int
    """Number of calls from there."""
    gpu_self_ns: int | None
    """GPU time in nanoseconds of the work that the operator itself launched there; absent if the
    trace has no GPU rows.
    """


class CaseChange(Record):
    """The change of one case of sizes."""

    __slots__ = ()
    name: str
    """Name of the case."""
    time: TimeChange
    """Its time on both sides."""


class CaseResult(Record):
    """Results of one case of sizes."""

    __slots__ = ()
    name: str
    """Name of the case."""
    sizes: list[dict[str, int]]
    """Sizes by variable name, one map for each group of a grouped kernel; usually there is one."""
    timing: Timing | None
    """Measured time; absent if the case was not timed."""
    correctness: Correctness | None
    """Result of the check; absent if the case was not checked."""
    baselines: Records[BaselineTime]
    """Times of forms of the reference on the same data."""


class Change(Record):
    """A number in both builds; absent for a build that does not give it."""

    __slots__ = ()
    what: str
    """Name of the number."""
    old: float | None
    """Value in the old build."""
    new: float | None
    """Value in the new build."""


class ClassCount(Record):
    """The number of instructions of one class."""

    __slots__ = ()
    class_: str
    """Name of the class."""
    count: int
    """Number of instructions."""


class Classification(Record):
    """The classification of a launch: its verdicts. Several may hold; one is primary."""

    __slots__ = ()
    primary: str
    """Id of the most important verdict: `memory_bound` …"""
    verdicts: Records[Verdict]
    """Every verdict that holds: the primary one first, then bounds, then the rest, by score."""


class CodeBlock(Record):
    """A basic block of the control-flow graph."""

    __slots__ = ()
    start: int
    """Offset of its first instruction."""
    end: int
    """Offset of the end of its last instruction."""
    next: list[int]
    """Start offsets of the blocks that may follow."""
    indirect: bool
    """Whether it ends in a branch through a register, so that unknown blocks may follow."""
    loop_head: bool
    """Whether a branch jumps back to it."""
    instructions: int
    """Number of instructions."""
    classes: Records[ClassCount]
    """Number of instructions of each class, most frequent first."""


class CodeImage(Record):
    """One image: a cubin or a PTX text."""

    __slots__ = ()
    path: str
    """Path of the file as the user gave it."""
    place: str | None
    """Location in the file: members, section, entry; empty if the image is the whole file."""
    arch: str
    """Architecture, e.g. `sm_90a`."""
    tool: str | None
    """Tool that gave the instruction texts: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`."""
    tool_problem: str | None
    """Why nvdisasm, although installed, did not give the texts."""
    ptx: str | None
    """PTX text of the file, or the one that `-lineinfo` left in the cubin."""
    sources: Records[SourceText]
    """Source files that the instructions come from."""
    kernels: Records[CodeKernel]
    """Kernels, and functions that have their own section."""


class CodeKernel(Record):
    """The code of one section."""

    __slots__ = ()
    symbol: str
    """The mangled name."""
    name: str | None
    """Demangled name; absent if it equals the symbol."""
    registers: int | None
    """Registers per thread."""
    spill_bytes: list[int] | None
    """Bytes of spill stores, then bytes of spill loads."""
    shared_bytes: int | None
    """Static shared memory per block in bytes."""
    samples: int | None
    """Number of warp samples in all, if the counts of a profile are shown."""
    instructions: Records[CodeLine]
    """Instructions in order, without the padding at the end."""
    blocks: Records[CodeBlock]
    """Basic blocks in order."""
    classes: dict[str, int]
    """Number of instructions of each class, without padding."""
    mnemonics: dict[str, int]
    """Number of instructions by name, modifiers left out."""
    ranges: Records[LifeRange]
    """Live ranges of registers, by register and position."""


class CodeLine(Record):
    """An instruction of a listing."""

    __slots__ = ()
    offset: int
    """Offset in bytes from the start of the section."""
    function: str | None
    """Name of the function that begins here, if the section holds more than its kernel."""
    text: str
    """Guard and name, with modifiers and operands if nvdisasm gave them. Branch targets are
    offsets.
    """
    control: str
    """Control word: `[B0-----:R-:W2:y1:S04]`."""
    target: int | None
    """Target offset of a direct branch."""
    at: Records[SourceAt]
    """Source position, outermost call first, innermost last; empty without a line table."""
    ptx_line: int | None
    """Line number in the PTX text, from 1."""
    live: LiveRegisters | None
    """Number of live registers."""
    counts: Counts | None
    """Counts from a profile."""


class CodePlace(Record):
    """A place in the user's own code: the innermost frame outside of packages, Python and CUDA from
    which the calls of a finding came.
    """

    __slots__ = ()
    file: str
    """The source file, relative to the program's folder if it is in there; for native code the
    executable or library.
    """
    line: int | None
    """The line of the call, from 1; in mode `torch` that of the function's `def`. Absent for native
    code.
    """
    function: str | None
    """The function; absent if it is not known."""
    share: float
    """The part of the finding's time that comes from there, 0 to 1."""


class CollectiveSum(Record):
    """Matched calls of one collective."""

    __slots__ = ()
    operation: str
    """The operation, e.g. `all_reduce`; the name in the report if it is none of the known ones."""
    group: str
    """The process group, by a name that is equal on all its ranks."""
    ranks: int
    """Number of ranks in the group."""
    bytes: int | None
    """Bytes by the convention of nccl-tests: the whole buffer that every rank has before or after.
    Absent if the report does not tell.
    """
    calls: int
    """Number of calls."""
    median_ns: int
    """The least duration over ranks, which has no wait for a rank; median over the calls, in
    nanoseconds.
    """
    total_ns: int
    """Sum of the least durations in nanoseconds."""
    waited_ns: int
    """Time in nanoseconds that ranks waited in these calls for later ranks, summed over ranks."""
    algorithm_bytes_per_s: float | None
    """`bytes` by `median_ns`, in bytes per second."""
    bus_bytes_per_s: float | None
    """The rate of the busiest link, as nccl-tests computes it, in bytes per second."""
    link_share: float | None
    """`bus_bytes_per_s` as a share of the peak of NVLink, one way, 0 to 1. Absent between hosts,
    and for a GPU that the catalogue does not have.
    """


class CollectiveWait(Record):
    """A call of a collective that waited for its last rank."""

    __slots__ = ()
    operation: str
    """The operation, e.g. `all_reduce`; the name in the report if it is none of the known ones."""
    group: str
    """The process group, by a name that is equal on all its ranks."""
    number: int
    """Index among the calls of the group, from 0."""
    start_ns: list[int | None]
    """Its start on each rank, in nanoseconds since the first event, or without a common clock that
    of the rank's own report; absent on ranks outside the group.
    """
    duration_ns: list[int | None]
    """Its duration on each rank in nanoseconds; absent on ranks outside the group."""
    last: int
    """The rank that came last."""
    late_ns: int
    """By how much it came later than the median of the others, in nanoseconds."""
    cause: str
    """The last rank's activity while the others waited."""
    region: str | None
    """The region in which it did that; absent outside of all regions."""


class ComparedSide(Record):
    """One side of a comparison."""

    __slots__ = ()
    name: str
    """As the user named it: a run, a file or a kernel."""
    run: str
    """Run id, or the file's name."""
    kernel: str
    """The kernel or program."""
    mode: str
    """Mode, or the kind of file: `ncu`, `nsys`, `bench` …"""
    rung: str
    """Id of the rung that was reached."""
    device: str | None
    """Name of the GPU, if known."""
    correctness: str | None
    """Result of the check: `right`, `wrong`, `unchecked`; absent if nothing was checked."""
    profile: str | None
    """Path of its profile in the comparison's run folder."""


class Cooling(Record):
    """A wait until a hot GPU had cooled."""

    __slots__ = ()
    seconds: float
    """Seconds that were waited."""
    from_c: int
    """Headroom before the wait: °C below the temperature at which the driver slows the GPU down."""
    to_c: int
    """Headroom after the wait."""


class CopySum(Record):
    """All copies or memsets of one kind."""

    __slots__ = ()
    kind: str
    """`HtoD`, `DtoH`, `DtoD`, `PtoP`, `memset` …"""
    count: int
    """Number of copies or memsets."""
    bytes: int
    """Bytes in total."""
    total_ns: int
    """GPU time in nanoseconds."""


class Correctness(Record):
    """Whether the outputs are correct."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'checked': 0, 'wrong': 0}
    verdict: str
    """The verdict: `right`, `wrong` or `unchecked`."""
    checked: int
    """Number of elements compared, or judged by a function of the task."""
    wrong: int
    """Number of elements outside the tolerance."""
    max_abs: float | None
    """The largest absolute error of an element."""
    max_rel: float | None
    """The largest relative error of an element."""
    first_wrong: str | None
    """The first wrong element in words: output, index, value found, value expected."""
    bit_equal: bool | None
    """Whether two calls on the same inputs gave the same bits."""
    timed_calls: int | None
    """Number of timed calls whose outputs were compared with the reference, not counted in
    `checked`.
    """
    timed_inputs: int | None
    """Number of distinct inputs over those timed calls."""
    note: str | None
    """The reference and tolerance used, or the reason why nothing was checked."""


class Counts(Record):
    """Counts of an instruction or a line. A count that was not collected is absent."""

    __slots__ = ()
    samples: int | None
    """Number of warp samples."""
    samples_not_issued: int | None
    """Number of warp samples in which the scheduler issued no instruction."""
    stalls: dict[str, int]
    """Number of samples by reason, named as in `StallReason`; zeros are left out. Together with
    `selected`, which is not a stall, they add up to `samples`.
    """
    stalls_not_issued: dict[str, int]
    """Of `stalls`, the samples in which the scheduler issued no instruction."""
    executed: int | None
    """Number of times that a warp executed it."""
    thread_executed: int | None
    """Number of times that a thread executed it, without predicated-off threads if the report
    tells.
    """
    metrics: dict[str, float]
    """All other counts by address, by NVIDIA's metric name: sectors, wavefronts, ideal ones. A line
    has only those that can be added up.
    """


class CoveredKernel(Record):
    """The launches of one kernel that a finding covers."""

    __slots__ = ()
    kernel: str
    """Demangled name."""
    launches: int
    """Number of launches that it covers: those that were judged, and those that they stand for."""
    total_ns: int
    """Their GPU time in nanoseconds."""
    stake_ns: int
    """Time in nanoseconds that they could give back."""
    text: str
    """The finding's text for the launch with the most time at stake."""


class DeviceTime(Record):
    """Times of one GPU, from the start of its first kernel to the end of its last."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'nccl_launches': 0, 'nccl_ns': 0, 'nccl_alone_ns': 0, 'tuning_ns': 0}
    device: int
    """Number of the GPU in the tool's numbering."""
    rank: int | None
    """Number of the rank; absent for one process."""
    span_ns: int
    """From the start of the first kernel to the end of the last, in nanoseconds."""
    busy_ns: int
    """Time in nanoseconds in which anything ran: kernels, graphs, copies, memsets."""
    idle_ns: int
    """Time in nanoseconds in which nothing ran."""
    kernel_ns: int
    """Time in nanoseconds in which at least one kernel or graph ran."""
    copy_ns: int
    """Time in nanoseconds in which at least one copy or memset ran."""
    overlap_ns: int
    """Time in nanoseconds in which kernels or graphs ran at the same time as copies or memsets."""
    concurrent_ns: int
    """Time in nanoseconds in which at least two kernels ran."""
    most_at_once: int
    """Largest number of kernels that ran at the same time."""
    nccl_launches: int
    """Number of launches of NCCL kernels, recognised by their names."""
    nccl_ns: int
    """Time in nanoseconds in which at least one NCCL kernel ran."""
    nccl_alone_ns: int
    """Time in nanoseconds in which only NCCL kernels ran: communication that no computation hides."""
    waiting: Records[WaitSum]
    """Causes of time without a kernel, longest first. The times add up to `span_ns - kernel_ns`."""
    first_launches: Records[WaitSum]
    """The part of `waiting` in gaps that are the program's start-up: the host loads libraries,
    loads or compiles code, allocates memory, or chooses an algorithm before a launch, once.
    """
    start_up_allocation_ns: int | None
    """Time in nanoseconds of that start-up in which the launching thread allocates memory on the
    GPU or pinned memory; absent if it allocates none.
    """
    pageable_copies: Records[PageableCopies]
    """Large copies from and to pageable memory while no kernel ran, by kind, most time first. Those
    in gaps that are start-up are left out.
    """
    tuning_ns: int
    """Time in nanoseconds in which kernels ran that only tune: those of XLA's autotuning and of
    Triton's benchmarks.
    """
    places: Records[IdleGroup]
    """Where time without a kernel is, by cause, region and the kernel that ends it; most time
    first, without small ones.
    """
    gaps: Records[IdleGap]
    """The longest gaps without a kernel, longest first."""
    streams: Records[StreamTime]
    """Streams, in order of their numbers."""


class Diagnosis(Record):
    """A known message in the log, with its meaning."""

    __slots__ = ()
    who: str
    """Source of the message: `cute`, `triton`, `mlir`, `ptxas`, `nvcc`, `python`."""
    line: str
    """The log line that contains it."""
    cause: str
    """The likely cause of the message."""
    next: str
    """The next step for the user."""


class DiagnosisRule(Record):
    """One row of a diagnosis table: a known message of a tool and its meaning."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'source': 'output', 'when': 'always', 'then': 'next'}
    source: Source
    """The text to search."""
    pattern: Pattern
    """The pattern to search for."""
    code: str
    """The reason code, e.g. `counters_refused`."""
    when: Condition
    """When the row applies."""
    then: LadderAction
    """The action on the rung."""


class Difference(Record):
    """A difference in the conditions of the two sides."""

    __slots__ = ()
    what: str
    """The condition that differs: `gpu`, `driver`, `clocks`, `sizes`, `harness`, `mode`,
    `language`, `clock`, `l2_flush`, `kernel`.
    """
    a: str
    """Its value on the base."""
    b: str
    """Its value on the other side."""


class ErrorLink(Record):
    """One exception in a chain."""

    __slots__ = ()
    class_: str
    """Class of the exception."""
    message: str
    """Message of the exception."""


class Evidence(Record):
    """A number that a verdict or finding is based on."""

    __slots__ = ()
    metric: str
    """Metric name, or rgpu's own name for a derived number."""
    value: float
    """The value of the metric."""
    unit: str
    """The unit of the value and the threshold. Times are in `ns`; shares are in `%`, or in `% of …`
    where the metric's name does not say of what.
    """
    threshold: float | None
    """The threshold that the value was compared with. `None` for a number that only explains."""
    source: str | None
    """Source of the threshold; empty without one."""


class ExpectationUpdate(Record):
    """An expected time that was written, or refused."""

    __slots__ = ()
    case: str
    """The case: the target, with the values of its axes in brackets."""
    side: str
    """The side: `kernel`, `baseline` or `optimised`."""
    sizes: str
    """The sizes, `n=1024`, with `;` between groups."""
    file: str
    """The file of the expectations."""
    written_ns: float | None
    """The expected time that was written, in nanoseconds; absent if it was refused."""
    refused: str | None
    """The name of the refusal for `--accept`; absent if it was written."""
    why: str | None
    """The reason of the refusal in words."""


class Failure(Record):
    """A failed command: what happened, where, why, and what to do next."""

    __slots__ = ()
    code: str
    """Stable code in snake_case, e.g. `unknown_kernel`."""
    what: str
    """The error in one line, in lower case, with values in backticks."""
    side: Side
    """The side on which it failed."""
    place: FailureContext
    """The host, tool, step and file concerned."""
    cause: str | None
    """Why it failed: the underlying error, or the tool's message."""
    hints: list[str]
    """The next steps, each a sentence or a command."""
    exit: Exit
    """The exit status of the command."""


class FailureContext(Record):
    """Where the failure happened. Each field is present if it is known."""

    __slots__ = ()
    host: str | None
    """The remote's name, if a remote is concerned."""
    transport: str | None
    """The remote's transport, such as `ssh`."""
    tool: str | None
    """The tool, with its version if known."""
    step: str | None
    """The step of the plan."""
    file: str | None
    """The file, with `:line` or `@offset` if known."""
    log: str | None
    """The log with the details."""


class FanOutCase(Record):
    """Time of one case on one remote."""

    __slots__ = ()
    name: str
    """Name of the case."""
    median_ns: float
    """Median time in nanoseconds."""


class FanOutRow(Record):
    """Results of one remote."""

    __slots__ = ()
    remote: str
    """Name of the remote."""
    run: str | None
    """Run id; absent if no run was started."""
    profile: str | None
    """Path of its profile, relative to the fan-out's folder."""
    exit: int
    """Exit status of the run."""
    state: str
    """State: `done`, `failed`, `cancelled`, `detached`."""
    failure: str | None
    """Description of the failure, in one line."""
    code: str | None
    """Code of the failure."""
    device: str | None
    """Name of the GPU that was used."""
    rung: str | None
    """Id of the rung that was reached."""
    median_ns: float | None
    """Median time of the default case in nanoseconds."""
    clock: str | None
    """Clock of `median_ns`: `cuda_events`, `host_clock`, `cpu_reference`."""
    against_base: TimeChange | None
    """Comparison of the time with that of the base."""
    correctness: str | None
    """Result of the check: `right`, `wrong`, `unchecked`."""
    cases: Records[FanOutCase]
    """Each case of sizes with its median in nanoseconds."""
    sm_percent: float | None
    """SM throughput of the longest launch, in percent of the peak."""
    memory_percent: float | None
    """Memory throughput of the longest launch, in percent of the peak."""
    occupancy_percent: float | None
    """Active warps of the longest launch, in percent of the most that an SM can hold."""
    bound_by: str | None
    """Primary verdict on what limits the longest launch: `memory_bound` …"""
    seconds: float
    """Wall-clock seconds of the run."""
    cost_usd: float | None
    """Cost in US dollars, if the remote has a price."""


class Finding(Record):
    """A finding: a problem or an opportunity, with the next step. One cause is one finding,
    whatever the number of kernels and launches.
    """

    __slots__ = ()
    id: str
    """snake_case id of the rule."""
    category: str
    """`memory`, `compute`, `occupancy`, `correctness`, `host`, `nvtx` …"""
    priority: int
    """Priority; 1 is the first thing to do."""
    stake: PotentialGain | None
    """Time that acting on it could give back; absent if it is not about time, or no time is known."""
    launch: int | None
    """Id of the launch that it concerns, of several the one with the most time at stake; absent if
    it concerns no launch.
    """
    kernel: str | None
    """Name of that launch's kernel; absent if the profile has only one kernel."""
    rank: int | None
    """Number of the rank that it concerns; absent if it concerns no single rank."""
    text: str
    """Description, with the number that shows it."""
    hint: str
    """The next concrete step."""
    evidence: Records[Evidence]
    """The numbers that the finding is based on. Of several launches, those of `launch`."""
    covers: Records[CoveredKernel]
    """The kernels that it covers, most time at stake first."""
    code: Records[CodePlace]
    """Where in the user's own code it is, most time first; empty if the recording does not tell."""
    places: Records[IdleGroup]
    """For idle time: where it is, most time first."""


class Gap(Record):
    """A piece of missing data with the reason. Also used for warnings."""

    __slots__ = ()
    code: str
    """Stable code: `no_driver`, `nan_metric`, `unknown_metric`, `no_gpu_rows` …"""
    text: str
    """The missing data and the reason, as a sentence."""


class GeometricMean(Record):
    """Geometric means over the cases."""

    __slots__ = ()
    cases: int
    """Number of cases included."""
    median_ns: float
    """Geometric mean of the medians, in nanoseconds."""
    ci95_ns: list[float] | None
    """95 % interval of the mean in nanoseconds, derived from the intervals of the medians (MOVER,
    on logarithms).
    """
    flops_percent: float | None
    """Geometric mean of the shares of the compute peak, in percent; absent unless every case has
    one and the peak is the same.
    """
    bytes_percent: float | None
    """Geometric mean of the shares of the DRAM peak, in percent; absent unless every case has one
    and the peak is the same.
    """


class Geometry(Record):
    """The shape of a launch."""

    __slots__ = ()
    grid: list[int]
    """Blocks in x, y, z."""
    block: list[int]
    """Threads per block in x, y, z."""


class GeometrySum(Record):
    """The launches of a chosen kernel that have one geometry."""

    __slots__ = ()
    grid: list[int]
    """Blocks in each dimension."""
    block: list[int]
    """Threads of a block in each dimension."""
    shared_bytes: int | None
    """Shared memory of a block in bytes, if the first pass recorded it."""
    launches: int
    """Number of launches in the first pass."""
    total_ns: int
    """Their GPU time in the first pass, in nanoseconds."""


class GpuFacts(Record):
    """A GPU of a host."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'mig': False}
    index: int
    """Index in `nvidia-smi`, from 0."""
    name: str
    """Product name, e.g. `NVIDIA H200`."""
    uuid: str
    """`GPU-…`."""
    sm: int
    """Compute capability times ten: 90, 100."""
    memory_bytes: int
    """Size of the GPU's memory in bytes."""
    max_sm_mhz: int | None
    """Highest SM clock in MHz."""
    max_mem_mhz: int | None
    """Highest memory clock in MHz."""
    power_limit_w: float | None
    """Power limit in watts."""
    mig: bool
    """Whether MIG mode is on."""


class GpuRequest(Record):
    """Which GPUs a plan needs, and whether it may share them."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'share': False}
    choice: GpuChoice
    """The GPUs that qualify."""
    count: int | None
    """How many of them to lock, all at once."""
    share: bool
    """Whether to run even if other users' processes are on the GPU."""
    known: Records[KnownGpu]
    """The host's GPUs as the laptop knows them, in index order."""
    processes: list[str]
    """argv of a command that lists compute processes as `uuid, pid, name, memory` lines
    (nvidia-smi's `--query-compute-apps` CSV). Empty: other users' processes cannot be detected.
    """
    setting: GpuSetting | None
    """A change of each locked GPU while the job holds it."""


class GpuSetting(Record):
    """A change of each locked GPU, from before the first step that uses it until the GPU is given
    back. `UUID` in a word stands for the GPU.
    """

    __slots__ = ()
    apply: list[str]
    """argv of the command that makes the change. If it fails, no step runs on the GPU."""
    undo: list[str]
    """argv of the command that undoes it, however the job ends."""


class GraphTiming(Record):
    """Time of a call inside a CUDA graph, with L2 flushed before each call.

    A graph with several calls and the flushes between them is replayed in turn with a graph of
    the flushes alone. The time is their difference, divided by the number of calls: the kernel,
    and the step from one node of a graph to the next, which may change from session to session;
    then `prepare_ns` changes with it. `median_ns` of the timing is the same call between two
    CUDA events, where the gaps between event and launch count too.
    """

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'discarded': 0}
    median_ns: float
    """Median of the samples in nanoseconds."""
    ci95_ns: list[float]
    """95 % confidence interval of the median in nanoseconds, from order statistics. If the samples
    jump between two levels, it covers both.
    """
    samples: int
    """Number of samples kept."""
    discarded: int
    """Number of samples dropped because clocks changed or the GPU was throttled."""
    launches: int
    """Number of calls in the graph."""
    prepare_ns: float
    """Median time between two calls in nanoseconds, which is subtracted: flushing L2, restoring
    inputs and poisoning outputs.
    """
    call_nodes: int | None
    """Number of nodes that each call adds to the graph; absent if unknown."""
    prepare_nodes: int | None
    """Number of nodes between two calls; absent if unknown."""
    histogram: Histogram | None
    """How the samples are spread."""


class GrownSizes(Record):
    """Sizes at which a pair was too close to call."""

    __slots__ = ()
    sizes: str
    """The sizes, as `n=1024`, with `;` between the groups."""
    speedup: float | None
    """The speedup of the pair at these sizes; null if it was not determined."""
    ci95: list[float] | None
    """Its 95 % interval."""
    run: str
    """Id of the run."""


class HangDetection(Record):
    """When the program of a rung counts as hung: it has printed nothing for a time. Its ranks and
    their stacks are written to a file and it is stopped as by Ctrl-C, while the tool around it
    continues. No lower rung is tried.
    """

    __slots__ = ()
    quiet_s: int
    """Seconds without output of the program or the tool."""
    spare: list[str]
    """Names of the tool's own processes, as the kernel cuts them (15 bytes); all others are
    stopped.
    """
    file: str
    """The file with the stacks, in the job's folder."""
    rank_variables: list[str]
    """Environment variables with the number of a process's rank; the first that is set counts."""
    stacks: list[list[str]]
    """Commands that print the stack of a process, best first; the first that succeeds counts. `PID`
    stands for the process id.
    """
    calls: list[str]
    """Words of a line of a stack that names what the process last called, in lower case. The first
    such line is in the warning.
    """


class Histogram(Record):
    """Samples of a time, counted in bins of one width."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'below': 0, 'above': 0}
    low_ns: float
    """Where the first bin begins, in nanoseconds."""
    high_ns: float
    """Where the last bin ends, in nanoseconds."""
    counts: list[int]
    """Number of samples in each bin."""
    below: int
    """Number of samples far below the bins."""
    above: int
    """Number of samples far above the bins."""


class HostFacts(Record):
    """Facts about a GPU host: parsed by the laptop, cached under `key`."""

    __slots__ = ()
    remote: str
    """The remote's name on the laptop."""
    transport: str
    """The transport: `local`, `ssh` …"""
    agent: AgentFacts
    """The facts from the agent."""
    driver: str | None
    """Driver version, e.g. `580.159.04`; `None` without a driver."""
    cuda: str | None
    """The newest CUDA version that the driver supports, e.g. `13.0`."""
    gpus: Records[GpuFacts]
    """The GPUs, by index."""
    tools: Records[ToolFacts]
    """The tools found on the host."""
    counters_admin_only: bool | None
    """Whether only administrators may read the performance counters; `None` if unknown."""


class HostWork(Record):
    """An operator or a function of the host that the GPU waited for."""

    __slots__ = ()
    operator: str | None
    """Name of the operator, or of a range: `aten::randn`; absent if it was the function itself."""
    function: str | None
    """The Python function, as operators have it in `places`: `data.py(9): load`; absent if the
    trace does not tell.
    """
    total_ns: int
    """Time of the gaps in nanoseconds in which the thread was there."""


class Hunk(Record):
    """One region in which the listings differ."""

    __slots__ = ()
    old_offset: int | None
    """Offset of its first instruction in the old listing."""
    new_offset: int | None
    """Offset of its first instruction in the new listing."""
    lines: list[str]
    """Instructions: those of the old listing begin with `-`, those of the new one with `+`, those
    of both with a blank.
    """


class IdleGap(Record):
    """A gap in which no kernel ran."""

    __slots__ = ()
    start_ns: int
    """Start, in nanoseconds since the first event of the trace."""
    duration_ns: int
    """Length of the gap in nanoseconds."""
    cause: str
    """The cause with the largest part."""
    parts: Records[WaitSum]
    """Every cause with its time."""
    after: str
    """Name of the work that ran before the gap."""
    before: str
    """Name of the work that ran after the gap."""
    call: str | None
    """The call that launched the next kernel, or the host's wait before that call."""


class IdleGroup(Record):
    """Gaps of one cause that end in one region with one kernel."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'first_launch': False}
    cause: str
    """The cause of the time counted here."""
    first_launch: bool
    """Whether the gaps are the program's start-up; see `first_launches`."""
    region: str | None
    """The innermost region in which the kernel was launched; absent outside of all regions."""
    before: str
    """Name of the work that ended the gaps."""
    call: str | None
    """The call of the longest gap: the one that took most of it, else the one that launched the
    kernel.
    """
    host: HostWork | None
    """The innermost operator or function in which the launching thread was for at least half of the
    time of this cause; only of `host_late`, and of a framework's trace that tells.
    """
    gaps: int
    """Number of gaps."""
    long_gaps: LongGaps | None
    """The fewest gaps that hold at least 90 % of the time, if they are at most a quarter of all."""
    total_ns: int
    """Time of this cause in nanoseconds."""
    longest_ns: int
    """The part of the longest gap that has this cause, in nanoseconds."""
    longest_start_ns: int
    """Start of the longest gap, in nanoseconds since the first event of the trace."""


class Image(Record):
    """One piece of GPU code in a file."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'has_lines': False}
    place: str | None
    """Location in the file: members, section, entry; empty if the image is the whole file."""
    kind: str
    """Kind of code: `cubin`, `ptx`, `lto_ir`, or `kind_N` for an unknown number."""
    arch: str
    """Architecture, e.g. `sm_90a`; for PTX its target."""
    compression: str
    """Compression in the file: `none`, `lz4`, `zstd`."""
    stored_bytes: int
    """Size as stored, in bytes."""
    bytes: int
    """Size after decompression, in bytes."""
    identifier: str | None
    """Name of the source file, if the compiler recorded it."""
    version: str | None
    """Version of the CUDA toolkit that produced it, or of the PTX ISA."""
    compiler: str | None
    """The compiler's release string."""
    command_line: str | None
    """The compiler's command line."""
    has_lines: bool
    """Whether the cubin has a line table."""
    tool: str | None
    """Tool that wrote the listing: `rgpu 0.1.0`, `nvdisasm 13.5.37`; absent if there is no listing."""
    tool_problem: str | None
    """Why nvdisasm, although installed, did not write the listing."""
    files: list[str]
    """Files written for this image, relative to the summary."""
    kernels: Records[Kernel]
    """Kernels of a cubin."""
    entries: list[str]
    """Mangled names of the kernels that PTX defines."""


class Input(Record):
    """One input file and its code."""

    __slots__ = ()
    path: str
    """Path as the user gave it."""
    status: ReadStatus
    """Whether the file could be read."""
    kind: str | None
    """Kind of file: `cubin`, `fatbin`, `ptx`, `elf`, `archive`, `zip`, `windows`, `c_array`,
    `ncu_rep`; absent if the file could not be read.
    """
    errors: list[str]
    """Errors in the file or in parts of it, each with its location."""
    images: Records[Image]
    """GPU code in the file, in file order."""


class InputFile(Record):
    """An input file of the job."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'piece_bytes': 4194304, 'executable': False}
    path: str
    """Path relative to the job's folder; never absolute, no `..`."""
    size: int
    """Size in bytes."""
    digest: Digest
    """sha256 of the whole file."""
    blobs: list[Digest]
    """sha256 of each piece. The digest of a single piece is the file's own."""
    piece_bytes: int
    """Bytes of each piece but the last, at most `BLOB_BYTES`. Plans from before this field use
    `BLOB_BYTES`.
    """
    executable: bool
    """Whether the file is made executable."""


class InstructionSpot(Record):
    """An instruction with its samples and counts."""

    __slots__ = ()
    offset: int
    """Offset in bytes from the start of its function's code."""
    address: int | None
    """Address of the instruction on the GPU."""
    function: str | None
    """Symbol of its function, if that is not the kernel: a device function that was not inlined."""
    sass: str | None
    """Text of the instruction, if the report contains the code: guard and name, with modifiers and
    operands if nvdisasm was available. Branch targets are offsets from the start of their
    section.
    """
    at: Records[SourceAt]
    """Source position, outermost call first, innermost last; empty without a line table."""
    ptx_line: int | None
    """Line of the PTX text in the cubin, if the cubin has one."""
    access: Access | None
    """The memory access, for instructions that access memory."""
    samples: int | None
    """Number of warp samples."""
    samples_not_issued: int | None
    """Number of warp samples in which the scheduler issued no instruction."""
    stalls: dict[str, int]
    """Number of samples by reason, named as in `StallReason`; zeros are left out. Together with
    `selected`, which is not a stall, they add up to `samples`.
    """
    stalls_not_issued: dict[str, int]
    """Of `stalls`, the samples in which the scheduler issued no instruction."""
    executed: int | None
    """Number of times that a warp executed it."""
    thread_executed: int | None
    """Number of times that a thread executed it, without predicated-off threads if the report
    tells.
    """
    metrics: dict[str, float]
    """All other counts by address, by NVIDIA's metric name: sectors, wavefronts, ideal ones. A line
    has only those that can be added up.
    """


class JobRecord(Record):
    """A job of a run."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'last_seq': 0}
    job: str
    """The job's name on the host."""
    remote: str
    """The remote of the job. A build may run on a different one than the run."""
    last_seq: int
    """The number of the last event received."""
    outcome: Outcome | None
    """How the job ended. Absent until it is known."""
    unsynced: Records[UnsyncedFile]
    """Files fetched without waiting for fsync. The host keeps its copies until they are synced,
    since a power cut could lose the local ones.
    """


class Kernel(Record):
    """Resource usage and instruction counts of one kernel. Sizes are in bytes; registers, stack,
    local memory and spills are per thread, shared memory is per block.
    """

    __slots__ = ()
    symbol: str
    """The mangled name."""
    name: str | None
    """Demangled name; absent if it equals the symbol."""
    registers: int | None
    """Registers per thread."""
    stack_bytes: int | None
    """Stack, callees included; absent if recursion leaves it unbounded."""
    frame_bytes: int | None
    """Stack frame of the kernel alone."""
    local_bytes: int
    """Local memory besides the stack."""
    spill_store_bytes: int | None
    """Spill stores; absent if the compiler (before 12.8) did not record them."""
    spill_load_bytes: int | None
    """Spill loads; absent if the compiler did not record them."""
    shared_bytes: int
    """Static shared memory, without the part that the system reserves."""
    shared_reserved_bytes: int | None
    """Shared memory that the system reserves in the same section; `cuobjdump -res-usage` prints the
    sum. Absent for a kernel without static shared memory and before sm_90, where the system
    takes its part at the launch.
    """
    constant_bytes: dict[str, Any]
    """Size of each constant bank, by bank number."""
    barriers: int
    """Number of named barriers."""
    mbarriers: int
    """Number of barriers in shared memory (mbarrier)."""
    max_threads: list[int] | None
    """Declared bound on the threads of a block, in x, y, z; absent if not bounded."""
    required_block: list[int] | None
    """Block that every launch must have, in x, y, z; absent if not fixed."""
    cluster: list[int] | None
    """Cluster dimensions in blocks; absent if not fixed."""
    max_cluster_rank: int | None
    """Largest number of blocks in a cluster; absent if not bounded."""
    params: Records[Param]
    """Parameters in order."""
    param_offset: int | None
    """Offset of the parameters in constant bank 0."""
    exits: list[int]
    """Offsets of the exit instructions."""
    tcgen05_one_cta: bool
    """Whether it uses fifth-generation tensor cores with one block."""
    tcgen05_two_cta: bool
    """Whether it uses fifth-generation tensor cores with a pair of blocks."""
    tensor_memory: bool
    """Whether it uses tensor memory."""
    code_bytes: int
    """Size of the code, padding included."""
    instructions: int | None
    """Number of instructions, including functions in the kernel's section, without the padding
    after the last exit or branch. All other counts use the same rule. Absent before Volta, whose
    code is not decoded; then counts by class and name are empty and `blocks` is absent.
    """
    classes: dict[str, int]
    """Number of instructions of each class: `fp32`, `global_load`, `tensor_warpgroup` and others."""
    mnemonics: dict[str, int]
    """Number of instructions by name, modifiers left out."""
    blocks: int | None
    """Number of basic blocks, as far as direct branches show them."""
    loops: int | None
    """Number of basic blocks that are targets of a backward branch."""
    code_sha256: str
    """sha256 of the code without padding: equal if every bit is."""
    shape_sha256: str
    """sha256 of the instruction names, guards and branch distances in order, without padding: equal
    if only registers, constants, addresses or scheduling differ. Compare only within one version
    of rgpu.
    """
    occupancy: Occupancy | None
    """Theoretical occupancy for the kernel's required block size, else for `--block`, else for the
    largest block it allows.
    """


class KernelChange(Record):
    """A kernel that both sides launched."""

    __slots__ = ()
    kernel: str
    """Demangled name on the base."""
    kernel_b: str | None
    """Name on the other side; absent if it is the same."""
    joined_by: str
    """How the kernels were matched: `name_and_geometry`, `name` (the geometry differs), `alone`
    (each side has exactly one kernel left).
    """
    geometry_a: Geometry
    """Grid and block on the base."""
    geometry_b: Geometry
    """Grid and block on the other side."""
    launches: list[int]
    """Number of launches on each side."""
    time: TimeChange | None
    """Durations as the tool measured them; absent if either side has none."""
    bound: list[str] | None
    """The primary verdict on each side; absent unless both sides were classified."""
    resources: Records[MetricChange]
    """Resources that it uses: registers, shared memory …"""
    metrics: Records[MetricChange]
    """Metrics that changed, most important first."""


class KernelChoice(Record):
    """A kernel chosen for detailed profiling."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'skipped': 0}
    kernel: str
    """Demangled name."""
    filter: str | None
    """The kernel filter given to the tool for it."""
    total_ns: int
    """GPU time in the first pass, in nanoseconds."""
    percent: float
    """Share of the GPU time of all kernels, in percent."""
    launches: int
    """Number of launches in the first pass."""
    profiled: int
    """Number of launches profiled in detail; 0: left out to stay within the limit."""
    skipped: int
    """Number of launches skipped before the first profiled one."""
    geometries: Records[GeometrySum]
    """Its launches in the first pass by geometry, in the order of their first launch."""


class KernelCode(Record):
    """Facts of one kernel in a cubin."""

    __slots__ = ()
    symbol: str
    """Mangled symbol."""
    name: str | None
    """Demangled name; absent if it equals the symbol."""
    arch: str
    """Architecture, e.g. `sm_90a`."""
    registers: int
    """Registers per thread."""
    stack_bytes: int | None
    """Stack per thread in bytes; absent if it cannot be determined (recursion)."""
    spill_store_bytes: int | None
    """Bytes of spill stores per thread; absent if the compiler did not record them."""
    spill_load_bytes: int | None
    """Bytes of spill loads per thread; absent if the compiler did not record them."""
    shared_bytes: int
    """Static shared memory per block in bytes, without the part that the system reserves."""
    shared_reserved_bytes: int | None
    """Shared memory per block that the system reserves in the same section, in bytes; absent for a
    kernel without static shared memory and before sm_90.
    """
    constant_bytes: int
    """Size of parameters and constant banks in bytes."""
    barriers: int
    """Number of named barriers."""
    max_threads: int | None
    """Largest number of threads in a block; absent if not bounded."""
    code_bytes: int
    """Size of the code in bytes."""
    compiler: str | None
    """Compiler that produced it, e.g. `ptxas 13.0`."""
    from_: str | None
    """The cubin, as its path in the run folder."""


class KernelDiff(Record):
    """One kernel in both builds."""

    __slots__ = ()
    arch: str
    """Architecture in the new build, e.g. `sm_90a`."""
    old_arch: str | None
    """Architecture in the old build, if it is another one."""
    name: str
    """Demangled name."""
    code: CodeSimilarity
    """How similar the code is."""
    changes: Records[Change]
    """Numbers that differ: registers, bytes, counts."""
    classes: Records[Change]
    """Instruction classes whose count differs."""
    mnemonics: Records[Change]
    """Instruction names whose count differs."""
    listing: ListingDiff | None
    """Differences of the listings; absent if the code is identical or a build has no listing of the
    kernel.
    """


class KernelInfo(Record):
    """The kernel or program profiled."""

    __slots__ = ()
    name: str
    """Name of the kernel; for a program, its file name."""
    language: str
    """The language: `cuda`, `python`, `cute` or `triton`; `program` or `report` if unknown."""
    entry: str | None
    """Entry point; empty if unknown or for a program."""
    source: str | None
    """Path of the source, relative to the project if it lies inside it."""
    sha256: str | None
    """sha256 of the source."""
    arch: list[str]
    """Architectures that the code was compiled for: `sm_90a` …"""
    compiler: str | None
    """Compiler and machine that produced the code, e.g. `nvcc 13.0 on h200`."""
    model: ModelInfo | None
    """The model that was run: of a Python kernel with a `[model]`, or of a program in mode `torch`."""


class KernelSum(Record):
    """All launches of one kernel, or of CUDA graphs (`WHOLE_GRAPHS`)."""

    __slots__ = ()
    kernel: str
    """Demangled name."""
    launches: int
    """Number of launches."""
    total_ns: int
    """GPU time in nanoseconds."""
    set_up_ns: int | None
    """The part of `total_ns` in launches that are set-up, such as a compiler's benchmarks; absent
    if none is known.
    """
    min_ns: int
    """Shortest duration in nanoseconds."""
    max_ns: int
    """Longest duration in nanoseconds."""


class KernelVerdict(Record):
    """A kernel with at least 5 % of the GPU time, and what limits it."""

    __slots__ = ()
    kernel: str
    """Demangled name."""
    launches: int
    """Number of its launches."""
    total_ns: int
    """Their GPU time in nanoseconds, without launches that mode `deep` found to be set-up."""
    percent: float
    """The part of the GPU time of all kernels, in percent; without set-up, too."""
    launch: int | None
    """Id of the launch that the verdict is about: its longest one with that verdict, or the median
    one if they are as short as a launch takes.
    """
    verdict: str | None
    """Id of that launch's primary verdict; absent if it has none."""
    text: str
    """The verdict in one sentence, or why there is none."""


class KnownGpu(Record):
    """A GPU in `known`."""

    __slots__ = ()
    index: int
    """Index in `nvidia-smi`, from 0."""
    uuid: str
    """`GPU-…` or `MIG-…`."""
    name: str
    """Product name, e.g. `NVIDIA H200`."""


class Launch(Record):
    """One kernel launch. Launches of the same kernel are separate entries, in time order."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'region_inferred': False}
    id: int
    """Number of the launch in this profile, from 0."""
    kernel: str
    """Demangled name."""
    mangled: str | None
    """Mangled name, if known."""
    grid: list[int]
    """Blocks in x, y, z; absent for the result of a range, which has no grid."""
    block: list[int]
    """Threads per block in x, y, z; absent for the result of a range."""
    duration_ns: float | None
    """Duration in nanoseconds as the tool measured it, under the tool's clock policy. The time of
    the case is in `Timing`.
    """
    start_ns: int | None
    """Start in nanoseconds since the first event of the trace."""
    stream: int | None
    """The id of the CUDA stream."""
    rank: int | None
    """Number of the rank; absent for one process."""
    registers: int | None
    """Registers per thread."""
    shared_bytes: int | None
    """Static and dynamic shared memory per block in bytes."""
    region: list[str]
    """The NVTX ranges around the launch, outermost first; a range of a domain other than the
    default is `domain@name`.
    """
    region_inferred: bool
    """Whether `region` is inferred: the launching thread opens no range itself, or only ranges
    around collectives, and another thread was in the region.
    """
    metrics: dict[str, Metric]
    """Metrics by NVIDIA's metric name."""
    stalls: Records[StallReason]
    """Warp stall reasons, largest first."""
    classification: Classification | None
    """The verdicts on this launch."""
    rules: Records[RuleMessage]
    """Messages of the tool's own rules."""
    raw_sections: Records[RawSection]
    """The tool's own section tables, as on its details page."""
    roofline: Records[Roof]
    """Ceilings and achieved points of the tool's roofline charts."""
    series: Records[MetricSeries]
    """Metrics that the tool sampled while the launch ran."""
    code: int | None
    """Index of the kernel's code (`KernelCode`) in the profile's `code`; absent if there is no
    match.
    """


class LaunchSpots(Record):
    """Hot spots of one launch."""

    __slots__ = ()
    launch: int
    """Id of the launch in the profile."""
    kernel: str
    """Demangled name."""
    samples: int | None
    """Number of warp samples in all; the samples of all instructions add up to it."""
    instructions: Records[InstructionSpot]
    """Every instruction that has a count, in address order."""
    lines: Records[LineSpot]
    """Source lines, most samples first."""
    from_: str | None
    """The artifact that the counts come from, as its path in the run folder."""


class LifeRange(Record):
    """The live range of one value in a register: consecutive instructions, from one that writes it."""

    __slots__ = ()
    register: str
    """Name of the register, e.g. `R12`, `UP0`."""
    from_: int
    """Offset of its first instruction."""
    to: int
    """Offset of its last instruction."""
    writes: list[int]
    """Offsets of the instructions that write it."""
    reads: list[int]
    """Offsets of the instructions that read it."""


class Limits(Record):
    """Limits of a whole job."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'queue_s': 1800, 'lease_s': 600, 'log_bytes': 1073741824, 'keep_s': 604800}
    queue_s: int
    """Longest wait for the GPU, in seconds."""
    lease_s: int
    """How long the job runs without a renewal from its client, in seconds."""
    log_bytes: int
    """Bytes kept of each output stream of each step."""
    keep_s: int
    """How long the results stay on the host if nobody fetches them, in seconds."""


class LineSpot(Record):
    """A source line with the sums of its instructions."""

    __slots__ = ()
    at: SourceAt
    """Position of the line."""
    text: str | None
    """Text of the line, if the source is available."""
    instructions: int
    """Number of instructions compiled from it."""
    samples: int | None
    """Number of warp samples."""
    samples_not_issued: int | None
    """Number of warp samples in which the scheduler issued no instruction."""
    stalls: dict[str, int]
    """Number of samples by reason, named as in `StallReason`; zeros are left out. Together with
    `selected`, which is not a stall, they add up to `samples`.
    """
    stalls_not_issued: dict[str, int]
    """Of `stalls`, the samples in which the scheduler issued no instruction."""
    executed: int | None
    """Number of times that a warp executed it."""
    thread_executed: int | None
    """Number of times that a thread executed it, without predicated-off threads if the report
    tells.
    """
    metrics: dict[str, float]
    """All other counts by address, by NVIDIA's metric name: sectors, wavefronts, ideal ones. A line
    has only those that can be added up.
    """


class ListingDiff(Record):
    """Alignment of two listings. Addresses, labels and padding are ignored."""

    __slots__ = ()
    same: int
    """Number of instructions in both."""
    removed: int
    """Number of instructions in the old listing only."""
    added: int
    """Number of instructions in the new listing only."""
    hunks: Records[Hunk]
    """The regions that differ, in order."""


class LiveRegisters(Record):
    """Number of registers that are live at an instruction, by register file; those that it reads or
    writes are included.
    """

    __slots__ = ()
    registers: int
    """General registers: `R0` …"""
    predicates: int
    """Predicates: `P0` …"""
    uniform: int
    """Uniform registers: `UR0` …"""
    uniform_predicates: int
    """Uniform predicates: `UP0` …"""


class LogSettings(Record):
    """Settings of a DSL's own log."""

    __slots__ = ()
    level: int | None
    """Log level as in Python's `logging` (10: everything); absent if it was not changed."""
    print_ir: bool
    """Whether the DSL printed its IR."""


class LongGaps(Record):
    """The longest gaps of a group, if they are few and hold most of its time."""

    __slots__ = ()
    gaps: int
    """Number of gaps."""
    total_ns: int
    """Their time of the group's cause in nanoseconds."""


class LongestStep(Record):
    """The longest step of all ranks."""

    __slots__ = ()
    number: int
    """Index among the steps, from 0."""
    rank: int
    """Number of the rank."""
    host_ns: int
    """Its duration on the host of this rank, in nanoseconds."""
    median_ns: int
    """The median over all steps of all ranks, in nanoseconds."""


class MeasurementKey(Record):
    """The conditions of a measured time. Times with the same key are comparable."""

    __slots__ = ()
    case: str
    """The case: the target, with the values of its axes in brackets."""
    side: str
    """The side: `kernel`, `baseline` or `optimised`."""
    sizes: str
    """The sizes, `n=1024`, with `;` between groups."""
    dtype: str
    """The dtypes of the outputs."""
    gpu: str
    """Name of the GPU."""
    driver: str
    """Major version of the driver."""
    toolkit: str
    """The compiler with its version."""
    clocks: str
    """How the SM clock was set: `as_found` or `locked N MHz`."""
    method: str
    """How it was timed, with the version of the method."""


class MemoryPoint(Record):
    """The state of a GPU's allocator at one time."""

    __slots__ = ()
    at_ns: int
    """Time in nanoseconds since the first event of the trace."""
    device: int
    """Number of the GPU."""
    allocated_bytes: int
    """Bytes that the allocator has given to tensors."""
    reserved_bytes: int
    """Bytes that the allocator held."""


class MemoryUse(Record):
    """Largest use of one GPU's memory."""

    __slots__ = ()
    device: int
    """Number of the GPU."""
    peak_allocated_bytes: int
    """Largest number of bytes in tensors."""
    peak_reserved_bytes: int
    """Largest number of bytes that the allocator held."""
    total_bytes: int | None
    """Bytes of the GPU; absent if unknown."""
    scope: str
    """The part of the program over which the peaks were taken."""
    from_: str | None
    """Source of the numbers: path in the run folder."""


class Metric(Record):
    """A metric of a launch or a region."""

    __slots__ = ()
    value: Value
    """The value of the metric."""
    unit: str | None
    """Base unit as printed by NVIDIA's tools with `--print-units base`: `ns`, `byte`, `%`, `inst`,
    `byte/ns` …; empty for pure numbers and texts.
    """
    from_: str | None
    """The artifact that the value comes from, as its path in the run folder."""


class MetricChange(Record):
    """A number on both sides."""

    __slots__ = ()
    metric: str
    """NVIDIA's metric name; for a number derived by rgpu, a name that begins with `rgpu.`."""
    label: str
    """The label of the metric, for users."""
    a: float
    """Value on the base."""
    b: float
    """Value on the other side."""
    unit: str | None
    """Unit of both values; empty for a pure number."""
    change: str
    """`better` or `worse`; `neutral` if neither direction is better."""
    rank: float
    """Importance, used for the order: the weight of the metric times the size of the change."""


class MetricSeries(Record):
    """A metric that was sampled while a launch ran."""

    __slots__ = ()
    metric: str
    """The tool's name, with the sampler's prefix: `TPC.TriageCompute.sm__cycles_active.avg`."""
    unit: str | None
    """Base unit, as in `Metric`."""
    start_ns: int
    """From the start of the launch to the first value, in nanoseconds."""
    interval_ns: float
    """From one value to the next, in nanoseconds."""
    values: list[float]
    """At most 128 values. Each is the mean of its interval."""


class MissingTool(Record):
    """A tool that a case asks for and that gave no results."""

    __slots__ = ()
    tool: str
    """The tool, `ncu` or `nsys`; `ncu counters` if it has launches without counters."""
    code: str | None
    """Code of the reason, such as `counters_refused`; empty if unknown."""
    text: str
    """The reason in words."""


class ModelInfo(Record):
    """A model, as described in kernel.toml and as built."""

    __slots__ = ()
    name: str
    """Name of the model."""
    variant: str | None
    """Variant of the model, such as its size."""
    dtype: str | None
    """Dtype of most parameters as built; before that, the dtype given in kernel.toml."""
    parameters: int | None
    """Number of parameters, counted after the model was built."""
    settings: dict[str, str]
    """Further settings of the model from kernel.toml."""
    matmul_flops_per_s: float | None
    """Best measured rate of large matrix products of this dtype on the same device, in FLOP/s. It
    serves as the peak if no datasheet gives one.
    """


class NcuTime(Record):
    """The time of a program's runs under ncu. What is not spent in launches is the least that any
    choice of launches takes.
    """

    __slots__ = ()
    runs: int
    """Number of runs of the program."""
    seconds: float
    """Seconds of these runs, with the start of ncu and the writing of its report."""
    launches: int
    """Number of launches that ncu profiled."""
    launches_seconds: float
    """Seconds in which it profiled them."""


class Occupancy(Record):
    """Theoretical occupancy of an SM."""

    __slots__ = ()
    threads: int
    """Threads in the block that it is computed for."""
    blocks: int
    """Blocks that an SM holds at the same time."""
    percent: float
    """Warps on an SM, in percent of the most that it can hold."""
    limiter: str
    """The resource that limits the number of blocks."""


class Operator(Record):
    """All calls of one operator."""

    __slots__ = ()
    name: str
    """Name in the framework: `aten::mm`."""
    calls: int
    """Number of calls."""
    host_ns: int
    """Host time in nanoseconds over all calls, inner operators included. Nested calls of the same
    operator are counted once.
    """
    host_self_ns: int
    """Host time in nanoseconds, inner operators excluded."""
    gpu_ns: int | None
    """GPU time in nanoseconds of the work launched inside, by inner operators too; absent if the
    trace has no GPU rows.
    """
    gpu_self_ns: int | None
    """GPU time in nanoseconds of the work that the operator itself launched."""
    kernels: Records[KernelSum]
    """Kernels that the operator itself launched, longest first."""
    places: Records[CallSite]
    """Where the operator was called, most GPU time first; empty if the trace does not tell."""
    flops: float | None
    """Floating-point operations of the calls with work on the GPU, from their input shapes; those
    of all calls if the trace has no GPU rows. Absent for operators that are no matrix products,
    and if the trace lacks shapes.
    """
    shapes: str | None
    """Input shapes of the first call, in the trace's notation; empty if not recorded."""
    inputs: Records[OperatorInputs]
    """The calls with GPU work of their own by their inputs, most GPU time first; empty if the trace
    has no shapes. Only the first 16.
    """
    from_: str | None
    """Source of the numbers: path in the run folder."""


class OperatorInputs(Record):
    """The calls of an operator whose inputs have the same shapes and types."""

    __slots__ = ()
    shapes: str
    """Shapes of the inputs, in the trace's notation."""
    types: str | None
    """Types of the inputs, in the trace's notation; empty if not recorded."""
    calls: int
    """Number of calls with GPU work of their own."""
    gpu_self_ns: int
    """GPU time in nanoseconds of the work that these calls launched themselves."""


class Origin(Record):
    """The command that a plan was made from, as in the run's record."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'run': '', 'started': '', 'command': '', 'title': '', 'mode': '', 'kernel': '', 'note': ''}
    run: str
    """The id of the run."""
    started: str
    """Start of the run by the client's clock, RFC 3339, UTC."""
    command: str
    """The subcommand: `profile`, `exec` …"""
    title: str
    """The run's title in lists: "profile vecadd (ncu)"."""
    argv: list[str]
    """The command line as typed, secrets removed."""
    mode: str
    """`ncu`, `nsys` …; empty for commands without modes."""
    kernel: str
    """The kernel's or program's name."""
    labels: dict[str, str]
    """Labels of `--label KEY=VALUE`, by key."""
    note: str
    """The text of `--note`."""


class PageableCopies(Record):
    """Copies of one kind from or to pageable memory."""

    __slots__ = ()
    kind: str
    """`HtoD` or `DtoH`."""
    copies: int
    """Number of copies."""
    min_bytes: int
    """Bytes of the smallest."""
    max_bytes: int
    """Bytes of the largest."""
    total_ns: int
    """Time in nanoseconds in which they ran and no kernel did."""
    call_ns: int
    """Time in nanoseconds in which their calls held the host and no kernel ran."""


class PairResult(Record):
    """The comparison of the two sides of a pair."""

    __slots__ = ()
    verdict: TimeVerdict
    """The verdict on the optimised side."""
    speedup: float | None
    """The baseline's time over that of the optimised side; of several sizes, the geometric mean."""
    ci95: list[float] | None
    """95 % interval of the speedup."""
    too_close: bool
    """Whether the interval spans the least speedup that is asked for, or lies below it."""
    summary: str
    """One sentence with the reason."""
    parts: Records[Part]
    """For each tool, whether it has results for both sides, or why not."""
    grown: Records[GrownSizes]
    """Sizes that were too close to call before these, with their speedups."""
    sizes: Records[SizeSpeedup]
    """The comparison at each size."""


class Param(Record):
    """A parameter of a kernel."""

    __slots__ = ()
    offset: int
    """Offset in the parameter area, in bytes."""
    bytes: int
    """Size in bytes."""


class Part(Record):
    """Whether a tool has results for both sides."""

    __slots__ = ()
    part: str
    """The compared part: `speedup`, `nsys` or `ncu`."""
    there: bool
    """Whether the results are available."""
    note: str
    """Source of the results, or the reason why they are missing."""


class PartChange(Record):
    """The time of one cause on both sides."""

    __slots__ = ()
    cause: str
    """The cause."""
    ns: list[int]
    """Time on the critical path in nanoseconds, base first."""
    difference_ns: int
    """By how much it grew, in nanoseconds; negative if it fell."""
    row: str | None
    """The kernel, call or operator whose time changed most; empty if none is known."""


class PotentialGain(Record):
    """Time that acting on a finding could give back. Times of several findings can overlap."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'kind': ''}
    ns: int
    """Nanoseconds that it could give back, of one step if `of` is `step`. Of a `bound`: at most."""
    low_ns: int | None
    """The lower end of the interval; absent if none is known. Of a `bound`, the next busiest unit
    of the GPU then runs at 60 % of its peak, at the upper end at its peak.
    """
    high_ns: int | None
    """The upper end of the interval; absent without one."""
    share: float
    """The part of the time of `of`, 0 to 1."""
    of: str
    """The time that this is a part of: `step` (one step), `program` (from the first kernel to the
    end of the last, of one GPU), `kernel` (all launches of the profile's kernels, summed) or
    `region`.
    """
    region: str | None
    """The region; only if `of` is `region`."""
    change: str | None
    """What is changed, in a few words; absent if `ns` is of no single change."""
    kind: str
    """`replayed` (the steps with this change were computed again) or `bound` (an upper bound from
    the finding's own numbers).
    """
    step_ns: int | None
    """Time of a step before the change, in nanoseconds; only if `of` is `step`."""


class PredictedTime(Record):
    """The time that `rgpu model` predicts, from measured efficiencies."""

    __slots__ = ()
    ns: float
    """The prediction, in nanoseconds."""
    likely_ns: list[float]
    """The range in which 80 % of such kernels lie, in nanoseconds."""
    borrowed_from: str | None
    """The GPU whose efficiencies these are; absent if it is this one."""


class Price(Record):
    """Estimated cost of a collection."""

    __slots__ = ()
    seconds: float
    """Estimated duration of the collection in seconds."""
    bytes: int
    """Estimated bytes of reports."""
    passes: int
    """Estimated number of passes over each launch, from the sections."""
    limit_seconds: float | None
    """The limit in seconds."""
    limit_bytes: int | None
    """The limit in bytes."""


class ProbeAnswer(Record):
    """The answer to a `Probe`."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'text': ''}
    name: str
    """The name of the probe."""
    path: str | None
    """The first file found, absolute."""
    found: list[str]
    """Every file found, best first, at most 16."""
    exit: int | None
    """Exit status of the program; `None` if there is none."""
    text: str
    """Output of the program (stdout, then stderr) or text of the file, at most 64 KiB."""
    error: str | None
    """Why the probe failed: not started, timed out, not readable."""


class RangeEvent(Record):
    """One instance of an NVTX range."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'start_end': False}
    name: int
    """Index into `names`: `name`, or `domain@name`."""
    start_ns: int
    """Start in nanoseconds since the first event."""
    duration_ns: int | None
    """Duration in nanoseconds; absent if the range was never closed."""
    thread: int
    """Id of the thread, as the tool gives it."""
    depth: int
    """Number of ranges of this thread around it."""
    start_end: bool
    """Whether it was opened with start and closed by its id, so that it may cross threads."""
    region: int | None
    """The region that it is an instance of (index into `regions`), if the tool reports how ranges
    nest.
    """
    rank: int | None
    """Number of the rank; absent for one process."""


class RangeResult(Record):
    """Result of range replay. Its metrics cover all kernels of the range together, and what happens
    between them.
    """

    __slots__ = ()
    launch: int
    """Id of the entry in the profile's launches that holds the metrics."""
    kernels: list[str]
    """Names of the kernels inside, in launch order; a range has no times of single kernels."""


class RankChange(Record):
    """The times of one rank on both sides, in nanoseconds; see `RankTime`."""

    __slots__ = ()
    rank: int
    """Number of the rank."""
    span_ns: list[int]
    """From the start of its first work to the end of the last."""
    compute_ns: list[int]
    """Time in which kernels other than collectives ran."""
    exposed_ns: list[int]
    """Time in which collectives ran and nothing computed."""
    copy_ns: list[int]
    """Time in which only copies ran."""
    idle_ns: list[int]
    """Time in which nothing ran."""
    waited_ns: list[int]
    """Time in which its collectives waited for a later rank."""
    late_ns: list[int]
    """By how much it came last to collectives."""


class RankClock(Record):
    """The relation of the clocks of ranks."""

    __slots__ = ()
    source: str
    """The source of a common clock."""
    residual_ns: int | None
    """For `fitted`: 95 % of the ends of the matched collectives agree to this many nanoseconds. No
    order finer than it is claimed.
    """
    collectives: int | None
    """For `fitted`: the number of collectives in the fit of the rank that has the fewest."""


class RankIdle(Record):
    """Idle time of one cause."""

    __slots__ = ()
    cause: str
    """Why nothing ran on the GPU."""
    total_ns: int
    """Idle time of this cause in nanoseconds."""


class RankLocation(Record):
    """A rank of a program, and where it ran."""

    __slots__ = ()
    rank: int
    """Number of the rank."""
    host: str | None
    """Name of its host; absent if the report does not tell."""
    gpu: int | None
    """CUDA device number of its GPU in its process; absent if it did no work on a GPU."""
    pid: int | None
    """Process id; absent if the report does not tell."""
    from_: str | None
    """The report that it was read from."""


class RankTime(Record):
    """The time of one rank, from the start of its first work on the GPU to the end of its last.
    `compute_ns`, `exposed_ns`, `copy_ns` and `idle_ns` add up to `span_ns`.
    """

    __slots__ = ()
    rank: int
    """Number of the rank."""
    host: str | None
    """Name of its host; absent if the report does not tell."""
    gpu: int | None
    """CUDA device number of its GPU in its process; absent if it did no work on a GPU."""
    pid: int | None
    """Process id; absent if the report does not tell."""
    from_: str | None
    """The report that it was read from."""
    span_ns: int
    """From the start of the first work to the end of the last, in nanoseconds."""
    compute_ns: int
    """Time in nanoseconds in which kernels other than collectives ran."""
    communication_ns: int
    """Time in nanoseconds in which collectives ran."""
    exposed_ns: int
    """The part of `communication_ns` in which nothing computed."""
    overlapped_ns: int
    """The part of `communication_ns` in which kernels computed."""
    copy_ns: int
    """Time in nanoseconds in which only copies and memsets ran."""
    idle_ns: int
    """Time in nanoseconds in which nothing ran."""
    idle: Records[RankIdle]
    """Causes of `idle_ns`, longest first."""
    waited_ns: int
    """The part of `communication_ns` in which its collectives waited for a later rank."""
    times_last: int
    """Number of collectives to which it came last by more than the clock can err."""
    late_ns: int
    """By how much it came last to these in total, in nanoseconds."""


class Ranks(Record):
    """The ranks of a program. Times of ranks are unions of intervals, never sums. Lists with one
    number for each rank are in the order of `ranks`.
    """

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'unmatched': 0}
    clock: RankClock
    """How the clocks of the ranks are related."""
    ranks: Records[RankTime]
    """The ranks, by number."""
    collectives: Records[CollectiveSum]
    """Collectives that every rank of their group called, by group, operation and size; most time
    first.
    """
    unmatched: int
    """Number of calls of collectives that could not be matched between ranks."""
    waits: Records[CollectiveWait]
    """The calls that waited longest for their last rank, longest first."""
    stragglers: Records[Straggler]
    """Ranks that the others wait for, most time first. Their start-up does not count."""
    regions: Records[RegionBalance]
    """Computing time of each region by rank, largest difference first."""
    steps: Steps | None
    """Steps of the program; absent if no range repeats on every rank."""


class RawRow(Record):
    """One labelled value of a section."""

    __slots__ = ()
    label: str
    """The tool's label, e.g. `Memory Throughput`."""
    metric: str
    """The name of the metric."""
    value: Value
    """Value in the base unit."""
    unit: str | None
    """Base unit, as in `Metric`."""


class RawSection(Record):
    """A section of the tool's own report, with the tool's labels and order."""

    __slots__ = ()
    id: str
    """The tool's identifier, e.g. `SpeedOfLight`."""
    name: str
    """Display name, e.g. `GPU Speed Of Light Throughput`."""
    description: str | None
    """The tool's description of the section."""
    rows: Records[RawRow]
    """Rows of the section header, which the tool's details page prints."""
    tables: Records[RawTable]
    """Tables and bar charts of the section body."""
    rules: list[int]
    """Rule messages of this section: indexes into the launch's `rules`."""


class RawTable(Record):
    """A table or bar chart of a section body."""

    __slots__ = ()
    label: str
    """The label of the table, as the tool prints it."""
    rows: Records[RawRow]
    """Rows; metrics without a value are left out."""


class Region(Record):
    """One NVTX region: all instances of one path added up."""

    __slots__ = ()
    path: list[str]
    """Path parts, outermost first; `domain@name` for domains other than the default."""
    kind: str
    """The kind of range: `push_pop` or `start_end`."""
    instances: int | None
    """Number of times it was entered; absent if the tool does not report it (ncu)."""
    host_ns: int | None
    """Host time in nanoseconds over all instances; absent if no tool timed the host. It is not GPU
    time unless the program synchronised.
    """
    gpu_ns: int | None
    """GPU time in nanoseconds of the work launched inside the region (by the time of the launch
    call), inner regions included; absent if no GPU times are known.
    """
    gpu_span_ns: int | None
    """Time in nanoseconds from the start of the first work launched inside to the end of the last,
    summed over all instances: the range projected onto the GPU, as nsys's `nvtx_gpu_proj_sum`
    has it. Absent for start/end regions, and if no trace tells.
    """
    inferred_gpu_ns: int | None
    """The part of `gpu_ns` that is inferred: a thread without any range, or only with ranges around
    collectives, launched it while another thread was in the region, as autograd's does in a
    backward pass.
    """
    kernels: Records[KernelSum]
    """Kernels launched inside, summed by name."""
    metrics: dict[str, Metric]
    """Metrics of the region as a whole, by NVIDIA's metric name: range replay measures all its
    kernels together.
    """
    launches: list[int]
    """Ids of the profile's launches inside, inner regions included; only launches that have
    metrics.
    """
    ranges: Records[RangeResult]
    """Results for the range as a whole (ncu's range replay), one for each time the range was
    profiled.
    """
    from_: str | None
    """Source of the numbers: path in the run folder."""


class RegionBalance(Record):
    """Computing time of one region by rank."""

    __slots__ = ()
    path: list[str]
    """Path parts, outermost first."""
    compute_ns: list[int]
    """Time of each rank in nanoseconds in which kernels launched inside computed."""
    slowest: int
    """The rank with the most."""
    imbalance: float
    """Maximum of `compute_ns` over its mean, minus 1; 0 is balanced."""


class RegionChange(Record):
    """An NVTX region that both sides have."""

    __slots__ = ()
    region: str
    """Path as users write it: `A::A1`."""
    instances: list[int] | None
    """Number of instances on each side, if the tools report it."""
    launches: list[int] | None
    """Number of launches inside that each side recorded, if both recorded any. GPU times of unlike
    numbers have no ratio.
    """
    gpu_ns: list[int] | None
    """GPU time in nanoseconds on each side, if known."""
    host_ns: list[int] | None
    """Host time in nanoseconds on each side, if known."""


class RegionChoice(Record):
    """A `--regions` pattern with the regions that it matched."""

    __slots__ = ()
    asked: str
    """The pattern as typed: a name, a glob, or `regex:…`."""
    matched: list[str]
    """The matching regions as users write them (`A`, `A::A1`, `domain@A`), without the ranges that
    rgpu's own runner adds around them.
    """


class RegionEntry(Record):
    """A selected region."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'more_launches': 0}
    name: str
    """Name as users write it, without the ranges of rgpu's own runner. If the run has several
    cases, it begins with the case.
    """
    folder: str
    """Name of its folder under `regions/`. Empty: only the 500 regions with the most GPU time have
    one.
    """
    region: Region
    """The region's entry in the profile."""
    share_percent: float | None
    """Time of its kernels as a share of the time of all kernels, in percent."""
    launches: Records[RegionLaunch]
    """Its launches, inner regions included."""
    more_launches: int
    """Number of launches that are not listed."""
    waiting: Records[WaitSum]
    """Time without a kernel that ended with a kernel of this region, by cause."""
    sections: list[str]
    """Identifiers of the sections collected for its launches."""


class RegionLaunch(Record):
    """One launch in a region, or one result for the region as a whole."""

    __slots__ = ()
    launch: int
    """Id of the launch in the profile."""
    kernel: str
    """Demangled name."""
    grid: list[int]
    """Blocks in x, y, z."""
    block: list[int]
    """Threads per block in x, y, z."""
    duration_ns: float | None
    """Duration in nanoseconds as the tool measured it."""
    bound_by: str | None
    """Primary verdict on what limits it."""
    metrics: dict[str, Metric]
    """Metrics by NVIDIA's metric name."""


class RegionTime(Record):
    """The GPU time of one region."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'start_end': False}
    path: list[str]
    """Path parts, outermost first."""
    start_end: bool
    """Whether its ranges were opened with start/end, not push/pop."""
    kernels: int
    """Number of kernels and graphs launched inside, inner regions included."""
    busy_ns: int
    """Time in nanoseconds in which any work launched inside ran; work that overlaps is counted
    once.
    """
    waiting: Records[WaitSum]
    """Time without a kernel that ended with a kernel of this region, by cause."""


class RegionTotals(Record):
    """Sums over the whole run."""

    __slots__ = ()
    regions: int
    """Number of regions in the document."""
    launches: int
    """Number of kernels launched in the run, as far as the tool saw them."""
    kernel_ns: int
    """GPU time of these kernels in nanoseconds, as the tool measured it."""


class Roof(Record):
    """One ceiling of a roofline chart with the achieved point below it."""

    __slots__ = ()
    chart: str
    """The chart, e.g. `SpeedOfLight_RooflineChart`."""
    label: str
    """The ceiling's label, e.g. `FP32`, `DRAM`."""
    peak: float
    """Height of the ceiling: FLOP/s for compute, byte/s for memory."""
    unit: str
    """`FLOP/s` or `byte/s`."""
    achieved: float | None
    """Rate that the launch reached, in `unit`."""
    source: str
    """Source of the ceiling: `report`, `device`, `datasheet`."""


class RooflinePoint(Record):
    """Position of a time under the roofline of its GPU."""

    __slots__ = ()
    flops_per_s: float
    """Floating-point operations per second."""
    bytes_per_s: float
    """Bytes per second."""
    flops_peak: float
    """Peak rate of the unit that computes, in floating-point operations per second."""
    bytes_peak: float
    """Peak rate of DRAM in bytes per second."""
    label: str
    """Name of the compute peak: `FP32`, `tensor bf16` …"""


class RuleMessage(Record):
    """A message of one of the tool's own rules."""

    __slots__ = ()
    rule: str
    """The rule's id, e.g. `SOLBottleneck`."""
    kind: str
    """`ok`, `warning`, `error`, `optimization`, `none`."""
    title: str
    """The title of the message."""
    text: str
    """Text without markup."""
    speedup_percent: float | None
    """Estimated speed-up in percent, as the rule gives it."""


class RunInfo(Record):
    """When, where and how a run was made."""

    __slots__ = ()
    id: str
    """The id of the run."""
    started: str
    """RFC 3339, UTC, by the laptop's clock."""
    seconds: float
    """Wall-clock seconds of the whole run."""
    cost_usd: float | None
    """Cost of the run in US dollars; absent if unknown."""
    cost_from: str | None
    """Source of `cost_usd`: `provider` (the provider's bill) or `price` (`seconds` times the price
    in the remote's settings).
    """
    mode: str
    """Mode: `ncu`, `nsys`, `bench` …"""
    remote: str
    """Name of the remote; `local` for this machine."""
    command: list[str]
    """The command line as typed, secrets removed."""
    labels: dict[str, str]
    """Labels of `--label KEY=VALUE`, by key."""
    rgpu: str
    """The version of rgpu."""
    locked_sm_mhz: int | None
    """The SM clock in MHz at which `--lock-clocks` locked the GPU; absent: as it was found."""


class RunParent(Record):
    """The queue entry, loop or suite that started a run. Several fields are set if, for example, a
    queue entry ran a suite.
    """

    __slots__ = ()
    suite: str | None
    """The id of the suite's run."""
    queue: int | None
    """The number of the entry of `rgpu queue`."""
    loop: str | None
    """The id of the loop."""


class Rung(Record):
    """One way to carry out a step."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'cwd': '', 'loses': ''}
    id: str
    """Stable id: `ncu.asked`, `nsys.cuda`, `host` …"""
    needs: list[str]
    """Files that must exist on the host (absolute) or in the job's folder (relative). If one is
    missing, the rung is skipped with the reason `missing`.
    """
    argv: list[Arg]
    """Program and arguments. The program is an absolute path, a name found on PATH, or a file in
    the job's folder.
    """
    env: dict[str, Arg]
    """Environment of this rung; it overrides the plan's."""
    cwd: str
    """Working folder, relative to the job's folder; empty: the job's folder itself."""
    success: Success
    """The agent's test for success."""
    diagnosis: Records[DiagnosisRule]
    """Known messages of the tool. The first matching row counts, whatever the exit status."""
    artifacts: Records[ArtifactSpec]
    """Files to fetch after this rung has run, whether it succeeded or not."""
    loses: str
    """The data that better rungs have and this one lacks, in words; empty if none."""
    stop: Stop | None
    """When the program is stopped, if it does not end before."""
    hang: HangDetection | None
    """When the program counts as hung, and what is then looked at."""


class RungRecord(Record):
    """The result of one rung. A rung is one way to get a step's result: a tool, its command and
    what the result contains. The step's ladder lists its rungs, best first; if one fails, the
    next is tried.
    """

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'code': '', 'message': '', 'seconds': 0.0, 'stdout_tail': '', 'stderr_tail': '', 'loses': ''}
    step: str
    """The id of the step."""
    rung: str
    """The id of the rung."""
    argv: list[str]
    """The exact command; empty if the rung was skipped."""
    ok: bool
    """Whether the rung met its rule for success."""
    code: str
    """Reason code of a failure, or a note: `missing`, `exit`, `signal`, `timeout`, `no_file`,
    `no_words` (an expected text is missing from the output), `start_failed`, or the code of a
    diagnosis row.
    """
    message: str
    """The tool's own message, one line."""
    exit: int | None
    """Exit status; `None` if there is none."""
    signal: int | None
    """Signal that ended the program."""
    start_error: StartError | None
    """Why the program did not start. `None` for other failures, and from an older agent."""
    seconds: float
    """Wall-clock time in seconds."""
    stdout_tail: str
    """Last 3,000 bytes of standard output, without control sequences and secrets."""
    stderr_tail: str
    """Last 3,000 bytes of standard error, likewise."""
    loses: str
    """The data that a better rung provides and this one does not."""
    notes: list[list[Any]]
    """Messages recognised in the output that are not failures: code and text."""


class SanitizerCause(Record):
    """One cause of errors."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'follow_ups': 0}
    kind: str
    """Kind of error: `out_of_bounds`, `misaligned`, `race`, `uninitialized`, `barrier`, `leak`,
    `api_error` …
    """
    text: str
    """First line of the tool's message."""
    kernel: str | None
    """Name of the kernel, if known."""
    file: str | None
    """Source file as the compiler recorded it, translated to the local path if possible."""
    line: int | None
    """Line number in `file`."""
    count: int
    """Number of times it was reported (threads, hazards)."""
    block: list[int] | None
    """Block of the first report, in x, y, z."""
    thread: list[int] | None
    """Thread of the first report, in x, y, z."""
    details: list[str]
    """Further lines of the tool's message: the nearest allocation, the other access of a race."""
    follow_ups: int
    """Number of records that only follow from this cause."""


class SanitizerResult(Record):
    """Result of one sanitizer tool."""

    __slots__ = ()
    tool: str
    """Name of the tool: `memcheck`, `racecheck`, `initcheck`, `synccheck`, or `guard` for the
    runner's guarded run.
    """
    rank: int | None
    """Number of the rank that it checked; absent for a whole program."""
    verdict: str
    """`clean` only if the tool itself reports no error of the program; else `found` or `unknown`."""
    errors: int | None
    """Number of errors in the tool's summary, less those that `note` says are not counted."""
    causes: Records[SanitizerCause]
    """Causes, each with the records that follow from it."""
    note: str | None
    """Why the verdict is `unknown`, in the tool's words, and what is not counted or not seen."""
    from_: str | None
    """The artifact that it comes from, as its path in the run folder."""


class Score(Record):
    """The time that a leaderboard would rank, of those of its benchmarks. A smaller one is better."""

    __slots__ = ()
    time_ns: float | None
    """One time of our medians of the benchmarks, in nanoseconds; absent if not all were timed."""
    ranking_by: str
    """How the times become one: `last` (the last benchmark), `mean` or `geom` (geometric mean)."""
    benchmarks: int
    """Number of benchmarks."""
    board: BoardScore | None
    """The result of the board's own program; absent if it did not run."""


class Selection(Record):
    """The selection of one run."""

    __slots__ = ()
    regions: Records[RegionChoice]
    """Each `--regions` pattern with the regions that it matched, in the order given."""
    regions_seen: list[str]
    """Every region that the first pass saw, as users write them; empty if there was no first pass."""
    kernel_names: list[str]
    """The filters of `--kernel-name`."""
    kernel_excludes: list[str]
    """The filters of `--kernel-exclude`."""
    kernels: Records[KernelChoice]
    """Kernels chosen by GPU time, longest first (`--mode deep`)."""
    covered_percent: float | None
    """Share of the GPU time of all kernels that the chosen ones have, in percent (`--mode deep`).
    Launches of set-up, such as a compiler's benchmarks, do not count.
    """
    set_up_ns: dict[str, int]
    """GPU time of each kernel's launches that are set-up, such as a compiler's benchmarks, in
    nanoseconds; kernels without any are left out (`--mode deep` of a whole program).
    """
    set: str | None
    """The section set that was collected, if any."""
    sections: list[str]
    """Sections that were named one by one."""
    metrics: list[str]
    """Metrics that were named one by one."""
    replay_mode: str | None
    """How passes were repeated: `kernel`, `application`, `range`, `app-range`. If an earlier mode
    failed, the one that gave the results.
    """
    price: Price | None
    """Estimated cost of the collection, and the limit that it was fitted to (`--mode deep`)."""
    ncu_time: NcuTime | None
    """How long the program ran under ncu (`--mode deep`); absent if ncu did not tell when it
    profiled each launch.
    """
    left_out: Records[Gap]
    """Parts left out to stay within the limit, and parts that could not be selected."""
    fingerprint: str | None
    """sha256 of the source or binary, sizes, flags and tool versions: equal fingerprints mean the
    same measurement repeated.
    """


class ShareAtClock(Record):
    """A bound and its share at another clock."""

    __slots__ = ()
    mhz: float
    """The median SM clock during the measurement, in MHz."""
    bound_ns: float
    """The bound at this clock, in nanoseconds. Memory keeps its rate."""
    percent: float
    """`bound_ns` as a share of the measured median, in percent."""


class SideTime(Record):
    """The time of one side."""

    __slots__ = ()
    median_ns: float
    """Median time in nanoseconds."""
    ci95_ns: list[float] | None
    """95 % interval of the median in nanoseconds; absent with fewer than five samples."""
    samples: int
    """Number of samples or launches that the median is taken over."""


class SizeSpeedup(Record):
    """The comparison of the two sides of a pair at one size."""

    __slots__ = ()
    size: str
    """Name of the size."""
    speedup: float
    """The baseline's time divided by that of the optimised side."""
    ci95: list[float] | None
    """95 % interval of the speedup."""
    verdict: TimeVerdict
    """The verdict on the optimised side."""


class SkippedFile(Record):
    """A pulled file that was not written to the user's folder."""

    __slots__ = ()
    name: str
    """Its name, relative to the folder for pulled files."""
    file: str
    """The copy of the file in the run folder."""


class SourceAt(Record):
    """A source position."""

    __slots__ = ()
    file: str
    """File name as in the line table."""
    line: int
    """Line number, from 1."""
    function: str | None
    """Mangled name of the inlined function that the line belongs to; absent for the kernel itself."""


class SourceText(Record):
    """A source file with the lines that are shown."""

    __slots__ = ()
    file: str
    """File name as in the line table."""
    read_from: str | None
    """Path that the text was read from, if it is another one: beside the cubin."""
    lines: dict[str, Any]
    """Text of the lines that instructions come from and of some lines around them, by line number
    from 1; empty if the file is not available.
    """


class SpeedOfLight(Record):
    """The work of one case, as `[work]` counts it, compared with the peaks of the device."""

    __slots__ = ()
    case: str
    """Name of the case."""
    flops: Utilization | None
    """Floating-point rate; its `percent` is the model FLOP utilisation (MFU)."""
    bytes: Utilization | None
    """DRAM rate; exact only if the counted bytes really go through DRAM."""
    bound: str
    """The resource that would take longer at its peak rate: `compute` or `memory`."""
    least_ns: float
    """Time that `bound` would take at its peak rate, in nanoseconds."""
    percent: float
    """`least_ns` as a share of the measured median, in percent."""


class Stage(Record):
    """One stage: an NVTX region over all its instances. A kernel's stages are in the timed phase of
    a case; a program's, in mode `torch`, are its training steps and the calls of a model.
    """

    __slots__ = ()
    case: str
    """Name of the case; empty for a program."""
    region: str
    """Name of the region, such as `LLM@prefill`."""
    instances: int
    """Number of times it was entered."""
    mean_ns: float
    """Mean time of an instance in nanoseconds, by `clock`."""
    clock: str
    """Clock of `mean_ns`: `gpu` (time in which the GPU did work launched inside) or `host` (time
    from entry to exit).
    """
    gpu_span_ns: float | None
    """Mean time in nanoseconds from the start of the first work launched inside to the end of the
    last, including the time in which the GPU waits. Absent unless `clock` is `gpu` and a trace
    has these times.
    """
    plain_ns: int | None
    """Time in nanoseconds of an instance without torch's profiler, which lengthens the host's time:
    the median of steps of the optimizer that followed the recorded ones. Absent if these were
    fewer than four or uneven, and for other stages.
    """
    flops: float | None
    """Floating-point operations of one instance: of a kernel, from `[work.regions]`; of a program,
    as counted while it ran.
    """
    flops_per_s: float | None
    """Achieved rate in FLOP/s: by `plain_ns` if that is known, else by `mean_ns`."""
    utilization: Utilization | None
    """The rate compared with the peak: `percent` is the model FLOP utilisation (MFU). Absent if no
    peak is known.
    """
    from_: str | None
    """Source of the times: path in the run folder."""


class StallReason(Record):
    """A warp stall reason."""

    __slots__ = ()
    reason: str
    """NVIDIA's name without prefix and suffix: `long_scoreboard`."""
    percent: float | None
    """Share of all warp cycles between two issues, in percent, from hardware counters."""
    samples: int | None
    """Number of warp samples with this reason."""


class Step(Record):
    """One step: a ladder of at least one rung."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'gpu': False, 'on_failure': 'stop', 'stdin': 'null'}
    id: str
    """Unique in the plan and safe as a file name: `build`, `verify`, `profile`. Logs are named
    after it.
    """
    title: str
    """Title for progress displays."""
    gpu: bool
    """Whether the step runs under the GPU lock."""
    needs: list[str]
    """Steps that must have succeeded; otherwise this one is skipped."""
    on_failure: OnFailure
    """The effect on the job when this step fails."""
    timeout_s: int
    """Time limit of each rung, in seconds."""
    max_output_bytes: int | None
    """Most bytes that the programs of this step may print to each stream. One that prints more is
    ended, and the step fails with the code `too_much_output`. Absent: output beyond the plan's
    limit is dropped, and the program goes on.
    """
    stdin: Stdin
    """Where the program's standard input comes from."""
    rungs: Records[Rung]
    """The rungs from best to last. The first whose `needs` are met is tried first."""


class StepOutlier(Record):
    """A step that took much longer than the median."""

    __slots__ = ()
    step: int
    """Number of the step, from 0."""
    start_ns: int
    """Start, in nanoseconds since the first event."""
    duration_ns: int
    """Its time in nanoseconds."""
    cause: str
    """What took most of the time above the median."""
    name: str
    """The call or kernel that took it."""


class StepTime(Record):
    """The repeating unit of a program, and its time."""

    __slots__ = ()
    found_by: str
    """How it was found."""
    name: str | None
    """The range that marks it, if a range does."""
    count: int
    """Number of steps in the trace."""
    median_ns: int
    """Median time in nanoseconds."""
    low_ns: int
    """The 10th percentile in nanoseconds."""
    high_ns: int
    """The 90th percentile in nanoseconds."""
    work: int
    """Pieces of GPU work in a step."""
    match_share: float
    """The part of the GPU work that is equal from step to step, 0 to 1."""
    first_start_ns: int
    """Start of the first step, in nanoseconds since the first event: what is before is start-up."""
    shown_start_ns: int
    """Start of the step that is shown, in nanoseconds since the first event."""
    shown_ns: int
    """Time of the step that is shown, in nanoseconds."""
    outliers: Records[StepOutlier]
    """Steps that took much longer than the median, longest first."""


class StepTime2(Record):
    """One step on each rank."""

    __slots__ = ()
    start_ns: list[int]
    """Its start on each rank, in nanoseconds since the first event."""
    host_ns: list[int]
    """Its duration on the host of each rank, in nanoseconds."""
    compute_ns: list[int]
    """Time of each rank in nanoseconds in which kernels launched in the step computed."""


class Steps(Record):
    """Steps of a program: the ranges of one name, which every rank has equally often."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'cut': 0}
    name: str
    """Name of the range, with `#` for a number that counts up."""
    steps: Records[StepTime2]
    """The first steps, at most 200."""
    cut: int
    """Number of steps that are not listed."""
    longest: LongestStep | None
    """The step that took some rank longest on its host, of all steps."""


class Stop(Record):
    """When the program of a rung is stopped as by Ctrl-C. The tool around it continues until its
    report is written, and the rung is judged without its exit status.
    """

    __slots__ = ()
    after_s: int
    """Seconds after the start of the rung."""
    spare: list[str]
    """Names of the tool's own processes, as the kernel cuts them (15 bytes); all others are
    stopped.
    """


class Straggler(Record):
    """A rank that the others wait for."""

    __slots__ = ()
    rank: int
    """Number of the rank."""
    times_last: int
    """Number of collectives to which it came last."""
    late_ns: int
    """By how much in total, in nanoseconds."""
    cause: str
    """The activity that took most of the time that the others did not need."""
    cause_ns: int
    """That time in nanoseconds."""
    region: str | None
    """The region in which most of it is; absent outside of all regions."""
    kernel: str | None
    """For `compute`: the kernel that took longer than on the other ranks."""


class StreamTime(Record):
    """Work on one CUDA stream."""

    __slots__ = ()
    stream: int
    """Number of the CUDA stream."""
    kernels: int
    """Number of kernels and graphs."""
    copies: int
    """Number of copies and memsets."""
    busy_ns: int
    """Time in nanoseconds in which any work of the stream ran."""


class Success(Record):
    """When the agent counts a rung as a success. These are cheap checks; the laptop makes the final
    decision after it has imported the results.
    """

    __slots__ = ()
    exit: list[int]
    """Exit statuses that count as success; empty: any."""
    files: list[str]
    """Files in the job's folder that must exist and not be empty. A name may hold one `*` for an
    unknown part, such as a process id; then one matching file is enough.
    """
    prints: list[Pattern]
    """Patterns that must all occur in the output."""


class SuiteOptions(Record):
    """The options of the command line. Absent ones come from the file or are rgpu's own."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'share_gpu': False, 'strict': False, 'include_generated': False}
    targets: list[str]
    """Patterns of `--target`; empty: all."""
    file: str | None
    """The file of `--file`."""
    level: Level | None
    """How much is measured besides times (`--level`)."""
    mode: str | None
    """The mode of `rgpu profile`."""
    remote: str | None
    """The remote, or several with commas."""
    gpu: str | None
    """The GPU of `--gpu`: an index, a UUID, or a part of a name."""
    share_gpu: bool
    """Whether other processes may use the GPU."""
    strict: bool
    """Whether doubts about the host are an error."""
    lock_clocks_mhz: int | None
    """The SM clock in MHz at which GPUs are locked while their cases run; absent: as found."""
    parallel: int | None
    """Over how many hosts of one remote, or GPUs of one host, the cases are spread; absent: one."""
    include_generated: bool
    """Whether generated targets are included."""
    iters: int | None
    """Number of timed launches."""
    timeout_s: int | None
    """Time limit of each step in seconds."""
    verify_timeout_s: int | None
    """Time limit of the check of results in seconds."""
    min_speedup: float | None
    """The speedup below which a pair is too close to call."""
    threshold: float | None
    """The smallest effect that counts, as a fraction."""


class SuiteRow(Record):
    """The result of one case."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'seconds': 0.0}
    case: str
    """The case: the target, with the values of its axes in brackets."""
    target: str
    """The target, `suite:case`."""
    axes: dict[str, str]
    """Values of the axes of the target's matrix."""
    kernel: str
    """The kernel or program; of a pair, the optimised side."""
    baseline: str | None
    """The baseline of a pair."""
    remote: str
    """Name of the remote."""
    host_number: int | None
    """Which of the remote's hosts the last attempt ran on, from 0; absent: the first."""
    state: RowState
    """State of the last attempt."""
    attempts: int
    """Number of attempts so far."""
    run: str | None
    """Id of the run of the last attempt."""
    seconds: float
    """Wall-clock seconds of the last attempt."""
    exit: int | None
    """The exit status that the case would have alone; absent until it has ended."""
    reason: str | None
    """Code of the failure, as in `rgpu.error/1`."""
    failure: str | None
    """The failure in words."""
    log: str | None
    """The log with the details."""
    again: str
    """The command that runs this case alone."""
    times: Records[SuiteTime]
    """The times, with a row for each size and side."""
    pair: PairResult | None
    """The comparison of a pair."""
    warnings: Records[Gap]
    """Warnings about the host, e.g. other processes on its GPU."""
    missing: Records[MissingTool]
    """Tools that the level or mode asks for and that gave no results."""
    metrics: dict[str, float]
    """Metrics of the launch with the most time, by NVIDIA's names."""


class SuiteTime(Record):
    """A time of a case."""

    __slots__ = ()
    case: str
    """The case: the target, with the values of its axes in brackets."""
    side: str
    """The side: `kernel`, `baseline` or `optimised`."""
    sizes: str
    """The sizes, `n=1024`, with `;` between groups."""
    dtype: str
    """The dtypes of the outputs."""
    gpu: str
    """Name of the GPU."""
    driver: str
    """Major version of the driver."""
    toolkit: str
    """The compiler with its version."""
    clocks: str
    """How the SM clock was set: `as_found` or `locked N MHz`."""
    method: str
    """How it was timed, with the version of the method."""
    size: str
    """Name of the size."""
    inputs: str
    """Digest of the files and options that the kernel was made of."""
    device: str
    """UUID of the GPU."""
    median_ns: float
    """Median of the samples in nanoseconds."""
    ci95_ns: list[float]
    """95 % interval of the median."""
    samples: int
    """Number of samples."""
    histogram: Histogram | None
    """How the samples are spread."""
    graph: GraphTiming | None
    """The time inside a CUDA graph; only for short kernels."""
    cooled_s: float | None
    """Seconds that a hot GPU was left to cool before the samples; absent if it was not hot."""
    roofline: RooflinePoint | None
    """Position of the time under the roofline of its GPU; absent without counted operations and
    bytes.
    """
    sol_percent: float | None
    """Share of the speed of light, in percent."""
    correctness: str | None
    """Result of the check."""
    bit_equal: bool | None
    """Whether two calls on the same inputs gave the same bits."""
    throttle: list[str]
    """Throttle reasons seen, by their NVML names."""
    against: TimeJudgement | None
    """The verdict against the expected time."""


class TimeChange(Record):
    """A time on both sides, with the change."""

    __slots__ = ()
    a: SideTime
    """Time of the base."""
    b: SideTime
    """Time of the other side."""
    speedup: float
    """Estimated ratio of the times, `a / b`: above 1, `b` is faster."""
    ci95: list[float] | None
    """95 % interval of the speedup; absent if either time has none."""
    verdict: TimeVerdict
    """The verdict that follows from the interval."""
    source: str
    """Source of the times and the interval: `abba`, `alternated_processes`, `samples`, `launches`."""
    rounds: int | None
    """Number of rounds: for `abba` of four timed calls (a, b, b, a), for `alternated_processes` of
    one process of each side. Absent for other sources.
    """


class TimeJudgement(Record):
    """A time against another of the same key."""

    __slots__ = ()
    verdict: SuiteVerdict
    """The verdict."""
    speedup: float | None
    """The other time in nanoseconds, divided by this one: above 1, this one is faster."""
    ci95: list[float] | None
    """Interval of the speedup."""
    threshold: float | None
    """The smallest effect that counted, as a fraction."""
    why: str | None
    """The reason of INCOMPARABLE and of a gate that was missed."""


class Timeline(Record):
    """Busy and idle time of each GPU according to a trace, with the causes of idle time."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'partial': False}
    scope: str
    """Part of the trace that was analysed: `program` (all of it), or `timed` (the phase that rgpu's
    own runner marked as measured). With `timed`, times are summed over the cases, and the time
    between two cases is left out.
    """
    partial: bool
    """Whether the trace lists only the first part of the work; the times then cover that part."""
    devices: Records[DeviceTime]
    """GPUs that did any work."""
    regions: Records[RegionTime]
    """The same by NVTX region, for regions with GPU work."""
    from_: str | None
    """The artifact that it was made from, as its path in the run folder."""


class Timing(Record):
    """Time of a case, measured around single launches without a profiling tool; `clock` says how."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'discarded': 0, 'l2_flushed': False}
    median_ns: float
    """Median of the samples in nanoseconds."""
    ci95_ns: list[float]
    """95 % confidence interval of the median in nanoseconds, from order statistics."""
    samples: int
    """Number of samples kept."""
    discarded: int
    """Number of samples dropped because clocks changed or the GPU was throttled."""
    min_ns: float
    """Shortest sample in nanoseconds."""
    mad_ns: float
    """Median absolute deviation in nanoseconds."""
    clock: str
    """Source of the times: `cuda_events`, `host_clock`, `cpu_reference`."""
    prepare_ns: float | None
    """Time of `rgpu_prepare` in nanoseconds; only for host entries."""
    l2_flushed: bool
    """Whether L2 was flushed before each sample."""
    flushed_bytes: int | None
    """Bytes written before each sample to flush L2: twice the L2 size that the device reports."""
    wall_ns: float | None
    """Wall-clock time of one call in nanoseconds, from the launch on an idle GPU until the whole
    GPU is idle again; median of a few calls made before the samples. If it is far above
    `median_ns`, the kernel does work that the events do not cover, or its launch is slow.
    """
    distinct_inputs: int | None
    """Number of distinct inputs over the timed calls; equals the number of calls if each got its
    own data.
    """
    verified: int | None
    """Number of timed calls whose outputs were compared with the reference's outputs for the same
    inputs; absent if none were.
    """
    repeated: int | None
    """Number of timed calls whose outputs were compared, bit by bit, with those of the first call
    on the same inputs; absent if none were.
    """
    sm_mhz: float | None
    """Median SM clock over the samples in MHz."""
    temperature_c: float | None
    """GPU temperature at the end in °C."""
    throttle: list[str]
    """Throttle reasons seen, by their NVML names."""
    flops_per_s: float | None
    """Floating-point operations per second at the median; the count comes from `[work]`."""
    bytes_per_s: float | None
    """Bytes per second at the median; the count comes from `[work]`."""
    histogram: Histogram | None
    """How the samples are spread."""
    graph: GraphTiming | None
    """The time inside a CUDA graph; only for short kernels."""
    cooling: Cooling | None
    """The wait for a hot GPU before the samples; absent if it was not hot."""
    trust: Trust | None
    """How far the kernel could have influenced the times; absent in runs of older builds."""
    trust_reason: str | None
    """Why the times are `unprotected`."""
    bound_ns: float | None
    """The judge's own wall time in nanoseconds a call, over rounds whose outputs were all right:
    the kernel's work took no longer than that. The judge is the process that holds the clock.
    """
    bound_range_ns: list[float] | None
    """The least and the largest of the rounds of `bound_ns`."""
    claimed_ns: float | None
    """Median of the times that the kernel's process claimed, in nanoseconds."""
    needed_bytes: int | None
    """Bytes that any right kernel moves: those of the outputs, and of the inputs as far as changes
    of them were seen to change the outputs; absent if unknown.
    """
    l2_bytes: int | None
    """Size of the GPU's L2 in bytes, as it reports it."""


class TogetherGain(Record):
    """What a step would take with several changes made together."""

    __slots__ = ()
    findings: list[str]
    """Ids of the findings."""
    low_ns: int
    """Time of a step in nanoseconds, lower and upper end."""
    high_ns: int
    """The upper end."""


class ToolFacts(Record):
    """A tool on a host."""

    __slots__ = ()
    name: str
    """`ncu`, `nsys`, `compute-sanitizer`, `nvcc`, `nvdisasm`, `python3` …"""
    path: str
    """Absolute path on the host."""
    version: str
    """Version as the tool prints it; empty if it printed none."""
    problems: list[str]
    """Known problems with the tool, e.g. the importer's missing library."""


class TraceRegion(Record):
    """A region that events refer to."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'start_end': False}
    path: list[str]
    """Path, as in `Region`."""
    parent: int | None
    """The enclosing region (index into `regions`); absent for outermost and start/end regions."""
    start_end: bool
    """Whether its ranges were opened with start/end, not push/pop."""


class TraceWork(Record):
    """One piece of work on the GPU."""

    __slots__ = ()
    kind: TraceWorkKind
    """The kind of GPU work."""
    name: int
    """Index into `names`: the kernel's demangled name, or `HtoD`, `DtoH`, `memset`, `graph` …"""
    start_ns: int
    """Start in nanoseconds since the first event."""
    duration_ns: int
    """Duration in nanoseconds."""
    device: int
    """Number of the GPU in the tool's numbering."""
    stream: int
    """Number of the CUDA stream."""
    bytes: int | None
    """Bytes copied or set; only for copies and memsets."""
    pageable: bool | None
    """Whether the host's side of a copy is pageable memory, not pinned; absent if the copy has no
    side on the host, or the tool does not tell.
    """
    call: int | None
    """The call that submitted it (index into `calls`), if known and listed."""
    launch: int | None
    """Id of the launch in the profile, for kernels listed there."""
    regions: list[int]
    """Regions in which it was launched (indexes into `regions`): the innermost push/pop region
    first, without its ancestors, then every start/end region.
    """
    rank: int | None
    """Number of the rank; absent for one process."""


class UnlistedEvents(Record):
    """Number of events that are not listed."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'work': 0, 'ranges': 0, 'calls': 0}
    work: int
    """GPU work left out."""
    ranges: int
    """Number of ranges left out."""
    calls: int
    """Number of calls left out."""


class UnmatchedKernel(Record):
    """A kernel that only one side launched."""

    __slots__ = ()
    kernel: str
    """Demangled name."""
    geometry: Geometry
    """Grid and block."""
    launches: int
    """Number of launches."""
    total_ns: float | None
    """GPU time of all launches in nanoseconds, if known."""


class UnsyncedFile(Record):
    """A fetched file that has not been synced to disk yet."""

    __slots__ = ()
    path: str
    """Path in the run folder."""
    size: int
    """Size in bytes."""


class Utilization(Record):
    """A rate compared with its peak."""

    __slots__ = ()
    achieved: float
    """Achieved rate, in `unit`."""
    peak: float
    """Peak rate, in `unit`."""
    unit: str
    """Unit: `FLOP/s` or `byte/s`."""
    percent: float
    """`achieved / peak`, in percent."""
    label: str
    """Name of the peak: `FP32`, `tensor bf16 to fp32`, `DRAM` …"""
    source: str
    """Source of the peak: `report`, `device`, `datasheet`, or `measured` (on the device, with the
    run).
    """
    note: str | None
    """Remark on the choice of the peak."""


class Verdict(Record):
    """A statement about what limits a launch."""

    __slots__ = ()
    verdict: str
    """snake_case id: `memory_bound`, `bank_conflicts` …"""
    score: float
    """How strongly it holds, 0 to 1."""
    confidence: str
    """How reliable the evidence is: `high`, `medium`, `low`."""
    text: str | None
    """The verdict in one sentence, with its number."""
    evidence: Records[Evidence]
    """The numbers that the verdict is based on."""


class WaitSum(Record):
    """Time without a kernel that has one cause: `host_late`, `launch_latency`, `synchronisation`,
    `copy`, `queued` (the work was launched before the GPU ran dry: the GPU's own turnaround, or
    a wait for another stream), `unknown` (the trace has no call for the work that ran next).
    """

    __slots__ = ()
    cause: str
    """The cause of the idle time."""
    total_ns: int
    """Idle time in nanoseconds."""
    gaps: int
    """Number of gaps in which this cause has the largest part."""


class Profile(ProfileMethods):
    """The profile of one run."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.profile/1`."""
    run: RunInfo
    """When, where and how it ran."""
    host: HostFacts | None
    """The host it ran on."""
    gpu: str | None
    """UUID of the GPU used, one of `host.gpus`; absent if no GPU was used."""
    device: str | None
    """The GPU's name as the reports give it."""
    kernel: KernelInfo
    """The kernel or program that was profiled."""
    rung: str
    """Id of the rung whose results these are: `ncu.asked`, `cpu` …; `none` if nothing ran."""
    selection: Selection | None
    """The part of the program that was profiled; absent if all of it was, with the tool's defaults."""
    ladder: Records[RungRecord]
    """Every rung tried, in order."""
    gaps: Records[Gap]
    """Missing data, each with the reason."""
    timing: Timing | None
    """Time of the default case, measured without a profiling tool."""
    cases: Records[CaseResult]
    """Results of each case."""
    score: Score | None
    """The time that a leaderboard would rank; absent for a kernel that is meant for none."""
    geometric_mean: GeometricMean | None
    """Geometric means over the cases; absent unless several were timed on a GPU."""
    speed_of_light: Records[SpeedOfLight]
    """Rates of each case that has `[work]`, as shares of the device's peaks."""
    bound: Records[BoundShare]
    """Times of cases that have `[work]` as shares of their speed-of-light bound; only on a GPU of
    the catalogue of `rgpu model hw list`.
    """
    stages: Records[Stage]
    """Stages of a model or a training, in the order in which they began."""
    correctness: Correctness | None
    """Correctness over all cases."""
    launches: Records[Launch]
    """Launches, in time order."""
    kernels: Records[KernelSum]
    """Launches summed by kernel, longest first."""
    copies: Records[CopySum]
    """Copies and memsets summed by kind."""
    regions: Records[Region]
    """NVTX regions, parents before children."""
    operators: Records[Operator]
    """Operators of a framework, longest first: by GPU time if it is known, else by host time."""
    memory: Records[MemoryUse]
    """Largest use of each GPU's memory by a framework's allocator."""
    timeline: Timeline | None
    """Busy time of each GPU and the causes of its idle time; absent without a trace that has them."""
    account: Account | None
    """Where the time of a step, and of the program, goes; absent without a trace that tells."""
    ranks: Ranks | None
    """The ranks of a program of several processes on GPUs; absent for one process."""
    sanitizer: Records[SanitizerResult]
    """Results of the sanitizer tools."""
    code: Records[KernelCode]
    """Compiled code of the kernels."""
    kernel_verdicts: Records[KernelVerdict]
    """The kernels with at least 5 % of the GPU time, longest first, with what limits each."""
    findings: Records[Finding]
    """Findings to act on, most time at stake first."""
    warnings: Records[Gap]
    """Warnings about the run, such as the state of the host before the first timed call."""
    artifacts: Records[Artifact]
    """Files of the run folder."""


class FanOut(Document):
    """Results of one plan on several remotes."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.fan_out/1`."""
    id: str
    """Id of the fan-out, which is the name of its folder."""
    kernel: str
    """The kernel or program."""
    mode: str
    """Mode: `ncu`, `nsys`, `bench` …"""
    started: str
    """Start time: RFC 3339, UTC, by the laptop's clock."""
    seconds: float
    """Wall-clock seconds until the last remote finished."""
    summary: str
    """One sentence: the fastest remote and its lead, or the reason why there is none."""
    base: str | None
    """The remote that the times of the others are compared with."""
    remotes: Records[FanOutRow]
    """One row for each remote, in the order given."""


class Suite(Document):
    """A suite that was run, with a row for each case."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'dirty': False}
    schema: str
    """Name and version of this schema: `rgpu.suite/1`."""
    id: str
    """The id of the suite's run, which is also its folder's name."""
    started: str
    """When it started (RFC 3339, UTC)."""
    seconds: float
    """Wall-clock seconds of all commands that worked on it."""
    state: SuiteState
    """Whether it runs, can be resumed, or is done."""
    clean: bool
    """Whether the last attempt of every case is ok."""
    rgpu: str
    """The version of rgpu."""
    file: str | None
    """The file that defines the targets, relative to the project; absent if every kernel is one."""
    commit: str | None
    """The commit that the project was at; absent outside a git work tree."""
    dirty: bool
    """Whether files of the project differed from that commit."""
    options: SuiteOptions
    """The command line's part of the settings."""
    rows: Records[SuiteRow]
    """A row for each case, in the order of the targets."""
    orphans: Records[MeasurementKey]
    """Expected values that no case has."""
    updates: Records[ExpectationUpdate]
    """What the last `--update-expectations` wrote and refused; empty without it."""


class ExecResult(ExecMethods):
    """The output of `exec --json` (`rgpu.exec/1`)."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.exec/1`."""
    run: str
    """The id of the run."""
    folder: str
    """The run folder on this machine."""
    exit: int | None
    """The exit status of the program; absent if it did not exit by itself."""
    signal: int | None
    """The signal that ended it."""
    timed_out: bool
    """Whether its time limit ended it."""
    hung: bool
    """Whether it was stopped because it printed nothing for the time of `--hang`."""
    seconds: float
    """Wall-clock seconds of the whole command."""
    pulled: list[str]
    """Names of the pulled files, relative to the folder that they were written to."""
    skipped: Records[SkippedFile]
    """Pulled files that were not written to that folder, to protect files on this machine."""


class Build(Document):
    """The result of one build."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.build/1`."""
    rgpu: str
    """The version of rgpu."""
    run: str
    """The id of the run."""
    kernel: str
    """Name of the kernel, or the file name without its extension."""
    language: str
    """Language of the source: `cuda`, `cute` or `triton`."""
    source: str
    """Path of the source that was found."""
    arch: str
    """Architecture that the code was compiled for."""
    status: BuildStatus
    """Whether the build succeeded."""
    compiler: str | None
    """Name of the compiler, with its version if known."""
    options: list[str]
    """Compiler options in order: those of kernel.toml, then those of the command line."""
    commands: list[list[str]]
    """Every compile command that was tried, in order."""
    log: LogSettings | None
    """Settings of the DSL's own log; absent for CUDA."""
    main_ptx: str | None
    """PTX file of the first kernel."""
    files: Records[Artifact]
    """Files that the compiler produced."""
    code: Records[Input]
    """GPU code in these files: kernels with registers, stack and spills."""
    notes: list[str]
    """Notes for the user."""
    error: BuildError | None
    """The error; absent if the build succeeded."""
    seconds: float
    """Time that the compiler ran, in seconds."""


class Disasm(Document):
    """All inputs of one command."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.disasm/1`."""
    rgpu: str
    """The version of rgpu."""
    inputs: Records[Input]
    """Inputs, in the order given."""


class Code(Document):
    """Code in the inputs of one command."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.code/1`."""
    rgpu: str
    """The version of rgpu."""
    view: str
    """The requested view: `sass`, `ptx`, `source`, `mix`, `cfg`, `live`, or `page`."""
    images: Records[CodeImage]
    """Images that have something to show, in the order of the inputs."""
    errors: list[str]
    """Errors of parts that could not be read, each with its file."""


class DisasmDiff(Document):
    """Differences between two builds (`rgpu.disasm-diff/1`). Kernels are matched by architecture
    and demangled name; by name alone if each build is for one architecture and the two differ.
    """

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.disasm-diff/1`."""
    tool: str | None
    """Tool that gave the instruction texts: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`."""
    normalized: list[str]
    """Parts of the instruction texts that were ignored: `addresses`, `registers`."""
    kernels: Records[KernelDiff]
    """Kernels of both builds, in the order of the new one."""
    removed: list[str]
    """Kernels of the old build only, with architecture and name."""
    added: list[str]
    """Kernels of the new build only, with architecture and name."""


class Comparison(RunMethods):
    """The result of comparing two profiles."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.compare/1`."""
    a: ComparedSide
    """The base side."""
    b: ComparedSide
    """The side compared with the base."""
    verdict: TimeVerdict
    """Overall verdict on the time."""
    summary: str
    """One sentence: the verdict with its numbers and, if metrics explain it, the reason."""
    threshold: float
    """Smallest effect that counts, as a fraction: 0.01 is 1 %."""
    time: TimeChange | None
    """The time that the verdict is based on; absent if either side has none."""
    cases: Records[CaseChange]
    """Times of each case of sizes that both sides measured."""
    kernels: Records[KernelChange]
    """Kernels that both sides launched, longest time first."""
    only_a: Records[UnmatchedKernel]
    """Kernels that only the base launched."""
    only_b: Records[UnmatchedKernel]
    """Kernels that only the other side launched."""
    regions: Records[RegionChange]
    """NVTX regions that both sides have."""
    ranks: Records[RankChange]
    """Ranks that both sides have."""
    account: AccountChange | None
    """Where the time of a step, or of the program, changed; absent unless both sides have accounts."""
    differences: Records[Difference]
    """Differences in the conditions of the two sides; not empty only if the user forced the
    comparison.
    """
    parts: Records[Part]
    """For each tool, whether it has results for both sides, or why not."""
    gaps: Records[Gap]
    """Data that cannot be compared, each with the reason."""


class Run(DetachedMethods):
    """The content of `run.json` (`rgpu.run/1`)."""

    __slots__ = ()
    _defaults: ClassVar[dict[str, Any]] = {'mode': '', 'kernel': '', 'address': '', 'seconds': 0.0}
    schema: str
    """Name and version of this schema: `rgpu.run/1`."""
    id: str
    """The run's id, which is also its folder's name."""
    started: str
    """When the run started (RFC 3339, UTC)."""
    title: str
    """The title in lists: "profile vecadd (ncu)"."""
    command: str
    """The command, such as `profile` or `exec`."""
    argv: list[str]
    """The command line as typed, without secrets."""
    mode: str
    """The mode, such as `ncu` or `nsys`; empty for commands without modes."""
    kernel: str
    """The name of the kernel or program."""
    remote: str
    """The name of the remote."""
    address: str
    """The remote's address at that time (`ssh://user@host:port`), since the name may be redefined
    later.
    """
    labels: dict[str, str]
    """Labels of `--label KEY=VALUE`, by key."""
    note: str | None
    """The text of `--note`."""
    parent: RunParent | None
    """The suite, queue entry or loop that started the run. Absent if a user did."""
    jobs: Records[JobRecord]
    """The jobs on the host, one for each plan."""
    state: RunState
    """The state of the run."""
    exit: int | None
    """Exit status of the command. Absent until it ended."""
    program_exit: int | None
    """Exit status of the user's program. Only for `exec`."""
    seconds: float
    """Wall-clock time of the run in seconds."""
    usd_per_hour: float | None
    """The remote's price in US dollars per hour, from the user's settings."""
    cost_usd: float | None
    """The cost of the run in US dollars."""
    cost_from: CostSource | None
    """Where `cost_usd` comes from."""
    billed: BilledCost | None
    """The provider's bill for the run."""


class Plan(Document):
    """One job for a GPU host. A run is one plan or several, in sequence."""

    __slots__ = ()
    job: str
    """The job's name on the host, `<run id>.<sequence>`; see `valid_job_id`."""
    title: str
    """Title for lists of jobs: "profile vecadd (ncu)"."""
    facts: str | None
    """Key of the facts this plan was made from (`key`). If the host has changed, it answers
    `facts_changed` instead of running. `None` for plans that need no facts.
    """
    files: Records[InputFile]
    """Input files that must be in the job's folder before the first step."""
    steps: Records[Step]
    """The steps, in order."""
    gpu: GpuRequest | None
    """The GPU to lock from the first to the last step that needs one. `None` if no step does."""
    env: dict[str, Arg]
    """Environment of every step, on top of the variables that the agent passes on."""
    secrets: list[str]
    """Names of the secret variables of every step. Their values are masked wherever output is kept."""
    limits: Limits
    """Time and size limits of the whole job."""
    origin: Origin | None
    """The command that made the plan. The agent keeps it for clients that attach without the run's
    folder.
    """


class HotSpots(Document):
    """Hot spots of the launches of one run or report."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.hotspots/1`."""
    launches: Records[LaunchSpots]
    """Launches that have counts per instruction, in the profile's order."""


class Trace(Document):
    """Events of one run or report."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.trace/1`."""
    span_ns: int
    """Time from the start of the first event to the end of the last, in nanoseconds."""
    names: list[str]
    """Names that events refer to by index."""
    regions: Records[TraceRegion]
    """The regions that the listed ranges belong to, parents before children."""
    work: Records[TraceWork]
    """Work on the GPU, in order of start."""
    ranges: Records[RangeEvent]
    """NVTX ranges, in order of start."""
    calls: Records[CallEvent]
    """Calls into CUDA on the host, in order of start."""
    ranks: Records[RankLocation]
    """The ranks of the program, by number; empty for one process."""
    memory: Records[MemoryPoint]
    """Memory of a framework's allocator, in order of time."""
    cut: UnlistedEvents
    """Number of events of each kind that are not listed."""
    from_: str | None
    """The artifact that the events come from, as its path in the run folder."""


class Regions(Document):
    """Selected regions of one run."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.regions/1`."""
    run: str
    """The id of the run."""
    kernel: str
    """The kernel or program."""
    mode: str
    """Mode: `ncu`, `nsys` …"""
    rung: str
    """Id of the rung whose results these are."""
    device: str | None
    """Name of the GPU, if known."""
    selection: Selection | None
    """The selection that was requested, with its matches and the sections and metrics collected."""
    no_match: list[str]
    """Patterns of `--regions` that no region of the program matches."""
    totals: RegionTotals
    """Sums over the whole run, to compare regions with."""
    fingerprint: str | None
    """The selection's fingerprint (sha256): equal if the same measurement was repeated."""
    regions: Records[RegionEntry]
    """The regions that were selected."""
    gaps: Records[Gap]
    """Missing data, each with the reason."""


class ErrorDocument(Document):
    """The JSON output for a failure (`rgpu.error/1`)."""

    __slots__ = ()
    schema: str
    """Name and version of this schema: `rgpu.error/1`."""
    exit: int
    """The exit status of the command."""
    error: Failure
    """The failure itself."""


BY_SCHEMA: dict[str, type[Document]] = {
    "rgpu.profile/1": Profile,
    "rgpu.fan_out/1": FanOut,
    "rgpu.suite/1": Suite,
    "rgpu.exec/1": ExecResult,
    "rgpu.build/1": Build,
    "rgpu.disasm/1": Disasm,
    "rgpu.code/1": Code,
    "rgpu.disasm-diff/1": DisasmDiff,
    "rgpu.compare/1": Comparison,
    "rgpu.run/1": Run,
    "rgpu.hotspots/1": HotSpots,
    "rgpu.trace/1": Trace,
    "rgpu.regions/1": Regions,
    "rgpu.error/1": ErrorDocument,
}
"""The class of a document by its field `schema`."""
