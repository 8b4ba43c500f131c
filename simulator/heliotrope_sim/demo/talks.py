"""Conversations of a recorded trace, made small and quick enough for an arm of the demo."""

from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope.engine.model import EngineModel
from heliotrope_sim.demo.plan import PlannedRequest, streamed
from heliotrope_sim.demo.scenario import Scenario, Talks
from heliotrope_sim.workload.conversations import BLOCK_TOKENS, Conversation, Turn
from heliotrope_sim.workload.prompts import prompt_of
from heliotrope_sim.workload.trace import TraceRequest

MIN_TURNS = 2
"""Within an arm."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One turn of a conversation in an arm."""

    name: str
    arrival_seconds: float
    pause_seconds: float
    turn: int
    conversation: Conversation


def shortened(conversations: Sequence[Conversation], talks: Talks) -> list[Conversation]:
    """Those with enough turns, their tokens and pauses scaled, cut off where a prompt would be too long."""
    result = []
    for each in conversations:
        if len(each.turns) < talks.least_turns:
            continue
        turns = tuple(
            Turn(
                min(t.gap_seconds * talks.pause_scale, talks.longest_pause_seconds),
                max(round(t.new_tokens * talks.prompt_scale), 1),
                max(round(t.output_tokens * talks.answer_scale), 1),
            )
            for t in each.turns
        )
        small = Conversation(each.start_seconds, turns)
        fitting = sum(small.prompt_tokens(i) <= talks.longest_prompt_tokens for i in range(len(turns)))
        if fitting >= MIN_TURNS and turns[0].new_tokens > system_tokens(talks):
            result.append(Conversation(each.start_seconds, turns[:fitting]))
    return result


def system_tokens(talks: Talks) -> int:
    """Length of the system prompt, which all conversations of the trace share."""
    return round(BLOCK_TOKENS * talks.prompt_scale)


def as_requests(conversations: Sequence[Conversation]) -> list[TraceRequest]:
    """Their turns as requests, for sizing; nothing is taken for cached."""
    return [
        TraceRequest(c.start_seconds, c.prompt_tokens(i), t.output_tokens)
        for c in conversations
        for i, t in enumerate(c.turns)
    ]


def plan_talks(
    conversations: Sequence[Conversation], *, turns: int, scenario: Scenario, model: EngineModel
) -> list[PlannedRequest]:
    """So many turns of the first conversations, the first ones beginning at once and the last ones half-way.

    A turn's time is when its client would send it if each answer took what it takes at the scenario's load; what would
    come after the last arrival is left out. Answers that take longer delay their own conversation.

    Args:
        conversations: `shortened`, in the order in which they begin.
        turns: how many turns to plan.
        scenario: times, model name, streaming and seed.
        model: of the engines.
    """
    steps: list[_Step] = []
    count = max(turns // 4, 1)
    while True:
        steps = _steps(conversations[:count], scenario, model)
        if len(steps) >= turns or count >= len(conversations):
            break
        count += 1
    steps = sorted(steps, key=lambda s: (s.arrival_seconds, s.name, s.turn))[:turns]
    flags = streamed(len(steps), scenario.stream_share)
    return [_planned(i, step, scenario, streaming=flags[i]) for i, step in enumerate(steps)]


def _steps(chosen: Sequence[Conversation], scenario: Scenario, model: EngineModel) -> list[_Step]:
    first, last = chosen[0].start_seconds, chosen[-1].start_seconds
    scale = scenario.talks.begin_share * scenario.arrival_seconds / max(last - first, 1e-9)
    result = []
    for number, conversation in enumerate(chosen):
        at = (conversation.start_seconds - first) * scale
        steps = []
        for index, turn in enumerate(conversation.turns):
            at += turn.gap_seconds
            if at > scenario.arrival_seconds:
                break
            steps.append(_Step(f"conversation-{number:03d}", at, turn.gap_seconds, index, conversation))
            at += _answer_seconds(conversation, index, scenario, model)
        if len(steps) >= MIN_TURNS:
            result += steps
    return result


def _answer_seconds(conversation: Conversation, turn: int, scenario: Scenario, model: EngineModel) -> float:
    batch = max(scenario.load * scenario.max_num_seqs, 1.0)
    prompt = float(conversation.prompt_tokens(turn))
    step = float(model.decode_seconds(batch, batch * prompt))
    return float(model.prefill_seconds(prompt)) + conversation.turns[turn].output_tokens * step


def _planned(index: int, step: _Step, scenario: Scenario, *, streaming: bool) -> PlannedRequest:
    conversation, turn = step.conversation, step.conversation.turns[step.turn]
    seed = scenario.seed * 1_000_003 + 500_000
    messages = [
        {
            "role": "user",
            "content": prompt_of(
                turn.new_tokens - (system_tokens(scenario.talks) if step.turn == 0 else 0), seed + 1 + index
            ),
        }
    ]
    if step.turn == 0:
        messages.insert(0, {"role": "system", "content": prompt_of(system_tokens(scenario.talks), seed)})
    return PlannedRequest(
        request_id=f"turn-{index:05d}",
        arrival_seconds=step.arrival_seconds,
        prompt_tokens=conversation.prompt_tokens(step.turn),
        output_tokens=turn.output_tokens,
        streaming=streaming,
        model=scenario.model,
        messages=tuple(messages),
        conversation=step.name,
        turn=step.turn,
        pause_seconds=step.pause_seconds,
        history_tokens=conversation.history_tokens(step.turn),
    )
