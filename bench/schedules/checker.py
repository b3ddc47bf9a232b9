"""The checker: compares the history of a schedule and the servers' final state with the documented promises.

It uses no code of the product. Each promise is named by its page and heading below `docs/understand`. The kinds of
operations, and their data:

| kind | data |
|---|---|
| publish | `blocks`: block ID → event IDs, in order |
| flush | `node`, `blocks`: the IDs in order |
| claim | `node`, `worker`; result `entries`: [entry ID, block ID] |
| keep_alive | `node`, `worker`; result `entries`: IDs of the entries that the worker still holds |
| acknowledge | `node`, `worker`, `entries` |
| retry, dead_letter | `node`, `worker`, `entry`; result `changed`: whether the worker held the entry |
| depart | `node`; result `entries`: [entry ID, block ID, target] |
| acquire, renew, release | `lease`, `seconds`; result `fence` (None: not held) |
| fenced_write | `lease`, `fence`; result `accepted` |
| clock | `host`, `seconds` |
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

from bench.schedules.history import FAIL, OK, UNKNOWN, Operation

LOSS = "promises/exactly-once: every published event takes effect once"
COPIES = "how/events, How events are published: a node stores all blocks of a flush, or none"
DIVISION = "promises/exactly-once, Verify it: published events = effects + dead letters"
ORDER = "promises/exactly-once, Limits: a container keeps the order of the events of one publish call"
CLAIM = "how/events, Numbers: only a worker without a heartbeat loses its claim"
OVERTAKEN = "promises/exactly-once: a worker that was overtaken changes nothing of the block"
COUNTS = "how/events, How dead letters are handled: backlog = inserted - removed events"
LEASE = "promises/holds: one holder of a lease at a time, each with a greater fencing number"
FENCE = "promises/holds: an outdated fencing number writes nothing"
PROGRESS = "how/events, How a jobs queue is processed: waiting blocks are processed"
ROUNDING_NS = 20_000_000  # of the servers' times, which are milliseconds
MAX_UNSURE_FLUSHES = 12  # that are tried in all combinations; more are not decided
MAX_SHOWN = 6


@dataclass(frozen=True)
class Violation:
    """A broken promise: the events or blocks concerned, and the operations that show it."""

    promise: str
    subjects: tuple[str, ...]
    operations: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeState:
    """A node at the end. waiting, dead: the event IDs of each block and dead letter."""

    counters: Mapping[str, int]
    waiting: Sequence[Sequence[str]] = ()
    dead: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class FinalState:
    """The plant after all faults have ended. effects: IDs of the events that took effect, one for each effect."""

    nodes: Mapping[str, NodeState]
    effects: Sequence[str]


@dataclass
class _Index:
    """The operations of a history, by what the promises are about."""

    by_kind: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    flushes: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))  # block → flushes
    events: dict[str, list[str]] = field(default_factory=dict)  # block → events
    claims: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    # node, worker → claims whose entries are not known
    unsure_claims: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    held: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    released: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def build(cls, history: Iterable[Operation]) -> "_Index":
        index = cls()
        for operation in history:
            index._add(operation)
        return index

    def _add(self, operation: Operation) -> None:
        data, node = operation.data, operation.data.get("node", "")
        self.by_kind[operation.kind].append(operation)
        if operation.kind == "publish":
            self.events |= data["blocks"]
        elif operation.kind == "flush":
            for block in data["blocks"]:
                self.flushes[block].append(operation)
        elif operation.kind == "claim" and operation.outcome == UNKNOWN:
            self.unsure_claims[node, data["worker"]].append(operation)
        elif operation.kind == "claim" and operation.outcome == OK:
            for entry, _ in data["entries"]:
                self.claims[node, entry].append(operation)
                self.held[node, entry].append(operation)
        elif operation.kind == "keep_alive" and operation.outcome == OK:
            for entry in data["entries"]:
                self.held[node, entry].append(operation)
        elif operation.kind in ("acknowledge", "retry", "dead_letter"):
            for entry in data.get("entries") or [data["entry"]]:
                self.released[node, entry].append(operation)

    def has_clock_step(self, host: str, since_ns: int, until_ns: int) -> bool:
        """Return whether the host's clock was set between these times."""
        steps = (step for step in self.by_kind["clock"] if step.data["host"] == host)
        return any(step.began_ns <= until_ns and _get_end(step) >= since_ns for step in steps)


def _get_end(operation: Operation) -> int:
    return operation.ended_ns if operation.ended_ns is not None else 2**63


def check_history(
    history: Sequence[Operation], final: FinalState, idle_seconds: float, was_drained: bool = False
) -> list[Violation]:
    """Return the violations. idle_seconds: after which a claim may be taken.

    was_drained: whether no block waited at some time after the faults. What waits at the end came later then.
    """
    index = _Index.build(history)
    violations = [
        *_check_events(index, final),
        *_check_copies(index),
        *_check_order(index),
        *_check_claims(index, idle_seconds),
        *_check_overtaken(index),
        *_check_counters(final),
        *_check_leases(index),
        *_check_fences(index),
    ]
    waiting = [event for state in final.nodes.values() for block in state.waiting for event in block]
    if waiting and not was_drained:
        violations.append(Violation(PROGRESS, tuple(waiting[:MAX_SHOWN])))
    return violations


def _check_events(index: _Index, final: FinalState) -> Iterator[Violation]:
    """Each acknowledged event took effect, waits, or is a dead letter; an event of one block is one of these."""
    effects = set(final.effects)
    waiting = {event for state in final.nodes.values() for block in state.waiting for event in block}
    letters = [event for state in final.nodes.values() for letter in state.dead for event in letter]
    dead = set(letters)
    acknowledged = [publish for publish in index.by_kind["publish"] if publish.outcome == OK]
    for publish in acknowledged:
        events = [event for block in publish.data["blocks"].values() for event in block]
        lost = [event for event in events if event not in effects | waiting | dead]
        if lost:
            yield Violation(LOSS, tuple(lost[:MAX_SHOWN]), _describe([publish, *_list_flushes(index, publish)]))
    if len(effects) < len(final.effects):
        twice = sorted({event for event in effects if list(final.effects).count(event) > 1})
        yield Violation(LOSS, tuple(twice[:MAX_SHOWN]))
    blocks = {event: block for block, events in index.events.items() for event in events}
    for event in sorted((effects | dead | waiting) - blocks.keys()):
        yield Violation(DIVISION, (event,), ("no process has published this event",))
    for event, block in blocks.items():
        copies = [flush for flush in index.flushes[block] if flush.outcome != FAIL]
        if len(copies) > 1:
            continue  # delivery is at least once: the copies of the block may have different outcomes
        if (event in effects and event in dead) or letters.count(event) > 1:
            yield Violation(DIVISION, (event, block), _describe(_list_block_operations(index, block)))


def _list_flushes(index: _Index, publish: Operation) -> list[Operation]:
    return [flush for block in publish.data["blocks"] for flush in index.flushes[block]]


def _list_block_operations(index: _Index, block: str) -> list[Operation]:
    """Return what happened to the entries of a block."""
    entries = {
        (claim.data["node"], entry)
        for claim in index.by_kind["claim"]
        for entry, of in claim.data.get("entries", ())
        if of == block
    }
    involved = [*index.flushes[block]]
    for place in entries:
        involved += index.claims[place] + index.released[place]
    return sorted(involved, key=lambda operation: operation.began_ns)


def _check_copies(index: _Index) -> Iterator[Violation]:
    """The entries of a block on a node are those that flushes stored, and those that came from other nodes."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)  # node, block → entries
    arrived: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)  # → source and its entry
    for claim in index.by_kind["claim"]:
        for entry, block in claim.data.get("entries", ()):
            seen[claim.data["node"], block].add(entry)
    for departure in index.by_kind["depart"]:
        for entry, block, target in departure.data.get("entries", ()):
            seen[departure.data["node"], block].add(entry)
            arrived[target, block].add((departure.data["node"], entry))
    by_node: dict[str, list[Operation]] = defaultdict(list)
    for flush in index.by_kind["flush"]:
        by_node[flush.data["node"]].append(flush)
    for node, flushes in by_node.items():
        for group in _group_by_blocks(flushes):
            stored = {
                block: len(seen[node, block]) - len(arrived[node, block])
                for flush in group
                for block in flush.data["blocks"]
            }
            if not _can_explain(group, stored):
                wrong = tuple(f"{block}: {count} stored on {node}" for block, count in stored.items())
                yield Violation(COPIES, wrong[:MAX_SHOWN], _describe(group))


def _group_by_blocks(flushes: Sequence[Operation]) -> list[list[Operation]]:
    """Return the flushes in groups that have no block in common."""
    groups: list[tuple[set[str], list[Operation]]] = []
    for flush in flushes:
        blocks, members = set(flush.data["blocks"]), [flush]
        for group in [group for group in groups if group[0] & blocks]:
            blocks |= group[0]
            members = group[1] + members
            groups.remove(group)
        groups.append((blocks, members))
    return [members for _, members in groups]


def _can_explain(flushes: Sequence[Operation], stored: Mapping[str, int]) -> bool:
    """Return whether these flushes, each stored as a whole or not at all, give these numbers of entries."""
    unsure = [flush for flush in flushes if flush.outcome == UNKNOWN]
    if len(unsure) > MAX_UNSURE_FLUSHES:
        return True
    certain = [flush for flush in flushes if flush.outcome == OK]
    for chosen in product((False, True), repeat=len(unsure)):
        counts = dict.fromkeys(stored, 0)
        happened = [flush for flush, is_stored in zip(unsure, chosen, strict=True) if is_stored]
        for flush in (*certain, *happened):
            for block in flush.data["blocks"]:
                counts[block] += 1
        if counts == stored:
            return True
    return False


def _check_order(index: _Index) -> Iterator[Violation]:
    """The blocks of a call that were stored at the first attempt are in order on each node."""
    moved = {entry[1] for departure in index.by_kind["depart"] for entry in departure.data.get("entries", ())}
    entries: dict[tuple[str, str], str] = {}
    for claim in index.by_kind["claim"]:
        for entry, block in claim.data.get("entries", ()):
            entries[claim.data["node"], block] = entry
    for publish in index.by_kind["publish"]:
        flushes = _list_flushes(index, publish)
        is_smooth = publish.outcome == OK and all(flush.outcome == OK for flush in flushes)
        if not is_smooth or any(len(index.flushes[block]) > 1 for block in publish.data["blocks"]):
            continue
        by_node: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for block in publish.data["blocks"]:
            node = index.flushes[block][0].data["node"] if index.flushes[block] else ""
            if block not in moved and (entry := entries.get((node, block))):
                milliseconds, _, place = entry.partition("-")
                by_node[node].append((int(milliseconds), int(place)))
        for node, order in by_node.items():
            if any(later <= earlier for earlier, later in pairwise(order)):
                yield Violation(ORDER, (node, *publish.data["blocks"]), _describe([publish, *flushes]))


def _check_claims(index: _Index, idle_seconds: float) -> Iterator[Violation]:
    """A block is given to another worker only when its worker has released it, or has not renewed its claim."""
    idle_ns = round(idle_seconds * 1e9)
    for (node, entry), claims in index.claims.items():
        for earlier, later in pairwise(sorted(claims, key=_get_end)):
            worker = earlier.data["worker"]
            if worker == later.data["worker"] or later.began_ns < _get_end(earlier):
                continue
            renewals = [
                held
                for held in index.held[node, entry]
                if held.data["worker"] == worker and _get_end(held) <= later.began_ns
            ]
            newest = max(renewals, key=lambda renewal: renewal.began_ns)
            since_ns, until_ns = newest.began_ns, _get_end(later)
            released = [
                release
                for release in index.released[node, entry]
                if release.data["worker"] == worker and earlier.began_ns <= release.began_ns <= until_ns
            ]
            if released or index.has_clock_step(node, since_ns, until_ns):
                continue
            if until_ns - since_ns < idle_ns - ROUNDING_NS:
                yield Violation(CLAIM, (node, entry), _describe([earlier, newest, later]))


def _check_overtaken(index: _Index) -> Iterator[Violation]:
    """A worker changes no entry that another worker has claimed after it, and does not take it back."""
    for place, claims in index.claims.items():
        changes = [change for change in index.released[place] if change.kind != "acknowledge"]
        changes = [change for change in changes if change.outcome == OK and change.data["changed"]]
        for change in (*changes, *(held for held in index.held[place] if held.kind == "keep_alive")):
            worker = change.data["worker"]
            # A claim of its own that overlaps the change, or has no known outcome, may be the newest one.
            own = [claim for claim in (*claims, *index.unsure_claims[place[0], worker]) if _is_own(claim, change)]
            own_end = max(map(_get_end, own), default=0)
            earlier = [claim for claim in claims if _get_end(claim) < change.began_ns]
            others = [claim for claim in earlier if claim.data["worker"] != worker and claim.began_ns > own_end]
            if others:
                yield Violation(OVERTAKEN, place, _describe([*others, change]))


def _is_own(claim: Operation, change: Operation) -> bool:
    return bool(claim.data["worker"] == change.data["worker"] and claim.began_ns < _get_end(change))


def _check_counters(final: FinalState) -> Iterator[Violation]:
    """The counters of a node count what waits there."""
    for name, state in final.nodes.items():
        for unit, held in (("events", sum(map(len, state.waiting))), ("blocks", len(state.waiting))):
            counted = state.counters.get(f"inserted_{unit}", 0) - state.counters.get(f"removed_{unit}", 0)
            if counted != held:
                yield Violation(COUNTS, (name,), (f"{counted} {unit} are counted, and {held} wait",))


def _check_leases(index: _Index) -> Iterator[Violation]:
    """A lease is given to nobody else while it is held, and its fencing numbers rise."""
    acquired: dict[str, list[Operation]] = defaultdict(list)
    for operation in index.by_kind["acquire"]:
        if operation.outcome == OK and operation.data["fence"] is not None:
            acquired[operation.data["lease"]].append(operation)
    for lease, grants in acquired.items():
        for place, later in enumerate(grants):
            for earlier in grants[:place]:
                if _get_end(earlier) > later.began_ns:
                    continue
                if later.data["fence"] <= earlier.data["fence"]:
                    yield Violation(LEASE, (lease,), _describe([earlier, later]))
                until_ns = _find_lease_end(index, earlier)
                is_stepped = index.has_clock_step("control", earlier.began_ns, _get_end(later))
                if _get_end(later) < until_ns - ROUNDING_NS and not is_stepped:
                    yield Violation(LEASE, (lease, "two holders at once"), _describe([earlier, later]))


def _find_lease_end(index: _Index, grant: Operation) -> int:
    """Return the time until which the grant and its renewals hold the lease, if its holder doesn't release it."""
    fence, seconds = grant.data["fence"], float(grant.data["seconds"])
    seconds_ns = round(seconds * 1e9)
    until_ns = grant.began_ns + seconds_ns
    for renewal in index.by_kind["renew"]:
        if renewal.data["held"] == fence and renewal.outcome == OK and renewal.data["fence"] is not None:
            until_ns = max(until_ns, renewal.began_ns + seconds_ns)
    releases = [release.began_ns for release in index.by_kind["release"] if release.data["held"] == fence]
    return min([until_ns, *releases])


def _check_fences(index: _Index) -> Iterator[Violation]:
    """A write with a smaller fencing number than an earlier accepted write is refused."""
    accepted = [write for write in index.by_kind["fenced_write"] if write.outcome == OK and write.data["accepted"]]
    for place, later in enumerate(accepted):
        for earlier in accepted[:place]:
            if _get_end(earlier) <= later.began_ns and later.data["fence"] < earlier.data["fence"]:
                yield Violation(FENCE, (later.data["lease"],), _describe([earlier, later]))


def _describe(operations: Iterable[Operation]) -> tuple[str, ...]:
    return tuple(operation.describe() for operation in list(operations)[:MAX_SHOWN])
