"""The factbook data set: what the builder gave, as it was frozen before it went."""

from __future__ import annotations

import pytest

from jaxrag.data import factbook
from jaxrag.data.factbook import Factbook
from jaxrag.types import InputError

IDENTITIES = {
    3: (
        "factbook-bd8535cb9037a1e2",
        "d9ac0d9bd0154644ba4aeccfd9419545de398c41a27fc146488fea45249a5bb3",
        "1a52869f06dd1a4402a1b02461b8378052cb8f60678970114e1fb1f44fe8e623",
    ),
    0: (
        "factbook-e0e1b11be6c14720",
        "7ab14d463d8f1f3b44d0b96a00574bd6821eeed998ed0a592c382dac3b8a1028",
        "148d4b5f9b69de5f05ddd4910b54b0ad75a9b50134aa45b5c7994e44bb7a313f",
    ),
}
"""Name of the directory in the cache, then SHA-256 of questions, gold passages and corpus of the
splits test and train, by number of countries; of the builder in commit df6cc59."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("factbook")


@pytest.mark.parametrize("countries", IDENTITIES)
def test_rows_are_those_of_the_builder(cache, countries):
    name, *identities = IDENTITIES[countries]
    loaded = [Factbook(split, countries).load(cache) for split in ("test", "train")]
    assert [dataset.identity for dataset in loaded] == identities
    assert {dataset.passages.directory.parent for dataset in loaded} == {cache / "data" / name}


def test_an_interrupted_conversion_is_finished(cache, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(factbook, "write_questions", stop)
        with pytest.raises(KeyboardInterrupt):
            Factbook(countries=8).load(tmp_path)
    dataset = Factbook(countries=8).load(tmp_path)
    assert dataset.identity == Factbook(countries=8).load(cache).identity


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"split": "dev"}, "data.split is 'dev'; allowed: train, test"),
        ({"countries": -1}, "data.countries is -1; choose 1 to 195, or 0"),
        ({"countries": 196}, "data.countries is 196; choose 1 to 195, or 0"),
        ({"words": 100}, "data.words is 100; .* at most 50 words, .* leave data.words out"),
        ({"countries": 1, "split": "test"}, "factbook has no questions in split 'test'; it has"),
    ],
)
def test_invalid_settings(tmp_path, settings, expected):
    with pytest.raises(InputError, match=expected):
        Factbook(**settings).load(tmp_path)
