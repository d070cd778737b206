"""Nothing grows while a learner works."""

from pathlib import Path

from crash.soak import Sample, grown, learner_at_work


def test_files_threads_and_objects_stay_as_many(tmp_path: Path) -> None:
    samples = list(learner_at_work("er+ccl", steps=300, every=50, folder=tmp_path / "checkpoint"))
    assert [sample.step for sample in samples] == [*range(50, 350, 50)]
    assert samples[-1].files == samples[0].files
    assert not {*grown(samples)} - {"resident"}  # of a process that other tests have used


def test_what_grows_is_named() -> None:
    flat = Sample(step=0, resident=1000, files=5, threads=1, objects=1000, folder=1000)
    more = flat._replace(files=6, objects=1011, folder=1009)
    assert grown([flat] * 8) == []
    assert grown([flat] * 7 + [more]) == ["files", "objects"]


def test_memory_that_is_given_back_has_not_grown() -> None:
    flat = Sample(step=0, resident=1000, files=5, threads=1, objects=1000, folder=1000)
    more = flat._replace(resident=1100)
    assert grown([flat] * 7 + [more]) == []
    assert grown([flat] * 6 + [more] * 2) == ["resident"]
