"""What a running pipeline application says, for pages' tests; a test holds its shape against the real one."""

from workers.pipeline.status.measures import WorkSample, compute_measures

DECLARATION = """
name: performance
queues: [telemetry]
sink: alert
replicas: 2
key: source
operators:
  - name: hosts
    patterns:
      - {name: load-rises, pattern: SEQ(busy; load), define: {busy: 'value > 85'}, within_seconds: 30}
  - name: sites
    patterns:
      - {name: outage, pattern: SEQ(load-rises; load-rises), within_seconds: 60, severity: critical}
"""


def sample_application():
    replicas = {name: _replica(share) for name, share in (("iap1", 0.55), ("iap2", 0.45))}
    return {
        "state": "running", "error": None, "hindrance": None, "queues": ["telemetry"],
        "sinks": {"outage": ["alert"]}, "batch": 12, "in_per_second": 30.0, "kept_per_second": 20.0,
        "alerts_per_second": 0.5, "rules": [{"name": "discard", "in": 30, "out": 20}],
        "rule_engine": "arrow", "spark_reason": None, "place": "process",
        "place_reason": "Spark starts above 2,000 events/s", "batch_seconds": 0.4,
        "batch_overhead_seconds": 0.2, "batch_overhead_cv2": 0.4, "latency_p95_seconds": 3.4,
        "offered_per_second": 20.4, "shed_per_second": 0.0, "shed_share": 0.0, "shed_events": 0,
        "watermark_lag_seconds": 3.0, "waiting_events": 12,
        "patterns": {
            "load-rises": _pattern("hosts", {"cpu": 12.0, "load": 8.0}, 0.4),
            "outage": _pattern("sites", {"load-rises": 0.4}, 0.1),
        },
        "late_events": 3, "outbox": {}, "outbox_full": False, "complex_events": 41, "same_cores": False,
        "skipped_nodes": [],
        "controls": {"criteria": {}, "tasks": {}, "parallelism": 2, "admit_events_per_second": None},
        "admitted_events": 5_000, "in_flight_events": 0,
        "result_queue": {
            "capacity_bytes": 134_217_728, "used_bytes": 51_000_000, "free_bytes": 83_217_728,
            "bytes_per_event": 94.0,
        },
        "restarts": {
            "count": 1, "tries": 0, "failed_at": None, "next_try_at": None, "last_error": None,
            "last_error_at": None,
        },
        "replicas": replicas,
        "combiner": {
            "waits_for": "iap2", "held_results": 2, "in_per_second": None, "wait_seconds": 0.4, "rows_per_second": None,
        },
        "operators": {
            "hosts": _operator(0, ["load-rises"], 0.93, 20.0, 0.4),
            "sites": _operator(1, ["outage"], 0.2, 0.4, 0.1),
        },
        "monitored": {}, "edges": [{"source": "hosts", "target": "sites", "type": "load-rises"}],
    }  # fmt: skip


def _replica(share):
    return {
        "share": share, "in_per_second": 30.0 * share, "kept_per_second": 20.0 * share, "utilisation": share,
        "batch_seconds": 0.2, "response_seconds": 0.31, "response_error_seconds": 0.04,
        "work": compute_measures([WorkSample(1.0, 30 * share, round(30 * share), round(20 * share), 0.2)] * 2, 10.0),
    }  # fmt: skip


def _pattern(operator, types, out_per_second):
    return {
        "operator": operator, "emits": {"hosts": "load-rises", "sites": "outage"}[operator],
        "expression": {"hosts": "SEQ(busy; load)", "sites": "SEQ(load-rises; load-rises)"}[operator],
        "sheddable": True, "matches": 41, "quiet": 2, "seconds": 0.001, "types": types,
        "partnerless_per_second": 0.0, "forgotten_bytes_per_second": 0.0, "out_per_second": out_per_second,
        "shed_events": {}, "shed_per_second": {}, "shed_share": 0.0, "spared": {"types": {}, "out_per_second": 0.0},
        "surplus": {"matches_per_second": 0.0, "matches_per_window": 0.0, "kept_per_second": {}}, "weight": 1.0,
        "recall": None,
    }  # fmt: skip


def _operator(level, patterns, utilisation, in_per_second, out_per_second):
    return {
        "key": "source", "level": level, "reads_source": level == 0, "in_per_second": in_per_second,
        "out_per_second": out_per_second, "tasks": 2, "parallelism": 2, "utilisation": utilisation,
        "seconds": 0.001, "overhead_seconds": 0.0004, "shed_share": 0.0, "late_per_second": 0.1,
        "patterns": patterns, "work": [compute_measures([WorkSample(1.0, 10.0, 10, 1, 0.1)] * 2, 10.0)] * 2,
    }  # fmt: skip
