"""Orders compared with the state of other plants: not doubted without reason, found in time."""

from hypothesis import given
from hypothesis import strategies as st

from workers.plants.reached import (
    CONFIRM_SECONDS,
    MISSED,
    PATIENCE_SECONDS,
    PENDING,
    REACHED,
    TRUSTED_SECONDS,
    UNDONE,
    WRONG,
    ConvergenceTimeout,
    GivenOrder,
    explain_fault,
    follow_order,
)

TICK_SECONDS, OBSERVE_SECONDS = 5, 2
COUNTS = st.integers(1, 64)
START = 1_790_000_000.0


class Course:
    """A plant whose operator is observed every 2 s, and a loop that ticks every 5 s.

    The loop orders what it wants unless it has to hold. `plant(second, ordered)` is the number that the operator has.
    """

    def __init__(self, wants, plant, tasks):
        self.wants, self.plant, self.tasks = wants, plant, tasks
        self.order = self.status = self.ordered_at = None
        self.states, self.found_at, self.seen = [], None, tasks

    def run(self, seconds):
        for second in range(seconds):
            self.step(second)
        return self

    def step(self, second):
        self.tasks = self.plant(second, self)
        if second % OBSERVE_SECONDS == 0:
            self.seen = self.tasks
        if self.order and second % OBSERVE_SECONDS == 0:
            self.status = follow_order(self.status, self.order, self.tasks, START + second)
            self.states.append(self.status.state)
            if self.status.state in WRONG and self.found_at is None:
                self.found_at = second
        holds = self.status is not None and self.status.state in WRONG
        if second % TICK_SECONDS == 1 and not holds:
            wanted = self.wants(second)
            if wanted != self.seen:
                self.ordered_at = second
                self.order = GivenOrder(wanted, START + second + 0.5, "loop x")


def obedient(delay):
    def plant(second, course):
        ready = course.order is not None and second - course.ordered_at >= delay
        return course.order.tasks if ready else course.tasks

    return plant


@given(st.lists(COUNTS, min_size=1, max_size=12), COUNTS, st.integers(1, 4))
def test_a_plant_that_obeys_is_never_doubted_whatever_is_ordered(wanted, first, delay):
    course = Course(lambda second: wanted[second // 15 % len(wanted)], obedient(delay), first).run(180)
    assert not set(course.states) & set(WRONG)


@given(st.lists(COUNTS, min_size=1, max_size=6), COUNTS)
def test_an_order_without_effect_is_found_by_the_third_tick_however_often_it_is_repeated(wanted, first):
    def wants(second):
        count = wanted[second // 5 % len(wanted)]
        return count if count != first else count + 1

    course = Course(wants, lambda second, course: first, first).run(60)
    assert course.states[-1] == MISSED
    assert course.found_at <= 1 + 3 * TICK_SECONDS
    assert "no effect so far" in explain_fault("parse", course.status)


@given(COUNTS, st.integers(0, 20), st.integers(1, 4))
def test_a_second_controller_is_found_by_the_third_tick_after_it_undid_an_order(first, begins, delay):
    """The other controller sets its value again each time, some seconds after Weir's was in force."""
    wanted, obeys, undone = first + 3, obedient(delay), []

    def plant(second, course):
        tasks = obeys(second, course)
        if tasks == wanted and second >= course.ordered_at + delay + begins:
            undone.append(second)
            return first
        return tasks

    course = Course(lambda second: wanted, plant, first).run(90)
    assert course.states[-1] in WRONG
    assert course.found_at <= undone[0] + 3 * TICK_SECONDS


def test_a_plant_that_comes_nearer_is_given_time():
    order = GivenOrder(10, START, "loop x")
    status = None
    for second in range(2, 70, 8):  # one more task every 8 s
        status = follow_order(status, order, min(10, 1 + second // 8), START + second)
        assert status.state == PENDING
    assert follow_order(status, order, 10, START + 88).state == REACHED


def test_who_wants_more_while_fewer_are_pending_is_given_the_time_that_more_takes():
    """The load rises ten minutes after an order to shrink a pool whose tasks take half an hour."""
    patience = ConvergenceTimeout(more_seconds=30.0, fewer_seconds=3_600.0)
    fewer, more = GivenOrder(10, START, "loop x"), GivenOrder(14, START + 600, "loop x")
    status = follow_order(None, fewer, 12, START + 598, patience)
    assert follow_order(status, more, 12, START + 602, patience).state == PENDING
    assert follow_order(status, more, 12, START + 620, patience).state == PENDING
    assert follow_order(status, more, 12, START + 631, patience).state == MISSED


def test_a_proof_that_shows_nothing_is_no_zero():
    order, status = GivenOrder(4, START, "loop x"), None
    for second in range(2, 10, 2):  # it flickers: two, nothing, two …
        status = follow_order(status, order, 2 if second % 4 else None, START + second)
        assert (status.state, status.now) == (PENDING, 2)
    assert follow_order(status, order, 2, START + 14).state == MISSED
    unseen = follow_order(follow_order(None, order, None, START + 2), order, None, START + 11)
    assert "the effect is unknown" in explain_fault("parse", unseen)
    assert follow_order(unseen, order, 4, START + 12).state == REACHED


def test_what_differs_for_an_instant_is_not_doubted_and_what_comes_late_is_trusted_again():
    order = GivenOrder(4, START, "loop x")
    status = follow_order(None, order, 2, START + 1)
    status = follow_order(status, order, 2, START + PATIENCE_SECONDS + 1)
    assert status.state == MISSED
    status = follow_order(status, order, 4, START + 30)
    assert (status.state, status.since, status.waiting_since) == (REACHED, START + 30, None)
    status = follow_order(status, order, 3, START + 32)
    assert status.state == REACHED
    status = follow_order(status, order, 4, START + 34)
    status = follow_order(status, order, 3, START + 36)
    status = follow_order(status, order, 3, START + 36 + CONFIRM_SECONDS)
    assert status.state == UNDONE and "another controller set the tasks to 3" in explain_fault("parse", status)
    status = follow_order(status, order, 4, START + 60)
    assert status.state == UNDONE  # it may be taken away again at once
    assert follow_order(status, order, 4, START + 60 + TRUSTED_SECONDS).state == REACHED


def test_what_a_second_controller_set_is_said_also_after_the_loop_has_ordered_again():
    order = GivenOrder(1, START, "loop x")
    status = follow_order(follow_order(None, order, 1, START + 1), order, 3, START + 5)
    again = GivenOrder(1, START + 6, "loop x")  # before the change was confirmed
    status = follow_order(status, again, 1, START + 8)
    assert status.state == UNDONE
    assert explain_fault("parse", status).endswith(
        "; another controller set the tasks to 3, and the operator has 1 again"
    )
    status = follow_order(status, again, 4, START + 10)
    assert explain_fault("parse", status).endswith("; another controller set the tasks to 4")
    status = follow_order(status, again, 1, START + 12)
    status = follow_order(status, again, 1, START + 12 + TRUSTED_SECONDS)
    assert (status.state, status.undone_to) == (REACHED, None)


def test_a_person_s_order_begins_anew_and_a_loop_s_does_not():
    wrong = follow_order(None, GivenOrder(4, START, "loop x"), 2, START + 1)
    wrong = follow_order(wrong, GivenOrder(4, START, "loop x"), 2, START + 12)
    assert wrong.state == MISSED
    assert follow_order(wrong, GivenOrder(5, START + 13, "loop x"), 2, START + 14).state == MISSED
    hand = follow_order(wrong, GivenOrder(5, START + 13, "ada", by_loop=False), 2, START + 14)
    assert (hand.state, hand.by, explain_fault("parse", hand)) == (PENDING, "ada", None)
