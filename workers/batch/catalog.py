"""The available batch jobs by name; `python:dotted.path` names a custom `Job`."""

import importlib
from collections.abc import Iterator
from datetime import date, timedelta

from common import checks
from common.errors import BadInput
from workers.batch.jobs import experiment as lab_job
from workers.batch.jobs import extract_names, folding, retention, spill
from workers.batch.jobs import tuning as tuning_job
from workers.batch.jobs.job import ChunkSpec, Job, JobContext, Values
from workers.batch.jobs.parameters import JobParameter
from workers.batch.jobs.spark import client
from workers.history import event_archive, metric_history
from workers.history.stretches import TimeRange, build_counts_name

HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
MAX_COMPARED_SECONDS = 31.0 * DAY_SECONDS
# Maximum number of an extract's steps, and of a day's rates by type: all are in memory at once, about 100
# bytes each.
MAX_STEPS, MAX_TRAINING_RATES = 5_000_000, 5_000_000
OWN = "python:"
ON_ERROR = JobParameter(
    "on_error", "choice", "handling of an invalid input file", "skip", choices=event_archive.ON_ERROR
)
DAYS = (
    JobParameter("since", "day", "first day; default: determined by days", None),
    JobParameter("until", "day", "last day; default: today", None),
    JobParameter("days", "integer", "number of days, including today", 2, least=1, most=3_660),
)
QUEUES = JobParameter("queues", "names", "queues; default: all archived queues", None)


def get_job(name: str) -> Job:
    """Return the job. Raises BadInput naming it."""
    if name.startswith(OWN):
        return _own(name.removeprefix(OWN))
    if name not in JOBS:
        raise BadInput("job", f"must be one of {', '.join(JOBS)}, or python:dotted.path, not {name}.")
    return JOBS[name]


def _own(path: str) -> Job:
    module, _, attribute = path.rpartition(".")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs the module's own code, which may raise anything
        raise BadInput("job", f"python:{path} cannot be imported: {error}.") from None
    if not isinstance(loaded, Job):
        raise BadInput("job", f"must be a workers.batch.jobs.job.Job, but python:{path} is a {type(loaded).__name__}.")
    return loaded


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
    """Return a chunk for each archived queue and day.

    Raises BadInput for more rates per day and type than fit in memory.
    """
    windows, rates = DAY_SECONDS // values["window_seconds"], values["history"] + values["horizon"]
    if windows * rates > MAX_TRAINING_RATES:
        raise BadInput(
            "window_seconds",
            f"results in {windows:,} windows a day with {rates:,} rates each; the limit is"
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
            "step_seconds", f"results in more than {MAX_STEPS:,} steps; choose longer steps or a shorter range."
        )
    # A block is stored under the day of its newest event, so some events of a day may be in the next day's
    # partition.
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
    extract_names.check_free(where, values["queue"], name, values["format"])
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
        raise BadInput("other_since", "starts a range that overlaps the first range; choose separate ranges.")
    if not (here.list_partitions(where.data, queue) or there.list_partitions(where.data, queue)):
        raise BadInput("queue", "has no archived events in these ranges.")
    content = {"queue": queue, "here": [here.since, here.until], "there": [there.since, there.until]}
    yield ChunkSpec(f"comparison={build_counts_name(queue, here, there)}", content)


JOBS = {
    declared.name: declared
    for declared in (
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
            "metric_spill",
            "Writes the per-second metrics from the stream to files.",
            (),
            spill.open_job,
            next_piece=spill.build_next_chunk,
            every_seconds=600,
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
                JobParameter("window_seconds", "integer", "length of a window", 60, least=1, most=HOUR_SECONDS),
                JobParameter("history", "integer", "number of consecutive past windows", 30, least=1, most=1_000),
                JobParameter("horizon", "integer", "number of future windows in the target", 10, least=1, most=1_000),
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
                JobParameter("queue", "name", "queue"),
                JobParameter("since", "moment", "start of the range"),
                JobParameter("until", "moment", "end of the range, exclusive"),
                JobParameter("format", "choice", "format of the file", "csv", choices=("csv", "csv.gz", "parquet")),
                JobParameter(
                    "step_seconds", "number", "0: events; otherwise rates with this step", 0.0, least=0, most=86_400
                ),
                JobParameter("name", "name", "name of the file without its suffix", None),
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
                JobParameter("queue", "name", "queue; default: all archived queues", None),
                JobParameter("since", "moment", "start of the range"),
                JobParameter("until", "moment", "end of the range, exclusive"),
                JobParameter("other_since", "moment", "start of the other range, which has the same length"),
                ON_ERROR,
            ),
            client.build_opener("stretch_comparison"),
            pieces=iterate_comparison_chunks,
            requirements=("spark",),
            single_instance=False,
        ),
        Job(
            "retention",
            "Deletes data that is older than its retention period, except kept time ranges.",
            retention.PARAMETERS,
            retention.open_job,
            pieces=retention.iterate_chunks,
            crontab="10 3 * * *",
        ),
        Job(
            folding.NAME,
            "Combines consecutive decisions without an action into one ledger entry, without loss.",
            folding.PARAMETERS,
            folding.open_job,
            pieces=folding.iterate_chunks,
            crontab="25 * * * *",
        ),
        Job(
            tuning_job.NAME,
            "Tunes loops on recorded data, and proposes values that perform better on the following days.",
            tuning_job.PARAMETERS,
            tuning_job.open_job,
            pieces=tuning_job.iterate_chunks,
            requirements=("memory",),
            crontab="30 2 * * 1",
        ),
        Job(
            lab_job.NAME,
            "Simulates a scenario of the lab, one law per chunk; started on the Lab page.",
            lab_job.PARAMETERS,
            lab_job.open_job,
            pieces=lab_job.iterate_chunks,
            # The role for batch work: experiments must not take slots from consumers.
            requirements=("memory",),
            single_instance=False,
            max_chunk_seconds=lab_job.MAX_CHUNK_SECONDS,
        ),
    )
}
