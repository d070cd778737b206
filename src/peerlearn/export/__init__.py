"""Trained networks to ship: a folder that answers on a CPU without any code that learns."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.export.exported import Exported as Exported
    from peerlearn.export.write import write_export as write_export

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, {"Exported": "exported", "write_export": "write"})
