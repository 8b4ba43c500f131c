"""`precise-prefix-cache-producer`: what endpoints cache, as their engines tell of it.

Prompts that come as token numbers are matched block by block against what engines say they hold, in any tier. The
picker has no tokenizer, so that prompts of text are judged by what was sent to each endpoint, as the approximate
producer does; of these the events only tell when a whole cache is gone. Both are calibrated by what engines report of
each prompt.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from heliotrope.cache.links import Tier
from heliotrope.cache.prefix_index import EngineIndex, EngineIndexStats
from heliotrope_epp.datalayer.kv_event_wire import Cleared, Event, Removed, Stored
from heliotrope_epp.datalayer.kv_events import KvEventSettings
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.options import Beliefs
from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.producers.approx_prefix_cache import (
    ApproxPrefixCacheParameters,
    ApproxPrefixCacheProducer,
)
from heliotrope_epp.plugins.producers.beliefs import Believer, Held
from heliotrope_epp.plugins.producers.block_hashes import block_hashes, chain_seed
from heliotrope_epp.plugins.producers.prefix_index import PrefixIndexStats

PRECISE_PREFIX_CACHE_PRODUCER = "precise-prefix-cache-producer"

TOKEN_BYTES = 4
MAX_ADAPTERS = 4_096
"""Requests for further ones find nothing cached."""
TIERS = {None: Tier.ACCELERATOR, "gpu": Tier.ACCELERATOR, "cpu": Tier.CPU, "disk": Tier.DISK, "storage": Tier.DISK}
"""By the medium of an event, in lower case; those of other media are counted and left out."""


class TokenProcessorParameters(StrictModel):
    """How tokens become blocks."""

    block_size: int = Field(default=0, ge=0)
    """Deprecated: used where `blockSizeTokens` is not given."""
    block_size_tokens: int = Field(default=0, ge=0)
    """Tokens per block of the engines; 16 where neither is given. Engines of another size are not matched."""
    hash_seed: str = ""
    """Without meaning: names of blocks are this picker's own."""

    @property
    def tokens(self) -> int:
        """The size in force."""
        return self.block_size_tokens or self.block_size or 16


class PodDiscoveryParameters(StrictModel):
    """Where each endpoint publishes."""

    pod_label_selector: str = ""
    """Without meaning, like the next: the pool's endpoints are listened to."""
    pod_namespace: str = ""
    """Without meaning."""
    socket_port: int = Field(default=5557, ge=1, le=65_535)
    """The port of every endpoint."""
    replay_socket_port: int | None = Field(default=None, ge=1, le=65_535)
    """Where messages that were missed are asked for; absent: what is known of an endpoint is then forgotten."""


class KvEventsParameters(StrictModel):
    """How engines are listened to."""

    unsupported: ClassVar[frozenset[str]] = frozenset({"zmqEndpoint"})

    topic_filter: str = "kv@"
    """Only topics that begin so."""
    concurrency: int = Field(default=4, ge=1)
    """Without meaning: one loop reads all endpoints."""
    engine_type: Literal["vllm"] = "vllm"
    """Whose events are read."""
    discover_pods: bool = True
    """Whether endpoints are listened to at all."""
    pod_discovery_config: PodDiscoveryParameters | None = None
    """Ports; absent: 5557, and no replay."""


class PrecisePrefixCacheParameters(StrictModel):
    """llm-d's parameters of the type."""

    unsupported: ClassVar[frozenset[str]] = frozenset({"sessionManager"})

    token_processor_config: TokenProcessorParameters | None = None
    """How tokens become blocks; absent: 16 of them do."""
    kv_events_config: KvEventsParameters | None = None
    """How engines are listened to; absent: with the defaults."""
    speculative_indexing: bool = False
    """Without meaning: prompts of text are always believed to be cached where they were sent."""
    speculative_ttl: str = Field(default="2s", alias="speculativeTTL")
    """Without meaning, for the same reason."""
    indexer_config: dict[str, Any] | None = None
    """Without meaning: the index has a bound of its own."""

    @property
    def events(self) -> KvEventSettings | None:
        """How to listen; None: not at all."""
        given = self.kv_events_config or KvEventsParameters()
        if not given.discover_pods:
            return None
        ports = given.pod_discovery_config or PodDiscoveryParameters()
        return KvEventSettings(
            port=ports.socket_port, replay_port=ports.replay_socket_port, topic_filter=given.topic_filter
        )


class PrecisePrefixCacheProducer:
    """Also the sink of KV events. Everything comes on the loop's thread."""

    def __init__(self, parameters: PrecisePrefixCacheParameters, monotonic: Callable[[], float]) -> None:
        """`monotonic` gives seconds, for the ages of blocks of text."""
        self.events = parameters.events
        """How engines are to be listened to."""
        self._block_tokens = (parameters.token_processor_config or TokenProcessorParameters()).tokens
        self._block_bytes = self._block_tokens * TOKEN_BYTES
        self._texts = ApproxPrefixCacheProducer(ApproxPrefixCacheParameters(), monotonic)
        self._index = EngineIndex()
        self._adapters: set[str] = set()
        self._latest: tuple[bytes, list[int]] | None = None
        self.believer: Believer = self._texts.believer
        self.ignored: Counter[str] = Counter()
        """Events that were left out, by `medium`, `block-size` or `extra-keys`."""

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        """Prompt tokens that each endpoint is expected to cache."""
        cached: list[float] = self.beliefs(request, states).cached_tokens.tolist()
        return cached

    def beliefs(self, request: LlmRequest, states: Sequence[EndpointState]) -> Beliefs:
        """The same with its uncertainty, and with what lies in lower tiers."""
        if not request.token_ids:
            return self._texts.beliefs(request, states)
        keys = [state.endpoint.key for state in states]
        own, lower = self._index.leading_runs(self._chain(request), keys)
        ages = np.zeros(len(keys))
        tokens, below = (np.array(runs, dtype=np.float64) * self._block_tokens for runs in (own, lower))
        return self.believer.believed(keys, tokens, ages, (below, ages) if lower != own else None)

    def routed(self, request: LlmRequest, state: EndpointState, *, fetched: bool = False) -> None:
        """Engines tell of token prompts themselves; prompts of text are remembered as sent there."""
        if not request.token_ids:
            self._texts.routed(request, state, fetched=fetched)
        elif not fetched:
            key = state.endpoint.key
            own, lower = self._index.leading_runs(self._chain(request), (key,))
            tokens, below = float(own[0] * self._block_tokens), float(lower[0] * self._block_tokens)
            self.believer.sent(request, key, Held(tokens, 0.0, below, 0.0), request.prompt_tokens)
        self._latest = None

    def answered(self, request: LlmRequest, cached_tokens: int | None, prompt_tokens: int | None) -> None:
        """The answer ended; the engine reports what it had cached, or None."""
        self.believer.answered(request, cached_tokens, prompt_tokens)

    def forget(self, endpoint_key: str) -> None:
        """The endpoint is gone or lost its cache."""
        self._index.cleared(endpoint_key)
        self._texts.forget(endpoint_key)

    def kv_events(self, endpoint: str, events: list[Event]) -> None:
        """What an engine tells of its cache."""
        for event in events:
            if isinstance(event, Cleared):
                self._index.cleared(endpoint)
                self._texts.cleared(endpoint)
                continue
            tier = TIERS.get(None if event.medium is None else event.medium.lower())
            if tier is None:
                self.ignored["medium"] += 1
            elif isinstance(event, Removed):
                self._index.removed(endpoint, event.hashes, tier)
            else:
                self._stored(endpoint, event, tier)

    def kv_lost(self, endpoint: str) -> None:
        """Events were missed: blocks that were told of may be gone. What was sent there still counts as believed."""
        self._index.cleared(endpoint)

    def stats(self) -> PrefixIndexStats:
        """Sizes of the index of texts, for metrics and debugging."""
        return self._texts.stats()

    def engine_stats(self) -> EngineIndexStats:
        """Sizes of the index of what engines told."""
        return self._index.stats()

    def _stored(self, endpoint: str, event: Stored, tier: Tier) -> None:
        if not event.token_ids:
            # Below the engine's own memory the tokens are not told again.
            self._index.moved(endpoint, event.hashes, tier)
            return
        if event.block_size != self._block_tokens:
            self.ignored["block-size"] += 1
            return
        salt = _salt(event)
        if salt is None:
            self.ignored["extra-keys"] += 1
            return
        if event.lora_name and len(self._adapters) < MAX_ADAPTERS:
            self._adapters.add(event.lora_name)
        if event.parent is None:
            seed: int | None = chain_seed(event.lora_name or "", salt)
        else:
            seed = self._index.content_of(endpoint, event.parent)
        if seed is None:
            self._index.orphaned(len(event.hashes))
            return
        content = np.array(event.token_ids, dtype="<u4").tobytes()
        self._index.stored(endpoint, event.hashes, block_hashes(content, self._block_bytes, None, seed), tier)

    def _chain(self, request: LlmRequest) -> list[int]:
        """Names of the prompt's whole blocks; an engine caches no part of one."""
        if self._latest is not None and self._latest[0] is request.prompt:
            return self._latest[1]
        whole = len(request.prompt) // self._block_bytes
        # An engine serves one model beside its adapters; events name these alone, and requests address them as models.
        adapter = request.model if request.model in self._adapters else ""
        chain = block_hashes(request.prompt, self._block_bytes, whole, chain_seed(adapter, request.cache_salt))
        self._latest = (request.prompt, chain)
        return chain


def _salt(event: Stored) -> str | None:
    """The tenant's salt, which stands beside the first block's tokens; None where other things stand there too."""
    if event.parent is not None or not event.extra_keys or event.extra_keys[0] is None:
        return ""
    first = event.extra_keys[0]
    keys = [key for key in first if key != event.lora_name] if isinstance(first, (list, tuple)) else [None]
    if not keys:
        return ""
    return keys[0] if len(keys) == 1 and isinstance(keys[0], str) else None
