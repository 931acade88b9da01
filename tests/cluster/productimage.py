"""The product's own image, built from `deploy/Containerfile` by buildah without a registry or a network."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from tests.cluster import noderoot, paths
from tests.cluster.command import run
from tests.cluster.node import Node

_ENV = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
_SOURCES = ("reconciler", "metrics")
_FILES = ("pyproject.toml", "requirements.lock", "LICENSE", "deploy/Containerfile")
_KEPT = 6
"""Images of older sources kept in the cache."""


def build(image: str, *, tree: Path = paths.PROJECT) -> Path:
    """A docker archive of `image` from the sources of `tree`; made only when they have changed."""
    folder = paths.CACHE / "images"
    archive = folder / f"product-{_key(image, tree)}.tar"
    if archive.exists():
        return archive
    print(f"building the image {image} …", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    context = paths.CACHE / "image-context"
    shutil.rmtree(context, ignore_errors=True)
    _fill(context, tree)
    base = _base()
    flags = "--no-index --find-links=/src/wheels"
    build_args = ["--build-arg", f"BASE={base}", "--build-arg", f"PIP_FLAGS={flags}"]
    containerfile = context / "deploy/Containerfile"
    argv: list[str | Path] = [
        "buildah",
        "build",
        "--pull-never",
        "--squash",
        *build_args,
        "-f",
        containerfile,
        "-t",
        image,
        context,
    ]
    run(argv, env=_ENV, timeout=900)
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    run(["buildah", "push", image, f"docker-archive:{unfinished}:docker.io/library/{image}"], env=_ENV, timeout=300)
    unfinished.rename(archive)
    for old in sorted(folder.glob("product-*.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink()
    return archive


def load(archive: Path, node: Node) -> None:
    """Make the image known to the node's containerd, unless it is there already."""
    mark = node.root / "var/lib" / f"{archive.stem}.loaded"
    if mark.exists():
        return
    target = node.root / "var/lib/product.tar"
    run(["cp", "--reflink=auto", archive, target], timeout=120)
    node.run("ctr", "-n", "k8s.io", "images", "import", "/var/lib/product.tar", timeout=180)
    target.unlink()
    mark.touch()


def _key(image: str, tree: Path) -> str:
    digest = hashlib.sha256(image.encode())
    for source in _SOURCES:
        for path in sorted((tree / source).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(tree)).encode() + path.read_bytes())
    for name in _FILES:
        digest.update((tree / name).read_bytes())
    return digest.hexdigest()[:12]


def _fill(context: Path, tree: Path) -> None:
    """The build context: the lock, the wheels it names, and a wheel of this project."""
    for name in _FILES:
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, context / name)
    (context / "README.md").write_text("In the wheel's metadata only; a changed page is no reason for another image.\n")
    shutil.copytree(_wheels(tree), context / "wheels")
    for source in _SOURCES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(tree / source, context / source, ignore=ignore)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    run(pip, cwd=context, timeout=180)
    for source in (*_SOURCES, "build", "runtime_reconciler.egg-info"):
        shutil.rmtree(context / source, ignore_errors=True)


def _wheels(tree: Path) -> Path:
    lock = tree / "requirements.lock"
    folder = paths.CACHE / f"wheels-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "--only-binary=:all:"]
        run([*pip, "-d", str(unfinished), "-r", str(lock)], timeout=600)
        unfinished.rename(folder)
    return folder


def _base() -> str:
    root = noderoot.image_base()
    name = f"localhost/{root.name}:1"
    if run(["buildah", "images", "-q", name], env=_ENV, check=False).strip():
        return name
    container = run(["buildah", "from", "scratch"], env=_ENV).strip()
    run(["buildah", "add", container, root, "/"], env=_ENV, timeout=300)
    run(["buildah", "commit", "--rm", container, name], env=_ENV, timeout=300)
    return name
