"""What the cluster looked like, second by second, and a picture of it."""

import asyncio
import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

LOOK_S = 0.5

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """One look; by the names of regions, variants, NodePowers and Jobs."""

    seconds: float
    """Since the record began."""
    grams_per_kwh: Mapping[str, float]
    desired: Mapping[str, int | None]
    current: Mapping[str, int | None]
    active: Mapping[str, int | None]
    told: Mapping[str, str]
    """Messages of the conditions of variants and policies, by `name/type`."""
    clocks_mhz: Mapping[str, int | None]
    """What NodePowers ask for, the lowest of each variant's nodes."""
    resting: Mapping[str, int]
    """Pods at an idle clock, by variant."""
    suspended: Mapping[str, bool]
    sent_per_second: float
    late: int
    """Requests so far that broke their promise or failed."""

    def awake(self, variant: str) -> int | None:
        """Engines of a variant that are awake; where nobody says, its replicas."""
        active = self.active.get(variant)
        return self.current.get(variant) if active is None else active


@dataclass
class Record:
    """Looks until it is left; use as an async context manager."""

    url: str
    namespace: str
    sent: list[float] = field(default_factory=list)
    """When requests are sent, as seconds of the record, those to come included."""
    late: list[float] = field(default_factory=list)
    """When requests that broke their promise had been sent."""
    moments: list[Moment] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _began: float = 0.0

    async def __aenter__(self) -> "Record":
        self._began = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name="record")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def now(self) -> float:
        """Seconds since the record began."""
        return asyncio.get_running_loop().time() - self._began

    def between(self, start: float, end: float) -> list[Moment]:
        """The looks of a stretch."""
        return [moment for moment in self.moments if start <= moment.seconds < end]

    async def _run(self) -> None:
        ours = "/apis/heliotrope.io/v1alpha1"
        paths = {
            "regions": f"{ours}/regionprofiles",
            "variants": f"{ours}/namespaces/{self.namespace}/workloadvariants",
            "policies": f"{ours}/namespaces/{self.namespace}/carbonpolicies",
            "powers": f"{ours}/nodepowers",
            "jobs": f"/apis/batch/v1/namespaces/{self.namespace}/jobs",
        }
        async with httpx.AsyncClient(base_url=self.url, timeout=30.0) as http:
            while True:
                answers = {name: await http.get(path) for name, path in paths.items()}
                # A kind whose CRD has just been installed may not be served yet.
                if all(answer.status_code == httpx.codes.OK for answer in answers.values()):
                    self.moments.append(self._moment({name: each.json()["items"] for name, each in answers.items()}))
                await asyncio.sleep(LOOK_S)

    def check(self) -> None:
        """Raise what ended the looking, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()

    def _moment(self, found: Mapping[str, list[Document]]) -> Moment:
        now = self.now
        variants = {each["metadata"]["name"]: each.get("status", {}) for each in found["variants"]}
        clocks: dict[str, int | None] = dict.fromkeys(variants)
        resting = dict.fromkeys(variants, 0)
        for power in found["powers"]:
            for intent in power["spec"].get("intents", ()):
                name, clock = intent["variant"], intent.get("smClockMhz")
                if clock is not None:
                    clocks[name] = clock if (before := clocks.get(name)) is None else min(before, clock)
                resting[name] = resting.get(name, 0) + len(intent.get("restingPods", ()))
        return Moment(
            seconds=now,
            grams_per_kwh={
                each["metadata"]["name"]: float(each["status"]["intensity"]["value"])
                for each in found["regions"]
                if each.get("status", {}).get("intensity")
            },
            desired={name: status.get("desiredReplicas") for name, status in variants.items()},
            current={name: status.get("currentReplicas") for name, status in variants.items()},
            active={name: status.get("activeEngines") for name, status in variants.items()},
            told={
                f"{each['metadata']['name']}/{condition['type']}": f"{condition['reason']}: {condition['message']}"
                for each in (*found["variants"], *found["policies"])
                for condition in each.get("status", {}).get("conditions", ())
            },
            clocks_mhz=clocks,
            resting=resting,
            suspended={each["metadata"]["name"]: bool(each["spec"].get("suspend")) for each in found["jobs"]},
            sent_per_second=sum(now - 3.0 < at <= now for at in self.sent) / 3.0,
            late=len(self.late),
        )


def write(folder: Path, moments: Sequence[Moment], marks: Mapping[str, float]) -> Path:
    """timeline.json, and report.html with the picture; `marks` are seconds of events. Returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "timeline.json").write_text(
        json.dumps({"marks": dict(marks), "moments": [asdict(moment) for moment in moments]}) + "\n", encoding="utf-8"
    )
    page = folder / "report.html"
    picture = base64.b64encode(_picture(moments, marks)).decode()
    page.write_text(
        "<!doctype html><meta charset=utf-8><title>A day of the operator</title>"
        "<style>body{font-family:sans-serif;margin:2rem auto;max-width:75rem}img{max-width:100%}</style>"
        "<h1>A day of the operator</h1><p>Grids, load, replicas, engines at rest, clocks and Jobs of one day in a few "
        "minutes; dashed lines mark a burst and the end of the policy.</p>"
        f'<img alt="timeline" src="data:image/png;base64,{picture}">\n',
        encoding="utf-8",
    )
    return page


def _picture(moments: Sequence[Moment], marks: Mapping[str, float]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 13), layout="constrained")
    axes = figure.subplots(6, 1, sharex=True)
    times = [moment.seconds for moment in moments]
    names = sorted({name for moment in moments for name in moment.desired})
    for region in sorted({name for moment in moments for name in moment.grams_per_kwh}):
        axes[0].step(times, [m.grams_per_kwh.get(region, float("nan")) for m in moments], label=region, where="post")
    axes[0].set_ylabel("gCO2e/kWh")
    axes[1].plot(times, [m.sent_per_second for m in moments], label="sent", color="black")
    axes[1].set_ylabel("requests/s")
    late = axes[1].twinx()
    late.plot(times, [m.late for m in moments], color="tab:red", label="late or failed")
    late.set_ylabel("late, total", color="tab:red")
    for name in names:
        axes[2].step(times, [_number(m.desired.get(name)) for m in moments], label=f"{name} wanted", where="post")
        axes[2].step(
            times, [_number(m.current.get(name)) for m in moments], ls=":", label=f"{name} there", where="post"
        )
        axes[3].step(times, [_number(m.active.get(name)) for m in moments], label=f"{name} awake", where="post")
        axes[4].step(times, [_number(m.clocks_mhz.get(name)) for m in moments], label=name, where="post")
    axes[2].set_ylabel("replicas")
    axes[3].set_ylabel("awake engines")
    axes[4].set_ylabel("SM clock, MHz")
    for place, job in enumerate(sorted({name for m in moments for name in m.suspended})):
        held = [1.0 if m.suspended.get(job) else float("nan") for m in moments]
        runs = [1.0 if m.suspended.get(job) is False else float("nan") for m in moments]
        axes[5].plot(times, [place * value for value in held], lw=6, color="tab:gray")
        axes[5].plot(times, [place * value for value in runs], lw=6, color="tab:green")
        axes[5].text(times[0], place + 0.15, job, fontsize="small")
    axes[5].set_ylabel("Jobs: grey waits")
    axes[5].set_xlabel("seconds")
    for axis in axes:
        for at in marks.values():
            axis.axvline(at, ls="--", lw=0.8, color="tab:purple")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="x-small", loc="upper right", ncols=2)
    for label, at in marks.items():
        axes[0].text(at, axes[0].get_ylim()[1], label, fontsize="x-small", va="bottom")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _number(value: int | None) -> float:
    return float("nan") if value is None else float(value)
