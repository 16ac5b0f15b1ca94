"""What a question asks for, and the words that say what something is: "actor", "film", "city", "battle"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from arpo_env.grading.qa_text.claims import word_set
from arpo_env.grading.qa_text.places import NATIONALITIES, rows_of

_DESCRIPTIONS = """
    person: actor actress singer songwriter musician rapper composer pianist guitarist drummer violinist conductor poet
    author writer novelist playwright journalist historian philosopher painter artist sculptor architect photographer
    director filmmaker producer screenwriter comedian dancer model politician statesman lawyer economist scientist
    physicist chemist biologist mathematician astronomer engineer inventor physician surgeon psychologist explorer
    astronaut businessman businesswoman entrepreneur founder cofounder ceo chairman chairwoman footballer player
    quarterback cricketer golfer boxer wrestler swimmer athlete sprinter cyclist coach manager driver jockey skater
    gymnast monarch ruler leader activist theologian missionary general admiral soldier commander statesperson scholar
    linguist anthropologist presenter broadcaster host star icon legend celebrity lyricist dramatist essayist critic
    editor publisher designer illustrator cartoonist animator chef magician chair administrator dean billionaire
    naturalist professor student navigator conqueror banker diplomat revolutionary nurse teacher attorney entertainer
    performer | title: mr mrs ms miss dr prof sir dame lord lady president king queen prince princess emperor empress
    pope rev reverend captain capt gen colonel col lieutenant lt major maj sergeant sgt senator sen governor gov judge
    justice count countess duke duchess earl baron baroness marquess tsar czar sultan emir shah pharaoh caliph
    chancellor minister secretary mayor ambassador congressman congresswoman representative rep cardinal bishop
    archbishop st | work: film movie novel book novella story play musical opera ballet song single album ep poem
    painting sculpture series show sitcom anime manga comic game documentary magazine newspaper journal symphony |
    place: city town village capital municipality borough suburb neighborhood neighbourhood district county province
    state country nation island river lake mountain region area community settlement commune port airport stadium |
    group: band group duo trio team club company corporation university college school network channel bureau agency
    department ministry institute association organization society party council committee office label fund bank
    federation foundation commission board authority police service | event: battle war treaty election tournament
    festival season episode
"""
KINDS = {word: group for group, words in rows_of(_DESCRIPTIONS) for word in words}
WORK_SAME = {"movie": "film", "book": "novel", "show": "series", "sitcom": "series"}
TITLES = frozenset(word for word, group in KINDS.items() if group == "title")
ROYAL = word_set("king queen prince princess emperor empress pope tsar czar duke duchess sultan shah")
QUALITIES = word_set("""
    former late famous professional retired vice prime first deputy current then british-born us royal majesty highness
    his her hm hrh holiness excellency honorable hon tv television radio music rock pop jazz folk classical science
    fantasy fiction short animated silent south north east west feature live studio football soccer basketball baseball
    hockey tennis rugby cricket chess confederate union co legendary renowned celebrated hit best selling american-born
    roman catholic theoretical renaissance
    """)
SITES = word_set("""
    stadium arena university college school museum hospital theater park bridge castle palace st ave rd lane church
    cathedral airport station hotel building tower library hall cemetery prison institute square gallery abbey house
    center gardens
    """)
_ASKED_WORDS = """
    person: man woman person people individual character member father mother brother sister son daughter wife husband
    surname child spouse sibling grandfather grandmother uncle aunt parent winner owner | place: place birthplace
    hometown location address residence headquarters venue site arena theater museum hospital building bridge castle
    palace street park church cemetery prison beach sea ocean desert valley hill peak volcano waterfall canyon cave
    forest glacier bay gulf strait canal dam lighthouse temple statue hotel continent territory kingdom empire | other:
    occupation profession job career position nationality genre language religion color term kind type instrument sport
    | time: year date day month decade century | number: number age population
"""
_ASKED = {word: group for group, words in rows_of(_ASKED_WORDS) for word in words}
_SKIPPED = word_set("is are was were the a an of these two three both")
# what ends the words that a question has for what it asks for
_ENDS = word_set(
    "of in on at by for from with to as that which who whose is are was were do does did has have had can and or"
)


@lru_cache(maxsize=4096)
def asked_for(question: str) -> tuple[str, str]:
    """Return what a question asks for and its word for it.

    The first is a group of `_DESCRIPTIONS`, "time", "number", "other" for a thing in no list, or "" if that is unclear.
    """
    words = re.findall(r"[a-z]+", question.lower().replace("country music", "music"))
    for place, word in enumerate(words):
        if word in ("who", "whom", "whose") and not (place and words[place - 1] in KINDS):
            return "person", ""
        if word in ("where", "when", "how"):
            return {"where": "place", "when": "time", "how": "number"}[word], ""
        if word in ("which", "what"):
            return _noun_after(words, place + 1)
    if words and words[0] in ("wo", "dove", "donde", "onde", "ou"):
        return "place", ""
    if words and words[0] in ("wer", "qui", "quien", "chi", "quem"):
        return "person", ""
    if re.search(r"谁|哪一?位|什么人|哪[^,，。?？]{0,6}[人家员者师手帝王]", question):
        return "person", ""
    return ("place" if re.search(r"哪里|哪儿|何地|地方|哪个(?:国家|城市|省|县|州)", question) else ""), ""


def _noun_after(words: Sequence[str], start: int) -> tuple[str, str]:
    """Return the group and the noun that a question has after "which"; of "film director", the second."""
    while start < len(words) and words[start] in _SKIPPED:
        start += 1
    if words[start : start + 2] in (["name", "of"], ["names", "of"], ["title", "of"]):
        return _noun_after(words, start + 2)
    found = ("other", "")
    for word in words[start : start + 8]:
        verb = found[0] not in ("other", "work", "group")  # "which city hosts"
        noun = word if word in KINDS or word in _ASKED or verb else word.removesuffix("s")
        noun = "surname" if words[start : start + 2] == ["last", "name"] else noun
        group = _ASKED.get(noun) or KINDS.get(noun)
        if group:
            found = "person" if group == "title" else group, WORK_SAME.get(noun, noun)
        elif found[1] or word in _ENDS:
            break
    return found


def only_describes(words: Sequence[str]) -> bool:
    """Return whether words name nothing: "university", "American actor"."""
    return all(word in KINDS or word in NATIONALITIES or word in QUALITIES or word == "and" for word in words)
