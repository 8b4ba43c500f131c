"""The live table in the terminal, and the closing comparison."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from heliotrope.units import milliseconds_from_seconds
from heliotrope_sim.demo.arm import ArmState
from heliotrope_sim.demo.scenario import Scenario


def live_table(state: ArmState, scenario: Scenario, now_s: float) -> Table:
    """One row per region, as of now."""
    elapsed = min(max(now_s - state.start_s, 0.0), scenario.horizon_seconds)
    table = Table(
        title=f"{state.arm.title}: {elapsed:.0f} of {scenario.horizon_seconds:.0f} s, "
        f"{len(state.results)} of {state.planned} requests answered"
    )
    columns = ("region", "gCO2e/kWh", "in flight", "answered", "TTFT p50", "TPOT p50", "kJ", "gCO2e")
    for column in columns:
        table.add_column(column, justify="left" if column == "region" else "right")
    energy = state.energy(scenario)
    answered = Counter(state.region_of(r) for r in state.results)
    for region in scenario.regions:
        point = state.intensity[region.name].at(now_s + state.unix_offset_s)
        engines = [e.name for e in state.engines if e.region == region.name]
        last = [state.meter.samples[name][-1] for name in engines if state.meter.samples[name]]
        mine = [r for r in state.results if state.region_of(r) == region.name]
        table.add_row(
            region.name,
            "–" if point is None else f"{point.intensity_g_per_kwh:.0f}",
            f"{sum(s.running + s.waiting for s in last):.0f}",
            str(answered[region.name]),
            _median_ms([r.ttft_seconds for r in mine if r.ttft_seconds is not None]),
            _median_ms([r.tpot_seconds for r in mine if r.tpot_seconds is not None]),
            f"{energy[region.name].joules / 1000:.0f}",
            f"{energy[region.name].grams_co2e:.1f}",
        )
    return table


def comparison_table(result: dict[str, Any]) -> Table:
    """Both arms side by side."""
    base, ours = result["arms"]["round_robin"], result["arms"]["heliotrope"]
    table = Table(title="Round robin and Heliotrope on the same arrivals")
    for column in ("", "round robin", "Heliotrope", "ratio"):
        table.add_column(column, justify="left" if column == "" else "right")
    rows = (
        ("requests", "requests", "{:d}"),
        ("failed", "failed", "{:d}"),
        ("SLO violations", "slo_violations", "{:d}"),
        ("energy, kJ", "joules", "{:.0f}"),
        ("emissions, gCO2e", "grams_co2e", "{:.2f}"),
        ("TTFT p50, ms", "ttft_p50_ms", "{:.0f}"),
        ("TTFT p95, ms", "ttft_p95_ms", "{:.0f}"),
        ("TPOT p95, ms", "tpot_p95_ms", "{:.1f}"),
        ("prompt tokens found in caches", "cache_hit_share", "{:.0%}"),
        ("history computed again, tokens", "recomputed_prompt_tokens", "{:d}"),
    )
    for title, key, form in rows:
        scale = 1000 if key == "joules" else 1
        cells = [
            "–" if arm[key] is None else form.format(arm[key] / scale if scale > 1 else arm[key])
            for arm in (base, ours)
        ]
        ratio = f"{ours[key] / base[key]:.2f}" if isinstance(base[key], float) and base[key] and ours[key] else ""
        table.add_row(title, *cells, ratio)
    return table


def levers_table(ablations: Mapping[str, Any]) -> Table:
    """What is lost without each lever."""
    table = Table(
        title="What each lever is worth: gCO2e lost without it, also as a share of the saving; prompt tokens found in "
        "caches and computed again",
        caption=ablations["caveat"],
    )
    columns = ("without", "g lost", "share", "kJ lost", "hits", "recomputed", "SLO broken")
    for column in columns:
        table.add_column(column, justify="left" if column == "without" else "right")
    for entry in lever_entries(ablations):
        share, hits = entry["share_of_grams_saved"], entry["cache_hit_share"]
        table.add_row(
            entry["title"],
            f"{entry['grams_lost']:+.1f}",
            "–" if share is None else f"{share:+.0%}",
            f"{entry['joules_lost'] / 1000:+.0f}",
            "–" if hits is None else f"{hits:.0%}",
            f"{entry['recomputed_prompt_tokens']:,}",
            str(entry["slo_violations"]),
        )
    return table


def lever_entries(ablations: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The levers' arms, and the second run of the whole policy last."""
    again = ablations["run_to_run"]
    return [*ablations["levers"].values(), *([] if again is None else [again["second_run"]])]


def _median_ms(seconds: list[float]) -> str:
    return f"{milliseconds_from_seconds(float(np.median(seconds))):.0f} ms" if seconds else "–"
