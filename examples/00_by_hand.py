"""ER and CCL-DC by hand: every step in plain torch, to read beside the paper.

CCL-DC is Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600, whose equations are numbered
here as there. Peerlearn lends the network and the augmentations, nothing else. The steps equal
those of `build_learner("er", ...)` and `build_learner("er+ccldc", ...)` bit for bit, as
tests/test_by_hand.py shows. Run `python examples/00_by_hand.py` to train both on toy images.
"""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.augment import ViewChain, full
from peerlearn.nets import small_net

REPLAY_BATCH = 64  # memory images per step, beside the 10 of the stream
LAMBDA1, LAMBDA2, TAU = 0.5, 2.0, 4.0  # weights and temperature of Eq. 9 and 10, for ER
EDGES = (0, 0), (0, 1), (1, 2), (2, 3)  # (student's view, teacher's view): Eq. 9, then Eq. 10


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return the generator of one purpose; no use of it shifts the draws of another."""
    digest = hashlib.sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


class Reservoir:
    """A replay buffer that holds a uniform sample of all images offered so far."""

    def __init__(self, capacity: int, rng: torch.Generator) -> None:
        self.capacity, self.rng, self.seen = capacity, rng, 0
        self.rows: dict[int, tuple[Tensor, Tensor]] = {}  # raw image (uint8) and label, by slot

    def add(self, x: Tensor, y: Tensor) -> None:
        """Offer a batch: the s-th image ever offered is stored with probability capacity / s."""
        uniform = torch.rand(len(x), generator=self.rng, dtype=torch.float64).tolist()
        for image, label, u in zip(x, y, uniform, strict=True):
            slot = self.seen if self.seen < self.capacity else int(u * (self.seen + 1))
            if slot < self.capacity:
                self.rows[slot] = image, label
            self.seen += 1

    def draw(self, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` different images and their labels, or all of them if there are fewer."""
        x, y = (torch.stack(column) for column in zip(*self.rows.values(), strict=True))
        order = torch.randperm(len(y), generator=rng) if len(y) > count else torch.arange(len(y))
        return x[order[:count]], y[order[:count]]


class Peer:
    """A network with an optimizer of its own, which is never reset."""

    def __init__(self, build: Callable[[], nn.Module], rng: torch.Generator) -> None:
        with torch.random.fork_rng():  # initialisation draws from torch's global generator
            torch.manual_seed(int(torch.randint(2**62, (), generator=rng)))
            self.net = build()
        weights = self.net.parameters()  # fused: torch's other variants of AdamW round differently
        self.optimizer = torch.optim.AdamW(weights, lr=5e-4, weight_decay=1e-4, fused=True)


class ER:
    """Experience replay: one network learns images of the stream and of the memory together."""

    num_peers = 1

    def __init__(self, build: Callable[[], nn.Module], capacity: int, seed: int = 0) -> None:
        self.peers = [Peer(build, generator(seed, f"network {i}")) for i in range(self.num_peers)]
        self.memory = Reservoir(capacity, generator(seed, "memory"))
        self.draws, self.view_draws = generator(seed, "draws"), generator(seed, "views")

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return memory images, then the stream's, as floats in [0, 1], and all their labels."""
        replayed, labels = self.memory.draw(REPLAY_BATCH, self.draws)
        return torch.cat([replayed, x]) / 255, torch.cat([labels, y])

    def learn(self, x: Tensor, y: Tensor) -> None:
        """Take one step on a stream batch: images (B, 3, H, W) uint8 and labels (B,)."""
        if self.memory.seen:  # the first batch has nothing to replay and is only stored
            images, labels = self.draw(x, y)
            peer = self.peers[0]
            logits = peer.net(full(images, self.draws))
            F.cross_entropy(logits, labels).backward()  # one mean over memory and stream
            peer.optimizer.step()
            peer.optimizer.zero_grad()
        self.memory.add(x, y)  # after the step: no batch replays itself

    def logits(self, x: Tensor) -> Tensor:
        """Return the mean of all peers' logits, (B, C); the largest names the class."""
        with torch.no_grad():
            logits = torch.stack([peer.net.eval()(x / 255) for peer in self.peers]).mean(dim=0)
        for peer in self.peers:
            peer.net.train()
        return logits


class CCLDC(ER):
    """ER with CCL-DC: two networks, each the student of the other, which sees harder views."""

    num_peers = 2

    def learn(self, x: Tensor, y: Tensor) -> None:
        """Take one step per peer on a stream batch: Algorithm 1, in both directions."""
        if self.memory.seen:
            images, labels = self.draw(x, y)
            augmented = full(images, self.draws)  # both peers see the same pixels
            views = ViewChain(stages=3, ops=3, magnitude=15)(images, self.view_draws)  # X0, ..., X3
            base = [F.cross_entropy(peer.net(augmented), labels) for peer in self.peers]
            logits = [logits_on(views, peer.net) for peer in self.peers]
            for base_loss, student, other in zip(base, logits, reversed(logits), strict=True):
                teacher = [on_view.detach() for on_view in other]
                # L_CCL (Eq. 9) is labels and teacher on X0; L_DC (Eq. 10) adds the harder views
                label_loss = torch.stack([F.cross_entropy(s, labels) for s in student]).sum()
                distilled = torch.stack([distill(student[i], teacher[j]) for i, j in EDGES]).sum()
                # Eq. 11: L_Baseline + L_CCL + L_DC
                loss = base_loss + LAMBDA1 * label_loss + LAMBDA2 * distilled
                loss.backward()
            for peer in self.peers:
                peer.optimizer.step()
                peer.optimizer.zero_grad()
        self.memory.add(x, y)


def logits_on(views: list[Tensor], net: nn.Module) -> list[Tensor]:
    """Return the logits on each view; one forward per view, so that batch norm mixes no views."""
    hardest = net(views[-1])  # first, as in the authors' code: weighs least in running statistics
    return [*map(net, views[:-1]), hardest]


def distill(student: Tensor, teacher: Tensor) -> Tensor:
    """Return D_KL of Eq. 9 and 10: KL(teacher || student), times TAU**2 as in the authors' code."""
    log_p, log_q = F.log_softmax(student / TAU, dim=1), F.log_softmax(teacher / TAU, dim=1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True) * TAU**2


if __name__ == "__main__":
    from peerlearn import ClassStream, toy_images

    stream = ClassStream(toy_images(num_classes=10), num_tasks=5)
    for method in ER, CCLDC:
        learners = [method(lambda: small_net(10), capacity=100, seed=seed) for seed in range(3)]
        for x, y in (batch for task in stream for batch in task):
            for learner in learners:
                learner.learn(x, y)
        pairs = [(learner, test) for learner in learners for test in stream.test_sets]
        hits = torch.cat([learner.logits(test.x).argmax(1) == test.y for learner, test in pairs])
        print(f"{method.__name__}: accuracy {hits.float().mean():.1%} (mean of 3 seeds)")
