// Documents that processes exchange (workers/documents), written by `python -m console.help.documents`.

interface Snapshot {
  "seq": number;
  "at": number | null;
  "ahead_seconds": number | null;
  "plant": string;
  "health": PlantHealth;
  "totals": PlantTotals;
  "producers": Record<string, ProducerStatus>;
  "queues": Record<string, QueueStatus>;
  "destinations": Record<string, DestinationStatus>;
  "nodes": Record<string, NodeStatus>;
  "hosts": Record<string, HostStatus>;
  "pipeline": PipelineStatus;
  "steered_by": PlantHolder | null;
  "plants": Record<string, PlantStatus>;
  "deeds": Array<RecentAction>;
  "loops": Record<string, LoopStatus>;
  "overrides": Array<OverrideStatus>;
  "hands": Array<ManualChange>;
  "windows": Array<PlannedWindowStatus>;
  "states": Record<string, SubjectState>;
  "problems": Array<Problem>;
  "plans": Array<PlanStatus>;
  "runs": Record<string, RunStatus>;
  "forecasts": Record<string, LoadForecast>;
  "bands": ExpectedBands;
  "alerts": Array<AlertStatus>;
  "opening": Record<string, number>;
  "parts": Record<string, PartStatus>;
  "processes": Array<ProcessEvent>;
  "rejected": Record<string, string>;
  "crowd": SlotHolder | null;
  "objectives": Record<string, ObjectiveStatus>;
}

interface PlantHealth {
  "state": string;
  "sentence": string;
  "detail": string;
  "doing": string;
  "severity": "critical" | "notice" | "unknown" | "warning" | "well";
  "findings": Array<SubjectFinding>;
  "word": string;
}

interface SubjectFinding {
  "subject": string;
  "severity": "critical" | "notice" | "unknown" | "warning" | "well";
  "sign": string | null;
  "sentence": string;
  "step": string;
  "since": number | null;
  "impact": string;
  "affected": Array<string>;
  "actions": Array<SuggestedAction>;
  "incident": number | null;
  "opens_at": number | null;
}

interface SuggestedAction {
  "action": string;
  "subject": string;
  "value": string;
  "words": string;
  "effect": string;
}

interface PlantTotals {
  "in_per_second": number | null;
  "out_per_second": number | null;
  "latency_p95_seconds": number | null;
  "backlog_events": number | null;
  "backlog_change_events": number | null;
  "backlog_trend": "falling" | "rising" | "steady" | null;
  "backlog_seconds": number | null;
  "shed_share": number | null;
  "console_available": number | null;
  "nodes_in_use": number | null;
  "nodes": number | null;
  "workers_busy": number | null;
  "workers_at_work": number | null;
  "worker_slots": number | null;
  "dead_letters": number | null;
}

interface ProducerStatus {
  "in_per_second": number | null;
  "age_seconds": number | null;
  "queues": Record<string, number | null>;
  "rejected": number;
  "rerouted": number;
  "samples": Record<string, EventSample>;
}

interface EventSample {
  "events": number;
  "keys": number | null;
  "type": Record<string, number>;
  "key": Record<string, number>;
  "source": Record<string, number>;
}

interface QueueStatus {
  "kind": string | null;
  "handler": string | null;
  "sink": string | null;
  "destination": string | null;
  "circuit_hold": CircuitHoldStatus | null;
  "priority": number | null;
  "minimum_containers": number;
  "requirements": Array<string>;
  "durability": string;
  "ordinary_weight": number | null;
  "active_keys": number | null;
  "in_per_second": number | null;
  "out_per_second": number | null;
  "waiting_events": number | null;
  "waiting_bytes": number | null;
  "wait_seconds": number | null;
  "clearing_seconds": number | null;
  "trend": "falling" | "rising" | "steady" | null;
  "oldest_seconds": number | null;
  "latency_p95_seconds": number | null;
  "dead_letters": number | null;
  "retry_blocks": number | null;
  "workers_at_once": number | null;
  "service_seconds": number | null;
  "usual_service_seconds": number | null;
  "usual_in_per_second": number | null;
  "burst_at": number | null;
  "handler_changed_at": number | null;
  "catching_up": CatchUp | null;
  "pauses": Array<PauseStatus>;
  "containers": Record<string, ContainerStatus>;
}

interface CircuitHoldStatus {
  "circuit": string;
  "override": number;
  "since": number | null;
  "until": number | null;
  "by": string;
  "reason": string;
}

interface CatchUp {
  "after": string;
  "since": number;
  "least_events": number;
  "least_at": number;
}

interface PauseStatus {
  "part": string;
  "override": number;
  "since": number | null;
  "until": number | null;
  "by": string;
  "reason": string;
}

interface ContainerStatus {
  "points": number;
  "waiting_events": number | null;
  "waiting_bytes": number | null;
  "in_per_second": number | null;
  "out_per_second": number | null;
  "dead_per_second": number | null;
  "load": number | null;
  "server_time_share": number | null;
  "oldest_seconds": number | null;
  "inserted_events": number | null;
  "removed_events": number | null;
  "leaving_blocks": number;
  "leaving_letters": number;
  "dead_letters": number | null;
  "dead_error": string;
  "retry_blocks": number | null;
  "waiting_to_run": number | null;
  "workers_started": number | null;
  "workers_busy": number | null;
  "trouble": string | null;
}

interface DestinationStatus {
  "circuit": string;
  "since": number | null;
  "failing_share": number;
  "calls": number;
  "retries": number;
  "at": number | null;
  "error": string;
  "queues": Array<string>;
  "retry_plans": Array<number>;
}

interface NodeStatus {
  "state": string | null;
  "stale": boolean;
  "age_seconds": number | null;
  "utilisation": number | null;
  "raw": number | null;
  "parts": UtilizationByPart | null;
  "busy": number;
  "toobusy": number;
  "in_per_second": number | null;
  "out_per_second": number | null;
  "memory_bytes": number | null;
  "memory_capacity_bytes": number | null;
  "capacity_events_per_second": number;
  "measured_capacity_per_second": number | null;
  "capacity_difference": string | null;
  "points": number;
  "containers": number;
  "drained": boolean;
  "cordoned": boolean;
  "last_state": string | null;
  "ahead_seconds": number | null;
  "damaged_blocks": number;
  "unchecked_blocks": number;
  "missing_blocks": number;
  "dropped_blocks": number;
  "dropped_at": number | null;
  "damage": string;
  "damaged_at": number | null;
  "durability_problem": string;
  "unreadable": string | null;
}

interface UtilizationByPart {
  "cpu": number;
  "memory": number;
  "events": number;
}

interface HostStatus {
  "role": string;
  "slots": number;
  "busy": number;
  "at_work": number | null;
  "reserved": number;
  "drained": boolean;
  "pid": number | null;
  "resizable": boolean | null;
  "started_with": number | null;
  "trouble": string | null;
  "done": PoolWork | null;
  "capabilities": Array<string>;
  "ahead_seconds": number | null;
  "age_seconds": number | null;
  "draining": PauseStatus | null;
}

interface PoolWork {
  "seq": number | null;
  "recent_seconds": Array<number>;
  "full_seconds": number | null;
  "per_second": number | null;
  "mix": Record<string, number>;
  "open_seconds": number | null;
  "open_events": number | null;
}

interface PipelineStatus {
  "state": string | null;
  "error": string | null;
  "hindrance": string | null;
  "batch": number | null;
  "in_per_second": number | null;
  "kept_per_second": number | null;
  "alerts_per_second": number | null;
  "batch_seconds": number | null;
  "watermark_lag_seconds": number | null;
  "waiting_events": number | null;
  "offered_per_second": number | null;
  "shed_per_second": number | null;
  "result_free_bytes": number | null;
  "late_events": number;
  "outbox": Record<string, number>;
  "shed_events": number;
  "cores": number | null;
  "patterns": Record<string, PatternCounts>;
  "rules": Array<RuleStatus>;
  "skipped_nodes": Array<string>;
  "ahead_seconds": number | null;
  "applications": Record<string, ApplicationStatus>;
  "age_seconds": number | null;
}

interface PatternCounts {
  "matches": number;
  "quiet": number;
  "seconds": number | null;
}

interface RuleStatus {
  "name": string;
  "in": number;
  "out": number;
}

interface ApplicationStatus {
  "state": string;
  "hindrance": string | null;
  "error": string | null;
  "restarts": RestartStatus;
  "queues": Array<string>;
  "sinks": Record<string, Array<string>>;
  "batch": number | null;
  "in_per_second": number | null;
  "kept_per_second": number | null;
  "alerts_per_second": number | null;
  "rules": Array<RuleStatus>;
  "rule_engine": string;
  "spark_reason": string | null;
  "place": string;
  "place_reason": string;
  "batch_seconds": number | null;
  "batch_overhead_seconds": number | null;
  "batch_overhead_cv2": number | null;
  "latency_p95_seconds": number | null;
  "watermark_lag_seconds": number | null;
  "waiting_events": number | null;
  "patterns": Record<string, PatternStatus>;
  "offered_per_second": number | null;
  "shed_per_second": number | null;
  "shed_share": number | null;
  "shed_events": number;
  "late_events": number;
  "outbox": Record<string, number>;
  "outbox_full": boolean;
  "complex_events": number;
  "same_cores": boolean;
  "skipped_nodes": Array<string>;
  "controls": ControlValues;
  "admitted_events": number | null;
  "in_flight_events": number;
  "result_queue": ResultQueueStatus;
  "replicas": Record<string, ReplicaStatus>;
  "combiner": CombinerStatus;
  "operators": Record<string, OperatorStatus>;
  "monitored": Record<string, MonitoredStatus>;
  "edges": Array<EdgeStatus>;
}

interface RestartStatus {
  "count": number;
  "tries": number;
  "failed_at": number | null;
  "next_try_at": number | null;
  "last_error": string | null;
  "last_error_at": number | null;
}

interface PatternStatus {
  "operator": string;
  "emits": string;
  "expression": string;
  "sheddable": boolean;
  "matches": number;
  "quiet": number;
  "seconds": number | null;
  "types": Record<string, number>;
  "partnerless_per_second": number;
  "forgotten_bytes_per_second": number;
  "out_per_second": number;
  "shed_events": Record<string, number>;
  "shed_per_second": Record<string, number>;
  "shed_share": number;
  "spared": ControlKeys;
  "surplus": SurplusEstimate;
  "weight": number;
  "recall": RecallEstimate | null;
}

interface ControlKeys {
  "types": Record<string, number>;
  "out_per_second": number;
}

interface SurplusEstimate {
  "matches_per_second": number;
  "matches_per_window": number;
  "kept_per_second": Record<string, Array<number>>;
}

interface RecallEstimate {
  "estimate": number;
  "low": number;
  "high": number | null;
  "matches": number;
}

interface ControlValues {
  "admit_events_per_second": number | null;
  "reserve_bytes": number;
  "admit_until_seconds": number | null;
  "admit_events_per_batch": number;
  "combine_events_per_batch": number;
  "shares": Record<string, number>;
  "parallelism": number;
  "tasks": Record<string, number>;
  "result_bytes": number;
  "lateness_seconds": number;
  "latency_seconds": number | null;
  "ahead_seconds": number;
  "hold_seconds": number;
  "criteria": Record<string, number>;
  "held_criteria": Record<string, CriterionHold>;
  "shed": Record<string, Record<string, number>>;
  "shed_rows": number | null;
  "shed_reduced": Record<string, Record<string, number>>;
  "shed_until_seconds": number | null;
  "shed_by": string;
  "shed_events_of": Record<string, boolean>;
  "spared_keys_share": number;
  "revision": number;
}

interface CriterionHold {
  "value": number;
  "until_seconds": number | null;
  "owner": string;
  "reason": string;
}

interface ResultQueueStatus {
  "capacity_bytes": number | null;
  "used_bytes": number;
  "free_bytes": number | null;
  "bytes_per_event": number;
}

interface ReplicaStatus {
  "share": number;
  "in_per_second": number;
  "kept_per_second": number;
  "utilisation": number;
  "batch_seconds": number | null;
  "response_seconds": number | null;
  "response_error_seconds": number | null;
  "work": Record<string, number | null>;
}

interface CombinerStatus {
  "waits_for": string | null;
  "held_results": number | null;
  "in_per_second": number | null;
  "wait_seconds": number | null;
  "rows_per_second": number | null;
}

interface OperatorStatus {
  "key": string | null;
  "level": number;
  "reads_source": boolean;
  "in_per_second": number;
  "out_per_second": number;
  "tasks": number | null;
  "parallelism": number;
  "utilisation": number | null;
  "seconds": number | null;
  "overhead_seconds": number | null;
  "shed_share": number;
  "late_per_second": number;
  "patterns": Array<string>;
  "work": Array<Record<string, number | null>>;
}

interface MonitoredStatus {
  "column": string;
  "type": string | null;
  "quantile": number;
  "window_seconds": number;
  "events": number;
  "value": number | null;
}

interface EdgeStatus {
  "source": string;
  "target": string;
  "type": string;
}

interface PlantHolder {
  "holder": string | null;
  "until": number | null;
  "since": number | null;
  "reason": string;
  "before": Record<string, number>;
  "after": Record<string, number>;
}

interface PlantStatus {
  "kind": string;
  "state": string;
  "age_seconds": number | null;
  "silent_seconds": number;
  "error": string | null;
  "tasks": number | null;
  "in_per_second": number | null;
  "latency_seconds": number | null;
  "topology": Record<string, any> | null;
  "steered_by": PlantHolder | null;
  "sections": Array<PlantSection>;
  "groups": Record<string, ConsumerGroup>;
  "sensors": Record<string, SensorStatus>;
  "revisions": Record<string, string>;
  "proofs": Record<string, ProofStatus>;
  "set_to": Record<string, number>;
  "lives": Record<string, number>;
  "completions": Record<string, PoolSamples>;
  "missed_workers": Record<string, number>;
  "unserved_queues": Record<string, UnservedQueue>;
  "queue_names": Array<string>;
  "task_names": Array<string>;
  "orders": Record<string, OrderStatus>;
  "set_values": Array<SetValue>;
  "guard": GuardStatus | null;
}

interface PlantSection {
  "title": string;
  "about": string;
  "columns": Array<string>;
  "rows": Array<Array<string | number | null>>;
  "empty": string;
}

interface ConsumerGroup {
  "state": string;
  "members": Array<GroupMember>;
  "topics": Array<string>;
  "lag_events": number | null;
  "lag_seconds": number | null;
  "at_least": boolean;
  "trend": "falling" | "rising" | "steady" | null;
  "in_per_second": number | null;
  "out_per_second": number | null;
  "clearing_seconds": number | null;
  "expired_events": number;
  "rebalances": number;
  "rebalance_seconds": number | null;
  "partition_count": number;
  "partitions": Array<PartitionLag>;
}

interface GroupMember {
  "client": string;
  "host": string;
  "partitions": number;
}

interface PartitionLag {
  "topic": string;
  "partition": number;
  "committed": number | null;
  "end": number | null;
  "lag_events": number | null;
  "lag_seconds": number | null;
  "at_least": boolean;
  "expired_events": number;
  "member": string;
  "said": string;
}

interface SensorStatus {
  "value": number | null;
  "silent_seconds": number;
  "unit": string;
  "title": string;
  "error": string | null;
}

interface ProofStatus {
  "sensor": string;
  "value": number | null;
  "within_seconds": number;
}

interface PoolSamples {
  "seq": number | null;
  "recent_seconds": Array<number>;
  "full_seconds": number | null;
  "per_second": number | null;
  "mix": Record<string, number>;
  "open_seconds": number | null;
  "open_events": number | null;
  "since": number;
}

interface UnservedQueue {
  "waiting": number;
  "seconds": number;
}

interface OrderStatus {
  "tasks": number;
  "at": number;
  "by": string;
  "now": number | null;
  "since": number | null;
  "state": string;
  "waiting_since": number | null;
  "undone_to": number | null;
}

interface SetValue {
  "item": string;
  "value": string;
  "afterwards": string;
  "by": string;
  "since": number | null;
  "within_seconds": number | null;
  "restored_by": string;
  "stays": string;
  "is_harmless": boolean;
  "is_hold": boolean;
}

interface GuardStatus {
  "alive": boolean | null;
  "error": string;
}

interface RecentAction {
  "law": string;
  "entry": number;
  "at": number;
  "verdict": string;
  "did": string;
  "points": number;
}

interface LoopStatus {
  "id": number;
  "law": string;
  "target": Record<string, string>;
  "mode": string;
  "measured": any;
  "setpoint": any;
  "actuator": number | number | null;
  "at": number | null;
  "reason": string | null;
  "verdict": string | null;
  "entry": number | null;
  "overrides": number;
  "terms": Record<string, any>;
  "interval_seconds": number | null;
  "limited_by": string | null;
  "blind_since": number | null;
  "late_seconds": number | null;
  "cause": string | null;
  "last_mode": string | null;
  "relief": string | null;
  "cap": string | null;
}

interface OverrideStatus {
  "id": number;
  "name": string;
  "value": any;
  "scope": string;
  "loop": string | null;
  "law": string | null;
  "queue": string | null;
  "node": string | null;
  "host": string | null;
  "instead_of": any;
  "owner": string;
  "reason": string;
  "replaces": Array<ReplacedOverride> | null;
  "notice_at": number | null;
  "created_at": number | null;
  "expires_at": number | null;
}

interface ReplacedOverride {
  "id": number;
  "scope": string;
  "value": any;
  "owner": string;
  "reason": string;
  "ended": boolean;
}

interface ManualChange {
  "key": string;
  "kind": string;
  "of": string;
  "title": string;
  "was": string;
  "value": string;
  "effect": string;
  "warning": string;
  "owner": string;
  "reason": string;
  "since": number | null;
  "until": number | null;
  "remind_at": number | null;
}

interface PlannedWindowStatus {
  "id": number;
  "name": string;
  "kind": string;
  "scope": Array<string>;
  "loop_mode": string;
  "active": boolean;
  "occurrence": string;
  "starts_at": number;
  "ends_at": number;
  "silenced": number;
  "owner": string;
  "reason": string;
}

interface SubjectState {
  "kind": string;
  "name": string;
  "severity": "critical" | "notice" | "unknown" | "warning" | "well";
  "sign": string | null;
  "word": string;
  "stale": boolean;
  "since": number | null;
  "finding": string;
  "also": Array<SubjectFinding>;
  "step": string;
  "late": boolean;
  "impact": string;
  "affected": Array<string>;
  "actions": Array<SuggestedAction>;
  "independent": boolean;
  "within": string | null;
  "rules": Array<string>;
}

interface Problem {
  "subject": string;
  "finding": string;
  "began_at": number;
  "ended_at": number | null;
  "affected": Array<string>;
  "returns_to": string;
  "recovery": string;
}

interface PlanStatus {
  "id": number;
  "state": string;
  "hash": string;
  "kind": string;
  "title": string;
  "points": number;
  "progress_share": number;
  "note": string;
  "empties": string | null;
  "expires_at": number | null;
  "moves": Array<PlanMove>;
}

interface PlanMove {
  "queue": string;
  "from": string;
  "to": string;
  "points": number;
  "state": string;
  "points_moved": number;
  "blocks": number;
  "blocks_total": number | null;
  "events": number;
  "bytes": number;
}

interface RunStatus {
  "task": string;
  "state": string;
  "share": number | null;
  "rows": number;
  "chunks_done": number;
  "chunks_total": number | null;
  "stages_done": number;
  "stages_total": number;
  "working": number;
  "workers_wanted": number;
  "started_at": number | null;
  "deadline_at": number | null;
}

interface LoadForecast {
  "at": number;
  "window_seconds": number;
  "mean_per_second": Array<number> | null;
  "deviation_per_second": Array<number> | null;
  "days": number;
  "trained_until": string | null;
  "refused": string | null;
}

interface ExpectedBands {
  "totals": Record<string, ExpectedBand>;
  "queues": Record<string, Record<string, ExpectedBand>>;
}

interface ExpectedBand {
  "low": number;
  "high": number;
  "days": number;
  "minute": number | null;
  "changes": Array<RateChange>;
}

interface RateChange {
  "at": number;
  "before": number;
  "after": number;
}

interface AlertStatus {
  "id": number;
  "severity": string;
  "rule": string;
  "condition": string;
  "title": string;
  "state": string;
  "labels": Record<string, string>;
  "sentence": string;
  "since": number | null;
  "recurrence": string;
  "under": number | null;
  "root": string;
  "explanation": string;
  "quiet": string | null;
  "quiet_until": number | null;
  "acknowledged_by": string | null;
  "value": number | null;
  "round": number;
  "step": number;
  "announce": string | null;
}

interface PartStatus {
  "state": string;
  "since": number;
  "grace_until": number | null;
}

interface ProcessEvent {
  "name": string;
  "kind": string;
  "at": number;
  "how": string;
  "down_seconds": number | null;
}

interface SlotHolder {
  "queue": string;
  "crowded": Record<string, string>;
  "holds_all": boolean;
  "active": boolean;
}

interface ObjectiveStatus {
  "target": number;
  "window_days": number;
  "kind": string;
  "subject": string;
  "unit": string;
  "pays_for": string;
  "bad": number;
  "total": number;
  "left": number;
  "left_share": number | null;
  "window_budget": number | null;
  "bad_per_second": number | null;
  "per_second": number | null;
  "burn": Record<string, number | null>;
  "running": RunningMinute | null;
  "last_error": string | null;
}

interface RunningMinute {
  "revision": number;
  "minute": number;
  "bad": number;
  "total": number;
  "carried": number;
}
