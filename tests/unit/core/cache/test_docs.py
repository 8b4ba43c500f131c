"""docs/kv-actions.md says what the code has."""

import re
from pathlib import Path

from heliotrope.cache.crossover import Situation, break_even_tokens
from heliotrope.cache.links import DEFAULT_LINKS, DEFAULT_TIERS
from heliotrope.cache.plans import LEAST_TOKENS, MAX_OWNERS, MAX_PLANS
from heliotrope.cache.prefix_index import DEFAULT_MAX_BYTES
from heliotrope.engine.profiles import available, load

PAGE = (Path(__file__).parents[4] / "docs/kv-actions.md").read_text(encoding="utf-8")
WAYS = {**{kind.value: link for kind, link in DEFAULT_LINKS.items()}, **{t.value: k for t, k in DEFAULT_TIERS.items()}}
SITUATIONS = (
    Situation(),
    Situation(prefill_duty=0.5),
    Situation(memory_pressure=1.0, pressure_weight_joules=100.0),
)


def test_the_links_on_the_page_are_the_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]*[a-z] \| ([\d.e+-]+ \|.*) \|$", PAGE, flags=re.MULTILINE))
    assert list(rows) == list(WAYS)
    for way, link in WAYS.items():
        expected = (
            link.bytes_per_second,
            link.latency_seconds,
            link.network_joules_per_bit,
            link.sender_joules_per_bit,
            link.receiver_joules_per_bit,
        )
        assert tuple(float(cell) for cell in rows[way].split("|")) == expected, way


def test_the_break_even_lengths_on_the_page_are_the_models() -> None:
    for name in available():
        cells = " | ".join(
            " / ".join(f"{round(break_even_tokens(load(name), link, s)):,}" for s in SITUATIONS)
            for link in WAYS.values()
        )
        assert f"| `{name}` | {cells} |\n" in PAGE


def test_limits_on_the_page_are_the_codes() -> None:
    numbers = {4: "four", 16: "sixteen"}
    assert f"whole pool the {numbers[MAX_PLANS]}" in PAGE
    assert f"at most {numbers[MAX_OWNERS]} owners" in PAGE
    assert f"Below {LEAST_TOKENS:.0f} tokens" in PAGE
    assert f"({DEFAULT_MAX_BYTES // 1024 // 1024} MiB)" in PAGE
