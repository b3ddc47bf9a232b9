"""The jobs that Spark runs over the archive: their parameters, and the division of the work into chunks.

A module of `workers.batch.jobs.spark` has the work of each.
"""

from collections.abc import Iterator
from datetime import date, timedelta

from django.db.models import Q

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from workers.batch.job import ChunkSpec, Job, JobContext, Values
from workers.batch.jobs.spark import client
from workers.history import event_archive, metric_history
from workers.history.event_archive import extract_file
from workers.history.stretches import TimeRange, build_counts_name
from workers.models import Run

HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
MAX_COMPARED_SECONDS = 31.0 * DAY_SECONDS
# Maximum number of an extract's steps, and of a day's rates by type: all are in memory at once, about 100 bytes each.
MAX_STEPS, MAX_TRAINING_RATES = 5_000_000, 5_000_000
ON_ERROR = Parameter(
    "on_error", "", "handling of an invalid input file", "skip", kind="choice", choices=event_archive.ON_ERROR
)
DAYS = (
    Parameter("since", "", "first day; default: determined by days", kind="day"),
    Parameter("until", "", "last day; default: today", kind="day"),
    Parameter("days", "", "number of days, including today", 2, 1, 3_660, kind="integer"),
)
QUEUES = Parameter("queues", "", "queues; default: all archived queues", kind="name_list")


def validate_day_range(values: Values, where: JobContext) -> tuple[str, str]:
    """Return the first and the last day. Raises BadInput when they are in the wrong order."""
    until = values["until"] or where.now.date().isoformat()
    back = date.fromisoformat(until) - timedelta(days=values["days"] - 1)
    since = values["since"] or back.isoformat()
    if since > until:
        raise BadInput("since", f"must be on or before until ({until}), not {since}.")
    return since, until


def iterate_partition_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return a chunk for each archived queue and day."""
    since, until = validate_day_range(values, where)
    for partition in event_archive.list_partitions(where.data, values["queues"] or (), since, until):
        yield ChunkSpec(partition.identifier, {"queue": partition.queue, "day": partition.day})


def plan_training_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return a chunk for each archived queue and day. Raises BadInput if a day's rates by type don't fit in memory."""
    windows, rates = DAY_SECONDS // values["window_seconds"], values["history"] + values["horizon"]
    if windows * rates > MAX_TRAINING_RATES:
        raise BadInput(
            "window_seconds",
            f"results in {windows:,} windows a day with {rates:,} rates each. The limit is"
            f" {MAX_TRAINING_RATES:,} in total. Choose longer windows, or a shorter history and horizon.",
        )
    yield from iterate_partition_chunks(values, where)


def iterate_metric_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return a chunk for each day of raw metrics.

    Without a first day, earlier days with incomplete roll-ups are included, since raw metrics are deleted in time.
    """
    since, until = validate_day_range(values, where)
    for day in metric_history.list_raw_days(where.data, "" if values["since"] is None else since, until):
        if day >= since or not metric_history.is_rolled_up(where.data, day):
            yield ChunkSpec(f"day={day}", {"day": day})


def extract_pieces(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return one chunk: an extract is one file.

    Raises BadInput for an empty range, one with too many steps, one without archived events, and for the name of
    another person's extract.
    """
    since, until = checks.parse_timestamp(values["since"]), checks.parse_timestamp(values["until"])
    if since >= until:
        raise BadInput("until", "must be after since.")
    step_seconds = values["step_seconds"]
    if step_seconds and (until - since).total_seconds() / step_seconds > MAX_STEPS:
        raise BadInput(
            "step_seconds", f"results in more than {MAX_STEPS:,} steps. Choose longer steps or a shorter range."
        )
    # A block is stored under the day of its newest event, so some events of a day may be in the next day's partition.
    first, last = since.date().isoformat(), (until.date() + timedelta(days=1)).isoformat()
    partitions = event_archive.list_partitions(where.data, [values["queue"]], first, last)
    if not partitions:
        raise BadInput("queue", f"{values['queue']} has no archived events from {first} to {last}.")
    name = values["name"] or f"{values['queue']}-{since:%Y%m%dT%H%M%S}-{until:%Y%m%dT%H%M%S}"
    content = {
        "since": values["since"],
        "until": values["until"],
        "name": name,
        "days": event_archive.list_partition_days(partitions),
    }
    check_extract_name(where, values["queue"], name, values["format"])
    yield ChunkSpec(f"extract={name}", content)


def iterate_comparison_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return one chunk: a comparison is one file.

    Raises BadInput for stretches that cannot be compared, and where neither has archived events.
    """
    since, until, other = (
        checks.parse_timestamp(values[name]).timestamp() for name in ("since", "until", "other_since")
    )
    if not 0 < until - since <= MAX_COMPARED_SECONDS:
        raise BadInput("until", "must be after since, by at most 31 days.")
    here, queue = TimeRange(since, until), values["queue"] or ""
    there = here.shift(since - other)
    if there.since < here.until and here.since < there.until:
        raise BadInput("other_since", "starts a range that overlaps the first range. Choose separate ranges.")
    if not (here.list_partitions(where.data, queue) or there.list_partitions(where.data, queue)):
        raise BadInput("queue", "has no archived events in these ranges.")
    content = {"queue": queue, "here": [here.since, here.until], "there": [there.since, there.until]}
    yield ChunkSpec(f"comparison={build_counts_name(queue, here, there)}", content)


def check_extract_name(where: JobContext, queue: str, name: str, format: str) -> None:
    """Raise BadInput where another person's extract of the queue has that name or is being made with it."""
    path = extract_file(queue, name, format)
    of_name = Run.objects.filter(
        task__job="replay_extract",
        parameters__queue=queue,
        parameters__format=format,
        chunks__identifier=f"extract={name}",
    )
    lasting = of_name.filter(Q(ended_at=None) | Q(state=Run.State.DONE))
    made = lasting.select_related("owner").order_by("-pk").first()
    if made is None or made.owner_id == where.owner:
        return
    if made.ended_at is not None and not (where.data / path).exists():
        return
    owner = made.owner.get_username() if made.owner else "the schedule"
    raise BadInput(
        "name", f"{path} is an extract of {owner} (run {made.pk}) and would be replaced. Choose another name."
    )


JOBS = (
    Job(
        "stream_statistics",
        "Computes rates, inter-arrival moments, quantiles, and selectivities per type, queue, and day.",
        (QUEUES, *DAYS, ON_ERROR),
        client.build_opener("stream_statistics"),
        pieces=iterate_partition_chunks,
        requirements=("spark",),
        crontab="20 1 * * *",
    ),
    Job(
        "metric_rollup",
        "Rolls up metrics by 10 s, minute, and hour.",
        (*DAYS, ON_ERROR),
        client.build_opener("metric_rollup"),
        pieces=iterate_metric_chunks,
        requirements=("spark",),
        crontab="40 * * * *",
    ),
    Job(
        "forecast_training",
        "Computes windows of rates with calendar phases for the forecast law.",
        (
            QUEUES,
            *DAYS,
            Parameter("window_seconds", "", "length of a window", 60, 1, HOUR_SECONDS, kind="integer"),
            Parameter("history", "", "number of consecutive past windows", 30, 1, 1_000, kind="integer"),
            Parameter("horizon", "", "number of future windows in the target", 10, 1, 1_000, kind="integer"),
            ON_ERROR,
        ),
        client.build_opener("forecast_training"),
        pieces=plan_training_chunks,
        requirements=("spark",),
        crontab="50 1 * * *",
    ),
    Job(
        "replay_extract",
        "Extracts a time range of a queue's archived events as one file.",
        (
            Parameter("queue", "", "queue", kind="name", required=True),
            Parameter("since", "", "start of the range", kind="moment", required=True),
            Parameter("until", "", "end of the range, exclusive", kind="moment", required=True),
            Parameter("format", "", "format of the file", "csv", kind="choice", choices=("csv", "csv.gz", "parquet")),
            Parameter("step_seconds", "", "0: events; otherwise rates with this step", 0.0, 0, 86_400, kind="number"),
            Parameter("name", "", "name of the file without its suffix", kind="name"),
            ON_ERROR,
        ),
        client.build_opener("replay_extract"),
        pieces=extract_pieces,
        requirements=("spark",),
        single_instance=False,
    ),
    Job(
        "stretch_comparison",
        "Counts two ranges of the archive by type, key, and source, for Compare time ranges.",
        (
            Parameter("queue", "", "queue; default: all archived queues", kind="name"),
            Parameter("since", "", "start of the range", kind="moment", required=True),
            Parameter("until", "", "end of the range, exclusive", kind="moment", required=True),
            Parameter(
                "other_since", "", "start of the other range, which has the same length", kind="moment", required=True
            ),
            ON_ERROR,
        ),
        client.build_opener("stretch_comparison"),
        pieces=iterate_comparison_chunks,
        requirements=("spark",),
        single_instance=False,
    ),
)
