"""The operator as a process of its own, as it runs in a pod."""

import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.support.controlplane import Process

T = TypeVar("T")

PATIENCE_S = 40.0
"""Waiting ends as soon as what is waited for is there; this only bounds a failure on a busy machine."""

PROGRAM = """
import dataclasses, json, logging, sys
from pathlib import Path
from heliotrope_operator.app import run
from heliotrope_operator.hub.settings import MemberSettings
from heliotrope_operator.settings import LeaseSettings, OperatorSettings, Parts, PrometheusSettings
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
logging.getLogger("kopf._cogs.clients.watching").setLevel(logging.DEBUG)
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # a line for every event; `heliotrope operator` has none
given = json.loads(sys.argv[1])
given["kubeconfig"] = Path(given["kubeconfig"])
given["folder"] = Path(given["folder"]) if given.get("folder") else None
given["namespaces"] = tuple(given.get("namespaces", ()))
given["lease"] = LeaseSettings(**given.get("lease", {}))
given["parts"] = Parts(**given.get("parts", {}))
if given.get("prometheus"):
    given["prometheus"] = PrometheusSettings(**given["prometheus"])
if given.get("hub"):
    files = {name: Path(given["hub"][name]) for name in ("ca", "token") if name in given["hub"]}
    given["hub"] = MemberSettings(**given["hub"] | files)
offset_s = given.pop("clock_offset_s", 0.0)  # a machine whose clock is off
if offset_s:
    import time
    true_time = time.time
    time.time = lambda: true_time() + offset_s
sys.exit(run(OperatorSettings(**given)))
"""

FAST = {
    "host": "127.0.0.1",
    "metrics_port": 0,
    "health_port": 0,
    "status_refresh_s": 2.0,
    "scale_poll_s": 1.0,
    "lease": {"duration_s": 6.0, "renew_deadline_s": 4.0, "retry_s": 0.5},
}


def eventually(look: Callable[[], T], what: str = "", *, seconds: float = PATIENCE_S) -> T:
    """What `look` gives once that is true.

    Raises:
        AssertionError: if it is still not after a long time.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"never so: {what or look} (last: {found!r})")
        time.sleep(0.1)


class OperatorProcess:
    """Starts when made, is ready when `wait_ready` returns."""

    def __init__(self, kubeconfig: Path, log: Path, *, namespace: str, **settings: Any) -> None:
        self.log = log
        given = {**FAST, "kubeconfig": str(kubeconfig), "namespace": namespace, "identity": log.stem, **settings}
        self._process = Process([sys.executable, "-c", PROGRAM, json.dumps(given)], log)
        self._child = self._process._child

    def wait_ready(self) -> Self:
        """Return when it is alive and leads."""
        eventually(lambda: self._alive_and("leads and writes"), f"{self.log} leads")
        return self

    def wait_alive(self) -> Self:
        """Return when it is alive, leading or not."""
        eventually(lambda: self._alive_and("liveness on port") and self.health()[0], f"{self.log} is alive")
        return self

    def _alive_and(self, line: str) -> bool:
        if self._child.poll() is not None:
            raise AssertionError(f"the operator ended with {self._child.returncode}:\n{self.text()[-4_000:]}")
        return line in self.text()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text()

    def metric(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """The sum of a metric's samples that carry the labels."""
        lines = self._fetch("metrics", "/metrics")[1].splitlines()
        wanted = [f'{key}="{value}"' for key, value in (labels or {}).items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if re.match(rf"{name}(\{{| )", line) and all(each in line for each in wanted)
        )

    def families(self) -> list[str]:
        """Names of all metrics, in order; one that two parts give stands twice."""
        return re.findall(r"^# TYPE (\S+) ", self._fetch("metrics", "/metrics")[1], re.MULTILINE)

    def health(self) -> tuple[int, str]:
        """Status and body of the liveness probe; 0 while nothing listens."""
        return self._fetch("liveness", "/healthz")

    def _fetch(self, port: str, path: str) -> tuple[int, str]:
        found = re.search(rf"{port} on port (\d+)", self.text())
        assert found is not None, self.text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def freeze(self) -> None:
        """Stop the process in its tracks."""
        os.kill(self._child.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run on."""
        os.kill(self._child.pid, signal.SIGCONT)

    def terminate(self) -> tuple[int, float]:
        """Send SIGTERM; returns the exit status and the seconds it took."""
        started = time.monotonic()
        self._child.send_signal(signal.SIGTERM)
        status = self._child.wait(PATIENCE_S)
        return status, time.monotonic() - started

    def wait_end(self) -> int:
        """The exit status once it ends by itself."""
        return self._child.wait(PATIENCE_S)

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._child.kill()
        self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self.thaw()
            self._process.stop()
