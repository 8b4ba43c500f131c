"""What a run leaves behind, as results."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heliotrope.place.assignment import NOWHERE
from heliotrope_sim.engine.fixed_point import joules, seconds
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.accounts import Accounts
from heliotrope_sim.fleet.machines import Machines
from heliotrope_sim.fleet.results import UNKNOWN_NS, Decisions, Ending, Line, Results
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.topology import Topology

Int64 = NDArray[np.int64]
DECISION_COLUMNS = (np.int32, np.int64, np.int64, np.int32, np.int64, np.float64, np.bool_, np.bool_)
"""Of `Decisions`, in its order."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where requests were sent and when; columns are written during the run."""

    site: Int64
    reason: NDArray[np.int32]
    closed_ns: Int64
    sent_ns: Int64
    decisions: list[tuple[int, int, int, int, int, float, bool, bool]] = field(default_factory=list)
    """Rows of `Decisions`."""

    @classmethod
    def none(cls, count: int) -> "Placed":
        """Nothing is decided."""
        return cls(
            site=np.full(count, NOWHERE, dtype=np.int64),
            reason=np.full(count, -1, dtype=np.int32),
            closed_ns=np.full(count, UNKNOWN_NS, dtype=np.int64),
            sent_ns=np.full(count, UNKNOWN_NS, dtype=np.int64),
        )


def collect(
    machines: Machines, accounts: Accounts, placed: Placed, one_way_ns: Int64, settings: RunSettings
) -> Results:
    """The results of a run whose last interval is closed; half round trips are by scheduler and site."""
    workload, table = machines.workload, machines.fleet.requests
    n = len(workload)
    main = table[:n]
    drawn, queued_ns, cached, ending = (
        main[:, column].copy() for column in (layout.DRAWN, layout.QUEUED, layout.CACHED, layout.ENDING)
    )
    ends_ns = np.array(accounts.ends_ns, dtype=np.int64)
    energy = accounts.energy_joules()
    if len(table) > n:
        prefill = table[n:]
        apart = prefill[:, layout.QUEUED] >= 0
        drawn += prefill[:, layout.DRAWN] + machines.transfer_picojoules
        queued_ns[apart] = prefill[apart, layout.QUEUED]
        cached[apart] = prefill[apart, layout.CACHED]
        ending = np.maximum(ending, prefill[:, layout.ENDING])
        _add_transfers(energy, ends_ns, main[:, layout.QUEUED], placed.site, machines.transfer_picojoules)
    ending[placed.site == NOWHERE] = Ending.NOWHERE
    ending[(main[:, layout.FINISHED] < 0) & (ending == Ending.SERVED)] = Ending.STRANDED
    columns = list(zip(*placed.decisions, strict=True)) or [()] * len(DECISION_COLUMNS)
    return Results(
        topology=machines.topology,
        workload=workload,
        ending=ending.astype(np.int32),
        site=placed.site.astype(np.int32),
        engine=main[:, layout.ENGINE].astype(np.int32),
        reason=placed.reason,
        window_ns=np.where(placed.closed_ns >= 0, placed.closed_ns - workload.arrival_ns, UNKNOWN_NS),
        sent_ns=placed.sent_ns,
        queued_ns=queued_ns,
        first_token_ns=main[:, layout.FIRST_TOKEN].copy(),
        finished_ns=main[:, layout.FINISHED].copy(),
        return_ns=one_way_ns[workload.origin, np.maximum(placed.site, 0)],
        cached_tokens=cached.astype(np.int32),
        preemptions=main[:, layout.PREEMPTIONS].astype(np.int32),
        picojoules=drawn,
        interval_end_ns=ends_ns,
        energy_joules=energy,
        intensity_g_per_kwh=_intensities(machines.topology, settings.start_unix_s, ends_ns),
        awake_engine_seconds=accounts.awake_seconds(),
        busy_engine_seconds=accounts.busy_seconds(),
        decisions=Decisions(*(np.array(c, dtype=kind) for c, kind in zip(columns, DECISION_COLUMNS, strict=True))),
    )


def _add_transfers(
    energy: NDArray[np.float64], ends_ns: Int64, moved_ns: Int64, site: Int64, picojoules: Int64
) -> None:
    """Count what transfers drew in the interval in which the KV was there."""
    moved = np.flatnonzero(moved_ns >= 0)
    interval = np.minimum(np.searchsorted(ends_ns, moved_ns[moved], side="right"), len(ends_ns) - 1)
    drawn = np.asarray(joules(picojoules[moved]))  # type: ignore[arg-type]
    np.add.at(energy, (interval, site[moved], np.full(len(moved), Line.TRANSFER)), drawn)


def _intensities(topology: Topology, start_unix_s: float, ends_ns: Int64) -> NDArray[np.float64]:
    """Mean over each interval and site; NaN where a series does not cover it."""
    table = np.full((len(ends_ns), len(topology.sites)), np.nan)
    for s, site in enumerate(topology.sites):
        begin_s = start_unix_s
        for i, end_ns in enumerate(ends_ns.tolist()):
            end_s = start_unix_s + seconds(end_ns)
            mean = None if site.carbon is None else site.carbon.average(begin_s, end_s)
            if mean is not None:
                table[i, s] = mean
            begin_s = end_s
    return table
