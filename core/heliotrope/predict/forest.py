"""LightGBM's text format as flat arrays, every index checked before anything is computed with it.

A file that was cut off, edited or written by an attacker must be refused here: compiled code uses the indices without
looking. Each tree must be a tree: every node reached exactly once from the root.

What comes out is no tree any more, but questions to which the order does not matter (QuickScorer: Lucchese et al.,
SIGIR 2015). The leaves of a tree, from left to right, are the bits of a set, lowest first. A node that sends a row to
the right takes the leaves on its left out of the set; the first leaf that remains is the row's. So one question is put
to many rows with a few instructions of the machine, and no row waits for an index that it has to follow.

Nodes that do not simply compare (categories, zeros that mean missing) compare a *derived* column instead, computed once
per row and question, however many nodes ask it. The direction of NaN is a flag.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError

MAX_TREES = 1_000
MAX_LEAVES = 256
WORD_LEAVES = 32
"""Leaves in one word of a set."""
SLOT_FACTOR = 0x077CB531
SLOT_SHIFT = 27
"""A de Bruijn sequence: bit · factor >> shift, modulo `WORD_LEAVES`, is another number for each of a word's bits."""
MAX_CATEGORY_WORDS = 4_096
"""32-bit words of all bitsets of a tree together."""
MAX_LEAF = 100.0
"""Leaves are logarithms of ratios; beyond this they are no prediction."""

_CATEGORICAL_BIT = 1
_DEFAULT_LEFT_BIT = 2
_MISSING_SHIFT = 2
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = range(3)


class Derived(IntEnum):
    """What a derived column holds."""

    ZERO_IS_MISSING = 1
    """The source's value, with NaN for 0."""
    CATEGORY = 2
    """0 if the source's bit is set, else 1; NaN, negative and unseen values are not set."""


class InvalidModelError(InvalidInputError):
    """A model's text is cut off, was changed, or cannot be walked safely; the model before it is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All trees of one target, nodes and leaves in one numbering."""

    width: int
    """F: features of a row."""
    questions_end: NDArray[np.int32]
    """Of each tree; it begins where the tree before it ends. So for the next."""
    words_end: NDArray[np.int32]
    column: NDArray[np.int32]
    """Of each question: a column of the row, or F + a derived column."""
    threshold: NDArray[np.float64]
    """Right if the value is above it."""
    nan_right: NDArray[np.uint8]
    """1: NaN goes right."""
    word: NDArray[np.int32]
    """Of the tree's words, the one that an answer changes; a node with leaves of several on its left asks for each."""
    kept: NDArray[np.int64]
    """The bits that remain of it when the answer is right."""
    value: NDArray[np.float64]
    """Of each leaf, `WORD_LEAVES` of each word; a leaf's place there is given by `SLOT_FACTOR`."""
    source: NDArray[np.int32]
    """The row's column that each derived column is computed from."""
    derived: NDArray[np.uint8]
    """`Derived` of each derived column."""
    bits_begin: NDArray[np.int32]
    bits_words: NDArray[np.int32]
    """Where each derived column's bitset is in `bits`, and its length in words."""
    bits: NDArray[np.uint32]

    @property
    def trees(self) -> int:
        """How many."""
        return len(self.questions_end)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of them, in the order of the fields, as compiled loops take them."""
        return tuple([getattr(self, name) for name in _ARRAYS])


def parse_forest(text: str, feature_names: tuple[str, ...], path: str = "model") -> Forest:
    """Read the trees of a LightGBM regression model.

    Args:
        text: what `Booster.model_to_string` writes, up to "end of trees" at least.
        feature_names: the columns that the rows will have, in this order; the model must be of the same.
        path: names the model in errors.

    Raises:
        InvalidModelError: if anything is missing, unknown, out of range, or not a tree.
    """
    head, end, _ = text.partition("\nend of trees")
    if not end:
        raise InvalidModelError(path, "is cut off: 'end of trees' is missing")
    blocks = head.split("\nTree=")
    if "\naverage_output" in blocks[0]:
        raise InvalidModelError(f"{path}.average_output", "is not supported; train with boosting: gbdt")
    _check_header(_pairs(blocks[0], path), feature_names, path)
    if not 1 <= len(blocks) - 1 <= MAX_TREES:
        raise InvalidModelError(path, f"must have 1 to {MAX_TREES} trees, not {len(blocks) - 1}")
    builder = _Builder(len(feature_names))
    for number, block in enumerate(blocks[1:]):
        where = f"{path}.tree[{number}]"
        first, _, rest = block.partition("\n")
        if first.strip() != str(number):
            raise InvalidModelError(where, f"is numbered {first.strip()[:20]!r}; trees are missing or out of order")
        builder.add(_pairs(rest, where), where)
    return builder.build()


def joined(forests: Sequence[Forest]) -> tuple[Forest, NDArray[np.int32]]:
    """Forests of the same rows as one, and the index of the first tree of each (with the total behind the last)."""
    width = forests[0].width
    parts: dict[str, list[Any]] = {name: [] for name in _ARRAYS}
    questions = words = columns = bits = 0
    begins = [0]
    for forest in forests:
        assert forest.width == width
        for name in _ARRAYS:
            parts[name].append(getattr(forest, name))
        parts["questions_end"][-1] = forest.questions_end + np.int32(questions)
        parts["words_end"][-1] = forest.words_end + np.int32(words)
        parts["column"][-1] = np.where(forest.column >= width, forest.column + np.int32(columns), forest.column)
        parts["bits_begin"][-1] = forest.bits_begin + np.int32(bits)
        questions += len(forest.column)
        words += len(forest.value) // WORD_LEAVES
        columns += len(forest.source)
        bits += len(forest.bits)
        begins.append(begins[-1] + forest.trees)
    return _forest(width, parts), np.array(begins, dtype=np.int32)


_ARRAYS = {
    "questions_end": np.int32,
    "words_end": np.int32,
    "column": np.int32,
    "threshold": np.float64,
    "nan_right": np.uint8,
    "word": np.int32,
    "kept": np.int64,
    "value": np.float64,
    "source": np.int32,
    "derived": np.uint8,
    "bits_begin": np.int32,
    "bits_words": np.int32,
    "bits": np.uint32,
}


_SLOTS = np.array([((1 << place) * SLOT_FACTOR >> SLOT_SHIFT) % WORD_LEAVES for place in range(WORD_LEAVES)])


def _forest(width: int, parts: dict[str, list[Any]]) -> Forest:
    def column(name: str, dtype: Any) -> Any:
        return np.concatenate([np.zeros(0, dtype=dtype), *parts[name]]).astype(dtype)

    return Forest(width=width, **{name: column(name, dtype) for name, dtype in _ARRAYS.items()})


def _pairs(block: str, path: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in block.splitlines():
        name, equals, value = line.partition("=")
        if equals and name in pairs:
            raise InvalidModelError(f"{path}.{name[:40]}", "is there twice")
        if equals:
            pairs[name] = value
    return pairs


_OBJECTIVES = ("regression", "regression_l1")
"""Whose trees add up to the prediction itself."""


def _check_header(header: dict[str, str], feature_names: tuple[str, ...], path: str) -> None:
    if header.get("version") != "v4":
        raise InvalidModelError(f"{path}.version", f"must be v4, not {header.get('version')!r}")
    if header.get("num_class") != "1" or header.get("num_tree_per_iteration") != "1":
        raise InvalidModelError(f"{path}.num_class", "must be 1: a regression predicts one number")
    if header.get("objective", "").partition(" ")[0] not in _OBJECTIVES:
        raise InvalidModelError(f"{path}.objective", f"must be regression, not {header.get('objective')!r}")
    if tuple(header.get("feature_names", "").split(" ")) != feature_names:
        raise InvalidModelError(f"{path}.feature_names", "are not the features of this version; train again")


class _Builder:
    """Collects trees; does not leave `parse_forest`."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._questions = 0
        self._words = 0
        self._parts: dict[str, list[Any]] = {name: [] for name in _ARRAYS}
        self._derived: dict[tuple[int, Derived, bytes], int] = {}

    def add(self, tree: dict[str, str], path: str) -> None:
        if tree.get("is_linear", "0") != "0":
            raise InvalidModelError(f"{path}.is_linear", "is not supported; leaves must be constants")
        leaves = int(_whole(tree, "num_leaves", 1, path, 1, MAX_LEAVES)[0])
        inner = leaves - 1
        values = _numbers(tree, "leaf_value", leaves, path)
        if np.abs(values).max() > MAX_LEAF:
            raise InvalidModelError(f"{path}.leaf_value", f"must lie within ±{MAX_LEAF:g}")
        feature = _whole(tree, "split_feature", inner, path, 0, self._width - 1)
        # A split of what is known from what is unknown has no bound: LightGBM writes inf.
        threshold = _numbers(tree, "threshold", inner, path, unbounded=True)
        decision = _whole(tree, "decision_type", inner, path, 0, 11)
        left = _whole(tree, "left_child", inner, path, -leaves, inner - 1)
        right = _whole(tree, "right_child", inner, path, -leaves, inner - 1)
        # LightGBM writes leaf j as -j - 1; here leaves follow the inner nodes.
        left, right = (np.where(each < 0, inner - each - 1, each) for each in (left, right))
        first, middle = _left_leaves(left, right, leaves, path)

        missing = decision >> _MISSING_SHIFT
        categorical = (decision & _CATEGORICAL_BIT) != 0
        # Where training saw no missing values, LightGBM reads NaN as 0.
        nan_right = np.where(missing == _MISSING_NONE, threshold < 0.0, (decision & _DEFAULT_LEFT_BIT) == 0)
        for node in np.flatnonzero(~categorical & (missing == _MISSING_ZERO)):
            feature[node] = self._column(feature[node], Derived.ZERO_IS_MISSING, b"")
        sets = _category_sets(tree, inner, path)
        for node in np.flatnonzero(categorical):
            index = threshold[node]
            if index not in range(len(sets)):
                raise InvalidModelError(f"{path}.threshold", "names a set of categories that does not exist")
            feature[node] = self._column(feature[node], Derived.CATEGORY, sets[int(index)].tobytes())
            threshold[node] = 0.5

        places = first[inner:]
        words = -(-leaves // WORD_LEAVES)
        by_place = np.zeros(words * WORD_LEAVES)
        by_place[places // WORD_LEAVES * WORD_LEAVES + _SLOTS[places % WORD_LEAVES]] = values
        for word in range(words):
            begin = word * WORD_LEAVES
            low, high = np.clip(first[:inner] - begin, 0, WORD_LEAVES), np.clip(middle - begin, 0, WORD_LEAVES)
            asks = high > low
            one = np.int64(1)
            self._put("column", feature[asks])
            self._put("threshold", threshold[asks])
            self._put("nan_right", nan_right[asks])
            self._put("word", np.full(int(asks.sum()), word))
            self._put("kept", ~((one << high[asks]) - (one << low[asks])))
            self._questions += int(asks.sum())
        self._words += words
        self._put("value", by_place)
        self._put("questions_end", [self._questions])
        self._put("words_end", [self._words])

    def _put(self, name: str, *parts: Any) -> None:
        self._parts[name].extend(np.asarray(part) for part in parts)

    def _column(self, source: int, derived: Derived, bits: bytes) -> int:
        key = (int(source), derived, bits)
        return self._width + self._derived.setdefault(key, len(self._derived))

    def build(self) -> Forest:
        words = 0
        for source, derived, bits in self._derived:
            mask = np.frombuffer(bits, dtype=np.uint32)
            self._put("source", [source])
            self._put("derived", [derived])
            self._put("bits_begin", [words])
            self._put("bits_words", [len(mask)])
            self._put("bits", mask)
            words += len(mask)
        return _forest(self._width, self._parts)


def _category_sets(tree: dict[str, str], inner: int, path: str) -> list[NDArray[np.uint32]]:
    """The bitsets of a tree's categorical nodes, which name one by its index in their threshold."""
    count = int(_whole(tree, "num_cat", 1, path, 0, inner)[0])
    if count == 0:
        return []
    boundaries = _whole(tree, "cat_boundaries", count + 1, path, 0, MAX_CATEGORY_WORDS)
    if boundaries[0] != 0 or (np.diff(boundaries) < 1).any():
        raise InvalidModelError(f"{path}.cat_boundaries", "must rise from 0")
    bits = _whole(tree, "cat_threshold", int(boundaries[-1]), path, 0, 2**32 - 1).astype(np.uint32)
    return [bits[begin:end] for begin, end in pairwise(boundaries)]


def _left_leaves(
    left: NDArray[np.int64], right: NDArray[np.int64], leaves: int, path: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of leaves, counted from left to right.

    Every node must be reached, and exactly once.

    Args:
        left: of each inner node, its child; leaves are numbered behind the inner nodes.
        right: see `left`.
        leaves: how many.
        path: of the tree, for errors.

    Returns:
        Of each inner node and leaf, the first place below it; of each inner node, the end of its left child's places.
    """
    inner = len(left)
    seen = np.zeros(inner + leaves, dtype=np.bool_)
    levels: list[NDArray[np.int64]] = []
    level = np.zeros(1, dtype=np.int64)
    while True:
        if seen[level].any() or len(np.unique(level)) != len(level):
            raise InvalidModelError(path, "is no tree: a node has two parents")
        seen[level] = True
        parents = level[level < inner]
        if not len(parents):
            break
        levels.append(parents)
        level = np.concatenate([left[parents], right[parents]])
    if not seen.all():
        raise InvalidModelError(path, "is no tree: a node cannot be reached from the root")
    sizes = np.ones(inner + leaves, dtype=np.int64)
    for parents in reversed(levels):
        sizes[parents] = sizes[left[parents]] + sizes[right[parents]]
    first = np.zeros(inner + leaves, dtype=np.int64)
    for parents in levels:
        first[left[parents]] = first[parents]
        first[right[parents]] = first[parents] + sizes[left[parents]]
    return first, first[:inner] + sizes[left]


def _numbers(tree: dict[str, str], name: str, count: int, path: str, *, unbounded: bool = False) -> NDArray[np.float64]:
    text = tree.get(name)
    if text is None:
        if count == 0:
            return np.zeros(0)
        raise InvalidModelError(f"{path}.{name}", "is missing; the file is cut off")
    try:
        numbers = np.array([float(each) for each in text.split()], dtype=np.float64)
    except ValueError:
        raise InvalidModelError(f"{path}.{name}", "must be numbers") from None
    if len(numbers) != count:
        raise InvalidModelError(f"{path}.{name}", f"must have {count} numbers, not {len(numbers)}")
    if not all(math.isfinite(each) or (unbounded and each == math.inf) for each in numbers):
        raise InvalidModelError(f"{path}.{name}", "must be finite")
    return numbers


def _whole(tree: dict[str, str], name: str, count: int, path: str, low: int, high: int) -> NDArray[np.int64]:
    numbers = _numbers(tree, name, count, path)
    if ((numbers < low) | (numbers > high) | (numbers != np.floor(numbers))).any():
        raise InvalidModelError(f"{path}.{name}", f"must be whole numbers from {low} to {high}")
    return numbers.astype(np.int64)
