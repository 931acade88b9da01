"""Label and field selectors: matching, and the string form of the API (`a=b,c in (d,e),!f`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.api.meta import LabelSelector, Requirement

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
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


def parse_fields(text: str) -> dict[str, str]:
    """`spec.nodeName=x,metadata.name=y` as a mapping; only equality is supported. Raises ValueError."""
    fields = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, sign, value = part.partition("=")
        if not sign or key.endswith("!"):
            raise ValueError(f"field selector {part!r}: only key=value is supported")
        fields[key] = value.removeprefix("=")
    return fields


def _requirement(part: str) -> Requirement:
    found = _SET.match(part)
    if found is not None:
        values = tuple(v.strip() for v in found["values"].split(","))
        return Requirement(key=found["key"], operator="In" if found["op"] == "in" else "NotIn", values=values)
    if "!=" in part:
        key, value = part.split("!=", 1)
        return Requirement(key=key.strip(), operator="NotIn", values=(value.strip(),))
    if "=" in part:
        key, value = part.split("=", 1)
        return Requirement(key=key.strip(), operator="In", values=(value.removeprefix("=").strip(),))
    if part.startswith("!"):
        return Requirement(key=part[1:].strip(), operator="DoesNotExist")
    if re.fullmatch(r"[^\s()]+", part):
        return Requirement(key=part, operator="Exists")
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
