"""docs/learning.md names what is there."""

import asyncio
import contextlib
import re
from pathlib import Path
from random import Random

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from heliotrope.predict.sample import Refusal
from heliotrope.predict.schedule import SchedulePolicy
from heliotrope.predict.window import CAPACITY, PER_STRATUM
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.client import ClientSettings
from heliotrope_epp.learning.learner import Learner
from heliotrope_epp.learning.metrics import PREFIX
from heliotrope_epp.learning.samples import MIN_BUSY_SHARE, MIN_STEPS
from heliotrope_epp.learning.service import TrainerService
from heliotrope_epp.learning.settings import LearningSettings, TrainerSettings, TrainingSettings
from heliotrope_epp.learning.wire import MAX_ENTRIES
from heliotrope_epp.outcomes.energy import NoSteps

PAGE = (Path(__file__).parents[4] / "docs" / "learning.md").read_text(encoding="utf-8")


def test_every_metric_is_named_and_every_name_is_a_metric() -> None:
    there = set()
    for url in (None, "http://trainer:8000"):
        registry = CollectorRegistry()
        registry.register(Learner(LearningSettings(None, url), clock=Clock(), random=Random()).collector())
        page = generate_latest(registry).decode()
        there |= set(re.findall(rf"^# TYPE {PREFIX}_(\w+) ", page, re.MULTILINE))
    table = PAGE.split("## See it")[1].split("## The trainer")[0]
    named = set(re.findall(rf"`(?:{PREFIX}|…)_(\w+)(?:\{{|`)", table))
    # An age is shown once there is a model; what is lost while a start reads the state is told by its help text alone.
    assert named - there == {"model_age_seconds"}
    assert there - named == {"overflowed_samples_total"}


def test_every_reason_is_named_and_no_other() -> None:
    table = PAGE.split("A request is left out")[1].split("Steps are learned")[0]
    named = {word for line in table.splitlines() if line[:2] == "| " for word in re.findall(r"`([a-z-]+)`", line[:50])}
    assert named == {reason.value for reason in Refusal}


def test_every_reason_against_an_interval_is_named_and_no_other() -> None:
    table = PAGE.split("An interval is left out")[1].split("Up to ")[0]
    named = {word for line in table.splitlines() if line[:2] == "| " for word in re.findall(r"`([a-z-]+)`", line[:70])}
    of_steps = {reason.value for reason in NoSteps}
    assert of_steps <= named
    assert named - of_steps <= {reason.value for reason in Refusal}
    assert f"less than {MIN_BUSY_SHARE:.0%}".replace("%", " %") in table
    assert f"fewer than {MIN_STEPS} steps" in table


def test_every_call_of_the_trainer_is_there() -> None:
    async def paths() -> set[tuple[str, str]]:
        service = TrainerService(TrainerSettings(host="127.0.0.1", port=0, metrics_port=0), Clock(), Random())
        found: set[tuple[str, str]] = set()
        opened = service._open

        async def spy(stack: contextlib.AsyncExitStack, port: int, routes: list[object]) -> int:
            found.update((route.method, route.path) for route in routes)  # type: ignore[attr-defined]
            return await opened(stack, port, routes)  # type: ignore[arg-type]

        service._open = spy  # type: ignore[method-assign, assignment]
        async with contextlib.AsyncExitStack() as stack:
            await service.listen(stack)
        return found

    there = asyncio.run(paths())
    table = PAGE.split("## The trainer's interface")[1].split("## Reset")[0]
    named = set()
    for line in table.splitlines():
        if line.startswith("| `"):
            method = "GET"
            for word in re.findall(r"(GET|POST)? ?(/[a-z_/]+)", line.split("|")[1]):
                method = word[0] or method
                named.add((method, word[1]))
    assert named == there


def test_numbers_are_those_of_the_code() -> None:
    policy, training, client = SchedulePolicy(), TrainingSettings(), ClientSettings("")
    for text in (
        f"Up to {CAPACITY:,} samples",
        f"at most {PER_STRATUM:,} of each kind",
        f"after {policy.first_after} samples",
        f"every {policy.every:,} new ones",
        f"at most every {policy.min_interval_seconds:g} s",
        f"samples of the last {training.snapshot_interval_s:g} s",
        f"after {training.first_retry_s:g} s, then up to {training.longest_retry_s / 60:g} min",
        f"hold up to {client.max_queue:,} samples",
        f"{TrainerSettings().max_body_bytes // 2**20} MiB, {MAX_ENTRIES:,} entries",
    ):
        assert text in " ".join(PAGE.split()), text
