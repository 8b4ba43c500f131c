"""The help names every key with its default and what it means."""

from heliotrope_sim.emulator.config import EngineConfig
from heliotrope_sim.emulator.config_help import help_text, keys_of


def test_every_key_is_there_with_those_below_it() -> None:
    keys = {path: (default, meaning) for path, default, meaning in keys_of(EngineConfig)}
    assert {path for path in keys if "." not in path} == set(EngineConfig.model_fields)
    assert keys["name"][0] == "required"
    assert keys["seed"] == ("0", "")
    assert keys["kv_events"][0] == keys["offload"][0] == "none"
    assert keys["kv_events.endpoint"][0] == "tcp://*:5557"
    assert keys["offload.cpu.capacity_bytes"][0] == "required"
    assert keys["output_length"][0] == "as below"
    assert keys["output_length.median_tokens"][0] == "128.0"
    about_kv = [meaning for path, (_, meaning) in keys.items() if path.startswith(("kv_events", "offload", "hash"))]
    assert len(about_kv) > 15
    assert all(meaning.endswith(".") for meaning in about_kv)


def test_the_text_has_a_line_for_each() -> None:
    text = help_text(EngineConfig)
    assert all(f"**{path}**" in text for path, _, _ in keys_of(EngineConfig))
