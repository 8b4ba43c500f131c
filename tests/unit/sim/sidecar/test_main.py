from typing import Any

import pytest

from heliotrope_sim.sidecar.__main__ import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_url": "https://d:1"}, "--decoder-url: "),
        ({"decoder_url": "http://d:1", "port": 70_000}, "--port: "),
        (
            {"decoder_url": "http://d:1", "allowed_targets": "a,,b", "prefill_max_retries": -1},
            "--prefill-max-retries: ",
        ),
        ({"decoder_url": "http://d:1", "host": "203.0.113.1"}, "port: cannot listen on 203.0.113.1:0: "),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(**options) == 2
    said = capsys.readouterr()
    assert (said.out, said.err[: len(message)]) == ("", message)
    assert said.err.count("\n") == 1
