"""A learner that can be pickled and copied, as other libraries expect it of a model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from peerlearn.config.names import NET
from peerlearn.errors import UserError
from peerlearn.live.learner import OpenLearner

OF_THE_MACHINE = ("device", "compile", "peers_at_once")  # settings that no checkpoint holds


class PortableLearner(OpenLearner):
    """An `OpenLearner` that is pickled and copied as the files of its checkpoint.

    What comes out goes on exactly as the original would. A network that a function makes needs a
    function that can be pickled: one with a name, not a lambda. A method of a file of yours
    ("mine.py:Mine") is refused when the pickle is read, as `OpenLearner.restore` refuses it.

    Args:
        name: a method, and after a plus its wrapper.
        net: the name of a network, or a function that makes one for a number of classes.
        settings: all others of `OpenLearner`.

    >>> import pickle, torch
    >>> learner = PortableLearner("er", net="small", memory=50)
    >>> losses = learner.learn(torch.rand(4, 3, 8, 8), ["cat", "dog"] * 2)
    >>> pickle.loads(pickle.dumps(learner)).classes
    ['cat', 'dog']
    """

    _beside: Mapping[str, Any] = {}  # what `restore` has to be told

    def __init__(
        self, name: str, *, net: str | Callable[..., nn.Module] = NET, **settings: Any
    ) -> None:
        super().__init__(name, net=net, **settings)
        self._beside = {key: settings[key] for key in OF_THE_MACHINE if key in settings}
        if not isinstance(net, str):
            self._beside["net"] = net

    def __reduce__(self) -> tuple[Any, ...]:
        with TemporaryDirectory() as folder:
            self.save(folder, self.extra)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        return _restored, (files, self._beside)


def _restored(files: Mapping[str, bytes], beside: Mapping[str, Any]) -> OpenLearner:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        learner = PortableLearner.restore(folder, **beside)
    assert isinstance(learner, PortableLearner)
    learner._beside = beside
    return learner


def portable(settings: Mapping[str, Any] | None, **own: Any) -> PortableLearner:
    """The learner of an adapter, without a window unless somebody asks for one.

    own: the adapter's parameters; settings: what its user sets besides.

    >>> portable({"memory": 5}, name="er", memory=50)
    Traceback (most recent call last):
    peerlearn.errors.UserError: settings: memory does not belong there; take the parameter of that \
name, or leave it out
    """
    if not isinstance(settings, Mapping | None):
        raise UserError(f'settings: need a dict such as {{"lr": 1e-3}}, got {settings!r:.60}')
    for name in (settings or {}).keys() & own.keys():
        instead = "partial_fit's classes=" if name == "labels" else "the parameter of that name"
        raise UserError(f"settings: {name} does not belong there; take {instead}, or leave it out")
    return PortableLearner(**{"window": 0, **own, **(settings or {})})
