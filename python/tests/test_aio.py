"""`foreread.aio`: reads that tasks of asyncio wait for."""

import asyncio
import errno
import threading

import foreread.aio
import pytest

from conftest import SIZE


def test_tasks_read_a_file(path, data):
    async def main():
        async with foreread.aio.open(path) as file:
            assert (file.size, file.name) == (SIZE, str(path))
            assert await file.read_at(0, 10) == data[:10]
            assert await file.read_at(SIZE - 5, 10) == data[-5:], "cut at the end"
            assert await file.read_at(SIZE + 5, 10) == b""
            ranges = [(start, 4096) for start in range(0, SIZE, 70_000)]
            assert await file.read_ranges(ranges) == [data[at : at + n] for at, n in ranges]
            assert file.stats()["demand_reads"] >= len(ranges)
            with pytest.raises(ValueError, match="-1"):
                await file.read_at(-1, 10)
        with pytest.raises(ValueError, match="closed"):
            await file.read_at(0, 10)
        file = await foreread.aio.open(path)
        await file.close()
        with pytest.raises(FileNotFoundError):
            await foreread.aio.open(path.with_name("none"))

    asyncio.run(main())


def test_a_hundred_reads_wait_without_a_thread_each(server, data):
    async def main():
        async with foreread.aio.open(server.url, policy="none") as file:
            server.go.clear()
            reads = [asyncio.ensure_future(file.read_at(at, 1000)) for at in range(1 << 19, (1 << 19) + 100 * 20_000, 20_000)]
            turns = 0
            while len(server.requests) < 4:
                await asyncio.sleep(0.01)
                turns += 1
                assert turns < 2000
            threads = [thread.name for thread in threading.enumerate()]
            assert not any(read.done() for read in reads)
            server.go.set()
            got = await asyncio.gather(*reads)
            assert got == [data[at : at + 1000] for at in range(1 << 19, (1 << 19) + 100 * 20_000, 20_000)]
            # Those of the server's connections, of the loop's executor (one opened the file), and the main thread.
            assert sum("asyncio" in name for name in threads) <= 1, threads

    asyncio.run(main())


def test_forty_files_are_opened_at_once(server, data):
    """More than the loop's executor has threads, on a machine of up to thirty cores."""

    async def main():
        server.go.clear()
        opening = [asyncio.ensure_future(foreread.aio.open(server.url)) for _ in range(40)]
        turns = 0
        while len(server.requests) < 40:
            await asyncio.sleep(0.01)
            turns += 1
            assert turns < 2000, f"{len(server.requests)} opened at once"
        server.go.set()
        for file in await asyncio.gather(*opening):
            assert await file.read_at(0, 10) == data[:10]
            await file.close()

    asyncio.run(main())


def test_a_cancelled_read_is_given_up(server, data):
    async def main():
        async with foreread.aio.open(server.url, policy="none") as file:
            server.go.clear()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(file.read_at(1 << 20, 100), 0.2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(file.read_ranges([(1 << 20, 100), (1 << 21, 100)]), 0.2)
            assert foreread.aio._tasks(asyncio.get_running_loop()).pending() == 0
            server.go.set()
            assert await file.read_at(1 << 20, 100) == data[1 << 20 : (1 << 20) + 100], "the file is as before"

    asyncio.run(main())


def test_a_loop_that_ends_leaves_no_read_behind(server, data):
    async def left():
        file = await foreread.aio.open(server.url, policy="none")
        server.go.clear()
        asyncio.ensure_future(file.read_at(1 << 20, 100))
        await asyncio.sleep(0.1)
        return file

    file = asyncio.run(left())
    server.go.set()
    # The same file in another loop.
    assert asyncio.run(file.read_at(1 << 20, 100)) == data[1 << 20 : (1 << 20) + 100]
    asyncio.run(file.close())


def test_an_error_is_raised_where_it_is_awaited(path):
    async def main():
        async with foreread.aio.open(path) as file:
            path.write_bytes(b"other")
            with pytest.raises(OSError) as raised:
                for _ in range(100):
                    await file.read_at(SIZE - 100_000, 10)
                    await asyncio.sleep(0.05)
            assert raised.value.errno == errno.ESTALE and raised.value.filename == str(path)

    asyncio.run(main())
