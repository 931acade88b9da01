"""What a process holds: tasks, descriptors, threads, objects of the product, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from reconciler.kube import cluster, informer, light, store


@dataclass(frozen=True)
class Census:
    tasks: int
    descriptors: int
    threads: int
    objects: int
    """Informers, stores, transports and their connections that somebody still holds."""


def census() -> Census:
    gc.collect()
    kinds = (informer.Informer, store.Store, light.LightTransport, light._Connection, cluster.ClusterTransport)
    held = sum(isinstance(thing, kinds) for thing in gc.get_objects())
    return Census(len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), threading.active_count(), held)


async def one_thread() -> None:
    """The loop's pool has one thread from now on, so that a thread more is one that somebody else has made."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await asyncio.to_thread(lambda: None)


def resident() -> float:
    """MB."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def settled(before: Census, within: float) -> Census:
    """The census when it is `before` again, or after `within` seconds: sockets close a turn of the loop later."""
    end = asyncio.get_running_loop().time() + within
    while (now := census()) != before and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(1.0)
    return now
