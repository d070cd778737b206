"""All settings that there are, for help and for advice."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from peerlearn.config.names import KINDS
from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.resolve import ALIASES, GENERAL, STREAM, Resolved
from peerlearn.experiment.settings import STREAMS
from peerlearn.memory import MEMORIES
from peerlearn.nets import NETWORKS
from peerlearn.optim import OPTIMIZERS
from peerlearn.registry import Registry
from peerlearn.settings import Settings, described, fields_of, matching, settings_of

CHOICES: dict[str, tuple[str, Registry[Any]]] = {  # flags that choose a part
    "net": ("network, or package.module:function", NETWORKS),
    "optimizer": ("optimizer", OPTIMIZERS),
    "memory-policy": ("which images stay in memory", MEMORIES),
}


class Part(NamedTuple):
    """Something that has settings."""

    title: str  # such as "optimizer sgd"
    prefix: str  # of the names of its settings
    settings: type[Settings]


def every_part() -> Iterator[Part]:
    """What has settings, chosen or not; a part of others that cannot be loaded is left out."""
    yield from (Part(*general) for general in GENERAL)
    yield from map(_of_stream, STREAMS)
    for group, registry in KINDS.items():
        for name in registry:
            try:
                settings = settings_of(registry[name])
            except UserError:
                continue  # whoever asks for it by its name will be told
            yield Part(f"{registry.kind} {name}", f"{group}.", settings)


def _of_stream(name: str) -> Part:
    """What one stream alone has."""
    return Part(f"stream {name}", "stream.", settings_of(STREAMS[name]))


def every_key() -> dict[str, str]:
    """The dotted name of every setting; a part that has it."""
    found: dict[str, str] = {}
    for part in every_part():
        for key in fields_of(part.settings, part.prefix):
            found.setdefault(key, part.title)
    return found


def refuse_unused(resolved: Sequence[Resolved]) -> None:
    """Say so if something was given that none of the runs can use."""
    for item in resolved[0].unused:
        if any(item not in other.unused for other in resolved):
            continue
        keys, name = every_key(), item.name.replace("-", "_")
        if owners := [keys[key] for key in matching(name, keys)]:
            methods = " and ".join(dict.fromkeys(run.method for run in resolved))
            raise UserError(
                f"{item.where}: {methods} cannot use it, it belongs to {owners[0]}; leave it out, "
                f"or choose that"
            )
        known = sorted({key.rpartition(".")[2] for key in keys} | {*ALIASES})
        problem = f"{item.where}: there is no setting {item.name!r:.60}"
        listing = f"peerlearn run {resolved[0].method} --help"
        raise UserError(did_you_mean(problem, name.rpartition(".")[2], known, listing))


def settings_help(runs: Sequence[Resolved], taken: Collection[str]) -> str:
    """Every setting by the part that reads it, with the values of these runs, or of all parts.

    taken: flags of the command itself, which a short name must not hide.
    """
    parts, lines = [*_shown(runs)], ["", "which parts:"]
    keys = [key for part, _ in parts for key in fields_of(part.settings, part.prefix)]
    for flag, (about, registry) in CHOICES.items():
        lines.append(f"  --{flag:20} {about} ({' | '.join(registry)})")
    lines += ["", "settings; the whole name, such as --optim.lr, always works too:"]
    shown: set[str] = set()
    for part, usual in parts:
        fields = fields_of(part.settings, part.prefix)
        if part.title in shown or not fields:
            continue
        shown.add(part.title)
        lines += ["", f"{part.title} ({part.prefix}*)" if part.prefix else part.title]
        for key, field in fields.items():
            default = usual.get(key, field.default)
            lines.append(f"  --{_flag(key, keys, taken):20} {described(field, default)}")
    return "\n".join(lines)


def _shown(runs: Sequence[Resolved]) -> Iterator[tuple[Part, dict[str, Any]]]:
    if not runs:
        yield from ((part, {}) for part in every_part())
    for run in runs:
        yield from ((Part(*general), dict(run.usual)) for general in GENERAL)
        yield _of_stream(run.values[STREAM]), dict(run.usual)
        for group, settings in run.config.settings.items():
            yield Part(run.config.title(group), f"{group}.", settings), dict(run.usual)


def _flag(key: str, keys: Collection[str], taken: Collection[str]) -> str:
    """The shortest flag that means this setting and nothing else."""
    short = {full: alias for alias, full in ALIASES.items()}.get(key, key.rpartition(".")[2])
    means = {*matching(ALIASES.get(short, short), keys)}
    flag = short if means <= {key} and f"--{short}" not in taken else key
    return flag.replace("_", "-")
