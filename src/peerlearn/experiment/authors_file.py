"""Settings from a configuration file of the authors of CCL-DC, in the names of their release.

The names, the defaults and what has no effect are facts of github.com/maorong-wang/CCL-DC.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.config_file import read_mapping
from peerlearn.experiment.resolve import Given

METHODS = {
    "ER": "er",
    "DERPP": "derpp",
    "ERACE": "er_ace",
    "OCM": "ocm",
    "GSA": "gsa",
    "OnPro": "onpro",
}
LEARNERS = {
    theirs + mark: (ours, wrapper)
    for mark, wrapper in (("", None), ("CCLDC", "ccldc"))
    for theirs, ours in METHODS.items()
}


class Setting(NamedTuple):
    """What a name of theirs means."""

    name: str  # ours
    default: Any  # of their argument parser


SETTINGS = {
    "dataset": Setting("data", "cifar10"),
    "n_tasks": Setting("stream.tasks", 5),
    "batch_size": Setting("stream.batch", 10),
    "mem_size": Setting("memory.size", 200),
    "mem_batch_size": Setting("method.replay_batch", 200),
    "mem_iters": Setting("updates", 1),
    "seed": Setting("seed", 0),
    "nf": Setting("net.width", 64),
    "optim": Setting("optim.name", "SGD"),
    "learning_rate": Setting("optim.lr", 0.1),
    "weight_decay": Setting("optim.weight_decay", 0),
    "momentum": Setting("optim.momentum", 0),
    "tf_type": Setting("method.augment", "full"),
    "derpp_alpha": Setting("method.alpha", 0.1),
    "derpp_beta": Setting("method.beta", 0.5),
    "kd_lambda": Setting("collaboration.distill_weight", 1),
    "randaug_n": Setting("collaboration.chain.ops", 1),
    "randaug_m": Setting("collaboration.chain.magnitude", 9),
}
VALUES: Mapping[str, Mapping[str, str]] = {  # of those whose values have names as well
    "dataset": {name: name for name in ("cifar10", "cifar100", "tiny", "imagenet100")},
    "optim": {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd"},
    "tf_type": {"full": "full_aligned", "partial": "crop_flip_shared"},
}
# what a method has in its presets; left to them, so that a flag --profile decides how it is done
USUAL_AUGMENTATION = {"er": "full", "derpp": "partial", "er_ace": "partial", "ocm": "full"}
BETA2 = 0.999  # of their Adam and AdamW, which a file cannot set
ONLY = {  # settings that we do not have, and the one value that stands for what we do
    "training_type": "inc",
    "labels_order": None,
    "memory_only": False,
    "buffer": "reservoir",
    "drop_method": "random",
    "min_crop": 0.2,
    "proj_dim": 128,
    "nb_channels": 3,
    "train": True,
    "resume": False,
}
LEFT_OUT = {
    "--root says where data sets lie": ("data_root_dir",),
    "--seeds says which runs": ("n_runs", "start_seed"),
    "--out says where files go": ("tag", "logs_root", "results_root", "ckpt_root", "save_ckpt"),
    "--tensorboard says where logs go": ("tensorboard", "tb_root"),
    "there is no wandb here": ("no_wandb", "wandb_watch", "sweep"),
    "progress is always shown": ("verbose",),
    "images stay in memory": ("num_workers",),
}
UNREAD = (
    "alpha_sscl", "blurry_scale", "boost_lr", "buffer_state", "classifier", "config", "daa",
    "debug", "dim_int", "drop_fc", "es_delta", "es_patience", "eval_mem", "eval_proj",
    "fixed_means", "gram_crit", "gram_mo", "gram_th", "gram_version", "head", "head_reg_coef",
    "instance_norm", "kmeans_pl", "kornia", "lab_pc", "labels_ratio", "max_boosting_iter",
    "measure_drift", "mlb_all", "model_state", "mu", "multiplier", "ocm_custom", "p_before_gram",
    "pretrained", "random_pl", "random_pl_version", "review", "run_id", "rv_iters", "scaling_coef",
    "spectral", "start_epoch", "supervised", "temperature",
)  # fmt: skip
OF_THE_DATA = ("n_classes", "img_size", "dim_in")
KNOWN = {"learner", "epochs", *SETTINGS, *ONLY, *UNREAD, *OF_THE_DATA, *sum(LEFT_OUT.values(), ())}


class Imported(NamedTuple):
    """What a file of theirs says in our words, and what a person should know of the rest."""

    given: Sequence[Given] = ()
    notes: Sequence[str] = ()


def read_authors_file(path: Path) -> Imported:
    """Settings from one of their YAML files."""
    content, lines = read_mapping(path)
    where = {key: f"{path}, line {lines.get(key, 1)}, {key:.60}" for key in content}
    for key in content:
        if key not in KNOWN:
            problem = f"{where[key]}: the authors have no such setting"
            raise UserError(
                did_you_mean(problem, key, sorted(KNOWN), "the parser of their release")
            )
    if "learner" not in content:
        raise UserError(f"{path}: names no learner; write `learner: ER`, or another of theirs")
    return translate(content, where, path.name)


def translate(content: Mapping[str, Any], where: Mapping[str, str], source: str) -> Imported:
    """Their settings in ours. where: the place of each key; source: what notes call the file."""
    method, wrapper = LEARNERS[_one_of(LEARNERS, content["learner"], where["learner"])]
    theirs = {key: setting.default for key, setting in SETTINGS.items()} | dict(content)
    idle = dict(_without_effect(method, wrapper, theirs))
    for key, value in ONLY.items():
        if key not in idle and content.get(key, value) != value:
            problem = f"{content[key]!r:.60} has no counterpart here, only {value!r} has"
            raise UserError(f"{where[key]}: {problem}")
    parts = {"profile": "authors", "method.name": method, "net.name": "resnet18"}
    parts |= {"collaboration.name": wrapper} if wrapper else {}
    given = [Given(name, value, "file", where["learner"]) for name, value in parts.items()]
    defaults = []
    for key, setting in SETTINGS.items():
        if key in idle:
            continue
        if key not in content:
            defaults.append(f"{key} {setting.default}")
        place = where.get(key, f"{source}, default of {key}")
        value = theirs[key]
        if key in VALUES:
            value = VALUES[key][_one_of(VALUES[key], value, place)]
        elif isinstance(value, bool):  # the later check does not know its place
            raise UserError(f"{place}: must be a number, got {value}")
        if key == "optim" and value != "sgd":
            given.append(Given("optim.beta2", BETA2, "file", place))
        if key != "tf_type" or theirs[key] != USUAL_AUGMENTATION[method]:
            given.append(Given(setting.name, value, "file", place))
    left_out = {key: why for why, keys in LEFT_OUT.items() for key in keys}
    notes = {
        "no effect in the authors' code": _with_reasons(content, idle),
        "not taken over": _with_reasons(content, left_out),
        "not in the file, so the default of the authors": ", ".join(defaults),
    }
    return Imported(given, [f"{source}: {what}: {text}" for what, text in notes.items() if text])


def _without_effect(
    method: str, wrapper: str | None, theirs: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What changes nothing in their code for this run, each key with the reason."""
    alone = wrapper is None
    rules: Sequence[tuple[bool, str, Sequence[str]]] = (
        (True, "never read", UNREAD),
        (True, "the data set decides", OF_THE_DATA),
        (True, "tasks are seen once", ("epochs",)),
        (theirs["optim"] != "SGD", "only for SGD", ("momentum",)),
        (theirs["tf_type"] == "partial", "only for tf_type full", ("min_crop",)),
        (alone, "only for CCL-DC", ("kd_lambda", "randaug_n", "randaug_m")),
        (method != "er", "only for ER", ("memory_only",)),
        (method != "derpp", "only for DER++", ("derpp_alpha", "derpp_beta")),
        (method != "ocm", "only for OCM", ("proj_dim",)),
        (method not in ("ocm", "gsa"), "only for OCM and GSA", ("buffer",)),
        (method in ("ocm", "gsa", "onpro"), "this method makes one step", ("mem_iters",)),
        (method in ("gsa", "onpro"), "fixed for this method", ("tf_type", "min_crop")),
        (method == "onpro", "fixed for this method", ("mem_batch_size", "nf")),
        (
            method == "ocm" and alone,
            "fixed for this method",
            ("optim", "learning_rate", "weight_decay", "momentum"),
        ),
    )
    for applies, why, keys in rules:
        yield from ((key, why) for key in keys if applies)


def _one_of(known: Mapping[str, Any], value: Any, place: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    problem = f"{place}: {value!r:.60} has no counterpart here"
    raise UserError(did_you_mean(problem, f"{value}", known))


def _with_reasons(content: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    keys: dict[str, list[str]] = {}
    for key in content:
        if key in reasons:
            keys.setdefault(reasons[key], []).append(key)
    return "; ".join(f"{', '.join(found)} ({why})" for why, found in keys.items())
