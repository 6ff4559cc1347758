"""The harness of one Python kernel, made by rgpu: fills its inputs, runs it, times it, checks it.

    python3 harness.py JOB [options]      in a folder that has the kernel's sources under src/

  verify   two calls on the same data, each into poisoned outputs, compared with the reference
  time     calls timed one by one, L2 overwritten before each, every output compared on the device; where
           there is a reference each call has new data
  once     warm up, then call once per case inside the range `timed`: what tools look at
  torch    the same under torch.profiler; its trace goes to --trace FILE
  board    the leaderboard's own program, which measures by its own rules; its times are claims of the
           kernel, in whose process it runs
  cpu      verify and time on the CPU (Triton kernels in Triton's interpreter)

  candidate  calls the kernel on behalf of another harness.py, which starts it with --control FD and judges
  author     makes the data and the expected outputs, started in the same way

  --out FILE     the report, as JSON; there from the start, replaced as the job goes on
  --ranges FILE  a log of the ranges, as JSON lines
  --host-clock   time with the host's clock in place of CUDA events
  --strict       end before any timing where the GPU is held back
  --warmup N     in place of the input's own

CASE says what to call with what. Inputs depend on the seed alone and are those that rgpu's own
runner makes (an element of `normal` may differ in its last bit). NVTX ranges: domain `rgpu`, the
phase (`setup`, `warmup`, `verify`, `timed`), inside it the case. The kernel's own ranges:

    from rgpu_harness import region
    with region("prefill", domain="LLM"): ...
"""

import argparse
import contextlib
import copy
import ctypes
import dataclasses
import gc
import glob
import importlib.util
import inspect
import io
import json
import math
import mmap
import os
import pickle
import pkgutil
import random
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
import types
import weakref

CASE = {}  # rgpu puts the runner input here

ABI = 1
HERE = os.path.dirname(os.path.abspath(__file__))
TIMING = CASE.get("timing", {})
ENTRY = CASE.get("entry", {}).get("python", {})
REFERENCE = (CASE.get("reference") or {}).get("python")
SEED = CASE.get("seed", 0)
# The seed if the user names none.
DEFAULT_SEED = 42
# Distance between the seeds of fresh data, as in the popcorn harness.
SEED_STEP = 42
# Number of calls of one case under torch.profiler.
TRACED_CALLS = 3

# Exit status by failure class, as in the runner.
STATUS = {
    "wrong_result": 1, "usage": 2, "bad_case": 3, "missing_file": 3, "no_driver": 4, "load": 5,
    "launch": 6, "out_of_memory": 6, "illegal_access": 7, "crash": 7, "host_entry": 8,
    "reference": 9, "host_unfit": 11, "cuda": 12, "output": 13, "compile": 14, "clocks_disagree": 16, "not_credible": 17, "internal": 70,
}


class Fault(Exception):
    """Ends the job. Has a class of STATUS and one sentence."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def options():
    parser = argparse.ArgumentParser(usage="harness.py JOB [options]", add_help=False)
    parser.add_argument("job", choices=["verify", "time", "once", "torch", "cpu", "board", "candidate", "author"])
    parser.add_argument("--control", type=int)
    for name in ("--out", "--ranges", "--trace"):
        parser.add_argument(name)
    for name in ("--host-clock", "--strict"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--warmup", type=int, default=TIMING.get("warmup", 5))
    if "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    return parser.parse_args()
