"""Friendliness of TCC's parameters: when they share a bottleneck fairly (Tang, Theorem 1).

    (1)  q > p (p + 1) / (p + 2)
    (2)  w ≥ 1 - (p/q - 1)²
    (6)  share of a bottleneck that a competitor keeps busy:  1 - q/p  to  (1 + p)(p - q) / (p (1 + p - q))

p: threads added per step, q: gain that they have to bring, w: threads removed before; shares of 1. For p = 0.25, q =
0.14 the share is 0.440 to 0.4955, for q = 0.05 it is 0.8 to 0.833 (ERRATA E12).
"""

from common.errors import BadInput
from common.parameter import Parameter, read_document
from controllers.framework.decision import Json

INPUT = (
    Parameter("p", "share", "Threads added per step.", None, 1e-6, 10, required=True),
    Parameter("q", "share", "Minimum gain from these threads.", None, 1e-6, 10, required=True),
    Parameter("w", "share", "Threads removed before exploring.", None, 0, 1, required=True),
)
# Table 1 with w of the third row as condition (2) requires (ERRATA E10): p → q, w.
TABLE_1 = {
    0.10: (0.054, 0.28),
    0.15: (0.082, 0.32),
    0.20: (0.115, 0.454),
    0.25: (0.14, 0.39),
    0.30: (0.17, 0.42),
    0.35: (0.205, 0.50),
    0.40: (0.24, 0.56),
    0.45: (0.27, 0.56),
    0.50: (0.31, 0.63),
}


def compute_minimum_q(p: float) -> float:
    """Return the lower bound of q from condition (1), exclusive."""
    return p * (p + 1) / (p + 2)


def compute_minimum_w(p: float, q: float) -> float:
    """Return the lower bound of w from condition (2), inclusive."""
    return max(0.0, 1 - (p / q - 1) ** 2)


def share(p: float, q: float) -> tuple[float, float]:
    """Return the lowest and highest share of a contended bottleneck (equation 6)."""
    return 1 - q / p, (1 + p) * (p - q) / (p * (1 + p - q))


def scale_q(p: float, q: float, step: float) -> float:
    """Return the gain that a step of another size has to bring: as far above condition (1) as q is for p.

    With few threads no step is exactly p: from 1 to 2 threads is a step of 1.
    """
    return q * compute_minimum_q(step) / compute_minimum_q(p)


def answer(document: object) -> dict[str, Json]:
    """Answer `manage.py design tcc`. Raise `BadInput` naming the field."""
    given = read_document(INPUT, document)
    p, q, w = (float(given[name]) for name in "pqw")
    if q >= p:
        raise BadInput("q", f"must be less than p ({p:g}): no step gains more than its share")
    conditions = {
        "q_above": compute_minimum_q(p),
        "q_holds": q > compute_minimum_q(p),
        "w_at_least": compute_minimum_w(p, q),
        "w_holds": w >= compute_minimum_w(p, q),
    }
    return {
        "friendly": bool(conditions["q_holds"] and conditions["w_holds"]),
        "conditions": conditions,
        "share": list(share(p, q)),
    }
