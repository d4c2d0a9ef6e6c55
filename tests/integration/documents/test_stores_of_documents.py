"""Documents in a folder, in Azurite's blobs and on a server with the protocol of S3: all stores behave alike."""

import itertools

import pytest
from pyarrow.fs import FileSelector

from eventstore import StoreUnavailableError, drive
from handlers import DocumentReference
from handlers.context import new_document
from runtime import UsageError
from runtime.documents import FolderDocuments, open_documents, open_place, portable_url
from tests.unit.runtime.documents.letters_desk import Office, ask

_numbers = itertools.count(1)
NAMES = ["Desk/r-1/0a1b-1-letter.txt", "Desk/A b%2Fc ü/0a1b-2-größe 1.txt"]


@pytest.fixture(
    params=["disk", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("azurite", "s3"))]
)
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    if request.param == "disk":
        return str(tmp_path / "documents")
    if request.param == "s3":
        s3: str = request.getfixturevalue("s3_url")
        return s3.replace("/papers", f"/papers {next(_numbers)}".replace(" ", "%20"))
    container = f"documents-{next(_numbers)}"
    place = f"azurite://{request.getfixturevalue('azurite_blobs')}/{container}/papers"
    open_place(place).files.create_dir(container)
    return place


def files_in(url: str) -> list[str]:
    folder = open_place(url)
    found = folder.files.get_file_info(FileSelector(folder.path, recursive=True, allow_not_found=True))
    return sorted(each.path.removeprefix(f"{folder.path}/") for each in found if each.is_file)


def document(name: str, content: bytes = b"content"):
    return new_document(content, "text/plain", name)


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_there_under_its_name_until_it_is_deleted(url, name):
    documents = FolderDocuments(url)
    reference, content = document(name, b"x" * 100_000)

    drive(documents.prepare(reference, content))
    drive(documents.delete("Desk/r-9/0a1b-1-never.txt"))
    assert files_in(url) == [name]
    read = DocumentReference.model_validate_json(reference.model_dump_json())
    assert drive(documents.read(read.name)) == content
    assert new_document(content, read.media_type, read.name).reference == reference

    for _ in range(2):
        drive(documents.delete(name))
    assert files_in(url) == []


def test_the_documents_of_one_object_are_listed_and_its_folder_goes_when_they_are_deleted(url):
    documents = FolderDocuments(url)
    folder = "Desk/A b%2Fc ü"
    of_the_object = [f"{folder}/{number}-größe {number}.txt" for number in range(3)]
    for name in [*of_the_object, NAMES[0]]:
        drive(documents.prepare(*document(name)))
    assert sorted(drive(documents.names(folder))) == of_the_object

    drive(documents.remove(folder))  # it is not empty
    assert files_in(url) == sorted([*of_the_object, NAMES[0]])
    for name in of_the_object:
        drive(documents.delete(name))
    for _ in range(2):
        drive(documents.remove(folder))

    assert (drive(documents.names(folder)), files_in(url)) == ([], [NAMES[0]])
    assert not open_place(url).sub(folder).names()


@pytest.mark.thorough
@pytest.mark.parametrize("url", ["azurite", "s3"], indirect=True)
def test_object_stores_are_told_the_media_type(url):
    documents, folder = FolderDocuments(url), open_place(url)
    drive(documents.prepare(*document(NAMES[0])))
    with folder.files.open_input_stream(folder.path_of(NAMES[0])) as stream:
        told = {name.lower(): value for name, value in stream.metadata().items()}
    assert told["content-type"] == b"text/plain"


def test_a_worker_that_died_with_a_document_prepared_leaves_nothing_after_a_sweep(url, tmp_path):
    office = Office(tmp_path / "unused")
    office.documents = FolderDocuments(url)

    office.die_prepared("m-1")
    (prepared,) = files_in(url)
    office.process(ask())
    office.sweep()

    (letter,) = office.announced
    assert files_in(url) == [letter.name]
    assert prepared != letter.name


def test_what_is_no_store_of_documents_is_refused_and_not_repeated():
    with pytest.raises(UsageError, match="ftp:// cannot be opened") as caught:
        open_documents("ftp://user:secret@host/folder")
    assert "secret" not in str(caught.value)


def test_a_url_may_be_in_the_environment_and_workers_are_told_an_absolute_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERS", str(tmp_path / "papers"))
    drive(open_documents("env:PAPERS").prepare(*document(NAMES[0])))
    assert files_in(str(tmp_path / "papers")) == [NAMES[0]]
    with pytest.raises(UsageError, match="OTHER that names the store of documents is not set"):
        open_documents("env:OTHER")
    monkeypatch.chdir(tmp_path)
    assert portable_url("documents") == str(tmp_path / "documents")
    assert portable_url("s3://bucket/folder") == "s3://bucket/folder"


@pytest.mark.thorough
def test_a_service_that_does_not_answer_is_one_to_ask_again(monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    documents = FolderDocuments("s3://bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1")
    with pytest.raises(StoreUnavailableError, match="document store did not answer"):
        drive(documents.delete("a/b.txt"))
