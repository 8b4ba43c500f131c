"""Metrics of policies that were not followed: what they would have done, and what both plans were estimated to take."""

from math import isfinite

from prometheus_client import CollectorRegistry, Counter

from heliotrope.decide.compared import Comparison

NONE = "none"
_SAME = {True: "same", False: "another", None: NONE}


class AdviceCounters:
    """Whole plans of requests under `Advise` and of held-out ones. Labels are of few values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._plans = Counter(
            "heliotrope_advised_plans",
            "Requests whose policy was not followed, by arm, by the placement and KV action that it would have chosen "
            "and by whether what was done is the same plan (none: one of both is missing).",
            ["arm", "placement", "action", "plan"],
            registry=registry,
        )
        self._joules = Counter(
            "heliotrope_compared_joules",
            "Estimated IT energy of requests whose policy was not followed, of what was done (ran) and of what the "
            "policy would have done (advised), where both are known. The difference is the modelled saving.",
            ["arm", "plan"],
            registry=registry,
        )
        self._grams = Counter(
            "heliotrope_compared_grams_co2e",
            "Estimated emissions of the same, where both are known and from signals of one type.",
            ["arm", "plan"],
            registry=registry,
        )

    def compared(self, comparison: Comparison, arm: str) -> None:
        """A request was scheduled without following its policy."""
        ran, advised = comparison.ran, comparison.advised
        if advised is None:
            self._plans.labels(arm, NONE, NONE, NONE).inc()
            return
        placement = "disaggregated" if advised.disaggregated else "aggregated"
        self._plans.labels(arm, placement, advised.kv_action.value, _SAME[comparison.same]).inc()
        if ran is None:
            return
        for counter, column in ((self._joules, "energy_joules"), (self._grams, "grams_co2e")):
            if isfinite(comparison.saved(column)):
                counter.labels(arm, "ran").inc(max(ran.value(column), 0.0))
                counter.labels(arm, "advised").inc(max(advised.value(column), 0.0))
