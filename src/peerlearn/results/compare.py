"""Runs put side by side: what is averaged, what is paired with what, and what is best."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.metrics.table import EVERY, METRICS, SHOWN
from peerlearn.records.folder import shown
from peerlearn.records.read import RunRecord
from peerlearn.results.series import Facts, Gain, Group, Series, labelled
from peerlearn.results.statistics import Paired, paired

REFERENCES = ("finetune", "joint")  # shown first and last, and never marked as the best
FIRST = (REFERENCES[0], "er", "derpp", "er_ace", "ocm", "gsa", "onpro")  # as in the paper
GENERAL = ("stream.", "memory.", "machine.")  # settings whose defaults no method decides
BEST = (
    "of the means over two or more seeds the best of its group, and every other whose difference "
    "from it, paired by seed, has a 95 % interval that includes zero"
)


def compare(runs: Sequence[RunRecord]) -> list[Group]:
    """Group runs that differ in nothing but the seed, and pair each wrapper with its baseline.

    Two variants of a method are two series. Every table, page and study asks this function.
    """
    ordered = sorted(runs, key=lambda r: (r.data, r.memory, method_key(r.method), r.seed))
    return [
        _group(data, memory, list(some))
        for (data, memory), some in groupby(ordered, lambda r: (r.data, r.memory))
    ]


def against(groups: Sequence[Group], name: str) -> list[Group]:
    """The same groups, with every series set against the one of this name, not its baseline.

    A group without such a series has no gains.
    """
    found = [_against(group, name) for group in groups]
    if not any(group.against for group in found):
        known = [one.name for group in groups for one in group.series]
        raise UserError(did_you_mean(f"--against: no row is called {name!r:.200}", name, known))
    return found


def _against(group: Group, name: str) -> Group:
    meant = [one for one in group.series if name in (one.name, one.label)]
    if len(meant) != 1:
        return replace(group, series=tuple(replace(s, gain=None, why="") for s in group.series))
    (rival,) = meant
    rest = [s if s is rival else _over(s, rival, rival.name) for s in group.series]
    whole = [replace(s, gain=None, why="") if s is rival else s for s in rest]
    return replace(group, series=tuple(whole), against=rival.name)


def method_key(method: str) -> tuple[int, str, int, str]:
    """Sort the methods of the paper first, each before its CCL-DC and its other wrappers."""
    base, plus, wrapper = method.partition("+")
    place = FIRST.index(base) if base in FIRST else len(FIRST) + (base in REFERENCES)
    return place, base, (1 if wrapper == "ccldc" else 2) if plus else 0, wrapper


def facts_of(run: RunRecord) -> dict[str, Any]:
    """All that decides a run's numbers except its seed: settings, state of the data, plug-ins.

    The profile is left out: all that it decides are settings.
    """
    config = run.config
    plugins = {f"plugin.{name}": mark for name, mark in config.plugins.items()}
    settings = {name: value for name, value in config.identity.items() if name != "profile"}
    return {**settings, "fingerprint": config.fingerprint, **plugins}


def _key(facts: Facts) -> str:
    """Equal for equal facts: 2 is 2.0, and what is not there is None."""
    return _text({name: value for name, value in facts.items() if value is not None})


def _text(facts: Facts) -> str:
    numbers = {k: float(v) if type(v) is int else v for k, v in facts.items()}
    return json.dumps(numbers, sort_keys=True, default=str)


def _shared(variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = variants
    return {k: v for k, v in first.items() if all(k in o and o[k] == v for o in others)}


def _group(data: str, memory: int, runs: Sequence[RunRecord]) -> Group:
    shared = _shared([run.config.variant for run in runs])
    collected: dict[tuple[str, str], tuple[Facts, list[RunRecord]]] = {}
    known = [(run, facts_of(run)) for run in runs]
    usual = _usual(known)
    state = _states(runs)
    for run, own in known:
        facts = {**usual[run.method], **own, **state(run)}
        collected.setdefault((run.method, _key(facts)), (facts, []))[1].append(run)
    series = [Series(_once(some), facts) for facts, some in collected.values()]
    named = _numbered(_named(series, shared))
    named.sort(key=lambda s: (method_key(s.method), len(s.variant), s.label))
    baselines = _baselines(named)
    whole = tuple(_with_gain(one, baselines) for one in named)
    rivals = [one for one in whole if one.method.partition("+")[0] not in REFERENCES]
    best = {name: _best(name, rivals) for name in SHOWN}
    marked = {name: labels for name, labels in best.items() if labels}
    return Group(data, memory, whole, shared, marked)


def _states(runs: Sequence[RunRecord]) -> Callable[[RunRecord], dict[str, str]]:
    """The state of the data of each run; earlier versions did not look at pixels.

    Theirs is taken for the one of today that has the same labels, if there is just one.
    """
    today: dict[str, set[str]] = {}
    for config in (run.config for run in runs):
        if config.old_fingerprint:
            today.setdefault(config.old_fingerprint, set()).add(config.fingerprint)
    known = {old: new.pop() for old, new in today.items() if len(new) == 1}
    return lambda run: {"fingerprint": known.get(run.config.fingerprint, run.config.fingerprint)}


def _usual(known: Iterable[tuple[RunRecord, Facts]]) -> dict[str, dict[str, Any]]:
    """By method, the values that nobody chose: what a run of an earlier version had as well.

    Of settings that are the same for all methods, a run of any of them tells the default.
    """
    found: dict[str, dict[str, Any]] = {}
    general: dict[str, Any] = {}
    for run, facts in known:
        usual, origins = found.setdefault(run.method, {}), run.config.origins
        for name, value in facts.items():
            if name not in usual and origins.get(name) in ("default", "preset"):
                usual[name] = value
                if name.startswith(GENERAL) and origins[name] == "default":
                    general.setdefault(name, value)
    return {method: {**general, **usual} for method, usual in found.items()}


def _once(runs: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Count a finished seed once, though two folders hold it: by the record that tells more."""
    kept: list[RunRecord] = []
    first: dict[int, RunRecord] = {}
    for run in runs:
        twin = first.get(run.seed) if run.done else None
        if twin is None:
            kept.append(run)
            first |= {run.seed: run} if run.done else {}
            continue
        refuse_contradiction(twin, run)
        if _tells(run) > _tells(twin):
            kept[kept.index(twin)] = first[run.seed] = run
    return tuple(kept)


def _tells(run: RunRecord) -> tuple[bool, bool, int]:
    """Order records of the same run: first those that chose what predicts, then by what is there.

    A run that chose other networks has of these the accuracies alone.
    """
    return not run.answer, run.summary.ncm is not None, len(run.summary.along)


def refuse_contradiction(twin: RunRecord, run: RunRecord) -> None:
    """Refuse two records of the same run whose numbers differ."""
    both = {*METRICS} & {*twin.metrics} & {*run.metrics}  # they may have been probed differently
    if any(twin.metrics[name] != run.metrics[name] for name in both):
        raise UserError(
            f"{twin.folder} and {run.folder} have the same settings and the same seed "
            f"{run.seed} but different numbers; give only one of the two"
        )


def _named(series: Sequence[Series], shared: Facts) -> list[Series]:
    """Series with their labels: the method, its variant, and what tells it from one alike."""
    alike: dict[tuple[str, str], list[Facts]] = {}
    keys = [(one.method, _text(one.variant)) for one in series]
    for key, one in zip(keys, series, strict=True):
        alike.setdefault(key, []).append(one.facts)
    apart = {key: _differing(some) for key, some in alike.items()}
    named = []
    for key, one in zip(keys, series, strict=True):
        parts = {**one.variant, **{short: one.facts.get(k) for short, k in apart[key].items()}}
        own = {name: value for name, value in parts.items() if name not in shared}
        labels = labelled(one.method, parts), labelled(one.method, own)
        named.append(replace(one, label=labels[0], name=labels[1]))
    return named


def _numbered(series: Sequence[Series]) -> list[Series]:
    """Series with a number after a label that still stands twice, as a cut one may."""
    seen: Counter[str] = Counter()
    numbered = []
    for one in series:
        seen[one.label] += 1
        if (k := seen[one.label]) > 1:
            one = replace(one, label=f"{one.label} ({k})", name=f"{one.name} ({k})")
        numbered.append(one)
    return numbered


def _differing(alike: Sequence[Facts]) -> dict[str, str]:
    """The names, by short names, of the facts that differ in series of the same label."""
    if len(alike) == 1:
        return {}
    names = dict.fromkeys(name for facts in alike for name in facts)
    differing = [name for name in names if len({_key({"": f.get(name)}) for f in alike}) > 1]
    return dict(zip(short_names(differing), differing, strict=True))


def short_names(names: Sequence[str]) -> list[str]:
    """Dotted names by their last part, where that is enough to tell them apart.

    >>> short_names(["optim.lr", "net.name", "optim.name"])
    ['lr', 'net.name', 'optim.name']
    """
    last = [name.rpartition(".")[2] for name in names]
    times = Counter(last)
    return [s if times[s] == 1 else n for n, s in zip(names, last, strict=True)]


class Baseline(NamedTuple):
    """A series without a wrapper, and what a wrapper must agree with it in."""

    series: Series
    facts: Facts


def _baselines(series: Sequence[Series]) -> dict[str, dict[str, list[Baseline]]]:
    """By method, then by the key of their facts."""
    found: dict[str, dict[str, list[Baseline]]] = {}
    for one in series:
        if not one.wrapper:
            facts = _comparable(one)
            same = found.setdefault(one.method, {}).setdefault(_key(facts), [])
            same.append(Baseline(one, facts))
    return found


def _with_gain(one: Series, baselines: Mapping[str, Mapping[str, list[Baseline]]]) -> Series:
    """A wrapper with its gain over the series of its base whose shared settings all agree."""
    if not one.wrapper or one.base not in baselines:
        return one
    facts, rivals = _comparable(one), baselines[one.base]
    near = rivals.get(_key(facts)) or _nearest(facts, [b for same in rivals.values() for b in same])
    nearest = max(near, key=lambda rival: len(_common(one, rival.series)))
    unlike = _unlike(facts, nearest.facts)
    if unlike:
        return replace(one, why=_why(one, unlike))
    return _over(one, nearest.series, "its baseline")


def _over(one: Series, rival: Series, called: str) -> Series:
    """A series with its gain over another, on the seeds that both have."""
    seeds = _common(one, rival)
    if not seeds:
        waiting = one.done and rival.done
        return replace(one, gain=None, why=f"no seed in common with {called}" if waiting else "")
    pairs = {name: _paired(name, one, rival) for name in SHOWN}
    metrics = {name: pair for name, pair in pairs.items() if pair}
    return replace(one, gain=Gain(rival, tuple(seeds), metrics), why="")


def _nearest(facts: Facts, rivals: Sequence[Baseline]) -> list[Baseline]:
    """Those that differ in the fewest."""
    counts = [len(_unlike(facts, rival.facts)) for rival in rivals]
    fewest = min(counts)
    return [rival for rival, n in zip(rivals, counts, strict=True) if n == fewest]


def _comparable(one: Series) -> dict[str, Any]:
    """What must agree; the collaboration and its plug-ins are the wrapper's own.

    So are the networks that predict, but not that nearest class means do.
    """
    own = ("collaboration.", "plugin.wrapper ", "plugin.teacher ")
    shared = {name: value for name, value in one.facts.items() if not name.startswith(own)}
    if shared.get("predict_with") in ("peers", "ema", "average"):
        del shared["predict_with"]
    return shared


def _unlike(mine: Facts, theirs: Facts) -> list[str]:
    """The names of what differs; what is not there is None."""
    return [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]


def _why(one: Series, unlike: Sequence[str]) -> str:
    if "fingerprint" in unlike:
        return "no baseline on the same state of the data"
    named = zip(short_names(unlike), unlike, strict=True)
    return "no baseline with " + ", ".join(f"{s}={shown(one.facts.get(n)):.40}" for s, n in named)


def _common(a: Series, b: Series, metric: str = "AA") -> list[int]:
    theirs = b.values(metric)
    return [seed for seed in a.values(metric) if seed in theirs]


def _paired(metric: str, a: Series, b: Series) -> Paired | None:
    """The difference on the seeds that both have; None without any, or if they had it unlike."""
    if a.way(metric) != b.way(metric):
        return None
    seeds, mine, theirs = _common(a, b, metric), a.values(metric), b.values(metric)
    return paired([mine[k] for k in seeds], [theirs[k] for k in seeds]) if seeds else None


def _best(metric: str, group: Sequence[Series]) -> frozenset[str]:
    """The labels that `BEST` describes; none without a rival."""
    spreads = {s.label: spread for s in group if (spread := s.spread(metric))}
    means = {label: spread.mean for label, spread in spreads.items() if spread.n > 1}
    if not means or len({s.way(metric) for s in group if s.label in means}) > 1:
        return frozenset()
    pick: Callable[..., str] = max if EVERY[metric].higher_is_better else min
    first = pick(means, key=means.__getitem__)
    (leader,) = (s for s in group if s.label == first)
    pairs = {s.label: _paired(metric, s, leader) for s in group if s is not leader}
    compared = {label: pair for label, pair in pairs.items() if pair and pair.n > 1}
    if not compared:
        return frozenset()
    level = {label for label, pair in compared.items() if not pair.sign}
    apart = {label for label, pair in compared.items() if pair.p is None and pair.difference}
    return frozenset({first, *(level - apart)})
