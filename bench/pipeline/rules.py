"""Random expressions of rules: whether Arrow gives the results of Spark, and how many expressions Arrow supports."""

import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from bench.pipeline.random_rules import Comparison, RandomExpressions, compare_with_spark, make_rows
from workers.pipeline.runtime.session import start_session

MAX_SHOWN = 20
LOT = 500  # expressions that are compared on the same rows
# Compiling a query of a few hundred rows takes longer than interpreting it.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def run(seconds: float, count: int | None = None, seed: int = 1) -> dict[str, Any]:
    """Compare `count` expressions, or as many as `seconds` allow, without the start of Spark."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("rules", "local[1]", Path(folder))
        try:
            for name, value in _INTERPRETED.items():
                spark.conf.set(name, value)
            comparison = compare_random_rules(spark, seconds, count, seed)
        finally:
            spark.stop()
    return {
        "figures": {
            "expressions": float(comparison.in_arrow + comparison.other + comparison.refused),
            "compared": float(comparison.in_arrow),
            "refused_by_spark": float(comparison.refused),
            "differences": float(len(comparison.differences)),
            "arrow_share": comparison.arrow_share,
        },
        "peers": {"limit_differences": 0.0},
        "ratio": {},
        "notes": [f"{text}: {difference}" for text, difference in comparison.differences[:MAX_SHOWN]],
    }


def compare_random_rules(spark: SparkSession, seconds: float, count: int | None, seed: int) -> Comparison:
    """Compare batches of expressions, each on other rows."""
    random, total = Random(seed), Comparison()
    source = RandomExpressions(random)
    end, left = time.monotonic() + seconds, count
    while (left is None and time.monotonic() < end) or (left is not None and left > 0):
        lot = LOT if left is None else min(LOT, left)
        total.add(compare_with_spark(spark, [source.make() for _ in range(lot)], make_rows(random)))
        left = None if left is None else left - lot
    return total
