from collections.abc import Mapping, Sequence

from hypothesis import given as sampled
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.nodepower import IntentPod, PowerIntent
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import Claim, Holder, PodName, Standing
from heliotrope_agent.pods.judge import Verified, judge
from heliotrope_agent.pods.processes import Running

UUIDS = tuple(f"GPU-0a3ad8ae-1f5b-4b0a-9f0e-00000000000{i}" for i in range(3))
DEVICES = tuple(Device(uuid, index, "H100") for index, uuid in enumerate(UUIDS))
A, B = UUIDS[:2]
MINE, THEIRS = PodName("team", "engine-0"), PodName("team", "notebook-0")
UID, OTHER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def intent(name: str = MINE.name, uid: str = UID, variant: str = "llama") -> PowerIntent:
    return PowerIntent(namespace="team", variant=variant, pods=(IntentPod(name=name, uid=uid),), sm_clock_mhz=1200)


def claim(pod: PodName, device_id: str, *, container: str = "engine", dynamic: bool = False) -> Claim:
    return Claim(pod, container, device_id, dynamic=dynamic)


def of(
    *claims: Claim,
    running: Mapping[str, Running] | None = None,
    intents: Sequence[PowerIntent] = (intent(),),
    verified: Mapping[str, Verified] | None = None,
    devices: Sequence[Device] = DEVICES,
    uuid: str = A,
) -> Holder:
    seen = {each: Running() for each in UUIDS} | dict(running or {})
    return judge(devices, claims, seen, intents, verified or {})[uuid]


OWN = {A: Running(frozenset({UID}))}


def test_claimed_named_and_run_on_by_one_pod_alone() -> None:
    assert of(claim(MINE, A), running=OWN) == Holder(Standing.ELIGIBLE, MINE)


def test_an_index_does_where_the_processes_agree() -> None:
    assert of(claim(MINE, "0"), running=OWN) == Holder(Standing.ELIGIBLE, MINE)
    # A plugin that counts otherwise than the driver: each has the other's processes.
    swapped = {A: Running(frozenset({OTHER})), B: Running(frozenset({UID}))}
    claims = (claim(MINE, "0"), claim(THEIRS, "1"))
    assert of(*claims, running=swapped).standing is Standing.FOREIGN_OWNER
    assert of(*claims, running=swapped, uuid=B).standing is Standing.FOREIGN_OWNER


def test_nobody_has_it() -> None:
    assert of() == Holder(Standing.FREE)
    assert of(claim(MINE, B)) == Holder(Standing.FREE)


def test_a_pod_that_has_not_started_yet_is_not_verified() -> None:
    assert of(claim(MINE, A)) == Holder(Standing.UNVERIFIED, MINE)


def test_a_container_that_starts_again_keeps_what_was_verified() -> None:
    kept = {A: (MINE, UID)}
    assert of(claim(MINE, A), verified=kept).standing is Standing.ELIGIBLE
    assert of(claim(MINE, A), verified={A: (MINE, OTHER)}).standing is Standing.UNVERIFIED
    assert of(claim(MINE, A), verified={B: (MINE, UID)}).standing is Standing.UNVERIFIED
    assert of(claim(MINE, A), verified=kept, intents=[intent(uid=OTHER)]).standing is Standing.UNVERIFIED
    vanished = {A: Running(unknown=frozenset({7}))}
    assert of(claim(MINE, A), verified=kept, running=vanished).standing is Standing.UNVERIFIED


def test_a_driver_that_cannot_tell_verifies_nothing_new() -> None:
    claims = (claim(MINE, A),)
    assert judge(DEVICES, claims, {}, [intent()], {})[A] == Holder(Standing.UNVERIFIED, MINE)
    assert judge(DEVICES, claims, {}, [intent()], {A: (MINE, UID)})[A] == Holder(Standing.ELIGIBLE, MINE)
    assert judge(DEVICES, (), {}, [intent()], {})[A] == Holder(Standing.UNVERIFIED)


def test_a_kubelet_that_starts_again_lists_nobody_for_a_while() -> None:
    kept = {A: (MINE, UID)}
    assert of(running=OWN, verified=kept) == Holder(Standing.UNVERIFIED, MINE)
    assert of(running=OWN) == Holder(Standing.FOREIGN_OWNER)
    assert of(running=OWN, verified=kept, intents=()) == Holder(Standing.FOREIGN_OWNER)
    assert of(running=OWN, verified={A: (MINE, OTHER)}) == Holder(Standing.FOREIGN_OWNER)
    both = {A: Running(frozenset({UID, OTHER}))}
    assert of(running=both, verified=kept) == Holder(Standing.FOREIGN_OWNER)
    assert of(verified=kept) == Holder(Standing.FREE)
    assert of(claim(THEIRS, A), running=OWN, verified=kept) == Holder(Standing.FOREIGN_OWNER, THEIRS)


def test_foreign() -> None:
    assert of(claim(THEIRS, A), running=OWN) == Holder(Standing.FOREIGN_OWNER, THEIRS)
    assert of(claim(MINE, A), running=OWN, intents=()) == Holder(Standing.FOREIGN_OWNER, MINE)
    for others in (
        Running(frozenset({UID, OTHER})),
        Running(frozenset({OTHER})),
        Running(frozenset({UID}), outside=True),
        Running(outside=True),
    ):
        assert of(claim(MINE, A), running={A: others}, verified={A: (MINE, UID)}) == Holder(
            Standing.FOREIGN_OWNER, MINE
        )
        assert of(running={A: others}) == Holder(Standing.FOREIGN_OWNER)


def test_the_same_name_in_another_namespace_is_another_pod() -> None:
    assert of(claim(PodName("other", MINE.name), A), running=OWN).standing is Standing.FOREIGN_OWNER


def test_shared() -> None:
    both = Holder(Standing.SHARED, None, frozenset({MINE, THEIRS}))
    assert of(claim(MINE, f"{A}::0"), running=OWN) == Holder(Standing.SHARED, MINE, frozenset({MINE}))
    assert of(claim(MINE, f"{A}::0"), claim(THEIRS, f"{A}::1"), running=OWN) == both
    assert of(claim(MINE, A), claim(THEIRS, A), running=OWN) == both
    assert of(claim(MINE, A), claim(MINE, A, container="second"), running=OWN) == Holder(
        Standing.SHARED, MINE, frozenset({MINE})
    )


def test_partitioned() -> None:
    devices = (Device(A, 0, "H100", mig=True), *DEVICES[1:])
    mig = claim(THEIRS, "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f")
    assert of(claim(MINE, A), running=OWN, devices=devices) == Holder(Standing.MIG, MINE, frozenset({MINE}))
    own = {B: Running(frozenset({UID}))}
    assert of(mig, claim(MINE, B), running=own, devices=devices) == Holder(Standing.MIG)
    assert of(mig, claim(MINE, B), running=own, devices=devices, uuid=B) == Holder(Standing.ELIGIBLE, MINE)
    # No GPU is partitioned that the driver knows of: it may be any.
    assert of(mig, claim(MINE, B), running=own, uuid=B) == Holder(Standing.UNVERIFIED, MINE)


def test_what_may_be_any_gpu_verifies_none() -> None:
    for somewhere in (claim(THEIRS, "node-1/gpu-0", dynamic=True), claim(THEIRS, "somewhere")):
        assert of(claim(MINE, A), somewhere, running=OWN) == Holder(Standing.UNVERIFIED, MINE)
        assert of(claim(MINE, A), somewhere, running=OWN, uuid=B) == Holder(Standing.UNVERIFIED)


def test_a_gpu_that_the_driver_does_not_have_hinders_nobody() -> None:
    lost = claim(THEIRS, "GPU-ffffffff-1f5b-4b0a-9f0e-000000000001")
    assert of(claim(MINE, A), lost, running=OWN) == Holder(Standing.ELIGIBLE, MINE)


def test_intents_that_disagree_about_a_pods_uid() -> None:
    both = [intent(), intent(uid=OTHER, variant="qwen")]
    assert of(claim(MINE, A), running=OWN, intents=both) == Holder(Standing.UNVERIFIED, MINE)
    twice = [intent(), intent(variant="qwen")]
    assert of(claim(MINE, A), running=OWN, intents=twice).standing is Standing.ELIGIBLE


PODS = st.sampled_from([MINE, THEIRS, PodName("other", MINE.name)])
IDS = st.sampled_from(
    [*UUIDS, f"{A}::0", f"{A}::1", "0", "1", "nvidia0/vgpu1", "nvidia1/gi3", "MIG-x", f"MIG-{B}/1/0", "?", "GPU-gone"]
)
CLAIMS = st.lists(
    st.builds(Claim, PODS, st.sampled_from(["engine", "side"]), IDS, dynamic=st.integers(0, 9).map(lambda i: i == 9)),
    max_size=4,
)
UIDS = st.sampled_from([UID, OTHER])
RUNNING = st.dictionaries(
    st.sampled_from(UUIDS),
    st.builds(Running, st.frozensets(UIDS, max_size=2), st.booleans(), st.frozensets(st.just(7), max_size=1)),
)
INTENTS = st.lists(st.builds(intent, st.sampled_from([MINE.name, THEIRS.name]), UIDS), max_size=3)
VERIFIED = st.dictionaries(st.sampled_from(UUIDS), st.tuples(PODS, UIDS))
ALL = st.tuples(
    *(st.builds(Device, st.just(u), st.just(i), st.just("H100"), mig=st.booleans()) for i, u in enumerate(UUIDS))
)


@sampled(ALL, CLAIMS, RUNNING, INTENTS, VERIFIED)
def test_a_gpu_is_eligible_only_if_nothing_speaks_against_it(
    devices: tuple[Device, ...],
    claims: list[Claim],
    running: dict[str, Running],
    intents: list[PowerIntent],
    verified: dict[str, Verified],
) -> None:
    holders = judge(devices, claims, running, intents, verified)
    assert set(holders) == set(UUIDS)
    for device in devices:
        holder = holders[device.uuid]
        if holder.standing is not Standing.ELIGIBLE:
            continue
        assert not device.mig
        assert not any(each.dynamic or each.device_id == "?" for each in claims)
        # Exactly one claim reaches the device, all of it, by one container.
        mine = [each for each in claims if each.device_id in (device.uuid, str(device.index))]
        assert len(mine) == 1
        assert not any(device.uuid in each.device_id and each not in mine for each in claims)
        pod = mine[0].pod
        assert holder.pod == pod
        uids = {p.uid for i in intents for p in i.pods if PodName(i.namespace, p.name) == pod}
        assert len(uids) == 1
        on_it = running.get(device.uuid)
        if on_it is None or on_it == Running():
            assert verified[device.uuid] == (pod, *uids)
        else:
            assert on_it == Running(frozenset(uids))


@sampled(ALL, CLAIMS, RUNNING, INTENTS, VERIFIED)
def test_free_is_what_neither_source_knows_of(
    devices: tuple[Device, ...],
    claims: list[Claim],
    running: dict[str, Running],
    intents: list[PowerIntent],
    verified: dict[str, Verified],
) -> None:
    for uuid, holder in judge(devices, claims, running, intents, verified).items():
        if holder.standing is Standing.FREE:
            assert running[uuid] == Running()
            assert not any(uuid in each.device_id for each in claims)
            assert holder.pod is None
