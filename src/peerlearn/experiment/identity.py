"""Which folder a run has, and whether what is there is the same run."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peerlearn.data.images import Dataset
from peerlearn.errors import UserError
from peerlearn.experiment.resolve import Resolved
from peerlearn.records.folder import RunFolder, run_path
from peerlearn.records.schema import MACHINE, Config, Summary
from peerlearn.runtime import available_threads

MOST_DIFFERENCES = 5  # named in a message


def folder_of(resolved: Resolved, out: Path) -> RunFolder:
    """Where a run has its files."""
    return RunFolder(run_path(out, resolved))


def reconcile(folder: RunFolder, resolved: Resolved) -> Config:
    """The settings to use; those of a run that is there already must be the same.

    A run that is resumed keeps the device and threads with which it began, unless a flag gives
    others.
    """
    found = folder.config()
    values = dict(resolved.values)
    if found is not None:
        kept = [key for key in MACHINE if resolved.origins[key] == "default"]
        values |= {key: found.settings[key] for key in kept if key in found.settings}
    values["machine.threads"] = values["machine.threads"] or available_threads()
    config = Config(
        data=resolved.data,
        method=resolved.method,
        memory=resolved.memory,
        seed=resolved.seed,
        variant=dict(resolved.variant),
        settings=values,
        origins=dict(resolved.origins),
        plugins=resolved.plugins,
    )
    if found is not None:
        _refuse_another_run(folder, found, config, resolved.usual)
    return config


def _refuse_another_run(
    folder: RunFolder, found: Config, config: Config, usual: Mapping[str, Any]
) -> None:
    # a setting that came after the run was made had the value that is usual now
    ours, theirs = ({**usual, **c.identity, **c.plugins} for c in (config, found))
    differ = [
        f"{name} {theirs.get(name)!s:.40} there, {ours.get(name)!s:.40} here"
        for name in {**ours, **theirs}
        if theirs.get(name) != ours.get(name)
    ]
    if differ:
        more = len(differ) - MOST_DIFFERENCES
        shown = differ[:MOST_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
        raise UserError(
            f"{folder.path}: holds a run of other settings or of other code: {'; '.join(shown)}. "
            "Choose another --out; tables and pages take several folders"
        )


def create_or_verify(folder: RunFolder, resolved: Resolved, data: str) -> Config:
    """Write the settings of a new run; for an old one, see that it began with the same data.

    data: a fingerprint of the images. Returns the settings to use.
    """
    config = reconcile(folder, resolved).model_copy(update={"fingerprint": data})
    found = folder.config()
    if found is None:
        folder.write_config(config)
    elif found.fingerprint != data:
        raise UserError(
            f"{folder.path}: holds a run on other images of {config.data}; choose another --out"
        )
    return config


def finished(folder: RunFolder) -> Summary | None:
    """The summary of a run that has come to its end, None for any other."""
    found = folder.summary()
    return found if found is not None and found.status == "done" else None


def fingerprint(data: Dataset) -> str:
    """What tells one state of a data set from another: its labels, names and sizes."""
    digest = hashlib.sha256(repr((data.train.class_names, data.train.x.shape)).encode())
    for part in (data.train, data.test):
        digest.update(part.y.numpy().tobytes())
    return digest.hexdigest()[:16]
