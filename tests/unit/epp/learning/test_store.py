import logging
from pathlib import Path

import pytest
from tests.unit.epp.learning.builders import samples

from heliotrope.predict.bundle import EMPTY, Bundle, parse_bundle
from heliotrope.predict.targets import REQUESTS
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.learning.folder import StateFolder, seal
from heliotrope_epp.learning.store import Store
from heliotrope_epp.learning.verdicts import TrainingRecord

RECORD = TrainingRecord(1.0, "first", "promoted", "", 300, 2.5)


@pytest.fixture(scope="module")
def bundles() -> list[Bundle]:
    models = train([TrainingSet.of(REQUESTS, samples(200))], 1, 0.0, TrainingConfig(trees=3)).models
    return [Bundle(created, models) for created in (10.0, 20.0, 30.0)]


def store(path: Path | None) -> Store:
    return Store(StateFolder(path))


def digests(folder: Path) -> set[str]:
    return {path.name.removeprefix("model-") for path in folder.glob("model-*")}


def test_everything_comes_back(tmp_path: Path, bundles: list[Bundle]) -> None:
    window = TrainingSet.of(REQUESTS, samples(5))
    before = store(tmp_path)
    assert before.save_window(window)
    assert before.save_models(bundles[1], bundles[0], [RECORD])
    before.folder.close()
    after = store(tmp_path).load()
    assert after.current.digest == bundles[1].digest
    assert after.previous is not None
    assert after.previous.digest == bundles[0].digest
    assert after.records == [RECORD]
    assert [each.to_bytes() for each in after.windows] == [window.to_bytes()]


def test_an_empty_folder_and_no_folder_are_a_start_from_nothing(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", None):
        found = store(path)
        learned = found.load()
        assert (learned.current, learned.previous, learned.windows, learned.records) == (EMPTY, None, [], [])
        assert not found.refused
    assert not store(None).save_models(EMPTY, None, ())
    assert not store(None).save_window(TrainingSet.of(REQUESTS, samples(1)))


def test_only_two_sets_of_models_stay_on_disk(tmp_path: Path, bundles: list[Bundle]) -> None:
    kept = store(tmp_path)
    kept.save_models(bundles[0], None, ())
    kept.save_models(bundles[1], bundles[0], ())
    kept.save_models(bundles[2], bundles[1], ())
    assert digests(tmp_path) == {bundles[1].digest, bundles[2].digest}


@pytest.mark.parametrize("fault", ["cut", "changed", "missing", "other", "directory"])
def test_models_that_are_not_whole_are_refused_and_the_previous_ones_answer(
    tmp_path: Path, bundles: list[Bundle], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = store(tmp_path)
    kept.save_models(bundles[1], bundles[0], ())
    path = tmp_path / f"model-{bundles[1].digest}"
    text = path.read_bytes()
    path.unlink()
    if fault == "cut":
        path.write_bytes(text[: len(text) // 2])
    elif fault == "changed":
        path.write_bytes(text.replace(b"leaf_value=", b"leaf_value=9", 1))
    elif fault == "other":
        path.write_bytes(b"\x80\x04pickle")
    elif fault == "directory":
        path.mkdir()
    found = store(tmp_path)
    with caplog.at_level(logging.WARNING):
        learned = found.load()
    assert learned.current.digest == bundles[0].digest
    assert learned.previous is None
    assert found.refused == {"model": 1}
    assert [record.message for record in caplog.records] == ["a file of what was learned is not used"]
    assert caplog.records[0].fields["why"]  # type: ignore[attr-defined]


def test_with_both_gone_everything_is_analytic(tmp_path: Path, bundles: list[Bundle]) -> None:
    store(tmp_path).save_models(bundles[1], bundles[0], [RECORD])
    for path in tmp_path.glob("model-*"):
        path.write_text("nonsense")
    found = store(tmp_path)
    learned = found.load()
    assert (learned.current, learned.previous) == (EMPTY, None)
    assert learned.records == [RECORD]
    assert found.refused == {"model": 2}


@pytest.mark.parametrize("file", ["models", "window-requests"])
def test_a_corrupt_file_costs_itself_alone(tmp_path: Path, bundles: list[Bundle], file: str) -> None:
    kept = store(tmp_path)
    kept.save_window(TrainingSet.of(REQUESTS, samples(3)))
    kept.save_models(bundles[0], None, ())
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:-1])
    found = store(tmp_path)
    learned = found.load()
    assert bool(learned.windows) == (file == "models")
    assert bool(learned.current.models) == (file != "models")
    assert sum(found.refused.values()) == 1


def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, bundles: list[Bundle]) -> None:
    (tmp_path / "models").write_bytes(seal(b'{"current": "../../etc/passwd"}'))
    found = store(tmp_path)
    assert found.load().current is EMPTY
    assert found.refused == {"models": 1}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_write_that_fails_leaves_the_old_pair(
    tmp_path: Path, bundles: list[Bundle], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    kept = store(tmp_path)
    kept.save_models(bundles[1], bundles[0], ())
    write, number = StateFolder.write, iter(range(10))

    def one_fails(self: StateFolder, name: str, data: bytes) -> bool:
        return next(number) != failing and write(self, name, data)

    monkeypatch.setattr(StateFolder, "write", one_fails)
    assert not kept.save_models(bundles[2], bundles[1], ())
    learned = store(tmp_path).load()
    assert learned.current.digest == bundles[1].digest
    assert learned.previous is not None
    assert learned.previous.digest == bundles[0].digest


def test_models_that_were_all_demoted_stay_demoted(tmp_path: Path, bundles: list[Bundle]) -> None:
    nothing = Bundle(50.0, {})
    store(tmp_path).save_models(nothing, bundles[0], ())
    learned = store(tmp_path).load()
    assert (learned.current.created_unix_s, dict(learned.current.models)) == (50.0, {})
    assert learned.previous is not None
    assert parse_bundle(nothing.to_text()).digest == nothing.digest
