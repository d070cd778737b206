"""What every method promises, alone and in every wrapper."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Build, learn_some

from peerlearn import METHODS, ClassStream
from peerlearn.checks import PROMISES, Bench, BrokenPromise, check_method
from peerlearn.distill import WRAPPERS
from peerlearn.methods import ER


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", [m + c for m in METHODS for c in ("", "+ccldc")])
def test_every_method_keeps_every_promise(name: str, promise: Any) -> None:
    promise(Bench(name))


@pytest.mark.parametrize("name", [f"{m}+{c}" for m in METHODS for c in WRAPPERS])
def test_every_method_runs_in_every_wrapper(name: str, build: Build, stream: ClassStream) -> None:
    learner = build(name)
    losses = learn_some(learner, stream, 3)[-1]
    assert losses["base"] > 0 or (losses["labels"] > 0 and not learner.distillation.base_weight)
    assert len(learner.peers) == WRAPPERS[name.partition("+")[2]].model_fields["peers"].default


class TestCheckMethod:
    """The list that authors of methods get finds what breaks it."""

    @pytest.fixture(autouse=True)
    def _forget(self) -> Iterator[None]:
        with METHODS.unchanged():
            yield

    def test_a_method_from_outside_that_keeps_all_promises_passes(self) -> None:
        class Careful(ER):
            name = "careless"

        assert check_method(Careful, replay_batch=8) == [p.__name__ for p in PROMISES]

    def test_one_that_draws_from_a_generator_of_its_own_is_caught(self) -> None:
        class Careless(ER):
            name = "careless"

            def draw(self, batch: Any, memory: Any, progress: Any, rng: Any) -> Any:
                rng.manual_seed(random.randrange(1000))
                return super().draw(batch, memory, progress, rng)

        with pytest.raises(BrokenPromise, match="careless: same_seed_same_weights"):
            check_method(Careless)

    def test_one_that_keeps_state_of_its_own_is_caught(self) -> None:
        class Careless(ER):
            name = "careless"
            steps = 0

            def loss(self, peer: Any, draw: Any) -> Any:
                self.steps += 1
                outcome = super().loss(peer, draw)
                return outcome._replace(loss=outcome.loss / self.steps)

        with pytest.raises(BrokenPromise, match="careless: a_checkpoint_goes_on_bit_for_bit"):
            check_method(Careless)

    def test_one_that_changes_the_batch_is_caught(self) -> None:
        class Careless(ER):
            name = "careless"

            def check(self, batch: Any, progress: Any) -> None:
                super().check(batch, progress)
                batch.y.fill_(0)

        with pytest.raises(BrokenPromise, match="input_is_left_untouched"):
            check_method(Careless)
