"""h5py: reads a dataset of an HDF5 file through a foreread file."""
import os
import tempfile

import foreread
import h5py
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "t.h5")
    whole = np.arange(1_000_000, dtype="f8").reshape(1000, 1000)
    with h5py.File(path, "w") as made:
        made.create_dataset("x", data=whole, chunks=(100, 100))
    with foreread.open(path) as file, h5py.File(file, "r") as opened:
        assert np.array_equal(opened["x"][250:350, 400:500], whole[250:350, 400:500])
        print(file.explain())
