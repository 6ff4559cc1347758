"""Results: documents of rgpu with attributes. `_types.py` has the classes of all documents."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, Generic, Iterable, Iterator, Literal, Sequence, TypeVar, overload

if TYPE_CHECKING:
    import pandas

    from ._types import Run
    from ._words import Path, Progress

    ReportFormat = Literal["table", "json", "markdown", "csv", "brief", "html"]

T = TypeVar("T", bound="Record")
V = TypeVar("V")


class Record:
    """A part of a document. Its fields are attributes; one that the document lacks is None, or empty."""

    __slots__ = ("_data",)
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """The fields as they are in the document."""
        return self._data

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            field = name[:-1] if name.endswith("_") else name
            read = _readers(type(self)).get(name)
            if field in self._data:
                return read(self._data[field]) if read else self._data[field]
            if read is None:
                known = [*_readers(type(self)), *self._data]
                raise AttributeError(f"`{type(self).__name__}` has no field `{name}`{did_you_mean(name, known)}")
            return self._defaults[field] if field in self._defaults else read(None)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_readers(type(self)), *self._data})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Record) and self._data == other._data

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{key}={_short(value)}" for key, value in list(self._data.items())[:8]]
        return f"{type(self).__name__}({', '.join(shown)}{', …' if len(self._data) > 8 else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data,)


def _short(value: Any) -> str:
    if isinstance(value, (list, dict)) and value:
        return f"<{len(value)}>"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


class Records(Sequence[T], Generic[T]):
    """A list of records."""

    __slots__ = ("_kind", "_items")

    def __init__(self, kind: type[T], items: list[dict[str, Any]]) -> None:
        self._kind, self._items = kind, items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Records[T]: ...
    def __getitem__(self, index: int | slice) -> T | Records[T]:
        if isinstance(index, slice):
            return Records(self._kind, self._items[index])
        return self._kind(self._items[index])

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return map(self._kind, self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self._items == other._items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} × {self._kind.__name__}>"

    def __str__(self) -> str:
        from ._table import text_table

        return text_table(self._kind.__name__, [flat(item) for item in self._items])

    def _repr_html_(self) -> str:
        from ._table import html_table

        return html_table(self._kind.__name__, [flat(item) for item in self._items])

    def to_dicts(self) -> list[dict[str, Any]]:
        """The records as they are in the document."""
        return self._items

    def to_pandas(self) -> pandas.DataFrame:
        """A table with a row for each record. A field of a field is the column `field.field`; a metric is
        the column with its name. An empty list has the columns of its type, without metrics. Needs pandas."""
        return table([flat(item) for item in self._items], columns(self._kind))


class Named(Dict[str, V]):
    """Records by their names, such as metrics. A name that is not there is answered with similar ones."""

    def __missing__(self, name: str) -> V:
        raise KeyError(f"there is no `{name}`{did_you_mean(name, self)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known name that is similar. Empty if none is."""
    from difflib import get_close_matches

    similar = get_close_matches(name, list(known), 1)
    return f": did you mean `{similar[0]}`?" if similar else ""


def table(rows: list[dict[str, Any]], columns_without_rows: Sequence[str] = ()) -> pandas.DataFrame:
    """Rows as a table of pandas."""
    try:
        import pandas
    except ImportError:
        raise ImportError("`to_pandas` needs pandas: pip install pandas") from None
    return pandas.DataFrame.from_records(rows) if rows else pandas.DataFrame(columns=list(columns_without_rows))


def columns(kind: type[Record], prefix: str = "", outer: tuple[type[Record], ...] = ()) -> list[str]:
    """The columns that `flat` can give to records of a class, without those whose names only a record
    tells, such as metrics."""
    names: list[str] = []
    for base in reversed(kind.__mro__):
        classes = vars(sys.modules[base.__module__])
        for name, annotation in base.__dict__.get("__annotations__", {}).items():
            annotation = str(annotation).replace(" | None", "")
            if name.startswith("_") or annotation.startswith("dict["):
                continue
            field = prefix + (name[:-1] if name.endswith("_") else name)
            part = classes.get(annotation)
            if not (isinstance(part, type) and issubclass(part, Record)):
                names.append(field)
            elif part not in outer:
                names += columns(part, f"{field}.", (*outer, kind))
    return names


def flat(item: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a record in one level."""
    row: dict[str, Any] = {}
    for key, value in item.items():
        if not isinstance(value, dict):
            row[prefix + key] = value
        elif key == "metrics":
            row.update({name: metric.get("value") for name, metric in value.items()})
        else:
            row.update(flat(value, f"{prefix}{key}."))
    return row


class Document(Record):
    """The result of a command."""

    __slots__ = ("_status", "_paths", "_cwd")

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self._status = 0
        self._paths: tuple[str, ...] = ()
        self._cwd: str | None = None

    def _set_origin(self, status: int, origins: Sequence[Path], cwd: str | None) -> None:
        """`origins` are the files, the folder or the run that the document describes. Names of runs are
        dropped, because `latest` may mean another run later."""
        # Where runs are kept depends on the folder.
        self._status, self._cwd = status, os.path.abspath(cwd or "")
        paths = (os.path.join(self._cwd, origin) for origin in origins)
        self._paths = tuple(path for path in paths if os.path.exists(path))

    def __reduce__(self) -> tuple[Any, ...]:
        slots = {"_status": self._status, "_paths": self._paths, "_cwd": self._cwd}
        return type(self), (self._data,), (None, slots)

    @property
    def exit_status(self) -> int:
        """The exit status of the command. 1: something was found, such as a fault of the program, or what
        `fail_on` names."""
        return self._status


class RunMethods(Document):
    """Methods of results that a report shows."""

    __slots__ = ()

    def _names(self) -> tuple[str, ...]:
        """The files, the folder or the run to report on. Empty for a comparison of two saved runs."""
        # A live comparison is a run, with a profile for each side.
        side = self._data.get("a") or {}
        run = side.get("run") if side.get("profile") else (self._data.get("run") or {}).get("id")
        return self._paths or ((run,) if run else ())

    def report(self, format: ReportFormat = "markdown") -> str:
        """The report in a format of `rgpu report --format`."""
        import tempfile

        from ._commands import report

        names = self._names()
        if not names:
            raise ValueError("no run has this result, so there is no report of it")
        if format != "html":
            return report(*names, format=format, cwd=self._cwd, progress=False)
        with tempfile.TemporaryDirectory(prefix="rgpu-") as folder:
            out = os.path.join(folder, "report")
            report(*names, format=format, out=out, cwd=self._cwd, progress=False)
            with open(out, encoding="utf-8") as file:
                return file.read()

    def _repr_html_(self) -> str | None:
        """The report as a page, for notebooks. None if there is no report."""
        from html import escape

        if not self._names():
            return None
        page = escape(self.report("html"), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="report of rgpu" '
            'style="box-sizing: border-box; width: 100%; height: 640px; border: 1px solid #8884"></iframe>'
        )


class ProfileMethods(RunMethods):
    """Methods of a profile."""

    __slots__ = ()

    def __repr__(self) -> str:
        try:
            return self.report("table").rstrip()
        except Exception:
            return super().__repr__()

    @property
    def stdout(self) -> str:
        """What the program wrote to its standard output, with what its tool wrote there. Of a run whose
        folder is not on this machine: the end of it."""
        return self._log("stdout")

    @property
    def stderr(self) -> str:
        """What the program wrote to its standard error, with what its tool wrote there. Of a run whose
        folder is not on this machine: the end of it."""
        return self._log("stderr")

    def _log(self, stream: str) -> str:
        # The last step that ran the program. The other steps compile, or install packages.
        rungs = [rung for rung in self._data.get("ladder", []) if is_program_step(rung["step"])]
        folder = self._folder() if rungs else None
        for step in dict.fromkeys(rung["step"] for rung in reversed(rungs)):
            logs = [os.path.join(folder or "", "log", f"{step}.{name}") for name in ("stdout", "stderr")]
            if folder and any(map(os.path.lexists, logs)):
                return read_log(folder, "log", f"{step}.{stream}")
        return rungs[-1].get(f"{stream}_tail") or "" if rungs else ""

    def _folder(self) -> str | None:
        """The run's folder on this machine."""
        from ._program import Call

        folder = next(filter(os.path.isdir, self._paths), None)
        run = (self._data.get("run") or {}).get("id")
        if folder or not run:
            return folder
        # Settings decide where runs are kept, and no document says it.
        _, out = Call(["runs", "--color=never", "show", run], cwd=self._cwd, progress=False).run()
        for line in reversed(out.decode("utf-8", "replace").splitlines()):
            label, _, path = line.strip().partition(" ")
            if label == "run" and os.path.isdir(path.strip()):
                return path.strip()
        return None


def is_program_step(step: str) -> bool:
    """Whether a step of a job runs the program itself, alone or under a tool."""
    return step in ("exec", "plain", "profile") or _PROFILE_STEP.fullmatch(step) is not None


# The name becomes a part of a path.
_PROFILE_STEP = re.compile(r"profile-[A-Za-z0-9_.-]+")


class ExecMethods(Document):
    """Methods of the result of a program."""

    __slots__ = ()

    def __repr__(self) -> str:
        names = ("exit", "signal", "timed_out", "stdout", "stderr", "seconds", "run")
        shown = {name: getattr(self, name) for name in names}
        fields = [f"{name}={_short(value)}" for name, value in shown.items() if value or name == "exit"]
        return f"{type(self).__name__}({', '.join(fields)})"

    @property
    def stdout(self) -> str:
        """What the program wrote to its standard output."""
        return self._log("stdout")

    @property
    def stderr(self) -> str:
        """What the program wrote to its standard error."""
        return self._log("stderr")

    def _log(self, stream: str) -> str:
        # A saved document stands in its run folder. What it says itself may lead elsewhere.
        folder = next(filter(os.path.isdir, self._paths), None) or self._data.get("folder")
        return read_log(folder, "log", f"exec.{stream}") if folder else ""


def read_log(folder: str, *parts: str) -> str:
    """A log below a folder. Empty if nothing was written.

    Raises: a part of the path below the folder is a link, or it is no regular file
    """
    try:
        opened = _open_below(folder, parts)
    except FileNotFoundError:
        return ""
    with open(opened, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


def _open_below(folder: str, parts: Sequence[str]) -> int:
    """Opens a regular file below a folder, which somebody else may have filled. No link is followed."""
    is_folder = os.O_RDONLY | os.O_DIRECTORY
    here = os.open(folder, is_folder)
    try:
        for part in parts[:-1]:
            inner = os.open(part, is_folder | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    return _regular(file, os.path.join(folder, *parts))


def _regular(file: int, path: str) -> int:
    """An open file, if it is a regular one. Reading a pipe would wait."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(f"{path!r} is not a regular file")


class DetachedMethods(Document):
    """Methods of a run that goes on without its command, or has ended."""

    __slots__ = ()

    def wait(self, *, progress: Progress = None) -> Any:
        """Waits for the end of the run, fetches its files, and returns what the call would have returned
        without `detach`: a `Profile`, an `ExecResult`, a `Build`. Ctrl-C stops the run."""
        from ._call import result_of_run

        return result_of_run("attach", self._name(), self._cwd, progress)

    def cancel(self) -> Run:
        """Stops the run on its host. Returns its new record."""
        from ._call import result_of_run

        cancelled: Run = result_of_run("cancel", self._name(), self._cwd, None)
        return cancelled

    def _name(self) -> str:
        name: str = self._paths[0] if self._paths else self._data["id"]
        return name


def class_of(document: Any) -> type[Document] | None:
    """The class of a document. None if this package does not know its schema."""
    from . import _types

    if not isinstance(document, dict):
        return None
    # A plan has no `schema`.
    is_plan = "schema" not in document and "steps" in document
    return _types.Plan if is_plan else _types.BY_SCHEMA.get(document.get("schema", ""))


def load(path: Path) -> Document:
    """Reads a document that rgpu wrote, such as `profile.json` or `compare.json` of a run folder."""
    from . import _types

    opened = _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.fspath(path))
    with open(opened, encoding="utf-8") as file:
        document = json.load(file)
    schema = document.get("schema") if isinstance(document, dict) else None
    kind = _types.BY_SCHEMA.get(schema or "")
    if kind is None:
        raise ValueError(f"{os.fspath(path)!r} is not a document of rgpu that this package knows (schema: {schema!r})")
    made = kind(document)
    made._set_origin(0, [os.path.dirname(os.path.abspath(path))], None)
    return made


_known: dict[type[Record], dict[str, Callable[[Any], Any]]] = {}


def _readers(kind: type[Record]) -> dict[str, Callable[[Any], Any]]:
    """How the fields of a class are read: by its annotations."""
    found = _known.get(kind)
    if found is None:
        found = {}
        for base in reversed(kind.__mro__):
            module = sys.modules[base.__module__]
            for name, annotation in base.__dict__.get("__annotations__", {}).items():
                if not name.startswith("_"):
                    found[name] = _reader(str(annotation), vars(module))
        _known[kind] = found
    return found


_LIST = re.compile(r"Records\[(\w+)\]")
_DICT = re.compile(r"dict\[str, (.+)\]")


def _reader(annotation: str, names: dict[str, Any]) -> Callable[[Any], Any]:
    """Reads a value of this type, or its absence (None)."""
    annotation = annotation.replace(" | None", "")
    listed, mapped = _LIST.fullmatch(annotation), _DICT.fullmatch(annotation)
    if listed:
        kind = names[listed[1]]
        return lambda value: Records(kind, value or [])
    if mapped:
        read = _reader(mapped[1], names)
        return lambda value: Named({key: read(one) for key, one in (value or {}).items()})
    if annotation.startswith("list["):
        return lambda value: [] if value is None else value
    kind = names.get(annotation)
    if isinstance(kind, type) and issubclass(kind, Record):
        return lambda value: None if value is None else kind(value)
    return lambda value: value
