"""Random plants for the laws that move points: observations as `decide` takes them."""

from hypothesis import strategies as st

from queues.points import TOTAL, share

STATES = ("IDLE", "NORMAL", "BUSY", "TOOBUSY", "OFFLINE")


def node(name, capacity=1.0, drained=False, state="NORMAL"):
    return {"name": name, "capacity": capacity, "drained": drained, "state": state}


def queue(name, rate, containers):
    return {"name": name, "rate": rate, "containers": containers}


def observation(nodes, queues):
    return {"nodes": nodes, "queues": queues}


@st.composite
def observations(draw, nodes=(2, 7), queues=(1, 8), states=STATES, rate=900.0):
    """Nodes of several capacities and states, and queues in two or more containers."""
    names = [f"n{index}" for index in range(draw(st.integers(*nodes)))]
    some_nodes = [
        node(name, draw(st.sampled_from([0.5, 1.0, 2.0])), draw(st.integers(0, 9)) == 0, draw(st.sampled_from(states)))
        for name in names
    ]
    some_queues = []
    for index in range(draw(st.integers(*queues))):
        holders = draw(st.lists(st.sampled_from(names), min_size=2, max_size=4, unique=True))
        weights = {name: draw(st.floats(0.3, 1.0)) for name in holders}
        some_queues.append(queue(f"q{index}", draw(st.floats(0, rate)), share(holders, weights)))
    return observation(some_nodes, some_queues)


def after(given, moves):
    """Points per queue once the moves are made; a move of what isn't there fails."""
    points = {each["name"]: dict(each["containers"]) for each in given["queues"]}
    for move in moves:
        held = points[move["queue"]]
        assert 1 <= move["points"] <= held.get(move["from"], 0), move
        held[move["from"]] -= move["points"]
        held[move["to"]] = held.get(move["to"], 0) + move["points"]
    assert all(sum(held.values()) == TOTAL for held in points.values())
    return {name: {n: p for n, p in held.items() if p} for name, held in points.items()}


def loads(given, points):
    """Load per node of an allocation of points: rate * points / points on the nodes that are heard."""
    lost = {each["name"] for each in given["nodes"] if each["state"] == "OFFLINE"}
    sums = {each["name"]: 0.0 for each in given["nodes"]}
    for each in given["queues"]:
        heard = {name: p for name, p in points[each["name"]].items() if name not in lost}
        for name, p in heard.items():
            sums[name] += each["rate"] * p / sum(heard.values())
    return sums
