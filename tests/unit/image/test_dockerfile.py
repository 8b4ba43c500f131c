"""The Dockerfile against the repository: what it copies, pins and installs exists. It is not built here."""

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import heliotrope

ROOT = Path(__file__).parents[3]
LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


ARGUMENTS = dict(each.split("=", 1) for each in instructions("ARG"))
STAGES = {each.partition(" AS ")[2]: each.partition(" AS ")[0] for each in instructions("FROM")}
COPIES = [each.split() for each in instructions("COPY")]


def test_everything_is_pinned() -> None:
    assert re.fullmatch(r"3\.12\.\d+", ARGUMENTS["PYTHON_VERSION"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", ARGUMENTS["UV_VERSION"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", ARGUMENTS["HATCHLING_VERSION"])
    assert STAGES["base"] == "python:${PYTHON_VERSION}-slim-bookworm${PYTHON_DIGEST:+@${PYTHON_DIGEST}}"
    assert set(STAGES.values()) - {STAGES["base"]} <= STAGES.keys(), "every other stage starts from one of ours"
    (minimum,) = [each for each in PROJECT["build-system"]["requires"] if each.startswith("hatchling")]
    least = tuple(map(int, minimum.partition(">=")[2].split(".")))
    assert tuple(map(int, ARGUMENTS["HATCHLING_VERSION"].split("."))) >= least


def test_the_label_has_the_version() -> None:
    assert ARGUMENTS["VERSION"] == heliotrope.__version__


@pytest.mark.parametrize("target", ["operator", "picker", "agent", "all"])
def test_targets_hold_an_environment_of_locked_packages_and_only_the_agent_is_root(target: str) -> None:
    stage, extras, users = "", {}, {}
    copies: dict[str, list[str]] = {}
    for line in LINES:
        if line.startswith("FROM "):
            stage = line.partition(" AS ")[2]
        elif line.startswith("RUN uv sync "):
            extras[stage] = line
        elif line.startswith("USER "):
            users[stage] = line.removeprefix("USER ")
        elif line.startswith("COPY --from="):
            copies.setdefault(stage, []).append(line.split()[1].removeprefix("--from="))
    assert STAGES[target] == "runtime"
    assert users == {"runtime": "65532:65532", "agent": "0:0"}
    learns = ["openmp"] if target in ("picker", "all") else []
    assert copies[target] == [*learns, f"{target}-environment"]
    extra = "epp" if target == "picker" else target
    assert extra in PROJECT["project"]["optional-dependencies"]
    words = extras[f"{target}-environment"].split()
    assert words[words.index("--extra") + 1] == extra
    assert {"--locked", "--no-dev", "--no-build"} <= set(words)


@pytest.mark.parametrize("target", ["picker", "all"])
def test_what_lightgbm_links_against_is_there_and_the_build_fails_without(target: str) -> None:
    """Its wheel expects GNU OpenMP of the system, which slim images lack."""
    stage, copies, runs = "", [], []
    for line in LINES:
        stage = line.partition(" AS ")[2] if line.startswith("FROM ") else stage
        if stage == target and line.startswith("COPY "):
            copies.append(line)
        if stage == target and line.startswith("RUN "):
            runs.append(line)
        if stage == "openmp" and line.startswith("RUN "):
            assert "libgomp1" in line.split()
            assert re.search(r"cp --dereference \S+/libgomp\.so\.1 /openmp/lib/", line)
    assert copies[0] == "COPY --from=openmp /openmp /usr", "so the library is /usr/lib/libgomp.so.1"
    assert runs == ['RUN ["python", "-c", "import lightgbm"]']


def test_a_signal_waits_until_the_agent_listens() -> None:
    """And no other image's process starts so: they need not put anything back."""
    entries = [line for line in LINES if line.startswith(("FROM runtime", "FROM base", "ENTRYPOINT "))]
    agent = entries[entries.index("FROM runtime AS agent") + 1]
    assert agent == 'ENTRYPOINT ["env", "--block-signal=TERM,INT", "heliotrope"]'
    assert entries.count('ENTRYPOINT ["heliotrope"]') == 1
    assert sum(line.startswith("ENTRYPOINT ") for line in entries) == 2


def test_an_unknown_user_has_a_name_and_a_home() -> None:
    """Nobody is 65532 in /etc/passwd, where `getpass.getuser` and `Path.home` would look next."""
    names = {variable.split("=", 1)[0] for line in instructions("ENV") for variable in line.split()}
    assert {"USER", "HOME"} <= names


def test_the_whole_command_is_the_default_target() -> None:
    assert list(STAGES)[-1] == "all"


def test_what_is_copied_exists_and_is_all_that_the_context_holds() -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    allowed = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    sources = {source for copy in COPIES if not copy[0].startswith("--") for source in copy[:-1]}
    assert ignore[0] == "*"
    assert sources == allowed
    assert all((ROOT / source).exists() for source in sources)
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {Path(each).parts[0] for each in wheel["packages"]} | set(wheel["force-include"]) <= sources
    assert any(fnmatch.fnmatch("core/heliotrope/__pycache__", pattern) for pattern in ignore[1:])


def test_the_chart_runs_these_targets() -> None:
    values = yaml.safe_load((ROOT / "charts" / "heliotrope" / "values.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for target in ("operator", "picker", "agent"):
        repository = values[target]["image"]["repository"]
        assert repository == f"heliotrope-{target}"
        command = re.compile(rf"--target {target} +-t {repository}:{re.escape(heliotrope.__version__)} ")
        assert command.search(page)
        assert command.search("\n".join(LINES))
    assert values["podSecurityContext"]["runAsUser"] == 65532
