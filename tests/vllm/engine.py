"""A real vLLM on this CPU, as a child process that never outlives the test run."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx
from tests.support.controlplane import free_ports

MODEL = "tiny"
MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 16
KV_TOPIC = "kv@pod1@tiny"
START_SECONDS = 1_200.0
"""A minute on two idle cores; a machine that is busy with something else takes ten times as long."""
STOP_SECONDS = 60.0
MODEL_SECONDS = 120.0
LOG_TAIL_BYTES = 4_000

_HERE = Path(__file__).parent
RECORDED_PAGE = _HERE.parent / "unit" / "epp" / "datalayer" / "pages" / "vllm-0.32.0.txt"
"""What an engine like this one said of itself when the parser's test was written."""
_TEXT = _HERE.parents[1] / "LICENSE"
"""What the tokenizer learns from."""


class EngineStartError(RuntimeError):
    """vLLM did not come up; the message ends with its log."""


class RealEngine:
    """A vLLM that takes requests."""

    def __init__(self, guard: subprocess.Popen[bytes], port: int, log: Path, replay_endpoint: str) -> None:
        self._guard = guard
        self._log = log
        self.port = port
        self.replay_endpoint = replay_endpoint
        """Where its KV events can be asked for."""
        self.url = f"http://127.0.0.1:{port}"

    @classmethod
    def start(cls, python: Path, folder: Path, say: Callable[[str], None]) -> Self:
        """Write a model and serve it; returns when the API answers.

        Args:
            python: the interpreter of vLLM's environment.
            folder: for the model, vLLM's own caches and the log.
            say: told what takes time.

        Raises:
            EngineStartError: if it does not come up.
        """
        model = folder / "model"
        subprocess.run(
            [str(python), str(_HERE / "tiny_model.py"), str(model), str(_TEXT)], check=True, timeout=MODEL_SECONDS
        )
        (port,) = free_ports(1)
        log = folder / "vllm.log"
        replay_endpoint = f"ipc://{folder / 'replay'}"
        kv_events = {
            "enable_kv_cache_events": True,
            "endpoint": f"ipc://{folder / 'events'}",
            "replay_endpoint": replay_endpoint,
            "topic": KV_TOPIC,
        }
        say(f"starting vLLM; its log is {log}")
        started = time.monotonic()
        with log.open("wb") as file:
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "guard.py"), *_command(python, model, port, kv_events)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=_environment(folder),
                start_new_session=True,
            )
        engine = cls(guard, port, log, replay_endpoint)
        try:
            engine._wait_ready(started + START_SECONDS)
        except BaseException:
            engine.stop()
            raise
        say(f"vLLM is ready after {time.monotonic() - started:.0f} s")
        return engine

    def stop(self) -> None:
        """End all its processes. Does nothing the second time."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(STOP_SECONDS)

    def _wait_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            code = self._guard.poll()
            if code is not None:
                raise EngineStartError(f"vLLM ended with exit code {code}; {self._tail()}")
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=5.0, trust_env=False).status_code == 200:
                    return
            time.sleep(0.5)
        raise EngineStartError(f"vLLM was not ready within {START_SECONDS:g} s; {self._tail()}")

    def _tail(self) -> str:
        return f"its log ends:\n{self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}"


def _command(python: Path, model: Path, port: int, kv_events: dict[str, object]) -> list[str]:
    return [
        *(str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model)),
        *("--served-model-name", MODEL),
        *("--load-format", "dummy"),  # random weights
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--max-model-len", str(MAX_MODEL_LEN)),
        *("--max-num-seqs", str(MAX_NUM_SEQS)),
        *("--kv-events-config", json.dumps(kv_events)),
        "--enforce-eager",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
    ]


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return inherited | {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "huggingface"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
