from functools import partial
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, weights
from torch import Tensor
from torch.nn import functional as F

from peerlearn import (
    ClassStream,
    Distillation,
    Edge,
    OnlineLearner,
    UserError,
    ViewChain,
    small_net,
)
from peerlearn.distill import METHOD_BATCH, WRAPPERS, distillation_loss, distillation_of
from peerlearn.distill.distillation import WEIGHTS
from peerlearn.losses import distill
from peerlearn.methods.interface import LabelledImages
from peerlearn.records.schema import DIRECTIONS

NET = partial(small_net, 4, width=4)
CCL, CHAIN = (Edge(0, 0),), (Edge(0, 1), Edge(1, 2), Edge(2, 3))


def logits(seed: int, views: int = 4) -> dict[int, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {view: torch.randn(6, 5, generator=rng) for view in range(views)}


class TestTheLoss:
    student, teacher, y = logits(0), logits(1), torch.tensor([0, 1, 2, 3, 4, 0])
    group = LabelledImages(torch.zeros(6), y)

    def test_it_is_the_sum_written_out(self) -> None:
        s, t = self.student, self.teacher
        c = distillation_of("ccldc", "er")
        labels = sum(F.cross_entropy(view, self.y) for view in s.values())
        pairs = [(s[0], t[0]), (s[0], t[1]), (s[1], t[2]), (s[2], t[3])]
        distilled = sum(distill(a, b, temperature=4) for a, b in pairs)
        torch.testing.assert_close(
            distillation_loss(
                s, {"peer": t}, self.group, c.labelled_views, c.view_edges, c.temperature
            ).weighted(c),
            0.5 * labels + 2 * distilled,
        )

    def test_in_the_authors_profile_the_equal_view_is_the_hardest(self) -> None:
        c = distillation_of("ccldc", "er", profile="authors")
        assert set(c.edges) == {Edge(3, 3), *CHAIN}
        assert c.base_weight == 0.5
        assert distillation_of("ccldc", "gsa", profile="authors").base_weight == 1

    def test_masked_classes_are_not_masked_in_distillation(self) -> None:
        c = distillation_of("ccldc", "er_ace")
        active_classes = torch.tensor([True, True, True, True, True])
        for hidden in (0, 3):
            active_classes[hidden] = False
        y = torch.tensor([1, 2, 4, 1, 2, 4])
        student = {v: z.clone().requires_grad_() for v, z in self.student.items()}
        group = LabelledImages(torch.zeros(6), y, active_classes)
        found = distillation_loss(
            student, {"peer": self.teacher}, group, c.labelled_views, c.view_edges, c.temperature
        )
        found.labels.backward(retain_graph=True)
        assert all(
            (z.grad is not None and z.grad[:, ~active_classes] == 0).all() for z in student.values()
        )
        found.distill.backward()
        assert all(
            (z.grad[:, ~active_classes] != 0).any()
            for z in [*student.values()][:3]
            if z.grad is not None
        )


class TestPresets:
    def test_ablations_are_other_lists_of_edges(self) -> None:
        for name, edges, peers, teacher in [
            ("ccldc", [(0, 0), (0, 1), (1, 2), (2, 3)], 2, "peer"),
            ("ccl", [(0, 0)], 2, "peer"),
            ("ccldc-easy-to-hard", [(0, 0), (1, 0), (2, 1), (3, 2)], 2, "peer"),
            ("ccldc-same-difficulty", [(0, 0), (1, 1), (2, 2), (3, 3)], 2, "peer"),
            ("sdc", [(0, 1), (1, 2), (2, 3)], 1, "self"),
            ("sdc-easy-to-hard", [(1, 0), (2, 1), (3, 2)], 1, "self"),
            ("multiview", [], 1, "peer"),
            ("untrained", [(METHOD_BATCH, METHOD_BATCH)], 1, "frozen"),
        ]:
            c = distillation_of(name, "er")
            assert c.edges == tuple(Edge(*ends, by=teacher) for ends in edges), name
            assert c.peers == peers

    @pytest.mark.parametrize("name", DIRECTIONS)
    def test_a_name_with_a_direction_is_a_preset(self, name: str) -> None:
        base = name.partition("-")[0]
        for profile in ("paper", "authors"):
            expected = distillation_of(base, "er", profile=profile, direction=DIRECTIONS[name])
            assert distillation_of(name, "er", profile=profile) == expected

    def test_runs_recorded_without_a_direction_are_known_for_every_wrapper_that_has_one(
        self,
    ) -> None:
        fields = {name: wrapper.model_fields.get("direction") for name, wrapper in WRAPPERS.items()}
        assert {name: one.default for name, one in fields.items() if one} == DIRECTIONS

    @pytest.mark.parametrize("method", WEIGHTS)
    def test_weights_are_the_published_ones(self, method: str) -> None:
        c = distillation_of("ccldc", method)
        assert {name: getattr(c, name) for name in WEIGHTS["er"]} == WEIGHTS[method]

    def test_stages_may_be_any_number(self) -> None:
        for stages in (0, 1, 5):
            c = distillation_of("ccldc", "er", chain=ViewChain(stages=stages))
            assert len(c.edges) == stages + 1
        assert distillation_of("ccldc", "er", chain=ViewChain(stages=0)) == distillation_of(
            "ccl", "er"
        )

    def test_an_unknown_name_meets_the_nearest_known_one(self) -> None:
        with pytest.raises(UserError, match="did you mean ccldc"):
            distillation_of("ccdlc", "er")


class TestPeers:
    @pytest.mark.parametrize("method", ["er", "er_ace", "ocm", "gsa"])  # the others share a state
    def test_without_weights_a_peer_learns_as_if_it_were_alone(
        self, method: str, build: Build, stream: ClassStream
    ) -> None:
        alone = build(method)
        pair = OnlineLearner(alone.method, NET, Distillation(peers=2), memory=20, seed=0)
        learn_some(alone, stream)
        learn_some(pair, stream)
        assert same(weights(alone), weights(pair, 0))

    def test_any_number_of_peers_may_teach_each_other(
        self, build: Build, stream: ClassStream
    ) -> None:
        one = build("er_ace")
        c = Distillation(peers=3, edges=CCL + CHAIN, label_weight=0.5, distill_weight=1)
        three = OnlineLearner(one.method, NET, c, memory=20)
        assert learn_some(three, stream)[-1]["distill"] > 0
        x = stream.test_sets[0].x
        mean = torch.stack([three.logits(x, peer=i) for i in range(3)]).mean(dim=0)
        torch.testing.assert_close(three.logits(x), mean)

    def test_both_peers_teach_before_either_steps(self, build: Build, stream: ClassStream) -> None:
        """With equal peers the two losses are equal too; after a step they could not be."""
        learner = build("er+ccldc")
        one, two = (peer.model for peer in learner.peers)
        two.load_state_dict(one.state_dict())
        batches = list(stream.tasks[0])
        learner.learn(*batches[0])
        learner.learn(*batches[1])
        assert same(weights(learner, 0), weights(learner, 1))

    def test_the_frozen_teacher_never_moves(self, build: Build, stream: ClassStream) -> None:
        learner = build("er+untrained")
        (frozen,) = learner.teachers["frozen"].networks
        before = {k: v.clone() for k, v in frozen.named_parameters()}
        learn_some(learner, stream)
        assert same(before, dict(frozen.named_parameters()))

    def test_a_frozen_teacher_changes_what_is_learnt(
        self, build: Build, stream: ClassStream
    ) -> None:
        taught, alone = build("er+untrained"), build("er")
        learn_some(taught, stream)
        learn_some(alone, stream)
        assert not same(weights(taught), weights(alone))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"peers": 0}, "peers must be at least 1"),
        ({"peers": 2, "edges": (Edge(0, 4),)}, "does not have; views are 0 to 3"),
        ({"peers": 1, "edges": CCL}, "needs at least 2 peers"),
        (
            {"peers": 2, "edges": (Edge(METHOD_BATCH, METHOD_BATCH),)},
            "only these teachers answer: frozen",
        ),
        ({"peers": 2, "edges": (Edge(0, 0, "oracle"),)}, "no teacher 'oracle'"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"label_weight": -1.0}, "label_weight must be at least 0"),
    ],
)
def test_a_distillation_that_cannot_be_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Distillation(**settings)
