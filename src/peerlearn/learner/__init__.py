"""The learner, how its peers collaborate, who teaches them, and how all of it is built."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.learner.build import build_learner as build_learner
    from peerlearn.learner.collaboration import METHOD_BATCH as METHOD_BATCH
    from peerlearn.learner.collaboration import Collaboration as Collaboration
    from peerlearn.learner.collaboration import Edge as Edge
    from peerlearn.learner.collaboration import collaboration_loss as collaboration_loss
    from peerlearn.learner.online import OnlineLearner as OnlineLearner
    from peerlearn.learner.snapshot import Snapshot as Snapshot
    from peerlearn.learner.teacher import Teacher as Teacher
    from peerlearn.learner.teacher import TeacherSettings as TeacherSettings
    from peerlearn.learner.teacher import logits_by_view as logits_by_view
    from peerlearn.learner.wrapper import Wrapper as Wrapper
    from peerlearn.learner.wrapper import WrapperBase as WrapperBase
    from peerlearn.learner.wrapper import collaboration_of as collaboration_of

TEACHERS: "Registry[type[Teacher]]" = Registry(
    "teacher", "peerlearn.learner.teachers", "peerlearn.learner.teacher:Teacher"
)
WRAPPERS: "Registry[type[WrapperBase]]" = Registry(
    "wrapper", "peerlearn.learner.wrappers", "peerlearn.learner.wrapper:WrapperBase"
)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "METHOD_BATCH": "collaboration",
            "Collaboration": "collaboration",
            "Edge": "collaboration",
            "OnlineLearner": "online",
            "Snapshot": "snapshot",
            "Teacher": "teacher",
            "TeacherSettings": "teacher",
            "Wrapper": "wrapper",
            "WrapperBase": "wrapper",
            "build_learner": "build",
            "collaboration_loss": "collaboration",
            "logits_by_view": "teacher",
            "collaboration_of": "wrapper",
        },
    )
