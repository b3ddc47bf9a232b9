"""Ordered against reached: whether what was ordered of an operator took effect, and stayed. Pure.

| state | is |
|---|---|
| pending | ordered; the operator has other tasks as yet |
| reached | it has had the tasks that were ordered, and still has, or differs for less than CONFIRM_SECONDS |
| missed | it never had them within the plant's patience since it last came nearer |
| undone | it had them, and then others, which nothing here ordered: a second controller, or lost capacity |

A plant may say which tasks it is set to beside those that are there: a rollout on Kubernetes has more pods
for a time, or fewer. What was reached is then undone where it is set to others, and only there.

A loop that sees other tasks than it ordered orders again, at its next tick: so an order of a loop never puts
off the time by which an earlier one was to take effect, and one that answers a deviation shows it. Where it
then wants more in place of fewer, the share of the patience that is used up is the same of the other one's.
What has a proof that shows nothing for a time is pending meanwhile, not doubted. Missed and
undone stay until the tasks are as ordered (after an undoing: for TRUSTED_SECONDS), a person sets others,
or a person lets it go on (the order is forgotten).
"""

from dataclasses import dataclass

from queues.stored_document import replace_fields
from workers.documents.plants import OrderStatus

PENDING, REACHED, MISSED, UNDONE = "pending", "reached", "missed", "undone"
WRONG = (MISSED, UNDONE)
# Two intervals of the loops that set tasks: at their third tick it is known.
PATIENCE_SECONDS = 10.0
# More than one observation, for one may be of a plant that is about to change.
CONFIRM_SECONDS = 4.0
# Who undid it once may do so again; only what stayed so long is believed.
TRUSTED_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """By when what was ordered is to be in force, or nearer: more tasks than there are, and fewer."""

    more_seconds: float = PATIENCE_SECONDS
    fewer_seconds: float = PATIENCE_SECONDS

    def seconds(self, ordered: int, there: int | None) -> float:
        """From so many tasks to those that were ordered."""
        return self.more_seconds if there is None or ordered > there else self.fewer_seconds


USUAL = Patience()


@dataclass(frozen=True)
class GivenOrder:
    """What was last set of an operator from here: at (s since 1970), and by which loop or person."""

    tasks: int
    at: float
    by: str
    by_loop: bool = True


def follow_order(
    before: OrderStatus | None,
    order: GivenOrder,
    tasks: int | None,
    seen_at: float,
    patience: Patience = USUAL,
    set_to: int | None = None,
) -> OrderStatus:
    """The order after an observation of `tasks` at `seen_at` (s since 1970); None: what is to show them says
    nothing. set_to: what the plant itself aims at; None: it does not say.
    """
    if before is None or (order.at > before.at and not order.by_loop):
        before = _start_order(order, tasks, seen_at)
    if seen_at <= order.at:  # it was observed before it was ordered
        return before if before.at == order.at else _restart_order(before, order, patience)
    if order.at > before.at:
        before = _restart_order(before, order, patience)
    if tasks is None:
        return _unseen(before, order, seen_at, patience)
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
    late = seen_at - waiting_since > patience.seconds(order.tasks, tasks)
    return replace_fields(now, waiting_since=waiting_since, state=MISSED if late else PENDING)


def _unseen(before: OrderStatus, order: GivenOrder, seen_at: float, patience: Patience) -> OrderStatus:
    """Nothing is seen of it: what was reached, or is doubted, stays so, and what is pending has its time."""
    if before.state != PENDING:
        return before
    late = seen_at - (before.waiting_since or order.at) > patience.seconds(order.tasks, before.now)
    return replace_fields(before, state=MISSED) if late else before


def _start_order(order: GivenOrder, tasks: int | None, seen_at: float) -> OrderStatus:
    return OrderStatus(
        tasks=order.tasks,
        at=order.at,
        by=order.by,
        now=tasks,
        since=seen_at,
        state=PENDING,
        waiting_since=order.at,
    )


def _restart_order(before: OrderStatus, order: GivenOrder, patience: Patience) -> OrderStatus:
    """By a loop, whatever it saw: where the tasks were no longer as ordered, that is what it answers."""
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


def _carry_over_wait(before: OrderStatus, order: GivenOrder, patience: Patience) -> float:
    """Since when the new order waits, so that it has used up the same share of its own patience."""
    since = before.at if before.waiting_since is None else before.waiting_since
    was, now = (patience.seconds(tasks, before.now) for tasks in (before.tasks, order.tasks))
    return since if was == now else order.at - (order.at - since) * now / was


def _mark_recovered(now: OrderStatus, seen_at: float) -> OrderStatus:
    """It has what was ordered, after all; after an undoing it has to stay so for a time."""
    if now.now != now.tasks:
        return replace_fields(now, undone_to=now.now) if now.state == UNDONE else now
    if now.state == UNDONE and seen_at - (now.since or seen_at) < TRUSTED_SECONDS:
        return now
    return replace_fields(now, state=REACHED, waiting_since=None, undone_to=None)


def explain_fault(operator: str, order: OrderStatus) -> str | None:
    """In a sentence, without its full stop; None while nothing is wrong."""
    ordered = f"{operator} was ordered {_tasks(order.tasks)} by {order.by}"
    if order.state == MISSED and order.now is None:
        return f"{ordered}, and nothing shows whether it took effect"
    if order.state == MISSED:
        return f"{ordered} and has {order.now}: no effect so far"
    if order.state != UNDONE:
        return None
    has_again = f", and it has {order.now} again" if order.now == order.tasks else ""
    return f"{ordered}; something else set it to {_undone_to(order)}{has_again}"


def _undone_to(order: OrderStatus) -> str:
    """What is not known is that of a plant which an older Weir followed."""
    known = order.now if order.undone_to is None else order.undone_to
    return "others" if known is None or known == order.tasks else str(known)


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
