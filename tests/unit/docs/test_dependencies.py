"""docs/dependencies.md, pyproject.toml and the imports say the same."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
OWN = {"heliotrope", "heliotrope_agent", "heliotrope_cli", "heliotrope_epp", "heliotrope_operator", "heliotrope_sim"}
SECTIONS = {
    "core": "The library and the command (always installed)",
    "learn": "Learned models (`heliotrope[learn]`, part of the picker and the simulator)",
    "signals": (
        "Carbon and demand signals over the network (`heliotrope[signals]`, part of the picker and the operator)"
    ),
    "place": "Solvers (`heliotrope[place]`, part of the picker, the operator and the simulator)",
    "epp": "Endpoint picker (`heliotrope[epp]`)",
    "agent": "Node agent (`heliotrope[agent]`)",
    "operator": "Operator (`heliotrope[operator]`)",
    "sim": "Simulator, emulator and demo (`heliotrope[sim]`)",
    "cluster": "Sweeps on a cluster (`heliotrope[cluster]`)",
    "dev": "Development",
}
SPDX = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MPL-2.0"}
PARTS = {"pydantic-core": "pydantic", "opentelemetry-api": "opentelemetry-sdk", "protobuf": "xds-protos"}
"""Distributions that another depends on and shows in its own interface; for groups that do not declare them."""
PACKAGES = {
    "core": ["core/heliotrope", "cli/heliotrope_cli"],
    "learn": [
        "core/heliotrope/predict",
        "core/heliotrope/cache/gate_training.py",
        "core/heliotrope/compiled.py",
        "simulator/heliotrope_sim/evaluation/forecast/boosted.py",
    ],
    "signals": ["core/heliotrope/providers"],
    "place": ["core/heliotrope/place", "core/heliotrope/scale", "core/heliotrope/power", "core/heliotrope/linear.py"],
    "epp": ["epp_plugins/heliotrope_epp"],
    "agent": ["node_agent/heliotrope_agent"],
    "operator": ["operator/heliotrope_operator"],
    "sim": ["simulator/heliotrope_sim"],
    "cluster": ["simulator/heliotrope_sim/reproduce/cluster.py"],
}


def declared(group: str) -> set[str]:
    project = PROJECT["project"]
    requirements = {
        "core": project["dependencies"],
        "dev": PROJECT["dependency-groups"]["dev"] + PROJECT["build-system"]["requires"],
    } | project["optional-dependencies"]
    names = {re.match(r"[A-Za-z0-9._-]+", each)[0].lower() for each in requirements[group]}  # type: ignore[index]
    return names - {"heliotrope"}


def rows(group: str) -> dict[str, tuple[str, str]]:
    """Licence and reason by package."""
    section = PAGE.split(f"\n## {SECTIONS[group]}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert cells[0] == ["package", "licence", "why"]
    return {name: (licence, reason) for name, licence, reason in cells[2:]}


def owners_of_modules(distributions: list[str]) -> dict[str, str]:
    """Which of several distributions that share a top-level package brings which module."""
    owners: dict[str, str] = {}
    for distribution in distributions:
        for file in importlib.metadata.files(distribution) or ():
            if file.suffix == ".py":
                parts = file.parts[:-1] if file.name == "__init__.py" else (*file.parts[:-1], file.stem)
                owners[".".join(parts)] = distribution
    return owners


def imported(group: str) -> set[str]:
    """Distributions whose modules the group's packages import, at the top of a file or later."""
    distributions = importlib.metadata.packages_distributions()
    shared = {top: owners_of_modules(names) for top, names in distributions.items() if len(set(names)) > 1}
    found: set[str] = set()
    of_core = [folder for extra in ("learn", "signals", "place") for folder in PACKAGES[extra]]
    optional = {"core": of_core, "sim": PACKAGES["cluster"] + PACKAGES["learn"]}.get(group, [])
    for folder in PACKAGES[group]:
        whole = ROOT / folder
        for path in [whole] if whole.is_file() else whole.rglob("*.py"):
            if any((ROOT / part) in (path, *path.parents) for part in optional):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for module in set(names):
                    name = module.partition(".")[0]
                    if name in sys.stdlib_module_names or name in OWN:
                        continue
                    assert name in distributions, f"{path} imports {name}, which no installed distribution provides"
                    owner = shared[name][module] if name in shared else distributions[name][0]
                    distribution = owner.lower().replace("_", "-")
                    own = distribution in declared(group)
                    found.add(distribution if own else PARTS.get(distribution, distribution))
    return found


@pytest.mark.parametrize("group", SECTIONS)
def test_the_page_lists_what_is_declared(group: str) -> None:
    assert rows(group).keys() == declared(group)
    assert list(rows(group)) == sorted(rows(group))
    assert all(len(reason) > 10 and reason.endswith(".") for _, reason in rows(group).values())


@pytest.mark.parametrize("group", SECTIONS)
def test_licences_are_those_that_the_packages_state(group: str) -> None:
    compared = 0
    for name, (licence, _) in rows(group).items():
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        stated = metadata.get("License-Expression")
        if stated is None and metadata.get("License") in SPDX:
            stated = metadata["License"]  # the older field, where it holds an identifier and not a licence's text
        if stated is not None:
            assert licence == stated, name
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("group", PACKAGES)
def test_what_is_shipped_declares_what_it_imports(group: str) -> None:
    available = declared("core") | (declared(group) if group != "core" else set())
    assert imported(group) - available == set()


@pytest.mark.parametrize("group", PACKAGES)
def test_nothing_is_declared_that_is_not_imported(group: str) -> None:
    everywhere = imported(group) if group != "core" else set().union(*(imported(each) for each in PACKAGES))
    assert declared(group) - everywhere == set()
