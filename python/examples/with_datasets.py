"""Hugging Face datasets: reads a Parquet file through foreread and turns it into a dataset."""
import os
import tempfile

import foreread
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "t.parquet")
    pq.write_table(pa.table({"text": [f"line {n}" for n in range(1000)], "label": [n % 2 for n in range(1000)]}), path)
    with foreread.open(path) as file:
        dataset = Dataset(foreread.plan.parquet(file, ["label"]).read())
    assert dataset.num_rows == 1000 and dataset[3] == {"label": 1}
