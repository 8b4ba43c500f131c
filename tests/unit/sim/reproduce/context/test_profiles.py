import numpy as np

from heliotrope_sim.reproduce.context.analytic import analytic_rows
from heliotrope_sim.reproduce.context.profiles import (
    DEPLOYMENTS,
    GPUS,
    MODEL_OF,
    PAIR_OF,
    POOL_OF,
    REFERENCE_PAIR,
    REGION_OF,
    TABLE_6,
    profile,
)


def test_equation_8_gives_table_6() -> None:
    p = profile()
    printed = np.array(TABLE_6)
    np.testing.assert_allclose(p.relative_energy, printed[:, 0], atol=6e-4)
    np.testing.assert_allclose(p.prefill_tokens_per_second, printed[:, 1], rtol=5e-4)
    np.testing.assert_allclose(p.utilisation, printed[:, 2], atol=6e-3)
    np.testing.assert_allclose(p.decode_tokens_per_second, printed[:, 3], atol=0.06)


def test_the_reference_costs_0_305_joules_per_token() -> None:
    assert round(float(profile().input_joules[REFERENCE_PAIR]), 3) == 0.305


def test_sixty_deployments_are_numbered_through() -> None:
    assert DEPLOYMENTS == 60
    assert len(set(zip(PAIR_OF.tolist(), REGION_OF.tolist(), strict=True))) == 60
    assert (PAIR_OF // len(GPUS) == MODEL_OF).all()
    assert len(set(zip(MODEL_OF.tolist(), POOL_OF.tolist(), strict=True))) == 60


def test_the_analytic_rows_hold() -> None:
    assert all(row.holds for row in analytic_rows())
