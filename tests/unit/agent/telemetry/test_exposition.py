from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from heliotrope_agent.telemetry.exposition import Family, label_text, page
from heliotrope_agent.telemetry.power import EDGES_WATTS, PowerHistogram


def test_a_page() -> None:
    joules = Family("x_joules_total", "counter", "Joules.")
    joules.add(label_text({"uuid": "GPU-a", "pod": ""}), 18446744073709551557)
    joules.add("", None)
    watts = Family("x_watts", "gauge", "Watts.")
    watts.add("", 12.5)
    assert page([joules, Family("x_empty", "gauge", "Nothing."), watts]) == (
        b"# HELP x_joules_total Joules.\n# TYPE x_joules_total counter\n"
        b'x_joules_total{uuid="GPU-a"} 18446744073709551557\n'
        b"# HELP x_watts Watts.\n# TYPE x_watts gauge\nx_watts 12.5\n"
    )
    assert page([]) == b""


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)))
def test_labels_survive(labels: dict[str, str]) -> None:
    family = Family("x", "gauge", "X.")
    family.add(label_text(labels), 1)
    # The parser splits lines as text files do; the format knows line feeds alone.
    if any(len(value.splitlines()) > 1 for value in labels.values()):
        return
    (read,) = text_string_to_metric_families(page([family]).decode())
    assert read.samples[0].labels == labels


@given(st.lists(st.floats(0, 3_000), max_size=50))
def test_a_histogram(watts: list[float]) -> None:
    histogram = PowerHistogram()
    for each in watts:
        histogram.observe(each)
    family = Family("x_watts", "histogram", "X.")
    family.add_histogram({"uuid": "GPU-a"}, histogram)
    (read,) = text_string_to_metric_families(page([family]).decode())
    buckets = {s.labels["le"]: s.value for s in read.samples if s.name == "x_watts_bucket"}
    for edge in EDGES_WATTS:
        assert buckets[str(edge)] == sum(each <= edge for each in watts)
    values = {sample.name: sample.value for sample in read.samples}
    assert buckets["+Inf"] == values["x_watts_count"] == len(watts)
    assert values["x_watts_sum"] == histogram.sum_watts
