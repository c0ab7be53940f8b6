"""pyarrow: reads two columns with a plan, a dataset through fsspec, and traces and results of the lab as tables."""
import os
import tempfile

import foreread
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from foreread import lab
from foreread.fsspec import ForereadFileSystem

with tempfile.TemporaryDirectory() as folder:
    table = pa.table({f"c{n}": range(n, 10_000 + n) for n in range(50)})
    path = os.path.join(folder, "t.parquet")
    pq.write_table(table, path, row_group_size=2_500)
    with foreread.open(path) as file:
        plan = foreread.plan.parquet(file, ["c7", "c41"], row_groups=[0, 3])
        print(plan)
        assert plan.read().num_rows == 5_000
    filesystem = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(ForereadFileSystem(target_protocol="file")))
    assert ds.dataset(path, filesystem=filesystem).to_table(columns=["c7"]).equals(table.select(["c7"]))

    results = lab.compare("random:count=300", on="model:object-near", policies=["none", "auto"], runs=2)
    print(results.to_arrow().select(["policy", "time_s", "source_bytes"]))
