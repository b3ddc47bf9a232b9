"""A handler that passes events to a custom callable: `python:package.module.name`.

Options: `takes` events (default: a list of dictionaries, each with its `id`) or block (one `Delivery` at a time:
`.batch` is Arrow); `destination`, the name of what it calls (`workers.consumer.destination`; default: the callable).
An exception of the callable is a failure of its whole input. Its return value is ignored, unless it is an `Outcome`:
where that has a failure, its whole input has failed. It may get an event again after a crash, under the same id.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from common.errors import BadInput
from workers.consumer.handler import Delivery, Failure, Handler, Options, Outcome, Place


def load_callable(path: str) -> Callable[[Any], Any]:
    """Return the callable at a dotted path. Raises BadInput("handler") naming the part that was not found."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise BadInput("handler", f"python:{path} does not include a module. Write python:package.module.name.")
    try:
        attribute = getattr(importlib.import_module(module_name), name)
    except AttributeError:
        raise BadInput("handler", f"python:{path}: module {module_name} has no {name}.") from None
    except Exception as error:  # importing runs the module's own code, which may raise anything
        raise BadInput("handler", f"python:{path}: importing {module_name} failed: {error!r}.") from error
    if not callable(attribute):
        raise BadInput("handler", f"must be callable, but python:{path} is a {type(attribute).__name__}.")
    return attribute  # type: ignore[no-any-return]


class Python(Handler):
    """A handler that calls the callable with all events of a worker, or with one block at a time."""

    def __init__(self, place: Place, options: Options, path: str) -> None:
        self.takes = options.get_choice("takes", "events", ("events", "block"))
        self.works_block_by_block = self.takes == "block"
        options.get_text("destination", "")
        options.finish()
        self._call = load_callable(path)

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        if self.takes == "events":
            events = [event for delivery in deliveries for event in delivery.collect_rows()]
            done = self._convert_to_outcome(self._call(events), len(events))
            return replace(done, failures=_fail_rows(range(len(deliveries)), done))
        outcome = Outcome()
        failures: list[Failure] = []
        for place, delivery in enumerate(deliveries):
            done = self._convert_to_outcome(self._call(delivery), delivery.events)
            failures += _fail_rows([place], done)
            completion = (time.monotonic(), done.effects + done.duplicates)
            outcome = outcome.add_counts(replace(done, completions=(completion,)))
        return replace(outcome, failures=tuple(failures))

    @staticmethod
    def _convert_to_outcome(answer: object, events: int) -> Outcome:
        return answer if isinstance(answer, Outcome) else Outcome(effects=events)


def _fail_rows(places: Iterable[int], done: Outcome) -> tuple[Failure, ...]:
    """Return failures for the whole input: the callable does not know the indexes of blocks."""
    return tuple(replace(done.failures[0], block=place) for place in places if done.failures)
