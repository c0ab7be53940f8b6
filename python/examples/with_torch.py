"""torch: weights as tensors, and a DataLoader with workers whose dataset keeps an open file."""
import json
import os
import tempfile

import foreread
import torch
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    """Records of equal length in one file. Each worker, which is forked, opens the file anew at its first read."""

    def __init__(self, path, length):
        self.file, self.length = foreread.open(path), length

    def __len__(self):
        return self.file.size // self.length

    def __getitem__(self, n):
        return torch.frombuffer(bytearray(self.file.read_at(n * self.length, self.length)), dtype=torch.int32)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        with open(path, "wb") as file:
            file.write(b"".join(n.to_bytes(4, "little") * 250 for n in range(200)))
        seen = []
        for batch in DataLoader(Records(path, 1000), batch_size=20, shuffle=True, num_workers=2):
            assert batch.shape == (20, 250)
            seen += batch[:, 0].tolist()
        assert sorted(seen) == list(range(200))

        model = os.path.join(folder, "model.safetensors")
        weights = torch.arange(6, dtype=torch.float32)
        head = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
        with open(model, "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head + bytes(weights.view(torch.uint8).tolist()))
        with foreread.open(model) as file:
            assert foreread.plan.safetensors(file).torch()["w"].equal(weights.reshape(2, 3))
