"""Learns a toy stream and saves after every batch; killed and started again by a test.

killed_worker.py METHOD FOLDER
"""

import sys
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from peerlearn import ClassStream, build_learner, small_net, toy_images
from peerlearn.learner import checkpoint

torch.set_num_threads(1)
name, folder = sys.argv[1], Path(sys.argv[2])
stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
net = partial(small_net, 4, width=4)
learner = build_learner(name, stream.info, net, memory=20, seed=0)
if (folder / "checkpoint" / "state.json").exists():
    learner.load(folder / "checkpoint")
for task in stream.tasks[learner.progress.task :]:
    for batch in task.batches(start=learner.progress.step):
        learner.learn(*batch)
        learner.save(folder / "checkpoint")
        print(learner.progress.batches, flush=True)
    learner.end_task()
    learner.save(folder / "checkpoint")
tensors = {name: t.contiguous() for name, t in checkpoint._tensors(learner).items()}
save_file(tensors, folder / "end.safetensors")
