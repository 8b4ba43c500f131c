"""Signals that end the process."""

import asyncio
import signal
import threading


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set the event on SIGTERM and SIGINT, however many. Only the main thread can; elsewhere the caller sets it."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
