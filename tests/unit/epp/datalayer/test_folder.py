"""The watched folder with real files: what is published as files come, change, break and go."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.folder import FolderSource
from heliotrope_epp.datalayer.resources import Resources

ENDPOINTS = 'endpoints:\n  - {name: a, address: "10.0.0.1", port: "8000"}\n'
TWO = ENDPOINTS + '  - {name: b, address: "10.0.0.2", port: "8000"}\n'
RESCAN_S = 0.3


def region(name: str, zone: str = "ES") -> str:
    return (
        f"apiVersion: heliotrope.io/v1alpha1\nkind: RegionProfile\nmetadata: {{name: {name}}}\n"
        f'spec: {{zone: {zone}, source: {{static: {{intensityGramsPerKwh: "120"}}}}}}\n'
    )


def policy(name: str, ttft: str = "500ms") -> str:
    return (
        f"apiVersion: heliotrope.io/v1alpha1\nkind: CarbonPolicy\nmetadata: {{name: {name}}}\n"
        f"spec: {{targetRefs: [{{name: pool}}], slo: {{ttft: {ttft}, tpot: 50ms}}}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "resources"
    folder.mkdir()
    (folder / "endpoints.yaml").write_text(ENDPOINTS)
    (folder / "regions.yaml").write_text(region("spain"))
    return folder


class Seen:
    def __init__(self, source: FolderSource) -> None:
        self.source = source
        self.all: list[Resources] = []

    @property
    def endpoints(self) -> list[str]:
        return [endpoint.name for endpoint in self.all[-1].endpoints]

    @property
    def zones(self) -> dict[str, str]:
        return {each.metadata.name: each.spec.zone for each in self.all[-1].regions}

    @property
    def problems(self) -> tuple[str, ...]:
        return self.all[-1].problems

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not (self.all and condition()):
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def watching(source: FolderSource) -> AsyncIterator[Seen]:
    seen = Seen(source)
    task = asyncio.create_task(source.run(seen.all.append))
    try:
        await seen.until(lambda: True)
        yield seen
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


async def test_changes_are_seen_without_waiting_for_a_rescan(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=600.0)) as seen:
        assert (seen.endpoints, seen.zones, seen.problems) == (["a"], {"spain": "ES"}, ())
        replace(folder / "endpoints.yaml", TWO)
        await seen.until(lambda: seen.endpoints == ["a", "b"])

        (folder / "more.yml").write_text(region("norway", '"NO"') + "---\n" + policy("green"))
        await seen.until(lambda: seen.zones == {"spain": "ES", "norway": "NO"})
        assert [each.metadata.name for each in seen.all[-1].policies] == ["green"]

        (folder / "regions.yaml").unlink()
        await seen.until(lambda: seen.zones == {"norway": "NO"})
        assert seen.problems == ()


async def test_nothing_is_published_while_nothing_changes(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=0.05)) as seen:
        await asyncio.sleep(0.3)
        (folder / "notes.txt").write_text("not ours")
        (folder / "deployment.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\n")
        (folder / ".hidden.yaml").write_text(region("hidden"))
        (folder / "regions.yaml").write_text("# same again\n" + region("spain"))
        await asyncio.sleep(0.5)

        assert len(seen.all) == 1


async def test_a_file_that_turns_bad_keeps_its_last_good_content(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        replace(folder / "regions.yaml", region("spain", "ES") + "---\n" + region("norway", "[]"))
        await seen.until(lambda: bool(seen.problems))
        assert seen.zones == {"spain": "ES"}
        assert "regions.yaml: document 2: spec.zone" in seen.problems[0]
        assert seen.source.healthy

        (folder / "other.yaml").write_text(region("brazil", "BR"))  # the rest of the folder still counts
        await seen.until(lambda: seen.zones == {"spain": "ES", "brazil": "BR"})

        replace(folder / "regions.yaml", region("spain", "PT"))
        await seen.until(lambda: seen.zones == {"spain": "PT", "brazil": "BR"})
        assert seen.problems == ()


async def test_bad_endpoints_stay_as_they_were_and_so_do_deleted_ones(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        replace(folder / "endpoints.yaml", ENDPOINTS.replace("8000", "none"))
        await seen.until(lambda: bool(seen.problems))
        assert seen.endpoints == ["a"]
        assert "endpoints.yaml: endpoints[0].port: 'none' is not a port" in seen.problems[0]
        assert not seen.source.healthy

        (folder / "endpoints.yaml").unlink()
        await seen.until(lambda: "does not exist" in seen.problems[0])
        assert seen.endpoints == ["a"]

        replace(folder / "endpoints.yaml", "endpoints: []")
        await seen.until(lambda: seen.endpoints == [])
        assert seen.problems == ()
        assert seen.source.healthy


async def test_a_slow_writer_never_empties_a_file(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        with (folder / "regions.yaml").open("w") as file:
            file.flush()
            await asyncio.sleep(0.8)  # an empty file for much longer than a burst of changes
            file.write(region("spain", "PT")[:70])
            file.flush()
            await asyncio.sleep(0.5)
            file.write(region("spain", "PT")[70:])
        await seen.until(lambda: seen.zones == {"spain": "PT"})

        assert all(each.regions for each in seen.all)


async def test_two_objects_of_one_name(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        (folder / "zz.yaml").write_text(
            region("spain", "PT") + "---\n" + region("norway") + "---\n" + region("norway", '"NO"')
        )
        await seen.until(lambda: len(seen.problems) == 2)

        assert seen.zones == {"spain": "ES", "norway": "ES"}
        assert "zz.yaml: RegionProfile spain is already in" in seen.problems[0]
        assert "zz.yaml: RegionProfile norway is already in" in seen.problems[1]


async def test_a_mounted_config_map_is_swapped_by_links(tmp_path: Path) -> None:
    folder, old, new = tmp_path / "mount", tmp_path / "mount" / "..1", tmp_path / "mount" / "..2"
    for each, text in ((old, ENDPOINTS), (new, TWO)):
        each.mkdir(parents=True)
        (each / "endpoints.yaml").write_text(text)
    (folder / "..data").symlink_to("..1")
    (folder / "endpoints.yaml").symlink_to("..data/endpoints.yaml")

    async with watching(FolderSource(folder, rescan_s=600.0)) as seen:
        (folder / "..data_tmp").symlink_to("..2")
        (folder / "..data_tmp").replace(folder / "..data")

        await seen.until(lambda: seen.endpoints == ["a", "b"])


async def test_the_folder_goes_and_comes_back(folder: Path) -> None:
    async with watching(FolderSource(folder, rescan_s=600.0)) as seen:
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        folder.rename(folder.with_name("gone"))  # noqa: ASYNC240 - at once: file by file they would be deletions
        await seen.until(lambda: not seen.source.healthy)
        assert seen.endpoints == ["a"]
        assert seen.zones == {"spain": "ES"}

        (copy / "endpoints.yaml").write_text(TWO)
        copy.rename(folder)
        await seen.until(lambda: seen.endpoints == ["a", "b"] and seen.source.healthy)

        replace(folder / "endpoints.yaml", ENDPOINTS)  # and the new folder is watched
        await seen.until(lambda: seen.endpoints == ["a"])


async def test_endpoints_in_a_file_elsewhere(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "list.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text('{"endpoints": [{"name": "j", "address": "10.0.0.9", "port": "1"}]}')

    async with watching(FolderSource(folder, endpoints_file=elsewhere, rescan_s=600.0)) as seen:
        assert (seen.endpoints, seen.zones) == (["j"], {"spain": "ES"})
        replace(elsewhere, TWO)
        await seen.until(lambda: seen.endpoints == ["a", "b"])


async def test_endpoints_that_are_read_once(folder: Path) -> None:
    async with watching(FolderSource(folder, watch_endpoints=False, rescan_s=0.05)) as seen:
        replace(folder / "endpoints.yaml", TWO)
        replace(folder / "regions.yaml", region("spain", "PT"))
        await seen.until(lambda: seen.zones == {"spain": "PT"})

        assert seen.endpoints == ["a"]


async def test_a_change_that_leaves_size_and_time_alone_is_seen(folder: Path) -> None:
    """As on file systems with coarse clocks, right after another change."""
    path = folder / "regions.yaml"
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        before = path.stat()
        with path.open("r+") as file:
            file.write(region("spain", "PT"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

        await seen.until(lambda: seen.zones == {"spain": "PT"})


async def test_a_file_replaced_by_one_of_the_same_age_is_seen(folder: Path) -> None:
    path, an_hour_ago = folder / "regions.yaml", time.time_ns() - 3_600 * 10**9
    os.utime(path, ns=(an_hour_ago, an_hour_ago))
    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        (folder / "new").write_text(region("spain", "PT"))
        os.utime(folder / "new", ns=(an_hour_ago, an_hour_ago))
        (folder / "new").replace(path)

        await seen.until(lambda: seen.zones == {"spain": "PT"})


def break_endpoints(folder: Path) -> None:
    (folder / "endpoints.yaml").unlink()


def break_regions(folder: Path) -> None:
    (folder / "regions.yaml").write_text(region("spain").replace("zone", "zona"))


def empty_policy(folder: Path) -> None:
    (folder / "policy.yaml").touch()


def too_large(folder: Path) -> None:
    (folder / "large.yaml").write_text("#" * (1024 * 1024 + 1))


def duplicate(folder: Path) -> None:
    (folder / "again.yaml").write_text(region("spain"))


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_endpoints, r"endpoints\.yaml: does not exist; list the endpoints there"),
        (break_regions, r"regions\.yaml: document 1: spec\.z"),
        (empty_policy, r"policy\.yaml: is empty; delete the file"),
        (too_large, r"large\.yaml: is larger than 1048576 bytes"),
        (duplicate, r"regions\.yaml: RegionProfile spain is already in .*again\.yaml"),
        (remove, r"resources: cannot be read: No such file or directory"),
    ],
)
async def test_at_the_start_everything_must_be_good(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    published: list[Resources] = []

    with pytest.raises(InvalidInputError, match=message):
        await asyncio.wait_for(FolderSource(folder).run(published.append), 5)

    assert published == []


async def test_a_policy_that_turns_bad_stays_as_it_was_until_it_is_mended_or_deleted(folder: Path) -> None:
    file = folder / "policy.yaml"
    file.write_text(policy("green"))

    def promises() -> list[float]:
        return [each.spec.slo.ttft.total_seconds() for each in seen.all[-1].policies]

    async with watching(FolderSource(folder, rescan_s=RESCAN_S)) as seen:
        replace(file, policy("green", ttft="soon"))
        await seen.until(lambda: bool(seen.problems))
        assert promises() == [0.5]
        assert list(seen.all[-1].outdated_policies) == ["default/green"]
        assert "spec.slo.ttft" in seen.all[-1].outdated_policies["default/green"]

        replace(file, policy("green", ttft="700ms"))
        await seen.until(lambda: promises() == [0.7])
        assert not seen.all[-1].outdated_policies

        replace(file, "{")
        await seen.until(lambda: bool(seen.problems))
        assert promises() == [0.7]
        file.unlink()
        await seen.until(lambda: promises() == [])
        assert (seen.problems, dict(seen.all[-1].outdated_policies)) == ((), {})


async def test_a_folder_without_endpoints_is_enough_where_none_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "regions.yaml").write_text(
        "apiVersion: heliotrope.io/v1alpha1\nkind: RegionProfile\nmetadata: {name: es}\n"
        'spec: {zone: ES, source: {static: {intensityGramsPerKwh: "1"}}}\n'
    )
    (tmp_path / "endpoints.yaml").write_text("endpoints: [{name: a, address: 10.0.0.1, port: '1'}]\n")
    source = FolderSource(tmp_path, endpoints_required=False)
    published: asyncio.Future[Resources] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(source.run(published.set_result))
    try:
        resources = await asyncio.wait_for(published, 10)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert ([r.metadata.name for r in resources.regions], resources.endpoints) == (["es"], ())
    assert source.healthy
