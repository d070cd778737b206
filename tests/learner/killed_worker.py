"""Learns a toy stream and saves now and then; killed and started again by a test."""

import os
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from safetensors.torch import save_file

from peerlearn import ClassStream, build_learner, small_net, toy_images


def work_through(name: str, folder: Path, progress: Connection) -> None:
    """Go on from the last checkpoint, if there is one, to the end of the stream."""
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # a killed process, unlike a power cut, loses nothing written
    stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
    net = partial(small_net, 4, width=4)
    learner = build_learner(name, stream.info, net, memory=20, seed=0)
    if (folder / "checkpoint" / "state.json").exists():
        learner.load(folder / "checkpoint")
    for task in stream.tasks[learner.progress.task :]:
        for batch in task.batches(start=learner.progress.step):
            learner.learn(*batch)
            if learner.progress.batches % 4 == 0:
                learner.save(folder / "checkpoint")
            progress.send(learner.progress.batches)
        learner.end_task()
        learner.save(folder / "checkpoint")
    state = learner.state_dict().items()
    tensors = {name: t.contiguous() for name, t in state if isinstance(t, torch.Tensor)}
    save_file(tensors, folder / "end.safetensors")
