"""dump_layouts.py JOB: prints the layouts of a block-scaled CuTe DSL kernel, with no GPU and no driver.

JOB is a JSON file: file (or null), out, shape (m, n, k, l or null), tile, stages, cta_group, load_columns,
probes, try_tma_partition, epilogue, named_only. What the job leaves open comes from constants of the kernel's
file. The layouts are asked of the DSL's own helpers, inside an MLIR context that needs no GPU. Whatever fails
is recorded, and the rest goes on. The report goes to `out`; there is none with named_only if the file does not
name its tile and its scales. The exit status is always 0.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import traceback

from build_dsl import StandIns, load, words

# Constants of kernel files, by what they mean; the first that a file has counts.
NAMES = {
    "tile": ("mma_tiler_mnk", "mma_tiler", "MMA_TILER_MNK", "MMA_TILER", "tile_shape_mnk"),
    "stages": ("num_ab_stage", "ab_stages", "NUM_AB_STAGE", "num_stages"),
    "sf_vec": ("sf_vec_size", "SF_VEC_SIZE"),
    "ab_dtype": ("ab_dtype", "a_dtype"),
    "sf_dtype": ("sf_dtype",),
    "c_dtype": ("c_dtype",),
}
TILE, STAGES, VECTOR = (128, 128, 256), 1, 16


def names_its_layouts(module):
    """Whether a kernel is block-scaled, with constants for its tile and its scales."""
    has = lambda *kinds: any(hasattr(module, name) for kind in kinds for name in NAMES[kind])
    return has("tile") and has("sf_vec", "sf_dtype")


class Dump:
    """The request and its results by one way to ask. They are saved after each question."""

    def __init__(self, job, probe, path):
        self.job, self.probe, self.path = job, probe, path
        self.module = None
        self.report = {"dsl": "", "python": sys.version.split()[0], "settings": {}, "layouts": [], "records": [], "failures": [], "notes": [], "asked": "", "error": None}

    def save(self):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.report, file)

    def fail(self, kind, error):
        text = re.sub(r"\x1b\[[0-9;]*m", "", "".join(traceback.format_exception(error)))
        self.report["error"] = {"kind": kind, "class": type(error).__name__, "message": words(error), "traceback": text}
        self.save()
        return 0

    def failed(self, what, error):
        message = words(error)[:2000]
        self.report["failures"].append({"probe": self.probe, "what": what, "class": type(error).__name__, "message": message})

    def constant(self, name, default):
        found = next((getattr(self.module, n) for n in NAMES[name] if hasattr(self.module, n)), None)
        given = self.job.get(name)
        return given if given is not None else found if found is not None else default

    def take(self, name, make):
        """Records the layout that `make` returns, or why there is none. Returns its value."""
        self.report["asked"] = name
        self.save()
        try:
            made = make()
            self.keep(name, str(getattr(made, "layout", made)))
            return made
        except Exception as error:
            self.failed(name, error)
            return None

    def keep(self, name, text):
        layouts = self.report["layouts"]
        if all(known["name"] != name for known in layouts):
            layouts.append({"name": name, "layout": text})

    def record(self, name, value):
        self.report["records"].append({"name": name, "text": str(value)})


def contexts(cutlass):
    """The ways to ask the DSL, by name."""
    ir = cutlass._mlir.ir

    @contextlib.contextmanager
    def with_module_ip():
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                yield

    @contextlib.contextmanager
    def with_context():
        with ir.Context(), ir.Location.unknown():
            yield

    return {"with_module_ip": with_module_ip, "with_context": with_context, "bare": contextlib.nullcontext}


def ask(dump):
    """Asks for all layouts inside one context."""
    import cutlass
    import cutlass.cute as cute
    import cutlass.utils.blackwell_helpers as blackwell
    import cutlass.utils.blockscaled_layout as blockscaled
    from cutlass.cute.nvgpu import tcgen05

    job, settings = dump.job, dump.report["settings"]
    tile, stages, vector = tuple(settings["tile"]), settings["stages"], settings["sf_vec"]
    pair = settings["cta_group"] == 2
    group = tcgen05.CtaGroup.TWO if pair else tcgen05.CtaGroup.ONE
    ab = dump.constant("ab_dtype", cutlass.Float4E2M1FN)
    sf = dump.constant("sf_dtype", cutlass.Float8E4M3FN)
    major = tcgen05.OperandMajorMode.K
    mma = blackwell.make_blockscaled_trivial_tiled_mma(ab, major, major, sf, vector, group, tile[:2])
    take = dump.take
    a_smem = take("a_smem", lambda: blackwell.make_smem_layout_a(mma, tile, ab, stages))
    b_smem = take("b_smem", lambda: blackwell.make_smem_layout_b(mma, tile, ab, stages))
    sfa = take("sfa_smem", lambda: blockscaled.make_smem_layout_sfa(mma, tile, vector, stages))
    sfb = take("sfb_smem", lambda: blockscaled.make_smem_layout_sfb(mma, tile, vector, stages))
    one = lambda staged: cute.slice_(staged, (None, None, None, 0))
    t_sfa = take("tCtSFA", lambda: blockscaled.make_tmem_layout_sfa(mma, tile, vector, one(sfa)))
    t_sfb = take("tCtSFB", lambda: blockscaled.make_tmem_layout_sfb(mma, tile, vector, one(sfb)))
    acc = take("tCtAcc", lambda: mma.make_fragment_C(mma.partition_shape_C(tile[:2])))
    for name, staged, tmem in (("SFA", sfa, t_sfa), ("SFB", sfb, t_sfb)):
        take(f"tCt{name}_s2t", lambda: s2t(cute, tcgen05, cutlass, group, sf, staged, tmem, dump, name))
    if job["shape"]:
        partitions(dump, cute, cutlass, mma, tile, ab, vector, blockscaled)
    if job["try_tma_partition"]:
        tma(dump, cute, mma, tile, ab, a_smem, b_smem, settings)
    if job["epilogue"]:
        epilogue(dump, cute, cutlass, tcgen05, mma, tile, acc)


def memory(cute, cutlass, dtype, layout, space, bits=128):
    """A tensor at address 0: only its layout matters."""
    pointer = cute.make_ptr(dtype, 0, space, assumed_align=bits // 8)
    return cute.make_tensor(pointer, layout)


def s2t(cute, tcgen05, cutlass, group, dtype, staged, tmem, dump, name):
    """How scales are copied from shared to tensor memory."""
    smem = cute.filter_zeros(memory(cute, cutlass, dtype, staged, cute.AddressSpace.smem))
    target = cute.filter_zeros(memory(cute, cutlass, dtype, tmem, cute.AddressSpace.tmem))
    copy = tcgen05.make_s2t_copy(cute.make_copy_atom(tcgen05.Cp4x32x128bOp(group), dtype), target)
    part = copy.get_slice(0)
    dump.take(f"tCs{name}_s2t", lambda: part.partition_S(smem))
    return part.partition_D(target)


def partitions(dump, cute, cutlass, mma, tile, dtype, vector, blockscaled):
    """Scales in global memory, and what one CTA's share of A, B and C is."""
    m, n, k, l = dump.job["shape"]
    take = dump.take
    take("sfa_gmem", lambda: blockscaled.tile_atom_to_shape_SF((m, k, l), vector))
    take("sfb_gmem", lambda: blockscaled.tile_atom_to_shape_SF((n, k, l), vector))
    slice_of = mma.get_slice(0)
    gmem = cute.AddressSpace.gmem
    shapes = {
        "A": ((m, k, l), (k, 1, m * k), (tile[0], tile[2]), lambda t: slice_of.partition_A(t), dtype),
        "B": ((n, k, l), (k, 1, n * k), (tile[1], tile[2]), lambda t: slice_of.partition_B(t), dtype),
        "C": ((m, n, l), (n, 1, m * n), (tile[0], tile[1]), lambda t: slice_of.partition_C(t), cutlass.Float16),
    }
    for name, (shape, stride, tiler, partition, element) in shapes.items():
        def tiles():
            whole = memory(cute, cutlass, element, cute.make_layout(shape, stride=stride), gmem)
            return cute.local_tile(whole, tiler, (None, None, None))

        tiled = take({"A": "gA_mkl", "B": "gB_nkl", "C": "gC_mnl"}[name], tiles)
        if tiled is not None:
            take(f"tCg{name}", lambda: partition(tiled))


def tma(dump, cute, mma, tile, dtype, a_smem, b_smem, settings):
    """What `cpasync.tma_partition` is given, and what it returns if it can be called."""
    from cutlass.cute.nvgpu import cpasync

    for name, staged in (("A", a_smem), ("B", b_smem)):
        if staged is None:
            continue
        for what, value in (("smem", staged), ("mma", mma), ("tile", tile), ("stages", settings["stages"])):
            dump.record(f"cpasync.{name}.{what}", value)

        def call():
            import cutlass

            gmem = next(known for known in dump.report["layouts"] if known["name"] == f"tCg{name}")
            dump.record(f"cpasync.{name}.gmem", gmem["layout"])
            m, n, k, l = dump.job["shape"]
            rows = m if name == "A" else n
            whole = memory(cute, cutlass, dtype, cute.make_layout((rows, k, l), stride=(k, 1, rows * k)), cute.AddressSpace.gmem)
            make = cute.nvgpu.make_tiled_tma_atom_A if name == "A" else cute.nvgpu.make_tiled_tma_atom_B
            atom, tensor = make(cpasync.CopyBulkTensorTileG2SOp(), whole, cute.slice_(staged, (None, None, None, 0)), tile, mma, (1, 1, 1, 1))
            slice_of = mma.get_slice(0)
            tiler = (tile[0] if name == "A" else tile[1], tile[2])
            parts = (slice_of.partition_A if name == "A" else slice_of.partition_B)(cute.local_tile(tensor, tiler, (None, None, None)))
            pointer = cute.make_ptr(dtype, 0, cute.AddressSpace.smem, assumed_align=1024)
            smem = cute.make_tensor(cute.recast_ptr(pointer, staged.inner, dtype), staged.outer)
            to_smem, from_gmem = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(smem, 0, 3), cute.group_modes(parts, 0, 3))
            dump.keep(f"tAs{name}", str(to_smem.layout))
            return from_gmem

        dump.take(f"tAg{name}", call)


def epilogue(dump, cute, cutlass, tcgen05, mma, tile, acc):
    """How `tcgen05.ld.32x32b` reads the accumulator, and what a thread writes of C."""
    take = dump.take
    m, n, _, _ = dump.job["shape"] or (tile[0], tile[1], 0, 1)
    columns = dump.report["settings"]["load_columns"]
    op = tcgen05.Ld32x32bOp(getattr(tcgen05.Repetition, f"x{columns}"))
    atom = cute.make_copy_atom(op, cutlass.Float32)
    try:
        one = memory(cute, cutlass, cutlass.Float32, acc.layout, cute.AddressSpace.tmem)[(None, None), 0, 0]
        copy = tcgen05.make_tmem_copy(atom, one)
        part = copy.get_slice(0)
        take("tDtAcc", lambda: part.partition_S(one))

        def tile_of_c():
            whole = memory(cute, cutlass, dump.constant("c_dtype", cutlass.Float16), cute.make_layout((m, n), stride=(n, 1)), cute.AddressSpace.gmem)
            # Each CTA of a pair writes its half of the rows.
            return cute.local_tile(whole, (tile[0] // dump.job["cta_group"], tile[1]), (0, 0))

        gc = take("gC", tile_of_c)
        take("tDgC", lambda: part.partition_D(gc))
    except Exception as error:
        dump.failed("epilogue", error)


def main():
    job_file = sys.argv[1]
    with open(job_file, encoding="utf-8") as file:
        job = json.load(file)
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
    sys.dont_write_bytecode = True
    os.makedirs(os.path.dirname(job["out"]) or ".", exist_ok=True)
    if len(sys.argv) > 2:
        return run(Dump(job, sys.argv[2], sys.argv[3]))
    report = None
    for probe in job["probes"]:
        # The DSL may abort the process, so each way to ask has its own.
        part = f"{job['out']}.{probe}"
        done = subprocess.run([sys.executable, os.path.abspath(__file__), job_file, probe, part])
        try:
            with open(part, encoding="utf-8") as file:
                got = json.load(file)
            os.remove(part)
        except (OSError, ValueError):
            got = Dump(job, probe, part).report
        if done.returncode and not got["error"]:
            message = f"the DSL ended the process with status {done.returncode}"
            got["failures"].append({"probe": probe, "what": got["asked"], "class": "ProcessEnded", "message": message})
        if report is None:
            report = got
            continue
        known = [layout["name"] for layout in report["layouts"]]
        report["layouts"] += [layout for layout in got["layouts"] if layout["name"] not in known]
        report["failures"] += got["failures"]
        report["error"] = report["error"] or got["error"]
    if not report["layouts"] and not report["error"]:
        first = (report["failures"] or [{"class": "Error", "message": "no layout was printed"}])[0]
        report["error"] = {"kind": "dsl", "class": first["class"], "message": first["message"], "traceback": ""}
    if (report["error"] or {}).get("kind") == "unnamed":
        return 0
    with open(job["out"], "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    return 0


def run(dump):
    job = dump.job
    try:
        import cutlass
        import cutlass._mlir.ir
        import cutlass.cute
        import cutlass.utils.blackwell_helpers
        import cutlass.utils.blockscaled_layout
    except Exception as error:
        missing = isinstance(error, ImportError) and (error.name or "").startswith("cutlass")
        return dump.fail("missing" if missing else "dsl", error)
    dump.report["dsl"] = "nvidia-cutlass-dsl " + getattr(cutlass, "__version__", "")
    if job["file"]:
        path = os.path.abspath(job["file"])
        stand_ins = StandIns(os.path.dirname(path))
        sys.meta_path.append(stand_ins)
        try:
            dump.module = load(path)
        except BaseException as error:  # a kernel may call sys.exit
            return dump.fail("kernel", error)
        for name in stand_ins.used:
            dump.report["notes"].append(f"`{name}` is not in this environment: a stand-in was imported")
    if job.get("named_only") and not names_its_layouts(dump.module):
        dump.report["error"] = {"kind": "unnamed", "class": "", "message": "the file does not name its tile and its scales"}
        dump.save()
        os._exit(0)
    if not any(hasattr(dump.module, name) for kind in ("sf_vec", "sf_dtype") for name in NAMES[kind]):
        dump.report["notes"].append("the file names no type of scales: NVFP4 is assumed")
    tile = tuple(int(extent) for extent in dump.constant("tile", TILE))
    dump.report["settings"] = {
        "tile": list(tile),
        "stages": int(dump.constant("stages", STAGES)),
        "sf_vec": int(dump.constant("sf_vec", VECTOR)),
        "cta_group": job["cta_group"],
        "load_columns": job["load_columns"] or min(128, tile[1] & -tile[1]),
    }
    dump.save()
    try:
        with contexts(cutlass)[dump.probe]():
            ask(dump)
    except Exception as error:
        dump.failed("all", error)
    dump.save()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the DSL's own end may abort after a failed question


if __name__ == "__main__":
    sys.exit(main())
