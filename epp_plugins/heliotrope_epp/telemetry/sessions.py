"""Metrics and the debug view of sessions: counts alone, nothing of who they are."""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.plugins.sessions.gate_file import GateState, LoadedGate
from heliotrope_epp.plugins.sessions.tracker import TrackerCounts


class SessionCollector(Collector):
    """Read when somebody scrapes."""

    def __init__(self, counts: Callable[[], TrackerCounts], gate: LoadedGate) -> None:
        self._counts = counts
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """All families."""
        counts = self._counts()
        yield GaugeMetricFamily("heliotrope_sessions", "Sessions remembered.", value=counts.sessions.sessions)
        yield GaugeMetricFamily(
            "heliotrope_session_capacity", "Sessions that can be remembered.", value=counts.sessions.capacity
        )
        evicted = CounterMetricFamily(
            "heliotrope_session_evictions", "Sessions forgotten, for silence or for room.", labels=["reason"]
        )
        for reason, count in counts.sessions.evicted_total.items():
            evicted.add_metric([reason], count)
        yield evicted
        named = CounterMetricFamily(
            "heliotrope_session_identities", "Requests by what named their session.", labels=["source"]
        )
        for source, count in counts.turns_total.items():
            named.add_metric([source], count)
        yield named
        yield CounterMetricFamily(
            "heliotrope_session_refused_names",
            "Names from clients that were too long or no visible ASCII, and were passed over.",
            value=counts.refused_names_total,
        )
        yield CounterMetricFamily(
            "heliotrope_session_forgotten_responses",
            "Response ids that were forgotten for room.",
            value=counts.forgotten_responses_total,
        )
        gate = GaugeMetricFamily("heliotrope_session_gate", "1 at the state of the gate's file.", labels=["state"])
        for state in GateState:
            gate.add_metric([state.value], state is self._gate.state)
        yield gate


def sessions_document(counts: TrackerCounts, gate: LoadedGate) -> dict[str, Any]:
    """For `/debug/state`."""
    return {
        "sessions": counts.sessions.sessions,
        "capacity": counts.sessions.capacity,
        "evicted_total": dict(counts.sessions.evicted_total),
        "identified_by_total": dict(counts.turns_total),
        "refused_names_total": counts.refused_names_total,
        "response_ids": counts.responses,
        "gate": {
            "state": gate.state.value,
            "digest": gate.gate.digest if gate.gate.on else None,
            "threshold": gate.gate.threshold if gate.gate.on else None,
            "validated_on_sessions": gate.gate.validated_on,
            "problem": gate.problem,
        },
    }
