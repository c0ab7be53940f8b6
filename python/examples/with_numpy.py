"""numpy: a slice of an array in a file, read into memory without an intermediate copy."""
import os
import tempfile

import foreread
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "array.npy")
    whole = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000)
    np.save(path, whole)

    with foreread.open(path) as file:
        # Like np.load, but from any source: s3://, https://, nbd://, rbd:.
        assert np.array_equal(np.load(file), whole)
        # Rows 500 to 509 alone: the data are the last 4,000,000 bytes.
        rows = np.empty((10, 1000), dtype=np.float32)
        file.seek(file.size - whole.nbytes + 500 * 4000)
        file.readinto(rows)
        assert np.array_equal(rows, whole[500:510])
        print(file.explain())
