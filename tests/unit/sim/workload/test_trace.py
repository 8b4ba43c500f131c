from itertools import pairwise
from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_sim.data import DataFileMissingError, data_file
from heliotrope_sim.workload.prompts import prompt_of
from heliotrope_sim.workload.trace import TraceRequest, load_azure, stretch

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_times_of_100_nanoseconds_are_read_and_counted_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n")
    assert load_azure(path) == (TraceRequest(0.0, 374, 44), TraceRequest(pytest.approx(4.314579, abs=1e-5), 396, 109))


@pytest.mark.parametrize("row", ["yesterday,1,2\n", "2023-11-16 18:15:50,1\n", "2023-11-16 18:15:50,a,2\n"])
def test_a_bad_row_is_named(tmp_path: Path, row: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "2023-11-16 18:15:46.6805900,374,44\n" + row)
    with pytest.raises(InvalidInputError, match=r"trace\.csv:3"):
        load_azure(path)


def test_a_stretch_keeps_the_pattern_at_another_rate() -> None:
    trace = [TraceRequest(float(i * i), 10 + i, i) for i in range(100)]
    chosen = stretch(trace, skip=10, rate_per_second=2.0, seconds=20.0)
    assert len(chosen) == 40
    assert chosen[0].arrival_seconds == 0.0
    assert chosen[-1].arrival_seconds == pytest.approx(20.0)
    assert [r.prompt_tokens for r in chosen] == [10 + i for i in range(10, 50)]
    gaps = [b.arrival_seconds - a.arrival_seconds for a, b in pairwise(chosen)]
    assert gaps == sorted(gaps)


def test_a_trace_that_is_too_short_says_so() -> None:
    with pytest.raises(InvalidInputError, match="40 are needed"):
        stretch([TraceRequest(0.0, 1, 1)] * 20, skip=5, rate_per_second=2.0, seconds=20.0)


def test_prompts_have_the_wanted_length_and_repeat_by_seed() -> None:
    assert len(prompt_of(100, 1)) == 400
    assert prompt_of(100, 1) == prompt_of(100, 1) != prompt_of(100, 2)


def test_a_missing_data_file_is_named() -> None:
    assert data_file("carbon/ES.csv").is_file()
    with pytest.raises(DataFileMissingError, match=r"carbon/XX\.csv"):
        data_file("carbon/XX.csv")
