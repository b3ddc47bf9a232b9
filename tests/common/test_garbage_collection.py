"""Garbage collection that is postponed during a tick: off inside, caught up afterward, and never left off."""

import gc
import weakref

import pytest

from common import garbage_collection
from common.garbage_collection import postpone_collection


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture
def enabled(monkeypatch):
    """Collection is on, as in a process of Weir; nothing is frozen for the other tests."""
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    garbage_collection._freeze_once.cache_clear()
    was = gc.isenabled()
    gc.enable()
    yield frozen
    (gc.enable if was else gc.disable)()


def test_collection_is_off_inside_and_on_afterward(enabled):
    with postpone_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_after_an_error_too(enabled):
    with pytest.raises(ValueError), postpone_collection():
        raise ValueError
    assert gc.isenabled()


def test_the_cycles_that_were_left_are_freed_afterward(enabled):
    with postpone_collection():
        left = weakref.ref(Cycle())
        assert left() is not None
    assert left() is None


def test_of_two_that_overlap_none_leaves_it_off(enabled):
    first, second = postpone_collection(), postpone_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off(enabled):
    gc.disable()
    with postpone_collection():
        left = weakref.ref(Cycle())
    assert not gc.isenabled() and left() is not None


def test_what_existed_before_is_examined_only_once(enabled):
    for _ in range(3):
        with postpone_collection():
            pass
    assert len(enabled) == 1
