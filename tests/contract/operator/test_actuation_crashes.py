"""The operator ends before and after every write that it makes to other people's objects.

Whatever it was doing, a new one goes on from what the API server has; and when the policy goes, the object is as its
owner left it: value, annotation and owners of every field.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.actuating import Actuating, CrashError
from tests.contract.operator.cluster import Api, Document
from tests.contract.operator.scaled import (
    ORIGINAL,
    granted_world,
    held_moved_and_given_back,
    hpa,
    original,
    policy,
    replicas,
    scaled_object,
    untouched,
)
from tests.support.controlplane import Cluster

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.writes import FIELD_MANAGER

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
KEDA = ROOT / "tests" / "support" / "keda"
MOST_WRITES = 12


@pytest.fixture(scope="session")
def keda(control_plane: Cluster) -> None:
    """KEDA's kinds are served."""
    control_plane.apply_crds(KEDA)


def owned(document: Document) -> set[tuple[str, str, str]]:
    """Managers with operation and what they own of the spec; times aside."""
    return {
        (each["manager"], each["operation"], json.dumps(each["fieldsV1"].get("f:spec", {}), sort_keys=True))
        for each in document["metadata"]["managedFields"]
        if "f:spec" in each["fieldsV1"]
    }


class Story:
    """A target that is held, moved and given back, and what it was before."""

    def __init__(self, api: Api, kind: str, name: str, mode: Actuation) -> None:
        self.api, self.kind, self.name, self.mode = api, kind, name, mode
        self.before = api.get(kind, name)

    async def live(self, operator: Actuating) -> None:
        """Held at 5, moved to 2, given back."""
        await held_moved_and_given_back(self.api, self.mode, operator)

    def field(self) -> int | None:
        path = {"Deployment": "replicas", "HorizontalPodAutoscaler": "maxReplicas", "ScaledObject": "maxReplicaCount"}
        found: int | None = self.api.get(self.kind, self.name)["spec"].get(path[self.kind])
        return found

    def restorable(self) -> bool:
        """Whoever looks at the object alone can put it back."""
        document = self.api.get(self.kind, self.name)
        if document["spec"] == self.before["spec"]:
            return True
        saved = original(self.api, self.kind, self.name)
        path = {
            "spec.replicas": "replicas",
            "spec.maxReplicas": "maxReplicas",
            "spec.maxReplicaCount": "maxReplicaCount",
        }
        return saved is not None and saved["value"] == self.before["spec"].get(path[saved["field"]])

    def as_before(self) -> bool:
        """Nothing of ours is left."""
        document = self.api.get(self.kind, self.name)
        return document["spec"] == self.before["spec"] and owned(document) == owned(self.before)


def story(api: Api, mode: str) -> Story:
    granted_world(api)
    if mode == "scale":
        return Story(api, "Deployment", "engine", Actuation.SCALE)
    made = (
        hpa(api, minReplicas=2)
        if mode == "hpa"
        else scaled_object(api, **({"maxReplicaCount": 9} if mode == "keda" else {}))
    )
    api.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    return Story(api, made["kind"], made["metadata"]["name"], Actuation.CEILING)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["scale", "hpa", "keda", "keda-unset"])
async def test_no_field_is_left_half_owned(
    api: Api, account: Path, keda: None, unique: Callable[[str], str], mode: str, when: str
) -> None:
    told = story(api, mode)
    crashes = 0
    for number in range(1, MOST_WRITES + 1):
        crash: dict[str, Any] = {f"crash_{when}": number}
        async with Actuating(account, api.namespace, **crash) as operator:
            try:
                await told.live(operator)
            except CrashError:
                crashes += 1
                assert told.restorable(), f"not restorable {when} write {number}"
            else:
                break
        # A new one, with the policy still there, goes on; then the policy goes while nobody is there.
        api.apply(policy(api, told.mode.value))
        async with Actuating(account, api.namespace) as operator:
            await operator.look()
            operator.want("v", 5, told.mode)
            await operator.settle()
            assert told.field() == 5
            saved = original(api, told.kind, told.name)
            assert saved is not None
        api.delete("CarbonPolicy", "green")
        async with Actuating(account, api.namespace) as operator:
            await operator.settle()
        assert told.as_before(), f"{when} write {number}: {api.get(told.kind, told.name)}"
        assert untouched(api, told.kind, told.name)
    assert told.as_before()
    assert crashes == {"scale": 5, "hpa": 4, "keda": 4, "keda-unset": 4}[mode], "every write was a place to end at"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["scale", "hpa", "keda", "keda-unset"])
async def test_a_crash_is_made_up_for_without_the_policy(
    api: Api, account: Path, keda: None, mode: str, when: str
) -> None:
    """The policy went while the operator was down, at every write."""
    told = story(api, mode)
    for number in range(1, MOST_WRITES + 1):
        crash: dict[str, Any] = {f"crash_{when}": number}
        async with Actuating(account, api.namespace, **crash) as operator:
            try:
                await told.live(operator)
            except CrashError:
                pass
            else:
                break
        api.delete("CarbonPolicy", "green")
        async with Actuating(account, api.namespace) as operator:
            await operator.settle()
        assert told.as_before(), f"{when} write {number}: {api.get(told.kind, told.name)}"
        assert untouched(api, told.kind, told.name)


LIFE = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.contract.operator.actuating import Actuating, CountingKube

CountingKube.end = lambda self, when: os.kill(os.getpid(), signal.SIGKILL)
kubeconfig, namespace, when, number = sys.argv[1:]

async def live():
    async with Actuating(Path(kubeconfig), namespace, **{f"crash_{when}": int(number)}) as operator:
        await operator.look()
        for wanted in (5, 2):
            operator.want("v", wanted)
            await operator.settle()

asyncio.run(live())
"""
KILLED = -9


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_at_each_write_leaves_nothing_half_owned(api: Api, account: Path, when: str) -> None:
    """SIGKILL, in a process of its own: taking, moving, and giving back."""
    told = story(api, "scale")

    def killed(number: int) -> bool:
        command = [sys.executable, "-c", LIFE, str(account), api.namespace, when, str(number)]
        status = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert status.returncode in (0, KILLED), status.stderr
        return status.returncode == KILLED

    async def give_back() -> None:
        async with Actuating(account, api.namespace) as operator:
            await operator.settle()

    for number in range(1, 4):
        api.apply(policy(api, "Scale"))
        assert killed(number)
        assert told.restorable()
        api.delete("CarbonPolicy", "green")
        asyncio.run(give_back())
        assert told.as_before()
    for number in range(1, 3):
        api.apply(policy(api, "Scale"))
        assert not killed(0)
        assert replicas(api) == 2
        api.delete("CarbonPolicy", "green")
        assert killed(number)
        assert told.restorable()
        asyncio.run(give_back())
        assert told.as_before()


async def test_giving_back_can_itself_be_ended_again_and_again(api: Api, account: Path) -> None:
    """A process that ends at each of its writes comes to an end all the same."""
    told = story(api, "scale")
    async with Actuating(account, api.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
    api.delete("CarbonPolicy", "green")
    for _ in range(4):
        async with Actuating(account, api.namespace, crash_after=1) as operator:
            try:
                await operator.settle()
            except CrashError:
                continue
            break
    assert told.as_before()
    assert replicas(api) == 3


async def test_conflicts_storm_and_the_last_word_is_right(api: Api, account: Path) -> None:
    """409 on every other write: each is decided anew from what is there, and none is lost."""
    from heliotrope_operator.errors import ConflictError

    told = story(api, "scale")
    async with Actuating(account, api.namespace) as operator:
        request = operator.kube._request
        sent: list[str] = []

        async def stormy(method: str, path: str, *arguments: Any, **options: Any) -> Document:
            if method == "PATCH" and f"/{told.name}" in path:
                sent.append(path)
                if len(sent) % 2:
                    api.merge("Deployment", told.name, {"status": {"observedGeneration": len(sent)}}, "status")
            return await request(method, path, *arguments, **options)

        operator.kube._request = stormy  # type: ignore[method-assign]

        async def persistently(step: Callable[[], Awaitable[None]]) -> int:
            for attempt in range(12):
                try:
                    await step()
                except ConflictError:
                    operator.enqueue(operator.actuation.seeds)
                else:
                    return attempt
            raise AssertionError("never without a conflict")

        await operator.look()
        operator.want("v", 5)
        assert await persistently(operator.settle) > 0
        assert replicas(api) == 5
        saved = original(api)
        assert saved is not None
        assert saved["value"] == 3
        api.delete("CarbonPolicy", "green")
        await persistently(operator.settle)
    assert told.as_before()


async def test_what_is_written_names_the_version_that_was_read(api: Api, account: Path) -> None:
    """So a change between reading and writing is never overwritten unseen."""
    granted_world(api)
    async with Actuating(account, api.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        api.delete("CarbonPolicy", "green")
        await operator.settle()
        assert len(operator.kube.written) == 4
        for _, document in operator.kube.written:
            assert document["metadata"]["resourceVersion"]
            assert document["metadata"]["uid"]
        first = operator.kube.written[0][1]
        assert ORIGINAL in first["metadata"]["annotations"]
        assert "spec" not in first, "the original is saved before anything changes"
    assert FIELD_MANAGER not in json.dumps(api.get("Deployment", "engine"))
