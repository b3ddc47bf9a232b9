"""Measures of a topology from outside, without those that nothing can use.

A bad number of an operator leaves only that number unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from common.checks import is_number, shorten_for_message
from common.parameter import Parameter
from controllers.parallelism.measured_topology import LINK_MEASURES, MEASURES, OPERATOR_MEASURES

MAX_FAULTS = 50


def clear_unusable_measures(document: Any) -> tuple[Any, list[str]]:
    """Return the document of a topology with unusable measures as null, and a sentence for each.

    Everything else is left as it is, for `MeasuredTopology.from_document` to judge.
    """
    faults: list[str] = []
    if not isinstance(document, Mapping):
        return document, faults
    result = dict(document)
    operators, links = document.get("operators"), document.get("links")
    if isinstance(operators, Mapping):
        result["operators"] = {
            name: _usable_operator(row, f"operators.{str(name)[:80]}", faults) for name, row in operators.items()
        }
    if isinstance(links, list):
        result["links"] = [_clear_unusable(row, LINK_MEASURES, f"links[{at}]", faults) for at, row in enumerate(links)]
    return result, faults[:MAX_FAULTS]


def _usable_operator(row: Any, where: str, faults: list[str]) -> Any:
    read = _clear_unusable(row, OPERATOR_MEASURES, where, faults)
    if not isinstance(read, Mapping) or not isinstance(read.get("tasks"), list):
        return read
    tasks = [_clear_unusable(task, MEASURES, f"{where}.tasks[{at}]", faults) for at, task in enumerate(read["tasks"])]
    return {**read, "tasks": tasks}


def _clear_unusable(row: Any, measures: tuple[Parameter, ...], where: str, faults: list[str]) -> Any:
    if not isinstance(row, Mapping):
        return row
    unusable = dict(_iterate_unusable(row, measures))
    faults += [
        f"{where}.{name}: must be a number from 0 to {most:g}, not {shorten_for_message(row[name])}."
        for name, most in unusable.items()
    ]
    return {**row, **dict.fromkeys(unusable)} if unusable else row


def _iterate_unusable(row: Mapping[str, Any], measures: tuple[Parameter, ...]) -> Iterator[tuple[str, float]]:
    for measure in measures:
        value, most = row.get(measure.name), float(measure.maximum or 0.0)
        if value is not None and not is_number(value, 0, most):
            yield measure.name, most
