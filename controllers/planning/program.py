"""The linear program of the planner: the cheapest course of a plant over the next minutes.

Steps of growing length cover the horizon. Variables of each step t (length Δ, s):

    n[g]     working units of group g           up[g], down[g]   units started, units ended
    serve[q] processed events/s of queue q      room[q]          events/s that its stages can process
    wait[q]  events in the queue at the end     held[q]          events that producers hold back
    shed[y]  events/s of type y that are shed   lost[q]          events/s that exceed the queue's storage
    over[q]  waiting events beyond the bound    short[q, z]      part of the reserve for z deviations that is missing

    wait + held = previous wait + held + Δ (M - serve - lost - Σ shed)
    room ≤ n r        of each stage with r events/s per unit;  serve ≤ room
    Σ_q serve ≤ Σ n C of all nodes;  Σ n of a pool's stages ≤ slots n of its hosts
    over ≥ wait + held - W                   W: arrivals within the bound before the end of the step, but for shed ones
    room + Σ short[z] ≥ M + Z D - Σ shed + (wait + held - W) / L            L: how long a forecast error lasts, s

The objective is money: hours of units, changes, lost events, bad seconds, and the work that the end of the horizon
leaves. A queue is first in, first out: events wait longer than promised if more than W wait. The part of a bad second
that is expected follows from `over`, which counts W events as one bad second per second. The risk follows from `short`:
the chance that a normal load exceeds the capacity for L seconds, by straight lines between `RISK_POINTS`, the last of
which is Z. It is convex, because z ≥ 0. Nodes have a similar row for the sum of all queues, of which min(M, W / L) can
wait.

Units that an order can't reach in time are limited by `start_seconds`. A group that is held has a fixed count.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from controllers.framework.solver import minimise_linear
from controllers.planning.inputs import HOUR_SECONDS, Floats, Indices, PlanInputs

# Deviations z of the risk rows; the chance beyond the last one counts as none.
RISK_POINTS = np.array([0.5, 1.0, 1.5, 2.0, 2.6, 3.3])
# Bad seconds beyond the error budget cost this many times their price in addition.
OVER_BUDGET = 4.0
# Price of a lost event of a queue whose types are unknown: losing it must never look cheap.
UNPRICED_LOSS = 1.0
# Work left at the end of the horizon costs more than work that is done.
LEFT_OVER = 1.2
# HiGHS ignores prices below 1e-7; an event may be worth less.
COST_SCALE = 1e4
MIN_RATE = 1e-6
# Money per hour: units without a price must not be started without need.
MIN_UNIT_PRICE = 1e-6
TOLERANCE = 1e-6  # of the values in a row
# The solver checks its own time limit only between iterations; after this multiple and addition it counts as hanging.
HANG_FACTOR, HANG_SECONDS = 2.0, 5.0
_HANGING: list[threading.Thread] = []
SMALL_PRICE = 1e-9  # per held event and second; of two equal plans, the one without held events is simpler


@dataclass(frozen=True)
class ProgramSize:
    """The places of the variables: blocks of rows, each with one variable per step."""

    steps: int
    rows: Mapping[str, int]

    def locate(self, block: str) -> Indices:
        """Return the places of a block's variables, rows by steps."""
        start = 0
        for name, rows in self.rows.items():
            if name == block:
                return np.arange(start, start + rows * self.steps).reshape(rows, self.steps)
            start += rows * self.steps
        raise KeyError(block)

    @property
    def count(self) -> int:
        return sum(self.rows.values()) * self.steps


@dataclass
class ConstraintRows:
    """Rows of a sparse matrix, collected block by block."""

    size: int
    count: int = 0
    entries: list[tuple[Indices, Indices, Floats]] = field(default_factory=list)
    sides: list[Floats] = field(default_factory=list)
    places: dict[str, Indices] = field(default_factory=dict)

    def add_block(self, name: str, side: Floats, *terms: tuple[Indices, object]) -> None:
        """Add a row per element of `side`; each term has the places of its variables and their factors.

        Terms may have one more leading axis than `side`: then several variables of a row have it.
        """
        rows = self.count + np.arange(side.size).reshape(side.shape)
        for places, factors in terms:
            kept = np.broadcast_arrays(rows, places, np.asarray(factors, dtype=float))
            mask = kept[1] >= 0
            self.entries.append((kept[0][mask], kept[1][mask], kept[2][mask]))
        self.sides.append(side.ravel())
        self.places[name] = rows
        self.count += side.size

    def add_entries(self, rows: Indices, places: Indices, factors: Floats) -> None:
        """Add factors to rows that exist."""
        self.entries.append((rows.ravel(), places.ravel(), np.broadcast_to(factors, places.shape).ravel()))

    def build_matrix(self) -> "tuple[scipy.sparse.csr_array, Floats]":
        if not self.entries:
            return scipy.sparse.csr_array((0, self.size)), np.zeros(0)
        rows, places, factors = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        matrix = scipy.sparse.csr_array((factors, (rows, places)), shape=(self.count, self.size))
        return matrix, np.concatenate(self.sides)


@dataclass(frozen=True)
class PlannedCourse:
    """A solution: the values of each block, rows by steps, its cost by part, and the dual values of its rows.

    A dual value is the change of the cost (money) per unit of a row's right side; that of a count per unit of it.
    """

    inputs: PlanInputs
    values: Mapping[str, Floats]
    cost: float
    parts: Mapping[str, Floats]
    duals: Mapping[str, Floats]
    highest_duals: Floats
    lowest_duals: Floats


class NoPlanError(Exception):
    """The solver found no plan; the message says why."""


def solve_course(inputs: PlanInputs, counts: Mapping[str, int] | None = None) -> PlannedCourse:
    """Return the cheapest course; counts: group → units that are ordered now. Raise `NoPlanError`.

    The result is checked, because a solver can stop early, and a broken one could return anything.
    """
    program = _Program(inputs, counts or {})
    limit = inputs.parameters.solver_seconds
    arguments = (
        program.cost * COST_SCALE,
        program.at_most.build_matrix(),
        program.equal.build_matrix(),
        np.column_stack([program.lowest, program.highest]),
        {"time_limit": limit},
    )
    return program.read_course(_call_solver(arguments, HANG_FACTOR * limit + HANG_SECONDS))


def _call_solver(arguments: tuple[Any, ...], deadline_seconds: float) -> object:
    """Return the solver's result. Raise `NoPlanError` if it fails, or hangs: a thread can't be ended from outside.

    After a hang there is no plan until that solver has ended, so that only one of them uses a core.
    """
    if any(thread.is_alive() for thread in _HANGING):
        raise NoPlanError("an earlier call of the solver still hangs")
    results, errors = list[object](), list[Exception]()

    def call() -> None:
        try:
            results.append(minimise_linear(*arguments))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=call, name="planner-solver", daemon=True)
    thread.start()
    thread.join(deadline_seconds)
    if results:
        return results[0]
    if errors:
        raise NoPlanError(f"the solver failed ({type(errors[0]).__name__})") from errors[0]
    _HANGING[:] = [thread]
    raise NoPlanError("the solver hangs")


def _explain_failure(status: object) -> str:
    reasons = {1: "the solver exceeded its time limit", 2: "holds, limits, and pools contradict each other"}
    return reasons.get(status if isinstance(status, int) else -1, "the solver found no solution")


class _Program:
    """The rows and prices of a program."""

    def __init__(self, inputs: PlanInputs, counts: Mapping[str, int]) -> None:
        self.inputs, model = inputs, inputs.model
        groups, queues = len(model.groups), len(model.queues)
        # Without a deviation, or without a price, there is no risk to weigh.
        risks = len(RISK_POINTS) if inputs.deviations.any() else 0
        rows = {
            **dict.fromkeys(("units", "up", "down"), groups),
            **dict.fromkeys(("serve", "room", "wait", "held", "lost", "over"), queues),
            "shed": len(inputs.types),
            "short": queues * risks,
            "short_nodes": risks if model.nodes else 0,
        }
        self.size, self.risks = ProgramSize(inputs.steps.size, rows), risks
        self.places = {name: self.size.locate(name) for name in rows}
        budgeted = [at for at, queue in enumerate(model.queues.values()) if queue.budget_seconds is not None]
        self.budgeted = np.asarray(budgeted, dtype=np.int64)
        count = self.size.count + self.budgeted.size
        self.beyond = np.arange(self.size.count, count)
        self.cost, self.lowest, self.highest = np.zeros(count), np.zeros(count), np.full(count, np.inf)
        self.at_most, self.equal = ConstraintRows(count), ConstraintRows(count)
        self.allowed = np.maximum(inputs.compute_allowed_waiting(), MIN_RATE)
        self._limit(counts)
        self._price()
        self._balance()
        self._add_capacities()
        self._add_bounds()
        if risks:
            self._add_risks()

    def _limit(self, counts: Mapping[str, int]) -> None:
        inputs, model = self.inputs, self.inputs.model
        for at, (name, group) in enumerate(model.groups.items()):
            place = self.places["units"][at]
            self.lowest[place], self.highest[place] = inputs.compute_unit_ranges(name, group, counts.get(name))
        for at, queue in enumerate(model.queues.values()):
            self.highest[self.places["held"][at]] = max(queue.max_held_events, queue.held_events)
            if queue.room_events is None:
                self.highest[self.places["lost"][at]] = 0.0
            else:
                self.highest[self.places["wait"][at]] = max(queue.room_events, queue.backlog_events)
        for at, (queue_name, kind) in enumerate(inputs.types):
            of = model.queues[queue_name].types[kind]
            rate = inputs.get_type_share(queue_name, kind) * inputs.rates[inputs.owners[at]]
            self.highest[self.places["shed"][at]] = of.max_shed_share * rate

    def _price(self) -> None:
        inputs, model, steps = self.inputs, self.inputs.model, self.inputs.steps
        for at, group in enumerate(model.groups.values()):
            self.cost[self.places["units"][at]] = max(group.price_per_hour, MIN_UNIT_PRICE) / HOUR_SECONDS * steps
            started = group.change_price + group.price_per_hour / HOUR_SECONDS * group.start_seconds
            self.cost[self.places["up"][at]], self.cost[self.places["down"][at]] = started, group.change_price
        for at, queue in enumerate(model.queues.values()):
            worst = max((kind.lost_price for kind in queue.types.values()), default=UNPRICED_LOSS)
            self.cost[self.places["lost"][at]] = worst * steps
            self.cost[self.places["over"][at]] = queue.bad_second_price * steps / self.allowed[at]
            self.cost[self.places["held"][at]] = SMALL_PRICE * steps
        for at, (name, kind) in enumerate(inputs.types):
            self.cost[self.places["shed"][at]] = model.queues[name].types[kind].lost_price * steps
        left_over = LEFT_OVER * self.compute_handling_prices()
        self.cost[self.places["wait"][:, -1]] += left_over
        self.cost[self.places["held"][:, -1]] += left_over
        prices = inputs.list_queue_values("bad_second_price")
        self.cost[self.beyond] = OVER_BUDGET * prices[self.budgeted]

    def compute_handling_prices(self) -> Floats:
        """Return the price of processing one event of each queue."""
        model = self.inputs.model
        nodes = [
            group.price_per_hour / HOUR_SECONDS / group.per_second for group in model.nodes.values() if group.per_second
        ]
        prices = np.full(len(model.queues), min(nodes, default=0.0))
        names = list(model.queues)
        for stage in model.stages.values():
            prices[names.index(stage.queue)] += stage.price_per_hour / HOUR_SECONDS / stage.per_second
        return prices

    def _balance(self) -> None:
        inputs, steps, places = self.inputs, self.inputs.steps, self.places
        side = steps * inputs.rates
        before = inputs.list_queue_values("backlog_events") + inputs.list_queue_values("held_events")
        side[:, 0] += before
        earlier = {name: _shift(places[name]) for name in ("wait", "held", "units")}
        self.equal.add_block(
            "balance",
            side,
            (places["wait"], 1.0),
            (places["held"], 1.0),
            (earlier["wait"], -1.0),
            (earlier["held"], -1.0),
            (places["serve"], steps),
            (places["lost"], steps),
        )
        self.equal.add_entries(self.equal.places["balance"][inputs.owners], places["shed"], steps)
        now = np.zeros(places["units"].shape)
        now[:, 0] = [group.ordered for group in inputs.model.groups.values()]
        self.equal.add_block(
            "changes",
            now,
            (places["units"], 1.0),
            (earlier["units"], -1.0),
            (places["up"], -1.0),
            (places["down"], 1.0),
        )

    def _add_capacities(self) -> None:
        inputs, model, places = self.inputs, self.inputs.model, self.places
        names, zeros = list(model.queues), np.zeros(inputs.steps.size)
        stages = list(model.stages.values())
        owners = np.asarray([names.index(stage.queue) for stage in stages], dtype=np.int64)
        speeds = [inputs.speeds.get(name, 1.0) * np.ones(zeros.size) for name in model.stages]
        per_unit = np.asarray([stage.per_second for stage in stages])[:, None] * np.reshape(speeds, (-1, zeros.size))
        units = places["units"]
        self.at_most.add_block(
            "stages",
            np.zeros((len(stages), zeros.size)),
            (places["room"][owners], 1.0),
            (units[: len(stages)], -per_unit),
        )
        self.at_most.add_block("serve", np.zeros(places["serve"].shape), (places["serve"], 1.0), (places["room"], -1.0))
        if model.nodes:
            self.at_most.add_block("nodes", zeros, (places["serve"], 1.0), *self._list_node_terms(-1.0))
        first_pool = len(stages) + len(model.nodes)
        for at, (name, pool) in enumerate(model.pools.items()):
            users = np.asarray([place for place, stage in enumerate(stages) if stage.pool == name], dtype=np.int64)
            self.at_most.add_block(
                f"pool {name}", zeros, (units[users], 1.0), (units[first_pool + at], -float(pool.slots))
            )

    def _list_node_terms(self, factor: float) -> list[tuple[Indices, object]]:
        model, first = self.inputs.model, len(self.inputs.model.stages)
        return [
            (self.places["units"][first + at], factor * group.per_second)
            for at, group in enumerate(model.nodes.values())
        ]

    def _add_bounds(self) -> None:
        inputs, places, full = self.inputs, self.places, self.allowed
        self.at_most.add_block(
            "bound", self.allowed, (places["wait"], 1.0), (places["held"], 1.0), (places["over"], -1.0)
        )
        # What was shed did not arrive.
        within = np.minimum(inputs.bounds[:, None], np.cumsum(inputs.steps))[inputs.owners]
        self.at_most.add_entries(self.at_most.places["bound"][inputs.owners], places["shed"], within)
        for at, queue in enumerate(self.budgeted):
            left = list(inputs.model.queues.values())[queue].budget_seconds or 0.0
            terms = (places["over"][queue][:, None], (inputs.steps / full[queue])[:, None])
            self.at_most.add_block(f"budget {queue}", np.array([left]), terms, (self.beyond[at : at + 1], -1.0))

    def _add_risks(self) -> None:
        """Add a row for the risk that the load exceeds the capacity, with one variable per line of its price."""
        inputs, places, model = self.inputs, self.places, self.inputs.model
        lasts, slopes = inputs.parameters.error_seconds, build_risk_slopes()[:, None]
        widths = np.diff(np.append(0.0, RISK_POINTS))[:, None]
        prices = inputs.list_queue_values("bad_second_price")
        short = places["short"].reshape(len(model.queues), self.risks, -1)
        for at, price in enumerate(prices.tolist()):
            deviation = np.maximum(inputs.deviations[at], MIN_RATE)
            self.at_most.add_block(
                f"risk {at}",
                self.allowed[at] / lasts - inputs.rates[at] - RISK_POINTS[-1] * deviation,
                (places["shed"][inputs.owners == at], -1.0),
                (places["wait"][at], 1 / lasts),
                (places["held"][at], 1 / lasts),
                (places["room"][at], -1.0),
                (short[at], -1.0),
            )
            self.cost[short[at]] = price * inputs.steps * slopes / deviation
            self.highest[short[at][1:]] = (widths * deviation)[1:]
        if model.nodes:
            # Events of queues with long bounds can wait for the nodes, but no more than arrive.
            deviation = np.maximum(np.sqrt((inputs.deviations**2).sum(axis=0)), MIN_RATE)
            can_wait = np.minimum(inputs.rates, self.allowed / lasts).sum(axis=0)
            self.at_most.add_block(
                "risk of nodes",
                can_wait - inputs.rates.sum(axis=0) - RISK_POINTS[-1] * deviation,
                (places["shed"], -1.0),
                (places["wait"], 1 / lasts),
                (places["held"], 1 / lasts),
                *self._list_node_terms(-1.0),
                (places["short_nodes"], -1.0),
            )
            self.cost[places["short_nodes"]] = prices.sum() * inputs.steps * slopes / deviation
            self.highest[places["short_nodes"][1:]] = (widths * deviation)[1:]

    def read_course(self, result: object) -> PlannedCourse:
        """Return the result of the solver. Raise `NoPlanError` if it has none, or one that breaks a row."""
        values = getattr(result, "x", None)
        if values is None or getattr(result, "status", None) != 0:
            raise NoPlanError(_explain_failure(getattr(result, "status", None)))
        values = np.asarray(values, dtype=float)
        if not self.is_feasible(values):
            raise NoPlanError("the solver returned a plan that breaks its own limits")
        part_of = dict(self.places)
        parts = {name: (self.cost[place] * values[place]) for name, place in part_of.items()}
        equal, at_most = (np.asarray(getattr(result, name).marginals) / COST_SCALE for name in ("eqlin", "ineqlin"))
        duals = {name: equal[rows] for name, rows in self.equal.places.items()}
        duals |= {name: at_most[rows] for name, rows in self.at_most.places.items()}
        sides = {name: np.asarray(getattr(result, name).marginals) / COST_SCALE for name in ("lower", "upper")}
        units = self.places["units"]
        return PlannedCourse(
            self.inputs,
            {name: values[place] for name, place in part_of.items()},
            float(self.cost @ values),
            parts,
            duals,
            sides["upper"][units],
            sides["lower"][units],
        )

    def is_feasible(self, values: Floats) -> bool:
        """Return whether values are finite, within their ranges, and keep every row, but for rounding."""
        if values.shape != self.cost.shape or not np.all(np.isfinite(values)):
            return False
        scale = TOLERANCE * (1 + np.abs(values))
        if np.any(values < self.lowest - scale) or np.any(values > self.highest + scale):
            return False
        for rows, is_equal in ((self.at_most, False), (self.equal, True)):
            matrix, side = rows.build_matrix()
            missed = matrix @ values - side
            allowed = TOLERANCE * (1 + np.abs(side) + abs(matrix) @ np.abs(values))
            if np.any(missed > allowed) or (is_equal and np.any(missed < -allowed)):
                return False
        return True


def _shift(places: Indices) -> Indices:
    """Return the places of the step before; -1 before the first."""
    return np.column_stack([np.full(len(places), -1), places[:, :-1]])


def build_risk_slopes() -> Floats:
    """Return the slopes of the chance that a normal value exceeds z, by straight lines between 0 and `RISK_POINTS`."""
    points = np.append(0.0, RISK_POINTS)
    chances = scipy.special.ndtr(-points)
    chances[-1] = 0.0
    return np.asarray(-np.diff(chances) / np.diff(points))
