"""docs/traces.md says what the code's tables say."""

import re
from pathlib import Path

from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing.settings import TracingSettings

PAGE = (Path(__file__).parents[4] / "docs" / "traces.md").read_text(encoding="utf-8")


def rows(span: a.SpanType) -> list[str]:
    section = PAGE.split(f"\n### `{span.name}`\n")[1].split("\n### ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_every_span_and_every_attribute_is_described_as_it_is() -> None:
    assert re.findall(r"^### `(.+)`$", PAGE, flags=re.MULTILINE) == [span.name for span in a.SPANS]
    for span in a.SPANS:
        expected = [f"| `{x.name}` | {x.type} | {x.unit or '–'} | {x.meaning} | {x.example} |" for x in span.attributes]
        assert rows(span) == expected
        parent = span.parent if span is a.REQUEST else f"`{span.parent}`"
        assert f"### `{span.name}`\n\nParent: {parent}.\n" in PAGE


def test_the_tree_on_the_page_is_the_tables_tree() -> None:
    tree = PAGE.split("```\n")[1]
    names = [re.search(r"[\w.<>]+", line)[0] for line in tree.splitlines()]  # type: ignore[index]
    assert sorted(names) == sorted(span.name for span in a.SPANS)


def test_no_attribute_is_described_twice_differently() -> None:
    every = [x for span in a.SPANS for x in span.attributes]
    assert len({x.name for x in every}) == len(set(every))
    assert all(len({x.name for x in span.attributes}) == len(span.attributes) for span in a.SPANS)


def test_the_defaults_on_the_page_are_the_settings() -> None:
    s = TracingSettings()
    assert f"{s.max_queue_spans} spans, {s.max_batch_spans} spans, {s.delay_s * 1000:.0f} ms" in PAGE
    assert f"`parentbased_traceidratio`, {s.sampler.ratio}" in PAGE
    assert f"within its {s.flush_s:.0f} s of flushing" in PAGE
