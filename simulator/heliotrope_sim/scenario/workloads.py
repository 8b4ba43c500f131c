"""The requests of a scenario."""

from dataclasses import replace

import numpy as np

from heliotrope.errors import InvalidInputError
from heliotrope_sim.fleet import arrivals, lengths
from heliotrope_sim.fleet import workload as fleet
from heliotrope_sim.fleet.diurnal import HourlyRates, casper
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.requests import Azure, Dataset, Diurnal, Expected, Lengths, Mooncake, Poisson, Trace
from heliotrope_sim.scenario.rows import read_rows
from heliotrope_sim.scenario.traces import block_size, of_rows, words

_DATASETS = {
    Dataset.CNN_DAILYMAIL: lengths.CNN_DAILYMAIL,
    Dataset.OPEN_ORCA: lengths.OPEN_ORCA,
    Dataset.LONG_PROMPTS: lengths.LONG_PROMPTS,
    Dataset.MIXED_PROMPTS: lengths.MIXED_PROMPTS,
}
QUICK_SHARE = 0.1
"""Of the time of a workload, in a quick run."""

Stated = Poisson | Diurnal | Azure | Mooncake | Trace


def workload(
    stated: Stated,
    classes: tuple[fleet.RequestClass, ...],
    topology: Topology,
    scheduler_regions: tuple[str, ...],
    files: Files,
    seed: int,
) -> fleet.Workload:
    """The requests, in order of arrival.

    Args:
        stated: what the scenario says.
        classes: of requests, in the order in which it has them.
        topology: whose schedulers they arrive at.
        scheduler_regions: the region of each scheduler.
        files: that it names.
        seed: of everything that is drawn.

    Raises:
        InvalidInputError: names the key, or file and line.
    """
    count = len(scheduler_regions)
    shares = [each.share for each in stated.classes] if stated.classes else None
    match stated:
        case Poisson():
            made = arrivals.poisson(
                stated.rate_per_second,
                stated.duration_seconds,
                seed=seed,
                schedulers=count,
                lengths=_lengths(stated.lengths),
                classes=classes,
                class_shares=shares,
            )
        case Diurnal():
            made = arrivals.diurnal(
                _rates(stated, scheduler_regions, files),
                stated.requests,
                seed=seed,
                start_hour=stated.start_hour,
                hours=stated.hours,
                lengths=_lengths(stated.lengths),
                classes=classes,
                class_shares=shares,
            )
        case Azure():
            made = _drawn_classes(_azure(stated, classes, count, files), shares, seed)
        case Mooncake():
            made = _drawn_classes(_mooncake(stated, classes, count, block_size(topology), files), shares, seed)
        case Trace():
            rows = read_rows(
                files.read(stated.file), stated.file, most=stated.requests, longest_gap_s=stated.longest_gap_seconds
            )
            made = of_rows(rows, stated, classes, scheduler_regions, topology)
    if stated.expected_output is Expected.MEAN:
        made = made.expecting(np.full(len(made), made.output_tokens.mean()))
    elif stated.expected_output is Expected.UNKNOWN:
        made = made.expecting(np.full(len(made), np.nan))
    return made


def first_part(whole: fleet.Workload, share: float) -> fleet.Workload:
    """The requests of the first share of the time, at least one."""
    end_ns = round(whole.duration_ns * share)
    n = max(int(np.searchsorted(whole.arrival_ns, end_ns, side="right")), 1)
    offsets = whole.block_offsets[: n + 1]
    return replace(
        whole,
        **{
            name: getattr(whole, name)[:n]
            for name in (
                "arrival_ns",
                "prompt_tokens",
                "output_tokens",
                "expected_output_tokens",
                "origin",
                "class_index",
                "session",
            )
        },
        block_offsets=offsets,
        block_hashes=whole.block_hashes[: offsets[-1]],
        duration_ns=max(end_ns, int(whole.arrival_ns[n - 1])),
    )


def _lengths(stated: Lengths) -> lengths.Lengths:
    if stated.dataset is not None:
        return _DATASETS[stated.dataset]
    assert stated.mean_prompt_tokens is not None
    assert stated.mean_output_tokens is not None
    return lengths.Lengths(
        stated.mean_prompt_tokens,
        stated.mean_output_tokens,
        stated.prompt_variation,
        stated.output_variation,
        stated.most_prompt_tokens,
        stated.most_output_tokens,
    )


def _rates(stated: Diurnal, scheduler_regions: tuple[str, ...], files: Files) -> HourlyRates:
    """One column per scheduler; those of one region share its column evenly."""
    unknown = [region for region in stated.columns if region not in scheduler_regions]
    if unknown:
        raise InvalidInputError(
            "workload.columns",
            f"no scheduler is in {', '.join(unknown)}; there are some in {words(scheduler_regions)}",
        )
    if stated.file is None:
        shape = casper()
    else:
        with files.on_disk(stated.file) as path:
            shape = casper(path)
    missing = [column for column in stated.columns.values() if column not in shape.regions]
    if missing:
        raise InvalidInputError("workload.columns", f"{missing[0]!r} is none of the columns {words(shape.regions)}")
    per_hour = np.zeros((len(shape.per_hour), len(scheduler_regions)))
    for i, region in enumerate(scheduler_regions):
        if region in stated.columns:
            column = shape.per_hour[:, shape.regions.index(stated.columns[region])]
            per_hour[:, i] = column / scheduler_regions.count(region)
    return HourlyRates(scheduler_regions, shape.start_unix_s, per_hour)


def _azure(stated: Azure, classes: tuple[fleet.RequestClass, ...], count: int, files: Files) -> fleet.Workload:
    def load(path: object = None) -> fleet.Workload:
        return arrivals.azure(
            stated.trace,
            rate_per_second=stated.rate_per_second,
            seconds=stated.duration_seconds,
            skip=stated.skip,
            schedulers=count,
            classes=classes,
            path=path,  # type: ignore[arg-type]
        )

    if stated.file is None:
        return load()
    with files.on_disk(stated.file) as path:
        return load(path)


def _mooncake(
    stated: Mooncake, classes: tuple[fleet.RequestClass, ...], count: int, block_size: int, files: Files
) -> fleet.Workload:
    def load(path: object = None) -> fleet.Workload:
        return arrivals.mooncake(
            block_size=block_size,
            speed=stated.speed,
            requests=stated.requests,
            schedulers=count,
            classes=classes,
            path=path,  # type: ignore[arg-type]
        )

    if stated.file is None:
        return load()
    with files.on_disk(stated.file) as path:
        return load(path)


def _drawn_classes(made: fleet.Workload, shares: list[float] | None, seed: int) -> fleet.Workload:
    if shares is None or len(shares) < 2:
        return made
    weights = np.asarray(shares)
    if not weights.sum() > 0.0:
        raise InvalidInputError("workload.classes", "at least one class needs a share above 0")
    drawn = np.random.default_rng(seed).choice(len(shares), size=len(made), p=weights / weights.sum())
    return replace(made, class_index=drawn.astype(np.int32))
