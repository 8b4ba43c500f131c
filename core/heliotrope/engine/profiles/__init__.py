"""The engine profiles that ship: one JSON file each, written by bench/calibrate_engines.py."""

import json
from importlib import resources

from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError


def available() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


def load(name: str) -> EngineModel:
    """The profile of this name.

    Raises:
        UnknownProfileError: if no such profile ships; the message lists those that do.
    """
    if name not in available():
        raise UnknownProfileError("profile", f"no engine profile {name!r}; shipped are {', '.join(available())}")
    data = json.loads((resources.files(__name__) / f"{name}.json").read_text(encoding="utf-8"))
    return EngineModel.from_mapping(data["model"])
