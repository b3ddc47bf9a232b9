"""Tables that shed no more than an error budget allows: all shares smaller by one factor.

What is shed is counted as the pipeline counts it: events/s, once for each pattern that goes without. The
factor is found by halving, not by dividing: where less is shed upstream more arrives downstream, so what is
shed is not proportional to it. Found tables always keep to what is allowed, whatever the shape between.
"""

from collections.abc import Mapping

from controllers.patterns.application import Floats
from controllers.shedding.inputs import SheddingInputs

HALVINGS = 30
Shares = Mapping[str, Mapping[str, float]]


def flows(inputs: SheddingInputs, shed: Shares) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Pattern → events/s of its types that are offered, and that are admitted, under a table of shares."""
    application, made = inputs.application, inputs.application.emissions(inputs.outside, {}, of=[])
    offered, admitted = dict[str, Floats](), dict[str, Floats]()
    for pattern in application.patterns:
        dropped, rates = shed.get(pattern.name, {}), application.offered(pattern, inputs.outside, made)
        offered[pattern.name] = rates
        admitted[pattern.name] = rates * [1 - dropped.get(symbol, 0.0) for symbol in pattern.symbols]
        made[application.index[pattern.emits]] += pattern.emission(admitted[pattern.name])
    return offered, admitted


def shed_per_second(inputs: SheddingInputs, shed: Shares) -> float:
    """Events/s that patterns go without under a table, once for each of them."""
    offered, admitted = flows(inputs, shed)
    return float(sum((offered[name] - admitted[name]).sum() for name in offered))


def cut(inputs: SheddingInputs, shed: Shares, most_per_second: float) -> Shares:
    """The table, or the greatest part of it that sheds no more than this."""
    if shed_per_second(inputs, shed) <= most_per_second:
        return shed
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if shed_per_second(inputs, _scaled(shed, middle)) <= most_per_second:
            low = middle
        else:
            high = middle
    return _scaled(shed, low)


def _scaled(shed: Shares, factor: float) -> dict[str, dict[str, float]]:
    return {
        pattern: {symbol: factor * share for symbol, share in types.items()}
        for pattern, types in shed.items()
    }
