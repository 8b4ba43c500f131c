"""Programs as HiGHS solves them when asked once, with all that it brings: what `heliotrope.linear` is compared with."""

import highspy
import numpy as np

from heliotrope.errors import InfeasibleError, SolverError
from heliotrope.linear import Found, Limits, Program, QuietHighs, Row

NO_LIMITS = Limits()
NONE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)


class PlainModel:
    """In place of `heliotrope.linear.Model`: nothing is kept from one solve to the next."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def solve(self, cost: Row, limits: Limits = NO_LIMITS, start: Row | None = None) -> Found:
        """One program, passed whole; `start` is left aside."""
        program, solver = self._program, QuietHighs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("mip_rel_gap", limits.relative_gap)
        solver.setOptionValue("mip_abs_gap", limits.absolute_gap)
        for column in range(len(cost)):
            solver.addVar(float(program.low[column]), float(program.high[column]))
            solver.changeColCost(column, float(cost[column]))
            if program.whole[column]:
                solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        low, high = program.rows.bounds()
        lines, columns, values = program.rows.entries()
        for row in range(program.rows.count):
            here = np.flatnonzero(lines == row)
            solver.addRow(
                float(low[row]), float(high[row]), len(here), columns[here].astype(np.int32), values[here].astype(float)
            )
        solver.run()
        status = solver.getModelStatus()
        if status in NONE:
            raise InfeasibleError("none")
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(str(status))
        values = np.asarray(solver.getSolution().col_value)
        value = float(solver.getInfo().objective_function_value)
        return Found(values, value, value, True, 1, np.zeros(0))
