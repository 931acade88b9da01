"""Configurations in the shapes that distributions, packages and installers leave on nodes."""

from __future__ import annotations

from dataclasses import dataclass

from hostconfig_trees import FOLDER, IMAGES, MAIN, OLD, RUNTIME, Tree

ONE = ("1.6.20", "1.7.34")
TWO = ("2.0.11", "2.2.9", "2.3.4")
ALL = (*ONE, *TWO)
CRI = f'plugins."{OLD}"'
NEW = f"plugins.'{RUNTIME}'"
PICTURES = f"plugins.'{IMAGES}'"
RUNC = f"""[{CRI}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{CRI}.containerd.runtimes.runc.options]
SystemdCgroup = true
"""
PLAIN = f"""version = 2
[{CRI}]
  sandbox_image = "mirror.example/pause:3"
{RUNC}"""
NEW_RUNC = f"""[{NEW}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
options = {{ SystemdCgroup = true }}
"""
PLAIN_3 = f"version = 3\n[{PICTURES}.pinned_images]\nsandbox = 'mirror.example/pause:3'\n{NEW_RUNC}"


@dataclass(frozen=True)
class Shape:
    files: Tree
    releases: tuple[str, ...] = ALL
    config: str = ""
    handlers: tuple[str, ...] = ("runc",)
    """Served before we come."""
    untouched: bool = False
    """Others make the main file anew: it must stay as it is."""
    cgroup: bool = True
    """SystemdCgroup of the default runtime."""


def one(text: str, **more: bytes) -> Tree:
    """A main file, and drop-ins by their names without `.toml`."""
    return {MAIN: text.encode(), **{f"{FOLDER}/{name}.toml": data for name, data in more.items()}}


K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
K0S = "/etc/k0s/containerd.toml"
MICROK8S = "/var/snap/microk8s/current/args/containerd.toml"
CONF_D = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
SPEC = b'{"ociVersion": "1.1.0"}'

LOADS: dict[str, Shape] = {
    "no file": Shape({}, cgroup=False),
    "an empty file": Shape(one(""), cgroup=False),
    "kubeadm, containerd 1": Shape(one(PLAIN)),
    "kubeadm, containerd 2": Shape(one(PLAIN_3), TWO),
    "what containerd 2 prints": Shape(
        one(f"version = 3\nimports = []\n\n[plugins]\n  [{PICTURES}]\n    snapshotter = 'overlayfs'\n{NEW_RUNC}"), TWO
    ),
    "Debian's package": Shape(
        one(f'version = 2\n\n[plugins]\n  [{CRI}]\n    [{CRI}.cni]\n      bin_dir = "/usr/lib/cni"\n'), cgroup=False
    ),
    "kind": Shape(
        {
            **one(
                f'version = 2\n[proxy_plugins."fuse"]\ntype = "snapshot"\naddress = "/run/fuse.sock"\n'
                f'[{CRI}.containerd]\nsnapshotter = "native"\ndefault_runtime_name = "runc"\n{RUNC}'
                f'[{CRI}.containerd.runtimes.test]\nruntime_type = "io.containerd.runc.v2"\n'
                f'base_runtime_spec = "/etc/containerd/base.json"\n'
            ),
            "/etc/containerd/base.json": SPEC,
        },
        handlers=("runc", "test"),
    ),
    "EKS": Shape(
        {
            **one(
                f'version = 3\nroot = "/data"\n[grpc]\naddress = "/run/containerd/containerd.sock"\n'
                f'[{PICTURES}.registry]\nconfig_path = "/a:/b"\n{NEW_RUNC}[{NEW}.cni]\nbin_dir = "/opt/cni/bin"\n'
            ),
            "/etc/containerd/spec.json": SPEC,
        },
        TWO,
    ),
    "an imported config.d": Shape(
        {
            MAIN: b'imports = ["/etc/containerd/config.d/*.toml"]\n' + PLAIN.encode(),
            f"{FOLDER}/unread.toml": b"broken = [",
        },
        TWO,
    ),
    "GKE": Shape(
        one(
            f'version = 2\nrequired_plugins = ["{OLD}"]\noom_score = -999\n[{CRI}.registry.mirrors."m"]\n'
            f'endpoint = ["https://m"]\n[{CRI}.cni]\nbin_dir = "/home/bin"\n{RUNC}'
        )
    ),
    "AKS": Shape(
        one(f'version = 2\noom_score = -999\n[{PICTURES}.pinned_images]\nsandbox = "p"\n{NEW_RUNC}[metrics]\n'), TWO
    ),
    "k3s": Shape(
        {K3S: f"version = 3\nimports = ['{K3S[:-5]}-v3.toml.d/*.toml']\n{NEW_RUNC}".encode()},
        TWO,
        config=K3S,
        untouched=True,
    ),
    "k0s": Shape(
        {
            K0S: b'# k0s_managed=true\nversion = 3\nimports = [\n\t"/etc/k0s/containerd.d/*.toml",\n]\n'
            + NEW_RUNC.encode()
        },
        TWO,
        config=K0S,
        untouched=True,
    ),
    "microk8s": Shape(
        {
            MICROK8S.replace(".toml", "-template.toml"): (
                f'version = 2\n[{CRI}.containerd]\nsnapshotter = "${{SNAPSHOTTER}}"\n'
                f'default_runtime_name = "${{RUNTIME}}"\n{RUNC.replace("true", "false")}'
            ).encode(),
            MICROK8S: b"rendered = 1\n",
        },
        config=MICROK8S,
        untouched=True,
        cgroup=False,
    ),
    "a snapshotter and no runtimes": Shape(
        one(f'version = 2\n[{CRI}.containerd]\nsnapshotter = "native"\n'), cgroup=False
    ),
    "version 4": Shape(one(f"version = 4\n[plugins.'io.containerd.server.v1.debug']\nuid = 0\n{NEW_RUNC}"), ("2.3.4",)),
    "version 1": Shape(one(RUNC.replace(f'"{OLD}"', "cri") + '[plugins.cri]\nsandbox_image = "p"\n'), ONE),
    "version 2 ids without a version, 2.3": Shape(one(PLAIN.replace("version = 2\n", "")), ("2.3.4",)),
    "version 2 ids without a version, 2.0 to 2.2": Shape(
        one(PLAIN.replace("version = 2\n", "")), ("2.0.11", "2.2.9"), cgroup=False
    ),
    "version 3 over old ids": Shape(one(PLAIN.replace("= 2", "= 3")), ("2.0.11", "2.2.9"), cgroup=False),
    "carriage returns": Shape(one(PLAIN.replace("\n", "\r\n"))),
    "a byte order mark": Shape({MAIN: b"\xef\xbb\xbf" + PLAIN.encode()}, ONE),
    "no last line end": Shape(one(PLAIN.rstrip())),
    "dotted keys": Shape(
        one(
            f'version = 2\n{CRI}.sandbox_image = "p"\n'
            f'{CRI}.containerd.runtimes.runc = {{ runtime_type = "io.containerd.runc.v2" }}\n'
        ),
        TWO,
        cgroup=False,
    ),
    "one inline table, containerd 2": Shape(
        one(
            f'version = 2\nplugins = {{ "{OLD}" = {{ containerd = {{ runtimes = {{ runc = {{ '
            'runtime_type = "io.containerd.runc.v2", options = { SystemdCgroup = true } } } } } }\n'
        ),
        TWO,
    ),
    "a list over several lines": Shape(
        {**one(f"imports = [ # site\n  '/etc/site/a.toml', # keep\n]\n{PLAIN_3}"), "/etc/site/a.toml": b"[debug]\n"},
        TWO,
    ),
    "a quoted key": Shape({**one(f'"imports" = ["/etc/a.toml"]\n{PLAIN}'), "/etc/a.toml": b"oom_score = 1\n"}),
    "a relative import": Shape(one(f'imports = ["conf.d/*.toml"]\n{PLAIN}', a=b"[debug]\n"), ALL[1:]),
    "a pattern that loads everything": Shape(
        {**one(f'imports = ["/etc/containerd/conf.d/*"]\n{PLAIN}'), f"{FOLDER}/a.toml.bak": b"[debug]\n"}, TWO
    ),
    "the same file twice": Shape(
        {**one(f'imports = ["/etc/a.toml", "/etc/a.toml"]\n{PLAIN}'), "/etc/a.toml": b"[debug]\n"}
    ),
    "drop-ins of others, containerd 2": Shape(
        one(
            CONF_D + PLAIN,
            a=f'version = 2\n[{CRI}.containerd.runtimes.alpha]\nruntime_type = "io.a.v1"\n'.encode(),
            z=f'[{CRI}.containerd.runtimes.omega]\nruntime_type = "io.o.v1"\n'.encode(),
        ),
        TWO,
        handlers=("alpha", "omega", "runc"),
    ),
    "a section of others that wins, containerd 1": Shape(
        one(
            CONF_D + PLAIN,
            z=f'version = 2\n[{CRI}.containerd.runtimes.gpu]\nruntime_type = "io.g.v1"\n{RUNC}'.encode(),
        ),
        ONE,
        handlers=("gpu", "runc"),
    ),
    "a conf.d that nothing imports": Shape(one(PLAIN, old=b"broken = [")),
    "tables out of order": Shape(one(f'version = 2\n{RUNC}[debug]\nlevel = "info"\n[{CRI}.registry]\n[{CRI}]\n')),
    "floats and comments that name things": Shape(
        one(f'{PLAIN}[plugins."io.containerd.gc.v1.scheduler"]\npause_threshold = 1.0 # imports = kata-qemu\n')
    ),
}

BROKEN: dict[str, tuple[str, Tree, tuple[str, ...]]] = {
    "a list that begins with a comma": ("InvalidToml", one("imports = [ , ]\n" + PLAIN), ALL),
    "two import lists": ("InvalidToml", one("imports = []\nimports = []\n" + PLAIN), ALL),
    "a byte order mark, containerd 2": ("InvalidToml", {MAIN: b"\xef\xbb\xbf" + PLAIN.encode()}, TWO),
    "an array of tables": (
        "InvalidToml",
        one(f'{PLAIN}[[{CRI}.containerd.runtimes.x]]\nruntime_type = "io.x.v1"\n'),
        ALL,
    ),
    "annotations that are no list": (
        "InvalidToml",
        one(f'version = 2\n{RUNC}[{CRI}.containerd.runtimes.x]\npod_annotations = "a"\n'),
        ALL,
    ),
    "a template": ("TemplateFile", one('version = 2\n{{ template "base" . }}\n'), ALL),
    "a broken drop-in of somebody": ("InvalidToml", one(CONF_D + PLAIN, vendor=b"[debug\n"), ALL),
    "an import that is gone": ("DanglingImport", one('imports = ["/etc/gone.toml"]\n' + PLAIN), ALL),
    "a directory among the drop-ins": (
        "DirectoryInDropIns",
        {**one(CONF_D + PLAIN), f"{FOLDER}/x.toml/y": b""},
        ALL,
    ),
    "Docker's package": ("CRIDisabled", one('disabled_plugins = ["cri"]\n'), ALL),
    "a default runtime that is gone": (
        "DefaultRuntimeMissing",
        one(f'{PLAIN}[{CRI}.containerd]\ndefault_runtime_name = "nvidia"\n'),
        ALL,
    ),
    "a default runtime set to nothing": (
        "DefaultRuntimeMissing",
        one(f'{PLAIN}[{CRI}.containerd]\ndefault_runtime_name = ""\n'),
        ALL,
    ),
    "a default snapshotter without a plugin": (
        "CRIInvalid",
        one(f'{PLAIN}[{CRI}.containerd]\nsnapshotter = "stargz"\n'),
        ALL,
    ),
    "a base spec that is gone": (
        "CRIInvalid",
        one(f'version = 2\n{RUNC}[{CRI}.containerd.runtimes.x]\nbase_runtime_spec = "/gone.json"\n'),
        ALL,
    ),
    "mirrors beside a registry directory": (
        "RegistryConflict",
        one(f'{PLAIN}[{CRI}.registry]\nconfig_path = "/c"\n[{CRI}.registry.mirrors.m]\nendpoint = []\n'),
        ALL,
    ),
    "a snapshotter without a type": (
        "IncompleteProxyPlugin",
        one(f'{PLAIN}[proxy_plugins.stargz]\naddress = "/run/s"\n'),
        ALL,
    ),
    "version 3, containerd 1.7": ("UnsupportedVersion", one(PLAIN_3), ("1.7.34",)),
    "version 4, older ones": ("UnsupportedVersion", one("version = 4\n" + NEW_RUNC), ("1.7.34", "2.0.11", "2.2.9")),
    "a newer drop-in, 2.3": ("DialectMismatch", one(CONF_D + PLAIN, gpu=b"version = 3\n"), ("2.3.4",)),
    "a short name in a version 2 list": ("CRIDisabled", one('version = 2\ndisabled_plugins = ["cri"]\n'), ALL),
}
