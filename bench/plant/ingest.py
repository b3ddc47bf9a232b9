"""Publishing over HTTP: events per second through one web process of a real plant (./run).

Two senders, each with its next body as soon as the one before is answered; the queue's consumption is paused, so that
nothing but the senders and the nodes takes part. JSON lines of an event's own fields, the same with attributes, and a
stream of Arrow. `…_per_processor_second` are events for each second that the web process computes, whatever else the
machine does. The peer is what reads such a body (`EventLines`), alone.
"""

import io
import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import orjson
import psutil
import pyarrow as pa

from bench.plant.overload import START_SECONDS, token
from bench.plant.running_plant import RunningPlant
from queues.events.lines import EventLines

LIMIT_EVENTS_PER_SECOND = 300_000.0
QUEUE, SENDERS = "alert", 2
LINES, ROWS = 20_000, 100_000
WARM_UP_BODIES = 2
NO_QUOTA = """
from datetime import UTC, datetime
from workers.steering import plant_settings
for name in ("quota.events_per_second", "quota.bytes_per_second"):
    plant_settings.change(name, plant_settings.find_declaration(name).maximum, None, datetime.now(UTC))
"""


def run(seconds: float) -> dict[str, Any]:
    kinds = {
        "json": (json_lines(None), "application/x-ndjson", LINES),
        "json_attributes": (json_lines({"host": "web-3", "code": 200}), "application/x-ndjson", LINES),
        "arrow": (arrow_stream(), "application/vnd.apache.arrow.stream", ROWS),
    }
    figures: dict[str, float] = {}
    with RunningPlant() as plant:
        plant.wait_until(lambda seen: not seen["parts"].get("starting"), START_SECONDS, "everything has started")
        plant.manage("shell", "-v", "0", "-c", NO_QUOTA).check_returncode()
        headers = {"Authorization": f"Bearer {token(plant, 'bench', 'producer')}"}
        web = plant.process_matching("console.asgi")
        pause(plant)
        with httpx.Client(base_url=plant.url, headers=headers, timeout=60) as client:
            for name, (body, kind, events) in kinds.items():
                figures |= measure(name, web, poster(client, body, kind), events, seconds)
    alone = read_rate(kinds["json"][0])
    return {
        "figures": figures,
        "peers": {"limit_events_per_second": LIMIT_EVENTS_PER_SECOND, "lines_read_alone_per_second": alone},
        "ratio": {
            **{f"{name}_of_limit": figures[f"{name}_per_processor_second"] / LIMIT_EVENTS_PER_SECOND for name in kinds},
            "json_of_reading_alone": figures["json_per_processor_second"] / alone,
        },
    }


def json_lines(attributes: dict[str, Any] | None) -> bytes:
    more = {"attributes": attributes} if attributes else {}
    return b"".join(
        orjson.dumps({"type": "ordered", "source": f"shop-{n % 50}", "key": str(n % 997), "value": n / 7, **more})
        + b"\n"
        for n in range(LINES)
    )


def arrow_stream() -> bytes:
    rows = range(ROWS)
    table = pa.table(
        {
            "type": ["ordered"] * ROWS,
            "source": [f"shop-{n % 50}" for n in rows],
            "key": [str(n % 997) for n in rows],
            "value": [n / 7 for n in rows],
        }
    )
    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table, max_chunksize=10_000)
    return written.getvalue()


def pause(plant: RunningPlant) -> None:
    """No worker takes anything."""
    order = {"part": "consumption", "minutes": 60, "reason": "bench"}
    with closing(plant.log_in()) as person:
        headers = {"X-CSRFToken": person.cookies["csrftoken"], "Referer": plant.url}
        person.post(f"/api/v1/queues/{QUEUE}/pause", json=order, headers=headers).raise_for_status()


def poster(client: httpx.Client, body: bytes, kind: str) -> Callable[[], None]:
    def post() -> None:
        answer = client.post(f"/api/v1/queues/{QUEUE}/events", content=body, headers={"Content-Type": kind})
        if answer.status_code != 202:
            raise RuntimeError(f"a body was refused: {answer.status_code} {json.dumps(answer.json())[:300]}")

    return post


def measure(name: str, web: psutil.Process, post: Callable[[], None], events: int, seconds: float) -> dict[str, float]:
    """Over so many seconds, after two bodies that are not counted."""
    for _ in range(WARM_UP_BODIES):
        post()
    began, before = time.monotonic(), sum(web.cpu_times()[:2])

    def send() -> int:
        for count in itertools.count():
            if time.monotonic() - began >= seconds:
                return count
            post()
        raise AssertionError

    with ThreadPoolExecutor(SENDERS) as pool:
        bodies = sum(each.result() for each in [pool.submit(send) for _ in range(SENDERS)])
    passed, computed = time.monotonic() - began, sum(web.cpu_times()[:2]) - before
    return {
        f"{name}_events_per_second": bodies * events / passed,
        f"{name}_per_processor_second": bodies * events / computed,
    }


def read_rate(body: bytes) -> float:
    """Lines per second of processor time, of the quickest of five."""
    took = []
    for _ in range(5):
        began = time.process_time()
        if sum(batch.num_rows for batch in EventLines(io.BytesIO(body), format="jsonl")) != LINES:
            raise AssertionError("a line was not read")
        took.append(time.process_time() - began)
    return LINES / min(took)
