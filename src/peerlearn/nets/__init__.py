"""Networks: a ResNet-18, a small net, and what a network of your own must offer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.nets.base import Network as Network
    from peerlearn.nets.base import WithHead as WithHead
    from peerlearn.nets.resnet import ResNet18 as ResNet18
    from peerlearn.nets.small import SmallNet as SmallNet
    from peerlearn.nets.small import small_net as small_net

NETWORKS: Registry[Callable[..., Any]] = Registry(
    "network", __name__, "torch.nn:Module", functions=True
)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "Network": "base",
            "ResNet18": "resnet",
            "SmallNet": "small",
            "WithHead": "base",
            "small_net": "small",
        },
    )
