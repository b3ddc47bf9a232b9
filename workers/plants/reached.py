"""Compares orders with results: whether an order for an operator took effect, and stayed in effect. Pure.

| state | meaning |
|---|---|
| pending | ordered; the operator still has other tasks |
| reached | it has had the ordered tasks, and still has, or differs for less than CONFIRM_SECONDS |
| missed | it never had them within the plant's patience since it last came closer |
| undone | it had them, and then others, which Weir did not order: a second controller, or lost capacity |

A plant may report the tasks that it aims at besides the existing ones: a rollout on Kubernetes temporarily has more
pods, or fewer. A reached order is then undone only if the plant aims at other tasks.

A loop that sees other tasks than it ordered orders again at its next tick. So an order of a loop never extends the time
of an earlier one, and an order that answers a deviation reveals it. If it then orders more instead of fewer, the used
share of the patience carries over. An order whose proof is unknown for a time is pending meanwhile, not doubted. Missed
and undone latch until the tasks are as ordered (after an undoing: for TRUSTED_SECONDS), a person sets others, or a
person releases it (the order is forgotten).
"""

from dataclasses import dataclass

from common.stored_document import replace_fields
from workers.documents.plants import OrderStatus

PENDING, REACHED, MISSED, UNDONE = "pending", "reached", "missed", "undone"
WRONG = (MISSED, UNDONE)
# Two intervals of the loops that set tasks, so that it is known at their third tick.
PATIENCE_SECONDS = 10.0
# More than one observation, because one may be of a plant that is about to change.
CONFIRM_SECONDS = 4.0
# A controller that undid it once may do so again, so it must stay for this long.
TRUSTED_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class ConvergenceTimeout:
    """By when an order is to take effect, or come closer: for more tasks than there are, and for fewer."""

    more_seconds: float = PATIENCE_SECONDS
    fewer_seconds: float = PATIENCE_SECONDS

    def get_timeout_seconds(self, ordered: int, there: int | None) -> float:
        """Return the patience for the way from the existing tasks to the ordered ones."""
        return self.more_seconds if there is None or ordered > there else self.fewer_seconds


USUAL = ConvergenceTimeout()


@dataclass(frozen=True)
class GivenOrder:
    """The last order of an operator by Weir: at (seconds since 1970), and by which loop or person."""

    tasks: int
    at: float
    by: str
    by_loop: bool = True


def follow_order(
    before: OrderStatus | None,
    order: GivenOrder,
    tasks: int | None,
    seen_at: float,
    patience: ConvergenceTimeout = USUAL,
    set_to: int | None = None,
) -> OrderStatus:
    """Return the order after an observation of `tasks` at `seen_at` (seconds since 1970).

    tasks: None if the proof is unknown. set_to: what the plant itself aims at; None: it does not report it.
    """
    if before is None or (order.at > before.at and not order.by_loop):
        before = OrderStatus(
            tasks=order.tasks, at=order.at, by=order.by, now=tasks, since=seen_at, state=PENDING, waiting_since=order.at
        )
    if seen_at <= order.at:  # it was observed before it was ordered
        return before if before.at == order.at else _restart_order(before, order, patience)
    if order.at > before.at:
        before = _restart_order(before, order, patience)
    if tasks is None:
        return _update_unseen_order(before, order, seen_at, patience)
    if before.state in (REACHED, UNDONE) and set_to is not None:
        tasks = set_to
    since = seen_at if before.now != tasks or before.since is None else before.since
    nearer = before.now is not None and abs(order.tasks - tasks) < abs(order.tasks - before.now)
    now = replace_fields(before, now=tasks, since=since)
    if before.state in WRONG:
        return _mark_recovered(now, seen_at)
    if tasks == order.tasks:
        return replace_fields(now, state=REACHED, waiting_since=None)
    if before.state == REACHED:
        doubted = seen_at - since >= CONFIRM_SECONDS
        return replace_fields(now, state=UNDONE, undone_to=tasks) if doubted else now
    waiting_since = seen_at if nearer else (before.waiting_since or order.at)
    late = seen_at - waiting_since > patience.get_timeout_seconds(order.tasks, tasks)
    return replace_fields(now, waiting_since=waiting_since, state=MISSED if late else PENDING)


def _update_unseen_order(
    before: OrderStatus, order: GivenOrder, seen_at: float, patience: ConvergenceTimeout
) -> OrderStatus:
    """Return the order without an observation: reached or doubted stays, and pending has its time."""
    if before.state != PENDING:
        return before
    late = seen_at - (before.waiting_since or order.at) > patience.get_timeout_seconds(order.tasks, before.now)
    return replace_fields(before, state=MISSED) if late else before


def _restart_order(before: OrderStatus, order: GivenOrder, patience: ConvergenceTimeout) -> OrderStatus:
    """Restart an order by a loop: if the tasks were no longer as ordered, the new order answers that."""
    anew = replace_fields(before, tasks=order.tasks, at=order.at, by=order.by)
    if before.state == PENDING:
        return replace_fields(anew, waiting_since=_carry_over_wait(before, order, patience))
    if before.state != REACHED:
        return anew
    if before.now != before.tasks:
        return replace_fields(anew, state=UNDONE, undone_to=before.now)
    if order.tasks == before.tasks:
        return anew
    return replace_fields(anew, state=PENDING, waiting_since=order.at)


def _carry_over_wait(before: OrderStatus, order: GivenOrder, patience: ConvergenceTimeout) -> float:
    """Return since when the new order waits, so that it has used the same share of its own patience."""
    since = before.at if before.waiting_since is None else before.waiting_since
    was, now = (patience.get_timeout_seconds(tasks, before.now) for tasks in (before.tasks, order.tasks))
    return since if was == now else order.at - (order.at - since) * now / was


def _mark_recovered(now: OrderStatus, seen_at: float) -> OrderStatus:
    """Mark the order as recovered; after an undoing it has to stay so for a time."""
    if now.now != now.tasks:
        return replace_fields(now, undone_to=now.now) if now.state == UNDONE else now
    if now.state == UNDONE and seen_at - (now.since or seen_at) < TRUSTED_SECONDS:
        return now
    return replace_fields(now, state=REACHED, waiting_since=None, undone_to=None)


def explain_fault(operator: str, order: OrderStatus) -> str | None:
    """Return the fault as a sentence without its full stop; None while there is none."""
    ordered = f"{order.by} requested {order.tasks} task{'' if order.tasks == 1 else 's'} for {operator}"
    if order.state == MISSED and order.now is None:
        return f"{ordered}; the effect is unknown"
    if order.state == MISSED:
        return f"{ordered}, which still has {order.now}: no effect so far"
    if order.state != UNDONE:
        return None
    has_again = f", and the operator has {order.now} again" if order.now == order.tasks else ""
    # It is unknown what an order was undone to at a plant that an older Weir followed.
    known = order.now if order.undone_to is None else order.undone_to
    undone_to = "another number" if known is None or known == order.tasks else str(known)
    return f"{ordered}; another controller set the tasks to {undone_to}{has_again}"
