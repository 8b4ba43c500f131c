"""Compares pages of metrics by their families, types and series; values and descriptions don't matter."""

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "vllm:"
INFO = "vllm:cache_config_info"
"""Its labels' values are the engine's configuration, of which an emulator has a part."""
ANY = "*"

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of a page."""

    kind: str
    series: set[Series] = field(default_factory=set)
    """Sample name and labels; the model's name and, of info metrics, all values are `ANY`."""


def families(page: str) -> dict[str, Family]:
    """vLLM's metrics of a page. The times of creation are left out: they are no metrics of their own."""
    found = {}
    for family in text_string_to_metric_families(page):
        if family.name.startswith(PREFIX) and not family.name.endswith("_created"):
            series = {(s.name, _labels(family.name, s.labels)) for s in family.samples}
            found[family.name] = Family(family.type, series)
    return found


def _labels(name: str, labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((k, ANY if name == INFO or k == "model_name" else v) for k, v in labels.items())


def differences(emulated: str, real: str) -> list[str]:
    """Where an emulator's page says something else than the engine's: one line each.

    What only the real page has is no difference, unless it is a series of a metric that both have.
    """
    known = families(real)
    lines = []
    for name, mine in families(emulated).items():
        theirs = known.get(name)
        if theirs is None:
            lines.append(f"{name}: the engine has no such metric")
            continue
        if mine.kind != theirs.kind:
            lines.append(f"{name}: {mine.kind}, the engine's is {theirs.kind}")
        if name == INFO:
            lines += [f"{name}: the engine has no label {k}" for k in sorted(_keys(mine) - _keys(theirs))]
        else:
            lines += [f"{each}: the engine has no such series" for each in _shown(mine.series - theirs.series)]
            lines += [f"{each}: only the engine has it" for each in _shown(theirs.series - mine.series)]
    return lines


def only_real(emulated: str, real: str) -> set[str]:
    """Metrics that the emulator leaves out."""
    return families(real).keys() - families(emulated).keys()


def _keys(family: Family) -> set[str]:
    return {key for _, labels in family.series for key, _ in labels}


def _shown(series: set[Series]) -> list[str]:
    return sorted(name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels)) + "}" for name, labels in series)
