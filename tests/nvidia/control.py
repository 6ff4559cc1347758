#!/usr/bin/env python3
"""Follows every load's result along the control flow: nothing may read it before its barrier is waited for.

    tests/nvidia/control.py RGPU NVDISASM FOLDER [LISTINGS]
        FOLDER    of .cubin
        LISTINGS  where each cubin is copied to with nvdisasm's listing beside it (.sass), as the test
                  `reuse_flags_equal_nvdisasm` of rgpu-format takes them in RGPU_SASS_CORPUS

Control words are those that rgpu decodes, operands and labels those that nvdisasm prints; both stand in
`rgpu disasm --view sass --control-codes --tool nvdisasm`. Prints one JSON document; the exit code is 1 when a
result is read too early. Results of a load without a barrier are not followed: it leans on a later one's.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Instructions whose result comes after a time that nobody knows.
LOADS = ("LD", "LDG", "LDS", "LDL", "LDC", "LDCU", "LDSM", "LDTM", "ATOM", "ATOMG", "ATOMS", "S2R", "S2UR", "SHFL",
         "MUFU", "R2UR", "ULDC", "TEX", "TLD", "QSPC", "SYNCS", "MATCH", "POPC", "FLO", "I2F", "F2I", "F2F", "CREDUX")
LINE = re.compile(r"\s+/\*([0-9a-f]+)\*/ \[B(\S{6}):R(.):W(.):y\d:S\d+\]\s+(?:@(!?U?P\w+)\s+)?(\S+?)(?:\s+(.*?))?\s*;")
REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)((?:\.\w+)*)")
ENDS = ("EXIT", "RET", "BRX", "BRXU", "JMX", "BPT", "KILL")

Instruction = collections.namedtuple("Instruction", "offset waits write name operands guard text")


def sections(text):
    """(name, instructions, labels) of each code section."""
    name, code, labels, waiting = None, [], {}, []
    for line in text.splitlines():
        if line.startswith("\t.section\t"):
            if code:
                yield name, code, labels
            name, code, labels, waiting = line.split("\t")[2].split(",")[0], [], {}, []
        elif line.endswith(":") and not line.startswith((" ", "\t")):
            waiting.append(line[:-1])
        elif found := LINE.match(line):
            offset, waits, _, write, guard, opcode, operands = found.groups()
            labels |= dict.fromkeys(waiting, len(code))
            waiting = []
            mask = {int(letter) for letter in waits if letter != "-"}
            code.append(Instruction(int(offset, 16), mask, None if write == "-" else int(write), opcode,
                                    operands or "", guard, line.strip()))
        elif line.strip().startswith("/*") and "[B" in line:
            raise ValueError(f"not understood: {line!r}")
    if code:
        yield name, code, labels


def width(name):
    """Registers of what a load writes or a store reads."""
    for ending, count in ((".ENL2", 8), (".256", 8), (".128", 4), (".64", 2)):
        if ending in name:
            return count
    if found := re.search(r"\.x(\d+)", name):
        return int(found[1])
    if name.startswith("LDSM"):
        return int((re.search(r"\.(\d)(?:\.|$)", name) or [0, 1])[1])
    return 1


def span(register, count):
    kind, number = register[0], int(register[1])
    return {(kind, number + step) for step in range(count)}


def split(operands):
    """Operands at their commas."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", operands)] if operands else []


def written(instruction):
    """Registers of a load's result."""
    for part in split(instruction.operands):
        found = REGISTER.fullmatch(part)
        if found:
            return span(found.groups(), width(instruction.name))
        if not re.fullmatch(r"!?U?P\w", part):
            break
    return set()


def stores(name):
    """Its first operand is read, not written."""
    return name.split(".")[0] in ("ST", "STG", "STS", "STL", "RED", "REDG", "REDS", "STSM", "STTM", "BAR", "BRA", "CALL",
                                  "SYNCS", "CCTL", "WARPSYNC", "NANOSLEEP", "R2B", "DEPBAR", "UTMALDG", "UTMASTG")


def read(instruction):
    """Registers that an instruction reads for certain: all that are named but its result, at their least width."""
    parts, found = split(instruction.operands), set()
    if not stores(instruction.name):
        while parts and re.fullmatch(r"!?U?P\w", parts[0]):
            parts = parts[1:]
        if parts and REGISTER.fullmatch(parts[0].replace(".reuse", "")):
            parts = parts[1:]
    last = len(parts) - 1
    for place, part in enumerate(parts):
        for kind, number, modifiers in REGISTER.findall(part):
            count = 2 if ".64" in modifiers else 1
            whole = REGISTER.fullmatch(part)
            if whole and place == last and instruction.name.startswith(("STG", "STS", "STL", "ST.")):
                count = width(instruction.name)
            if instruction.name.startswith("HMMA.16816") and whole:
                count = {0: 4, 1: 2}.get(place, 1)
            found |= span((kind, number), count)
    return found


def follow(code, labels):
    """(loads followed, reads checked, [what was read too early])."""
    arriving = [None] * len(code)
    arriving[0] = frozenset()
    work, early, checked = [0], {}, set()
    loads = {at for at, one in enumerate(code) if one.write is not None and one.name.split(".")[0] in LOADS and written(one)}
    starts = {labels[label] for label in labels} | {0}
    for at in sorted(starts):
        arriving[at] = arriving[at] or frozenset()
        work.append(at)
    while work:
        at = work.pop()
        one = code[at]
        pending = {entry for entry in arriving[at] if entry[1] not in one.waits}
        for register in read(one):
            for entry in [entry for entry in arriving[at] if entry[0] == register]:
                checked.add((at, entry[2]))
                if entry in pending:
                    early[(at, entry[2])] = f"{one.text}   reads {register[0]}{register[1]} of   {code[entry[2]].text}"
        if at in loads:
            pending |= {(register, one.write, at) for register in written(one)}
        base, after = one.name.split(".")[0], []
        if base in ("BRA", "JMP", "BSYNC", "BRA.U") and (label := re.search(r"`\((\S+?)\)", one.operands)):
            if label[1] in labels:
                after.append(labels[label[1]])
        always = one.guard is None
        if base == "CALL":
            pending = set()
        if not (always and (base in ENDS or base in ("BRA", "JMP") and not re.match(r"!?U?P", one.operands))):
            after.append(at + 1)
        for next_at in (place for place in after if place < len(code)):
            joined = frozenset(pending) | (arriving[next_at] or frozenset())
            if arriving[next_at] is None or joined != arriving[next_at]:
                arriving[next_at] = joined
                work.append(next_at)
    return len(loads), len(checked), list(early.values())


def main(rgpu, nvdisasm, folder, listings=None):
    """Prints one JSON document."""
    bin_folder = str(pathlib.Path(nvdisasm).resolve().parent)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    total, early = collections.Counter(), []
    if listings:
        pathlib.Path(listings).mkdir(parents=True, exist_ok=True)
    for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
        argv = [rgpu, "disasm", str(cubin), "--view", "sass", "--tool", "nvdisasm", "--control-codes", "-q"]
        text = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment).stdout
        total["cubins"] += 1
        for name, code, labels in sections(text):
            loads, reads, found = follow(code, labels)
            total.update({"sections": 1, "instructions": len(code), "loads_followed": loads, "reads_checked": reads})
            early += [f"{cubin.name} {name}: {what}" for what in found]
        if listings:
            shutil.copy(cubin, pathlib.Path(listings) / cubin.name)
            with open(pathlib.Path(listings) / f"{cubin.stem}.sass", "w") as listing:
                subprocess.run([nvdisasm, "-c", "-hex", str(cubin)], check=True, stdout=listing, stderr=subprocess.DEVNULL)
    print(json.dumps({**total, "read_too_early": early}, indent=1))
    return 1 if early else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) in (4, 5) else __doc__)
