#!/usr/bin/env python3
"""Compares what `rgpu disasm` says of each kernel with what NVIDIA's tools say, and extracted files byte by byte.

    tests/nvidia/facts.py RGPU CUOBJDUMP FOLDER [--sample N]
        FOLDER    of .cubin, .fatbin, .o, .so; a .log beside a cubin is what `ptxas -v` said of it
        --sample  of a file with many images, look at every N-th image's facts (all are extracted)

Facts: `cuobjdump -res-usage`, `ptxas -v`, `cuobjdump -elf`. Extraction: `cuobjdump -all -xelf all -xptx all`.
Prints one JSON document with the counts; every difference is listed, and the exit code is 1 when there is one.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

CONTAINERS = (".fatbin", ".o", ".so", ".a")


def text_of(*argv, cwd=None):
    """Stdout of a tool that must end well."""
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True, cwd=cwd).stdout


def numbers(text):
    """Every hexadecimal or decimal number."""
    return [int(word, 0) for word in re.findall(r"0x[0-9a-f]+|\d+", text)]


def from_res_usage(text, arch):
    """{kernel: [{field: value}]}; a name may stand for several."""
    found = collections.defaultdict(list)
    reserved = 1024 if int(re.search(r"\d+", arch)[0]) >= 90 else 0
    for name, line in re.findall(r"Function (\S+):\n\s*(REG:.*)", text):
        value = dict(re.findall(r"([A-Z]+(?:\[\d+\])?):(\w+)", line))
        shared = int(value["SHARED"])
        found[name.strip("'")].append({
            "registers": int(value["REG"]),
            "stack_bytes": None if value["STACK"] == "UNKNOWN" else int(value["STACK"]),
            "local_bytes": int(value["LOCAL"]),
            # Its number holds what the system keeps for itself, once there is any.
            "shared_bytes": shared - min(shared, reserved),
            "constant_bytes": {key[9:-1]: int(n) for key, n in value.items() if key.startswith("CONSTANT")},
        })
    return found


def from_ptxas(text):
    """{kernel: {field: value}} of `ptxas -v`."""
    found = {}
    for part in re.split(r"Compiling entry function", text)[1:]:
        name = re.search(r"'(\S+)' for", part)[1]
        number = lambda pattern: int((re.search(rf"(\d+) {pattern}", part) or [0, 0])[1])
        used = re.search(r"Used (\d+) registers(?:, used (\d+) barriers)?", part)
        # Properties of the kernel; those of functions that it calls stand below names of their own.
        own = re.search(rf"Function properties for {re.escape(name)}\n(.*)", part)[1]
        of_own = lambda pattern: int(re.search(rf"(\d+) {pattern}", own)[1])
        found[name] = {
            "registers": int(used[1]),
            "barriers": int(used[2] or 0),
            "shared_bytes": number("bytes smem"),
            "frame_bytes": of_own("bytes stack frame"),
            "spill_store_bytes": of_own("bytes spill stores"),
            "spill_load_bytes": of_own("bytes spill loads"),
            **{f"cmem[{bank}]": int(size) for size, bank in re.findall(r"(\d+) bytes cmem\[(\d+)\]", part)},
        }
    return found


def attributes(section):
    """[(name, value text)] of one .nv.info section as cuobjdump prints it."""
    pattern = r"Attribute:\t(\S+)[^\n]*\n\tFormat:[^\n]*\n((?:(?!\t<0x)[^\n]*\n)*)"
    return re.findall(pattern, section)


def from_elf(text):
    """{kernel: {field: value}} of `cuobjdump -elf`."""
    found = {}
    barriers_in_flags = re.search(r"abi=7", text)
    infos = dict(re.findall(r"(?m)^\.nv\.info\.(\S+)\n((?:.*\n)*?)\n\n", text + "\n\n"))
    whole = re.search(r"(?m)^\.nv\.info\n((?:.*\n)*?)\n\n", text)
    module = attributes(whole[1]) if whole else []
    for size, name in re.findall(r"0x[0-9a-f]+\s+\S+\s+(\S+)\s+FUNC\s+\S+\s+\S+\s+ENTRY\s+\S+\s+(\S+)", text):
        fact = {"code_bytes": int(size, 0), "params": {}, "exits": [], "mbarriers": 0, "barriers": 0,
                "tcgen05_one_cta": False, "tcgen05_two_cta": False,
                "max_threads": None, "required_block": None, "cluster": None, "max_cluster_rank": None}
        if barriers_in_flags:
            row = re.search(rf"PROGBITS\s+([0-9a-f]+)\s.*\s\.text\.{re.escape(name)}\n", text)
            fact["barriers"] = int(row[1], 16) >> 20 & 0x7F
        for attribute, value in module:
            if f"function: {name}(" in value:
                last = numbers(value)[-1]
                where = {"REGCOUNT": "registers", "FRAME_SIZE": "frame_bytes", "MIN_STACK_SIZE": "stack_bytes"}
                if attribute[7:] in where:
                    fact[where[attribute[7:]]] = None if last == 0xFFFFFFFF else last
        triples = {"MAX_THREADS": "max_threads", "REQNTID": "required_block", "CTA_PER_CLUSTER": "cluster"}
        singles = {"NUM_BARRIERS": "barriers", "NUM_MBARRIERS": "mbarriers", "MAX_CLUSTER_RANK": "max_cluster_rank"}
        for attribute, value in attributes(infos.get(name, "")):
            short = attribute[7:]
            if short in triples:
                fact[triples[short]] = numbers(value)[:3]
            elif short in singles:
                fact[singles[short]] = numbers(value)[0]
            elif short == "EXIT_INSTR_OFFSETS":
                fact["exits"] += numbers(value)
            elif short == "PARAM_CBANK":
                fact["param_offset"] = numbers(value)[1] & 0xFFFF
            elif short in ("KPARAM_INFO", "KPARAM_INFO_V2"):
                _, ordinal, offset, size = numbers(value)[:4]
                fact["params"][ordinal] = {"offset": offset, "bytes": size}
            elif short in ("TCGEN05_1CTA_USED", "TCGEN05_2CTA_USED"):
                fact[f"tcgen05_{'one' if '1' in short[7:] else 'two'}_cta"] = True
        fact["params"] = [fact["params"][ordinal] for ordinal in sorted(fact["params"])]
        found[name] = fact
    return found


class Comparison:
    """Counts, and what differs."""

    def __init__(self):
        self.kernels, self.differences = 0, []
        self.equal = collections.Counter()

    def fields(self, where, source, theirs, ours):
        for field, value in theirs.items():
            bank = re.fullmatch(r"cmem\[(\d+)\]", field)
            mine = ours["constant_bytes"].get(bank[1]) if bank else ours.get(field)
            if mine == value:
                self.equal[f"{source} {field}"] += 1
            else:
                self.differences.append(f"{where}: {source}: {field}: theirs {value}, ours {mine}")


def min_stack(cuobjdump, file):
    """Everything that `cuobjdump -elf` says about the size of stacks."""
    return "".join(re.findall(r"EIATTR_MIN_STACK_SIZE\n.*\n.*\n", text_of(cuobjdump, "-elf", file)))


def compare_cubin(compared, cuobjdump, file, image, log=None, with_elf=True):
    """One cubin's kernels."""
    theirs = from_res_usage(text_of(cuobjdump, "-res-usage", file), image["arch"])
    elf = from_elf(text_of(cuobjdump, "-elf", file)) if with_elf else {}
    said = from_ptxas(log.read_text()) if log and log.exists() else {}
    head = {}
    if with_elf:
        text = text_of(cuobjdump, "-elf", file)
        head = {"command_line": (re.search(r"Tool Command Line Arguments: (.*)", text) or ["", None])[1]}
        head["command_line"] = head["command_line"] and head["command_line"].strip() or None
        mine = {"command_line": (image.get("command_line") or "").strip() or None}
        compared.fields(file.name, "elf", head, mine)
    by_name = collections.Counter(kernel["symbol"] for kernel in image.get("kernels", []))
    for kernel in image.get("kernels", []):
        name = kernel["symbol"]
        compared.kernels += 1
        candidates = theirs.get(name, [])
        if candidates and candidates[0]["stack_bytes"] == 0 and kernel.get("stack_bytes") is None:
            # A cubin that is still to be linked says nothing of the stack; -res-usage then prints 0.
            if f"function: {name}(" not in min_stack(cuobjdump, file):
                candidates[0].pop("stack_bytes")
                compared.equal["stack not in the file"] += 1
        if by_name[name] == 1 and candidates:
            compared.fields(f"{file.name} {name}", "res-usage", candidates[0], kernel)
        elif not candidates:
            compared.differences.append(f"{file.name} {name}: not in -res-usage")
        for source, table in (("ptxas", said), ("elf", elf)):
            if name in table:
                compared.fields(f"{file.name} {name}", source, table[name], kernel)
            elif table:
                compared.differences.append(f"{file.name} {name}: not in {source}")


def disasm(rgpu, folder, *arguments):
    """summary.json of one call."""
    out = pathlib.Path(folder) / "ours"
    (pathlib.Path(folder) / "rgpu.toml").touch()
    subprocess.run([rgpu, "disasm", *map(str, arguments), "--out", str(out), "--tool", "none", "-q", "--json"],
                   check=True, stdout=subprocess.DEVNULL, cwd=folder)
    return json.loads((out / "summary.json").read_text()), out


def digests(files):
    """Counter of sha256."""
    return collections.Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def compare_container(compared, rgpu, cuobjdump, file, sample):
    """Every image byte for byte; the facts of some."""
    with tempfile.TemporaryDirectory(prefix="rgpu-facts-") as folder:
        folder = pathlib.Path(folder)
        summary, out = disasm(rgpu, folder, file, "--extract")
        entry = summary["inputs"][0]
        counts = {"images": len(entry["images"])}
        if entry["status"] != "ok":
            compared.differences.append(f"{file.name}: {entry['status']}: {entry.get('errors')}")
        theirs = folder / "theirs"
        theirs.mkdir()
        for kind, ending in (("elf", "cubin"), ("ptx", "ptx")):
            text_of(cuobjdump, "-all", f"-x{kind}", "all", file, cwd=theirs)
            # A cubin with lines leaves its PTX, too, which cuobjdump does not.
            images = [image for image in entry["images"] if image["kind"] == ending]
            mine = [out / name for image in images for name in image.get("files", []) if name.endswith(ending)]
            counts[ending], counts["bytes"] = len(mine), counts.get("bytes", 0) + sum(m.stat().st_size for m in mine)
            left, right = digests(theirs.glob(f"*.{ending}")), digests(mine)
            if left != right:
                compared.differences.append(f"{file.name}: {ending}: only theirs {sum((left - right).values())}, "
                                            f"only ours {sum((right - left).values())}")
        cubins = [image for image in entry["images"] if image["kind"] == "cubin"]
        for image in cubins[::sample]:
            extracted = next(name for name in image["files"] if name.endswith(".cubin"))
            compare_cubin(compared, cuobjdump, out / extracted, image, with_elf=False)
        return counts


def main():
    """Prints one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("rgpu", "cuobjdump", "folder"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--sample", type=int, default=1)
    given = parser.parse_args()
    compared, files = Comparison(), sorted(given.folder.iterdir())
    cubins = [file for file in files if file.suffix == ".cubin"]
    result = {"cubins": len(cubins), "containers": {}}
    with tempfile.TemporaryDirectory(prefix="rgpu-facts-") as folder:
        inputs = disasm(given.rgpu, folder, *cubins)[0]["inputs"] if cubins else []
    for file, entry in zip(cubins, inputs):
        if entry["status"] != "ok":
            compared.differences.append(f"{file.name}: {entry['status']}: {entry.get('errors')}")
            continue
        compare_cubin(compared, given.cuobjdump, file, entry["images"][0], file.with_suffix(".log"))
    # A library may have its version behind: libnccl.so.2.
    for file in (file for file in files if file.suffix in CONTAINERS or ".so." in file.name):
        counts = compare_container(compared, given.rgpu, given.cuobjdump, file, given.sample)
        result["containers"][file.name] = counts
    if not compared.kernels:
        parser.error(f"{given.folder}: nothing there to compare")
    result |= {"kernels": compared.kernels, "fields_equal": sum(compared.equal.values()),
               "by_field": dict(sorted(compared.equal.items())), "differences": compared.differences}
    print(json.dumps(result, indent=1))
    return 1 if compared.differences else 0


if __name__ == "__main__":
    sys.exit(main())
