"""Histograms of an engine's page: summed over engine cores, and unknown where they cannot be read."""

import pytest

from heliotrope_epp.datalayer.latency_buckets import Buckets, latency_buckets
from heliotrope_epp.datalayer.metrics_text import SGLANG, VLLM

PAGE = b"""# HELP vllm:time_to_first_token_seconds Histogram.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} 5.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 6.0
vllm:request_time_per_output_token_seconds_bucket{le="0.05"} 7
vllm:request_time_per_output_token_seconds_bucket{le="+Inf"} 8
"""


def test_engine_cores_are_added_up() -> None:
    found = latency_buckets(PAGE, VLLM, 12.5)

    assert found.read_s == 12.5
    assert found.first_token == Buckets((0.1, 1.0), (4.0, 6.0, 8.0))
    assert found.output_token == Buckets((0.05,), (7.0, 8.0))


def test_what_an_engine_does_not_tell_is_unknown() -> None:
    assert latency_buckets(PAGE, SGLANG, 0.0).first_token is None
    assert latency_buckets(b"", VLLM, 0.0).output_token is None
    sglang = PAGE.replace(b"vllm:time_to", b"sglang:time_to")
    assert latency_buckets(sglang, SGLANG, 0.0).first_token == Buckets((0.1, 1.0), (4.0, 6.0, 8.0))


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (b'le="0.1",model_name="m"} 3.0', b'le="0.1",model_name="m"} NaN'),
        (b'le="0.1",model_name="m"} 3.0', b'le="x",model_name="m"} 3.0'),
        (b'le="0.1",model_name="m"} 3.0', b'le="nan",model_name="m"} 3.0'),
        (b'le="0.1",model_name="m"} 3.0', b'model_name="m"} 3.0'),
        (b'le="0.1",model_name="m"} 3.0', b'le="0.1",model_name="m"}'),
        (b'le="0.1",model_name="m"} 3.0', b'le="0.1",model_name="m"} 30.0'),
        (b'le="+Inf",model_name="m"', b'le="2.0",model_name="m"'),
    ],
)
def test_a_histogram_that_makes_no_sense_is_unknown(text: bytes, instead: bytes) -> None:
    assert text in PAGE
    assert latency_buckets(PAGE.replace(text, instead), VLLM, 0.0).first_token is None
