"""The rows of a user's own trace as requests."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope_sim.fleet import workload as fleet
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.scenario.requests import Trace
from heliotrope_sim.scenario.rows import Row


def of_rows(
    rows: tuple[Row, ...],
    stated: Trace,
    classes: tuple[fleet.RequestClass, ...],
    scheduler_regions: tuple[str, ...],
    topology: Topology,
) -> fleet.Workload:
    """Requests from rows; times count from the first one.

    Raises:
        InvalidInputError: names file and line of a class or region that does not exist.
    """
    first = rows[0].arrival_s
    sessions = {name: i for i, name in enumerate(dict.fromkeys(r.session for r in rows if r.session is not None))}
    return fleet.workload(
        [(row.arrival_s - first) / stated.speed for row in rows],
        [row.prompt_tokens for row in rows],
        [row.output_tokens for row in rows],
        origin=_origins(rows, sessions, stated.file, scheduler_regions),
        class_index=_class_indices(rows, stated, classes),
        classes=classes,
        session=[fleet.NO_SESSION if row.session is None else sessions[row.session] for row in rows],
        block_hashes=_block_hashes(rows, stated, topology),
        source=stated.file,
    )


def _origins(
    rows: tuple[Row, ...], sessions: dict[str, int], file: str, scheduler_regions: tuple[str, ...]
) -> NDArray[np.int64]:
    """In turn over the schedulers of a row's region, or over all; a session's turns at the same one."""
    near: dict[str | None, list[int]] = {None: list(range(len(scheduler_regions)))}
    for i, region in enumerate(scheduler_regions):
        near.setdefault(region, []).append(i)
    origins = np.empty(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        if row.region not in near:
            raise InvalidInputError(
                f"{file}:{row.line}",
                f"no scheduler is in region {row.region!r}; there are some in {words(scheduler_regions)}",
            )
        choices = near[row.region]
        origins[i] = choices[(i if row.session is None else sessions[row.session]) % len(choices)]
    return origins


def _class_indices(rows: tuple[Row, ...], stated: Trace, classes: tuple[fleet.RequestClass, ...]) -> NDArray[np.int64]:
    index = {each.name: i for i, each in enumerate(classes)}
    found = np.zeros(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        if row.request_class is None:
            continue
        if not stated.classes or row.request_class not in index:
            known = ", ".join(each.name for each in stated.classes) or "none"
            raise InvalidInputError(
                f"{stated.file}:{row.line}", f"class {row.request_class!r} is none of workload.classes: {known}"
            )
        found[i] = index[row.request_class]
    return found


def _block_hashes(rows: tuple[Row, ...], stated: Trace, topology: Topology) -> list[NDArray[np.int64]] | None:
    """Ids of longer blocks as ids of the engines' blocks."""
    if not any(row.block_ids for row in rows):
        return None
    size = block_size(topology)
    tokens = size if stated.block_tokens is None else stated.block_tokens
    if tokens % size:
        raise InvalidInputError("workload.block_tokens", f"must be a multiple of the engines' block of {size} tokens")
    per = tokens // size
    inner = np.arange(per, dtype=np.int64)
    return [
        (np.asarray(row.block_ids, dtype=np.int64)[:, None] * per + inner).ravel()[: row.prompt_tokens // size]
        for row in rows
    ]


def block_size(topology: Topology) -> int:
    """Tokens of a KV block, the same for all engines.

    Raises:
        InvalidInputError: if engines differ in it.
    """
    sizes = {site.model.block_size for site in topology.sites}
    if len(sizes) > 1:
        raise InvalidInputError("sites", f"shared prefixes need engines of one block size; there are {sorted(sizes)}")
    return sizes.pop()


def words(names: tuple[str, ...]) -> str:
    """Each once."""
    return ", ".join(dict.fromkeys(names))
