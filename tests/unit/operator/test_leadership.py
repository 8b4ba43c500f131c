"""The Lease: one leader at a time whatever fails, and a new one when the old is gone."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube, metrics
from tests.unit.operator.virtual import run_virtual

from heliotrope.errors import InvalidInputError
from heliotrope_operator.leadership import Leadership
from heliotrope_operator.settings import LeaseSettings

pytestmark = pytest.mark.looptime

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/heliotrope-operator"
TIMES = LeaseSettings(duration_s=15, renew_deadline_s=10, retry_s=2)


class Replica:
    def __init__(self, api: MemoryApi, name: str, *, delay_s: float = 0.0, clock_s: float = 0.0) -> None:
        """`clock_s` is how wrong its wall clock is."""
        self.name = name
        self.kube = MemoryKube(api, delay_s=delay_s, rng=random.Random(name))
        self.leadership = Leadership(
            self.kube,  # type: ignore[arg-type]
            metrics(),
            namespace="ns",
            identity=name,
            settings=TIMES,
            unix_clock=lambda: 1_800_000_000 + clock_s,
        )
        self.taken = 0
        self.task: asyncio.Task[None] | None = None

    def start(self) -> "Replica":
        self.task = asyncio.create_task(self.leadership.run(self._take))
        return self

    def _take(self) -> None:
        self.taken += 1

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    @property
    def leads(self) -> bool:
        return self.leadership.held


async def test_the_first_replica_leads_and_the_second_stands_by() -> None:
    api = MemoryApi()
    first = Replica(api, "a").start()
    await asyncio.sleep(1)
    second = Replica(api, "b").start()
    await asyncio.sleep(600)

    assert (first.leads, second.leads, first.taken) == (True, False, 1)
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "a"
    await first.stop()
    await second.stop()


async def test_a_lease_that_is_given_back_is_taken_within_one_attempt() -> None:
    api = MemoryApi()
    first, second = Replica(api, "a").start(), Replica(api, "b")
    await asyncio.sleep(1)
    second.start()
    await asyncio.sleep(10)

    await first.stop()
    await first.leadership.release()
    assert not first.leads
    await asyncio.sleep(TIMES.retry_s + 0.1)

    assert second.leads
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1
    await second.stop()


@pytest.mark.parametrize("clock_s", [0.0, -3_600.0, 3_600.0])
async def test_a_leader_that_is_killed_is_replaced_when_its_lease_runs_out_whatever_the_clocks_say(
    clock_s: float,
) -> None:
    api = MemoryApi()
    first, second = Replica(api, "a").start(), Replica(api, "b", clock_s=clock_s)
    await asyncio.sleep(1)
    second.start()
    await asyncio.sleep(30)
    assert not second.leads
    await first.stop()

    await asyncio.sleep(TIMES.duration_s - TIMES.retry_s)
    assert not second.leads
    await asyncio.sleep(3 * TIMES.retry_s)
    assert second.leads
    await second.stop()


@pytest.mark.slow
async def test_a_leader_without_an_api_server_stops_writing_in_time_and_takes_over_again() -> None:
    api = MemoryApi()
    replica = Replica(api, "a").start()
    await asyncio.sleep(5)
    replica.kube.failure = UNAVAILABLE

    await asyncio.sleep(TIMES.renew_deadline_s + 0.1)
    assert not replica.leads
    await asyncio.sleep(1_000)
    replica.kube.failure = None
    await asyncio.sleep(TIMES.retry_s + 0.1)

    assert (replica.leads, replica.taken) == (True, 2)
    await replica.stop()


async def test_a_container_that_restarts_in_its_pod_takes_its_own_lease_at_once() -> None:
    api = MemoryApi()
    first = Replica(api, "pod-1").start()
    await asyncio.sleep(5)
    await first.stop()

    second = Replica(api, "pod-1").start()
    await asyncio.sleep(0.1)

    assert second.leads
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 0
    await second.stop()


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 10), (15, 10, 0)])
def test_times_that_would_let_two_lead_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInputError, match="retry_s < renew_deadline_s < duration_s"):
        LeaseSettings(*times)


Outage = tuple[float, float, int]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    outages=st.lists(st.tuples(st.floats(0, 120), st.floats(0, 40), st.integers(0, 2)), max_size=8),
    delays=st.tuples(*[st.floats(0, 3)] * 3),
)
def test_never_do_two_lead(outages: list[Outage], delays: tuple[float, float, float]) -> None:
    run_virtual(_check(outages, delays))


async def _check(outages: list[Outage], delays: tuple[float, float, float]) -> None:
    """Three replicas with slow requests, each cut off for a while now and then."""
    api = MemoryApi()
    replicas = [Replica(api, name, delay_s=delay).start() for name, delay in zip("abc", delays, strict=True)]

    async def cut_off(start: float, length: float, victim: int) -> None:
        await asyncio.sleep(start)
        replicas[victim].kube.failure = UNAVAILABLE
        await asyncio.sleep(length)
        replicas[victim].kube.failure = None

    cuts = [asyncio.create_task(cut_off(*outage)) for outage in outages]
    led = 0
    for _ in range(160):
        await asyncio.sleep(1)
        leaders = [replica.name for replica in replicas if replica.leads]
        assert len(leaders) <= 1, leaders
        led += len(leaders)
    await asyncio.gather(*cuts)
    await asyncio.gather(*(replica.stop() for replica in replicas))
    assert led > 50, "nobody led"
