"""xds-protos and opentelemetry-proto install the same files: tracing works whichever was installed last."""

import shutil
import subprocess
import sys
from pathlib import Path

import opentelemetry.proto
import pytest

from heliotrope_epp.tracing.protocol import DESCRIPTORS, provide_messages

OVERLAPPING = (
    "collector/logs/v1/logs_service", "collector/metrics/v1/metrics_service", "collector/trace/v1/trace_service",
    "common/v1/common", "logs/v1/logs", "metrics/v1/metrics", "resource/v1/resource", "trace/v1/trace",
)  # fmt: skip

EVERYTHING = """
import sys
import opentelemetry.proto
if len(sys.argv) > 1:
    opentelemetry.proto.__path__.insert(0, sys.argv[1])
from envoy.service.ext_proc.v3 import external_processor_pb2
from heliotrope_epp.tracing import exporters
from heliotrope_epp.tracing.protocol import provide_messages
from heliotrope_epp.tracing.settings import Protocol, TracingSettings
print(provide_messages(), provide_messages())
for protocol in (Protocol.GRPC, Protocol.HTTP):
    exporters.exporter(TracingSettings(True, protocol, "http://127.0.0.1:9")).shutdown()
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from tests.contract.tracing.test_exporters import RECORD
from heliotrope_epp.tracing.spans import SpanMaker
request = encode_spans(RECORD.spans(SpanMaker(exporters.resource())))
span = ExportTraceServiceRequest.FromString(request.SerializeToString()).resource_spans[0].scope_spans[0].spans[0]
assert isinstance(span, trace_pb2.Span)
assert external_processor_pb2.ProcessingRequest().WhichOneof("request") is None
print(span.name, span.parent_span_id.hex())
"""


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", EVERYTHING, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[4]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_all_messages_live_in_one_process_as_they_are_installed_here() -> None:
    assert run()[1] == "gateway.request 000000000000000a"


@pytest.mark.slow
def test_copies_that_are_too_old_are_never_imported(tmp_path: Path) -> None:
    (installed,) = opentelemetry.proto.__path__
    copies = tmp_path / "proto"
    shutil.copytree(installed, copies)
    for name in OVERLAPPING:
        (copies / f"{name}_pb2.py").write_text("raise AssertionError('an old copy was imported')\n")
    assert run(str(copies)) == ["True False", "gateway.request 000000000000000a"]


def test_the_messages_carried_along_are_those_of_opentelemetry() -> None:
    if provide_messages():
        pytest.skip("this environment's own copies are the old ones")
    from tests.support.otlp_descriptors import descriptors

    assert DESCRIPTORS.read_bytes() == descriptors(), "run: python -m tests.support.otlp_descriptors"
