"""Networks: a ResNet-18, a small net, and what a network of your own must offer."""

from peerlearn.nets.base import Network, WithHead, small_net
from peerlearn.nets.resnet import ResNet18

__all__ = ["Network", "ResNet18", "WithHead", "small_net"]
