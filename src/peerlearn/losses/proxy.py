"""Proxy-based contrast (PCR): the rows of a classifier stand for the images of their classes."""

from torch import Tensor
from torch.nn import functional as F


def proxy_contrast(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of log(sum over k of n_k exp(s_k)) - s_y, n_k being the images of class k in the batch.

    Lin et al., CVPR 2023, arXiv 2304.04408. Every image is contrasted with the proxies of all
    images of the batch, its own included, so that a class weighs as often as it is there. Classes
    that are absent do not compete and get no gradient. A batch of one class gives log(B), without
    gradient. logits s: (B, C); labels y: (B,).

    >>> import torch
    >>> proxy_contrast(torch.tensor([[3.0, 7.0], [1.0, 9.0]]), torch.tensor([0, 0])).exp()
    tensor(2.)
    """
    counts = F.one_hot(labels, logits.shape[1]).sum(dim=0)
    log_counts = counts.log()  # -inf where absent
    own = logits.gather(1, labels[:, None])
    return ((logits + log_counts).logsumexp(dim=1, keepdim=True) - own).mean()
