"""Records as short tables, for `print` and notebooks."""

from __future__ import annotations

from typing import Any, Iterable

_MAX_ROWS = 10
_MAX_WIDTH = 100
_MAX_CELL_WIDTH = 60
_MAX_TEXT_WIDTH = 200
"""Of the column `text`, which has sentences."""
_MAX_HTML_COLUMNS = 12


def text_table(name: str, rows: list[dict[str, Any]]) -> str:
    """The first rows, with as many columns as fit, under a line that says how many there are."""
    head = f"{len(rows)} × {name}"
    shown = rows[:_MAX_ROWS]
    lines = [""] * (len(shown) + 1)
    columns = _columns(shown)
    left = 0
    for column, cells in columns.items():
        cells = [column, *cells]
        if column == "text":
            cells = [_cut(cell, _MAX_WIDTH - len(lines[0]) - 2) for cell in cells]
        width = max(map(len, cells))
        if lines[0] and len(lines[0]) + 2 + width > _MAX_WIDTH:
            left += 1
            continue
        is_number = all(isinstance(row.get(column), (int, float, type(None))) for row in shown)
        for index, cell in enumerate(cells):
            padded = cell.rjust(width) if is_number else cell.ljust(width)
            lines[index] += ("  " if lines[index] else "") + padded
    return "\n".join([head, *(f"  {line}".rstrip() for line in lines if columns), *_rest(rows, left)])


def html_table(name: str, rows: list[dict[str, Any]]) -> str:
    """The first rows and columns, for notebooks."""
    from html import escape

    columns = _columns(rows[:_MAX_ROWS])
    shown = dict(list(columns.items())[:_MAX_HTML_COLUMNS])

    def row(tag: str, cells: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = [row("td", cells) for cells in zip(*shown.values())]
    text = escape(" ".join([f"{len(rows)} × {name}", *_rest(rows, len(columns) - len(shown))]))
    return f'<div style="overflow-x: auto"><table>{row("th", shown)}{"".join(body)}</table>{text}</div>'


def _rest(rows: list[dict[str, Any]], columns: int) -> list[str]:
    parts = [f"{len(rows) - _MAX_ROWS} more rows"] if len(rows) > _MAX_ROWS else []
    parts += [f"{columns} more columns"] if columns else []
    return [f"… {', '.join(parts)}: `to_pandas()` has all"] if parts else []


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The cells of each column that has any, a text right behind the name of its record."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if "text" in names[1:]:
        names.remove("text")
        names.insert(1, "text")
    columns = {name: [_cell(name, row.get(name)) for row in rows] for name in names}
    return {name: cells for name, cells in columns.items() if any(cells)}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        if any(isinstance(part, (dict, list)) for part in value):
            return ""
        separator = "::" if name in ("path", "region") else " × " if all(map(_is_int, value)) else " "
        value = separator.join(map(str, value))
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    limit = _MAX_TEXT_WIDTH if name == "text" else _MAX_CELL_WIDTH
    return _cut(text, limit)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _is_int(value: Any) -> bool:
    return isinstance(value, int)
