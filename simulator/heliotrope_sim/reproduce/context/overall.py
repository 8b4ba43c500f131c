"""Rows of the comparison of policies (§4.2), and the table behind them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heliotrope_sim.reproduce.context.measures import (
    Arm,
    Ground,
    hit_share,
    largest_model_share,
    mean_quality,
    p95_ttft_seconds,
    recomputed_share,
    saving,
    switches,
)
from heliotrope_sim.reproduce.context.policies import CARBON_AFFINITY, CCAR, FAIR_CARBON, GAR, SESSION_AFFINITY
from heliotrope_sim.reproduce.report import Sheet
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row

WITHOUT_GATE = "CCAR without gate"
WITHOUT_PRICING = "CCAR without pricing"
PAPER_SAVINGS = {FAIR_CARBON: 16.1, GAR: 29.1, CARBON_AFFINITY: 21.3, SESSION_AFFINITY: 54.3}
PAPER_ORDER = (SESSION_AFFINITY, GAR, CARBON_AFFINITY, FAIR_CARBON, CCAR)
"""By emissions, on both of the paper's data sets."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The arms of every policy over one ground."""

    name: str
    """In ids."""
    title: str
    ground: Ground
    arms: Mapping[str, Arm]
    seed: int
    quick: bool

    def grams(self, policy: str) -> float:
        """Total emissions."""
        return float(np.nansum(self.arms[policy].grams_co2e))


def saving_rows(c: Compared, note: str) -> list[Row]:
    """What ours saves against each baseline, and who emits more than whom."""
    rows = []
    for baseline, paper in PAPER_SAVINGS.items():
        found = saving(c.ground, c.arms[CCAR], c.arms[baseline], c.seed)
        rows.append(
            percent_row(
                f"saving/{c.name}/{baseline}",
                f"CO2 saved against {baseline}, {c.title}",
                paper,
                found,
                holds=above_zero(found, quick=c.quick),
                note=f"{note}; holds if ours emits less; {_placed(c, baseline)}",
            )
        )
    order = sorted(PAPER_ORDER, key=c.grams, reverse=True)
    relative = ", ".join(f"{name} {c.grams(name) / c.grams(SESSION_AFFINITY):.3f}" for name in order)
    rows.append(
        Row(
            f"order/{c.name}",
            f"Policies from most to least CO2, {c.title}",
            " > ".join(PAPER_ORDER),
            " > ".join(order),
            "",
            tuple(order) == PAPER_ORDER,
            _why_order(c, order) + f"Relative to Session-Affinity: {relative}",
        )
    )
    return rows


def _placed(c: Compared, baseline: str) -> str:
    """What two policies differ in, in figures of the same run."""
    single = float((c.ground.turns_of_session == 1).mean())
    ours, theirs = c.arms[CCAR], c.arms[baseline]
    recomputed = " against ".join(f"{recomputed_share(c.ground, arm):.1%}" for arm in (ours, theirs))
    cleanest = " against ".join(f"{arm.cleanest.mean():.1%}" for arm in (ours, theirs))
    shares = f"history recomputed {recomputed}, turns in the cleanest region {cleanest}"
    return f"{single:.0%} of the sessions have one turn; {shares}"


def _why_order(c: Compared, order: list[str]) -> str:
    if tuple(order) == PAPER_ORDER:
        return ""
    fair, affinity = c.arms[FAIR_CARBON], c.arms[CARBON_AFFINITY]
    return (
        f"the baselines' order depends on how much history the cache-blind ones recompute: FairCarbon-like "
        f"{recomputed_share(c.ground, fair):.0%} here and 27.7 % in the paper, and on how many turns Carbon-Affinity "
        f"leaves on the 70B model: {largest_model_share(affinity):.0%} here and 87.5 %. "
    )


def mechanism_rows(c: Compared) -> list[Row]:
    """Where the saving comes from (§4.2)."""
    fair, ours = (recomputed_share(c.ground, c.arms[p]) * PERCENT for p in (FAIR_CARBON, CCAR))
    sa = mean_quality(c.ground, c.arms[SESSION_AFFINITY])
    moves = {p: float(switches(c.ground, c.arms[p]).sum()) / c.ground.sessions for p in (FAIR_CARBON, CCAR)}
    p95 = {p: p95_ttft_seconds(c.arms[p]) for p in (FAIR_CARBON, CCAR)}
    quality = {p: mean_quality(c.ground, c.arms[p]) / sa for p in (FAIR_CARBON, CCAR)}
    less = "holds if ours is below FairCarbon-like's"
    matched = "the generator of qualities is matched to this"
    return [
        Row("recomputed/fair-carbon", "History recomputed, FairCarbon-like", 27.7, fair, "%", None, less),
        Row("recomputed/ccar", "History recomputed, CCAR", 9.4, ours, "%", ours < fair, less),
        Row(
            "switches/fair-carbon",
            "Switches per session, FairCarbon-like",
            7.14,
            moves[FAIR_CARBON],
            "",
            None,
            "ShareChat's sessions have more turns",
        ),
        Row(
            "switches/ccar", "Switches per session, CCAR", 5.58, moves[CCAR], "", moves[CCAR] < moves[FAIR_CARBON], less
        ),
        Row("ttft/fair-carbon", "P95 TTFT, FairCarbon-like", 1.67, p95[FAIR_CARBON], "s", None, "ShareChat"),
        Row("ttft/ccar", "P95 TTFT, CCAR", 0.52, p95[CCAR], "s", p95[CCAR] < p95[FAIR_CARBON], less),
        Row(
            "quality/fair-carbon",
            "Quality of FairCarbon-like over Session-Affinity's",
            0.973,
            quality[FAIR_CARBON],
            "",
            None,
            matched,
        ),
        Row(
            "quality/ccar",
            "Quality of CCAR over Session-Affinity's",
            0.979,
            quality[CCAR],
            "",
            quality[CCAR] > quality[FAIR_CARBON],
            "holds if above FairCarbon-like's",
        ),
        Row(
            "model/session-affinity-70b",
            "Session-Affinity's turns on the 70B model",
            90.0,
            largest_model_share(c.arms[SESSION_AFFINITY]) * PERCENT,
            "%",
            None,
            matched,
        ),
        Row(
            "hits/fair-carbon",
            "Turns that hit the cache, FairCarbon-like",
            58.7,
            hit_share(c.ground, c.arms[FAIR_CARBON]) * PERCENT,
            "%",
            None,
            f"58.7 to 60.7 % in the paper; {matched}",
        ),
        Row(
            "cleanest/ccar",
            "CCAR's turns in the cleanest region",
            57.0,
            float(c.arms[CCAR].cleanest.mean()) * PERCENT,
            "%",
            None,
            "hourly data of 2022 against five minutes of 2025",
        ),
    ]


def sheet(c: Compared) -> Sheet:
    """Table 1 and table 2 in one."""
    base = c.grams(SESSION_AFFINITY)
    quality = mean_quality(c.ground, c.arms[SESSION_AFFINITY])
    rows = [
        (
            name,
            f"{c.grams(name) / base:.3f}",
            f"{np.nansum(arm.joules) / np.nansum(c.arms[SESSION_AFFINITY].joules):.3f}",
            f"{mean_quality(c.ground, arm) / quality:.3f}",
            f"{p95_ttft_seconds(arm):.2f}",
            f"{recomputed_share(c.ground, arm):.1%}",
            f"{hit_share(c.ground, arm):.1%}",
            f"{switches(c.ground, arm).sum() / c.ground.sessions:.2f}",
            f"{arm.cleanest.mean():.1%}",
            f"{largest_model_share(arm):.1%}",
            f"{arm.best_effort.mean():.2%}",
            f"{(arm.deployment < 0).sum()}",
        )
        for name, arm in c.arms.items()
    ]
    return Sheet(
        f"Policies, {c.title}: {c.ground.sessions:,} sessions, {len(c.ground.session):,} turns",
        (
            "policy",
            "CO2",
            "energy",
            "quality",
            "P95 TTFT, s",
            "history recomputed",
            "turns that hit",
            "switches per session",
            "in the cleanest region",
            "on 70B",
            "best effort",
            "rejected",
        ),
        tuple(rows),
        "CO2, energy and quality relative to Session-Affinity.",
    )
