"""The small instances are clean, and each planted defect is found."""

from __future__ import annotations

import pytest

from tests.model.defects import DEFECTS, Defect
from tests.model.instances import SMALL, Instance
from tests.model.report import lines
from tests.model.rules import RULES


@pytest.mark.parametrize("instance", SMALL, ids=lambda instance: instance.name)
def test_no_rule_is_broken(instance: Instance) -> None:
    outcome = instance.run()
    assert outcome.complete
    assert not outcome.breaches, "\n".join(lines(outcome))


def test_every_rule_is_asked() -> None:
    asked = {rule for instance in SMALL for rule, count in instance.run().checked.items() if count}
    assert set(RULES) - asked == set()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_is_found(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect.patch(monkeypatch)
    outcome = defect.instance.run(defect.rule)
    assert [what for what, _ in outcome.breaches if what.startswith(defect.rule)], outcome.breaches
