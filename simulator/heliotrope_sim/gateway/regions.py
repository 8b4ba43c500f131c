"""What a gateway in front of several clusters has beside: one Envoy cluster and one route per region."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

REGION_HEADER = "x-heliotrope-region"
NO_REGION_STATUS = 503
FOREVER = "86400s"


def cluster_name(region: str) -> str:
    """Of the cluster that leads to a region's own gateway."""
    return f"region-{region}"


def routes(regions: Mapping[str, str]) -> list[dict[str, Any]]:
    """A route per region by the header that its scheduler sets, and a refusal for whoever has none."""
    return [
        *(
            {
                "match": {
                    "prefix": "/",
                    "headers": [{"name": REGION_HEADER, "string_match": {"exact": region}}],
                },
                "route": {"cluster": cluster_name(region), "timeout": FOREVER, "idle_timeout": FOREVER},
            }
            for region in regions
        ),
        {
            "match": {"prefix": "/"},
            "direct_response": {"status": NO_REGION_STATUS, "body": {"inline_string": "no region was chosen\n"}},
        },
    ]


def header_filter() -> dict[str, Any]:
    """Takes the header from clients before anybody decides: only the scheduler's own counts."""
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [{"remove": REGION_HEADER}]},
        },
    }


def server_name(region: str) -> str:
    """What a region's gateway must have in its certificate."""
    return f"{region}.test"


def clusters(
    regions: Mapping[str, str], circuit_breakers: Mapping[str, Any], authorities: Mapping[str, Path] | None
) -> list[dict[str, Any]]:
    """One per region.

    Args:
        regions: by region: `ip:port` of its gateway.
        circuit_breakers: of each.
        authorities: by region: certificates that its gateway is checked against; None: they speak plain HTTP.
    """
    return [
        {
            **({} if authorities is None else {"transport_socket": _tls(region, authorities[region])}),
            "name": cluster_name(region),
            "type": "STATIC",
            "connect_timeout": "1s",
            "circuit_breakers": circuit_breakers,
            "load_assignment": {
                "cluster_name": cluster_name(region),
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(address)}}]}],
            },
        }
        for region, address in regions.items()
    ]


def _tls(region: str, authority: Path) -> dict[str, Any]:
    name = server_name(region)
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": name,
            "common_tls_context": {
                "validation_context": {
                    "trusted_ca": {"filename": str(authority)},
                    "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": name}}],
                }
            },
        },
    }


def _address(endpoint: str) -> dict[str, Any]:
    host, _, port = endpoint.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
