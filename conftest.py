"""What holds for every test."""

import asyncio

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let nobody ask the main thread for a loop it does not have.

    Below Python 3.12, asyncio would make one that nobody closes, and pytest-asyncio does ask.
    """
    asyncio.set_event_loop(None)
