"""What holds for every test."""

import asyncio

import hypothesis
import pytest

# Machines are busy: how long an example takes says nothing.
hypothesis.settings.register_profile("heliotrope", deadline=None, print_blob=True)
hypothesis.settings.load_profile("heliotrope")


def pytest_configure(config: pytest.Config) -> None:
    """Let nobody ask the main thread for a loop it does not have.

    Below Python 3.12, asyncio would make one that nobody closes, and pytest-asyncio does ask.
    """
    asyncio.set_event_loop(None)
