"""asyncio: runs a hundred reads at once, without a thread for each read."""
import asyncio
import os
import tempfile

import foreread.aio


async def main(path, data):
    async with foreread.aio.open(path) as file:
        starts = range(0, len(data), len(data) // 100)
        parts = await asyncio.gather(*(file.read_at(start, 4096) for start in starts))
        assert parts == [data[start : start + 4096] for start in starts]


with tempfile.TemporaryDirectory() as folder:
    name, content = os.path.join(folder, "data"), os.urandom(1 << 20)
    with open(name, "wb") as made:
        made.write(content)
    asyncio.run(main(name, content))
