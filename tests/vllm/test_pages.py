"""The comparison of pages, and what it says of the emulator and the page that was recorded from vLLM."""

import pytest
from tests.vllm.emulated import emulated_page
from tests.vllm.engine import MAX_MODEL_LEN, RECORDED_PAGE
from tests.vllm.pages import differences, only_real

REAL = """\
# HELP vllm:a A gauge.
# TYPE vllm:a gauge
vllm:a{engine="0",model_name="m",reason="x"} 1.0
vllm:a{engine="0",model_name="m",reason="y"} 2.0
# HELP vllm:cache_config_info Info.
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",more="1"} 1.0
# HELP vllm:b_total A counter.
# TYPE vllm:b_total counter
vllm:b_total{model_name="m"} 1.0
# HELP vllm:b_created A counter.
# TYPE vllm:b_created gauge
vllm:b_created{model_name="m"} 1.0
"""
# What the emulator has no use for: estimates of FLOPs and bytes, and the distributions of request parameters.
NOT_EMULATED = {
    "vllm:estimated_flops_per_gpu",
    "vllm:estimated_read_bytes_per_gpu",
    "vllm:estimated_write_bytes_per_gpu",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_num_preemptions",
    "vllm:request_params_max_tokens",
    "vllm:request_params_n",
}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", []),
        ('"m"', '"another"', []),
        ("} 1.0", "} 5.0", []),
        ('128",more="1"', '16"', []),
        ("more=", "less=", ["vllm:cache_config_info: the engine has no label less"]),
        ("vllm:b_total", "vllm:c_total", ["vllm:c: the engine has no such metric"]),
        ("# TYPE vllm:a gauge", "# TYPE vllm:a summary", ["vllm:a: summary, the engine's is gauge"]),
        (
            'reason="y"',
            'reason="z"',
            [
                'vllm:a{engine="0",model_name="*",reason="z"}: the engine has no such series',
                'vllm:a{engine="0",model_name="*",reason="y"}: only the engine has it',
            ],
        ),
        ('engine="0",', "", 4),
    ],
)
def test_differences(old: str, new: str, told: list[str] | int) -> None:
    found = differences(REAL.replace(old, new), REAL)
    assert found == told if isinstance(told, list) else len(found) == told


async def test_the_emulator_says_what_the_recorded_vllm_says() -> None:
    emulated, recorded = await emulated_page(MAX_MODEL_LEN), RECORDED_PAGE.read_text()
    assert differences(emulated, recorded) == []
    assert only_real(emulated, recorded) == NOT_EMULATED
