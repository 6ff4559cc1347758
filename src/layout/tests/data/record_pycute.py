#!/usr/bin/env python3
"""Records what pycute of CUTLASS 4.2.0 (BSD-3-Clause) answers, for tests/it/pycute.rs.

    pip install --no-deps nvidia-cutlass==4.2.0.0
    python record_pycute.py > pycute.tsv

Each line is an operation, its operands and the answer (`-` if pycute raises), tab-separated. Compositions are
admissible: B is injective, and its offsets are coordinates of A. A `!` before the answer says that it is wrong: it
has another size than B, or another offset than A(B(i)) at some i. That is decided here by looking at every i.
"""

import random

from pycute.layout import (
    Layout, coalesce, complement, composition, left_inverse, logical_divide, logical_product, right_inverse,
)

PAIRS, OTHERS = 4000, 400


def text(layout):
    """As CuTe prints it."""
    def tuple_text(t):
        return "(" + ",".join(map(tuple_text, t)) + ")" if isinstance(t, tuple) else str(t)
    return f"{tuple_text(layout.shape)}:{tuple_text(layout.stride)}"


def flat(modes):
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))


def outer(rng):
    modes, step = [], 1
    ordered = rng.random() < 0.5
    for _ in range(rng.randint(1, 4)):
        extent = rng.choice([2, 2, 3, 4, 4, 5, 6, 8, 12, 16, 23])
        stride = step if ordered and rng.random() < 0.7 else rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 120])
        modes.append((extent, stride))
        step *= extent
    return flat(modes)


def inner(rng, size):
    while True:
        modes, room = [], size - 1
        for _ in range(rng.randint(1, 3)):
            extent = rng.choice([2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 16])
            most = room // (extent - 1)
            if most < 1:
                continue
            stride = rng.randint(1, most) if rng.random() < 0.4 else min(1 << rng.randint(0, 6), most)
            room -= (extent - 1) * stride
            modes.append((extent, stride))
        if not modes:
            continue
        layout = flat(modes)
        offsets = [layout(i) for i in range(layout.size())]
        if len(set(offsets)) == len(offsets):
            return layout


def answer(operation, *operands):
    try:
        return operation(*operands)
    except Exception:
        return None


def line(name, operands, result, wrong=False):
    shown = "-" if result is None else ("!" if wrong else "") + text(result)
    print("\t".join([name, *operands, shown]))


def main():
    rng = random.Random(4200)
    for _ in range(PAIRS):
        a = outer(rng)
        b = inner(rng, a.size())
        result = answer(composition, a, b)
        wrong = result is not None and (
            result.size() != b.size() or any(result(i) != a(b(i)) for i in range(b.size()))
        )
        line("compose", [text(a), text(b)], result, wrong)
    for _ in range(OTHERS):
        a = outer(rng)
        line("coalesce", [text(a)], answer(coalesce, a))
        line("complement", [text(a), str(a.size() * 2)], answer(complement, a, a.size() * 2))
        line("right-inverse", [text(a)], answer(right_inverse, a))
        line("left-inverse", [text(a)], answer(left_inverse, a))
        b = inner(rng, a.size())
        line("divide", [text(a), text(b)], answer(logical_divide, a, b))
        line("product", [text(a), text(b)], answer(logical_product, a, b))


if __name__ == "__main__":
    main()
