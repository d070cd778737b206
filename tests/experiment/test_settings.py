from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from peerlearn.data import DATASETS
from peerlearn.data.sources import Protocol, Source
from peerlearn.errors import UserError
from peerlearn.experiment.config_file import read_file
from peerlearn.experiment.protocols import published_combinations
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.settings import parse_seeds
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.memory import MEMORIES
from peerlearn.nets import NETWORKS
from peerlearn.records.folder import RunFolder
from peerlearn.records.schema import Config


def flags(**values: Any) -> list[Given]:
    names = {name.replace("__", "."): value for name, value in values.items()}
    return [Given(name, value, "flag", f"--{name}") for name, value in names.items()]


def run_of(method: str = "er+ccldc", **values: Any) -> Resolved:
    return resolve(method, flags(**values))


def test_flags_beat_files_beat_presets_beat_defaults() -> None:
    file = [Given("lr", 0.2, "file", "x.yaml, line 1"), Given("batch", 20, "file", "x.yaml")]
    found = resolve("er+ccldc", [*file, *flags(lr=0.1)])
    for key, value, origin in [
        ("optim.lr", 0.1, "flag"),
        ("stream.batch", 20, "file"),
        ("net.width", 16, "preset"),
        ("updates", 1, "default"),
    ]:
        assert (found.values[key], found.origins[key]) == (value, origin)


def test_all_published_runs_resolve_to_the_published_settings() -> None:
    combinations = published_combinations()
    assert len(combinations) == len(set(combinations)) == 108
    randaugment = {"cifar10": (3, 15), "cifar100": (3, 15), "tiny": (1, 11), "imagenet100": (3, 11)}
    tasks = {"cifar10": 5, "cifar100": 10, "tiny": 100, "imagenet100": 10}
    weights = {"er": (0.5, 2, 4), "derpp": (0.5, 1, 3), "er_ace": (0.5, 1, 4), "gsa": (0.5, 1, 4)}
    weights |= {"ocm": (0.25, 4, 4), "onpro": (0.25, 1, 4)}
    for data, memory, method in combinations:
        found = run_of(method, data=data, memory=memory)
        s = found.values
        base, plus, _ = method.partition("+")
        assert (s["stream.tasks"], s["stream.batch"]) == (tasks[data], 10)
        assert (s["method.replay_batch"], s["net.width"]) == (64, 64)
        adamw = (s["optim.lr"], s["optim.beta1"], s["optim.beta2"], s["optim.weight_decay"])
        assert adamw == ((1e-3, 0.9, 0.99, 1e-4) if base == "ocm" else (5e-4, 0.9, 0.999, 1e-4))
        assert s["net.stem"] == ("7x7" if data == "imagenet100" else "3x3")
        assert s["net.pool"] == ("2x2" if data == "tiny" and base != "onpro" else "global")
        assert s["net.normalise"] == (data == "imagenet100")
        assert (s.get("method.alpha"), s.get("method.beta")) == (
            (0.2, 1.0) if base == "derpp" else (None, None)
        )
        chain = {key: value for key, value in s.items() if key.startswith("collaboration.chain")}
        if plus:
            ops, magnitude = (chain[f"collaboration.chain.{k}"] for k in ("ops", "magnitude"))
            assert (ops, magnitude) == randaugment[data]
            names = ("label_weight", "distill_weight", "temperature")
            assert tuple(s[f"collaboration.{name}"] for name in names) == weights[base]
            assert (s["collaboration.peers"], chain["collaboration.chain.stages"]) == (2, 3)
        else:
            assert not chain
        assert not found.variant  # a published run is a preset


class TestVariants:
    def test_they_are_the_settings_that_leave_the_preset_in_a_fixed_order(self) -> None:
        one = run_of(width=32, lr=0.01, memory=500, threads=1)
        two = run_of(threads=2, lr="1e-2", width="32")
        assert list(one.variant.items()) == [("width", 32), ("lr", 0.01)]
        assert list(two.variant.items()) == list(one.variant.items())

    def test_a_value_equal_to_the_preset_is_none(self) -> None:
        assert not run_of(lr=0.0005, net="resnet18", optimizer="adamw").variant

    def test_another_part_is_one_and_its_own_defaults_are_not(self) -> None:
        assert run_of("er", optimizer="sgd", momentum=0.9).variant == {
            "optimizer": "sgd",
            "momentum": 0.9,
        }
        assert run_of("er", profile="authors").variant == {"profile": "authors"}
        assert run_of("er", memory_policy="class_balanced").variant == {
            "memory_policy": "class_balanced"
        }


class TestNames:
    def test_a_short_name_works_where_it_means_one_thing_only(self) -> None:
        assert run_of(stages=2).values["collaboration.chain.stages"] == 2
        assert run_of(chain__stages=2).values["collaboration.chain.stages"] == 2
        assert run_of(collaboration__chain__stages=2).values["collaboration.chain.stages"] == 2

    def test_a_setting_of_a_method_never_becomes_the_wrappers(self) -> None:
        """`temperature` of a method was CCL-DC's before settings had groups."""
        with pytest.raises(
            UserError, match=r"--temperature: ambiguous.*method.temp.*collaboration"
        ):
            resolve("pcr+ccldc", flags(temperature=2))
        found = resolve("pcr+ccldc", flags(method__temperature=2)).values
        assert (found["method.temperature"], found["collaboration.temperature"]) == (2, 4)

    def test_what_no_method_reads_is_refused_what_one_reads_is_not(self) -> None:
        runs = [resolve(method, flags(stages=2)) for method in ("er", "er+ccldc")]
        refuse_unused(runs)
        with pytest.raises(UserError, match="--stages: er cannot use it"):
            refuse_unused(runs[:1])
        with pytest.raises(UserError, match=r"no setting 'stags'; did you mean stages"):
            refuse_unused([resolve("er", flags(stags=2))])

    def test_the_whole_of_a_methods_optimizer_is_its_preset(self) -> None:
        """Only lr, weight decay and the second beta were, and beta1 was overwritten."""
        from peerlearn import METHODS, AdamW
        from peerlearn.methods import ER

        class Slow(ER):
            name = "slow"
            optim = AdamW(lr=1e-3, beta1=0.5)

        with METHODS.unchanged():
            METHODS.add(Slow)
            found = resolve("slow")
        assert (found.values["optim.beta1"], found.origins["optim.beta1"]) == (0.5, "preset")

    def test_one_setting_by_two_names_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"--optim.lr: is given twice, also as --lr"):
            resolve("er", flags(lr=0.1, optim__lr=0.2))
        again = [*flags(lr=0.1), *flags(lr=0.2)]  # one that is repeated is corrected
        assert resolve("er", again).values["optim.lr"] == 0.2

    def test_a_method_is_named_before_the_flags(self) -> None:
        for name in ("method", "method.name", "collaboration.name"):
            with pytest.raises(UserError, match="name methods before the flags"):
                resolve("er", [Given(name, "derpp", "flag", f"--{name}")])

    def test_advice_names_the_part_that_a_setting_belongs_to(self) -> None:
        with pytest.raises(UserError, match=r"--momentum: er cannot.*belongs to optimizer sgd"):
            refuse_unused([resolve("er", flags(momentum=0.9))])
        with pytest.raises(UserError, match=r"no setting 'optim.lrr'; did you mean lr\?"):
            refuse_unused([resolve("er", flags(optim__lrr=0.9))])


class TestProtocols:
    class Dots(Source):
        """Dots."""

        name = "dots"
        protocol = Protocol((50,), {"net.name": "small", "net.width": 3, "stream.tasks": 2})

        @override
        def read(self, folder: Any, progress: Any) -> Any:
            raise AssertionError

    @pytest.fixture(autouse=True)
    def _known(self) -> Iterator[None]:
        with DATASETS.unchanged(), NETWORKS.unchanged():
            DATASETS.add(self.Dots)
            yield

    def test_a_data_set_may_choose_parts_which_is_no_variant(self) -> None:
        found = run_of("er", data="dots")
        assert (found.values["net.name"], found.values["net.width"]) == ("small", 3)
        assert not found.variant
        assert run_of("er", data="dots", net="resnet18").variant == {"net": "resnet18"}

    def test_what_it_sets_for_one_network_is_not_set_for_another(self) -> None:
        def mlp(num_classes: int, *, width: int = 512) -> None: ...

        NETWORKS.add(mlp)
        found = run_of("er", net="mlp")
        assert found.values["net.width"] == 512  # `mini` wants a slim ResNet-18
        assert found.origins["net.width"] == "default"
        assert run_of("er", data="dots", net="resnet18").values["net.width"] == 64

    @pytest.mark.parametrize("policy", MEMORIES)
    def test_its_memory_size_holds_for_every_policy(self, policy: str) -> None:
        assert run_of("er", data="cifar100", memory_policy=policy).memory == 1000

    def test_what_it_chooses_is_recorded_as_a_preset(self) -> None:
        assert run_of("er", data="dots").origins["net.name"] == "preset"
        assert run_of("er").origins["net.name"] == "default"

    def test_what_it_spells_wrong_is_refused(self) -> None:
        class Dashes(self.Dots):  # type: ignore[name-defined, misc]
            name = "dashes"
            protocol = Protocol(settings={"stream.taks": 2})

        DATASETS.add(Dashes)
        with pytest.raises(UserError, match=r"'stream.taks'; did you mean stream.tasks"):
            run_of("er", data="dashes")


class TestFiles:
    def write(self, folder: Path, text: str) -> Path:
        (folder / "er.yaml").write_text(text)
        return folder / "er.yaml"

    def test_nested_dotted_and_short_names_are_the_same(self, tmp_path: Path) -> None:
        for text in ("optim:\n  lr: 1e-3\n", "optim.lr: 0.001\n", "lr: 0.001\n"):
            found = resolve("er", read_file(self.write(tmp_path, text)))
            assert (found.values["optim.lr"], found.origins["optim.lr"]) == (0.001, "file")

    def test_a_wrong_key_is_named_with_its_line_and_the_nearest_right_one(
        self, tmp_path: Path
    ) -> None:
        file = self.write(tmp_path, "batch: 10\nmemry: 200\n")
        with pytest.raises(UserError, match=r"er.yaml, line 2: there is no .*did you mean memory"):
            refuse_unused([resolve("er", read_file(file))])

    def test_a_wrong_value_is_named_with_its_line(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, "optim:\n  weight_decay: 0\n  lr: fast\n")
        with pytest.raises(UserError, match=r"line 3: lr must be a number, got 'fast'"):
            resolve("er", read_file(file))

    def test_what_it_says_of_another_method_is_left_out(self, tmp_path: Path) -> None:
        text = "method: {name: derpp, alpha: 0.5}\noptim: {name: adamw, lr: 0.1}\n"
        found = resolve("er", read_file(self.write(tmp_path, text)))
        assert not found.unused
        assert found.values["optim.lr"] == 0.1
        assert resolve("derpp", read_file(tmp_path / "er.yaml")).values["method.alpha"] == 0.5

    def test_the_record_of_another_methods_run_gives_only_what_was_chosen(
        self, tmp_path: Path
    ) -> None:
        run = resolve("ocm+ccldc", flags(width=8))
        config = Config(
            data="mini", method="ocm+ccldc", memory=200, seed=0,
            settings=dict(run.values), origins=dict(run.origins),
        )  # fmt: skip
        RunFolder(tmp_path).write_config(config)
        file = read_file(tmp_path / "config.yaml")
        assert resolve("er+ccldc", file).variant == {"width": 8}
        assert resolve("ocm+ccldc", file).variant == {"width": 8}
        assert resolve("er+ccldc", file).values["optim.lr"] == 0.0005

    @pytest.mark.parametrize("content", ["- a list", "a: [1", "just words", "\x00", "", "&a [*a]"])
    def test_one_that_holds_no_settings_is_refused(self, content: str, tmp_path: Path) -> None:
        says = r"er.yaml: (is not YAML|is empty|holds itself|must hold).* `name: value` lines"
        with pytest.raises(UserError, match=says):
            read_file(self.write(tmp_path, content))

    def test_nothing_in_it_is_executed(self, tmp_path: Path) -> None:
        text = f"lr: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n"
        with pytest.raises(UserError, match="is not YAML"):
            read_file(self.write(tmp_path, text))
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("memory", "many", "size must be a whole number, got 'many'"),
        ("memory", "2.5", "size must be a whole number"),
        ("lr", "fast", "lr must be a number, got 'fast'"),
        ("per_sample", "perhaps", "chain.per_sample must be true or false"),
        ("pool", "globl", "pool must be global or 2x2, got 'globl'; did you mean global"),
    ],
)
def test_a_wrong_value_is_named_with_its_flag_and_what_is_wanted(
    name: str, text: str, says: str
) -> None:
    with pytest.raises(UserError, match=f"--{name}: {says}"):
        run_of(**{name: text})


@pytest.mark.parametrize("text", ["", "a", "3-1", "1--2", "-1", "1.5"])
def test_seeds_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)


def test_another_memory_policy_keeps_the_size_that_a_file_gives() -> None:
    file = [
        Given("memory.name", "reservoir", "file", "x.yaml, line 1"),
        Given("memory.size", 77, "file", "x.yaml, line 2"),
    ]
    assert resolve("er", [*file, *flags(memory_policy="class_balanced")]).memory == 77


def test_a_truth_in_place_of_a_number_is_refused_where_it_stands() -> None:
    file = [Given("optim.weight_decay", True, "file", "x.yaml, line 3")]
    with pytest.raises(UserError, match=r"x\.yaml, line 3: weight_decay must be a number"):
        resolve("er", file)


@pytest.mark.parametrize(
    ("method", "crops"),
    [
        ("er", {"method.augment": "full_aligned"}),
        ("mir", {"method.augment": "full"}),
        ("ocm", {"method.aligned_crop": True}),
        ("gsa+ccldc", {"method.aligned_crop": True, "collaboration.chain.aligned": True}),
        ("derpp+ema-chain", {"collaboration.chain.aligned": True}),
    ],
)
def test_in_the_authors_profile_resized_crops_are_aligned(
    method: str, crops: dict[str, Any]
) -> None:
    theirs, ours = (run_of(method, profile=name).values for name in ("authors", "paper"))
    assert {name: theirs[name] for name in crops} == crops
    assert not any(ours[name] in (True, "full_aligned") for name in crops)
