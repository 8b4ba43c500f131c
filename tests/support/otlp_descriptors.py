"""Writes OTLP's messages as the picker carries them, from an installed opentelemetry-proto.

uv run python -m tests.support.otlp_descriptors
"""

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from heliotrope_epp.tracing.protocol import DESCRIPTORS


def descriptors() -> bytes:
    """Every file that the exporters import, after those that it needs."""
    files = FileDescriptorSet()
    seen: set[str] = set()

    def add(descriptor: object) -> None:
        for needed in descriptor.dependencies:  # type: ignore[attr-defined]
            add(needed)
        if descriptor.name not in seen:  # type: ignore[attr-defined]
            seen.add(descriptor.name)  # type: ignore[attr-defined]
            descriptor.CopyToProto(files.file.add())  # type: ignore[attr-defined]

    for module in (trace_service_pb2, metrics_service_pb2, logs_service_pb2):
        add(module.DESCRIPTOR)
    return files.SerializeToString(deterministic=True)


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(descriptors())
