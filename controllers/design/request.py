"""Design requests: the documents that `manage.py design NAME` takes and answers, by name."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from common import checks
from common.checks import refuse_unknown
from common.errors import BadInput
from common.parameter import Parameter, read_document, read_object
from controllers.design import friendliness, lqr, placement, queueing_models
from controllers.design.lqr import Floats
from controllers.design.placement import FORMS, Gains, GainsReport, Model
from controllers.framework.decision import Json
from controllers.patterns import selectivity

MODEL = (
    Parameter("a", "1", "Share of y that remains after a sample.", None, -1e6, 1e6, required=True),
    Parameter("b", "y's unit per u's", "Effect of one u on y.", None, -1e15, 1e15, required=True),
    Parameter("delay", "samples", "Additional samples until u takes effect.", 0, 0, 1, "integer"),
)
FORM = Parameter("form", "choice", "i-p: proportional on y.", "i-p", kind="choice", choices=FORMS)
GAINS = (
    Parameter("kp", "u's unit per y's", "Proportional gain.", None, -1e12, 1e12, required=True),
    Parameter("ki", "u's unit per y's", "Integral gain.", None, -1e12, 1e12, required=True),
    Parameter("kd", "1", "Gain on the change of u.", 0.0, -1e6, 1e6),
    FORM,
)
TIME = Parameter(
    "time", "choice", "Discrete or continuous time.", "discrete", kind="choice", choices=("discrete", "continuous")
)
MAX_STATES, GREATEST = 1_000, 1e100  # squares of larger elements overflow


def place(document: Any) -> dict[str, Json]:
    given = read_object(document, "document")
    if "A" in given or "B" in given:
        return _place_states(given)
    wanted = _parse_poles(given, "discrete")
    values = read_document((*MODEL, FORM), {key: each for key, each in given.items() if key != "poles"})
    model = _model(values)
    gains = placement.place(model, wanted, values["form"])
    return {"kp": gains.kp, "ki": gains.ki, "kd": gains.kd, **_encode_report(placement.report(model, gains))}


def _place_states(given: Mapping[str, Any]) -> dict[str, Json]:
    refuse_unknown(given, ("A", "B", "poles", "time"), "")
    time = read_document((TIME,), {key: given[key] for key in ("time",) if key in given})["time"]
    wanted = _parse_poles(given, time)
    a, b = _parse_matrix(given, "A"), _parse_matrix(given, "B")
    _check_square(a)
    if b.shape != (len(a), 1):
        raise BadInput("B", f"must have {len(a)} rows of 1, not {b.shape[0]} of {b.shape[1]}")
    return {"K": placement.place_poles(a, b, wanted).tolist()}


def check(document: Any) -> dict[str, Json]:
    values = read_document((*MODEL, *GAINS), document)
    gains = Gains(values["kp"], values["ki"], values["kd"], values["form"])
    report = placement.report(_model(values), gains)
    return {"kp": gains.kp, "ki": gains.ki, "kd": gains.kd, **_encode_report(report)}


def regulate(document: Any) -> dict[str, Json]:
    """Return K, X, and the spectral radius from {A, B, Q, R, time}; in continuous time the largest real part."""
    given = read_object(document, "document")
    refuse_unknown(given, ("A", "B", "Q", "R", "time"), "")
    time = read_document((TIME,), {key: given[key] for key in ("time",) if key in given})["time"]
    a, b, q, r = (_parse_matrix(given, name) for name in "ABQR")
    _check_square(a)
    result = lqr.design_regulator(a, b, q, r) if time == "discrete" else lqr.design_continuous_regulator(a, b, q, r)
    measure = "spectral_radius" if time == "discrete" else "largest_real_part"
    return {"K": result.gain.tolist(), "X": result.cost.tolist(), measure: getattr(result, measure)}


DESIGNS: Mapping[str, Callable[[Any], dict[str, Json]]] = {
    "place": place,
    "check": check,
    "lqr": regulate,
    "network": queueing_models.answer,
    "tcc": friendliness.answer,
    "selectivity": selectivity.answer,
}


def _model(values: Mapping[str, Any]) -> Model:
    return Model(values["a"], values["b"], int(values["delay"]))


def _encode_report(report: GainsReport) -> dict[str, Json]:
    return asdict(report)


def _parse_poles(given: Mapping[str, Any], time: str) -> list[complex]:
    """Read the poles, each a number or [re, im], all stable. Raise `BadInput` naming the first invalid one."""
    listed = given.get("poles")
    if not isinstance(listed, list) or not listed:
        raise BadInput("poles", "must be a list of poles, each a number or [re, im]")
    return [_parse_pole(each, f"poles[{at}]", time) for at, each in enumerate(listed)]


def _parse_pole(given: Any, where: str, time: str) -> complex:
    parts = given if isinstance(given, list) else [given, 0.0]
    if len(parts) != 2 or not all(_is_number(part) for part in parts):
        raise BadInput(where, "must be a number, or [re, im] with two finite numbers")
    pole = complex(parts[0], parts[1])
    if time == "discrete" and abs(pole) >= 1:
        raise BadInput(where, f"must have an absolute value below 1, not {abs(pole):g}")
    if time == "continuous" and pole.real >= 0:
        raise BadInput(where, f"must have a real part below 0, not {pole.real:g}")
    return pole


def _parse_matrix(given: Mapping[str, Any], name: str) -> Floats:
    """Read a list of rows of equal length with finite numbers. Raise `BadInput` naming the row or element."""
    rows = given.get(name)
    if not isinstance(rows, list) or not rows:
        raise BadInput(name, "must be a list of rows, each a list of numbers")
    if len(rows) > MAX_STATES:
        raise BadInput(name, f"must have at most {MAX_STATES} rows, not {len(rows)}")
    for at, row in enumerate(rows):
        if not isinstance(row, list) or not row or len(row) > MAX_STATES:
            raise BadInput(f"{name}[{at}]", f"must be a list of 1 to {MAX_STATES} numbers")
        if len(row) != len(rows[0]):
            raise BadInput(f"{name}[{at}]", f"must have {len(rows[0])} numbers like the first row, not {len(row)}")
        for column, value in enumerate(row):
            if not _is_number(value):
                raise BadInput(f"{name}[{at}][{column}]", "must be a finite number")
    return np.array(rows, dtype=float)


def _check_square(a: Floats) -> None:
    if a.shape[0] != a.shape[1]:
        raise BadInput("A", f"must have as many columns as rows, not {a.shape[0]} rows of {a.shape[1]}")


def _is_number(value: Any) -> bool:
    return checks.is_number(value, -GREATEST, GREATEST)
