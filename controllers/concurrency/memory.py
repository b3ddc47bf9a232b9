"""What the concurrency law remembers between observations, as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from controllers.concurrency import explorer, tcc
from controllers.concurrency.explorer import CurveSearch, check_search, search_from
from controllers.concurrency.tcc import Cycle, check_cycle, cycle_from
from controllers.concurrency.throughput import MAX_THREADS, SAMPLE, ThroughputSample, check_sample, sample_from
from controllers.concurrency.trial import ORIGIN, TRIAL, Origin, Trial, restore_origin, restore_trial
from controllers.framework.decision import Json
from controllers.framework.law import Values

Exploration = Cycle | CurveSearch
STATE = (
    Parameter(
        "machine",
        "exploration",
        "State of the exploration, by method.",
        kind="variant",
        required=True,
        variants=(("tcc", tcc.STATE), ("explorer", explorer.STATE)),
    ),
    Parameter(
        "sample", "sample", "Samples at the current number of threads.", kind="object", required=True, items=SAMPLE
    ),
    Parameter("refused", "observations", "Consecutive observations of a different pool size.", 0, 0, 1e9, "integer"),
    Parameter("limit", "threads", "Limit of the pool; null: not known.", None, 1, MAX_THREADS, "integer"),
    Parameter("epoch", "explorations", "Exploration number, shared by all hosts.", 0, 0, 1e9, "integer"),
    Parameter("followed", "flag", "True: no loop controlled the pool.", False, kind="flag"),
    Parameter(
        "trial", "trial", "Trial of one more step in the steady state.", kind="object", or_null=True, items=TRIAL
    ),
    Parameter("origin", "pool", "Pool when the exploration started.", kind="object", or_null=True, items=ORIGIN),
)


def check_state(state: Values, where: str) -> None:
    """Raise `BadInput` if the remembered values contradict each other."""
    machine = state["machine"]
    (check_cycle if machine["kind"] == "tcc" else check_search)(machine, f"{where}.machine")
    check_sample(state["sample"], f"{where}.sample")
    _check_trial(state["trial"], machine, f"{where}.trial.threads")


def _check_trial(trial: Values | None, machine: Values, where: str) -> None:
    """Check that a trial starts from a steady pool with a known throughput."""
    if trial is None or not trial["threads"]:
        return
    if machine["phase"] != "steady" or not machine["threads"] or not machine["steady_per_second"]:
        raise BadInput(where, "must be 0 unless machine is steady, with threads and steady_per_second above 0")


@dataclass(frozen=True)
class Memory:
    """Memory of the law.

    `exploration` is in progress and `sample` belongs to its current size. `refused` counts consecutive observations of
    another size than ordered, which finally becomes the `limit`. `epoch` numbers the explorations of all hosts.
    `followed` is true if the pool was not controlled at the last observation. `trial` is one more step in the steady
    state. `origin` is the pool when its exploration started, or None while it is not measured.
    """

    exploration: Exploration
    sample: ThroughputSample = field(default_factory=ThroughputSample)
    refused: int = 0
    limit: int | None = None
    epoch: int = 0
    followed: bool = False
    trial: Trial = field(default_factory=Trial)
    origin: Origin | None = None

    @property
    def threads(self) -> int:
        """Return the number of threads that the pool should have: on trial, or of the exploration."""
        return self.trial.threads or self.exploration.threads

    def to_json(self) -> Json:
        """Return the memory as the law's state."""
        kind = "tcc" if isinstance(self.exploration, Cycle) else "explorer"
        return {
            "machine": {"kind": kind, **self.exploration.to_json()},
            "sample": self.sample.to_json(),
            "refused": self.refused,
            "limit": self.limit,
            "epoch": self.epoch,
            "followed": self.followed,
            "trial": self.trial.to_json(),
            "origin": None if self.origin is None else self.origin.to_json(),
        }


def restore_memory(document: Mapping[str, Any]) -> Memory:
    """Build the memory from a document that `to_json` wrote."""
    rest = {
        **document,
        "trial": restore_trial(document.get("trial")),
        "origin": restore_origin(document.get("origin")),
        "sample": sample_from(document["sample"]),
    }
    return Memory(_exploration(rest.pop("machine")), **rest)


def _exploration(document: Mapping[str, Any]) -> Exploration:
    rest = {key: value for key, value in document.items() if key != "kind"}
    return cycle_from(rest) if document["kind"] == "tcc" else search_from(rest)


def start_exploration(parameters: Values, threads: int, steps: int = 0) -> Memory:
    """Start an exploration at a size; `steps` counts the steps so far."""
    tcc = parameters["method"] == "tcc"
    return Memory(Cycle("base", threads, steps=steps) if tcc else CurveSearch("probe", threads, steps=steps))


def start_at_rest(parameters: Values, memory: Memory, threads: int) -> Memory:
    """Return a steady memory at the pool's size, without any measurement."""
    steps = memory.exploration.steps
    tcc = parameters["method"] == "tcc"
    exploration = Cycle("steady", threads, steps=steps) if tcc else CurveSearch("steady", threads, steps=steps)
    return Memory(exploration, epoch=memory.epoch, followed=True)
