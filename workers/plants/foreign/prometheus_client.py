"""Prometheus' HTTP API, as far as it is asked: one number now, one for each label, and what is scraped.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import math
from collections.abc import Mapping
from typing import Any

from queues.text.numbers import measured_number
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.client import PlantClient
from workers.plants.plant import PlantConfused, PlantSilent

UNAVAILABLE = 503
# A note about the query, in `infos` since 2.54. Before (2.48 to 2.53) it stands among the warnings.
NOTE = "PromQL info:"


class PartialAnswer(PlantConfused):
    """A part of what is asked about did not answer, such as a store of Thanos that is away. value: of the
    rest; shown with the reason, and nothing is decided on it.
    """

    def __init__(self, message: str, value: float | None) -> None:
        super().__init__(message)
        self.value = value


class PrometheusClient:
    """Of one server."""

    def __init__(self, client: PlantClient, path: str = "") -> None:
        self._client, self._path = client, f"{path.strip('/')}/" if path.strip("/") else ""

    def value(self, query: str) -> float | None:
        """Of a scalar, or of the only series; None where there is none, or it is no number. Raises
        PlantSilent, PartialAnswer with the value of the parts that answered, and PlantConfused for more than
        one series and what PromQL is not.
        """
        data, missing = self._answered(query)
        value = self._only_value(query, data)
        if missing:
            raise PartialAnswer(missing, value)
        return value

    def _only_value(self, query: str, data: Any) -> float | None:
        try:
            kind, result = data["resultType"], data["result"]
            if kind == "scalar":
                return _number(result[1])
            if kind != "vector":
                raise PlantConfused(f"{self._client.name}: {query[:80]} is a {kind}, not one number now.")
            if len(result) > 1:
                raise PlantConfused(
                    f"{self._client.name}: {query[:80]} gives {len(result)} series; sum() or max() makes one"
                    " of them."
                )
            return _number(result[0]["value"][1]) if result else None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._confused(error) from error

    def values(self, query: str, label: str) -> dict[str, float | None]:
        """Of a vector, by what this label says, "" where a series has none. Raises as `value` does."""
        data, missing = self._answered(query)
        if missing:
            raise PlantConfused(missing)
        try:
            if data["resultType"] != "vector":
                raise PlantConfused(f"{self._client.name}: {query[:80]} is no vector.")
            return {str(each["metric"].get(label, "")): _number(each["value"][1]) for each in data["result"]}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._confused(error) from error

    def _answered(self, query: str) -> tuple[Any, str]:
        """Return what a query gives now, and which part of it is missing, "" for none. Raises PlantSilent and
        PlantConfused.
        """
        # Nobody waits for it any longer, so the server gives up then, too. It takes no fractions of a unit.
        document = self._document("query", query=query, timeout=f"{round(1_000 * answer_seconds())}ms")
        warnings = document.get("warnings") or []
        texts = [str(each) for each in (warnings if isinstance(warnings, list) else [warnings])]
        missing = [each for each in texts if not each.lstrip().startswith(NOTE)]
        said = f"{self._client.name} answers only in part: {missing[0][:300]}" if missing else ""
        return document.get("data"), said

    def targets(self) -> list[Mapping[str, Any]]:
        """What it scrapes: {"scrapePool", "health", "lastError", …} each."""
        found = self._data("targets", state="active")
        try:
            return [dict(each) for each in found["activeTargets"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._confused(error) from error

    def version(self) -> str:
        try:
            return str(self._data("status/buildinfo")["version"])
        except (KeyError, TypeError) as error:
            raise self._confused(error) from error

    def metric_names(self) -> list[str]:
        """All of them, in their order."""
        found = self._data("label/__name__/values")
        return [str(each) for each in found] if isinstance(found, list) else []

    def _data(self, endpoint: str, **query: Any) -> Any:
        return self._document(endpoint, **query).get("data")

    def _document(self, endpoint: str, **query: Any) -> dict[str, Any]:
        """Of what succeeded."""
        status, document = self._client.ask("GET", f"{self._path}api/v1/{endpoint}", **query)
        if isinstance(document, dict) and document.get("status") == "success":
            return document
        said = document.get("error") if isinstance(document, dict) else None
        message = f"{self._client.name} answers {status}: {str(said or 'it does not say why')[:300]}"
        raise PlantSilent(message) if status == UNAVAILABLE else PlantConfused(message)

    def _confused(self, error: Exception) -> PlantConfused:
        return PlantConfused(f"{self._client.name} answers what Prometheus does not ({error!r}).")


def _number(text: Any) -> float | None:
    """Prometheus writes numbers as texts, with NaN and +Inf among them."""
    value = measured_number(text)
    return value if math.isfinite(value) else None
