"""`foreread.lab`: the command's results as tables."""

import json
import os
import pathlib
import shutil
import signal

import pytest
from foreread import _sweep, lab

SMALL = "random:count=200"


def test_lists():
    for table, known in [(lab.workloads(), "boot-ide"), (lab.policies(), "linux-6.18"), (lab.models(), "rbd")]:
        assert any(row["name"] == known for row in table)
        assert len(table) == len(table.rows) > 3 and "name" in table.columns


def test_compare_is_a_table():
    table = lab.compare(SMALL, on="model:object-near", policies=["none", "linux-6.18"], runs=3, cache="16 MiB")
    rows = {row["policy"]: row for row in table}
    assert set(rows) == {"none", "linux-6.18"} and table.report["cache_bytes"] == 16 << 20
    assert rows["linux-6.18"]["demand_reads"] == rows["none"]["demand_reads"] == 200
    assert rows["none"]["time_s_low"] <= rows["none"]["time_s"] <= rows["none"]["time_s_high"]
    text, page = repr(table), table._repr_html_()
    assert "linux-6.18" in text and SMALL in text.splitlines()[0]
    assert page.count("<tr>") == 3 and "<script" not in page
    assert lab.simulate(SMALL, "linux-6.18", on="model:object-near", cache="16M")["time_s"] > 0


def test_html_is_escaped():
    assert "<b>" not in lab.Table([{"<b>": "<b>"}], title="<b>")._repr_html_()


def test_what_is_wrong_is_a_value_error():
    for call in [
        lambda: lab.compare("sequentiel"),
        lambda: lab.simulate(SMALL, "none,auto"),
        lambda: lab.compare(SMALL, on="model:none-such"),
        lambda: lab.Table([{"a": 1}]).plot(y="b"),
    ]:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="list"):
        lab.sweep("a.frt", out="x")


def test_explain_has_a_row_for_each_file():
    table = lab.explain(SMALL, on="model:nvme", policy="linux-6.18")
    assert (len(table), table[0]["demand_reads"]) == (1, 200)
    assert table.report["files"][0]["rules"] == table.report["rules"]


def test_probe_has_a_row_for_each_point():
    table = lab.probe("model:nvme", seconds=1)
    assert len(table) > 10 and table[0]["throughput_mb_s_low"] <= table[0]["throughput_mb_s"]


def test_a_sweep_fills_gaps(tmp_path):
    out = tmp_path / "cells"
    first = lab.sweep([SMALL], policies=["none"], devices=["model:nvme"], caches=["16M"], out=out)
    assert [row["policy"] for row in first] == ["none"] and first[0]["cache_bytes"] == 16 << 20
    before = (out / "cells.jsonl").read_text()
    second = lab.sweep([SMALL], policies=["none", "auto"], devices=["model:nvme"], caches=["16M"], out=out)
    after = (out / "cells.jsonl").read_text()
    assert {row["policy"] for row in second} == {"none", "auto"}
    assert after.startswith(before) and len(after.splitlines()) == 2
    assert set(second.columns) == set(lab.SWEEP_COLUMNS)
    by_policy = {row["policy"]: row for row in lab.sweep(["boot-virtio"], devices=["model:nvme"], out=out)}
    assert by_policy["none"]["ra_bytes"] == 0 < by_policy["linux-6.18"]["ra_bytes"]
    (kept,) = [row for row in second if row["policy"] == "none"]
    assert kept["time_s"] == json.loads(before)["result"]["row"]["time_s"]["mean"]


def test_arrow_and_pandas(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    table = lab.compare(SMALL, on="model:nvme", policies=["none"], runs=1).to_arrow()
    assert table.num_rows == 1 and pa.types.is_floating(table.schema.field("time_s").type)
    import pyarrow.dataset as ds

    out = tmp_path / "cells"
    lab.sweep([SMALL], policies=["none", "auto"], devices=["model:nvme"], out=out)
    read = ds.dataset(out / "dataset", partitioning="hive").to_table()
    assert sorted(read.column("policy").to_pylist()) == ["auto", "none"]
    assert pa.parquet.read_schema(out / "dataset" / "_common_metadata").names == list(lab.SWEEP_COLUMNS)


def test_traces_are_tables(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    count = 100
    table = pa.table(
        {
            "start_ns": pa.array([n * 1_000_000 for n in range(count)], pa.int64()),
            "end_ns": pa.array([n * 1_000_000 + 500 for n in range(count)], pa.int64()),
            "file": ["a,\n\"b\""] * count,
            "file_size": pa.array([1 << 20] * count, pa.int64()),
            "thread": pa.array([1] * count, pa.int64()),
            "op": ["read"] * count,
            "offset": pa.array([n * 4096 for n in range(count)], pa.int64()),
            "length": pa.array([4096] * count, pa.int64()),
            "returned": pa.array([None] + [4096] * (count - 1), pa.int64()),
        }
    )
    path = tmp_path / "own.frt"
    lab.write_trace(table, path)
    back = lab.read_trace(path)
    for name in table.column_names:
        assert back.column(name).to_pylist() == table.column(name).to_pylist(), name
    with pytest.raises(ValueError, match="force"):
        lab.write_trace(table, path)
    lab.write_trace(table.to_pandas(), path, force=True)
    assert lab.read_trace(path).equals(back)
    assert lab.simulate(path, "none", on="model:nvme")["demand_reads"] == count


def test_short_cells_of_a_trace_share_a_task():
    def key(trace, trace_bytes, policy, device="d", cache=None):
        return {"trace": trace, "trace_bytes": trace_bytes, "policy": policy, "device": device, "cache_bytes": cache, "runs": 2}

    tasks = _sweep._tasks([
        key("long", _sweep.TASK_BYTES, "a"), key("long", _sweep.TASK_BYTES, "b"),
        key("short", 1000, "a"), key("short", 1000, "a", cache=5), key("short", 1000, "b"), key("short", 1000, "c", "e"),
        key("half", _sweep.TASK_BYTES // 4, "a"), key("half", _sweep.TASK_BYTES // 4, "b"), key("half", _sweep.TASK_BYTES // 4, "c"),
        key("unknown", 0, "a"), key("unknown", 0, "b"),
    ])
    assert [(task[0]["trace"], "".join(key["policy"] for key in task)) for task in tasks] == [
        ("long", "a"), ("long", "b"), ("short", "ab"), ("short", "a"), ("short", "c"), ("half", "ab"), ("half", "c"),
        ("unknown", "a"), ("unknown", "b"),
    ]


@pytest.mark.parametrize("shared", [False, True])
def test_a_cluster_whose_worker_is_killed(tmp_path, shared):
    """Tasks of one cell, and of two that share a trace."""
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    traces, policies = [f"random:count={n}" for n in range(200, 206)], ["none", "auto"]
    if shared:
        traces = [tmp_path / f"{n}.frt" for n in range(6)]
        for trace in traces:
            shutil.copy(pathlib.Path(__file__).parents[2] / "lab/traces/boot-virtio.frt", trace)
    alone = lab.sweep(traces, policies, ["model:nvme"], out=tmp_path / "alone")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed, submitted = [], []

        class Killing:
            """The client, which kills a worker in the middle."""

            def submit(self, *args, **more):
                future = client.submit(*args, **more)
                submitted.append(future)
                if len(submitted) == (3 if shared else 6):
                    worker = next(iter(cluster.workers.values()))
                    killed.append(worker.pid)
                    os.kill(worker.pid, signal.SIGKILL)
                return future

        spread = lab.sweep(traces, policies, ["model:nvme"], out=tmp_path / "spread", client=Killing())
        assert killed and len(submitted) == (6 if shared else 12)
        assert spread.rows == alone.rows
        # Nothing is left to do.
        again = lab.sweep(traces, policies, ["model:nvme"], out=tmp_path / "spread", client=None)
        assert again.rows == alone.rows
