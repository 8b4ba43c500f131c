"""Which requests an enforced policy keeps blind to carbon, so that its saving is measured and not asserted.

The arm is drawn before anything of the decision is known, within classes of like requests, in permuted blocks: of each
block of `size` requests of a class exactly `share` are held out, each subset of positions being as likely (Knuth,
TAOCP 2, algorithm S). So a class never strays from the stated share by a whole block's share, whatever its pattern of
arrivals, and both arms see the same mix of classes at the same times.

Each picker draws for the requests that it sees, from blocks of its own. Shares add up over pickers, so several keep the
stated share without talking to each other; their sequences differ by `scope`. A hash of the request id would need no
state, but would hold the share only on average, and clients may choose their ids.
"""

from bisect import bisect_right
from dataclasses import dataclass
from hashlib import blake2b
from math import gcd
from typing import Protocol

from heliotrope.carbon.arms import Arm
from heliotrope.decide.policy import DecisionPolicy

MAX_CLASSES = 1_024
OTHER_CLASS = "other"
"""Class of whatever comes after `MAX_CLASSES` classes: model names are the clients' to choose."""

_PROMPT_TOKENS = (256, 1_024, 4_096)
_OUTPUT_TOKENS = (64, 256, 1_024)
_MAX_MODEL_LENGTH = 128


class Described(Protocol):
    """What the class of a request follows from: a `RequestProfile`, or whatever says the same."""

    @property
    def model(self) -> str:
        """Its name; see `RequestProfile`. So for the next three."""
        ...

    @property
    def streaming(self) -> bool:
        """See there."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """See there."""
        ...

    @property
    def expected_output_tokens(self) -> float:
        """See there."""
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """What was drawn for one request."""

    arm: Arm
    request_class: str
    """The stratum that it was drawn in."""


UNASSIGNED = Assignment(Arm.UNSTEERED, "")
"""Of a request without a policy."""


def request_class(request: Described) -> str:
    """The stratum of a request: model, streamed or not, length of the prompt, expected length of the answer.

    These move energy and latency most and are known before the decision. A tenant is none of them: tenants are many
    and chosen by clients, so classes would be too small to compare, and a tenant whose requests look alike is balanced
    by these already.
    """
    prompt = _bucket(request.prompt_tokens, _PROMPT_TOKENS)
    output = _bucket(request.expected_output_tokens, _OUTPUT_TOKENS)
    how = "stream" if request.streaming else "whole"
    return f"{request.model[:_MAX_MODEL_LENGTH]}|{how}|prompt {prompt}|output {output}"


def block(percent: int) -> tuple[int, int]:
    """Size and share of the smallest block that holds out exactly `percent` of its requests, in [0, 100]."""
    divisor = gcd(percent, 100)
    return 100 // divisor, percent // divisor


def held_out(key: bytes, percent: int, drawn: int, held: int) -> bool:
    """Whether the next request of a class is held out.

    Args:
        key: names the sequence, at most 64 bytes.
        percent: share to hold out.
        drawn: requests of the class before this one.
        held: how many of them were held out.
    """
    size, share = block(percent)
    blocks, position = divmod(drawn, size)
    left = share - (held - blocks * share)
    digest = blake2b(drawn.to_bytes(8, "big"), key=key, digest_size=7).digest()
    # 53 bits, so that the fraction is exact and below 1.
    uniform = (int.from_bytes(digest, "big") >> 3) / 2**53
    return uniform * (size - position) < left


class Holdout:
    """Draws the arm of each request. Remembers two counts per class of the policy at hand, for bounded many classes."""

    def __init__(self, scope: str = "") -> None:
        """`scope` tells this picker's sequence from those of others that serve the same policy."""
        self._scope = scope
        self._policy: tuple[str, int, int] | None = None
        self._classes: dict[str, _Class] = {}
        self.overflowed = 0
        """Requests that were drawn in `OTHER_CLASS`."""

    def assign(self, policy: DecisionPolicy | None, request: Described) -> Assignment:
        """The arm and class of a request; call once per request, before its decision.

        Under `Advise` nothing is held out, because nothing is steered.
        """
        if policy is None:
            return UNASSIGNED
        name = request_class(request)
        if not policy.enforce:
            return Assignment(Arm.UNSTEERED, name)
        self._follow((policy.name, policy.holdout_percent, policy.holdout_seed))
        name, state = self._class(name)
        held = policy.holdout_percent > 0 and held_out(state.key, policy.holdout_percent, state.drawn, state.held)
        state.drawn += 1
        state.held += held
        return Assignment(Arm.HOLDOUT if held else Arm.STEERED, name)

    def _follow(self, policy: tuple[str, int, int]) -> None:
        """Another policy, share or seed begins new blocks."""
        if policy != self._policy:
            self._policy = policy
            self._classes.clear()

    def _class(self, name: str) -> "tuple[str, _Class]":
        state = self._classes.get(name)
        if state is None and len(self._classes) >= MAX_CLASSES:
            self.overflowed += 1
            name = OTHER_CLASS
            state = self._classes.get(name)
        if state is None:
            assert self._policy is not None
            key = "\0".join((*map(str, self._policy), self._scope, name))
            state = self._classes[name] = _Class(blake2b(key.encode(errors="surrogatepass"), digest_size=32).digest())
        return name, state


@dataclass(slots=True)
class _Class:
    key: bytes
    drawn: int = 0
    held: int = 0


def _bucket(value: float, edges: tuple[int, ...]) -> str:
    position = bisect_right(edges, value)
    return f"<{edges[position]}" if position < len(edges) else f">={edges[-1]}"
