"""pandas: reads CSV and Parquet through a foreread file."""
import os
import tempfile

import foreread
import pandas as pd

with tempfile.TemporaryDirectory() as folder:
    frame = pd.DataFrame({"n": range(10_000), "square": [n * n for n in range(10_000)]})
    csv, parquet = os.path.join(folder, "t.csv"), os.path.join(folder, "t.parquet")
    frame.to_csv(csv, index=False)
    frame.to_parquet(parquet)
    with foreread.open(csv) as file:
        assert pd.read_csv(file).equals(frame)
    with foreread.open(parquet) as file:
        assert pd.read_parquet(file, columns=["square"]).equals(frame[["square"]])
        # The same by a plan: what will be read is known, so it is fetched at once and nothing else is.
        assert foreread.plan.parquet(file, ["square"]).read().to_pandas().equals(frame[["square"]])
