"""The messages of the kubelet's pod-resources API, as far as the agent reads them.

Names and numbers of fields are those of `pkg/apis/podresources/v1/api.proto` of k8s.io/kubelet v0.34 (Apache-2.0, The
Kubernetes Authors). They are declared here, so that no generated code and none of its tools is needed; what is left out
(CPUs, memory, topology, CDI devices) is skipped when a message is read.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "v1"
SERVICE = "v1.PodResourcesLister"
LIST = f"/{SERVICE}/List"

_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, "PodResources")},
    "PodResources": {"name": (1, ""), "namespace": (2, ""), "containers": (3, "ContainerResources")},
    "ContainerResources": {
        "name": (1, ""),
        "devices": (2, "ContainerDevices"),
        "dynamic_resources": (5, "DynamicResource"),
    },
    "ContainerDevices": {"resource_name": (1, ""), "device_ids": (2, "string")},
    "DynamicResource": {"claim_name": (2, ""), "claim_namespace": (3, ""), "claim_resources": (4, "ClaimResource")},
    "ClaimResource": {"driver_name": (2, ""), "pool_name": (3, ""), "device_name": (4, "")},
}
"""Per message its fields: number, and of repeated ones what they repeat."""


class Messages:
    """The messages' classes, in a pool of their own: other software in the process may know the same names."""

    def __init__(self) -> None:
        file = FileDescriptorProto(name="heliotrope/podresources.proto", package=PACKAGE, syntax="proto3")
        for name, fields in _MESSAGES.items():
            message = file.message_type.add(name=name)
            for field, (number, repeats) in fields.items():
                _add_field(message, field, number, repeats)
        self._pool = DescriptorPool()
        self._pool.Add(file)
        self.request: Any = self._class("ListPodResourcesRequest")
        """Class of what `List` is asked with."""
        self.response: Any = self._class("ListPodResourcesResponse")
        """Class of what it answers."""

    def _class(self, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _add_field(message: DescriptorProto, name: str, number: int, repeats: str) -> None:
    field = message.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeats else FieldDescriptorProto.LABEL_OPTIONAL
    if repeats not in ("", "string"):
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{repeats}"
