"""Label and field selectors: matching, and the string form of the API (`a=b,c in (d,e),!f`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.api.meta import LabelSelector, Requirement

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_KEY = re.compile(r"[^\s!=,()]+")
_SPLIT = re.compile(r",(?![^()]*\))")


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy every part of `selector`; an empty selector matches everything."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def unmet(selector: LabelSelector, labels: Mapping[str, str]) -> list[str]:
    """The parts of `selector` that `labels` do not satisfy, each in the API's string form."""
    missing = [f"{key}={value}" for key, value in selector.match_labels.items() if labels.get(key) != value]
    return missing + [_text(r) for r in selector.match_expressions if not _holds(r, labels)]


def _text(requirement: Requirement) -> str:
    key, operator, values = requirement.key, requirement.operator, ",".join(requirement.values)
    forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return forms.get(operator, key)


def parse(text: str) -> LabelSelector:
    """The selector that `text` writes out. Raises ValueError that names the part that is wrong."""
    parts = [part.strip() for part in _SPLIT.split(text) if part.strip()]
    return LabelSelector(match_expressions=tuple(_requirement(part) for part in parts))


def _requirement(part: str) -> Requirement:
    found = _SET.match(part)
    if found is not None:
        values = tuple(v.strip() for v in found["values"].split(","))
        return Requirement(key=found["key"], operator="In" if found["op"] == "in" else "NotIn", values=values)
    equal = _EQUAL.match(part)
    if equal is not None:
        operator = "NotIn" if equal["op"] == "!=" else "In"
        return Requirement(key=equal["key"], operator=operator, values=(equal["value"],))
    if _KEY.fullmatch(part.removeprefix("!").strip()):
        operator = "DoesNotExist" if part.startswith("!") else "Exists"
        return Requirement(key=part.removeprefix("!").strip(), operator=operator)
    raise ValueError(f"label selector part {part!r} cannot be read")


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    there = requirement.key in labels
    match requirement.operator:
        case "In":
            return there and labels[requirement.key] in requirement.values
        case "NotIn":
            return not there or labels[requirement.key] not in requirement.values
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
    raise ValueError(f"label selector operator {requirement.operator!r}: In, NotIn, Exists or DoesNotExist")
