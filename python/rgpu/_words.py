"""The types of arguments, and how they become words of a command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, Union

if TYPE_CHECKING:
    from datetime import timedelta

    Path = Union[str, "os.PathLike[str]"]
    Time = Union[float, str, timedelta]
    """Seconds, or text such as `10m`."""
    Pairs = Union[Mapping[str, object], Sequence[str], str]
    """Names with their values: `{"n": [256, 512]}` or `["n=256,512"]`."""
    Progress = Union[Callable[[dict[str, Any]], object], bool, None]
else:
    Path = Time = Pairs = Progress = Any


def to_argv(arguments: Mapping[str, tuple[str, str]], given: Mapping[str, Any]) -> list[str]:
    """The command line of the arguments `given`. `arguments` has the flag and the kind of each."""
    flags: list[str] = []
    positional: list[str] = []
    last: list[str] = []
    for name, (flag, kind) in arguments.items():
        value = given.get(name)
        if value is None or value is False:
            continue
        if kind == "switch":
            flags.append(flag)
        elif kind == "positional":
            positional += map(_file, as_list(value))
        elif kind == "last":
            last += map(to_word, as_list(value))
        elif kind == "pair" and isinstance(value, Mapping):
            flags += [f"{flag}={key}={_list(one)}" for key, one in value.items()]
        else:
            flags += [f"{flag}={to_word(one)}" for one in as_list(value)]
    return flags + positional + (["--", *last] if last else [])


def as_list(value: Any) -> Sequence[Any]:
    """The values of an argument that takes one or several. Text is one value."""
    return value if isinstance(value, (list, tuple)) else [value]


def to_word(value: Any) -> str:
    """A value as a word."""
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, (str, os.PathLike)):
        word = os.fspath(value)
        if isinstance(word, str):
            return word
    if isinstance(value, (int, float)):
        return str(value)
    raise TypeError(f"{value!r} is not a value of an argument: write text, a number or a path")


def _file(value: Any) -> str:
    """A positional word. One that looks like a flag is a file of that name."""
    word = to_word(value)
    return f"./{word}" if word.startswith("-") and word != "-" else word


def _list(value: Any) -> str:
    return ",".join(map(to_word, value)) if isinstance(value, (list, tuple, range)) else to_word(value)
