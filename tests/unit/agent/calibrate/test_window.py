import math

import pytest

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope_agent.calibrate.errors import EngineUnreachableError
from heliotrope_agent.calibrate.page import Page, read_page
from heliotrope_agent.calibrate.window import Look, Mark, Measured, Trace, WindowError, full_pages, measured
from heliotrope_agent.driver.interface import Reading

STEP_S, BATCH, WATTS = 0.02, 16, 250.0
STEP_TOKENS = 8_192


def page(at_s: float, **changes: int) -> Page:
    numbers = {"running": BATCH, "waiting": 0, "prompt_tokens": 0, "cached_tokens": 0, "generated_tokens": 0} | changes
    numbers.setdefault("steps", 0)
    return Page(at_s=at_s, took_s=0.002, preemptions=numbers.pop("preemptions", 0), **numbers)


def decode_pages(seconds: float = 6.0, period: float = 0.1) -> list[Page]:
    """A batch that decodes one token each per step."""
    times = [i * period for i in range(int(seconds / period) + 1)]
    return [page(t, generated_tokens=BATCH * int(t / STEP_S), steps=int(t / STEP_S)) for t in times]


def prefill_pages(steps: int = 12, step_s: float = 0.5, period: float = 0.1) -> list[Page]:
    times = [i * period for i in range(int(steps * step_s / period) + 2)]
    return [
        page(t, running=0, waiting=9, prompt_tokens=STEP_TOKENS * int(t / step_s + 1e-9), steps=int(t / step_s + 1e-9))
        for t in times
    ]


def trace(seconds: float, watts: float = WATTS, beat: float = 0.05) -> Trace:
    times = [i * beat for i in range(-2, int(seconds / beat) + 3)]
    return Trace(times, [watts * t for t in times])


def look(at_s: float, mhz: int = 1410, reasons: int = 0, celsius: int | None = 50) -> Look:
    return Look(at_s, (Reading(sm_clock_mhz=mhz, clock_event_reasons=reasons, temperature_celsius=celsius),))


def evaluated(phase: Phase, pages: list[Page], *, looks: list[Look] | None = None, gpus: int = 1) -> Measured:
    traces = [trace(pages[-1].at_s, WATTS / gpus) for _ in range(gpus)]
    context = (lambda each: 100.0 + each.generated_tokens / BATCH) if phase is Phase.DECODE else None
    return measured(phase, pages, traces, looks or [look(1.0)], batch=BATCH, requested_mhz=1410, context_tokens=context)


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_decoding_batch_is_measured_to_a_permille(gpus: int) -> None:
    found = evaluated(Phase.DECODE, decode_pages(), gpus=gpus)
    assert found.tokens_per_second == pytest.approx(BATCH / STEP_S, rel=2e-3)
    assert found.joules_per_token == pytest.approx(WATTS * STEP_S / BATCH, rel=2e-3)
    assert found.watts == pytest.approx(WATTS, rel=2e-3)
    assert found.seconds_per_token == pytest.approx(STEP_S, rel=2e-3)
    assert found.tokens_per_step == BATCH
    assert len(found.joules_by_gpu) == gpus
    assert sum(found.joules_by_gpu) == pytest.approx(found.joules)
    assert found.context_tokens == pytest.approx(250.0, rel=0.02)
    assert found.clean
    assert not found.marks


@pytest.mark.parametrize("period", [0.03, 0.1, 0.24])
def test_prefill_is_measured_from_step_to_step(period: float) -> None:
    pages = full_pages(Phase.PREFILL, prefill_pages(period=period), BATCH, 0)
    found = evaluated(Phase.PREFILL, pages)
    assert abs(found.joules_per_token / (WATTS * 0.5 / STEP_TOKENS) - 1.0) * 100 <= 2.0 * found.timing_percent
    assert found.timing_percent < 3.0
    assert found.seconds_per_token is None
    assert found.tokens_per_step == STEP_TOKENS


def test_the_last_step_of_a_prefill_does_not_count_as_it_may_be_a_part() -> None:
    pages = prefill_pages(steps=6)
    kept = full_pages(Phase.PREFILL, pages, BATCH, 0)
    assert kept[-1].prompt_tokens == 5 * STEP_TOKENS
    assert full_pages(Phase.PREFILL, pages[:3], BATCH, 0) == []


def test_only_the_stretch_with_the_whole_batch_and_no_prefill_counts() -> None:
    growing = [page(-1.0 + 0.1 * i, running=i, prompt_tokens=100 * i) for i in range(10)]
    whole = decode_pages()
    late_prompt = [page(whole[-1].at_s + 0.1, generated_tokens=whole[-1].generated_tokens, prompt_tokens=7)]
    ending = [page(whole[-1].at_s + 0.2, running=3, generated_tokens=whole[-1].generated_tokens + 8)]
    kept = full_pages(Phase.DECODE, [*growing, *whole, *late_prompt, *ending], BATCH, skip=10)
    assert kept
    assert all(each in whole for each in kept)
    assert kept[0].generated_tokens >= 10 * BATCH
    assert full_pages(Phase.DECODE, growing, BATCH, 0) == []


@pytest.mark.parametrize(
    ("reasons", "mhz", "marks", "clean"),
    [
        (0x0, 1410, [], True),
        (0x1 | 0x2, 1410, [], True),
        (0x4, 1200, [Mark.POWER_CAPPED], True),
        (0x20, 1200, [Mark.THROTTLED], False),
        (0x40 | 0x4, 900, [Mark.POWER_CAPPED, Mark.THROTTLED], False),
        (0x80, 1200, [Mark.THROTTLED], False),
        (0x40, 1410, [], True),
        (0x0, 1200, [Mark.CLOCK_OFF], False),
    ],
)
def test_what_holds_the_clock_down_is_marked(reasons: int, mhz: int, marks: list[Mark], clean: bool) -> None:
    found = evaluated(Phase.DECODE, decode_pages(), looks=[look(1.0, mhz, reasons)])
    assert list(found.marks) == marks
    assert found.clean is clean
    assert found.effective_mhz == mhz
    assert bool(found.reasons) is bool(reasons & 0xFC and mhz < 1410)


def test_an_unknown_clock_is_no_wrong_clock() -> None:
    found = evaluated(Phase.DECODE, decode_pages(), looks=[Look(1.0, (Reading(),))])
    assert found.effective_mhz is None
    assert found.temperature_celsius is None
    assert found.clean


def test_hits_gaps_and_preemptions_are_marked() -> None:
    pages = prefill_pages()
    hits = [
        page(p.at_s, waiting=9, prompt_tokens=p.prompt_tokens, cached_tokens=p.prompt_tokens // 10, steps=p.steps or 0)
        for p in pages
    ]
    assert Mark.CACHE_HITS in evaluated(Phase.PREFILL, hits).marks
    gaps = [
        page(p.at_s, running=0, waiting=9 if i % 5 else 0, prompt_tokens=p.prompt_tokens, steps=p.steps or 0)
        for i, p in enumerate(pages)
    ]
    assert Mark.NOT_FULL in evaluated(Phase.PREFILL, gaps).marks
    twice = [page(p.at_s, generated_tokens=p.generated_tokens, preemptions=i) for i, p in enumerate(decode_pages())]
    assert Mark.PREEMPTED in evaluated(Phase.DECODE, twice).marks
    assert Mark.TOO_SHORT in evaluated(Phase.DECODE, decode_pages(0.3)).marks


def test_too_little_is_an_error_and_no_number() -> None:
    with pytest.raises(WindowError, match="moved 0 times"):
        evaluated(Phase.DECODE, [page(0.1 * i) for i in range(20)])
    with pytest.raises(WindowError):
        measured(
            Phase.DECODE,
            decode_pages(),
            [Trace([], [])],
            [look(0.0)],
            batch=BATCH,
            requested_mhz=1,
            context_tokens=None,
        )


def test_a_trace_is_even_between_its_movements_and_known_nowhere_else() -> None:
    one = Trace([1.0, 2.0, 4.0], [0.0, 10.0, 50.0])
    assert one.joules_at(1.5) == 5.0
    assert one.joules_at(3.0) == 30.0
    assert one.joules_at(4.0) == 50.0
    assert one.beat_s == 1.5
    with pytest.raises(ValueError, match="between"):
        one.joules_at(0.5)
    assert math.isinf(Trace([1.0], [0.0]).beat_s)


PAGE = """
# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="a b"} 1.5e+06
vllm:generation_tokens_total{engine="0",model_name="m"} 20.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 9.0
other 1
"""


def test_a_page_is_read_and_summed_over_ranks() -> None:
    found = read_page(PAGE, 5.0, 0.1)
    assert (found.running, found.waiting, found.in_flight) == (5, 1, 6)
    assert found.computed_tokens == 1_500_000 - 128
    assert (found.generated_tokens, found.steps, found.preemptions) == (20, 9, 0)
    cached = PAGE + 'vllm:prompt_tokens_cached_total{engine="0"} 64.0\n'
    assert read_page(cached, 0.0).cached_tokens == 64


@pytest.mark.parametrize(
    "name", ["num_requests_running", "num_requests_waiting", "prompt_tokens_total", "generation_tokens_total"]
)
def test_a_page_without_what_is_needed_says_what(name: str) -> None:
    with pytest.raises(EngineUnreachableError, match=f"no vllm:{name}"):
        read_page("\n".join(line for line in PAGE.splitlines() if name not in line), 0.0)
