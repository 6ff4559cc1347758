#!/usr/bin/env python3
"""Writes the generated modules of the package `rgpu`: the types of results from the JSON Schemas in
`schemas/`, and the functions from the arguments of the command line (`rgpu __arguments`).

    python/generate.py ARGUMENTS.json [FOLDER]     (`cargo xtask schemas` calls it)
"""

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = '"""{}\n\nMade by `cargo xtask schemas`; do not edit.\n"""\n'

# The documents that the package reads: the schema, and the name of its class.
DOCUMENTS = {
    "profile": "Profile",
    "fan-out": "FanOut",
    "suite": "Suite",
    "exec": "ExecResult",
    "build": "Build",
    "disasm": "Disasm",
    "code": "Code",
    "disasm-diff": "DisasmDiff",
    "compare": "Comparison",
    "run": "Run",
    "plan": "Plan",
    "hotspots": "HotSpots",
    "trace": "Trace",
    "regions": "Regions",
    "error": "ErrorDocument",
}
# Classes with methods of their own, which `_documents.py` has.
BASES = {
    "Profile": "ProfileMethods",
    "Comparison": "RunMethods",
    "ExecResult": "ExecMethods",
    "Run": "DetachedMethods",
}

# What a call returns: the keyword that decides with its type, and the class of the result. The last is the
# result of all other calls.
RESULTS = {
    "profile": [
        ("dry_run", "Literal[True]", "Plan"),
        ("detach", "Literal[True]", "Run"),
        ("sweep", "Pairs", "Suite"),
        ("remote", "list[str] | tuple[str, ...]", "FanOut | Profile"),
        "Profile",
    ],
    "exec": [
        ("dry_run", "Literal[True]", "Plan"),
        ("detach", "Literal[True]", "Run"),
        ("mode", "{type}", "Profile"),
        "ExecResult",
    ],
    "build": [("detach", "Literal[True]", "Run"), "Build"],
    "disasm": [("diff", "Literal[True]", "DisasmDiff"), ("view", "{type}", "Code"), ("hot", "Literal[True]", "HotSpots"), "Disasm"],
    "report": [("lint", "{type}", "Records[Finding]"), ("format", "{type}", "str"), "Profile"],
    "compare": [("dry_run", "Literal[True]", "Plan"), "Comparison"],
}
# Keywords that are no flags.
EXTRA = [
    ("progress", "Progress", "who is told what happens: a function that takes each event of the run as a dict; "
     "True: lines on `sys.stderr`; False: nobody; None: the terminal or notebook, if there is one"),
    ("cwd", "Path | None", "the folder of the project [default: the current one]"),
]
STDIN = ("stdin", "str | bytes | None", "the standard input of the program; without it: nothing")


def class_names(schemas):
    """The class of each definition of each schema. Definitions that differ under one name are called
    after their documents too."""
    by_name = {}
    for document, schema in schemas.items():
        for name, definition in schema.get("$defs", {}).items():
            by_name.setdefault(name, {}).setdefault(json.dumps(definition), []).append(document)
    names, taken = {}, set(DOCUMENTS.values())
    for name, variants in by_name.items():
        for documents in variants.values():
            ambiguous = len(variants) > 1 or name in taken
            chosen = DOCUMENTS[documents[0]] + name if ambiguous else name
            for document in documents:
                names[document, name] = chosen
    return names


class Types:
    """Writes classes."""

    def __init__(self, schemas):
        self.schemas = schemas
        self.names = class_names(schemas)
        self.objects = {
            self.names[document, name]
            for document, schema in schemas.items()
            for name, definition in schema.get("$defs", {}).items()
            if is_object(definition)
        }

    def text(self):
        done = {}
        for document, schema in self.schemas.items():
            for name, definition in schema.get("$defs", {}).items():
                done.setdefault(self.names[document, name], (document, definition))
        aliases = {name: found for name, found in done.items() if name not in self.objects}
        lines = [
            HEAD.format("The types of results."),
            "from __future__ import annotations",
            "",
            "from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union",
            "",
            f"from ._documents import {', '.join(sorted({'Document', 'Record', 'Records', *BASES.values()}))}",
            "",
            "if TYPE_CHECKING:",
        ]
        for name, (document, definition) in sorted(aliases.items()):
            lines += [f"    {name} = {self.alias(document, definition)}", docstring(definition, 4)]
        for name, (document, definition) in sorted(done.items()):
            if name in self.objects:
                lines += self.record(name, "Record", document, definition)
        for document, schema in self.schemas.items():
            name = DOCUMENTS[document]
            lines += self.record(name, BASES.get(name, "Document"), document, schema)
        kinds = [
            f'    "{schema_id(schema)}": {DOCUMENTS[document]},'
            for document, schema in self.schemas.items()
            if document != "plan"
        ]
        lines += ["", "", "BY_SCHEMA: dict[str, type[Document]] = {", *kinds, "}"]
        lines += ['"""The class of a document by its field `schema`."""', ""]
        return "\n".join(line for line in lines if line is not None)

    def record(self, name, base, document, definition):
        lines = ["", "", f"class {name}({base}):", docstring(definition, 4) or f'    """{name}."""', "", "    __slots__ = ()"]
        defaults, fields = {}, []
        required = definition.get("required", [])
        for field, schema in definition.get("properties", {}).items():
            annotation = self.type(document, schema)
            if field not in required and not re.match(r"(Records|list|dict)\[", annotation):
                default = schema.get("default", False if annotation == "bool" else None)
                if default is None and "None" not in annotation and annotation != "Any":
                    annotation += " | None"
                elif default is not None and not isinstance(default, (list, dict)):
                    defaults[field] = default
            fields += [f"    {python_name(field)}: {annotation}", docstring(schema, 4)]
        if defaults:
            lines.append(f"    _defaults: ClassVar[dict[str, Any]] = {defaults!r}")
        return lines + fields

    def alias(self, document, schema):
        parts = [part for part in schema.get("anyOf", schema.get("oneOf", [schema]))]
        found = list(dict.fromkeys(self.type(document, part) for part in parts))
        literals = [text[8:-1] for text in found if text.startswith("Literal[")]
        found = [text for text in found if not text.startswith("Literal[")]
        if literals and "str" not in found:
            found.insert(0, f"Literal[{', '.join(literals)}]")
        return found[0] if len(found) == 1 else f"Union[{', '.join(found)}]"

    def type(self, document, schema):
        if schema is True or not schema:
            return "Any"
        if "$ref" in schema:
            return self.names[document, schema["$ref"].rsplit("/", 1)[1]]
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "enum" in schema:
            return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
        parts = schema.get("anyOf") or schema.get("oneOf")
        if parts:
            found = list(dict.fromkeys(self.type(document, part) for part in parts))
            if "str" in found:
                found = [text for text in found if not text.startswith("Literal[")]
            return " | ".join(found)
        kind = schema.get("type")
        if isinstance(kind, list):
            found = [self.type(document, {**schema, "type": one}) for one in kind]
            return " | ".join(found)
        if kind == "array":
            item = self.type(document, schema.get("items", {}))
            return f"Records[{item}]" if item in self.objects else f"list[{item}]"
        if kind == "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {self.type(document, values) if values else 'Any'}]"
        simple = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
        return simple.get(kind, "Any")


def schema_id(schema):
    """What the field `schema` of a document says; its description has it."""
    return re.search(r"`(rgpu\.[\w-]+/\d+)`", schema["properties"]["schema"]["description"])[1]


def is_object(definition):
    return definition.get("type") == "object" and "properties" in definition


def python_name(name):
    name = name.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def docstring(schema, indent):
    """The description as a docstring; None if there is none."""
    text = schema.get("description") if isinstance(schema, dict) else None
    return None if not text else quoted(text, indent)


def quoted(text, indent):
    # Links of rustdoc are paths in the code.
    text = re.sub(r"\[`(?:\w+::)*(\w+)`\](?:\([^)]*\))?", r"`\1`", text).replace("\\", "\\\\").replace('"""', "'''")
    pad = " " * indent
    lines = []
    for paragraph in re.split(r"\n\s*\n", text):
        one = " ".join(paragraph.split())
        lines += textwrap.wrap(one, 100 - indent - 3, break_long_words=False, break_on_hyphens=False) + [""]
    lines.pop()
    if len(lines) == 1:
        end = " " if lines[0].endswith('"') else ""
        return f'{pad}"""{lines[0]}{end}"""'
    return f'{pad}"""' + "\n".join([lines[0], *((pad + line).rstrip() for line in lines[1:])]) + f'\n{pad}"""'


def annotation(argument):
    """The type of an argument's value, without None."""
    if argument["kind"] == "switch":
        return "bool"
    plain = {
        "text": "str", "integer": "int", "number": "float | str", "time": "Time", "bytes": "int | str",
        "path": "Path", "pair": "Pairs",
    }[argument["kind"]]
    if argument["choices"]:
        plain = "Literal[" + ", ".join(f'"{value}"' for value in argument["choices"]) + "]"
    if argument["kind"] == "pair":
        return plain
    return f"{plain} | Sequence[{plain}]" if argument["many"] else plain


class Command:
    def __init__(self, command):
        self.name, self.about = command["name"], command["about"]
        arguments = command["arguments"]
        self.positional = [a for a in arguments if a["positional"]]
        self.flags = sorted((a for a in arguments if not a["positional"]), key=lambda a: a["flag"])
        for argument in arguments:
            argument["name"] = python_name(argument["flag"].lstrip("-"))
        names = [a["name"] for a in arguments] + [name for name, *_ in self.extra()]
        assert len(set(names)) == len(names), f"{self.name}: a keyword is there twice: {names}"

    def extra(self):
        return EXTRA + ([STDIN] if self.name == "exec" else [])

    def star(self):
        """The positional argument that takes all words: `disasm(*what)`."""
        return next((a for a in self.positional if a["many"] and not a["last"]), None)

    def head(self, dots):
        """The positional parameters."""
        lines = []
        for argument in self.positional:
            default = "..." if dots else {True: "()", False: repr(argument["default"])}[argument["many"]]
            if argument is self.star():
                lines.append("*what: Path")
            elif argument["many"]:
                lines.append(f"{argument['name']}: str | Sequence[str] = {default}")
            else:
                lines.append(f"{argument['name']}: Path{' | None' if argument['default'] is None else ''} = {default}")
        return lines + ([] if self.star() else ["*"])

    def documentation(self):
        lines = [self.about, ""]
        return lines[0]

    def python(self):
        """The function."""
        lines = [f"def {self.name}("] + [f"    {line}," for line in self.head(False)]
        for flag in self.flags:
            kind = annotation(flag)
            lines.append(f"    {flag['name']}: " + ("bool = False," if kind == "bool" else f"{kind} | None = None,"))
        lines += [f"    {name}: {kind} = None," for name, kind, _ in self.extra()]
        lines += [") -> Any:", f'    """{self.about}.', ""]
        for argument in self.positional + self.flags:
            lines += said(argument["name"], argument["help"])
        for name, _, text in self.extra():
            lines += said(name, text)
        lines += ['    """', f'    return run("{self.name}", locals())', "", ""]
        return lines

    def table(self):
        """How keywords become words of the command line."""
        lines = [f'    "{self.name}": {{']
        for argument in self.positional + self.flags:
            kind = "last" if argument["last"] else "positional" if argument["positional"] else argument["kind"]
            lines.append(f'        "{argument["name"]}": ("{argument["flag"]}", "{kind}"),')
        return lines + ["    },"]

    def stub_options(self):
        """The keywords that do not decide what is returned."""
        deciding = {result[0] for result in RESULTS[self.name][:-1]}
        lines = [f"class {self.name.title()}Options(TypedDict, total=False):"]
        for flag in self.flags:
            if flag["name"] not in deciding:
                kind = annotation(flag)
                lines += [f"    {flag['name']}: {kind}" + ("" if kind == "bool" else " | None"), quoted(sentence(flag["help"]), 4)]
        for name, kind, text in self.extra():
            lines += [f"    {name}: {kind}", quoted(sentence(text), 4)]
        return lines + [""]

    def stub(self, keyword_def, prefix=""):
        results = RESULTS[self.name]
        kinds = {flag["name"]: annotation(flag) for flag in self.flags}
        plain = {}
        for name, *_ in results[:-1]:
            kind = kinds[name]
            plain[name] = "Literal[False] = ..." if kind == "bool" else "None = ..."
        if self.name == "profile":
            plain["remote"] = "str | None = ..."
        lines = []
        for result in results:
            decides, kind, returned = result if isinstance(result, tuple) else (None, None, result)
            parameters = dict(plain)
            if decides:
                parameters[decides] = kind.format(type=kinds[decides])
            lines += ["@overload"] if len(results) > 1 else []
            lines.append(f"{keyword_def} {self.name}(")
            lines += [f"    {line}," for line in self.head(True)]
            lines += [f"    {name}: {kind}," for name, kind in sorted(parameters.items())]
            lines += [f"    **options: Unpack[{prefix}{self.name.title()}Options],", f") -> {returned}: ..."]
        return lines


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "]")) else ".")


def said(name, text):
    text = " ".join(text.split()).replace("\\", "\\\\")
    return textwrap.wrap(f"{name}: {text}", 100, initial_indent="    ", subsequent_indent="        ",
                         break_long_words=False, break_on_hyphens=False)


def files(arguments, schemas):
    commands = [Command(command) for command in arguments]
    words = "from ._words import Pairs, Path, Progress, Time"
    returned = [result if isinstance(result, str) else result[-1] for results in RESULTS.values() for result in results]
    results = sorted({name for names in returned for name in names.split(" | ")} - {"str", "Records[Finding]"})
    imports = f"from ._types import {', '.join(sorted([*results, 'Finding']))}"
    functions = [
        HEAD.format("The commands as functions."),
        "from __future__ import annotations",
        "",
        "from typing import Any, Literal, Sequence",
        "",
        words,
        "",
        "",
        "def run(command: str, given: dict[str, Any]) -> Any:",
        "    from ._call import run",
        "",
        "    return run(command, given)",
        "",
        "",
    ]
    table = [HEAD.format("How keywords become words of the command line: the flag, and the kind of its value."), "ARGUMENTS = {"]
    stub = [
        "# The types of `_commands.py`. Made by `cargo xtask schemas`; do not edit.",
        "from typing import Literal, Sequence, TypedDict, overload",
        "",
        "from typing_extensions import Unpack",
        "",
        "from ._documents import Records",
        imports,
        words,
        "",
    ]
    coroutines = [
        "# The types of `aio.py`. Made by `cargo xtask schemas`; do not edit.",
        "from typing import Literal, Sequence, overload",
        "",
        "from typing_extensions import Unpack",
        "",
        "from . import _commands as of",
        "from ._documents import Records",
        imports,
        "from ._words import Pairs, Path",
        "",
    ]
    for command in commands:
        functions += command.python()
        table += command.table()
        stub += command.stub_options() + command.stub("def")
        coroutines += command.stub("async def", "of.")
    return {
        "_types.py": Types(schemas).text(),
        "_commands.py": "\n".join(functions).rstrip() + "\n",
        "_commands.pyi": "\n".join(stub) + "\n",
        "_arguments.py": "\n".join(table + ["}", ""]),
        "aio.pyi": "\n".join(coroutines) + "\n",
    }


def main():
    arguments = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "python/rgpu")
    schemas = {name: json.loads((ROOT / f"schemas/{name}.json").read_text()) for name in DOCUMENTS}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files(arguments, schemas).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
