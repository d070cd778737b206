"""What a learner of one's own stream ships: which networks, and how good they were found."""

from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, get_args

from peerlearn.data.pictures import Pictures, pictures
from peerlearn.errors import UserError
from peerlearn.export import write_export
from peerlearn.learner.snapshot import Snapshot
from peerlearn.live.labels import LabelMap

if TYPE_CHECKING:
    from peerlearn.live.learner import OpenLearner

What = Literal["ensemble", "peer", "ema", "average"]


def ship(
    learner: "OpenLearner",
    folder: str | PathLike[str],
    what: What = "ensemble",
    test: tuple[Pictures, Any] | None = None,
) -> dict[str, Any]:
    """Write an export of a learner; returns what it says of itself. See `OpenLearner.export`."""
    inner = learner.learner
    what = "ema" if what == "shadow" else what  # type: ignore[comparison-overlap]
    ema = [source for source in inner.sources if source != "peers"]
    if what not in (there := ["ensemble", "peer", *ema]):
        why = "; this learner has no EMA copies" if what in get_args(What) else ""
        raise UserError(f"what: there is no {what!r:.40}{why}; take {' or '.join(there)}")
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        raise UserError(f"test: needs a pair (images, labels), got {type(test).__name__}")
    if inner.image_shape is None:
        raise UserError("export: nothing has been learnt yet; learn() a batch first")
    if not inner.method.gives_logits:
        raise UserError(f"export: {inner.method.name} has no classifier that could be exported")
    if what == "ensemble" and inner.predict_with == "ncm":
        raise UserError(
            'export: nearest class means (predict_with="ncm") cannot be exported yet; take '
            'what="peer", which exports a classifier'
        )
    source: Any = {"ensemble": None, "peer": "peers"}.get(what, what)
    snapshot = inner.snapshot(source)
    labels = LabelMap(learner.labels[: snapshot.num_classes])
    shown = [str(label) if isinstance(label, tuple) else label for label in labels]
    if len({*shown}) < len(shown):
        raise UserError("export: a tuple reads as another label does; give labels that differ")
    peer = 0 if what == "peer" else None
    names = {} if inner.config is None else inner.config.names
    about = {
        "method": names.get("method"),
        "wrapper": names.get("collaboration"),
        "what": what,
        "images_learnt": inner.memory.seen,
        "prequential": learner.prequential if learner.prequential >= 0 else None,  # NaN: not asked
    }
    if test is not None:
        about |= _measured(snapshot, peer, labels, *test)
    write_export(
        snapshot.models if peer is None else [snapshot.models[peer]],
        folder,
        image_shape=(3, *size_of(snapshot)),
        labels=shown,
        temperature=learner.temperature,
        about=about,
    )
    return about


def size_of(snapshot: Snapshot) -> tuple[int, int]:
    """Return height and width of the images that networks have learnt."""
    assert snapshot.image_shape is not None, "a learner that has learnt has seen images"
    _, height, width = snapshot.image_shape
    return height, width


def _measured(
    snapshot: Snapshot, peer: int | None, known: LabelMap, images: Pictures, labels: Any
) -> dict[str, Any]:
    """The accuracy on test images; those of unknown classes are wrong."""
    x = pictures(images, size_of(snapshot))
    _, y = known.numbered(labels)
    if len(y) != len(x):
        raise UserError(f"test: {len(y)} labels for {len(x)} images; give one for each")
    right = snapshot.logits(x, peer).argmax(dim=1).cpu() == y
    return {"accuracy": float(right.double().mean()), "tested_images": len(y)}
