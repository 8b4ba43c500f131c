"""The text format says what was counted, and real parsers read it."""

import bisect

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from heliotrope_sim.emulator.exposition import Histogram, Page, labels


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 20)))
def test_a_histogram_counts_what_is_at_most_its_bounds(values: list[float]) -> None:
    bounds = [0.1, 1, 5]
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    page = Page()
    page.histogram("h", "help", 'a="b"', histogram)
    (family,) = text_string_to_metric_families(page.text())
    samples = {(s.name, s.labels.get("le")): s.value for s in family.samples}
    for bound in bounds:
        assert samples["h_bucket", repr(float(bound))] == bisect.bisect_right(sorted(values), bound)
    assert samples["h_bucket", "+Inf"] == samples["h_count", None] == histogram.count == len(values)
    assert samples["h_sum", None] == histogram.total


# Line ends other than \n are no line ends to Prometheus, but the parser splits lines as Python does.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.just("\n"), max_size=20)


@settings(deadline=None)
@given(value=TEXT, number=st.integers(0, 2**70))
def test_any_label_and_any_whole_number_survive(value: str, number: int) -> None:
    page = Page()
    page.family("m_total", "counter", "help", [(labels({"name": value}), number)])
    (family,) = text_string_to_metric_families(page.text())
    (sample,) = family.samples
    assert sample.labels == {"name": value}
    assert page.text().endswith(f" {number}\n")
