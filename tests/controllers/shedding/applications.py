"""Random CEP applications: one bottleneck among sources and operators that take what it emits."""

import numpy as np

OUTSIDE = 5


def expression(chance: np.random.Generator, symbols: list[str], depth: int = 2) -> str:
    """A nested expression over some of the symbols."""
    if depth == 0 or chance.random() < 0.3:
        return str(chance.choice(symbols))
    operator = chance.choice(["SEQ", "AND", "OR"], p=[0.4, 0.4, 0.2])
    parts = [expression(chance, symbols, depth - 1) for _ in range(int(chance.integers(1, 4)))]
    return f"{operator}({('; ' if operator == 'SEQ' else ', ').join(parts)})"


def pattern(chance, operator: str, name: str, symbols: list[str], seconds: float) -> dict:
    return {
        "operator": operator,
        "name": name,
        "expression": expression(chance, symbols),
        "emits": f"out-{name}",
        "seconds": seconds,
        "outputs": float(chance.choice([1, 1, 2])),
        "correction": float(chance.choice([1.0, 0.8])),
    }


def observation(chance: np.random.Generator) -> dict:
    """An observation of the law: bottleneck B, its patterns, two operators below, weighted sinks."""
    types = [f"t{index}" for index in range(OUTSIDE)]
    rows = [
        pattern(chance, "B", f"b{index}", types, float(chance.uniform(0.001, 0.02)))
        for index in range(int(chance.integers(1, 5)))
    ]
    emitted = [row["emits"] for row in rows]
    below = [
        pattern(chance, f"D{index % 2}", f"d{index}", [*emitted, "u0", "u1"], 0.0)
        for index in range(int(chance.integers(1, 4)))
    ]
    last = [pattern(chance, "E", "e0", [*(row["emits"] for row in below), "w0"], 0.0)]
    rows += below + last
    sinks = {row["emits"]: float(chance.choice([0.5, 1.0, 3.0])) for row in rows if chance.random() < 0.6}
    rates = {
        "B": {name: float(chance.uniform(0, 60)) for name in types},
        "D0": {name: float(chance.uniform(0, 30)) for name in ("u0", "u1")},
        "D1": {name: float(chance.uniform(0, 30)) for name in ("u0", "u1")},
        "E": {"w0": float(chance.uniform(0, 20))},
    }
    return {"bottleneck": "B", "arrivals": rates, "patterns": rows, "sinks": sinks or {emitted[0]: 1.0}}


def running_example(chance: np.random.Generator) -> dict:
    """The paper's four operators, at random rates."""
    rows = [
        {"operator": "O2", "name": "P21", "expression": "SEQ(0;0;1)", "emits": "Q21", "seconds": 0.010},
        {"operator": "O2", "name": "P22", "expression": "AND(1,2,3)", "emits": "Q22", "seconds": 0.012},
        {"operator": "O3", "name": "P3", "expression": "AND(Q11,Q21)", "emits": "S1", "seconds": 0},
        {"operator": "O4", "name": "P4", "expression": "AND(Q12,Q22)", "emits": "S2", "seconds": 0},
    ]
    rates = {
        "O2": {str(kind): float(chance.uniform(0, 60)) for kind in range(4)},
        "O3": {"Q11": float(chance.uniform(0, 30))},
        "O4": {"Q12": float(chance.uniform(0, 30))},
    }
    return {"bottleneck": "O2", "arrivals": rates, "patterns": rows, "sinks": {"S1": 1.0, "S2": 1.0}}
