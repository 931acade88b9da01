"""The release before this one: its manifests and its image, from the project's own history."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import paths, productimage
from tests.cluster.cluster import kubectl, nodes
from tests.cluster.command import CommandFailed, run

_COMMIT = os.environ.get("PREVIOUS", "76584ed40f63")
"""0.1.0; another commit or tag by $PREVIOUS."""
IMAGE = "runtime-reconciler:previous"


@dataclass(frozen=True)
class Release:
    tree: Path
    described: str


def find() -> Release:
    """In a checkout without that history it is this tree under another tag, and says so."""
    try:
        commit = run(["git", "rev-parse", "--verify", f"{_COMMIT}^{{commit}}"], cwd=paths.PROJECT).strip()
    except (CommandFailed, OSError):
        return Release(paths.PROJECT, f"this tree under another tag: there is no history with {_COMMIT}")
    tree = paths.CACHE / f"previous-{commit[:12]}"
    if not tree.exists():
        unfinished = tree.with_suffix(".unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        archive = unfinished / "tree.tar"
        run(["git", "archive", "-o", archive, commit], cwd=paths.PROJECT)
        run(["tar", "-xf", archive, "-C", unfinished])
        archive.unlink()
        unfinished.rename(tree)
    return Release(tree, commit[:12])


def install(release: Release) -> None:
    """As its README told: `kubectl apply -k`, with the image renamed. Returns before its pods are ready."""
    archive = productimage.build(IMAGE, tree=release.tree)
    for node in nodes():
        productimage.load(archive, node)
    overlay = paths.RUN / "previous"
    overlay.mkdir(exist_ok=True)
    base = os.path.relpath(release.tree / "deploy/base", overlay.resolve())
    name, _, tag = IMAGE.partition(":")
    text = f"resources: [{base}]\nimages: [{{name: {name}, newTag: {tag}}}]\n"
    (overlay / "kustomization.yaml").write_text(text)
    kubectl("apply", "-k", str(overlay), timeout=60)
