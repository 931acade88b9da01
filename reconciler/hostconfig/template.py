"""k3s and rke2 render containerd's file at each start: what is to last in it goes into the template that they use.

The template is Go's, not TOML, so it is never parsed: our blocks go behind what is in it, and come out behind
what is rendered from it. So the file as the next start renders it is the one of now with the template's blocks.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from reconciler.hostconfig import blocks
from reconciler.hostconfig.distribution import is_rendered_by_k3s
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.version import Version

OLD, NEW = "config.toml.tmpl", "config-v3.toml.tmpl"
"""Of any containerd, and of 2.x, where it goes before the other one."""
_ACTION = "{{"


@dataclass(frozen=True)
class Template:
    """Of one rendered file."""

    path: str
    """Real path on the host."""
    rendered: str
    """Real path of the file that is made from it."""

    def is_unread(self, host: HostRoot) -> bool:
        """True when somebody else has changed the template since it was last rendered: a restart would do that too."""
        try:
            later = host.local(self.path).stat().st_mtime > host.local(self.rendered).stat().st_mtime
            template, rendered = host.read(self.path), host.read(self.rendered)
        except OSError:
            return False
        return later and _owned(template) == _owned(rendered)

    def rendered_from(self, template: bytes | None, rendered: bytes) -> bytes:
        """The file as the next start makes it, when only our part of the template has changed since the last one."""
        for block in blocks.find(rendered):
            rendered = blocks.take(rendered, block.owner)
        for owner, text in _owned(template or b"").items():
            rendered = blocks.put(rendered, owner, text)
        return rendered

    def template_for(self, template: bytes | None, rendered: bytes) -> bytes | None:
        """The template from which `rendered` is made; None for one that holds nothing but what we made.

        Raises Refused(UnsupportedSyntax) on a value that the template would not leave as it is.
        """
        data = blocks.CREATED_TEMPLATE if template is None else template
        wanted = _owned(rendered)
        for block in blocks.find(data):
            if block.owner not in wanted:
                data = blocks.take(data, block.owner)
        for owner, text in wanted.items():
            if _ACTION in text:
                raise Refused(Code.UNSUPPORTED_SYNTAX, f"{self.path} is a Go template: {_ACTION!r} cannot be written")
            data = blocks.put(data, owner, text)
        return None if blocks.is_created(data) else data


def template_of(host: HostRoot, config_path: str, version: Version) -> Template | None:
    """The template of a k3s or rke2 (whose data may be anywhere); None for any other file.

    Their own template can be drawn in from 1.7 on; before that a template of an admin would have to be a copy of it.
    """
    if not is_rendered_by_k3s(config_path) or not version.k3s_extends_its_template:
        return None
    folder = posixpath.dirname(config_path)
    new, old = (posixpath.join(folder, name) for name in (NEW, OLD))
    first = old if version.one or (host.exists(old) and not host.exists(new)) else new
    return Template(host.real(first), host.real(config_path))


def _owned(data: bytes) -> dict[str, str]:
    """Owner → text of each of our blocks, in order."""
    return {block.owner: block.body(data).decode().replace("\r\n", "\n") for block in blocks.find(data)}
