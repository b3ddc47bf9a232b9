"""Event types as a job stores them: the most frequent by name, and the rest as one.

Producers may invent a type for each event. A job with rows by type would then write, and keep in memory, as many rows
as there are events: 1.1 MB for each type of a training set.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from workers.pipeline.shedding.shed_counts import OTHERS


def group_rare_types(events: DataFrame, most: int) -> DataFrame:
    """Return the rows with a type that is never null: one of the `most` frequent, "" for none, or OTHERS.

    The rows are read twice.
    """
    named = events.withColumn("type", F.coalesce("type", F.lit("")))
    ranked = named.groupBy("type").count().orderBy(F.desc("count"), "type").limit(most + 1).collect()
    if len(ranked) <= most:
        return named
    frequent = [row["type"] for row in ranked[:most]]
    return named.withColumn("type", F.when(F.col("type").isin(frequent), F.col("type")).otherwise(OTHERS))
