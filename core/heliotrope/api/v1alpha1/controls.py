"""The slower levers of a CarbonPolicy: autoscaling, engine activation, power, demand response and deferral."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap, ListSet
from heliotrope.api.scalars import DurationString, Time
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import LongDuration, Percent, Replicas, SecretKeyRef, Text, Url
from heliotrope.api.v1alpha1.objective import Objective, Weights

LoopDuration = Annotated[timedelta, DurationString("1s", "1h")]
SharePercent = Annotated[int, Field(ge=1, le=100)]
PoolWatts = Annotated[int, Field(ge=1, le=1_000_000_000)]
TimeOfDay = Annotated[str, StringConstraints(min_length=5, max_length=5, pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class Actuation(StrEnum):
    """How a wanted number of replicas takes effect."""

    METRICS_ONLY = "MetricsOnly"
    CEILING = "Ceiling"
    SCALE = "Scale"


class ScaleStep(Struct):
    """How fast replicas move in one direction."""

    max_replicas_per_step: Annotated[int, Field(ge=1, le=10_000)]
    """Most replicas that one decision adds or takes away."""
    dwell: LongDuration
    """Time without a change before the next change in this direction, from 0s to 720h."""


class ScaleUp(ScaleStep):
    """How fast replicas are added."""

    max_replicas_per_step: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Most replicas that one decision adds."""
    dwell: LongDuration = timedelta(0)
    """Time since the last change before replicas are added, from 0s to 720h."""


class ScaleDown(ScaleStep):
    """How fast replicas are taken away."""

    max_replicas_per_step: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Most replicas that one decision takes away."""
    dwell: LongDuration = timedelta(minutes=5)
    """Time since the last change before replicas are taken away, from 0s to 720h."""


class Saturation(Struct):
    """The guard that puts the SLO above carbon: load as a share of what the replicas carry within the SLO."""

    scale_up_percent: SharePercent = 85
    """Load above which replicas are added whatever the carbon."""
    scale_down_percent: SharePercent = 70
    """Load that the remaining replicas may have at most after replicas are taken away."""

    @rule(
        "self.scaleDownPercent < self.scaleUpPercent",
        "scaleDownPercent must be below scaleUpPercent, or replicas would go up and down in turn",
        field="scaleDownPercent",
    )
    def _hysteresis(self) -> bool:
        return self.scale_down_percent < self.scale_up_percent


class ActivationDepth(StrEnum):
    """How deep an idle engine may rest, from quick to wake to most saved."""

    IDLE_CLOCK = "IdleClock"
    ENGINE_SLEEP = "EngineSleep"
    PROCESS_EXIT = "ProcessExit"
    NODE_OFF = "NodeOff"


class Activation(Struct):
    """Rests idle engines and wakes them before the SLO breaks."""

    depths: Annotated[tuple[ActivationDepth, ...], Field(min_length=1, max_length=4), ListSet()] = (
        ActivationDepth.IDLE_CLOCK,
        ActivationDepth.PROCESS_EXIT,
    )
    """Depths that may be used. `EngineSleep` calls the engine's unauthenticated development endpoints; `NodeOff` drains
    nodes so that the cluster autoscaler removes them."""
    warm_reserve_percent: Percent = 20
    """Awake capacity kept above the expected load, in percent of it."""
    least_awake: Replicas = 1
    """Engines of the pool that stay awake whatever the load."""


class Autoscaling(Struct):
    """Chooses the replicas of the pool's variants."""

    actuation: Actuation = Actuation.METRICS_ONLY
    """`MetricsOnly` publishes wanted replicas for the user's own autoscaler; `Ceiling` moves the maxReplicas of an HPA
    or ScaledObject; `Scale` writes `/scale` of targets that nothing else scales."""
    interval: LoopDuration = timedelta(seconds=30)
    """Time between decisions, from 1s to 1h."""
    look_ahead: LongDuration = timedelta(hours=1)
    """How far load and carbon forecasts are looked at, from 0s to 720h."""
    scale_up: ScaleUp = ScaleUp()
    """How fast replicas are added."""
    scale_down: ScaleDown = ScaleDown()
    """How fast replicas are taken away."""
    saturation: Saturation = Saturation()
    """The guard that puts the SLO above carbon."""
    scale_to_zero: bool = False
    """Lets all variants of a model go to no replicas; its first request then waits for a start. One of several may go
    to none anyway where its `minReplicas` is 0."""
    activation: Activation | None = None
    """Rests idle engines; absent: engines stay awake."""


class Weekday(StrEnum):
    """A day of the week."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


class BudgetWindow(Struct):
    """A watt budget that holds at some hours of the week."""

    name: Text
    """Name of the window, unique in the list."""
    days: Annotated[tuple[Weekday, ...], Field(min_length=1, max_length=7), ListSet()] = tuple(Weekday)
    """Days on which the window starts."""
    start: TimeOfDay
    """Time of day at which it starts, as HH:MM in 24 hours."""
    end: TimeOfDay
    """Time of day at which it ends; one before the start is on the next day."""
    time_zone: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")] = "UTC"
    """IANA name of the time zone, for instance `Europe/Madrid`."""
    watts: PoolWatts
    """Power of all engines of the pool together in watts."""

    @rule("self.start != self.end", "start and end must differ; for a whole day use 00:00 and 23:59", field="end")
    def _not_empty(self) -> bool:
        return self.start != self.end


class WattBudget(Struct):
    """A limit on the power of the pool; of several that hold at once the lowest counts."""

    watts: PoolWatts | None = None
    """Power of all engines of the pool together in watts, at all times."""
    schedule: Annotated[tuple[BudgetWindow, ...], Field(max_length=32), ListMap("name")] = ()
    """Budgets for some hours of the week."""

    @rule("has(self.watts) || size(self.schedule) > 0", "set watts, schedule or both")
    def _not_empty(self) -> bool:
        return self.watts is not None or len(self.schedule) > 0


class Power(Struct):
    """Lets Heliotrope set clocks and watts of the variants' GPUs, through NodePower and the node agents."""

    clock_per_phase: bool = True
    """Chooses the clock of least energy per token for prefill and decode on their own where they are disaggregated;
    false: clocks move only to keep a budget."""
    slo_headroom_percent: Annotated[int, Field(ge=0, le=90)] = 15
    """Clocks go down only while predicted TTFT and TPOT stay this far below the SLO, in percent."""
    minimum_dwell: LongDuration = timedelta(minutes=1)
    """Time that a clock or watt setting holds at least, from 0s to 720h."""
    budget: WattBudget | None = None
    """Limit on the power of the pool; absent: none."""


class DemandEvent(Struct):
    """A planned event of demand response."""

    name: Text
    """Name of the event, unique in the list."""
    start: Time
    """When the reduction must be reached."""
    end: Time
    """When the reduction ends."""
    watts: PoolWatts | None = None
    """Power of the pool during the event in watts; absent: `reductionPercent` below the power before the event."""

    @rule("timestamp(self.start) < timestamp(self.end)", "end must be after start", field="end")
    def _ordered(self) -> bool:
        return self.start < self.end


class PrometheusDemand(Struct):
    """A query that gives the power now asked for; no sample means no event."""

    url: Url
    """Address of the Prometheus server."""
    query: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    """PromQL that gives one sample: the watts that the pool may draw."""


class HttpDemand(Struct):
    """An address that lists events as JSON, in the manner of OpenADR."""

    url: Url
    """Address that answers with the events."""
    token_secret_ref: SecretKeyRef | None = None
    """Key of the Secret that holds a bearer token."""
    poll_interval: LoopDuration = timedelta(seconds=30)
    """Time between requests, from 1s to 1h."""


class DemandResponse(Struct):
    """Reduces the pool's power when the grid asks for it; exactly one of events, prometheus and http says when."""

    events: Annotated[tuple[DemandEvent, ...], Field(min_length=1, max_length=64), ListMap("name")] | None = None
    """Planned events."""
    prometheus: PrometheusDemand | None = None
    """A query that gives the power asked for."""
    http: HttpDemand | None = None
    """An address that lists events."""
    reduction_percent: Annotated[int, Field(ge=1, le=100)] = 30
    """Reduction against the power before the event when the event states no watts."""
    ramp_in: LongDuration = timedelta(minutes=5)
    """Time over which power goes down before the start, from 0s to 720h."""
    ramp_out: LongDuration = timedelta(minutes=10)
    """Time over which power comes back after the end, from 0s to 720h."""
    weights: Weights | None = None
    """Weights by which plans are compared during an event, as in mode `Weighted`; absent: `objective`, or what holds
    anyway."""
    objective: Objective | None = None
    """Objective that holds during an event; absent: `weights`, or what holds anyway."""

    @rule(
        "[has(self.events), has(self.prometheus), has(self.http)].exists_one(x, x)",
        "set exactly one of events, prometheus, http",
    )
    def _exactly_one(self) -> bool:
        return sum(each is not None for each in (self.events, self.prometheus, self.http)) == 1

    @rule("!has(self.weights) || !has(self.objective)", "set weights or objective, not both", field="objective")
    def _one_objective(self) -> bool:
        return self.weights is None or self.objective is None

    @rule(
        "!has(self.weights) || double(self.weights.latency) + double(self.weights.energy) + "
        "double(self.weights.carbon) + double(self.weights.cost) + double(self.weights.risk) > 0.0",
        "at least one weight must be above 0",
        field="weights",
    )
    def _weights_weigh(self) -> bool:
        return self.weights is None or self.weights.total > 0


class Deferral(Struct):
    """Starts opted-in Jobs in the cleanest hours that still meet their deadline."""

    longest_delay: LongDuration = timedelta(hours=24)
    """Longest time that a Job waits, whatever its deadline; from 0s to 720h."""
    safety_margin: LongDuration = timedelta(minutes=30)
    """Time left between the expected end and the deadline, from 0s to 720h."""
    dispatch_budget: bool = True
    """Publishes the share of batch requests to dispatch now (0 to 1) as a metric."""
