"""Which folder a run has, and whether what is there is the same run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.experiment.images import Images
from peerlearn.experiment.machine import Threads
from peerlearn.experiment.resolve import Resolved
from peerlearn.experiment.settings import EvaluationSettings, MachineSettings, ProbeSettings
from peerlearn.records.folder import RunFolder, run_path
from peerlearn.records.schema import EVALUATION, MACHINE, Config
from peerlearn.settings import flatten, nest

MOST_DIFFERENCES = 5  # named in a message
KINDS = {"machine": MachineSettings, "probes": ProbeSettings, "evaluation": EvaluationSettings}
EVERY, PROBE, _ = EVALUATION
THREADS, PEER_THREADS = "machine.threads", "machine.peer_threads"


def folder_of(resolved: Resolved, out: Path) -> RunFolder:
    """Where a run has its files."""
    return RunFolder(run_path(out, resolved))


def reconcile(folder: RunFolder, resolved: Resolved, images: Images | None = None) -> Config:
    """The settings to use; those of a run that is there already must be the same.

    A run that is resumed keeps what it began with of the machine (device, layout, threads, whether
    networks are compiled) and its probes, unless a flag gives others; threads that nobody gave are
    0. How it is evaluated along the stream cannot be changed. images: what it is to learn, which
    must be the same as well.
    """
    begun = folder.has_results  # looked at first: another process writes its settings before them
    found = folder.config()
    if found is None and begun:
        raise UserError(
            f"{folder.path}: has results, and no config.yaml that says of what; restore it, or "
            "delete the folder and start again"
        )
    values = dict(resolved.values)
    if found is not None:
        kept = {key for key in MACHINE if resolved.origins[key] == "default"}
        if values[THREADS] or values[PEER_THREADS]:  # one of them was given: it decides the other
            kept -= {THREADS, PEER_THREADS}
        else:
            kept |= {THREADS, PEER_THREADS}
        values |= {key: value for key, value in _machine(folder, found).items() if key in kept}
    config = _config(resolved, values, images)
    if found is not None:
        _refuse_another_run(folder, found, resolved)
        _refuse_another_curve(folder, found, values)
        if images and not images.are_those_of(found.fingerprint):
            raise UserError(
                f"{folder.path}: holds a run on other images of {config.data}; choose another --out"
            )
    return config


def _config(resolved: Resolved, values: Mapping[str, Any], images: Images | None) -> Config:
    return Config(
        data=resolved.data,
        method=resolved.method,
        memory=resolved.memory,
        seed=resolved.seed,
        variant=dict(resolved.variant),
        settings=dict(values),
        origins=dict(resolved.origins),
        fingerprint=images.fingerprint if images else "",
        old_fingerprint=images.old_fingerprint if images else "",
        plugins=resolved.plugins,
    )


def _machine(folder: RunFolder, found: Config) -> dict[str, Any]:
    """The device, threads, probes and evaluation with which a run began."""
    settings = dict(found.settings)
    settings.setdefault(PEER_THREADS, settings.get(THREADS, 0))  # peers took turns with all of them
    tree = nest({key: settings[key] for key in MACHINE if key in settings})
    try:
        for group, model in KINDS.items():
            own = tree.get(group, {})
            tree[group] = model(**own).model_dump(include={*own})
        return flatten(tree)
    except UserError as error:
        raise UserError(f"{folder.path / 'config.yaml'}: {error}; put that right there") from None


def differences(found: Config, resolved: Resolved) -> str:
    """In which settings that decide numbers, or in whose code, a recorded run is another one."""
    config = _config(resolved, resolved.values, None)
    # a setting that came after the run was made had the value that is usual now
    ours, theirs = ({**resolved.usual, **c.identity, **c.plugins} for c in (config, found))
    differ = [
        f"{name} {theirs.get(name)!s:.40} there, {ours.get(name)!s:.40} here"
        for name in {**ours, **theirs}
        if theirs.get(name) != ours.get(name)
    ]
    more = len(differ) - MOST_DIFFERENCES
    return "; ".join(differ[:MOST_DIFFERENCES] + ([f"and {more} more"] if more > 0 else []))


def _refuse_another_run(folder: RunFolder, found: Config, resolved: Resolved) -> None:
    if differ := differences(found, resolved):
        raise UserError(
            f"{folder.path}: holds a run of other settings or of other code: {differ}. "
            "Choose another --out; tables and pages take several folders"
        )


def _refuse_another_curve(folder: RunFolder, found: Config, values: Mapping[str, Any]) -> None:
    """Half of a curve is none: what is evaluated along the stream stays as it began."""
    usual = flatten({"evaluation": EvaluationSettings().model_dump()})
    for name in EVALUATION:
        there = found.settings.get(name, usual[name])
        unread = name == PROBE and not values[EVERY]
        if values[name] != there and not unread:
            flag = name.partition(".")[2].replace("_", "-")
            raise UserError(
                f"--{flag}: {folder.path} holds this run with {there}; choose another --out, or "
                "delete the folder"
            )


def create_or_verify(
    folder: RunFolder, resolved: Resolved, images: Images, threads: Callable[[], Threads]
) -> Config:
    """Write the settings of a new run; for an old one, see that it is the same on the same images.

    threads: those that a new run is to have. Returns the settings to use.
    """
    config = reconcile(folder, resolved, images)
    if folder.config() is None:
        chosen = threads()
        machine = {THREADS: chosen.total, PEER_THREADS: chosen.each}
        config = config.model_copy(update={"settings": {**config.settings, **machine}})
        folder.write_config(config)
    return config
