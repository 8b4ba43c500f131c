"""What the control loop counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from heliotrope_agent.control.apply import Outcome
from heliotrope_agent.control.plan import Action, Plan
from heliotrope_agent.control.reasons import Cause, Reason

_PREFIX = "heliotrope_agent"


class ControlMetrics:
    """Metrics of the control loop, in a registry of the caller's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.failures = Counter(
            f"{_PREFIX}_apply_failures_total", "GPUs that could not be set.", ["reason"], registry=registry
        )
        self.release_failures = Counter(
            f"{_PREFIX}_release_failures_total",
            "Attempts to put a GPU back that failed.",
            ["reason"],
            registry=registry,
        )
        self.sets = Counter(f"{_PREFIX}_sets_total", "Times that a GPU was set.", registry=registry)
        self.releases = Counter(
            f"{_PREFIX}_releases_total", "Times that a GPU was put back, by why.", ["cause"], registry=registry
        )
        self.watchdog_restores = Gauge(
            f"{_PREFIX}_watchdog_restores",
            "GPUs that the watchdog has put back in a dead agent's place, since it started.",
            registry=registry,
        )
        self.reasons = Gauge(
            f"{_PREFIX}_gpus_with_reason",
            "GPUs that are not, or not exactly, as their intents ask now, by why.",
            ["reason"],
            registry=registry,
        )
        self.dwell_holds = Counter(
            f"{_PREFIX}_dwell_holds_total",
            "Times that a change began to wait because the last was recent.",
            registry=registry,
        )
        self.clamped = Counter(
            f"{_PREFIX}_clamped_total", "Times that a GPU was set to the nearest that it can.", registry=registry
        )
        self.owned = Gauge(f"{_PREFIX}_managed_gpus", "GPUs whose settings Heliotrope has changed.", registry=registry)
        self.ticks = Counter(f"{_PREFIX}_looks_total", "Times that the control loop looked.", registry=registry)
        self.heartbeat_age = Gauge(
            f"{_PREFIX}_heartbeat_age_seconds", "Time since the control loop last looked.", registry=registry
        )
        self.watchdog_age = Gauge(
            f"{_PREFIX}_watchdog_heartbeat_age_seconds", "Age of the watchdog's last sign of life.", registry=registry
        )
        self.state_writable = Gauge(
            f"{_PREFIX}_state_writable", "1 if the file of originals can be written, 0 if not.", registry=registry
        )
        for cause in Cause:
            self.releases.labels(cause.value)
        for reason in Reason:
            self.reasons.labels(reason.value)

    def looked(self, before: Plan, plan: Plan, outcomes: tuple[Outcome, ...], owned: int) -> None:
        """Count one look."""
        self.ticks.inc()
        self.owned.set(owned)
        for reason in Reason:
            self.reasons.labels(reason.value).set(sum(reason in each.reasons for each in plan.gpus))
        waiting = {each.uuid for each in before.gpus if Reason.DWELL in each.reasons}
        self.dwell_holds.inc(sum(Reason.DWELL in each.reasons and each.uuid not in waiting for each in plan.gpus))
        for each in outcomes:
            self._count(each)

    def _count(self, outcome: Outcome) -> None:
        release = outcome.plan.action is Action.RELEASE
        if outcome.problem is not None:
            (self.release_failures if release else self.failures).labels(outcome.problem.value).inc()
        elif release and outcome.plan.cause is not None:
            self.releases.labels(outcome.plan.cause.value).inc()
        elif not release:
            self.sets.inc()
            self.clamped.inc(Reason.CLAMPED in outcome.plan.reasons)
