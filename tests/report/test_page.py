import html
import itertools
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from peerlearn.errors import UserError
from peerlearn.records.read import read_runs
from peerlearn.report import render
from peerlearn.report.labels import Box, around, box_of
from peerlearn.report.markup import VOID
from peerlearn.results.compare import BEST, compare

Fabricate = Callable[..., Path]
EVIL = '"><script>window.hacked = 1</script><img src=x onerror="window.hacked=1">'


class Reader(HTMLParser):
    """Reads a page as strictly as its own markup promises: every tag closed, every id once."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open[-1:]):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def page_of(root: Path) -> str:
    return render(read_runs(root))


def headline(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page)
    assert found
    return html.unescape(re.sub("<[^>]+>", "", found[1]))


def flat(aa: float, tasks: int = 5) -> list[list[float]]:
    """A matrix whose AA is `aa`."""
    return [[aa] * (i + 1) for i in range(tasks)]


def make(fabricate_run: Fabricate, method: str, *aas: float, **kwargs: object) -> None:
    for seed, aa in enumerate(aas):
        fabricate_run(method, seed=seed, matrix=flat(aa), **kwargs)


def test_the_headline_says_what_a_wrapper_does_to_its_baseline(runs_root: Path) -> None:
    runs = read_runs(runs_root)
    before, after = (
        100 * sum(r.metrics["AA"] or 0 for r in runs if r.method == method) / 2
        for method in ("er", "er+ccldc")
    )
    page = render(runs)
    assert headline(page) == f"CCL-DC lifts er from AA {before:.1f} to {after:.1f} (2 seeds)"
    assert "images forward per stream image" in Reader(page).text  # never without its cost


@pytest.mark.parametrize(
    ("wrapper", "title"),
    [("sdc", "SDC"), ("ccl", "CCL"), ("mkd", "MKD"), ("ema-chain", "EMA chain"), ("mine", "mine")],
)
def test_the_wrapper_that_was_run_is_named(
    fabricate_run: Fabricate, tmp_path: Path, wrapper: str, title: str
) -> None:
    make(fabricate_run, "er", 0.40, 0.41, 0.42)
    make(fabricate_run, f"er+{wrapper}", 0.50, 0.52, 0.52)
    page = page_of(tmp_path / "runs")
    assert headline(page) == f"{title} lifts er from AA 41.0 to 51.3 (3 seeds)"
    assert "CCL-DC" not in page


def test_a_loss_is_called_a_loss(fabricate_run: Fabricate, tmp_path: Path) -> None:
    make(fabricate_run, "er", 0.50, 0.51)
    make(fabricate_run, "er+ccldc", 0.40, 0.412)
    page = page_of(tmp_path / "runs")
    assert headline(page).startswith("CCL-DC lowers er from AA 50.5 to 40.6")
    assert 'class="change bad"' in page


def test_one_seed_claims_nothing(fabricate_run: Fabricate, tmp_path: Path) -> None:
    make(fabricate_run, "er", 0.40)
    make(fabricate_run, "er+ccldc", 0.60)
    page = page_of(tmp_path / "runs")
    assert headline(page) == "One seed says little: AA is 40.0 for er and 60.0 for er+ccldc"
    assert 'class="change good"' not in page
    make(fabricate_run, "gsa", 0.40)
    make(fabricate_run, "gsa+ccldc", 0.60)
    page = page_of(tmp_path / "runs")
    assert headline(page) == (
        "One seed says little: 2 comparisons with CCL-DC wait for a second seed"
    )


def test_a_gain_whose_interval_holds_zero_is_no_gain(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.50, 0.45)
    make(fabricate_run, "er+ccldc", 0.44, 0.49, 0.47)
    page = page_of(tmp_path / "runs")
    assert headline(page) == "er+ccldc cannot be told from er: AA 46.7 and 45.0 (3 seeds)"
    assert not re.search(r'class="(change|gain) (good|bad)"', page)
    assert "no clear difference" in page


def test_the_headline_counts_only_what_leaves_no_doubt(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for base in ("er", "gsa", "ocm", "derpp"):
        make(fabricate_run, base, 0.40, 0.41, 0.42)
    make(fabricate_run, "er+ccldc", 0.50, 0.52, 0.52)
    make(fabricate_run, "gsa+ccldc", 0.30, 0.31, 0.33)
    make(fabricate_run, "ocm+ccldc", 0.38, 0.47, 0.43)
    make(fabricate_run, "derpp+ccldc", 0.90)
    page = page_of(tmp_path / "runs")
    assert headline(page) == (
        "AA is higher with CCL-DC in 1 of 4 comparisons, lower in 1, 1 cannot be told apart, "
        "1 with one seed only"
    )
    tones = re.findall(r'class="gain (\w+)" data-tip="(\S+): ([^"]+)"', page.split("LA,")[0])
    assert {name: tone for tone, name, _ in tones} == {
        "er+ccldc": "good", "gsa+ccldc": "bad", "ocm+ccldc": "flat", "derpp+ccldc": "flat",
    }  # fmt: skip


def test_of_several_wrappers_each_is_named_with_what_it_does(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.41, 0.42)
    make(fabricate_run, "er+ccldc", 0.50, 0.52, 0.52)
    make(fabricate_run, "er+ema-chain", 0.60, 0.62, 0.62)
    assert headline(page_of(tmp_path / "runs")) == "AA of er is higher with EMA chain and CCL-DC"
    make(fabricate_run, "er+ema", 0.30, 0.31, 0.33)
    make(fabricate_run, "er+mkd", 0.38, 0.47, 0.43)
    make(fabricate_run, "er+gwm", 0.90)
    assert headline(page_of(tmp_path / "runs")) == (
        "AA of er is higher with EMA chain and CCL-DC, lower with EMA, MKD cannot be told from er, "
        "GWM with one seed only"
    )


def test_of_several_wrappers_without_a_clear_gain_none_is_claimed(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.50, 0.45)
    make(fabricate_run, "er+mkd", 0.44, 0.49, 0.47)
    make(fabricate_run, "er+sdc", 0.43, 0.50, 0.46)
    assert headline(page_of(tmp_path / "runs")) == "MKD and SDC cannot be told from er"


def test_of_several_wrappers_on_several_methods_each_has_its_count(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for base in ("er", "gsa"):
        make(fabricate_run, base, 0.40, 0.41, 0.42)
        make(fabricate_run, f"{base}+mkd", 0.50, 0.52, 0.52)
        for wrapper in ("ccldc", "sdc", "ccl"):
            lift = 0.1 if base == "er" else -0.1
            make(fabricate_run, f"{base}+{wrapper}", 0.40 + lift, 0.41 + lift, 0.43 + lift)
    assert headline(page_of(tmp_path / "runs")) == (
        "AA is higher with MKD in 2 of 2 comparisons, with CCL-DC in 1 of 2, with CCL in 1 of 2 "
        "and with 1 more in 1 of 2, lower in 3"
    )


def test_runs_at_chance_level_are_called_so_and_claim_no_gain(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for base in ("er", "derpp", "er_ace"):
        for method in (base, f"{base}+ccldc"):
            for seed in range(3):
                fabricate_run(method, seed=seed, chance=True)
    page = page_of(tmp_path / "runs")
    text = Reader(page).text
    assert headline(page) == "None of the methods can be told from guessing"
    assert "6 of 6 methods cannot be told from guessing, which gives AA 10.0." in text
    assert text.count("at chance level") == 6
    assert "lifts" not in text


def test_a_single_method_at_chance_is_named_beside_the_others(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.41)
    make(fabricate_run, "gsa", 0.10, 0.09)
    text = Reader(page_of(tmp_path / "runs")).text
    assert "gsa cannot be told from guessing, which gives AA 10.0." in text


def test_chance_is_drawn_over_the_stream_and_explained(runs_root: Path) -> None:
    page = page_of(runs_root)
    assert 'class="chance"' in page
    text = Reader(page).text
    assert "The dotted line is chance" in text
    assert re.search(r"chance ?50\.0 ?25\.0 ?16\.7 ?12\.5 ?10\.0", text)


def test_only_seeds_that_both_have_are_compared(fabricate_run: Fabricate, tmp_path: Path) -> None:
    make(fabricate_run, "er", 0.1, 0.40, 0.42, 0.9)
    for seed, aa in ((1, 0.50), (2, 0.521)):
        fabricate_run("er+ccldc", seed=seed, matrix=flat(aa))
    fabricate_run("er+ccldc", seed=3, status="running", reached=2)
    page = page_of(tmp_path / "runs")
    assert headline(page) == "CCL-DC lifts er from AA 41.0 to 51.0 (2 seeds)"


@pytest.mark.parametrize(
    "other",
    [{"memory": 500}, {"data": "tiny"}, {"settings": {"net.width": 32}},
     {"settings": {"optim.lr": 0.01}}, {"fingerprint": "beef"}],
)  # fmt: skip
def test_runs_of_other_memory_data_or_settings_are_never_compared(
    fabricate_run: Fabricate, tmp_path: Path, other: dict[str, object]
) -> None:
    make(fabricate_run, "er", 0.40, 0.41)
    make(fabricate_run, "er+ccldc", 0.60, 0.611, **other)
    page = page_of(tmp_path / "runs")
    assert "lifts" not in headline(page)
    assert 'class="tiles"' not in page
    assert 'class="change good"' not in page


def test_two_variants_are_two_rows_of_the_page_too(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.42)
    make(fabricate_run, "er", 0.60, 0.62, settings={"optim.lr": 0.01})
    make(fabricate_run, "er+ccldc", 0.70, settings={"optim.lr": 0.05})
    text = Reader(page_of(tmp_path / "runs")).text
    assert re.search(r"er ?2 ?41\.0", text)
    assert re.search(r"er, lr=0\.01 ?2 ?61\.0", text)
    assert "no baseline with lr=0.05" in text
    assert "51.0" not in text  # their common mean


def test_without_pairs_the_headline_says_who_is_ahead_and_of_whom(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.41, 0.42)
    make(fabricate_run, "gsa", 0.50, 0.512, 0.52)
    assert headline(page_of(tmp_path / "runs")).startswith("gsa is ahead of all others with AA")
    make(fabricate_run, "ocm", 0.49, 0.52, 0.51)
    assert headline(page_of(tmp_path / "runs")).endswith("ocm cannot be told from it")


def test_the_table_shows_mean_spread_gain_and_cost_and_marks_the_best(runs_root: Path) -> None:
    runs = read_runs(runs_root)
    page = render(runs)
    text = Reader(page).text
    values = [100 * (r.metrics["LA"] or 0) for r in runs if r.method == "er+ccldc"]
    mean, half = sum(values) / 2, abs(values[0] - values[1]) / math.sqrt(2)
    assert f"{mean:.1f} ± {half:.1f} best" in text
    for word in ("Gain in AA", "Images forward", "Training", "Peak memory", "Kept", "350.0",
                 "14.0", "3.4", BEST):  # fmt: skip
        assert word in text
    assert page.index('scope="row"><span>er</span>') < page.index(">er+ccldc</span>")


def test_what_cannot_be_told_apart_is_marked_together(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    make(fabricate_run, "er", 0.40, 0.50, 0.45)
    make(fabricate_run, "gsa", 0.42, 0.49, 0.47)
    text = Reader(page_of(tmp_path / "runs")).text
    assert "45.0 ± 5.0 best" in text
    assert "46.0 ± 3.6 best" in text


def test_forgetting_stands_beside_relative_forgetting(runs_root: Path) -> None:
    page = page_of(runs_root)
    text = Reader(page).text
    tiles = page.split('<ul class="tiles">')[1].split("</ul>")[0]
    assert re.findall(r"<b>(\w+)</b>", tiles) == ["AA", "LA", "FM", "RF", "Cost"]
    assert "AA % ↑LA % ↑FM % ↓RF % ↓" in text
    assert "LA and FM in %" in text
    assert "LA and RF in %" in text


def twelve(fabricate_run: Fabricate) -> None:
    for base in ("er", "derpp", "er_ace", "ocm", "gsa", "onpro"):
        for method in (base, f"{base}+ccldc"):
            for seed in range(3):
                fabricate_run(method, seed=seed)


def test_twelve_methods_can_be_chosen_from_and_every_point_has_a_name(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    twelve(fabricate_run)
    page = page_of(tmp_path / "runs")
    assert page.count('type="checkbox"') == 12
    stream = page.split('id="stream"')[1].split("</section>")[0]
    assert stream.count('class="multiple"') == 6
    assert 'class="large many"' in stream  # no bands until some are chosen
    scatter = page.split("Plasticity against stability by RF")[2].split("</svg>")[0]
    names = re.findall(r'class="name c\d">([^<]+)<', scatter)
    assert len(set(names)) == 12


def test_names_of_points_do_not_cover_each_other(fabricate_run: Fabricate, tmp_path: Path) -> None:
    twelve(fabricate_run)
    (group,) = compare(read_runs(tmp_path / "runs"))
    points = [(100 + 3.0 * i, 100 + 2.0 * (i % 3)) for i in range(8)]
    names = [one.name for one in group.series[:8]]
    places = around(points, names, Box(0, 0, 600, 400))
    boxes = [box_of(place, name) for place, name in zip(places, names, strict=True)]
    overlaps = [a.overlap(b) for a, b in itertools.combinations(boxes, 2)]
    assert max(overlaps) == 0


def test_every_section_stands_in_the_promised_order(runs_root: Path) -> None:
    ids = [attrs["id"] for tag, attrs in Reader(page_of(runs_root)).tags
           if tag in ("section", "footer") and "id" in attrs]  # fmt: skip
    assert ids == ["summary", "stream", "plasticity", "matrices", "memory", "losses", "cost",
                   "settings", "formulas"]  # fmt: skip


def test_the_formulas_are_exact(runs_root: Path) -> None:
    text = Reader(page_of(runs_root)).text.replace("\N{MINUS SIGN}", "-")
    for formula in (
        "mean over j ≤ k of a[k][j]",
        "mean over j ≤ k of a[j][j]",
        "mean over j < k of (max over j ≤ i < k of a[i][j]) - a[k][j]",
        "mean over j ≤ k of 1 - a[k][j] / (max over j ≤ i ≤ k of a[i][j])",
        "mean over j < i ≤ k of a[i][j] - a[j][j]",
    ):
        assert formula in text


def test_every_chart_has_a_name_a_description_and_its_numbers(runs_root: Path) -> None:
    page = page_of(runs_root)
    images = re.findall(r'<svg role="img" aria-label="([^"]+)"[^>]*>(.{1,40})', page)
    assert len(images) >= 13
    assert all(label and start.startswith("<title>") for label, start in images)
    assert page.count("<desc>") == page.count("<title>") - 1 == len(images)
    assert page.count('class="numbers"><thead>') == len(images) == page.count("<figure>")


def test_settings_that_differ_come_first_with_their_origin(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    fabricate_run("er", settings={"net.width": 32})
    fabricate_run("er", seed=1)
    text = Reader(page_of(tmp_path / "runs")).text
    assert re.search(r"What differs ?Method ?Data ?Memory ?Seeds ?net\.width", text)
    assert re.search(r"32 ?flag", text)
    assert re.search(r"All \d+ settings", text)
    assert "peerlearn run er --data mini --memory 200 --seeds 1" in text


def test_running_and_failed_runs_are_shown_as_such_and_enter_no_mean(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    fabricate_run("er", seed=0)
    alone = Reader(page_of(tmp_path / "runs")).text
    fabricate_run("er", seed=1, status="running", reached=2)
    fabricate_run("gsa", status="failed", reached=1)
    text = Reader(page_of(tmp_path / "runs")).text
    for words in ("1 unfinished", "1 failed", "2 of 5", "2 not finished", "gsa (unfinished)"):
        assert words in text
    aa = re.search(r"er ?1 ?(\d+\.\d)", alone)
    assert aa
    assert re.search(rf"1 unfinished ?1 ?{aa[1]}", text)


@pytest.mark.parametrize("reached", [0, 1])
def test_a_page_can_be_made_before_anything_has_finished(
    fabricate_run: Fabricate, reached: int
) -> None:
    folder = fabricate_run("er", status="running", reached=reached)
    assert "No run has finished yet" in Reader(page_of(folder)).text


def test_a_single_task_has_no_forgetting_and_still_a_page(fabricate_run: Fabricate) -> None:
    assert "er reaches AA" in Reader(page_of(fabricate_run("er", tasks=1))).text


def test_runs_that_know_nothing_still_make_a_page(fabricate_run: Fabricate) -> None:
    folder = fabricate_run("er", tasks=2)
    path = folder / "accuracy.json"
    content = json.loads(path.read_text())
    content["ensemble"] = [[0.0, None], [0.0, 0.0]]
    path.write_text(json.dumps(content))
    (folder / "steps.jsonl").write_text("")
    page = page_of(folder)
    assert 'id="losses"' not in page
    assert "after task 2, on task 1: 0.0 %" in page


def test_no_runs_make_no_page() -> None:
    with pytest.raises(UserError, match="a report needs at least one run"):
        render([])


def test_names_from_files_are_text_wherever_they_stand(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    fabricate_run("er", names=[f"{EVIL}{i}" for i in range(10)], settings={EVIL: EVIL})
    folder = fabricate_run("er", seed=1)
    config = (folder / "config.yaml").read_text()
    config = config.replace("optim.lr: preset", f"optim.lr: '{EVIL}'")
    config = config.replace("method: er\n", f"method: '{EVIL}+ccldc'\n")
    (folder / "config.yaml").write_text(config.replace("data: mini\n", f"data: '{EVIL}'\n", 1))
    for name, values in (
        ("summary.json", {"data": EVIL, "method": f"{EVIL}+ccldc", "ncm": None}),
        ("environment.json", {EVIL: EVIL, "command": f"{EVIL}\ud800\x00"}),
    ):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | values))
    line = json.dumps({"batch": 1, "losses": {EVIL: 1.5}})
    (folder / "steps.jsonl").write_text(f"{line}\n")
    page = render(read_runs(tmp_path / "runs"), title=EVIL)
    page.encode("utf-8")  # a lone surrogate would not pass
    read = Reader(page)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not {"img", "iframe", "object", "link"} & {tag for tag, _ in read.tags}
    assert not [a for _, attrs in read.tags for a in attrs if a.startswith("on")]
    assert EVIL in read.text
    assert read.text.count(f"{EVIL}+ccldc") > 3


def test_the_page_needs_no_network_and_its_policy_allows_none(runs_root: Path) -> None:
    page = page_of(runs_root)
    assert not re.search(r"https?://|url\(|@import|//cdn", page)
    read = Reader(page)
    for _, attrs in read.tags:
        assert "src" not in attrs
        assert "style" not in attrs  # the policy would block it
        assert (attrs.get("href") or "#").startswith("#")
    (policy,) = [a["content"] or "" for t, a in read.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_every_id_is_unique_and_every_label_and_link_finds_its_target(runs_root: Path) -> None:
    read = Reader(page_of(runs_root))
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in read.tags:
        for target in (
            attrs.get("for"),
            attrs.get("aria-labelledby"),
            (attrs.get("href") or "")[1:],
        ):
            assert not target or target in ids


def test_sixty_runs_are_grouped_and_stay_small(fabricate_run: Fabricate, tmp_path: Path) -> None:
    for method in ("er", "er+ccldc", "derpp", "derpp+ccldc", "er_ace", "er_ace+ccldc"):
        for seed in range(5):
            fabricate_run(method, seed=seed)
            fabricate_run(method, seed=seed, data="cifar100", memory=2000, tasks=10, classes=100)
    page = page_of(tmp_path / "runs")
    assert headline(page).startswith("AA is higher with CCL-DC in 6 of 6 comparisons")
    assert page.count('class="group-row"') == 2
    assert page.count('class="fold" open>') == 4  # the first group of each long section
    assert len(page) < 2_500_000


def test_equal_runs_give_equal_bytes(runs_root: Path) -> None:
    assert page_of(runs_root) == page_of(runs_root)
