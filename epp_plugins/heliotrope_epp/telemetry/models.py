"""Metrics of model choice: who answered in place of whom, who predicted, and what predicting took."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.plugins.models.scorer import HttpScorer
from heliotrope_epp.plugins.scheduled import ScheduleResult

UNCHANGED = ""


class ModelCounters:
    """What decisions say of models. Labels are names of the policy's own or of few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._choices = Counter(
            "heliotrope_model_choices",
            "Requests for a group of models by the member that answers; downgraded: another than the group's default.",
            ["group", "model", "effort", "downgraded"],
            registry=registry,
        )
        self._predictions = Counter(
            "heliotrope_quality_predictions",
            "Requests for a group of models by who predicted quality, and whether the table stood in for it.",
            ["predictor", "fallback"],
            registry=registry,
        )
        self._joules = Counter(
            "heliotrope_model_router_joules",
            "Energy of this picker's processor in predicting quality: its time × --router-core-watts.",
            registry=registry,
        )

    def decided(self, result: ScheduleResult) -> None:
        """A request was scheduled."""
        verdict, choice = result.models, result.model_choice
        if verdict is None:
            return
        prediction = verdict.prediction
        fallback = "true" if prediction.fallback is not None else "false"
        self._predictions.labels(prediction.source.value, fallback).inc()
        self._joules.inc(prediction.router_joules)
        if choice is not None:
            effort = UNCHANGED if choice.judged.effort is None else choice.judged.effort.name.lower()
            downgraded = "true" if choice.downgraded else "false"
            self._choices.labels(verdict.group.name, choice.model, effort, downgraded).inc()


class ScorerCollector(Collector):
    """How the external scorer fares."""

    def __init__(self, scorer: HttpScorer) -> None:
        self._scorer = scorer

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield GaugeMetricFamily(
            "heliotrope_quality_scorer_waiting",
            "Requests that wait for the external scorer.",
            value=self._scorer.state.waiting,
        )
        results = CounterMetricFamily(
            "heliotrope_quality_scorer_results",
            "Requests for the external scorer by result; all but `scored` were answered by the table.",
            labels=["result"],
        )
        for result, count in self._scorer.state.results.items():
            results.add_metric([result], count)
        yield results
