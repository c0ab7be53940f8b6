"""zarr: reads an array in a folder through foreread's filesystem, and an array in a ZIP file through a foreread file."""
import os
import tempfile
import zipfile

import foreread
import numpy as np
import zarr

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "array.zarr")
    whole = np.arange(1_000_000, dtype="f4").reshape(1000, 1000)
    made = zarr.create_array(path, shape=whole.shape, chunks=(100, 1000), dtype="f4")
    made[:] = whole
    # The chunks that a selection needs, each with its file: known before anything is read, so they are fetched at once.
    chunks = foreread.plan.zarr(path, (slice(350, 360), slice(None)))
    assert len(chunks) == 1 and np.array_equal(chunks.read(), whole[350:360])
    assert np.array_equal(foreread.plan.zarr(path).read(), whole)

    packed = os.path.join(folder, "array.zip")
    with zipfile.ZipFile(packed, "w") as archive:
        for at, _, names in os.walk(path):
            for name in names:
                archive.write(os.path.join(at, name), os.path.relpath(os.path.join(at, name), path))
    with foreread.open(packed) as file, zipfile.ZipFile(file) as archive:
        assert "zarr.json" in archive.namelist() and archive.testzip() is None
