"""`heliotrope reproduce sicp`, from settings to the report."""

from heliotrope_sim.reproduce.experiment import Experiment, Settings
from heliotrope_sim.reproduce.report import Picture, Report, Sheet
from heliotrope_sim.reproduce.roadmap import pictures, prediction, questions, tables
from heliotrope_sim.reproduce.roadmap.studies import make
from heliotrope_sim.reproduce.row import Row
from heliotrope_sim.reproduce.workers import Workers

TITLE = "The experimental roadmap of the sustainable inference control plane (§8, §9), run"
SUBSTITUTES = (
    "The paper proposes these experiments and has no figures: its hypotheses are judged, nothing is compared.",
    "Testbed: simulated engines with the step times and energies of the shipped profiles, eight to twelve endpoints.",
    "Regions: four, with an A100 and an H100 endpoint of 8B each, and one of 70B where models are routed.",
    "Workloads: seven documented generators; only short chat and code have lengths near a public trace's.",
    "Carbon: Electricity Maps, hourly, lifecycle, average, 2022, by the seed's hour. PUE 1.10 to 1.20.",
    "Rents, water and embodied carbon (four years, by time) are assumptions, equal for all arms.",
    "Energy: steps and transfers to the end; standing power and hosts, which stay on, for as long as load is offered.",
    "Load 1 is what the endpoints serve at a batch of 32 without any reuse; runs are some tens of seconds long.",
)


def run(settings: Settings, workers: Workers) -> Report:
    """Run what is wanted of the matrix, the questions and the ablations."""
    found = make(settings, workers)
    rows: list[Row] = []
    sheets: list[Sheet] = []
    plots: list[Picture] = []
    if settings.wants("rq1"):
        predicted = prediction.predict(found)
        rows += prediction.rows(predicted)
        plots.append(pictures.prediction(predicted))
    for part, of, plot in (
        ("rq2", questions.transfer_rows, pictures.transfers),
        ("rq3", questions.phase_rows, pictures.phases),
        ("rq4", questions.session_rows, pictures.sessions),
        ("rq5", questions.model_rows, pictures.models),
        ("rq6", questions.graph_rows, pictures.graphs),
    ):
        if settings.wants(part):
            rows += of(found)
            plots.append(plot(found))
    if settings.wants("rq5"):
        plots.insert(0, pictures.energy_quality(found))
    if settings.wants("matrix"):
        rows += tables.baseline_rows(found)
        sheets += tables.vector_sheets(found)
        plots.insert(0, pictures.carbon_latency(found))
    if settings.wants("ablation"):
        rows += tables.ablation_rows(found)
        sheets.append(tables.model_sheet(found))
    return Report(
        experiment=SICP.name,
        title=TITLE,
        seed=settings.seed,
        quick=settings.quick,
        substitutes=SUBSTITUTES,
        rows=tuple(rows),
        sheets=tuple(sheets),
        pictures=tuple(plots),
    )


SICP = Experiment(
    name="sicp",
    source="Sisodia, Toward Sustainable Distributed LLM Inference: A Systems Synthesis and Research Agenda (2026)",
    run=run,
    parts=("rq1", "rq2", "rq3", "rq4", "rq5", "rq6", "matrix", "ablation"),
)
