"""What survives a restart: the windows, the current and the previous models, and what became of each training.

Models are files named by their digest. One small file names the current and the previous one, so a crash between two
writes leaves either the old pair or the new one.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from heliotrope.predict.bundle import EMPTY, Bundle, parse_bundle
from heliotrope.predict.forest import InvalidModelError
from heliotrope.predict.targets import TABLES
from heliotrope.predict.trainingset import InvalidSamplesError, TrainingSet
from heliotrope_epp.learning.folder import CorruptStateError, StateFolder, seal, unseal
from heliotrope_epp.learning.verdicts import TrainingRecord

INDEX = "models"
MODEL_FILES = "model-*"
MAX_RECORDS = 100

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

_log = logging.getLogger(__name__)


class _Index(msgspec.Struct):
    current: Digest | None = None
    previous: Digest | None = None
    records: list[TrainingRecord] = []


@dataclass(slots=True)
class Learned:
    """What was found on disk."""

    current: Bundle = EMPTY
    previous: Bundle | None = None
    records: list[TrainingRecord] = field(default_factory=list)
    windows: list[TrainingSet] = field(default_factory=list)


class Store:
    """Blocks on the disk; call it on a thread. A file that cannot be used is counted, told and left out."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.refused: Counter[str] = Counter()
        """Files that could not be used, by what they were to hold: `window`, `models` or `model`."""

    def load(self) -> Learned:
        """Everything that is there and whole. Without the current models the previous ones are current."""
        index = self._index()
        bundles = [bundle for bundle in map(self._bundle, (index.current, index.previous)) if bundle is not None]
        windows = [window for window in map(self._window, TABLES) if window is not None]
        return Learned(
            current=bundles[0] if bundles else EMPTY,
            previous=bundles[1] if len(bundles) > 1 else None,
            records=index.records[-MAX_RECORDS:],
            windows=windows,
        )

    def save_window(self, window: TrainingSet) -> bool:
        """Replace the window of a table; False if it could not be written."""
        return self.folder.path is not None and self.folder.write(_window_file(window.table.name), window.to_bytes())

    def save_models(self, current: Bundle, previous: Bundle | None, records: Sequence[TrainingRecord]) -> bool:
        """Replace models and records of trainings; False, with the old ones still there, if that is not possible."""
        if self.folder.path is None:
            return False
        digests: list[str | None] = []
        for bundle in (current, previous):
            if bundle is None or not bundle.created_unix_s:
                digests.append(None)
                continue
            digest = bundle.digest
            if not self.folder.write(_model_file(digest), bundle.to_text().encode()):
                return False
            digests.append(digest)
        index = _Index(digests[0], digests[1], list(records)[-MAX_RECORDS:])
        if not self.folder.write(INDEX, seal(msgspec.json.encode(index))):
            return False
        self.folder.keep_only(MODEL_FILES, [_model_file(digest) for digest in digests if digest])
        return True

    def _index(self) -> _Index:
        try:
            data = self.folder.read(INDEX)
            return _Index() if data is None else msgspec.json.decode(unseal(data), type=_Index)
        except (CorruptStateError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._refuse("models", INDEX, error)
            return _Index()

    def _bundle(self, digest: str | None) -> Bundle | None:
        if digest is None:
            return None
        try:
            data = self.folder.read(_model_file(digest))
            if data is not None:
                return parse_bundle(data.decode())
            self._refuse("model", _model_file(digest), "it is missing")
        except (CorruptStateError, InvalidModelError, UnicodeDecodeError) as error:
            self._refuse("model", _model_file(digest), error)
        return None

    def _window(self, table: str) -> TrainingSet | None:
        try:
            data = self.folder.read(_window_file(table))
            return None if data is None else TrainingSet.from_bytes(data)
        except (CorruptStateError, InvalidSamplesError) as error:
            self._refuse("window", _window_file(table), error)
            return None

    def _refuse(self, what: str, name: str, why: object) -> None:
        self.refused[what] += 1
        fields = {"path": str(self.folder.path), "file": name, "why": str(why)}
        _log.warning("a file of what was learned is not used", extra={"fields": fields})


def _model_file(digest: str) -> str:
    return f"model-{digest}"


def _window_file(table: str) -> str:
    return f"window-{table}"
