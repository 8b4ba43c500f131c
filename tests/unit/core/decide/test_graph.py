"""The graph of a request and its critical path."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import REQUEST

from heliotrope.decide.graph import Edge, Phase, PhaseGraph, PhaseKind, request_graph
from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import Attachment, Modality

IMAGES = (Attachment(Modality.IMAGE, "a", 100), Attachment(Modality.IMAGE, "b", 300))


def test_text_has_no_phase_before_its_prefill() -> None:
    graph = request_graph(REQUEST, 2.0)
    assert [phase.kind for phase in graph.phases] == [PhaseKind.PREFILL, PhaseKind.DECODE]
    assert [phase.tokens for phase in graph.phases] == [1000.0, 200.0]
    assert graph.edges == (Edge(0, 1, None),)


def test_every_image_is_encoded_before_the_prefill() -> None:
    audio = Attachment(Modality.AUDIO, "c", None)
    graph = request_graph(replace(REQUEST, media=(*IMAGES, audio)), 2.0)
    assert graph.of_kind(PhaseKind.ENCODE) == (0, 1, 2)
    assert graph.of_kind(PhaseKind.PREFILL) == (3,)
    assert graph.edges == (Edge(0, 3, 200.0), Edge(1, 3, 600.0), Edge(2, 3, None), Edge(3, 4, None))


@pytest.mark.parametrize("edge", [Edge(1, 0, 0.0), Edge(0, 0, 0.0), Edge(0, 2, 0.0), Edge(-1, 1, 0.0)])
def test_circles_and_edges_to_nowhere_are_refused(edge: Edge) -> None:
    with pytest.raises(InvalidInputError, match="later one"):
        PhaseGraph((Phase(PhaseKind.PREFILL, 1.0), Phase(PhaseKind.DECODE, 1.0)), (edge,))


def test_phases_at_one_place_follow_each_other_and_others_run_side_by_side() -> None:
    graph = request_graph(replace(REQUEST, media=IMAGES), 2.0)
    seconds, transfers = (2.0, 3.0, 5.0, 7.0), (0.5, 0.25, 0.125)
    assert graph.finish_seconds(["e", "e", "p", "p"], seconds, transfers) == (2.0, 5.0, 10.75, 17.875)
    assert graph.finish_seconds(["e", "f", "p", "d"], seconds, transfers) == (2.0, 3.0, 8.75, 15.875)


def test_what_waits_for_the_unknown_is_unknown() -> None:
    graph = request_graph(replace(REQUEST, media=IMAGES), 2.0)
    finish = graph.finish_seconds(["e", "f", "p", "d"], (math.nan, 3.0, 5.0, 7.0), (0.0, 0.0, 0.0))
    assert math.isnan(finish[0])
    assert finish[1] == 3.0
    assert math.isnan(finish[2])
    assert math.isnan(finish[3])


TIMES = st.floats(0.0, 100.0)


@given(st.lists(st.tuples(st.sampled_from("xyz"), TIMES, TIMES), min_size=1, max_size=6), TIMES, TIMES)
def test_the_path_is_no_shorter_than_any_part_and_no_longer_than_all(
    encodes: list[tuple[str, float, float]], prefill: float, decode: float
) -> None:
    media = tuple(Attachment(Modality.IMAGE, str(i), 10) for i in range(len(encodes)))
    graph = request_graph(replace(REQUEST, media=media), 1.0)
    places = [*(place for place, _, _ in encodes), "p", "d"]
    seconds = [*(taken for _, taken, _ in encodes), prefill, decode]
    moved = [*(transfer for _, _, transfer in encodes), 0.0]
    finish = graph.finish_seconds(places, seconds, moved)
    busiest = max(sum(taken for at, taken, _ in encodes if at == place) for place in "xyz")
    transfers = sum(moved)
    assert finish[-1] == pytest.approx(busiest + transfers + prefill + decode)
    assert max(seconds) - 1e-9 <= finish[-1] <= sum(seconds) + transfers + 1e-9
