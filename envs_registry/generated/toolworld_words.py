"""The words of `arpo/ToolWorld-v0`: 50 kinds of places, and 25 facts that a tool can tell about a place.

Every fact has a description, for the documents of tools, and two phrases, for questions. A phrase shares some words
with the description and none with the name of the tool. Half of the time a question calls a place by its second noun,
which stands in the documents once.
"""

from __future__ import annotations

from dataclasses import dataclass

SEASONS = ("spring", "summer", "autumn", "winter")

_PLACES = """
lighthouse/beacon bakery/breadhouse library/bookhall observatory/starhouse ferry/riverboat monastery/abbey
theatre/playhouse hospital/infirmary shipyard/slipway vineyard/winery brewery/alehouse museum/gallery school/academy
mill/gristmill quarry/stonepit orchard/fruitgrove tavern/inn courthouse/tribunal prison/jail fortress/citadel
aqueduct/conduit bridge/viaduct market/bazaar mint/coinery pharmacy/apothecary printworks/press stable/livery
tannery/leatherworks weavery/loomhouse glassworks/glasshut pottery/kiln smithy/forge sawmill/timberworks harbour/port
bathhouse/thermae cemetery/graveyard greenhouse/hothouse menagerie/zoo circus/bigtop orchestra/philharmonic
newspaper/gazette bank/countinghouse embassy/legation watchtower/lookout saltworks/saltern apiary/beeyard
fishery/trawlery dairy/creamery granary/barn foundry/ironworks
"""
PLACES: tuple[tuple[str, str], ...] = tuple(
    (noun, other) for noun, _, other in (pair.partition("/") for pair in _PLACES.split())
)
"""The two nouns of each kind of place."""


@dataclass(frozen=True)
class PlaceFact:
    """One fact about a place, which one tool of each kind of place tells.

    Attributes:
        name: the last part of the tool's name.
        description: for its document; `{noun}` is the kind of place, `{target}` the kind of the place that is told.
        phrases: for questions; `{it}` is the place, `{season}` a season.
        low: least value of a number; 0 for a fact that names another place.
        high: greatest value.
    """

    name: str
    description: str
    phrases: tuple[str, str]
    low: int = 0
    high: int = 0

    @property
    def is_link(self) -> bool:
        """Whether it names another place."""
        return self.high == 0

    @property
    def by_season(self) -> bool:
        """Whether the tool needs a season as well."""
        return "{season}" in self.phrases[0]


FACTS: tuple[PlaceFact, ...] = (
    PlaceFact(
        "sponsor",
        "Names the {target} whose patronage pays for the {noun}; each {noun} has exactly one patron.",
        ("the {target} that acts as patron of {it}", "the {target} whose patronage keeps {it} going"),
    ),
    PlaceFact(
        "supplier",
        "Looks up which {target} delivers goods and provisions to the {noun}.",
        ("the {target} that delivers provisions to {it}", "the {target} that brings {it} its goods"),
    ),
    PlaceFact(
        "nearest",
        "Finds the {target} that lies closest to the {noun}, measured along the road.",
        ("the {target} that lies closest to {it}", "the {target} one reaches first from {it} along the road"),
    ),
    PlaceFact(
        "twin",
        "Gives the partner of the {noun}: the {target} with which it has a treaty of friendship.",
        ("the {target} bound to {it} by a treaty", "the {target} that swore friendship with {it}"),
    ),
    PlaceFact(
        "origin",
        "Tells in which {target} the plans of the {noun} were drawn, according to its builders.",
        ("the {target} in which the plans of {it} were drawn", "the {target} where the builders of {it} got the plans"),
    ),
    PlaceFact(
        "rival",
        "Returns the {target} that competes with the {noun} for the same customers.",
        ("the {target} that competes with {it}", "the {target} after the same customers as {it}"),
    ),
    PlaceFact(
        "established",
        "Calendar year in which the {noun} first opened its doors, from the founding charter.",
        ("the year in which {it} first opened", "the year in the founding charter of {it}"),
        1100,
        1899,
    ),
    PlaceFact(
        "headcount",
        "How many people the {noun} employs, all workers and apprentices on the payroll together.",
        ("the number of workers on the payroll of {it}", "the number of people that {it} employs"),
        1000,
        9999,
    ),
    PlaceFact(
        "expenditure",
        "Money the {noun} spends in a year, in crowns: wages, purchases and upkeep.",
        ("the money in crowns that {it} spends in a year", "the crowns that wages and upkeep take from {it} in a year"),
        20000,
        99999,
    ),
    PlaceFact(
        "footfall",
        "Visitors that came to the {noun} in one season of last year, counted at the gate.",
        (
            "the number of visitors counted at the gate of {it} in {season}",
            "the number of visitors that {it} had in {season}",
        ),
        1000,
        49999,
    ),
    PlaceFact(
        "elevation",
        "Height of the roof of the {noun} above the sea, in spans.",
        ("the height in spans of the roof of {it}", "the number of spans from the sea up to the roof of {it}"),
        1000,
        8999,
    ),
    PlaceFact(
        "extent",
        "Ground that belongs to the {noun}, in acres, gardens and yards included.",
        ("the number of acres of ground that belong to {it}", "the acres of {it} with its gardens and yards"),
        1000,
        9999,
    ),
    PlaceFact(
        "remoteness",
        "Leagues that a traveller has to go from the {noun} to the capital city.",
        (
            "the number of leagues from {it} to the capital",
            "the leagues that a traveller from the capital goes to {it}",
        ),
        1000,
        4999,
    ),
    PlaceFact(
        "admission",
        "Price in pennies that a guest pays to enter the {noun} for a day.",
        ("the price in pennies to enter {it}", "the pennies that a guest pays for a day at {it}"),
        1000,
        6999,
    ),
    PlaceFact(
        "timetable",
        "Hours in a century during which the {noun} is open to the public.",
        (
            "the number of hours in a century that {it} is open",
            "the hours of a century in which the public may use {it}",
        ),
        100000,
        799999,
    ),
    PlaceFact(
        "liabilities",
        "Amount that the {noun} still owes to its creditors, loans with interest, in crowns.",
        ("the amount in crowns that {it} still owes", "the loans in crowns that the creditors of {it} wait for"),
        10000,
        99999,
    ),
    PlaceFact(
        "coverage",
        "Sum in crowns that the insurance would pay if the {noun} burned down.",
        ("the crowns that the insurance pays if {it} burned down", "the insurance sum of {it} in crowns"),
        50000,
        999999,
    ),
    PlaceFact(
        "grievances",
        "Complaints about the {noun} that citizens handed in during the last year.",
        ("the number of complaints about {it}", "the number of times that citizens handed in complaints against {it}"),
        1000,
        5999,
    ),
    PlaceFact(
        "intake",
        "Barrels of water that the {noun} draws from the public well in one season.",
        (
            "the barrels of water that {it} draws in {season}",
            "the number of barrels that {it} takes from the well in {season}",
        ),
        1000,
        29999,
    ),
    PlaceFact(
        "illumination",
        "Jars of lamp oil burned by the {noun} in a month for its lights.",
        ("the jars of lamp oil burned by {it} in a month", "the jars of oil that the lights of {it} need in a month"),
        1000,
        7999,
    ),
    PlaceFact(
        "maintenance",
        "How often craftsmen had to mend the {noun} since it was built: the number of repairs on record.",
        ("the number of repairs on record for {it}", "the number of times craftsmen had to mend {it}"),
        1000,
        3999,
    ),
    PlaceFact(
        "membership",
        "Subscribers of the society of friends of the {noun}, those who paid their fee.",
        (
            "the number of subscribers in the society of friends of {it}",
            "the number of friends of {it} who paid the fee",
        ),
        1000,
        69999,
    ),
    PlaceFact(
        "holdings",
        "Documents kept in the archive of the {noun}, letters, maps and ledgers together.",
        ("the number of documents in the archive of {it}", "the number of letters, maps and ledgers kept at {it}"),
        10000,
        89999,
    ),
    PlaceFact(
        "endowment",
        "Gifts in crowns that donors gave to the {noun} in the last ten years.",
        ("the gifts in crowns that donors gave to {it}", "the crowns that {it} got from donors in ten years"),
        10000,
        99999,
    ),
    PlaceFact(
        "tenancy",
        "Rent in pennies that the {noun} pays each month to the owner of the land.",
        ("the rent of {it} in pennies each month", "the pennies that the owner of the land of {it} gets each month"),
        1000,
        8999,
    ),
)
LINKS = tuple(number for number, fact in enumerate(FACTS) if fact.is_link)
NUMBERS = tuple(number for number, fact in enumerate(FACTS) if not fact.is_link)
