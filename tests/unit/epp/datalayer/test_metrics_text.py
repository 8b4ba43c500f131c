"""Reading engines' pages: the real vLLM 0.32 page, and what pages may hold besides."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.datalayer.metrics_text import SGLANG, VLLM, engine_metrics

PAGE = (Path(__file__).parent / "pages" / "vllm-0.32.0.txt").read_bytes()
RUNNING = b"vllm:num_requests_running"


def test_the_page_of_a_real_vllm() -> None:
    metrics = engine_metrics(PAGE, VLLM, scraped_s=12.5)

    assert metrics.scraped_s == 12.5
    assert (metrics.running, metrics.waiting) == (4.0, 0.0)
    assert metrics.kv_usage == 0.0024415552707074406
    assert (metrics.block_size, metrics.num_blocks) == (128, 16384)
    assert (metrics.prompt_tokens_total, metrics.generation_tokens_total) == (6737.0, 1100.0)
    assert (metrics.prefix_cache_queries_total, metrics.prefix_cache_hits_total) == (6737.0, 1792.0)
    assert metrics.iterations_total == 294.0
    assert metrics.energy_millijoules is None  # vLLM does not export it
    assert metrics.asleep is False


def test_sglang_has_names_of_its_own() -> None:
    page = (
        b"# HELP sglang:num_running_reqs The number of running requests.\n"
        b'sglang:num_running_reqs{model_name="m"} 3.0\n'
        b'sglang:num_queue_reqs{model_name="m"} 2.0\n'
        b'sglang:token_usage{model_name="m"} 0.5\n'
        b'sglang:cache_config_info{page_size="16",num_pages="1024"} 1.0\n'
        b'sglang:prompt_tokens_total{model_name="m"} 7.0\n'
        b'sglang:generation_tokens_total{model_name="m"} 8.0\n'
    )

    metrics = engine_metrics(page, SGLANG, 0.0)

    assert (metrics.running, metrics.waiting, metrics.kv_usage) == (3.0, 2.0, 0.5)
    assert (metrics.block_size, metrics.num_blocks) == (16, 1024)
    assert (metrics.prompt_tokens_total, metrics.generation_tokens_total) == (7.0, 8.0)
    assert metrics.asleep is None
    assert metrics.iterations_total is None, "SGLang does not count its steps"


def test_an_empty_page_knows_nothing() -> None:
    metrics = engine_metrics(b"", VLLM, 0.0)

    assert (metrics.running, metrics.waiting, metrics.kv_usage, metrics.asleep) == (None, None, None, None)
    assert (metrics.block_size, metrics.num_blocks, metrics.energy_millijoules) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "running"),
    [
        (b"vllm:num_requests_running 2", 2.0),  # no labels, first and last line
        (b"vllm:num_requests_running\t2", 2.0),
        (b'vllm:num_requests_running{engine="0"} 2 1700000000000', 2.0),  # with a time
        (b'vllm:num_requests_running{a="} 9"} 2', 2.0),  # a brace in a label
        (b'vllm:num_requests_running{engine="0"} 2e1\n', 20.0),
        (b'vllm:num_requests_running{engine="0"} 0.0\n', 0.0),
        (b'vllm:num_requests_running{engine="0"} NaN\n', None),
        (b'vllm:num_requests_running{engine="0"} +Inf\n', None),
        (b'vllm:num_requests_running{engine="0"} many\n', None),
        (b'vllm:num_requests_running{engine="0"}\n', None),
        (b"vllm:num_requests_running\n", None),
        (b"vllm:num_requests_running_total 2\n", None),  # another metric
        (b"# TYPE vllm:num_requests_running gauge\n", None),
        (b"x_vllm:num_requests_running 2\n", None),
    ],
)
def test_one_sample(line: bytes, running: float | None) -> None:
    assert engine_metrics(line, VLLM, 0.0).running == running
    assert engine_metrics(b"up 1\n" + line, VLLM, 0.0).running == running


def test_engine_cores_behind_one_port_count_together() -> None:
    page = b"".join(
        line % core
        for line in (
            b'vllm:num_requests_running{engine="%d"} 3\n',
            b'vllm:kv_cache_usage_perc{engine="%d"} 0.%d\n',
            b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="100"} 1\n',
            b'vllm:engine_sleep_state{engine="%d",sleep_state="awake"} 1\n',
        )
        for core in ((0, 2)[: line.count(b"%d")], (1, 4)[: line.count(b"%d")])
    )

    metrics = engine_metrics(page, VLLM, 0.0)

    assert metrics.running == 6.0
    assert metrics.kv_usage == pytest.approx(0.3)
    assert (metrics.block_size, metrics.num_blocks) == (16, 200)
    assert metrics.asleep is False


def test_a_metric_whose_name_begins_alike_may_come_first() -> None:
    page = b'vllm:num_requests_waiting_by_reason{reason="capacity"} 9\nup 1\nvllm:num_requests_waiting 2\n'

    assert engine_metrics(page, VLLM, 0.0).waiting == 2.0


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    page = b'vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} NaN\n'

    assert engine_metrics(page, VLLM, 0.0).prompt_tokens_total is None


def test_energy_is_the_sum_over_accelerators() -> None:
    page = (
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a"} 1500\n'
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b"} 2500\n'
    )

    assert engine_metrics(page, VLLM, 0.0).energy_millijoules == 4000.0


def test_power_adds_up_and_the_clock_is_the_mean() -> None:
    page = (
        b'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300.5\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 299.5\n'
        b'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1400\nDCGM_FI_DEV_SM_CLOCK{gpu="1"} 1000\n'
    )

    read = engine_metrics(page, VLLM, 0.0)

    assert (read.power_watts, read.sm_clock_mhz) == (600.0, 1200.0)


@pytest.mark.parametrize(("awake", "asleep"), [(b"1.0", False), (b"0.0", True), (b"NaN", None)])
def test_sleep(awake: bytes, asleep: bool | None) -> None:
    page = (
        b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} ' + awake + b"\n"
        b'vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1.0\n'
    )

    assert engine_metrics(page, VLLM, 0.0).asleep is asleep


@pytest.mark.parametrize("blocks", [b"None", b"-1", b"1.5", b"", b"0"])
def test_a_cache_that_does_not_say_its_size(blocks: bytes) -> None:
    page = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="' + blocks + b'",num_gpu_blocks_override="7"} 1\n'

    assert engine_metrics(page, VLLM, 0.0).num_blocks is None


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_garbage_never_raises(before: bytes, after: bytes) -> None:
    engine_metrics(before + b"\n" + RUNNING + after, VLLM, 0.0)
    engine_metrics(before + b'\nvllm:cache_config_info{block_size="' + after, VLLM, 0.0)


def test_each_accelerators_counter_is_told_exactly() -> None:
    page = (
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 18446744073709551557\n'
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1"} NaN\n'
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="2"} -5\n'
        b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="3"} 2.5e+06 1700000000000\n'
    )

    assert engine_metrics(page, VLLM, 0.0).accelerators == (
        ('gpu="0"', (1 << 64) - 59),
        ('gpu="1"', None),
        ('gpu="2"', None),
        ('gpu="3"', 2_500_000),
    )


def test_prompt_tokens_that_the_engine_computed_itself() -> None:
    metrics = engine_metrics(PAGE, VLLM, 0.0)

    assert metrics.computed_prompt_tokens_total == 4945.0
    assert metrics.first_tokens_total == 7.0


@pytest.mark.parametrize(
    ("page", "throttled"),
    [
        (b"", None),
        (b'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0"} 1\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="1"} 18\n', False),
        (b'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0"} 1\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="1"} 4\n', True),
        (b'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"} 128\n', True),
        (b'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"} 0\n', False),
        (b'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0"} NaN\n', None),
        (b'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0"} 0\nDCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"} 64\n', False),
    ],
)
def test_throttling_is_read_from_nvmls_bits(page: bytes, *, throttled: bool | None) -> None:
    assert engine_metrics(page, VLLM, 1.0).throttled is throttled


def test_power_limits_are_summed_and_preemptions_read() -> None:
    page = (
        b'DCGM_FI_DEV_POWER_MGMT_LIMIT{gpu="0"} 700\nDCGM_FI_DEV_POWER_MGMT_LIMIT{gpu="1"} 650\n'
        b'vllm:num_preemptions_total{engine="0"} 12\n'
    )
    found = engine_metrics(page, VLLM, 1.0)
    assert (found.power_limit_watts, found.preemptions_total) == (1350.0, 12.0)
    assert engine_metrics(page, SGLANG, 1.0).preemptions_total is None
    assert engine_metrics(b'DCGM_FI_DEV_POWER_MGMT_LIMIT{gpu="0"} NaN\n', VLLM, 1.0).power_limit_watts is None
