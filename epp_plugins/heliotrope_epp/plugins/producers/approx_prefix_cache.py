"""`approx-prefix-cache-producer`: what endpoints cache, judged by what was sent to them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.kv_labels import offload_tokens
from heliotrope_epp.plugins.options import Beliefs
from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.producers.beliefs import Believer, Held
from heliotrope_epp.plugins.producers.block_hashes import block_hashes, chain_seed
from heliotrope_epp.plugins.producers.prefix_index import PrefixIndex, PrefixIndexStats

APPROX_PREFIX_CACHE_PRODUCER = "approx-prefix-cache-producer"

BYTES_PER_TOKEN = 4
MIN_BLOCK_TOKENS = 64
"""Smaller blocks only cost memory: the index holds one entry per block and endpoint."""
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_CAPACITY_BLOCKS = 31_250


class ApproxPrefixCacheParameters(StrictModel):
    """llm-d's parameters of the type."""

    auto_tune: bool = True
    """Size each endpoint's index by the KV memory that its engine reports."""
    block_size_tokens: int = Field(default=DEFAULT_BLOCK_TOKENS, ge=0)
    """Tokens per hashed block; 64 where less is given."""
    block_size: int = Field(default=0, ge=0)
    """Deprecated: used where `blockSizeTokens` has its default."""
    max_prefix_tokens_to_match: int = Field(default=131_072, ge=0)
    """Tokens of a prompt that are hashed; 0: `maxPrefixBlocksToMatch` holds."""
    max_prefix_blocks_to_match: int = Field(default=2_048, ge=0)
    """Deprecated; with both at 0 the whole prompt is hashed."""
    lru_capacity_per_server: int = Field(default=DEFAULT_CAPACITY_BLOCKS, ge=0)
    """Blocks remembered per endpoint where the engine does not say; 0: the default."""

    @model_validator(mode="after")
    def _blocks_have_a_size(self) -> Self:
        if not self.auto_tune and self.block_size_tokens == 0:
            raise ValueError("blockSizeTokens must be above 0 when autoTune is false")
        return self

    @property
    def block_tokens(self) -> int:
        """The size in force."""
        deprecated = self.block_size > 0 and self.block_size_tokens == DEFAULT_BLOCK_TOKENS
        return max(self.block_size if deprecated else self.block_size_tokens, MIN_BLOCK_TOKENS)

    @property
    def max_blocks(self) -> int | None:
        """Blocks of a prompt that are hashed; None: all."""
        if self.max_prefix_tokens_to_match > 0:
            return self.max_prefix_tokens_to_match // self.block_tokens
        return self.max_prefix_blocks_to_match or None


class ApproxPrefixCacheProducer:
    """Remembers the blocks of prompts that were routed to each endpoint, and how often it was right about them.

    A token is taken for 4 bytes of text. The share of the prompt's bytes that an endpoint caches is applied to the
    request's token count, so that the answer holds however many bytes a token really has. Engines that offload (by
    label) have a second, larger memory of blocks below the first.
    """

    def __init__(self, parameters: ApproxPrefixCacheParameters, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """`monotonic` gives the seconds that ages of blocks are counted in."""
        self._parameters = parameters
        self._monotonic = monotonic
        self._block_tokens = parameters.block_tokens
        self._block_bytes = parameters.block_tokens * BYTES_PER_TOKEN
        self._max_blocks = parameters.max_blocks
        self._index = PrefixIndex()
        self._lower = PrefixIndex()
        self._latest: tuple[LlmRequest, list[int]] | None = None
        self.believer = Believer()

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        """Prompt tokens in the leading run of blocks that each endpoint is expected to cache."""
        cached: list[float] = self.beliefs(request, states).cached_tokens.tolist()
        return cached

    def beliefs(self, request: LlmRequest, states: Sequence[EndpointState]) -> Beliefs:
        """The same with its uncertainty, and with what lies in lower tiers."""
        keys = [state.endpoint.key for state in states]
        tokens, ages_seconds, offloaded = self._held(request, keys)
        return self.believer.believed(keys, tokens, ages_seconds, offloaded)

    def routed(self, request: LlmRequest, state: EndpointState, *, fetched: bool = False) -> None:
        """The endpoint is about to compute, and so to cache, this prompt.

        Args:
            request: what was sent.
            state: where.
            fetched: a plan brought blocks there, so that its answer says nothing about what it cached before.
        """
        chain = self._chain(request)
        key = state.endpoint.key
        if chain:
            if not fetched:
                tokens, ages, lower = self._held(request, (key,))
                below = (tokens, ages) if lower is None else lower
                held = Held(float(tokens[0]), float(ages[0]), float(below[0][0]), float(below[1][0]))
                self.believer.sent(request, key, held, request.prompt_tokens)
                counted = state.metrics
                self.believer.counters(
                    key,
                    None if counted is None else counted.prefix_cache_queries_total,
                    None if counted is None else counted.prefix_cache_hits_total,
                    held,
                    request.prompt_tokens,
                )
            capacity, now_s = self._capacity(state), self._monotonic()
            self._index.add(chain, key, capacity, now_s)
            if lower_blocks := offload_tokens(state.endpoint) // self._block_tokens:
                self._lower.add(chain, key, capacity + lower_blocks, now_s)
        self._latest = None

    def answered(self, request: LlmRequest, cached_tokens: int | None, prompt_tokens: int | None) -> None:
        """The answer ended; the engine reports what it had cached, or None."""
        self.believer.answered(request, cached_tokens, prompt_tokens)

    def forget(self, endpoint_key: str) -> None:
        """The endpoint is gone or lost its cache."""
        self.cleared(endpoint_key)
        self.believer.forget(endpoint_key)

    def cleared(self, endpoint_key: str) -> None:
        """The same engine has emptied its cache: what was learned of it holds."""
        self._index.forget(endpoint_key)
        self._lower.forget(endpoint_key)

    def stats(self) -> PrefixIndexStats:
        """Sizes now, for metrics and debugging."""
        lower = sum(self._lower.stats().blocks.values())
        return replace(self._index.stats(), lower_blocks=lower)

    def _held(
        self, request: LlmRequest, keys: Sequence[str]
    ) -> tuple[FloatColumn, FloatColumn, tuple[FloatColumn, FloatColumn] | None]:
        """Tokens and their ages by the index, and the same of what lies in any tier, if there are lower ones."""
        chain = self._chain(request)
        now_s = self._monotonic()
        own = self._of(self._index, request, chain, keys, now_s)
        if not len(self._lower):
            return *own, None
        lower = self._of(self._lower, request, chain, keys, now_s)
        # An engine without lower tiers is in the first index alone.
        more = lower[0] > own[0]
        return *own, (np.where(more, lower[0], own[0]), np.where(more, lower[1], own[1]))

    def _of(
        self, index: PrefixIndex, request: LlmRequest, chain: Sequence[int], keys: Sequence[str], now_s: float
    ) -> tuple[FloatColumn, FloatColumn]:
        runs = index.leading_runs(chain, keys)
        if not any(runs):
            return np.zeros(len(keys)), np.zeros(len(keys))
        total_bytes = len(request.prompt)
        held_bytes = np.minimum(np.array(runs, dtype=np.float64) * self._block_bytes, total_bytes)
        ages_seconds = now_s - np.array(index.last_used_s(chain, runs, keys))
        return request.prompt_tokens * held_bytes / total_bytes, ages_seconds

    def _chain(self, request: LlmRequest) -> list[int]:
        """The prompt's hashes; kept until the request is routed, which normally follows at once."""
        if self._latest is not None and _same_prompt(self._latest[0], request):
            return self._latest[1]
        seed = chain_seed(request.model, request.cache_salt)
        chain = block_hashes(request.prompt, self._block_bytes, self._max_blocks, seed)
        self._latest = (request, chain)
        return chain

    def _capacity(self, state: EndpointState) -> int:
        metrics = state.metrics
        if self._parameters.auto_tune and metrics is not None and metrics.num_blocks and metrics.block_size:
            return max(metrics.num_blocks * metrics.block_size // self._block_tokens, 1)
        return self._parameters.lru_capacity_per_server or DEFAULT_CAPACITY_BLOCKS


def _same_prompt(one: LlmRequest, other: LlmRequest) -> bool:
    """Whether both have one chain, without comparing texts: a request keeps its prompt when a policy adds to it."""
    return one.prompt is other.prompt and one.model == other.model and one.cache_salt == other.cache_salt
