"""torch: runs two epochs over the records of one object. The second epoch reads from the disk cache, after asking the store for the version."""
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import foreread
import torch
from torch.utils.data import DataLoader, Dataset

LENGTH, COUNT = 100_000, 200


class Records(Dataset):
    """Records of equal length in one object. Each worker is a process, which opens it at its first read."""

    def __init__(self, name, cache):
        self.name, self.cache, self.file = name, cache, None

    def __len__(self):
        return COUNT

    def __getitem__(self, n):
        if self.file is None:
            # All processes that name this folder share what is in it, now and in later runs.
            # Without free= a tenth of the disk stays free.
            foreread.configure(disk_cache=f"{self.cache},free=0%", disk_cache_size="1 GiB")
            self.file = foreread.open(self.name)
        return torch.frombuffer(bytearray(self.file.read_at(n * LENGTH, LENGTH)), dtype=torch.int32)


class Store(BaseHTTPRequestHandler):
    """In place of a store: record n has the number n 25,000 times. Without a strong ETag nothing would be kept."""

    protocol_version = "HTTP/1.1"
    data = b"".join(n.to_bytes(4, "little") * (LENGTH // 4) for n in range(COUNT))
    sent = 0

    def do_GET(self):
        if self.headers.get("If-None-Match") == '"1"':
            self.send_response(304)
            self.end_headers()
            return
        first, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last or len(self.data)), len(self.data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", '"1"')
        self.end_headers()
        try:
            Store.sent += self.wfile.write(self.data[first : last + 1])
        except ConnectionError:
            pass  # The reader has ended.

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["NO_PROXY"] = "127.0.0.1"
        records = Records(f"http://127.0.0.1:{server.server_port}/records", os.path.join(folder, "cache"))
        sent = []
        for _ in range(2):
            before = Store.sent
            loader = DataLoader(records, batch_size=20, shuffle=True, num_workers=2)
            assert sorted(n for batch in loader for n in batch[:, 0].tolist()) == list(range(COUNT))
            sent.append(Store.sent - before)
        print(f"sent by the store: {sent[0] / 1e6:.1f} MB in the first epoch, {sent[1] / 1e6:.1f} MB in the second")
        assert sent[1] < sent[0] / 4, sent
