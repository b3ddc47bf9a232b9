"""What is rolled out at another plant stands on the timeline, once."""

import pytest

from console.actions.marks import RolloutMarks
from console.models import Mark
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot

pytestmark = pytest.mark.django_db
NOW = 1_790_000_000.0


def snapshot(revision, at=NOW, state="seen", part="worker"):
    status = PlantStatus(kind="kubernetes", state=state, revisions={part: revision})
    return Snapshot(plant="main", at=at, plants={"shop": status})


def titles():
    return list(Mark.objects.order_by("pk").values_list("title", flat=True))


def test_a_new_revision_is_a_mark_and_the_first_that_is_seen_is_none():
    followed = RolloutMarks()
    for revision in ("6", "6", "7", "7"):
        followed.follow(snapshot(revision))
    [mark] = Mark.objects.all()
    assert (mark.kind, mark.title, mark.author) == ("deploy", "worker: revision 7", "plant:shop")
    assert mark.at.timestamp() == NOW
    assert "the previous revision was 6" in mark.text


def test_whoever_follows_next_marks_what_came_meanwhile_and_nothing_twice():
    first = RolloutMarks()
    first.follow(snapshot("6"))
    first.follow(snapshot("7"))
    RolloutMarks().follow(snapshot("7"))
    RolloutMarks().follow(snapshot("8"))
    assert titles() == ["worker: revision 7", "worker: revision 8"]


@pytest.mark.parametrize("letters", [20, 35, 50, 69, 75])
def test_a_long_revision_that_was_marked_is_not_marked_again_by_whoever_follows_next(letters):
    part = "k" * letters
    first = RolloutMarks()
    for revision in (f"{part}-6b7d", f"{part}-7c8e"):
        first.follow(snapshot(revision, part=part))
    for _ in range(2):
        RolloutMarks().follow(snapshot(f"{part}-7c8e", part=part))
    assert len(titles()) == 1


def test_a_revision_with_a_nul_is_marked_like_any_other():
    followed = RolloutMarks()
    for revision in ("6", "7\0"):
        followed.follow(snapshot(revision))
    assert titles() == ["worker: revision 7\ufffd"]
