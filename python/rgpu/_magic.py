"""`%%rgpu`: a cell of a notebook on the GPU host."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any, NamedTuple

from . import _error
from ._documents import Document, ExecMethods, ProfileMethods, class_of
from ._program import Call

_USAGE = "%%rgpu [--no-raise] [FLAGS] [-- ARGS]"


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext rgpu`: adds `%%rgpu [--no-raise] [FLAGS] [-- ARGS]`, with the flags of `rgpu exec`.

    The cell is a program of its own: Python, or another language with `--lang`. With `--mode` it is
    profiled, and the page of its report is shown below it. `_rgpu` is the result. A program that fails
    raises `rgpu.KernelError`, unless `--no-raise` is given. `%%rgpu --help` lists the flags.
    """

    def rgpu(line: str, cell: str) -> Any:
        try:
            words = _Words.of_line(line)
            if words.asks_for_help:
                print(_help())
                return None
            result, failure = _run(words, cell)
            ipython.user_ns["_rgpu"] = result
            _print_output(result)
            if failure is None:
                return None if isinstance(result, ExecMethods) else result
            if not isinstance(result, ExecMethods):
                _display(result)
            if words.raises:
                raise failure
            print(failure, file=sys.stderr)
        except _error.Error as error:
            # The frames would be ours. The user wrote none.
            text = f"{type(error).__name__}: {error}"
            vars(error)["_render_traceback_"] = lambda: [text]
            raise

    def add_body(lines: list[str]) -> list[str]:
        """IPython refuses a cell without a body."""
        is_help = "".join(lines).split() in (["%%rgpu", "--help"], ["%%rgpu", "-h"])
        return [*lines, "\n"] if is_help else lines

    ipython.register_magic_function(rgpu, "cell", "rgpu")
    ipython.input_transformers_cleanup.append(add_body)


def run_cell(line: str, cell: str) -> Document:
    """Runs a cell with the flags of its first line."""
    return _run(_Words.of_line(line), cell)[0]


class _Words(NamedTuple):
    """The words behind `%%rgpu`."""

    flags: list[str]
    arguments: list[str]
    """Those of the cell's program, with the `--` before them."""
    raises: bool

    @classmethod
    def of_line(cls, line: str) -> _Words:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise _usage_error(f"the line of `%%rgpu` cannot be read: {error}", []) from None
        end = words.index("--") if "--" in words else len(words)
        flags = [word for word in words[:end] if word != "--no-raise"]
        return cls(flags, words[end:], len(flags) == end)

    @property
    def asks_for_help(self) -> bool:
        return not {"--help", "-h"}.isdisjoint(self.flags)


def _run(words: _Words, cell: str) -> tuple[Document, _error.Error | None]:
    """The result of a cell, and the failure of its program."""
    has_language = any(word.split("=")[0] == "--lang" for word in words.flags)
    flags = words.flags if has_language else [*words.flags, "--lang=py"]
    call = Call(["exec", "--json", *flags, "-", *words.arguments], stdin=cell.encode(), has_events=True)
    status, out = call.run()
    call.end_messages(has_exception=True)
    messages = call.messages.decode("utf-8", "replace")
    try:
        document = json.loads(out)
    except ValueError:
        raise _error.of_messages(status, messages) from None
    if document.get("schema") == "rgpu.error/1":
        error = _error.of_document(document)
        raise _usage_error(error.what, error.hints) if isinstance(error, _error.UsageError) else error
    result = (class_of(document) or Document)(document)
    result._set_origin(status, (), None)
    if status == 0:
        return result, None
    return result, _error.of_program(status, _describe_end(result, status), messages)


def _describe_end(result: Document, status: int) -> str:
    how = f"ended with exit status {status}"
    if isinstance(result, ExecMethods):
        fields = result.to_dict()
        if fields.get("timed_out"):
            how = "was stopped at its time limit (`--timeout`)"
        elif fields.get("signal"):
            how = f"was ended by signal {fields['signal']}"
    return f"the program of the cell {how}"


def _usage_error(what: str, hints: list[str]) -> _error.Error:
    """A usage error in the words of `%%rgpu`, not in those of the command line."""
    kept = [hint for hint in hints if not hint.startswith(("Usage:", "For more information")) and "rgpu exec" not in hint]
    hints = [*kept, f"usage: {_USAGE}", "`%%rgpu --help` lists the flags"]
    return _error.of_document({"error": {"code": "usage", "what": what, "hints": hints, "exit": "usage"}, "exit": 2})


def _help() -> str:
    """The help of `rgpu exec`, under the usage of `%%rgpu`."""
    _, out = Call(["exec", "--color=never", "--help"], progress=False).run()
    flags = out.decode("utf-8", "replace").partition("\nOptions:\n")[2].partition("\nExamples:\n")[0]
    head = [
        "Run the cell on the GPU host",
        "",
        f"Usage: {_USAGE}",
        "",
        "The cell is a program of its own: Python, or another language with `--lang`. ARGS are its arguments.",
        "`_rgpu` is the result.",
        "",
        "Options:",
        "      --no-raise",
        "          Leave the cell green if its program fails; `_rgpu.exit_status` tells",
        "",
    ]
    return "\n".join([*head, flags.rstrip()])


def _print_output(result: Document) -> None:
    """Prints what the program of a cell wrote."""
    if isinstance(result, (ExecMethods, ProfileMethods)):
        sys.stdout.write(result.stdout)
        sys.stdout.flush()
        sys.stderr.write(result.stderr)
        sys.stderr.flush()


def _display(result: Document) -> None:
    try:
        from IPython.display import display
    except ImportError:
        return
    display(result)  # type: ignore[no-untyped-call,unused-ignore]
