"""OpenTelemetry's own exporters and resource, by the settings. Only what is used is imported: gRPC's takes 0.3 s."""

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import SpanExporter

from heliotrope import __version__
from heliotrope_epp.tracing.protocol import provide_messages
from heliotrope_epp.tracing.settings import Protocol, TracingSettings

DEFAULT_SERVICE_NAME = "llm-d-epp"
"""llm-d's, so that dashboards that select the picker's spans by it keep working."""

TRACES_PATH = "/v1/traces"


def exporter(settings: TracingSettings) -> SpanExporter:
    """The exporter; headers, certificates and timeouts come from its OTEL_EXPORTER_OTLP_* variables."""
    if settings.protocol is Protocol.CONSOLE:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    provide_messages()
    if settings.protocol is Protocol.HTTP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        endpoint = settings.endpoint
        if endpoint is not None and not endpoint.rstrip("/").endswith(TRACES_PATH):
            endpoint = endpoint.rstrip("/") + TRACES_PATH
        return HttpExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

    return GrpcExporter(endpoint=settings.endpoint)


def resource() -> Resource:
    """Who exports: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with llm-d's service name where they name none."""
    given = Resource.create({SERVICE_VERSION: __version__})
    if str(given.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        return given.merge(Resource({SERVICE_NAME: DEFAULT_SERVICE_NAME}))
    return given
