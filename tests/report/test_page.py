import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from peerlearn.errors import UserError
from peerlearn.report import read_runs, render
from peerlearn.report.markup import VOID

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


def test_the_headline_says_what_ccldc_does_to_its_baseline(runs_root: Path) -> None:
    runs = read_runs(runs_root)
    before, after = (
        100 * sum(r.metrics["AA"] or 0 for r in runs if r.method == method) / 2
        for method in ("er", "er+ccldc")
    )
    page = render(runs)
    assert f"<h1>CCL-DC lifts er from AA {before:.1f} to {after:.1f} (2 seeds)</h1>" in page
    assert "images forward per stream image" in Reader(page).text  # never without its cost


def test_a_loss_is_called_a_loss(fabricate_run: Fabricate, tmp_path: Path) -> None:
    for method, aa in (("er", 0.5), ("er+ccldc", 0.4)):
        path = fabricate_run(method) / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"AA": aa}))
    assert "CCL-DC lowers er from AA 50.0 to 40.0 (1 seed)" in page_of(tmp_path / "runs")


def test_only_seeds_that_both_have_are_compared(fabricate_run: Fabricate, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        fabricate_run("er", seed=seed)
    fabricate_run("er+ccldc", seed=1)
    fabricate_run("er+ccldc", seed=2, status="running", reached=2)
    runs = read_runs(tmp_path / "runs")
    er = next(100 * (r.metrics["AA"] or 0) for r in runs if (r.method, r.seed) == ("er", 1))
    assert f"CCL-DC lifts er from AA {er:.1f} to" in render(runs)
    assert "(1 seed)" in render(runs)


def test_different_memories_are_never_compared(fabricate_run: Fabricate, tmp_path: Path) -> None:
    fabricate_run("er", memory=200)
    fabricate_run("er+ccldc", memory=500)
    page = page_of(tmp_path / "runs")
    assert "CCL-DC lifts" not in page
    assert "er+ccldc reaches the best AA," in page


def test_the_table_shows_mean_spread_and_cost_and_marks_the_best(runs_root: Path) -> None:
    runs = read_runs(runs_root)
    page = render(runs)
    text = Reader(page).text
    values = [100 * (r.metrics["LA"] or 0) for r in runs if r.method == "er+ccldc"]
    mean, half = sum(values) / 2, abs(values[0] - values[1]) / math.sqrt(2)
    assert f"{mean:.1f} ± {half:.1f} best" in text
    for word in (
        "Memory",
        "Images forward",
        "Training",
        "Peak memory",
        "Kept",
        "350.0",
        "14.0",
        "3.4",
    ):
        assert word in text
    assert page.index('scope="row"><span>er</span>') < page.index(">er+ccldc</span>")


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
    fabricate_run("er", settings={"width": 32})
    fabricate_run("er", seed=1)
    text = Reader(page_of(tmp_path / "runs")).text
    assert re.search(r"What differs ?Method ?Data ?Memory ?Seeds ?width", text)
    assert re.search(r"32 ?default", text)
    assert "All 11 settings" in text
    assert "peerlearn run er --data mini --memory 200 --seeds 1" in text


def test_running_and_failed_runs_are_shown_as_such_and_enter_no_mean(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    fabricate_run("er", seed=0)
    alone = Reader(page_of(tmp_path / "runs")).text
    fabricate_run("er", seed=1, status="running", reached=2)
    fabricate_run("gsa", status="failed", reached=1)
    text = Reader(page_of(tmp_path / "runs")).text
    for words in ("1 running", "1 failed", "2 of 5", "2 not finished", "gsa (unfinished)"):
        assert words in text
    aa = re.search(r"er ?200 ?1 ?(\d+\.\d)", alone)
    assert aa
    assert re.search(rf"1 running ?200 ?1 ?{aa[1]}", text)


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
    (folder / "config.yaml").write_text(config.replace("lr: preset", f"lr: '{EVIL}'"))
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
    assert "CCL-DC lifts AA in 6 of 6 comparisons" in page
    assert page.count('class="group-row"') == 2
    assert page.count('class="fold" open>') == 4  # the first group of each long section
    assert len(page) < 2_500_000


def test_equal_runs_give_equal_bytes(runs_root: Path) -> None:
    assert page_of(runs_root) == page_of(runs_root)
