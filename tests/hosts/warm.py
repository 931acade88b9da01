"""`reconciler` without its imports at each call: a server that has made them forks for each one.

The acceptance cases call the program some thousand times, and half of that time was imports. What runs is the same
`main` with the caller's arguments, directory, environment and streams. A caller in a mount namespace of its own
starts the program itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys

LENGTH_MAX = 1 << 20
"""Bytes of one call."""


def namespace() -> str:
    return os.readlink("/proc/self/ns/mnt")


def call(path: str, argv: list[str]) -> int:
    """Run `reconciler ARGV` by the server at `path`; its exit status."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        if server.recv(64).decode() != namespace():
            os.execv(sys.executable, [sys.executable, "-m", "reconciler", *argv])
        question = json.dumps({"argv": argv, "cwd": os.getcwd(), "environ": dict(os.environ)}).encode()
        socket.send_fds(server, [question], [0, 1, 2])
        server.shutdown(socket.SHUT_WR)
        status = server.recv(1)
        return status[0] if status else 70


def serve(path: str) -> None:
    """Until the process is ended."""
    import gc
    import signal

    import msgspec.yaml  # noqa: F401
    import yaml  # noqa: F401

    import reconciler.cli.config
    import reconciler.cli.main  # noqa: F401

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                answer(client)
            client.close()


def answer(client: socket.socket) -> None:
    """One call, in a process of its own, which ends with it."""
    client.sendall(namespace().encode())
    question, streams, _, _ = socket.recv_fds(client, LENGTH_MAX, 3)
    while part := client.recv(LENGTH_MAX):
        question += part
    if not question:  # the caller runs it by itself
        os._exit(0)
    asked = json.loads(question)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv = ["reconciler", *asked["argv"]]
    client.sendall(bytes([status_of_main()]))
    os._exit(0)


def status_of_main() -> int:
    from reconciler.__main__ import main

    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
