"""Where places are, as far as an answer may say it: "Green Bay, Wisconsin" is Green Bay, "Paris, Texas" is not Paris.

The tables hold countries with their continents and nationalities, the first-level regions of the larger countries, and
the large cities and those with namesakes. Of a place that is in no table, any region may be told.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

Words = tuple[str, ...]

# continent: its countries with their nationalities, of which a country may have two
_COUNTRY_NAMES = """
    europe: albania:albanian andorra:andorran austria:austrian belarus:belarusian belgium:belgian
    bosnia-and-herzegovina:bosnian bosnia:bosnian bulgaria:bulgarian croatia:croatian cyprus:cypriot
    czech-republic:czech czechoslovakia:czechoslovak denmark:danish england:english estonia:estonian finland:finnish
    france:french germany:german greece:greek hungary:hungarian iceland:icelandic ireland:irish italy:italian kosovo:
    latvia:latvian liechtenstein: lithuania:lithuanian luxembourg:luxembourgish north-macedonia:macedonian malta:maltese
    moldova:moldovan monaco: montenegro:montenegrin netherlands:dutch northern-ireland: norway:norwegian poland:polish
    portugal:portuguese romania:romanian russia:russian san-marino: scotland:scottish serbia:serbian slovakia:slovak
    slovenia:slovenian soviet-union:soviet spain:spanish sweden:swedish switzerland:swiss turkey:turkish
    ukraine:ukrainian united-kingdom:british vatican-city: wales:welsh yugoslavia:yugoslav east-germany: west-germany:
    georgia:georgian | asia: afghanistan:afghan armenia:armenian azerbaijan:azerbaijani bahrain:bahraini
    bangladesh:bangladeshi bhutan:bhutanese brunei:bruneian cambodia:cambodian china:chinese cyprus:cypriot
    georgia:georgian hong-kong: india:indian indonesia:indonesian iran:iranian iraq:iraqi israel:israeli japan:japanese
    jordan:jordanian kazakhstan:kazakh kuwait:kuwaiti kyrgyzstan:kyrgyz laos:laotian lebanon:lebanese macau:
    malaysia:malaysian maldives:maldivian mongolia:mongolian myanmar:burmese nepal:nepali north-korea: oman:omani
    pakistan:pakistani palestine:palestinian philippines:filipino qatar:qatari russia:russian saudi-arabia:saudi
    singapore:singaporean south-korea:korean sri-lanka:lankan syria:syrian taiwan:taiwanese tajikistan:tajik
    thailand:thai timor-leste: turkey:turkish turkmenistan:turkmen united-arab-emirates:emirati uzbekistan:uzbek
    vietnam:vietnamese yemen:yemeni | africa: algeria:algerian angola:angolan benin:beninese botswana: burkina-faso:
    burundi:burundian cameroon:cameroonian cabo-verde: central-african-republic: chad:chadian comoros: congo:congolese
    democratic-republic-of-congo:congolese djibouti: egypt:egyptian equatorial-guinea: eritrea:eritrean eswatini:
    ethiopia:ethiopian gabon:gabonese gambia:gambian ghana:ghanaian guinea:guinean guinea-bissau: ivory-coast:ivorian
    kenya:kenyan lesotho: liberia:liberian libya:libyan madagascar:malagasy malawi:malawian mali:malian
    mauritania:mauritanian mauritius:mauritian morocco:moroccan mozambique:mozambican namibia:namibian niger:
    nigeria:nigerian rwanda:rwandan republic-of-congo:congolese senegal:senegalese seychelles: sierra-leone:
    somalia:somali south-africa:african south-sudan: sudan:sudanese tanzania:tanzanian togo:togolese tunisia:tunisian
    uganda:ugandan zambia:zambian zimbabwe:zimbabwean | north-america: antigua-and-barbuda: bahamas:bahamian
    barbados:barbadian belize:belizean bermuda: canada:canadian costa-rica:rican cuba:cuban dominica:
    dominican-republic:dominican el-salvador:salvadoran grenada: guatemala:guatemalan haiti:haitian honduras:honduran
    jamaica:jamaican mexico:mexican nicaragua:nicaraguan panama:panamanian puerto-rico:rican st-lucia:
    trinidad-and-tobago:trinidadian united-states:american greenland: | south-america: argentina:argentine
    argentina:argentinian bolivia:bolivian brazil:brazilian chile:chilean colombia:colombian ecuador:ecuadorian
    guyana:guyanese paraguay:paraguayan peru:peruvian suriname:surinamese uruguay:uruguayan venezuela:venezuelan |
    oceania: australia:australian fiji:fijian kiribati: new-zealand:zealander papua-new-guinea: samoa:samoan
    solomon-islands: tonga:tongan vanuatu: guam: tuvalu: nauru: palau:
"""
# country: its regions with their short forms
_REGION_NAMES = """
    united-states: alabama:al alaska:ak arizona:az arkansas:ar california:ca colorado:co connecticut:ct delaware:de
    district-of-columbia:dc florida:fl georgia:ga hawaii:hi idaho:id illinois:il indiana:in iowa:ia kansas:ks
    kentucky:ky louisiana:la maine:me maryland:md massachusetts:ma michigan:mi minnesota:mn mississippi:ms missouri:mo
    montana:mt nebraska:ne nevada:nv new-hampshire:nh new-jersey:nj new-mexico:nm new-york:ny north-carolina:nc
    north-dakota:nd ohio:oh oklahoma:ok oregon:or pennsylvania:pa rhode-island:ri south-carolina:sc south-dakota:sd
    tennessee:tn texas:tx utah:ut vermont:vt virginia:va washington:wa west-virginia:wv wisconsin:wi wyoming:wy
    new-york-state:nys | canada: alberta:ab british-columbia:bc manitoba:mb new-brunswick:nb
    newfoundland-and-labrador:nl newfoundland:nl nova-scotia:ns ontario:on prince-edward-island:pei quebec:qc
    saskatchewan:sk yukon:yt nunavut:nu northwest-territories:nt | australia: new-south-wales:nsw queensland:qld
    south-australia:sa tasmania:tas victoria:vic western-australia:wa australian-capital-territory:act
    northern-territory:nt | united-kingdom: england: scotland: wales: northern-ireland: great-britain:gb | england:
    bedfordshire: berkshire: buckinghamshire: cambridgeshire: cheshire: cornwall: cumbria: derbyshire: devon: dorset:
    county-durham: east-sussex: essex: gloucestershire: greater-london: greater-manchester: hampshire: herefordshire:
    hertfordshire: isle-of-wight: kent: lancashire: leicestershire: lincolnshire: merseyside: norfolk: northamptonshire:
    northumberland: north-yorkshire: nottinghamshire: oxfordshire: rutland: shropshire: somerset: south-yorkshire:
    staffordshire: suffolk: surrey: sussex: tyne-and-wear: warwickshire: west-midlands: west-sussex: west-yorkshire:
    wiltshire: worcestershire: yorkshire: middlesex: | ireland: leinster: munster: connacht: ulster: | germany:
    baden-wurttemberg: bavaria: brandenburg: hesse: lower-saxony: mecklenburg-vorpommern: north-rhine-westphalia:
    rhineland-palatinate: saarland: saxony: saxony-anhalt: schleswig-holstein: thuringia: prussia: bayern: | france:
    auvergne: alsace: aquitaine: brittany: burgundy: champagne: corsica: ile-de-france: lorraine: normandy: occitanie:
    provence: picardy: nouvelle-aquitaine: grand-est: hauts-de-france: pays-de-la-loire: | italy: abruzzo: apulia:
    calabria: campania: emilia-romagna: lazio: liguria: lombardy: marche: molise: piedmont: sardinia: sicily: tuscany:
    umbria: veneto: | spain: andalusia: aragon: asturias: basque-country: canary-islands: castile-and-leon: catalonia:
    extremadura: galicia: la-rioja: murcia: navarre: balearic-islands: | india: andhra-pradesh: arunachal-pradesh:
    assam: bihar: chhattisgarh: goa: gujarat: haryana: himachal-pradesh: jharkhand: karnataka: kerala: madhya-pradesh:
    maharashtra: manipur: meghalaya: mizoram: nagaland: odisha: punjab: rajasthan: sikkim: tamil-nadu: telangana:
    tripura: uttar-pradesh: uttarakhand: west-bengal: jammu-and-kashmir: | china: anhui: fujian: gansu: guangdong:
    guangxi: guizhou: hainan: hebei: heilongjiang: henan: hubei: hunan: inner-mongolia: jiangsu: jiangxi: jilin:
    liaoning: ningxia: qinghai: shaanxi: shandong: shanxi: sichuan: tibet: xinjiang: yunnan: zhejiang: hong-kong: macau:
    | switzerland: aargau: bern: vaud: valais: ticino: graubunden: neuchatel: jura: lucerne: st-gallen: fribourg: |
    austria: burgenland: carinthia: lower-austria: upper-austria: salzburg: styria: tyrol: vorarlberg: | netherlands:
    north-holland: south-holland: gelderland: limburg: north-brabant: utrecht: zeeland: friesland: | belgium: flanders:
    wallonia: east-flanders: west-flanders: | brazil: bahia: minas-gerais: parana: pernambuco: rio-grande-do-sul:
    santa-catarina: ceara: amazonas: goias: | mexico: jalisco: chihuahua: sonora: oaxaca: yucatan: sinaloa: nuevo-leon:
    michoacan: quintana-roo: baja-california: | japan: hokkaido: kanto: kansai: kyushu: okinawa: honshu: shikoku: |
    south-africa: gauteng: western-cape: eastern-cape: kwazulu-natal: free-state: limpopo: mpumalanga: | russia:
    siberia: tatarstan: chechnya: dagestan: crimea: | europe: scandinavia: western-europe: eastern-europe:
    central-europe: southern-europe: northern-europe: | asia: east-asia: south-asia: southeast-asia: central-asia:
    middle-east: western-asia: | africa: east-africa: west-africa: north-africa: southern-africa: central-africa:
"""
# region: its large cities and those with namesakes
_CITY_NAMES = """
    alabama: montgomery mobile huntsville tuscaloosa selma auburn | alaska: anchorage juneau fairbanks | arizona:
    phoenix tucson mesa scottsdale tempe flagstaff | arkansas: little-rock fayetteville hot-springs | california:
    los-angeles san-francisco san-diego san-jose sacramento oakland fresno long-beach anaheim berkeley pasadena
    hollywood beverly-hills santa-monica palo-alto burbank santa-barbara santa-cruz bakersfield compton cupertino
    mountain-view | colorado: denver boulder colorado-springs aurora fort-collins | connecticut: hartford new-haven
    stamford bridgeport waterbury | delaware: dover | florida: miami orlando tampa jacksonville tallahassee gainesville
    key-west pensacola fort-lauderdale daytona-beach | georgia: atlanta savannah augusta macon | hawaii: honolulu hilo |
    idaho: boise pocatello | illinois: chicago peoria evanston rockford naperville joliet | indiana: indianapolis
    fort-wayne gary south-bend | iowa: des-moines cedar-rapids iowa-city ames | kansas: wichita topeka | kentucky:
    louisville lexington frankfort bowling-green | louisiana: new-orleans baton-rouge shreveport | maine: bangor |
    maryland: baltimore annapolis bethesda | massachusetts: boston worcester salem lowell plymouth | michigan: detroit
    grand-rapids lansing ann-arbor flint dearborn kalamazoo | minnesota: minneapolis st-paul duluth | mississippi:
    jackson biloxi tupelo | missouri: st-louis kansas-city independence | montana: billings helena missoula | nebraska:
    omaha lincoln | nevada: las-vegas reno carson-city | new-hampshire: concord nashua | new-jersey: newark jersey-city
    princeton trenton hoboken atlantic-city paterson | new-mexico: santa-fe albuquerque roswell | new-york: new-york
    new-york-city brooklyn manhattan queens bronx staten-island albany buffalo rochester syracuse yonkers ithaca harlem
    long-island | new-york-city: brooklyn manhattan queens bronx staten-island harlem | north-carolina: charlotte
    raleigh durham greensboro winston-salem asheville chapel-hill | north-dakota: fargo bismarck | ohio: columbus
    cleveland cincinnati toledo dayton akron canton | oklahoma: oklahoma-city tulsa | oregon: portland eugene |
    pennsylvania: philadelphia pittsburgh harrisburg allentown scranton gettysburg hershey | rhode-island: providence
    newport | south-carolina: charleston myrtle-beach | south-dakota: sioux-falls | tennessee: nashville memphis
    knoxville chattanooga | texas: houston dallas austin san-antonio fort-worth el-paso arlington corpus-christi lubbock
    amarillo galveston waco | utah: salt-lake-city provo park-city | vermont: burlington montpelier | virginia: richmond
    norfolk alexandria arlington virginia-beach charlottesville williamsburg | washington: seattle tacoma spokane
    redmond bellevue | district-of-columbia: washington washington-dc | wisconsin: milwaukee madison green-bay racine
    kenosha | wyoming: cheyenne laramie jackson | ontario: toronto ottawa hamilton mississauga kingston windsor |
    quebec: montreal quebec-city quebec | british-columbia: vancouver victoria | alberta: calgary edmonton | manitoba:
    winnipeg | nova-scotia: halifax | new-south-wales: sydney newcastle | victoria: melbourne | queensland: brisbane |
    western-australia: perth | south-australia: adelaide | tasmania: hobart | australian-capital-territory: canberra |
    new-zealand: auckland wellington christchurch | england: london birmingham manchester liverpool leeds sheffield
    bristol newcastle nottingham southampton portsmouth oxford cambridge york bath brighton plymouth exeter canterbury
    norwich coventry leicester derby reading dover lincoln durham worcester gloucester winchester hull bradford
    westminster city-of-london | greater-london: westminster london | scotland: edinburgh glasgow aberdeen dundee
    inverness perth | wales: cardiff swansea | northern-ireland: belfast londonderry derry | ireland: dublin cork galway
    limerick | france: paris lyon marseille nice bordeaux toulouse strasbourg cannes lille nantes versailles rouen reims
    calais avignon orleans grenoble | ile-de-france: paris versailles | germany: berlin hamburg munich cologne frankfurt
    stuttgart dresden leipzig dusseldorf nuremberg bonn bremen hanover heidelberg weimar mannheim gottingen | bavaria:
    munich nuremberg augsburg | austria: vienna salzburg graz innsbruck linz | switzerland: zurich geneva basel bern
    lausanne lucerne | italy: rome milan venice florence naples turin bologna genoa verona palermo pisa siena padua |
    tuscany: florence pisa siena | lombardy: milan bergamo | spain: madrid barcelona seville valencia bilbao granada
    malaga cordoba toledo zaragoza salamanca | catalonia: barcelona | portugal: lisbon porto coimbra | netherlands:
    amsterdam rotterdam hague utrecht eindhoven leiden delft | belgium: brussels antwerp ghent bruges | denmark:
    copenhagen aarhus odense | norway: oslo bergen trondheim | sweden: stockholm gothenburg malmo uppsala | finland:
    helsinki turku | iceland: reykjavik | poland: warsaw krakow gdansk wroclaw lodz | czech-republic: prague brno |
    hungary: budapest | romania: bucharest | bulgaria: sofia | greece: athens thessaloniki sparta corinth | turkey:
    istanbul ankara izmir | russia: moscow st-petersburg leningrad kazan novosibirsk vladivostok | ukraine: kyiv odessa
    lviv kharkiv | serbia: belgrade | croatia: zagreb dubrovnik split | china: beijing shanghai guangzhou shenzhen wuhan
    nanjing chengdu tianjin hangzhou harbin chongqing | japan: tokyo kyoto osaka hiroshima nagasaki nagoya sapporo
    yokohama kobe | india: mumbai delhi new-delhi kolkata chennai bangalore hyderabad jaipur agra pune | maharashtra:
    mumbai pune | pakistan: karachi lahore islamabad | bangladesh: dhaka | south-korea: seoul busan | north-korea:
    pyongyang | thailand: bangkok | vietnam: hanoi ho-chi-minh-city | indonesia: jakarta bandung | malaysia:
    kuala-lumpur penang | philippines: manila quezon-city | taiwan: taipei | singapore: singapore | monaco: monaco |
    luxembourg: luxembourg | israel: jerusalem tel-aviv haifa nazareth | lebanon: beirut tripoli | syria: damascus
    aleppo | iraq: baghdad basra mosul | iran: tehran isfahan | saudi-arabia: riyadh mecca medina |
    united-arab-emirates: dubai abu-dhabi | egypt: cairo alexandria luxor memphis thebes | libya: tripoli | morocco:
    casablanca marrakesh rabat | tunisia: tunis | kenya: nairobi mombasa | nigeria: lagos abuja | ethiopia: addis-ababa
    | ghana: accra | south-africa: johannesburg cape-town durban pretoria | brazil: rio-de-janeiro sao-paulo brasilia
    salvador | argentina: buenos-aires cordoba rosario | chile: santiago valparaiso | peru: lima cusco | colombia:
    bogota medellin cali | venezuela: caracas | cuba: havana | mexico: mexico-city guadalajara monterrey tijuana
    acapulco cancun | jamaica: kingston | united-states: hollywood harlem
"""
# other names of places, and of two wars
_OTHER_NAMES = """
    united-states: us usa united-states-of-america | united-kingdom: uk
    united-kingdom-of-great-britain-and-northern-ireland | soviet-union: ussr | united-arab-emirates: uae |
    china: peoples-republic-of-china prc 中-国 中-华-人-民-共-和-国 | russia: russian-federation | south-korea:
    republic-of-korea | north-korea: democratic-peoples-republic-of-korea dprk | germany:
    federal-republic-of-germany deutschland allemagne alemania | east-germany: german-democratic-republic gdr |
    iran: islamic-republic-of-iran | taiwan: republic-of-china | myanmar: burma | netherlands: holland |
    czech-republic: czechia | ivory-coast: cote-divoire | eswatini: swaziland | cabo-verde: cape-verde |
    timor-leste: east-timor | turkey: turkiye | vatican-city: vatican | democratic-republic-of-congo: drc
    dr-congo | united-nations: un | european-union: eu | district-of-columbia: dc | new-york-city: nyc |
    dr-of-philosophy: phd | bachelor-of-science: bsc | master-of-science: msc | mumbai:
    bombay | kolkata: calcutta | chennai: madras | kyiv: kiev | beijing: peking | yangon: rangoon |
    ho-chi-minh-city: saigon | munich: munchen muenchen | cologne: koln koeln | spain: espana spanien espagne
    spagna | austria: osterreich autriche | switzerland: schweiz suisse svizzera | france: frankreich francia
    franca | italy: italia italien italie | geneva: geneve genf | vienna: wien | prague: praha | florence:
    firenze | venice: venezia | moscow: moskva | warsaw: warszawa | lisbon: lisboa | copenhagen: kobenhavn |
    gothenburg: goteborg | world-war-1: 1st-world-war ww1 wwi great-war | world-war-2: 2nd-world-war ww2 wwii |
    washington-dc: washington-district-of-columbia
"""
_LONG_NAMES = """
republic kingdom state commonwealth province sultanate principality federal federative islamic democratic socialist arab
plurinational bolivarian united independent peoples
"""
_LONG = frozenset(_LONG_NAMES.split())
_NOT_LONG = ("china", "korea", "congo", "vietnam", "ireland", "macedonia", "germany")
_KIND_NAMES = "county province prefecture state district oblast canton parish region"
_KINDS = frozenset(_KIND_NAMES.split())


def rows_of(table: str) -> list[tuple[str, list[str]]]:
    """Return the rows of a table "name: words | name: words"."""
    rows = (row.partition(":") for row in table.split("|"))
    return [(name.strip().replace("-", " "), words.split()) for name, _, words in rows]


def _words(name: str) -> Words:
    return tuple(name.split("-"))


def _table(rows: Iterable[tuple[str, str]]) -> dict[Words, set[Words]]:
    found: dict[Words, set[Words]] = {}
    for name, outer in rows:
        found.setdefault(_words(name), set()).add(tuple(outer.split()))
    return found


_COUNTRIES, _REGIONS = (
    [(*entry.split(":"), outer) for outer, names in rows_of(table) for entry in names]
    for table in (_COUNTRY_NAMES, _REGION_NAMES)
)
_INSIDE = [(name, outer) for name, _, outer in (*_COUNTRIES, *_REGIONS)]
_REGION_IN = _table(_INSIDE)
_IN = _table([*_INSIDE, *((city, region) for region, cities in rows_of(_CITY_NAMES) for city in cities)])
_SAME_PLACE = {_words(other): tuple(name.split()) for name, others in rows_of(_OTHER_NAMES) for other in others}
_OUTER = _REGION_IN.keys() | {(continent,) for continent in ("europe", "asia", "africa", "oceania")}
_OUTER |= {("north", "america"), ("south", "america"), ("britain",), ("new", "york", "city")}
_SHORT = {mark.upper(): name for name, mark, _ in _REGIONS if mark}
NATIONALITIES = {mark: _words(name) for name, mark, _ in _COUNTRIES if mark}
_FIRST = {name[0] for name in (*_OUTER, *_SAME_PLACE)} | {"county"} | _LONG
_NATIONS = frozenset(_words(name) for name, _, _ in _COUNTRIES)
_BRITISH = frozenset({("england",), ("scotland",), ("wales",), ("britain",), ("great", "britain")})


def same_place(words: Words) -> Words:
    """Return the usual name of a place: of the USA, United States; other words are returned unchanged."""
    if words[:1] and words[0] in _LONG and "of" in words:
        before, name = words[: words.index("of")], words[words.index("of") + 1 :]
        if name in _REGION_IN and name[0] not in _NOT_LONG and set(before) <= _LONG:
            return name
    return _SAME_PLACE.get(words, words)


def region_at(words: Sequence[str], start: int) -> int:
    """Return the length of the longest name of a region or country that starts at a word; 0 if none does."""
    if words[start] not in _FIRST and _KINDS.isdisjoint(words[start + 1 : start + 2]):
        return 0
    for length in range(min(6, len(words) - start), 0, -1):
        name = tuple(words[start : start + length])
        if name in _OUTER or same_place(name) in _OUTER:
            return length
        if length == 2 and (name[1] in _KINDS or name[0] == "county") and not any(map(str.isdigit, name)):
            return length
    return 0


def spelled_out(text: str) -> str:
    """Return a region's name for its short form in capitals, such as WI; other texts are returned unchanged."""
    name = _SHORT.get(text.strip(" .").replace(".", ""))
    return name.replace("-", " ") if name else text


def agree(places: Sequence[Words]) -> bool:
    """Return whether each place may be in all that follow it."""
    named = [same_place(place) for place in places]
    return all(_may_be_in(one, other) for one, other in itertools.combinations(named, 2))


def _may_be_in(inner: Words, outer: Words) -> bool:
    around = _around(inner)
    if is_vague(outer):
        return inner not in _REGION_IN or outer[-1] == "state"
    if not around:
        return inner != outer
    direct, wider = _IN[inner], _REGION_IN.get(outer, set())
    if outer not in _NATIONS and wider & around and not wider & _REGION_IN.keys():
        return True  # "Sri Lanka, South Asia"
    # of many towns only the country is in the table: "Oxford, Oxfordshire"
    unlisted = inner not in _REGION_IN and not any(_IN.get(region, set()) & direct for region in direct)
    return outer in around or (unlisted and bool(wider & direct))


def _around(place: Words) -> set[Words]:
    """Return everything that a place is known to be in; nothing for an unknown place."""
    found: set[Words] = set()
    todo = [place]
    while todo:
        fresh = _IN.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return found | ({("britain",), ("great", "britain")} if ("united", "kingdom") in found else set())


def is_known(place: Words) -> bool:
    """Return whether it is in the tables where a place is."""
    return same_place(place) in _IN


def is_vague(place: Words) -> bool:
    """Return whether a place is known by its kind alone, such as "Brown County"."""
    return (place[-1] in _KINDS and place[:-1] not in _REGION_IN) or place[0] == "county"


def regions_in(words: Sequence[str]) -> list[Words]:
    """Return the regions and countries that words name, and the countries whose nationality they name."""
    found, place = [], 0
    while place < len(words):
        length = region_at(words, place)
        if length or words[place] in NATIONALITIES:
            found.append(tuple(words[place : place + length]) if length else NATIONALITIES[words[place]])
        place += length or 1
    return found


def city_at(words: Sequence[str], start: int) -> int:
    """Return the length of the name of a city in the table that starts at a word; 0 if none does."""
    return next((length for length in (3, 2, 1) if tuple(words[start : start + length]) in _IN), 0)


def is_region(place: Words) -> bool:
    """Return whether a place is a region or country, not a city."""
    return place not in _IN or region_at(place, 0) == len(place)


def is_in_america(place: Words) -> bool:
    """Return whether a place is known to be in the United States or Canada."""
    return not {("united", "states"), ("canada",)}.isdisjoint(_around(same_place(place)) | {place})


def nation_of(words: Words) -> Words | None:
    """Return the country that words name, or whose nationality they name: Swiss, South Korean, Icelander."""
    name = same_place(words)
    if name in _NATIONS or not words:
        return name if words else None
    nation = NATIONALITIES.get(words[-1]) or NATIONALITIES.get(re.sub(r"(?:wo)?m[ae]n$", "", words[-1]))
    if nation and len(words) == 2:  # "South Korean" and "North Korean" by the last word
        nation = (words[0], nation[-1])
    elif nation and len(nation) > 1 and words[-1] in ("african", "rican", "lankan", "zealander"):
        return None
    if not nation or len(words) > 2:
        nation = same_place((words[0].removesuffix("er"),) if len(words) == 1 else words)
    return nation if nation in _NATIONS else None


def nations_in(words: Sequence[str]) -> frozenset[Words]:
    """Return the countries that words name, or whose nationality; of England, both England and the United Kingdom."""
    found = {name for name in map(same_place, regions_in(words)) if name in _NATIONS}
    return frozenset(found | ({("united", "kingdom")} if found & _BRITISH else set()))
