"""torch: reads weights as tensors. One DataLoader reads through an open file; the other reads many files in a known order."""
import json
import os
import sys
import tempfile

import foreread
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Records(Dataset):
    """Records of equal length in one file. Each worker is forked, and opens the file again at its first read."""

    def __init__(self, path, length):
        self.file, self.length = foreread.open(path), length

    def __len__(self):
        return self.file.size // self.length

    def __getitem__(self, n):
        return torch.frombuffer(bytearray(self.file.read_at(n * self.length, self.length)), dtype=torch.int32)


class Files(IterableDataset):
    """Whole files in a known order. Each worker has its part of them, and reads the next 32 before their turn."""

    def __init__(self, names):
        self.names = names

    def __iter__(self):
        worker = get_worker_info()
        mine = self.names[worker.id :: worker.num_workers]
        return (torch.frombuffer(bytearray(data), dtype=torch.int32) for data in foreread.read_files(mine))


def model(name):
    """All tensors of a safetensors file, such as s3://bucket/model.safetensors, as views of one buffer."""
    with foreread.open(name) as file:
        return foreread.plan.safetensors(file).torch()


def make(folder):
    """A file of 200 records, 40 files, and a model."""
    with open(os.path.join(folder, "records"), "wb") as file:
        file.write(b"".join(n.to_bytes(4, "little") * 250 for n in range(200)))
    for n in range(40):
        with open(os.path.join(folder, f"file{n}"), "wb") as file:
            file.write(n.to_bytes(4, "little") * 250)
    head = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + bytes(torch.arange(6, dtype=torch.float32).view(torch.uint8).tolist()))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, {key: tuple(tensor.shape) for key, tensor in model(name).items()})
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        seen = []
        for batch in DataLoader(Records(os.path.join(folder, "records"), 1000), batch_size=20, shuffle=True, num_workers=2):
            assert batch.shape == (20, 250)
            seen += batch[:, 0].tolist()
        assert sorted(seen) == list(range(200))

        order = torch.randperm(40).tolist()
        loader = DataLoader(Files([os.path.join(folder, f"file{n}") for n in order]), batch_size=5, num_workers=2)
        assert sorted(n for batch in loader for n in batch[:, 0].tolist()) == list(range(40))

        weights = model(os.path.join(folder, "model.safetensors"))
        assert weights["w"].equal(torch.arange(6, dtype=torch.float32).reshape(2, 3))
