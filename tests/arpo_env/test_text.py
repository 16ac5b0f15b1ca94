"""Folding: doing it twice changes nothing, whatever the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env.search.search_backend import normalise_query
from arpo_env.text import normalise_unicode


@settings(deadline=None)
@given(st.text())
def test_folding_again_changes_nothing(text: str) -> None:
    assert normalise_unicode(normalise_unicode(text)) == normalise_unicode(text)


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("aB \"'`“”search query:´\u0301ßＡ²")))
def test_normalising_a_query_again_changes_nothing(text: str) -> None:
    assert normalise_query(normalise_query(text)) == normalise_query(text)


def test_width_case_and_composition_are_levelled() -> None:
    assert normalise_unicode("  ＡＢＣ １２３\u3000Straße ") == "abc 123 strasse"
    assert normalise_unicode("Ame\u0301lie ｶﾞ") == normalise_unicode("Amélie ガ")
