"""Assistants propose, people approve: 100 ways round it change nothing; the approved act is done once, and
both names stand in the audit.
"""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, create_token, find_token_actor
from console.actions.proposals import assistant_proposals
from console.actions.proposals.assistant_proposals import MAX_OPEN, PROPOSAL_SECONDS, approve, propose, reject
from console.management.commands.weir import find_acting_user
from console.models import AssistantProposal, AuditEntry
from workers.alerts.lifecycle.models import Silence
from workers.documents.snapshot import Snapshot
from workers.models import Override
from workers.steering.overrides import list_active, set_override

pytestmark = pytest.mark.django_db
LOOP = "worker_rate/alert/n1"
HOLD = {"loop": LOOP, "minutes": 10}
WHY = "its last 5 actions were harmful"


@pytest.fixture
def assistant(people):
    return assistant_of(people["operator"], "night-assistant", "viewer")


@pytest.fixture
def person(people):
    return Actor("operator", "operator", people["operator"], confirmed_at=0.0)


def assistant_of(owner, name, role):
    _, secret = create_token(owner, name, role, timezone.now() + timedelta(days=1))
    found = find_token_actor(secret, timezone.now())
    assert found is not None
    return found


def seen_at(now):
    return Snapshot(seq=7, at=now.timestamp())


def proposed(actor, act="hold", arguments=None, **more):
    given = {"reason": WHY, "now": timezone.now(), **more}
    given.setdefault("snapshot", seen_at(given["now"]))
    return propose(actor, act, HOLD if arguments is None else arguments, **given)


def approved(actor, proposal, **more):
    given = {"reason": "I have looked", "now": timezone.now(), **more}
    given.setdefault("snapshot", seen_at(given["now"]))
    return approve(actor, proposal, given.pop("hash", proposal.hash), **given)


def nothing_was_done():
    return not Override.objects.exists() and not Silence.objects.exists()


def test_what_is_approved_is_done_with_the_rights_of_the_person_and_both_are_in_the_audit(loop, assistant, person):
    proposal = proposed(assistant)
    assert nothing_was_done()
    made = approved(person, proposal)
    override = Override.objects.get()
    assert (override.name, override.owner) == ("mode", person.user)
    assert WHY in override.reason and "night-assistant" in override.reason and "I have looked" in override.reason
    assert made.state == "approved" and made.outcome == f"{LOOP} is on hold for 10 min."
    actors = dict(AuditEntry.objects.values_list("action", "actor"))
    assert actors["proposal.make"] == "token:night-assistant"
    assert actors["proposal.approve"] == "operator"


def test_each_act_does_what_it_says(loop, assistant, person):
    matchers = [{"label": "queue", "is": "=", "value": "alert"}]
    approved(person, proposed(assistant, "silence", {"matchers": matchers, "minutes": 5}))
    assert Silence.objects.get().matchers == matchers
    value = {"loop": LOOP, "name": "upper_limit", "value": 4, "minutes": 5}
    approved(person, proposed(assistant, "override", value))
    assert Override.objects.get().value == 4


WRONG = [
    ("jump", {}, "act"),
    (None, {}, "act"),
    ("hold", {}, "arguments.loop"),
    ("hold", {"loop": LOOP, "minutes": True}, "arguments.minutes"),
    ("hold", {"loop": LOOP, "minutes": 5, "endless": True}, "arguments.endless"),
    ("hold", [], "arguments"),
    ("override", {"loop": LOOP, "name": "upper_limit", "value": "4", "minutes": 5}, "arguments.value"),
    ("plan", {"goal": "all"}, "arguments.goal"),
    ("silence", {"matchers": {}, "minutes": 5}, "arguments.matchers"),
]


@pytest.mark.parametrize(("act", "arguments", "field"), WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_proposed(loop, assistant, act, arguments, field):
    with pytest.raises(BadInput) as refusal:
        proposed(assistant, act, arguments)
    assert refusal.value.field == field
    assert not AssistantProposal.objects.exists()


def update(row, **values):
    """Write a row over behind the console's back."""
    type(row).objects.filter(pk=row.pk).update(**values)


def ways_round(proposal, assistant, other, person, chance):
    """What each way does first, who approves then, and how."""
    minutes = {"loop": LOOP, "minutes": chance.randint(11, 9_999)}
    guess = chance.choice([f"{chance.getrandbits(256):064x}", "", None, "é", 0])
    late = proposal.created_at + timedelta(seconds=PROPOSAL_SECONDS + chance.random())
    return {
        "changed arguments": (lambda: update(proposal, arguments=minutes), person, {}),
        "a changed reason": (lambda: update(proposal, reason=f"all is well {chance.random()}"), person, {}),
        "another hash": (None, person, {"hash": guess}),
        "a replay": (lambda: reject(person, proposal, reason="no", now=timezone.now()), person, {}),
        "too late": (None, person, {"now": late}),
        "by itself": (None, assistant, {}),
        "another token": (None, other, {}),
        "an ended token": (lambda: update(assistant.token, revoked_at=timezone.now()), person, {}),
        "beyond one's queues": (None, replace(person, queues=frozenset({"orders"})), {}),
        # Who has a shell here acts as a person, and is none.
        "by a command": (None, find_acting_user(None), {}),
    }


@pytest.mark.thorough
def test_one_hundred_ways_round_the_approval_change_nothing(loop, assistant, person, people):
    """Changed arguments, other hashes, replays, approvals by tokens, another's token, and too late."""
    chance = random.Random(1)
    other = assistant_of(people["administrator"], "other-assistant", "administrator")
    for number in range(100):
        proposal = proposed(assistant)
        ways = ways_round(proposal, assistant, other, person, chance)
        before, who, how = list(ways.values())[number % len(ways)]
        if before:
            before()
        with pytest.raises((BadInput, PermissionDenied)):
            approved(who, proposal, **how)
        assert nothing_was_done()
        update(assistant.token, revoked_at=None)
        AssistantProposal.objects.all().delete()


@pytest.mark.parametrize("scope", ["loop", "queue"])
def test_what_a_person_set_since_it_was_proposed_is_not_replaced(loop, assistant, person, people, scope):
    other = {"loop": loop} if scope == "loop" else {"queue": "alert"}
    value = {"loop": LOOP, "name": "upper_limit", "value": 4, "minutes": 5}
    waiting = [proposed(assistant, "override", value), proposed(assistant)]
    given = {"owner": people["administrator"], "reason": "the sale", "now": timezone.now(), "minutes": 30}
    set_override(name="upper_limit", value=9, **other, **given)
    set_override(name="mode", value="advise", **other, **given)
    for proposal in waiting:
        with pytest.raises(BadInput, match=r"is no longer valid: administrator set .* after it was proposed"):
            approved(person, proposal)
    assert sorted(str(each.value) for each in list_active(timezone.now())) == ["9", "advise"]
    approved(person, proposed(assistant, "override", value))
    assert {each.value for each in list_active(timezone.now()).filter(name="upper_limit")} >= {4}


@pytest.mark.parametrize(
    ("ago", "why"),
    [
        (timedelta(minutes=2), "was last observed 120 s ago. Check that the observer runs"),
        (timedelta(minutes=-10), "was observed 600 s ahead of this host's clock. Synchronize the clocks"),
    ],
)
def test_nothing_is_proposed_on_a_plant_that_nobody_observes_now(loop, assistant, ago, why):
    now = timezone.now()
    with pytest.raises(BadInput, match=why):
        proposed(assistant, now=now, snapshot=seen_at(now - ago))
    assert not AssistantProposal.objects.exists()


def test_a_token_can_not_flood_people(loop, assistant):
    for _ in range(MAX_OPEN):
        proposed(assistant)
    with pytest.raises(BadInput, match="proposals"):
        proposed(assistant)
    later = timezone.now() + timedelta(seconds=PROPOSAL_SECONDS + 1)
    assert proposed(assistant, now=later).pk and assistant_proposals.open_proposals(later).count() == 1


def test_the_page_shows_what_is_approved_and_takes_a_reason(loop, assistant, browsers, stored_snapshot):
    proposal = proposed(assistant)
    page = browsers["operator"].get(f"/proposals/{proposal.pk}/").content.decode()
    assert all(text in page for text in (WHY, "night-assistant", LOOP, f"Approve {proposal.hash[:8]}"))
    # No snapshot names proposals: what waits, and what was decided on, is asked for again and again.
    assert all(f'id="{each}" data-refresh="every:4"' in page for each in ("waiting", "decided"))
    url = f"/proposals/{proposal.pk}/decide"
    body = {"decision": "approve", "hash": proposal.hash}
    assert browsers["operator"].post(url, body).status_code == 422
    assert nothing_was_done()
    assert "1 assistant proposal" in " ".join(browsers["viewer"].get("/plans/").content.decode().split())
    assert browsers["operator"].post(url, {**body, "reason": "yes"}).status_code == 302
    assert Override.objects.get().name == "mode"
    assert "Approved by operator" in " ".join(browsers["viewer"].get("/proposals/").content.decode().split())


def test_what_was_void_stays_void_where_the_clock_is_set_back(loop, assistant, person):
    proposal = proposed(assistant)
    before = proposal.created_at - timedelta(hours=1)
    with pytest.raises(BadInput, match="is already void"):
        approved(person, proposal, now=before)
    assert nothing_was_done() and not assistant_proposals.open_proposals(before).exists()
    # Clocks of hosts differ by some seconds.
    assert approved(person, proposal, now=proposal.created_at - timedelta(seconds=5)).state == "approved"


def test_however_long_an_assistant_s_reason_is_the_override_says_whose_it_was_and_who_agreed(loop, assistant, person):
    approved(person, proposed(assistant, reason="a" * 2_000))
    said = Override.objects.get().reason
    assert said.endswith("(proposed by night-assistant, approved: I have looked)") and len(said) <= 2_000
