"""Where our tables go on containerd 1.x: into blocks at the end of the file whose CRI section wins.

A drop-in would replace the whole section of the files before it (design 6.3). On a k3s or rke2 without drop-ins
it is the rendered main file, on any release.
"""

from __future__ import annotations

from reconciler.hostconfig import blocks, cri_section, render
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.snapshot import Snapshot


def place(snapshot: Snapshot, base: Effective, name: str, text: str, was: bytes | None) -> None:
    """Add the block of `name`; `was`: the target's bytes before `name` was taken out, whose place is kept."""
    target = target_of(snapshot, base)
    if not base.exists:
        snapshot.put(target, blocks.put(blocks.created(2), name, text))
        return
    now = snapshot.read(target) or b""
    snapshot.put(target, blocks.put(was if was is not None and blocks.get(was, name) else now, name, text))


def target_of(snapshot: Snapshot, effective: Effective) -> str:
    """Real path of the file whose CRI section wins; the main file when none has one, and on 2.x (a template)."""
    if not effective.containerd.one:
        return snapshot.main
    return snapshot.host.real(effective.origin.get(cri_section.runtime_id(effective), effective.main))


def settle_runc(snapshot: Snapshot) -> None:
    """Write, keep or drop our `runc` table: it is needed while any other runtime hides the built-in one."""
    loaded = [snapshot.host.real(file.path) for file in snapshot.effective().files]
    kept = {path: snapshot.read(path) for path in loaded}
    snapshot.rewrite(snapshot.effective(), lambda data: blocks.take(data, blocks.RUNC_OWNER))
    bare = snapshot.effective()
    runtimes = cri_section.written_runtimes(bare)
    hidden = bare.containerd.one and bool(runtimes) and cri_section.RUNC not in runtimes
    if not hidden or cri_section.default_runtime(bare) != cri_section.RUNC:
        return
    target = target_of(snapshot, bare)
    path = ("plugins", cri_section.runtime_id(bare), "containerd", "runtimes", cri_section.RUNC)
    text = render.table_text(path, {"runtime_type": cri_section.RUNC_TYPE})
    with_block = kept.get(target)
    data = with_block if with_block and blocks.get(with_block, blocks.RUNC_OWNER) else snapshot.read(target)
    snapshot.put(target, blocks.put(data or b"", blocks.RUNC_OWNER, text))
