"""Losses against numbers from the authors' functions, and against what they promise."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.losses import (
    balance_weights,
    balanced_cross_entropy,
    class_means,
    cross_entropy_among,
    distill,
    mixup_cross_entropy,
    nt_xent,
    nt_xent_new,
    prototype_contrast,
    similarity,
    unit,
)


def wave(count: int, *shape: int, scale: float = 1.0, step: float = 1.0, fn: str = "sin") -> Tensor:
    values = getattr(torch, fn)(step * torch.arange(count, dtype=torch.float32))
    return scale * values.reshape(shape)


def close(value: Tensor, expected: float | list[float]) -> None:
    torch.testing.assert_close(value, torch.tensor(expected), rtol=1e-5, atol=1e-6)


class TestDistill:
    student, teacher = wave(20, 4, 5), wave(20, 4, 5, fn="cos")

    def test_it_equals_the_authors_function(self) -> None:
        close(distill(self.student, self.teacher, temperature=3), 0.4559295)
        close(distill(self.student, self.teacher, temperature=4), 0.4590002)
        close(distill(self.teacher, self.student, temperature=3), 0.4635171)

    def test_its_gradient_equals_the_authors(self) -> None:
        student = self.student.clone().requires_grad_()
        distill(student, self.teacher, temperature=3).backward()
        expected = [-0.073617, 0.0003316, 0.0536185, 0.0347236, -0.0150567]
        assert student.grad is not None
        torch.testing.assert_close(student.grad[0], torch.tensor(expected), rtol=1e-4, atol=1e-7)

    def test_a_student_who_agrees_has_nothing_to_learn(self) -> None:
        close(distill(self.student, self.student, temperature=4), 0.0)

    def test_a_student_never_pushes_its_teacher(self) -> None:
        student, teacher = (torch.randn(4, 10, requires_grad=True) for _ in range(2))
        distill(student, teacher, temperature=4.0).backward()
        assert teacher.grad is None
        assert student.grad is not None

    def test_it_is_the_softened_divergence_times_the_squared_temperature(self) -> None:
        plain = distill(self.student / 3, self.teacher / 3, temperature=1)
        torch.testing.assert_close(distill(self.student, self.teacher, temperature=3), 9 * plain)


class TestCrossEntropyAmong:
    stream = wave(24, 4, 6, scale=2, step=0.9)
    memory = wave(30, 5, 6, scale=2, step=0.5, fn="cos")
    labels = torch.tensor([2, 3, 2, 3])

    def test_it_equals_the_authors_er_ace_loss(self) -> None:
        active_classes = torch.tensor([False, False, True, True, False, False])
        close(cross_entropy_among(active_classes, self.stream, self.labels), 0.6848514)
        close(cross_entropy_among(None, self.memory, torch.tensor([0, 1, 2, 0, 1])), 2.15748)

    def test_classes_that_do_not_compete_get_no_gradient(self) -> None:
        logits = self.stream.clone().requires_grad_()
        active_classes = torch.tensor([False, True, True, True, False, True])
        cross_entropy_among(active_classes, logits, self.labels).backward()
        assert logits.grad is not None
        assert (logits.grad[:, ~active_classes] == 0).all()
        assert (logits.grad[:, active_classes] != 0).all()

    def test_without_a_choice_all_classes_compete(self) -> None:
        everyone = torch.ones(6, dtype=torch.bool)
        torch.testing.assert_close(
            cross_entropy_among(everyone, self.stream, self.labels),
            F.cross_entropy(self.stream, self.labels),
        )


class TestMixup:
    logits, y = wave(20, 4, 5), torch.tensor([0, 1, 2, 3])
    others = torch.tensor([4, 4, 2, 0])

    def test_an_image_of_one_class_is_judged_plainly(self) -> None:
        mixed = mixup_cross_entropy(self.logits, self.y, self.others, torch.zeros(4))
        torch.testing.assert_close(mixed, F.cross_entropy(self.logits, self.y))

    def test_it_equals_the_loss_against_soft_labels(self) -> None:
        share = torch.tensor([0.1, 0.3, 0.5, 0.9])
        soft = (
            F.one_hot(self.y, 5) * (1 - share)[:, None] + F.one_hot(self.others, 5) * share[:, None]
        )
        mixed = mixup_cross_entropy(self.logits, self.y, self.others, share)
        torch.testing.assert_close(mixed, F.cross_entropy(self.logits, soft))


class TestBalance:
    def test_weights_are_one_where_pull_equals_push(self) -> None:
        weights = balance_weights(torch.tensor([5.0]), torch.tensor([2.0]), torch.tensor([3.0]))
        close(weights, [1.0])

    def test_weights_follow_pull_over_push(self) -> None:
        count = torch.tensor([14.0, 16.0, 4.0, 4.0])
        own = torch.tensor([7.7172756, 7.8525801, 1.0969353, 0.7172788])
        others = torch.tensor([6.5347757, 7.8835325, 2.6463561, 3.5512652])
        ratio = torch.tensor([0.9614292, 1.0334733, 1.0970045, 0.9243807])
        close(balance_weights(count, own, others), (2 / (1 + torch.exp(1 - ratio))).tolist())

    def test_a_class_that_nothing_has_pushed_weighs_one(self) -> None:
        zero = torch.zeros(1)
        close(balance_weights(zero, zero, zero), [1.0])
        close(balance_weights(torch.ones(1), zero, zero), [1.0])

    def test_the_mean_is_over_images_not_over_weights(self) -> None:
        logits, y = wave(20, 4, 5), torch.tensor([0, 1, 2, 3])
        doubled = balanced_cross_entropy(logits, y, torch.full((5,), 2.0))
        torch.testing.assert_close(doubled, 2 * F.cross_entropy(logits, y))


class TestNTXent:
    sim = (lambda z: z @ z.T)(F.normalize(wave(64, 8, 8), dim=1))
    twice = torch.tensor([0, 1, 0, 2]).repeat(2)
    once = torch.tensor([0, 1, 0, 2, 1, 0, 2, 2])

    def test_all_three_forms_equal_the_authors_functions(self) -> None:
        close(nt_xent_new(self.sim, self.twice), 23.3151226)
        close(nt_xent(self.sim, self.twice), 5.6033783)
        close(nt_xent(self.sim, self.once), 6.8769331)

    def test_the_row_maximum_includes_the_diagonal(self) -> None:
        e = math.exp(-2 / 0.07)
        expected = 2 * -math.log(e / (7 * e + 1e-8) + 1e-8) - math.log(1e-8)
        labels = torch.tensor([0, 1, 2, 3]).repeat(2)
        value = nt_xent_new(2 * torch.eye(8), labels)
        close(value, 38.7222)
        close(value, expected)

    def test_the_diagonal_of_the_new_form_gets_no_gradient(self) -> None:
        sim = (0.1 * self.sim).requires_grad_()
        nt_xent_new(sim, self.twice).backward()
        assert sim.grad is not None
        assert (sim.grad.diagonal() == 0).all()
        assert (sim.grad != 0).any()

    def test_the_two_halves_may_change_places(self) -> None:
        order = torch.arange(8).roll(4)
        swapped = nt_xent_new(self.sim[order][:, order], self.twice)
        torch.testing.assert_close(swapped, nt_xent_new(self.sim, self.twice))

    def test_similarity_adds_a_slice_of_the_features(self) -> None:
        z, v = unit(torch.randn(6, 4)), unit(torch.randn(6, 9))
        expected = 0.5 * (z @ v[:, 3:7].T) + 0.5 * (z @ z.T)
        torch.testing.assert_close(similarity(z, v, offset=3, weight=0.5), expected)


class TestPrototypes:
    z1 = F.normalize(wave(48, 8, 6, step=0.8), dim=1)
    z2 = F.normalize(wave(48, 8, 6, step=0.5, fn="cos"), dim=1)
    labels = torch.tensor([0, 1, 1, 3, 0, 3, 1, 0])

    def test_means_equal_the_authors_and_absent_classes_have_zeros(self) -> None:
        means, others = (class_means(z, self.labels, 4) for z in (self.z1, self.z2))
        close(means[0], [0.2333403, 0.3578551, 0.2652998, 0.0118171, -0.2488338, -0.358545])
        close(others[3], [-0.4803649, -0.5676915, -0.5160275, -0.3380219, -0.0772568, 0.2024235])
        assert (means[2] == 0).all()

    def test_contrast_equals_the_authors_function(self) -> None:
        present = [0, 1, 3]
        means, others = (class_means(z, self.labels, 4)[present] for z in (self.z1, self.z2))
        close(prototype_contrast(means, others), 2.525728)

    def test_a_single_class_has_nothing_to_tell_apart(self) -> None:
        close(prototype_contrast(torch.randn(1, 6), torch.randn(1, 6)), 0.0)

    @pytest.mark.parametrize("k", [2, 5])
    def test_orthogonal_aligned_classes_give_the_known_value(self, k: int) -> None:
        expected = math.log(1 + (2 * k - 2) * math.exp(-2))
        close(prototype_contrast(3 * torch.eye(k), torch.eye(k)), expected)
