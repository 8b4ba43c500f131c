"""A study as a page that needs no other file."""

from collections.abc import Sequence
from html import escape

from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.scenario.plots import pictures
from heliotrope_sim.scenario.statement import statement
from heliotrope_sim.scenario.study import Cell, Study
from heliotrope_sim.scenario.summary import Summary, seed_words
from heliotrope_sim.scenario.table import sheets

_STYLE = (
    "body{font-family:sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;"
    "text-align:left}td.n,th.n{text-align:right;white-space:nowrap}"
)


def page(study: Study, cells: Sequence[Cell], summary: Summary) -> str:
    """Its HTML."""
    title = escape(study.scenario.name)
    quick = " Quick run: the first tenth of the time." if study.quick else ""
    parts = [
        f"<h1>{title}</h1>",
        (
            f"<p>heliotrope simulate, seed {study.scenario.seed}, from {escape(study.scenario.start.isoformat())}, "
            f"{len(study.built.workload):,} requests at the first point.{quick}</p>"
        ),
    ]
    heads = len(summary.keys) + 1
    for name, columns, rows in sheets(summary):
        parts.append(f"<h2>{escape(name)}</h2>{_table(columns, rows, heads)}")
    parts += [f"<p>{escape(line)}</p>" for line in (*seed_words(summary), *statement(study, summary))]
    parts += [_picture(each) for each in pictures(cells, summary)]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def _picture(picture: Picture) -> str:
    name = escape(picture.title)
    return f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{picture.png_base64}">'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], heads: int) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="{"n" if i >= heads else ""}">{escape(text)}</{tag}>' for i, text in enumerate(texts)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', columns)}</tr>{lines}</table>"
