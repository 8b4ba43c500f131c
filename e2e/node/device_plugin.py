"""A device plugin for `nvidia.com/gpu` whose devices are those that a file names: the kubelet's interface v1beta1.

    python -m e2e.node.device_plugin gpus.json    # a list of ids; read again twice a second

It registers again whenever the kubelet has made its socket anew, as plugins must.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

RESOURCE = "nvidia.com/gpu"
SOCKETS = Path("/var/lib/kubelet/device-plugins")
ENDPOINT = "heliotrope-test-gpu.sock"
LOOK_SECONDS = 0.5
CALL_SECONDS = 10.0
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": (1, "bool"), "get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    # A map is a list of entries with key and value on the wire.
    "Variable": {"key": (1, "string"), "value": (2, "string")},
    "ContainerAllocateResponse": {"envs": (1, "*Variable")},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}


def _messages() -> dict[str, Any]:
    """Classes of the interface's messages (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), as far as they are used."""
    file = FileDescriptorProto(name="deviceplugin.proto", package="v1beta1", syntax="proto3")
    scalars = {"string": FieldDescriptorProto.TYPE_STRING, "bool": FieldDescriptorProto.TYPE_BOOL}
    for name, fields in _MESSAGES.items():
        message = DescriptorProto(name=name)
        for field, (number, written) in fields.items():
            many, kind = written.startswith("*"), written.removeprefix("*")
            made = message.field.add(name=field, number=number)
            made.label = made.LABEL_REPEATED if many else made.LABEL_OPTIONAL
            made.type = scalars.get(kind, made.TYPE_MESSAGE)
            if kind not in scalars:
                made.type_name = f".v1beta1.{kind}"
        file.message_type.append(message)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in _MESSAGES}


class DevicePlugin:
    """Tells the kubelet of the devices in a file, and containers which of them are theirs."""

    def __init__(self, devices: Path, sockets: Path = SOCKETS) -> None:
        self._devices = devices
        self._sockets = sockets
        self._messages = _messages()

    def run(self) -> None:
        """Serve; register with each kubelet that comes."""
        known = None
        server = None
        while True:
            kubelet = self._inode(self._sockets / "kubelet.sock")
            if kubelet is not None and kubelet != known:  # a new kubelet removes every plugin's socket first
                if server is not None:
                    server.stop(None).wait()
                server = self._serve()
                known = kubelet if self._register() else None
            time.sleep(LOOK_SECONDS)

    def _serve(self) -> grpc.Server:
        (self._sockets / ENDPOINT).unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(max_workers=8))
        single, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": self._handler(single, self._options, "Empty"),
            "ListAndWatch": self._handler(stream, self._list_and_watch, "Empty"),
            "Allocate": self._handler(single, self._allocate, "AllocateRequest"),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        server.add_insecure_port(f"unix://{self._sockets / ENDPOINT}")
        server.start()
        return server

    def _handler(self, kind: Any, method: Any, request: str) -> Any:
        return kind(
            method,
            request_deserializer=self._messages[request].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _register(self) -> bool:
        request = self._messages["RegisterRequest"](version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE)
        with grpc.insecure_channel(f"unix://{self._sockets / 'kubelet.sock'}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=self._messages["Empty"].FromString,
            )
            try:
                call(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                print(f"the kubelet does not take the plugin yet: {error}", file=sys.stderr, flush=True)
                return False
        return True

    def _options(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._messages["DevicePluginOptions"]()

    def _list_and_watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        ended = threading.Event()
        context.add_callback(ended.set)
        told = None
        while not ended.is_set():
            ids = json.loads(self._devices.read_text())
            if ids != told:
                told = ids
                devices = [self._messages["Device"](ID=each, health="Healthy") for each in ids]
                yield self._messages["ListAndWatchResponse"](devices=devices)
            ended.wait(LOOK_SECONDS)

    def _allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        answers = []
        for container in request.container_requests:
            visible = self._messages["Variable"](
                key="NVIDIA_VISIBLE_DEVICES", value=",".join(sorted(container.devices_ids))
            )
            answers.append(self._messages["ContainerAllocateResponse"](envs=[visible]))
        return self._messages["AllocateResponse"](container_responses=answers)

    @staticmethod
    def _inode(path: Path) -> tuple[int, int] | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


if __name__ == "__main__":
    DevicePlugin(Path(sys.argv[1])).run()
