"""What stands behind the doors: one thing of each kind that an address can name."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.accounts.access import create_token
from console.actions.shared_links import format_link_address
from console.models import AssistantProposal, Drill, Mark, Passkey, SharedLink, UserSession
from queues.models import Container, Node, Queue
from tests.console.pipeline_sample import DECLARATION
from tests.console.rows import a_plan, an_alert, held
from tests.workers.windows.samples import plan_window
from workers.alerts.lifecycle.models import Incident, Receiver, Silence
from workers.alerts.rules.rules import define
from workers.batch import task_definitions
from workers.lab.models import Experiment
from workers.models import LedgerEntry, Loop, Run
from workers.objectives.models import Objective
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.task_history.record import TaskRecord
from workers.task_history.recorder import record_finished


@pytest.fixture
def things(people, control):
    """One of everything an address may name. Ids are what the addresses are filled with."""
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    queue = Queue.objects.create(name="alert", kind="jobs")
    Container.objects.create(queue=queue, node=node, points=1000)
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})
    entry = LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="a test")
    override = held(people["operator"], "upper_limit", 1, loop=loop, minutes=60)
    Objective.objects.create(name="alert", condition="backlog_seconds <= 30", target=0.99)
    token, _ = create_token(people["viewer"], "mine", "viewer", timezone.now() + timedelta(days=1))
    seen = {"snapshot_seq": 1, "snapshot_at": 1_790_000_000.0, "hash": "0" * 64, "created_at": timezone.now()}
    seen["expires_at"] = timezone.now() + timedelta(minutes=5)
    asked = {"act": "hold", "arguments": {"loop": loop.name, "minutes": 10}, "reason": "a test"}
    proposal = AssistantProposal.objects.create(token=token, **asked, **seen)
    session = UserSession.objects.create(user=people["viewer"], digest="0" * 64)
    plan = a_plan()
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    run = Run.objects.create(task=task_definitions.define("retention", "retention"), single_instance=True)
    experiment = Experiment.objects.create(scenario="crash", laws=["thesis"])
    now = timezone.now()
    link = SharedLink.objects.create(at=now, reason="a test", author="ada", expires_at=now + timedelta(hours=1))
    record_finished(
        "main", [TaskRecord(id="run-7", state="failed", at=now.timestamp(), name="retention", failure="f1")]
    )
    rows = {
        "loop": loop, "entry": entry, "override": override, "proposal": proposal, "token": token,
        "session": session, "plan": plan, "run": run, "experiment": experiment, "user": people["viewer"],
        "drill": Drill.objects.create(scenario="burst", subjects={"queue": "alert"}, starter="operator", due_at=now),
        "passkey": Passkey.objects.create(user=people["viewer"], name="phone", digest="0" * 64, host="localhost"),
        "link": link, "mark": Mark.objects.create(title="a test", at=now, author="operator"),
        "window": plan_window(now, scope=["queue/alert"]), **alert_things(people),
    }  # fmt: skip
    named = {"queue": "alert", "node": "n1", "dead_id": "1-0", "operator": "hosts"}
    return {
        **{f"<{kind}{name}_id>": row.pk for name, row in rows.items() for kind in ("", "int:")},
        **{f"<{kind}{name}>": value for name, value in named.items() for kind in ("", "str:")},
        "<username>": "stranger", "<host>": "jobs@here", "<process>": "web", "<path:address>": "start/",
        "<slug:figure>": "xu-figure-6", "<figure>": "xu-figure-6", "<task_id>": "run-7",
        "<str:signed>": format_link_address(link).split("/")[2],
    }  # fmt: skip


def alert_things(people):
    """An alert that nobody has, its rule and receiver, and a silence."""
    now = timezone.now()
    receiver = Receiver.objects.create(name="desk", channel="browser")
    rule = define("alert", {"condition": "node_lost", "title": "a test", "threshold": 10}, now)
    alert = an_alert(rule=rule, rule_name=rule.name, labels={"node": "n1"})
    follow_up = Incident.objects.create(alert=alert).follow_ups.create(text="a test")
    end = now + timedelta(hours=1)
    silence = Silence.objects.create(matchers=[], reason="a test", owner=people["operator"], expires_at=end)
    return {"alert": alert, "silence": silence, "receiver": receiver, "follow_up": follow_up}
