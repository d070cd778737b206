"""Other libraries' ways in: scikit-learn's and River's classifiers, and sources of batches."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.adapters.river import RiverClassifier as RiverClassifier
    from peerlearn.adapters.sklearn import PeerClassifier as PeerClassifier
    from peerlearn.adapters.sources import from_hugging_face as from_hugging_face
    from peerlearn.adapters.sources import from_loader as from_loader

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "PeerClassifier": "sklearn",
            "RiverClassifier": "river",
            "from_hugging_face": "sources",
            "from_loader": "sources",
        },
    )
