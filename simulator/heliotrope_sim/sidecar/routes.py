"""Who else serves a request, from the headers that the endpoint picker sets.

The rules are those of llm-d's sidecar (llm-d-router ebab6879, `pkg/sidecar/proxy/chat_completions.go`): a prefiller
that is not allowed is refused, encoders and KV sources that are not allowed are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from heliotrope_sim.sidecar.config import SidecarConfig
from heliotrope_sim.sidecar.endpoint import is_host_port, normalized
from heliotrope_sim.sidecar.errors import forbidden

PREFILLER_HEADER = "x-prefiller-host-port"
ENCODERS_HEADER = "x-encoder-hosts-ports"
KV_SOURCE_HEADER = "x-kv-cache-source-host-port"
ROUTING_HEADERS = frozenset((PREFILLER_HEADER, ENCODERS_HEADER, KV_SOURCE_HEADER))


@dataclass(frozen=True, slots=True)
class Route:
    """The engines that take part beside the sidecar's own, as `host:port`."""

    prefiller: str | None = None
    encoders: tuple[str, ...] = ()
    kv_source: str | None = None

    @property
    def direct(self) -> bool:
        """Whether the sidecar's engine serves the request alone."""
        return self.prefiller is None and not self.encoders and self.kv_source is None


def route(headers: Iterable[tuple[str, str]], config: SidecarConfig) -> Route:
    """Read the headers of a request, each as often as it was sent.

    Raises:
        SidecarError: 403 if the prefiller is not allowed.
    """
    targets: dict[str, list[str]] = {name: [] for name in ROUTING_HEADERS}
    for name, value in headers:
        if (known := name.lower()) in targets:
            targets[known] += [t for t in map(normalized, value.split(",")) if t]
    prefiller = next(iter(targets[PREFILLER_HEADER]), None)
    if prefiller is not None and not (is_host_port(prefiller) and config.allows(prefiller)):
        raise forbidden(prefiller)
    encoders: tuple[str, ...] = ()
    if config.ec_connector is not None:
        encoders = tuple(e for e in targets[ENCODERS_HEADER] if is_host_port(e) and config.allows(e))
    source = None
    if config.enable_p2p_pull:
        source = next(iter(targets[KV_SOURCE_HEADER]), None)
        if source is not None and not (is_host_port(source) and config.allows(source)):
            source = None
    return Route(prefiller, encoders, source)
