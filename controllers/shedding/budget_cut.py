"""Tables that shed no more than an error budget allows: all shares are reduced by one factor.

Shed events are counted as the pipeline counts them: in events/s, once for each pattern that loses them. The factor is
found by bisection, not by division: if less is shed upstream, more arrives downstream, so the shed rate is not
proportional to the factor. The resulting tables always keep to the allowed rate.
"""

from collections.abc import Mapping

from controllers.patterns.application import Floats
from controllers.shedding.inputs import SheddingInputs

HALVINGS = 30
Shares = Mapping[str, Mapping[str, float]]


def compute_flows(inputs: SheddingInputs, shed: Shares) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the offered and the admitted events/s of each pattern's types under a table of shares."""
    application, made = inputs.application, inputs.application.compute_emissions(inputs.outside, {}, of=[])
    offered, admitted = dict[str, Floats](), dict[str, Floats]()
    for pattern in application.patterns:
        dropped, rates = (shed.get(pattern.name, {}), application.compute_offered(pattern, inputs.outside, made))
        offered[pattern.name] = rates
        admitted[pattern.name] = rates * [1 - dropped.get(symbol, 0.0) for symbol in pattern.symbols]
        made[application.index[pattern.emits]] += pattern.compute_emission(admitted[pattern.name])
    return offered, admitted


def shed_per_second(inputs: SheddingInputs, shed: Shares) -> float:
    """Return the events/s that patterns lose under a table, counted once for each pattern."""
    offered, admitted = compute_flows(inputs, shed)
    return float(sum((offered[name] - admitted[name]).sum() for name in offered))


def cut(inputs: SheddingInputs, shed: Shares, most_per_second: float) -> Shares:
    if shed_per_second(inputs, shed) <= most_per_second:
        return shed
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if shed_per_second(inputs, _scale_shares(shed, middle)) <= most_per_second:
            low = middle
        else:
            high = middle
    return _scale_shares(shed, low)


def _scale_shares(shed: Shares, factor: float) -> dict[str, dict[str, float]]:
    return {pattern: {symbol: factor * share for symbol, share in types.items()} for pattern, types in shed.items()}
