"""Label and field selectors."""

import pytest

from reconciler.api.meta import LabelSelector, Requirement
from reconciler.kube.selectors import matches, parse

LABELS = {"a": "1", "b": "2", "x.io/empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b=2", True),
        ("a=2", False),
        ("a!=2,c!=1", True),
        ("a in (1, 3),b", True),
        ("a notin (1,3)", False),
        ("c notin (1)", True),
        ("!c", True),
        ("!a", False),
        ("x.io/empty=", True),
    ],
)
def test_text_selectors(text: str, expected: bool) -> None:
    assert matches(parse(text), LABELS) is expected


def test_labels_and_expressions_must_all_hold() -> None:
    both = LabelSelector(match_labels={"a": "1"}, match_expressions=(Requirement(key="b", operator="DoesNotExist"),))
    assert not matches(both, LABELS)
    assert matches(both, {"a": "1"})


@pytest.mark.parametrize("text", ["a in 1", "a b", "(x)", "=x", "a=b c", "!=x"])
def test_a_part_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse(text)


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="'Near'"):
        matches(LabelSelector(match_expressions=(Requirement(key="a", operator="Near"),)), LABELS)
