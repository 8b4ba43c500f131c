"""How far engines are from their models, learned from the latencies that they show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp, log

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.api.v1alpha1.common import Role
from heliotrope.engine.model import EngineModel
from heliotrope.scale.facts import Mix
from heliotrope.scale.throughput import Correction, Promise, correction_of, latency
from heliotrope_operator.resources import Key

WEIGHT = 0.1
"""Of the newest measurement: ten decisions are averaged over."""
LEAST_REQUESTS_PER_SECOND = 0.05
"""Of a replica: with fewer, a single request would be the mean."""
STEP = 1.1
"""Corrections that differ by less than this factor count as alike."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a variant's engines showed; None: unknown."""

    requests_per_second: float | None
    """Of one of them."""
    ttft_seconds: float | None
    tpot_seconds: float | None


class Corrections:
    """The correction of each variant, as logarithms of its factors."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[float, float]] = {}

    def learn(self, variant: Key, engine: EngineModel, role: Role, mix: Mix, measured: Measured) -> None:
        """Compare a measurement with what the model says at its load. One that is unknown changes nothing."""
        rate = measured.requests_per_second
        if rate is None or rate < LEAST_REQUESTS_PER_SECOND:
            return
        expected = latency(engine, mix, rate, 1.0, role)
        if not expected.stable:
            return  # engines in a queue without end say nothing of their speed
        seen = Promise(measured.ttft_seconds or 0.0, measured.tpot_seconds or 0.0)
        found = correction_of(Promise(expected.ttft_seconds, expected.tpot_seconds), seen)
        prefill, decode = self._known.get(variant, (0.0, 0.0))
        self._known[variant] = (
            prefill + (WEIGHT * (log(found.prefill) - prefill) if measured.ttft_seconds else 0.0),
            decode + (WEIGHT * (log(found.decode) - decode) if measured.tpot_seconds else 0.0),
        )

    def of(self, variant: Key) -> Correction:
        """What times are to be multiplied by, in whole steps."""
        prefill, decode = self._known.get(variant, (0.0, 0.0))
        return Correction(_rounded(prefill), _rounded(decode))

    def keep(self, variants: Iterable[Key]) -> None:
        """Forget every variant but these."""
        kept = set(variants)
        for gone in self._known.keys() - kept:
            del self._known[gone]

    def known(self) -> dict[Key, Correction]:
        """All of them."""
        return {key: self.of(key) for key in list(self._known)}


def _rounded(logarithm: float) -> float:
    return exp(round(logarithm / log(STEP)) * log(STEP))


class CorrectionCollector(Collector):
    """The corrections as a metric: 1 where an engine is as its model says."""

    def __init__(self, corrections: Corrections) -> None:
        self._corrections = corrections

    def collect(self) -> Iterator[Metric]:
        """The one family."""
        family = GaugeMetricFamily(
            "heliotrope_engine_correction_ratio",
            "Measured time of a variant's engines as a share of what their model says, by phase.",
            labels=["namespace", "variant", "phase"],
        )
        for key, correction in self._corrections.known().items():
            family.add_metric([key.namespace, key.name, "prefill"], correction.prefill)
            family.add_metric([key.namespace, key.name, "decode"], correction.decode)
        yield family
