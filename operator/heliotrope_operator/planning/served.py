"""What is asked of a pool as its engines tell it: the requests that they serve, where no picker counts those that come.

Served requests hide what waits and what was refused. So they say what is asked only while every awake replica is
measured, and nothing is taken away while any of their queues holds requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from heliotrope.api.v1alpha1.common import Role
from heliotrope_operator.planning.observed import EngineRates, ModelRates
from heliotrope_operator.planning.scraped import Scraped

QUEUED = 0.5
"""Requests that wait in an engine's queue on average from which on it counts as one that does not keep up: each request
waits for the step in progress, so that a single sample often sees one."""


@dataclass(frozen=True, slots=True)
class Replica:
    """An engine that a variant of the pool selects."""

    pod: str
    model: str
    role: Role
    serves: bool
    """Whether requests may be sent to it; one that ends, or that is not ready, may still tell what it was asked."""


@dataclass(frozen=True, slots=True)
class Served:
    """What engines tell of a pool."""

    engines: Mapping[str, EngineRates] = field(default_factory=dict)
    models: Mapping[str, ModelRates] = field(default_factory=dict)
    """Of those models whose every awake replica is measured."""
    gaps: Mapping[str, str] = field(default_factory=dict)
    """By model, why it is not known what it is asked for."""
    queues: Mapping[str, str] = field(default_factory=dict)
    """By model, where requests wait."""
    fresh_for_s: float = 0.0
    """Seconds for which all of it counts; 0 where no awake engine is measured."""


def served(models: Iterable[str], replicas: Iterable[Replica], engines: Mapping[str, Scraped]) -> Served:
    """From what was scraped of replicas to what is asked of each model.

    Args:
        models: of the pool's variants.
        replicas: of the pool's variants.
        engines: by pod; what is not there is not among the scraped targets.
    """
    by_model: dict[str, list[Replica]] = {model: [] for model in sorted(models)}
    for replica in sorted(set(replicas), key=lambda each: each.pod):  # two variants may select the same pod
        by_model.setdefault(replica.model, []).append(replica)
    rates: dict[str, ModelRates] = {}
    gaps: dict[str, str] = {}
    queues: dict[str, str] = {}
    fresh: list[float] = []
    for model, members in by_model.items():
        awake = [each for each in members if each.serves and not _asleep(engines.get(each.pod))]
        gap = next((found for each in awake if (found := _gap(each, engines.get(each.pod))) is not None), None)
        if not awake:
            gap = "no engine of it is awake"
        known = [engines[each.pod].fresh_for_s for each in awake if each.pod in engines]
        fresh += [seconds for seconds in known if seconds > 0.0]
        if gap is not None:
            gaps[model] = gap
            continue
        waiting = {each.pod: engines[each.pod].queued or 0.0 for each in awake}
        longest = max(waiting, key=lambda pod: waiting[pod])
        if waiting[longest] >= QUEUED:
            queues[model] = f"{waiting[longest]:.1f} requests wait at {longest}"
        rates[model] = _rates(members, engines)
    return Served({pod: each.rates for pod, each in engines.items()}, rates, gaps, queues, min(fresh, default=0.0))


def _asleep(engine: Scraped | None) -> bool:
    return engine is not None and engine.rates.asleep is True


def _gap(replica: Replica, engine: Scraped | None) -> str | None:
    """What is missing of one that is awake."""
    if engine is None:
        return f"{replica.pod} serves and is not among the scraped targets"
    rates = engine.rates
    needed = (
        rates.requests_per_second,
        rates.prompt_tokens_per_second,
        rates.output_tokens_per_second,
        engine.queued,
    )
    if None in needed:
        return f"{replica.pod} serves, and its requests, tokens or queue are stale, missing or no numbers"
    return None


def _rates(members: Iterable[Replica], engines: Mapping[str, Scraped]) -> ModelRates:
    """Requests end at decode engines, or at those of both phases; a prefill engine has them before, not in addition."""
    known = [(each.role, engines[each.pod].rates) for each in members if each.pod in engines]
    begun = [rates for role, rates in known if role is not Role.DECODE]
    ended = [rates for role, rates in known if role is not Role.PREFILL]
    requests = max(_sum(each.requests_per_second for each in some) for some in (begun, ended))
    counted = ended if _sum(each.requests_per_second for each in ended) > 0.0 else begun
    of = _sum(each.requests_per_second for each in counted)
    share = requests / of if of > 0.0 else 1.0
    return ModelRates(
        requests,
        share * _sum(each.prompt_tokens_per_second for each in counted),
        share * _sum(each.output_tokens_per_second for each in counted),
    )


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)
