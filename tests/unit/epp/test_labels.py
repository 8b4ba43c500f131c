from heliotrope_epp.labels import MAX_LENGTH, OTHER, LabelCap


def test_the_first_names_keep_theirs() -> None:
    cap = LabelCap(2)
    assert [cap.of(name) for name in ("a", "b", "c", "a", "c", "")] == ["a", "b", OTHER, "a", OTHER, OTHER]


def test_a_long_name_is_cut() -> None:
    assert LabelCap(1).of("x" * 1_000) == "x" * MAX_LENGTH


def test_a_name_that_cannot_be_written_down_is_made_one_that_can() -> None:
    cap = LabelCap(1)
    assert cap.of("a\ud800b") == "a?b"
    assert cap.of("a\ud800b") == "a?b"
    assert cap.of("a?b") == "a?b"
