"""What every gram of a study is a gram of: signal, source, estimated or not, PUE and boundary."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from heliotrope.carbon.series import Series
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.scenario.grids import Grid
from heliotrope_sim.scenario.study import Study
from heliotrope_sim.scenario.summary import Summary

BOUNDARY = "operational: accelerators and hosts of all sites, from the start of the run to the last answer, times PUE"
LEFT_OUT = "embodied carbon, networks, clients and the schedulers themselves"
BASIS = "modelled: every figure is simulated, none is measured"


@dataclass(frozen=True, slots=True)
class Stated:
    """Of one region that has sites."""

    name: str
    source: str
    kind: str
    """Signal type and emission factor; of nothing where no intensity is known."""
    estimated: float | None
    """Share of the values in the run that the source estimated; None: it does not say."""
    intensity_g_per_kwh: float | None
    """Mean while requests arrive; None: unknown at some time."""
    pue: float


def stated(study: Study) -> tuple[Stated, ...]:
    """Of every region with sites."""
    used = {site.region for site in study.scenario.sites}
    start = study.scenario.start.timestamp()
    end = start + float(seconds(study.built.workload.duration_ns))
    return tuple(_of(grid, start, end) for grid in study.built.grids if grid.name in used)


def stated_regions(study: Study) -> tuple[str, ...]:
    """A line per region."""
    lines = []
    for each in stated(study):
        mean = "unknown" if each.intensity_g_per_kwh is None else f"{each.intensity_g_per_kwh:.1f} g/kWh"
        how = "not said" if each.estimated is None else f"{each.estimated:.0%}"
        lines.append(f"{each.name}: {each.kind}, mean {mean}, from {each.source}, estimated {how}; PUE {each.pue:g}")
    return tuple(lines)


def statement(study: Study, summary: Summary) -> tuple[str, ...]:
    """In sentences."""
    lines = list(stated_regions(study))
    promises = "; ".join(
        f"{c.name}: TTFT {c.ttft_slo_seconds:g} s, TPOT {c.tpot_slo_seconds:g} s" for c in study.built.judged
    )
    lines.append(f"Grams are {BOUNDARY}; without {LEFT_OUT}. They are {BASIS}.")
    lines.append(f"Late or lost: {promises}; not served counts as late.")
    if summary.keys:
        lines.append("Regions and promises are stated as at the first point of the sweep.")
    lines += [note for arm in study.built.arms for note in arm.notes]
    return tuple(lines)


def _of(grid: Grid, start: float, end: float) -> Stated:
    mean = None if grid.carbon is None else grid.carbon.average(start, end)
    return Stated(
        name=grid.name,
        source=grid.source,
        kind="no intensity" if grid.carbon is None else f"{grid.signal_type} {grid.emission_factor}",
        estimated=None if grid.carbon is None else _estimated(grid.carbon, start, end),
        intensity_g_per_kwh=mean,
        pue=grid.pue,
    )


def _estimated(series: Series, start: float, end: float) -> float | None:
    first = max(bisect_right(series.times_unix_s, start) - 1, 0)
    flags = series.estimated[first : max(bisect_left(series.times_unix_s, end), first + 1)]
    if not flags or any(flag is None for flag in flags):
        return None
    return sum(bool(flag) for flag in flags) / len(flags)
