"""The page `/v1/demand`: what a picker tells whoever plans replicas and wakes engines (docs/activation.md)."""

from collections.abc import Mapping

import msgspec

from heliotrope_epp.demand.book import DemandBook, ModelDemand

SCHEMA = 1
PATH = "/v1/demand"


class PoolName(msgspec.Struct, frozen=True):
    """The InferencePool."""

    namespace: str
    name: str


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One model; totals since the start, the rest now."""

    model: str
    requests_total: int
    prompt_tokens_total: int
    output_tokens_total: int
    in_flight: int
    held: int
    oldest_held_s: float | None
    """None: nothing is held."""


class BucketsLine(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram of the engine's life."""

    upper_seconds: tuple[float, ...]
    """Upper bounds, ascending; the last one, which is infinite, is left out."""
    cumulative: tuple[float, ...]
    """How many were at most as long as each bound, then how many there were."""


class EndpointLine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as its own page said at the last reading; None: unknown, as everything is once the reading is stale.

    Totals are of the engine's life, whoever sent the requests, and the same for every picker.
    """

    name: str
    """Of the endpoint: in Kubernetes its pod."""
    asleep: bool | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    first_tokens_total: float | None = None
    """Requests whose prefill has ended."""
    first_token_seconds_total: float | None = None
    """Their times to first token, added up."""
    inter_tokens_total: float | None = None
    """Tokens after the first ones."""
    inter_token_seconds_total: float | None = None
    """The times between tokens, added up."""
    prompt_tokens_total: float | None = None
    computed_prompt_tokens_total: float | None = None
    """Those that no cache supplied."""
    generation_tokens_total: float | None = None
    energy_millijoules: float | None = None
    first_token: BucketsLine | None = None
    """Times to first token."""
    output_token: BucketsLine | None = None
    """Mean times per output token, by request."""


class DemandPage(msgspec.Struct, frozen=True, kw_only=True):
    """The whole page. Totals begin again from zero with `started_unix_s`."""

    schema: int
    pool: PoolName | None
    """None: a picker on a folder."""
    instance: str
    time_unix_s: float
    started_unix_s: float
    models: tuple[ModelLine, ...]
    endpoints: tuple[EndpointLine, ...] = ()


def demand_page(
    book: DemandBook,
    held: Mapping[str, tuple[int, float]],
    endpoints: tuple[EndpointLine, ...] = (),
    *,
    pool: PoolName | None,
    instance: str,
    now_unix_s: float,
    started_unix_s: float,
) -> DemandPage:
    """The page of this moment; `held` gives requests and the oldest's seconds by model."""
    lines = []
    for model in sorted(book.models.keys() | held.keys()):
        row = book.models.get(model, ModelDemand())
        count, oldest_s = held.get(model, (0, None))
        lines.append(
            ModelLine(
                model=model,
                requests_total=row.requests_total,
                prompt_tokens_total=row.prompt_tokens_total,
                output_tokens_total=row.output_tokens_total,
                in_flight=row.in_flight,
                held=count,
                oldest_held_s=oldest_s,
            )
        )
    return DemandPage(
        schema=SCHEMA,
        pool=pool,
        instance=instance,
        time_unix_s=now_unix_s,
        started_unix_s=started_unix_s,
        models=tuple(lines),
        endpoints=endpoints,
    )


def encode(page: DemandPage) -> bytes:
    """As JSON."""
    return msgspec.json.encode(page)
