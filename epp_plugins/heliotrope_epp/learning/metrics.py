"""Prometheus families of learning, read when somebody scrapes."""

from collections.abc import Iterator
from math import isfinite

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.learning.client import TrainerClient
from heliotrope_epp.learning.trainer import Trainer
from heliotrope_epp.learning.view import SOURCES, LearningView, sources

PREFIX = "heliotrope_learning"


class LearningCollector(Collector):
    """Of a picker or a trainer."""

    def __init__(self, view: LearningView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """All families."""
        view = self._view
        yield _gauge("running", "1 while it learns; 0 after a defect that the log tells.", view.progress.running)
        yield _counter("samples", "Samples that were believed.", view.progress.accepted)
        yield _counters("dropped_samples", "Requests and samples not learned from.", "reason", view.progress.refused)
        yield _counter("step_samples", "Samples of engines' steps among those believed.", view.progress.steps)
        intervals = "Metered intervals whose steps were not learned from."
        yield _counters("dropped_intervals", intervals, "reason", view.progress.refused_intervals)
        yield from self._models()
        yield from self._drift()
        yield from self._state()
        if view.trainer is not None:
            yield from _training(view.trainer)
        if view.client is not None:
            yield from _client(view.client)

    def _models(self) -> Iterator[Metric]:
        bundle = self._view.keeper.current
        if bundle.created_unix_s:
            age_s = max(self._view.clock.unix() - bundle.created_unix_s, 0.0)
            yield _gauge("model_age_seconds", "Time since the models that answer were trained.", age_s)
        yield _counter("promotions", "Times that other models took over.", self._view.keeper.promotions)
        error = _family("held_out_error_ratio", "Mean absolute relative error on held-out samples.", "target")
        analytic = _family("analytic_error_ratio", "The analytic model's error on the same samples.", "target")
        coverage = _family("coverage_ratio", "Share of held-out samples within the 0.9 quantile.", "target")
        for target, model in sorted(bundle.models.items()):
            scores = model.scores
            for family, value in ((error, scores.mape), (analytic, scores.analytic_mape), (coverage, scores.coverage)):
                if isfinite(value):
                    family.add_metric([target.value], value)
        yield from (error, analytic, coverage)

    def _drift(self) -> Iterator[Metric]:
        source = GaugeMetricFamily(
            f"{PREFIX}_source", "1 for who answers (at the worst-off hardware).", labels=["target", "source"]
        )
        for target, answering in sources(self._view).items():
            for name in SOURCES.values():
                source.add_metric([target, name], float(name == answering))
        yield source
        drifted = _family("drifted_hardware", "Kinds of hardware that the models no longer hold for.", "target")
        levels = self._view.keeper.holder.current.levels
        for target in self._view.keeper.current.models:
            drifted.add_metric([target.value], sum(each is target for each, _ in levels))
        yield drifted
        drifts = CounterMetricFamily(
            f"{PREFIX}_drifts", "Times that a model was found not to hold.", labels=["target", "answers"]
        )
        for labels, count in self._view.watch.drifts.items():
            drifts.add_metric(labels, count)
        yield drifts

    def _state(self) -> Iterator[Metric]:
        store = self._view.keeper.store
        kept = store.folder.path is not None and store.folder.problem is None
        yield _gauge("state_kept", "1 while what is learned is kept on disk.", float(kept))
        yield _counter("failed_state_writes", "Writes that the disk refused.", store.folder.failed_writes)
        yield _counters("refused_state_files", "Files that were not what was written.", "file", store.refused)


def _training(trainer: Trainer) -> Iterator[Metric]:
    window = _family("window_samples", "Samples that the next training can use.", "table")
    for table, size in trainer.window_sizes.items():
        window.add_metric([table], size)
    yield window
    yield _counter("overflowed_samples", "Samples that came before the state was loaded.", trainer.overflowed)
    yield _counters("trainings", "Trainings by result.", "result", trainer.runs)
    yield _gauge("training", "1 while a training runs.", float(trainer.training_pid is not None))


def _client(client: TrainerClient) -> Iterator[Metric]:
    yield _gauge("trainer_up", "1 while the last calls of the trainer gave an answer.", float(not client.problems))
    yield _gauge("queued_samples", "Samples that the trainer has not confirmed.", client.waiting)
    yield _counter("sent_samples", "Samples that the trainer has confirmed.", client.counts.sent)
    lost = {"queue-full": client.counts.dropped, "refused": client.counts.undeliverable}
    yield _counters("unsent_samples", "Samples that the trainer never got.", "reason", lost)
    yield _counters("model_polls", "Questions for a newer model by result.", "result", client.polls)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", about, value=value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", about, value=value)


def _family(name: str, about: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", about, labels=[label])


def _counters(name: str, about: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", about, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
