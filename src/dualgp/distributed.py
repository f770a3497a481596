"""Many processes on one host or many: they start together and stop together.

    dualgp.distributed.initialize()                                        # under SLURM
    dualgp.distributed.initialize("10.0.0.1:1234", rank=0, size=4)         # anywhere
    posterior = model.condition(x, y, mesh="all", key=key)                 # x, y: memory maps of the whole data
    dualgp.distributed.finish()

JAX does the communication, except for failures: when a process dies, collectives fail on some hosts and hang on
others. So each process keeps a connection to the first one, and when one breaks, all processes stop with a message.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import queue
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PEER_LOST = 4  # the exit code when another process has died
GOODBYE = b"!"
WAIT_SECONDS = 300
HEARTBEAT_SECONDS = 60
WATCH_SECONDS = 5.0
GOODBYE_SECONDS = 30
GREETING_SECONDS = 10  # for a new connection to identify itself
SECRET = "DUALGP_SECRET"  # the name of the environment variable


def initialize(
    coordinator: str | None = None, rank: int | None = None, size: int | None = None, *, wait: float = WAIT_SECONDS
) -> None:
    """Start this process as one of many. Call it before JAX is used for anything else.

    **Arguments:**

    - `coordinator`: "host:port" of the first process, the port being free there. `rank`: this process's number, from 0.
      `size`: how many there are. Under SLURM and Open MPI, leave out all three.
    - `wait`: seconds to wait for the others to start.

    **From this call on**, when one of the processes dies, all others write a message and leave by `os._exit(4)`: no
    `finally` and no `atexit` runs, because a process that waits for a dead one in a collective can do nothing else.
    Threads that wait for sockets get the lowest priority, and keep it.

    The first process listens at the coordinator's address only. It drops connections that do not know the secret, and
    says so on stderr. The secret is a random number that JAX sends to all processes, and the environment variable
    DUALGP_SECRET, if it is set, the same for all. JAX's own ports have no such protection: keep them in a network that
    you trust.
    """
    _check(coordinator, rank, size)
    # Without this, JAX aborts with a core dump when the first process dies. No effect if JAX was imported before.
    os.environ.setdefault("JAX_ENABLE_RECOVERABILITY", "1")
    import jax

    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=size,
            process_id=rank,
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=int(wait),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except ValueError as error:
        raise ValueError(
            f"JAX could not tell which processes there are ({error}). Outside SLURM, pass coordinator='host:port', "
            "rank= and size=."
        ) from None
    if jax.process_count() > 1:
        _watch(jax.process_index(), jax.process_count(), None if coordinator is None else _host(coordinator), wait)
        _let_work_go_first()


def finish() -> None:
    """Wait until all processes have called this, and close the connections."""
    import jax

    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("dualgp is done")
        _Watch.over.set()
        if jax.process_index() == 0:
            _Watch.wait_for_goodbyes()  # JAX's service runs here: its end aborts the others
    rank = jax.process_index()
    jax.distributed.shutdown()
    if rank > 0:
        _Watch.say_goodbye()


@contextmanager
def together() -> Iterator[None]:
    """A context for work of all processes: an error in any of them ends all of them at once.

    Otherwise the remaining processes would wait for the failed one in JAX's shutdown.
    """
    import jax

    try:
        yield
    except BaseException as error:
        if jax.process_count() == 1:
            raise
        if isinstance(error, Exception):
            # When another process dies, this one may get any error. Then the watch reports the death and exits.
            _Watch.over.wait(WATCH_SECONDS)
        if isinstance(error, jax.errors.JaxRuntimeError):
            _leave(f"Working together with the other processes failed ({str(error).splitlines()[0]}).")
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        _exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)


def _check(coordinator: str | None, rank: int | None, size: int | None) -> None:
    given = [value is not None for value in (coordinator, rank, size)]
    if any(given) and not all(given):
        raise ValueError("coordinator, rank and size go together: pass all three, or none under SLURM.")
    if coordinator is None or rank is None or size is None:
        return
    if not _host(coordinator) or not coordinator.rpartition(":")[2].isdigit():
        raise ValueError(f"coordinator must be 'host:port', such as '10.0.0.1:1234', got {coordinator!r}.")
    if not 0 <= rank < size:
        raise ValueError(f"rank must be from 0 to size - 1, got rank={rank} and size={size}.")


def _let_work_go_first() -> None:
    """Give the lowest priority to threads that wait for sockets.

    A thread of gloo polls from the arrival of a message until another thread reads it. On a single core that keeps the
    reading thread from running: a sum over two processes takes 4 ms, a time slice of Linux, and 0.7 ms like this.
    """
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # the thread has ended, or the system has no /proc
            if (thread / "wchan").read_text() in ("ep_poll", "do_epoll_wait"):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)


def _host(coordinator: str) -> str:
    return coordinator.rpartition(":")[0].strip("[]")


def _watch(rank: int, size: int, host: str | None, wait: float) -> None:
    """Connect every process to the first one, and watch the connections in threads."""
    listener = _listen(host) if rank == 0 else None
    port = listener.getsockname()[1] if listener else 0
    said = _broadcast([port.to_bytes(2, "big"), secrets.token_bytes(32), socket.gethostname().encode()[:255]])
    port, token, name = int.from_bytes(said[0], "big"), said[1], said[2].decode()
    if listener is None:
        first = socket.create_connection((host or name, port), timeout=wait)
        first.sendall(greeting(token, rank))
        _Watch.start(first, 0)
        return
    for peer, connection in accept(listener, size, token, wait).items():
        _Watch.start(connection, peer)


def _broadcast(pieces: list[bytes]) -> list[bytes]:
    """Send pieces of up to 255 bytes from the first process to all."""
    import numpy as np
    from jax.experimental import multihost_utils

    packed = np.zeros((len(pieces), 256), np.uint8)
    for row, piece in zip(packed, pieces, strict=True):
        row[0], row[1 : 1 + len(piece)] = len(piece), np.frombuffer(piece, np.uint8)
    packed = np.asarray(multihost_utils.broadcast_one_to_all(packed))
    return [row[1 : 1 + row[0]].tobytes() for row in packed]


def _listen(host: str | None) -> socket.socket:
    """A listener at the coordinator's address, else at that of this host's name, else at all addresses."""
    name = host or socket.gethostname()
    with suppress(OSError):
        family, *_, address = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0]
        if host is not None or not str(address[0]).startswith("127."):
            return socket.create_server((address[0], 0), family=family)
    _log(f"{name} is no address of this host: listening at all of them.")
    return socket.create_server(("", 0))


def greeting(token: bytes, rank: int) -> bytes:
    """The first message of a process: its number, and a proof that it knows the secrets."""
    number = rank.to_bytes(4, "big")
    proof = hmac.new(token + os.environ.get(SECRET, "").encode(), number, hashlib.sha256).digest()
    return number + proof


def accept(listener: socket.socket, size: int, token: bytes, wait: float) -> dict[int, socket.socket]:
    """The connections of processes 1 to size - 1; others are dropped with a message, and do not delay these."""
    known: dict[int, socket.socket] = {}
    greeted: queue.Queue[tuple[int, socket.socket]] = queue.Queue()
    expected = {greeting(token, rank): rank for rank in range(1, size)}
    end = time.monotonic() + wait
    listener.settimeout(0.1)
    with listener:
        while len(known) < size - 1:
            if time.monotonic() > end:
                missing = sorted(set(expected.values()) - set(known))
                raise TimeoutError(f"Process(es) {missing} did not connect to the first one within {wait:.0f} s.")
            with suppress(TimeoutError):
                connection, address = listener.accept()
                threading.Thread(target=_greet, args=(connection, address, expected, greeted), daemon=True).start()
            while not greeted.empty():
                rank, connection = greeted.get()
                if rank in known:
                    _drop(connection, f"said that it is process {rank}, which is here already")
                else:
                    known[rank] = connection
    return known


def _greet(connection: socket.socket, address: Any, expected: dict[bytes, int], greeted: queue.Queue) -> None:
    """Read the greeting of a connection, and drop it if the greeting is wrong."""
    said, end = b"", time.monotonic() + GREETING_SECONDS
    with suppress(OSError):
        while len(said) < 36 and (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            piece = connection.recv(36 - len(said))
            if not piece:
                break
            said += piece
    rank = next((rank for proof, rank in expected.items() if hmac.compare_digest(proof, said)), None)
    if rank is None:
        _drop(connection, f"came from {address[0]} and did not know the secret (is {SECRET} the same everywhere?)")
    else:
        greeted.put((rank, connection))


def _drop(connection: socket.socket, why: str) -> None:
    connection.close()
    _log(f"dropped a connection that {why}.")


def _log(line: str) -> None:
    sys.stderr.write(f"dualgp.distributed: {line}\n")
    sys.stderr.flush()


class _Watch:
    """The connections of this process, watched by a thread each."""

    connections: list[socket.socket] = []  # noqa: RUF012
    threads: list[threading.Thread] = []  # noqa: RUF012
    over = threading.Event()

    @classmethod
    def start(cls, connection: socket.socket, peer: int) -> None:
        connection.settimeout(None)
        # A host that loses power sends nothing: keep-alive messages of the operating system notice that.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
        cls.connections.append(connection)
        cls.threads.append(threading.Thread(target=cls.wait, args=(connection, peer), daemon=True))
        cls.threads[-1].start()

    @classmethod
    def wait(cls, connection: socket.socket, peer: int) -> None:
        try:
            said = connection.recv(1)
        except OSError:
            said = b""
        if said != GOODBYE and not cls.over.is_set():
            _leave(f"Process {peer} is gone" + (" or has been told that another one is." if peer == 0 else "."))

    @classmethod
    def say_goodbye(cls) -> None:
        for connection in cls.connections:
            connection.sendall(GOODBYE)

    @classmethod
    def wait_for_goodbyes(cls) -> None:
        for thread in cls.threads:
            thread.join(timeout=GOODBYE_SECONDS)


def _leave(what: str) -> Any:
    """Exit at once: a process that waits for a dead one in a collective can do nothing else."""
    sys.stderr.write(
        f"Error: {what} This process stops as well. Start them all again, as many as you like, with the same command: "
        "they go on from the checkpoint.\n"
    )
    _exit(PEER_LOST)


def _exit(code: int) -> None:
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)
