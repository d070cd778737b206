"""The first program: learn a stream of images with CCL-DC, batch by batch, and see how well."""

from functools import partial

from peerlearn import AccuracyMatrix, ClassStream, accuracy, build_learner, small_net, toy_images

stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
learner = build_learner("er+ccldc", stream.info, partial(small_net, 4), memory=100, seed=0)
scores = AccuracyMatrix()
for task in stream:
    for batch in task:  # each image passes once
        learner.learn(*batch)
    learner.end_task()
    scores.add_row([accuracy(learner.predict, test) for test in stream.test_sets[: task.index + 1]])
print(scores.summary())  # AA, LA, FM, RF, BWT
