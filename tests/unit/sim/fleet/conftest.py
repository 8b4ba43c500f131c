import pytest
from tests.unit.sim.fleet.single import Arrival, one_site, settings, workload_of

from heliotrope.engine.model import EngineModel
from heliotrope_sim.fleet.simulate import simulate


@pytest.fixture(scope="session", autouse=True)
def compiled_kernel(model: EngineModel) -> None:
    """Compiles the kernel once, where its machine code is not cached yet, so that no test's time holds it."""
    simulate(one_site(model), workload_of([Arrival(0, 5, 2)]), settings())
