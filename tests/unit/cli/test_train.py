"""`heliotrope train quality`."""

import json
import random
from pathlib import Path

import pytest

from heliotrope.predict.text_quality import parse_text_quality
from heliotrope_cli.main import main


def test_it_prints_held_out_errors_and_writes_a_model_without_the_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, data, out = random.Random(3), tmp_path / "data.jsonl", tmp_path / "quality"
    lines = []
    for i in range(120):
        hard = draw.random() < 0.5
        prompt = " ".join(draw.choices(("prove", "lemma", "norm") if hard else ("story", "ships", "sea"), k=12))
        lines.append(json.dumps({"prompt": f"{prompt} {i}", "model": "small", "score": 0.2 if hard else 0.9}))
    data.write_text("\n".join(lines) + "\n")
    with pytest.raises(SystemExit) as ended:
        main(["train", "quality", str(data), "--out", str(out)])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "small" in text
    assert "error of the mean" in text
    assert " yes" in text
    assert parse_text_quality(out.read_text()).models == ("small",)
    assert "lemma" not in out.read_text()


def test_bad_data_are_one_sentence_that_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "secret", "model": "m"}\n')
    with pytest.raises(SystemExit):
        main(["train", "quality", str(data), "--out", str(tmp_path / "out")])
    text = capsys.readouterr().err
    assert "line 1" in text
    assert "secret" not in text
