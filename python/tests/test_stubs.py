"""The stubs, the types and the docstrings are of what there is."""

import ast
import inspect
import pathlib

import foreread
import foreread.fsspec


def test_stubs_name_what_the_module_has():
    stubs = ast.parse(pathlib.Path(foreread.__file__).with_name("_native.pyi").read_text())
    functions = {item.name for item in stubs.body if isinstance(item, ast.FunctionDef)}
    # A debug build has a function that panics.
    built = {name for name in dir(foreread._native) if inspect.isroutine(getattr(foreread._native, name))} - {"panic"}
    assert functions == built
    classes = [item for item in stubs.body if isinstance(item, ast.ClassDef)]
    assert {item.name for item in classes} == {name for name in dir(foreread._native) if inspect.isclass(getattr(foreread._native, name))}
    for item in classes:
        methods = {method.name for method in item.body if isinstance(method, ast.FunctionDef)}
        assert methods == {name for name in vars(getattr(foreread._native, item.name)) if not name.startswith("__")}


def test_everything_public_has_its_docstring():
    classes = [foreread.File, foreread.BufferedFile, foreread.fsspec.ForereadCache, foreread.fsspec.ForereadFileSystem]
    for public in [foreread, foreread.fsspec, foreread.open, foreread.read_files, foreread.configure, foreread.stats, *classes]:
        assert inspect.getdoc(public), public
    for public in classes[:3]:
        for name, item in vars(public).items():
            if not name.startswith("_") and (inspect.isfunction(item) or isinstance(item, property)):
                assert inspect.getdoc(item), f"{public.__name__}.{name}"


def test_it_is_typed():
    assert pathlib.Path(foreread.__file__).with_name("py.typed").exists()
    assert inspect.signature(foreread.open).parameters["cache"].kind is inspect.Parameter.KEYWORD_ONLY
