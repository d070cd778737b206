"""Distillation between peers: edges, teachers, wrappers, and the step of CCL-DC."""

from typing import TYPE_CHECKING

from peerlearn.distill.edges import METHOD_BATCH as METHOD_BATCH
from peerlearn.distill.edges import Edge as Edge
from peerlearn.distill.edges import easy_to_hard as easy_to_hard
from peerlearn.distill.edges import hard_to_easy as hard_to_easy
from peerlearn.distill.edges import same_view as same_view
from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.distill.distillation import Distillation as Distillation
    from peerlearn.distill.distillation import Wrapper as Wrapper
    from peerlearn.distill.distillation import WrapperBase as WrapperBase
    from peerlearn.distill.distillation import distillation_of as distillation_of
    from peerlearn.distill.step import distillation_loss as distillation_loss
    from peerlearn.distill.teachers.base import Teacher as Teacher
    from peerlearn.distill.teachers.base import TeacherInput as TeacherInput
    from peerlearn.distill.teachers.base import TeacherSettings as TeacherSettings
    from peerlearn.distill.teachers.base import logits_by_view as logits_by_view
    from peerlearn.distill.teachers.ema import EMASettings as EMASettings

TEACHERS: "Registry[type[Teacher]]" = Registry(
    "teacher", "peerlearn.distill.teachers", "peerlearn.distill.teachers.base:Teacher"
)
WRAPPERS: "Registry[type[WrapperBase]]" = Registry(
    "wrapper", "peerlearn.distill.wrappers", "peerlearn.distill.distillation:WrapperBase"
)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            **dict.fromkeys(
                ("Distillation", "Wrapper", "WrapperBase", "distillation_of"), "distillation"
            ),
            "distillation_loss": "step",
            **dict.fromkeys(
                ("Teacher", "TeacherInput", "TeacherSettings", "logits_by_view"), "teachers.base"
            ),
            "EMASettings": "teachers.ema",
        },
    )
