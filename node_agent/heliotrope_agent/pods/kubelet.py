"""The kubelet's word: which container was given which device."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import grpc

from heliotrope_agent.errors import PodsUnknownError
from heliotrope_agent.pods.claims import Claim, PodName
from heliotrope_agent.pods.protocol import LIST, Messages

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
"""As NVIDIA's device plugin calls GPUs. Others of `nvidia.com/` are network cards and GPUs of virtual machines."""
DRIVERS = ("gpu.nvidia.com",)
"""As NVIDIA's driver for ResourceClaims calls itself."""
_UUID_PREFIXES = ("GPU-", "MIG-")


class Kubelet(Protocol):
    """Who tells which container was given which device."""

    def claims(self) -> tuple[Claim, ...]:
        """Every GPU, or part of one, that a container of this node was given.

        Raises:
            PodsUnknownError: if nobody can tell.
        """
        ...


class PodResources:
    """The kubelet's pod-resources API (v1) on its Unix socket.

    The channel connects by itself again when the kubelet has restarted. A device counts as a GPU if its resource's name
    fits one of `resources`, or if its id is a GPU's UUID, whatever the resource is called.
    """

    def __init__(
        self,
        socket: Path = SOCKET,
        *,
        timeout_s: float = 2.0,
        max_message_bytes: int = 16 * 1024 * 1024,
        resources: tuple[str, ...] = RESOURCES,
        drivers: tuple[str, ...] = DRIVERS,
    ) -> None:
        """`resources` are names of extended resources, `*` for any text; `drivers` those of ResourceClaims."""
        self._socket = socket
        self._timeout_s = timeout_s
        self._resources = resources
        self._drivers = drivers
        messages = Messages()
        self._request = messages.request()
        self._channel = grpc.insecure_channel(
            f"unix:{socket}",
            options=(
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.min_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 2_000),
            ),
        )
        self._list: Any = self._channel.unary_unary(
            LIST,
            request_serializer=messages.request.SerializeToString,
            response_deserializer=messages.response.FromString,
        )

    def claims(self) -> tuple[Claim, ...]:
        """Every GPU, or part of one, that a container of this node was given.

        Raises:
            PodsUnknownError: if the kubelet does not answer in time, or with more than a message may have.
        """
        try:
            answer = self._list(self._request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise PodsUnknownError(self._explain(error)) from error
        return tuple(self._claims(answer))

    def close(self) -> None:
        """Let go of the socket."""
        self._channel.close()

    def _claims(self, answer: Any) -> Iterator[Claim]:
        for pod in answer.pod_resources:
            name = PodName(pod.namespace, pod.name)
            for container in pod.containers:
                for devices in container.devices:
                    for device_id in devices.device_ids:
                        if self._is_gpu(devices.resource_name, device_id):
                            yield Claim(name, container.name, device_id, devices.resource_name)
                for claim in container.dynamic_resources:
                    for device in claim.claim_resources:
                        if device.driver_name in self._drivers:
                            device_id = f"{device.pool_name}/{device.device_name}"
                            yield Claim(name, container.name, device_id, device.driver_name, dynamic=True)

    def _is_gpu(self, resource: str, device_id: str) -> bool:
        return device_id.startswith(_UUID_PREFIXES) or any(fnmatchcase(resource, each) for each in self._resources)

    def _explain(self, error: grpc.RpcError) -> str:
        code, details = error.code(), error.details()
        if not self._socket.exists():
            return (
                f"there is no pod-resources socket at {self._socket}: mount the kubelet's folder pod-resources into "
                "the agent's container, or say where it is"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return f"the kubelet at {self._socket} has refused or its answer is too long: {details}"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return f"the kubelet at {self._socket} has no pod-resources API v1: it must be Kubernetes 1.20 or newer"
        return f"the kubelet does not answer at {self._socket} ({code.name}): {details}; look whether it runs"
