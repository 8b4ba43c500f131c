"""Tiers below the accelerators' memory, and the events from which the content of all of them can be rebuilt."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine import (
    AllBlocksCleared,
    BlocksRemoved,
    BlocksStored,
    Engine,
    ExternalKv,
    KvEvent,
    KvSource,
    Medium,
    Phase,
    Request,
    Sequence,
    SleepLevel,
    StepResult,
    TierSpec,
)
from heliotrope_sim.engine.tiers import OffloadTiers

MS = 1_000_000
CPU = TierSpec(KvSource.HOST, Medium.CPU, 8, latency_ns=100, ns_per_block=10, picojoules_per_block=7)
DISK = TierSpec(KvSource.DISK, Medium.STORAGE, 4, latency_ns=1000, ns_per_block=300, picojoules_per_block=50)


def run(engine: Engine, now: int = 0) -> tuple[list[StepResult], int]:
    """Step whenever there is work; the steps and the time at the end."""
    results: list[StepResult] = []
    while True:
        result = engine.step(now)
        if result is not None:
            results.append(result)
            now = result.end_ns
        elif engine.next_work_ns is None:
            return results, now
        else:
            now = max(engine.next_work_ns, engine.energy.settled_ns)


def serve(engine: Engine, name: str, hashes: tuple[int, ...], now: int, extra: int = 1) -> tuple[Sequence, int]:
    """One request with so many hashed blocks and a few tokens more, alone from start to end."""
    sequence = engine.submit(Request(name, len(hashes) * 4 + extra, 1, hashes), now_ns=now)
    _, now = run(engine, now)
    return sequence, now


def test_what_memory_evicts_goes_down_the_tiers_and_the_last_one_loses_it() -> None:
    told: list[KvEvent] = []
    tiers = OffloadTiers([TierSpec(KvSource.HOST, Medium.CPU, 2, 1, 10, 5), DISK], told.append)
    plan = tiers.store([1, 2, 3])
    assert tiers.content() == {Medium.CPU: [2, 3], Medium.STORAGE: [1]}
    assert plan.blocks == {KvSource.HOST: 3, KvSource.DISK: 1}
    assert (plan.duration_ns, plan.picojoules) == (1 + 30 + 1000 + 300, 3 * 5 + 50)
    assert told == [
        BlocksStored((1,), Medium.CPU),
        BlocksStored((2,), Medium.CPU),
        BlocksRemoved((1,), Medium.CPU),
        BlocksStored((3,), Medium.CPU),
        BlocksStored((1,), Medium.STORAGE),
    ]
    tiers.store([4, 5, 6, 7, 8])
    assert tiers.content() == {Medium.CPU: [7, 8], Medium.STORAGE: [3, 4, 5, 6]}
    assert told[-2:] == [BlocksRemoved((2,), Medium.STORAGE), BlocksStored((6,), Medium.STORAGE)]


def test_a_tier_writes_what_it_has_only_once_and_keeps_what_was_used_last() -> None:
    tiers = OffloadTiers([TierSpec(KvSource.HOST, Medium.CPU, 3, 1, 10, 5)])
    tiers.store([1, 2, 3])
    assert tiers.store([1]).count == 0
    load = tiers.load((2,))
    assert (load.blocks, load.duration_ns, load.picojoules) == ({KvSource.HOST: 1}, 11, 5)
    tiers.store([4])
    assert tiers.content() == {Medium.CPU: [1, 2, 4]}


def test_a_match_is_unbroken_over_the_tiers() -> None:
    tiers = OffloadTiers([TierSpec(KvSource.HOST, Medium.CPU, 1, 1, 1, 1), DISK])
    tiers.store([10, 11, 13])
    assert tiers.match((10, 11, 12, 13), 0, 4) == 2
    assert tiers.match((10, 11, 12, 13), 3, 4) == 4
    assert tiers.match((10, 11, 12, 13), 0, 1) == 1
    assert tiers.match((10, 11), 2, 2) == 2


def test_an_evicted_prefix_comes_back_from_host_memory(model: EngineModel) -> None:
    engine = Engine(model, tiers=[CPU])
    prefix = (1, 2, 3, 4)
    _, now = serve(engine, "first", prefix, 0)
    _, now = serve(engine, "filler", (), now, extra=158)
    assert engine.kv.cached_blocks == 0
    assert engine.tiers is not None
    # The end of the prefix was evicted first.
    assert engine.tiers.content() == {Medium.CPU: [4, 3, 2, 1]}
    stores = engine.external.offload_stores
    assert (stores.blocks, stores.sizes, stores.duration_ns, stores.picojoules) == (4, {4: 1}, 140, 28)
    again = engine.submit(Request("again", 18, 1, prefix), now_ns=now)
    results, end = run(engine, now)
    assert (results[0].phase, results[0].tokens, results[0].start_ns) == (Phase.PREFILL, 2, now + 140)
    assert (again.cached_tokens, again.external_tokens, again.external_source) == (16, 16, KvSource.HOST)
    assert again.load_picojoules == 28
    assert engine.external.hits[KvSource.HOST] == 16
    assert engine.external.queries == 17 + 158 + 18
    assert engine.kv.content() == set(prefix)
    assert engine.transfers.picojoules(end + 140) == 28 + 28


def test_the_source_that_reaches_farther_is_used(model: EngineModel) -> None:
    for offered, source in ((16, KvSource.HOST), (17, KvSource.P2P)):
        engine = Engine(model, tiers=[CPU])
        _, now = serve(engine, "first", (1, 2, 3, 4), 0)
        _, now = serve(engine, "filler", (), now, extra=158)
        external = ExternalKv(offered, 5, 1000, KvSource.P2P)
        again = engine.submit(Request("again", 21, 1, (1, 2, 3, 4), external), now_ns=now)
        run(engine, now)
        assert again.external_source is source
        assert sum(engine.external.hits.values()) == again.external_tokens == offered


def test_sleep_forgets_the_tiers_too(model: EngineModel) -> None:
    engine = Engine(model, tiers=[CPU], record_events=True)
    _, now = serve(engine, "first", (1, 2), 0)
    _, now = serve(engine, "filler", (), now, extra=158)
    engine.take_events()
    engine.sleep(SleepLevel.PAUSED, now)
    assert engine.take_events() == []
    engine.sleep(SleepLevel.WEIGHTS_OFFLOADED, now)
    assert engine.take_events() == [AllBlocksCleared()]
    assert engine.tiers is not None
    assert engine.tiers.content() == {Medium.CPU: []}


def test_stored_blocks_are_told_as_the_request_fills_them(model: EngineModel) -> None:
    engine = Engine(model, record_events=True)
    request = Request("a", 10, 8, (1, 2, 3, 4))
    engine.submit(request, now_ns=0)
    told = []
    now = 0
    while (result := engine.step(now)) is not None:
        now = result.end_ns
        told.append(engine.take_events())
    # Two blocks of the prompt, then one for every four tokens of the answer; its last token has no KV.
    assert [e for e in told if e] == [
        [BlocksStored((1, 2), Medium.GPU, request, 0)],
        [BlocksStored((3,), Medium.GPU, request, 2)],
        [BlocksStored((4,), Medium.GPU, request, 3)],
    ]


def test_nothing_is_recorded_unless_asked(model: EngineModel) -> None:
    engine = Engine(model, tiers=[CPU])
    _, now = serve(engine, "first", (1, 2), 0)
    serve(engine, "filler", (), now, extra=158)
    assert engine.take_events() == []


class Consumer:
    """What a reader of the events knows."""

    def __init__(self) -> None:
        self.known: dict[Medium, set[int]] = {medium: set() for medium in Medium}

    def read(self, events: list[KvEvent]) -> None:
        for event in events:
            if isinstance(event, BlocksStored):
                self.known[event.medium].update(event.hashes)
            elif isinstance(event, BlocksRemoved):
                assert self.known[event.medium].issuperset(event.hashes)
                self.known[event.medium].difference_update(event.hashes)
            else:
                for known in self.known.values():
                    known.clear()


@settings(deadline=None)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["submit", "submit", "external", "hold", "abort", "release", "step", "step", "sleep"]),
            st.integers(0, 30 * MS),
            st.integers(1, 100),
            st.integers(1, 40),
            st.integers(0, 5),
        ),
        max_size=50,
    ),
    cpu_blocks=st.integers(0, 30),
    disk_blocks=st.integers(0, 30),
)
def test_the_events_rebuild_the_content_and_blocks_and_energy_are_conserved(
    model: EngineModel, events: list[tuple[str, int, int, int, int]], cpu_blocks: int, disk_blocks: int
) -> None:
    engine = Engine(
        model,
        tiers=[
            TierSpec(KvSource.HOST, Medium.CPU, cpu_blocks, 10, MS, 3),
            TierSpec(KvSource.DISK, Medium.STORAGE, disk_blocks, 10, 5 * MS, 11),
        ],
        record_events=True,
    )
    consumer = Consumer()
    everyone: list[Sequence] = []
    now = 0

    def check() -> None:
        consumer.read(engine.take_events())
        assert engine.tiers is not None
        content = {medium: set(blocks) for medium, blocks in engine.tiers.content().items()}
        assert consumer.known == content | {Medium.GPU: engine.kv.content()}
        assert len(content[Medium.CPU]) <= cpu_blocks
        assert len(content[Medium.STORAGE]) <= disk_blocks
        shared = {block for s in everyone for block in s.shared_blocks}
        assert engine.kv.used_blocks == len(shared) + sum(s.private_blocks for s in everyone)
        unused = engine.kv.capacity_blocks - engine.kv.used_blocks
        assert 0 <= engine.kv.cached_blocks - len(shared) <= unused

    for index, (what, gap, prompt, output, variant) in enumerate(events):
        now += gap
        if what in ("submit", "external", "hold"):
            hashes = tuple(1000 * variant + i for i in range((prompt + output) // 4))
            external = ExternalKv(1 + output % prompt, gap, gap) if what == "external" else None
            request = Request(str(index), prompt, output, hashes, external, 5 * gap if what == "hold" else None)
            everyone.append(engine.submit(request, now_ns=now))
        elif what == "abort" and everyone:
            engine.abort(everyone[output % len(everyone)].request.request_id, now)
        elif what == "release" and everyone:
            engine.release(everyone[output % len(everyone)].request.request_id)
        elif what == "sleep" and variant == 5:
            engine.sleep(SleepLevel(prompt % 3), now)
            engine.wake(now)
        elif what == "step":
            now = max(now, engine.energy.settled_ns)
            engine.step(now)
        check()
    _, now = run(engine, max(now, engine.energy.settled_ns))
    check()
    assert engine.kv.used_blocks == 0
    loaded = sum(s.load_picojoules for s in everyone)
    assert engine.transfers.picojoules(now + 10**12) == loaded + engine.external.offload_stores.picojoules
