"""What a reproduction found: rows, tables, pictures; as JSON, on a terminal and as a page that needs no other file."""

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from heliotrope.errors import InvalidInputError
from heliotrope_sim.reproduce.row import Row

_VERDICTS = {True: ("holds", "green"), False: ("differs", "red"), None: ("reported", "dim")}
_STYLE = (
    "body{font-family:sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:left;"
    "vertical-align:top}td.n{text-align:right;white-space:nowrap}"
    ".holds{color:#18794e}.differs{color:#c62828}.reported{color:#666}"
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table beside the rows; cells are text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    id: str = ""
    """As of the rows that it belongs to."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot."""

    title: str
    png_base64: str = field(repr=False)
    note: str = ""
    id: str = ""
    """As of the rows that it belongs to."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a reproduction found."""

    experiment: str
    title: str
    seed: int
    quick: bool
    substitutes: tuple[str, ...]
    """What stands in for inputs of the paper that cannot be had."""
    rows: tuple[Row, ...]
    sheets: tuple[Sheet, ...] = ()
    pictures: tuple[Picture, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Rows are found by their id."""
        ids = [row.id for row in self.rows]
        assert len(ids) == len(set(ids)), f"ids are not unique: {sorted(i for i in ids if ids.count(i) > 1)}"

    def only(self, figures: Sequence[str]) -> "Report":
        """What is asked for: rows, tables and pictures whose ids begin with one of these, or whose titles do.

        Raises:
            InvalidInputError: if one of them is nowhere; the message lists what there is.
        """
        if not figures:
            return self
        shown: list[Sheet | Picture] = [*self.sheets, *self.pictures]
        named = [(row.id, row.title) for row in self.rows] + [(item.id, item.title) for item in shown]
        for figure in figures:
            if not any(_matches(id_, title, (figure,)) for id_, title in named):
                parts = dict.fromkeys(id_.split("/")[0] for id_, _ in named if id_)
                titles = [f'"{item.title}"' for item in shown]
                raise InvalidInputError("figure", f"{figure!r} is none of {', '.join([*parts, *titles])}")
        return replace(
            self,
            rows=tuple(each for each in self.rows if _matches(each.id, each.title, figures)),
            sheets=tuple(each for each in self.sheets if _matches(each.id, each.title, figures)),
            pictures=tuple(each for each in self.pictures if _matches(each.id, each.title, figures)),
        )

    def to_json(self) -> str:
        """The rows."""
        return json.dumps([row.to_json() for row in self.rows], indent=1, ensure_ascii=False) + "\n"

    def to_html(self) -> str:
        """The page."""
        parts = [f"<h1>{html.escape(self.title)}</h1>", f"<p>{html.escape(self._how())}</p>"]
        parts.append("<ul>" + "".join(f"<li>{html.escape(each)}</li>" for each in self.substitutes) + "</ul>")
        head = "".join(f"<th>{name}</th>" for name in ("figure", "paper", "ours", "95 %", "unit", "", "note"))
        lines = "".join(_html_row(row) for row in self.rows)
        parts.append(f"<table><tr>{head}</tr>{lines}</table>")
        for picture in self.pictures:
            name = html.escape(picture.title)
            parts.append(f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{picture.png_base64}">')
            parts.append(f"<p>{html.escape(picture.note)}</p>")
        parts += [f"<h2>{html.escape(s.title)}</h2>{_html_table(s)}<p>{html.escape(s.note)}</p>" for s in self.sheets]
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f"<style>{_STYLE}</style>{''.join(parts)}</html>\n"
        )

    def write(self, folder: Path) -> Path:
        """Write rows.json and report.html into a folder, which is made if need be; returns the page's path."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.json").write_text(self.to_json(), encoding="utf-8")
        page = folder / "report.html"
        page.write_text(self.to_html(), encoding="utf-8")
        return page

    def _how(self) -> str:
        size = "quick run: order and sign are judged" if self.quick else "full run"
        return f"heliotrope reproduce {self.experiment}, seed {self.seed}, {size}."


def show(report: Report, console: Console) -> None:
    """Print the rows, then the tables, then the notes of what differs."""
    table = Table(title=report.title, title_justify="left")
    for name, justify in (("figure", "left"), ("paper", "right"), ("ours", "right"), ("95 %", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in report.rows:
        word, colour = _VERDICTS[row.holds]
        unit = f" {row.unit}" if row.unit else ""
        table.add_row(row.title, number(row.paper), number(row.ours) + unit, interval(row), f"[{colour}]{word}[/]")
    console.print(table)
    for sheet in report.sheets:
        printed = Table(title=sheet.title, title_justify="left")
        for i, column in enumerate(sheet.columns):
            printed.add_column(column, justify="right" if i else "left")
        for cells in sheet.rows:
            printed.add_row(*cells)
        console.print(printed)
        if sheet.note:
            console.print(sheet.note, style="dim", markup=False)
    for row in report.rows:
        if row.holds is False:
            console.print(f"{row.title}: {row.note}", markup=False)
    for each in report.substitutes:
        console.print(each, style="dim", markup=False)
    counts = [sum(row.holds is verdict for row in report.rows) for verdict in (True, False, None)]
    console.print(f"{counts[0]} figures hold, {counts[1]} differ, {counts[2]} are reported only.")


def number(value: float | str | None) -> str:
    """A figure with as many digits as it is worth; an en dash where it is unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, str):
        return value
    magnitude = abs(value)
    return f"{value:,.0f}" if magnitude >= 1_000.0 else f"{value:.1f}" if magnitude >= 1.0 else f"{value:.3g}"


def interval(row: Row) -> str:
    """Its confidence interval, or nothing."""
    known = math.isfinite(row.low) and math.isfinite(row.high)
    return f"[{number(row.low)}, {number(row.high)}]" if known else ""


def _matches(id_: str, title: str, figures: Sequence[str]) -> bool:
    return any(id_.startswith(each) or title.casefold().startswith(each.casefold()) for each in figures)


def _html_row(row: Row) -> str:
    word, _ = _VERDICTS[row.holds]
    cells: Sequence[tuple[str, str]] = (
        ("", row.title),
        ("n", number(row.paper)),
        ("n", number(row.ours)),
        ("n", interval(row)),
        ("", row.unit),
        (word, word),
        ("", row.note),
    )
    return "<tr>" + "".join(f'<td class="{kind}">{html.escape(text)}</td>' for kind, text in cells) + "</tr>"


def _html_table(sheet: Sheet) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in sheet.columns)
    lines = "".join(
        "<tr>"
        + "".join(f'<td class="{"n" if i else ""}">{html.escape(cell)}</td>' for i, cell in enumerate(cells))
        + "</tr>"
        for cells in sheet.rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"
