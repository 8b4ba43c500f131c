"""A study on a terminal: what each policy saves and keeps, and what its grams are grams of."""

from math import isnan

from rich.console import Console
from rich.table import Table

from heliotrope_sim.reproduce.report import number
from heliotrope_sim.scenario.statement import stated_regions, statement
from heliotrope_sim.scenario.study import Study
from heliotrope_sim.scenario.summary import Line, Summary, seed_words

PERCENT = 100.0
JOULES_PER_KILOJOULE = 1e3
MILLISECONDS = 1e3


def show(study: Study, summary: Summary, console: Console) -> None:
    """Print the comparison, the energy by line, where requests went, and what is stated about the grams."""
    for sheet in sheets(summary):
        table = Table(title=sheet[0], title_justify="left")
        for i, column in enumerate(sheet[1]):
            table.add_column(column, justify="right" if i >= len(summary.keys) + 1 else "left")
        for cells in sheet[2]:
            table.add_row(*cells)
        console.print(table)
    for line in (*seed_words(summary), *statement(study, summary)):
        console.print(line, style="dim", markup=False, highlight=False)


def sheets(summary: Summary) -> tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...]:
    """Title, columns and rows of each table; cells are text."""
    heads = (*summary.keys, "policy")
    compared = (
        *heads,
        f"CO2e against {summary.baseline}",
        "gCO2e",
        "kJ",
        "late or lost",
        "TTFT p50 s",
        "p95",
        "p99",
        "TPOT p50 ms",
        "p95",
        "p99",
    )
    lines = (*heads, *(f"{name} kJ" for name in summary.joule_lines), "total kJ")
    sites = (
        *heads,
        *(f"to {site}" for site in summary.sites),
        "refused",
        "nowhere",
        "solver fell back",
        "windows without CO2",
    )
    return (
        (summary.title, compared, tuple(_compared(line, summary) for line in summary.lines)),
        ("IT energy by line", lines, tuple(_energy(line, summary) for line in summary.lines)),
        ("Where requests went", sites, tuple(_sites(line, summary) for line in summary.lines)),
    )


def percent(share: float, *, signed: bool = False) -> str:
    """A share in percent; an en dash where it is unknown."""
    if isnan(share):
        return "–"
    return f"{share * PERCENT:+.1f} %" if signed else f"{share * PERCENT:.2f} %"


def _head(line: Line) -> tuple[str, ...]:
    return (*(str(value) for _, value in line.setting), line.policy)


def _compared(line: Line, summary: Summary) -> tuple[str, ...]:
    change = "baseline" if line.policy == summary.baseline else percent(-line.saving, signed=True)
    return (
        *_head(line),
        change,
        number(line.grams),
        number(line.joules["total"] / JOULES_PER_KILOJOULE),
        percent(line.violation),
        *(number(line.ttft_seconds[q]) for q in ("p50", "p95", "p99")),
        *(number(line.tpot_seconds[q] * MILLISECONDS) for q in ("p50", "p95", "p99")),
    )


def _energy(line: Line, summary: Summary) -> tuple[str, ...]:
    names = (*summary.joule_lines, "total")
    return (*_head(line), *(number(line.joules[name] / JOULES_PER_KILOJOULE) for name in names))


def _sites(line: Line, summary: Summary) -> tuple[str, ...]:
    return (
        *_head(line),
        *(percent(line.site_share[site]) for site in summary.sites),
        f"{line.endings['refused'] + line.endings['stranded']:g}",
        f"{line.endings['nowhere']:g}",
        f"{line.fell_back:g}",
        f"{line.without_carbon:g}",
    )


def plan(study: Study, console: Console) -> None:
    """What would run."""
    built = study.built
    table = Table(title=f"{study.scenario.name}: sites", title_justify="left")
    for name in ("site", "region", "engine", "engines", "batch", "schedulers near it"):
        table.add_column(name)
    for stated, site in zip(study.scenario.sites, built.topology.sites, strict=True):
        near = sum(scheduler.zone == site.zone for scheduler in built.topology.schedulers)
        cells = (site.name, stated.region, site.model.name, str(site.engines), str(site.capacity), str(near))
        table.add_row(*cells)
    console.print(table)
    requests, duration = len(built.workload), built.workload.duration_seconds
    for line in (
        f"{requests:,} requests in {duration:,.0f} s ({requests / max(duration, 1e-9):.1f}/s) at the first point.",
        f"Runs: {len(study.points)} of the sweep × {len(built.arms)} policies: "
        + ", ".join(f"{arm.name} ({arm.scheduler})" for arm in built.arms),
        *stated_regions(study),
        "Everything that was named could be read; nothing was run.",
    ):
        console.print(line, markup=False, highlight=False)
