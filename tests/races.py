"""Two transactions at once: what another thread does while ours is open, in the order that a test needs."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import redis
from django.db import connection, connections

from tests.waiting import until


@contextmanager
def another_thread() -> Iterator[Callable[..., Future[Any]]]:
    """Calls what it is given in one other thread, with a connection of its own. Its test must commit
    (`django_db(transaction=True)`).
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit
        finally:
            pool.submit(connections.close_all).result()


def until_another_waits() -> None:
    """Until the other transaction waits for what ours has locked. With SQLite nothing is to be waited for: it
    does not begin there before ours has ended.
    """
    if connection.vendor == "postgresql":
        until(_is_waited_for)


class PausedControl:
    """A control server that does something before it is written to."""

    def __init__(self, control: redis.Redis, act: Callable[[], object]) -> None:
        self.control, self.act = control, act

    def set(self, *arguments: Any) -> Any:
        self.act()
        return self.control.set(*arguments)


def _is_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])
