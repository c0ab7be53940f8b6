"""safetensors: reads two of ten tensors with two requests. The file is written by the safetensors package."""
import os
import tempfile

import foreread
import numpy as np
from safetensors.numpy import save_file

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.safetensors")
    tensors = {f"layer.{n}": np.full((100, 1000), n, np.float32) for n in range(10)}
    save_file(tensors, path)
    with foreread.open(path) as file:
        plan = foreread.plan.safetensors(file, ["layer.3", "layer.8"])
        print(plan)
        for name, array in plan.numpy().items():
            assert np.array_equal(array, tensors[name])
