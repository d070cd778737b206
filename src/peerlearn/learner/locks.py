"""A lock that is fair: threads that wait while a learner learns must get their turn."""

import threading
from collections import deque
from types import TracebackType

from peerlearn.errors import UserError
from peerlearn.learner.parallel import waiting_caller

_HANDED_OVER = -1  # no thread has this number


class FairLock:
    """A fair, re-entrant lock: threads acquire it in FIFO order.

    Python's own lock lets a thread that releases and acquires again overtake all that wait.

    >>> lock = FairLock()
    >>> with lock, lock:
    ...     print("inside")
    inside
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._holder: int | None = None
        self._depth = 0

    @property
    def is_held(self) -> bool:
        """Whether a thread has it."""
        return self._holder is not None

    def __enter__(self) -> None:
        me, caller = threading.get_ident(), waiting_caller()
        if caller is not None and self._holder == caller:  # its step holds the lock
            raise UserError(
                "a learner cannot be asked from within its own step while peers are side by side; "
                "build it with peers_at_once=1, or run it with --threads 1"
            )
        if self._holder != me:
            with self._guard:
                gate = threading.Lock()
                free = self._holder is None
                if free:
                    self._holder = me
                else:
                    gate.acquire()
                    self._waiting.append(gate)
            if not free:
                self._wait(gate)
                self._holder = me
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._hand_over()

    def _wait(self, gate: threading.Lock) -> None:
        try:
            gate.acquire()
        except BaseException:  # Ctrl-C: leave the queue, or pass on what was just handed over
            with self._guard:
                handed = gate not in self._waiting
                if not handed:
                    self._waiting.remove(gate)
            if handed:
                self._hand_over()
            raise

    def _hand_over(self) -> None:
        with self._guard:
            self._holder = _HANDED_OVER if self._waiting else None
            if self._waiting:
                self._waiting.popleft().release()
