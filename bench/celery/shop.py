"""The stock app: one task, nothing set but the broker. It notes when each was sent, begun and ended."""

import os
import time
from typing import Any

from celery import Celery

app: Any = Celery("shop", broker=os.environ["SHOP_BROKER"])


@app.task(ignore_result=True)  # type: ignore[untyped-decorator]
def work(number: int, seconds: float, sent_at: float) -> None:
    begun_at = time.time()
    time.sleep(seconds)
    line = f"{number} {sent_at!r} {begun_at!r} {time.time()!r}\n"
    file = os.open(os.environ["SHOP_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())  # at once: lines of several processes do not mix
    os.close(file)
