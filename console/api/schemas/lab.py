"""Answers about the lab."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Document, Json, Seconds, build_enum_field
from console.api.schemas.account import KINDS
from console.api.schemas.tasks import RunProgress
from workers.models import Run


class ScenarioSetting(ApiAnswer):
    """A setting of a scenario as declared."""

    name: str
    unit: str
    help: str
    default: Json
    minimum: float
    maximum: float
    kind: Annotated[str, build_enum_field(KINDS)]
    choices: list[str]


class ScenarioMetric(ApiAnswer):
    name: str
    unit: str
    better: Annotated[str, build_enum_field(("lower", "higher", "none"))]


class ScenarioRow(ApiAnswer):
    name: str
    about: str
    laws: list[str]
    settings: list[ScenarioSetting]
    metrics: list[ScenarioMetric]


class ScenarioList(ApiAnswer):
    scenarios: list[ScenarioRow]
    traces: Annotated[list[str], Field(description="Available trace files.")]


class ExperimentTrace(ApiAnswer):
    name: str
    column: str
    rows: int
    path: NotRequired[Annotated[str, Field(description="Path of the file in the data folder; empty: unknown.")]]


class ExperimentRow(ApiAnswer):
    """An experiment and its results so far."""

    id: int
    scenario: str
    title: str
    laws: list[str]
    parameters: Annotated[Document, Field(description="The scenario's settings.")]
    changed: Annotated[Document, Field(description="Settings that differ from the scenario's.")]
    seed: int
    trace: ExperimentTrace | None
    owner: str | None
    created_at: datetime
    run: int | None
    state: Annotated[str, build_enum_field(Run.State.values)]
    error: str
    results: Annotated[dict[str, dict[str, float | None]], Field(description="Keyed by law, then by metric.")]
    seconds: Annotated[dict[str, Seconds], Field(description="Duration of each law's simulation, s.")]
    command: Annotated[str, Field(description="The equivalent command line.")]
    progress: RunProgress


class ExperimentList(ApiAnswer):
    experiments: list[ExperimentRow]


class ExperimentCurve(ApiAnswer):
    """A series as drawn."""

    seconds: list[Seconds]
    values: list[float | None]


class ExperimentSeries(ApiAnswer):
    experiment: int
    laws: Annotated[dict[str, dict[str, ExperimentCurve]], Field(description="Keyed by law, then by series.")]


class AppliedOverrides(ApiAnswer):
    overrides: list[int]
