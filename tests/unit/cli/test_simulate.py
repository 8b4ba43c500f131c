"""`heliotrope simulate`, from the file to what is written; the examples run as they are."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from heliotrope_cli.main import main

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "simulate").glob("*.yaml"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as error:
        main(["simulate", *arguments])
    return int(error.value.code or 0)


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["my-policy", "own-trace", "two-grids"]


@pytest.mark.slow
@pytest.mark.timeout(400)  # in a fresh clone on a busy machine, most of it compiling
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended([str(path), "--quick", "--jobs=1", f"--out={tmp_path}", f"--trace={tmp_path / 't.json'}"]) == 0
    study = json.loads((tmp_path / "study.json").read_text())
    names = [policy["name"] for policy in yaml.safe_load(path.read_text())["policies"]]
    assert [line["policy"] for line in study["summary"]][: len(names)] == names
    assert all(line["grams"] > 0.0 for line in study["summary"])
    assert study["summary"][-1]["saving"] > 0.0
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert len(list(tmp_path.glob("t.*.json"))) == len(names)
    out = capsys.readouterr().out
    assert "They are modelled" in out
    assert "late or lost" in out


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Scenario"


def test_a_dry_run_checks_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "examples" / "simulate" / "own-trace.yaml"
    assert ended([str(example), "--dry-run", "--seed=3", f"--out={tmp_path / 'none'}"]) == 0
    assert "Runs: 1 of the sweep × 3 policies" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_wrong_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    for text, says in (("name: a", "sites: required; policies: required"), ("[", "s.yaml:1: is not YAML")):
        path.write_text(text)
        assert ended([str(path)]) == 1
        text = " ".join(capsys.readouterr().err.split())
        assert says in text
        assert "Traceback" not in text
    assert ended([]) == 1
    assert "examples/simulate has some" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster=scheduler:8786"], "--cluster: 'scheduler:8786' must begin with tcp://"),
        (["--cluster=tcp://127.0.0.1:9"], "no Dask scheduler answers at tcp://127.0.0.1:9 within 10 s"),
    ],
)
@pytest.mark.slow
def test_a_cluster_that_cannot_be_used_is_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended([str(ROOT / "examples" / "simulate" / "two-grids.yaml"), *arguments]) == 1
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_runs_that_were_finished_are_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(ROOT / "examples" / "simulate" / "my-policy.yaml"), "--quick", "--jobs=1", f"--out={tmp_path}"]
    assert ended(arguments) == 0
    first = (tmp_path / "study.json").read_text()
    capsys.readouterr()
    assert ended(arguments) == 0
    assert "3 of 3 parts were done before" in capsys.readouterr().err
    assert (tmp_path / "study.json").read_text() == first
    assert ended([*arguments, "--fresh"]) == 0
    assert "done before" not in capsys.readouterr().err


def test_a_store_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "file"))
    assert ended([str(ROOT / "examples" / "simulate" / "two-grids.yaml")]) == 1
    assert "set HELIOTROPE_CACHE to a folder that can" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_an_interrupt_ends_the_command_at_once_and_keeps_what_was_finished(tmp_path: Path) -> None:
    example = ROOT / "examples" / "simulate" / "two-grids.yaml"
    command = [
        sys.executable,
        "-m",
        "heliotrope_cli.main",
        "simulate",
        str(example),
        "--jobs=2",
        f"--out={tmp_path / 'out'}",
    ]
    environment = {**os.environ, "HELIOTROPE_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90.0
    while not list((tmp_path / "cache").rglob("*.part")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60.0)
    assert process.returncode == 130
    assert "finished parts are kept; the same command goes on from there" in " ".join(errors.split())
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()
