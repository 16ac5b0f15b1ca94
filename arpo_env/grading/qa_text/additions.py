"""What an answer says beside the name that it gives: "Green Bay, Wisconsin", "the actor Tom Hanks (born 1956)".

An addition counts as harmless if every word of it is known to only describe: a region that the place may be in, years,
titles and professions, kinds of works, a short form, the same amount in another unit. A name that is in no list could
be another candidate and is never harmless.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from arpo_env.grading.qa_text import chinese
from arpo_env.grading.qa_text.answer_tokens import has_digit, tokens
from arpo_env.grading.qa_text.claims import QuestionWords, word_set
from arpo_env.grading.qa_text.places import (
    NATIONALITIES,
    Words,
    agree,
    city_at,
    is_known,
    is_region,
    is_vague,
    nations_in,
    region_at,
    same_place,
    spelled_out,
)

_TITLED = 12  # words before a name
_LONGEST = 40  # pieces of an answer; a longer one is prose
_DESCRIPTIONS = {
    "person": """
    actor actress singer songwriter musician rapper composer pianist guitarist drummer violinist conductor poet author
    writer novelist playwright journalist historian philosopher painter artist sculptor architect photographer director
    filmmaker producer screenwriter comedian dancer model politician statesman lawyer economist scientist physicist
    chemist
    biologist mathematician astronomer engineer inventor physician surgeon psychologist explorer astronaut businessman
    businesswoman entrepreneur founder cofounder ceo chairman chairwoman footballer player quarterback cricketer golfer
    boxer wrestler swimmer athlete sprinter cyclist coach manager driver jockey skater gymnast monarch ruler leader
    activist theologian missionary general admiral soldier commander statesperson scholar linguist anthropologist
    presenter broadcaster host star icon legend celebrity lyricist dramatist essayist critic editor publisher designer
    illustrator cartoonist animator chef magician chair administrator dean billionaire naturalist professor student
    dramatist navigator conqueror banker diplomat revolutionary nurse teacher attorney entertainer performer
    """,
    "title": """
    mr mrs ms miss dr prof sir dame lord lady president king queen prince princess emperor empress pope rev reverend
    captain capt gen colonel col lieutenant lt major maj sergeant sgt senator sen governor gov judge justice count
    countess duke duchess earl baron baroness marquess tsar czar sultan emir shah pharaoh caliph chancellor minister
    secretary mayor ambassador congressman congresswoman representative rep cardinal bishop archbishop st
    """,
    "work": """
    film movie novel book novella story play musical opera ballet song single album ep poem painting sculpture series
    show sitcom anime manga comic game documentary magazine newspaper journal symphony
    """,
    "place": """
    city town village capital municipality borough suburb neighborhood neighbourhood district county province state
    country nation island river lake mountain region area community settlement commune port airport stadium
    """,
    "group": """
    band group duo trio team club company corporation university college school network channel bureau agency department
    ministry institute association organization society party council committee office label
    fund bank federation foundation commission board authority police service
    """,
    "event": "battle war treaty election tournament festival season episode",
}
_GROUP = {word: group for group, words in _DESCRIPTIONS.items() for word in words.split()}
_WORK_SAME = {"movie": "film", "book": "novel", "show": "series", "sitcom": "series"}
TITLES = word_set(_DESCRIPTIONS["title"])
_ROYAL = word_set("king queen prince princess emperor empress pope tsar czar duke duchess sultan shah")
_QUALITIES = word_set("""
    former late famous professional retired vice prime first deputy current then british-born us royal majesty highness
    his her hm hrh holiness excellency honorable hon tv television radio music rock pop jazz folk classical science
    fantasy fiction short animated silent south north east west feature live studio football soccer basketball baseball
    hockey tennis rugby cricket chess confederate union co legendary renowned celebrated hit best selling
    american-born roman catholic theoretical renaissance
    """)
_LIFE = word_set("about c ca circa fl born b died d age aged released published founded built opened formed")
_SMALL = word_set("of and the for in on to de la")
_LINKS = word_set("of in from at for and who is was by on to as")
_HONOURS = word_set(
    """
    pere ac ao am oam oc cc phd md obe mbe cbe kbe dbe gbe om ch kg kt qc kc mp frs esq dds jd mba rn usn usa ret bt gcb
    kcb dsc dso vc
    """
)
_COMPANY = word_set("inc ltd llc plc gmbh corp ag limited incorporated")
_CLUB = word_set("fc afc cf sc football club")
_YEAR = re.compile(r"-?\d{3,4}(?:\.\.-?\d{3,4})?|(?:-?\d{4}|-)-\d\d(?:-\d\d)?(?:\.\.(?:-?\d{4}|-)-\d\d(?:-\d\d)?)?")
_KIND_BEFORE = re.compile(
    r"(?:[Tt]he\s+)?((?:city|town|village|state|county|province|municipality|country|borough) of"
    r"|film|movie|novel|book|song|album|band|magazine|newspaper|play|series|poem|opera|company)\s+(?=[\"“'A-Z])"
)
_LANDFORM = re.compile(r"(?:[Tt]he\s)?(Mount|Mt|Lake|River|Cape)\.?\s(?=[A-Z])")
_PIECE = re.compile(r"[^\s,()（），]+|[,()（），]")
_SITES = word_set(
    """
    stadium arena university college school museum hospital theater park bridge castle palace street church cathedral
    st ave rd lane
    airport station hotel building tower library hall cemetery prison institute square gallery abbey house center
    """
)
_AFTER_NAMES = _HONOURS | _COMPANY | _CLUB
_DAYS = word_set("monday tuesday wednesday thursday friday saturday sunday")
_ASKED_WORDS = {
    "person": """
    man woman person people individual character member father mother brother sister son daughter wife husband surname
    child spouse sibling grandfather grandmother uncle aunt parent winner owner
    """,
    "place": """
    place birthplace hometown location headquarters venue site arena theater museum hospital building bridge castle
    palace
    street park church cemetery prison beach sea ocean desert valley hill peak hotel continent territory kingdom empire
    """,
    "other": "occupation profession job nationality genre language religion color term kind type instrument sport",
    "time": "year date day month decade century",
    "number": "number age population",
}
_ASKED = {word: group for group, words in _ASKED_WORDS.items() for word in words.split()}
_NAME_END = re.compile(r"[\w.)）\"”'’!?》」]$")
_PLAIN = re.compile(r"[\w .,()（），'’&/–—-]+")
_JOINTS = (",", "(", "of", "in")


@dataclass(frozen=True)
class Addition:
    """What follows a name in an answer.

    Attributes:
        text: its text, without brackets.
        link: what joins it: "," or "(", "of", "in", or "" for nothing.
        places: the regions that it names, in order.
        years: its years and dates.
        words: its other words that are in a list.
        named: the words after "of" and the like that are in no list.
        known: whether all words are in a list, or in `named`.
    """

    text: str
    link: str
    places: tuple[Words, ...]
    years: tuple[str, ...]
    words: tuple[str, ...]
    named: tuple[str, ...]
    known: bool


@lru_cache(maxsize=4096)
def additions(answer: str) -> tuple[tuple[str, Addition], ...]:
    """Return the ways to read an answer as a name and what is said about it."""
    pieces = list(_PIECE.finditer(answer))
    if not 1 < len(pieces) <= _LONGEST:
        return ()
    found = []
    for before, piece in itertools.pairwise(pieces):
        link = {"（": "(", "，": ","}.get(piece[0], piece[0].lower())
        link, start = (link, piece.end()) if link in _JOINTS else ("", piece.start())
        inner = answer[start:].strip(" 。")
        if link == "(":
            inner = inner.rstrip(".")
            inner = inner[:-1] if inner[-1:] in (")", "）") else ""
        # "Peters by Texas", "Peters | Texas" and "Peters:\nTexas" join two names
        apart = answer[piece.end() : piece.end() + 1].isdigit() and link == ","  # 276,170,000
        apart = apart or before[0].lower() in _LINKS or not _NAME_END.search(before[0]) or not _PLAIN.fullmatch(inner)
        if not apart and (said := _read(inner, link)):
            found.append((answer[: before.end()], said))
    return tuple(found)


def _read(text: str, link: str) -> Addition | None:
    """Return an addition, or None if it cannot be one."""
    places: list[Words] = []
    years: list[str] = []
    words: list[str] = []
    named: list[str] = []
    known = text.count("(") == text.count(")")
    marked = link in (",", "(")
    for part in re.split(r"[,()（），]", re.sub(r"\b(?:present|modern)[- ]day ", "", text)):
        if chinese.is_country(part.strip()):
            places.append((part.strip(),))
            continue
        mine, place = tokens(spelled_out(part.strip()) if marked else part), 0
        while place < len(mine):
            word = mine[place]
            cities = marked or link == "in"
            if length := region_at(mine, place) or (city_at(mine, place) if cities else 0):
                places.append(tuple(mine[place : place + length]))
                place += length - 1
            elif _YEAR.fullmatch(word):
                years.append(word)
            elif _describes(word):
                words.append(word)
            elif place and words and (mine[place - 1] in _LINKS or mine[place - 1] in named[-1:]):
                named.append(word)
            else:
                known = False
            place += 1
    # without a comma or bracket, only a region or a short form can be told from the name: "Green Bay Wisconsin"
    if not marked and (not known or years or named or not set(words) <= _AFTER_NAMES):
        return None
    return Addition(text, link, tuple(places), tuple(years), tuple(words), tuple(named), known)


@lru_cache(maxsize=4096)
def asked_for(question: str) -> tuple[str, str]:
    """Return what a question asks for and its word for it.

    The first is a group of `_DESCRIPTIONS`, "time", "number", "other" for a thing in no list, or "" if that is unclear.
    """
    words = re.findall(r"[a-z]+", question.lower().replace("country music", "music"))
    for place, word in enumerate(words):
        if word in ("who", "whom", "whose") and not (place and words[place - 1] in _GROUP):
            return "person", ""
        if word in ("where", "when", "how"):
            return {"where": "place", "when": "time", "how": "number"}[word], ""
        if word in ("which", "what"):
            nouns = [noun if noun in _GROUP else noun.removesuffix("s") for noun in words[place + 1 : place + 9]]
            for noun in nouns:
                if noun in _GROUP or noun in _ASKED:
                    group = _ASKED.get(noun) or _GROUP[noun]
                    return "person" if group == "title" else group, _WORK_SAME.get(noun, noun)
            return "other", ""
    if re.search(r"谁|哪位|什么人", question):
        return "person", ""
    return ("place" if re.search(r"哪里|哪儿|何地|地方|哪个(?:国家|城市|省|县|州)", question) else ""), ""


def fits(said: Addition, head: str, gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether an addition only says more about a gold answer that stands before it."""
    one, other = asked.sides
    told = set(tokens(said.text))
    if told & ((one ^ other) - set(gold)):
        return False  # the other alternative of the question
    if said.link in (",", "(") and _is_short_form(said.text, head):
        return True
    if not said.known or not set(said.named) <= asked.words:
        return False
    words = frozenset(said.words) - _LINKS
    if all(map(has_digit, gold)):  # a date or an amount
        return not (said.places or said.years) and bool(words) and words <= _DAYS
    if said.places and not words and not said.years:
        return _places_fit(said, head, gold, asked)
    born = bool(said.years) and words <= _LIFE
    return _years_fit(said, gold, asked) and (born or _words_fit(words, gold, asked))


def _is_short_form(text: str, name: str) -> bool:
    mine, other = tuple(tokens(text)), tuple(tokens(name))
    return mine != other and (is_acronym(text, name) or is_acronym(name, text) or same_place(mine) == same_place(other))


def is_acronym(short: str, name: str) -> bool:
    """Return whether a text consists of the initials of a name, of all words or of those in capitals."""
    letters = re.sub(r"^\W*[Tt]he\s+|[^A-Za-z]", "", short)
    words = re.findall(r"[A-Za-z]+", name)
    capitals = [word[0] for word in words if word[0].isupper() or word not in _SMALL]  # all but "of the"
    initials = ("".join(word[0] for word in words), "".join(capitals))
    return (
        name < "\u3000" and 2 <= len(letters) <= 8 and letters.isupper() and letters.lower() in map(str.lower, initials)
    )


def _years_fit(said: Addition, gold: Sequence[str], asked: QuestionWords) -> bool:
    own = {word for word in gold if _YEAR.fullmatch(word)}
    if own and said.years:
        return set(said.years) <= own
    # the year of a film or battle; a life or reign does not have to be in the year of the question
    single = len(said.years) == 1 and re.fullmatch(r"\d{4}", said.years[0]) and not _LIFE & set(said.words)
    if single and asked_for(asked.text)[0] == "person":
        return False
    years = {word for word in asked.words if re.fullmatch(r"1\d{3}|20\d\d", word)}
    return not (single and years) or said.years[0] in years


def _words_fit(words: frozenset[str], gold: Sequence[str], asked: QuestionWords) -> bool:
    group, noun = asked_for(asked.text)
    if only_describes(gold):
        return False  # "director (actor)"
    if words <= _AFTER_NAMES:
        club = not asked.words.isdisjoint(_CLUB | {"team", "soccer", "league", "plays", "played"})
        company = words <= _COMPANY and (group != "person" or (len(gold) > 1 and gold[-1] in _GROUP))
        return words <= _HONOURS or company or (words <= _CLUB and club)
    kinds = {_WORK_SAME.get(word, word) for word in words if word in _GROUP}
    groups = {"person" if _GROUP[kind] == "title" else _GROUP[kind] for kind in kinds}
    if "person" in groups:
        groups = {"person"}  # a "film director"
    if not kinds:
        return False  # "American" alone is another answer
    if group == "work":
        return groups == {"work"} and noun in kinds  # not the novel, where the film is asked for
    if groups == {"person"} or (groups == {"group"} and group == "person" and not kinds.isdisjoint(asked.words)):
        nations = {NATIONALITIES[word] for word in words if word in NATIONALITIES}
        agrees = not nations or not asked.nations or bool(nations & asked.nations)
        return agrees and (group == "person" or (group in ("", "other") and len(gold) > 1))
    return group in groups | {""} and (not noun or group == "person" or noun in kinds)


def _places_fit(said: Addition, head: str, gold: Sequence[str], asked: QuestionWords) -> bool:
    place, own = tuple(gold), [tuple(gold[start:]) for start in range(1, len(gold)) if region_at(gold, start)]
    inside = [place, *own[:1], *said.places]
    if said.link == "of":
        royal = not asked.words.isdisjoint(_ROYAL | {"monarch", "ruler"})
        ruler = gold[-1].isdigit() or not _ROYAL.isdisjoint(tokens(head)) or (royal and len(gold) == 1)
        ruler = ruler and asked_for(asked.text)[0] in ("", "person")
        known = len(said.places) == 1 and not is_vague(said.places[0]) and not any(asked.sides)
        return ruler and known and (not asked.nations or bool(nations_in(tokens(said.text)) & asked.nations))
    # "Wembley Stadium, London", but not "Green Bay, Milwaukee"
    if not _SITES.intersection(gold) and not all(is_region(outer) for outer in said.places):
        return False
    if chinese.is_country("".join(gold)) or (not said.link and (not is_known(place) or said.places[0] == place)):
        return False
    # a county alone could be any; an unknown name is a place if the question asks for one
    group, vague = asked_for(asked.text)[0], all(is_vague(outer) for outer in said.places)
    located = group in ("place", "group", "event") or not asked.words
    fine = group not in ("person", "work", "time", "number") if is_known(place) else located and not vague
    return fine and not only_describes(gold) and agree(inside)


def _describes(word: str) -> bool:
    known = word in _GROUP or word in _QUALITIES or word in _LIFE or word in _LINKS or word in NATIONALITIES
    known = known or word in _HONOURS or word in _COMPANY or word in _CLUB
    return known or word in _DAYS or re.fullmatch(r"\d{1,2}(?:st|nd|rd|th)|\d\d", word) is not None


def only_describes(words: Sequence[str]) -> bool:
    """Return whether words name nothing: "university", "American actor"."""
    return all(word in _GROUP or word in NATIONALITIES or word in _QUALITIES or word == "and" for word in words)


def untitled(words: Words, group: str) -> Iterator[Words]:
    """Yield a name without the titles before it, and without professions and nationalities if a person can be meant.

    Args:
        words: the words of an answer.
        group: what the question asks for. A single word after a title is a name only where that is a person: "Queen
            Victoria", but not "King Kong".
    """
    titles, place = 0, 0
    while place < min(len(words) - 1, _TITLED):
        word, length = words[place], region_at(words, place)
        title = word in TITLES
        if not title and not (group in ("", "person") and (length or _belongs_before(word))):
            break
        if word in _ROYAL and not _ROYAL.isdisjoint(words[:place]):
            break
        told = word in ("is", "was") and any(_GROUP.get(before) == "person" for before in words[:place])
        titles += title
        if titles > 2:
            break
        place += max(length, 1)
        named = title or _GROUP.get(word) == "person" or (length and words[place - length - 1] == "of")
        left = words[place:]
        named = named or told or (bool(left) and left[0] in TITLES)
        if named and not only_describes(left) and (len(left) > 1 or group == "person"):
            yield left


def _belongs_before(word: str) -> bool:
    known = _GROUP.get(word) in ("person", "work") or word in _QUALITIES or word in NATIONALITIES
    return known or word in ("of", "and", "is", "was", "born")


def without_kind(text: str, question: str) -> str:
    """Return a name without a kind before it that fits what is asked for: "the city of Paris", "the movie Jaws"."""
    if (match := _LANDFORM.match(text)) and re.search(match[1].replace("Mt", "mount").lower(), question):
        return text[match.end() :]  # "Mount Kilimanjaro" where the question asks for a mountain
    match = _KIND_BEFORE.match(text)
    if not match:
        return text
    kind, (group, noun) = match[1].removesuffix(" of"), asked_for(question)
    same = _WORK_SAME.get(kind, kind) == _WORK_SAME.get(noun, noun) or noun == "capital" or not noun
    return text[match.end() :] if same and group in ("", _GROUP[kind]) else text
