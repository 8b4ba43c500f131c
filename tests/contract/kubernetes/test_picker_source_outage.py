"""The picker's Kubernetes source when the API server fails it: it serves from memory and catches up."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.support.controlplane import Cluster, ControlPlane
from tests.support.picker_cluster import FAST, Pods, eventually, mirrored, pods_of, policy, pool, rights, running

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kubernetes import KubernetesSource
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.credentials import Credentials
from heliotrope_epp.datalayer.kubernetes.errors import ExpiredError
from heliotrope_epp.datalayer.resources import PoolRef

pytestmark = pytest.mark.controlplane


@pytest.fixture
def pods(control_plane: Cluster, namespace: str) -> Iterator[Pods]:
    with pods_of(control_plane, namespace) as pods:
        yield pods


class CountingConnection(Connection):
    """Counts lists, and can make watches begin at a version of long ago."""

    def __init__(self, *, kubeconfig: Path) -> None:
        super().__init__(kubeconfig=kubeconfig)
        self.lists: dict[str, int] = {}
        self.watched_from: list[str] = []
        self.stale_watches = 0
        self.expired: list[ExpiredError] = []

    async def get(self, path: str, *, params: Mapping[str, str], timeout_s: float, accept: str = "") -> dict[str, Any]:
        self.lists[path] = self.lists.get(path, 0) + 1
        return await super().get(path, params=params, timeout_s=timeout_s, accept=accept)

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        self.watched_from.append(params["resourceVersion"])
        if self.stale_watches > 0 and path.endswith("/pods"):
            self.stale_watches -= 1
            params = {**params, "resourceVersion": "1"}
        try:
            async with aclosing(super().watch(path, params=params, silence_s=silence_s)) as events:
                async for event in events:
                    yield event
        except ExpiredError as error:
            self.expired.append(error)
            raise


async def test_endpoints_stay_while_the_api_server_is_away_and_catch_up_afterwards(
    restartable_control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    cluster = restartable_control_plane
    cluster.apply(pool(namespace), policy(namespace, "green"))
    pods.create("a", "10.2.0.1")
    pods.create("b", "10.2.0.2")

    async with running(namespace, Connection(kubeconfig=cluster.kubeconfig)) as published:
        await published.until(lambda: len(published.endpoints) == 2)
        states = len(published.all)

        cluster.stop_apiserver()
        try:
            await published.until(lambda: not published.source.healthy)
            await asyncio.sleep(1.0)
            assert len(published.all) == states  # nothing was taken away
            assert published.endpoints == {"a": "10.2.0.1:8000", "b": "10.2.0.2:8000"}
        finally:
            cluster.start_apiserver()

        pods.delete("a")
        pods.create("c", "10.2.0.3")
        await published.until(lambda: published.endpoints == {"b": "10.2.0.2:8000", "c": "10.2.0.3:8000"})
        await published.until(lambda: published.source.healthy)
        assert all(state.endpoints and state.policies for state in published.all)  # never a partial state


async def test_what_was_deleted_during_the_outage_is_gone_after_it(
    restartable_control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    """The picker misses the deletion: its watch is held up while the object goes."""
    cluster = restartable_control_plane
    cluster.apply(pool(namespace))
    pods.create("a", "10.2.0.1")
    pods.create("b", "10.2.0.2")
    connection = HeldConnection(kubeconfig=cluster.kubeconfig)

    async with running(namespace, connection) as published:
        await published.until(lambda: len(published.endpoints) == 2)
        connection.held.clear()
        cluster.restart_apiserver()
        pods.delete("a")
        assert len(published.endpoints) == 2
        connection.held.set()
        await published.until(lambda: published.endpoints == {"b": "10.2.0.2:8000"})


class HeldConnection(Connection):
    """Makes no new call while `held` is clear."""

    def __init__(self, *, kubeconfig: Path) -> None:
        super().__init__(kubeconfig=kubeconfig)
        self.held = asyncio.Event()
        self.held.set()

    async def get(self, path: str, *, params: Mapping[str, str], timeout_s: float, accept: str = "") -> dict[str, Any]:
        await self.held.wait()
        return await super().get(path, params=params, timeout_s=timeout_s, accept=accept)

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        await self.held.wait()
        async with aclosing(super().watch(path, params=params, silence_s=silence_s)) as events:
            async for event in events:
                yield event


async def test_an_expired_watch_is_followed_by_a_new_list(
    restartable_control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    cluster = restartable_control_plane
    cluster.apply(pool(namespace))
    pods.create("a", "10.2.0.1")
    cluster.compact()
    cluster.restart_apiserver()
    connection = CountingConnection(kubeconfig=cluster.kubeconfig)
    connection.stale_watches = 2

    async with running(namespace, connection) as published:
        await published.until(lambda: len(published.endpoints) == 1 and connection.stale_watches == 0)
        pods.create("b", "10.2.0.2")
        await published.until(lambda: len(published.endpoints) == 2)

        assert len(connection.expired) == 2
        assert connection.lists[f"/api/v1/namespaces/{namespace}/pods"] == 3
        assert published.source.healthy


async def test_a_watch_that_ends_goes_on_without_a_new_list(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    connection = CountingConnection(kubeconfig=control_plane.kubeconfig)
    timing = replace(FAST, watch_shortest_s=0.5)
    pods.create("a", "10.2.0.1")

    async with mirrored(connection, Collection("", "v1", "pods", namespace), timing=timing) as mirror:
        for number in range(4):
            await asyncio.sleep(0.8)
            pods.create(f"more-{number}", f"10.2.1.{number}")
        await eventually(lambda: len(mirror.objects) == 5)

    assert len(set(connection.watched_from)) > 2  # each goes on from what the one before it saw last
    assert connection.lists == {f"/api/v1/namespaces/{namespace}/pods": 1}


async def test_a_silent_watch_counts_as_a_dead_connection(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    connection = CountingConnection(kubeconfig=control_plane.kubeconfig)
    pods.create("a", "10.2.0.1")

    async with mirrored(
        connection, Collection("", "v1", "pods", namespace), timing=replace(FAST, watch_silence_s=0.3)
    ) as mirror:
        await eventually(lambda: connection.lists.get(f"/api/v1/namespaces/{namespace}/pods", 0) >= 3)
        assert list(mirror.objects) == [f"{namespace}/a"]

        pods.create("b", "10.2.0.2")
        await eventually(lambda: len(mirror.objects) == 2)


async def test_a_kind_that_is_not_installed_is_empty_and_found_later(
    control_plane: Cluster, namespace: str, unique_name: Callable[[str], str]
) -> None:
    group = f"{unique_name('late')}.example.com"
    crd = _crd(group)
    things = Collection(group, "v1", "things", namespace)

    async with mirrored(Connection(kubeconfig=control_plane.kubeconfig), things) as mirror:
        await eventually(lambda: mirror.synced)
        assert (mirror.healthy, dict(mirror.objects)) == (True, {})

        control_plane.apply(crd)
        control_plane.kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}")
        thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": namespace}}
        control_plane.apply(thing)
        await eventually(lambda: dict(mirror.objects) == {f"{namespace}/x": "x"})

        control_plane.kubectl("delete", "crd", crd["metadata"]["name"])
        await eventually(lambda: not mirror.objects and mirror.healthy)


def _crd(group: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def test_a_right_that_is_taken_away_later_leaves_the_last_state(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    control_plane.apply(pool(namespace), *rights(namespace, "pool", "picker"))
    control_plane.kubectl("create", "serviceaccount", "picker", "-n", namespace)
    pods.create("a", "10.2.0.1")
    timing = replace(FAST, watch_shortest_s=0.5)
    account = Connection(kubeconfig=control_plane.service_account_kubeconfig(namespace, "picker"))

    async with running(namespace, account, timing=timing) as published:
        await published.until(lambda: len(published.endpoints) == 1)

        control_plane.kubectl("delete", "rolebinding", "heliotrope-epp", "-n", namespace)
        await published.until(lambda: not published.source.healthy)
        assert published.endpoints == {"a": "10.2.0.1:8000"}

        control_plane.apply(*rights(namespace, "pool", "picker"))
        pods.create("b", "10.2.0.2")
        await published.until(lambda: len(published.endpoints) == 2 and published.source.healthy)


async def test_in_a_pod_the_token_of_the_service_account_is_read_again_when_it_is_void(
    control_plane: Cluster, namespace: str, pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_plane.apply(pool(namespace), *rights(namespace, "pool", "picker"))
    pods.create("a", "10.2.0.1")
    mount = InPod(control_plane, namespace, tmp_path, monkeypatch)
    mount.recreate_account()
    mount.write_token()
    connection = Connection(credentials=Credentials(service_account=tmp_path))

    async with running(namespace, connection, timing=replace(FAST, watch_shortest_s=0.5)) as published:
        await published.until(lambda: len(published.endpoints) == 1)

        mount.recreate_account()
        await published.until(lambda: not published.source.healthy)  # the old token is void and there is no other
        assert len(published.endpoints) == 1

        mount.write_token()
        await published.until(lambda: published.source.healthy)
        pods.create("b", "10.2.0.2")
        await published.until(lambda: len(published.endpoints) == 2)


class InPod:
    """What a kubelet gives a pod: the API server's address in the environment, and files of the service account."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._folder = folder
        config = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten"))
        server = urlsplit(config["clusters"][0]["cluster"]["server"])
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        (folder / "ca.crt").write_bytes(base64.b64decode(authority))
        monkeypatch.setenv("KUBECONFIG", str(folder / "absent"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))

    def recreate_account(self) -> None:
        """A new account of the same name: tokens of the old one are void."""
        self._cluster.kubectl("delete", "serviceaccount", "picker", "-n", self._namespace, "--ignore-not-found")
        self._cluster.kubectl("create", "serviceaccount", "picker", "-n", self._namespace)

    def write_token(self) -> None:
        """Put a valid token into place."""
        token = self._cluster.kubectl("create", "token", "picker", "-n", self._namespace)
        (self._folder / "token").write_text(token.strip())


async def test_a_list_of_many_pages_is_read_whole(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    for number in range(7):
        pods.create(f"p-{number}", f"10.2.2.{number}")
    connection = CountingConnection(kubeconfig=control_plane.kubeconfig)

    async with mirrored(connection, Collection("", "v1", "pods", namespace), page_size=3) as mirror:
        await eventually(lambda: mirror.synced)

        assert sorted(mirror.objects.values()) == [f"p-{number}" for number in range(7)]
        assert connection.lists == {f"/api/v1/namespaces/{namespace}/pods": 3}


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(
    restartable_control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    cluster = restartable_control_plane
    cluster.apply(pool(namespace))
    pods.create("a", "10.2.0.1")
    cluster.stop_apiserver()
    try:
        async with running(namespace, Connection(kubeconfig=cluster.kubeconfig)) as published:
            await asyncio.sleep(1.0)
            assert published.all == []
            assert not published.source.healthy

            cluster.start_apiserver()
            await published.until(lambda: len(published.endpoints) == 1)
    finally:
        if not _serving(cluster):
            cluster.start_apiserver()


def _serving(cluster: ControlPlane) -> bool:
    return "items" in json.loads(cluster.kubectl("get", "namespaces", "-o", "json", check=False) or "{}")


async def test_credentials_that_are_not_there_are_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("apiVersion: v1\nkind: Config\n")
    for path in (tmp_path / "empty", tmp_path / "absent"):
        source = KubernetesSource(PoolRef("default", "pool"), Connection(kubeconfig=path), timing=FAST)

        with pytest.raises(InvalidInputError, match="no usable credentials"):
            await asyncio.wait_for(source.run(lambda _: None), 20)
