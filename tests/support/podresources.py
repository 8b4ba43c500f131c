"""A kubelet's pod-resources API: a real gRPC server on a Unix socket, whose answers a test chooses."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from heliotrope_agent.pods.protocol import SERVICE, Messages

Pod = tuple[str, str]
"""Namespace and name."""


class KubeletSocket:
    """Serves `List`. Use as a context manager; `give` and `take` change what it says from then on.

    A test may also stop and start it, as a kubelet that restarts, or let it fail or hang.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """What it answers instead; None: the truth."""
        self.hang_s = 0.0
        """How long it waits before it answers."""
        self._messages = Messages()
        self._containers: dict[tuple[str, str, str], list[tuple[str, list[str]]]] = {}
        self._dynamic: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
        self._server: Any = None

    def give(
        self, pod: Pod, devices: Sequence[str], *, container: str = "engine", resource: str = "nvidia.com/gpu"
    ) -> None:
        """A container gets these devices."""
        self._containers.setdefault((*pod, container), []).append((resource, list(devices)))

    def give_claim(self, pod: Pod, driver: str, pool: str, device: str, *, container: str = "engine") -> None:
        """A container gets a device by a ResourceClaim."""
        self._dynamic.setdefault((*pod, container), []).append((driver, pool, device))

    def take(self, pod: Pod) -> None:
        """The pod has ended."""
        for given in (self._containers, self._dynamic):
            for key in [key for key in given if key[:2] == pod]:
                del given[key]

    def set(self, pods: Mapping[Pod, Sequence[str]]) -> None:
        """These pods, each with one container and all of these devices, are all that there are."""
        self._containers.clear()
        self._dynamic.clear()
        for pod, devices in pods.items():
            self.give(pod, devices)

    def start(self) -> None:
        """Listen; a socket file that is left over is removed first, as the kubelet does."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=self._messages.request.FromString,
            response_serializer=self._messages.response.SerializeToString,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"List": handler}),))
        assert self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        """The kubelet ends."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _list(self, request: Any, context: Any) -> Any:
        self.calls += 1
        if self.hang_s:
            ended = threading.Event()
            context.add_callback(ended.set)
            ended.wait(self.hang_s)
        if self.failure is not None:
            context.abort(*self.failure)
        answer = self._messages.response()
        pods: dict[Pod, Any] = {}
        for namespace, name, container in sorted({*self._containers, *self._dynamic}):
            pod = pods.get((namespace, name))
            if pod is None:
                pod = pods[namespace, name] = answer.pod_resources.add(namespace=namespace, name=name)
            row = pod.containers.add(name=container)
            for resource, devices in self._containers.get((namespace, name, container), ()):
                row.devices.add(resource_name=resource, device_ids=devices)
            for driver, pool, device in self._dynamic.get((namespace, name, container), ()):
                claim = row.dynamic_resources.add(claim_namespace=namespace, claim_name=f"{name}-gpus")
                claim.claim_resources.add(driver_name=driver, pool_name=pool, device_name=device)
        return answer
