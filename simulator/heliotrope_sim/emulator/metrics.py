"""What an engine shows on /metrics: the names of vLLM 0.32, those of the DCGM exporter, and a few of our own."""

import uuid
from collections.abc import Iterable

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator.exposition import Histogram, Page, labels
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.gpus import EngineGpus, shared_millijoules
from heliotrope_sim.emulator.kv_event_publisher import KvEventPublisher
from heliotrope_sim.emulator.kv_metrics import KvMetrics
from heliotrope_sim.engine import Engine, SleepLevel, StepResult
from heliotrope_sim.engine.fixed_point import joules, seconds

# Bucket bounds of vLLM 0.32.
_REQUEST_LATENCY = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
_TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_INTER_TOKEN_LATENCY = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_LATENESS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_SLEEP_STATES = {
    "awake": (None, SleepLevel.PAUSED),
    "weights_offloaded": (SleepLevel.WEIGHTS_OFFLOADED,),
    "discard_all": (SleepLevel.DISCARDED,),
}


def _token_bounds(longest: int) -> list[int]:
    """1, 2, 5, 10, … up to the longest sequence."""
    bounds = []
    power = 1
    while power <= longest:
        bounds += [m * power for m in (1, 2, 5) if m * power <= longest]
        power *= 10
    return bounds


class EngineMetrics:
    """Counts and times of one engine, in engine time; what the engine's state says is read when the page is made."""

    def __init__(
        self,
        name: str,
        served_model: str,
        engine: Engine,
        longest: int,
        events: KvEventPublisher | None = None,
        gpus: EngineGpus | None = None,
    ) -> None:
        self._engine = engine
        self._driver = gpus
        self._labels = labels({"model_name": served_model, "engine": "0"})
        self._kv = KvMetrics(engine, events, self._labels)
        self._model_name = labels({"model_name": served_model})
        self._gpus = _gpu_labels(name, engine.model, gpus)
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.external_prompt_tokens = 0
        """Those of the cached ones that were loaded from outside."""
        self.generation_tokens = 0
        self.rejections = 0
        self.slow_readers = 0
        """Streams broken off because their client did not read."""
        self.finished = dict.fromkeys(_FINISH_REASONS, 0)
        self.iteration_tokens = Histogram(_ITERATION_TOKENS)
        self.time_to_first_token = Histogram(_TIME_TO_FIRST_TOKEN)
        self.inter_token_latency = Histogram(_INTER_TOKEN_LATENCY)
        self.time_per_output_token = Histogram(_INTER_TOKEN_LATENCY)
        self.e2e_latency = Histogram(_REQUEST_LATENCY)
        self.queue_time = Histogram(_REQUEST_LATENCY)
        self.inference_time = Histogram(_REQUEST_LATENCY)
        self.prefill_time = Histogram(_REQUEST_LATENCY)
        self.decode_time = Histogram(_REQUEST_LATENCY)
        self.request_prompt_tokens = Histogram(_token_bounds(longest))
        self.request_generation_tokens = Histogram(_token_bounds(longest))
        self.request_prefill_kv_computed_tokens = Histogram(_token_bounds(longest))
        self.step_lateness = Histogram(_LATENESS)
        """Wall-clock seconds by which steps were delivered late."""
        self.lateness_seconds = 0.0
        """That of the last step."""

    def step_done(self, result: StepResult, lateness_seconds: float) -> None:
        """Count a step at its end."""
        self.generation_tokens += len(result.emitted)
        self.iteration_tokens.observe(result.tokens)
        self.lateness_seconds = max(0.0, lateness_seconds)
        self.step_lateness.observe(self.lateness_seconds)

    def token_due(self, generation: Generation, now_ns: int) -> None:
        """Count the time to a token, before it is delivered."""
        sequence = generation.sequence
        if sequence is None:
            return
        if generation.delivered:
            self.inter_token_latency.observe(seconds(now_ns - generation.last_token_ns))
            return
        self.time_to_first_token.observe(seconds(now_ns - sequence.queued_ns))
        self.prompt_tokens += sequence.request.prompt_tokens
        self.cached_prompt_tokens += sequence.cached_tokens
        self.external_prompt_tokens += sequence.external_tokens

    def request_done(self, generation: Generation, *, client_left: bool = False) -> None:
        """Count a request at its end; one whose client left is in no count of vLLM's, whose frontend forgets it."""
        if not client_left:
            self.finished[generation.finish_reason or "error"] += 1
        self.slow_readers += generation.unread
        sequence = generation.sequence
        if generation.finish_reason == "abort" or sequence is None:
            return
        scheduled_ns, first_ns, last_ns = sequence.scheduled_ns, sequence.first_token_ns, generation.last_token_ns
        if scheduled_ns is None or first_ns is None:
            return
        decode_seconds = seconds(last_ns - first_ns)
        later_tokens = generation.delivered - 1
        self.e2e_latency.observe(seconds(last_ns - sequence.queued_ns))
        self.queue_time.observe(seconds(scheduled_ns - sequence.queued_ns))
        self.prefill_time.observe(seconds(first_ns - scheduled_ns))
        self.decode_time.observe(decode_seconds)
        self.inference_time.observe(seconds(last_ns - scheduled_ns))
        self.time_per_output_token.observe(decode_seconds / later_tokens if later_tokens else 0.0)
        self.request_prompt_tokens.observe(sequence.request.prompt_tokens)
        self.request_generation_tokens.observe(generation.delivered)
        self.request_prefill_kv_computed_tokens.observe(sequence.request.prompt_tokens - sequence.cached_tokens)

    def page(self, now_ns: int) -> str:
        """The whole page at an engine time."""
        page = Page()
        self._scheduler(page)
        self._counters(page)
        self._histograms(page)
        self._dcgm(page, now_ns)
        self._own(page, now_ns)
        self._kv.write(page, now_ns)
        return page.text()

    def _scheduler(self, page: Page) -> None:
        engine, common = self._engine, self._labels
        running = "Number of requests in model execution batches."
        page.family("vllm:num_requests_running", "gauge", running, [(common, engine.num_running)])
        waiting = "Number of requests waiting to be processed."
        page.family("vllm:num_requests_waiting", "gauge", waiting, [(common, engine.num_waiting)])
        page.family(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            "Number of waiting requests by reason.",
            [
                (f'{common},reason="capacity"', engine.num_waiting - engine.num_loading),
                (f'{common},reason="deferred"', engine.num_loading),
            ],
        )
        page.family(
            "vllm:engine_sleep_state",
            "gauge",
            "Engine sleep state; awake = 1 means engine is awake.",
            [
                (f'{common},sleep_state="{state}"', int(engine.sleep_level in levels))
                for state, levels in _SLEEP_STATES.items()
            ],
        )
        usage = "KV-cache usage. 1 means 100 percent usage."
        page.family("vllm:kv_cache_usage_perc", "gauge", usage, [(common, float(engine.kv_usage))])
        config = labels(
            {
                "block_size": str(engine.kv.block_size),
                "cache_dtype": "auto",
                "enable_prefix_caching": "True",
                "num_gpu_blocks": str(engine.kv.capacity_blocks),
                "engine": "0",
            }
        )
        page.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", [(config, 1)])

    def _counters(self, page: Page) -> None:
        common, did = self._labels, self._engine.counters

        def counter(name: str, help_text: str, samples: Iterable[tuple[str, float]]) -> None:
            page.family(f"vllm:{name}_total", "counter", help_text, samples)

        def by(label: str, values: Iterable[tuple[str, int]]) -> list[tuple[str, float]]:
            return [(f'{common},{label}="{value}"', count) for value, count in values]

        queries = "Prefix cache queries, in terms of number of queried tokens."
        counter("prefix_cache_queries", queries, [(common, did.prefix_queries)])
        counter(
            "prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            [(common, did.prefix_hits)],
        )
        preemptions = "Cumulative number of preemption from the engine."
        counter("num_preemptions", preemptions, [(common, did.preemptions)])
        counter("prompt_tokens", "Number of prefill tokens processed.", [(common, self.prompt_tokens)])
        cached, external = self.cached_prompt_tokens, self.external_prompt_tokens
        counter(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            by(
                "source",
                [
                    ("local_compute", self.prompt_tokens - cached),
                    ("local_cache_hit", cached - external),
                    ("external_kv_transfer", external),
                ],
            ),
        )
        counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [(common, cached)])
        counter(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them.",
            by("source", self._kv.sources),
        )
        counter("generation_tokens", "Number of generation tokens processed.", [(common, self.generation_tokens)])
        counter(
            "request_success",
            "Count of successfully processed requests.",
            by("finished_reason", self.finished.items()),
        )
        counter(
            "admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            [
                (f'{self._model_name},reason="max_num_queued_reqs"', self.rejections),
                (f'{self._model_name},reason="max_num_queued_tokens"', 0),
            ],
        )

    def _histograms(self, page: Page) -> None:
        for name, help_text, histogram in (
            ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", self.iteration_tokens),
            ("request_prompt_tokens", "Number of prefill tokens processed.", self.request_prompt_tokens),
            ("request_generation_tokens", "Number of generation tokens processed.", self.request_generation_tokens),
            (
                "request_prefill_kv_computed_tokens",
                "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
                self.request_prefill_kv_computed_tokens,
            ),
            (
                "time_to_first_token_seconds",
                "Histogram of time to first token in seconds.",
                self.time_to_first_token,
            ),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", self.inter_token_latency),
            (
                "request_time_per_output_token_seconds",
                "Histogram of time_per_output_token_seconds per request.",
                self.time_per_output_token,
            ),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", self.e2e_latency),
            (
                "request_queue_time_seconds",
                "Histogram of time spent in WAITING phase for request.",
                self.queue_time,
            ),
            (
                "request_inference_time_seconds",
                "Histogram of time spent in RUNNING phase for request.",
                self.inference_time,
            ),
            (
                "request_prefill_time_seconds",
                "Histogram of time spent in PREFILL phase for request.",
                self.prefill_time,
            ),
            (
                "request_decode_time_seconds",
                "Histogram of time spent in DECODE phase for request.",
                self.decode_time,
            ),
        ):
            page.histogram(f"vllm:{name}", help_text, self._labels, histogram)

    def _dcgm(self, page: Page, now_ns: int) -> None:
        energy, gpus = self._engine.energy, self._gpus
        total, count = energy.millijoules(now_ns), len(gpus)
        page.family(
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "counter",
            "Total energy consumption since boot (in mJ).",
            [(gpu, shared_millijoules(total, i, count)) for i, gpu in enumerate(gpus)],
        )
        watts = energy.watts(now_ns) / count
        page.family("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", [(gpu, watts) for gpu in gpus])
        mhz = self._engine.model.clock_mhz
        page.family("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", [(gpu, mhz) for gpu in gpus])

    def _own(self, page: Page, now_ns: int) -> None:
        energy, common = self._engine.energy, self._labels
        busy, idle, asleep = energy.split(now_ns)
        page.family(
            "heliotrope_emulator_energy_joules_total",
            "counter",
            "Energy of all accelerators by what the engine was doing.",
            [
                (f'{common},state="{state}"', joules(picojoules))
                for state, picojoules in (("busy", busy), ("idle", idle), ("asleep", asleep))
            ],
        )
        page.family(
            "heliotrope_emulator_host_energy_joules_total",
            "counter",
            "Energy of the engine's share of its host; in no GPU counter.",
            [(common, joules(energy.host_picojoules(now_ns)))],
        )
        page.family(
            "heliotrope_emulator_slow_readers_total",
            "counter",
            "Streams broken off because their client did not read.",
            [(common, self.slow_readers)],
        )
        page.family(
            "heliotrope_emulator_lateness_seconds",
            "gauge",
            "Wall-clock seconds by which the last step was late; growing means that the machine is too slow.",
            [(common, self.lateness_seconds)],
        )
        if self._driver is not None:
            page.family(
                "heliotrope_emulator_gpu_driver_errors_total",
                "counter",
                "Exchanges of clock and energy that the GPUs' driver has failed; nothing of the energy is lost.",
                [(common, self._driver.errors)],
            )
        page.histogram(
            "heliotrope_emulator_step_lateness_seconds",
            "Wall-clock seconds by which steps were late.",
            common,
            self.step_lateness,
        )


def _gpu_labels(name: str, model: EngineModel, gpus: EngineGpus | None) -> list[str]:
    """One label set per accelerator of the tensor-parallel group, as the DCGM exporter has them."""
    count = model.tensor_parallel
    if gpus is None:
        known = [(i, f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{i}')}") for i in range(count)]
    else:
        known = list(zip(gpus.indices, gpus.uuids, strict=True))
    return [
        labels(
            {
                "gpu": str(i),
                "UUID": identity,
                "device": f"nvidia{i}",
                "modelName": model.accelerator,
                "Hostname": name,
            }
        )
        for i, identity in known
    ]
