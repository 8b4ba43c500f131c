"""A pool whose demand a test decides: a picker that tells it, and engines whose pods follow their Deployment.

The operator is a process of its own; nothing of it is replaced. Only the controllers that make and start pods, which do
not run here, are played by `Engines`.
"""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx
from tests.contract.operator.cluster import MERGE, Api, Document
from tests.support.own_address import own_address

from heliotrope_epp.demand.page import DemandPage, EndpointLine, ModelLine, PoolName, encode

MODEL = "llama"
PROFILE = "llama-3.1-8b-h100"
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 200
FOLLOW_S = 0.2


class Picker:
    """Serves `/v1/demand` as `heliotrope_epp.demand.page` writes it, at an address that an EndpointSlice may have."""

    def __init__(self, namespace: str, engines: Callable[[], list[str]]) -> None:
        """`engines` gives the names of the pods that serve."""
        self._pool = PoolName(namespace, "pool")
        self._engines = engines
        self._lock = threading.Lock()
        self._rate = 0.0
        self._requests = 0.0
        self._of_engine: dict[str, float] = {}
        self._told_s = time.time()
        self._started_s = self._told_s
        self.held = 0
        self.garbage = False
        self.asked = 0
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Answer, at the port of before if there was one."""
        picker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                picker.asked += 1
                body = b"<html>not a picker</html>" if picker.garbage else encode(picker.page())
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((own_address(), self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def ask(self, requests_per_second: float) -> None:
        """So much is asked from now on."""
        with self._lock:
            self._advance()
            self._rate = requests_per_second

    def begin_anew(self) -> None:
        """As a picker that was started again: its counters are zero."""
        with self._lock:
            self._advance()
            self._requests, self._started_s = 0.0, time.time()

    def page(self) -> DemandPage:
        """The page of this moment."""
        with self._lock:
            now_s = self._advance()
            requests = int(self._requests)
            engines = tuple(
                EndpointLine(
                    name=pod,
                    asleep=False,
                    running=1.0,
                    waiting=0.0,
                    kv_usage=0.1,
                    first_tokens_total=self._of_engine[pod],
                    prompt_tokens_total=self._of_engine[pod] * PROMPT_TOKENS,
                    generation_tokens_total=self._of_engine[pod] * OUTPUT_TOKENS,
                )
                for pod in self._of_engine
            )
            line = ModelLine(
                model=MODEL,
                requests_total=requests,
                prompt_tokens_total=requests * PROMPT_TOKENS,
                output_tokens_total=requests * OUTPUT_TOKENS,
                in_flight=0,
                held=self.held,
                oldest_held_s=1.0 if self.held else None,
            )
            return DemandPage(
                schema=1,
                pool=self._pool,
                instance=f"picker-{self._started_s}",
                time_unix_s=now_s,
                started_unix_s=self._started_s,
                models=(line,),
                endpoints=engines,
            )

    def _advance(self) -> float:
        now_s = time.time()
        came = self._rate * (now_s - self._told_s)
        self._told_s = now_s
        self._requests += came
        serving = self._engines()
        self._of_engine = {pod: self._of_engine.get(pod, 0.0) + came / len(serving) for pod in serving}
        return now_s

    def slice(self, api: Api) -> Document:
        """The EndpointSlice by which it is found."""
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "epp",
                "namespace": api.namespace,
                "labels": {"kubernetes.io/service-name": "epp"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http-metrics", "port": self.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
        }


class Engines:
    """Plays the controllers of one Deployment and the kubelet: as many ready pods as it wants, soon after it does."""

    def __init__(self, api: Api, deployment: str = "engine") -> None:
        self._api = api
        self._deployment = deployment
        self._serving: tuple[str, ...] = ()
        self.moves: list[tuple[float, int]] = []
        """When the Deployment was seen to want another number, Unix time, and which; the first is what there was."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def serving(self) -> list[str]:
        """Names of the pods that are ready."""
        return list(self._serving)

    def __enter__(self) -> Self:
        self._follow()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(FOLLOW_S):
            try:
                self._follow()
            except (httpx.HTTPError, OSError, AssertionError):
                continue  # the API server is away; so would these be

    def _follow(self) -> None:
        wanted = self._api.get("Deployment", self._deployment)["spec"]["replicas"]
        if not self.moves or self.moves[-1][1] != wanted:
            self.moves.append((time.time(), wanted))
        names = [f"{self._deployment}-{number}" for number in range(wanted)]
        for name in names:
            if name not in self._serving:
                self._create(name)
        for name in self._serving:
            if name not in names:
                self._call("DELETE", f"/{name}", {"gracePeriodSeconds": 0})
        if tuple(names) != self._serving:
            self._serving = tuple(names)
            self._api.set_replicas("Deployment", self._deployment, wanted)

    def _create(self, name: str) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self._api.namespace, "labels": {"app": "vllm"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "engine", "image": "engine"}]},
        }
        self._call("POST", "", pod)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self._call("PATCH", f"/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}})

    def _call(self, method: str, path: str, body: Document) -> None:
        url = f"{self._api.cluster.proxy()}/api/v1/namespaces/{self._api.namespace}/pods{path}"
        headers: dict[str, Any] | None = MERGE if method == "PATCH" else None
        answer = httpx.request(method, url, json=body, headers=headers, timeout=30.0)
        assert answer.is_success or answer.status_code in (404, 409), answer.text
