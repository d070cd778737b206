"""Distillation: the divergence of a student from its teacher."""

from torch import Tensor
from torch.nn import functional as F


def distill(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """KL(teacher || student) of softened answers, mean over the batch; logits are (B, C).

    No gradient reaches `teacher`. The factor temperature**2 keeps gradients on one scale: the
    paper's equation leaves it out, its authors' code and the published weights have it.
    """
    log_p = F.log_softmax(student / temperature, dim=1)
    log_q = F.log_softmax(teacher.detach() / temperature, dim=1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True) * temperature**2
