"""`heliotrope calibrate` as a process: what it refuses, what it survives, and that it always puts clocks back."""

import os
import signal
import threading
from dataclasses import replace

import httpx
import pytest
from tests.contract.agent_calibrate.bench import PATIENCE_S, QUICK, Bench, until
from tests.support.nvml.node import Privilege
from tests.support.nvml.products import A100_40GB, Lack
from tests.support.zygote import Zygote

from heliotrope_agent.calibrate.record import load

LONG = (*QUICK, "--window-seconds=6", "--clocks=1410,1200,900,600")
"""Four clocks; a second each."""


def test_a_plan_is_shown_and_nothing_is_touched(bench: Bench) -> None:
    before = bench.node.write_count
    started = bench.calibrate(*QUICK, "--dry-run")
    assert started.wait(PATIENCE_S) == 0
    text = " ".join(started.text().split())
    for part in (bench.node.uuid(), "SM clocks 1410, 900 MHz", "decode: 4 sequences", "steps", "at most", "kWh"):
        assert part in text
    assert bench.node.write_count == before
    assert not bench.output.exists()
    assert not bench.state.exists()


@pytest.mark.parametrize(
    ("arguments", "url", "says"),
    [
        (["--model=gpt-5"], None, "does not serve gpt-5; it serves meta-llama/Llama-3.1-8B-Instruct"),
        ([], "http://127.0.0.1:9", "cannot be reached"),
        ([], "127.0.0.1:8000", "must begin with http://"),
        (["--clocks=1410,1234"], None, "the GPUs do not support 1234 MHz; they have 210 to 1410"),
        (["--gpu=7"], None, "there is no GPU 7; there are 0 (GPU-"),
        (["--batches=4,x"], None, "is not a list of whole numbers"),
        (["--batch=5"], None, "5 is none of --batches 4"),
        (["--prompt-tokens=200000"], None, "exceed the model's context of 131072"),
        (["--engine-pid=1000000"], None, "do not descend from 1000000"),
        (["--resume"], None, "raw.json cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    bench: Bench, arguments: list[str], url: str | None, says: str
) -> None:
    assert says in bench.refused(*QUICK, *arguments, url=url)


def test_a_gpu_without_a_counter_a_partition_and_one_without_the_engine_are_refused(bench: Bench) -> None:
    lacking = bench.node.add(replace(A100_40GB, lacks=Lack.ENERGY))
    other = bench.node.add(A100_40GB)
    assert "has no energy counter" in bench.refused(*QUICK, f"--gpu={lacking}")
    assert f"no process runs on GPU {bench.node.uuid(other)}" in bench.refused(*QUICK, f"--gpu={other}")
    bench.node.mig([], gpu=other)
    assert "is partitioned (MIG)" in bench.refused(*QUICK, f"--gpu={other}")


@pytest.mark.slow
def test_who_may_not_lock_clocks_is_told_so(bench: Bench) -> None:
    bench.node.privilege(Privilege.NOBODY)
    try:
        started = bench.calibrate(*QUICK)
        assert started.wait(PATIENCE_S) == 1
    finally:
        bench.node.privilege(Privilege.ANYBODY)
    text = " ".join(started.text().split())
    assert "root" in text
    assert "could not be put back" in text
    assert "Traceback" not in text
    again = bench.calibrate(*QUICK, "--resume")
    until("root may", lambda: bench.sm_lock_mhz is not None)
    again.signal(signal.SIGINT)
    assert again.wait(15.0) == 130


@pytest.mark.slow
def test_an_engine_that_others_use_is_refused(bench: Bench) -> None:
    body = {"prompt": "hello", "max_tokens": 8_000, "ignore_eos": True}
    thread = threading.Thread(target=lambda: httpx.post(f"{bench.url}/v1/completions", json=body, timeout=60))
    thread.start()
    try:
        until("a request runs", lambda: httpx.get(f"{bench.url}/emulator/v1/state").json()["running"] == 1)
        assert "the engine serves 1 requests: take it out of its pool" in bench.refused(*QUICK)
    finally:
        thread.join()


@pytest.mark.slow
def test_somebody_elses_request_meanwhile_ends_it(bench: Bench) -> None:
    started = bench.calibrate(*LONG)
    until("it measures", lambda: len(bench.windows) >= 1)
    for _ in range(200):
        httpx.post(
            f"{bench.url}/v1/completions", json={"prompt": "x", "max_tokens": 40, "ignore_eos": True}, timeout=60
        )
        if started.ended.is_set():
            break
    assert started.wait(PATIENCE_S) == 1
    assert "take it out of its pool or Service" in " ".join(started.text().split())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_stops_at_once_puts_back_and_goes_on_later(bench: Bench, number: signal.Signals, code: int) -> None:
    started = bench.calibrate(*LONG)
    until("it measures at a lower clock", lambda: len(bench.windows) >= 1 and bench.sm_lock_mhz == 1200)
    started.signal(number)
    assert started.wait(15.0) == code
    assert bench.sm_lock_mhz is None
    assert "--resume goes on from there" in " ".join(started.text().split())
    kept = bench.windows
    assert "exists: go on from it with --resume" in bench.refused(*LONG)
    assert "another prompt_tokens" in bench.refused(*LONG, "--resume", "--prompt-tokens=100")
    again = bench.calibrate(*LONG, "--resume")
    assert again.wait(PATIENCE_S) == 0, again.text()
    assert bench.windows[: len(kept)] == kept
    assert {each["mhz"] for each in bench.windows} == {1410, 1200, 900, 600}
    assert load(bench.raw).subject.model == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.slow
def test_a_killed_one_is_put_back_by_the_agents_restore_and_by_the_next(bench: Bench) -> None:
    for recover in ("restore", "calibrate"):
        started = bench.calibrate(*LONG, *(["--resume"] if bench.raw.exists() else []))
        until("a clock is locked", lambda: bench.sm_lock_mhz is not None)
        started.signal(signal.SIGKILL)
        started.wait(10.0)
        assert bench.sm_lock_mhz is not None
        if recover == "restore":
            restored = bench.heliotrope("agent", "--restore", f"--state-folder={bench.state}")
            assert restored.wait(30.0) == 0, restored.text()
        else:
            writes = bench.node.write_count
            again = bench.calibrate(*LONG, "--resume")
            until("it begins", lambda before=writes: bench.node.write_count >= before + 2)  # type: ignore[misc]
            assert bench.node.writes()[writes].function == "nvmlDeviceResetGpuLockedClocks"
            again.signal(signal.SIGINT)
            again.wait(15.0)
        assert bench.sm_lock_mhz is None


@pytest.mark.slow
def test_an_agent_and_a_calibration_refuse_each_other(bench: Bench) -> None:
    wishes = bench.state.parent / "wishes"
    wishes.mkdir()
    agent = ("agent", "--node=n", f"--folder={wishes}", f"--state-folder={bench.state}", "--metrics-port=0")
    running = bench.heliotrope(*agent)
    until("the agent runs", lambda: (bench.state / "heartbeat").exists() or running.ended.is_set())
    assert not running.ended.is_set(), running.text()
    text = bench.refused(*QUICK)
    assert "another process has the GPUs of this node: agent with pid" in text
    assert "docs/calibrate.md" in text
    running.signal(signal.SIGTERM)
    assert running.wait(20.0) == 0, running.text()

    calibrating = bench.calibrate(*LONG, f"--output={bench.output}-b", "--window-seconds=60")
    until("it holds the GPU", lambda: bench.sm_lock_mhz is not None)
    refused = bench.heliotrope(*agent)
    assert refused.wait(20.0) == 3
    assert "calibrate with pid" in " ".join(refused.text().split())
    calibrating.signal(signal.SIGTERM)
    assert calibrating.wait(15.0) == 143


@pytest.mark.slow
def test_what_heat_holds_down_is_told_and_left_out(bench: Bench) -> None:
    bench.node.slow_down(1005, 0x40)
    started = bench.calibrate(*QUICK, "--batches=4")
    assert started.wait(PATIENCE_S) == 0, started.text()
    text = " ".join(started.text().split())
    assert "decode at 1410 MHz, batch 4: Throttled (HwThermalSlowdown)" in text
    assert "decode at 1410 MHz is not in the profile" in text
    hot = [each for each in bench.windows if each["mhz"] == 1410]
    assert hot
    assert all("Throttled" in each["measured"]["marks"] and each["measured"]["effective_mhz"] == 1005 for each in hot)
    assert [each["smClockMhz"] for each in bench.profile["spec"]["energyProfile"]] == [900]


@pytest.mark.slow
def test_an_engine_that_dies_ends_it_and_the_clock_is_put_back(
    tmp_path_factory: pytest.TempPathFactory, zygote: Zygote
) -> None:
    bench = Bench(tmp_path_factory.mktemp("node"), zygote, time_scale=20.0)
    try:
        started = bench.calibrate(*LONG)
        until("it measures", lambda: len(bench.windows) >= 1)
        os.kill(bench.engine.pid, signal.SIGKILL)
        assert started.wait(PATIENCE_S) == 1
        text = " ".join(started.text().split())
        assert "is the engine up?" in text or "did not answer" in text
        assert "Traceback" not in text
        assert bench.sm_lock_mhz is None
        assert bench.windows
    finally:
        bench.close()
