"""The series and the trace of an experiment, as NumPy files in the data folder.

experiments/{number}/trace.npy         the numbers of the trace
experiments/{number}/law={law}.npz     a column for each series, and `step_seconds`; with several seeds, a series has
                                       rows for the mean, and the low and high end of its confidence band
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.files import resolve_inside_folder

Floats = npt.NDArray[np.float64]
ROOT = "experiments"
STEP = "step_seconds"


def get_series_folder(number: int) -> str:
    return f"{ROOT}/{number}"


def trace_file(number: int) -> str:
    return f"{get_series_folder(number)}/trace.npy"


def get_series_file(number: int, law: str) -> str:
    return f"{get_series_folder(number)}/law={law}.npz"


def write_trace(data: Path, number: int, trace: Floats) -> None:
    path = data / trace_file(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, trace)


def read_trace(data: Path, number: int) -> Floats:
    return np.asarray(np.load(data / trace_file(number), allow_pickle=False))


def write_series(path: Path, step_seconds: float, series: Mapping[str, Floats]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        arrays: dict[str, Any] = {STEP: np.array(step_seconds), **series}
        np.savez_compressed(file, **arrays)


def read_series(data: Path, number: int, law: str) -> tuple[float, dict[str, Floats]]:
    """Return (step in seconds, series by name); nothing if the file is gone."""
    path = resolve_inside_folder(data / ROOT, get_series_file(number, law).removeprefix(f"{ROOT}/"), "law")
    if not path.exists():
        return 0.0, {}
    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    return float(columns.pop(STEP)), columns
