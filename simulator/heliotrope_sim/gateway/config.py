"""The bootstrap of a local Envoy: what llm-d's standalone chart configures, with ports that the system chooses."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from heliotrope_sim.gateway import regions

DESTINATION_HEADER = "x-gateway-destination-endpoint"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
LISTENER = "gateway"
BASELINE_LISTENER = "baseline"
PICKER_CLUSTER = "picker"
TRACE_CLUSTER = "traces"
TRACE_SERVICE = "gateway"

_FOREVER = "86400s"
_CIRCUIT_BREAKER = {
    "thresholds": [
        {"max_connections": 40_000, "max_pending_requests": 40_000, "max_requests": 40_000, "max_retries": 1024}
    ]
}


class BodyMode(StrEnum):
    """How Envoy hands a body to the picker; InferencePool gateways use full duplex both ways."""

    FULL_DUPLEX_STREAMED = "FULL_DUPLEX_STREAMED"
    STREAMED = "STREAMED"
    BUFFERED = "BUFFERED"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """What differs between one local gateway and another."""

    pickers: tuple[str, ...]
    """`ip:port` of each picker; requests go to the healthy ones in turn."""
    listen: str = "127.0.0.1"
    listen_port: int = 0
    """0 lets the system choose; `Gateway.url` tells."""
    picker_tls: bool = False
    """Speak TLS to the picker, without checking its certificate (as llm-d does)."""
    baseline: bool = False
    """Open a second listener without a picker, where the client sets the destination header itself."""
    request_body_mode: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    response_body_mode: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    trailers: bool = True
    """Send trailers to the picker; full duplex needs it."""
    http1_trailers: bool = False
    """Let HTTP/1.1 clients and engines use trailers (Envoy drops them by default)."""
    subset: tuple[str, ...] | None = None
    """Endpoints that the gateway allows, as filter metadata of every request; None: no such hint."""
    health_check_seconds: float = 1.0
    access_log: Path | None = None
    trace_collector: str | None = None
    """`ip:port` of an OTLP gRPC collector that Envoy sends spans of its own to, one trace per request."""
    regions: Mapping[str, str] | None = None
    """In front of clusters: `ip:port` of each region's own gateway, by the region's name. Its picker is then a region
    scheduler, and requests go where its header says."""
    region_authorities: Mapping[str, Path] | None = None
    """By region: certificates that its gateway, which then speaks TLS as `<region>.test`, is checked against."""


def bootstrap(config: GatewayConfig) -> dict[str, Any]:
    """The Envoy bootstrap as a JSON-like mapping."""
    own = [] if config.regions is None else [regions.header_filter()]
    listeners = [_listener(LISTENER, config, [*own, *_subset_filter(config), _ext_proc_filter(config), _router()])]
    if config.baseline:
        listeners.append(_listener(BASELINE_LISTENER, config, [_router()]))
    clusters = [_picker_cluster(config)]
    if config.regions is None:
        clusters.append(_engine_cluster(config))
    else:
        clusters += regions.clusters(config.regions, _CIRCUIT_BREAKER, config.region_authorities)
    if config.trace_collector is not None:
        clusters.append(_trace_cluster(config.trace_collector))
    return {
        "admin": {"address": _address("127.0.0.1", 0)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def _listener(name: str, config: GatewayConfig, filters: list[dict[str, Any]]) -> dict[str, Any]:
    manager: dict[str, Any] = {
        "stat_prefix": name,
        "codec_type": "AUTO",
        "stream_idle_timeout": _FOREVER,
        "http_protocol_options": _http1_options(config),
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "engines",
                    "domains": ["*"],
                    "routes": _routes(config),
                }
            ]
        },
        "http_filters": filters,
    }
    if config.trace_collector is not None:
        manager["tracing"] = {
            "provider": {
                "name": "envoy.tracers.opentelemetry",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
                    "grpc_service": {"envoy_grpc": {"cluster_name": TRACE_CLUSTER}, "timeout": "1s"},
                    "service_name": TRACE_SERVICE,
                },
            },
        }
    if config.access_log is not None:
        manager["access_log"] = [
            {
                "name": "envoy.access_loggers.file",
                "typed_config": {**_type("access_loggers.file.v3.FileAccessLog"), "path": str(config.access_log)},
            }
        ]
    return {
        "name": name,
        "address": _address(config.listen, config.listen_port if name == LISTENER else 0),
        "per_connection_buffer_limit_bytes": 32_768,
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": {
                            **_type("filters.network.http_connection_manager.v3.HttpConnectionManager"),
                            **manager,
                        },
                    }
                ]
            }
        ],
    }


def _routes(config: GatewayConfig) -> list[dict[str, Any]]:
    if config.regions is not None:
        return regions.routes(config.regions)
    route = {"cluster": "engines", "timeout": _FOREVER, "idle_timeout": _FOREVER}
    return [{"match": {"prefix": "/"}, "route": route}]


def _ext_proc_filter(config: GatewayConfig) -> dict[str, Any]:
    trailers = "SEND" if config.trailers else "SKIP"
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            **_type("filters.http.ext_proc.v3.ExternalProcessor"),
            "failure_mode_allow": False,
            "grpc_service": {"envoy_grpc": {"cluster_name": PICKER_CLUSTER, "authority": PICKER_CLUSTER}},
            "processing_mode": {
                "request_header_mode": "SEND",
                "response_header_mode": "SEND",
                "request_body_mode": str(config.request_body_mode),
                "response_body_mode": str(config.response_body_mode),
                "request_trailer_mode": trailers,
                "response_trailer_mode": trailers,
            },
            "message_timeout": "1000s",
            "metadata_options": {
                "forwarding_namespaces": {"untyped": ["envoy.lb", SUBSET_NAMESPACE]},
                "receiving_namespaces": {"untyped": ["envoy.lb"]},
            },
        },
    }


def _subset_filter(config: GatewayConfig) -> list[dict[str, Any]]:
    if config.subset is None:
        return []
    hint = {
        "metadata_namespace": SUBSET_NAMESPACE,
        "value": {SUBSET_KEY: list(config.subset)},
        "allow_overwrite": True,
    }
    return [
        {
            "name": "envoy.filters.http.set_filter_metadata",
            "typed_config": {**_type("filters.http.set_metadata.v3.Config"), "metadata": [hint]},
        }
    ]


def _router() -> dict[str, Any]:
    return {"name": "envoy.filters.http.router", "typed_config": _type("filters.http.router.v3.Router")}


def _picker_cluster(config: GatewayConfig) -> dict[str, Any]:
    interval = f"{config.health_check_seconds}s"
    cluster: dict[str, Any] = {
        "name": PICKER_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": _CIRCUIT_BREAKER,
        "typed_extension_protocol_options": _upstream_options(
            {
                "http2_protocol_options": {
                    "initial_stream_window_size": 65_536,
                    "initial_connection_window_size": 1_048_576,
                }
            }
        ),
        "health_checks": [
            {
                "timeout": "2s",
                "interval": interval,
                # Without it Envoy looks once a minute until the first request, and loses requests to a drained picker.
                "no_traffic_interval": interval,
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "reuse_connection": True,
                "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            }
        ],
        "load_assignment": {
            "cluster_name": PICKER_CLUSTER,
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": _split_address(picker)}} for picker in config.pickers]}
            ],
        },
    }
    if config.picker_tls:
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                **_type("transport_sockets.tls.v3.UpstreamTlsContext"),
                "common_tls_context": {
                    "alpn_protocols": ["h2"],
                    "validation_context": {"trust_chain_verification": "ACCEPT_UNTRUSTED"},
                },
            },
        }
    return cluster


def _trace_cluster(collector: str) -> dict[str, Any]:
    address = {"endpoint": {"address": _split_address(collector)}}
    return {
        "name": TRACE_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": _upstream_options({"http2_protocol_options": {}}),
        "load_assignment": {"cluster_name": TRACE_CLUSTER, "endpoints": [{"lb_endpoints": [address]}]},
    }


def _engine_cluster(config: GatewayConfig) -> dict[str, Any]:
    return {
        "typed_extension_protocol_options": _upstream_options({"http_protocol_options": _http1_options(config)}),
        "name": "engines",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "6s",
        "circuit_breakers": _CIRCUIT_BREAKER,
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION_HEADER},
    }


def _upstream_options(protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            **_type("upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": protocol,
        }
    }


def _http1_options(config: GatewayConfig) -> dict[str, Any]:
    return {"enable_trailers": config.http1_trailers}


def _type(name: str) -> dict[str, str]:
    return {"@type": f"type.googleapis.com/envoy.extensions.{name}"}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _split_address(endpoint: str) -> dict[str, Any]:
    host, _, port = endpoint.rpartition(":")
    return _address(host.strip("[]"), int(port))
