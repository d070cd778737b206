"""A stream of your own: no tasks, any batches, saved on the way and resumed after a crash."""

from functools import partial
from pathlib import Path

from peerlearn import ClassStream, StreamInfo, build_learner, small_net, toy_images

batches = [batch for task in ClassStream(toy_images(), num_tasks=2) for batch in task]  # yours
info = StreamInfo(num_classes=4)  # all that is known about it
learner = build_learner("er_ace+ccldc", info, partial(small_net, 4), memory=50)
if Path("checkpoint").exists():
    learner.load("checkpoint")
for number, (x, y) in enumerate(batches[learner.progress.batches :]):
    learner.learn(x, y)
    if number % 10 == 9:
        learner.save("checkpoint")
print(learner.predict(batches[0].x), "for", batches[0].y)
