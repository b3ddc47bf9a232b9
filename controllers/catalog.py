"""Every law by its name; the place where a name or a document from outside is checked."""

from collections.abc import Mapping
from typing import Any

from controllers.concurrency.law import Concurrency
from controllers.flow.admission import Flow
from controllers.flow.balance import Balance
from controllers.framework import guard
from controllers.framework.law import Law
from controllers.framework.parameter import Parameter, read_values
from controllers.parallelism.forecast_law import ParallelismForecast
from controllers.parallelism.joint_law import ParallelismJoint
from controllers.parallelism.queueing_law import ParallelismQueueing
from controllers.rebalancing.law import Rebalancing
from controllers.rebalancing.node_scaling import NodeScaling
from controllers.shedding.ladder import Ladder
from controllers.shedding.law import Shedding
from controllers.worker_rate.law import WorkerRate
from queues.errors import BadInput

# The laws of the contract in its order, node_scaling beside rebalancing, parallelism_joint beside the two it
# joins and the ladder over all; those
# without an entry in LAWS are promised, and answer "not yet".
CONTRACT_LAWS = (
    "flow",
    "balance",
    "worker_rate",
    "rebalancing",
    "node_scaling",
    "concurrency",
    "parallelism_queueing",
    "parallelism_forecast",
    "parallelism_joint",
    "shedding",
    "ladder",
)
LAWS: Mapping[str, Law] = {
    law.name: law
    for law in (
        Flow(),
        Balance(),
        WorkerRate(),
        Rebalancing(),
        NodeScaling(),
        Concurrency(),
        ParallelismQueueing(),
        ParallelismForecast(),
        ParallelismJoint(),
        Shedding(),
        Ladder(),
    )
}


WHOLE = ("worker_rate", "concurrency")  # their actuators count


class NotYet(BadInput):
    """A law the contract names that is not built yet."""


def law(name: str) -> Law:
    """The law of that name. Raises `NotYet` for a promised one, else `BadInput` with the list of names."""
    if name in LAWS:
        return LAWS[name]
    if name in CONTRACT_LAWS:
        raise NotYet("law", f"{name} is not yet built; built are {', '.join(LAWS)}")
    raise BadInput("law", f"{name} is not known; the laws are {', '.join(CONTRACT_LAWS)}")


def read_parameters(of: Law, document: Any, where: str = "parameters") -> dict[str, Any]:
    """All parameters of a law, given or by default, checked one by one and together. Raises `BadInput`."""
    parameters = read_values(of.parameters, document, where)
    of.check(parameters)
    return parameters


def read_observation(of: Law, document: Any, where: str = "observation") -> dict[str, Any]:
    """One observation, checked value by value; `Law.check_observation` checks them together. Raises
    `BadInput` naming the field."""
    return read_values(of.observation, document, where)


def parameter(of: Law, name: str) -> Parameter:
    """What `name` takes: a parameter of the law, `guard.NAME`, or the actuator. Raises `BadInput`."""
    known = {each.name: each for each in of.parameters}
    known |= {f"guard.{each.name}": each for each in guard.settings_of(of)}
    if of.actuator is not None:
        known[of.actuator] = actuator_parameter(of)
    if name not in known:
        raise BadInput("name", f"{name} is not known; {of.name} takes {', '.join(known)} and mode")
    return known[name]


def actuator_parameter(of: Law) -> Parameter:
    """What a person may set by hand: the actuator within the guard's default range."""
    settings = guard.read_settings(of, None)
    return Parameter(
        str(of.actuator),
        "actuator's unit",
        "The value applied at each decision while the loop is in manual.",
        None,
        settings["minimum"],
        settings["maximum"],
        "integer" if of.name in WHOLE else "number",
    )
