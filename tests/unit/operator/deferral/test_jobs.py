"""The life of a deferred Job on an API server in memory: planned once, resumed once, left alone otherwise."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest
from tests.unit.operator.deferral.documents import cluster_of, job, policy, region, stamp
from tests.unit.operator.memory import UNAVAILABLE, Held, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import NOW_S
from tests.unit.operator.virtual import run_virtual

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.deferral.clock import ServerClock
from heliotrope_operator.deferral.jobs import JobController, waits
from heliotrope_operator.deferral.jobwriter import JobWriter
from heliotrope_operator.deferral.metrics import DeferralMetrics
from heliotrope_operator.deferral.surroundings import KnownSurroundings
from heliotrope_operator.errors import ConflictError, NotLeaderError, UnavailableError
from heliotrope_operator.kinds.jobs import NOT_OPTED_IN, job_key
from heliotrope_operator.parts import Context
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import RESOURCES, Kind
from heliotrope_operator.writes import Writes

DAY = (300.0, 280.0, 100.0, 120.0, 250.0, 260.0, 270.0)
KEY = job_key("ns", "train")
PATH = RESOURCES[Kind.JOB].path("ns", "train")
ONE_HOUR = {"heliotrope.io/expected-duration": "1h"}


class World:
    """A controller, the API server that it writes to, and the time."""

    def __init__(self, *documents: dict[str, Any], api: MemoryApi | None = None) -> None:
        self.now_unix_s = NOW_S
        self.api = api or MemoryApi()
        self.kube = MemoryKube(self.api)
        self.leadership = Held()
        self.cluster: Cluster = cluster_of()
        self.metrics = metrics()
        for document in documents:
            meta, kind = document["metadata"], Kind(document["kind"])
            path = RESOURCES[kind].path(meta.get("namespace", ""), meta["name"])
            self.cluster.observe(kind, self.api.put(path, document))
        kube = cast("Any", self.kube)
        recorder = Recorder(kube, self.metrics, instance="test", unix_clock=lambda: self.now_unix_s)
        context = SimpleNamespace(
            cluster=self.cluster,
            kube=kube,
            writes=Writes(kube, self.leadership),
            recorder=recorder,
            enqueue=lambda keys: None,
        )
        writer = JobWriter(cast("Context", context), DeferralMetrics(self.metrics.registry))
        clock = ServerClock(lambda: self.now_unix_s, lambda: asyncio.get_running_loop().time())
        known = KnownSurroundings(self.cluster, lambda: asyncio.get_running_loop().time())
        self.controller = JobController(cast("Context", context), clock, known, writer)

    def change(self, document: dict[str, Any]) -> None:
        """Somebody else's write, seen."""
        meta, kind = document["metadata"], Kind(document["kind"])
        path = RESOURCES[kind].path(meta.get("namespace", ""), meta["name"])
        self.cluster.observe(kind, self.api.put(path, document))

    async def pass_time(self, hours: float = 0.0, seconds: float = 0.0) -> float | None:
        """Look again after a time."""
        self.now_unix_s += hours * 3600 + seconds
        await asyncio.sleep(hours * 3600 + seconds)
        return await self.controller.reconcile(KEY)

    @property
    def job(self) -> dict[str, Any]:
        return self.api.objects[PATH]

    def writes(self) -> int:
        return self.api.requests.count(("PATCH", PATH))

    def events(self) -> list[tuple[str, str]]:
        return [(each["type"], each["reason"]) for each in self.api.objects.values() if each.get("kind") == "Event"]

    def metric(self, line: str) -> float:
        for each in generate_latest(self.metrics.registry).decode().splitlines():
            if each.startswith(line + " "):
                return float(each.rsplit(" ", 1)[1])
        raise AssertionError(line)


def test_a_job_is_planned_once_and_started_at_its_time() -> None:
    async def story() -> None:
        world = World(job(), policy(), region("es", *DAY))
        again = await world.pass_time()
        assert again is not None
        assert again <= 10.0
        assert world.job["metadata"]["annotations"]["heliotrope.io/planned-start"] == stamp(2)
        assert world.job["spec"]["suspend"] is True
        for _ in range(20):
            await world.pass_time(seconds=60)
        assert world.writes() == 1
        await world.pass_time(seconds=90 * 60)
        assert world.job["spec"]["suspend"] is True
        await world.pass_time(seconds=10 * 60)
        assert world.job["spec"]["suspend"] is False
        assert world.job["metadata"]["annotations"]["heliotrope.io/started"] == stamp(2)
        assert world.events() == [("Normal", "Deferred"), ("Normal", "PlannedStart")]
        assert await world.pass_time(seconds=1) is None
        assert world.writes() == 2

    run_virtual(story())


def test_a_job_that_did_not_opt_in_is_never_touched_nor_remembered() -> None:
    async def story() -> None:
        for labels in ({}, {"heliotrope.io/deferrable": "True"}, {"heliotrope.io/deferrable": "false"}):
            world = World(job(labels=labels), policy(), region("es", *DAY))
            assert world.cluster.table(Kind.JOB).get(KEY) is NOT_OPTED_IN
            assert await world.pass_time(hours=200) is None
            assert world.api.requests == []

    run_virtual(story())


@pytest.mark.parametrize(
    "document",
    [
        job(suspend=False),
        job(status={"startTime": stamp(-1)}),
        job(status={"conditions": [{"type": "Suspended", "status": "False"}]}),
        job(status={"conditions": [{"type": "Failed", "status": "True"}]}),
        job(metadata={"deletionTimestamp": stamp()}),
        job("train", ONE_HOUR | {"heliotrope.io/started": stamp(-1)}),
        job(labels={"heliotrope.io/deferrable": "true", "kueue.x-k8s.io/queue-name": "batch"}),
        job(managedBy="kueue.x-k8s.io/multikueue"),
        job(metadata={"ownerReferences": [{"kind": "JobSet", "name": "set", "controller": True}]}),
    ],
)
def test_a_job_that_runs_ran_ended_or_is_somebody_elses_is_left_alone(document: dict[str, Any]) -> None:
    async def story() -> None:
        world = World(document, policy(), region("es", *DAY))
        assert not waits(world.cluster.table(Kind.JOB).get(KEY))
        assert await world.pass_time(hours=200) is None
        assert world.api.requests == []

    run_virtual(story())


def test_a_job_of_a_cron_job_is_deferred() -> None:
    owned = job(metadata={"ownerReferences": [{"kind": "CronJob", "name": "nightly", "controller": True}]})
    assert waits(World(owned).cluster.table(Kind.JOB).get(KEY))


def test_a_job_that_its_user_suspends_again_stays_suspended() -> None:
    async def story() -> None:
        world = World(job(), policy(), region("es", 100.0, 200.0, 300.0))
        await world.pass_time()
        assert world.job["spec"]["suspend"] is False
        suspended = world.job | {"spec": world.job["spec"] | {"suspend": True}}
        world.change(suspended)
        assert await world.pass_time(hours=100) is None
        assert world.job["spec"]["suspend"] is True

    run_virtual(story())


@pytest.mark.parametrize(
    ("news", "reason"),
    [
        (region("es", *DAY, freshness="Stale"), "SignalLost"),
        (policy(enforcement="Advise"), "AdviseOnly"),
        (policy(longestDelay="0s"), "LongestDelay"),
    ],
)
def test_news_starts_a_waiting_job_within_seconds(news: dict[str, Any], reason: str) -> None:
    async def story() -> None:
        world = World(job(), policy(), region("es", *DAY))
        again = await world.pass_time()
        assert again is not None
        world.change(news)
        await world.pass_time(seconds=again)
        assert world.job["spec"]["suspend"] is False
        assert world.events()[-1][1] == reason

    run_virtual(story())


def test_a_new_operator_goes_on_with_the_plan_of_the_old_one() -> None:
    async def story() -> None:
        before = World(job(), policy(), region("es", *DAY))
        await before.pass_time()
        after = World(before.job, policy(), region("es", *DAY), api=before.api)
        writes = after.writes()
        await after.pass_time(seconds=60)
        assert after.writes() == writes
        await after.pass_time(hours=2)
        assert after.job["spec"]["suspend"] is False
        assert after.job["metadata"]["annotations"]["heliotrope.io/deferral-reason"] == "PlannedStart"

    run_virtual(story())


def test_of_two_writers_one_loses_and_looks_again() -> None:
    async def story() -> None:
        first = World(job(), policy(), region("es", 100.0, 200.0, 300.0))
        second = World(api=first.api)
        for kind, document in (
            (Kind.JOB, first.job),
            (Kind.CARBON_POLICY, policy()),
            (Kind.REGION_PROFILE, region("es", 100.0, 200.0, 300.0)),
        ):
            second.cluster.observe(kind, document)
        await first.pass_time()
        with pytest.raises(ConflictError):
            await second.pass_time()
        assert await second.pass_time() is None
        assert second.writes() == 2
        assert first.events() == [("Normal", "CleanestNow")]

    run_virtual(story())


def test_nothing_is_written_without_the_lease_and_an_outage_changes_nothing() -> None:
    async def story() -> None:
        world = World(job(), policy(), region("es", 100.0, 200.0, 300.0))
        world.leadership.held = False
        with pytest.raises(NotLeaderError):
            await world.pass_time()
        world.leadership.held = True
        world.kube.failure = UNAVAILABLE
        with pytest.raises(UnavailableError):
            await world.pass_time()
        world.kube.failure = None
        await world.pass_time()
        assert world.job["spec"]["suspend"] is False
        assert world.metric('heliotrope_deferral_starts_total{namespace="ns",reason="CleanestNow"}') == 1

    run_virtual(story())


@pytest.mark.parametrize("grid", [DAY, (100.0, 200.0, 300.0)])
def test_a_write_whose_answer_is_lost_is_not_repeated(grid: tuple[float, ...]) -> None:
    """The API server did it, and the operator cannot know: as if it had been killed right after the write."""

    async def story() -> None:
        world = World(job(), policy(), region("es", *grid))
        merge = world.kube.merge

        async def lost(path: str, patch: dict[str, Any]) -> dict[str, Any]:
            await merge(path, patch)
            raise UNAVAILABLE

        world.kube.merge = lost  # type: ignore[method-assign]
        with pytest.raises(UnavailableError):
            await world.pass_time()
        written = world.job
        world.kube.merge = merge  # type: ignore[method-assign]
        with pytest.raises(ConflictError):
            await world.pass_time(seconds=1)
        await world.pass_time(seconds=1)
        assert world.job == written

    run_virtual(story())


def test_a_clock_that_is_behind_does_not_start_a_job_late() -> None:
    """The API server says that the Job was created an hour from now; so it is an hour later than this clock shows."""

    async def story() -> None:
        world = World(job(created_h=1.0), policy(longestDelay="1h", safetyMargin="0s"), region("es", *DAY))
        await world.pass_time()
        assert world.job["spec"]["suspend"] is True
        await world.pass_time(hours=1.0)
        assert world.job["spec"]["suspend"] is False

    run_virtual(story())


def test_grams_are_counted_for_jobs_that_state_their_power() -> None:
    async def story() -> None:
        powered = job("train", ONE_HOUR | {"heliotrope.io/expected-power-watts": "1000"})
        world = World(powered, policy(), region("es", *DAY, pue="1"))
        await world.pass_time()
        await world.pass_time(hours=2)
        labels = 'enforcement="Enforce",namespace="ns"'
        grams = "heliotrope_deferral_expected_grams_co2e_total"
        assert world.metric(f'{grams}{{{labels},start="on_arrival"}}') == pytest.approx(300)
        assert world.metric(f'{grams}{{{labels},start="deferred"}}') == pytest.approx(100)

    run_virtual(story())
