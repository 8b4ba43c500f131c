"""Baselines and ablations as rows, and the vectors of every workload as tables."""

from collections.abc import Mapping, Sequence

import numpy as np

from heliotrope_sim.reproduce.report import Sheet, number
from heliotrope_sim.reproduce.roadmap.arms import ABLATIONS, BASELINES, FULL, JOINT, Arm
from heliotrope_sim.reproduce.roadmap.measures import Measured, change, quantile, share_kept, success, vector
from heliotrope_sim.reproduce.roadmap.questions import below_zero, pooled
from heliotrope_sim.reproduce.roadmap.studies import ABLATION_WORKLOADS, Found, Sizes, ablation_run
from heliotrope_sim.reproduce.roadmap.workloads import CLASSES
from heliotrope_sim.reproduce.row import Row, percent_row

LINES = (
    "all promises kept",
    "answered",
    "G_E, SLO tokens per J",
    "G_C, per g",
    "G_W, per L",
    "G_$, per $",
    "TTFT p50, s",
    "TTFT p95, s",
    "TTFT p99, s",
    "TPOT p50, s",
    "TPOT p95, s",
    "TPOT p99, s",
    "end to end p50, s",
    "end to end p95, s",
    "end to end p99, s",
    "quality",
    "prompt tokens reused",
    "utilisation",
    "power, W",
    "input tokens per s",
    "output tokens per s",
)


def everywhere(found: Found, arm: Arm) -> list[Measured]:
    """An arm in every cell of the matrix."""
    return [
        found.matrix(arm, workload, load, sharing)
        for workload in CLASSES
        for load in found.sizes.loads
        for sharing in found.sizes.sharings
    ]


def baseline_rows(found: Found) -> list[Row]:
    """The joint policy against each baseline, over the whole matrix: every goodput, none of them summed up."""
    joint = everywhere(found, JOINT)
    rows = []
    for arm in BASELINES:
        if arm is JOINT:
            continue
        other = everywhere(found, arm)
        for amount, word in (("grams", "CO2e"), ("joules", "Energy"), ("water_liters", "Water"), ("cost", "Rent")):
            found_change = change(joint, other, amount, found.seed)
            holds = below_zero(found_change, quick=found.quick) if amount == "grams" else None
            key = f"matrix/{word.lower()}-{arm.name.replace(' ', '-')}"
            title = f"{word} per SLO token, joint against {arm.name}"
            note = "All workloads, loads and shares of prefixes. Judged: the joint policy has the higher G_C."
            rows.append(
                percent_row(key, title, None, found_change, holds=holds, note=note if holds is not None else "")
            )
    return rows


def ablation_rows(found: Found) -> list[Row]:
    """What goes up when a signal is taken away (§8.4)."""
    make = ablation_run(found.sizes)
    full = pooled(found, FULL, ABLATION_WORKLOADS, [make])
    rows = []
    for signal, arm in ABLATIONS.items():
        without = pooled(found, arm, ABLATION_WORKLOADS, [make])
        key = f"ablation/{signal.replace(' ', '-')}"
        for amount, word, suffix in (("grams", "CO2e", ""), ("joules", "Energy", "-joules")):
            found_change = change(without, full, amount, found.seed)
            title = f"{word} per SLO token without {signal}"
            rows.append(percent_row(key + suffix, title, None, found_change, holds=None))
        used = change(without, full, "used_embodied_grams", found.seed)
        if signal == "embodied term":
            title = "Embodied CO2e of busy hardware per SLO token without the embodied term"
            rows.append(percent_row(f"{key}-used", title, None, used, holds=None))
    rows.append(
        Row(
            "ablation/dvfs",
            "CO2e per SLO token without DVFS",
            None,
            "not run",
            "",
            None,
            "Clocks are fixed at their nominal value in all runs; control of clocks is not part of these arms yet.",
        )
    )
    return rows


def vector_sheets(found: Found) -> list[Sheet]:
    """One table per workload at the middle load and share of prefixes, and one of the arms with two models."""
    load, sharing = middle(found.sizes)
    sheets = [
        _sheet(
            f"{kind.title}: load {load:g}, {sharing:.0%} shared prefixes",
            {arm.name: [found.matrix(arm, name, load, sharing)] for arm in BASELINES},
            f"matrix/vector-{name}",
        )
        for name, kind in CLASSES.items()
    ]
    rows = []
    for name, kind in CLASSES.items():
        for load in found.sizes.loads:
            for sharing in found.sizes.sharings:
                vectors = [vector([found.matrix(arm, name, load, sharing)]) for arm in BASELINES]
                cells = [number(v.tokens_per_gram) for v in vectors]
                rows.append((f"{kind.title}, load {load:g}, shared {sharing:.0%}", *cells))
    columns = ("SLO tokens per gram", *(arm.name for arm in BASELINES))
    return [*sheets, Sheet("G_C over the whole matrix", columns, tuple(rows), id="matrix/all")]


def model_sheet(found: Found) -> Sheet:
    """Arms on two models."""
    make = ablation_run(found.sizes)
    arms = {arm.name: pooled(found, arm, ABLATION_WORKLOADS, [make]) for arm in (FULL, *ABLATIONS.values())}
    return _sheet(
        "Ablations: short chat and long context, 8B and 70B, without the Norwegian endpoints", arms, "ablation/vector"
    )


def middle(sizes: Sizes) -> tuple[float, float]:
    """The load and the share of prefixes that tables and plots show."""
    return sizes.loads[len(sizes.loads) // 2], sizes.sharings[len(sizes.sharings) // 2]


def _sheet(title: str, arms: Mapping[str, Sequence[Measured]], id_: str) -> Sheet:
    columns = [_cells(runs) for runs in arms.values()]
    rows = tuple((line, *cells) for line, cells in zip(LINES, zip(*columns, strict=True), strict=True))
    note = "A column is a vector: no line stands for another, and none is summed up with others."
    return Sheet(title, ("", *arms), rows, note, id=id_)


def _cells(runs: Sequence[Measured]) -> list[str]:
    goods = vector(runs)
    quality = np.concatenate([run.quality for run in runs])
    latencies = [
        quantile(runs, column, q)
        for column in ("ttft_seconds", "tpot_seconds", "end_to_end_seconds")
        for q in (0.5, 0.95, 0.99)
    ]
    return [
        f"{share_kept(runs):.1%}",
        f"{success(runs):.1%}",
        *(
            number(value)
            for value in (
                goods.tokens_per_joule,
                goods.tokens_per_gram,
                goods.tokens_per_liter,
                goods.tokens_per_currency,
                *latencies,
                float(np.nanmean(quality)) if np.isfinite(quality).any() else float("nan"),
            )
        ),
        f"{_mean(runs, 'hit_rate'):.1%}",
        f"{_mean(runs, 'utilisation'):.0%}",
        *(number(_mean(runs, name)) for name in ("watts", "input_tokens_per_second", "output_tokens_per_second")),
    ]


def _mean(runs: Sequence[Measured], name: str) -> float:
    return float(np.mean([getattr(run, name) for run in runs]))
