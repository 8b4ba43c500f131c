"""Sessions in memory: bytes per session, and microseconds for what a turn asks of them.

    uv run python bench/sessions.py [--sessions N] [--decisions N] [--output build/bench/sessions.json]

A fresh process fills a table to its capacity with sessions of three turns at three endpoints and compares its resident
memory with what it was before the table existed; the keys that the measurement itself needs are made anew for each
call and not kept. Operations are timed on sessions drawn at random from the full table, so that caches of the processor
do not help more than in production: finding a session; a whole turn (finding, routing, ending); and a turn of a session
that is new, for which the longest unheard one goes. Keyed hashing of an id of 36 characters is timed apart.

What sessions add to a decision among 64 endpoints is measured on the pipeline of bench/decide.py in CPU time of its
thread: decisions without a session, with one of 10 active ones, and with one of 10,000 take turns. What is written down
after the gateway has its answer is apart.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from decide import Pool
from machine import describe, rss_megabytes

from heliotrope.cache.session_key import IdentitySource, SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope_epp.clock import Clock
from heliotrope_epp.parsers.session_hints import SessionHints
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker

FORGET_SECONDS = 1e9
ENDPOINTS = [f"default/engine-{i}" for i in range(64)]
OPERATIONS = 50_000


def key(i: int) -> bytes:
    """A key as evenly spread as the real ones."""
    return blake2b(i.to_bytes(8, "little"), digest_size=16).digest()


def fill(sessions: Sessions, count: int) -> None:
    """Three turns of each, one session after the other in every round, as they interleave."""
    for turn in range(3):
        for i in range(count):
            now_s = turn * 100.0 + i * 1e-5
            endpoint = ENDPOINTS[(i * 7 + turn) % len(ENDPOINTS)]
            sessions.routed(key(i), endpoint, now_s, FORGET_SECONDS)
            sessions.ended(key(i), now_s + 1.0, 1000 * (turn + 1))


def microseconds(operation: Callable[[int], object], numbers: list[int]) -> dict[str, float]:
    """Mean CPU of all calls, and the median wall time of single ones, less the cost of reading the clock."""
    clock = time.perf_counter_ns
    empty = min(-clock() + clock() for _ in range(1000))
    spent = []
    cpu_ns = time.process_time_ns()
    for number in numbers:
        started = clock()
        operation(number)
        spent.append(clock() - started - empty)
    cpu_ns = time.process_time_ns() - cpu_ns
    return {
        "cpu_microseconds": round(cpu_ns / len(numbers) / 1e3, 2),
        "p50_microseconds": round(float(np.median(spent)) / 1e3, 2),
    }


def measure(count: int) -> dict[str, Any]:
    """Everything, in this process."""
    before = rss_megabytes(os.getpid())
    sessions = Sessions(count)
    empty = rss_megabytes(os.getpid())
    fill(sessions, count)
    full = rss_megabytes(os.getpid())
    assert len(sessions) == count
    rng = random.Random(0)
    keys = {i: key(i) for i in rng.sample(range(count), min(OPERATIONS, count))}
    fresh = {i: key(i) for i in range(count, count + OPERATIONS)}

    def find(i: int) -> None:
        assert sessions.find(keys[i], 400.0, FORGET_SECONDS) is not None

    def turn(of: dict[int, bytes], i: int) -> None:
        sessions.find(of[i], 400.0, FORGET_SECONDS)
        sessions.routed(of[i], ENDPOINTS[i % 64], 400.0, FORGET_SECONDS)
        sessions.ended(of[i], 401.0, 4000)

    hashes = SessionKeys()
    name = b"6a1f3f0e-8c55-4a0c-9f1f-9d2f7d3c1b2a"
    return {
        "sessions": count,
        "megabytes_empty": round(empty - before, 1),
        "megabytes_full": round(full - before, 1),
        "bytes_per_session": round((full - before) * 1e6 / count, 1),
        "find": microseconds(find, list(keys)),
        "turn": microseconds(lambda i: turn(keys, i), list(keys)),
        "turn_of_a_new_session_in_a_full_table": microseconds(lambda i: turn(fresh, i), list(fresh)),
        "hash_of_an_id": microseconds(lambda _: hashes.of(IdentitySource.HEADER, "t", "m", name), list(keys)),
    }


def added_to_a_decision(active: int, decisions: int) -> dict[str, Any]:
    """CPU microseconds of a decision: without sessions, with one of 10 active ones, with one of `active`."""
    pool = Pool(64, 1, None)
    few, many = Followed(pool, 10), Followed(pool, active)
    arms: tuple[Followed | None, ...] = (None, few, many)
    spent: list[list[float]] = [[] for _ in arms]
    afterwards: list[float] = []
    for i in range(len(arms) * decisions):
        pool.advance()
        arm = i % len(arms)
        request, followed = pool.request(), arms[arm]
        header = {}.get if followed is None else followed.headers[int(pool.rng.integers(len(followed.headers)))]
        started = time.thread_time_ns()
        request = replace(request, session=None) if followed is None else followed.turn(request, header)
        result = pool.decide(request)
        decided = time.thread_time_ns()
        spent[arm].append((decided - started) / 1e3)
        if followed is not None:
            followed.tracker.routed(request, result.pick.options[0].key)
            afterwards.append((time.thread_time_ns() - decided) / 1e3)
        pool.follow(request, result)
    none, one_of_few, one_of_many = (float(np.median(column[decisions // 10 :])) for column in spent)
    return {
        "active_sessions": active,
        "none_p50_cpu_microseconds": round(none, 1),
        "one_of_10_p50_cpu_microseconds": round(one_of_few, 1),
        "one_of_active_p50_cpu_microseconds": round(one_of_many, 1),
        "added_by_sessions": round(one_of_few / none - 1.0, 3),
        "added_by_their_number": round(one_of_many / one_of_few - 1.0, 3),
        "after_the_answer_p50_cpu_microseconds": round(float(np.median(afterwards)), 1),
    }


class Followed:
    """A tracker with that many active sessions."""

    def __init__(self, pool: Pool, active: int) -> None:
        self.tracker = SessionTracker(Sessions(100_000), SessionKeys(), SessionRules, Clock())
        self.headers = [{"x-session-id": f"session-{i}"}.get for i in range(active)]
        self._hints = SessionHints()
        for i, header in enumerate(self.headers):
            request = self.turn(pool.request(), header)
            endpoint = pool.states[i % len(pool.states)].endpoint.key
            self.tracker.routed(request, endpoint)
            self.tracker.ended(request, 2_000, b"")

    def turn(self, request: LlmRequest, header: Callable[[str], str | None]) -> LlmRequest:
        """The request with its session."""
        named = Named(header, self._hints, request.prompt, Scope("tenant", request.model))
        return replace(request, session=self.tracker.turn(named))


def main() -> None:
    """Measure the table in a child, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--decisions", type=int, default=2_000)
    parser.add_argument("--output", type=Path, default=Path("build/bench/sessions.json"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.sessions)))
        return
    decision = added_to_a_decision(10_000, arguments.decisions)
    command = [sys.executable, __file__, "--child", f"--sessions={arguments.sessions}"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result = {"machine": describe(), **found, "decision": decision}
    print(json.dumps(result, indent=2))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
