"""`foreread.plan`: ranges from headers, fetched in few requests; broken headers are refused."""

import json

import foreread
import numpy as np
import pytest
from foreread import plan

DTYPES = {"F32": "<f4", "I64": "<i8", "U8": "u1", "F16": "<f2", "BOOL": "?"}


def written(path, tensors, **more):
    """A safetensors file, written by hand: 8 bytes of length, a header of JSON, the data."""
    header, data = dict(more), b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.fixture
def model(tmp_path):
    draw = np.random.default_rng(1)
    tensors = {f"t{n}": ("F32", draw.random((100, 250 + n), dtype=np.float32)) for n in range(10)}
    tensors["empty"] = ("I64", np.zeros((0, 3), "<i8"))
    tensors["small"] = ("BOOL", np.array([True, False, True]))
    return written(tmp_path / "model.safetensors", tensors, __metadata__={"format": "pt"}), tensors


def test_tensors_are_read_as_they_were_written(model):
    path, tensors = model
    with foreread.open(path) as file:
        planned = plan.safetensors(file)
        assert planned.names == list(tensors) and planned.metadata == {"format": "pt"}
        assert len(planned.requests) == 1, "all of the file is one piece"
        got = planned.numpy()
        for name, (_, array) in tensors.items():
            assert got[name].dtype == array.dtype and np.array_equal(got[name], array), name
        assert plan.safetensors(file, []).numpy() == {}
        assert list(plan.safetensors(file, ["t3", "t3"]).numpy()) == ["t3"]


def test_a_plan_fetches_what_is_needed_and_little_else(tmp_path, server):
    tensors = {f"t{n:02}": ("F32", np.full((50, 1000), n, np.float32)) for n in range(10)}
    server.data = written(tmp_path / "m", tensors).read_bytes()
    with foreread.open(server.url) as file:
        planned = plan.safetensors(file, ["t02", "t07"])
        before = sum(end - start for start, end in server.requests)
        requests = len(server.requests)
        got = planned.numpy()
        assert np.array_equal(got["t07"], tensors["t07"][1]) and np.array_equal(got["t02"], tensors["t02"][1])
        fetched = sum(end - start for start, end in server.requests) - before
        assert planned.bytes_needed == 400_000
        # Whole pages of 4 KiB at both ends.
        assert fetched <= planned.bytes_needed + 4 * 4096
        assert len(server.requests) - requests == 2 == len(planned.requests)
        # Counted for the file like any read.
        assert file.stats()["demand_bytes"] >= planned.bytes_needed


def test_small_gaps_are_read_as_long_as_they_are_few():
    together = plan._together
    assert together([(0, 100_000), (100_100, 100_000)]) == [(0, 200_100)]
    assert together([(100_100, 10), (0, 10)]) == [(0, 10), (100_100, 10)], "sorted, and a large gap stays"
    assert together([(0, 100), (150, 100)]) == [(0, 100), (150, 100)], "50 is more than 5 % of 200"
    assert together([(0, 100), (50, 100), (20, 10), (7, 0)]) == [(0, 150)], "overlaps are read once"
    many = [(n * 104_000, 100_000) for n in range(100)]
    requests = together(many)
    assert sum(length for _, length in requests) <= 1.05 * 100 * 100_000
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"\xff" * 8, "header of"),
        (b"\x05\0\0", "header of"),
        ((9).to_bytes(8, "little") + b"{" * 9, "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not an object"),
        ((60_000).to_bytes(8, "little") + b"[" * 60_000, "not JSON"),
    ],
)
def test_a_broken_header_is_refused(tmp_path, head, why):
    path = tmp_path / "broken"
    path.write_bytes(head)
    with foreread.open(path) as file, pytest.raises(ValueError, match=why) as raised:
        plan.safetensors(file)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1 << 61], "data_offsets": [0, 1 << 63]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
    ],
)
def test_a_broken_tensor_is_refused(tmp_path, entry):
    text = json.dumps({"bad": entry, "good": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path = tmp_path / "broken"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"12345678")
    with foreread.open(path) as file:
        with pytest.raises(ValueError, match="bad"):
            plan.safetensors(file)
        assert plan.safetensors(file, ["good"]).numpy()["good"] == [ord("1")]
        with pytest.raises(KeyError, match="none"):
            plan.safetensors(file, ["none"])
        with pytest.raises(TypeError, match="list"):
            plan.safetensors(file, "good")


def test_ranges_go_into_one_buffer(path, data):
    with foreread.open(path) as file:
        ranges = [(1 << 20, 5000), (10, 0), (len(data) - 100, 5000), (3, 70)]
        buffer = bytearray(5000 + 100 + 70)
        assert file.readinto_ranges(buffer, ranges) == [5000, 0, 100, 70]
        assert buffer == data[1 << 20 : (1 << 20) + 5000] + data[-100:] + data[3:73]
        with pytest.raises(ValueError, match="5170 bytes"):
            file.readinto_ranges(bytearray(5169), ranges)
        with pytest.raises(ValueError, match="too small"):
            file.readinto_ranges(bytearray(9), [(0, 1 << 62)] * 9)


def test_columns_of_parquet(tmp_path):
    pa, pq = (pytest.importorskip(name, reason="needs pyarrow") for name in ["pyarrow", "pyarrow.parquet"])
    draw = np.random.default_rng(2)
    table = pa.table({f"c{n}": draw.random(30_000) for n in range(20)} | {"nested": [{"a": n, "b": str(n)} for n in range(30_000)]})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=10_000)
    with foreread.open(path) as file:
        planned = plan.parquet(file, ["c3", "c11"], [0, 2])
        assert planned.read().equals(pa.concat_tables([table.slice(0, 10_000), table.slice(20_000)]).select(["c3", "c11"]))
        assert planned.bytes_fetched <= 1.05 * planned.bytes_needed and len(planned.requests) <= 4
        assert plan.parquet(file).read().equals(table)
        assert plan.parquet(file, ["nested.b"]).read().num_rows == 30_000
        assert plan.parquet(file, ["nested"], [1]).read().column("nested").to_pylist()[0] == {"a": 10_000, "b": "10000"}
        with pytest.raises(KeyError, match="c99"):
            plan.parquet(file, ["c99"])
        with pytest.raises(TypeError, match="policy is for a name"):
            plan.parquet(file, policy="none")
    assert plan.parquet(path, ["c3"], policy="none").read().equals(table.select(["c3"]))
    assert plan.parquet(str(path), ["c3"]).read().num_columns == 1
    with foreread.open(path) as file:
        with pytest.raises(IndexError, match="3"):
            plan.parquet(file, row_groups=[3])
    path.write_bytes(path.read_bytes()[:-9])
    with foreread.open(path) as file, pytest.raises(pa.ArrowInvalid, match="t.parquet"):
        plan.parquet(file)
