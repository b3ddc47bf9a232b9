"""A stock app whose task calls a downstream service, if there is one, and notes that it ran.

While the file SHOP_AWAY exists, all tasks fail before they do anything. Otherwise, one of REFUSED_EVERY fails after it
has run.
"""

import os
import socket
from pathlib import Path
from typing import Any

from celery import Celery

app: Any = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.update(task_default_queue="pay", task_send_sent_event=True)
PORT = int(os.environ.get("SHOP_DOWNSTREAM", "0"))
AWAY = Path(os.environ["SHOP_AWAY"])
REFUSED_EVERY = 40


@app.task(name="shop.pay", ignore_result=True)  # type: ignore[untyped-decorator]
def pay(number: int) -> None:
    if AWAY.exists():
        raise ConnectionError("the bank is away")
    if PORT:
        with socket.create_connection(("127.0.0.1", PORT), 60) as connection:
            connection.sendall(b"?")
            connection.recv(1)
    file = os.open(os.environ["SHOP_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number}\n".encode())  # at once: lines of several threads do not mix
    os.close(file)
    if number % REFUSED_EVERY == 0:
        raise ConnectionError("the bank refused")


def submit(count: int) -> None:
    """Send the first tasks, as the app does."""
    for number in range(count):
        pay.delay(number)
