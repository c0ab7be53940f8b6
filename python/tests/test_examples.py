"""The examples run. One whose library is not installed is skipped by its name; `./test-long python` has all of them."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
NEEDS = {"with_epochs": ["torch"], "with_zarr": ["zarr"], "with_datasets": ["datasets"], "with_pandas": ["pandas", "pyarrow"], "with_polars": ["polars", "pyarrow"]}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("with_*.py")))
def test_example(name):
    for library in NEEDS.get(name, [name.removeprefix("with_")]):
        pytest.importorskip(library, reason=f"needs {library}")
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_example_says_what_it_shows():
    for path in EXAMPLES.glob("*.py"):
        assert re.match(r'"""[^\n]+\."""\n', path.read_text()), path


def test_the_notebook_runs(tmp_path):
    nbclient, nbformat = (pytest.importorskip(name, reason=f"needs {name}") for name in ["nbclient", "nbformat"])
    for library in ["ipykernel", "pandas", "pyarrow", "matplotlib"]:
        pytest.importorskip(library, reason=f"needs {library}")
    notebook = nbformat.read(EXAMPLES / "lab.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("linux-6.18" in data.get("text/html", "") for data in shown), "a result shows as a table"
    assert any("image/png" in data for data in shown), "a plot shows as a picture"
