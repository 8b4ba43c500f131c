"""The outcome of an evaluation: figures by key, tables, and both as JSON and on a terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from heliotrope_sim.evaluation.scores import Score
from heliotrope_sim.evaluation.targets import GOALS, Met, verdict

PERCENT = 100.0
_COLOURS = {Met.MET: "green", Met.MISSED: "red", Met.UNKNOWN: "yellow"}

Cell = str | float | int | Score | None


@dataclass(frozen=True, slots=True)
class Section:
    """One table. Scores and floats in it are fractions, unless the column's name carries a unit."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that an evaluation found."""

    seed: int
    quick: bool
    scores: Mapping[str, Score]
    numbers: Mapping[str, float]
    """Figures that are no means over samples."""
    reasons: Mapping[str, str]
    """Why a goal may be out of reach, by key."""
    sections: Sequence[Section] = field(default_factory=tuple)
    machine: str = ""
    page: str = field(default="", repr=False)
    """HTML with predicted against true, where it was asked for."""

    @property
    def figures(self) -> dict[str, float]:
        """Every figure by key."""
        return {**{key: score.value for key, score in self.scores.items()}, **self.numbers}

    @property
    def verdicts(self) -> dict[str, Met]:
        """Of every goal."""
        return {goal.key: verdict(goal, self.figures) for goal in GOALS}

    def to_json(self) -> dict[str, Any]:
        """Plain data; None where unknown. Figures are at the top, by key; `scores` gives their n and interval."""
        return {
            **{key: value if math.isfinite(value) else None for key, value in self.figures.items()},
            "seed": self.seed,
            "quick": self.quick,
            "machine": self.machine,
            "scores": {key: score.to_json() for key, score in self.scores.items()},
            "targets": {
                goal.key: {
                    "target": goal.text,
                    "verdict": self.verdicts[goal.key].value,
                    "reason": self.reasons.get(goal.key, "") if self.verdicts[goal.key] is not Met.MET else "",
                }
                for goal in GOALS
            },
            "sections": [
                {
                    "key": s.key,
                    "title": s.title,
                    "rows": [dict(zip(s.columns, map(_json_cell, row), strict=True)) for row in s.rows],
                    "note": s.note,
                }
                for s in self.sections
            ],
        }


def show(evaluation: Evaluation, console: Console) -> None:
    """Print the targets, then every table."""
    table = Table(title="Targets", title_justify="left")
    for column in ("figure", "measured", "95 % interval", "n", "target", ""):
        table.add_column(column, justify="left" if column in ("figure", "target", "") else "right")
    reasons = []
    for goal in GOALS:
        met = evaluation.verdicts[goal.key]
        score = evaluation.scores.get(goal.key)
        value = evaluation.figures.get(goal.key, float("nan"))
        measured = _percent(value) if score is not None else _number(value)
        interval, n = ("", "") if score is None else (_interval(score), f"{score.n:,}")
        table.add_row(goal.title, measured, interval, n, goal.text, f"[{_COLOURS[met]}]{met}[/]")
        if met is not Met.MET and goal.key in evaluation.reasons:
            reasons.append(f"[bold]{goal.title}[/]: {evaluation.reasons[goal.key]}")
    console.print(Group(table, *reasons))
    for section in evaluation.sections:
        console.print()
        console.print(_table(section))
        if section.note:
            console.print(section.note, style="dim", markup=False)


def _table(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left")
    for i, column in enumerate(section.columns):
        table.add_column(column, justify="right" if i else "left")
    for row in section.rows:
        table.add_row(*map(_text_cell, row))
    return table


def _text_cell(cell: Cell) -> str:
    match cell:
        case None:
            return "–"
        case Score():
            return f"{_percent(cell.value)} {_interval(cell)}".strip()
        case float():
            return _percent(cell)
        case _:
            return str(cell)


def _json_cell(cell: Cell) -> Any:
    match cell:
        case Score():
            return cell.to_json()
        case float():
            return None if cell != cell else cell
        case _:
            return cell


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never" if math.isinf(value) else "–"


def _percent(value: float) -> str:
    return "–" if value != value else f"{value * PERCENT:.1f} %"


def _interval(score: Score) -> str:
    return "" if score.low != score.low else f"[{score.low * PERCENT:.1f}, {score.high * PERCENT:.1f}]"
