"""Prometheus metrics of the picker, in one registry that is passed explicitly. Base units are in the names."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.holdout import OTHER_CLASS
from heliotrope_epp.labels import LabelCap
from heliotrope_epp.parsers.openai import Usage
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.scheduled import ScheduleResult
from heliotrope_epp.telemetry.advice import AdviceCounters
from heliotrope_epp.telemetry.models import ModelCounters
from heliotrope_epp.telemetry.policies import PolicyCounters
from heliotrope_epp.transport.interface import Report, Stats

MAX_MODEL_LABELS = 100
UNKNOWN = "unknown"
LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60)
PER_TOKEN_BUCKETS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1)
DECISION_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0004, 0.0007, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)


class Metrics:
    """The counters that the director moves. Client-chosen model names are capped, the rest counts as `other`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models = LabelCap(MAX_MODEL_LABELS)
        self._requests = Counter(
            "heliotrope_requests",
            "Routed requests that ended.",
            ["model", "region", "code", "cause"],
            registry=registry,
        )
        self._rejected = Counter(
            "heliotrope_rejected_requests",
            "Requests answered by the picker itself.",
            ["code", "reason"],
            registry=registry,
        )
        self._cancelled = Counter(
            "heliotrope_cancelled_requests", "Clients that left before the decision.", registry=registry
        )
        self._decisions = Counter(
            "heliotrope_decisions",
            "Carbon decisions by outcome and by the term that decided.",
            ["outcome", "decided_by", "region", "enforced"],
            registry=registry,
        )
        self._dropped = Counter(
            "heliotrope_dropped_terms",
            "Decisions that had to leave out a term of the objective.",
            ["term"],
            registry=registry,
        )
        self._arms = Counter(
            "heliotrope_arm_requests",
            "Requests that an enforced policy decided on, by arm: policy or holdout.",
            ["arm"],
            registry=registry,
        )
        self._session_turns = Counter(
            "heliotrope_session_turns",
            "Turns of sessions, by what became of the session and why.",
            ["movement", "because", "enforced"],
            registry=registry,
        )
        self._unclassified = Counter(
            "heliotrope_unclassified_requests",
            "Requests beyond the largest number of classes of the holdout; they share one.",
            registry=registry,
        )
        self._kv_actions = Counter(
            "heliotrope_kv_actions",
            "Carbon decisions by how the endpoint that is used comes by the prompt's KV.",
            ["action", "region"],
            registry=registry,
        )
        self._transfer_joules = Counter(
            "heliotrope_kv_transfer_joules",
            "Estimated energy of pulled and reloaded KV blocks, of the network and both ends.",
            ["region"],
            registry=registry,
        )
        self._phases = Counter(
            "heliotrope_phase_placements",
            "Scheduled requests by placement: aggregated (one endpoint) or disaggregated (prefill at another one).",
            ["placement"],
            registry=registry,
        )
        self._encodes = Counter(
            "heliotrope_encode_placements",
            "Scheduled requests with images or the like by placement: in-place (with the prefill) or encoder.",
            ["placement"],
            registry=registry,
        )
        self._media = Counter(
            "heliotrope_media",
            "Images, sound and film of scheduled requests by modality and by what is known of their tokens.",
            ["modality", "tokens"],
            registry=registry,
        )
        self._embedding_evictions = Counter(
            "heliotrope_embedding_index_evictions",
            "Images whose holders were forgotten because more were sent than are remembered.",
            registry=registry,
        )
        self._policies = PolicyCounters(registry)
        self._advice = AdviceCounters(registry)
        self._models_unused = Counter(
            "heliotrope_decisions_without_models",
            "Decisions in which learned models were not asked, as pairs of endpoints were among the plans.",
            registry=registry,
        )
        self._model_choices = ModelCounters(registry)
        self._decision_seconds = Histogram(
            "heliotrope_decision_seconds", "Wall time of one decision.", buckets=DECISION_BUCKETS, registry=registry
        )
        self._joules = Counter(
            "heliotrope_estimated_joules",
            "Estimated IT energy of routed requests, with the picker's own where it predicted quality for them.",
            ["region"],
            registry=registry,
        )
        self._grams = Counter(
            "heliotrope_estimated_grams_co2e",
            "Estimated emissions of routed requests (boundary as the policy says; only where the signal was fresh).",
            ["region"],
            registry=registry,
        )
        self._ttft = Histogram(
            "heliotrope_time_to_first_token_seconds",
            "From decision to first body byte, streamed requests.",
            ["region"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self._tpot = Histogram(
            "heliotrope_time_per_output_token_seconds",
            "Mean over the tokens after the first, streamed requests.",
            ["region"],
            buckets=PER_TOKEN_BUCKETS,
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "heliotrope_prompt_tokens", "Prompt tokens as engines reported them.", ["region"], registry=registry
        )
        self._output_tokens = Counter(
            "heliotrope_output_tokens", "Output tokens as engines reported them.", ["region"], registry=registry
        )
        self._cached_tokens = Counter(
            "heliotrope_cached_tokens", "Prompt tokens that engines had cached.", ["region"], registry=registry
        )

    def encoded(self, request: LlmRequest, encoders: int, evicted: int) -> None:
        """A request with images or the like was sent, with so many encoders; so many others were forgotten for it."""
        self._encodes.labels("encoder" if encoders else "in-place").inc()
        self._embedding_evictions.inc(evicted)
        for item in request.media:
            known = "unknown" if item.tokens is None else "assumed" if item.assumed else "known"
            self._media.labels(item.modality.value, known).inc()

    def decided(self, result: ScheduleResult, region: str | None, seconds: float) -> None:
        """A request was scheduled."""
        self._decision_seconds.observe(seconds)
        if result.enforced:
            self._arms.labels(result.assignment.arm.value).inc()
        if result.assignment.request_class == OTHER_CLASS:
            self._unclassified.inc()
        self._policies.decided(result)
        self._model_choices.decided(result)
        if result.comparison is not None:
            self._advice.compared(result.comparison, result.assignment.arm.value)
        if result.pick.options:
            self._phases.labels("aggregated" if result.pick.prefill is None else "disaggregated").inc()
        decision = result.decision
        if decision is None or decision.winner is None:
            return
        enforced = "true" if result.enforced else "false"
        self._decisions.labels(decision.outcome.value, decision.decided_by, region or UNKNOWN, enforced).inc()
        if decision.session is not None:
            session = decision.session
            self._session_turns.labels(session.movement.value, session.because.value, enforced).inc()
        if decision.estimates.models_unused is not None:
            self._models_unused.inc()
        for term in decision.dropped_terms:
            self._dropped.labels(term.value).inc()
        plan = result.planned(result.pick.options[0].key) if result.pick.options else None
        if plan is None:
            return
        self._kv_actions.labels(plan.kv_action.value, region or UNKNOWN).inc()
        moved = float(plan.candidates.transfer_joules[plan.row])
        if np.isfinite(moved):
            self._transfer_joules.labels(region or UNKNOWN).inc(moved)
        joules, grams = plan.value("energy_joules"), plan.value("grams_co2e")
        if np.isfinite(joules):
            router = 0.0 if result.models is None else result.models.prediction.router_joules
            self._joules.labels(region or UNKNOWN).inc(float(joules) + router)
        if np.isfinite(grams):
            self._grams.labels(region or UNKNOWN).inc(float(grams))

    def nothing_chosen(self, result: ScheduleResult) -> None:
        """A request was scheduled and nothing was left to send it to."""
        self._policies.decided(result)
        if result.comparison is not None:
            self._advice.compared(result.comparison, result.assignment.arm.value)
        decision = result.decision
        if decision is not None and decision.winner is None:
            enforced = "true" if result.enforced else "false"
            self._decisions.labels(decision.outcome.value, decision.decided_by, UNKNOWN, enforced).inc()

    def rejected(self, status: int, reason: str) -> None:
        """A request was refused."""
        self._rejected.labels(str(status), reason).inc()

    def cancelled(self) -> None:
        """A client left before its decision."""
        self._cancelled.inc()

    def finished(self, request: LlmRequest | None, region: str | None, report: Report, usage: Usage | None) -> None:
        """A routed request ended."""
        where = region or UNKNOWN
        code = UNKNOWN if report.status is None else str(report.status)
        model = UNKNOWN if request is None else self._models.of(request.model)
        self._requests.labels(model, where, code, report.cause.value).inc()
        if request is not None and request.streaming and report.first_s is not None and report.status == 200:
            self._ttft.labels(where).observe(report.first_s - report.routed_s)
            if usage is not None and usage.completion_tokens > 1 and report.last_s is not None:
                self._tpot.labels(where).observe((report.last_s - report.first_s) / (usage.completion_tokens - 1))
        if usage is not None:
            self._prompt_tokens.labels(where).inc(max(usage.prompt_tokens, 0))
            self._output_tokens.labels(where).inc(max(usage.completion_tokens, 0))
            self._cached_tokens.labels(where).inc(max(usage.cached_tokens or 0, 0))


class StateCollector(Collector):
    """Gauges that are read when somebody scrapes: transport, endpoints and regions."""

    def __init__(
        self,
        *,
        transport: Callable[[], Stats],
        endpoints: Callable[[], Iterable[tuple[str, str, float | None, int]]],
        regions: Callable[[], Iterable[RegionView]],
        source_healthy: Callable[[], bool],
        problems: Callable[[], int],
        unix_clock: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._endpoints = endpoints
        self._regions = regions
        self._source_healthy = source_healthy
        self._problems = problems
        self._unix_clock = unix_clock

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._transport_families()
        yield from self._endpoint_families()
        yield from self._region_families()
        yield GaugeMetricFamily(
            "heliotrope_source_healthy", "1 while resources and endpoints can be read.", value=self._source_healthy()
        )
        yield GaugeMetricFamily(
            "heliotrope_resource_problems",
            "Resources that could not be used; the log says why.",
            value=self._problems(),
        )

    def _transport_families(self) -> Iterator[Metric]:
        stats = self._transport()
        yield GaugeMetricFamily("heliotrope_open_streams", "Requests at any stage.", value=stats.open_streams)
        yield GaugeMetricFamily("heliotrope_requests_in_flight", "Routed requests in flight.", value=stats.routed)
        yield GaugeMetricFamily(
            "heliotrope_buffered_bytes", "Request bodies held in memory.", value=stats.buffered_bytes
        )
        refused = CounterMetricFamily(
            "heliotrope_refused_requests", "Requests beyond a limit of the transport.", labels=["reason"]
        )
        for reason, count in stats.refused_total.items():
            refused.add_metric([reason], count)
        yield refused
        yield CounterMetricFamily(
            "heliotrope_decider_failures", "Requests that failed on a defect in the picker.", value=stats.failed_total
        )

    def _endpoint_families(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "heliotrope_endpoint_metrics_age_seconds", "Age of the last scrape.", labels=["endpoint", "region"]
        )
        own = GaugeMetricFamily(
            "heliotrope_endpoint_requests_in_flight", "This picker's requests there.", labels=["endpoint", "region"]
        )
        for name, region, age_s, inflight in self._endpoints():
            if age_s is not None:
                age.add_metric([name, region], age_s)
            own.add_metric([name, region], inflight)
        yield age
        yield own

    def _region_families(self) -> Iterator[Metric]:
        now = self._unix_clock()
        intensity = GaugeMetricFamily(
            "heliotrope_carbon_intensity_grams_per_kwh",
            "The newest reading; use it with its freshness.",
            labels=["region", "signal_type", "source"],
        )
        age = GaugeMetricFamily("heliotrope_carbon_signal_age_seconds", "Age of the reading.", labels=["region"])
        fresh = GaugeMetricFamily("heliotrope_carbon_signal_fresh", "1 if it may steer decisions.", labels=["region"])
        for view in self._regions():
            reading, seconds = view.signal.reading, view.signal.age_s(now)
            if reading is not None and seconds is not None:
                intensity.add_metric(
                    [view.name, reading.signal_type.value, reading.source], reading.intensity_g_per_kwh
                )
                age.add_metric([view.name], seconds)
            fresh.add_metric([view.name], view.signal.freshness(now) is Freshness.FRESH)
        yield intensity
        yield age
        yield fresh
