"""The map in docs/architecture.md is the tree."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = (
    "core/heliotrope",
    "operator/heliotrope_operator",
    "epp_plugins/heliotrope_epp",
    "node_agent/heliotrope_agent",
    "simulator/heliotrope_sim",
    "cli/heliotrope_cli",
)


def folders() -> set[str]:
    return {
        str(path.parent.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")
    }


def test_the_map_names_every_package_folder_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)) == folders()


def test_every_package_of_the_wheel_is_under_the_layer_contracts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert tuple(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == PACKAGES
    assert set(project["tool"]["importlinter"]["root_packages"]) == {p.split("/")[1] for p in PACKAGES}


def test_links_in_the_documents_lead_somewhere() -> None:
    broken = []
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken
