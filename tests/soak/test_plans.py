"""A plan follows from its seed, survives being written down, and is made as short as it can be."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.soak import plans
from tests.soak.plans import Plan, Step
from tests.soak.shrinking import shrink


def many(*faults: str) -> Plan:
    steps = tuple(Step(float(at), name, at) for at, name in enumerate(faults))
    return Plan(seed=1, nodes=4, controllers=3, runtimes=("kata", "wasm"), seconds=500.0, steps=steps, over="wire")


def test_a_seed_is_a_plan() -> None:
    assert plans.draw(7) == plans.draw(7)
    assert plans.draw(7) != plans.draw(8)


def test_a_plan_that_is_written_down_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    plan = plans.draw(3)
    path = tmp_path / "plan.json"
    path.write_text(plans.text(plan))
    assert plans.read(path) == plan
    path.write_text(plans.text(msgspec.structs.replace(plan, steps=())))
    assert plans.read(path).steps == ()


def test_a_plan_of_another_make_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plans.text(plans.draw(3)).replace('"nodes"', '"machines"'))
    with pytest.raises(msgspec.ValidationError, match="machines"):
        plans.read(path)


def test_a_plan_that_cuts_wires_has_one_and_so_have_some_of_the_others() -> None:
    drawn = [plans.draw(seed) for seed in range(1, 401)]
    cutting = [plan for plan in drawn if any(step.fault == "wire-cut" for step in plan.steps)]
    others = [plan for plan in drawn if plan not in cutting]
    assert cutting and {plan.over for plan in cutting} == {"wire"}
    assert 20 < sum(plan.over == "wire" for plan in others) < 100


def test_all_that_does_not_matter_is_left_out() -> None:
    def fails(plan: Plan) -> bool:
        names = [step.fault for step in plan.steps]
        return "b" in names and "d" in names[names.index("b") :] and plan.nodes >= 2

    found = shrink(many(*"aabacadacb"), fails)
    assert found == Plan(
        seed=1,
        nodes=2,
        controllers=1,
        runtimes=("kata",),
        seconds=7.0,
        steps=(Step(2.0, "b", 2), Step(6.0, "d", 6)),
    )


def test_no_more_plays_than_allowed() -> None:
    played = []

    def fails(plan: Plan) -> bool:
        played.append(plan)
        return False

    assert shrink(many(*"abcdefgh"), fails, plays=5) == many(*"abcdefgh")
    assert len(played) == 5
