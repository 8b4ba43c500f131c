"""The last decisions, for `/debug/decisions`: what a person asks when a request went somewhere unexpected."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.pipeline import ScheduleResult


class DecisionLog:
    """Keeps the newest `capacity` results by request id, without prompts. They are rendered when somebody asks."""

    def __init__(self, capacity: int) -> None:
        self._results: OrderedDict[str, tuple[float, LlmRequest, ScheduleResult]] = OrderedDict()
        self._capacity = capacity

    def add(self, now_unix_s: float, request: LlmRequest, result: ScheduleResult) -> None:
        """Remember a result; a request id that comes again replaces the earlier one."""
        if self._capacity == 0:
            return
        self._results.pop(request.request_id, None)
        self._results[request.request_id] = (now_unix_s, replace(request, prompt=b"", cache_salt=""), result)
        if len(self._results) > self._capacity:
            self._results.popitem(last=False)

    def get(self, request_id: str) -> dict[str, Any] | None:
        """One decision in full, None if it is not (or no longer) here."""
        entry = self._results.get(request_id)
        return None if entry is None else _rendered(*entry)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest decisions, newest first."""
        entries = list(self._results.values())[-limit:] if limit > 0 else []
        return [_rendered(*entry) for entry in reversed(entries)]


def _rendered(now_unix_s: float, request: LlmRequest, result: ScheduleResult) -> dict[str, Any]:
    decision = result.decision
    return {
        "time_unix_s": now_unix_s,
        "request_id": request.request_id,
        "model": request.model,
        "streaming": request.streaming,
        "prompt_tokens": request.prompt_tokens,
        "expected_output_tokens": request.expected_output_tokens,
        "endpoint": _key(result.pick.options),
        "reason": result.pick.reason,
        "carbon_decision": None if decision is None else decision.explanation(),
        "carbon_decision_enforced": result.enforced,
    }


def _key(options: tuple[Option, ...]) -> str | None:
    return options[0].key if options else None
