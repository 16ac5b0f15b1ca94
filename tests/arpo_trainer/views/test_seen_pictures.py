"""Pictures that a tool has shown to the model are on the page; nothing is loaded from elsewhere."""

from pathlib import Path

from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey
from arpo_trainer.views.run_page import write_view
from tests.arpo_trainer.evaluation import made_rows
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.test_run_page import open_task

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # 1 x 1 pixel


def test_a_browser_shows_the_pictures_of_a_result(tmp_path: Path, browser: Browser) -> None:
    folder = made_rows.play(tmp_path / "run", {})
    tree = made_rows.tree("t0", "12", 1.0)
    tree.spans[1].tool = {"name": "read_file", "status": "ok", "images": [DOT, "http://192.0.2.1/x.png", 7]}
    with EpisodeStore(folder) as store:
        store.add(UnitKey("a", "GSM8K", "t0"), 0, tree)
    browser.open(write_view([folder]).as_uri())
    browser.value('document.querySelector(".grid-box").focus()')
    open_task(browser)
    browser.wait('document.querySelector("#detail .part.result img.seen").naturalWidth === 1', seconds=10)
    assert browser.value('document.querySelectorAll("#detail img").length') == 1
    assert not browser.logs
