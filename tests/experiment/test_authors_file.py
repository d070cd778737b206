"""Configuration files of the authors' release, made here in their format from a table of facts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import command, run_small

from peerlearn.cli.run import methods_of
from peerlearn.errors import UserError
from peerlearn.experiment.authors_file import Imported, read_authors_file
from peerlearn.experiment.protocols import published_combinations
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.records.folder import RunFolder
from peerlearn.safe_yaml import MOST_YAML_BYTES


class Data(NamedTuple):
    """What their files say of a data set, and what follows from it."""

    classes: int
    tasks: int
    randaugment: tuple[int, int]  # operations, magnitude
    said: Mapping[str, Any] = {}  # in the file, without effect
    net: Mapping[str, Any] = {}  # as their code builds it


class Learner(NamedTuple):
    """What their files say of a method, and what they leave to the parser or fix in the code."""

    name: str
    said: Mapping[str, Any]
    weights: tuple[float, float, float]  # lambda1, lambda2, temperature
    says_lambda2: bool
    idle: frozenset[str] = frozenset()  # further settings in the file that have no effect
    settings: Mapping[str, Any] = {}  # of ours: method.*


ADAMW = {"optim": "AdamW", "learning_rate": 0.0005, "momentum": 0, "weight_decay": 0.0001}
DATA = {
    "cifar10": Data(10, 5, (3, 15)),
    "cifar100": Data(100, 10, (3, 15)),
    "tiny": Data(200, 100, (1, 11), {"img_size": 64, "dim_in": 2048}, {"net.pool": "2x2"}),
    "imagenet100": Data(
        100, 10, (3, 11), {"img_size": 224}, {"net.stem": "7x7", "net.normalise": True}
    ),
}
LEARNERS = {
    "er": Learner(
        "ER", ADAMW | {"tf_type": "full"}, (0.5, 2, 4), True, settings={"augment": "full_aligned"}
    ),
    "derpp": Learner(
        "DERPP",
        ADAMW | {"momentum": 0.9, "derpp_alpha": 0.2, "derpp_beta": 1.0, "tf_type": "partial"},
        (0.5, 1, 3),
        False,
        settings={"alpha": 0.2, "beta": 1.0, "augment": "crop_flip_shared"},
    ),
    "er_ace": Learner(
        "ERACE",
        ADAMW | {"tf_type": "partial"},
        (0.5, 1, 4),
        True,
        settings={"augment": "crop_flip_shared", "unseen": "first_batch_ids"},
    ),
    "ocm": Learner(
        "OCM",
        ADAMW | {"learning_rate": 0.001, "weight_decay": 0, "tf_type": "full", "proj_dim": 128},
        (0.25, 4, 4),
        True,
        settings={"similarity_weight": 0.5, "aligned_crop": True},
    ),
    "gsa": Learner(
        "GSA",
        ADAMW | {"tf_type": "partial"},
        (0.5, 1, 4),
        False,
        frozenset({"tf_type"}),
        settings={"aligned_crop": True},
    ),
    "onpro": Learner(
        "OnPro",
        ADAMW | {"tf_type": "full"},
        (0.25, 1, 4),
        False,
        frozenset({"tf_type", "mem_batch_size", "nf"}),
    ),
}


def said(data: str, memory: int, method: str) -> dict[str, Any]:
    """What their file for this run holds."""
    base, plus, _ = method.partition("+")
    facts, learner = DATA[data], LEARNERS[base]
    found = {"learner": learner.name + ("CCLDC" if plus else ""), "dataset": data, **learner.said}
    found |= {**facts.said, "n_classes": facts.classes, "n_tasks": facts.tasks, "mem_size": memory}
    found |= {"mem_batch_size": 64, "batch_size": 10, "nf": 64, "training_type": "inc", "seed": 0}
    if plus:
        found |= dict(zip(("randaug_n", "randaug_m"), facts.randaugment, strict=True))
    if plus and learner.says_lambda2:
        found["kd_lambda"] = learner.weights[1]
    return found


def meant(data: str, memory: int, method: str) -> dict[str, Any]:
    """What their code makes of it, by our names."""
    base, _, wrapper = method.partition("+")
    facts, learner = DATA[data], LEARNERS[base]
    found = {"data": data, "profile": "authors", "seed": 0, "updates": 1}
    found |= {"memory.name": "reservoir", "memory.size": memory}
    found |= {"stream.tasks": facts.tasks, "stream.batch": 10, "stream.blur": 0}
    found |= {"net.name": "resnet18", "net.width": 64, "net.stem": "3x3", "net.pool": "global"}
    found |= {"net.normalise": False, **({} if (data, base) == ("tiny", "onpro") else facts.net)}
    found |= {"method.name": base, "collaboration.name": wrapper or None}
    found |= {"method.replay_batch": 64}
    found |= {f"method.{name}": value for name, value in learner.settings.items()}
    lr, decay, beta2 = 0.0005, 0.0001, 0.999
    if base == "ocm":  # fixed where it is alone, from the file where it has a peer
        lr, decay, beta2 = (0.001, 0, 0.999) if wrapper else (0.001, 0.0001, 0.99)
    found |= {"optim.name": "adamw", "optim.lr": lr, "optim.weight_decay": decay}
    found |= {"optim.beta1": 0.9, "optim.beta2": beta2}
    if wrapper:
        weights = zip(
            ("label_weight", "distill_weight", "temperature"), learner.weights, strict=True
        )
        theirs = {"peers": 2, **dict(weights), "equal_view": "hardest", "scale_base": base == "er"}
        ops, magnitude = facts.randaugment
        theirs |= {"chain.stages": 3, "chain.ops": ops, "chain.magnitude": magnitude}
        theirs |= {"chain.per_sample": False, "chain.first": None, "chain.aligned": True}
        theirs |= {"direction": "hard-to-easy"}  # the teacher sees the harder view
        found |= {f"collaboration.{name}": value for name, value in theirs.items()}
    return found


def write(folder: Path, content: Mapping[str, Any]) -> Path:
    """A file in their format."""
    path = folder / "theirs.yaml"
    path.write_text("".join(f"{key:16}:       {value}\n" for key, value in content.items()))
    return path


def resolved(imported: Imported, *flags: Given) -> Resolved:
    """The run, as the command would make it."""
    (method,) = methods_of(imported.given)
    run = resolve(method, [*imported.given, *flags])
    refuse_unused([run])
    run.check()
    return run


def flag(name: str, value: Any) -> Given:
    return Given(name, value, "flag", f"--{name}")


def with_changes(folder: Path, method: str = "er+ccldc", **changes: Any) -> Imported:
    """An import of a file that differs from the published one; None leaves a key out."""
    content = said("cifar100", 2000, method) | changes
    return read_authors_file(write(folder, {k: v for k, v in content.items() if v is not None}))


@pytest.mark.parametrize(("data", "memory", "method"), published_combinations())
class TestEachOfThe108Files:
    def test_means_what_their_code_makes_of_it(
        self, data: str, memory: int, method: str, tmp_path: Path
    ) -> None:
        run = resolved(read_authors_file(write(tmp_path, said(data, memory, method))))
        expected = meant(data, memory, method)
        parts = ("method.", "collaboration.", "net.", "optim.", "memory.")
        keys = [key for key in run.values if key in expected or key.startswith(parts)]
        assert {key: run.values[key] for key in keys} == expected

    def test_is_our_preset_of_the_profile_but_for_the_optimizer_of_ocms_peers(
        self, data: str, memory: int, method: str, tmp_path: Path
    ) -> None:
        run = resolved(read_authors_file(write(tmp_path, said(data, memory, method))))
        peers = {"weight_decay": 0, "beta2": 0.999} if method == "ocm+ccldc" else {}
        assert run.variant == {"profile": "authors", **peers}

    def test_notes_name_all_that_has_no_effect_and_all_that_it_leaves_to_defaults(
        self, data: str, memory: int, method: str, tmp_path: Path
    ) -> None:
        base, plus, _ = method.partition("+")
        learner, content = LEARNERS[base], said(data, memory, method)
        idle = learner.idle | {"momentum", "n_classes", *DATA[data].said}
        if method == "ocm":
            idle |= {"optim", "learning_rate", "weight_decay"}
        notes = read_authors_file(write(tmp_path, content)).notes
        told = [note for note in notes if note.startswith("theirs.yaml: no effect in the authors'")]
        assert len(told) == 1
        assert {key for key in content if key in words(told[0])} == idle
        defaults = ["kd_lambda 1"] if plus and not learner.says_lambda2 else []
        if base in ("er", "derpp", "er_ace"):
            defaults = ["mem_iters 1", *defaults]
        rest = [note for note in notes if note not in told]
        assert [note.rpartition(": ")[2] for note in rest] == [", ".join(defaults)] * bool(defaults)


def words(text: str) -> set[str]:
    return {word.strip(",;()") for word in text.split()}


class TestWhatAFileDoesNotSay:
    @pytest.mark.parametrize("learner", ["ER", "ERACE", "DERPPCCLDC"])
    def test_comes_from_the_defaults_of_their_parser(self, learner: str, tmp_path: Path) -> None:
        run = resolved(read_authors_file(write(tmp_path, {"learner": learner})))
        expected: dict[str, Any] = {"data": "cifar10", "seed": 0, "updates": 1, "memory.size": 200}
        expected |= {"stream.tasks": 5, "stream.batch": 10, "net.width": 64}
        expected |= {"method.replay_batch": 200, "method.augment": "full_aligned"}
        expected |= {"optim.name": "sgd", "optim.lr": 0.1, "optim.weight_decay": 0}
        expected |= {"optim.momentum": 0}
        if learner == "DERPPCCLDC":
            expected |= {"method.alpha": 0.1, "method.beta": 0.5, "collaboration.distill_weight": 1}
            expected |= {"collaboration.chain.ops": 1, "collaboration.chain.magnitude": 9}
        assert {key: run.values[key] for key in expected} == expected

    def test_stays_fixed_where_their_code_fixes_it(self, tmp_path: Path) -> None:
        run = resolved(read_authors_file(write(tmp_path, {"learner": "OnPro", "nf": 20})))
        assert (run.values["net.width"], run.values["method.replay_batch"]) == (64, 64)


class TestFlags:
    def test_win_over_what_was_imported(self, tmp_path: Path) -> None:
        run = resolved(with_changes(tmp_path), flag("lr", "0.01"), flag("data", "mini"))
        assert (run.values["optim.lr"], run.origins["optim.lr"]) == (0.01, "flag")
        assert (run.values["data"], run.values["net.width"]) == ("mini", 64)
        assert run.origins["net.width"] == "file"

    def test_choose_the_other_profile(self, tmp_path: Path) -> None:
        run = resolved(with_changes(tmp_path, "er_ace+ccldc"), flag("profile", "paper"))
        assert not run.variant
        assert run.values["method.augment"] == "crop_flip"
        assert run.values["collaboration.equal_view"] == "image"

    def test_choose_other_parts_with_settings_of_their_own(self, tmp_path: Path) -> None:
        run = resolved(with_changes(tmp_path), flag("optimizer", "sgd"), flag("net", "small"))
        assert (run.values["optim.lr"], run.values["net.width"]) == (0.1, 16)


class TestValues:
    def test_of_theirs_that_nobody_published_are_translated_too(self, tmp_path: Path) -> None:
        found = with_changes(tmp_path, optim="SGD", momentum=0.9, tf_type="partial", mem_iters=3)
        run = resolved(found)
        expected: dict[str, Any] = {"optim.name": "sgd", "optim.momentum": 0.9, "updates": 3}
        expected |= {"method.augment": "crop_flip_shared"}
        assert {key: run.values[key] for key in expected} == expected

    def test_of_places_logs_and_seeds_are_left_out_and_named(self, tmp_path: Path) -> None:
        imported = with_changes(
            tmp_path, data_root_dir="/data", no_wandb=True, verbose=True, n_runs=10
        )
        told = [note for note in imported.notes if "not taken over" in note]
        assert {"data_root_dir", "no_wandb", "verbose", "n_runs"} <= words(told[0])
        assert "--root" in told[0]
        assert "--seeds" in told[0]
        assert resolved(imported).variant == {"profile": "authors"}

    def test_that_nothing_reads_are_named_for_each_of_their_names(self, tmp_path: Path) -> None:
        notes = " ".join(with_changes(tmp_path, temperature=0.5, review=True, epochs=5).notes)
        assert {"temperature", "review", "epochs"} <= words(notes)

    @pytest.mark.parametrize(
        ("key", "value", "says"),
        [
            ("lerning_rate", 0.1, "lerning_rate: the authors have no such setting; did you mean"),
            ("xyz", 1, "xyz: the authors have no such setting; see the parser of their release"),
            ("n_classes2", 1, "did you mean n_classes?"),
            ("learner", "ERCCLDCC", "'ERCCLDCC' has no counterpart here; did you mean ERCCLDC?"),
            ("learner", "ONPRO", "'ONPRO' has no counterpart here; did you mean OnPro?"),
            ("learner", "[ER]", "has no counterpart here"),
            ("learner", None, "names no learner"),
            ("dataset", "cifar1000", "dataset: 'cifar1000' has no counterpart here; did you mean"),
            ("dataset", "mnist", "known: cifar10, cifar100, tiny, imagenet100"),
            ("dataset", "{a: b}", "dataset: {'a': 'b'} has no counterpart here"),
            ("optim", "adamw", "optim: 'adamw' has no counterpart here; did you mean AdamW?"),
            ("tf_type", "moderate", "tf_type: 'moderate' has no counterpart here; known: full, p"),
            ("training_type", "blurry", "'blurry' has no counterpart here, only 'inc' has"),
            ("min_crop", 0.5, "min_crop: 0.5 has no counterpart here, only 0.2 has"),
            ("memory_only", True, "memory_only: True has no counterpart here, only False has"),
            ("learning_rate", "fast", "learning_rate: lr must be a number, got 'fast'"),
            ("learning_rate", -1, "learning_rate: lr must be above 0"),
            ("weight_decay", True, "weight_decay: must be a number, got True"),
            ("mem_size", "many", "mem_size: size must be a whole number"),
            ("mem_size", "[1, 2]", "mem_size: size must be a whole number"),
            ("randaug_m", 99, "randaug_m: chain.magnitude must be at most"),
        ],
    )
    def test_that_cannot_be_translated_are_told_in_one_line_before_anything_is_done(
        self,
        key: str,
        value: Any,
        says: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        content = said("cifar100", 2000, "er+ccldc") | {key: value}
        path = write(tmp_path, {k: v for k, v in content.items() if v is not None})
        line = f", line {[*content].index(key) + 1}, {key}: " if value is not None else ": "
        assert command("run", "--import", str(path), "--out", str(tmp_path / "runs")) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{path}{line}" in error
        assert says in error
        assert not (tmp_path / "runs").exists()

    def test_that_a_method_of_ours_fixes_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="tf_type: ocm cannot use it"):
            resolved(with_changes(tmp_path, "ocm", tf_type="partial"))
        with pytest.raises(UserError, match=r"proj_dim: 64 has no counterpart here, only 128"):
            with_changes(tmp_path, "ocm", proj_dim=64)


class TestAHostileFile:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("- learner", "must hold `name: value` lines"),
            ("learner: ER\nlearner: GSA\n", "'learner' a second time in line 2"),
            ("learner: &a [*a]\n", "holds itself"),
            ("? [learner]\n: ER\n", "is not YAML"),
            ("null: ER\n", "None: the authors have no such setting"),
            (f"{'x' * 500}: 1\n", "line 1, xxxx"),
            ("", "is empty"),
            ("learner: ER\n" + "#" * MOST_YAML_BYTES, f"is over {MOST_YAML_BYTES} bytes long"),
        ],
    )
    def test_is_refused_in_a_line(self, text: str, says: str, tmp_path: Path) -> None:
        path = tmp_path / "theirs.yaml"
        path.write_text(text)
        with pytest.raises(UserError) as error:
            read_authors_file(path)
        assert says in str(error.value)
        assert len(str(error.value)) < len(str(path)) + 200

    def test_executes_nothing(self, tmp_path: Path) -> None:
        path, made = tmp_path / "theirs.yaml", tmp_path / "made"
        path.write_text(f"learner: !!python/object/apply:os.mkdir ['{made}']\n")
        with pytest.raises(UserError, match="is not YAML"):
            read_authors_file(path)
        assert not made.exists()


def test_the_command_tells_the_notes_records_the_origins_and_lets_flags_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, said("cifar10", 500, "er_ace"))
    assert run_small(tmp_path / "runs", "--import", str(path), method="") == 0
    told = capsys.readouterr().err
    assert "theirs.yaml: no effect in the authors' code: momentum (only for SGD)" in told
    (config,) = (tmp_path / "runs").rglob("config.yaml")
    record = RunFolder(config.parent).config()
    assert record is not None
    assert (record.method, record.data, record.memory) == ("er_ace", "mini", 20)
    assert (record.settings["profile"], record.origins["profile"]) == ("authors", "file")
    assert record.origins["optim.lr"] == "file"
    assert (record.settings["net.width"], record.origins["net.width"]) == (1, "flag")
