"""What cannot be meant is refused, in the words of the command line."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.settings import AgentSettings, Server, Timing
from heliotrope_cli.commands.agent import agent

FLAGS = {f"--{name.replace('_', '-')}" for name in inspect.signature(agent).parameters}


@pytest.mark.parametrize(
    ("made", "field", "numbers"),
    [
        *(
            (Timing, field, (0.0, -1.0, 3601.0, math.nan))
            for field in ("look_s", "watchdog_s", "restore_s", "defaults_s")
        ),
        (Timing, "watchdog_s", (2.9,)),
        (Server, "port", (-1, 65_536)),
        (Server, "sample_s", (0.0, 0.09, 1.1, math.nan, math.inf)),
        (Server, "max_watts", (0.0, -1.0, math.nan, math.inf)),
        *((Rules, field, (-1.0, math.nan, math.inf)) for field in ("lower_dwell_s", "raise_dwell_s")),
        *((Rules, field, (-1.0, math.nan, math.inf)) for field in ("unknown_owner_s", "foreign_hold_s")),
        (Rules, "raise_dwell_s", (61.0,)),
        (Rules, "retry_first_s", (0.0, 301.0, math.nan)),
        *((Rules, field, (0, -1)) for field in ("gpu_changes_per_hour", "node_changes_per_minute")),
        *((Rules, field, (0, -5, 1_410_000)) for field in ("original_sm_clock_mhz", "original_memory_clock_mhz")),
    ],
)
def test_numbers_that_cannot_be_meant(made: Callable[..., Any], field: str, numbers: tuple[float, ...]) -> None:
    made()
    for number in numbers:
        with pytest.raises(InvalidInputError) as refused:
            made(**{field: number})
        assert refused.value.path in FLAGS


def test_a_node_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(InvalidInputError, match="--node: give the name of this node, or set NODE_NAME"):
        AgentSettings()
    monkeypatch.setenv("NODE_NAME", "gpu-a1")
    assert AgentSettings().node == "gpu-a1"
