"""The last decisions, for `/debug/decisions`: what a person asks when a request went somewhere unexpected."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from heliotrope.decide.explanation import VERSION
from heliotrope.units import joules_from_millijoules
from heliotrope.unknown import finite_or_none
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.scheduled import ScheduleResult


@dataclass(slots=True)
class _Entry:
    time_unix_s: float
    request: LlmRequest
    result: ScheduleResult
    asleep: tuple[str, ...]
    measured: tuple[FinishedRequest, RequestEnergy | None] | None = None


class DecisionLog:
    """Keeps the newest `capacity` results by request id, without prompts. They are rendered when somebody asks.

    It is a sink too: how a request went and what it drew is added while its decision is still here.
    """

    def __init__(self, capacity: int) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.capacity = capacity

    def add(self, now_unix_s: float, request: LlmRequest, result: ScheduleResult, asleep: tuple[str, ...] = ()) -> None:
        """Remember a result; a request id that comes again replaces the earlier one.

        `asleep` are endpoints that were no candidates because their engines sleep.
        """
        if self.capacity == 0:
            return
        self._entries.pop(request.request_id, None)
        self._entries[request.request_id] = _Entry(
            now_unix_s, replace(request, prompt=b"", cache_salt=""), result, asleep
        )
        if len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Remember how it went, unless its id has been used again since."""
        entry = self._entries.get(request.request_id)
        if entry is not None and entry.time_unix_s == request.dispatched_unix_s:
            entry.measured = (replace(request, features=None), energy)

    def metered(self, interval: MeteredInterval) -> None:
        """Nothing of a single request."""

    def get(self, request_id: str) -> dict[str, Any] | None:
        """One decision in full, None if it is not (or no longer) here."""
        entry = self._entries.get(request_id)
        return None if entry is None else _rendered(entry)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest decisions, newest first."""
        entries = list(self._entries.values())[-limit:] if limit > 0 else []
        return [_rendered(entry) for entry in reversed(entries)]


def _rendered(entry: _Entry) -> dict[str, Any]:
    request, result = entry.request, entry.result
    decision = result.decision
    return {
        "version": VERSION,
        "time_unix_s": entry.time_unix_s,
        "request_id": request.request_id,
        "model": request.model,
        "streaming": request.streaming,
        "held_seconds": request.held_seconds,
        "asleep": list(entry.asleep),
        "prompt_tokens": request.prompt_tokens,
        "expected_output_tokens": request.expected_output_tokens,
        "endpoint": _key(result.pick.options),
        "reason": result.pick.reason,
        "scheduling": result.explanation(),
        "carbon_decision": None if decision is None else decision.explanation(),
        "carbon_decision_enforced": result.enforced,
        "plan_comparison": None if result.comparison is None else result.comparison.document(),
        "measured": None if entry.measured is None else _measured(*entry.measured),
    }


def _measured(request: FinishedRequest, energy: RequestEnergy | None) -> dict[str, Any]:
    return {
        "status": request.status,
        "cause": request.cause.value,
        "ttft_seconds": request.ttft_seconds,
        "tpot_seconds": request.tpot_seconds,
        "broke_slo": request.broke_slo,
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": request.cached_tokens,
        "output_tokens": request.output_tokens,
        "energy": None
        if energy is None
        else {
            "joules": joules_from_millijoules(float(energy.millijoules)),
            "idle_joules": finite_or_none(energy.idle_joules),
            "host_joules": finite_or_none(energy.host_joules),
            "coverage": finite_or_none(energy.coverage),
            "start_unix_s": energy.start_unix_s,
            "end_unix_s": energy.end_unix_s,
        },
    }


def _key(options: tuple[Option, ...]) -> str | None:
    return options[0].key if options else None
