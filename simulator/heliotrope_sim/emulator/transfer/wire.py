"""What emulated engines say to each other, as JSON over HTTP on the port of their API.

Real engines exchange memory addresses and read with RDMA; here only what the accounts need is exchanged.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from heliotrope.cache.links import Place

READ_PATH = "/emulator/v1/kv/read"
LOOKUP_PATH = "/emulator/v1/kv/lookup"
RENEW_PATH = "/emulator/v1/kv/renew"
RELEASE_PATH = "/emulator/v1/kv/release"
EMBEDDINGS_PATH = "/emulator/v1/ec/read"

MAX_HASHES = 131_072
MAX_IMAGES = 64
MAX_ANSWER_BYTES = 1024 * 1024

Name = Annotated[str, Field(min_length=1, max_length=1_024)]
BlockHash = Annotated[int, Field(ge=0, lt=1 << 64)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Location(_Message):
    """Where an engine is."""

    node: str | None = None
    rack: str | None = None
    region: str | None = None

    def place(self) -> Place:
        """As the library has it."""
        return Place(self.node, self.rack, self.region)


class Layout(_Message):
    """What two engines must have in common to read each other's blocks."""

    model: str
    block_size: int = Field(ge=1)
    bytes_per_token: int = Field(ge=1)


class ReadRequest(_Message):
    """A decoder wants the blocks of a request that a prefiller holds."""

    layout: Layout
    engine_id: Name
    request_id: Name
    prompt_tokens: int = Field(ge=1)
    last_block: BlockHash | None
    """The chained hash of the prompt's last full block; None: it has none."""


class LookupRequest(_Message):
    """An engine wants as much of a prompt as another one has cached."""

    layout: Layout
    blocks: list[BlockHash] = Field(max_length=MAX_HASHES)
    """The chained hashes of the prompt's full blocks."""
    reader: Name
    """The id of the response for which it is."""


class Granted(_Message):
    """What can be read, and under which id it is held until then."""

    hold_id: str
    tokens: int = Field(ge=0)
    location: Location
    delay_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Engine time until all of it can be read."""
    lease_seconds: float = Field(gt=0)
    """Engine time after which it is let go unless the reader renews."""


class RenewRequest(_Message):
    """The reader still waits."""

    hold_id: Name


class ReleaseRequest(_Message):
    """The reader has read, or will not."""

    hold_id: Name
    reader: Name
    """The id of the response for which it was read."""
    tokens: int = Field(ge=0)
    """How many were read."""
    location: Location


class EmbeddingsRequest(_Message):
    """An engine wants embeddings that an encoder has made."""

    mm_hashes: list[Name] = Field(min_length=1, max_length=MAX_IMAGES)
    reader: Name
    location: Location


class EmbeddingsGranted(_Message):
    """Those that the encoder still has: tokens by hash."""

    tokens: dict[str, int]
    location: Location


class Done(_Message):
    """It was done; there is nothing to say."""
