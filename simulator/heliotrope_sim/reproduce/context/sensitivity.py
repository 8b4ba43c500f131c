"""Rows of tables 3 and 4: the saving against FairCarbon over energy ratios, capacity and required quality."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliotrope.cache.ccar import TokenRatios
from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.context.measures import Arm, Ground, saving
from heliotrope_sim.reproduce.context.policies import CCAR, FAIR_CARBON
from heliotrope_sim.reproduce.context.system import System
from heliotrope_sim.reproduce.context.tasks import Run, Stretch, play
from heliotrope_sim.reproduce.report import Sheet
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row
from heliotrope_sim.reproduce.workers import Workers

CACHED_RATIOS = (0.025, 0.05, 0.1)
OUTPUT_RATIOS = (5.0, 6.0, 8.0)
CAPACITIES = (0.5, 0.35, 0.25)
QUALITY_SHARES = (0.8, 0.85, 0.9)
PAPER_RATIOS = ((18.8, 16.7, 13.6), (16.8, 15.1, 12.6), (12.9, 12.7, 9.7))
"""Table 3: by γ, in each by κ."""
PAPER_CAPACITIES = ((17.8, 15.1, 13.2), (11.4, 11.2, 11.4), (10.7, 9.4, 10.5))
"""Table 4: by c, in each by β_Q."""

Setting = tuple[float, float, float, float]
"""γ, κ, c, β_Q."""
DEFAULT: Setting = (0.05, 6.0, 0.5, 0.85)
SETTINGS: tuple[Setting, ...] = tuple(
    dict.fromkeys(
        [(g, k, DEFAULT[2], DEFAULT[3]) for g in CACHED_RATIOS for k in OUTPUT_RATIOS]
        + [(DEFAULT[0], DEFAULT[1], c, b) for c in CAPACITIES for b in QUALITY_SHARES]
    )
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The savings of every setting."""

    savings: Mapping[Setting, Interval]
    rejected: int
    """Turns that nobody could take, in all runs together."""


def system_of(setting: Setting) -> System:
    """The replay's constants."""
    cached, output, capacity, quality = setting
    return System(TokenRatios(cached, output), quality_share=quality, capacity=capacity)


def sweep(stretches: Sequence[Stretch], gate_text: str, seed: int, workers: Workers) -> Grid:
    """Replay both policies in every setting; the gate is the one of the default setting."""
    ground, n = Ground.of(stretches), len(stretches)
    runs = [
        Run(s, policy, system_of(setting), gate_text if policy == CCAR else "")
        for setting in SETTINGS
        for policy in (CCAR, FAIR_CARBON)
        for s in stretches
    ]
    logs = workers.map("sensitivity", play, runs)
    arms = [Arm.of(logs[i : i + n]) for i in range(0, len(logs), n)]
    savings = {setting: saving(ground, arms[2 * i], arms[2 * i + 1], seed) for i, setting in enumerate(SETTINGS)}
    return Grid(savings, sum(int((arm.deployment < 0).sum()) for arm in arms))


def sensitivity_rows(grid: Grid, *, quick: bool) -> list[Row]:
    """A row per cell, and what the paper says of the tables' shape."""
    rows = []
    for i, cached in enumerate(CACHED_RATIOS):
        for j, output in enumerate(OUTPUT_RATIOS):
            found = grid.savings[cached, output, DEFAULT[2], DEFAULT[3]]
            rows.append(
                percent_row(
                    f"sensitivity/gamma-{cached:g}/kappa-{output:g}",
                    f"CO2 saved against FairCarbon-like, γ {cached:g}, κ {output:g}",
                    PAPER_RATIOS[i][j],
                    found,
                    holds=above_zero(found, quick=quick),
                    note="holds if positive",
                )
            )
    for i, capacity in enumerate(CAPACITIES):
        for j, quality in enumerate(QUALITY_SHARES):
            found = grid.savings[DEFAULT[0], DEFAULT[1], capacity, quality]
            rows.append(
                percent_row(
                    f"sensitivity/c-{capacity:g}/beta-{quality:g}",
                    f"CO2 saved against FairCarbon-like, c {capacity:g}, β {quality:g}",
                    PAPER_CAPACITIES[i][j],
                    found,
                    holds=above_zero(found, quick=quick),
                    note="holds if positive",
                )
            )
    return rows + _shape(grid)


def _shape(grid: Grid) -> list[Row]:
    ratios = {(g, k): grid.savings[g, k, DEFAULT[2], DEFAULT[3]].estimate for g in CACHED_RATIOS for k in OUTPUT_RATIOS}
    best, worst = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
    by_capacity = [grid.savings[DEFAULT[0], DEFAULT[1], c, DEFAULT[3]].estimate for c in CAPACITIES]
    return [
        Row(
            "sensitivity/ratios-shape",
            "γ, κ of the largest and of the smallest saving",
            "0.025, 5 and 0.1, 8",
            f"{best[0]:g}, {best[1]:g} and {worst[0]:g}, {worst[1]:g}",
            "",
            (best, worst) == ((0.025, 5.0), (0.1, 8.0)),
            "holds if they are the paper's",
        ),
        Row(
            "sensitivity/capacity-shape",
            "The saving shrinks with capacity, β 0.85",
            "15.1 > 11.2 > 9.4",
            " , ".join(f"{v * PERCENT:.1f}" for v in by_capacity),
            "%",
            by_capacity[0] > by_capacity[-1],
            "holds if c 0.5 saves more than c 0.25",
        ),
    ]


def sensitivity_sheets(grid: Grid) -> list[Sheet]:
    """Tables 3 and 4 with ours, the paper's in brackets."""
    first = tuple(
        (
            f"γ {g:g}",
            *(
                _cell(grid.savings[g, k, DEFAULT[2], DEFAULT[3]], PAPER_RATIOS[i][j])
                for j, k in enumerate(OUTPUT_RATIOS)
            ),
        )
        for i, g in enumerate(CACHED_RATIOS)
    )
    second = tuple(
        (
            f"c {c:g}",
            *(
                _cell(grid.savings[DEFAULT[0], DEFAULT[1], c, b], PAPER_CAPACITIES[i][j])
                for j, b in enumerate(QUALITY_SHARES)
            ),
        )
        for i, c in enumerate(CAPACITIES)
    )
    note = (
        f"Percent of CO2 saved against FairCarbon-like, in brackets the paper's. {grid.rejected} turns were rejected."
    )
    return [
        Sheet("Energy ratios (table 3)", ("", *(f"κ {k:g}" for k in OUTPUT_RATIOS)), first, note),
        Sheet("Capacity and quality (table 4)", ("", *(f"β {b:g}" for b in QUALITY_SHARES)), second, note),
    ]


def _cell(found: Interval, paper: float) -> str:
    return f"{found.estimate * PERCENT:.1f} ({paper:g})"
