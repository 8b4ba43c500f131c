"""Workloads: Poisson arrivals, recorded traces, days and nights of real regions."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import SECONDS_PER_HOUR, seconds_from_milliseconds
from heliotrope_sim.data import data_file
from heliotrope_sim.fleet.diurnal import HourlyRates
from heliotrope_sim.fleet.lengths import CNN_DAILYMAIL, Lengths
from heliotrope_sim.fleet.workload import RequestClass, Workload, workload
from heliotrope_sim.workload.conversations import BLOCK_TOKENS, ChainedRequest, load_chains, predecessors
from heliotrope_sim.workload.trace import load_azure, stretch

AZURE_FILES = {"conversation": "azure-llm-2023/conv_first_20min.csv", "code": "azure-llm-2023/code_first_8min.csv"}
MOONCAKE_FILE = "mooncake-fast25/conversation_chains.csv"


def poisson(
    rate_per_second: float,
    seconds: float,
    *,
    seed: int,
    schedulers: int = 1,
    lengths: Lengths = CNN_DAILYMAIL,
    classes: Sequence[RequestClass] = (RequestClass(),),
    class_shares: ArrayLike | None = None,
) -> Workload:
    """Poisson arrivals that go to the schedulers in turn (paper carbon-slo-tension, §V-A).

    Args:
        rate_per_second: mean over all schedulers.
        seconds: how long.
        seed: equal seeds give equal requests.
        schedulers: how many.
        lengths: of prompts and answers.
        classes: kinds of requests.
        class_shares: how many of each; by default equal shares.
    """
    _positive("poisson", rate_per_second=rate_per_second, seconds=seconds)
    random = np.random.default_rng(seed)
    count = int(random.poisson(rate_per_second * seconds))
    times = np.sort(random.uniform(0.0, seconds, count))
    return _complete(random, times, np.arange(count) % schedulers, lengths, classes, class_shares, seconds, "poisson")


def diurnal(
    rates: HourlyRates,
    requests: float,
    *,
    seed: int,
    start_hour: int = 0,
    hours: int = 24,
    lengths: Lengths = CNN_DAILYMAIL,
    classes: Sequence[RequestClass] = (RequestClass(),),
    class_shares: ArrayLike | None = None,
) -> Workload:
    """Poisson arrivals whose rate follows the hours of each region; column s of the rates arrives at scheduler s.

    Args:
        rates: the shape, `heliotrope_sim.fleet.diurnal.casper` for example.
        requests: how many in the mean, over all regions and hours: the shape's unit is left out of account.
        seed: equal seeds give equal requests.
        start_hour: row of the rates that the run starts with.
        hours: how many; rows are not repeated.
        lengths: of prompts and answers.
        classes: kinds of requests.
        class_shares: how many of each; by default equal shares.

    Raises:
        InvalidInputError: if the rates have fewer hours.
    """
    _positive("diurnal", requests=requests, hours=hours)
    shape = rates.per_hour[start_hour : start_hour + hours]
    if start_hour < 0 or len(shape) < hours:
        raise InvalidInputError("diurnal.hours", f"{hours} from {start_hour} on, there are {len(rates.per_hour)}")
    random = np.random.default_rng(seed)
    counts = random.poisson(shape * (requests / shape.sum()))
    hour = np.repeat(np.arange(hours), counts.sum(axis=1))
    origin = np.concatenate([np.repeat(np.arange(shape.shape[1]), row) for row in counts])
    times = (hour + random.uniform(0.0, 1.0, len(hour))) * SECONDS_PER_HOUR
    order = np.argsort(times, kind="stable")
    end = hours * SECONDS_PER_HOUR
    return _complete(random, times[order], origin[order], lengths, classes, class_shares, end, "diurnal")


def azure(
    kind: str = "conversation",
    *,
    rate_per_second: float | None = None,
    seconds: float | None = None,
    skip: int = 0,
    schedulers: int = 1,
    classes: Sequence[RequestClass] = (RequestClass(),),
    path: Path | None = None,
) -> Workload:
    """A stretch of the Azure LLM inference trace of 2023, or of a file of its shape.

    Args:
        kind: `conversation` or `code`.
        rate_per_second: scales time so that this is the mean rate; None: as recorded.
        seconds: with a rate, how long; without, the trace's length.
        skip: requests to leave out at the start.
        schedulers: requests go to them in turn.
        classes: the first one holds for all.
        path: another file.

    Raises:
        InvalidInputError: names file and line.
    """
    if path is None and kind not in AZURE_FILES:
        raise InvalidInputError("azure.kind", f"{kind!r} is none of {', '.join(AZURE_FILES)}")
    path = path or data_file(AZURE_FILES[kind])
    rows: Sequence[tuple[float, int, int]]
    trace = load_azure(path)[skip:]
    if not trace:
        raise InvalidInputError(path.name, f"holds no requests after {skip}")
    if rate_per_second is not None:
        length = seconds if seconds is not None else len(trace) / rate_per_second
        trace = tuple(stretch(trace, skip=0, rate_per_second=rate_per_second, seconds=length))
        end: float | None = length
    else:
        trace = tuple(r for r in trace if seconds is None or r.arrival_seconds - trace[0].arrival_seconds <= seconds)
        end = seconds
    rows = [(r.arrival_seconds - trace[0].arrival_seconds, r.prompt_tokens, r.output_tokens) for r in trace]
    times, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
    return workload(
        times,
        np.maximum(prompts, 1),
        np.maximum(outputs, 1),
        origin=np.arange(len(times)) % schedulers,
        classes=classes,
        duration_seconds=None if end is None else max(end, float(times[-1])),
        source=path.name,
    )


def mooncake(
    *,
    block_size: int = 16,
    speed: float = 1.0,
    requests: int | None = None,
    schedulers: int = 1,
    classes: Sequence[RequestClass] = (RequestClass(),),
    path: Path | None = None,
) -> Workload:
    """The Mooncake conversation trace with its sessions and the prefixes that its prompts have in common.

    A session stays with the scheduler that its first turn went to; sessions go to the schedulers in turn.

    Args:
        block_size: of the engines' KV blocks; divides the trace's blocks of 512 tokens.
        speed: as many times as fast as recorded.
        requests: the first so many; None: all.
        schedulers: how many.
        classes: the first one holds for all.
        path: another file of its shape.

    Raises:
        InvalidInputError: names file and line.
    """
    _positive("mooncake", speed=speed, block_size=block_size)
    if BLOCK_TOKENS % block_size:
        raise InvalidInputError("mooncake.block_size", f"must divide {BLOCK_TOKENS}, got {block_size}")
    path = path or data_file(MOONCAKE_FILE)
    rows = load_chains(path)[:requests]
    for number, (before, row) in enumerate(pairwise(rows), start=3):
        if row.timestamp_ms < before.timestamp_ms:
            raise InvalidInputError(f"{path.name}:{number}", f"{row.timestamp_ms} ms comes before the row above")
    session = np.arange(len(rows))
    for i, before_index in enumerate(predecessors(rows)):
        if before_index >= 0:
            session[i] = session[before_index]
    _, order = np.unique(session, return_inverse=True)
    return workload(
        seconds_from_milliseconds(np.array([row.timestamp_ms for row in rows], dtype=np.float64)) / speed,
        np.maximum([row.input_tokens for row in rows], 1),
        np.maximum([row.output_tokens for row in rows], 1),
        origin=order % schedulers,
        classes=classes,
        session=session,
        block_hashes=_block_hashes(rows, block_size),
        source=path.name,
    )


def _block_hashes(rows: Sequence[ChainedRequest], block_size: int) -> list[NDArray[np.int64]]:
    """Hashes of the full blocks of each prompt: equal up to what it shares with its parent, new ones after that."""
    per_block = BLOCK_TOKENS // block_size
    hashes: list[NDArray[np.int64]] = []
    fresh = 0
    for row in rows:
        full = row.input_tokens // block_size
        shared = hashes[row.parent][: min(row.shared_blocks * per_block, full)] if row.parent >= 0 else ()
        own = np.arange(fresh, fresh + full - len(shared), dtype=np.int64)
        fresh += len(own)
        hashes.append(np.concatenate([np.asarray(shared, dtype=np.int64), own]))
    return hashes


def _complete(
    random: np.random.Generator,
    times: NDArray[np.float64],
    origin: NDArray[np.int64],
    lengths: Lengths,
    classes: Sequence[RequestClass],
    class_shares: ArrayLike | None,
    seconds: float,
    source: str,
) -> Workload:
    """Lengths and classes for arrivals."""
    prompts, outputs = lengths.draw(random, len(times))
    kind: ArrayLike = 0
    if len(classes) > 1:
        shares = np.ones(len(classes)) if class_shares is None else np.asarray(class_shares, dtype=np.float64)
        if shares.shape != (len(classes),) or not (shares >= 0.0).all() or not shares.sum() > 0.0:
            raise InvalidInputError(f"{source}.class_shares", f"must be {len(classes)} numbers of 0 or more")
        kind = random.choice(len(classes), size=len(times), p=shares / shares.sum())
    return workload(
        times,
        prompts,
        outputs,
        origin=origin,
        class_index=kind,
        classes=classes,
        duration_seconds=seconds,
        source=source,
    )


def _positive(source: str, **values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise InvalidInputError(f"{source}.{name}", f"must be above 0, got {value}")
