"""The blocks of docs/python.md run against an emulator of S3 that has what they name; a block whose library is not installed is skipped."""

import ast
import asyncio
import io
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import foreread
import pytest

from conftest import send

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
"""Those of the page, in its order."""
LIBRARIES = ["pandas", "pyarrow", "polars", "obstore", "zarr", "s3fs", "gcsfs", "matplotlib"]
NOT_RUN = {
    'fsspec.open("foreread::gs://': "It needs a bucket of Google; test_fsspec_stores.py reads from an emulator.",
    'lab.sweep(traces, policies, devices, caches, out="cells", client=': "It needs a scheduler of Dask; test_lab.py starts one.",
}
"""How a statement begins that does not run here, and the reason why."""


def objects():
    """The objects of the bucket by their keys; Parquet and zarr if their libraries are there."""
    header = b'{"embed.weight":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}'
    found = {"key": bytes(range(256)) * 40_000, "dir/key": b"x" * 5000, "table.csv": b"a,b\n1,2\n", "t.csv": b"a,b\n1,2\n"}
    found["model.safetensors"] = len(header).to_bytes(8, "little") + header + bytes(4000)
    try:
        import pyarrow
        import pyarrow.parquet

        for key in ["t.parquet", "table.parquet"]:
            file = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table({"price": range(1000), "name": ["x"] * 1000}), file, row_group_size=500)
            found[key] = file.getvalue()
        import numpy
        import zarr

        store = {}
        zarr.create_array(zarr.storage.MemoryStore(store), data=numpy.ones((200, 50)), chunks=(100, 50))
        found.update({f"array.zarr/{key}": value.to_bytes() for key, value in store.items()})
    except ImportError:
        pass
    return found


@pytest.fixture(scope="module")
def names():
    """What the blocks take as given."""
    given = {name: __import__(name) for name in ["fsspec", "numpy"]}
    for name in LIBRARIES:
        try:
            given[name] = __import__(name)
        except ImportError:
            continue
    if "pyarrow" in given:
        import pyarrow.dataset  # noqa: F401
    if "obstore" in given:
        import obstore.store  # noqa: F401
    import foreread.lab

    return given | {"foreread": foreread, "lab": foreread.lab, "array": given["numpy"].zeros(100, "u1")}


@pytest.fixture
def bucket(emulator, tmp_path, monkeypatch):
    """The working folder of the blocks, with the environment of the bucket."""
    port = emulator("s3")
    endpoint = f"http://127.0.0.1:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    fsspec = pytest.importorskip("s3fs", reason="needs s3fs")
    fs = fsspec.S3FileSystem(key="key", secret="secret", endpoint_url=endpoint)
    fs.mkdir("bucket")
    fs.pipe({f"bucket/{key}": value for key, value in objects().items()})
    monkeypatch.chdir(tmp_path)
    trace = ROOT / "trace/tests/traces/foreread/v1.frt"
    for name in ["app.frt", "a.frt", "b.frt"]:
        pathlib.Path(name).write_bytes(trace.read_bytes())
    pathlib.Path("aws").mkdir()
    pathlib.Path("aws/config").write_text("[profile dev]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws/config"))
    yield fs
    type(fs).clear_instance_cache()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(number, bucket, names):
    given = dict(names) | {"names": ["a.frt", "b.frt"], "fs": names["fsspec"].filesystem("s3")}
    # The region of the emulator.
    tree = ast.parse(BLOCKS[number].replace("eu-west-1", "us-east-1"))
    for statement in tree.body:
        code = ast.unparse(statement).replace("'", '"')
        if any(code.startswith(begin) for begin in NOT_RUN):
            continue
        lacking = [name for name in LIBRARIES if re.search(rf"\b{name}\.", code) and name not in given]
        if lacking:
            pytest.skip(f"needs {lacking[0]}")
        try:
            run(statement, number, given)
        except ModuleNotFoundError as error:
            # One that foreread itself imports.
            if error.name not in LIBRARIES:
                raise
            pytest.skip(f"needs {error.name}")


def run(statement, number, given):
    # `async with` outside a function is for a notebook.
    if isinstance(statement, ast.AsyncWith):
        exec(f"async def main():\n{textwrap.indent(ast.unparse(statement), '    ')}", given)
        asyncio.run(given["main"]())
    else:
        exec(compile(ast.Module([statement], []), f"python.md, block {number + 1}", "exec"), given)


def test_each_reason_is_of_a_statement():
    code = [ast.unparse(statement).replace("'", '"') for block in BLOCKS for statement in ast.parse(block).body]
    for begin, why in NOT_RUN.items():
        assert why.endswith(".") and any(one.startswith(begin) for one in code), begin


def test_commands_run_python(bucket):
    """Lines of the shell that run Python, in python.md and stores.md."""
    lines = re.findall(r"^python3 -c '(.*)'$", PAGE + (ROOT / "docs/stores.md").read_text(), re.M)
    assert len(lines) == 2
    for line in lines:
        # test_stores.py reads from a hub.
        if "hf://" in line:
            ast.parse(line)
            continue
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and int(done.stdout) > 0, done.stderr
