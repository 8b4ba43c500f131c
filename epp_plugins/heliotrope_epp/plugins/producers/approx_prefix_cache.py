"""`approx-prefix-cache-producer`: what endpoints cache, judged by what was sent to them."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.parameters import StrictModel
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
    """Remembers the blocks of prompts that were routed to each endpoint.

    A token is taken for 4 bytes of text. The share of the prompt's bytes that an endpoint caches is applied to the
    request's token count, so that the answer holds however many bytes a token really has.
    """

    def __init__(self, parameters: ApproxPrefixCacheParameters) -> None:
        self._parameters = parameters
        self._block_tokens = parameters.block_tokens
        self._block_bytes = parameters.block_tokens * BYTES_PER_TOKEN
        self._max_blocks = parameters.max_blocks
        self._index = PrefixIndex()
        self._latest: tuple[LlmRequest, list[int]] | None = None

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        """Prompt tokens in the leading run of blocks that each endpoint is believed to cache."""
        chain = self._chain(request)
        if not chain:
            return [0.0] * len(states)
        runs = self._index.leading_runs(chain, [state.endpoint.key for state in states])
        total_bytes, block_bytes = len(request.prompt), self._block_bytes
        return [request.prompt_tokens * min(run * block_bytes, total_bytes) / total_bytes for run in runs]

    def routed(self, request: LlmRequest, state: EndpointState) -> None:
        """The endpoint is about to compute, and so to cache, this prompt."""
        chain = self._chain(request)
        self._latest = None
        if chain:
            self._index.add(chain, state.endpoint.key, self._capacity(state))

    def forget(self, endpoint_key: str) -> None:
        """The endpoint is gone or lost its cache."""
        self._index.forget(endpoint_key)

    def stats(self) -> PrefixIndexStats:
        """Sizes now, for metrics and debugging."""
        return self._index.stats()

    def _chain(self, request: LlmRequest) -> list[int]:
        """The prompt's hashes; kept until the request is routed, which normally follows at once."""
        if self._latest is not None and self._latest[0] is request:
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
