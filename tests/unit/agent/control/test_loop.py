"""A whole loop over a driver in memory, whatever happens around it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry
from tests.unit.agent.control.world import (
    OTHER,
    POD,
    MemoryCluster,
    MemoryDriver,
    MemoryOwners,
    eligible,
    gpu,
    intent,
    uid,
    wishes,
)

from heliotrope_agent.control.loop import Bounds, Loop, Node
from heliotrope_agent.control.metrics import ControlMetrics
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.errors import FencedError
from heliotrope_agent.kube.wishes import Wishes
from heliotrope_agent.pods.claims import Holder, Standing
from heliotrope_agent.state.boot import ProcessId
from heliotrope_agent.state.heartbeat import Heartbeat
from heliotrope_agent.state.store import Store

GPUS = 3


class Bench:
    """A loop, and all that it works with."""

    def __init__(self, folder: Path, rules: Rules | None = None) -> None:
        self.folder = folder
        self.rules = rules or Rules(lower_dwell_s=0.0, raise_dwell_s=0.0, retry_first_s=1.0)
        self.now_s = 1000.0
        self.driver = MemoryDriver([gpu(number) for number in range(GPUS)])
        self.cluster = MemoryCluster()
        self.owners = MemoryOwners()
        self.registry = CollectorRegistry()
        self.check: Callable[[], None] = lambda: None
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.registry = CollectorRegistry()
        self.store = Store(self.folder)
        node = Node(
            driver=self.driver,
            owners=self.owners,
            cluster=self.cluster,
            store=self.store,
            heartbeat=Heartbeat(None, ProcessId(1, 1, ""), "boot", lambda: self.now_s, 1.0),
            check=lambda: self.check(),
            watchdog=lambda: None,
            boot_id="boot",
            clock=lambda: self.now_s,
            wall_clock=lambda: 1_700_000_000.0 + self.now_s,
        )
        self.loop = Loop(node, self.rules, ControlMetrics(self.registry), Bounds(restore_s=0.3))
        self.loop.recover()

    def look(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        self.loop.look()

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"heliotrope_agent_{name}", labels)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_status_is_reported_on_transitions_only(bench: Bench) -> None:
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=600))
    bench.owners.found = eligible(POD, POD, None)
    for _ in range(5):
        bench.look()
    assert bench.cluster.reports == 1
    assert bench.cluster.status is not None
    assert bench.cluster.status.managed_gpus == 2
    since = {each.type: each.last_transition_time for each in bench.cluster.status.conditions}
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=900))
    bench.look()
    assert bench.cluster.reports == 2
    assert {each.type: each.last_transition_time for each in bench.cluster.status.conditions} == since
    bench.cluster.wished = Wishes(known=True)
    bench.look()
    assert bench.driver.as_found()
    assert [reason for reason, _ in bench.cluster.events] == ["GpuSet", "GpuSet", "GpuReleased", "GpuReleased"]
    assert bench.sample("releases_total", cause="intent_gone") == 2
    assert bench.sample("sets_total") == 4


def test_a_loop_that_looks_says_so_once_a_minute_and_one_that_hangs_does_not(bench: Bench) -> None:
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=600))
    bench.owners.found = eligible(POD, POD, None)
    for _ in range(600):
        bench.look()
    assert 10 <= bench.cluster.reports <= 11
    assert bench.cluster.status is not None
    first = bench.cluster.status.heartbeat_time
    bench.now_s += 600.0
    assert bench.cluster.status.heartbeat_time == first
    bench.look()
    assert bench.cluster.status.heartbeat_time != first


def test_a_power_limit_that_reads_back_otherwise_is_taken_back(bench: Bench) -> None:
    bench.driver.ignored = True
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=600, watts=200))
    bench.owners.found = eligible(POD, POD, None)
    bench.look()
    assert bench.driver.as_found()
    assert bench.store.records == {}
    assert bench.sample("apply_failures_total", reason="NotEffective") == 2
    assert bench.cluster.status is not None
    assert bench.cluster.status.conditions[0].reason == "NotEffective"
    assert [reason for reason, _ in bench.cluster.events] == ["GpuNotSet"]
    bench.look(0.5)
    assert bench.sample("apply_failures_total", reason="NotEffective") == 2, "it waits"


def test_a_clock_that_vanishes_once_is_set_again_and_twice_is_somebody_elses(bench: Bench) -> None:
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=600))
    bench.owners.found = eligible(POD, None, None)
    bench.look()
    held = bench.driver.gpus["GPU-0"]
    for vanished in range(2):
        bench.look()
        held.sm = 1200
        for _ in range(4):
            bench.look()
        if vanished == 0:
            assert held.sm == 600
    assert bench.cluster.status is not None
    assert bench.cluster.status.gpus[0].reasons == ("ForeignWriter",)
    assert held.sm == 1200
    assert bench.store.records == {}


def test_after_the_fence_nothing_is_written(bench: Bench) -> None:
    bench.cluster.wished = wishes(intent(POD, sm_clock_mhz=600))
    bench.owners.found = eligible(POD, POD, None)
    bench.look()

    def fenced() -> None:
        raise FencedError("over")

    def written(uuid: str, back: bool) -> None:
        raise AssertionError(f"{uuid} was written to")

    bench.check, bench.driver.watcher = fenced, written
    for call in (bench.look, bench.loop.end):
        with pytest.raises(FencedError):
            call()


pods = st.sampled_from((POD, OTHER, None))
standings = st.sampled_from((*(Standing.ELIGIBLE,) * 4, Standing.SHARED, Standing.UNVERIFIED, Standing.FOREIGN_OWNER))


class Weather(RuleBasedStateMachine):
    """Wishes, owners, the driver and the process itself change in any order."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        self.temporary = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.temporary.name))
        self.bench.driver.watcher = self.written

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        bench.driver.failing.clear()
        bench.driver.gone.clear()
        bench.cluster.wished = Wishes(known=True)
        bench.look(1000.0)
        assert bench.driver.as_found()
        assert Store(bench.folder).load() == {}
        self.temporary.cleanup()

    def written(self, uuid: str, back: bool) -> None:
        """Before each write: it is on disk whose GPU it is, and only one that may be is set."""
        record = Store(self.bench.folder).load()[uuid]
        if back:
            return
        assert self.bench.owners.found is not None
        assert self.bench.now_s < self.bench.cluster.wished.lease_until_s
        holder = self.bench.owners.found[uuid]
        assert holder.standing is Standing.ELIGIBLE
        assert holder.pod is not None
        assert (record.namespace, record.pod, record.pod_uid) == (
            holder.pod.namespace,
            holder.pod.name,
            uid(holder.pod),
        )

    @rule(
        mhz=st.integers(1, 2000), watts=st.none() | st.integers(50, 380), both=st.booleans(), lease_s=st.integers(0, 30)
    )
    def wish(self, mhz: int, watts: int | None, both: bool, lease_s: int) -> None:
        named = (POD, OTHER) if both else (POD,)
        self.bench.cluster.wished = wishes(
            intent(*named, sm_clock_mhz=mhz, watts=watts), until_s=self.bench.now_s + lease_s
        )

    @rule()
    def nothing_wished(self) -> None:
        self.bench.cluster.wished = Wishes(known=True)

    @rule(who=st.tuples(pods, pods, pods), how=st.tuples(standings, standings, standings))
    def move(self, who: tuple[object, ...], how: tuple[Standing, ...]) -> None:
        self.bench.owners.found = {
            f"GPU-{number}": Holder(Standing.FREE) if pod is None else Holder(standing, pod)  # type: ignore[arg-type]
            for number, (pod, standing) in enumerate(zip(who, how, strict=True))
        }

    @rule()
    def kubelet_silent(self) -> None:
        self.bench.owners.found = None

    @rule(number=st.integers(0, GPUS - 1), fails=st.booleans())
    def driver_fails(self, number: int, fails: bool) -> None:
        (self.bench.driver.failing.add if fails else self.bench.driver.failing.discard)(f"GPU-{number}")

    @rule(number=st.integers(0, GPUS - 1), gone=st.booleans())
    def falls_off_the_bus(self, number: int, gone: bool) -> None:
        (self.bench.driver.gone.add if gone else self.bench.driver.gone.discard)(f"GPU-{number}")

    @rule()
    def killed(self) -> None:
        self.bench.begin()

    @rule(seconds=st.sampled_from((0.5, 2.0, 100.0)))
    def look(self, seconds: float) -> None:
        self.bench.look(seconds)

    @invariant()
    def whatever_differs_is_on_disk(self) -> None:
        if not hasattr(self, "bench"):
            return
        records = Store(self.bench.folder).load()
        for uuid, held in self.bench.driver.gpus.items():
            assert uuid in records or (held.sm, held.memory, held.limit) == (None, None, 400_000)


TestWeather = Weather.TestCase
TestWeather.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
