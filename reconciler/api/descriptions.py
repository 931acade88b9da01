"""What the fields of a struct are for: the docstrings that stand below them in the source.

Python forgets those, so they are read from the source. Only what makes manifests and pages needs them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec


def of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Name on the wire → words, of the fields of `kind`. Raises ValueError for a field that has none."""
    words = dict(_docstrings(kind))
    named = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    if missing := set(named) - set(words):
        raise ValueError(f"no docstring below {kind.__name__}.{', '.join(sorted(missing))}")
    return {named[name]: text for name, text in words.items()}


def structs(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """`kind` and every struct that its fields name, each once, in the order of the fields."""
    found: dict[type[msgspec.Struct], None] = {kind: None}
    for hint in get_type_hints(kind).values():
        for one in within(hint):
            found |= dict.fromkeys(structs(one))
    return [*found]


def within(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """Structs that a type hint names."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from within(inner)


def _docstrings(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value)
            yield field.target.id, " ".join(inspect.cleandoc(text).split())
