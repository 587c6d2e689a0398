import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.attributes import PATTERN, first_unmet, parse_requirements, share_met

AGENT = {"language": ["zh", "EN"], "model": ["qwen2.5-72b"], "cost": ["low"],
         "Version": ["3.11"], "note": ["a, b"]}


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        ("", None),
        ("  ", None),
        ("cost=low", None),
        ("cost==LOW", None),
        ("Cost = Low , ", None),
        ("cost=high", "cost=high"),
        ("language=en", None),
        ("language=en,language=zh", None),
        ("language=fr", "language=fr"),
        ("language!=fr", None),
        ("language!=zh", "language!=zh"),
        ("region=eu", "region=eu"),
        ("region!=eu", None),
        ("region", "region"),
        ("model", None),
        ("model=qwen2.5-72b", None),
        ("version>=3.9", None),
        ("version>=3.11", None),
        ("version>3.11", "version>3.11"),
        ("version<3.9", "version<3.9"),
        ("version<=3.11.0", None),
        ("version<4", None),
        ("version=3", None),
        ("version=3.11.0", None),
        ("version=3.1", "version=3.1"),
        ("version!=3", "version!=3"),
        ("version>3.11rc1", None),
        ("version=v3.11", None),
        ("version>=new", "version>=new"),
        ("cost>=1", "cost>=1"),
        ('note="a, b"', None),
        ('note="a, b", cost=high', "cost=high"),
        ("cost=low, version>=3.12, region", "version>=3.12"),
    ],
)
def test_what_must_match(text, unmet):
    found = first_unmet(parse_requirements(text), AGENT)
    assert (None if found is None else str(found)) == unmet


@pytest.mark.parametrize("declared", ["python3.11", "python-3.11", "Python_3.11", "python 3.11"])
@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("language=python", True),
        ("language=python3", True),
        ("language=python-3.11", True),
        ("language=python, version>=3.9", True),
        ("language=python2", False),
        ("language=python, version>=3.12", False),
    ],
)
def test_a_language_with_its_version(declared, text, met):
    assert (first_unmet(parse_requirements(text), {"language": [declared]}) is None) is met


def test_a_declared_version_wins_over_the_language_s():
    assert first_unmet(parse_requirements("version=2"), {"language": ["python3"], "version": ["2"]}) is None


@pytest.mark.parametrize("text", ["=", "=low", "cost=", "cost=,", "a b", 'note="a', "1=2", "cost>"])
def test_what_cannot_be_read_says_how_to_write_it(text):
    with pytest.raises(ValueError, match=r"such as language=python, version>=3\.11"):
        parse_requirements(text)


def test_a_hostile_length_is_refused_before_it_costs_anything():
    with pytest.raises(ValueError, match="at most 2048"):
        parse_requirements("a=b" + " " * 60_000 + '"')
    with pytest.raises(ValueError, match="not an attribute"):
        parse_requirements("a=b" + " " * 2000 + '"')


def test_preference_is_the_share_that_is_met():
    assert share_met(parse_requirements(""), AGENT) == 0
    assert share_met(parse_requirements("cost=low"), AGENT) == 1
    assert share_met(parse_requirements("cost=low, region=eu"), AGENT) == 0.5


@given(st.text("ab=<>!, \t\"3.é", max_size=20))
def test_the_described_grammar_is_the_one_that_is_read(text):
    try:
        parse_requirements(text)
        is_read = True
    except ValueError:
        is_read = False
    assert (re.search(PATTERN.replace("$", r"\Z"), text) is not None) is is_read
