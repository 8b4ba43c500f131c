"""Sentences and tables on standard output, for a terminal or for a file."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 180
"""Columns where nobody says how many there are."""


def show(sentences: Iterable[str], tables: Iterable[Table]) -> None:
    """Print them; in a terminal sentences are wrapped, in a file each is a line."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for sentence in sentences:
        console.print(sentence, markup=False, soft_wrap=not console.is_terminal)
    for table in tables:
        console.print(table)
