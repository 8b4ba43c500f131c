"""The runs of a study brought together: one line for each setting and policy, averaged over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from heliotrope_sim.scenario.outcome import Outcome, joule_lines, saving
from heliotrope_sim.scenario.study import Cell, Study


@dataclass(frozen=True, slots=True)
class Line:
    """One policy at one setting: means over the seeds. NaN is unknown."""

    setting: tuple[tuple[str, Any], ...]
    policy: str
    seeds: int
    saving: float
    """Of grams, against the baseline at the same setting and seed: the mean of the seeds' savings."""
    saving_range: tuple[float, float]
    """Least and most over the seeds."""
    grams: float
    joules: dict[str, float]
    violation: float
    ttft_seconds: dict[str, float]
    tpot_seconds: dict[str, float]
    endings: dict[str, float]
    site_share: dict[str, float]
    """Of the requests."""
    fell_back: float
    without_carbon: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All of a study's lines."""

    title: str
    baseline: str
    keys: tuple[str, ...]
    """Of the sweep, without the seed."""
    sites: tuple[str, ...]
    joule_lines: tuple[str, ...]
    """Lines of energy that are not nothing everywhere."""
    lines: tuple[Line, ...]


def summarise(study: Study, cells: Sequence[Cell]) -> Summary:
    """Of a study's runs."""
    baseline = study.scenario.baseline_name
    sites = tuple(site.name for site in study.built.topology.sites)
    settings = list(dict.fromkeys(_hashable(cell.point.setting) for cell in cells))
    lines = []
    for setting in settings:
        here = [cell for cell in cells if _hashable(cell.point.setting) == setting]
        for policy in dict.fromkeys(cell.outcome.policy for cell in here):
            ours = [cell.outcome for cell in here if cell.outcome.policy == policy]
            theirs = [cell.outcome for cell in here if cell.outcome.policy == baseline]
            stated = next(cell.point.setting for cell in here if cell.outcome.policy == policy)
            lines.append(_line(stated, policy, ours, theirs, sites))
    kinds = [name for name in joule_lines() if any(line.joules[name] > 0.0 for line in lines)]
    return Summary(
        title=study.scenario.name,
        baseline=baseline,
        keys=tuple(key for key, _ in study.points[0].setting),
        sites=sites,
        joule_lines=tuple(kinds),
        lines=tuple(lines),
    )


def seed_words(summary: Summary) -> tuple[str, ...]:
    """How savings spread over the seeds, where there are several."""
    if all(line.seeds < 2 for line in summary.lines):
        return ()
    words = []
    for line in summary.lines:
        if line.policy != summary.baseline:
            low, high = line.saving_range
            where = "".join(f"{key} {value}, " for key, value in line.setting)
            words.append(f"{where}{line.policy}: saves {low:.1%} to {high:.1%} over {line.seeds} seeds")
    return tuple(words)


def _line(
    setting: tuple[tuple[str, Any], ...],
    policy: str,
    ours: Sequence[Outcome],
    theirs: Sequence[Outcome],
    sites: Sequence[str],
) -> Line:
    savings = [saving(a.grams, b.grams) for a, b in zip(ours, theirs, strict=True)]
    return Line(
        setting=setting,
        policy=policy,
        seeds=len(ours),
        saving=float(np.mean(savings)),
        saving_range=(float(np.min(savings)), float(np.max(savings))),
        grams=_mean(ours, lambda each: each.grams),
        joules={name: _mean(ours, _item("joules", name)) for name in (*joule_lines(), "total")},
        violation=_mean(ours, lambda each: each.violation),
        ttft_seconds={q: _mean(ours, _item("ttft_seconds", q)) for q in ours[0].ttft_seconds},
        tpot_seconds={q: _mean(ours, _item("tpot_seconds", q)) for q in ours[0].tpot_seconds},
        endings={name: _mean(ours, _item("endings", name)) for name in ours[0].endings},
        site_share={
            site: float(np.mean([each.site_requests.get(site, 0) / each.requests for each in ours])) for site in sites
        },
        fell_back=_mean(ours, lambda each: each.fell_back),
        without_carbon=_mean(ours, lambda each: each.without_carbon),
    )


def _item(field: str, key: str) -> Callable[[Outcome], float]:
    return lambda outcome: getattr(outcome, field)[key]


def _mean(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    return float(np.mean([value(each) for each in outcomes])) if outcomes else nan


def _hashable(setting: tuple[tuple[str, Any], ...]) -> str:
    return repr(setting)
