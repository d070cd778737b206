"""The answer: what the runs show, and no more than that, then its numbers."""

from collections.abc import Mapping, Sequence

from peerlearn.metrics.table import EVERY, SHOWN
from peerlearn.report.markup import TIMES, Html, join, tag
from peerlearn.report.parts import count, listed
from peerlearn.results.formats import number, points
from peerlearn.results.series import Gain, Group, Series
from peerlearn.results.statistics import Paired

TITLES = {  # of wrappers; others by their names
    "ccldc": "CCL-DC",
    "ema-chain": "EMA chain",
    **{name: name.upper() for name in ("ccl", "ema", "gwm", "mkd", "sdc")},
}

NAMED = 3  # methods that a sentence names


def headline(groups: Sequence[Group]) -> str:
    """The result in one sentence, which claims only what the intervals leave no doubt about."""
    finished = [(group, one) for group in groups for one in group.series if one.values("AA")]
    gains = [found for group in groups for found in group.gains]
    if not finished:
        return "No run has finished yet"
    if all(one.at_chance for _, one in finished):
        who = finished[0][1].name if len(finished) == 1 else "None of the methods"
        return f"{who} {'cannot' if len(finished) == 1 else 'can'} be told from guessing"
    if len(gains) == 1:
        return pair_sentence(*gains[0])
    if gains:
        return count_sentence(gains)
    if len(groups) > 1:
        return f"{count(len(finished), 'result')} on {len(groups)} settings of data and memory"
    return leader_sentence(groups[0], [one for _, one in finished])


def pair_sentence(one: Series, gain: Gain) -> str:
    """What a wrapper does to its baseline."""
    before, after = (number(value, ".1f") for value in means(one, gain, "AA"))
    aa, alone = gain.metrics["AA"], gain.baseline.name
    if aa.n == 1:
        return f"One seed says little: AA is {before} for {alone} and {after} for {one.name}"
    seeds = count(aa.n, "seed")
    if aa.p is None and aa.difference:
        return f"AA is {before} for {alone} and {after} for {one.name}, alike in all {seeds}: no p"
    if not aa.sign:
        return f"{one.name} cannot be told from {alone}: AA {after} and {before} ({seeds})"
    verb = "lifts" if aa.sign > 0 else "lowers"
    return f"{title(one)} {verb} {alone} from AA {before} to {after} ({seeds})"


def count_sentence(gains: Sequence[tuple[Series, Gain]]) -> str:
    """How many of several comparisons leave no doubt, and with which wrappers."""
    by_wrapper: dict[str, list[Paired]] = {}
    for one, gain in gains:
        by_wrapper.setdefault(title(one), []).append(gain.metrics["AA"])
    pairs = [pair for some in by_wrapper.values() for pair in some]
    single = sum(pair.n == 1 for pair in pairs)
    if single == len(pairs):
        who = listed([*by_wrapper], NAMED)
        return f"One seed says little: {single} comparisons with {who} wait for a second seed"
    if len(by_wrapper) == len(gains):
        return each_sentence({name: pair for name, (pair,) in by_wrapper.items()}, gains)
    signs = [pair.sign for pair in pairs if pair.n > 1]
    rest = [
        f"lower in {signs.count(-1)}" if -1 in signs else "",
        f"{signs.count(0)} cannot be told apart" if 0 in signs else "",
        f"{single} with one seed only" if single else "",
    ]
    return ", ".join([f"AA is higher {shares(by_wrapper)}", *filter(None, rest)])


def each_sentence(pairs: Mapping[str, Paired], gains: Sequence[tuple[Series, Gain]]) -> str:
    """What each of several wrappers does, the largest gain first."""
    names = sorted(pairs, key=lambda name: -pairs[name].difference)

    def those(sign: int) -> str:
        return listed([k for k in names if pairs[k].n > 1 and pairs[k].sign == sign], NAMED)

    single = listed([name for name in names if pairs[name].n == 1], NAMED)
    baselines = dict.fromkeys(gain.baseline.name for _, gain in gains)
    alone = next(iter(baselines)) if len(baselines) == 1 else ""
    start = f"AA of {alone} is " if alone else "AA is "
    said = [
        f"higher with {up}" if (up := those(1)) else "",
        f"lower with {down}" if (down := those(-1)) else "",
        f"{alike} cannot be told from {alone or 'their baselines'}" if (alike := those(0)) else "",
        f"{single} with one seed only" if single else "",
    ]
    return (start if up or down else "") + ", ".join(filter(None, said))


def shares(by_wrapper: Mapping[str, Sequence[Paired]]) -> str:
    """In how many comparisons each wrapper is ahead, those with the largest share first."""
    wins = {name: [pair.sign > 0 for pair in pairs] for name, pairs in by_wrapper.items()}
    order = sorted(wins, key=lambda name: -sum(wins[name]) / len(wins[name]))
    rest = [won for name in order[NAMED:] for won in wins[name]]
    some = {f"with {name}": wins[name] for name in order[:NAMED]}
    some |= {f"with {len(order) - NAMED} more": rest} if rest else {}
    (first, *others) = (f"{who} in {sum(won)} of {len(won)}" for who, won in some.items())
    return listed([f"{first} comparisons", *others])


def leader_sentence(group: Group, finished: Sequence[Series]) -> str:
    """Who is ahead where nothing is paired."""
    best = max(finished, key=lambda one: _mean(one, "AA"))
    where = f"AA {100 * _mean(best, 'AA'):.1f} on {group.name}"
    seeds = count(len(best.values("AA")), "seed")
    if len(finished) == 1:
        return f"{best.name} reaches {where} ({seeds})"
    marked = group.best.get("AA", frozenset())
    if marked == {best.label}:
        return f"{best.name} is ahead of all others with {where} ({seeds})"
    others = [one.name for one in finished if one.label in marked and one is not best]
    if best.label in marked and others:
        return f"{best.name} has {where} ({seeds}); {listed(others, 3)} cannot be told from it"
    return f"One seed says little: {best.name} has the highest, {where}"


def hero(groups: Sequence[Group], title: str, *, note: str = "") -> Html:
    """The head of the page: the sentence, what limits it, and the numbers of one comparison."""
    runs = [run for group in groups for one in group.series for run in one.runs]
    where = groups[0].name if len(groups) == 1 else f"{len(groups)} settings of data and memory"
    unfinished = sum(not run.done for run in runs)
    lead = f"{count(len(runs), 'run')} on {where}." + (
        f" {unfinished} not finished: shown, but in no mean." if unfinished else ""
    )
    finished = [one for group in groups for one in group.series if one.done]
    if len(finished) == 1:  # no comparison carries the cost beside the accuracy
        lead += f" {price(finished[0])}"
    lead += note and f" {note}"
    gains = [found for group in groups for found in group.gains]
    warning = chance_warning(groups)
    return tag(
        "section",
        tag("p", title, class_="eyebrow"),
        tag("h1", unbroken(headline(groups))),
        tag("p", lead, class_="lead"),
        tag("p", warning, class_="warning") if warning else None,
        tag("ul", tiles(*gains[0]), class_="tiles") if len(gains) == 1 else None,
        class_="hero",
    )


def unbroken(sentence: str) -> Html:
    """A sentence whose names are not broken at their hyphens."""
    parts = [tag("span", w, class_="whole") if "-" in w else w for w in sentence.split(" ")]
    return join([[part, " "] for part in parts[:-1]], parts[-1])


def chance_warning(groups: Sequence[Group]) -> str:
    """Which series are no better than guessing, as far as one can tell."""
    said = []
    for group in groups:
        low = [one for one in group.series if one.at_chance]
        if low:
            done = sum(bool(one.done) for one in group.series)
            names = listed([one.name for one in low])
            who = names if len(low) <= NAMED else f"{len(low)} of {done} methods"
            where = f" on {group.name}" if len(groups) > 1 else ""
            chance = 100 * (low[0].chance_at_end or 0)
            said.append(f"{who}{where} cannot be told from guessing, which gives AA {chance:.1f}.")
    return " ".join(said)


def price(one: Series) -> str:
    """What a method took, in one sentence."""
    forward, seconds = one.cost("forward_per_image"), one.cost("train_seconds")
    if forward is None or seconds is None:
        return "Its cost was not measured."
    return (
        f"It took {forward:.1f} images forward per stream image and {seconds:,.0f} s of training."
    )


def tiles(one: Series, gain: Gain) -> list[Html]:
    """The numbers of one comparison: the metrics and the price."""
    result = []
    for name in SHOWN:
        if name in gain.metrics:
            values = [number(value, ".1f") for value in means(one, gain, name)]
            pair = gain.metrics[name]
            change = tag("span", points(pair), class_=f"change {tone(name, pair)}")
            doubts = tag("span", doubt(pair), class_="unit under")
            result.append(tile(name, EVERY[name].title, values, join(change, doubts)))
    costs = [s.cost("forward_per_image", gain.seeds) for s in (gain.baseline, one)]
    if costs[0] is not None and costs[1] is not None:
        ratio = f"{TIMES} {costs[1] / costs[0]:.1f}" if costs[0] else ""
        values = [f"{cost:.1f}" for cost in costs]
        change = tag("span", ratio, class_="change flat")
        result.append(tile("Cost", "images forward per stream image", values, change))
    return result


def tile(name: str, meaning: str, values: list[str], change: Html) -> Html:
    """One number before and after."""
    return tag(
        "li",
        tag("span", tag("b", name), " ", meaning, class_="what"),
        tag(
            "span",
            tag("span", values[0], class_="from"),
            tag("span", " to ", class_="unseen"),
            tag("span", "→", class_="arrow", aria_hidden="true"),
            tag("span", values[1], class_="to"),
            class_="numbers",
        ),
        tag("span", change),
    )


def tone(metric: str, pair: Paired) -> str:
    """Good or bad where the interval leaves no doubt, else flat."""
    if not pair.sign:
        return "flat"
    return "good" if (pair.sign > 0) == EVERY[metric].higher_is_better else "bad"


def doubt(pair: Paired) -> str:
    """What a difference without a colour means."""
    return "one seed" if pair.n == 1 else "" if pair.sign else "no clear difference"


def means(one: Series, gain: Gain, metric: str) -> tuple[float, float]:
    """A metric of the baseline and of its wrapper over their common seeds, in percent."""
    both = (gain.baseline.values(metric), one.values(metric))
    seeds = [seed for seed in both[1] if seed in both[0]]
    before, after = (100 * sum(v[seed] for seed in seeds) / len(seeds) for v in both)
    return before, after


def title(one: Series) -> str:
    """A wrapper as a person calls it."""
    return TITLES.get(one.wrapper, one.wrapper)


def _mean(one: Series, metric: str) -> float:
    spread = one.spread(metric)
    return spread.mean if spread else 0.0
