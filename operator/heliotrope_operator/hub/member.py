"""A member: tells the hub what it needs, pulls its ceilings, and says on its RegionProfiles whether they hold.

Whatever goes wrong - no answer, an answer that cannot be read, one that has expired - the last ceilings hold until they
expire, and then there are none: a cluster without a hub plans on its own.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import SCHEMA, Ceilings, parse_ceilings
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.errors import ConflictError
from heliotrope_operator.hub.client import HubClient, HubError
from heliotrope_operator.hub.current import CurrentCeilings
from heliotrope_operator.hub.settings import MemberSettings
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.times import format_unix
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

CEILINGS = Key(Kind.CEILINGS, "", "hub")
FIRST_RETRY_S = 2.0


def part(context: Context) -> Part:
    """The controller that keeps `context.tables.ceilings`; without a hub, one that takes back what was said of it."""
    settings = context.settings.hub
    if settings is None:
        return Part(controllers={Kind.CEILINGS: WithoutHub(context)}, seeds=(CEILINGS,))
    controller = CeilingsController(context, settings, HubClient(settings), random.Random())
    context.metrics.registry.register(
        CeilingsCollector(context.tables.ceilings, controller.failing, context.unix_clock)
    )
    return Part(controllers={Kind.CEILINGS: controller}, seeds=(CEILINGS,))


class CeilingsController:
    """Polls the hub when it is due; conditions are written on transitions."""

    def __init__(self, context: Context, settings: MemberSettings, client: HubClient, rng: random.Random) -> None:
        self._cluster = context.cluster
        self._reports = CeilingReports(context)
        self._tables = context.tables
        self._unix_clock = context.unix_clock
        self._settings = settings
        self._client = client
        self._rng = rng
        self._due = float("-inf")
        self._failures = 0
        self._problem: str | None = None
        self._polls = Counter(
            "heliotrope_hub_polls",
            "Requests to the hub by outcome: changed, unchanged, failed, unreadable.",
            ["outcome"],
            registry=context.metrics.registry,
        )

    def failing(self) -> bool:
        """Whether the newest attempt failed."""
        return self._problem is not None

    async def reconcile(self, _key: Key) -> float | None:
        """Ask the hub if it is due, and say what became of it; returns the seconds until the next look."""
        clock = asyncio.get_running_loop().time
        if clock() >= self._due:
            await self._poll()
            delay_s = (
                self._settings.poll_s * self._rng.uniform(0.9, 1.1)
                if self._problem is None
                else Backoff(FIRST_RETRY_S, self._settings.poll_s).delay_s(self._failures, self._rng)
            )
            self._due = clock() + delay_s
        retry_s = await self._reports.write(self._tables.ceilings.last, self._problem)
        waits = [self._due - clock(), retry_s]
        last = self._tables.ceilings.last
        if last is not None and (left_s := last.expires_unix_s - self._unix_clock()) > 0:
            waits.append(left_s + 0.1)
        return max(min(each for each in waits if each is not None), 0.05)

    async def _poll(self) -> None:
        before = self._problem
        try:
            body = await self._client.exchange(needs(self._cluster, self._wanted))
            outcome = "unchanged"
            if body is not None:
                self._tables.ceilings.last = parse_ceilings(body, self._unix_clock())
                outcome = "changed"
        except HubError as error:
            outcome, self._problem = "failed", f"the hub at {self._settings.url} cannot be used: {error}"
        except InvalidInputError as error:
            outcome, self._problem = "unreadable", f"what the hub at {self._settings.url} publishes is wrong: {error}"
            self._client.forget()
        else:
            self._problem = None
        self._polls.labels(outcome).inc()
        self._failures = 0 if self._problem is None else self._failures + 1
        if self._problem is not None and self._problem != before:
            _log.warning("%s", self._problem)
        if self._problem is None and before is not None:
            _log.info("the hub at %s answers again", self._settings.url)

    def _wanted(self, key: Key) -> int | None:
        wanted = self._tables.wanted.get(key)
        return None if wanted is None else wanted.replicas


class WithoutHub:
    """Removes the conditions of a hub that this cluster had."""

    def __init__(self, context: Context) -> None:
        self._reports = CeilingReports(context)

    async def reconcile(self, _key: Key) -> float | None:
        """Remove them; returns the seconds after which to try again, None when all are gone."""
        return await self._reports.write(None, None)


class CeilingReports:
    """The condition `CeilingHolds` of RegionProfiles."""

    def __init__(self, context: Context) -> None:
        self._cluster = context.cluster
        self._writer = context.writer
        self._unix_clock = context.unix_clock

    async def write(self, last: Ceilings | None, problem: str | None) -> float | None:
        """Bring the conditions up to date; seconds after which to try again what had changed meanwhile."""
        now_unix_s = self._unix_clock()
        again_s = None
        for key, profile in self._cluster.regions.items():
            if profile.status is None:
                continue
            finding = ceiling_finding(profile.metadata.name, _has_condition(profile), last, problem, now_unix_s)
            previous = profile.status.conditions
            conditions = settle(
                previous,
                [] if finding is None else [finding],
                profile.metadata.generation,
                datetime.fromtimestamp(int(now_unix_s), UTC),
                own={ConditionType.CEILING_HOLDS},
            )
            if {each.type: each for each in conditions} == {each.type: each for each in previous}:
                continue
            status = profile.status.model_copy(update={"conditions": conditions})
            changes = transitions(previous, [each for each in conditions if each.type == ConditionType.CEILING_HOLDS])
            try:
                await self._writer.status(key, profile.metadata, profile.status, status, changes)
            except ConflictError:
                again_s = 1.0
        return again_s


def ceiling_finding(
    region: str, had: bool, last: Ceilings | None, problem: str | None, now_unix_s: float
) -> Finding | None:
    """What is to be said of a region's ceiling; None where there is none and was none.

    Args:
        region: name of the RegionProfile.
        had: whether its condition says anything now; a ceiling that holds no longer is told, one that never was is not.
        last: what the hub said last.
        problem: why the newest attempt failed; None if it did not.
        now_unix_s: the time.
    """
    kind = ConditionType.CEILING_HOLDS
    if last is None:
        message = f"{problem or 'the hub was not asked yet'}; the region is planned without a ceiling"
        return Finding(kind, ConditionStatus.FALSE, "CeilingUnknown", message) if had and problem is not None else None
    if region not in last.regions:
        return None
    if not last.holds(now_unix_s):
        message = (
            f"the hub's ceilings expired at {format_unix(last.expires_unix_s)} and the region is planned without: "
            f"{problem or 'a clock is wrong'}"
        )
        return Finding(kind, ConditionStatus.FALSE, "CeilingExpired", message)
    if problem is not None:
        message = f"the last ceilings hold until {format_unix(last.expires_unix_s)}, but {problem}"
        return Finding(kind, ConditionStatus.TRUE, "HubFailing", message)
    limits = [
        f"{each.accelerators} {each.accelerator or 'accelerators'}"
        for each in last.ceilings
        if each.region == region and each.accelerators is not None
    ]
    watts = last.watts(region)
    limits += [] if watts is None else [f"{watts} W"]
    return Finding(kind, ConditionStatus.TRUE, "CeilingHolds", f"the hub allows {', '.join(limits)}")


def needs(cluster: Cluster, wanted: Callable[[Key], int | None]) -> dict[str, Any]:
    """What this cluster would use, for the hub: wanted replicas, else those that there are, else unknown.

    Args:
        cluster: what is known of it.
        wanted: replicas that planning wants of a variant; None: it has no opinion.
    """
    found: dict[tuple[str, str], int | None] = {}
    for key, variant in cluster.variants.items():
        if variant.spec.region_ref is None:
            continue
        row = (variant.spec.region_ref.name, variant.spec.accelerator.type)
        replicas = wanted(key)
        if replicas is None and variant.status is not None:
            replicas = variant.status.current_replicas
        before = found.get(row, 0)
        known = replicas is not None and before is not None
        found[row] = before + replicas * variant.spec.accelerator.count if known else None  # type: ignore[operator]
    rows = [
        {"region": region, "accelerator": accelerator} | ({} if count is None else {"accelerators": count})
        for (region, accelerator), count in sorted(found.items())
    ]
    return {"schema": SCHEMA, "needs": rows}


def _has_condition(profile: RegionProfile) -> bool:
    conditions = () if profile.status is None else profile.status.conditions
    return any(each.type == ConditionType.CEILING_HOLDS for each in conditions)


class CeilingsCollector(Collector):
    """The ceilings that hold, read when they are asked for."""

    def __init__(self, current: CurrentCeilings, failing: Callable[[], bool], unix_clock: Callable[[], float]) -> None:
        self._current = current
        self._failing = failing
        self._unix_clock = unix_clock

    def collect(self) -> Iterator[Metric]:
        """All families."""
        now_unix_s, last = self._unix_clock(), self._current.last
        holding = self._current.holding(now_unix_s)
        yield GaugeMetricFamily(
            "heliotrope_hub_ceilings_hold",
            "1 while ceilings of the hub hold, 0 when planned without.",
            value=holding is not None,
        )
        yield GaugeMetricFamily(
            "heliotrope_hub_failing", "1 if the newest request to the hub failed.", value=self._failing()
        )
        age = GaugeMetricFamily("heliotrope_hub_ceilings_age_seconds", "Age of the newest ceilings, held or expired.")
        if last is not None:
            age.add_metric([], now_unix_s - last.issued_unix_s)
        yield age
        accelerators = GaugeMetricFamily(
            "heliotrope_hub_ceiling_accelerators",
            "Most accelerators in a region; empty type: of all.",
            labels=["region", "accelerator"],
        )
        watts = GaugeMetricFamily("heliotrope_hub_ceiling_watts", "Most IT power in a region.", labels=["region"])
        for each in () if holding is None else holding.ceilings:
            if each.accelerators is not None:
                accelerators.add_metric([each.region, each.accelerator or ""], each.accelerators)
        for region in sorted(frozenset() if holding is None else holding.regions):
            most = None if holding is None else holding.watts(region)
            if most is not None:
                watts.add_metric([region], most)
        yield accelerators
        yield watts
