"""`%%rgpu`: a cell of a notebook on the GPU host."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from . import _error
from ._documents import Document, ExecMethods, class_of
from ._program import Call


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext rgpu`: adds `%%rgpu [FLAGS] [-- ARGS]`, with the flags of `rgpu exec`.

    The cell is a program of its own: Python, or another language with `--lang`. With `--mode` it is
    profiled, and the page of its report is shown below it. `_rgpu` is the result.
    """

    def rgpu(line: str, cell: str) -> Any:
        result = run_cell(line, cell)
        ipython.user_ns["_rgpu"] = result
        if not isinstance(result, ExecMethods):
            return result
        sys.stdout.write(result.stdout)
        sys.stdout.flush()
        sys.stderr.write(result.stderr)
        if result.exit_status:
            print(f"exit status {result.exit_status}", file=sys.stderr)
        return None

    ipython.register_magic_function(rgpu, "cell", "rgpu")


def run_cell(line: str, cell: str) -> Document:
    """Runs a cell with the flags of its first line."""
    words = shlex.split(line)
    end = words.index("--") if "--" in words else len(words)
    has_language = any(word.split("=")[0] == "--lang" for word in words[:end])
    flags = words[:end] if has_language else [*words[:end], "--lang=py"]
    call = Call(["exec", "--json", *flags, "-", *words[end:]], stdin=cell.encode(), has_events=True)
    status, out = call.run()
    try:
        document = json.loads(out)
    except ValueError:
        raise _error.of_messages(status, call.messages.decode("utf-8", "replace")) from None
    if document.get("schema") == "rgpu.error/1":
        raise _error.of_document(document)
    result = (class_of(document) or Document)(document)
    result._set_origin(status, (), None)
    return result
