"""Design requests: the documents that `manage.py design NAME` takes and answers, by name."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

import numpy as np

from common import checks
from common.checks import refuse_unknown
from common.errors import BadInput
from common.parameter import Parameter, read_document, read_object
from controllers.design import friendliness, lqr, placement, queueing_models
from controllers.design.lqr import Floats
from controllers.design.placement import FORMS, Gains, Model
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
MAX_STATES, GREATEST = 1_000, 1e100  # squares of larger elements overflow


def place(document: object) -> dict[str, Json]:
    """Return the gains of the flow law from {a, b, delay, poles, form}, and what they promise."""
    given = read_object(document, "document")
    listed, poles = given.get("poles"), list[complex]()
    if not isinstance(listed, list) or not listed:
        raise BadInput("poles", "must be a list of poles, each a number or [re, im]")
    for at, pole in enumerate(listed):
        parts = pole if isinstance(pole, list) else [pole, 0.0]
        if len(parts) != 2 or not all(_is_number(part) for part in parts):
            raise BadInput(f"poles[{at}]", "must be a number, or [re, im] with two finite numbers")
        poles.append(complex(*parts))
        if abs(poles[-1]) >= 1:
            raise BadInput(f"poles[{at}]", f"must have an absolute value below 1, not {abs(poles[-1]):g}")
    values = read_document((*MODEL, FORM), {key: value for key, value in given.items() if key != "poles"})
    model = Model(values["a"], values["b"], values["delay"])
    return _report(model, placement.place(model, poles, values["form"]))


def check(document: object) -> dict[str, Json]:
    """Return what the gains {a, b, delay, kp, ki, kd, form} promise."""
    values = read_document((*MODEL, *GAINS), document)
    gains = Gains(values["kp"], values["ki"], values["kd"], values["form"])
    return _report(Model(values["a"], values["b"], values["delay"]), gains)


def _report(model: Model, gains: Gains) -> dict[str, Json]:
    return {"kp": gains.kp, "ki": gains.ki, "kd": gains.kd, **asdict(placement.report(model, gains))}


def regulate(document: object) -> dict[str, Json]:
    """Return K, X, and the spectral radius from {A, B, Q, R}."""
    given = read_object(document, "document")
    refuse_unknown(given, ("A", "B", "Q", "R"), "")
    a, b, q, r = (_parse_matrix(given, name) for name in "ABQR")
    if a.shape[0] != a.shape[1]:
        raise BadInput("A", f"must have as many columns as rows, not {a.shape[0]} rows of {a.shape[1]}")
    result = lqr.design_regulator(a, b, q, r)
    return {"K": result.gain.tolist(), "X": result.cost.tolist(), "spectral_radius": result.spectral_radius}


DESIGNS: Mapping[str, Callable[[object], dict[str, Json]]] = {
    "place": place,
    "check": check,
    "lqr": regulate,
    "network": queueing_models.answer,
    "tcc": friendliness.answer,
    "selectivity": selectivity.answer,
}


def _parse_matrix(given: Mapping[str, object], name: str) -> Floats:
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


def _is_number(value: object) -> bool:
    return checks.is_number(value, -GREATEST, GREATEST)
