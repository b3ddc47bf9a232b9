"""What stands behind the doors: one thing of each kind that an address can name."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.accounts.access import create_token
from console.actions.shared_links import format_link_address
from console.models import AssistantProposal, Mark, SharedLink, UserSession
from queues.models import Container, Node, Queue
from tests.console.pipeline_sample import DECLARATION
from workers.alerts.lifecycle.models import Alert, Incident, Receiver, Silence
from workers.alerts.rules.rules import define
from workers.batch import task_definitions
from workers.lab.models import Experiment
from workers.models import LedgerEntry, Loop, Override, Plan, Run, Tuning
from workers.objectives.models import Objective
from workers.pipeline.declaration.declared import Declarations, DeclarationText


@pytest.fixture
def things(people, control) -> dict[str, Any]:
    """One of everything an address may name. Ids are what the addresses are filled with."""
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    queue = Queue.objects.create(name="alert", kind="jobs")
    Container.objects.create(queue=queue, node=node, points=1000)
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})
    entry = LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="a test")
    override = Override.objects.create(
        loop=loop,
        name="upper_limit",
        value=1,
        owner=people["operator"],
        reason="a test",
        expires_at=timezone.now() + timedelta(hours=1),
    )
    tuning = Tuning.objects.create(
        loop=loop,
        values={"caution": 0.2},
        instead_of={"caution": 0.4},
        days=[],
        improvement=0.1,
        confidence=1.0,
        hash="0" * 64,
    )
    Objective.objects.create(name="alert", condition="backlog_seconds <= 30", target=0.99)
    token, _ = create_token(people["viewer"], "mine", "viewer", timezone.now() + timedelta(days=1))
    proposal = AssistantProposal.objects.create(
        act="hold",
        arguments={"loop": loop.name, "minutes": 10},
        reason="a test",
        token=token,
        snapshot_seq=1,
        snapshot_at=1_790_000_000.0,
        hash="0" * 64,
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=5),
    )
    session = UserSession.objects.create(user=people["viewer"], digest="0" * 64)
    plan = Plan.objects.create(
        kind="hand",
        title="a test",
        reason="a test",
        moves=[],
        base={},
        base_revision=1,
        hash="0" * 64,
        expires_at=timezone.now() + timedelta(minutes=5),
    )
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    run = Run.objects.create(task=task_definitions.define("retention", "retention"), single_instance=True)
    experiment = Experiment.objects.create(scenario="crash", laws=["thesis"])
    return {
        "<int:loop_id>": loop.pk,
        "<loop_id>": loop.pk,
        "<int:entry_id>": entry.pk,
        "<entry_id>": entry.pk,
        "<int:override_id>": override.pk,
        "<override_id>": override.pk,
        "<tuning_id>": tuning.pk,
        "<int:proposal_id>": proposal.pk,
        "<proposal_id>": proposal.pk,
        "<int:token_id>": token.pk,
        "<token_id>": token.pk,
        "<int:user_id>": people["viewer"].pk,
        "<username>": "stranger",
        "<int:session_id>": session.pk,
        "<session_id>": session.pk,
        "<int:plan_id>": plan.pk,
        **alert_things(people),
        "<plan_id>": plan.pk,
        "<int:run_id>": run.pk,
        "<run_id>": run.pk,
        "<int:experiment_id>": experiment.pk,
        "<experiment_id>": experiment.pk,
        "<queue>": "alert",
        "<str:queue>": "alert",
        "<host>": "jobs@here",
        "<process>": "web",
        "<node>": "n1",
        "<str:node>": "n1",
        "<dead_id>": "1-0",
        "<str:dead_id>": "1-0",
        "<str:operator>": "hosts",
        "<path:address>": "start/",
        **link_things(),
        "<mark_id>": Mark.objects.create(title="a test", at=timezone.now(), author="operator").pk,
    }


def link_things() -> dict[str, Any]:
    """A link to an instant."""
    now = timezone.now()
    link = SharedLink.objects.create(at=now, reason="a test", author="ada", expires_at=now + timedelta(hours=1))
    return {"<link_id>": link.pk, "<str:signed>": format_link_address(link).split("/")[2]}


def alert_things(people: dict[str, User]) -> dict[str, Any]:
    """An alert that nobody has, its rule and receiver, and a silence."""
    now = timezone.now()
    receiver = Receiver.objects.create(name="desk", channel="browser")
    rule = define("alert", {"condition": "node_lost", "title": "a test", "threshold": 10}, now)
    alert = Alert.objects.create(
        rule=rule,
        rule_name=rule.name,
        condition="node_lost",
        fingerprint="0" * 64,
        labels={"node": "n1"},
        severity="warning",
        title="a test",
        threshold=10,
        state="firing",
        began_at=now,
        fired_at=now,
    )
    follow_up = Incident.objects.create(alert=alert).follow_ups.create(text="a test")
    end = now + timedelta(hours=1)
    silence = Silence.objects.create(matchers=[], reason="a test", owner=people["operator"], expires_at=end)
    return {
        "<int:alert_id>": alert.pk,
        "<alert_id>": alert.pk,
        "<int:silence_id>": silence.pk,
        "<silence_id>": silence.pk,
        "<int:receiver_id>": receiver.pk,
        "<int:follow_up_id>": follow_up.pk,
        "<follow_up_id>": follow_up.pk,
    }
