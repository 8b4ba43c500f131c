"""Mixed-integer linear programs by HiGHS: one thread, no output, and the same answer for the same program.

Import it where it is first needed: HiGHS takes a while to load. Its own clock is the only limit that is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InfeasibleError, SolverError

Row = NDArray[np.float64]
Index = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_LIMIT = 2**31 - 1
"""What HiGHS takes for no limit of nodes."""


class QuietHighs(highspy.Highs):
    """HiGHS greets on standard output as soon as callbacks are enabled, which its constructor does."""

    def enableCallbacks(self) -> None:  # noqa: N802
        """Silence it before it is the first to speak."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Rows:
    """Constraints low ≤ Σ value · column ≤ high, gathered block by block."""

    count: int = 0
    _low: list[Row] = field(default_factory=list)
    _high: list[Row] = field(default_factory=list)
    _entries: list[tuple[Index, Index, Row]] = field(default_factory=list)
    _names: list[Index] = field(default_factory=list)
    _blocks: dict[int, int] = field(default_factory=dict)
    """Their places by their first rows."""

    def block(self, low: Row | float, high: Row | float, size: int, names: Index | None = None) -> int:
        """Add `size` rows without entries; returns the number of the first. Names are for `Basis`, -1: none."""
        first = self.count
        self._blocks[first] = len(self._low)
        self._names.append(np.full(size, -1) if names is None else np.ravel(names))
        self._low.append(np.broadcast_to(np.asarray(low, dtype=np.float64), size))
        self._high.append(np.broadcast_to(np.asarray(high, dtype=np.float64), size))
        self.count += size
        return first

    def copy(self) -> "Rows":
        """The same rows, to be changed on their own."""
        return Rows(self.count, self._low[:], self._high[:], self._entries[:], self._names[:], dict(self._blocks))

    def limit(self, first: int, high: Row) -> None:
        """Other upper bounds for a block, which is named by its first row."""
        self._high[self._blocks[first]] = high

    def put(self, rows: Index, columns: Index, values: Row | float) -> None:
        """Entries, each of its own row and column; arrays of one shape, to which values are broadcast."""
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)
        self._entries.append((np.ravel(rows), np.ravel(columns), np.ravel(spread)))

    def bounds(self) -> tuple[Row, Row]:
        """Low and high of every row."""
        return np.concatenate([*self._low, np.zeros(0)]), np.concatenate([*self._high, np.zeros(0)])

    def names(self) -> Index:
        """Of every row."""
        return np.concatenate([*self._names, np.zeros(0, np.int64)])

    def entries(self) -> tuple[Index, Index, Row]:
        """Rows, columns and values."""
        if not self._entries:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        rows, columns, values = zip(*self._entries, strict=True)
        return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)


@dataclass(frozen=True, slots=True)
class Program:
    """min cost · x within rows and bounds, x whole where `whole`; arrays have one value per column."""

    cost: Row
    low: Row
    high: Row
    whole: Flags
    rows: Rows


@dataclass(frozen=True, slots=True)
class Limits:
    """When HiGHS stops and gives its best so far."""

    seconds: float | None = None
    nodes: int | None = None
    relative_gap: float = 0.0
    absolute_gap: float = 0.0


@dataclass(frozen=True, slots=True)
class Basis:
    """Where the simplex method ended, by the names of columns and rows: where it may begin with some more of both."""

    columns: Mapping[int, highspy.HighsBasisStatus]
    rows: Mapping[int, highspy.HighsBasisStatus]


@dataclass(frozen=True, slots=True)
class Found:
    """What HiGHS found."""

    values: Row | None
    """One per column; None: nothing within the limits."""
    objective: float
    bound: float
    """No solution has less."""
    optimal: bool
    """Whether it ended within its gap, not at a limit."""
    nodes: int
    duals: Row
    """Of rows, of a program without whole columns; else empty."""


def solve(program: Program, limits: Limits = Limits(), start: Row | None = None) -> Found:
    """Solve a program once; see `Model.solve`."""
    return Model(program).solve(program.cost, limits, start)


SEARCH: Mapping[str, bool | int] = {
    "threads": 1,
    # What HiGHS does to find a first solution, or begins anew for, takes longer than what is solved here as a whole.
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_allow_restart": False,
    "mip_detect_symmetry": False,
}
PRIMAL = 4
"""HiGHS' number of the primal simplex method."""
NEAR = 1e-6
"""How far beyond a bound a value may be."""
WHOLE = 1e-6
"""How far from a whole number a column that must be whole may be."""

_NONE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
_STOPPED = (
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kSolutionLimit,
    highspy.HighsModelStatus.kIterationLimit,
)


class Model:
    """A program that is solved several times: for other costs, and with more rows."""

    def __init__(self, program: Program) -> None:
        """Rows that `program.rows` is given later count from the next solve on; nothing else of it may change.

        Raises:
            SolverError: if HiGHS cannot read it.
        """
        self._program = program
        # What is fixed needs no search.
        self._whole = np.flatnonzero(program.whole & (program.low < program.high)).astype(np.int32)
        self._columns = np.arange(len(program.cost), dtype=np.int32)
        self._solver = QuietHighs()  # type: ignore[no-untyped-call]
        for option, setting in SEARCH.items():
            self._solver.setOptionValue(option, setting)
        self._taken_in = program.rows.count
        if self._solver.passModel(_lp(program)) == highspy.HighsStatus.kError:
            raise SolverError("HiGHS cannot read the program")

    def solve(self, cost: Row, limits: Limits = Limits(), start: Row | None = None) -> Found:
        """Solve it.

        Args:
            cost: what is made least, by column.
            limits: none of them: it proves the optimum.
            start: a solution to begin with; what is none is left aside. It is the answer if the gap allows that.

        Raises:
            InfeasibleError: if there is no solution.
            SolverError: if HiGHS fails.
        """
        until = np.inf if limits.seconds is None else self._solver.getRunTime() + max(limits.seconds, 0.0)
        self._solver.setOptionValue("time_limit", until)
        self._solver.changeColsCost(len(self._columns), self._columns, cost)
        self._take_in()
        # Often what has to be whole is so by itself, at one of its bounds, and HiGHS takes long to begin a search.
        found = self._relaxed()
        if found.values is None or self._are_whole(found.values):
            return found
        if start is not None and self._solves(start):
            value = float(cost @ start)
            if value - found.bound <= max(limits.absolute_gap, limits.relative_gap * abs(value)):
                return Found(start, value, found.bound, True, 1, np.zeros(0))
        return self._searched(limits, start)

    def _solves(self, values: Row) -> bool:
        """Whether this keeps all bounds, as closely as HiGHS does."""
        program = self._program
        low, high = program.rows.bounds()
        lines, columns, factors = program.rows.entries()
        sums = np.bincount(lines, factors * values[columns], minlength=program.rows.count)
        return bool(
            (values >= program.low - NEAR).all()
            and (values <= program.high + NEAR).all()
            and (sums >= low - NEAR).all()
            and (sums <= high + NEAR).all()
            and self._are_whole(values)
        )

    def basis(self, columns: Index) -> Basis:
        """Where the last solve ended, of a program without whole columns.

        Args:
            columns: their names.
        """
        basis = self._solver.getBasis()
        rows = self._program.rows.names().tolist()
        return Basis(
            dict(zip(columns.tolist(), basis.col_status, strict=True)),
            dict(zip(rows, basis.row_status, strict=True)),
        )

    def begin(self, basis: Basis, columns: Index) -> None:
        """Let the next solve begin where that of a part of this program ended; what is new is at 0 there.

        Args:
            basis: of a program all of whose columns and rows are here, too.
            columns: names of the columns here.
        """
        whole = highspy.HighsBasis()
        whole.valid = True
        new_column, new_row = highspy.HighsBasisStatus.kLower, highspy.HighsBasisStatus.kBasic
        whole.col_status = [basis.columns.get(name, new_column) for name in columns.tolist()]
        whole.row_status = [basis.rows.get(name, new_row) for name in self._program.rows.names().tolist()]
        self._solver.setBasis(whole)
        # Nothing in that basis breaks a bound, so that it is costs that have to be brought down.
        self._solver.setOptionValue("simplex_strategy", PRIMAL)

    def _are_whole(self, values: Row) -> bool:
        return bool((np.abs(values - np.round(values))[self._whole] <= WHOLE).all())

    def _take_in(self) -> None:
        """Rows that are new."""
        first, rows = self._taken_in, self._program.rows
        self._taken_in = rows.count
        if rows.count == first:
            return
        low, high = rows.bounds()
        lines, columns, values = rows.entries()
        new = lines >= first
        order = np.lexsort((columns[new], lines[new]))
        starts = np.cumsum(np.bincount(lines[new] - first, minlength=rows.count - first))
        self._solver.addRows(
            rows.count - first,
            low[first:],
            high[first:],
            len(order),
            np.concatenate([[0], starts[:-1]]).astype(np.int32),
            columns[new][order].astype(np.int32),
            values[new][order],
        )

    def _relaxed(self) -> Found:
        """The answer where no column has to be whole."""
        # HiGHS' presolve takes longer than small programs, and forgets the basis that the last one left.
        self._solver.setOptionValue("presolve", "off" if len(self._whole) else "choose")
        status = self._run()
        if status in _NONE:
            raise InfeasibleError("the program has no solution")
        info, optimal = self._solver.getInfo(), status == highspy.HighsModelStatus.kOptimal
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Found(None, np.inf, -np.inf, False, 1, np.zeros(0))
        solution, value = self._solver.getSolution(), float(info.objective_function_value)
        duals = np.zeros(0) if len(self._whole) else np.asarray(solution.row_dual, dtype=np.float64)
        values = np.asarray(solution.col_value, dtype=np.float64)
        return Found(values, value, value if optimal else -np.inf, optimal, 1, duals)

    def _run(self) -> highspy.HighsModelStatus:
        if self._solver.run() == highspy.HighsStatus.kError:
            raise SolverError("HiGHS cannot solve the program")
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal and status not in _NONE and status not in _STOPPED:
            raise SolverError(f"HiGHS ends with {self._solver.modelStatusToString(status)}")
        return status

    def _searched(self, limits: Limits, start: Row | None) -> Found:
        """HiGHS' own search."""
        solver = self._solver
        options: dict[str, float | str] = {
            "presolve": "choose",
            "mip_rel_gap": limits.relative_gap,
            "mip_abs_gap": limits.absolute_gap,
            "mip_max_nodes": NO_LIMIT if limits.nodes is None else limits.nodes,
        }
        for option, setting in options.items():
            solver.setOptionValue(option, setting)
        self._be(highspy.HighsVarType.kInteger)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            solver.setSolution(solution)
        try:
            status, info = self._run(), solver.getInfo()
            if status in _NONE:
                raise InfeasibleError("the program has no whole solution")
            bound, nodes = float(info.mip_dual_bound), max(int(info.mip_node_count), 1)
            if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
                return Found(None, np.inf, bound, False, nodes, np.zeros(0))
            values = np.asarray(solver.getSolution().col_value, dtype=np.float64)
            optimal = status == highspy.HighsModelStatus.kOptimal
            return Found(values, float(info.objective_function_value), bound, optimal, nodes, np.zeros(0))
        finally:
            self._be(highspy.HighsVarType.kContinuous)

    def _be(self, kind: highspy.HighsVarType) -> None:
        """Have HiGHS take the columns that must be whole for this."""
        kinds = np.full(len(self._whole), int(kind), dtype=np.uint8)
        self._solver.changeColsIntegrality(len(self._whole), self._whole, kinds)


def _lp(program: Program) -> highspy.HighsLp:
    """The program, its whole columns free to be fractions."""
    rows, columns, values = program.rows.entries()
    order = np.lexsort((rows, columns))
    rows, columns, values = rows[order], columns[order], values[order]
    count = len(program.cost)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count, program.rows.count
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.low, program.high
    lp.row_lower_, lp.row_upper_ = program.rows.bounds()
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=count))])
    lp.a_matrix_.start_, lp.a_matrix_.index_ = starts.astype(np.int32), rows.astype(np.int32)
    lp.a_matrix_.value_ = values
    return lp
