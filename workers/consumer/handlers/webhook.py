"""A handler that posts each block as JSON lines to a URL.

Headers: `Content-Type: application/x-ndjson`, `Idempotency-Key` (the block id; see
`workers.consumer.handler`), `X-Weir-Queue`, `X-Weir-Events`, and, when a secret is named, `X-Weir-Signature:
sha256=` + hex HMAC-SHA-256 of the body under it.

Options: `url` (required), `timeout_seconds`, `secret_environment` (the name of the environment variable with the
secret: the secret itself is never stored), `headers`. 2xx is done; 409, or any 2xx with `Idempotency-Replayed: true`,
was done before. 408, 425, 429, 5xx, an unreachable endpoint, and configuration errors (401, 403, 404, 405, 407, 410)
are tried again; `Retry-After` in seconds is respected. Every other 4xx blames the events: poison.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import orjson

from common import environment as variables
from common import parsing
from common.errors import BadInput, describe_connection_error
from workers.consumer.handler import Delivery, Failure, Handler, Options, Outcome, Place
from workers.host import egress

NOT_THE_EVENTS_FAULT = frozenset({401, 403, 404, 405, 407, 408, 410, 425, 429})
MAX_RETRY_AFTER_SECONDS = 300.0
# Only the start of a response is read, and a whole request may take this many of its timeouts.
MAX_READ_BYTES = 4_096
TOTAL_OF_TIMEOUT = 3


def encode_json_lines(delivery: Delivery) -> bytes:
    """Return a line per event, the same bytes for the same rows: times in ISO 8601 and UTC, attributes an object."""
    lines = []
    for event in delivery.collect_rows():
        if event["attributes"] is not None:
            event["attributes"] = _document(event["attributes"])
        lines.append(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines)


def _document(text: str) -> object:
    """Return the attributes as an object, or as text when they are invalid.

    An event with invalid attributes must not fail its block.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def compute_signature(secret: bytes, body: bytes) -> str:
    """Return the value that a receiver compares (in constant time) with the header `X-Weir-Signature`."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


class Webhook(Handler):
    """The handler, with one connection pool per worker process.

    Redirects are not followed, so a signed body goes only to its URL.
    """

    works_block_by_block = True

    def __init__(
        self,
        place: Place,
        options: Options,
        transport: httpx.BaseTransport | None = None,
        environment: Mapping[str, str] = variables.PROCESS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self.queue = place.queue
        self.url = self._validate_url(options.get_text("url"))
        # The part that an error shows: the rest of an address may be a secret, and many people read dead letters.
        self._host = urlsplit(self.url).hostname
        timeout_seconds = options.get_number("timeout_seconds", 10.0, 0.1, 600.0)
        headers = options.get_texts("headers")
        egress.check_headers(headers, "handler_options.headers")
        self._secret = self._read_secret(options.get_text("secret_environment", ""), self.url, environment)
        options.finish()
        self._client = egress.create_client(
            timeout_seconds, headers=headers, total_seconds=TOTAL_OF_TIMEOUT * timeout_seconds, transport=transport
        )

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        outcome, failures = Outcome(), []
        for place, delivery in enumerate(deliveries):
            answer = self._post(place, delivery)
            if isinstance(answer, Failure):
                failures.append(answer)
            else:
                outcome = outcome.add_counts(answer)
        return replace(outcome, failures=tuple(failures))

    def _post(self, place: int, delivery: Delivery) -> Outcome | Failure:
        body = encode_json_lines(delivery)
        try:
            with self._client.stream(
                "POST", self.url, content=body, headers=self._build_headers(delivery, body)
            ) as response:
                said = egress.read(response, MAX_READ_BYTES).decode("utf-8", "replace")
        except httpx.TransportError as error:
            return Failure(place, f"{self._host} did not respond: {describe_connection_error(error)}", transient=True)
        return self._judge(place, delivery.events, response, said)

    def _judge(self, place: int, events: int, response: httpx.Response, said: str) -> Outcome | Failure:
        status = response.status_code
        replayed = response.headers.get("Idempotency-Replayed", "").lower() == "true"
        done = ((self._monotonic(), events),)
        if status == 409 or (response.is_success and replayed):
            return Outcome(duplicates=events, completions=done)
        if response.is_success:
            return Outcome(effects=events, completions=done)
        error = f"{self._host} returned HTTP {status}: {said[:200]}"
        if 400 <= status < 500 and status not in NOT_THE_EVENTS_FAULT:
            return Failure(place, error, poison=True)
        return Failure(place, error, transient=True, delay_seconds=self._retry_after_seconds(response))

    def _build_headers(self, delivery: Delivery, body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": delivery.key,
            "X-Weir-Queue": self.queue,
            "X-Weir-Events": str(delivery.events),
        }
        if self._secret:
            headers["X-Weir-Signature"] = compute_signature(self._secret, body)
        return headers

    @staticmethod
    def _retry_after_seconds(response: httpx.Response) -> float:
        told = response.headers.get("Retry-After", "")
        return min(float(parsing.parse_digits(told) or 0), MAX_RETRY_AFTER_SECONDS)

    @staticmethod
    def _validate_url(url: str) -> str:
        egress.check_url(url, "handler_options.url")
        return url

    @staticmethod
    def _read_secret(name: str, url: str, environment: Mapping[str, str]) -> bytes:
        if name:
            field = "handler_options.secret_environment"
            egress.check_secret_name(name, field)
            egress.check_secret_host(name, urlsplit(url).hostname, field, environment)
        secret = variables.read_secret(name, environment)
        if name and not secret:
            message = f"names {name}, which is not set in the worker's environment. Set it or remove the option."
            raise BadInput("handler_options.secret_environment", message)
        return secret.encode()
