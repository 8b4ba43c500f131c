import json
from dataclasses import replace
from itertools import pairwise

import pytest

from heliotrope.engine import profiles
from heliotrope_sim.demo.requests import planned_requests
from heliotrope_sim.demo.scenario import Scenario, Talks
from heliotrope_sim.demo.talks import MIN_TURNS, plan_talks, shortened, system_tokens
from heliotrope_sim.workload.conversations import Conversation, Turn

SCENARIO = Scenario()
MODEL = profiles.load(SCENARIO.profile)
TALK = Conversation(100.0, (Turn(0.0, 4_000, 400), Turn(60.0, 400, 200), Turn(600.0, 40, 80), Turn(5.0, 40_000, 8)))


def turns_by_conversation(planned):  # type: ignore[no-untyped-def]
    found = {}
    for request in planned:
        if request.conversation is not None:
            found.setdefault(request.conversation, []).append(request)
    return found


def test_conversations_are_scaled_and_end_where_a_prompt_would_be_too_long() -> None:
    (small,) = shortened([TALK, Conversation(0.0, TALK.turns[:2])], Talks())
    assert small == Conversation(100.0, (Turn(0.0, 1_000, 100), Turn(0.6, 100, 50), Turn(3.0, 10, 20)))
    assert shortened([TALK], Talks(longest_prompt_tokens=1_100)) == []


def test_turns_follow_each_other_and_their_prompts_hold_what_was_said() -> None:
    planned, _ = planned_requests(SCENARIO)
    talks = turns_by_conversation(planned)
    assert len(talks) > 20
    seen_system = set()
    for turns in talks.values():
        assert len(turns) >= MIN_TURNS or turns[-1].arrival_seconds > SCENARIO.arrival_seconds - 8.0
        assert [t.turn for t in turns] == list(range(len(turns)))
        assert turns[0].history_tokens == 0
        seen_system.add(turns[0].messages[0]["content"])
        for before, after in pairwise(turns):
            assert after.arrival_seconds > before.arrival_seconds + before.output_tokens * 0.01
            assert after.history_tokens == before.prompt_tokens + before.output_tokens
            assert after.history_tokens < after.prompt_tokens <= SCENARIO.talks.longest_prompt_tokens
            assert [m["role"] for m in after.messages] == ["user"]
    (system,) = seen_system
    assert len(system) == system_tokens(SCENARIO.talks) * 4
    assert planned == planned_requests(SCENARIO)[0]


def test_a_turn_sends_the_history_and_says_which_conversation_it_is() -> None:
    first, second = plan_talks([*shortened([TALK], Talks())], turns=2, scenario=SCENARIO, model=MODEL)
    history = [*first.messages, {"role": "assistant", "content": "sun"}]
    body = json.loads(second.body(history))
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert body["prompt_cache_key"] == "conversation-000"
    assert body["vllm_xargs"] == {"output_tokens": 50}
    assert sum(len(m["content"]) for m in first.messages) == 4 * first.prompt_tokens


def test_without_conversations_all_requests_are_questions_of_their_own() -> None:
    planned, _ = planned_requests(replace(SCENARIO, talks=Talks(share=0.0)))
    assert turns_by_conversation(planned) == {}
    assert all("prompt_cache_key" not in json.loads(p.body([])) for p in planned[:5])
    assert len(planned) == pytest.approx(len(planned_requests(SCENARIO)[0]), rel=0.5)
