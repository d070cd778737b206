"""Jobs on a Ray cluster: Ray places them, one process each; what is tried again is not its affair.

https://docs.ray.io. Of Ray only plain tasks are used, without retries of its own.
"""

import atexit
import os
import secrets
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.leases import leased
from peerlearn.studies.process import WORKER, Child, Ended, carried, lay_out
from peerlearn.studies.share import Share
from peerlearn.studies.state import PLANS

CONNECT = 5.0  # seconds within which a cluster must answer
HEAD = 10.0  # seconds between two looks at the head
INTERRUPTS = 0.05  # seconds between two looks for one
AT_ONCE = 1000  # tasks that wait in the cluster or run there, at most
# Ray binds to loopback alone only where it believes that it cannot have a cluster
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


class Cluster:
    """A Ray cluster; an `Executor`.

    Args:
        address: host:port of its head; "auto": the one of this machine, or a new one of its own,
            which only this machine can reach.
        share: what each run takes of a node.
        jobs: at once, at most; 0: as many as fit.
        fetch: whether nodes do not see the folder of all runs; files then go there and come back.
        command: that does a job; none: the usual one, as each node has it.
    """

    def __init__(
        self,
        address: str,
        share: Share,
        jobs: int = 0,
        *,
        fetch: bool = False,
        command: Sequence[str] | None = None,
    ) -> None:
        self._ray = _connected(address)
        self._fetch = fetch
        self._head = self._ray.get_runtime_context().gcs_address
        self._asked = time.monotonic()
        self._scratch = secrets.token_hex(8)  # of this sweep, on every node
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self.jobs = min(sum(_fitting(node, share) for node in nodes), jobs or 10**6)
        self._title = f"{self.jobs} at once on {len(nodes)} node{'s' * (len(nodes) != 1)} of Ray"
        if self.jobs < 1:
            raise UserError(f"--per-run: no node has {share}; take less")
        self._most = jobs or (2 * self.jobs if fetch else AT_ONCE)
        options = {"num_cpus": share.cpu, "num_gpus": share.gpu, "max_retries": 0}
        options |= {"memory": share.memory} if share.memory else {}
        self._task = self._ray.remote(on_node).options(**options)
        self._threads, self._command = share.cpu, command
        self._refs: dict[Any, str] = {}
        self._kept_out: list[str] = []  # by other sweeps
        self._began: dict[str, float] = {}
        self._held: dict[str, ExitStack] = {}
        self._lost = False
        self._folders: dict[str, Path] = {}

    def __str__(self) -> str:
        return self._title

    def room(self) -> bool:
        """Whether the cluster should be given another job."""
        return len(self._refs) < self._most

    def start(self, key: str, spec: Mapping[str, Any]) -> None:
        """Begin a job; it waits in the cluster until a node has room."""
        files, folder = None, Path(spec["out"]) / key
        if self._fetch:
            folder.mkdir(parents=True, exist_ok=True)
            held = ExitStack()
            try:
                held.enter_context(leased(folder, _refuse, tuple(spec["dead"]) or None))
                files = carried(folder, whole=True)
            except BlockingIOError:
                self._kept_out.append(key)
                return
            except OSError:
                held.close()
                raise
            self._held[key] = held
        self._began[key], self._folders[key] = time.monotonic(), folder
        sent = {**spec, "scratch": self._scratch}
        ref = self._task.remote(sent, self._command, self._threads, files)
        self._refs[ref] = key

    def ended(self, seconds: float) -> dict[str, Ended]:
        """Those that have ended."""
        found = {key: Ended("busy") for key in self._kept_out}
        self._kept_out = []
        if not self._refs:
            return found
        self._look_at_the_head()
        done, _ = self._ray.wait(list(self._refs), num_returns=len(self._refs), timeout=0)
        if not done:
            done, _ = self._ray.wait(list(self._refs), timeout=seconds)
        for ref in done:
            key = self._refs.pop(ref)
            ended = self._result(ref, time.monotonic() - self._began.pop(key))
            try:
                if ended.files:
                    lay_out(self._folders[key], ended.files)
            except OSError as error:
                why = f"{error.filename}: {error.strerror}; make room, and start the sweep again"
                ended = Ended("failed", (why,), ended.seconds, ended.host)
            if key in self._held:
                self._held.pop(key).close()
            found[key] = ended._replace(files=None)
        return found

    def _look_at_the_head(self) -> None:
        """Say so if the head is lost; Ray itself would end this process after a minute."""
        if time.monotonic() - self._asked > HEAD:
            if not _answers(self._head):
                self._lost = True
                raise UserError(
                    f"--ray: the head at {self._head} does not answer any more, and runs end with "
                    "it; the same command on a new cluster goes on from their checkpoints"
                )
            self._asked = time.monotonic()

    def _result(self, ref: Any, seconds: float) -> Ended:
        errors = self._ray.exceptions
        try:
            ended: Ended = self._ray.get(ref)
            return ended
        except errors.TaskCancelledError:
            return Ended("stopped", ("cancelled",), seconds)
        except errors.RayTaskError as error:  # in our own code on the node
            return Ended("failed", tuple(str(error).splitlines()[-5:]), seconds)
        except errors.RayError as error:
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            memory = isinstance(error, errors.OutOfMemoryError)
            return Ended("memory" if memory else "died", (why,), seconds)

    def stop(self, key: str, *, now: bool = False) -> None:
        """Ask a job to save and stop, or end it now."""
        for ref in [ref for ref, own in self._refs.items() if own == key]:
            self._ray.cancel(ref, force=now)

    def close(self) -> None:
        """Leave the cluster, or end one of our own."""
        if self._lost:  # Ray would wait for it for a minute, and then not survive its own end
            atexit.register(os._exit, 2)
        else:
            for ref in self._refs:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(ref, force=True)
            self._ray.shutdown()
        for held in self._held.values():
            held.close()


def _refuse() -> None:
    raise BlockingIOError


def _fitting(node: Mapping[str, float], share: Share) -> int:
    """How many runs a node can have at once."""
    wanted = {"CPU": share.cpu, "GPU": share.gpu, "memory": share.memory}
    return min(int(node.get(name, 0) / part + 1e-9) for name, part in wanted.items() if part)


def on_node(
    spec: dict[str, Any],
    command: Sequence[str] | None,
    threads: int,
    files: Mapping[str, bytes] | None,
) -> Ended:
    """On a node: do a job in a process of its own, and say how it ended.

    files: of the run so far, if the folder of all runs is not seen here; the run is then made in a
    folder of this node, and its files are returned.
    """
    if files is None:
        if not (Path(spec["out"]) / PLANS).is_dir():
            host = socket.gethostname()
            why = f"{host} does not see {spec['out']}; name a folder that all nodes see, or --fetch"
            return Ended("failed", (why,), host=host)
        return _waited(Child(spec, command or WORKER, threads))
    scratch = _own_folder(spec["scratch"])
    folder = scratch / spec["key"]
    if not (folder / "checkpoint" / "state.json").exists():  # else it is of an attempt on this node
        lay_out(folder, files)
    ended = _waited(Child({**spec, "out": str(scratch), "dead": None}, command or WORKER, threads))
    ended = ended._replace(files=carried(folder, whole=ended.how != "done"))
    if ended.how == "done":  # small files stay, for one who comes again since these got lost
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return ended


def _own_folder(name: str) -> Path:
    """A folder of this node for the runs of a sweep, which nobody else can have laid there."""
    place = Path(tempfile.gettempdir()) / f"peerlearn-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise UserError(f"{place}: is not ours; remove it, or set TMPDIR")
    return place / name


def _waited(child: Child) -> Ended:
    """Wait for a process; Ray cancels a task by an interrupt, which lets the process stop.

    The interrupt comes when Python takes its next step, which one that waits for output does not.
    A cluster that was started in the background of a script has inherited that it ignores them.
    """
    with suppress(ValueError):  # not in the main thread: interrupts do not come here
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with ThreadPoolExecutor(1) as aside:
        ended = aside.submit(child.wait)
        while True:
            try:
                while not ended.done():
                    time.sleep(INTERRUPTS)
                return ended.result()
            except KeyboardInterrupt:
                child.stop()


def _connected(address: str) -> Any:
    """The module `ray`, connected."""
    _refuse_unreachable(address)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    own = address == "auto" and not _runs_here()
    if own:  # before Ray is imported
        os.environ.update(LOOPBACK)
        os.environ["RAY_AUTH_MODE"] = "token"  # nobody else on this machine may send it work
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UserError("--ray: Ray is not installed; pip install 'peerlearn[ray]'") from error
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if own:
            ray.init(address="local", include_dashboard=False, **options)
        else:
            ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "; set RAY_AUTH_TOKEN as on its nodes" if "oken" in str(error) else ""
        raise UserError(f"--ray {address}: cannot be joined ({why:.200}){hint}") from error
    return ray


def _runs_here() -> bool:
    """Whether a cluster is known on this machine: by its variable, or by what Ray left behind."""
    if os.environ.get("RAY_ADDRESS"):
        return True
    place = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray"
    try:
        return _answers((place / "ray_current_cluster").read_text().strip())
    except OSError:
        return False


def _refuse_unreachable(address: str) -> None:
    """Say so at once if nobody answers; Ray would try for a long time."""
    address = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not address or address == "local":
        return
    if not _answers(address):
        raise UserError(
            f"--ray {address:.100}: nobody answers there within {CONNECT:g} s; give host:port of a "
            "head that runs (ray start --head), or auto"
        )


def _answers(address: str) -> bool:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--ray: {address!r:.100} is no address; give host:port, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT):
            return True
    except (OSError, UnicodeError):
        return False
