"""foreread below s3fs, gcsfs and adlfs, on emulators of their stores: by `cache_type`, and by the protocol `foreread::`."""

import os
from datetime import datetime, timezone
from types import SimpleNamespace

# gcsfs would ask for the kind of the bucket by gRPC, for a minute, which the emulator does not answer.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

import foreread.fsspec
import fsspec
import pytest

from conftest import AZURE_ACCOUNT, AZURE_KEY

DATA = b"".join(n.to_bytes(8, "little") for n in range(400_000))
CSV = "n,name\n" + "".join(f"{n},name {n}\n" for n in range(5000))
LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}


@pytest.fixture(params=LIBRARIES)
def store(request, emulator):
    """A protocol and the options of its filesystem; `bucket/dir/a b` has DATA, `bucket/t.csv` lines."""
    protocol = request.param
    pytest.importorskip(LIBRARIES[protocol], reason=f"needs {LIBRARIES[protocol]}")
    url = f"http://127.0.0.1:{emulator(protocol)}"
    azure = f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};BlobEndpoint={url}/{AZURE_ACCOUNT};"
    options = {
        "s3": {"key": "key", "secret": "secret", "endpoint_url": url},
        "gs": {"token": "anon", "project": "p", "endpoint_url": url},
        "az": {"account_name": AZURE_ACCOUNT, "connection_string": azure},
    }[protocol]
    fs = fsspec.filesystem(protocol, **options)
    fs.mkdir("bucket")
    fs.pipe({"bucket/dir/a b": DATA, "bucket/t.csv": CSV.encode()})
    yield protocol, options
    type(fs).clear_instance_cache()


def is_read(file):
    assert type(file.cache) is foreread.fsspec.ForereadCache
    assert file.read(1000) == DATA[:1000]
    file.seek(2_000_000)
    assert file.read(5000) == DATA[2_000_000:2_005_000]
    file.seek(0)
    assert file.read() == DATA
    assert file.cache.stats()["demand_reads"] == 3


def test_files_of_a_filesystem_read_by_the_cache(store):
    protocol, options = store
    with fsspec.filesystem(protocol, **options).open("bucket/dir/a b", cache_type="foreread") as file:
        is_read(file)


def test_an_asynchronous_filesystem_is_called_from_threads(store):
    protocol, options = store
    options = {**options, "asynchronous": True}
    with fsspec.open(f"foreread::{protocol}://bucket/dir/a b", **{protocol: options}) as file:
        is_read(file)
    with pytest.raises(ValueError, match="asynchronous=True"):
        fsspec.filesystem("foreread", fs=SimpleNamespace(protocol=protocol, asynchronous=True), skip_instance_cache=True)


def test_a_url_with_the_protocol_reads_by_the_cache(store):
    protocol, options = store
    with fsspec.open(f"foreread::{protocol}://bucket/dir/a b", **{protocol: options}, foreread={"policy": "none"}) as file:
        is_read(file)
        assert "policy none" in file.cache.explain()
    with fsspec.open(f"foreread::{protocol}://bucket/t.csv", "r", **{protocol: options}) as lines:
        assert "".join(lines) == CSV


def test_a_wrapped_filesystem_lists_and_reads(store):
    protocol, options = store
    fs = fsspec.filesystem("foreread", target_protocol=protocol, target_options=options)
    assert fs.ls("bucket/dir", detail=False) == ["bucket/dir/a b"] and fs.glob("bucket/*.csv") == ["bucket/t.csv"]
    assert fs.info("bucket/dir/a b")["size"] == len(DATA) and fs.cat_file("bucket/dir/a b", start=5, end=50) == DATA[5:50]
    assert fs.glob("foreread://bucket/*.csv") == ["bucket/t.csv"] and fs.exists("foreread://bucket/t.csv")
    for path in ["bucket/dir/a b", "foreread://bucket/dir/a b"]:
        with fs.open(path) as file:
            is_read(file)


def test_pandas_reads_by_the_protocol(store):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    protocol, options = store
    frame = pandas.read_csv(f"foreread::{protocol}://bucket/t.csv", storage_options={protocol: options})
    assert list(frame.n) == list(range(5000)) and frame.name[7] == "name 7"


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_s3fs_takes_the_cache_as_its_default(store):
    """`fsspec.open(url, ...)` gives what it does not know to the filesystem: s3fs has this name for it, gcsfs and adlfs have none."""
    protocol, options = store
    with fsspec.open("s3://bucket/dir/a b", default_cache_type="foreread", **options) as file:
        is_read(file)


def test_duckdb_reads_by_the_filesystem(store):
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    protocol, options = store
    with duckdb.connect() as database:
        database.register_filesystem(fsspec.filesystem("foreread", target_protocol=protocol, target_options=options))
        found = database.sql("select count(*), max(n) from 'foreread://bucket/*.csv'").fetchall()
    assert found == [(5000, 4999)]


def test_a_path_has_a_url_that_opens_it_again(store):
    protocol, options = store
    fs = fsspec.filesystem("foreread", target_protocol=protocol, target_options=options)
    for path in ["bucket/dir/a b", "foreread://bucket/dir/a b"]:
        url = fs.unstrip_protocol(path)
        assert url.startswith("foreread://") and url.endswith("://bucket/dir/a b")
        assert fs.unstrip_protocol(url) == url
        with fsspec.open(url, target_options=options) as file:
            is_read(file)
        with fs.open(url) as file:
            is_read(file)


def parquet(fs):
    """`bucket/t.parquet`: 20 columns of 8 bytes, 100,000 rows. Its size."""
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    table = pa.table({f"c{n}": range(n, 100_000 + n) for n in range(20)})
    with fs.open("bucket/t.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=20_000, compression="none", use_dictionary=False)
    return fs.info("bucket/t.parquet")["size"]


def test_polars_scans_columns_by_a_dataset_and_a_file_in_whole(store):
    """What docs/python.md says of polars: a dataset of pyarrow reads the columns, a file is read to its end."""
    polars = pytest.importorskip("polars", reason="needs polars")
    dataset = pytest.importorskip("pyarrow.dataset", reason="needs pyarrow")
    protocol, options = store
    fs = fsspec.filesystem("foreread", target_protocol=protocol, target_options=options)
    size = parquet(fs)
    with fs.open("bucket/t.parquet") as file:
        before = read_bytes()
        frame = polars.scan_parquet(file).select(polars.col("c3").sum()).collect()
        assert frame.item() == sum(range(3, 100_003))
        assert type(file.cache) is foreread.fsspec.ForereadCache
        assert read_bytes() - before >= size
        # The open file keeps its engine, whose counts would be gone with it.
        before = read_bytes()
        frame = polars.scan_pyarrow_dataset(dataset.dataset("bucket/t.parquet", filesystem=fs)).select(polars.col("c3").sum()).collect()
        assert frame.item() == sum(range(3, 100_003))
        assert 0 < read_bytes() - before < size / 2


def read_bytes():
    """What programs have read of all engines."""
    return sum(one["demand_bytes"] for one in foreread.stats())


def test_an_object_of_a_store_of_obstore(emulator):
    obstore = pytest.importorskip("obstore", reason="needs obstore")
    from obstore.store import MemoryStore, S3Store

    url = f"http://127.0.0.1:{emulator('s3')}"
    s3 = pytest.importorskip("s3fs", reason="needs s3fs").S3FileSystem(key="key", secret="secret", endpoint_url=url)
    s3.mkdir("bucket")
    account = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
    for at in [S3Store("bucket", endpoint=url, client_options={"allow_http": True}, **account), MemoryStore()]:
        obstore.put(at, "dir/a b", DATA)
        obstore.put(at, "empty", b"")
        with foreread.open_in_store(at, "dir/a b", cache="16 MiB") as file:
            assert (file.size, file.read(1000)) == (len(DATA), DATA[:1000])
            file.seek(0)
            assert file.read() == DATA
            assert file.read_ranges([(5, 9), (3_000_000, 100)]) == [DATA[5:14], DATA[3_000_000:3_000_100]]
            assert file.stats()["used_bytes"] > 0, "it reads ahead"
        with foreread.open_in_store(at, "empty") as file:
            assert file.read() == b""
        with pytest.raises(FileNotFoundError):
            foreread.open_in_store(at, "none")
        with pytest.raises(ValueError, match="concurrency 0"):
            foreread.open_in_store(at, "empty", concurrency=0)
        with foreread.open_in_store(at, "dir/a b") as file:
            obstore.put(at, "dir/a b", DATA[::-1])
            with pytest.raises(Exception, match="(?i)precondition|changed"):
                file.read_at(1_000_000, 5000)


class OneObject:
    """A store of one object, which answers as a store of obstore does and compares no condition."""

    def __init__(self, etag, date):
        self.etag, self.date, self.data, self.asked = etag, datetime.fromtimestamp(date, timezone.utc), b"a" * 5000, []

    def head(self, path):
        return {"path": path, "size": len(self.data), "e_tag": self.etag, "last_modified": self.date, "version": None}

    def get(self, path, *, options):
        start, end = options["range"]
        self.asked.append({name for name in options if name != "range"})
        piece = self.data[start:end]
        return SimpleNamespace(meta=self.head(path), bytes=lambda: piece)


@pytest.mark.parametrize(
    ("etag", "date", "condition"),
    [('"a"', 1000, "if_match"), ('W/"a"', 1000, "if_unmodified_since"), (None, 1000, "if_unmodified_since"), ('""', 1000, "if_unmodified_since"), (None, 0, None)],
)
def test_an_object_of_a_store_is_one_version(etag, date, condition):
    """Without a strong ETag the date counts, without a date the size alone."""

    def read(change):
        store = OneObject(etag, date)
        with foreread.open_in_store(store, "a", policy="none") as file:
            assert file.read_at(0, 10) == b"a" * 10
            assert store.asked[0] == ({condition} if condition else set())
            for name, value in change.items():
                setattr(store, name, value)
            return file.read_at(4096, 10)

    assert read({}) == b"a" * 10
    later = {"data": b"b" * 5000, "date": datetime.fromtimestamp(date + 1, timezone.utc)}
    for change in [{"data": b"a" * 5001}, {"etag": '"b"'}] + ([later] if condition != "if_match" else []):
        with pytest.raises(OSError, match="changed"):
            read(change)


def test_obstores_filesystem_reads_by_itself():
    """Its files take no cache of fsspec, so that `foreread::` changes nothing there."""
    stores = pytest.importorskip("obstore.fsspec", reason="needs obstore")
    fs = stores.FsspecStore("memory")
    fs.pipe_file("a", DATA)
    wrapped = foreread.fsspec.ForereadFileSystem(fs=fs)
    before = read_bytes()
    with wrapped.open("a") as file:
        assert file.read() == DATA
    assert read_bytes() == before
