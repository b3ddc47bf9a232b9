"""The rules and the receiver that a plant starts with.

People's changes stay. A rule is disabled, not deleted: a deleted one comes back.
"""

from datetime import datetime
from typing import Any

from workers.alerts.lifecycle.models import AlertRule, Receiver
from workers.alerts.rules import rules

CONSOLES = "consoles"
NOTIFY = [{"after_minutes": 0, "receivers": [CONSOLES]}]


def _build_rule(condition: str, title: str, threshold: float, clear: float, **more: Any) -> dict[str, Any]:
    escalation = [] if more.get("severity") == "notice" else NOTIFY
    fields = {"condition": condition, "title": title, "threshold": threshold, "clear_threshold": clear}
    return {**fields, "escalation": escalation, **more}


FIRST_RULES: dict[str, dict[str, Any]] = {
    "node-lost": _build_rule("node_lost", "Node {node} is lost", 10, 3, keep_seconds=10, severity="critical"),
    "node-too-busy": _build_rule(
        "node_toobusy", "Node {node} is too busy", 90, 80, for_seconds=60, severity="critical"
    ),
    "node-memory": _build_rule("node_memory", "Node {node} is running out of memory", 85, 75, for_seconds=30),
    "queue-behind": _build_rule("queue_wait", "Queue {queue} falls behind", 30, 15, for_seconds=60),
    "queue-latency": _build_rule("queue_latency", "Queue {queue} is slow", 15, 10, for_seconds=120),
    # Outside the band by half of its width, for ten minutes: nobody is called for it.
    "rate-unexpected": _build_rule(
        "rate_unexpected", "Queue {queue} has an unusual rate", 2, 1.2, for_seconds=600, severity="notice"
    ),
    "dead-letters": _build_rule("dead_letters", "Queue {queue} has dead letters", 1, 1),
    "producer-silent": _build_rule(
        "producer_silent",
        "Producer {producer} is not publishing",
        60,
        30,
        # Others come and go; a person says which must not fall silent.
        matchers=[{"label": "producer", "is": "=", "value": "host"}],
    ),
    "sensor-silent": _build_rule("sensor_silent", "Sensor {sensor} of {plant} has no value", 60, 10),
    "workers-missing": _build_rule(
        "workers_missing", "No workers for the jobs queues", 0, 0, for_seconds=15, severity="critical"
    ),
    "workers-saturated": _build_rule(
        "workers_saturated", "All worker slots are busy", 95, 85, for_seconds=600, severity="notice"
    ),
    "pool-refuses": _build_rule(
        "pool_refuses", "The pool of {host} can't grow", 1, 1, for_seconds=15, severity="notice"
    ),
    "pipeline-down": _build_rule("pipeline_down", "The pipeline is down", 15, 10, keep_seconds=10, severity="critical"),
    "pipeline-stalled": _build_rule(
        "pipeline_stalled", "The pipeline is stalled", 1, 1, for_seconds=15, severity="critical"
    ),
    "pipeline-lag": _build_rule("pipeline_lag", "The pipeline lags behind", 60, 30, for_seconds=60),
    "consumer-lag": _build_rule("consumer_lag", "Group {group} of {plant} falls behind", 60, 30, for_seconds=60),
    "plant-silent": _build_rule("plant_silent", "Plant {plant} is not observed", 60, 10),
    "workers-missed": _build_rule("workers_missed", "Workers of {plant} are not responding", 60, 10),
    "queue-unserved": _build_rule("queue_unserved", "Queue {plant_queue} of {plant} has no consumers", 60, 10),
    "throttled": _build_rule("throttled", "Admission of {queue} is throttled", 1, 1),
    "shedding": _build_rule("shedding", "Events are shed", 0.01, 0.01, severity="critical"),
    "observer-silent": _build_rule(
        "observer_silent", "The plant is not observed", 10, 5, keep_seconds=5, severity="critical"
    ),
    "loops-stopped": _build_rule(
        "loops_stopped", "Control loops are not running", 20, 10, keep_seconds=10, severity="critical"
    ),
    "host-overloaded": _build_rule(
        "host_overloaded", "The host is overloaded", 50, 20, for_seconds=15, keep_seconds=60, severity="critical"
    ),
    "loop-silent": _build_rule("loop_silent", "{loop}: stopped", 6, 3, for_seconds=15),
    "loop-oscillates": _build_rule("loop_oscillation", "{loop}: oscillates", 20, 12),
    "loop-saturated": _build_rule("loop_saturated", "{loop}: at its limit", 80, 50),
    # A few in a row are normal while workers start, and while another remedy is in progress.
    "loop-ineffective": _build_rule(
        "loop_ineffective", "{loop}: actions have no effect", 10, 1, window_seconds=1800, for_seconds=120
    ),
    "loop-harmful": _build_rule("loop_harmful", "{loop}: actions made the measurement worse", 1, 1, window_seconds=900),
    "loop-blind": _build_rule("loop_stale", "{loop}: no valid measurement", 30, 10),
    "loop-held": _build_rule("loop_held", "{loop}: in mode hold or manual", 60, 60, severity="notice"),
    "override-ending": _build_rule(
        "override_ending", "{what} expires soon", 120, 120, keep_seconds=0, severity="notice"
    ),
    "order-unreached": _build_rule("order_unreached", "Tasks of {plant} differ from the request", 1, 1),
    "plan-failed": _build_rule("plan_failed", "Plan {plan} failed", 1, 1, window_seconds=3600),
    "task-failed": _build_rule("run_failed", "Task {task} failed", 1, 1, window_seconds=7200),
    "audit-altered": _build_rule("audit_altered", "The audit log was altered", 1, 0.5, severity="critical"),
    "audit-unchecked": _build_rule("audit_unchecked", "The audit log is not checked", 180, 90, keep_seconds=5),
    # Of a budget of 30 days: 2 % within an hour, 5 % within 6 h, 10 % within 3 days.
    "budget-burns-fast": _build_rule(
        "budget_burn_fast", "{objective}: error budget burns fast", 14.4, 14.4, severity="critical"
    ),
    "budget-burns": _build_rule("budget_burn_medium", "{objective}: error budget burns", 6, 6),
    "budget-burns-slowly": _build_rule(
        "budget_burn_slow", "{objective}: error budget burns slowly", 1, 1, severity="notice"
    ),
    "budget-spent": _build_rule("budget_spent", "{objective}: error budget is used up", 100, 98),
    "delivery-failing": _build_rule("delivery_failing", "Delivery to {receiver} fails", 3, 1),
}


def ensure_rules(now: datetime) -> int:
    """Create the missing default rules and the first receiver; return how many rules were missing."""
    Receiver.objects.get_or_create(name=CONSOLES, defaults={"channel": Receiver.Channel.BROWSER})
    known = set(AlertRule.objects.values_list("name", flat=True))
    missing = {name: fields for name, fields in FIRST_RULES.items() if name not in known}
    for name, fields in missing.items():
        rules.define(name, fields, now)
    return len(missing)
