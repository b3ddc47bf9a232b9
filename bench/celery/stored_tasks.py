"""Tasks of a made-up shop, in the shape that Celery reports: unique ids, addresses, amounts, and chains of tasks."""

import uuid
from collections.abc import Iterator
from random import Random

from workers.task_history.fingerprint import compute_fingerprint
from workers.task_history.record import FAILED, SUCCEEDED, TaskRecord

BEGAN = 1_790_000_000.0
TASKS = (
    ("shop.tasks.pay_order", "payments", ("order", "customer", "amount")),
    ("shop.tasks.send_receipt", "mail", ("order", "customer")),
    ("shop.tasks.reserve_stock", "stock", ("order", "article", "pieces")),
    ("shop.tasks.resize_image", "images", ("article", "file")),
    ("shop.tasks.update_search", "search", ("article",)),
    ("shop.tasks.ship_parcel", "shipping", ("order", "parcel")),
    ("reports.daily.build", "reports", ("day",)),
    ("shop.tasks.sync_ledger", "payments", ("order", "amount")),
)
ERRORS = (
    ("TimeoutError('The payment provider did not answer within 30 s')", "payments/provider.py", "charge"),
    ("KeyError('article')", "stock/reserve.py", "reserve"),
    ("ValueError('order {order} has no address')", "shipping/parcels.py", "ship"),
    ("ConnectionError('connection to {customer} refused')", "mail/send.py", "send"),
)
NAMES = ("anna", "ben", "carla", "david", "elif", "fatima", "george", "hana", "ivan", "julia", "kofi", "lena")
FAILING, CHAINED = 0.01, 0.6


def iterate_records(count: int, first: int = 0, per_second: float = 6.0) -> Iterator[TaskRecord]:
    """Yield finished tasks, oldest first. first: the number of the first one."""
    random = Random(first)
    parent = root = ""
    for number in range(first, first + count):
        if random.random() >= CHAINED:
            parent = root = ""
        record = make_record(number, BEGAN + number / per_second, random, parent, root)
        parent, root = record.id, record.root
        yield record


def make_record(number: int, at: float, random: Random, parent: str = "", root: str = "") -> TaskRecord:
    """Return a finished task that was heard of last at that time."""
    task_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
    name, queue, arguments = TASKS[min(int(random.expovariate(0.5)), len(TASKS) - 1)]
    values: dict[str, object] = {
        "order": 40_000_000 + number // 2,
        "customer": f"{random.choice(NAMES)}.{random.randrange(200_000)}@example.com",
        "amount": random.randrange(500, 50_000) / 100,
        "article": f"A-{random.randrange(50_000)}",
        "pieces": random.randrange(1, 9),
        "file": f"images/{random.randrange(50_000)}/large.jpg",
        "parcel": f"DE{random.randrange(10**12):012d}",
        "day": int(at // 86_400),
    }
    run_seconds, wait_seconds = random.lognormvariate(-2, 1), random.expovariate(20)
    is_failed = random.random() < FAILING
    error, file, function = random.choice(ERRORS) if is_failed else ("", "", "")
    error = error.format(**values)
    traceback = _build_traceback(error, file, function, random.randrange(10, 12)) if is_failed else ""
    return TaskRecord(
        id=task_id,
        state=FAILED if is_failed else SUCCEEDED,
        at=round(at, 3),
        name=name,
        worker=f"{queue}@host{random.randrange(12)}",
        queue=queue,
        kwargs="{" + ", ".join([f"'{key}': {values[key]!r}" for key in arguments]) + "}",
        are_exact=True,
        result="" if is_failed else random.choice(("None", "True", f"'{values['order']} accepted'")),
        error=error,
        traceback=traceback,
        failure=compute_fingerprint(name, error, traceback) if is_failed else "",
        received=at - run_seconds - wait_seconds,
        started=at - run_seconds,
        ended=at,
        run_seconds=run_seconds,
        parent=parent,
        root=root or task_id,
    )


def build_events(record: TaskRecord) -> list[dict[str, object]]:
    """Return the events of a task, as a Celery worker sends them."""
    common: dict[str, object] = {"uuid": record.id, "hostname": record.worker, "pid": 4711, "clock": 1, "utcoffset": 0}
    received = {
        **common,
        "type": "task-received",
        "timestamp": record.received,
        "name": record.name,
        "args": "()",
        "kwargs": record.kwargs,
        "root_id": record.root,
        "parent_id": record.parent or None,
        "retries": 0,
        "eta": None,
        "expires": None,
    }
    end: dict[str, object] = {"runtime": record.run_seconds, "result": record.result}
    if record.state == FAILED:
        end = {"exception": record.error, "traceback": record.traceback}
    return [
        received,
        {**common, "type": "task-started", "timestamp": record.started},
        {**common, "type": f"task-{record.state}", "timestamp": record.ended, **end},
    ]


def _build_traceback(error: str, file: str, function: str, line: int) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/site-packages/celery/app/trace.py", line 453, in trace_task\n'
        "    R = retval = fun(*args, **kwargs)\n"
        '  File "/usr/lib/python3.11/site-packages/celery/app/trace.py", line 736, in __protected_call__\n'
        "    return self.run(*args, **kwargs)\n"
        f'  File "/srv/shop/{file}", line {line}, in {function}\n'
        f"    return client.{function}(order)\n{error}\n"
    )
