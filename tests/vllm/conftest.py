"""What the tests of a real vLLM need; they run only where pytest is asked for them: `make test-vllm`."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import openai
import pytest
from e2e.stack import Stack
from tests.vllm import install
from tests.vllm.engine import RealEngine
from tests.vllm.stack import running_stack

MARKER = "vllm"
_LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the real engine out unless `-m` speaks of it."""
    if MARKER in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker(MARKER)]
    config.stash[_LEFT_OUT] = len(left_out)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say what was left out and why."""
    count = config.stash.get(_LEFT_OUT, 0)
    reason = "a real vLLM takes 6 GB of disk; `make test-vllm` runs them"
    return [f"left out: {count} tests in tests/vllm ({reason})"] if count else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install vLLM before the tests' time limits run, with its progress on the terminal."""
    wanted = any(item.get_closest_marker(MARKER) for item in session.items)
    if not wanted or session.config.option.collectonly or install.installed():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            install.ensure()
        except install.VllmUnavailableError as error:
            install.say(str(error))  # the fixture skips the tests with this reason
        except install.VllmInstallError as error:
            pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print on the terminal although output is captured."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def print_now(line: str) -> None:
        with capture.global_and_fixture_disabled():
            install.say(f"\n{line}")

    return print_now


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of an environment that has vLLM."""
    try:
        return install.ensure()
    except install.VllmUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine(
    vllm_python: Path, tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[RealEngine]:
    """A vLLM; starting one takes a minute."""
    engine = RealEngine.start(vllm_python, tmp_path_factory.mktemp("vllm"), say)
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture
async def stack(engine: RealEngine, tmp_path: Path) -> AsyncIterator[Stack]:
    """The picker's own process behind a real Envoy, in front of the engine."""
    async with running_stack(tmp_path, engine.port) as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    """An OpenAI client of the gateway."""
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="unused", max_retries=0, timeout=300) as client:
        yield client
