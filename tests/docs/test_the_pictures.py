"""The drawings of docs/pictures are those that scripts/pictures.py draws, and pages show all pictures."""

from scripts.pictures import FOLDER, PICTURES
from tests.docs.pages import PAGES, links


def test_the_files_are_as_the_script_draws_them():
    assert {file.stem: file.read_text() for file in FOLDER.glob("*.svg")} == {
        name: picture.svg() for name, picture in PICTURES.items()
    }


def test_each_is_shown_on_a_page():
    shown = {link.rpartition("/")[2] for page in PAGES for link in links(page) if "pictures/" in link}

    assert shown == {file.name for file in FOLDER.iterdir()}
