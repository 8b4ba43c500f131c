"""What is asked of one pool now: pages of its pickers become rates, over restarts and silences."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliotrope_operator.planning.page import EngineLine, PickerPage
from heliotrope_operator.planning.pickers import Asked
from heliotrope_operator.planning.rates import Meter, Reading
from heliotrope_operator.planning.tails import WINDOW_S, Recent, TailMemory

SILENCE_S = 30.0
"""A picker that does not answer counts with its last rates for so long; then the pool's demand is unknown."""
_REQUESTS, _PROMPT, _OUTPUT = "r", "p", "o"
_FIRST_SECONDS, _TOKENS, _TOKEN_SECONDS = "f", "t", "s"


@dataclass(frozen=True, slots=True)
class ModelRates:
    """What is asked of a pool for one model, by the names that requests give."""

    requests_per_second: float
    prompt_tokens_per_second: float
    output_tokens_per_second: float
    held: float = 0.0
    """Requests that wait because no engine is awake."""


@dataclass(frozen=True, slots=True)
class EngineRates:
    """One engine; None: unknown."""

    asleep: bool | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    requests_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    """Those that no cache supplied, where the engine tells them apart."""
    output_tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    """Mean of the last round; None without a request in it."""
    tpot_seconds: float | None = None
    """In the same way, between two tokens."""
    first_token: Recent | None = None
    """Times to first token of late; None: the engine does not tell."""
    output_token: Recent | None = None
    """Mean times per output token of late, by request."""


@dataclass(slots=True)
class _Picker:
    meter: Meter
    answered_s: float
    rates: Mapping[str, ModelRates] | None = None
    held: Mapping[str, float] | None = None


@dataclass(slots=True)
class _Engine:
    meter: Meter = field(default_factory=lambda: Meter(from_zero=False))
    first_token: TailMemory = field(default_factory=TailMemory)
    output_token: TailMemory = field(default_factory=TailMemory)


class PoolObserver:
    """Takes the rounds of one pool and remembers what the next one is compared with."""

    def __init__(self) -> None:
        self._pickers: dict[str, _Picker] = {}
        self._engines: dict[str, _Engine] = {}
        self.engines: Mapping[str, EngineRates] = {}
        """By pod, as of the last round that anybody answered, for `SILENCE_S`."""
        self.models: Mapping[str, ModelRates] | None = None
        """None: unknown."""
        self.held: Mapping[str, float] = {}
        """Held requests by model; known even when rates are not yet."""
        self.problem: str | None = None
        self.taken_s = float("-inf")
        """When the last round was taken in."""
        self._engines_s = float("-inf")
        """When anybody told of engines last."""

    def take(self, asked: Asked, now_s: float, window_s: float = WINDOW_S) -> None:
        """One round.

        Args:
            asked: what became of it.
            now_s: monotonic.
            window_s: what counts as lately where the tail of latencies is asked for.
        """
        self.problem, self.taken_s = asked.problem, now_s
        for address in self._pickers.keys() - asked.pages.keys() - asked.silent:
            del self._pickers[address]  # no longer a picker of the pool
        for address, page in asked.pages.items():
            self._take_picker(address, page, now_s)
        for address in asked.silent:
            self._pickers.setdefault(address, _Picker(Meter(), now_s))
        self.models = self._summed(now_s)
        answering = [picker for picker in self._pickers.values() if picker.held is not None]
        names = {name for picker in answering for name in picker.held or ()}
        self.held = {name: sum((picker.held or {}).get(name, 0.0) for picker in answering) for name in sorted(names)}
        if asked.pages:
            newest = max(asked.pages.values(), key=lambda page: page.time_unix_s)
            self._take_engines(newest, now_s, window_s)
            self._engines_s = now_s
        elif now_s - self._engines_s > SILENCE_S:
            self.engines = {}  # what was measured then says nothing of now

    def _take_picker(self, address: str, page: PickerPage, now_s: float) -> None:
        picker = self._pickers.setdefault(address, _Picker(Meter(), now_s))
        totals = {}
        for model, line in page.models.items():
            totals[_REQUESTS + model] = line.requests_total
            totals[_PROMPT + model] = line.prompt_tokens_total
            totals[_OUTPUT + model] = line.output_tokens_total
        rates = picker.meter.per_second(Reading(page.time_unix_s, page.started_unix_s, totals))
        picker.held = {model: line.held for model, line in page.models.items()}
        picker.answered_s = now_s
        if rates is not None:
            picker.rates = {
                model: ModelRates(rates[_REQUESTS + model], rates[_PROMPT + model], rates[_OUTPUT + model])
                for model in page.models
            }

    def _summed(self, now_s: float) -> Mapping[str, ModelRates] | None:
        pickers = self._pickers.values()
        if not pickers or any(each.rates is None or now_s - each.answered_s > SILENCE_S for each in pickers):
            return None
        names = sorted({name for each in pickers for name in each.rates or ()})
        summed = {}
        for name in names:
            of = [each.rates[name] for each in pickers if each.rates is not None and name in each.rates]
            summed[name] = ModelRates(
                sum(each.requests_per_second for each in of),
                sum(each.prompt_tokens_per_second for each in of),
                sum(each.output_tokens_per_second for each in of),
                sum((each.held or {}).get(name, 0.0) for each in pickers),
            )
        return summed

    def _take_engines(self, page: PickerPage, now_s: float, window_s: float) -> None:
        for pod in self._engines.keys() - page.engines.keys():
            del self._engines[pod]
        self.engines = {pod: self._engine(pod, line, now_s, window_s) for pod, line in page.engines.items()}

    def _engine(self, pod: str, line: EngineLine, now_s: float, window_s: float) -> EngineRates:
        prompt = line.computed_prompt_tokens_total
        totals = {
            _REQUESTS: line.first_tokens_total,
            _PROMPT: line.prompt_tokens_total if prompt is None else prompt,
            _OUTPUT: line.generation_tokens_total,
            _FIRST_SECONDS: line.first_token_seconds_total,
            _TOKENS: line.inter_tokens_total,
            _TOKEN_SECONDS: line.inter_token_seconds_total,
        }
        known = {name: total for name, total in totals.items() if total is not None}
        engine = self._engines.setdefault(pod, _Engine())
        rates = (engine.meter.per_second(Reading(now_s, 0.0, known)) or {}) if known else {}
        return EngineRates(
            asleep=line.asleep,
            running=line.running,
            waiting=line.waiting,
            kv_usage=line.kv_usage,
            requests_per_second=rates.get(_REQUESTS),
            prompt_tokens_per_second=rates.get(_PROMPT),
            output_tokens_per_second=rates.get(_OUTPUT),
            ttft_seconds=_mean(rates, _FIRST_SECONDS, _REQUESTS),
            tpot_seconds=_mean(rates, _TOKEN_SECONDS, _TOKENS),
            first_token=engine.first_token.take(now_s, line.first_token, window_s),
            output_token=engine.output_token.take(now_s, line.output_token, window_s),
        )


def _mean(rates: Mapping[str, float], seconds: str, count: str) -> float | None:
    counted, added = rates.get(count), rates.get(seconds)
    return None if not counted or added is None else added / counted
