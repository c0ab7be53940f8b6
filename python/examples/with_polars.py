"""polars: reads Parquet and CSV through a foreread file."""
import os
import tempfile

import foreread
import polars as pl

with tempfile.TemporaryDirectory() as folder:
    frame = pl.DataFrame({"n": range(10_000), "half": [n / 2 for n in range(10_000)]})
    path = os.path.join(folder, "t.parquet")
    frame.write_parquet(path)
    with foreread.open(path) as file:
        assert pl.read_parquet(file, columns=["half"]).equals(frame.select("half"))
    # From Arrow, without a copy.
    with foreread.open(path) as file:
        assert pl.from_arrow(foreread.plan.parquet(file, ["n"]).read()).equals(frame.select("n"))
