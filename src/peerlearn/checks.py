"""What every method promises, for authors of methods: `check_method(MyMethod)`.

Our own methods are tested with the same list.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from peerlearn.config.names import split_name
from peerlearn.data.toy import toy_images
from peerlearn.learner.build import build_learner
from peerlearn.learner.online import OnlineLearner
from peerlearn.methods import METHODS
from peerlearn.methods.interface import Method
from peerlearn.nets.small import small_net
from peerlearn.stream.dataset import ClassStream

CLASSES, MEMORY = 4, 20


class BrokenPromise(AssertionError):  # noqa: N818
    """A method does not do what all methods do; says which promise, and how."""


class Bench:
    """A toy stream, four classes in two tasks of ten batches, and learners of one name on it."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name, self.settings = name, settings
        data = toy_images(num_classes=CLASSES)
        self.stream = ClassStream(data, num_tasks=2, batch_size=10, seed=0)

    def learner(self, **changed: Any) -> OnlineLearner:
        """A new learner."""
        usual: dict[str, Any] = {
            "memory": MEMORY,
            "seed": 0,
            "net": partial(small_net, CLASSES, width=4),
        }
        return build_learner(self.name, self.stream.info, **(usual | self.settings | changed))

    def learn(self, learner: OnlineLearner, batches: int = 4) -> list[dict[str, float]]:
        """Learn the first `batches` batches of each task; the losses of each."""
        losses = []
        for task in self.stream:
            for batch, _ in zip(task, range(batches), strict=False):
                losses.append(learner.learn(*batch))
            learner.end_task()
        return losses


def check_method(method: type[Method[Any]] | str, **settings: Any) -> list[str]:
    """Try every promise on a method, alone and with CCL-DC; the promises that it kept.

    Args:
        method: the class, or the name of one that is known.
        settings: of the method, by name.

    Raises:
        BrokenPromise: says which promise was broken, by which name, and how.

    >>> kept = check_method("er")
    >>> "same_seed_same_weights" in kept
    True
    """
    name = method if isinstance(method, str) else _known(method)
    chosen = METHODS[name]
    names = [name, f"{name}+ccldc"] if chosen.gives_logits else [name]
    with _one_thread():
        for one in names:
            for promise in PROMISES:
                try:
                    promise(Bench(one, **settings))
                except BrokenPromise as broken:
                    raise BrokenPromise(f"{one}: {promise.__name__}: {broken}") from None
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"
                    raise BrokenPromise(f"{one}: {promise.__name__}: {why}") from error
    return [promise.__name__ for promise in PROMISES]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Toy networks are too small to share out."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _known(method: type[Method[Any]]) -> str:
    if method.name not in METHODS or METHODS[method.name] is not method:
        METHODS.add(method)
    return method.name


def same_seed_same_weights(bench: Bench) -> None:
    """One seed decides everything."""
    one, two = bench.learner(), bench.learner()
    _expect(bench.learn(one) == bench.learn(two), "the losses of two equal learners differ")
    _expect(_same(_weights(one), _weights(two)), "the weights of two equal learners differ")


def another_seed_other_weights(bench: Bench) -> None:
    """Another seed gives another run."""
    one, two = bench.learner(), bench.learner(seed=1)
    bench.learn(one, 2)
    bench.learn(two, 2)
    _expect(not _same(_weights(one), _weights(two)), "two seeds lead to the same weights")


def global_generators_are_left_alone(bench: Bench) -> None:
    """Learning draws nothing from torch's own generator."""
    before = torch.random.get_rng_state()
    bench.learn(bench.learner(), 3)
    after = torch.random.get_rng_state()
    _expect(torch.equal(after, before), "torch's global generator was used")


def global_generators_decide_nothing(bench: Bench) -> None:
    """What others draw from torch's own generator has no influence."""
    one = bench.learner()
    bench.learn(one, 3)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(123)
        two = bench.learner()
        torch.rand(7)
        bench.learn(two, 3)
    _expect(_same(_weights(one), _weights(two)), "the global generator decides the weights")


def peers_start_different_and_all_learn(bench: Bench) -> None:
    """Every peer has weights of its own, and moves them."""
    learner = bench.learner()
    before = [_weights(learner, i) for i in range(len(learner.peers))]
    bench.learn(learner, 3)
    for i, start in enumerate(before):
        _expect(not _same(start, _weights(learner, i)), f"peer {i} has not learnt")
        for j in range(i):
            same = _same(_weights(learner, i), _weights(learner, j))
            _expect(not same, f"peers {j} and {i} are the same")


def input_is_left_untouched(bench: Bench) -> None:
    """The caller's tensors stay as they are."""
    batch = next(iter(bench.stream.tasks[0]))
    x, y = batch.x.clone(), batch.y.clone()
    learner = bench.learner()
    for _ in range(3):
        learner.learn(*batch)
    _expect(torch.equal(batch.x, x) and torch.equal(batch.y, y), "the batch was changed")


def a_single_image_is_enough(bench: Bench) -> None:
    """A batch may hold one image."""
    learner = bench.learner()
    losses: dict[str, float] = {}
    for task in bench.stream:
        for batch in task:
            losses = learner.learn(batch.x[:1], batch.y[:1])
        learner.end_task()
    _expect(bool(losses), "no step was taken")


def no_replay_learns_from_the_stream_alone(bench: Bench) -> None:
    """With a memory of capacity 0 every step trains on the stream."""
    learner = bench.learner(memory=0)
    _expect(all(bench.learn(learner, 3)), "without a memory some steps were not taken")
    _expect(len(learner.memory) == 0, "images were stored")


def prediction_changes_nothing(bench: Bench) -> None:
    """Asking leaves weights and costs alone."""
    one, two = bench.learner(), bench.learner()
    for batch in bench.stream.tasks[0].batches():
        one.learn(*batch)
        two.learn(*batch)
        two.predict(bench.stream.test_sets[0].x)
        if len(two.memory):
            two.predict_ncm(bench.stream.test_sets[0].x)
    _expect(_same(_weights(one), _weights(two)), "a prediction changed the weights")
    _expect(one.cost == two.cost, "a prediction was counted as learning")


def floats_and_bytes_are_the_same_images(bench: Bench) -> None:
    """Images in [0, 1] and their bytes lead to the same weights."""
    one, two = bench.learner(), bench.learner()
    for batch in list(bench.stream.tasks[0])[:3]:
        one.learn(batch.x, batch.y)
        two.learn((batch.x.float() / 255).numpy(), batch.y.numpy())
    _expect(_same(_weights(one), _weights(two)), "floats and bytes lead to different weights")


def a_checkpoint_goes_on_bit_for_bit(bench: Bench) -> None:
    """A learner that was saved in the middle of a task ends as one that was not."""
    unbroken, broken, resumed = bench.learner(), bench.learner(), bench.learner()
    for batch in _batches(bench, unbroken):
        unbroken.learn(*batch)
    for number, batch in enumerate(_batches(bench, broken)):
        if number == 5:
            break
        broken.learn(*batch)
    with tempfile.TemporaryDirectory() as folder:
        broken.save(folder)
        resumed.load(folder)
    for batch in _batches(bench, resumed, start=5):
        resumed.learn(*batch)
    one, two = _tensors(unbroken), _tensors(resumed)
    differ = sorted(name for name in {**one, **two} if not _equal(one.get(name), two.get(name)))
    _expect(not differ, f"after a resume these differ: {', '.join(differ[:3])}")
    _expect(unbroken.cost == resumed.cost, "after a resume the cost differs")


def peers_side_by_side_learn_as_in_turn(bench: Bench) -> None:
    """Whether peers take turns or compute at the same time changes no bit."""
    one, two = bench.learner(), bench.learner(peers_at_once=2)
    if len(two.peers) == 1:
        return
    _expect(bench.learn(one, 3) == bench.learn(two, 3), "the losses differ side by side")
    _expect(_same(_tensors(one), _tensors(two)), "what is kept differs side by side")
    _expect(two.pool.count == 2, "`loss` or a layer changes what all peers share")


def rehearsal_trains_on_the_memory_alone(bench: Bench) -> None:
    """A step on the memory alone moves weights, is counted, is repeatable, and stores nothing."""
    method = METHODS[split_name(bench.name)[0]]
    if not method.can_rehearse() or not method.uses_memory:
        return
    one, two = bench.learner(), bench.learner()
    for learner in (one, two):
        bench.learn(learner, 2)
    weights, kept, counted = _weights(one), _memory(one), one.cost
    losses = one.rehearse(2)
    _expect(bool(losses) and not _same(weights, _weights(one)), "no step was taken")
    _expect(_same(kept, _memory(one)), "a step on the memory alone changed the memory")
    _expect(one.cost["stream_images"] == counted["stream_images"], "stream images were counted")
    _expect(one.cost["backward_images"] > counted["backward_images"], "its cost is not counted")
    _expect(one.progress.rehearsed == 2, "its steps are not counted")
    with tempfile.TemporaryDirectory() as folder:
        two.rehearse()
        two.save(folder)
        resumed = bench.learner()
        resumed.load(folder)
    resumed.rehearse()
    _expect(_same(_tensors(one), _tensors(resumed)), "after a resume it goes on otherwise")


def it_predicts_before_the_first_batch(bench: Bench) -> None:
    """Predictions can be asked for before anything has been learnt or stored."""
    learner = bench.learner()
    x, y = next(_batches(bench, learner))
    if learner.method.gives_logits:  # others have nothing to compare with
        _expect(learner.predict(x).shape == y.shape, "it does not predict a class for each image")


PROMISES: list[Callable[[Bench], None]] = [
    same_seed_same_weights,
    another_seed_other_weights,
    global_generators_are_left_alone,
    global_generators_decide_nothing,
    peers_start_different_and_all_learn,
    input_is_left_untouched,
    a_single_image_is_enough,
    no_replay_learns_from_the_stream_alone,
    prediction_changes_nothing,
    it_predicts_before_the_first_batch,
    floats_and_bytes_are_the_same_images,
    a_checkpoint_goes_on_bit_for_bit,
    peers_side_by_side_learn_as_in_turn,
    rehearsal_trains_on_the_memory_alone,
]


def _batches(
    bench: Bench, learner: OnlineLearner, start: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Four batches of each task, from number `start` on; tells the learner where tasks end."""
    for task in bench.stream:
        for place, batch in enumerate(list(task)[:4]):
            if 4 * task.index + place >= start:
                yield batch
        if 4 * task.index + 3 >= start:
            learner.end_task()


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenPromise(otherwise)


def _weights(learner: OnlineLearner, peer: int = 0) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in learner.peers[peer].model.named_parameters()}


def _memory(learner: OnlineLearner) -> dict[str, Tensor]:
    return {name: learner.memory[name].clone() for name in learner.memory.columns}


def _tensors(learner: OnlineLearner) -> dict[str, Tensor]:
    return {k: v for k, v in learner.state_dict().items() if isinstance(v, Tensor)}


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)
