"""The seven workload classes of §8.2, as documented generators.

Lengths are log-normal with the means and coefficients of variation below, cut to their limits. Short chat and code have
about the means of the Azure traces of 2023; the others have no public trace and are assumed. Prompts share prefixes by
the hashes of their leading KV blocks: `sharing` is the share of requests that begin with one of a few popular prefixes,
which are drawn by Zipf's law.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.media.attachment import BORDER_TOKENS
from heliotrope.media.tokens import VisualTokenRule, visual_tokens
from heliotrope_sim.engine.fixed_point import nanoseconds

BLOCK_TOKENS = 16
"""Of the shipped profiles."""
PREFIX_ZIPF = 1.1
HASHES_OF_PREFIX = 1_000_000
OWN_HASHES = 1_000_000_000
"""Hashes from here on belong to one request or session alone."""
HASHES_OF_SESSION = 100_000
SIGMA_EXPECTED = 0.4
"""Of the logarithm of the expected over the realised output length, as in the other studies."""
PICTURES = ((640, 480), (1024, 768), (1280, 960), (1920, 1080))
"""Widths and heights of images in pixels; each as often."""


@dataclass(frozen=True, slots=True)
class Length:
    """Log-normal tokens."""

    mean: float
    variation: float
    """Standard deviation by mean."""
    least: int = 8
    most: int = 16_384

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many."""
        spread = np.sqrt(np.log1p(self.variation**2))
        tokens = np.rint(random.lognormal(np.log(self.mean) - spread**2 / 2.0, spread, count))
        return np.clip(tokens, self.least, self.most).astype(np.int64)


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """What requests of a class are like."""

    name: str
    title: str
    prompt: Length
    """Beside shared prefixes, earlier turns and images."""
    output: Length
    prefix: Length
    """Of popular prefixes."""
    prefixes: int
    ttft_slo_seconds: float
    tpot_slo_seconds: float
    turns: float = 1.0
    """Mean of a session, geometric."""
    pause_seconds: float = 0.0
    """Median from the end of a turn to the next one, log-normal with σ = 1: a tool runs, or somebody thinks."""
    burst: int = 1
    """Requests that come together: jobs of batches."""
    images: int = 0
    """Most images of a request; at least one."""


CLASSES: Mapping[str, WorkloadClass] = {
    each.name: each
    for each in (
        WorkloadClass("chat", "short chat", Length(400.0, 1.0), Length(200.0, 0.8), Length(300.0, 0.5), 8, 1.0, 0.05),
        WorkloadClass("rag", "long context", Length(400.0, 0.8), Length(220.0, 0.6), Length(8e3, 0.4), 16, 3.0, 0.08),
        WorkloadClass("code", "code", Length(2_000.0, 0.8), Length(60.0, 1.0), Length(1_500.0, 0.5), 12, 1.5, 0.06),
        WorkloadClass(
            "reasoning",
            "reasoning",
            Length(250.0, 0.8),
            Length(1_200.0, 0.9, most=6_000),
            Length(300.0, 0.5),
            8,
            2.0,
            0.05,
        ),
        WorkloadClass(
            "agentic", "agentic", Length(500.0, 0.8), Length(120.0, 0.8), Length(1_500.0, 0.4), 8, 2.0, 0.06, 6.0, 2.0
        ),
        WorkloadClass(
            "batch", "batch", Length(1_200.0, 0.7), Length(250.0, 0.6), Length(800.0, 0.5), 8, 60.0, 1.0, burst=20
        ),
        WorkloadClass(
            "multimodal",
            "multimodal",
            Length(120.0, 0.8),
            Length(150.0, 0.7),
            Length(200.0, 0.5),
            8,
            2.0,
            0.06,
            images=3,
        ),
    )
}
"""TTFT of batch is its deadline: until then an answer must have begun."""

LONG_AGENTIC = WorkloadClass(
    "long agentic", "agentic, long", Length(3e3, 0.8), Length(120.0, 0.8), Length(4e3, 0.4), 8, 3.0, 0.08, 6.0, 2.0
)
"""Tools that answer in pages: what RQ4 asks of sessions that are dear to move. None of the seven."""
KINDS: Mapping[str, WorkloadClass] = {**CLASSES, LONG_AGENTIC.name: LONG_AGENTIC}


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of a prompt."""

    key: str
    tokens: int
    """In the prompt, marks included."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request."""

    number: int
    kind: WorkloadClass
    at_ns: int
    """Of later turns of a session: after the end of the one before."""
    prompt_tokens: int
    output_tokens: int
    expected_output_tokens: float
    hashes: tuple[int, ...]
    """Of the full blocks of its prompt and, as the next turn repeats it, of its answer."""
    session: int
    difficulty: float
    """In [0, 1]: how much smaller models lose."""
    pictures: tuple[Picture, ...] = ()
    following: "Arrival | None" = None
    """The session's next turn."""


def arrivals(kind: WorkloadClass, rate_per_second: float, requests: int, sharing: float, seed: int) -> list[Arrival]:
    """First turns in order of time, about `requests` turns altogether.

    Args:
        kind: the class.
        rate_per_second: of turns; sessions start at this over the mean number of turns, in Poisson processes of bursts.
        requests: turns.
        sharing: share of sessions that begin with a popular prefix; of images, share that repeat one of a small pool.
        seed: equal seeds give equal requests.
    """
    random = np.random.default_rng([seed, sorted(KINDS).index(kind.name)])
    sessions = max(round(requests / kind.turns), 1)
    starts = -(-sessions // kind.burst)
    gaps = random.exponential(kind.turns * kind.burst / rate_per_second, starts)
    times = np.repeat(np.cumsum(gaps) - gaps[0], kind.burst)[:sessions]
    weights = 1.0 / np.arange(1, kind.prefixes + 1) ** PREFIX_ZIPF
    lengths = kind.prefix.draw(random, kind.prefixes)
    return [
        _session(kind, number, float(time), (lengths, weights / weights.sum()), sharing, random)
        for number, time in enumerate(times)
    ]


def _session(
    kind: WorkloadClass,
    number: int,
    start_seconds: float,
    prefixes: tuple[NDArray[np.int64], NDArray[np.float64]],
    sharing: float,
    random: np.random.Generator,
) -> Arrival:
    turns = int(random.geometric(1.0 / kind.turns))
    group = int(random.choice(kind.prefixes, p=prefixes[1])) if random.random() < sharing else -1
    shared = int(prefixes[0][group]) if group >= 0 else 0
    # Who shares no prefix has one of its own, so that sharing changes nothing but what can be reused.
    context = shared if group >= 0 else int(kind.prefix.draw(random, 1)[0])
    difficulty = float(random.beta(1.2, 2.0))
    blocks = [group * HASHES_OF_PREFIX + i for i in range(shared // BLOCK_TOKENS)]
    own = OWN_HASHES + number * HASHES_OF_SESSION
    drafts = []
    time = start_seconds
    for turn in range(turns):
        pictures = _pictures(kind, number, turn, sharing, random)
        seen = sum(p.tokens for p in pictures)
        prompt = context + int(kind.prompt.draw(random, 1)[0]) + seen
        output = int(kind.output.draw(random, 1)[0])
        full = (prompt + output) // BLOCK_TOKENS
        blocks += [own + i for i in range(len(blocks), full)]
        expected = float(output * random.lognormal(0.0, SIGMA_EXPECTED))
        drafts.append((time, prompt, output, expected, tuple(blocks), pictures))
        context = prompt + output
        time = float(random.lognormal(np.log(kind.pause_seconds), 1.0)) if kind.pause_seconds else 0.0
    following: Arrival | None = None
    for turn in reversed(range(turns)):
        time, prompt, output, expected, hashes, pictures = drafts[turn]
        following = Arrival(
            number=number * 1_000 + turn,
            kind=kind,
            at_ns=nanoseconds(time),
            prompt_tokens=prompt,
            output_tokens=output,
            expected_output_tokens=expected,
            hashes=hashes,
            session=number,
            difficulty=difficulty,
            pictures=pictures,
            following=following,
        )
    assert following is not None
    return following


def _pictures(
    kind: WorkloadClass, session: int, turn: int, sharing: float, random: np.random.Generator
) -> tuple[Picture, ...]:
    rule = VisualTokenRule()
    found = []
    for i in range(int(random.integers(1, kind.images, endpoint=True)) if kind.images else 0):
        repeated = bool(random.random() < sharing)
        choice = int(random.integers(4 * len(PICTURES)))
        width, height = PICTURES[choice % len(PICTURES)]
        key = f"pool-{choice}" if repeated else f"own-{session}-{turn}-{i}"
        found.append(Picture(key, visual_tokens(width, height, rule) + BORDER_TOKENS))
    # Each once, as in a request's profile.
    return tuple({picture.key: picture for picture in found}.values())


def turns_of(firsts: Sequence[Arrival]) -> list[Arrival]:
    """Every turn of every session."""
    found = []
    for first in firsts:
        each: Arrival | None = first
        while each is not None:
            found.append(each)
            each = each.following
    return found
