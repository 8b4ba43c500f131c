"""The command: it says where it listens, stops when told, and never outlives its parent when asked."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

COMMAND = [sys.executable, "-m", "heliotrope_sim.emulator"]
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "emulator.yaml"
    file.write_text(
        "engines:\n"
        "- {name: es-0, profile: llama-3.1-70b-h100-tp4, region: ES, time_scale: 20}\n"
        "- {name: no-0, profile: llama-3.1-70b-h100-tp4, model: mine, time_scale: 20}\n"
    )
    return file


@pytest.fixture
def emulator(config: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*COMMAND, "--config", str(config)], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(emulator: subprocess.Popen[str], number: signal.Signals) -> None:
    assert emulator.stdout is not None
    engines = json.loads(emulator.stdout.readline())["engines"]
    assert [(e["name"], e["region"], e["model"]) for e in engines] == [
        ("es-0", "ES", "meta-llama/Llama-3.1-70B-Instruct"),
        ("no-0", None, "mine"),
    ]
    for engine in engines:
        assert httpx.post(f"{engine['url']}/v1/chat/completions", json=BODY, timeout=30).status_code == 200
    with httpx.stream("POST", f"{engines[0]['url']}/v1/completions", json={"prompt": "a", "stream": True}):
        emulator.send_signal(number)
        assert emulator.wait(timeout=20) == 0


@pytest.mark.slow
def test_it_dies_with_its_parent(config: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)",
            *COMMAND,
            "--config",
            str(config),
            "--die-with-parent",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        url = json.loads(parent.stdout.readline())["engines"][0]["url"]
        assert httpx.get(f"{url}/health").status_code == 200
        os.kill(parent.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{url}/health")
            except httpx.TransportError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("still serving after its parent died")


@pytest.mark.slow
def test_a_bad_configuration_is_named_and_nothing_starts(tmp_path: Path) -> None:
    file = tmp_path / "emulator.yaml"
    file.write_text("engines: [{name: a, profile: gpt-5}]")
    done = subprocess.run([*COMMAND, "--config", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{file}: engines.0.profile: no engine profile 'gpt-5'; shipped are ")
    assert "Traceback" not in done.stderr
