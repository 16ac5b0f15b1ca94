"""What an answer says beside the name that it gives: "the American singer Bob Dylan, who wrote it in 1963".

The evidence is in the writing, not in lists of what people are. A second candidate is a name, and names have capitals
or digits. So words in lower case only describe, as do nationalities and words of the question. Another name may stand
where a word in lower case says how it belongs to the answer: after a preposition ("CEO of Apple") or a naming word
("born Samuel Clemens"). Also harmless are a region that the place may be in, years, short forms, symbols, measures and
the name in another script. An answer in lower case has no capitals as evidence and has to use words of the question.

Never harmless are words that negate, hedge, deny or join, a relation before the name ("the wife of Tom Hanks"), numbers
that the question does not have, and what neither a comma, a bracket nor a verb divides from the name ("Titanic fan").
"""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from arpo_env.grading.qa_question import (
    FOREIGN,
    GRAMMAR,
    HEDGES,
    JOINTS,
    KINDS,
    NATIONALITIES,
    NEGATIONS,
    QUALITIES,
    RELATIONS,
    ROYAL,
    SITES,
    TITLES,
    WORK_SAME,
    QuestionWords,
    Words,
    agree,
    city_at,
    evades,
    is_known,
    is_region,
    is_vague,
    nation_of,
    nations_in,
    only_describes,
    region_at,
    same_place,
    spelled_out,
)
from arpo_env.grading.qa_tokens import CJK, has_digit, is_country, is_role, normalise_words, tokens
from arpo_env.grading.words import listed, word_set

_LONGEST = 48  # pieces of an answer; a longer one is prose
_PIECE = re.compile(r"(?:[^\s,;:()（），。；：\"“”«»]|(?<=\d)[,:](?=\d))+|[,;:()（），。；：]")
_RECENT = re.compile(r"[12]\d{3}")  # a year
_MARKS = {"，": ",", "（": "(", "）": ")", "；": ";", "。": ".", "：": ":", "–": "-", "—": "-", "--": "-"}
_BREAKS = frozenset(",;().-")
_DENIALS = listed("denials")
_JOINING = word_set("plus along together among alongside jointly including besides followed like later then too")
_RANKS = TITLES | KINDS.keys() | QUALITIES
_SLASHES = re.compile(r"[/|、]")
_NO_END = _BREAKS | GRAMMAR  # no name ends with these
_NUMBERS = word_set("two three four five six seven eight nine ten hundred thousand million")
_BLOCKED = JOINTS - {"and", "with", "as", "any", "some", "all", "would", "can"}
_BLOCKED |= _NUMBERS | NEGATIONS | HEDGES | _DENIALS | _JOINING
_PRONOUNS = word_set("he she it they")
_DOING = word_set("plays played play works worked uses used speaks spoke studied studies practiced became won earned")
_QUESTIONS = word_set("who whom whose which what when where how why")
_LOCATING = word_set("in at on")
_PREPOSITIONS = listed("prepositions")
_VERBS = word_set("is was are were has had who whose which where when made played wrote")
_ARTICLES = word_set("a an the one his her its their")
_OF = word_set("de du des di del della von do da")
_BE = word_set("is was are were")
_ARTICLES_ELSEWHERE = word_set("le la les el los las il lo gli l der die das dem den o os as")
_BE_ELSEWHERE = word_set("wurde ist war fu fue foi e es stata stato est")
_NAMING = word_set("born nee ne known called named now formerly originally previously nicknamed name symbol")
_LIVES = listed("lives")
_BORN = word_set("born b fl c ca circa died d age aged reigned")
_PEOPLED = re.compile(r"\w{2,}(?:er|or|ist|ian|man|woman|ess|ant|eer)")
_TOLD = re.compile(r"\w{2,}(?:ed|ing)")
_LANGUAGES = NATIONALITIES.keys() | {"latin", "greek", "hebrew", "arabic"}
_PARTICLES = word_set("di da de del della van von der den du le la ibn bin al of the and")
# what makes a number or date before it another one
_QUALIFYING = word_set(
    "about around circa before after over under least most twice half double late early mid almost nearly roughly until"
)
_ROLES = word_set("director author writer producer composer founder creator owner king queen mayor leader ceo capital")
_SIZES = word_set("high long tall wide deep above sea level height elevation length altitude area about approximately")
_PARTS = word_set("north south east west new sri costa puerto saudi")
_MONTHS = frozenset(month.lower() for month in (*calendar.month_name, *calendar.month_abbr))
_HONOURS = listed("honours")
_COMPANY = word_set("inc ltd llc plc gmbh corp ag limited incorporated")
_CLUB = word_set("fc afc cf sc football club")
_FIRM = _COMPANY | word_set("group company co holdings")
_AFTER_NAMES = _HONOURS | _FIRM | _CLUB
_YEAR = re.compile(r"-?\d{3,4}(?:\.\.-?\d{3,4})?|(?:-?\d{4}|-)-\d\d(?:-\d\d)?(?:\.\.(?:-?\d{4}|-)-\d\d(?:-\d\d)?)?")
_DATED = re.compile(
    r"\b(?:film|movie|novel|book|album|song|play|battle|war|treaty|founded|released|published|election)"
)
_LANDFORM = re.compile(r"(?:[Tt]he\s)?(Mount|Mt|Lake|River|Cape)\.?\s(?=[A-Z])")
_NAMED_IN_CHINESE = re.compile(
    r"(?:字|号|名|原名|本名|又名|又称|别名|笔名|英文名?|拉丁学?名|学名|简称|全称|海拔|全?长|高|位于)[:：为是]?(?=.)"
)
_LIFE_IN_CHINESE = re.compile(
    r"(?:约|生于|公元|前)*\d{1,4}年?[\d月日]*\s?[-－—–~至]{1,2}\s?(?:约|卒于|公元|前)*\d{1,4}年?[\d月日]*"
)
_ORGANISATION = re.compile("[\u4e00-\u9fff]{2,12}(?:大学|学院|公司|研究所|研究院|医院|集团|中学|银行|实验室|系)")
_LATIN = re.compile(r"[A-Z][a-z]+(?: [a-z]+(?:us|a|um|is|es|ae|i|eo|o|ns|ix|ex|ps)){1,2}")
_SYMBOL, _SYMBOLIC = re.compile(r"[A-Z][a-z]?"), word_set("element symbol chemical metal gas atomic")
_LIVING = word_set("animal species bird mammal fish insect reptile plant tree flower fruit")
_SMALL = word_set("of and the for in on to de la")


@dataclass(frozen=True)
class Piece:
    """A word or mark of an answer."""

    text: str  # as it is written
    word: str  # its token, a mark for a mark, or "" for an article or sign
    start: int  # its place in the answer
    end: int

    @property
    def is_small(self) -> bool:
        """Return whether it is a word in lower case: no name."""
        return self.text[:1].islower() and not has_digit(self.word)


@lru_cache(maxsize=2048)
def _pieces(answer: str) -> tuple[Piece, ...]:
    found = []
    for match in itertools.islice(_PIECE.finditer(answer), _LONGEST + 1):
        text = _MARKS.get(match[0], match[0])
        bare = text.rstrip("!?") if "." in text[:-1] or len(text) < 4 else text.rstrip(".!?")
        end = match.start() + len(bare)
        word = bare.strip(".'*_`").lower().replace("'", "")
        word = word if has_digit(word) else word.replace(".", "")
        if not word.isascii():
            word = normalise_words(word).strip(" '")
        word = text if text in _BREAKS else word
        if bare:
            found.append(Piece(bare, word, match.start(), end))
        if bare != text and answer[match.end() :].lstrip(" ")[:1] not in _BREAKS:
            found.append(Piece(".", ".", end, match.end()))
    return tuple(found)


def readings(answer: str, gold: Sequence[str], asked: QuestionWords) -> Iterator[tuple[str, int]]:
    """Yield the names that an answer may give, each with the first piece after it; a longer one shares a word."""
    pieces = _pieces(answer)
    if not 1 < len(pieces) <= _LONGEST:
        return
    known, numbered = set(gold), any(map(has_digit, gold))
    for first in _starts_of(answer, asked):
        for last in range(first + 1, len(pieces) + 1):
            words = [piece.word for piece in pieces[first:last]]
            if first and len(words) > len(gold) + 6:
                break
            end = words[-1] if words[-1].isalnum() else _SLASHES.split(words[-1])[-1]
            ended = end not in _NO_END and (first or last < len(pieces))
            if ended and (len(words) < 3 or numbered or not known.isdisjoint(words)):
                yield answer[pieces[first].start : pieces[last - 1].end], last


@lru_cache(maxsize=2048)
def _starts_of(answer: str, asked: QuestionWords) -> tuple[int, ...]:
    return tuple(_starts(_pieces(answer), asked))[-4:]


def _starts(pieces: Sequence[Piece], asked: QuestionWords) -> Iterator[int]:
    """Yield the places where a name may start: 0, and after words that only lead to it."""
    yield 0
    told = any(asked.sides)
    for place, (piece, after) in enumerate(itertools.pairwise(pieces)):
        word = piece.word
        blocked = word in _BLOCKED and not (asked.is_foreign and word in asked.words)
        if told or blocked or not _leads(pieces, place, asked):
            return
        number = has_digit(after.word) or after.word in _MONTHS
        if number and any(_qualifies(piece, asked) for piece in pieces[: place + 1]):
            continue
        national = NATIONALITIES.get(word) in asked.nations  # "Japanese yen"
        national = national and place < 2 and after.is_small
        named = number or after.text[:1].isupper() or after.text[:1] > "\u0370"
        doing = [one.word for one in pieces[: place + 1] if one.word not in _ARTICLES]
        ranked = after.word in TITLES and (word in QUALITIES or nation_of((word,)) is not None)
        ranked = ranked or (word in KINDS and any(one.word in _RANKS for one in pieces[:place]))
        if (named and (ranked or _may_end(pieces[: place + 1], asked))) or _is_doing(doing) or national:
            yield place + 1


def _is_doing(words: Sequence[str]) -> bool:
    """Return whether words lead to what somebody does: "He worked as"."""
    return 1 < len(words) < 4 and words[0] in _PRONOUNS and words[1] in _DOING and words[2:] in ([], ["as"])


def _leads(pieces: Sequence[Piece], place: int, asked: QuestionWords) -> bool:
    """Return whether a word before a name is none itself."""
    piece, word = pieces[place], pieces[place].word
    if word == ",":
        return place > 0 and not asked.words.isdisjoint(piece.word for piece in pieces[:place])
    if word in _BREAKS:  # "Psycho (1960) was directed by"
        around = pieces[max(place - 1, 0)].word if word == ")" else pieces[place + 1].word
        return word in ("(", ")") and _RECENT.fullmatch(around) is not None
    if _RECENT.fullmatch(word) and place and pieces[place - 1].word == "(":
        return True
    if word in _QUESTIONS or (word in _LIVES and not asked.has(word) and any(map(asked.has, _LIVES))):
        return False
    if asked.has(word) or word in GRAMMAR or (asked.is_foreign and word in FOREIGN) or piece.is_small:
        return True
    if _RECENT.fullmatch(word):  # "the 1997 film Titanic"
        return pieces[place + 1].word in KINDS and not any(_RECENT.fullmatch(one) for one in asked.words)
    after = pieces[place + 1].word
    nation = NATIONALITIES.get(word.partition("-")[0]) or (word in _PARTS and NATIONALITIES.get(after))
    nation = nation or nation_of((word,))
    if nation:
        return _agrees(nation, asked) and after not in GRAMMAR
    ranked = place == 0 or pieces[place - 1].word in _RANKS
    return word in _ARTICLES or word in TITLES or (word in KINDS and ranked) or (word in QUALITIES and after in _RANKS)


def _qualifies(piece: Piece, asked: QuestionWords) -> bool:
    """Return whether a word makes the number after it another one: "about", "before", "the sequel came out in"."""
    word = piece.word
    known = asked.has(word) or word in GRAMMAR or word in _ARTICLES or _TOLD.fullmatch(word)
    return word in _QUALIFYING or not (known or (asked.is_foreign and word in FOREIGN) or word in _BREAKS)


def _agrees(nation: Words, asked: QuestionWords) -> bool:
    return not asked.nations or nation in asked.nations


def _may_end(before: Sequence[Piece], asked: QuestionWords) -> bool:
    """Return whether a name may follow words directly, and is what they say: not "the wife of", "near" or "beat"."""
    articles = _ARTICLES | _ARTICLES_ELSEWHERE if asked.is_foreign else _ARTICLES
    words = [piece.word for piece in before if piece.word not in articles]
    if not words:
        return True
    *rest, last = words
    grammar = GRAMMAR | FOREIGN if asked.is_foreign else GRAMMAR
    if any(word in RELATIONS - _ROLES and not asked.has(word) for word in rest):
        return False
    if last == "," or (last in asked.words and has_digit(last)):
        return True
    for noun, link in itertools.pairwise(words):
        if link == "of" and not (asked.has(noun) or KINDS.get(noun) == "place" or (noun in _ROLES and last in _BE)):
            return False  # "a parody of the film"
    if not (before[-1].is_small or last in grammar or (KINDS.get(last) == "person" and not rest)):
        return False
    if last == "of" or (asked.is_foreign and last in _OF):
        kind = next((piece for piece in before if rest and piece.word == rest[-1]), None)
        if kind is None or kind.word in RELATIONS:
            return False
        known = asked.has(kind.word) or (KINDS.get(kind.word) == "place" and kind.is_small)
        passive = last in ("von", "da") and not _BE_ELSEWHERE.isdisjoint(rest)
        return known or (passive and re.search(r"(?:en|t[aoi]?|d[aoi])$", kind.word) is not None)
    if last in ("by", "par", "por"):
        verb = rest and (asked.has(rest[-1]) or re.search(r"(?:ed|en|wn|t|d[ao]|t[ao]|[ei])$", rest[-1]))
        return bool(verb)
    if last in _PREPOSITIONS | {"and", "than", "that"} and last not in _LOCATING:
        return last in asked.words and last not in ("as", "and")
    if last in _VERBS or last in grammar or asked.has(last):
        return True
    # a noun before a name is one with it, a verb is not: "it defeated France"
    return before[-1].word == last and (asked.is_foreign or not re.search(r"(?:ed|ing|[^s]s|ly)$", last))


def fits(answer: str, head: str, last: int, gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether what follows a gold answer, written as `head`, from the piece `last` on, says nothing else."""
    pieces = _pieces(answer)[last:]
    if not any(piece.word not in _BREAKS for piece in pieces):
        return True
    one, other = asked.sides
    chosen = (one ^ other) - set(gold)
    if (chosen and not chosen.isdisjoint(tokens(answer[pieces[0].start :]))) or (
        only_describes(gold) and not asked.has("occupation")
    ):
        return False  # the other alternative of the question, "director (actor)"
    if pieces[0].word == "(" and is_acronym(head, answer[pieces[0].end :]):
        return True
    places: list[Words] = []
    told_of = False  # whether the part before ends with a name: "born in Honolulu, Hawaii"
    if pieces[0].word == "." and pieces[1].is_small:
        return False
    link = "," if pieces[0].word in _BREAKS - {"("} else pieces[0].word if pieces[0].word in ("(", "of", "in") else ""
    for part in _parts(pieces):
        if not part:
            continue
        text = answer[part[0].start : part[-1].end]
        if any(_blocks(part, place) for place in range(len(part))):
            return False
        if link in (",", "(") and (_is_short_form(text, head) or _is_other_form(text, link == "(", head, asked)):
            continue
        if (found := _regions(text, link, part)) and not told_of:
            places += found
        elif found:
            continue
        elif not _is_harmless(text, part, link, head, gold, asked):
            return False
        told_of = not found and not part[-1].is_small and not has_digit(part[-1].word)
        link = link or ","
    return not places or _places_fit(places, pieces[0].word, answer, head, gold, asked)


def _blocks(part: Sequence[Piece], place: int) -> bool:
    """Return whether a word negates, hedges, denies or joins; not "May 1990", "also known as" and "he also sang"."""
    word, after = part[place].word, part[place + 1].word if place + 1 < len(part) else ""
    if word == "also":
        return place == 0 and after not in ("known", "called")
    return word in _BLOCKED and (part[place].is_small or word != "may")


def _parts(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the words between marks."""
    part: list[Piece] = []
    for place, piece in enumerate(pieces):
        dated = piece.word == "," and part and has_digit(part[-1].word) and len(pieces) > place + 1
        if dated and re.fullmatch(r"\d{4}", pieces[place + 1].word):
            continue  # "August 4, 1961"
        if piece.word in _BREAKS:
            yield part
            part = []
        else:
            part.append(piece)
    yield part


def _regions(text: str, link: str, part: Sequence[Piece]) -> list[Words]:
    """Return the regions and cities that a part consists of; [] if it has anything else."""
    marked = link in (",", "(")
    if is_country(text):
        return [(text,)]
    text = re.sub(r"\b(?:present|modern)[- ]day ", "", text)
    words, found, place = tokens(spelled_out(text) if marked else text), [], 0
    while place < len(words):
        length = region_at(words, place)
        length = length or (city_at(words, place) if marked or part[0].word in ("in", "of") else 0)
        if length:
            found.append(tuple(words[place : place + length]))
        elif words[place] not in ("in", "of") and not words[place].endswith("ern"):
            return []
        place += length or 1
    return found


def _is_harmless(
    text: str, part: Sequence[Piece], link: str, head: str, gold: Sequence[str], asked: QuestionWords
) -> bool:
    """Return whether a part of what follows a name only says more about it."""
    words, marked = tokens(text), link in (",", "(")
    if set(words) <= _AFTER_NAMES:
        return _suffix_fits(frozenset(words), gold, asked)
    digits = [word for word in words if has_digit(word)]
    if all(map(has_digit, gold)):  # a date may have a name: "8 May 1945 (V-E Day)"
        named = re.search(r"(?:day|eve)$", words[-1]) and marked and not digits
        return len(gold) == 1 and bool(named and re.fullmatch(r"-?\d{4}-\d\d-\d\d", gold[0]))
    first = part[0].word
    led = part[0].is_small and (
        first in _VERBS
        or first == "for"
        or (first == "by" and asked.group == "work")
        or (first in _LOCATING and digits)
        or (asked.has(first) and first not in GRAMMAR | _PREPOSITIONS | _ARTICLES)
    )
    if not marked and (not led or any(asked.sides)):
        return False
    years = tuple(word for word in digits if _YEAR.fullmatch(word))
    for word in digits:
        ordinal = re.fullmatch(r"\d{1,2}(?:st|nd|rd|th)", word)
        if not (word in years or ordinal or word in asked.words or word in gold or "|" in word):
            return False
    if years and not _years_fit(years, part, link == "(", gold, asked):
        return False
    if {word for word in words if not has_digit(word)} <= _BORN | _SIZES | {"in", "on", "of", "at"}:
        return bool(digits)
    return _describes(part, marked, head, gold, asked)


def _describes(part: Sequence[Piece], marked: bool, head: str, gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether a part is a description: in lower case, other names only where they are told to belong to it."""
    first, person = part[0].word, asked.group == "person"
    described = first in _BE and len(part) > 1 and part[1].text in ("a", "an", "the")
    known = marked or described or first in ("for", "by")  # else only names of the question may follow: "directed Jaws"
    located = asked.group == "place"
    telling, opened, named, name = not marked or first in _ARTICLES, False, False, []
    for place, piece in enumerate(part):
        word, small = piece.word, piece.is_small
        if piece.text == "The" and place + 1 < len(part) and not part[place + 1].is_small:
            return False  # "Catherine of Aragon, The African Queen"
        if has_digit(word) or not word or word in _ARTICLES or (asked.is_foreign and word in FOREIGN):
            continue
        if word == ":":
            if not (place and part[place - 1].word in _LANGUAGES | _NAMING):
                return False
            telling = opened = True
        elif word in ("and", "as") and not place:
            return False
        elif opened and word in _PARTICLES | _BE and place and part[place - 1].word not in _PREPOSITIONS:
            continue
        elif small:
            told = word in KINDS or asked.has(word) or word in _VERBS or word in _NAMING or word in _PREPOSITIONS
            telling = telling or told or (person and _PEOPLED.fullmatch(word) is not None)
            telling = telling or (len(part) > 1 and _TOLD.fullmatch(word) is not None)
            leading = (
                place > 0 or not marked or word in ("from", "by", "for") or (not located and word in _PREPOSITIONS)
            )
            opened = word in _NAMING or (leading and (word in _PREPOSITIONS or asked.has(word)))
            opened = opened or (word in _VERBS and word not in _BE)
        elif word.partition("-")[0] in _LANGUAGES or (word in _PARTS and place + 1 < len(part)):
            if not opened and word in NATIONALITIES and not _agrees(NATIONALITIES[word], asked):
                return False
        elif word in TITLES or word in KINDS or word in _MONTHS or (word in QUALITIES and place + 1 < len(part)):
            telling = True
        elif asked.has(word) and place + 1 < len(part) and part[place + 1].is_small and piece.text[-2:] in ("'s", "’s"):
            telling = True  # "Titan, Saturn's largest moon"
        elif not opened or not (known or word in asked.words):
            return False
        else:
            named = named or part[place - 1].word in _NAMING
            name.append(word)
    if named and is_known(tuple(name)):
        return False  # "Istanbul (formerly Ankara)"
    nouns = any(
        (piece.is_small and piece.word not in GRAMMAR | _PREPOSITIONS | _VERBS) or piece.word in TITLES | KINDS.keys()
        for piece in part
    )
    nations = any(piece.word in NATIONALITIES for piece in part)
    if not telling or (nations and not name and not nouns and place > 0) or not _kind_agrees(part, gold, asked):
        return False
    clear = first in _PREPOSITIONS | _NAMING | (_VERBS - _BE) or (len(part) > 2 and _TOLD.fullmatch(first))
    clear = clear or any(piece.word in _LANGUAGES | _NAMING for piece in part)
    small = head[:1].islower() and not has_digit(head) and not clear
    return not small or any(asked.has(piece.word) and piece.word not in GRAMMAR for piece in part)


def _kind_agrees(part: Sequence[Piece], gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether the kind that a description names is what the question asks for: no novel for a film."""
    words = list(itertools.takewhile(lambda word: word not in _PREPOSITIONS | _VERBS, (piece.word for piece in part)))
    kinds = {WORK_SAME.get(word, word) for word in words if word in KINDS}
    groups = {"person" if KINDS[kind] == "title" else KINDS[kind] for kind in kinds}
    if not groups:
        return True
    if asked.group == "work" and "work" in groups:
        return asked.noun in kinds
    if "person" in groups:
        return asked.group == "person" or (asked.group in ("", "other") and len(gold) > 1)
    if part[0].word in _ARTICLES and "work" not in groups:
        return True
    if asked.group == "person":
        return not kinds.isdisjoint(asked.words)
    return asked.group in groups | {""} and (not asked.noun or asked.noun in kinds)


def _is_short_form(text: str, name: str) -> bool:
    mine, other = tuple(tokens(text)), tuple(tokens(name))
    return mine != other and (is_acronym(text, name) or is_acronym(name, text) or same_place(mine) == same_place(other))


def is_acronym(short: str, name: str) -> bool:
    """Return whether a text consists of the initials of a name, of all words or of those in capitals."""
    letters = re.sub(r"^\W*[Tt]he\s+|[^A-Za-z]", "", short)
    mixed = letters[:1].isupper() and letters[-1:].isupper() and len(letters) < 8
    letters = letters.upper() if mixed else letters  # MoMA
    words = re.findall(r"[A-Za-z]+", name)
    capitals = [word[0] for word in words if word[0].isupper() or word not in _SMALL]  # all but "of the"
    initials = ("".join(word[0] for word in words), "".join(capitals))
    return (
        name < "\u3000" and 2 <= len(letters) <= 8 and letters.isupper() and letters.lower() in map(str.lower, initials)
    )


def _is_other_form(text: str, bracketed: bool, name: str, asked: QuestionWords) -> bool:
    """Return whether a part is the name in another script, a symbol, a Latin name, or a name that the question has."""
    own, words = re.search(f"[{CJK}]", name) is not None, tokens(text)
    if own and (match := _NAMED_IN_CHINESE.match(text)):
        told = tokens(text[match.end() :])
        return 0 < len(told) <= 12 and not evades(told)
    if has_digit(name):
        return False
    if own and (is_role(text) or _LIFE_IN_CHINESE.fullmatch(text) or _ORGANISATION.fullmatch(text)):
        return asked.group == "person"
    latin = [re.search("[a-zA-Z]", one) is not None for one in (name, text)]
    foreign = [re.search("[\u0370-\u1cff\u3040-\ud7af]", one) is not None for one in (name, text)]
    if (
        bracketed
        and re.fullmatch(r"[\w .·《》-]*", name)
        and latin != foreign
        and latin[0] != latin[1]
        and foreign[0] != foreign[1]
    ):
        return max(len(words), len(tokens(name))) <= 8 and not any(map(has_digit, words))  # another script
    if _SYMBOL.fullmatch(text):
        return not _SYMBOLIC.isdisjoint(asked.words)
    if _LATIN.fullmatch(text):
        return not _LIVING.isdisjoint(asked.words) and not only_describes(words)
    mine = set(tokens(name))
    if len(words) == 1 and text.isupper() and words[0] in asked.words:
        return len(mine) > 1  # "deoxyribonucleic acid (DNA)"
    fuller = tokens(name)[-1:] == list(words[-1:]) and text[0] == name[0] and len(words) > len(mine) > 1
    if fuller and not evades(words) and all(map(str.isalpha, words)):
        return words[-1] not in TITLES  # "Leo Tolstoy (Lev Nikolayevich Tolstoy)"
    if bracketed and asked.noun == "surname" and mine < set(words) and len(words) < len(mine) + 3:
        return not evades(words)  # "Curie (Marie Curie)"
    formula = not name[1:].islower() or len(name) < 3
    if bracketed and text.islower() and formula and not asked.words.isdisjoint(("formula", "symbol")):
        return not evades(words)  # "NaCl (sodium chloride)"
    if set(words) <= asked.words | mine and (mine < set(words) or not asked.words.isdisjoint(("born", "name"))):
        return not evades(words)  # the name that the question has
    return text == text.lower() and set(words) <= asked.common - asked.sides[0] - asked.sides[1] - JOINTS


def _suffix_fits(words: frozenset[str], gold: Sequence[str], asked: QuestionWords) -> bool:
    club = not asked.words.isdisjoint(_CLUB | {"team", "soccer", "league", "plays", "played"})
    company = words <= (_FIRM if asked.group == "group" else _COMPANY)
    company = company and (asked.group != "person" or (len(gold) > 1 and gold[-1] in KINDS))
    return words <= _HONOURS or company or (words <= _CLUB and club)


def _years_fit(
    years: Sequence[str], part: Sequence[Piece], bracketed: bool, gold: Sequence[str], asked: QuestionWords
) -> bool:
    """Return whether years are those of a work, an event, a life or a reign, not another candidate."""
    own = {word for word in gold if _YEAR.fullmatch(word)}
    if own:
        return set(years) <= own
    words = {piece.word for piece in part}
    plain = len(years) == 1 and not words & _BORN and not any(piece.is_small for piece in part)
    single = plain and re.fullmatch(r"\d{4}", years[0])
    known = {word for word in asked.words if re.fullmatch(r"1\d{3}|20\d\d", word)}
    if not single or years[0] in known:
        return True
    if asked.group == "work" and not bracketed:
        return False  # "Parasite, 1917"
    dated = asked.group in ("work", "event") or any(KINDS.get(word) == "event" for word in gold)
    undated = known or asked.group in ("person", "time", "number")
    return not undated and bool(dated or _DATED.search(asked.text))


def _places_fit(
    places: Sequence[Words], first: str, answer: str, head: str, gold: Sequence[str], asked: QuestionWords
) -> bool:
    place, own = tuple(gold), [tuple(gold[start:]) for start in range(1, len(gold)) if region_at(gold, start)]
    inside, link = [place, *own[:1], *places], first if first in (",", "(", "of", "in") else ""
    if first == "of":
        royal = not asked.words.isdisjoint(ROYAL | {"monarch", "ruler"})
        ruler = gold[-1].isdigit() or not ROYAL.isdisjoint(tokens(head)) or (royal and len(gold) == 1)
        ruler = ruler and asked.group in ("", "person")
        known = len(places) == 1 and not is_vague(places[0]) and not any(asked.sides)
        nations = nations_in([word for name in places for word in name])
        return ruler and known and (not asked.nations or bool(nations & asked.nations))
    mine = tokens(head)
    if mine != gold and mine == list(gold[: len(mine)]) and not set().union(*places) <= set(gold):
        return False  # "Trinity College, Dublin" for the one in Cambridge
    # "Wembley Stadium, London", but not "Green Bay, Milwaukee"
    numbered = gold[0].isdigit() and len(gold) > 1 and asked.has("address")
    sites, cities = SITES.intersection(gold), not all(is_region(outer) for outer in places)
    if sites and not sites.intersection(tokens(head)):
        return False  # nor "Cambridge, Massachusetts" for the university
    if cities and (not (sites or numbered or asked.noun in SITES) or re.search(r",\s*the\s", answer)):
        return False
    if is_country("".join(gold)) or (not link and (not is_known(place) or places[0] == place)):
        return False
    # a county alone could be any; an unknown name is a place if the question asks for one
    located = asked.group in ("place", "group", "event") or not asked.words
    unknown = located and not all(is_vague(outer) for outer in places)
    fine = asked.group not in ("person", "work", "time", "number") if is_known(place) else unknown
    return fine and not only_describes(gold) and agree(inside)


def untitled(words: Words, group: str) -> Iterator[Words]:
    """Yield a name without its first or first two titles.

    A single word after a title is a name only where the question asks for a person: "Queen Victoria", not "King Kong".
    """
    for place in range(1, min(len(words), 3)):
        before, left = words[:place], words[place:]
        if before[-1] not in TITLES or len(ROYAL.intersection(before)) > 1:
            return
        if not only_describes(left) and (len(left) > 1 or group == "person"):
            yield left


def without_landform(text: str, question: str) -> str:
    """Return a name without the landform that a question asks for: "Mount Kilimanjaro" as a mountain."""
    match = _LANDFORM.match(text)
    return text[match.end() :] if match and match[1].replace("Mt", "mount").lower() in question else text


# Questions that name their candidates, and sentences that say in the question's words what it asks for.
#
# "Titanic came out before Avatar (2009)" tells the choice, "Galileo's father was Vincenzo" the answer.

_TOLD_OF = re.compile(
    r"^[A-Z][^,;:()]{0,60}?(?:['’]s\s(?P<noun>[a-z]+)\s(?:is|was)|\s(?:is|was|were|are)\s(?P<verb>[a-z]+)\s(?:in|at|on)|"
    r"\s(?P<past>died|lived|grew up)\s(?:in|at|on))\s(?=\S)"
)
_SAME_DEGREE = """
first 1st earlier earliest before older oldest | last later latest after younger youngest newer newest recent |
long longer longest | shorter shortest | larger largest bigger biggest | smaller smallest fewer fewest less |
taller tallest higher highest | lower lowest | more most
"""
_DEGREES = {word: degree for degree, words in enumerate(_SAME_DEGREE.split("|")) for word in words.split()}
_THAN = word_set("than before after")
_LINKS = word_set("is was were are had has have did came come out than it of in by on")


def told_in_sentence(answer: str, asked: QuestionWords) -> str:
    """Return what a sentence with another subject says in the question's words: "Galileo's father was ..."; or ""."""
    match = _TOLD_OF.match(answer)
    if not match or (match["noun"] or match["verb"] or match["past"]) not in asked.common:
        return ""
    return "" if evades(tokens(match[0])) else answer[match.end() :]


def is_chosen(answer: str, gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether a sentence says of a gold answer what a choice asks for: "A came out before B (2009)"."""
    one, other = asked.sides
    words = tokens(re.sub(r"\([^()A-Z\d]*+\d[^()A-Z]*+\)", " ", answer))
    if gold[-1] in one ^ other and words[:1] == list(gold[-1:]):
        gold = gold[-1:]  # "Hanks is older"
    rest, size = words[len(gold) :], len(gold)
    if not any(asked.sides) or not rest or words[:size] != list(gold) or not (set(gold) <= one or set(gold) <= other):
        return False
    degrees = {_DEGREES[word] for word in rest if word in _DEGREES}
    if not degrees or not degrees <= {_DEGREES[word] for word in asked.words if word in _DEGREES}:
        return False
    aged = {"born"} if asked.words & word_set("older oldest younger youngest born") else set()
    issued = {"released"} if asked.words & word_set("film films movie movies album song released") else set()
    verbs = _LINKS | aged | issued
    said = {word for word in rest if not re.fullmatch(r"[12]\d{3}(?:-\d\d)*", word)}
    if not said <= verbs | _DEGREES.keys() | asked.words or said & ((NEGATIONS | HEDGES | JOINTS) - _THAN):
        return False
    at = next((place for place, word in enumerate(rest) if word in _THAN), len(rest))
    names = (one ^ other) - asked.common - verbs
    return (rest[0] in verbs or rest[0] in asked.common) and names.isdisjoint(rest[:at])
