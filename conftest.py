"""What holds for every test."""

import asyncio

import hypothesis
import pytest
from e2e.controlplane import build

# Machines are busy: how long an example takes says nothing.
hypothesis.settings.register_profile("heliotrope", deadline=None, print_blob=True)
hypothesis.settings.load_profile("heliotrope")


def pytest_configure(config: pytest.Config) -> None:
    """Let nobody ask the main thread for a loop it does not have.

    Below Python 3.12, asyncio would make one that nobody closes, and pytest-asyncio does ask.
    """
    asyncio.set_event_loop(None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the tests' time limits run, with its progress on the terminal."""
    wanted = any(item.get_closest_marker("controlplane") for item in session.items)
    if not wanted or session.config.option.collectonly or not build.needed():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        build.ensure()
