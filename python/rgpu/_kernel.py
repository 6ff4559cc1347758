"""`rgpu.kernel`: profiles a function over a sweep. The function, with what it uses of its file, is sent
as a program, so its file needs not be there and nothing else of it runs."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import os
import pprint
import re
import symtable
import sys
import textwrap
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, Iterator, Mapping, Sequence, TypeVar, overload

from . import _failure
from ._documents import Records, columns, did_you_mean, flat, table
from ._error import KernelError
from ._host import annotate
from ._program import Call

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

    from ._commands import ExecOptions
    from ._types import Launch, Profile, Region

F = TypeVar("F", bound=Callable[..., Any])


@overload
def kernel(function: F, /) -> KernelFunction[F]: ...
@overload
def kernel(
    *,
    sweep: Mapping[str, Iterable[object]] | None = None,
    configs: Iterable[object] | None = None,
    runs: int = 1,
    dependencies: Sequence[str] = (),
    mode: str = "ncu",
    **flags: Unpack[ExecOptions],
) -> Callable[[F], KernelFunction[F]]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    sweep: Mapping[str, Iterable[object]] | None = None,
    configs: Iterable[object] | None = None,
    runs: int = 1,
    dependencies: Sequence[str] = (),
    mode: str = "ncu",
    **flags: Any,
) -> Any:
    """Makes a function that is profiled on the GPU host when it is called. Without keywords it needs no
    parentheses: `@rgpu.kernel`.

    sweep: values of parameters; all combinations are measured
    configs: the points, instead of `sweep`: each is a dict, a tuple of arguments, or the only argument
    runs: how often the function is called at each point
    dependencies: packages that it needs and the host may lack, as for pip
    mode and all other keywords: as for `rgpu.exec`

    A call without arguments measures every point and returns a `Sweep`. A call with arguments measures
    that point. If the function fails on the host, the call raises `KernelError`. `function.here(…)` calls
    the function on this machine.
    """

    if function is not None and not callable(function):
        raise TypeError(f"`rgpu.kernel` takes keywords: {function!r} is no function")
    _check_flags(flags)

    def decorate(function: F) -> KernelFunction[F]:
        points = _points(function, sweep, configs)
        return KernelFunction(function, points, runs, dependencies, {**flags, "mode": mode})

    return decorate if function is None else decorate(function)


def _check_flags(flags: Mapping[str, Any]) -> None:
    from ._arguments import ARGUMENTS

    for flag in ("detach", "dry_run"):
        if flags.get(flag):
            raise ValueError(f"`{flag}` gives no profile of the points: `rgpu.exec` has it")
    if isinstance(flags.get("remote"), (list, tuple)):
        raise ValueError("`remote` is one remote here: make a function for each")
    # The function itself is the program, which is sent as standard input.
    known = {*ARGUMENTS["exec"], "progress", "cwd"} - {"file", "command", "code", "lang"}
    for flag in flags:
        if flag not in known:
            own = ("sweep", "configs", "runs", "dependencies", "mode")
            raise TypeError(f"`rgpu.kernel` has no keyword `{flag}`{did_you_mean(flag, [*own, *known])}")


class KernelFunction(Generic[F]):
    """A function that is profiled on the GPU host."""

    def __init__(
        self,
        function: F,
        points: list[dict[str, Any]],
        runs: int,
        dependencies: Sequence[str],
        flags: dict[str, Any],
    ) -> None:
        if runs < 1:
            raise ValueError(f"runs={runs}: a function that is never called has no profile")
        self.here: F = function
        """The function itself."""
        self.points = points
        """The arguments at each point of the sweep."""
        self._runs, self._dependencies, self._flags = runs, dependencies, flags
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **keywords: Any) -> Sweep:
        """Measures all points, or the one of these arguments."""
        points = [_bind_arguments(self.here, args, keywords)] if args or keywords else self.points
        required = [p for p in inspect.signature(self.here).parameters.values() if p.default is p.empty]
        if not points and any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in required):
            raise ValueError(f"`{self.__name__}` has no points: give `sweep`, `configs` or arguments")
        points = points or [{}]
        return self._measure({self._name(point): point for point in points})

    def _measure(self, points: dict[str, dict[str, Any]]) -> Sweep:
        from ._commands import exec

        if self._dependencies and Call([], progress=self._flags.get("progress")).is_silent():
            print(_install_note(self.__name__, self._dependencies), file=sys.stderr, flush=True)
        try:
            profile: Any = exec("-", lang="py", stdin=self.source(list(points.values())), **self._flags)
        except KernelError as error:
            raise _failure.of_error(error, self._flags.get("cwd"), self.__name__, points) from None
        _failure.check(profile, self._flags["mode"], self.__name__, points)
        if _failure.has_no_nvtx(profile):
            _warn_without_nvtx(profile, self.__name__)
        return Sweep(profile, points)

    if TYPE_CHECKING:
        __name__: str

    def _name(self, point: Mapping[str, Any]) -> str:
        return f"{self.__name__}({', '.join(f'{key}={value!r}' for key, value in point.items())})"

    def source(self, points: list[dict[str, Any]] | None = None) -> str:
        """The program that is sent."""
        named = [(self._name(point), point) for point in (self.points or [{}] if points is None else points)]
        with open(os.path.join(os.path.dirname(__file__), "_host.py"), encoding="utf-8") as file:
            host = file.read()
        head = ["# /// script", f"# dependencies = {list(self._dependencies)!r}".replace("'", '"'), "# ///"]
        lines = [
            *(head if self._dependencies else []),
            "import sys as _sys, types as _types",
            '_rgpu = _sys.modules["rgpu"] = _types.ModuleType("rgpu")',
            f"exec({host!r}, _rgpu.__dict__)",
            *_needs(self.here),
            f"_rgpu._run({self.__name__}, {pprint.pformat(named, width=100)}, {self._runs})",
            "",
        ]
        return "\n".join(lines)


class Point:
    """A point of a sweep, with what was measured there."""

    def __init__(self, arguments: dict[str, Any], regions: Records[Region], launches: Records[Launch]) -> None:
        self.arguments, self.regions, self.launches = arguments, regions, launches

    def __repr__(self) -> str:
        return f"Point({self.arguments}, launches={len(self.launches)})"


class Sweep(Sequence[Point]):
    """What a function of `rgpu.kernel` measured, point by point."""

    def __init__(self, profile: Profile, points: dict[str, dict[str, Any]]) -> None:
        self.profile = profile
        """The profile of all points together."""
        self._points: list[Point] = []
        for name, arguments in points.items():
            regions = [region for region in profile.regions.to_dicts() if region["path"][:1] == [name]]
            launches = [one for one in profile.launches.to_dicts() if one.get("region", [])[:1] == [name]]
            self._points.append(
                Point(arguments, Records(_class_named("Region"), regions), Records(_class_named("Launch"), launches))
            )

    def __getitem__(self, index: Any) -> Any:
        return self._points[index]

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def to_pandas(self) -> pandas.DataFrame:
        """A table with a row for each point, and for each `annotate` in it: the arguments, `annotation`, and
        the fields of the region (`host_ns`, `gpu_ns`, `launches`, metrics …). A point without a region has
        only its arguments."""
        return table(
            [
                {**point.arguments, "annotation": "::".join(region.get("path", [])[1:]), **flat(region)}
                for point in self._points
                for region in point.regions.to_dicts() or [{}]
            ]
        )

    def launches_to_pandas(self) -> pandas.DataFrame:
        """A table with a row for each launch of a kernel: the arguments and the fields of the launch."""
        return table(
            [{**point.arguments, **flat(one)} for point in self._points for one in point.launches.to_dicts()],
            [*dict.fromkeys(name for point in self._points for name in point.arguments), *columns(_class_named("Launch"))],
        )

    def _repr_html_(self) -> str | None:
        return self.profile._repr_html_()

    def __repr__(self) -> str:
        return f"Sweep({self._points!r})"


def _install_note(name: str, dependencies: Sequence[str]) -> str:
    """That packages may be fetched on the host, before it begins in silence."""
    note = f"rgpu: `{name}` needs {', '.join(dependencies)}: if the host lacks it, it is installed there first"
    names = [re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0].lower() for text in dependencies]
    return note + (" (torch: about 5 GB, which takes minutes)" if "torch" in names else "")


def _warn_without_nvtx(profile: Profile, name: str) -> None:
    """Says why the points have no regions: in the profile and as a warning of Python."""
    text = (
        f"the host has no NVTX library for `{name}`, so nothing is known of its points and annotations: "
        'give `dependencies=["nvtx"]`'
    )
    profile.to_dict().setdefault("warnings", []).append({"code": "no_nvtx_library", "text": text})
    # From the line that called the function.
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _class_named(name: str) -> Any:
    from . import _types

    return getattr(_types, name)


def _points(
    function: Callable[..., Any],
    sweep: Mapping[str, Iterable[object]] | None,
    configs: Iterable[object] | None,
) -> list[dict[str, Any]]:
    if sweep is not None and configs is not None:
        raise ValueError("give `sweep` or `configs`, not both")
    if sweep is not None:
        found = [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]
    else:
        found = []
        for config in configs or []:
            if isinstance(config, Mapping):
                found.append(dict(config))
            else:
                found.append(_bind_arguments(function, config if isinstance(config, (tuple, list)) else (config,), {}))
    for point in found:
        _bind_arguments(function, (), point)
    # By their text: 1 equals True.
    unique: dict[str, dict[str, Any]] = {}
    for point in found:
        unique.setdefault(repr(sorted(point.items())), point)
    return list(unique.values())


def _bind_arguments(function: Callable[..., Any], args: Iterable[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the parameters. Only values that can be written down are sent."""
    bound = inspect.signature(function).bind(*args, **keywords)
    for name, value in bound.arguments.items():
        if not _is_literal(value):
            raise TypeError(f"`{name}={value!r}` cannot be sent: make it in the function, from numbers and text")
    return dict(bound.arguments)


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError):
        return False


def _needs(function: Callable[..., Any]) -> list[str]:
    """The source of the function, after everything that it uses: imports, functions, classes, constants."""
    done: dict[str, list[str]] = {}
    _add(function.__name__, function, function, done, keep_all=False)
    return list(itertools.chain.from_iterable(done.values()))


def _add(
    name: str, value: Any, user: Callable[..., Any], done: dict[str, list[str]], keep_all: bool = True
) -> None:
    if name in done:
        return
    if getattr(value, "__name__", "") == "rgpu" and isinstance(value, ModuleType):
        done[name] = [f"{name} = _rgpu"]
    elif value is annotate:
        done[name] = [f"{name} = _rgpu.annotate"]
    elif isinstance(value, ModuleType):
        if _is_own_module(value.__name__):
            raise _is_elsewhere(name, value.__name__, user)
        done[name] = [f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"]
    elif _is_literal(value):
        done[name] = [f"{name} = {value!r}"]
    elif getattr(value, "__module__", None) == getattr(user, "__module__", None):
        if isinstance(value, KernelFunction):
            value, keep_all = value.here, False
        text = _source(value, user, keep_all)
        if text is None:
            raise _cannot_be_sent(name, user)
        done[name] = []
        own = _globals(value)
        for used in _global_names(text):
            if used in own and used != name:
                _add(used, own[used], user, done)
        # Behind what it uses.
        done[name] = [*done.pop(name), text]
        if getattr(value, "__name__", name) != name:
            done[name].append(f"{name} = {value.__name__}")
    elif hasattr(value, "__module__") and hasattr(value, "__qualname__") and "." not in value.__qualname__:
        if _is_own_module(value.__module__):
            raise _is_elsewhere(name, value.__module__, user)
        done[name] = [f"from {value.__module__} import {value.__qualname__} as {name}"]
    else:
        raise _cannot_be_sent(name, user)


def _cannot_be_sent(name: str, user: Callable[..., Any]) -> TypeError:
    if name == user.__name__:
        return TypeError(f"`{name}` cannot be sent: only a function that `def` defines in a file or cell can")
    return TypeError(
        f"`{user.__name__}` uses `{name}`, which cannot be sent: make it in the function, or pass numbers and text"
    )


def _is_elsewhere(name: str, module: str, user: Callable[..., Any]) -> TypeError:
    return TypeError(
        f"`{user.__name__}` uses `{name}` of your module `{module}`, which the host lacks: move it to the file of "
        f"`{user.__name__}`, or import it in the function if the host has it"
    )


def _is_own_module(name: str) -> bool:
    """Whether a module is of the user: neither Python's nor of an installed package."""
    package = sys.modules.get(name.partition(".")[0])
    file = getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", ())), None)
    if file is None:
        return name == "__main__"
    path, standard = os.path.abspath(file), os.path.dirname(os.path.abspath(os.__file__))
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep))
    return not is_installed and os.path.commonpath([path, standard]) != standard


def _globals(value: Any) -> dict[str, Any]:
    """The names that a function or class finds around it."""
    function = _unwrap(value)
    if inspect.isclass(function):
        found = dict(vars(inspect.getmodule(function) or builtins))
        for member in vars(function).values():
            found.update(getattr(member, "__globals__", {}))
        return found
    found = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for free, cell in zip(code.co_freevars if code else (), cells):
        found[free] = cell.cell_contents
    return found


def _unwrap(value: Any) -> Any:
    """The function or class itself. Triton's functions hold theirs in `fn`."""
    return value if inspect.isclass(value) else inspect.unwrap(getattr(value, "fn", value))


def _source(value: Any, user: Callable[..., Any], keep_all: bool) -> str | None:
    """The text of a function or class, without `@rgpu.kernel` unless `keep_all`. None for what no `def` or
    `class` makes, such as a lambda or an instance."""
    try:
        text = textwrap.dedent(inspect.getsource(_unwrap(value)))
        definition = ast.parse(text).body[0]
        # Names of an outer function that this one assigns.
        symtable.symtable(text, "source", "exec")
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or inspect.ismethod(value):
        return None
    is_instance = not inspect.isclass(value) and type(value).__module__ == user.__module__
    if is_instance and not definition.decorator_list:
        return None
    if keep_all:
        return text
    lines = text.splitlines()
    for decorator in definition.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if getattr(called, "attr", getattr(called, "id", "")) == "kernel":
            first, last = decorator.lineno - 1, decorator.end_lineno or decorator.lineno
            lines[first:last] = [""] * (last - first)
    return "\n".join(lines).lstrip("\n") + "\n"


def _global_names(text: str) -> list[str]:
    """The names that a function or class reads from around it, in their order."""
    names: dict[str, None] = {}
    tables = [symtable.symtable(text, "source", "exec")]
    while tables:
        inner = tables.pop(0)
        for symbol in inner.get_symbols():
            # On the level of the module stand decorators, defaults and bases.
            if symbol.is_referenced() and (symbol.is_global() or inner.get_type() == "module"):
                names[symbol.get_name()] = None
        tables += inner.get_children()
    return list(names)
