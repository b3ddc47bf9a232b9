"""The beat's own Celery application: it sends tasks by name and imports none, for a third of the memory."""

from celery.signals import beat_init

from common import own_process
from console.celery import create_application, keep_connections

app = create_application(set_as_current=False)
app.conf.beat_scheduler = "workers.coordination.beat:BeatProcessSchedule"
beat_init.connect(keep_connections)


@beat_init.connect
def watch_threads(**_: object) -> None:
    own_process.watch()
