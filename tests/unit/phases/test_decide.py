"""The stage machine: one step at a time, the right one, and none too early."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from reconciler.api.node import NodeState, Problem, Stage, WorkReport, WorkResult
from reconciler.phases.decide import decide
from reconciler.phases.decision import AskUse, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts
from reconciler.phases.questions import present

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = Plan(
    phases={s: PhasePlan(timeout=60, grace=7) for s in (Stage.INSTALL, Stage.UNINSTALL)},
    handlers=frozenset({"kata"}),
    configures=True,
)


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def state(stage: Stage, **fields: Any) -> NodeState:
    return NodeState(**{"uid": "u1", "stage": stage, "target": "r1", "since": T0, "machine": "m", **fields})


def facts(**fields: Any) -> Facts:
    base: dict[str, Any] = {
        "goal": Goal("u1", "r1"),
        "state": None,
        "plans": {"r1": FULL, "r2": FULL},
        "served": frozenset({"runc"}),
        "serving": True,
        "serving_since": T0,
        "slot": True,
        "machine": "m",
        "bake": 30.0,
    }
    return Facts(**{**base, **fields})


def pod(stage: Stage, outcome: Outcome, **fields: Any) -> PodFacts:
    base: dict[str, Any] = {
        "uid": "p1",
        "stage": stage,
        "revision": "r1",
        "attempt": 1,
        "outcome": outcome,
        "created": T0,
    }
    return PodFacts(**{**base, **fields})


def answer(stage: Stage, result: WorkResult, **fields: Any) -> WorkReport:
    return WorkReport(**{"uid": "u1", "stage": stage, "revision": "r1", "attempt": 1, "result": result, **fields})


def moved(decision: object) -> NodeState:
    assert isinstance(decision, Move)
    assert decision.state is not None
    return decision.state


# --- the way in ---


def test_an_absent_node_waits_for_its_slot() -> None:
    decision = decide(facts(slot=False), T0)
    assert decision == Wait(
        reason="WaitingForSlot", awaits=Signal.SLOT, message="its turn has not come", wants_slot=True
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"node_ready": False}, "NodeNotReady"),
        ({"agent_ready": False}, "AgentMissing"),
        ({"free": False}, "OtherRuntimeAtWork"),
        ({"set_aside": "another system"}, "SetAside"),
    ],
)
def test_a_node_that_cannot_start_holds_no_slot(fields: dict[str, Any], reason: str) -> None:
    decision = decide(facts(slot=False, **fields), T0)
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.wants_slot) == (reason, False)


def test_with_a_slot_the_first_phase_that_exists_begins() -> None:
    new = moved(decide(facts(), T0))
    assert (new.stage, new.target, new.attempt, new.deadline) == (Stage.INSTALL, "r1", 1, after(60))


def test_the_pod_is_made_only_after_the_stage_is_recorded() -> None:
    recorded = state(Stage.INSTALL)
    assert decide(facts(state=recorded), T0) == MakePod(recorded)


def test_no_pod_is_made_while_the_barrier_is_closed() -> None:
    decision = decide(facts(state=state(Stage.INSTALL), serving=False, serving_reason="SocketGone: x"), T0)
    assert isinstance(decision, Wait)
    assert decision.reason == "ContainerdNotServing"


def test_no_pod_is_made_while_the_configuration_is_contested_and_one_that_fights_is_ended() -> None:
    contested = "config.toml was put back 2 times"
    decision = decide(facts(state=state(Stage.INSTALL), contested=contested), T0)
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.trouble) == ("ConfigContested", Problem("ConfigContested", contested))
    assert decision.awaits is Signal.CONFIG_MENDED
    fighting = pod(Stage.INSTALL, Outcome.RUNNING)
    leaving = decide(facts(state=state(Stage.UNINSTALL), pods=(fighting,), contested=contested), T0)
    assert isinstance(leaving, EndPod)


def test_no_pod_is_made_while_the_agent_may_be_at_other_work() -> None:
    """It said why it waits, and the goal changed: it may have begun meanwhile, until it takes back what it said."""
    old = answer(Stage.CONFIGURE, WorkResult.WAITING)
    decision = decide(facts(state=state(Stage.INSTALL, target="r2"), goal=Goal("u1", "r2"), answer=old), T0)
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.awaits) == ("WaitingForAgent", Signal.AGENT_REPORT)


def test_a_finished_install_goes_to_configure_and_names_the_pod_that_must_be_over() -> None:
    new = moved(decide(facts(state=state(Stage.INSTALL), pods=(pod(Stage.INSTALL, Outcome.SUCCEEDED),)), after(5)))
    assert (new.stage, new.pod, new.since) == (Stage.CONFIGURE, "p1", after(5))


@pytest.mark.parametrize("echo", [{"attempt": 2}, {"revision": "r0"}, {"uid": "u0"}, {"stage": Stage.UNCONFIGURE}])
def test_an_answer_to_other_work_does_not_count(echo: dict[str, Any]) -> None:
    report = msgspec.structs.replace(answer(Stage.CONFIGURE, WorkResult.DONE), **echo)
    decision = decide(facts(state=state(Stage.CONFIGURE), answer=report), T0)
    assert isinstance(decision, Wait)
    assert decision.reason == "WaitingForAgent"


def test_a_payload_that_sleeps_on_is_ended_before_the_agent_begins() -> None:
    sleeps = pod(Stage.INSTALL, Outcome.RUNNING)
    configuring = state(Stage.CONFIGURE, pod="p1")
    assert decide(facts(state=configuring, pods=(sleeps,)), T0) == EndPod("p1", Stage.INSTALL, 7)


def test_a_pod_that_may_run_is_never_deleted_with_no_grace_at_all() -> None:
    """Its object would go at once, and nothing would tell that its container still runs beside the next one."""
    hasty = Plan(phases={Stage.INSTALL: PhasePlan(grace=0)}, configures=True)
    it = facts(state=state(Stage.CONFIGURE, pod="p1"), pods=(pod(Stage.INSTALL, Outcome.RUNNING),), plans={"r1": hasty})
    assert decide(it, T0) == EndPod("p1", Stage.INSTALL, 1)


def test_entering_configure_again_asks_for_an_answer_of_its_own() -> None:
    old = answer(Stage.CONFIGURE, WorkResult.DONE, attempt=3)
    installed = pod(Stage.INSTALL, Outcome.SUCCEEDED)
    new = moved(decide(facts(state=state(Stage.INSTALL), pods=(installed,), answer=old), T0))
    assert (new.stage, new.attempt) == (Stage.CONFIGURE, 4)


def test_configured_without_a_bake_is_ready_at_once() -> None:
    done = answer(Stage.CONFIGURE, WorkResult.DONE)
    new = moved(decide(facts(state=state(Stage.CONFIGURE), answer=done, bake=0.0), after(9)))
    assert (new.stage, new.installed, new.deadline) == (Stage.READY, "r1", None)
    assert present(new)


def test_the_bake_counts_from_when_containerd_serves() -> None:
    baking = facts(state=state(Stage.VERIFY), served=frozenset({"kata"}), serving_since=after(10))
    decision = decide(baking, after(39))
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.until) == ("Baking", after(40))
    assert moved(decide(baking, after(40))).stage is Stage.READY


def test_a_handler_lost_in_the_bake_is_configured_again() -> None:
    new = moved(decide(facts(state=state(Stage.VERIFY)), after(1)))
    assert (new.stage, new.repairs) == (Stage.CONFIGURE, (after(1),))


def test_the_sealed_install_pod_is_deleted_at_once() -> None:
    baking = state(Stage.VERIFY, pod="p1")
    decision = decide(facts(state=baking, pods=(pod(Stage.INSTALL, Outcome.SUCCEEDED),)), T0)
    assert decision == EndPod("p1", Stage.INSTALL, 0)


# --- attempts and deadlines ---


def test_a_failed_payload_is_tried_again_after_its_pod_is_over() -> None:
    failed = pod(Stage.INSTALL, Outcome.FAILED, reason="PayloadFailed", message="exit code 3: no space")
    new = moved(decide(facts(state=state(Stage.INSTALL), pods=(failed,)), after(2)))
    assert (new.stage, new.attempt, new.pod) == (Stage.INSTALL, 2, "p1")
    assert new.error == Problem("PayloadFailed", "exit code 3: no space")
    waits = decide(facts(state=new, pods=(failed,)), after(3))
    assert isinstance(waits, Wait)
    assert waits.reason == "PodEnding"
    over = pod(Stage.INSTALL, Outcome.FAILED, ended=True)
    assert decide(facts(state=new, pods=(over,)), after(3)) == EndPod("p1", Stage.INSTALL, 0)


def test_the_second_attempt_backs_off_for_ten_seconds() -> None:
    again = state(Stage.INSTALL, attempt=2, error=Problem("PayloadFailed", "x"))
    decision = decide(facts(state=again), after(9))
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.until) == ("Backoff", after(10))
    assert decide(facts(state=again), after(10)) == MakePod(again)


def test_the_third_failure_of_a_first_install_undoes_it() -> None:
    failed = pod(Stage.INSTALL, Outcome.FAILED, attempt=3, reason="PayloadFailed")
    new = moved(decide(facts(state=state(Stage.INSTALL, attempt=3), pods=(failed,)), T0))
    assert (new.stage, new.failed, new.target) == (Stage.UNINSTALL, "r1", "r1")


def test_a_failed_upgrade_goes_back_to_what_was_installed() -> None:
    failed = pod(Stage.INSTALL, Outcome.FAILED, attempt=3, revision="r2", reason="PayloadFailed")
    upgrading = state(Stage.INSTALL, attempt=3, installed="r1", target="r2")
    new = moved(decide(facts(goal=Goal("u1", "r2"), state=upgrading, pods=(failed,)), T0))
    assert (new.stage, new.target, new.failed) == (Stage.INSTALL, "r1", "r2")
    assert present(new)


def test_a_pod_that_never_ran_costs_no_attempt() -> None:
    refused = pod(Stage.INSTALL, Outcome.NEVER_RAN, reason="OutOfcpu")
    waits = decide(facts(state=state(Stage.INSTALL), pods=(refused,)), after(1))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.until) == ("OutOfcpu", after(10))
    assert decide(facts(state=state(Stage.INSTALL), pods=(refused,)), after(10)) == EndPod("p1", Stage.INSTALL, 0)


def test_a_done_signal_is_read_before_the_deadline() -> None:
    late = facts(state=state(Stage.INSTALL), pods=(pod(Stage.INSTALL, Outcome.SUCCEEDED),))
    assert moved(decide(late, after(1000))).stage is Stage.CONFIGURE


def test_a_payload_that_hangs_is_ended_at_its_deadline() -> None:
    hangs = facts(state=state(Stage.INSTALL), pods=(pod(Stage.INSTALL, Outcome.RUNNING),))
    assert isinstance(decide(hangs, after(59)), Wait)
    new = moved(decide(hangs, after(60)))
    assert (new.attempt, new.error) == (2, Problem("PayloadTimedOut", "phase install did not end within 60 s"))


def test_a_payload_that_ended_without_the_label_it_promised_is_tried_again() -> None:
    """Else a node would be stuck for ever behind a pod that has Succeeded."""
    labelled = Plan(phases={Stage.INSTALL: PhasePlan(timeout=60, done_label=("vendor/done", "yes"))}, configures=True)
    silent = pod(Stage.INSTALL, Outcome.SUCCEEDED)
    it = facts(state=state(Stage.INSTALL), pods=(silent,), plans={"r1": labelled})
    assert isinstance(decide(it, after(59)), Wait)
    new = moved(decide(it, after(60)))
    message = "phase install did not label the node vendor/done=yes within 60 s"
    assert (new.attempt, new.error) == (2, Problem("PayloadTimedOut", message))


@pytest.mark.parametrize("failed", ["", "r1"])
def test_a_node_that_is_rid_of_a_runtime_keeps_no_done_label_of_any_revision(failed: str) -> None:
    """A payload of an earlier revision may have set it with its last breath, when it had been taken off already."""
    older = Plan(phases={Stage.PRE_INSTALL: PhasePlan(done_label=("vendor/old", "yes"))})
    plans = {"r0": older, "r1": Plan(phases={Stage.INSTALL: PhasePlan(done_label=("vendor/done", "yes"))})}
    goal = Goal("u1", "r1") if failed else Goal("u1")
    leaves = state(Stage.UNCONFIGURE, failed=failed)
    done = answer(Stage.UNCONFIGURE, WorkResult.DONE)
    gone = decide(facts(goal=goal, state=leaves, plans=plans, answer=done), T0)
    assert isinstance(gone, Move)
    assert (gone.reason, gone.clear_labels) == ("Failed" if failed else "Absent", ("vendor/done", "vendor/old"))


def test_a_node_that_is_ready_keeps_no_done_label_of_any_revision() -> None:
    """The revision that knows the label may be gone when the node is uninstalled."""
    older = Plan(phases={Stage.INSTALL: PhasePlan(done_label=("vendor/old", "yes"))})
    upgraded = state(Stage.CONFIGURE, installed="r0")
    done = answer(Stage.CONFIGURE, WorkResult.DONE)
    ready = decide(facts(state=upgraded, plans={"r0": older, "r1": FULL}, answer=done, bake=0.0), T0)
    assert isinstance(ready, Move)
    assert (ready.reason, ready.clear_labels) == ("Ready", ("vendor/old",))


def test_a_goal_that_changes_in_a_step_takes_the_done_label_of_that_step_off() -> None:
    """No later step asks for it: the revision that knows the label is let go."""
    labelled = Plan(phases={Stage.INSTALL: PhasePlan(done_label=("vendor/done", "yes"))})
    sleeps = pod(Stage.INSTALL, Outcome.RUNNING)
    turns = decide(
        facts(
            goal=Goal("u1", "r2"),
            state=state(Stage.INSTALL, signals=("vendor/done",)),
            plans={"r1": labelled, "r2": FULL},
            pods=(sleeps,),
        ),
        T0,
    )
    assert isinstance(turns, Move)
    assert (turns.reason, turns.clear_labels) == ("GoalChanged", ("vendor/done",))


@pytest.mark.parametrize("uninstalled", [False, True])
def test_a_done_label_is_known_until_the_node_rests_also_when_its_revision_is_gone(uninstalled: bool) -> None:
    """A payload that is being killed says with its last breath that it is done, after the label was taken off."""
    labelled = Plan(phases={Stage.INSTALL: PhasePlan(done_label=("vendor/done", "yes"))})
    begins = moved(decide(facts(plans={"r1": labelled}), T0))
    turned = moved(decide(facts(goal=Goal("u1", "r2"), state=begins, plans={"r1": labelled, "r2": FULL}), T0))
    if uninstalled:
        by, leaves = Goal("u1"), msgspec.structs.replace(turned, stage=Stage.UNCONFIGURE)
    else:
        by, leaves = Goal("u1", "r2"), msgspec.structs.replace(turned, stage=Stage.CONFIGURE)
    done = answer(leaves.stage, WorkResult.DONE, revision="r2")
    bare = Plan(handlers=frozenset({"kata"}), configures=True)
    rests = decide(facts(goal=by, state=leaves, plans={"r2": bare}, answer=done, bake=0.0), T0)
    assert isinstance(rests, Move)
    assert (rests.reason, rests.clear_labels) == ("Absent" if uninstalled else "Ready", ("vendor/done",))
    assert rests.state is None or rests.state.signals == ()


def test_of_done_labels_a_node_keeps_the_latest_eight_in_mind() -> None:
    """An annotation has a bound, however often somebody changes the goal."""
    labelled = Plan(phases={Stage.INSTALL: PhasePlan(done_label=("vendor/new", "yes"))})
    before = tuple(f"vendor/{number}" for number in range(8))
    turning = state(Stage.INSTALL, target="r0", signals=before)
    turned = moved(decide(facts(state=turning, plans={"r1": labelled}), T0))
    assert turned.signals == (*before[1:], "vendor/new")


def test_the_deadline_runs_from_the_end_of_the_pause_between_two_tries() -> None:
    """The pause before a fifth try, 80 s, is longer than the 60 s of the phase: its payload has all of them."""
    fifth = state(Stage.UNINSTALL, attempt=5, error=Problem("PayloadFailed"))
    assert decide(facts(goal=Goal("u1"), state=fifth), after(80)) == MakePod(fifth)
    hangs = facts(goal=Goal("u1"), state=fifth, pods=(pod(Stage.UNINSTALL, Outcome.RUNNING, attempt=5),))
    assert isinstance(decide(hangs, after(139)), Wait)
    new = moved(decide(hangs, after(140)))
    assert (new.attempt, new.error) == (6, Problem("PayloadTimedOut", "phase uninstall did not end within 60 s"))
    assert new.deadline == after(140 + 160 + 60)


def test_the_deadline_stands_still_while_the_node_was_not_ready() -> None:
    hangs = facts(state=state(Stage.INSTALL), pods=(pod(Stage.INSTALL, Outcome.RUNNING),), node_ready_since=after(50))
    assert isinstance(decide(hangs, after(109)), Wait)
    assert moved(decide(hangs, after(110))).attempt == 2


def test_an_agent_that_does_not_answer_makes_the_node_stuck_and_goes_on_waiting() -> None:
    decision = decide(facts(state=state(Stage.CONFIGURE)), after(180))
    assert isinstance(decision, Wait)
    assert decision.stuck == Problem("WaitingForAgent", "waits for the agent's report on configure")


# --- the way out ---


def test_removal_asks_for_the_pods_that_use_the_handler_first() -> None:
    ready = facts(goal=Goal("u1"), state=state(Stage.READY, installed="r1"), served=frozenset({"kata"}))
    assert decide(ready, T0) == AskUse()


def test_a_handler_in_use_lets_no_new_pods_in_and_waits() -> None:
    used = facts(
        goal=Goal("u1"), state=state(Stage.READY, installed="r1"), served=frozenset({"kata"}), in_use={"kata": ("a/b",)}
    )
    new = moved(decide(used, T0))
    assert (new.stage, new.draining, present(new)) == (Stage.READY, True, False)
    waits = decide(facts(goal=Goal("u1"), state=new, in_use={"kata": ("a/b",)}), T0)
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.wants_slot, waits.until) == ("HandlerInUse", False, after(5))


RENAMED = {"r1": FULL, "r2": replace(FULL, handlers=frozenset({"new"}))}
OVER = {
    "goal": Goal("u1", "r2"),
    "state": state(Stage.READY, installed="r1"),
    "plans": RENAMED,
    "served": FULL.handlers,
}


def test_an_upgrade_without_a_handler_waits_for_the_pods_that_use_it() -> None:
    assert decide(facts(**OVER, slot=False), T0) == AskUse()
    waits = decide(facts(**OVER, in_use={"kata": ("b/web", "a/db")}), T0)
    assert waits == Wait(
        reason="HandlerInUse",
        awaits=Signal.USERS_GONE,
        message="2 running pods use kata, not in revision r2, e.g. a/db; end them, or set uninstall.whenInUse: Force",
        until=after(5),
    )
    asks = decide(facts(**OVER, in_use={}, slot=False), T0)
    assert isinstance(asks, Wait)
    assert asks.wants_slot
    for goes_on in ({"in_use": {}}, {"force": True}):
        new = moved(decide(facts(**OVER, **goes_on), T0))
        assert (new.stage, new.target, new.installed) == (Stage.INSTALL, "r2", "r1")


def test_an_upgrade_does_not_wait_for_pods_of_a_handler_that_stays() -> None:
    more = {"r1": FULL, "r2": replace(FULL, handlers=FULL.handlers | {"new"})}
    assert moved(decide(facts(**{**OVER, "plans": more}), T0)).target == "r2"
    both = replace(FULL, handlers=frozenset({"kata", "old"}))
    less = {**OVER, "plans": {"r1": both, "r2": FULL}, "served": both.handlers}
    assert moved(decide(facts(**less, in_use={"kata": ("a/b",)}), T0)).target == "r2"


def test_with_force_nobody_asks_and_the_agent_is_told() -> None:
    ready = facts(goal=Goal("u1"), state=state(Stage.READY, installed="r1"), force=True)
    new = moved(decide(ready, T0))
    assert (new.stage, new.forced) == (Stage.UNCONFIGURE, True)
    done = answer(Stage.UNCONFIGURE, WorkResult.DONE)
    assert moved(decide(facts(goal=Goal("u1"), state=new, answer=done, force=True), T0)).forced is False


@pytest.mark.parametrize("force", [True, False])
def test_the_agent_is_told_of_a_change_of_mind(force: bool) -> None:
    out = state(Stage.UNCONFIGURE, installed="r1", forced=not force)
    waits = answer(Stage.UNCONFIGURE, WorkResult.WAITING, reason="HandlerInUse")
    for told in (None, waits):
        new = moved(decide(facts(goal=Goal("u1"), state=out, answer=told, force=force), after(9)))
        assert (new.stage, new.attempt, new.since, new.forced) == (Stage.UNCONFIGURE, 1, T0, force)


def test_force_holds_for_the_next_attempt_too() -> None:
    out = state(Stage.UNCONFIGURE, installed="r1", forced=True)
    failed = answer(Stage.UNCONFIGURE, WorkResult.FAILED, reason="VerifyFailed")
    new = moved(decide(facts(goal=Goal("u1"), state=out, answer=failed, force=True), T0))
    assert (new.attempt, new.forced) == (2, True)


def test_the_configuration_goes_before_the_binaries() -> None:
    new = moved(decide(facts(goal=Goal("u1"), state=state(Stage.READY, installed="r1"), in_use={}), T0))
    assert (new.stage, present(new)) == (Stage.UNCONFIGURE, False)
    done = answer(Stage.UNCONFIGURE, WorkResult.DONE)
    assert moved(decide(facts(goal=Goal("u1"), state=new, answer=done), T0)).stage is Stage.UNINSTALL


def test_uninstall_is_over_only_when_the_agent_saw_nothing_of_the_pod_run() -> None:
    out = state(Stage.UNINSTALL, installed="r1")
    finished = pod(Stage.UNINSTALL, Outcome.SUCCEEDED)
    waits = decide(facts(goal=Goal("u1"), state=out, pods=(finished,)), T0)
    assert isinstance(waits, Wait)
    assert waits.reason == "PodEnding"
    gone = decide(facts(goal=Goal("u1"), state=out, pods=(pod(Stage.UNINSTALL, Outcome.SUCCEEDED, ended=True),)), T0)
    assert gone == Move(state=None, reason="Absent", message="uninstalled")


def test_the_last_pod_of_an_absent_node_is_deleted_at_once() -> None:
    over = pod(Stage.UNINSTALL, Outcome.SUCCEEDED, ended=True)
    assert decide(facts(goal=Goal("u1"), pods=(over,)), T0) == EndPod("p1", Stage.UNINSTALL, 0)


@pytest.mark.parametrize("stage", [Stage.PRE_INSTALL, Stage.INSTALL])
def test_a_deletion_in_a_pod_stage_begins_the_uninstall_and_ends_the_pod_first(stage: Stage) -> None:
    running = pod(stage, Outcome.RUNNING)
    new = moved(decide(facts(goal=Goal("u1"), state=state(stage), pods=(running,)), T0))
    assert (new.stage, new.pod) == (Stage.UNINSTALL, "p1")
    plan = {"r1": Plan(phases={**FULL.phases, Stage.PRE_INSTALL: PhasePlan(grace=7)}, handlers=FULL.handlers)}
    assert decide(facts(goal=Goal("u1"), state=new, pods=(running,), plans=plan), T0) == EndPod("p1", stage, 7)


@pytest.mark.parametrize("stage", [Stage.CONFIGURE, Stage.VERIFY])
def test_a_deletion_while_configured_goes_by_way_of_unconfigure(stage: Stage) -> None:
    new = moved(decide(facts(goal=Goal("u1"), state=state(stage), in_use={}), T0))
    assert new.stage is Stage.UNCONFIGURE


@pytest.mark.parametrize("told", [{"dirty": "u1"}, {"answer": answer(Stage.CONFIGURE, WorkResult.WAITING)}])
def test_what_an_earlier_try_wrote_goes_before_the_binaries(told: dict[str, Any]) -> None:
    """A revision was configured and never ready; another one is on its way in, and then the goal is to have none."""
    turned = state(Stage.INSTALL, target="r2")
    new = moved(decide(facts(goal=Goal("u1"), state=turned, in_use={}, **told), T0))
    assert (new.stage, new.target) == (Stage.UNCONFIGURE, "r2")


def test_what_an_earlier_try_wrote_goes_also_when_this_revision_writes_nothing() -> None:
    plans = {"r2": Plan(phases=FULL.phases)}
    turned = state(Stage.INSTALL, target="r2")
    new = moved(decide(facts(goal=Goal("u1"), state=turned, plans=plans, dirty="u1"), T0))
    assert new.stage is Stage.UNCONFIGURE


def test_a_reinstall_waits_for_the_pods_that_use_its_handlers_and_says_so_once() -> None:
    upgrade = {"goal": Goal("u1", "r2"), "reinstall": True, "served": FULL.handlers, "in_use": {"kata": ("shop/web",)}}
    new = moved(decide(facts(state=state(Stage.READY, installed="r1"), **upgrade), T0))
    assert (new.stage, new.draining) == (Stage.READY, True)
    waits = decide(facts(state=new, **upgrade), T0)
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.until) == ("HandlerInUse", after(5))
    out = moved(decide(facts(state=new, **{**upgrade, "in_use": {}}), T0))
    assert (out.stage, out.target, out.draining) == (Stage.UNCONFIGURE, "r1", False)
    kept = moved(decide(facts(state=new, **{**upgrade, "reinstall": False}), T0))
    assert (kept.stage, kept.draining) == (Stage.READY, False)


def test_a_revert_to_what_is_installed_forgets_the_revision_that_failed() -> None:
    back = state(Stage.READY, installed="r1", failed="r2", error=Problem("VerifyFailed", "x"))
    served = FULL.handlers
    waits = decide(facts(state=back, goal=Goal("u1", "r2"), served=served), T0)
    assert isinstance(waits, Wait)
    new = moved(decide(facts(state=back, served=served), T0))
    assert (new.stage, new.installed, new.failed, new.error) == (Stage.READY, "r1", "", None)
    tried = moved(decide(facts(state=new, goal=Goal("u1", "r2"), served=served), T0))
    assert (tried.stage, tried.target) == (Stage.INSTALL, "r2")


def test_a_failed_uninstall_is_tried_for_ever() -> None:
    failed = pod(Stage.UNINSTALL, Outcome.FAILED, attempt=50, reason="PayloadFailed")
    new = moved(decide(facts(goal=Goal("u1"), state=state(Stage.UNINSTALL, attempt=50), pods=(failed,)), T0))
    assert (new.stage, new.attempt, new.failed) == (Stage.UNINSTALL, 51, "")


def test_an_undone_install_ends_as_failed_and_stays_so() -> None:
    out = state(Stage.UNINSTALL, failed="r1", error=Problem("PayloadFailed", "x"))
    over = pod(Stage.UNINSTALL, Outcome.SUCCEEDED, ended=True)
    new = moved(decide(facts(state=out, pods=(over,)), T0))
    assert (new.stage, new.failed, new.error) == (Stage.FAILED, "r1", Problem("PayloadFailed", "x"))
    assert decide(facts(state=new), T0) == Wait(reason="Failed", awaits=Signal.PERSON, message="x")


@pytest.mark.parametrize("fields", [{"retry": True}, {"goal": Goal("u1", "r2")}])
def test_a_failed_node_starts_afresh_on_retry_or_a_new_revision(fields: dict[str, Any]) -> None:
    failed = state(Stage.FAILED, failed="r1")
    new = moved(decide(facts(state=failed, **fields), T0))
    assert (new.stage, new.failed, new.attempt) == (Stage.INSTALL, "", 1)


# --- what changes under a node at rest ---


def test_a_ready_node_upgrades_in_place_and_keeps_its_pods() -> None:
    ready = state(Stage.READY, installed="r1")
    new = moved(decide(facts(goal=Goal("u1", "r2"), state=ready, served=frozenset({"kata"})), T0))
    assert (new.stage, new.installed, new.target, present(new)) == (Stage.INSTALL, "r1", "r2", True)


def test_a_fresh_machine_under_the_same_name_is_installed_from_the_start() -> None:
    ready = state(Stage.READY, installed="r1", machine="old")
    new = moved(decide(facts(state=ready, served=frozenset({"kata"})), T0))
    assert (new.stage, new.installed, new.machine) == (Stage.INSTALL, "", "m")


def test_a_lost_handler_is_repaired_three_times_an_hour_and_then_left_alone() -> None:
    ready = state(Stage.READY, installed="r1", repairs=(after(-30), after(-20), after(-10)))
    decision = decide(facts(state=ready), T0)
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.until) == ("Contested", after(3570))
    assert decision.stuck is not None


def test_a_state_of_another_noderuntime_is_taken_through_uninstall() -> None:
    orphan = state(Stage.READY, installed="r1", uid="u0")
    new = moved(decide(facts(state=orphan, in_use={}), T0))
    assert (new.stage, new.uid) == (Stage.UNCONFIGURE, "u0")


def test_a_journal_that_no_state_tells_of_is_undone() -> None:
    new = moved(decide(facts(goal=Goal(""), dirty="u0"), T0))
    assert (new.stage, new.uid) == (Stage.UNCONFIGURE, "u0")


def test_the_undo_of_a_journal_takes_a_slot_of_the_noderuntime_that_is_there_now() -> None:
    decision = decide(facts(goal=Goal("u1", "r1"), dirty="u0", slot=False), T0)
    assert isinstance(decision, Wait)
    assert (decision.reason, decision.wants_slot) == ("WaitingForSlot", True)


def test_a_label_changed_by_hand_is_put_right() -> None:
    ready = state(Stage.READY, installed="r1")
    assert decide(facts(state=ready, labels_true=False), T0) == Move(state=ready, reason="LabelsRestored")


def test_startup_taints_go_when_the_node_is_ready() -> None:
    ready = state(Stage.READY, installed="r1")
    decision = decide(facts(state=ready, tainted=True), T0)
    assert isinstance(decision, Move)
    assert (decision.reason, decision.drop_taints) == ("StartupTaintsRemoved", True)


def test_a_pod_of_another_step_that_does_not_end_makes_the_node_stuck() -> None:
    left = pod(Stage.INSTALL, Outcome.RUNNING, deleting=True)
    leaving = facts(goal=Goal("u1"), state=state(Stage.UNINSTALL, installed="r1"), pods=(left,))
    early, late = decide(leaving, after(59)), decide(leaving, after(60))
    assert isinstance(early, Wait)
    assert isinstance(late, Wait)
    assert (early.until, early.stuck) == (after(60), None)
    assert late.stuck == Problem("PodEnding", "waits until nothing of the install pod runs")


def test_a_node_whose_containerd_is_away_asks_for_no_slot() -> None:
    """Past its deadline it would give it back at once, and ask again: as many writes as the API server takes."""
    away = facts(state=state(Stage.INSTALL), serving=False, serving_reason="Down: no socket", slot=False)
    for moment in (T0, after(1000)):
        waits = decide(away, moment)
        assert isinstance(waits, Wait)
        assert (waits.reason, waits.wants_slot) == ("ContainerdNotServing", False)
