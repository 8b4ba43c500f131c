"""OTLP's messages, whoever's copy of them is installed.

xds-protos and opentelemetry-proto both bring `opentelemetry/proto/…_pb2.py`. Whichever is installed last overwrites the
other, and both pip and uv install xds-protos last; with its older copies OpenTelemetry's exporters cannot be imported.
So the messages are carried along as descriptors (`otlp.binpb`, from opentelemetry-proto, Apache-2.0) and take the place
of copies that are too old. The gRPC stubs beside them are opentelemetry-proto's alone and stay as they are.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.internal import builder

DESCRIPTORS = Path(__file__).with_name("otlp.binpb")

_TELLTALE_MODULE = "opentelemetry.proto.common.v1.common_pb2"
_TELLTALE = b"InstrumentationScope"
"""A message that the older copies lack and every exporter of today needs."""


def provide_messages() -> bool:
    """See to it that the exporters find messages that they can work with; True if those carried along were needed.

    Call it before anything imports `opentelemetry.proto`; a second call changes nothing.
    """
    if _TELLTALE_MODULE in sys.modules:
        return False
    spec = importlib.util.find_spec(_TELLTALE_MODULE)
    if spec is not None and spec.origin is not None and _TELLTALE in Path(spec.origin).read_bytes():
        return False
    pool = descriptor_pool.Default()
    for file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        _install(file.name.removesuffix(".proto").replace("/", ".") + "_pb2", pool, file.SerializeToString())
    return True


def _install(name: str, pool: descriptor_pool.DescriptorPool, serialized: bytes) -> None:
    """A module like the one that protoc generates for this file."""
    module = ModuleType(name)
    module.DESCRIPTOR = pool.AddSerializedFile(serialized)  # type: ignore[attr-defined]
    builder.BuildMessageAndEnumDescriptors(module.DESCRIPTOR, module.__dict__)
    builder.BuildTopDescriptorsAndMessages(module.DESCRIPTOR, name, module.__dict__)
    sys.modules[name] = module
    package, _, own_name = name.rpartition(".")
    setattr(importlib.import_module(package), own_name, module)
