"""Looks of the concurrency law at a pool."""

import json

from controllers import catalog
from controllers.concurrency.law import Concurrency
from controllers.framework.law import decide_next, start_state

LAW = Concurrency()


def read(**parameters):
    return catalog.read_parameters(LAW, parameters)


def look(parameters, state, threads, gaps, **more):
    seen = catalog.read_observation(LAW, {"threads": threads, "interdeparture_seconds": gaps, **more})
    return decide_next(LAW, parameters, catalog.read_state(LAW, parameters, json.loads(json.dumps(state))), seen)


def at_rest(parameters, state=None, capacity=8, **more):
    """The state of a law that has explored a plant of so many servers, and its threads."""
    state = start_state(LAW, parameters) if state is None else state
    for _ in range(80):
        threads = state["machine"]["threads"]
        state, _ = look(parameters, state, threads, [1 / min(threads, capacity)] * 60, seconds=1.0, **more)
        if state["machine"]["phase"] == "steady":
            return state, state["machine"]["threads"]
    raise AssertionError("it does not come to rest")
