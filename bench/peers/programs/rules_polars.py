"""The rules in Polars: one lazy query over the Parquet file, collected."""

import polars as pl
from timed import TEST_SUBNET, folder, networks, put_out, quickest, rules_answer


def query() -> pl.LazyFrame:
    """Of each prefix length a join; the longest that finds a row counts."""
    parts = pl.col("address").str.split(".")
    read = [parts.list.get(place, null_on_oob=True).cast(pl.Int64, strict=False) for place in range(4)]
    is_one = pl.all_horizontal(parts.list.len() == 4, *(part.is_between(0, 255) for part in read))
    powers = zip(read, (3, 2, 1, 0), strict=True)
    number = pl.when(is_one).then(sum(part * 256**power for part, power in powers))
    events = pl.scan_parquet(folder() / "events.parquet").with_columns(number=number)
    events = events.filter(~(pl.col("number") // 256 == TEST_SUBNET).fill_null(False))
    names, kinds = [], []
    for length, rows in networks().items():
        if length == 0:
            known = pl.col("number").is_not_null()
            names.append(pl.when(known).then(pl.lit(rows[0][1])))
            kinds.append(pl.when(known).then(pl.lit(rows[0][2])))
            continue
        name, kind = f"name{length}", f"kind{length}"
        table = pl.LazyFrame(rows, schema={"bits": pl.Int64, name: pl.String, kind: pl.String}, orient="row")
        bits = pl.col("number") // 2 ** (32 - length)
        events = events.join(table, left_on=bits, right_on="bits", how="left")
        names.append(pl.col(name))
        kinds.append(pl.col(kind))
    return events.select(
        "time", "type", "key", "source", "value", host_name=pl.coalesce(names), host_type=pl.coalesce(kinds)
    )


def main() -> None:
    seconds, result = quickest(lambda: query().collect())
    groups = result.group_by("host_type").agg(pl.len(), pl.col("value").sum())
    put_out(seconds, rules_answer(groups.rows()))


main()
