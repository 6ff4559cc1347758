"""Profiles a kernel of rgpu, and prints what limits it."""

from typing import Any

import rgpu


def show(event: dict[str, Any]) -> None:
    # Events for machines, such as `output`, have no text.
    if event["text"]:
        print("…", event["text"])


profile = rgpu.profile(kernel="vecadd", progress=show)
print(f"rung {profile.rung}, run {profile.run.id}")
for case in profile.cases:
    if case.timing is not None:
        # Without a GPU it is the reference that was timed.
        where = "reference on the CPU" if case.timing.clock == "cpu_reference" else "kernel"
        print(f"{case.name}: {where} {case.timing.median_ns / 1e6:.3f} ms")
for code in profile.code:
    print(f"{code.name or code.symbol}: {code.registers} registers")
for finding in profile.findings:
    print(finding.text)
