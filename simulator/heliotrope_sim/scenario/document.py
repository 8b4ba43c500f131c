"""A study as JSON; docs/simulate.md has the fields."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import heliotrope
from heliotrope_sim.scenario.outcome import Outcome
from heliotrope_sim.scenario.statement import BASIS, BOUNDARY, LEFT_OUT, stated
from heliotrope_sim.scenario.study import Cell, Study
from heliotrope_sim.scenario.summary import Line, Summary

VERSION = 1
_LEFT_OUT = ("over_time", "trace")


def document(study: Study, cells: Sequence[Cell], summary: Summary) -> dict[str, Any]:
    """Plain data; unknown is None."""
    found = {
        "version": VERSION,
        "heliotrope": heliotrope.__version__,
        "scenario": study.scenario.name,
        "quick": study.quick,
        "start": study.scenario.start.isoformat(),
        "seed": study.scenario.seed,
        "baseline": summary.baseline,
        "stated": {
            "boundary": BOUNDARY,
            "left_out": LEFT_OUT,
            "basis": BASIS,
            "regions": [asdict(each) for each in stated(study)],
            "promises": {
                each.name: {"ttft_seconds": each.ttft_slo_seconds, "tpot_seconds": each.tpot_slo_seconds}
                for each in study.built.judged
            },
        },
        "sweep": list(study.points[0].values),
        "summary": [_line(line) for line in summary.lines],
        "runs": [{"values": dict(cell.point.values)} | _run(cell.outcome) for cell in cells],
    }
    return {key: _plain(value) for key, value in found.items()}


def to_json(study: Study, cells: Sequence[Cell], summary: Summary) -> str:
    """Its text."""
    return json.dumps(document(study, cells, summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _line(line: Line) -> dict[str, Any]:
    return asdict(line) | {"setting": dict(line.setting), "saving_range": list(line.saving_range)}


def _run(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if name not in _LEFT_OUT}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
