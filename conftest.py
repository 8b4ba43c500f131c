"""What holds for every test."""

import asyncio
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from e2e.controlplane import build
from e2e.node import programs
from tests.support.logs import logging_kept

# Machines are busy: how long an example takes says nothing.
hypothesis.settings.register_profile("heliotrope", deadline=None, print_blob=True)
hypothesis.settings.load_profile("heliotrope")


def pytest_configure(config: pytest.Config) -> None:
    """Let nobody ask the main thread for a loop it does not have, and let programs that tests start be interrupted.

    Below Python 3.12, asyncio would make a loop that nobody closes, and pytest-asyncio does ask. A shell's background
    job ignores SIGINT, and so would every program that it starts.
    """
    asyncio.set_event_loop(None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what tests start before their time limits run, with its progress on the terminal."""
    wanted = {mark.name for item in session.items for mark in item.iter_markers()}
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if "controlplane" in wanted and build.needed():
            build.ensure()
        if "node" in wanted and not programs.missing() and programs.needed():
            programs.ensure()


@pytest.fixture(autouse=True)
def _logging_kept() -> Iterator[None]:
    with logging_kept():
        yield
