"""The newest windows and where their requests went, for `/debug/windows` and `/debug/decisions`. Never a prompt."""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliotrope.place.regions import Regions
from heliotrope.place.window import NO_HOME
from heliotrope.unknown import finite_or_none
from heliotrope_epp.region.decided import Decided
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.tracing.placement import Placement

VERSION = 1
MAX_REQUESTS = 2_000


@dataclass(frozen=True, slots=True)
class _Entry:
    waiting: Mapping[str, Any]
    placement: Placement
    time_unix_s: float


class WindowLog:
    """Keeps numbers of the newest windows and requests; bounded."""

    def __init__(self, capacity: int) -> None:
        self._windows: deque[dict[str, Any]] = deque(maxlen=capacity)
        self._requests: OrderedDict[str, _Entry] = OrderedDict()
        self.kept = MAX_REQUESTS if capacity else 0

    def add(self, decided: Decided) -> None:
        """Remember a window; a request id that comes again replaces the earlier one."""
        if not self.kept:
            return
        self._windows.append(_window(decided))
        for waiting, placement in zip(decided.prepared.batch, decided.placements, strict=True):
            name = waiting.llm.request_id
            self._requests.pop(name, None)
            self._requests[name] = _Entry(_request(waiting), placement, decided.prepared.now_unix_s)
        while len(self._requests) > self.kept:
            self._requests.popitem(last=False)

    def windows(self) -> list[dict[str, Any]]:
        """Newest first."""
        return list(reversed(self._windows))

    def get(self, request_id: str) -> dict[str, Any] | None:
        """One request; None if it is not, or no longer, here."""
        entry = self._requests.get(request_id)
        return None if entry is None else _decision(entry)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest requests, newest first."""
        entries = list(self._requests.values())[-limit:] if limit > 0 else []
        return [_decision(entry) for entry in reversed(entries)]


def _request(waiting: Waiting) -> Mapping[str, Any]:
    llm = waiting.llm
    return {
        "request_id": llm.request_id,
        "model": llm.model,
        "prompt_tokens": llm.prompt_tokens,
        "expected_output_tokens": finite_or_none(llm.expected_output_tokens),
        "held_seconds": waiting.held_s,
        "deadline_unix_s": waiting.deadline_unix_s,
    }


def _decision(entry: _Entry) -> dict[str, Any]:
    p = entry.placement
    return {
        "version": VERSION,
        "tier": "region",
        "time_unix_s": entry.time_unix_s,
        **entry.waiting,
        "region": p.region,
        "reason": p.reason,
        "session": p.session,
        "scheduler": p.scheduler,
        "outcome": p.outcome,
        "fallback": p.fallback,
        "window": p.window,
        "window_requests": p.window_requests,
        "window_seconds": p.window_seconds,
        "solver_seconds": p.solver_seconds,
        "gap": finite_or_none(p.gap),
        "state_age_seconds": finite_or_none(p.state_age_seconds),
        "carbon_counts": p.carbon_counts,
    }


def _window(decided: Decided) -> dict[str, Any]:
    prepared, assignment = decided.prepared, decided.assignment
    regions = prepared.regions
    return {
        "window": prepared.number,
        "time_unix_s": prepared.now_unix_s,
        "requests": len(prepared.batch),
        "sessions_at_home": int((prepared.window.home != NO_HOME).sum()),
        "scheduler": decided.scheduler,
        "outcome": assignment.outcome.value,
        "fallback": decided.fallback,
        "blind": prepared.blind,
        "solver_seconds": decided.solver_seconds,
        "gap": finite_or_none(assignment.gap),
        "objective": finite_or_none(assignment.objective),
        "carbon_counts": assignment.carbon_counts,
        "policy": None if prepared.resources.policy is None else prepared.resources.policy.name,
        "nowhere": int((np.asarray(decided.places) < 0).sum()),
        "regions": [_region(regions, i, decided) for i in range(len(regions))],
    }


def _region(regions: Regions, i: int, decided: Decided) -> dict[str, Any]:
    """As the window saw it: the last state with own dispatches projected on it."""
    columns = (
        "engines",
        "batch_capacity",
        "running",
        "waiting",
        "waiting_tokens",
        "kv_tokens",
        "prefill_duty",
        "idle_engines",
        "intensity_g_per_kwh",
        "pue",
        "rtt_seconds",
        "age_seconds",
        "largest_share",
        "recent_share",
    )
    return {
        "region": regions.names[i],
        "requests": int((decided.places == i).sum()),
        "advised": None if decided.advised is None else int((decided.advised == i).sum()),
        **{name: finite_or_none(float(getattr(regions, name)[i])) for name in columns},
    }
