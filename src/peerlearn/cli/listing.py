"""peerlearn list: methods, wrappers, networks, augmentations, ..., data sets, presets."""

import argparse
from typing import TYPE_CHECKING, Any

from peerlearn.cli.parsing import Commands, add_command, add_plugins, load_plugins

if TYPE_CHECKING:
    from peerlearn.registry import Registry

TITLES = {
    "methods": "Methods",
    "wrappers": "Wrappers, after a plus: er+ccldc",
    "teachers": "Teachers, of the edges of a wrapper",
    "networks": "Networks, --net",
    "optimizers": "Optimizers, --optimizer",
    "memories": "Memories, --memory-policy",
    "augmentations": "Augmentations, --augment",
    "data": "Data sets, --data, with the memory sizes of the paper",
}


def add(commands: Commands) -> None:
    """Add the command."""
    about = "methods, wrappers, networks, optimizers, memories, augmentations, data and presets"
    parser = add_command(commands, "list", about, act)
    parser.add_argument(
        "what", nargs="?", metavar="kind", choices=(*TITLES, "presets"), help="only these"
    )
    add_plugins(parser)


def act(args: argparse.Namespace) -> None:
    """Do it; classes are read, not imported."""
    load_plugins(args.plugins)
    if args.what == "presets":
        from peerlearn.experiment.protocols import published_combinations

        for data, memory, method in published_combinations():
            print(f"peerlearn run {method} --data {data} --memory {memory} --seeds 0-9")
        return
    for kind, registry in _registries().items():
        if args.what in (None, kind):
            print(TITLES[kind])
            for name in registry:
                print(f"  {name:24}{_line(kind, registry, name)}")
    if args.what is None:
        print("Presets\n  the published runs, each as a command: peerlearn list presets")


def _registries() -> "dict[str, Registry[Any]]":
    from peerlearn.augment import AUGMENTATIONS
    from peerlearn.data import DATASETS
    from peerlearn.distill import TEACHERS, WRAPPERS
    from peerlearn.memory import MEMORIES
    from peerlearn.methods import METHODS
    from peerlearn.nets import NETWORKS
    from peerlearn.optim import OPTIMIZERS

    return {
        "methods": METHODS,
        "wrappers": WRAPPERS,
        "teachers": TEACHERS,
        "networks": NETWORKS,
        "optimizers": OPTIMIZERS,
        "memories": MEMORIES,
        "augmentations": AUGMENTATIONS,
        "data": DATASETS,
    }


def _line(kind: str, registry: "Registry[Any]", name: str) -> str:
    text = registry.summary(name).rstrip(".") or "no description"
    if kind == "data" and registry[name].protocol.memories:
        text += f"; memory {', '.join(map(str, registry[name].protocol.memories))}"
    return f"{text} [{registry.origin(name)}]" if registry.origin(name) else text
