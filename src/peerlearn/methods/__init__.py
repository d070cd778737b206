"""The six replay methods by name."""

from typing import Any

from peerlearn.methods.base import Group, Method, Outcome, Progress
from peerlearn.methods.derpp import DERPP
from peerlearn.methods.er import ER
from peerlearn.methods.er_ace import ERACE
from peerlearn.methods.gsa import GSA
from peerlearn.methods.ocm import OCM
from peerlearn.methods.onpro import OnPro

METHODS: dict[str, type[Method[Any]]] = {
    method.name: method for method in (ER, DERPP, ERACE, OCM, GSA, OnPro)
}

__all__ = [
    "DERPP",
    "ER",
    "ERACE",
    "GSA",
    "METHODS",
    "OCM",
    "Group",
    "Method",
    "OnPro",
    "Outcome",
    "Progress",
]
