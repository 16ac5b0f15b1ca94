"""Answers in words, by gold answer and question: forms of the right one, and what must not be paid.

`TRICKS` are templates for any question: {g} is its gold answer, {q} the question, {h} to {k} are answers to others.
"""

from __future__ import annotations

# fmt: off
RIGHT: dict[tuple[str, str], list[str]] = {
    ("Oslo, Bergen, Tromsø", "Which three ports did the ship call at?"): ["Bergen, Oslo, Tromsø"],
    ("Oslo, Bergen, Tromsø", "Name the ports in the order in which she called at them."): ["Oslo, Bergen and Tromsø"],
    ("Beyoncé", "Who sang it?"): ["Beyonce"],
    ("Beyonce", ""): ["Beyoncé"],
    ("J.R.R. Tolkien", ""): ["JRR Tolkien", "J. R. R. Tolkien", "J R R Tolkien"],
    ("J. R. R. Tolkien", ""): ["John Ronald Reuel Tolkien", "j.r.r. tolkien"],
    ("John Ronald Reuel Tolkien", ""): ["J.R.R. Tolkien"],
    ("yes", "Are they American?"): ["yes, they are"],
    ("yes", ""): ["Yes, they are.", "Yes", "The answer is yes.", "yes it is", "Yes, it was."],
    ("no", "Are A and B both?"): ["No, they are not."],
    ("no", ""): ["No", "no they aren't", "They are not", "No, it wasn't"],
    ("yes", "Are both X and Y of the same nationality?"): ["Yes, both are American."],
    ("no", "Are Foo and Bar dogs?"): ["No, only Foo is."],
    ("March 14, 1879", ""): [
        "14 March 1879", "14th March 1879", "14 Mar 1879", "Mar. 14, 1879", "the 14th of March, 1879",
        "on March 14, 1879", "MARCH 14 1879", "1879年3月14日",
    ],
    ("14 March 1879", ""): [
        "March 14th, 1879", "1879-03-14", "14.03.1879", "14/03/1879", "3/14/1879", "Friday, March 14, 1879",
        "1879, March 14",
    ],
    ("14 March 1879", "When was Albert Einstein born?"): ["He was born on March 14, 1879."],
    ("March 1879", ""): ["march 1879", "1879-03", "14 March 1879"],
    ("1879", ""): ["14 March 1879", "in 1879"],
    ("March 14", ""): ["14 March"],
    ("August 27", ""): ["27 August"],
    ("4 April 1990", ""): ["04/04/1990"],
    ("June 22–23, 2018", ""): ["June 22-23, 2018", "22-23 June 2018"],
    ("18–24", "How old are the men?"): ["18-24 years old", "18 to 24 years"],
    ("5-10 km", "How far is it?"): ["5-10 km (3.1-6.2 miles)"],
    ("1963–1991", ""): ["from 1963 to 1991"],
    ("1963-1991", ""): ["1963 to 1991"],
    ("1990s", ""): ["1990's", "the 1990s"],
    ("1045 BC", ""): ["1045 BCE"],
    ("€5,000,000", ""): ["€5 million"],
    ("€5 million", ""): ["5 million euros", "EUR 5 million"],
    ("$5 million", ""): ["$5,000,000", "5 million dollars", "US$5 million"],
    ("25%", ""): ["25 percent", "25 per cent"],
    ("C#", ""): ["C♯", "C sharp"],
    ("1234", ""): ["1,234"],
    ("3.5", ""): ["3.50"],
    ("17", ""): ["seventeen"],
    ("seventeen", ""): ["17"],
    ("5 million", ""): ["5,000,000"],
    ("10 km", ""): ["10 kilometers", "10 kilometres", "10km"],
    ("1.95 m", ""): ["195 cm"],
    ("6 ft 2 in", ""): ["6'2\""],
    ("2nd", ""): ["second"],
    ("3rd", ""): ["the third"],
    ("Paris", ""): [
        "Paris", "paris", "PARIS.", "**Paris**", "The answer is Paris", "The answer is: Paris.", "Answer: Paris",
        "It's Paris",
    ],
    ("Paris", "What is the capital of France?"): [
        "It is Paris.", "The capital of France is Paris.", "Paris is the capital of France.", "Paris, France",
        "Paris (the capital of France)",
    ],
    ("Paris", "Where"): ["In Paris"],
    ("Peter Benchley", "Who wrote Jaws?"): ["Peter Benchley wrote Jaws", "It was written by Peter Benchley"],
    ("Nile", "Which river flows through Cairo?"): ["Nile River", "the river Nile"],
    ("24", "How many episodes are there?"): ["24 episodes"],
    ("30", "How many years did it last?"): ["30 years"],
    ("30 years.", "How many years did it last?"): ["30"],
    ("24 episodes", "How many episodes are there?"): ["24"],
    ("Romeo and Juliet", ""): ["Romeo & Juliet", "Juliet and Romeo", "\"Romeo and Juliet\""],
    ("St. Louis", ""): ["Saint Louis"],
    ("Mt. Everest", ""): ["Mount Everest"],
    ("World War II", ""): ["World War 2", "World War Two"],
    ("Barack Obama", ""): ["President Barack Obama"],
    ("President Barack Obama", ""): ["Barack Obama"],
    ("Elizabeth II", ""): ["Queen Elizabeth II"],
    ("Martin Luther King Jr.", ""): ["Martin Luther King, Jr.", "Martin Luther King Junior"],
    ("United States", ""): ["USA", "U.S.", "United States of America"],
    ("UK", ""): ["United Kingdom"],
    ("Müller", ""): ["Mueller", "Muller"],
    ("Oystein", ""): ["Øystein"],
    ("National Football League (NFL)", ""): ["NFL", "National Football League"],
    ("National Football League", ""): ["National Football League (NFL)"],
    ("Spider-Man", ""): ["Spiderman"],
    ("actor and director", ""): ["Actor, director"],
    ("actor, director", ""): ["director and actor"],
    ("Marco Reus and Mario Balotelli.", ""): ["Marco Reus, Mario Balotelli"],
    ("George W. Bush", ""): ["George Walker Bush"],
    ("Beatles", ""): ["The Beatles"],
    ("Goodfellas", "Which film came out first, Goodfellas or Taxi Driver?"): ["Goodfellas film"],
    ("Mary", "Who is older, Mary or John?"): ["Mary"],
    ("Annie Morton", "Who is older, Annie Morton or Terry Richardson?"): ["Annie Morton is older"],
    ("北京", ""): ["北京", "答案是北京。"],
    ("北京市", ""): ["北京市"],
    ("2024-04-09", ""): ["2024年4月9日"],
    ("Harbor", ""): ["Harbour"],
    ("A.A. Milne", ""): ["A. A. Milne"],
    ("A. A. Milne", ""): ["AA Milne"],
    ("Vitamin A", ""): ["Vitamin A"],
    ("over 8,000", ""): ["8,000", "more than 8,000"],
    ("about 400 years", ""): ["400 years"],
    ("Jungle Patrol", "Which film is older, Foo or Jungle Patrol (1948 Film)?"): ["Jungle Patrol (1948 Film)"],
    ("Oxford", "Which university did he attend?"): ["University of Oxford"],
    ("Jane Goodall", ""): ["Dr. Jane Goodall"],
    ("Eiffel Tower", ""): ["the Eiffel tower"],
    ("Not Without My Daughter", ""): ["Not Without My Daughter"],
    ("Paris, France", ""): ["Paris, France"],
    ("Titanic", "Which film won?"): ["The film is Titanic"],
    ("Paris", "Where was Marie born?"): ["She was born in Paris."],
    ("5", ""): ["five", "5.0"],
    ("5 dollars", ""): ["$5"],
    ("A+", ""): ["A+"],
    ("A+", "What grade did"): ["Grade A+"],
    ("12 noon", ""): ["12 noon"],
    ("theater", ""): ["theatre"],
    ("Jean-Luc Godard", ""): ["Jean Luc Godard"],
    ("O’Brien", ""): ["O'Brien"],
    ("O'Brien", ""): ["OBrien"],
    ("naïve", ""): ["naive"],
    ("Sao Paulo", ""): ["São Paulo"],
    ("Lodz", ""): ["Łódź"],
    ("Dvořák", ""): ["Dvorak"],
    ("Green Bay", "In which city is the team's stadium?"): [
        "Green Bay, Wisconsin", "Green Bay, WI", "Green Bay, Wisconsin, USA", "Green Bay (Wisconsin)",
        "Green Bay Wisconsin", "the city of Green Bay", "Green Bay in Wisconsin",
        "Green Bay, Wisconsin, United States of America", "Green Bay, Brown County, Wisconsin",
        "The team's stadium is in Green Bay, Wisconsin.",
    ],
    ("Washington, D.C.", "Where was he born?"): [
        "Washington, D.C., United States", "Washington D.C., USA", "Washington DC",
        "Washington, District of Columbia", "He was born in Washington, D.C., United States",
    ],
    ("Paris", "Where was she born?"): [
        "Paris, France", "Paris (France)", "She was born in Paris, France.", "Paris, Île-de-France, France",
        "the city of Paris",
    ],
    ("Toronto", "What city is the band from?"): [
        "Toronto, Ontario", "Toronto, Ontario, Canada", "Toronto, Canada", "Toronto, ON",
    ],
    ("Oxford", "Where did he study?"): [
        "Oxford, England", "Oxford, Oxfordshire", "Oxford, United Kingdom", "Oxford, UK",
    ],
    ("Munich", "Where is the company based?"): [
        "Munich, Germany", "Munich, Bavaria", "München", "Munich, Bavaria, Germany",
    ],
    ("Texas", "Which state is it in?"): [
        "Texas, USA", "Texas, United States", "the state of Texas", "State of Texas",
    ],
    ("Scotland", "Which country is it in?"): ["Scotland, United Kingdom", "Scotland, UK"],
    ("Kenya", "Which country?"): ["Kenya, Africa", "the Republic of Kenya", "Republic of Kenya"],
    ("Brooklyn", "Where was he born?"): ["Brooklyn, New York", "Brooklyn, New York City", "Brooklyn, NY"],
    ("Nashville, Tennessee", "Where?"): ["Nashville, Tennessee, U.S.", "Nashville, TN", "Nashville (Tennessee)"],
    ("Greenwood Village, Colorado", "Where is it?"): ["Greenwood Village, Colorado, United States"],
    ("George IV", "Which king ruled in 1825?"): [
        "King George IV of the United Kingdom", "King George IV", "George IV of the United Kingdom",
        "George IV (1762–1830)", "King George the Fourth",
    ],
    ("George IV", "Who was the king?"): ["George IV of the United Kingdom"],
    ("Victoria", "Who was queen of the United Kingdom in 1850?"): [
        "Queen Victoria", "Queen Victoria of the United Kingdom",
    ],
    ("Elizabeth II", "Who was the monarch?"): [
        "Queen Elizabeth II of the United Kingdom", "Her Majesty Queen Elizabeth II", "HM Queen Elizabeth II",
    ],
    ("Seven Days Battles", "Which battles did Lee command?"): [
        "The Seven Days Battles (1862)", "the Seven Days Battles", "Seven Days Battles, 1862",
    ],
    ("Jaws", "Which film did Spielberg direct?"): [
        "Jaws (1975)", "Jaws (1975 film)", "Jaws (film)", "the film Jaws", "Jaws, a film",
        "Jaws (1975 American film)", "the movie Jaws",
    ],
    ("Nevermind", "Which album was it?"): ["Nevermind (album)", "Nevermind (1991 album)", "Nevermind (1991)"],
    ("Barack Obama", "Who was president in 2010?"): [
        "Barack Obama (born August 4, 1961)", "Barack Obama (born 1961)", "Barack Obama (b. 1961)",
        "President Barack Obama", "former President Barack Obama", "US President Barack Obama",
        "former U.S. President Barack Obama", "Barack Obama, American politician",
        "Barack Obama, the 44th President of the United States", "Mr. Barack Obama",
        "Barack Obama (American politician)", "Obama, Barack",
    ],
    ("Wolfgang Amadeus Mozart", "Who composed it?"): [
        "Wolfgang Amadeus Mozart (1756–1791)", "Wolfgang Amadeus Mozart (1756-1791)",
        "Wolfgang Amadeus Mozart (27 January 1756 – 5 December 1791)", "the composer Wolfgang Amadeus Mozart",
        "Wolfgang Amadeus Mozart, Austrian composer", "It was composed by Wolfgang Amadeus Mozart (1756–1791).",
        "W. A. Mozart",
    ],
    ("Tom Hanks", "Which actor played Forrest Gump?"): [
        "Tom Hanks (actor)", "American actor Tom Hanks", "actor Tom Hanks",
        "Tom Hanks, an American actor and filmmaker", "The actor Tom Hanks",
    ],
    ("Ian McKellen", "Who played Gandalf?"): ["Sir Ian McKellen", "Sir Ian McKellen CH CBE", "Ian McKellen, CBE"],
    ("Stephen Hawking", "Who wrote it?"): [
        "Professor Stephen Hawking", "Dr. Stephen Hawking", "Prof. Stephen Hawking", "Stephen Hawking, PhD",
        "Stephen Hawking (physicist)",
    ],
    ("Robert E. Lee", "Who led them?"): [
        "General Robert E. Lee", "Gen. Robert E. Lee", "Confederate General Robert E. Lee",
    ],
    ("Tim Cook", "Who is the CEO of Apple?"): [
        "Tim Cook, CEO of Apple", "Tim Cook (CEO of Apple)", "Tim Cook, the CEO of Apple",
    ],
    ("NASA", "Which agency?"): [
        "National Aeronautics and Space Administration (NASA)",
        "NASA (National Aeronautics and Space Administration)", "N.A.S.A.",
    ],
    ("National Football League", "Which league?"): [
        "National Football League (NFL)", "NFL", "the NFL (National Football League)",
    ],
    ("British Broadcasting Corporation", "Who produced it?"): [
        "BBC", "the BBC", "British Broadcasting Corporation (BBC)",
    ],
    ("Apple", "Which company made it?"): ["Apple Inc.", "Apple, Inc.", "Apple Inc"],
    ("Microsoft", "Which company?"): ["Microsoft Corporation", "Microsoft Corp."],
    ("Manchester United", "Which football club did he play for?"): [
        "Manchester United F.C.", "Manchester United FC", "Manchester United Football Club",
    ],
    ("8 kilometers", "How far is it?"): [
        "8 kilometers (5 miles)", "8 km (5.0 mi)", "8 km", "8 kilometres (about 5 miles)", "eight kilometers",
        "5 miles (8 km)",
    ],
    ("5 miles", "How far is it?"): ["8 kilometers (5 miles)", "5 mi (8 km)", "5 miles (8.0 km)"],
    ("6 ft 2 in", "How tall is he?"): ["6'2\" (188 cm)", "6 ft 2 in (1.88 m)", "6 feet 2 inches"],
    ("100 kg", "How heavy?"): ["100 kg (220 lb)", "100 kilograms (220 pounds)", "100 kilograms"],
    ("20 °C", "What temperature?"): ["20 °C (68 °F)", "20 degrees Celsius (68 degrees Fahrenheit)"],
    ("480x800", "What resolution does it have?"): [
        "480x800 pixels", "480 x 800", "480 × 800 pixels", "480×800 px", "480 by 800 pixels",
    ],
    ("480 x 800 pixels", "What resolution?"): ["480x800 pixels", "480x800"],
    ("323 BC to 272 BC", "When did he live?"): [
        "323 to 272 BC", "323–272 BC", "323 BC – 272 BC", "from 323 BC to 272 BC", "323-272 BCE",
        "from 323 to 272 B.C.",
    ],
    ("323–272 BC", "When?"): ["323 to 272 BC", "323 BC to 272 BC"],
    ("27 BC – 14 AD", "When did he reign?"): ["27 BC to AD 14", "27 BC to 14 AD", "from 27 BC until 14 CE"],
    ("1939–1945", "When was the war?"): [
        "1939-45", "1939 to 1945", "from 1939 until 1945", "between 1939 and 1945", "1939–45",
    ],
    ("4月14日", "他的生日是哪一天？"): ["四月十四日", "4 月 14 日", "April 14"],
    ("四月十四日", "他的生日是哪一天？"): ["4月14日", "四月十四号"],
    ("April 14", "When is it?"): ["四月十四日", "14 April", "the 14th of April"],
    ("1949年10月1日", "什么时候成立？"): ["一九四九年十月一日", "1949-10-01", "October 1, 1949", "1949年10月1号"],
    ("北京", "中国的首都是哪里？"): [
        "北京市", "中国北京", "北京（中国）", "首都北京", "是北京", "北京。", "中国北京市", "答案：北京市",
    ],
    ("北京市", "中国的首都是哪里？"): ["北京"],
    ("广东", "他来自哪个省？"): ["广东省"],
    ("巴黎", "他在哪里出生？"): ["法国巴黎", "巴黎市", "巴黎，法国"],
    ("中华人民共和国", "哪个国家？"): ["中華人民共和國", "中华人民共和国（PRC）"],
    ("中国", "哪个国家？"): ["中國", "中华人民共和国"],
    ("鲁迅", "谁写了《狂人日记》？"): ["魯迅", "鲁迅先生", "作家鲁迅", "鲁迅（1881—1936）", "是鲁迅写的"],
    ("清华大学", "他毕业于哪所大学？"): ["清華大學", "他毕业于清华大学", "中国清华大学"],
    ("3", "有几个人？"): ["3个", "三个", "三", "3个人", "三个人"],
    ("12", "有多少部电影？"): ["12部", "十二部", "十二", "共12部", "共有十二部电影"],
    ("30岁", "他多大年龄？"): ["三十岁", "30", "30 岁"],
    ("120000", "人口是多少？"): ["12万", "十二万", "12万人", "120,000人"],
    ("1000", "How many people came?"): [
        "1 000", "1,000", "one thousand", "a thousand", "1000 people", "1 000 people", "1'000", "1K",
    ],
    ("12 million", "How many copies were sold?"): [
        "12M", "12 million copies", "12,000,000", "12 000 000", "twelve million", "12 mio",
    ],
    ("$12 million", "What did it cost?"): [
        "$12M", "US$12 million", "12 million US dollars", "$12,000,000", "12M USD", "12 million USD",
        "$12 million USD",
    ],
    ("1990", "When was it released?"): [
        "the year 1990", "in the year 1990", "1990 AD", "AD 1990", "It was released in 1990", "1990 CE", "in 1990",
        "year 1990", "1990年",
    ],
    ("44 BC", "When did he die?"): [
        "44 B.C.", "44 BCE", "the year 44 BC", "in 44 BC", "March 15, 44 BC", "15 March 44 BC",
    ],
    ("-9", "What was the lowest temperature?"): ["minus 9", "negative 9", "minus nine", "−9", "negative nine"],
    ("-9 °C", "What was the lowest temperature?"): ["minus 9 degrees Celsius", "minus nine °C", "-9 degrees Celsius"],
    ("5", "How many seasons are there?"): [
        "exactly 5", "a total of 5", "exactly five seasons", "5 seasons", "5 (five)", "five (5)",
        "a total of five seasons", "There are 5 seasons", "There are exactly five seasons.",
    ],
    ("12", "How many eggs?"): ["a dozen", "one dozen", "12 eggs", "twelve (12)"],
    ("500,000", "How many?"): ["half a million", "500 thousand", "500K", "five hundred thousand"],
    ("2/3", "What share?"): ["two thirds", "two-thirds"],
    ("three quarters", "What share?"): ["3/4", "three-quarters"],
    ("8:00 pm", "When does it start?"): ["8 p.m.", "8 PM", "20:00", "8:00 p.m."],
    ("42nd", "Which president was he?"): ["forty-second", "the 42nd", "42nd president"],
    ("18", "How old was she?"): [
        "18 years old", "18 years", "eighteen", "eighteen years old", "aged 18", "She was 18 years old",
    ],
    ("14 March 1879", "When was he born?"): [
        "14 mars 1879", "14. März 1879", "14 de marzo de 1879", "14 marzo 1879", "le 14 mars 1879",
        "am 14. März 1879", "14 de março de 1879", "14 maart 1879", "14 марта 1879", "Friday, 14 March 1879",
        "14 March 1879 (Friday)", "14 March 1879 AD", "March 14th 1879", "1879 March 14", "14-Mar-1879", "14-03-1879",
        "14 MARCH 1879",
    ],
    ("1 January 1990", "When?"): ["1er janvier 1990", "1. Januar 1990", "1º de enero de 1990", "January 1st, 1990"],
    ("yes", "Are both Hot Rod and Field & Stream magazines?"): [
        "Yes, both are magazines.", "Yes, they are both magazines", "Yes, because both are magazines",
        "Yes, Hot Rod and Field & Stream are both magazines", "Yes, that is correct", "Yes, that's right.",
        "Both are magazines.", "They are both magazines.", "yes, both of them are", "Yes, they both are.",
    ],
    ("no", "Are both Hot Rod and Titanic magazines?"): [
        "No, only Hot Rod is a magazine", "No, Titanic is a film", "No, Titanic is not a magazine",
        "No, they are not both magazines", "No, that is incorrect", "No, that's not correct", "No, that is not true.",
        "No, Titanic is not.", "No, because Titanic is a film", "No, Hot Rod is a magazine but Titanic is a film",
    ],
    ("yes", "Were Scott Derrickson and Ed Wood of the same nationality?"): [
        "Yes, both were American", "Yes, they were both American.", "Yes, they are the same nationality",
        "Yes, both American", "Yes, Scott Derrickson and Ed Wood were both American",
    ],
    ("no", "Were Scott Derrickson and Jean Renoir of the same nationality?"): [
        "No, Scott Derrickson is American and Jean Renoir is French", "No, they have different nationalities",
        "No, Derrickson is American while Renoir was French", "No, they were of different nationalities.",
    ],
    ("United States Navy", "Which branch?"): ["US Navy", "U.S. Navy", "the U.S. Navy", "United States Navy (USN)"],
    ("United Kingdom", "Which country?"): [
        "UK", "the U.K.", "United Kingdom of Great Britain and Northern Ireland", "the UK",
    ],
    ("Russia", "Which country?"): ["Russian Federation", "the Russian Federation"],
    ("South Korea", "Which country?"): ["Republic of Korea", "South Korea, Asia"],
    ("Netherlands", "Which country?"): ["the Netherlands", "The Netherlands", "Kingdom of the Netherlands"],
    ("World Health Organization", "Which organisation?"): [
        "World Health Organisation", "WHO", "World Health Organization (WHO)",
    ],
    ("Fyodor Dostoevsky", "Who wrote it?"): ["Fyodor Dostoyevsky", "Fyodor Dostoevskiy"],
    ("Leo Tolstoy", "Who wrote it?"): ["Leo Tolstoi"],
    ("Mumbai", "Which city?"): ["Bombay", "Mumbai, India", "Mumbai (Bombay)", "Mumbai, Maharashtra, India"],
    ("Kyiv", "Which city?"): ["Kiev", "Kyiv, Ukraine", "Kyiv (Kiev)"],
    ("Hong Kong", "Where?"): ["Hongkong", "HongKong"],
    ("YouTube", "Which site?"): ["Youtube", "You Tube", "youtube"],
    ("Spider-Man", "Which hero?"): ["Spiderman", "Spider Man"],
    ("Al-Qaeda", "Which group?"): ["al Qaeda", "Al Qaeda"],
    ("Marco Reus and Mario Balotelli", "Which players?"): [
        "Mario Balotelli, Marco Reus", "Marco Reus; Mario Balotelli", "1. Marco Reus 2. Mario Balotelli",
        "- Marco Reus\n- Mario Balotelli", "Marco Reus & Mario Balotelli", "Both Mario Balotelli and Marco Reus",
    ],
    ("red, white and blue", "Which colors?"): [
        "blue, red, and white", "red, white, blue", "red/white/blue", "white, blue & red",
    ],
    ("Frédéric Chopin", "Who composed it?"): ["Frederic Chopin", "Frédéric Chopin (1810–1849)", "Chopin, Frédéric"],
    ("Emily Dickinson", "Who wrote it?"): [
        "poet Emily Dickinson", "the American poet Emily Dickinson",
        "Emily Dickinson (December 10, 1830 – May 15, 1886)",
    ],
    ("Lionel Messi", "Who won?"): ["Argentine footballer Lionel Messi"],
    ("Mount Everest", "What is the highest mountain?"): ["Mt. Everest", "Mt Everest", "Mount Everest, Nepal"],
    ("Albert Einstein", "Who developed it?"): ["Albert Einstein, physicist"],
    ("piano", "What instrument?"): ["the piano", "a piano"],
    ("American", "What nationality is he?"): ["He is American", "American nationality", "American."],
    ("Gettysburg", "Where was the battle?"): ["Gettysburg, Pennsylvania", "Gettysburg, PA"],
    ("Honolulu", "Where was he born?"): ["Honolulu, Hawaii", "Honolulu, Hawaii, U.S.", "Honolulu, HI"],
    ("Sydney", "Where?"): [
        "Sydney, Australia", "Sydney, New South Wales", "Sydney, New South Wales, Australia", "Sydney, NSW",
    ],
    ("J. K. Rowling", "Who wrote it?"): [
        "J.K. Rowling", "JK Rowling", "J. K. Rowling (born 31 July 1965)", "British author J. K. Rowling",
        "Author J.K. Rowling",
    ],
    ("John F. Kennedy", "Who was president?"): [
        "President John F. Kennedy", "JFK", "John Fitzgerald Kennedy", "John F Kennedy", "John F. Kennedy (JFK)",
    ],
    ("Tokyo", "Which city?"): ["Tokyo, Japan", "Tokyo (Japan)", "Tōkyō"],
    ("São Paulo", "Which city?"): ["Sao Paulo, Brazil", "São Paulo, Brazil"],
    ("Animal Farm", "What is the novel?"): [
        "Animal Farm (novel)", "Animal Farm (1945)", "the novel Animal Farm", "\"Animal Farm\" (1945 novel)",
    ],
    ("James Cameron", "Who directed Titanic?"): [
        "James Cameron directed Titanic", "Titanic was directed by James Cameron", "director James Cameron",
        "James Cameron (director)", "James Cameron (Canadian director)", "the director James Cameron",
    ],
    ("Frank Lowy", "Which man who presented the Australia 2022 FIFA World Cup bid was born on October 22, 1930?"): [
        "Frank Lowy (born 22 October 1930)", "Sir Frank Lowy", "Frank Lowy AC", "Frank Lowy, Australian businessman",
        "Frank Lowy was born on October 22, 1930", "Australian businessman Frank Lowy",
        "Frank Lowy, who presented the bid", "Lowy, Frank",
    ],
    ("James Packer", "Erica Packer was the second wife of what Australian businessman?"): [
        "James Packer (Australian businessman)", "the businessman James Packer", "Mr. James Packer",
        "James Packer, an Australian businessman", "Australian billionaire James Packer",
    ],
    ("Motörhead", "Hate Them is the ninth album by a band likened to who?"): [
        "Motorhead", "the band Motörhead", "Motörhead (band)", "Motörhead, an English rock band",
        "Motörhead (English rock band)",
    ],
    ("Suicide Kings", "In what 1997 American mystery crime film did Johnny Galecki start in?"): [
        "Suicide Kings (1997)", "Suicide Kings (1997 film)", "the 1997 film Suicide Kings", "Suicide Kings, 1997",
        "\"Suicide Kings\"", "the film Suicide Kings (1997)",
    ],
    ("Scotland", "What country does Hatton Hill and Hatton Castle, Angus have in common?"): [
        "Scotland, UK", "Scotland (UK)", "Scotland, United Kingdom", "Scotland in the United Kingdom",
    ],
    ("The A41", "What major truck road is located in Backford Cross?"): ["A41", "A41 road", "the A41 road"],
    ("United States Senator", "What other political position did the person who introduced the DISCLOSE Act hold?"): [
        "U.S. Senator", "US senator", "a United States Senator",
    ],
    (
        "September 8, 2017",
        "when was the album that includes the song by Dustin Lynch released to country radio on February 17, 2017?",
    ): [
        "8 September 2017", "2017-09-08", "Sept. 8, 2017", "the 8th of September 2017", "8 septembre 2017",
        "Friday, September 8, 2017", "September 8th, 2017", "8. September 2017", "8 de septiembre de 2017",
        "2017年9月8日", "二〇一七年九月八日",
    ],
    ("February", "In what month was the relief first officer of the flight born?"): [
        "Feb.", "Feb", "in February", "the month of February",
    ],
    ("author", "Eric Ambler and Carol Shields are both best Known for what profession?"): ["an author", "Author."],
    ("CBS", "Mamie Gummer played the role of Nancy Crozier on the TV series airing on what network?"): [
        "CBS network", "the CBS network", "CBS (Columbia Broadcasting System)", "C.B.S.",
    ],
    ("276,170 inhabitants", "What is the inhabitant of the city where 122nd SS-Standarte was formed in2014"): [
        "276170", "276,170", "276 170",
    ],
    ("Thomas Loren Friedman", "Which author has won more Pulitzer Prizes, Thomas Friedman or Henri Bergson?"): [
        "Thomas L. Friedman", "Thomas Loren Friedman (born 1953)",
    ],
    ("Évreux", "Where was the husband of Jeanne Raunay born?"): [
        "Evreux", "Évreux, France", "Évreux, Normandy", "Évreux (France)", "Évreux, Normandy, France",
        "in Évreux, France",
    ],
    ("Pavia", "Where was the husband of Caterina Visconti born?"): [
        "Pavia, Italy", "Pavia, Lombardy", "Pavia, Lombardy, Italy", "Pavia (Italy)",
    ],
    ("Alena Mihulová", "Who is the spouse of the director of film Noc Nevěsty?"): [
        "Alena Mihulova", "Alena Mihulová (actress)", "actress Alena Mihulová", "Czech actress Alena Mihulová",
        "Alena Mihulová, Czech actress", "Ms. Alena Mihulová", "the Czech actress Alena Mihulová (born 1965)",
    ],
    ("12 June 1516", "When did John V, Prince Of Anhalt-Zerbst's father die?"): [
        "June 12, 1516", "12 June 1516 AD", "the 12th of June, 1516", "12 juin 1516",
    ],
    ("Sebastian Cabot", "What is the name of the child of the Italian navigator?"): [
        "Sebastian Cabot (explorer)", "explorer Sebastian Cabot", "Sebastian Cabot, explorer",
    ],
    (
        "Richland County",
        "In which county is the city sharing a border with the capitol of the first state to formally secede?",
    ): [
        "Richland County, South Carolina", "Richland County, SC", "Richland County (South Carolina)",
        "Richland County, South Carolina, USA", "Richland",
    ],
    ("Warner Music Group", "Who is the owner of the record label of the Please Remember Me performer?"): [
        "Warner Music Group (WMG)", "Warner Music Group Corp.", "Warner Music Group Inc.",
    ],
    ("King Wu of Zhou", "Who was the first king of the longest Chinese dynasty?"): ["Wu of Zhou"],
    ("Saturn V", "What rocket was used for the mission that landed the first humans on the moon?"): [
        "Saturn 5", "the Saturn V rocket", "Saturn V rocket", "Saturn-V",
    ],
    ("Thomas O. Paine", "Who was the head of NASA during Apollo 11?"): [
        "Dr. Thomas O. Paine", "Thomas O. Paine (1921–1992)",
    ],
    ("July 27, 1953", "When did the war that Neil Armstrong served in end?"): [
        "27 July 1953", "July 27th, 1953", "27 juillet 1953", "On July 27, 1953", "1953-07-27", "27th July, 1953",
    ],
    ("Real Madrid", "For which club did the winner of the 2007 Ballon d'Or play for in 2012?"): [
        "Real Madrid CF", "Real Madrid C.F.", "Real Madrid, Spain", "Real Madrid (Spain)",
        "Real Madrid football club",
    ],
    ("James Madison", "Who was president of the United States in the year that Citibank was founded?"): [
        "President James Madison", "James Madison (1751–1836)",
        "James Madison, the fourth president of the United States", "James Madison (4th President)",
    ],
    ("131", "How many people died in the second most powerful earthquake ever recorded?"): [
        "131 people", "131 people died", "one hundred thirty-one", "one hundred and thirty-one", "exactly 131",
    ],
    ("China", "In what country is the second tallest statue in the world?"): [
        "People's Republic of China", "China (Asia)", "the People's Republic of China", "China, Asia", "PRC", "中国",
    ],
    ("Pine Tree State", "What is the nickname of the easternmost U.S. state?"): [
        "The Pine Tree State", "\"The Pine Tree State\"",
    ],
    ("David Dinkins", "Who was the first African American mayor of the most populous city in the United States?"): [
        "Mayor David Dinkins", "David Dinkins, mayor of New York City", "David Dinkins (1927–2020)",
    ],
    ("15th place", "What position was Everton in when Rafael Benítez was sacked?"): [
        "15th", "fifteenth", "fifteenth place",
    ],
    ("Nainital district", "In which district of Uttarakhand was Ila Pant born?"): [
        "Nainital", "Nainital district, Uttarakhand", "Nainital District, Uttarakhand, India",
    ],
    ("20,000 square meters", "What is the pavilion area of France?"): [
        "20,000 m²", "20000 square metres", "20,000 sq m", "20,000 square meters (215,278 square feet)", "2 hectares",
    ],
    ("66 hours", "How many hours in total would a person spend?"): ["66", "sixty-six hours", "66 hrs", "sixty six"],
    ("Will Tracz", "Who was the General Chair of the ICSE conference in 2002?"): [
        "Dr. Will Tracz", "General Chair Will Tracz", "Will Tracz (General Chair)", "Will Tracz, General Chair",
        "Prof. Will Tracz",
    ],
    ("28天", "2019年第四届全国软件测试大赛北京赛区的比赛日期与全国赛区开始日期相差多少天？"): [
        "28", "二十八天", "二十八", "28 天", "相差28天",
    ],
    ("英语", "高等数学后的哪项考试是在博学南楼B201进行的？"): ["英語", "英语考试", "英语。"],
    ("100", "总共颁发了多少项奖学金？"): ["100项", "一百项", "一百", "共100项", "总共100项"],
    ("史豪斌", "2024年1月谁成为西北工业大学计算机学院副院长？"): ["史豪斌教授", "史豪斌副院长", "副院长史豪斌"],
    ("2023-12-05", "北方工业大学信息学院2023年最后举办的学术活动是在什么日期？"): [
        "2023年12月5日", "二〇二三年十二月五日", "December 5, 2023", "2023年12月05日", "2023/12/05",
    ],
    ("2024年5月27日", "截止日期是什么？"): ["2024-05-27", "二〇二四年五月二十七日", "2024年5月27号", "27 May 2024"],
    ("王萍主任", "具体讲解教学规范的人是谁？"): ["王萍"],
    ("South Carolina", "Which state?"): [
        "South Carolina, USA", "the state of South Carolina", "South Carolina (US)", "South Carolina, U.S.A.",
    ],
    ("Danish", "What nationality is she?"): ["Danish nationality", "She is Danish."],
    ("Charles Darwin", "Who wrote On the Origin of Species?"): [
        "Charles Darwin (1809-1882)", "Charles Darwin, English biologist", "English naturalist Charles Darwin",
    ],
    ("Henry VIII", "Which king had six wives?"): [
        "King Henry VIII", "King Henry VIII of England", "Henry VIII of England", "Henry the Eighth",
        "King Henry the Eighth of England", "Henry VIII (1491–1547)", "Henry 8th",
    ],
    ("Catherine the Great", "Which empress ruled Russia?"): [
        "Empress Catherine the Great", "Catherine the Great of Russia", "Empress Catherine the Great of Russia",
        "Catherine the Great (1729–1796)",
    ],
    ("Pope Francis", "Who is the head of the church?"): ["Pope Francis (born 1936)", "His Holiness Pope Francis"],
    ("Queen Victoria", "Who was the monarch?"): [
        "Queen Victoria of the United Kingdom", "Queen Victoria (1819–1901)", "HM Queen Victoria",
    ],
    ("1984", "Which year was it?"): ["the year 1984", "in 1984", "1984 AD", "Nineteen eighty-four", "year 1984"],
    ("Pride and Prejudice", "Which novel did she write?"): [
        "Pride & Prejudice", "Pride and Prejudice (1813)", "Pride and Prejudice (novel)",
        "the novel Pride and Prejudice", "Pride and Prejudice, a novel", "Pride and Prejudice (1813 novel)",
        "Pride and Prejudice (book)",
    ],
    ("The Godfather", "Which film won Best Picture in 1973?"): ["The Godfather (film)", "Godfather"],
    ("Thriller", "Which album is the best-selling?"): [
        "Thriller (album)", "Thriller (1982)", "Thriller (1982 album)", "the album Thriller",
    ],
    ("Bohemian Rhapsody", "Which song?"): [
        "Bohemian Rhapsody (song)", "\"Bohemian Rhapsody\" (1975)", "the song Bohemian Rhapsody",
        "Bohemian Rhapsody (1975 song)",
    ],
    ("Federal Bureau of Investigation", "Which agency investigated?"): [
        "FBI", "the FBI", "F.B.I.", "Federal Bureau of Investigation (FBI)", "FBI (Federal Bureau of Investigation)",
    ],
    ("UNESCO", "Which organization?"): [
        "United Nations Educational, Scientific and Cultural Organization (UNESCO)",
        "UNESCO (United Nations Educational, Scientific and Cultural Organization)",
    ],
    ("Google", "Which company bought YouTube?"): [
        "Google LLC", "Google Inc.", "Google, Inc.", "Google (company)", "the company Google",
    ],
    ("Toyota", "Which company makes the Prius?"): ["Toyota, Japan", "Toyota (Japan)"],
    ("3.5 million", "What was the population?"): ["3,500,000", "3.5 million people", "3.5M", "3 500 000"],
    ("$1.5 billion", "What did it cost?"): [
        "1.5 billion dollars", "$1.5bn", "$1.5B", "US$1.5 billion", "1.5 billion USD", "$1,500,000,000",
        "1.5 billion US dollars", "1.5 billion U.S. dollars",
    ],
    ("12.5%", "What share?"): ["12.5 percent", "12.5 per cent", "12.5 %"],
    ("8,848 m", "How high is Mount Everest?"): [
        "8848 metres", "8,848 meters (29,029 ft)", "8,848 m (29,029 feet)", "8848 m", "8.848 km",
    ],
    ("5 feet 11 inches", "How tall was he?"): [
        "5'11\"", "5 ft 11 in", "5 feet 11 inches (180 cm)", "5 ft 11 in (1.80 m)", "71 inches",
    ],
    ("100 mph", "How fast?"): ["100 miles per hour", "100 mph (161 km/h)", "100 miles per hour (160 km/h)"],
    ("1,200 miles", "How long is it?"): [
        "1,200 miles (1,931 km)", "1200 mi", "1,200 miles (1,900 km)", "twelve hundred miles",
    ],
    ("37 °C", "What is body temperature?"): ["37 degrees Celsius", "37°C (98.6°F)", "37 °C (99 °F)", "37 degrees C"],
    ("90 minutes", "How long is the match?"): ["90 min", "ninety minutes", "1.5 hours"],
    ("2 hours", "How long is the film?"): ["two hours", "120 minutes", "2 hrs"],
    ("1850s", "In which decade?"): ["the 1850s", "1850's"],
    ("19th century", "In which century?"): ["the 19th century", "nineteenth century", "the nineteenth century"],
    ("3rd century BC", "When?"): ["third century BC", "the 3rd century BCE", "3rd century B.C."],
    ("1914–1918", "When was the war?"): [
        "1914 to 1918", "from 1914 to 1918", "1914-18", "between 1914 and 1918", "1914 – 1918", "1914 until 1918",
    ],
    ("1600–1868", "Which years?"): ["1600 to 1868", "1600-1868", "from 1600 until 1868"],
    ("800 BC–200 BC", "When?"): ["800 to 200 BC", "800–200 BCE", "800 BC to 200 BC", "from 800 to 200 BC"],
    ("5–10", "How many?"): ["5 to 10", "5-10", "between 5 and 10", "five to ten", "from 5 to 10"],
    ("10 to 15 km", "How far?"): ["10-15 km", "10–15 kilometers", "between 10 and 15 km"],
    ("yes", "Is Berlin the capital of Germany?"): [
        "Yes, Berlin is the capital of Germany.", "Yes, it is the capital", "Yes, it is.", "Correct", "True",
    ],
    ("no", "Is Munich the capital of Germany?"): [
        "No, Berlin is the capital of Germany", "No, it is not.", "No, Munich is not the capital of Germany", "False",
        "No, the capital is Berlin",
    ],
    ("yes", "Are both businesses, Telus and Ztr Control Systems, located in the same country?"): [
        "Yes, both are located in Canada", "Yes, both businesses are located in Canada",
        "Yes, they are both in Canada.", "Yes, both are Canadian",
        "Yes, Telus and Ztr Control Systems are both located in Canada",
    ],
    ("no", "Are Elsah, Illinois and Chah-E Puzeh, Tabas both located in the same country?"): [
        "No, Elsah is in the United States and Chah-E Puzeh is in Iran", "No, they are in different countries",
        "No, one is in the US and the other in Iran",
        "No. Elsah is in the United States, while Chah-E Puzeh is in Iran.", "No, they are not in the same country",
        "No, they are not located in the same country.",
    ],
    ("no", "Are the directors of both films The Fall Of A Saint and Fighting Through from the same country?"): [
        "No, they are from different countries", "No, the directors are from different countries",
        "No, one is British and one is American", "No, the director of The Fall Of A Saint is British",
    ],
    ("yes", "Did both bands form in Seattle?"): [
        "Yes, both bands formed in Seattle", "Yes, both did.", "Yes, they both did",
        "Yes, both formed in Seattle, Washington",
    ],
    ("John", "Who won, John or Mary?"): ["John won", "John."],
    ("red and blue", "What colors are in the flag?"): ["blue and red", "red, blue", "Red & Blue", "red/blue"],
    ("France, Germany and Italy", "Which countries signed it?"): [
        "Italy, France, Germany", "Germany, Italy and France", "France, Germany, Italy",
        "1. France 2. Germany 3. Italy", "France; Germany; Italy",
    ],
    ("Ludwig van Beethoven", "Who composed it?"): [
        "composer Ludwig van Beethoven", "Ludwig van Beethoven (1770–1827)", "Ludwig van Beethoven, German composer",
    ],
    ("Gabriel García Márquez", "Who wrote One Hundred Years of Solitude?"): [
        "Gabriel Garcia Marquez", "Gabriel García Márquez (Colombian novelist)",
        "Colombian novelist Gabriel García Márquez", "Gabriel García-Márquez",
    ],
    ("Beijing", "Where were the games held?"): ["Beijing, China", "Peking", "Beijing (China)"],
    ("Saint Petersburg", "Where was he born?"): [
        "St. Petersburg", "St Petersburg, Russia", "Saint Petersburg, Russia",
    ],
    ("Zürich", "Where did he die?"): ["Zurich", "Zurich, Switzerland", "Zuerich"],
    ("Los Angeles", "Where is Hollywood?"): [
        "Los Angeles, California", "Los Angeles, CA", "Los Angeles, California, USA", "Los Angeles (California)",
    ],
    ("Rochester, New York", "Where was he born?"): [
        "Rochester, NY", "Rochester (New York)", "Rochester, New York, USA",
    ],
    ("Stratford-upon-Avon", "Where was Shakespeare born?"): [
        "Stratford upon Avon", "Stratford-upon-Avon, England", "Stratford-upon-Avon, Warwickshire",
        "Stratford-upon-Avon, Warwickshire, England",
    ],
    ("Mount Kilimanjaro", "What is the highest mountain in Africa?"): [
        "Mt. Kilimanjaro", "Mount Kilimanjaro, Tanzania", "Mount Kilimanjaro (Tanzania)",
        "Mount Kilimanjaro in Tanzania",
    ],
    ("Lake Baikal", "Which lake is the deepest?"): [
        "Lake Baikal, Russia", "Lake Baikal (Russia)", "Lake Baikal in Siberia", "Baikal",
    ],
    ("Amazon River", "Which river is it?"): ["the Amazon", "Amazon", "River Amazon"],
    ("Yale University", "Which university did he attend?"): ["Yale", "Yale University, Connecticut"],
    ("Stanford University", "Where did she study?"): [
        "Stanford University, California", "Stanford University in California", "Stanford University, USA",
    ],
    ("Wembley Stadium", "Which stadium hosted the final?"): [
        "Wembley Stadium, London", "Wembley", "Wembley Stadium, London, England", "Wembley Stadium in London",
        "Wembley Stadium (London)",
    ],
    ("Battle of Waterloo", "Which battle ended his rule?"): [
        "Battle of Waterloo (1815)", "the Battle of Waterloo", "Waterloo", "The Battle of Waterloo, 1815",
    ],
    ("World War I", "Which war?"): [
        "World War One", "World War 1", "First World War", "WWI", "World War I (1914–1918)", "the First World War",
        "WW1",
    ],
    ("Treaty of Versailles", "Which treaty ended the war?"): [
        "the Treaty of Versailles (1919)", "Versailles Treaty", "Treaty of Versailles, 1919",
        "The Treaty of Versailles",
    ],
    ("John Paul II", "Who was pope in 1990?"): [
        "Pope John Paul II", "Saint John Paul II", "Pope John Paul the Second", "Pope St. John Paul II",
    ],
    ("Sri Lanka", "Which country is she from?"): [
        "Democratic Socialist Republic of Sri Lanka", "Sri Lanka (Asia)", "Sri Lanka, South Asia",
    ],
    ("Dwayne Johnson", "Who is the actor?"): [
        "Dwayne \"The Rock\" Johnson", "Dwayne 'The Rock' Johnson", "actor Dwayne Johnson",
    ],
    ("Cate Blanchett", "Which actress played Galadriel?"): [
        "Cate Blanchett (born 1969)", "Australian actress Cate Blanchett", "Cate Blanchett, an Australian actress",
        "Cate Blanchett AC",
    ],
    ("Elon Musk", "Who founded SpaceX?"): [
        "Elon Musk, founder of SpaceX", "Elon Musk founded SpaceX", "entrepreneur Elon Musk",
        "SpaceX was founded by Elon Musk.", "Elon Musk (founder of SpaceX)",
    ],
    ("Joe Walker", "Who played quarterback?"): ["quarterback Joe Walker", "Joe Walker (quarterback)"],
    ("Bob Seger", "What was the Rock singers stage name?"): ["\"Bob Seger\""],
    ("Edgar Allan Poe", "Who wrote The Raven?"): [
        "Edgar Allan Poe (January 19, 1809 – October 7, 1849)", "American writer Edgar Allan Poe", "E. A. Poe",
    ],
    ("Mikhail Gorbachev", "Who was the leader of the Soviet Union?"): [
        "Mikhail Gorbachyov", "Mikhail Gorbachev, leader of the Soviet Union", "Soviet leader Mikhail Gorbachev",
    ],
    ("Pyotr Ilyich Tchaikovsky", "Who composed Swan Lake?"): [
        "Pyotr Ilyich Chaikovsky", "Pyotr Ilyich Tchaikovsky (1840–1893)", "composer Pyotr Ilyich Tchaikovsky",
    ],
    ("Muhammad Ali", "Which boxer was it?"): [
        "Muhammad Ali (boxer)", "boxer Muhammad Ali", "Muhammad Ali (1942–2016)", "the boxer Muhammad Ali",
    ],
    ("Hawaii", "In which state was he born?"): [
        "Hawaii, United States", "the state of Hawaii", "State of Hawaii", "Hawai'i", "Hawaii (USA)",
    ],
    ("1,234,567", "What is the population?"): ["1234567", "1 234 567", "1,234,567 people", "1'234'567"],
    ("42", "What is the answer?"): ["forty-two", "42.0", "forty two", "The answer is 42."],
    ("0.5", "What is the ratio?"): ["0.50"],
    ("seventh", "In which place did he finish?"): ["7th", "7th place", "seventh place", "the seventh"],
    ("three times", "How many times did he win?"): ["3 times", "three", "3"],
    ("twice", "How many times did she marry?"): ["twice."],
    ("上海", "他在哪个城市工作？"): ["上海市", "中国上海", "上海，中国", "上海（中国）", "在上海", "中國上海市"],
    ("浙江大学", "他毕业于哪所大学？"): ["浙江大學", "毕业于浙江大学", "他毕业于浙江大学。", "中国浙江大学"],
    ("李白", "这首诗的作者是谁？"): ["诗人李白", "唐代诗人李白", "作者是李白"],
    ("2008年", "奥运会是哪一年举办的？"): ["2008", "二〇〇八年", "2008年举办", "在2008年"],
    ("五", "有几个？"): ["5", "五个", "5个"],
    ("三百", "有多少人？"): ["300", "300人", "三百人"],
    ("1.5亿", "人口有多少？"): ["1.5亿人", "150,000,000", "一亿五千万", "150 million"],
    ("日本", "来自哪个国家？"): ["日本国", "来自日本", "日本。"],
    ("台湾", "他来自哪里？"): ["臺灣", "台灣", "来自台湾"],
    ("华为", "哪家公司？"): ["華為", "华为公司"],
    ("张艺谋", "谁导演了《红高粱》？"): ["張藝謀", "导演张艺谋", "张艺谋导演", "张艺谋（导演）", "中国导演张艺谋"],
    ("《红楼梦》", "是哪部小说？"): ["红楼梦", "紅樓夢", "小说《红楼梦》", "《紅樓夢》"],
    ("Peter Benchley", "Who wrote the novel Jaws?"): [
        "Peter Benchley, author of Jaws", "Peter Benchley (author of Jaws)", "American author Peter Benchley",
        "novelist Peter Benchley", "Peter Benchley wrote it", "The novel was written by Peter Benchley",
        "The author is Peter Benchley",
    ],
    ("Marie Curie", "Who discovered radium?"): [
        "Marie Curie (1867–1934)", "Marie Curie, Polish physicist", "Dr. Marie Curie", "the physicist Marie Curie",
        "Marie Curie, physicist and chemist",
    ],
    ("Nelson Mandela", "Who was the first black president of South Africa?"): [
        "President Nelson Mandela", "Nelson Mandela, president of South Africa",
        "Nelson Mandela (former President of South Africa)", "former South African President Nelson Mandela",
        "Nelson Mandela, former president", "Nelson Mandela, South African politician",
    ],
    ("Angela Merkel", "Who was chancellor of Germany in 2010?"): [
        "Chancellor Angela Merkel", "Angela Merkel (German Chancellor)", "Angela Merkel, Chancellor of Germany",
        "German Chancellor Angela Merkel", "Dr. Angela Merkel",
    ],
    ("Stephen King", "Which author wrote It?"): [
        "Stephen King (author)", "author Stephen King", "Stephen King, American author", "Stephen King (b. 1947)",
        "the American novelist Stephen King", "Mr. Stephen King",
    ],
    ("Steven Spielberg", "Who directed the film?"): [
        "director Steven Spielberg", "Steven Spielberg (film director)", "Steven Spielberg, American filmmaker",
        "filmmaker Steven Spielberg", "The film was directed by Steven Spielberg.",
        "Steven Spielberg directed the film", "Steven Spielberg (born December 18, 1946)",
        "American film director Steven Spielberg",
    ],
    ("Serena Williams", "Which tennis player won?"): [
        "Serena Williams (tennis player)", "tennis player Serena Williams", "American tennis player Serena Williams",
        "Serena Williams, American tennis player",
    ],
    ("Chicago", "In what city is the museum located?"): [
        "Chicago, Illinois", "Chicago, IL", "Chicago, Illinois, USA", "Chicago (Illinois)", "the city of Chicago",
        "Chicago, Cook County, Illinois", "It is located in Chicago, Illinois",
    ],
    ("Atlanta", "What city hosted the 1996 Olympics?"): [
        "Atlanta, Georgia", "Atlanta, GA", "Atlanta, Georgia, United States", "Atlanta (USA)", "Atlanta, U.S.",
    ],
    ("Dayton, Ohio", "Where were the accords signed?"): [
        "Dayton, OH", "Dayton, Ohio, USA", "Dayton (Ohio)", "in Dayton, Ohio, United States",
    ],
    ("Kyoto", "Where is the temple?"): ["Kyoto, Japan", "Kyōto", "Kyoto (Japan)"],
    ("Warsaw", "Where was Chopin raised?"): ["Warsaw, Poland", "Warszawa", "Warsaw (Poland)"],
    ("Rio de Janeiro", "Where was it held?"): ["Rio de Janeiro, Brazil", "Rio de Janeiro (Brazil)"],
    ("Cardiff", "Where was Roald Dahl born?"): [
        "Cardiff, Wales", "Cardiff, Wales, UK", "Cardiff (Wales)", "Cardiff, United Kingdom",
    ],
    ("Bavaria", "Which state?"): ["Bavaria, Germany", "the state of Bavaria", "Bavaria (Germany)"],
    ("England", "In which country is the school?"): [
        "England, UK", "England, United Kingdom", "England (UK)", "England, Great Britain",
    ],
    ("Andorra", "Which country lies between France and Spain?"): [
        "Andorra, Europe", "Principality of Andorra", "the Principality of Andorra",
    ],
    ("North Sea", "Which sea?"): ["the North Sea"],
    ("Danube", "Which river flows through Vienna?"): [
        "the Danube", "Danube River", "the river Danube", "River Danube", "The Danube River",
    ],
    ("Honda", "Which company?"): ["Honda, Inc.", "the company Honda"],
    ("IBM", "Which company?"): [
        "International Business Machines (IBM)", "IBM (International Business Machines)", "I.B.M.", "IBM Corporation",
        "IBM Corp.",
    ],
    ("International Monetary Fund", "Which organisation lent the money?"): [
        "IMF", "International Monetary Fund (IMF)", "the IMF", "The International Monetary Fund",
        "IMF (International Monetary Fund)", "the International Monetary Fund (IMF)",
    ],
    ("Massachusetts Institute of Technology", "Where did he study?"): [
        "MIT", "Massachusetts Institute of Technology (MIT)", "M.I.T.", "Massachusetts Institute of Technology, USA",
        "MIT (Massachusetts Institute of Technology)",
    ],
    ("University of California, Los Angeles", "Which university?"): [
        "UCLA", "University of California, Los Angeles (UCLA)", "University of California Los Angeles",
    ],
    ("European Union", "Which organization?"): ["EU", "the EU", "European Union (EU)", "the European Union"],
    ("Liverpool", "Which football club won?"): ["Liverpool F.C.", "Liverpool FC", "Liverpool Football Club"],
    ("1775–1783", "When was the war?"): [
        "1775 to 1783", "1775-1783", "1775–83", "from 1775 to 1783", "between 1775 and 1783", "(1775–1783)",
    ],
    ("753 BC", "When was Rome founded?"): [
        "753 BCE", "753 B.C.", "in 753 BC", "the year 753 BC", "21 April 753 BC", "753 B.C.E.",
    ],
    ("476", "When did it fall?"): [
        "476 AD", "AD 476", "476 CE", "A.D. 476", "the year 476", "in the year 476 AD", "4 September 476",
    ],
    ("384–322 BC", "When did Aristotle live?"): [
        "384 to 322 BC", "384 BC to 322 BC", "384-322 BCE", "384 BC – 322 BC", "from 384 until 322 BC",
        "384 – 322 B.C.",
    ],
    ("15 March 1990", "When was it?"): [
        "March 15, 1990", "15/03/1990", "1990-03-15", "15-03-1990", "15.3.1990", "15 mars 1990", "15. März 1990",
        "15 marzo 1990", "15 de março de 1990", "1990年3月15日", "15th of March 1990", "Mar 15 1990", "15 Mar 1990",
        "Thursday 15 March 1990", "the 15th of March, 1990", "一九九〇年三月十五日", "March the 15th, 1990",
        "15 March, 1990",
    ],
    ("October 1917", "When did the revolution start?"): [
        "Oct 1917", "October, 1917", "October of 1917", "octobre 1917", "Oktober 1917", "1917年10月",
        "the month of October 1917", "25 October 1917",
    ],
    ("July 4", "On which day is the holiday?"): [
        "4 July", "July 4th", "the Fourth of July", "4th of July", "4 juillet", "7月4日", "七月四日", "July the 4th",
    ],
    ("21 kilometers", "How long is the race?"): [
        "21 km", "21 kilometres", "21 km (13 mi)", "twenty-one kilometers", "21 kilometers (13 miles)",
        "21,000 meters", "21 km (about 13 miles)",
    ],
    ("70 kg", "How heavy was he?"): [
        "70 kilograms", "70 kg (154 lb)", "70 kilos", "70 kg (154 lbs)", "154 lb (70 kg)", "70 kg (154 pounds)",
    ],
    ("2.5 acres", "How large is it?"): ["2.5 acres (1 ha)", "2.5 acres (1.0 hectares)"],
    ("350 °F", "At what temperature?"): ["350 degrees Fahrenheit", "350°F (177°C)"],
    ("16 gallons", "How much?"): ["16 gallons (60 liters)", "16 gal", "sixteen gallons"],
    ("25 million", "How many copies were sold?"): [
        "25M", "25,000,000", "25 million copies", "twenty-five million", "25 000 000", "25 mn",
    ],
    ("7.8 billion", "What is the world population?"): [
        "7.8 billion people", "7.8bn", "7.8B", "7,800,000,000", "7.8 billion",
    ],
    ("4,500", "How many soldiers took part?"): [
        "4500", "4 500", "4,500 soldiers", "4.5 thousand", "4.5K", "four thousand five hundred", "forty-five hundred",
    ],
    ("200", "How many?"): ["two hundred", "200.", "exactly 200", "a total of 200"],
    ("100,000", "How many?"): [
        "one hundred thousand", "a hundred thousand", "100K", "100 thousand", "100 000", "1 lakh",
    ],
    ("-40", "At which temperature are both scales equal?"): ["minus 40", "−40", "negative forty", "minus forty"],
    ("1/4", "What fraction?"): ["one quarter", "one fourth", "one-fourth"],
    ("1920x1080", "What is the resolution?"): [
        "1920 x 1080", "1920×1080", "1920x1080 pixels", "1920 by 1080", "1920 × 1080 px",
    ],
    ("yes", "Are Random House Tower and 888 7th Avenue both used for real estate?"): [
        "Yes, both are used for real estate", "Yes, they are both used for real estate.", "Yes, both buildings are",
        "Yes, both are.", "Yes.",
    ],
    ("no", "Are Ferocactus and Silene both types of cactus?"): [
        "No, only Ferocactus is a cactus", "No, Silene is not a cactus",
        "No, Ferocactus is a cactus while Silene is a flower", "No, Silene is a flowering plant", "No, they are not",
        "No, Ferocactus is a type of cactus but Silene is not", "No; Silene isn't a cactus",
    ],
    ("yes", "Did LostAlone and Guster have the same number of members?"): [
        "Yes, they had the same number of members", "Yes, both had three members", "Yes, they did",
        "Yes, both bands have the same number",
    ],
    ("no", "Is the Pakistan fast bowler who joined the Kent County Cricket Club also a batsman?"): [
        "No, he is not", "No, he is only a bowler", "No, he isn't a batsman", "No.",
    ],
    ("no", "Were both films released in 1990?"): [
        "No, only one was", "No, one was released in 1991", "No, they were not both released in 1990",
        "No, they weren't.", "No, they were released in different years",
    ],
    ("yes", "Is it true that Lake Baikal is in Russia?"): [
        "Yes, it is true", "Yes, Lake Baikal is in Russia", "True", "Yes, that is true",
    ],
    ("Scandinavian and Baltic", "Which regions?"): [
        "Baltic and Scandinavian", "Scandinavian, Baltic", "both Scandinavian and Baltic",
    ],
    ("singer, songwriter, actor", "What are his occupations?"): [
        "actor, singer, and songwriter", "singer, actor and songwriter", "singer; songwriter; actor",
        "singer/songwriter/actor",
    ],
    ("Tchaikovsky", "Who composed the ballet?"): ["Chaikovsky"],
    ("Nikita Khrushchev", "Who led the Soviet Union?"): [
        "Nikita Khrushchev, Soviet leader", "Nikita Khrushchev (1894–1971)",
    ],
    ("Antonín Dvořák", "Who composed it?"): [
        "Antonin Dvorak", "Antonín Dvořák (1841–1904)", "Czech composer Antonín Dvořák", "Dvořák, Antonín",
    ],
    ("Björk", "Which singer?"): ["Bjork", "singer Björk", "Björk (singer)", "Icelandic singer Björk", "Bjoerk"],
    ("Mao Zedong", "Who founded the People's Republic of China?"): ["Chairman Mao Zedong", "Mao Zedong (1893–1976)"],
    ("毛泽东", "谁建立了新中国？"): ["毛澤東", "毛泽东主席"],
    ("广州", "亚运会在哪个城市举办？"): ["广州市", "廣州", "中国广州", "广州，中国"],
    ("四川", "大熊猫在哪个省？"): ["四川省", "中国四川", "四川省。", "在四川省"],
    ("25", "有多少名学生？"): ["二十五", "25名", "二十五名学生", "25名学生", "共25名", "二十五名"],
    ("1911年10月10日", "武昌起义是什么时候？"): [
        "一九一一年十月十日", "1911-10-10", "10 October 1911", "1911年10月10号",
    ],
    ("北京大学", "他在哪所大学任教？"): ["北京大學", "他在北京大学任教", "中国北京大学", "在北京大学"],
    ("法国", "他来自哪个国家？"): ["法國", "来自法国", "法国。", "他来自法国"],
    ("牛顿", "谁发现了万有引力？"): ["牛頓", "英国科学家牛顿", "物理学家牛顿", "是牛顿发现的"],
    ("Michelangelo", "Who painted the ceiling of the Sistine Chapel?"): [
        "Michelangelo di Lodovico Buonarroti Simoni", "Michelangelo Buonarroti", "Michelangelo (1475–1564)",
        "the Italian artist Michelangelo", "Michelangelo, the Italian sculptor and painter",
    ],
    ("Rembrandt", "Which painter made The Night Watch?"): [
        "Rembrandt van Rijn", "Rembrandt (full name Rembrandt Harmenszoon van Rijn)",
    ],
    ("Galileo", "Which astronomer discovered four moons of Jupiter?"): [
        "Galileo Galilei", "The Italian astronomer Galileo Galilei",
    ],
    ("Mark Twain", "Who wrote Huckleberry Finn?"): [
        "Mark Twain (born Samuel Langhorne Clemens)", "Mark Twain (real name Samuel Clemens)",
        "Mark Twain, born Samuel Langhorne Clemens", "Mark Twain (pen name of Samuel Clemens)",
        "Mark Twain, whose real name was Samuel Clemens", "American author Mark Twain (1835-1910)",
    ],
    ("Marie Curie", "Who discovered polonium?"): [
        "Marie Skłodowska Curie", "Marie Skłodowska-Curie", "Marie Curie (née Skłodowska)",
        "Marie Curie, née Skłodowska", "the physicist Marie Skłodowska Curie",
    ],
    ("Barack Obama", "Who was the 44th President of the United States?"): [
        "Barack Hussein Obama", "Barack H. Obama", "President Barack Obama (born August 4, 1961)",
    ],
    ("Thomas Edison", "Which inventor patented the phonograph?"): [
        "Thomas Alva Edison", "Thomas A. Edison",
    ],
    ("Alexandre Dumas", "Who wrote The Three Musketeers?"): [
        "Alexandre Dumas père",
    ],
    ("Oxygen", "Which element has atomic number 8?"): [
        "Oxygen (O)", "Oxygen (symbol O)", "oxygen (chemical symbol: O)",
    ],
    ("Iron", "Which element has the atomic number 26?"): [
        "Iron (Fe)", "Iron (Fe, from Latin ferrum)", "iron (from the Latin ferrum)",
    ],
    ("Au", "What is the chemical symbol for gold?"): [
        "Au (from Latin aurum)", "Au (gold)", "Au (from the Latin word aurum)", "Au, from Latin aurum",
    ],
    ("Lion", "Which animal is known as the king of the jungle?"): [
        "Lion (Panthera leo)", "the lion (Panthera leo)",
    ],
    ("blue whale", "What is the largest animal?"): [
        "Blue whale (Balaenoptera musculus)",
    ],
    ("Nile", "What is the longest river in Africa?"): [
        "the Nile (6,650 km)", "Nile River", "The Nile (about 6,650 km long)",
    ],
    ("Tokyo", "What is the capital of Japan?"): [
        "Tokyo (東京)", "Tokyo (Japanese: 東京)", "Tokyo (formerly Edo)", "Tokyo, formerly known as Edo",
    ],
    ("Moscow", "What is the capital of Russia?"): [
        "Moscow (Москва)", "Moscow (Russian: Москва)",
    ],
    ("Battle of Hastings", "Which battle did William the Conqueror win in England?"): [
        "Battle of Hastings (1066)", "the Battle of Hastings (14 October 1066)", "Battle of Hastings, in 1066",
    ],
    ("221B Baker Street", "What is the name of the street where Sherlock Holmes lives, with the number?"): [
        "221B Baker Street, London", "221B Baker Street in London",
    ],
    ("Scott Sidney", "Which director had the longest career, Alain Resnais or Scott Sidney?"): [
        "Scott Sidney had the longer career.", "Scott Sidney had a longer career than Alain Resnais.",
    ],
    ("Titanic", "Which film was released first, Titanic or Avatar, both by James Cameron?"): [
        "Titanic, released in 1997, came before Avatar (2009).", "Titanic was released first.",
        "Titanic came out first.", "Titanic came out before Avatar.", "Titanic was released earlier than Avatar.",
        "Titanic was released in 1997, before Avatar in 2009.", "Titanic (1997) was released before Avatar (2009).",
        "Titanic was released first (1997).",
    ],
    ("Nile", "Which river is longer, the Nile or the Danube?"): [
        "The Nile is longer than the Danube.", "The Nile is longer.", "The Nile is the longer river.",
        "The Nile is longer (6,650 km).",
    ],
    ("Charles Darwin", "Who was born first, Charles Darwin or Charles Dickens?"): [
        "Charles Darwin was born first.", "Charles Darwin was born before Charles Dickens.",
        "Charles Darwin was born earlier.", "Charles Darwin, born in 1809, is older than Charles Dickens.",
        "Charles Darwin was born in 1809, before Charles Dickens (1812).",
    ],
    ("Vincenzo Galilei", "Who is the father of the father of observational astronomy?"): [
        "Galileo's father was Vincenzo Galilei.", "Vincenzo Galilei (c. 1520–1591)",
        "Galileo Galilei's father was Vincenzo Galilei",
    ],
    ("Cincinnati", "Where was the director of Jaws born?"): [
        "Steven Spielberg was born in Cincinnati, Ohio.", "He was born in Cincinnati, Ohio.",
        "in Cincinnati, Ohio, USA",
    ],
    ("Bonn", "In which city was Ludwig van Beethoven born?"): [
        "Beethoven was born in Bonn, Germany.", "Ludwig van Beethoven was born in Bonn in Germany",
        "Bonn, in present-day Germany", "Bonn (Germany)",
    ],
    ("玉山", "台湾最高的山峰是哪座?"): [
        "玉山(海拔3952米)", "玉山，海拔3952米", "台湾最高峰是玉山", "玉山（又称新高山）", "玉山(Yushan)",
    ],
    ("刘备", "《三国演义》中,与关羽、张飞桃园结义的是谁?"): [
        "刘备(字玄德)", "刘备，字玄德", "刘备（161年－223年）", "蜀汉皇帝刘备",
    ],
    ("6300公里", "长江的长度约为多少公里?(题文:长江全长约6300公里。)"): [
        "6300千米", "约6300公里", "大约6300千米", "6300 km", "6300", "6300km", "6,300公里", "约6300 km",
    ],
    ("8848米", "珠穆朗玛峰高多少米?"): [
        "8848 m", "8848", "8.848公里", "8848m",
    ],
    ("50公斤", "这袋米重多少公斤?"): [
        "50千克", "50kg", "50 kg", "50",
    ],
    ("100美元", "价格是多少?"): [
        "$100", "100 USD", "100 dollars",
    ],
    ("960万平方公里", "中国的陆地面积约为多少?"): [
        "960万平方千米", "约960万平方公里", "9,600,000 平方公里",
    ],
    ("不是", "秦始皇和汉武帝是同一个朝代的皇帝吗?"): [
        "不是,秦始皇属于秦朝,汉武帝属于西汉。", "否", "不是。", "不", "不是的", "否，他们属于不同的朝代。",
        "不，他们不是同一个朝代的皇帝。",
    ],
    ("是", "李白和杜甫都是唐代诗人吗?"): [
        "是的,两人都是唐代诗人。", "是的", "是的。", "对", "对，两人都是唐代诗人。", "是，两人都是",
    ],
    ("否", "李白和杜甫都是宋代诗人吗?"): [
        "不是", "不是,他们是唐代诗人。", "否,他们都是唐代诗人。",
    ],
    ("杨利伟", "第一位进入太空的中国人是谁?"): [
        "航天员杨利伟", "中国航天员杨利伟", "宇航员杨利伟", "杨利伟（航天员）", "杨利伟少将",
    ],
    ("爱因斯坦", "谁提出了相对论?"): [
        "物理学家爱因斯坦", "德国物理学家爱因斯坦", "爱因斯坦（Albert Einstein）",
    ],
    ("康熙", "清朝在位时间最长的皇帝是谁?"): [
        "康熙皇帝", "康熙帝", "清朝皇帝康熙",
    ],
    ("鲁迅", "《狂人日记》的作者是谁?"): [
        "鲁迅（原名周树人）", "鲁迅,本名周树人", "作家鲁迅", "鲁迅（1881—1936）",
    ],
    ("Leonardo da Vinci", "Who painted the Mona Lisa?"): [
        "the Italian Renaissance painter Leonardo da Vinci", "Leonardo da Vinci painted the Mona Lisa.",
        "The Mona Lisa was painted by Leonardo da Vinci.",
    ],
    ("Franz Liszt", "Which composer wrote the Hungarian Rhapsodies?"): [
        "Hungarian composer and pianist Franz Liszt", "Franz Liszt (Hungarian: Liszt Ferenc)",
        "Franz Liszt, a Hungarian composer", "composer Franz Liszt", "Franz Joseph Liszt",
    ],
    ("Hillary Clinton", "Who was Secretary of State from 2009 to 2013?"): [
        "Hillary Rodham Clinton", "Hillary Clinton, née Rodham",
    ],
    ("Lady Gaga", "Which singer recorded Poker Face?"): [
        "Lady Gaga (real name Stefani Germanotta)", "American singer Lady Gaga",
        "Lady Gaga (born Stefani Joanne Angelina Germanotta)", "Lady Gaga (born March 28, 1986)",
    ],
    ("Elton John", "Which singer was born Reginald Dwight?"): [
        "Elton John (Reginald Dwight)", "Elton John (born Reginald Dwight)", "Sir Elton John",
        "Elton Hercules John",
    ],
    ("Sodium", "Which element has the symbol Na?"): [
        "Sodium (Na)", "sodium (Latin: natrium)",
    ],
    ("Tiger", "Which species is the largest cat?"): [
        "Tiger (Panthera tigris)", "The tiger (Panthera tigris)",
    ],
    ("Eiffel Tower", "Which tower in Paris was built in 1889?"): [
        "Eiffel Tower (330 m)", "The Eiffel Tower (French: Tour Eiffel)", "Eiffel Tower, Paris",
    ],
    ("Kilimanjaro", "What is the highest mountain in Africa?"): [
        "Kilimanjaro (5,895 m)", "Mount Kilimanjaro (5,895 metres)", "Mount Kilimanjaro, Tanzania",
        "Kilimanjaro (in Tanzania)", "Mount Kilimanjaro in Tanzania",
    ],
    ("Istanbul", "What is the largest city in Turkey?"): [
        "Istanbul (formerly Constantinople)", "Istanbul (Turkish: İstanbul)", "Istanbul, Turkey",
        "Istanbul, formerly known as Constantinople",
    ],
    ("United Nations", "Which organization has its headquarters on the East River?"): [
        "United Nations (UN)",
    ],
    ("France", "Which country won the 2018 World Cup?"): [
        "France won the 2018 World Cup.", "France, in Europe",
    ],
    ("The Hobbit", "Which book did Tolkien publish in 1937?"): [
        "The Hobbit (1937)", "The Hobbit (book)", "The Hobbit (published 1937)", "The Hobbit, published in 1937",
    ],
    ("Hamlet", "Which play by Shakespeare features Ophelia?"): [
        "Hamlet (play)", "Hamlet (c. 1600)",
    ],
    ("yes", "Are both Paris and Lyon in France?"): [
        "Yes, both are in France.", "Yes, Paris and Lyon are both in France.", "Yes. Both cities are in France.",
    ],
    ("no", "Did Thomas Edison die after Nikola Tesla?"): [
        "No, he died before Tesla.", "No, Edison died in 1931, before Tesla.", "No, Thomas Edison died first.",
    ],
    ("Elizabeth", "Who is older, Elizabeth or Mary?"): [
        "Elizabeth is older.", "Elizabeth is older than Mary.", "Elizabeth, born in 1926, is older.",
    ],
    ("Mount Everest", "Which mountain is higher, Mount Everest or K2?"): [
        "Mount Everest is higher than K2.", "Mount Everest (8,849 m) is higher than K2 (8,611 m).",
        "Mount Everest is the higher mountain.", "Mount Everest is taller than K2.",
    ],
    ("Africa", "Which continent is larger, Africa or Europe?"): [
        "Africa is larger than Europe.", "Africa is bigger.", "Africa is the larger continent.",
    ],
    ("Nokia", "Which company was founded earlier, Nokia or Apple?"): [
        "Nokia was founded earlier.", "Nokia (1865)", "Nokia, founded in 1865",
        "Nokia was founded in 1865, before Apple (1976).", "Nokia was founded first.",
    ],
    ("北京", "2008年夏季奥运会在哪个城市举办?"): [
        "2008年夏季奥运会在北京举办。", "北京（Beijing）", "北京，中国", "在北京举办",
    ],
    ("曹雪芹", "《红楼梦》的作者是谁?"): [
        "清代作家曹雪芹", "曹雪芹（名霑）", "作者是曹雪芹", "《红楼梦》的作者是曹雪芹。", "曹雪芹（清代）",
        "曹雪芹先生",
    ],
    ("李白", "《静夜思》是谁写的?"): [
        "唐代诗人李白", "李白（字太白）", "李白（701年－762年）", "诗人李白", "李白，字太白，号青莲居士",
    ],
    ("长江", "中国最长的河流是哪条?"): [
        "长江（6300公里）", "长江（全长约6300公里）", "长江，全长6300千米", "长江(Yangtze River)",
        "长江（又称扬子江）",
    ],
    ("1945年", "第二次世界大战在哪一年结束?"): [
        "1945", "1945年9月2日", "公元1945年",
    ],
    ("9", "太阳系有几颗行星?"): [
        "9颗", "九颗", "九", "9个",
    ],
    ("30分钟", "他走了多少分钟?"): [
        "30 min", "30", "三十分钟", "0.5小时",
    ],
    ("是的", "苹果公司是美国公司吗?"): [
        "是", "对", "是的，它是美国公司", "没错",
    ],
    ("没有", "他结过婚吗?"): [
        "没有。", "没有,他终身未婚。",
    ],
    ("Albert Einstein", "Who developed the theory of relativity?"): [
        "German-born physicist Albert Einstein", "the German physicist Albert Einstein (1879–1955)",
        "Albert Einstein, German-born theoretical physicist", "Prof. Albert Einstein",
        "Albert Einstein (14 March 1879 – 18 April 1955)", "Albert Einstein developed the theory of relativity.",
    ],
    ("Salzburg", "Where was Mozart born?"): [
        "Mozart was born in Salzburg, Austria.", "Salzburg (in present-day Austria)",
        "Wolfgang Amadeus Mozart was born in Salzburg.",
    ],
    ("Pablo Picasso", "Which artist painted Guernica?"): [
        "Spanish painter Pablo Picasso", "Pablo Ruiz Picasso",
    ],
    ("4,812", "What is the population of the village as of the 2011 census?"): [
        "The 2011 census recorded a population of 4 812.", "4812 inhabitants",
        "According to the 2011 census, the village had 4,812 residents.",
        "The village had a population of 4,812 in 2011.", "4812人",
    ],
    ("128", "How many rooms does the hotel have?"): [
        "The hotel offers 128 rooms.", "The hotel has a total of 128 guest rooms.", "There are 128 of them",
        "128 rooms in total", "one hundred and twenty-eight rooms",
    ],
    ("27", "How old was the singer when she died?"): [
        "She died at the age of 27.", "She was 27 when she died", "at age 27", "She died aged 27", "Aged 27 years",
    ],
    ("299,792,458 m/s", "What is the speed of light in vacuum?"): [
        "299792458 meters per second", "299,792.458 km/s", "299 792 458 metres per second", "2.99792458 × 10^8 m/s",
        "299792458 m s^-1", "299792458 m·s⁻¹",
    ],
    ("9.81 m/s²", "What is the acceleration?"): ["9.81 m/s^2", "9.81 metres per second squared", "9.81 m s^-2"],
    ("7.87 g/cm3", "What is the density of iron?"): [
        "7.87 g/cm³", "7.87 grams per cubic centimetre", "7870 kg/m³", "7.87 g cm⁻³",
    ],
    ("120 people per square kilometre", "What is the population density?"): [
        "120/km²", "120 per km2", "120 inhabitants per square kilometer", "120 people/km²",
    ],
    ("5 GB", "How large is the file?"): ["5 gigabytes", "5000 MB", "5GB"],
    ("3.2 GHz", "What is the clock rate?"): ["3.2 gigahertz", "3200 MHz"],
    ("450 nm", "What is the wavelength?"): ["450 nanometers", "450 nanometres", "0.45 μm", "0.45 micrometers"],
    ("2,500 kWh", "How much energy does it use?"): ["2500 kilowatt hours", "2.5 MWh", "2500 kilowatt-hours"],
    ("101.3 kPa", "What is the pressure?"): ["101.3 kilopascals", "101,300 Pa", "1013 hPa"],
    ("9.11 × 10^-31 kg", "What is the mass of the electron?"): [
        "9.11e-31 kg", "9.11×10⁻³¹ kg", "$9.11 \\times 10^{-31}$ kg", "9.11 x 10^(-31) kilograms", "9.11E-31 kg",
        "9.11*10^-31 kg", "9.11 \\times 10^{-28} g",
    ],
    ("6.022 × 10^23", "What is Avogadro's number?"): [
        "6.022e23", "6.022×10²³", "6.022 x 10^23", "6.022E+23", "$6.022\\times10^{23}$",
    ],
    ("15 °C", "What is the mean temperature?"): [
        "15 degrees Celsius", "15℃", "15 degrees centigrade", "59 °F (15 °C)", "15 deg C", "15°",
    ],
    ("$12.5 million", "What was the budget?"): [
        "12.5 million dollars", "USD 12.5 million", "$12,500,000", "US$ 12.5M", "12.5 million U.S. dollars",
        "The budget was $12.5 million.",
    ],
    ("€3 billion", "How much?"): ["3 billion euros", "3bn euros", "EUR 3bn", "3,000 million euros", "€3,000,000,000"],
    ("£250,000", "How much did it cost?"): ["250,000 pounds", "GBP 250,000", "250k pounds", "£250k", "£0.25 million"],
    ("15.3%", "该公司2023年营收同比增长多少?"): [
        "百分之十五点三", "15.3％", "增长15.3%", "同比增长15.3%", "增长了百分之15.3", "15.3 percent",
    ],
    ("75%", "What percentage of the vote did he receive?"): [
        "75 percent", "three quarters", "75 per cent of the vote", "seventy-five percent", "75 pct",
    ],
    ("50%", "What share of the shares?"): ["half", "one half", "fifty percent", "50 percent"],
    ("three quarters", "What proportion of the land?"): ["75%", "3/4", "¾"],
    ("3.5亿元", "该项目的总投资额是多少?"): [
        "人民币3.5亿元", "3.5亿元人民币", "35000万元", "RMB 350 million", "¥350,000,000", "总投资3.5亿元", "3.5 亿元",
        "350,000,000元", "三亿五千万元",
    ],
    ("500港元", "票价是多少?"): ["500港币", "HK$500", "港币500元"],
    ("20万日元", "奖金是多少?"): ["200,000日元", "二十万日元", "200,000 yen", "JPY 200,000"],
    ("公元前221年", "秦始皇统一六国是在哪一年?"): [
        "前221年", "公元前221年", "221 BC", "221 BCE", "前221", "公元前二二一年", "BC 221", "在公元前221年统一",
    ],
    ("221 BC", "In which year was China unified?"): ["221 B.C.E.", "B.C. 221", "公元前221年", "the year 221 BC"],
    ("1970s", "In which decade was disco most popular?"): [
        "the 1970's", "the seventies", "the '70s", "70s", "20世纪70年代", "The 1970s decade",
    ],
    ("20世纪80年代", "这部电影是什么时候拍的?"): ["1980年代", "二十世纪八十年代", "上世纪80年代", "1980s", "80年代"],
    ("13世纪", "哪个世纪?"): ["十三世纪", "13th century", "第13世纪", "公元13世纪"],
    ("公元前3世纪", "什么时候?"): ["前3世纪", "公元前三世纪", "3rd century BC"],
    ("summer 1969", "When did it take place?"): [
        "summer of 1969", "in the summer of 1969", "Summer, 1969", "the summer of 1969",
    ],
    ("1969年夏天", "什么时候?"): ["1969年夏", "1969年夏季"],
    ("third quarter of 2020", "When did the company report it?"): [
        "Q3 2020", "2020 Q3", "3rd quarter 2020", "the third quarter of 2020",
    ],
    ("8 May 1945", "When did the Second World War end in Europe?"): [
        "8 May 1945 (V-E Day)", "8 May 1945 (VE Day)", "May 8, 1945, known as VE Day",
        "On 8 May 1945 (Victory in Europe Day)", "08 May 1945", "8.5.1945", "The war in Europe ended on 8 May 1945.",
        "8 May, 1945 - V-E Day", "1945-05-08T00:00:00", "8 May 1945, a Tuesday",
    ],
    ("1945", "When did the Second World War end?"): [
        "It ended in 1945.", "1945 (the end of the war)", "ended 1945", "the year was 1945",
    ],
    ("November 1989", "When did the wall fall?"): [
        "Nov 1989", "11/1989", "November of 1989", "1989年11月", "9 November 1989",
    ],
    ("11:40 pm", "What time did the ship strike the iceberg?"): [
        "23:40", "at 11:40 p.m.", "11:40 in the evening", "11.40 pm", "23:40 ship's time", "11:40 PM local time",
        "11:40 at night", "23h40", "23:40:00",
    ],
    ("10:00", "When does the shop open?"): ["10 a.m.", "10 o'clock", "10 am", "at 10:00", "10 in the morning"],
    ("noon", "At what time does it ring?"): ["12 noon", "12:00", "12 pm", "12:00 p.m."],
    ("14:30 UTC", "What time?"): ["2:30 pm UTC", "14:30 GMT", "14:30Z", "14:30 (UTC)"],
    ("晚上10点", "图书馆几点关门?"): ["22:00", "22点", "晚上十点", "10 pm", "晚上10:00", "夜里10点", "22时"],
    ("下午3点半", "会议几点开始?"): ["15:30", "下午3:30", "下午三点三十分", "15点30分", "3:30 pm"],
    ("3比1", "该比赛的比分是多少?"): ["3:1", "3-1", "3–1", "三比一", "比分是3比1", "3：1", "3 - 1"],
    ("2–0", "What was the final score?"): [
        "2:0", "2-0", "2 to 0", "two nil", "2-nil", "two–nil", "2 – 0", "They won 2–0.", "The final score was 2-0.",
        "2-0 victory",
    ],
    ("6–4, 6–3", "What was the score of the final?"): ["6-4, 6-3", "6:4, 6:3", "6-4 6-3", "6–4 and 6–3"],
    ("16:9", "What is the aspect ratio?"): ["16 : 9", "16 to 9", "16∶9", "16/9"],
    ("978-0-306-40615-7", "What is the ISBN of the first edition?"): [
        "9780306406157", "ISBN 978-0-306-40615-7", "978 0 306 40615 7", "ISBN-13: 9780306406157",
        "ISBN: 9780306406157",
    ],
    ("0-306-40615-2", "What is its ISBN?"): ["0306406152", "ISBN 0306406152", "ISBN-10: 0-306-40615-2"],
    ("+1 555-123-4567", "What is the phone number?"): [
        "+1 (555) 123-4567", "+15551234567", "1-555-123-4567", "(555) 123-4567", "Tel.: +1 555 123 4567",
        "555.123.4567",
    ],
    ("010-62751234", "学院的联系电话是多少?"): [
        "(010) 62751234", "01062751234", "010 6275 1234", "+86-10-62751234", "电话:010-62751234", "86-10-62751234",
        "(010)6275-1234",
    ],
    ("10.1000/182", "What is the DOI?"): [
        "https://doi.org/10.1000/182", "doi:10.1000/182", "DOI: 10.1000/182", "doi.org/10.1000/182",
    ],
    ("1706.03762", "What is the arXiv ID?"): [
        "arXiv:1706.03762", "arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03762",
    ],
    ("2.7.1", "Which version introduced it?"): ["v2.7.1", "version 2.7.1", "Version 2.7.1", "V2.7.1", "release 2.7.1"],
    ("Python 3.8", "Which version of Python introduced the walrus operator?"): [
        "3.8", "Python 3.8", "version 3.8", "Python v3.8", "Python version 3.8",
    ],
    ("ISO 9001", "Which standard?"): ["ISO-9001", "ISO9001", "the ISO 9001 standard"],
    ("https://www.example-conf.org/", "What is the official website of the conference?"): [
        "www.example-conf.org", "example-conf.org", "http://example-conf.org", "https://example-conf.org/",
        "<https://www.example-conf.org/>", "[www.example-conf.org](https://www.example-conf.org/)",
        "The official website is https://www.example-conf.org/.",
    ],
    ("cs.stanford.edu", "What is the website of the department?"): [
        "https://cs.stanford.edu", "https://cs.stanford.edu/", "http://cs.stanford.edu/", "CS.Stanford.edu",
    ],
    ("info@example.edu.cn", "该活动的联系邮箱是什么?"): [
        "联系邮箱:INFO@example.edu.cn", "邮箱为info@example.edu.cn", "mailto:info@example.edu.cn",
        "info@example.edu.cn。", "E-mail: info@example.edu.cn",
    ],
    ("\\pi/2", "What is the value of the integral?"): [
        "$\\frac{\\pi}{2}$", "π/2", "\\frac{\\pi}{2}", "pi/2", "\\frac12\\pi", "0.5\\pi", "$\\pi/2$",
        "The integral equals π/2.", "\\(\\frac{\\pi}{2}\\)",
    ],
    ("x^2+1", "What is the derivative?"): ["1+x^2", "x²+1", "$x^2 + 1$", "f'(x) = x^2+1"],
    ("$\\sqrt{2}$", "What is the length?"): ["√2", "sqrt(2)", "\\sqrt2", "2^{1/2}"],
    ("$O(n \\log n)$", "What is the complexity of merge sort?"): [
        "O(n log n)", "$\\mathcal{O}(n\\log n)$", "O(n*log(n))",
    ],
    ("$E = mc^2$", "Which formula did Einstein find?"): ["E=mc²", "E = mc^2", "$E=mc^{2}$"],
    ("H2O2", "What is the formula of hydrogen peroxide?"): [
        "H₂O₂", "H_2O_2", "$H_2O_2$", "$\\mathrm{H_2O_2}$", "H2O2 (hydrogen peroxide)",
    ],
    ("Fe3+", "Which ion is formed?"): ["Fe³⁺", "Fe^{3+}", "$Fe^{3+}$", "the Fe3+ ion"],
    ("128人", "该学院有多少名教职工?"): [
        "128名教职工", "128名", "128", "一百二十八人", "共有128名教职工", "该学院有128名教职工。", "128位",
        "教职工128人",
    ],
    ("55个", "中国有多少个少数民族?"): ["五十五", "55个少数民族", "55", "中国有55个少数民族"],
    ("三百人", "有多少人参加了会议?"): ["300人", "300", "三百", "有300人参加了会议", "300名"],
    ("12家", "公司有多少家分店?"): ["12", "十二家", "12家分店", "共12家"],
    ("2万元", "奖金是多少?"): ["20000元", "两万元", "人民币2万元", "20,000元人民币", "2万元人民币"],
    ("50公里", "全程多少公里?"): ["50", "50km", "50千米", "五十公里", "全程50公里"],
    ("25岁", "她结婚时多大?"): ["25", "二十五岁", "25周岁", "当时25岁"],
    ("广东省深圳市", "这家公司的总部在哪里?"): [
        "深圳", "深圳市", "广东深圳", "中国广东省深圳市", "总部位于深圳市", "深圳（广东省）", "广东省深圳",
    ],
    ("深圳", "这家公司的总部在哪里?"): [
        "广东省深圳市", "深圳市", "广东深圳", "中国深圳", "总部在深圳", "这家公司的总部位于广东省深圳市。",
    ],
    ("浙江省杭州市西湖区", "该馆位于哪里?"): ["杭州市西湖区", "杭州西湖区", "浙江杭州西湖区"],
    ("李白", "哪一位诗人被称为\"诗仙\"?"): [
        "李白(唐代诗人)", "李白（701年－762年）", "唐朝诗人李白", "诗仙李白", "李白，字太白", "李白被称为诗仙",
        "是李白", "李白,唐代著名诗人",
    ],
    ("陈晓明", "该论文的第一作者是谁?"): [
        "陳曉明", "陈晓明教授", "第一作者是陈晓明", "第一作者为陈晓明", "陈晓明(清华大学)", "陈晓明博士",
        "陈晓明（第一作者）",
    ],
    ("自强不息,厚德载物", "该校的校训是什么?"): [
        "“自强不息 厚德载物”", "自强不息、厚德载物", "校训是“自强不息，厚德载物”", "自強不息,厚德載物",
        "自强不息;厚德载物",
    ],
    ("断背山", "李安凭哪部电影获得2006年奥斯卡最佳导演奖?"): [
        "《斷背山》", "电影《断背山》", "凭《断背山》获奖", "《断背山》（Brokeback Mountain）",
    ],
    ("张伟、李娜、王强", "该课程由哪三位教授讲授?"): [
        "王强,李娜和张伟", "张伟，李娜，王强", "张伟 李娜 王强", "王强教授、李娜教授和张伟教授",
        "由张伟、李娜、王强讲授",
    ],
    ("北京和张家口", "2022年冬季奥运会在哪里举行?"): [
        "张家口、北京", "北京、张家口", "北京市和张家口市", "在北京和张家口举行", "北京与张家口", "北京，张家口",
    ],
    ("不是", "这两部电影的导演是同一个人吗?"): [
        "否", "不是同一个人", "不是，两部电影的导演不同", "不是的", "不，导演不同",
    ],
    ("是", "两家公司是否都成立于上海?"): [
        "是的,两家公司都成立于上海。", "是的", "对", "都成立于上海", "两家公司都成立于上海",
    ],
    ("计算机学院", "该实验室隶属于哪个学院?"): [
        "计算机学院。", "隶属于计算机学院", "該實驗室隸屬於計算機學院", "计算机学院（School of Computer Science）",
    ],
    ("2023年10月12日", "会议什么时候举行?"): [
        "2023年10月12日（星期四）", "2023年10月12日上午", "会议于2023年10月12日举行", "二〇二三年十月十二日",
        "2023.10.12", "2023-10-12",
    ],
    ("10月12日至15日", "会议什么时候举行?"): [
        "10月12日-15日", "10月12-15日", "10月12日到10月15日", "10月12—15日", "October 12–15",
    ],
    ("1869–1877", "What years did Ulysses S. Grant serve as president?"): [
        "from 1869 to 1877", "1869 to 1877", "between 1869 and 1877", "1869年至1877年", "He served from 1869 to 1877.",
        "1869 through 1877",
    ],
    ("10 km", "How far?"): ["10,000 m", "10 kilometers (6.2 miles)", "10.0 km", "10公里"],
    ("1,500 square miles", "What is the area?"): [
        "1500 sq mi", "1,500 mi²", "1,500 square miles (3,900 km2)", "1,500 sq. mi.",
    ],
    ("31.5 square kilometres", "What is the area of the lake?"): [
        "31.5 km²", "31.5 km2", "31.5 sq km", "31.5 square km", "3150 hectares", "31.5平方公里",
    ],
    ("5 feet 7 inches", "How tall is she?"): ["5'7\"", "5 ft 7 in", "170 cm (5 ft 7 in)", "5 ft 7", "67 inches"],
    ("3 hours 20 minutes", "How long?"): ["3h 20m", "200 minutes", "3 hrs 20 min", "3 hours and 20 minutes"],
    ("1 million", "How many?"): ["one million", "a million", "1,000,000", "10^6", "1M"],
    ("two dozen", "How many?"): ["24", "twenty-four"],
    ("1st", "Which place?"): ["first", "first place"],
    ("第三名", "他得了第几名?"): ["3", "第3名", "第三", "三"],
    ("第3届", "这是第几届?"): ["第三届", "3", "三"],
    ("Aldous Huxley", "Who wrote Brave New World?"): [
        "the English novelist Aldous Huxley", "Aldous Huxley, an English writer and philosopher",
        "Aldous Leonard Huxley", "Brave New World was written by Aldous Huxley in 1931.",
        "Aldous Huxley wrote Brave New World.", "It was Aldous Huxley who wrote Brave New World.",
        "The novel was authored by Aldous Huxley.", "The author of Brave New World is Aldous Huxley.",
        "Huxley, Aldous",
    ],
    ("Mount St. Helens", "Which volcano erupted in 1980?"): [
        "Mount Saint Helens, Washington", "Mt. St. Helens", "Mount St. Helens (in Washington state)",
        "the volcano Mount St. Helens",
    ],
    ("Titan", "What is the largest moon of Saturn?"): [
        "Titan, Saturn's largest moon", "Titan (moon)", "Saturn's largest moon is Titan.",
        "Titan is the largest moon of Saturn.",
    ],
    ("Facebook", "Which company acquired WhatsApp in 2014?"): [
        "Facebook (now Meta Platforms)", "Facebook, Inc.", "WhatsApp was acquired by Facebook in 2014.",
        "Facebook acquired WhatsApp for $19 billion.", "the social media company Facebook",
    ],
    ("Peace of Westphalia", "Which treaty ended the Thirty Years' War?"): ["the Peace of Westphalia (1648)"],
    ("Treaty of Westphalia", "Which treaty ended the Thirty Years' War?"): [
        "The Thirty Years' War was ended by the Treaty of Westphalia.",
    ],
    ("New York City", "Where did Nikola Tesla die?"): [
        "Nikola Tesla died in New York City.", "New York City, New York, U.S.", "He died in New York City, USA.",
        "New York", "NYC",
    ],
    ("Peru", "In which country is Machu Picchu located?"): [
        "Machu Picchu is located in Peru.", "Peru (South America)", "Cusco, Peru",
    ],
    ("Arizona", "In which state is the Grand Canyon?"): [
        "Arizona, USA", "The Grand Canyon is located in Arizona, in the southwestern United States.",
        "northern Arizona",
    ],
    ("Icelandic", "What nationality is Björk?"): ["Iceland", "She is Icelandic.", "Icelander"],
    ("French", "What is the nationality of the director?"): ["France", "He is a French national."],
    ("Netherlands", "Which country is Max Verstappen from?"): ["Dutch", "Holland"],
    ("South Korea", "Which country is she a citizen of?"): ["South Korean"],
    ("Spain", "Which country is she a citizen of?"): ["Spanish"],
    ("James Earl Ray", "Who shot Martin Luther King Jr.?"): ["James Ray"],
    ("John Wilkes Booth", "Who assassinated Abraham Lincoln?"): [
        "the actor John Wilkes Booth", "John Wilkes Booth, a well-known stage actor",
        "Abraham Lincoln was assassinated by John Wilkes Booth.", "He was assassinated by John Wilkes Booth",
    ],
    ("Saddam Hussein", "Who was the leader of Iraq until 2003?"): ["Saddam Husayn"],
    ("Osman I", "Who founded the Ottoman state?"): ["Osman the First", "Sultan Osman I"],
    ("Leo Tolstoy", "Who is the author of War and Peace?"): [
        "Lev Tolstoy", "Count Leo Tolstoy", "Leo Tolstoy (Lev Nikolayevich Tolstoy)",
    ],
    ("Sapiens: A Brief History of Humankind", "Which book did Harari write?"): ["Sapiens"],
    ("Frankenstein; or, The Modern Prometheus", "Which novel did Mary Shelley write?"): ["Frankenstein"],
    ("Moby-Dick; or, The Whale", "Which novel did Melville write?"): ["Moby Dick"],
    ("Frankenstein", "Which novel did Mary Shelley write?"): [
        "Frankenstein by Mary Shelley", "Mary Shelley wrote Frankenstein.",
    ],
    ("The Dark Side of the Moon", "Which album did Pink Floyd release in 1973?"): [
        "\"The Dark Side of the Moon\" by Pink Floyd", "Dark Side of the Moon",
        "The album The Dark Side of the Moon (1973)",
    ],
    ("bass guitar", "What instrument did Jaco Pastorius play?"): [
        "the bass guitar", "He played the bass guitar.", "Jaco Pastorius played bass guitar.",
    ],
    ("engineer", "What is his occupation?"): ["civil engineer", "He is an engineer.", "He worked as an engineer"],
    ("nurse", "What was her profession?"): ["registered nurse"],
    ("singer", "What was her profession?"): ["singer and songwriter", "She was a singer"],
    ("romantic comedy", "What genre is the film?"): ["rom-com", "romantic comedy film"],
    ("science fiction", "What genre is the film?"): ["science-fiction"],
    ("cotton", "What material is it made of?"): ["It is made of cotton.", "made of cotton"],
    ("Portuguese", "What language is spoken there?"): [
        "the Portuguese language", "Portuguese language", "Portuguese is spoken there.",
    ],
    ("Buddhism", "What religion does he follow?"): ["Buddhist"],
    ("Roman Catholicism", "What religion does he follow?"): ["Roman Catholic"],
    ("University of Oxford", "Which university did she attend?"): ["Oxford University"],
    ("University of Edinburgh", "Which university did she attend?"): ["Edinburgh University"],
    ("Department of Justice", "Which department handles it?"): ["Justice Department", "US Department of Justice"],
    ("United States Department of Justice", "Which department handles it?"): ["Department of Justice"],
    ("Museum of Modern Art", "Which museum holds it?"): [
        "Museum of Modern Art (MoMA)", "the Museum of Modern Art in New York",
    ],
    ("The Louvre", "Which museum holds it?"): ["Louvre Museum", "the Louvre in Paris"],
    ("Academy Award for Best Actress", "Which award did she win?"): ["Best Actress Academy Award"],
    ("Nobel Prize in Literature", "Which award did she win?"): [
        "Nobel Literature Prize", "the Nobel Prize for Literature", "She won the Nobel Prize in Literature.",
    ],
    ("1600 Pennsylvania Avenue", "Where does the president live?"): ["1600 Pennsylvania Ave., Washington, D.C."],
    ("350 Fifth Avenue", "What is the address?"): ["350 5th Ave, New York"],
    ("4 Privet Drive", "What is the address?"): ["4 Privet Dr."],
    ("32 Windsor Gardens", "What is the address?"): ["32 Windsor Gardens, London"],
    ("221B Baker Street, London", "What is the address?"): ["221B Baker St"],
    ("Ulm, Germany", "Where was Einstein born?"): ["Ulm"],
    ("Ulm", "Where was Einstein born?"): ["Einstein was born in Ulm, Germany"],
    ("Nashville, Tennessee", "Where was he born?"): ["Nashville"],
    ("Hodgenville, Kentucky, U.S.", "Where was he born?"): ["Hodgenville, Kentucky"],
    ("Bonn, Electorate of Cologne", "Where was he born?"): ["Bonn"],
    ("Pope John XXIII", "Which pope called the council?"): ["John 23rd"],
    ("Super Bowl XLII", "Which World Cup?"): ["Super Bowl 42"],
    ("World War II", "Which war?"): ["the Second World War"],
    ("Louis XIV", "Which king?"): ["Louis the Fourteenth"],
    ("Adolf Hitler", "Who led Germany?"): ["the German dictator Adolf Hitler"],
    ("Bong Joon-ho", "Who directed it?"): ["Bong Joon Ho"],
    ("Eminem", "Who is the rapper?"): ["Eminem, whose real name is Marshall Mathers"],
    ("Keanu Reeves", "Who played Neo?"): [
        "Neo was played by Keanu Reeves.", "Canadian actor Keanu Reeves played Neo.", "Keanu Charles Reeves",
    ],
    ("Heath Ledger", "Who played the Joker?"): ["Heathcliff Andrew \"Heath\" Ledger"],
    ("Jimmy Carter", "Who was president?"): ["James Earl \"Jimmy\" Carter Jr."],
    ("Bill Clinton", "Who was president?"): ["William Jefferson \"Bill\" Clinton"],
    ("Seine", "Which river flows through Paris?"): [
        "The Seine flows through Paris.", "The river that flows through Paris is the Seine.", "Seine (777 km long)",
    ],
    ("Johann Wolfgang von Goethe", "Wer schrieb Faust?"): [
        "Johann Wolfgang von Goethe schrieb Faust.", "J. W. von Goethe",
    ],
    ("Salzburg", "Wo wurde Mozart geboren?"): [
        "in Salzburg", "Mozart wurde in Salzburg geboren.", "Salzburg, Österreich",
    ],
    ("Victor Hugo", "Qui a écrit Les Misérables ?"): [
        "C'est Victor Hugo.", "Les Misérables a été écrit par Victor Hugo.", "l'écrivain français Victor Hugo",
    ],
    ("Canberra", "Quelle est la capitale de l'Australie ?"): ["La capitale de l'Australie est Canberra."],
    ("Pablo Picasso", "¿Quién pintó el Guernica?"): [
        "El Guernica fue pintado por Pablo Picasso.", "Lo pintó Pablo Picasso",
    ],
    ("Lima", "¿Cuál es la capital de Perú?"): ["La capital de Perú es Lima."],
    ("Dante Alighieri", "Chi ha scritto la Divina Commedia?"): ["È stata scritta da Dante Alighieri"],
    ("Roma", "Qual è la capitale d'Italia?"): ["La capitale d'Italia è Roma."],
    ("no", "Is Pluto a planet?"): ["No, Pluto is a dwarf planet.", "No, it is classified as a dwarf planet."],
    ("yes", "Did Beethoven and Mozart both live in Vienna?"): ["Yes, both composers lived in Vienna."],
    ("yes", "Are Kobe and Osaka both in Japan?"): ["Yes, both cities are in Japan.", "Yes, they're both in Japan."],
    ("no", "Was he ever married?"): ["He never married.", "No, he never married."],
    ("black and white", "Which two colors?"): ["white and black"],
    ("Larry Page and Sergey Brin", "Who were the founders?"): ["It was founded by Larry Page and Sergey Brin."],
    ("tungsten", "Which element?"): ["tungsten (W)"],
    ("Venus", "Which planet is the hottest?"): ["Venus is the hottest planet.", "planet Venus"],
    ("basketball", "Which sport?"): ["He plays basketball."],
    ("dark blue", "What color is it?"): ["It is dark blue in color."],
    ("Alexander Fleming", "Who discovered penicillin?"): [
        "Sir Alexander Fleming, in 1928", "Scottish bacteriologist Alexander Fleming",
        "Alexander Fleming discovered penicillin in 1928.",
        "Penicillin was discovered by the Scottish scientist Alexander Fleming.",
    ],
    ("yen", "What is the currency of Japan?"): ["Japanese yen"],
    ("Frances McDormand", "Which actress won?"): [
        "Frances McDormand (for Nomadland)", "Frances McDormand for her role in Nomadland",
    ],
    ("Parasite", "Which film won?"): [
        "Parasite (2019 film)", "Parasite, directed by Bong Joon-ho", "the South Korean film Parasite",
    ],
    ("Geneva", "Which city hosts it?"): ["Geneva, in Switzerland", "the Swiss city of Geneva", "Genève"],
    ("The New York Times", "Which newspaper?"): ["New York Times", "The New York Times newspaper"],
    ("Labour Party", "Which party?"): ["Labour", "the British Labour Party"],
    ("Republican Party", "Which party did he join?"): ["Republican"],
    ("Central Intelligence Agency", "Which agency?"): ["the CIA"],
    ("BBC One", "Which network?"): ["BBC 1"],
    ("Phil Jackson", "Who coached them?"): ["head coach Phil Jackson", "coach Phil Jackson"],
    ("Chicago Bulls", "Which team won?"): ["the Bulls", "The Chicago Bulls won."],
    ("Astana", "What is the capital of Kazakhstan?"): ["Astana (formerly Nur-Sultan)"],
    ("George VI", "Who was Elizabeth II's father?"): ["King George VI", "Her father was King George VI."],
    ("Melinda French Gates", "Who is his wife?"): ["Melinda Gates"],
    ("Atlantic Ocean", "Which ocean?"): ["the Atlantic"],
    ("Sahara Desert", "Which desert?"): ["Sahara"],
    ("Sahara", "Which desert?"): ["the Sahara Desert"],
    ("Golden Gate Bridge", "Which bridge?"): ["the Golden Gate"],
    ("deoxyribonucleic acid", "What does DNA stand for?"): ["Deoxyribonucleic Acid (DNA)"],
    ("Bachelor of Arts", "What degree did she earn?"): ["BA"],
    ("Time", "Which magazine?"): ["Time magazine"],
    ("goalkeeper", "What position did he play?"): ["He was a goalkeeper."],
    ("quarterback", "What position did he play?"): ["starting quarterback"],
    ("Neil Armstrong", "Who was the first person to walk on the Moon?"): [
        "American astronaut Neil Armstrong, on July 20, 1969",
        "The first person to walk on the Moon was Neil Armstrong.",
        "Neil Armstrong was the first person to walk on the Moon.", "Neil A. Armstrong",
    ],
    ("insulin", "Which hormone regulates blood sugar?"): ["insulin, produced by the pancreas", "the hormone insulin"],
    ("Elon Musk", "Who is the current CEO of Tesla?"): [
        "Elon Musk (CEO since 2008)", "Elon Reeve Musk", "Tesla's CEO is Elon Musk.",
    ],
    ("Serena Williams", "Who was the runner-up?"): ["tennis star Serena Williams"],
    ("Holden Caulfield", "What is the name of the protagonist?"): [
        "The protagonist's name is Holden Caulfield.", "His name is Holden Caulfield",
    ],
    ("HMS Beagle", "What is the name of the ship?"): ["the HMS Beagle", "the ship HMS Beagle"],
    ("Ming dynasty", "Which dynasty ruled China from 1368 to 1644?"): [
        "the Ming", "Ming Dynasty (1368–1644)", "The Ming dynasty ruled China from 1368 to 1644.",
    ],
    ("Viking 1", "Which spacecraft first landed on Mars?"): ["Viking I"],
    ("Emirates", "Which airline flies there?"): ["Emirates Airline", "Emirates airlines"],
    ("Atlantic Records", "Which record label signed her?"): ["Atlantic"],
    ("Hans Zimmer", "Who composed the score for Inception?"): [
        "German composer Hans Zimmer", "The score for Inception was composed by Hans Zimmer.", "Hans Florian Zimmer",
    ],
    ("Elizabeth Bowes-Lyon", "Who is the mother of Queen Elizabeth II?"): [
        "Queen Elizabeth The Queen Mother (Elizabeth Bowes-Lyon)", "Elizabeth Bowes Lyon",
        "Her mother was Elizabeth Bowes-Lyon.",
    ],
    ("Moby-Dick", "Which novel begins with \"Call me Ishmael\"?"): [
        "Moby Dick by Herman Melville", "Herman Melville's Moby-Dick", "Moby-Dick, written by Herman Melville",
    ],
    ("Vincent van Gogh", "Who painted Starry Night?"): [
        "Dutch post-impressionist Vincent van Gogh", "Vincent Van Gogh", "Vincent Willem van Gogh",
    ],
    ("Denali", "What is the highest mountain in North America?"): [
        "Denali (formerly Mount McKinley)", "Denali, also known as Mount McKinley", "Denali, Alaska",
        "Denali in Alaska", "Mount Denali",
    ],
    ("Kyoto, Japan", "Where is the headquarters of Nintendo?"): [
        "Nintendo is headquartered in Kyoto, Japan.", "Kyoto",
    ],
    ("Kyoto", "Where is the headquarters of Nintendo?"): [
        "Kyoto, Kyoto Prefecture, Japan", "The headquarters is located in Kyoto.",
    ],
    ("Three Mile Island", "Where did the accident happen?"): [
        "Three Mile Island, Pennsylvania", "on Three Mile Island",
    ],
    ("Barbados", "What country is the singer from?"): ["She is from Barbados.", "Barbadian"],
    ("United Kingdom", "What country is the singer from?"): ["British"],
    ("England", "What country is the singer from?"): ["English"],
    ("American", "What is his citizenship?"): ["United States", "U.S. citizen", "US"],
    ("Barack Obama", "Which US president was born in Hawaii?"): [
        "Barack Obama, who was born in Honolulu, Hawaii", "Barack Obama (44th president)",
    ],
    ("Keith Moon", "Who was the drummer of The Who?"): [
        "Keith John Moon", "drummer Keith Moon", "The drummer of The Who was Keith Moon.",
    ],
    ("Poseidon", "Which Greek god rules the sea?"): [
        "Poseidon (god of the sea)", "Poseidon, the Greek god of the sea", "the god Poseidon",
    ],
    ("hemoglobin", "What protein carries oxygen?"): [
        "haemoglobin", "hemoglobin, a protein in red blood cells", "Hemoglobin carries oxygen.",
    ],
    ("pancreas", "Which organ produces insulin?"): ["the pancreas", "Insulin is produced by the pancreas."],
    ("Foo Fighters", "Which band did he found?"): [
        "He founded the Foo Fighters.", "the rock band Foo Fighters", "Foo Fighters (American rock band)",
    ],
    ("Nobel Prize in Physics", "Which prize did he win in 1921?"): [
        "the 1921 Nobel Prize in Physics", "Nobel Prize in Physics (1921)", "Physics Nobel Prize",
    ],
    ("Old Norse", "Which language did they speak?"): ["They spoke Old Norse.", "Old Norse language"],
    ("Brooklyn", "In which borough was he born?"): ["Brooklyn, New York City, New York"],
    ("The Bronx", "In which borough was he born?"): ["Bronx", "the Bronx, NYC"],
    ("Nicholas II", "Who was the last Tsar?"): ["Tsar Nicholas II of Russia", "Emperor Nicholas II"],
    ("Nicholas II of Russia", "Who was the last Tsar?"): ["Nicholas II"],
    ("Steve Jobs", "Who founded Apple?"): ["Steven Paul Jobs", "Steve Jobs co-founded Apple."],
    ("marsupial", "What type of animal is it?"): ["It is a marsupial.", "a marsupial"],
    ("diesel", "What kind of engine is it?"): ["diesel engine"],
    ("diesel engine", "What kind of engine is it?"): ["diesel"],
    ("Operation Overlord", "What was the name of the operation?"): ["Overlord", "It was called Operation Overlord."],
    ("Eton College", "Which school did he attend?"): ["Eton", "Eton College, Windsor"],
    ("Trinity College, Cambridge", "Which college did he attend?"): ["Trinity College"],
    ("Trinity College", "Which college did he attend?"): ["Trinity College, Cambridge"],
    ("Heathrow Airport", "Which airport is it?"): ["Heathrow"],
    ("John F. Kennedy International Airport", "Which airport is it?"): ["JFK International Airport"],
    ("Walt Disney Company", "Who owns it?"): ["The Walt Disney Company"],
    ("Warner Bros.", "Which film studio?"): ["Warner Brothers"],
    ("Alfred Hitchcock", "Who directed Psycho?"): [
        "Sir Alfred Hitchcock, KBE", "English filmmaker Alfred Hitchcock (1899–1980)",
        "Alfred Hitchcock; he also produced it", "Psycho (1960) was directed by Alfred Hitchcock.",
    ],
    ("yes", "Did the Titanic sink?"): ["Yes, it sank in 1912.", "It did."],
    ("no", "Is the Earth flat?"): ["No, it's round.", "The Earth is not flat."],
    ("yes", "Do they share a border?"): ["Yes, they share a border."],
    ("no", "Do they share a border?"): ["They do not share a border."],
    ("no", "Are both directors from France?"): [
        "No, only one of them is from France.", "No; one is from France and the other is from Italy.",
    ],
    ("Loire", "Quel est le plus long fleuve de France ?"): [
        "La Loire", "Le plus long fleuve de France est la Loire.",
    ],
    ("Konrad Adenauer", "Wer war der erste Bundeskanzler?"): ["Der erste Bundeskanzler war Konrad Adenauer."],
    ("Granada", "¿Dónde está la Alhambra?"): ["En Granada, España", "La Alhambra está en Granada."],
    ("Roma", "Dove si trova il Colosseo?"): ["A Roma", "Si trova a Roma, Italia."],
    ("Luís de Camões", "Quem escreveu Os Lusíadas?"): ["Os Lusíadas foi escrito por Luís de Camões."],
    ("1,776 feet", "How tall is One World Trade Center?"): [
        "1776 ft", "1,776 ft (541 m)", "It is 1,776 feet tall.", "541 m (1,776 ft)", "1776 feet high",
    ],
    ("5.5%", "What was the unemployment rate?"): [
        "5.5 percent", "five and a half percent", "5.50%", "5½%", "5.5 per cent", "The unemployment rate was 5.5%.",
    ],
    ("$2.50 per gallon", "How much did gas cost?"): [
        "$2.50/gallon", "$2.5 a gallon", "2.50 dollars per gallon", "US$2.50 per gallon",
    ],
    ("60 frames per second", "What is the frame rate?"): ["60 fps", "60fps", "60 frames/s"],
    ("24 hours", "How long did it last?"): ["24h", "1 day", "one day", "24 hrs", "twenty-four hours", "a day"],
    ("18 months", "How long was the sentence?"): [
        "1.5 years", "one and a half years", "a year and a half", "1 year and 6 months", "1 year 6 months",
    ],
    ("6 weeks", "How long did the strike last?"): ["six weeks", "42 days", "It lasted six weeks."],
    ("250 million years", "How old is the rock?"): ["250 million years old", "0.25 billion years"],
    ("7.9", "What was the magnitude of the earthquake?"): [
        "magnitude 7.9", "M 7.9", "7.9 magnitude", "7.9 on the Richter scale", "Mw 7.9",
    ],
    ("-89.2 °C", "What is the lowest temperature recorded?"): [
        "−89.2 °C", "minus 89.2 degrees Celsius", "-89.2°C (-128.6°F)", "−89.2 degrees C",
    ],
    ("1.4 billion", "What is the population of China?"): [
        "1,400,000,000", "1.4 billion people", "14亿", "1400 million", "1.4bn",
    ],
    ("3/4", "What fraction of the seats?"): ["three quarters", "three-fourths", "0.75", "75%"],
    ("twice", "How many times did he win?"): ["2 times", "two times", "2", "two"],
    ("once", "How many times?"): ["one time", "1", "one", "1 time"],
    ("a pair", "How many?"): ["a pair"],
    ("2:03:59", "What was his marathon time?"): ["2:03:59 hours"],
    ("9.58 seconds", "What was the winning time?"): ["9.58 s", "9.58 sec", "a time of 9.58 seconds"],
    ("c. 570 BC", "When was Pythagoras born?"): ["around 570 BC", "570 BCE", "circa 570 BC", "about 570 B.C."],
    ("between 1880 and 1885", "When was it built?"): ["1880-1885", "1880 to 1885", "from 1880 to 1885"],
    ("1990s", "When did it become popular?"): [
        "the 1990s", "the nineties", "in the 90s", "during the 1990s", "20世纪90年代",
    ],
    ("the 5th of November", "When is Guy Fawkes Night?"): [
        "5 November", "November 5", "November 5th", "Nov. 5", "11月5日", "5th November",
    ],
    ("25 December", "When is Christmas Day?"): [
        "December 25", "25th of December", "December 25th (Christmas Day)", "Dec 25",
    ],
    ("Monday", "What day of the week was it?"): ["on Monday", "a Monday", "It was a Monday.", "星期一"],
    ("March 2020", "When did the lockdown begin?"): [
        "in March 2020", "March of 2020", "2020-03", "Mar 2020", "03/2020", "2020年3月", "March, 2020",
    ],
    ("23 June 2016", "When was the referendum held?"): [
        "June 23, 2016", "Thursday, 23 June 2016", "2016年6月23日", "23/06/2016", "June 23rd, 2016",
        "The referendum was held on 23 June 2016.", "23 June 2016 (Thursday)", "23. Juni 2016",
    ],
    ("1812", "When did Napoleon invade Russia?"): [
        "in 1812", "June 1812", "24 June 1812", "Napoleon invaded Russia in 1812.", "the year 1812",
    ],
    ("1066", "When was the Battle of Hastings?"): [
        "14 October 1066", "1066 AD", "The Battle of Hastings took place in 1066.", "AD 1066", "in October 1066",
        "1066年",
    ],
    ("8:30 a.m.", "What time does school start?"): [
        "8:30", "8:30am", "08:30", "8:30 in the morning", "half past eight", "8.30 am", "at 8:30 a.m.",
    ],
    ("midnight", "When does the curfew begin?"): ["12 a.m.", "00:00", "12 midnight", "at midnight", "0:00"],
    ("3 p.m.", "When did it happen?"): [
        "15:00", "3:00 pm", "3 o'clock in the afternoon", "at 3 PM", "下午3点", "3pm local time",
    ],
    ("4–2", "What was the score of the 1966 World Cup final?"): [
        "4-2", "4:2", "4–2 (a.e.t.)", "4 to 2", "four to two", "4–2 after extra time",
    ],
    ("21–17", "What was the final score?"): ["21-17", "21:17", "21 to 17"],
    ("1:50,000", "What is the scale of the map?"): ["1:50000", "1/50,000", "1 to 50,000"],
    ("192.168.0.1", "What is the default IP address?"): ["192.168.0.1", "http://192.168.0.1", "IP: 192.168.0.1"],
    ("90210", "What is the ZIP code?"): ["ZIP 90210", "90210", "zip code 90210"],
    ("SW1A 1AA", "What is the postcode of Buckingham Palace?"): ["SW1A1AA", "sw1a 1aa", "SW1A 1AA"],
    ("CS 229", "What is the course number?"): ["CS229", "CS-229", "cs 229"],
    ("B737", "Which aircraft?"): ["B737"],
    ("RFC 2616", "Which RFC defines HTTP/1.1?"): ["RFC2616", "2616", "RFC-2616"],
    ("Windows 10", "Which Windows version?"): ["Windows 10", "10"],
    ("iOS 14.5", "Which iOS version introduced it?"): ["14.5", "iOS v14.5", "version 14.5", "iOS 14.5"],
    ("github.com/pytorch/pytorch", "What is the URL of the repository?"): [
        "https://github.com/pytorch/pytorch", "https://github.com/pytorch/pytorch/",
        "http://www.github.com/pytorch/pytorch",
    ],
    ("http://nlp.stanford.edu/projects/glove/", "Where can it be downloaded?"): [
        "https://nlp.stanford.edu/projects/glove", "nlp.stanford.edu/projects/glove/",
        "It can be downloaded at https://nlp.stanford.edu/projects/glove/.",
    ],
    ("\\frac{3}{4}", "What is the probability?"): ["3/4", "0.75", "$\\frac34$", "\\dfrac{3}{4}", "3/4 or 0.75"],
    ("$2^{10}$", "How many states?"): ["1024", "2^10", "2¹⁰"],
    ("$x = 3$", "What is the solution?"): ["3", "x=3", "x = 3", "The solution is x = 3."],
    ("$a^2+b^2=c^2$", "What is the theorem?"): ["a²+b²=c²", "a^2 + b^2 = c^2", "c^2=a^2+b^2"],
    ("\\sqrt{3}/2", "What is sin 60?"): ["√3/2", "\\frac{\\sqrt{3}}{2}", "sqrt(3)/2", "0.5√3"],
    ("e^{i\\pi} + 1 = 0", "What is Euler's identity?"): ["e^{iπ}+1=0", "$e^{i\\pi}+1=0$", "e^(iπ) + 1 = 0"],
    ("$\\alpha$", "Which symbol?"): ["α", "alpha", "\\alpha"],
    ("CO2", "Which gas?"): ["CO₂", "$CO_2$", "CO_2", "CO2 gas"],
    ("二十四", "一年有多少个节气?"): ["24", "24个", "二十四个节气", "24个节气", "一年有24个节气"],
    ("五四运动", "1919年爆发的是什么运动?"): [
        "“五四运动”", "五四運動", "五四运动(1919年)", "是五四运动", "1919年的五四运动",
    ],
    ("9600万", "抖音日活跃用户数是多少?"): ["9600万人", "96,000,000", "0.96亿", "九千六百万", "9600 万"],
    ("1.2万亿元", "GDP是多少?"): ["12000亿元", "1.2 trillion yuan", "人民币1.2万亿元", "1.2万亿人民币"],
    ("35%", "占比是多少?"): ["百分之三十五", "35％", "占35%", "占比35%", "占比为35%"],
    ("第12位", "排名第几?"): ["12", "第12", "第十二位", "第12名", "排名第12"],
    ("3月15日", "消费者权益日是哪天?"): ["三月十五日", "3月15号", "每年3月15日", "March 15", "3月15日。"],
    ("周一至周五", "办公时间是哪几天?"): ["星期一至星期五", "周一到周五", "星期一到星期五", "周一至周五。"],
    ("8:30-17:30", "办公时间是几点到几点?"): [
        "8:30至17:30", "08:30-17:30", "8:30~17:30", "上午8:30到下午5:30", "8:30 - 17:30", "8点半到17点半",
    ],
    ("浙江省杭州市", "阿里巴巴总部在哪?"): [
        "杭州", "浙江杭州", "杭州市", "中国杭州", "中国浙江省杭州市", "位于浙江省杭州市", "总部设在杭州",
    ],
    ("成都", "大熊猫基地在哪个城市?"): [
        "成都市", "四川成都", "四川省成都市", "在成都", "位于四川省成都市", "成都(四川省)",
    ],
    ("四川省", "大熊猫基地在哪个省?"): ["四川", "中国四川省", "四川省。", "在四川省", "位于四川"],
    ("新疆维吾尔自治区", "哪个自治区?"): ["新疆", "新疆自治区", "新疆维吾尔自治区。"],
    ("香港特别行政区", "在哪里?"): ["香港", "中国香港", "香港特别行政区"],
    ("北京市海淀区中关村南大街5号", "学校地址是什么?"): [
        "海淀区中关村南大街5号", "北京海淀区中关村南大街5号", "北京市海淀区中关村南大街5号。",
        "地址是北京市海淀区中关村南大街5号", "中关村南大街5号",
    ],
    ("王小明教授", "该实验室的负责人是谁?"): [
        "王小明", "负责人是王小明", "王小明老师", "王小明(教授)", "王小明，教授", "负责人为王小明教授",
    ],
    ("张三丰", "太极拳的创始人是谁?"): ["張三豐", "张三丰(武当派创始人)", "创始人是张三丰", "是张三丰"],
    ("《三国演义》", "罗贯中的代表作是什么?"): [
        "三国演义", "三國演義", "长篇小说《三国演义》", "《三国演义》。", "罗贯中的代表作是《三国演义》",
    ],
    ("计算机科学与技术", "他读的是什么专业?"): [
        "计算机科学与技术专业", "計算機科學與技術", "计算机科学与技术。", "专业是计算机科学与技术",
    ],
    ("清华大学", "他毕业于哪所大学?"): ["清华大学(Tsinghua University)", "清华", "毕业于清华大学", "清华大学。"],
    ("红色、黄色、蓝色", "三原色是哪三种?"): [
        "红色、蓝色和黄色", "黄色、红色、蓝色", "红色，黄色，蓝色", "红色 黄色 蓝色", "三原色是红色、黄色和蓝色",
    ],
    ("是", "上海是直辖市吗?"): ["是的", "是直辖市", "对", "上海是直辖市", "是的,上海是直辖市。", "正确", "yes"],
    ("否", "苏州是省会吗?"): [
        "不是", "不是省会", "苏州不是省会", "不,南京才是省会", "否,省会是南京", "no", "不是，江苏省的省会是南京",
    ],
    ("有", "该专业有硕士点吗?"): ["有的", "有。", "该专业有硕士点", "有硕士点"],
    ("Trygve Lie", "Who was the first secretary-general of the UN?"): ["Trygve Halvdan Lie"],
    ("Gamal Abdel Nasser", "Who was the president of Egypt from 1956 to 1970?"): ["Gamal Abdul Nasser"],
    ("Pyotr Ilyich Tchaikovsky", "Which composer wrote The Nutcracker?"): ["Peter Tchaikovsky"],
    ("Ministry of Foreign Affairs", "Which ministry issues it?"): ["Foreign Affairs Ministry"],
    ("Norwegian", "What is the nationality of the author?"): ["Norway", "She was Norwegian"],
    ("Jamaica", "Which country did she represent?"): ["Jamaican"],
    ("Tanzania", "In what country is the lake?"): ["It lies in Tanzania."],
    ("Ann Arbor, Michigan", "Where is the university located?"): [
        "The university is located in Ann Arbor, Michigan.", "Ann Arbor",
    ],
    ("Ann Arbor", "Where is the university located?"): ["Ann Arbor, MI, USA"],
    ("Toto", "What is the name of her dog?"): ["Her dog is called Toto.", "Her dog's name is Toto."],
    ("Ceres", "What is the name of the asteroid?"): ["asteroid Ceres"],
    ("red", "What color was the car?"): ["The car was red."],
    ("historical fiction", "What genre is the novel?"): ["historical fiction novel"],
    ("fantasy", "What genre is the novel?"): ["fantasy genre"],
    ("lawyer", "What was his profession?"): ["He was a lawyer.", "corporate lawyer"],
    ("teacher", "What was his job?"): ["high school teacher"],
    ("Shaftesbury Avenue", "Which street is the theatre on?"): ["Shaftesbury Ave.", "Shaftesbury Avenue in London"],
    ("Charles I", "Which king was executed in 1649?"): ["King Charles I of England", "Charles the First"],
    ("Charles I of England", "Which king was executed in 1649?"): ["King Charles I"],
    ("Midnight's Children", "Which book won the Booker Prize in 1981?"): [
        "Midnight's Children (novel)", "\"Midnight's Children\" by Salman Rushdie",
        "Midnight's Children won the Booker Prize in 1981.",
    ],
    ("Radiohead", "Which band released \"OK Computer\"?"): [
        "Radiohead (English rock band)", "British band Radiohead", "\"OK Computer\" was released by Radiohead.",
    ],
    ("Adriatic Sea", "Which sea separates Italy from the Balkans?"): [
        "the Adriatic", "The Adriatic Sea separates Italy from the Balkans.",
    ],
    ("mercury", "Which element is liquid at room temperature?"): ["Mercury (Hg)", "liquid mercury"],
    ("ostrich", "Which bird cannot fly?"): ["the ostrich", "ostrich (Struthio camelus)"],
    ("Continental Airlines", "Which airline merged with it?"): ["Continental"],
    ("Wilhelm Röntgen", "Who discovered X-rays?"): ["Wilhelm Conrad Roentgen"],
    ("Wilhelm Conrad Röntgen", "Who discovered X-rays?"): ["Wilhelm Röntgen", "W. C. Röntgen"],
    ("Ringo Starr", "Who is the drummer?"): [
        "Sir Ringo Starr MBE", "Richard \"Ringo\" Starr", "Ringo Starr (born Richard Starkey)",
    ],
    ("The Washington Post", "Which newspaper broke the story?"): ["Washington Post", "It was The Washington Post."],
    ("Breaking Bad", "Which TV series is it?"): ["Breaking Bad (TV series)", "Breaking Bad (2008–2013)"],
    ("New Zealand", "Where was it filmed?"): ["It was filmed in New Zealand.", "in New Zealand"],
    ("May", "Which month did it open?"): ["in May"],
    ("yes", "Was the bridge built before 1900?"): ["Yes, the bridge was built in 1883."],
    ("no", "Was the bridge built before 1900?"): ["No, it was built in 1932."],
    ("no", "Are both rivers in Asia?"): ["No, the Volga is in Europe."],
    ("yes", "Are both rivers in Asia?"): ["Both rivers are in Asia."],
    ("blue, white and red", "Which three colours are on the flag?"): ["red, white, and blue"],
    ("Munich and Berlin", "Which two cities hosted?"): ["Berlin & Munich"],
    ("Bharatiya Janata Party", "Which party won?"): ["BJP", "the Bharatiya Janata Party (BJP)"],
    ("Democratic Party", "Which party won?"): ["Democratic"],
    ("Doctor of Philosophy", "What degree does he hold?"): ["PhD"],
    ("Master of Business Administration", "What degree does he hold?"): ["MBA"],
    ("World Trade Organization", "What does the acronym stand for?"): ["World Trade Organisation"],
    ("Warschau", "Wie heißt die Hauptstadt von Polen?"): ["Die Hauptstadt von Polen ist Warschau."],
    ("Wolfgang Amadeus Mozart", "Wer komponierte die Zauberflöte?"): [
        "Wolfgang Amadeus Mozart komponierte die Zauberflöte.",
    ],
    ("Émile Zola", "Quel est l'auteur de Germinal ?"): ["L'auteur de Germinal est Émile Zola."],
    ("Guadalquivir", "¿Cómo se llama el río que pasa por Sevilla?"): ["el Guadalquivir", "Se llama Guadalquivir."],
    ("Gemma Donati", "Come si chiama la moglie di Dante?"): ["La moglie di Dante si chiama Gemma Donati."],
    ("Liam Gallagher", "Which of the Gallagher brothers sang in Oasis?"): ["Liam"],
    ("Nintendo", "Which company makes the Switch?"): ["Nintendo Co., Ltd.", "Nintendo Group Corporation"],
    ("B", "Which one follows? A. Iron B. Zinc C. Lead D. Tin"): ["B. Zinc"],
    ("1815", "En quelle année a eu lieu la bataille ?"): ["C'était le 18 juin 1815."],
    ("1837", "In what year did the ship sink?"): ["It sank in May 1837."],
    ("Sammy Davis Jr.", "Which singer was it?"): ["Mr. Sammy Davis, Jr."],
    ("Sidney Poitier", "Who is older, Sidney Poitier or Bill Cosby?"): ["Poitier is older"],
    ("le Rhône", "Quel fleuve traverse Lyon ?"): ["Rhône"],
    ("9月", "会议将在哪个月举行?"): ["九月份", "9月份"],
    ("21%", "What percentage of the air is oxygen?"): ["approximately 21 percent"],
    ("Hodgkin", "What is the last name of the winner?"): ["Hodgkin (Dorothy Hodgkin)"],
    ("KOH", "What is the chemical formula of potash lye?"): ["KOH (potassium hydroxide)"],
}
WRONG: dict[tuple[str, str], list[str]] = {
    ("Season 2, Episode 7", "In which season and episode does the wedding happen?"): ["Season 7, Episode 2"],
    ("Oslo, Bergen, Tromsø", "Name the ports in the order in which the ship called at them."): [
        "Bergen, Oslo, Tromsø",
        "Tromsø, Bergen and Oslo",
    ],
    ("隋朝、唐朝", "按先后顺序写出这两个朝代。"): ["唐朝、隋朝"],
    ("Dwight", "In which year was the man of 30 years born?"): ["18-24 years", "5-10 km (3-6 miles)"],
    ("Barack Obama", "Who was president?"): ["Barack Obama Clinton"],
    ("Barack Obama", ""): [
        "Obama Clinton", "Barack Obama Bill Clinton", "Barack Obama, Clinton", "Obama Barack Obama Barack",
    ],
    ("New York City", ""): ["New York City Boston"],
    ("John Smith", ""): [
        "John/Mary Smith", "John, Mary Smith", "John or Mary Smith", "John & Mary Smith", "J. Smith", "J. S.",
    ],
    ("John Smith", "Who is older, John Smith or Mary Smith?"): [
        "Smith", "John Smith and Mary Smith", "John Smith Mary Smith", "Who is older, John Smith or Mary Smith?",
        "John Smith or Mary Smith", "Mary Smith", "Mary Smith is older than John Smith",
    ],
    ("Albany, New York", "What is the capital of New York?"): ["New York", "What is the capital of New York?"],
    ("University of Cambridge", "Where did he study?"): ["University of Oxford"],
    ("University of Cambridge", "Which university did he attend?"): ["University"],
    ("House of the Rising Sun", ""): ["the of", "of the"],
    ("Home Alone 3", ""): ["Home Alone 2", "Home Alone"],
    ("World War II", ""): ["World War I", "War"],
    ("Louis XIV", ""): ["Louis XVI"],
    ("Elizabeth II", ""): ["Elizabeth I", "II", "Elizabeth"],
    ("14 March 1879", ""): [
        "15 March 1879", "14 March 1880", "14 April 1879", "March 1879", "1879", "14 March", "14 or 15 March 1879",
        "14-15 March 1879", "14 March 1879 or 1880", "14 March 1879, 15 March 1879", "March 14 15 16 1879",
        "14 March 1879 BC",
    ],
    ("3 April 1990", ""): ["03/04/1990"],
    ("March 4, 1990", ""): ["03/04/1990"],
    ("1879", ""): [
        "before 1879", "after 1879", "around 1879", "circa 1879", "1878-1880", "1870s", "since 1879", "1879 or so",
        "between 1878 and 1880", "1878, 1879, 1880", "1878 1879 1880", "not 1879", "1879 BC",
    ],
    ("1880", ""): ["1879?"],
    ("€5 million", ""): ["$5 million", "5 million", "£5 million", "5", "€5 billion", "€5"],
    ("25%", ""): ["25", "2.5%", "0.25", "25‰", "25°"],
    ("25", ""): ["25%"],
    ("25%", "What percentage voted?"): ["25"],
    ("C#", ""): ["C++", "C", "C# and C++", "C#/C++", "C*"],
    ("C", ""): ["C#", "C-", "Objective C"],
    ("F", ""): ["F#"],
    ("A+", ""): ["A", "B+", "A++"],
    ("A", ""): ["A+", "A-"],
    ("10 km", ""): ["10 miles", "10", "10 m", "100 km"],
    ("5", ""): [
        "-5", "5 or 6", "5-6", "about 5", "at least 5", "more than 5", "5+", "~5", "5ish", "5th", "5 and 6",
        "five or six", "one, two, three, four, five", "1 2 3 4 5 6 7 8 9", "−5", "minus five", "five point five",
        "twice 5", "no 5", "not five", "five hundred", "fifth", "1/5", "5.5", "5,6,7", "5...10", "5–10", "≥5", "<5",
        "≈5", "±5",
    ],
    ("over 8,000", ""): ["under 8,000"],
    ("12", ""): ["1/2", "1.2"],
    ("1.2", ""): ["12"],
    ("106", ""): ["10^6"],
    ("1030", ""): ["10:30"],
    ("yes", ""): [
        "yes and no", "yes/no", "maybe yes", "yes, maybe", "yes, but no", "yes if they are", "not yes",
        "yes, they are not", "yes; no", "yes\nno", "yes no yes no", "partly yes", "they may be", "it depends: yes",
        "yes, wrong", "it is not yes", "yes|no", "yes (no)", "yesno", "Yes. However, no.",
        "Yes in part, no in part", "true or false", "yes/true/no", "si", "y", "10", "50% yes", "yes to some",
        "yes only if", "both are not",
    ],
    ("no", ""): [
        "yes or no", "no yes", "not no", "no, they are", "both yes and no", "unknown", "no is wrong", "yes?", "n",
        "No. 1", "nope yes",
    ],
    ("yes", "Are they American?"): ["Are they American? yes and no"],
    ("Paris", ""): [
        "Not Paris", "anything but Paris", "isn't Paris", "Paris is incorrect", "non-Paris", "un-Paris",
        "Paris-London", "Paris/London/Rome", "\u200bParis\u200b London", "Paris\0London", "Pa ris Lon don",
        "<b>Paris</b> <b>London</b>", "Paris\u200bLondon", "Ｐａｒｉｓ ｏｒ Ｌｏｎｄｏｎ", "Paris 🇬🇧", "Paris ≠",
        "¬Paris", "Paris ∨ London", "!Paris", "P(Paris)=0.5, P(London)=0.5", "Paris 50% London 50%",
        "Paris [London]", "Paris {London}", "Paris ~ London", "Paris\\\\London", "Paris \\text{or} London",
        "ni Paris", "pas Paris", "Paris ou Londres", "Paris oder London", "ParisParisParis", "Paris Paris Paris ",
        "none of the above", "see above", "the answer", "", ".", "Paris (formerly London)", "Paris née London",
        "Paris… or was it London", "Paris: 60%; London: 40%", "My top two: Paris, London", "Paris > London",
        "Paris followed by London", "A) Paris B) London", "(a) Paris (b) London", "Paris\tLondon\tRome",
        "Paris\u2028London", "Paris\r\nLondon", "Paris\\nLondon", "{Paris, London}", "Paris, London, Rome, etc.",
        "Paris et al.", "Paris and so on", "ParisLondon", "London->Paris", "London ⇒ Paris", "Paris ⊕ London",
        "Paris xor London", "Paris nor London", "The answer is not Paris", "The answer isn't Paris",
        "The answer is either Paris or London", "Answer: Paris; Answer: London",
        "Final answer: London. Correction: Paris", "London. No wait, Paris.",
        "First guess Paris second guess London", "Option 1: Paris Option 2: London", "Paris 1 London 2",
        "Paris - just kidding - London", "It is Paris. It is London.", "It is Paris It is London",
        "Paris is Paris, London is London", "is Paris is London is Rome", "in Paris in London in Rome",
        "the Paris of London", "Paris at London", "Paris does London",
    ],
    ("Paris", "Is it Paris or London?"): ["Paris, London"],
    ("Paris", "Besides London, which city hosted?"): ["London Paris", "London and Paris"],
    ("dog", "Which is bigger, a cat or a dog?"): ["cat dog", "a cat and a dog", "the cat is bigger than the dog"],
    ("cow", "which is biggest, a cat, a dog or a cow?"): ["cat dog cow", "cat cow"],
    ("A", "Who was born earlier, A or the founder of B?"): ["A, the founder of B"],
    ("Juliet", ""): ["Romeo"],
    ("Romeo and Juliet", ""): [
        "Romeo or Juliet", "Romeo not Juliet", "Hamlet and Romeo and Juliet", "Romeo and Juliet and Hamlet",
        "Romeo, Juliet, Hamlet", "and",
    ],
    ("Not Without My Daughter", ""): ["With My Daughter", "Without My Daughter", "My Daughter"],
    ("actor and director", ""): ["actor, director, producer, writer", "actor, director, producer"],
    ("The Blue Collar Worker And The Hairdresser In A Whirl Of Sex And Politics", ""): [
        "The Blue Collar Worker And The Hairdresser In A Whirl Of Sex And Politics, Titanic",
        "Blue Collar Worker And The Hairdresser Whirl Of Sex And Politics Titanic",
    ],
    ("北京", ""): ["北京或上海", "北京和上海", "不是北京", "北京、上海", "非北京", "北京上海", "也许是北京"],
    ("George W. Bush", ""): ["George Bush Clinton Obama"],
    ("United States", "Which country?"): ["United Kingdom"],
    ("The Band Perry", "Which band won?"): ["the band"],
    ("Stephen King", "Which king ruled?"): ["King"],
    ("Film Noir Classics", "Which film?"): ["film"],
    ("noanswer", ""): ["No answer"],
    ("The The", ""): ["The"],
    ("Paris", "Is the tower near London in Paris or elsewhere?"): ["Paris in London"],
    ("Paris", "Where is the tower, unlike the one of London?"): ["What tower is in London? Paris"],
    ("Tom Hanks", "Which actor starred with Meg Ryan?"): [
        "Tom Hanks Meg Ryan", "Meg Ryan Tom Hanks", "Tom Hanks, Meg Ryan", "Tom Hanks starred with Rita Wilson",
    ],
    ("Tom Hanks", ""): [
        "Hanks Ryan Cruise", "Tom Hanks Tom Cruise", "Tom Tom Hanks Hanks", "Tom Hanks Jr.",
        "Tom, Dick, Harry Hanks", "Tom Dick Harry Hanks", "Tom|Dick Hanks", "Tom\nDick\nHanks", "Tom (Dick) Hanks",
        "Tom \"or Dick\" Hanks",
    ],
    ("Prince Charles III", ""): ["King Charles III"],
    ("King Elizabeth", ""): ["Queen Elizabeth"],
    ("1990", ""): [
        "1990 1991", "1990/1991", "1990/91", "1990-91", "1990; 1991", "1990 (or 1991)", "1990s", "late 1990",
        "early 1990", "mid-1990", "by 1990", "until 1990", "from 1989 to 1990", "Jan 1990 or Feb 1990",
        "1 January 1990 - 31 December 1990", "1990-13-01",
    ],
    ("January 1990", ""): ["January, February 1990", "January/February 1990", "January-February 1990", "1990-01-32"],
    ("January 1, 1990", ""): ["January 1, 1990 2 1990"],
    ("3 January 1990", ""): ["1 2 3 4 5 January 1990", "1st/2nd/3rd January 1990"],
    ("January 3, 1990", ""): ["January 1-31, 1990"],
    ("1 January 1990", ""): ["1.1.1990 2.1.1990", "19900101", "January 1 '90", "1/1/90"],
    ("February 1990", ""): ["31 February 1990"],
    ("$5 million", ""): [
        "5 million", "$5 million or €5 million", "$/€5 million", "$5 million (€4 million)",
        "5 million dollars euros", "A$5 million", "$5 thousand", "5 to 6 million dollars", "$5-6 million",
        "$4.99 million", "$5.0001 million",
    ],
    ("$5", ""): ["C$5", "¢5"],
    ("5 percentage points", ""): ["5%"],
    ("25 °C", ""): ["25 °F"],
    ("25 km", ""): ["25 km²", "25 km/h", "25 kg"],
    ("25 minutes", ""): ["25 hours"],
    ("103", ""): ["10^3"],
    ("13", ""): ["1e3"],
    ("10", ""): ["0x10", "half of 10"],
    ("15", ""): ["1,5", "1 5"],
    ("1 5", ""): ["15"],
    ("-5", ""): ["(5)"],
    ("120", ""): ["5!"],
    ("50", ""): ["fifty-five"],
    ("6", ""): ["5?"],
    ("C++", ""): ["C", "C+"],
    ("Vitamin C", ""): ["Vitamin B", "Vitamin"],
    ("Hepatitis A", ""): ["Hepatitis A or B", "Hepatitis"],
    ("Type II", ""): ["Type I"],
    ("Apollo 11", ""): ["Apollo 13"],
    ("U2", ""): ["U-2"],
    ("yes", "Are A and B red?"): ["Yes for A, no for B", "Yes, A is not", "A is red", "Are A and B red?"],
    ("no", "Are A and B red?"): ["No, A is; yes"],
    ("Director's Cut", ""): ["director"],
    ("Director's Cut", "Which cut?"): ["Cut"],
    ("Elizabeth I", ""): ["I"],
    ("Make It or Break It", ""): ["or", "Make It and Break It"],
    ("the Black or the Pious", ""): ["the Black or the White or the Pious"],
    ("Green Bay", "In which city is the team's stadium?"): [
        "Milwaukee, Wisconsin", "Green Bay or Milwaukee", "Green Bay, Milwaukee", "Green Bay, Wisconsin, Milwaukee",
        "Wisconsin", "Madison, Wisconsin", "not Green Bay, Wisconsin", "Green Bay, Wisconsin or Madison",
        "Green Bay, Wisconsin, Canada", "Chicago (Green Bay)", "Green Bay, Chicago",
    ],
    ("Paris", "Where was she born?"): [
        "Paris, Texas", "Lyon, France", "Paris, France or London", "Paris, London", "Paris, England",
        "Paris, Rome, France", "France", "near Paris, France", "Paris, Texas, USA", "Par is", "P aris", "Pa ris",
        "not in Paris, France", "Paris, Ontario", "Paris and France",
    ],
    ("London", "Where?"): [
        "London, Ontario", "London, Canada", "London, Kentucky", "City of London", "London, France",
    ],
    ("David", "Who?"): ["Dav id", "Da vid", "Davi d"],
    ("Moscow", "Where?"): ["Mos cow", "Moscow, Idaho"],
    ("Washington, D.C.", "Where?"): [
        "Washington, Georgia", "Washington State", "Washington, Oregon", "Washington, D.C., Maryland",
    ],
    ("Georgia", "Which state?"): ["Georgia, Alabama", "Georgia, Florida", "Georgia and Alabama", "Georgia, Canada"],
    ("Germany", "Which country?"): [
        "Germany, Austria", "Germany, France", "Germany (Austria)", "East Germany", "Germany in Austria",
        "Germany, Africa",
    ],
    ("Texas", "Which state is it in?"): ["Texas, Oklahoma", "Austin, Oklahoma", "Texas, Mexico"],
    ("George IV", "Which king ruled in 1825?"): [
        "King George V of the United Kingdom", "George V", "George III", "King George III of the United Kingdom",
        "George IV's father", "the father of George IV", "William IV", "George of the United Kingdom",
        "King of the United Kingdom", "George",
    ],
    ("Seven Days Battles", "Which battles did Lee command?"): [
        "Seven Pines (1862)", "The Seven Years War", "Battle of Seven Pines", "(1862)",
        "The Seven Days Battles and Antietam (1862)",
    ],
    ("Hastings", "Where did he live?"): ["Battle of Hastings"],
    ("Jaws", "Which film did Spielberg direct?"): [
        "Jaws (novel)", "Jaws 2", "Jaws 2 (1978)", "Jaws (1975), Duel (1971)", "Duel (1971)", "Jaws, Duel",
        "Jaws (or Duel)",
    ],
    ("Barack Obama", "Who was president in 2010?"): [
        "Michelle Obama", "Barack Obama's father", "Barack Obama Sr.", "Barack Obama, Joe Biden",
        "the wife of Barack Obama", "former President George Bush", "President Joe Biden",
        "not Barack Obama, American politician", "Vice President Joe Biden", "Barack Obama's Vice President",
        "Barack Obama (or Joe Biden)",
    ],
    ("John Adams", "Who was the second president?"): ["Samuel Adams"],
    ("John Smith", "Who is the father of Mary Smith?"): [
        "the father of John Smith", "John Smith's father", "father of John Smith", "John Smith's son",
    ],
    ("James", "Who is the father of Mary?"): ["James' father", "the father of James", "James's father"],
    ("Titanic", "Which film did Cameron direct?"): [
        "the director of Titanic", "Titanic director", "the sequel of Titanic",
    ],
    ("8 kilometers", "How far is it?"): [
        "8 kilometers (9 miles)", "5 kilometers (8 miles)", "8 miles", "8 miles (13 km)", "5 miles",
        "8 kilometers or 5 miles away", "8 km (50 miles)", "about 8 kilometers (5 miles)", "8 km, 9 km",
    ],
    ("20 °C", "What temperature?"): ["20 °C (86 °F)", "20 °F"],
    ("480x800", "What resolution does it have?"): ["800x480 pixels", "480x640 pixels", "480 pixels", "800", "480x80"],
    ("323 BC to 272 BC", "When did he live?"): [
        "272 to 323 BC", "323 to 272", "323 to 271 BC", "323 BC", "272 BC", "323 AD to 272 AD", "323 BC to 272 AD",
    ],
    ("1939–1945", "When was the war?"): ["1939", "1939-46", "1945", "1914-18", "1939-44"],
    ("4月14日", "他的生日是哪一天？"): ["四月十五日", "五月十四日", "十四月四日", "四月", "四月四日"],
    ("北京", "中国的首都是哪里？"): [
        "京北", "上海市", "北京或上海", "南京市", "中国", "北京、上海", "中国上海", "北京大学", "不是北京", "北",
        "东京",
    ],
    ("中华人民共和国", "哪个国家？"): ["中華民國", "中华民国", "人民", "共和国", "中华", "民国"],
    ("鲁迅", "谁写了《狂人日记》？"): ["迅鲁", "鲁迅的父亲", "老舍先生", "鲁迅和老舍", "鲁", "周作人"],
    ("清华大学", "他毕业于哪所大学？"): ["北京大学", "大学", "清华大学附属中学", "华清大学", "清华大学和北京大学"],
    ("3", "有几个人？"): ["3万", "3%", "第3", "4个", "13个", "三十", "大约3个", "3到4个", "三四个"],
    ("12", "有多少部电影？"): ["十三部", "二十", "十二万部", "约12部", "一二"],
    ("120000", "人口是多少？"): ["12", "12千", "1.2万", "12亿"],
    ("1000", "How many people came?"): [
        "10 00", "1 00", "100", "1 000 000", "1M", "1 000 or 2 000", "1000K", "10000", "1.000.000", "100 0",
    ],
    ("12 million", "How many copies were sold?"): [
        "12B", "12", "12K", "1.2M", "12 million to 13 million", "120M", "12 metres",
    ],
    ("$12 million", "What did it cost?"): ["€12M", "12M", "$12B", "$12", "£12 million", "$12 million Canadian"],
    ("1990", "When was it released?"): [
        "the year 1991", "1990 years", "year 19", "the year before 1990", "1990 BC", "the year after 1990",
        "before the year 1990", "1990 (1991)", "1990 (re-released 1995)",
    ],
    ("-9", "What was the lowest temperature?"): ["9", "plus 9", "minus 8", "negative 10", "minus 90"],
    ("9", "What was the highest temperature?"): ["minus 9", "negative nine", "-9"],
    ("5", "How many seasons are there?"): [
        "exactly 6", "a total of 6 seasons", "5 (six)", "more than exactly 5", "5 seasons and 6 specials", "nearly 5",
        "a total of about 5",
    ],
    ("12", "How many eggs?"): ["a dozen or so", "two dozen", "dozens"],
    ("2/3", "What share?"): ["one third", "three halves", "two", "2", "3/2"],
    ("8:00 pm", "When does it start?"): ["8 a.m.", "8:30 pm", "9 pm", "08:00"],
    ("14 March 1879", "When was he born?"): [
        "14 mai 1879", "15 mars 1879", "14 de mayo de 1879", "14 mars 1880", "14 juin 1879", "14 марта 1880",
    ],
    ("yes", "Are both Hot Rod and Field & Stream magazines?"): [
        "Yes, only Hot Rod is a magazine", "Yes, only one is", "Yes, just Hot Rod is", "Yes, one of them is",
        "Yes, Hot Rod is a magazine but Field & Stream is a book", "Only Hot Rod is a magazine",
        "Neither is a magazine", "Yes, one is a magazine", "Yes, either one is", "Both are not magazines.",
        "They are not both magazines", "Hot Rod and Field & Stream", "Yes, Field & Stream isn't",
        "Yes for Hot Rod only", "Yes, Hot Rod is the only magazine", "Yes, Hot Rod alone is",
        "Yes, at least Hot Rod is a magazine",
    ],
    ("no", "Are both Hot Rod and Titanic magazines?"): [
        "No, both are magazines", "No, they are both magazines", "No, Hot Rod and Titanic are both magazines",
        "Both are magazines", "no way to know", "No, they are", "No, yes", "No idea", "Not sure", "No doubt both are",
        "No, that is not incorrect",
    ],
    ("yes", "Were Scott Derrickson and Ed Wood of the same nationality?"): [
        "Yes, they have different nationalities", "Yes, one was American and one was British",
        "Yes, Scott Derrickson was American while Ed Wood was British",
        "Yes, Scott Derrickson was American and Ed Wood was French", "Yes, of different nationalities",
    ],
    ("no", "Were Scott Derrickson and Jean Renoir of the same nationality?"): [
        "No, both were American", "No, they were both American", "No, they have the same nationality",
        "No, they are of the same nationality", "No, Scott Derrickson and Jean Renoir were both French",
    ],
    ("Apple", "Which company made it?"): ["Apple Records", "Apple Corps", "Apple Inc. and Google", "Apple Google"],
    ("American Bar Association", "Which group?"): ["American Basketball Association", "NBA", "AB"],
    ("NBA", "Which league?"): ["National Book Award", "NFL", "National Football League (NFL)"],
    ("Walt Disney", "Who founded it?"): ["Walt Disney Company", "Walt Disney Inc.", "The Walt Disney Company"],
    ("Psycho", "Which film?"): ["American Psycho", "Psycho II"],
    ("Michigan", "Which state is it in?"): ["Lake Michigan", "Michigan, Wisconsin"],
    ("actor", "What is his profession?"): [
        "actor, director", "director (actor)", "actor (singer)", "director and actor",
    ],
    ("American", "What nationality?"): [
        "American, British", "American (British)", "British American", "Canadian", "North American",
    ],
    ("Mercury", "Which planet is closest to the sun?"): [
        "Mercury (element)", "Mercury, Venus", "Venus (Mercury)", "Freddie Mercury",
    ],
    ("Nirvana", "Which band recorded it?"): ["Nirvana (film)", "Nirvana, Pearl Jam"],
    ("Tom Hanks", "Which actor played Forrest Gump?"): [
        "Tom Hanks, Canada and Meg Ryan", "actor Tom Cruise", "American actor Tom Cruise", "Tom Hanks (Tom Cruise)",
        "Colin Hanks, American actor", "Tom Hanks's wife", "Forrest Gump", "American actor", "actor",
    ],
    ("Lionel Messi", "Who won?"): ["Cristiano Ronaldo of Portugal", "Lionel Messi and Argentina", "Argentina"],
    ("Charles II", "Which king of England was it?"): [
        "Charles II of Spain", "Charles I of England", "Charles III", "Charles II of Navarre",
    ],
    ("Portland", "Where in Oregon?"): ["Portland, Maine"],
    ("Birmingham", "Which English city?"): ["Birmingham, Alabama"],
    ("Cambridge", "Which English city?"): ["Cambridge, Massachusetts"],
    ("University of Oxford", "Which one?"): ["University", "Oxford Brookes University", "University of"],
    ("New York City", "Where?"): ["City", "New York University", "New Jersey City"],
    ("Harvard University", "Which university?"): [
        "Harvard University, Yale University", "Yale University, Cambridge, Massachusetts",
    ],
    ("Marco Reus and Mario Balotelli", "Which players?"): [
        "1. Marco Reus 2. Mario Gomez", "Marco Reus, Mario Balotelli, Messi",
    ],
    ("Mumbai", "Which city?"): ["Delhi, India", "Mumbai, Delhi", "Mumbai, Pakistan"],
    ("18", "How old was she?"): ["18 months old", "about 18 years old", "over 18", "18 or 19 years old"],
    ("yes", "Is Paris the capital of France?"): ["Yes, Lyon is the capital of France"],
    ("United States", "Which country is he from?"): [
        "United Arab Emirates", "United States of Mexico", "United States, Canada", "Mexico, United States",
    ],
    ("South Korea", "Which country?"): ["North Korea", "Korea, North", "Republic of China"],
    ("Russia", "Which country?"): ["White Russia", "Soviet Union"],
    ("Frank Lowy", "Which man who presented the Australia 2022 FIFA World Cup bid was born on October 22, 1930?"): [
        "Steven Lowy", "Frank Lowy's son", "Ben Buckley, Australian businessman", "Frank Lowy or Ben Buckley",
        "Australia", "Frank Lowy and Ben Buckley", "October 22, 1930", "Frank Sinatra", "the son of Frank Lowy",
    ],
    ("James Packer", "Erica Packer was the second wife of what Australian businessman?"): [
        "Kerry Packer", "Erica Packer", "James Packer's father", "Kerry Packer, father of James Packer",
        "Australian businessman", "James Murdoch", "James Packer (American businessman)",
        "James Packer, Kerry Packer",
    ],
    ("Suicide Kings", "In what 1997 American mystery crime film did Johnny Galecki start in?"): [
        "Suicide Kings (1998)", "Suicide Squad", "Suicide Kings 2", "Suicide Kings (novel)",
        "Suicide Kings and Bounce", "the sequel to Suicide Kings",
    ],
    ("Scotland", "What country does Hatton Hill and Hatton Castle, Angus have in common?"): [
        "Scotland, Ireland", "England", "United Kingdom", "Scotland, England", "Scotland (England)", "Nova Scotia",
        "Northern Scotland and England", "Scotland, Canada",
    ],
    ("The A41", "What major truck road is located in Backford Cross?"): [
        "A40", "A4", "the M41", "A41 and A40", "A410", "road",
    ],
    ("September 8, 2017", "when was the album released?"): [
        "September 8, 2018", "August 8, 2017", "8 October 2017", "September 2017", "9 August 2017",
        "September 18, 2017", "8 août 2017", "8 septembre 2018", "before September 8, 2017", "September 8–10, 2017",
        "2017年8月9日",
    ],
    ("CBS", "what network?"): ["NBC", "ABC", "CBC", "CBS and NBC", "BBC", "CBS or ABC"],
    ("276,170 inhabitants", "What is the inhabitant of the city?"): [
        "276,171", "27,617", "276,170 households", "276,000", "276,170,000", "about 276,170",
    ],
    ("Évreux", "Where was the husband of Jeanne Raunay born?"): [
        "Rouen, France", "Évry, France", "Paris", "Évreux or Rouen", "Évreux, Rouen", "Normandy", "France",
    ],
    ("Pavia", "Where was the husband of Caterina Visconti born?"): [
        "Milan, Italy", "Pavia, Milan", "Padua", "Pavia, Spain and Milan", "Milan, Lombardy", "Lombardy",
    ],
    ("Alena Mihulová", "Who is the spouse of the director?"): [
        "Alena Vránová", "Karel Kachyňa", "Alena Mihulová's husband", "the husband of Alena Mihulová",
        "Czech actress", "Jana Mihulová",
    ],
    ("12 June 1516", "When did he die?"): [
        "12 June 1517", "12 July 1516", "June 1516", "12 June 1616", "21 June 1516", "12 June 1516 BC",
    ],
    ("Richland County", "In which county is the city?"): [
        "Lexington County", "Richland County and Lexington County", "Richmond County", "South Carolina",
        "Lexington County, South Carolina", "County", "Richland Parish",
    ],
    ("Saturn V", "What rocket was used?"): ["Saturn IB", "Saturn", "Saturn I", "Saturn VI", "Titan V", "Apollo 11"],
    ("July 27, 1953", "When did the war end?"): [
        "June 27, 1953", "July 27, 1950", "July 1953", "27 juin 1953", "July 28, 1953", "1953", "July 27",
    ],
    ("Real Madrid", "For which club did he play for in 2012?"): [
        "Atletico Madrid", "Real Sociedad", "Real Madrid and Milan", "Real Madrid Castilla", "AC Milan",
        "Real Madrid, Barcelona",
    ],
    ("James Madison", "Who was president?"): [
        "Dolley Madison", "James Monroe", "James Madison and James Monroe", "President James Monroe",
        "Thomas Jefferson, the third president of the United States", "James Madison's vice president",
        "the predecessor of James Madison", "James Madison University",
    ],
    ("131", "How many people died?"): [
        "130", "131,000", "1310", "about 131", "131 or 132", "more than 131", "131 injured and 20 dead", "13",
        "minus 131",
    ],
    ("China", "In what country is it?"): [
        "Republic of China", "Japan", "China or India", "China, India", "Indochina", "South China Sea", "中华民国",
        "台湾",
    ],
    ("15th place", "What position was Everton in?"): ["16th", "5th place", "15 points", "14th or 15th"],
    ("20,000 square meters", "What is the pavilion area?"): [
        "20,000 square feet", "2,000 square meters", "20,000 meters", "20,000",
        "20,000 square meters (20,000 square feet)", "20,000 cubic meters", "200,000 m²",
    ],
    ("66 hours", "How many hours?"): ["66 minutes", "66 days", "6 hours", "65", "about 66"],
    ("28天", "相差多少天？"): ["28周", "28年", "18天", "八天", "28小时", "二十天", "82天"],
    ("100", "总共颁发了多少项奖学金？"): ["一千项", "十项", "100多项", "1000", "约100项", "10项"],
    ("史豪斌", "谁成为副院长？"): [
        "豪斌史", "史斌豪", "史豪", "王豪斌", "史豪斌和张三", "副院长", "张三教授", "史豪斌的学生",
    ],
    ("2023-12-05", "是在什么日期？"): ["2023年5月12日", "2023年12月6日", "2022年12月5日", "12月5日", "2023年12月"],
    ("Henry VIII", "Which king had six wives?"): [
        "Henry VII", "King Henry VII of England", "Henry VIII's father", "Henry IX", "Henry", "King Henry",
        "the father of Henry VIII", "King of England", "Edward VIII", "the wives of Henry VIII",
    ],
    ("Catherine the Great", "Which empress ruled Russia?"): [
        "Catherine I of Russia", "Peter the Great", "Catherine of Aragon", "Catherine the Great's husband",
        "Empress of Russia", "Peter the Great of Russia",
    ],
    ("1984", "Which year was it?"): [
        "1985", "1984 BC", "the year after 1984", "'85", "19-84", "1984 (or 1985)", "84", "mid 1984",
        "around the year 1984",
    ],
    ("Pride and Prejudice", "Which novel did she write?"): [
        "Sense and Sensibility", "Prejudice and Pride and Zombies", "Pride and Prejudice and Emma",
        "Pride and Prejudice and Zombies", "Pride and Prejudice, Emma", "Emma (1815 novel)",
    ],
    ("Thriller", "Which album is the best-selling?"): [
        "Bad (1987 album)", "Thriller (song)", "Thriller, Bad", "Thriller and Bad", "Thriller 25",
    ],
    ("Federal Bureau of Investigation", "Which agency investigated?"): [
        "CIA", "Central Intelligence Agency", "FBI and CIA", "the CIA", "FIB", "Bureau", "Federal Bureau of Prisons",
    ],
    ("UNESCO", "Which organization?"): ["UNICEF", "United Nations", "UNESCO and UNICEF", "UN"],
    ("Google", "Which company bought YouTube?"): [
        "Microsoft Inc.", "Google Maps", "Google and Microsoft", "Yahoo (company)", "Google's rival",
    ],
    ("3.5 million", "What was the population?"): [
        "3.5 billion", "3.5", "35 million", "3,500", "3.5 thousand", "3.5K", "3 to 5 million", "5.3 million",
    ],
    ("$1.5 billion", "What did it cost?"): [
        "$1.5 million", "€1.5 billion", "1.5 billion", "$15 billion", "£1.5bn", "1.5 billion yen", "$1.5 trillion",
        "$1.5 to 2 billion",
    ],
    ("8,848 m", "How high is Mount Everest?"): [
        "8,848 ft", "8,849 m", "8.848 m", "848 m", "8,848 m (2,902 ft)", "8,611 m", "8,848 km",
    ],
    ("5 feet 11 inches", "How tall was he?"): [
        "5 feet 10 inches", "6 feet", "5'1\"", "11 feet 5 inches", "5.11 feet", "5 ft 11 in (170 cm)", "511 inches",
    ],
    ("37 °C", "What is body temperature?"): ["37 °F", "98.6 °C", "36 °C", "37°C (88°F)", "73 °C"],
    ("19th century", "In which century?"): [
        "18th century", "20th century", "19th and 20th century", "1900s", "19 centuries", "early 19th century BC",
    ],
    ("3rd century BC", "When?"): ["3rd century AD", "3rd century", "2nd century BC", "3 BC"],
    ("1914–1918", "When was the war?"): [
        "1914-19", "1914", "1918", "1914–1919", "1918–1914", "1915 to 1918", "1941-1945",
    ],
    ("800 BC–200 BC", "When?"): ["800 to 200", "800 AD to 200 BC", "200 to 800 BC", "800 BC", "800 BC to 200 AD"],
    ("5–10", "How many?"): ["5", "10", "5 or 10", "10 to 5", "5-11", "about 5", "15"],
    ("yes", "Is Berlin the capital of Germany?"): [
        "No, Berlin is not", "Berlin", "No, it is Munich", "Not really", "Yes and no", "Yes, if you like",
    ],
    ("no", "Is Munich the capital of Germany?"): [
        "Yes, Munich is the capital", "No, Munich is the capital of Germany", "Munich", "Not sure",
    ],
    ("yes", "Are both businesses, Telus and Ztr Control Systems, located in the same country?"): [
        "Yes, Telus is in Canada and Ztr is in Germany", "Yes, only Telus is in Canada",
        "Yes, they are in different countries", "Canada", "Both are businesses", "Telus",
        "Yes, but not in the same country",
    ],
    ("no", "Are Elsah, Illinois and Chah-E Puzeh, Tabas both located in the same country?"): [
        "No, both are located in Iran", "No, both are in the same country", "No, they are both in the United States",
        "No, they are located in the same country", "Iran",
    ],
    ("yes", "Did both bands form in Seattle?"): [
        "Yes, only one did", "Yes, one of them did", "Yes, neither did",
        "Yes, Nirvana formed in Seattle and Pearl Jam did not", "Seattle",
    ],
    ("John", "Who won, John or Mary?"): [
        "Mary", "John and Mary", "John, not Mary? Mary", "Mary won over John", "John (Mary)",
    ],
    ("red and blue", "What colors are in the flag?"): [
        "red and green", "red, blue and white", "red or blue", "blue, green",
    ],
    ("France, Germany and Italy", "Which countries signed it?"): [
        "France, Germany and Spain", "France, Germany, Italy and Spain", "France or Germany or Italy",
        "Spain, Italy, Portugal",
    ],
    ("Beijing", "Where were the games held?"): [
        "Nanjing, China", "Shanghai, China", "Beijing, Japan", "Beijing, Shanghai", "Beijing or Tokyo", "Bei jing",
        "China",
    ],
    ("Los Angeles", "Where is it?"): [
        "Los Angeles, Chile", "San Diego, California", "Los Alamos", "Los Angeles, Texas",
        "Los Angeles, San Francisco", "Los Ange les",
    ],
    ("Rochester, New York", "Where was he born?"): [
        "Rochester, Minnesota", "Rochester, MN", "Buffalo, New York", "Rochester, New York, Canada",
        "Rochester, England", "Rochester, Kent",
    ],
    ("Wembley Stadium", "Which stadium hosted the final?"): [
        "Wembley Arena", "Old Trafford", "stadium", "Emirates Stadium, London", "Wembley Stadium and Old Trafford",
    ],
    ("Battle of Waterloo", "Which battle ended his rule?"): [
        "Battle of Leipzig", "Battle of Trafalgar (1805)", "battle", "Battle of Waterloo and Leipzig",
        "the Battle of Water loo",
    ],
    ("World War I", "Which war?"): [
        "World War II", "Second World War", "WWII", "World War", "World War III", "World War I or II", "Cold War",
        "World War 1 and 2",
    ],
    ("John Paul II", "Who was pope in 1990?"): [
        "John Paul I", "Pope John Paul I", "John XXIII", "Pope Benedict XVI", "John Paul", "Paul II", "Pope",
    ],
    ("Elon Musk", "Who founded SpaceX?"): [
        "Kimbal Musk", "Elon Musk's brother", "SpaceX", "Jeff Bezos, founder of Blue Origin",
        "the brother of Elon Musk", "founder of SpaceX", "El on Musk",
    ],
    ("Edgar Allan Poe", "Who wrote The Raven?"): [
        "Edgar Rice Burroughs", "Allan Poe Edgar Smith", "The Raven", "Edgar Allan Poe or Hawthorne",
        "Edgar Allan Poe's wife",
    ],
    ("Hawaii", "In which state was he born?"): [
        "Honolulu", "Hawaii, Kenya", "Alaska, United States", "Hawaii or Kenya", "Hawaii, California",
    ],
    ("1,234,567", "What is the population?"): [
        "1,234,568", "123,456", "1 234", "1.234567", "12 345 67", "1,234,567,000", "7,654,321",
    ],
    ("42", "What is the answer?"): [
        "24", "4 2", "forty", "-42", "negative forty-two", "42%", "420", "fourty-three", "42 or 43",
    ],
    ("seventh", "In which place did he finish?"): ["8th", "sixth", "seven", "17th", "70th"],
    ("three times", "How many times did he win?"): ["twice", "four times", "3 or 4 times", "thirteen times", "once"],
    ("上海", "他在哪个城市工作？"): [
        "海上", "上海或北京", "北京市", "上 海 北京", "上海大学", "江苏上海北京", "不是上海",
    ],
    ("浙江大学", "他毕业于哪所大学？"): [
        "浙江工业大学", "大学", "江浙大学", "浙大学江", "复旦大学", "浙江大学和复旦大学",
    ],
    ("李白", "这首诗的作者是谁？"): ["白李", "李", "杜甫", "诗人杜甫", "李白或杜甫", "李白的朋友", "李太"],
    ("2008年", "奥运会是哪一年举办的？"): ["2012年", "二〇〇九年", "2008年前", "28年", "2008年或2012年"],
    ("1.5亿", "人口有多少？"): ["1.5万", "15亿", "1.5", "一亿五千", "5.1亿"],
    ("日本", "来自哪个国家？"): ["本日", "中国", "日本和中国", "韩国", "日", "日本人的朋友"],
    ("张艺谋", "谁导演了《红高粱》？"): ["陈凯歌", "谋艺张", "张艺", "张艺谋的妻子", "导演", "巩俐和张艺谋"],
    ("Peter Benchley", "Who wrote the novel Jaws?"): [
        "Robert Benchley", "Peter Benchley's father", "Nathaniel Benchley, author",
        "Steven Spielberg (author of Jaws)", "the editor of Peter Benchley", "Peter Bench ley", "Jaws by Spielberg",
        "Peter Benchley or Robert Benchley", "Benchley Park", "Peter Benchley, Robert Benchley", "author of Jaws",
    ],
    ("Nelson Mandela", "Who was the first black president of South Africa?"): [
        "Winnie Mandela", "F. W. de Klerk, president of South Africa", "Nelson Mandela's successor",
        "the successor of Nelson Mandela", "Thabo Mbeki", "President of South Africa", "Nelson Mandela, Thabo Mbeki",
        "the wife of Nelson Mandela", "Nelson Mandela Bay",
    ],
    ("Angela Merkel", "Who was chancellor of Germany in 2010?"): [
        "Chancellor Gerhard Schröder", "Angela Davis", "German Chancellor", "Helmut Kohl, Chancellor of Germany",
        "Angela Merkel's husband", "Olaf Scholz", "Angela Merkel or Gerhard Schröder",
    ],
    ("Steven Spielberg", "Who directed the film?"): [
        "director Steven Soderbergh", "Steven Spielberg's producer", "George Lucas (film director)",
        "the assistant of Steven Spielberg", "American film director", "Steven Spielberg and George Lucas",
        "the wife of Steven Spielberg", "Steven Seagal",
    ],
    ("Chicago", "In what city is the museum located?"): [
        "Chicago, Texas", "Springfield, Illinois", "Chicago Heights, Illinois", "Chicago or Detroit",
        "East Chicago, Indiana", "Chicago, Milwaukee", "Illinois", "Chicago, Indiana", "near Chicago",
        "outside Chicago", "Chicago, Wisconsin, USA",
    ],
    ("Atlanta", "What city hosted the 1996 Olympics?"): [
        "Atlanta, Texas", "Athens, Georgia", "Georgia", "Savannah, Georgia", "Atlanta, Sydney", "Atlanta or Athens",
        "Atlantic City",
    ],
    ("Dayton, Ohio", "Where were the accords signed?"): [
        "Dayton, Tennessee", "Columbus, Ohio", "Dayton, Texas", "Ohio, Dayton, Paris", "Cleveland, Ohio",
    ],
    ("Warsaw", "Where was Chopin raised?"): [
        "Warsaw, Indiana", "Krakow, Poland", "Poland", "Warsaw, Russia and Poland", "Warsaw or Krakow",
    ],
    ("Cardiff", "Where was Roald Dahl born?"): [
        "Swansea, Wales", "Cardiff, California", "Wales", "Cardiff, England", "Cardiff, Ireland", "Cardiff, Swansea",
    ],
    ("England", "In which country is the school?"): [
        "England, France", "Scotland", "New England", "England, Ireland", "England and Wales", "Great Britain",
        "England, Australia",
    ],
    ("Danube", "Which river flows through Vienna?"): [
        "Rhine River", "the Rhine", "Danube and Rhine", "Dan ube", "Danube, Rhine", "river",
    ],
    ("IBM", "Which company?"): [
        "Intel Corporation", "IBM and Microsoft", "International Brotherhood of Magicians", "IB", "HP",
        "IBM's competitor",
    ],
    ("International Monetary Fund", "Which organisation lent the money?"): [
        "World Bank", "IMF and World Bank", "MIF", "WTO", "the IAEA", "Fund",
    ],
    ("Massachusetts Institute of Technology", "Where did he study?"): [
        "MTI", "California Institute of Technology", "Caltech", "MIT and Harvard", "Harvard, Massachusetts",
        "University of Massachusetts",
    ],
    ("University of California, Los Angeles", "Which university?"): [
        "University of California, Berkeley", "UCSD", "University of Southern California, Los Angeles", "USC",
    ],
    ("Liverpool", "Which football club won?"): [
        "Everton F.C.", "Liverpool and Everton", "Liverpool or Everton", "Manchester City F.C.", "FC",
    ],
    ("1775–1783", "When was the war?"): [
        "1775", "1783", "1775–1784", "1776–1783", "1783–1775", "1775 and 1783", "1775 or 1783", "1775–1783 BC",
        "1812-15",
    ],
    ("753 BC", "When was Rome founded?"): ["753", "753 AD", "735 BC", "752 BC", "around 753 BC", "753 BC or 752 BC"],
    ("476", "When did it fall?"): ["476 BC", "475", "467", "after 476", "4 September 477", "476 or 480", "4760"],
    ("384–322 BC", "When did Aristotle live?"): [
        "322 to 384 BC", "384 to 322", "384–322 AD", "384 BC", "384 to 323 BC", "322 BC",
    ],
    ("15 March 1990", "When was it?"): [
        "15 May 1990", "15 mai 1990", "16 March 1990", "March 1990", "15 March 1991", "1990年5月15日", "15. Mai 1990",
        "15 March", "三月十五日", "15 avril 1990", "3 March 1990", "March 15 or 16, 1990",
    ],
    ("October 1917", "When did the revolution start?"): [
        "November 1917", "October 1918", "1917", "October", "10 1917 October 1918", "septembre 1917", "1917年11月",
    ],
    ("July 4", "On which day is the holiday?"): [
        "July 14", "June 4", "4 June", "July", "July 4-5", "the third of July", "4 juin", "七月五日",
    ],
    ("21 kilometers", "How long is the race?"): [
        "21 miles", "21 km (20 miles)", "12 km", "42 km", "21 meters", "13 miles (42 km)", "21 km (13 km)",
        "about 21 km", "13 kilometers (21 miles)",
    ],
    ("70 kg", "How heavy was he?"): ["70 lb", "70", "75 kg", "70 kg (70 lb)", "7 kg", "154 kg (70 lb)", "70 g"],
    ("25 million", "How many copies were sold?"): [
        "25 billion", "25", "2.5 million", "25K", "52 million", "25 million to 30 million", "over 25 million dollars",
        "25 million dollars", "25 million kilometers",
    ],
    ("7.8 billion", "What is the world population?"): [
        "7.8 million", "7.8", "78 billion", "8.7 billion", "7.8 billion dollars", "almost 7.8 billion",
    ],
    ("4,500", "How many soldiers took part?"): [
        "45,000", "4,500,000", "450", "4.5", "5,400", "4 50 0", "45 00", "4,500 or 5,000",
        "4,500 soldiers and 300 horses",
    ],
    ("-40", "At which temperature are both scales equal?"): ["40", "plus 40", "-4", "minus fourteen", "-40 to 40"],
    ("1/4", "What fraction?"): ["4", "1/3", "one third", "1 or 4", "three quarters", "four", "14"],
    ("1920x1080", "What is the resolution?"): [
        "1080x1920", "1920", "1080p", "1920x1200", "1280x720", "1920x1080 or 1280x720", "1920x108",
    ],
    ("yes", "Are Random House Tower and 888 7th Avenue both used for real estate?"): [
        "Yes, only Random House Tower is", "Yes, just one is used", "No, both are used for real estate",
        "Yes, neither is", "Random House Tower", "Yes, Random House Tower is but 888 7th Avenue isn't", "Yes, either",
        "Yes, one of the two is",
    ],
    ("no", "Are Ferocactus and Silene both types of cactus?"): [
        "No, both are types of cactus", "No, both are", "No, they are both cactus",
        "No, Ferocactus and Silene are both types of cactus", "No wonder, yes", "Silene", "No, all are", "No; yes",
        "No, they both are types of cactus",
    ],
    ("yes", "Did LostAlone and Guster have the same number of members?"): [
        "Yes, they had different numbers of members", "Yes, LostAlone had three while Guster had four",
        "No, they had the same number", "Yes, only LostAlone had three", "Three members",
    ],
    ("no", "Were both films released in 1990?"): [
        "No, both were released in 1990", "No, both films were released in 1990", "1990", "No, they were",
        "Yes, only one was",
    ],
    ("Tom Hanks", "Who starred in the film?"): [
        "Tom Hanks, Meg Ryan", "Tom Hanks (and Meg Ryan)", "Tom Hanks; Meg Ryan", "American actor Tim Hanks",
        "Mr. Hanks's brother", "Hanks Tom Cruise", "Tom Hanks and others", "Meg Ryan, who starred with Tom Hanks",
        "Tom Hanks, not Meg Ryan", "Tom Hanks in Paris, France and Meg Ryan",
    ],
    ("singer, songwriter, actor", "What are his occupations?"): [
        "singer, songwriter, director", "singer, songwriter, actor, director", "dancer",
    ],
    ("Mao Zedong", "Who founded the People's Republic of China?"): [
        "Mao Anying", "Chairman Xi Jinping", "Mao Zedong's son", "Zhou Enlai, Chinese politician",
        "People's Republic of China", "Mao Zedong or Zhou Enlai",
    ],
    ("毛泽东", "谁建立了新中国？"): [
        "毛东泽", "毛岸英", "周恩来主席", "毛", "毛泽东的儿子", "毛泽东和周恩来", "泽东毛",
    ],
    ("广州", "亚运会在哪个城市举办？"): [
        "州广", "深圳市", "广东", "杭州市", "广州和深圳", "广州或北京", "广东省深圳市", "广州大学",
    ],
    ("四川", "大熊猫在哪个省？"): ["川四", "四川和陕西", "云南省", "四川大学", "成都市", "四川市"],
    ("25", "有多少名学生？"): ["二十六", "五十二", "25%", "250名", "约25名", "二五", "二十几名", "25到30名", "2.5名"],
    ("北京大学", "他在哪所大学任教？"): [
        "京北大学", "北京师范大学", "南京大学", "北京大学附属中学", "清华大学", "北大京学", "北京大学和清华大学",
        "大学北京",
    ],
    ("牛顿", "谁发现了万有引力？"): ["顿牛", "爱因斯坦", "牛顿的老师", "物理学家爱因斯坦", "牛顿和莱布尼茨", "牛"],
    ("Michelangelo", "Who painted the ceiling of the Sistine Chapel?"): [
        "Michelangelo (Raphael)", "Michelangelo, Raphael", "Michelangelo Raphael", "Michelangelo and Raphael",
        "Raphael (born Michelangelo)", "Michelangelo (or Raphael)", "Michelangelo (not Raphael)",
        "Michelangelo (probably)", "Michelangelo (raphael)", "Michelangelo the younger",
        "Michelangelo Raphael Donatello", "Michelangelo's pupil", "Michelangelo Antonioni",
        "michelangelo, leonardo",
    ],
    ("Napoleon", "Who was the French emperor at Waterloo?"): [
        "Napoleon III", "Napoleon II",
    ],
    ("Henry", "Which king?"): [
        "Henry VIII",
    ],
    ("John Adams", "Who was the second President of the United States?"): [
        "John Adams Jr.", "John and Abigail Adams", "John Smith Adams or Jefferson",
    ],
    ("Martin Luther", "Who wrote the 95 theses?"): [
        "Martin Luther King", "Martin Luther King Jr.", "Martin Luther King, Jr.",
    ],
    ("George W. Bush", "Who was the 43rd President of the United States?"): [
        "George H. W. Bush", "George Herbert Walker Bush",
    ],
    ("John Wayne", "Which actor starred in True Grit (1969)?"): [
        "John Wayne Gacy", "John Wayne (Clint Eastwood)", "John Wayne Jr.", "John Wayne's son",
        "Patrick Wayne (son of John Wayne)", "Clint Eastwood (not John Wayne)",
    ],
    ("Alexandre Dumas", "Who wrote The Three Musketeers?"): [
        "Alexandre Dumas fils", "Alexandre Dumas Jr.",
    ],
    ("Titanic", "Which film was released first, Titanic or Avatar, both by James Cameron?"): [
        "Avatar came out before Titanic.", "Titanic came out after Avatar.",
        "Titanic was released later than Avatar.", "Avatar was released first, before Titanic.",
        "Titanic and Avatar came out first", "Titanic (2009), Avatar", "Titanic did not come out before Avatar.",
        "Titanic was released last",
    ],
    ("Nile", "Which river is longer, the Nile or the Danube?"): [
        "The Danube is longer than the Nile.", "The Nile is shorter than the Danube.",
        "The Nile is not longer than the Danube.", "The Nile and the Danube",
    ],
    ("Charles Darwin", "Who was born first, Charles Darwin or Charles Dickens?"): [
        "Charles Dickens was born before Charles Darwin.", "Charles Darwin was born after Charles Dickens.",
        "Charles Darwin is younger than Charles Dickens", "Charles Darwin was born last",
    ],
    ("Scott Sidney", "Which director had the longest career, Alain Resnais or Scott Sidney?"): [
        "Scott Sidney had the shorter career.", "Alain Resnais had the longer career.",
        "Alain Resnais had a longer career than Scott Sidney.",
    ],
    ("Vincenzo Galilei", "Who is the father of the father of observational astronomy?"): [
        "Galileo's father was Galileo Galilei", "Galileo's mother was Vincenzo Galilei", "Galileo Galilei",
        "Galileo's father was not Vincenzo Galilei", "Vincenzo Galilei's father was Michelangelo",
    ],
    ("Iron", "Which element has the atomic number 26?"): [
        "Iron (or gold)", "Iron (Gold)", "Iron, gold", "Iron (gold)", "Gold (Fe)", "Gold (Iron)",
    ],
    ("Lion", "Which animal is known as the king of the jungle?"): [
        "Lion (Tiger)", "Tiger (Panthera leo)", "Lion (or tiger)", "Lion, tiger",
    ],
    ("Mount Everest", "What is the highest mountain?"): [
        "Mount Everest (K2)", "K2 (8,849 m)", "Mount Everest, K2",
    ],
    ("Tokyo", "What is the capital of Japan?"): [
        "Tokyo (Kyoto)", "Kyoto (formerly Tokyo)", "Tokyo (formerly, now Kyoto)", "Tokyo, Kyoto", "Kyoto (东京)",
    ],
    ("221B Baker Street", "What is the name of the street where Sherlock Holmes lives, with the number?"): [
        "10 Baker Street, London", "221 Baker Street, Texas",
    ],
    ("Bonn", "In which city was Ludwig van Beethoven born?"): [
        "Beethoven was not born in Bonn, Germany.", "Bonn, Austria", "Vienna, near Bonn", "Bonn (Vienna)",
        "Born in Vienna, not Bonn",
    ],
    ("Jaws", "Which film was directed by Spielberg in 1975?"): [
        "Jaws (novel)", "Jaws (the novel by Peter Benchley)", "Jaws (2012)",
    ],
    ("玉山", "台湾最高的山峰是哪座?"): [
        "泰山(海拔3952米)", "玉山(泰山)", "玉山或泰山", "玉山、泰山", "不是玉山", "玉山(又或泰山)",
        "雪山（又称玉山）",
    ],
    ("刘备", "《三国演义》中,与关羽、张飞桃园结义的是谁?"): [
        "曹操(字孟德)", "刘备(曹操)", "刘备(或曹操)", "刘备的儿子", "刘备和曹操", "刘备之子刘禅", "刘备，曹操",
    ],
    ("6300公里", "长江的长度约为多少公里?(题文:长江全长约6300公里。)"): [
        "6300米", "630千米", "63000公里", "6300英里", "约630公里", "超过6300公里",
    ],
    ("8848米", "珠穆朗玛峰高多少米?"): [
        "8848公里", "8848英尺", "约8848米", "884.8米", "8848厘米",
    ],
    ("50公斤", "这袋米重多少公斤?"): [
        "50克", "50吨", "50磅", "500公斤",
    ],
    ("100美元", "价格是多少?"): [
        "100元", "100欧元", "€100",
    ],
    ("不是", "秦始皇和汉武帝是同一个朝代的皇帝吗?"): [
        "是", "是的", "是,也不是", "不是不是", "不是,是的", "可能不是", "是的，他们是同一个朝代的皇帝", "不一定",
        "不是或是", "不是吧，他们都是秦朝的皇帝",
    ],
    ("是", "李白和杜甫都是唐代诗人吗?"): [
        "否,杜甫是宋代诗人。", "不是", "是，但杜甫不是", "是的，只有李白是",
        "是的，李白是唐代诗人，而杜甫是宋代诗人", "不", "也许是", "是或不是", "是吗", "是不是", "是的，两人都不是",
    ],
    ("杨利伟", "第一位进入太空的中国人是谁?"): [
        "航天员翟志刚", "翟志刚和航天员杨利伟", "并非航天员杨利伟", "翟志刚航天员杨利伟", "杨利伟的妻子",
        "杨利伟的战友翟志刚",
    ],
    ("鲁迅", "《狂人日记》的作者是谁?"): [
        "鲁迅（原名或为周作人）", "周作人（鲁迅的弟弟）", "鲁迅（周作人）", "鲁迅的弟弟", "鲁迅,周作人",
    ],
    ("Barack Obama", "Who was the 44th President of the United States?"): [
        "Barack and Michelle Obama", "Barack Obama Sr.", "Barack Obama's wife", "Michelle Obama",
        "Barack Hussein Obama Sr.",
    ],
    ("Mark Twain", "Who wrote Huckleberry Finn?"): [
        "Mark Twain (or Charles Dickens)", "Mark Twain, Charles Dickens", "Charles Dickens (born Mark Twain)",
        "Mark Twain (Charles Dickens)", "Mark Twain, born Charles Dickens or Samuel",
        "Mark Twain (born in Paris, not Texas)",
    ],
    ("Leonardo da Vinci", "Who painted the Mona Lisa?"): [
        "Leonardo di Caprio", "the Italian painter Raphael", "Leonardo da Vinci (Michelangelo)",
        "Leonardo da Vinci's pupil", "Raphael, pupil of Leonardo da Vinci", "Leonardo da Vinci, Michelangelo",
        "Leonardo and da Vinci or Raphael",
    ],
    ("Franz Liszt", "Which composer wrote the Hungarian Rhapsodies?"): [
        "Franz Schubert", "Franz Schubert Liszt or", "Cosima Liszt", "Hungarian composer Béla Bartók",
        "Franz Liszt (Bartók)",
    ],
    ("Elton John", "Which singer was born Reginald Dwight?"): [
        "Reginald Dwight", "Olivia Newton-John", "Elton John (George Michael)", "George Michael (born Elton John)",
        "Elton John's husband",
    ],
    ("Sodium", "Which element has the symbol Na?"): [
        "Potassium (Na)", "Sodium (or potassium)", "Sodium, potassium", "Na", "Sodium (potassium)",
    ],
    ("Istanbul", "What is the largest city in Turkey?"): [
        "Ankara (formerly Istanbul)", "Istanbul, Greece", "Istanbul (Ankara)", "Istanbul (formerly Ankara)",
        "Istanbul (not Ankara)",
    ],
    ("Mount Everest", "Which mountain is higher, Mount Everest or K2?"): [
        "K2 is higher than Mount Everest.", "Mount Everest is lower than K2", "Mount Everest and K2 are higher",
        "Mount Everest is not higher than K2", "Mount Everest is higher, K2 is higher",
        "Mount Everest or K2 is higher", "Neither Mount Everest nor K2",
    ],
    ("Elizabeth", "Who is older, Elizabeth or Mary?"): [
        "Elizabeth is younger.", "Mary is older than Elizabeth.", "Elizabeth Mary is older",
        "Elizabeth is older, Mary is older", "Elizabeth is older or younger", "Elizabeth's mother is older",
    ],
    ("Nokia", "Which company was founded earlier, Nokia or Apple?"): [
        "Nokia was founded later.", "Apple was founded before Nokia.", "Nokia was founded after Apple",
        "Nokia was founded in 1865, Apple was founded earlier", "Apple, founded before Nokia",
    ],
    ("Salzburg", "Where was Mozart born?"): [
        "Mozart was born in Vienna, near Salzburg.", "Mozart was not born in Salzburg.", "Mozart died in Salzburg.",
        "Salzburg, Germany", "Mozart was born in Salzburg or Vienna.",
    ],
    ("北京", "2008年夏季奥运会在哪个城市举办?"): [
        "不在北京举办", "北京和上海", "北京（上海）", "东京（北京）", "在东京举办", "北京大学",
    ],
    ("李白", "《静夜思》是谁写的?"): [
        "唐代诗人杜甫", "杜甫（字太白）", "李白（杜甫）", "李白和杜甫", "李白的朋友", "李白之子", "诗人杜甫和李白",
        "非李白",
    ],
    ("长江", "中国最长的河流是哪条?"): [
        "黄河（6300公里）", "长江（黄河）", "长江、黄河", "长江大桥", "长江或黄河",
    ],
    ("30分钟", "他走了多少分钟?"): [
        "30小时", "30秒", "3小时", "约30分钟", "0.5分钟",
    ],
    ("是的", "苹果公司是美国公司吗?"): [
        "不是", "否", "是的，但总部在英国", "不对", "没有", "没错吗", "是中国公司",
    ],
    ("没有", "他结过婚吗?"): [
        "有", "结过", "是的", "没有，不，结过",
    ],
    ("Hillary Clinton", "Who was Secretary of State from 2009 to 2013?"): [
        "Chelsea Clinton", "Hillary and Bill Clinton", "Hillary Clinton (or John Kerry)",
        "Hillary Clinton, John Kerry", "Bill Clinton (husband of Hillary Clinton)",
        "John Kerry, successor of Hillary Clinton",
    ],
    ("William Shakespeare", "Who wrote Hamlet?"): [
        "William Shakespeare or Marlowe", "William and Shakespeare", "William Marlowe (born William Shakespeare)",
        "William Shakespeare Jr.", "William Shakespeare (Marlowe)", "Who wrote Hamlet?",
    ],
    ("Johann Strauss", "Who composed the Radetzky March?"): [
        "Johann Strauss II", "Johann Strauss Jr.", "Richard Strauss", "Johann Strauss the Younger",
    ],
    ("yes", "Are both Paris and Lyon in France?"): [
        "Yes, but Lyon is not", "No, both are in France", "Yes, only Paris is", "yes or no",
        "Yes, Paris is in France and Lyon is in Italy.",
    ],
    ("Tom Hanks", "Which actor is the father of Colin Hanks?"): [
        "Colin Hanks", "Tom Hanks's son", "Colin Hanks's father was Colin Hanks",
    ],
    ("George Bush", "Who was the father of George Walker Bush?"): [
        "George Walker Bush",
    ],
    ("4,812", "What is the population of the village as of the 2011 census?"): [
        "The 2011 census recorded a population of 4 821.", "48.12", "4 812 km", "2011",
        "The population was not 4,812.", "The 2011 census recorded 5,000, not 4,812.", "The population is over 4,812.",
        "Half of 4,812 people", "between 4,000 and 4,812", "The village has 4,812 sheep and 200 people",
        "It grew by 4,812 people", "4,812 thousand", "twice 4,812", "nearly 4,812", "4,812 square miles",
    ],
    ("128", "How many rooms does the hotel have?"): [
        "The hotel has 128 rooms and suites 12", "The hotel has 12 rooms", "The hotel has more than 128 rooms",
        "At most 128 rooms", "The hotel has 128% more rooms", "128 floors", "The hotel lost 128 rooms",
    ],
    ("27", "How old was the singer when she died?"): [
        "She died at the age of 72", "27 days", "She died 27 years ago", "27 months old",
    ],
    ("299,792,458 m/s", "What is the speed of light in vacuum?"): [
        "299,792,458 km/s", "299,792,458 m/h", "299,792,458 m", "299,792,458 mph", "299792.458 m/s", "299,792,458 s/m",
        "299,792,458 m/s²",
    ],
    ("9.81 m/s²", "What is the acceleration?"): ["9.81 m/s", "9.81 m²/s", "8.91 m/s²", "9.81 cm/s²"],
    ("7.87 g/cm3", "What is the density of iron?"): ["7.87 kg/m³", "7.87 g/m3", "7.87 g", "7.87 cm3/g"],
    ("120 people per square kilometre", "What is the population density?"): [
        "120 per square mile", "120 people", "120 km²", "12/km²",
    ],
    ("5 GB", "How large is the file?"): ["5 MB", "5 Gb", "5 gigabits", "5 TB", "50 GB"],
    ("450 nm", "What is the wavelength?"): ["450 mm", "450 μm", "450 nautical miles", "4.5 nm"],
    ("2,500 kWh", "How much energy does it use?"): ["2500 kW", "2500 MWh", "2.5 kWh", "2500 kJ"],
    ("9.11 × 10^-31 kg", "What is the mass of the electron?"): [
        "9.11e-30 kg", "9.11 × 10^31 kg", "9.11 × 10^-31 g", "9.11 × 10^-13 kg", "1.67 × 10^-27 kg", "9.11", "9.11 kg",
    ],
    ("6.022 × 10^23", "What is Avogadro's number?"): ["6.022 × 10^-23", "6.022", "6.022 × 10^22", "602.2", "6.022e32"],
    ("15 °C", "What is the mean temperature?"): ["15 °F", "15 K", "-15 °C", "15 degrees Fahrenheit", "15%"],
    ("$12.5 million", "What was the budget?"): [
        "$12.5 billion", "€12.5 million", "$12.5", "12.5 million pounds", "$125 million", "12.5 million",
        "over $12.5 million",
    ],
    ("15.3%", "该公司2023年营收同比增长多少?"): [
        "百分之十五", "百分之三十五点一", "15.3亿元", "下降15.3%", "15.3", "增长1.53%", "千分之十五点三",
        "减少百分之十五点三",
    ],
    ("75%", "What percentage of the vote did he receive?"): [
        "25%", "75", "three quarters of a million", "one quarter", "7.5%", "75 votes",
    ],
    ("3.5亿元", "该项目的总投资额是多少?"): [
        "3.5万元", "35亿元", "3.5亿美元", "人民币5.3亿元", "3.5亿港元", "3500万元", "约3.5亿元", "超过3.5亿元",
        "3.5亿日元",
    ],
    ("500港元", "票价是多少?"): ["500元人民币", "500美元", "50港元", "500台币"],
    ("公元前221年", "秦始皇统一六国是在哪一年?"): ["221年", "公元221年", "前212年", "公元前206年", "221 AD"],
    ("1970s", "In which decade was disco most popular?"): [
        "the 1980s", "1870s", "the sixties", "1970", "1970–1989", "17th century",
    ],
    ("20世纪80年代", "这部电影是什么时候拍的?"): ["19世纪80年代", "20世纪90年代", "80年", "1880年代", "20世纪"],
    ("13世纪", "哪个世纪?"): ["公元前13世纪", "12世纪", "13年", "30世纪"],
    ("summer 1969", "When did it take place?"): ["winter 1969", "summer 1996", "1969", "spring of 1969", "summer"],
    ("third quarter of 2020", "When did the company report it?"): ["Q2 2020", "Q3 2021", "third of 2020", "2020"],
    ("8 May 1945", "When did the Second World War end in Europe?"): [
        "9 May 1945 (V-E Day)", "8 May 1945 (or 9 May)", "8 May 1945 (not certain)", "2 September 1945 (V-J Day)",
        "V-E Day", "before 8 May 1945", "8 May 1945 BC", "8 May 1945 (perhaps)", "after 8 May 1945", "8 May",
        "not on 8 May 1945 (V-E Day)", "1945",
    ],
    ("1945", "When did the Second World War end?"): [
        "1945 (or 1946)", "by 1945", "after 1945", "1945 (unclear)", "not in 1945", "around 1945", "1945 BC",
        "before 1945", "1945 (possibly later)",
    ],
    ("11:40 pm", "What time did the ship strike the iceberg?"): [
        "11:40 am", "11:40", "23:04", "12:40 pm", "11:40 in the morning", "20:40",
    ],
    ("10:00", "When does the shop open?"): ["10 p.m.", "22:00", "1:00", "10:30", "10%"],
    ("noon", "At what time does it ring?"): ["midnight", "12 am", "afternoon", "00:00"],
    ("14:30 UTC", "What time?"): ["14:30 EST", "2:30 am UTC", "14:00 UTC", "4:30 UTC"],
    ("晚上10点", "图书馆几点关门?"): ["上午10点", "晚上9点", "10:00", "早上10点", "22日", "晚上10点半"],
    ("下午3点半", "会议几点开始?"): ["下午3点", "凌晨3点半", "3:30 am", "下午4点半", "13:30"],
    ("3比1", "该比赛的比分是多少?"): ["1:3", "1比3", "3:2", "31", "3比1或3比2", "3:10", "不是3比1", "3"],
    ("2–0", "What was the final score?"): ["0–2", "2–1", "20", "2", "2-0 or 3-0", "2:00 pm", "20-0", "nil-two"],
    ("6–4, 6–3", "What was the score of the final?"): ["6-3, 6-4", "6-4, 6-2", "6-4", "4-6, 3-6", "6-4, 6-3, 6-1"],
    ("16:9", "What is the aspect ratio?"): ["9:16", "4:3", "16:10", "169", "16"],
    ("978-0-306-40615-7", "What is the ISBN of the first edition?"): [
        "9780306406158", "978-0-306-40651-7", "978-0-306", "0-306-40615-2", "97803064061571",
        "9780306406157 or 9780306406158",
    ],
    ("+1 555-123-4567", "What is the phone number?"): [
        "+1 555-123-4576", "555-1234", "+44 555-123-4567", "123-4567", "+1 555 123 4567 and +1 555 123 4568",
    ],
    ("010-62751234", "学院的联系电话是多少?"): ["021-62751234", "010-62751243", "62751", "010"],
    ("10.1000/182", "What is the DOI?"): ["10.1000/128", "10.1000", "https://doi.org/10.1001/182", "182"],
    ("2.7.1", "Which version introduced it?"): ["v2.7", "2.7.10", "2.1.7", "27.1", "version 2", "2.7.1 or 2.7.2"],
    ("Python 3.8", "Which version of Python introduced the walrus operator?"): [
        "Python 3.7", "Python 3", "3.9", "Python 2.8", "Python", "Python 38",
    ],
    ("ISO 9001", "Which standard?"): ["ISO 9002", "ISO 14001", "ISO", "9001 pages", "IEC 9001"],
    ("https://www.example-conf.org/", "What is the official website of the conference?"): [
        "https://www.example-conf.com/", "https://www.example-conf.org/2019", "example.org", "https://conf.org",
        "https://www.example-conf.org.uk", "info@example-conf.org",
        "https://www.example-conf.org or https://example.com",
    ],
    ("https://example.org/a/b", "What is the URL?"): [
        "https://example.org/a/c", "https://example.org", "https://example.org/a", "https://example.org/b/a",
    ],
    ("cs.stanford.edu", "What is the website of the department?"): [
        "stanford.edu", "ee.stanford.edu", "cs.stanford.com", "https://cs.stanford.edu/people",
    ],
    ("info@example.edu.cn", "该活动的联系邮箱是什么?"): [
        "info@example.edu", "admin@example.edu.cn", "example.edu.cn", "info@sample.edu.cn",
    ],
    ("\\pi/2", "What is the value of the integral?"): [
        "2/\\pi", "\\pi", "2\\pi", "\\frac{2}{\\pi}", "\\pi/3", "-\\pi/2", "\\pi/2 or \\pi", "1.57", "\\pi^2",
        "\\pi/2 + C",
    ],
    ("x^2+1", "What is the derivative?"): ["x^2-1", "x+1", "2x", "x^3+1", "1", "x^{2+1}"],
    ("$\\sqrt{2}$", "What is the length?"): ["2", "\\sqrt{3}", "2\\sqrt{2}", "1.4"],
    ("$O(n \\log n)$", "What is the complexity of merge sort?"): [
        "O(n)", "O(n^2)", "O(\\log n)", "O(n^2 log n)", "log n",
    ],
    ("$E = mc^2$", "Which formula did Einstein find?"): ["E = mc", "E = m^2c", "F = ma", "E = mc^3"],
    ("H2O2", "What is the formula of hydrogen peroxide?"): ["H2O", "HO2", "O2H", "H2O3", "H_2O", "H2SO4"],
    ("Fe3+", "Which ion is formed?"): ["Fe2+", "Fe", "Fe3-", "Cu2+", "Fe²⁺", "Fe3"],
    ("128人", "该学院有多少名教职工?"): [
        "128家公司", "182名教职工", "128名学生", "128%", "128元", "不足128人", "128万人", "约128名教职工", "128多人",
        "128人以上", "12名教职工8名学生",
    ],
    ("55个", "中国有多少个少数民族?"): ["56个", "55种语言", "5个", "55年", "五五"],
    ("三百人", "有多少人参加了会议?"): ["三千人", "300多人", "三百万人", "约300人", "3人", "300年"],
    ("2万元", "奖金是多少?"): ["20万元", "2万美元", "2000元", "2万欧元", "2亿元"],
    ("25岁", "她结婚时多大?"): ["25天", "52岁", "25个月", "25年前", "25岁以上"],
    ("广东省深圳市", "这家公司的总部在哪里?"): [
        "广东省", "广州", "广东省广州市", "深圳大学", "湖南省", "不在深圳", "深圳或广州", "深圳和香港", "广东",
    ],
    ("深圳", "这家公司的总部在哪里?"): ["广东省", "广东省广州市", "深圳和广州", "不在深圳", "深州", "广州深圳路"],
    ("李白", "哪一位诗人被称为\"诗仙\"?"): [
        "李白(杜甫)", "杜甫(唐代诗人)", "李白的诗", "李黑", "李白、杜甫", "李白或杜甫", "不是李白", "诗仙",
        "杜甫，与李白齐名", "李白之父",
    ],
    ("陈晓明", "该论文的第一作者是谁?"): [
        "陈晓", "陈明晓", "陈晓明和李华", "李华（陈晓明的学生）", "第二作者陈晓明", "陈晓明的导师", "陈小明",
        "第一作者不是陈晓明",
    ],
    ("自强不息,厚德载物", "该校的校训是什么?"): ["自强不息", "求是创新", "自强不止,厚德载物"],
    ("断背山", "李安凭哪部电影获得2006年奥斯卡最佳导演奖?"): [
        "《卧虎藏龙》", "《断臂山》", "《断背山》和《色戒》", "不是《断背山》", "《山背断》",
    ],
    ("张伟、李娜、王强", "该课程由哪三位教授讲授?"): [
        "张伟、李娜", "张伟、李娜、赵强", "张伟、李娜、王强、赵六", "张娜、李伟、王强",
    ],
    ("北京和张家口", "2022年冬季奥运会在哪里举行?"): [
        "北京", "北京和上海", "北京、张家口和延庆", "张家口", "北京或张家口",
    ],
    ("不是", "这两部电影的导演是同一个人吗?"): [
        "是", "是同一个人", "可能不是", "不清楚", "是，导演相同", "不是不是同一个人",
    ],
    ("是", "两家公司是否都成立于上海?"): [
        "不是", "否,一家成立于北京", "是否都成立于上海", "都不成立于上海", "只有一家成立于上海", "一家公司成立于上海",
        "都成立于北京",
    ],
    ("2023年10月12日", "会议什么时候举行?"): [
        "2023年12月10日", "2023年10月", "10月12日之前", "2023年10月12日或13日", "2022年10月12日",
        "2023年10月12日至15日",
    ],
    ("10月12日至15日", "会议什么时候举行?"): ["10月12日", "10月15日至12日", "10月12日至16日", "11月12日至15日"],
    ("1869–1877", "What years did Ulysses S. Grant serve as president?"): [
        "1869", "1877–1869", "1869–1878", "1868 to 1877", "until 1877",
    ],
    ("10 km", "How far?"): ["10 miles", "10 m", "100 km", "1 km", "10", "over 10 km"],
    ("31.5 square kilometres", "What is the area of the lake?"): [
        "31.5 km", "31.5 square miles", "31.5 m²", "315 km²", "31.5 cubic kilometres",
    ],
    ("5 feet 7 inches", "How tall is she?"): [
        "7 feet 5 inches", "5.7 feet", "57 inches", "5 feet", "7 inches", "5 m 7 cm",
    ],
    ("3 hours 20 minutes", "How long?"): [
        "3 minutes 20 hours", "320 minutes", "3.2 hours", "20 minutes", "3 hours", "3:20 pm",
    ],
    ("1 million", "How many?"): ["1 billion", "1", "million", "10 million", "100,000"],
    ("第三名", "他得了第几名?"): ["第一名", "第十三名", "前三名", "第三名或第四名"],
    ("Aldous Huxley", "Who wrote Brave New World?"): [
        "George Orwell, a friend of Aldous Huxley", "Aldous Huxley's brother Julian", "Julian Huxley",
        "It was George Orwell who wrote it, not Aldous Huxley", "Some say Aldous Huxley, but it was H. G. Wells",
        "Huxley Aldous Orwell", "the wife of Aldous Huxley", "the biographer of Aldous Huxley",
        "a critic of Aldous Huxley", "Aldous Huxley, George Orwell", "Aldous Huxley (or George Orwell)",
        "aldous huxley, george orwell", "either orwell or Aldous Huxley",
    ],
    ("Titan", "What is the largest moon of Saturn?"): [
        "Titan, Rhea", "Titania", "Rhea, larger than Titan", "Ganymede, which is larger than Titan", "Saturn",
    ],
    ("Facebook", "Which company acquired WhatsApp in 2014?"): [
        "WhatsApp", "Google, a competitor of Facebook", "Facebook was outbid by Google", "Instagram (Facebook)",
    ],
    ("New York City", "Where did Nikola Tesla die?"): [
        "New Jersey City", "Nikola Tesla was born in New York City.", "He lived in New York City",
        "near New York City", "New York City, 1850",
    ],
    ("Peru", "In which country is Machu Picchu located?"): [
        "Lima", "Bolivia, next to Peru", "Peru, Bolivia", "Peru, Illinois", "Peru and Ecuador",
    ],
    ("Arizona", "In which state is the Grand Canyon?"): [
        "Phoenix", "Arizona, Utah", "Nevada (near Arizona)", "California, then Arizona",
    ],
    ("Icelandic", "What nationality is Björk?"): ["Irish", "Ireland"],
    ("French", "What is the nationality of the director?"): ["French Canadian", "Belgian", "German, not French"],
    ("Korean", "What is the nationality of the director?"): ["North Korea"],
    ("Niger", "Which country is she a citizen of?"): ["Nigerian"],
    ("Dominica", "Which country is she a citizen of?"): ["Dominican Republic"],
    ("South Korea", "Which country is she a citizen of?"): ["North Korean"],
    ("Guinea", "Which country is she a citizen of?"): ["Papua New Guinea"],
    ("George W. Bush", "Who was president?"): ["George Bush"],
    ("John Quincy Adams", "Who was president?"): ["John Adams"],
    ("John Adams", "Who was president?"): ["John Quincy Adams"],
    ("James Earl Ray", "Who shot Martin Luther King Jr.?"): ["James Earl Jones", "Martin Luther King Jr."],
    ("John Wilkes Booth", "Who assassinated Abraham Lincoln?"): [
        "Edwin Booth, brother of John Wilkes Booth", "Abraham Lincoln", "John Wilkes",
        "Lee Harvey Oswald (not John Wilkes Booth)", "an accomplice of John Wilkes Booth",
    ],
    ("Osman I", "Who founded the Ottoman state?"): ["Osman II"],
    ("Sapiens: A Brief History of Humankind", "Which book did Harari write?"): ["A Brief History of Time"],
    ("Star Wars: The Empire Strikes Back", "Which film is it?"): ["Star Wars"],
    ("Thor: Ragnarok", "Which film is it?"): ["Thor"],
    ("Titanic", "Which film is it?"): ["Titanic II", "Titanic, avatar", "titanic or Avatar"],
    ("Alien", "Which film is it?"): ["Aliens"],
    ("bass guitar", "What instrument did Jaco Pastorius play?"): [
        "guitar", "bass guitar, drums", "bass clarinet", "bass guitar player",
    ],
    ("engineer", "What is his occupation?"): ["sound engineer's assistant"],
    ("president", "What is his occupation?"): ["vice president"],
    ("director", "What is his occupation?"): ["assistant director"],
    ("actor", "What is his occupation?"): ["actor, singer, dancer, writer", "director and actor"],
    ("nurse", "What is his occupation?"): ["nursery teacher"],
    ("romantic comedy", "What genre is the film?"): ["comedy"],
    ("comedy", "What genre is the film?"): ["black comedy drama"],
    ("rhythm and blues", "What genre is the band?"): ["blues"],
    ("science fiction", "What genre is the film?"): ["science fantasy"],
    ("University of Washington", "Which university did she attend?"): ["Washington University"],
    ("Miami University", "Which university did she attend?"): ["University of Miami"],
    ("Michigan State University", "Which university did she attend?"): ["University of Michigan"],
    ("University of Oxford", "Which university did she attend?"): ["Oxford Brookes University"],
    ("University of Cambridge", "Which university did she attend?"): ["Cambridge, Massachusetts"],
    ("Nobel Prize in Literature", "Which award did she win?"): ["Nobel Prize in Physics", "Nobel Prize"],
    ("Academy Award for Best Actress", "Which award did she win?"): ["Academy Award for Best Supporting Actress"],
    ("350 Fifth Avenue", "What is the address?"): ["530 Fifth Avenue, New York", "350 Fifth Street", "Fifth Avenue"],
    ("Portland, Maine", "Where was he born?"): ["Portland, Oregon"],
    ("Paris, Texas", "Where was he born?"): ["Paris, France", "Paris"],
    ("Birmingham, Alabama", "Where was he born?"): ["Birmingham"],
    ("Nashville, Tennessee", "Where was he born?"): ["Tennessee", "Memphis, Tennessee"],
    ("Super Bowl XLII", "Which World Cup?"): ["Super Bowl 43"],
    ("Louis XIV", "Which king?"): ["Louis XV"],
    ("Eminem", "Who is the rapper?"): ["Eminem (Dr. Dre)"],
    ("Keanu Reeves", "Who played Neo?"): [
        "Neo", "Laurence Fishburne, who co-starred with Keanu Reeves", "Keanu Reeves played Morpheus",
        "Will Smith, before Keanu Reeves", "Will Smith turned it down and Keanu Reeves",
    ],
    ("Seine", "Which river flows through Paris?"): [
        "The Thames, not the Seine", "the Marne, a tributary of the Seine", "Seine-Maritime", "Paris",
    ],
    ("Johann Wolfgang von Goethe", "Wer schrieb Faust?"): [
        "Friedrich Schiller, ein Freund von Johann Wolfgang von Goethe", "nicht Johann Wolfgang von Goethe",
    ],
    ("Salzburg", "Wo wurde Mozart geboren?"): ["Wien oder Salzburg", "Mozart wurde nicht in Salzburg geboren."],
    ("Victor Hugo", "Qui a écrit Les Misérables ?"): [
        "Ce n'est pas Victor Hugo.", "Victor Hugo ou Émile Zola", "l'ami de Victor Hugo",
    ],
    ("Pablo Picasso", "¿Quién pintó el Guernica?"): ["No fue Pablo Picasso", "Pablo Picasso o Salvador Dalí"],
    ("no", "Is Pluto a planet?"): ["Yes, Pluto is a planet."],
    ("yes", "Are Kobe and Osaka both in Japan?"): ["No, Kobe is in Japan and Osaka is too"],
    ("no", "Was he ever married?"): ["He married twice."],
    ("yes", "Was he ever married?"): ["He never married."],
    ("black and white", "Which two colors?"): ["black", "black, white and red"],
    ("France and Spain", "Which countries border it?"): ["France"],
    ("Larry Page and Sergey Brin", "Who were the founders?"): [
        "Larry Page", "Larry Page and Steve Jobs", "Larry Page, Sergey Brin and Eric Schmidt",
    ],
    ("Venus", "Which planet is the hottest?"): ["Mercury, hotter than Venus", "Venus, mars"],
    ("Alexander Fleming", "Who discovered penicillin?"): [
        "Howard Florey, who worked with Alexander Fleming", "Alexander Fleming Jr.", "Ian Fleming", "Fleming, Ian",
        "Contrary to common belief, it was not Alexander Fleming",
        "Alexander Fleming is often credited, but Ernest Duchesne found it first", "penicillin",
    ],
    ("yen", "What is the currency of Japan?"): ["yuan"],
    ("Parasite", "Which film won?"): ["Parasite, 1917", "Parasite and Joker"],
    ("Geneva", "Which city hosts it?"): [
        "Geneva, Zurich", "Lausanne, near Geneva", "Lake Geneva", "Geneva, Illinois",
    ],
    ("The New York Times", "Which newspaper?"): ["The Times", "New York Post", "New York"],
    ("Labour Party", "Which party?"): ["Conservative Party", "Party"],
    ("Chicago Bulls", "Which team won?"): [
        "Chicago", "Chicago Bears", "The Lakers beat the Chicago Bulls.", "Chicago Bulls lost to the Lakers",
    ],
    ("George VI", "Who was Elizabeth II's father?"): [
        "Edward VIII, brother of George VI", "George V, father of George VI", "Elizabeth II",
    ],
    ("Atlantic Ocean", "Which ocean?"): ["Pacific Ocean", "South Atlantic Ocean and Indian Ocean"],
    ("Bachelor of Arts", "What degree did she earn?"): ["MA", "Bachelor of Science"],
    ("Neil Armstrong", "Who was the first person to walk on the Moon?"): [
        "Buzz Aldrin, after Neil Armstrong", "Louis Armstrong", "Neil Armstrong and Buzz Aldrin",
        "Neil Armstrong, the Los Angeles",
    ],
    ("Stanford University", "Which university did he attend?"): ["Stanford University, the Los Angeles"],
    ("Claude Monet", "Who painted it?"): ["Édouard Manet", "Claude Manet"],
    ("insulin", "Which hormone regulates blood sugar?"): ["insulin, glucagon", "glucagon, the opposite of insulin"],
    ("Elon Musk", "Who is the current CEO of Tesla?"): [
        "Tim Cook, who met Elon Musk", "Kimbal Musk", "the predecessor of Elon Musk", "Elon Musk's brother",
        "someone other than Elon Musk", "Elon Musk resigned; the CEO is Tom Zhu",
        "Elon Musk until 2020, then Tom Zhu",
    ],
    ("Serena Williams", "Who was the runner-up?"): [
        "Venus Williams", "Venus Williams, sister of Serena Williams", "Venus Williams (lost to Serena Williams)",
    ],
    ("HMS Beagle", "What is the name of the ship?"): ["HMS Bounty", "Beagle 2"],
    ("Ming dynasty", "Which dynasty ruled China from 1368 to 1644?"): [
        "Qing dynasty", "Qing dynasty, after the Ming dynasty", "the dynasty before the Ming dynasty",
    ],
    ("Viking 1", "Which spacecraft first landed on Mars?"): ["Viking 2", "Mars 3, not Viking 1", "Viking"],
    ("Emirates", "Which airline flies there?"): ["United Arab Emirates"],
    ("Def Jam Recordings", "Which record label signed her?"): ["Atlantic Records", "Recordings"],
    ("Hans Zimmer", "Who composed the score for Inception?"): [
        "Hans Christian Andersen", "John Williams, like Hans Zimmer", "a student of Hans Zimmer", "Hans",
    ],
    ("Elizabeth Bowes-Lyon", "Who is the mother of Queen Elizabeth II?"): [
        "Queen Elizabeth II", "Queen Mary, mother-in-law of Elizabeth Bowes-Lyon",
    ],
    ("Moby-Dick", "Which novel begins with \"Call me Ishmael\"?"): ["Herman Melville", "Ishmael"],
    ("Vincent van Gogh", "Who painted Starry Night?"): [
        "Theo van Gogh", "Paul Gauguin, friend of Vincent van Gogh", "Vincent", "a forger imitating Vincent van Gogh",
    ],
    ("Denali", "What is the highest mountain in North America?"): [
        "Mount Logan", "Mount Logan (second to Denali)", "Denali, Mount Logan", "Denali or Logan",
    ],
    ("Kyoto", "Where is the headquarters of Nintendo?"): ["Tokyo, Japan", "Osaka, close to Kyoto", "Kyoto, Osaka"],
    ("Kyoto, Japan", "Where is the headquarters of Nintendo?"): ["Japan", "Tokyo, Japan"],
    ("Barbados", "What country is the singer from?"): ["Bermuda", "Antigua and Barbuda"],
    ("England", "What country is the singer from?"): ["Wales", "Ireland"],
    ("Austria", "What country is the singer from?"): ["Australian", "Australia"],
    ("India", "What country is the singer from?"): ["Indonesian"],
    ("American", "What is his citizenship?"): ["South American", "Canadian"],
    ("British", "What is his citizenship?"): ["English-born American"],
    ("Barack Obama", "Which US president was born in Hawaii?"): [
        "Hawaii", "John McCain, who lost to Barack Obama", "the opponent of Barack Obama",
        "Barack Obama Sr., the father",
    ],
    ("Keith Moon", "Who was the drummer of The Who?"): [
        "Kenney Jones, who replaced Keith Moon", "Keith Richards", "He replaced Keith Moon", "The Who",
    ],
    ("Poseidon", "Which Greek god rules the sea?"): [
        "Neptune", "Zeus, brother of Poseidon", "Poseidon, Zeus", "Triton (son of Poseidon)",
    ],
    ("hemoglobin", "What protein carries oxygen?"): [
        "myoglobin, not hemoglobin", "hemoglobin, myoglobin", "hemoglobin and myoglobin",
    ],
    ("pancreas", "Which organ produces insulin?"): [
        "liver, near the pancreas", "liver", "the liver, a gland larger than the pancreas",
    ],
    ("Foo Fighters", "Which band did he found?"): [
        "Nirvana", "Nirvana, before Foo Fighters", "Foo Fighters, Nirvana", "a Foo Fighters tribute band",
    ],
    ("Nobel Prize in Physics", "Which prize did he win in 1921?"): [
        "Nobel Prize in Chemistry", "Nobel Prize in Physics, 1922", "Fields Medal",
    ],
    ("Old Norse", "Which language did they speak?"): ["Norse", "Norwegian", "Old English"],
    ("Nicholas II", "Who was the last Tsar?"): [
        "Nicholas I", "Alexander III, father of Nicholas II", "Michael, brother of Tsar Nicholas II", "Nicholas",
    ],
    ("Steve Jobs", "Who founded Apple?"): ["Steve Wozniak", "Steve Ballmer", "Apple Jobs", "Laurene Powell Jobs"],
    ("marsupial", "What type of animal is it?"): ["placental mammal", "not a marsupial"],
    ("diesel", "What kind of engine is it?"): ["petrol engine", "diesel or petrol engine"],
    ("Operation Overlord", "What was the name of the operation?"): ["Operation Neptune", "Operation"],
    ("Eton College", "Which school did he attend?"): ["Harrow, a rival of Eton College", "Imperial College"],
    ("Harvard Law School", "Which school did he attend?"): ["Harvard Business School", "Yale Law School"],
    ("Trinity College, Cambridge", "Which college did he attend?"): [
        "Trinity College, Dublin", "King's College, Cambridge",
    ],
    ("Heathrow Airport", "Which airport is it?"): ["Gatwick Airport", "London"],
    ("Walt Disney Company", "Who owns it?"): ["Walt Disney", "Company"],
    ("Alfred Hitchcock", "Who directed Psycho?"): [
        "Psycho", "Gus Van Sant, remaking Alfred Hitchcock", "an admirer of Alfred Hitchcock",
        "Alfred Hitchcock was fired and Gus Van Sant directed it", "Alfred Pennyworth",
    ],
    ("yes", "Did the Titanic sink?"): ["It did not.", "No, it never sank."],
    ("no", "Is the Earth flat?"): ["The Earth is flat.", "Yes, no doubt."],
    ("yes", "Do they share a border?"): ["They do not share a border."],
    ("no", "Do they share a border?"): ["They share a border."],
    ("no", "Are both directors from France?"): ["Yes, only one of them is from France."],
    ("yes", "Are both directors from France?"): ["Only one of them is from France."],
    ("Loire", "Quel est le plus long fleuve de France ?"): [
        "la Seine", "la Garonne, pas la Loire", "un affluent de la Loire",
    ],
    ("Konrad Adenauer", "Wer war der erste Bundeskanzler?"): [
        "Ludwig Erhard, Nachfolger von Konrad Adenauer", "Nicht Konrad Adenauer, sondern Ludwig Erhard",
        "der Sohn von Konrad Adenauer",
    ],
    ("Granada", "¿Dónde está la Alhambra?"): ["En Córdoba, no en Granada", "Sevilla o Granada", "cerca de Granada"],
    ("Roma", "Dove si trova il Colosseo?"): ["Non a Roma"],
    ("Luís de Camões", "Quem escreveu Os Lusíadas?"): ["O amigo de Luís de Camões"],
    ("Christopher Columbus", "Who discovered America?"): [
        "a sailor named after Christopher Columbus", "Contrary to the textbooks, Christopher Columbus",
        "the crew of Christopher Columbus", "Leif Erikson, centuries before Christopher Columbus",
        "People wrongly believe Christopher Columbus", "It is a myth that Christopher Columbus discovered America",
        "Christopher Columbus is the wrong answer", "Christopher Columbus did not",
        "Christopher Columbus (disputed), Leif Erikson", "rather than Christopher Columbus, Vespucci",
        "Amerigo Vespucci, inspired by Christopher Columbus", "Christopher Columbus, Amerigo Vespucci, Leif Erikson",
    ],
    ("Rio de Janeiro", "Which city was the capital before Brasília?"): [
        "São Paulo, larger than Rio de Janeiro", "Salvador, then Rio de Janeiro", "Rio Grande",
        "Rio de Janeiro, Argentina",
    ],
    ("Heat", "Which film did he direct?"): [
        "Dead Heat", "Heat 2", "Heat, Collateral", "the remake of Heat", "a parody of the film Heat", "Heat (novel)",
    ],
    ("The Insider", "Which film did he direct?"): ["Insider Trading"],
    ("1,776 feet", "How tall is One World Trade Center?"): [
        "1776 m", "1,776 inches", "1,767 feet", "1776 meters tall", "over 1,776 feet", "1776",
        "1,776 feet and 5 inches",
    ],
    ("5.5%", "What was the unemployment rate?"): [
        "5.5", "55%", "5.5 percentage points", "0.55%", "5.5 per mille", "five percent", "5%",
    ],
    ("$2.50 per gallon", "How much did gas cost?"): [
        "$2.50 per liter", "$2.50", "$25 per gallon", "2.50 gallons per dollar", "€2.50 per gallon",
    ],
    ("24 hours", "How long did it last?"): ["24 minutes", "24 days", "2 days", "12 hours"],
    ("18 months", "How long was the sentence?"): ["18 years", "18 weeks", "1.8 years", "8 months", "1 year"],
    ("250 million years", "How old is the rock?"): ["250 years", "250 billion years", "25 million years"],
    ("7.9", "What was the magnitude of the earthquake?"): ["9.7", "7.8", "79", "7.9 km", "7.9 million"],
    ("-89.2 °C", "What is the lowest temperature recorded?"): ["89.2 °C", "-89.2 °F", "-98.2 °C", "-89.2 K"],
    ("1.4 billion", "What is the population of China?"): [
        "1.4 million", "14 billion", "1.4", "140 million", "1.3 billion", "1.4 billion dollars", "1.4亿",
    ],
    ("3/4", "What fraction of the seats?"): ["4/3", "3:4", "34", "1/4", "three", "75"],
    ("twice", "How many times did he win?"): ["once", "three times", "2nd", "twice as much", "2 years"],
    ("2:03:59", "What was his marathon time?"): ["2:03:58", "2:30:59", "2:03", "203:59", "2:03:59 pm or 2:04"],
    ("c. 570 BC", "When was Pythagoras born?"): ["570 AD", "around 750 BC", "570", "c. 570", "57 BC"],
    ("between 1880 and 1885", "When was it built?"): ["1880", "1885", "1880 and 1885", "1885-1880", "1880-1886"],
    ("25 December", "When is Christmas Day?"): [
        "December 24", "25 November", "December", "25", "December 2025", "26 December",
    ],
    ("Monday", "What day of the week was it?"): [
        "Tuesday", "Sunday or Monday", "not Monday", "Mondays and Fridays", "Friday",
    ],
    ("March 2020", "When did the lockdown begin?"): [
        "March 2021", "May 2020", "2020", "March", "before March 2020", "after March 2020", "March or April 2020",
        "03/2002",
    ],
    ("23 June 2016", "When was the referendum held?"): [
        "24 June 2016", "June 2016", "23 July 2016", "23 June 2015", "2016", "23 June 2016 or later",
        "The referendum was not held on 23 June 2016.", "23 June", "since 23 June 2016",
    ],
    ("1812", "When did Napoleon invade Russia?"): [
        "1821", "1812 or 1813", "before 1812", "War of 1812", "1,812 men", "1812 BC", "not 1812", "1812–1815", "18.12",
        "1812 km",
    ],
    ("8:30 a.m.", "What time does school start?"): [
        "8:30 p.m.", "20:30", "8:00 a.m.", "9:30", "8:30 days", "half past nine", "3:80",
    ],
    ("3 p.m.", "When did it happen?"): ["3 a.m.", "3", "03:00", "13:00", "3 days", "凌晨3点"],
    ("4–2", "What was the score of the 1966 World Cup final?"): [
        "2–4", "4–3", "42", "4.2", "4–2 or 3–2", "West Germany lost", "4 goals",
    ],
    ("1:50,000", "What is the scale of the map?"): ["50,000:1", "1:5,000", "1:500,000", "50,000", "1:25,000"],
    ("192.168.0.1", "What is the default IP address?"): ["192.168.1.1", "192.168.0.10", "192.168.0", "10.0.0.1"],
    ("90210", "What is the ZIP code?"): ["90211", "9021", "902100", "09210", "90210-90213"],
    ("CS 229", "What is the course number?"): ["CS 230", "CS 22", "EE 229", "CS"],
    ("iOS 14.5", "Which iOS version introduced it?"): [
        "14", "iOS 15.4", "Android 14.5", "iOS 14", "14.50.1", "iPadOS 13",
    ],
    ("github.com/pytorch/pytorch", "What is the URL of the repository?"): [
        "https://github.com/pytorch", "https://github.com/pytorch/vision", "https://gitlab.com/pytorch/pytorch",
        "pytorch.org", "https://github.com",
    ],
    ("\\frac{3}{4}", "What is the probability?"): ["4/3", "0.7", "3/5", "\\frac{4}{3}", "34", "1/4"],
    ("$2^{10}$", "How many states?"): ["10^2", "20", "2^{11}", "210"],
    ("$x = 3$", "What is the solution?"): ["x = -3", "y = 3", "x = 13", "x \\ne 3", "x > 3", "x=3 or x=4"],
    ("$a^2+b^2=c^2$", "What is the theorem?"): ["a+b=c", "a^2-b^2=c^2", "a^2+b^2=c", "a^2+b^2"],
    ("e^{i\\pi} + 1 = 0", "What is Euler's identity?"): ["e^{i\\pi} - 1 = 0", "e^{\\pi} + 1 = 0", "e^{i} + 1 = 0"],
    ("CO2", "Which gas?"): ["CO", "C2O", "SO2", "CO3", "CO2 and CO", "O2"],
    ("二十四", "一年有多少个节气?"): ["二十五", "12", "24小时", "四十二", "24%", "二四", "24多个", "约24个"],
    ("9600万", "抖音日活跃用户数是多少?"): ["9600", "9600亿", "960万", "超过9600万", "9600万元", "近9600万"],
    ("1.2万亿元", "GDP是多少?"): ["1.2亿元", "1.2万元", "12万亿元", "1.2万亿美元", "约1.2万亿元"],
    ("35%", "占比是多少?"): ["百分之五十三", "3.5%", "35", "不到35%", "35个百分点", "65%", "超过35%"],
    ("第12位", "排名第几?"): ["第2位", "第21位", "前12位", "12%", "第十位"],
    ("周一至周五", "办公时间是哪几天?"): ["周一至周六", "周五", "周一", "周一和周五", "周五至周一"],
    ("8:30-17:30", "办公时间是几点到几点?"): ["8:30-17:00", "17:30-8:30", "8:30", "8:00-17:30", "9:30-17:30"],
    ("浙江省杭州市", "阿里巴巴总部在哪?"): [
        "浙江省", "浙江省宁波市", "杭州湾", "上海市", "不在杭州", "杭州或上海", "浙江大学", "杭州师范大学",
    ],
    ("成都", "大熊猫基地在哪个城市?"): ["四川省", "四川省绵阳市", "重庆", "成都和雅安", "成都大学", "四川"],
    ("四川省", "大熊猫基地在哪个省?"): ["陕西省", "四川大学", "成都市", "四川和陕西", "不在四川", "四川路"],
    ("北京市海淀区中关村南大街5号", "学校地址是什么?"): [
        "北京市海淀区中关村南大街15号", "北京市海淀区", "中关村北大街5号", "北京市朝阳区中关村南大街5号", "5号",
    ],
    ("王小明教授", "该实验室的负责人是谁?"): [
        "王明教授", "王小明的学生", "李教授", "王大明教授", "教授", "王小明和李华", "副负责人王小明",
    ],
    ("《三国演义》", "罗贯中的代表作是什么?"): [
        "《水浒传》", "《三国志》", "三国", "《三国演义》和《水浒传》", "不是《三国演义》",
    ],
    ("红色、黄色、蓝色", "三原色是哪三种?"): ["红色、黄色", "红色、黄色、绿色", "红色、黄色、蓝色、绿色", "红色"],
    ("是", "上海是直辖市吗?"): ["不是", "不是直辖市", "是省会", "上海不是直辖市", "是不是直辖市", "可能是", "no"],
    ("否", "苏州是省会吗?"): ["是", "是省会", "苏州是省会", "可能不是", "是的,苏州是省会", "yes"],
    ("有", "该专业有硕士点吗?"): ["没有", "没有硕士点", "不清楚", "无"],
    ("Trygve Lie", "Who was the first secretary-general of the UN?"): [
        "Dag Hammarskjöld", "Dag Hammarskjöld succeeded Trygve Lie", "the successor to Trygve Lie",
    ],
    ("Gamal Abdel Nasser", "Who was the president of Egypt from 1956 to 1970?"): [
        "Anwar Sadat, vice president under Gamal Abdel Nasser", "Abdel Fattah el-Sisi",
    ],
    ("Hafez al-Assad", "Who founded the Ba'ath-era government?"): ["Bashar al-Assad"],
    ("Pyotr Ilyich Tchaikovsky", "Which composer wrote The Nutcracker?"): [
        "Igor Stravinsky", "Modest Ilyich Tchaikovsky",
    ],
    ("Ministry of Foreign Affairs", "Which ministry issues it?"): [
        "Ministry of Home Affairs", "Ministry of Foreign Trade",
    ],
    ("Norwegian", "What is the nationality of the author?"): ["Sweden", "Danish-Norwegian"],
    ("Jamaica", "Which country did she represent?"): ["Bahamas"],
    ("Tanzania", "In what country is the lake?"): ["Kenya, bordering Tanzania", "Kenya and Tanzania", "Zanzibar"],
    ("Ann Arbor, Michigan", "Where is the university located?"): [
        "Detroit, Michigan", "Michigan", "East Lansing, near Ann Arbor, Michigan",
    ],
    ("Toto", "What is the name of her dog?"): ["Dorothy", "Dorothy, owner of Toto"],
    ("red", "What color was the car?"): ["blue", "red and blue", "red or maroon", "not red"],
    ("historical fiction", "What genre is the novel?"): ["science fiction", "historical romance"],
    ("lawyer", "What was his profession?"): ["paralegal", "a lawyer's clerk", "judge, formerly a lawyer"],
    ("teacher", "What was his job?"): ["student teacher", "teacher, plumber, baker"],
    ("Shaftesbury Avenue", "Which street is the theatre on?"): [
        "Charing Cross Road", "Shaftesbury Street", "off Shaftesbury Avenue",
    ],
    ("Charles I", "Which king was executed in 1649?"): [
        "Charles II", "James I, father of Charles I", "the son of Charles I",
    ],
    ("Midnight's Children", "Which book won the Booker Prize in 1981?"): [
        "Shame", "Salman Rushdie", "The White Hotel, beaten by Midnight's Children", "Midnight's Children, Shame",
    ],
    ("Radiohead", "Which band released \"OK Computer\"?"): [
        "Coldplay, inspired by Radiohead", "Thom Yorke of Radiohead", "Radiohead and Coldplay",
        "Muse (compared to Radiohead)",
    ],
    ("Adriatic Sea", "Which sea separates Italy from the Balkans?"): [
        "Aegean Sea", "Ionian Sea, south of the Adriatic Sea", "Sea",
    ],
    ("mercury", "Which element is liquid at room temperature?"): [
        "bromine", "mercury and bromine", "gallium, unlike mercury",
    ],
    ("ostrich", "Which bird cannot fly?"): ["emu, like the ostrich", "emu or ostrich", "ostrich, emu, kiwi"],
    ("Wilhelm Röntgen", "Who discovered X-rays?"): [
        "Marie Curie", "Wilhelm Wien", "an assistant of Wilhelm Röntgen", "Nikola Tesla before Wilhelm Röntgen",
    ],
    ("Ringo Starr", "Who is the drummer?"): [
        "Pete Best", "Zak Starkey, son of Ringo Starr", "Pete Best was replaced by Ringo Starr",
        "Ringo Starr's replacement Jimmie Nicol",
    ],
    ("The Washington Post", "Which newspaper broke the story?"): [
        "The Washington Times", "New York Post", "Washington",
    ],
    ("Breaking Bad", "Which TV series is it?"): [
        "Better Call Saul, a spin-off of Breaking Bad", "the prequel to Breaking Bad",
        "Breaking Bad, Better Call Saul",
    ],
    ("New Zealand", "Where was it filmed?"): ["Australia", "New Zealand and Australia", "Australia, not New Zealand"],
    ("May", "Which month did it open?"): ["March", "May or June"],
    ("yes", "Was the bridge built before 1900?"): ["No, it was built in 1932.", "It was not built before 1900."],
    ("no", "Was the bridge built before 1900?"): ["Yes, the bridge was built in 1883."],
    ("yes", "Are both rivers in Asia?"): ["No, the Volga is in Europe."],
    ("no", "Are both rivers in Asia?"): ["Both rivers are in Asia.", "The rivers are in Asia."],
    ("blue, white and red", "Which three colours are on the flag?"): ["blue and white", "blue, white and green"],
    ("Munich and Berlin", "Which two cities hosted?"): ["Munich", "Munich and Hamburg", "Munich, Berlin and Hamburg"],
    ("Democratic Party", "Which party won?"): [
        "Republican Party", "Social Democratic Party", "Democratic Republican Party",
    ],
    ("Doctor of Philosophy", "What degree does he hold?"): ["Doctor of Medicine"],
    ("Master of Business Administration", "What degree does he hold?"): ["Bachelor of Business Administration"],
    ("Warschau", "Wie heißt die Hauptstadt von Polen?"): ["Krakau", "Krakau war vor Warschau die Hauptstadt"],
    ("Émile Zola", "Quel est l'auteur de Germinal ?"): [
        "Gustave Flaubert, ami d'Émile Zola", "un disciple d'Émile Zola",
    ],
    ("Guadalquivir", "¿Cómo se llama el río que pasa por Sevilla?"): ["el Tajo, no el Guadalquivir"],
    ("Gemma Donati", "Come si chiama la moglie di Dante?"): ["Beatrice Portinari, rivale di Gemma Donati"],
    ("Barack Obama", "Who won the 2012 election?"): [
        "Mitt Romney, who ran against Barack Obama", "Barack Obama lost", "Joe Biden with Barack Obama",
        "Barack Obama was defeated", "Barack Obama, defeated by Mitt Romney", "It could be Barack Obama",
        "Michelle, wife of Barack Obama", "Barack, not Obama", "no one; Barack Obama withdrew", "Obama's rival",
    ],
    ("Liam Gallagher", "Which of the Gallagher brothers sang in Oasis?"): ["Gallagher", "Noel", "Liam or Noel"],
    ("Nintendo", "Which company makes the Switch?"): ["Nintendo Music Group"],
    ("B", "Which one follows? A. Iron B. Zinc C. Lead D. Tin"): ["C. Zinc", "B. Lead", "B or C"],
    ("1815", "En quelle année a eu lieu la bataille ?"): ["C'était le 18 juin 1816.", "C'était avant 1815."],
    ("1837", "In what year did the ship sink?"): ["It sank in May 1838.", "It sank before May 1837."],
    ("Sammy Davis Jr.", "Which singer was it?"): ["Mr. Sammy Davis, Sr."],
    ("Sidney Poitier", "Who is older, Sidney Poitier or Bill Cosby?"): ["Poitier is younger", "Cosby is older"],
    ("21%", "What percentage of the air is oxygen?"): ["more than 21 percent", "approximately 12 percent"],
    ("Hodgkin", "What is the last name of the winner?"): ["Hodgkin (Dorothy Curie)"],
    ("Finnish", "What nationality was the composer?"): ["He was Finnish (Swedish).", "Finnish (Jean Sibelius)"],
    ("KOH", "What is the chemical formula of potash lye?"): ["KOH (or NaOH)", "NaOH (potassium hydroxide)"],
}
TRICKS = (
    "{g} or {h}", "{h} or {g}", "{g} and {h}", "{h} and {g}", "{g}, {h}", "{h}, {g}", "{g}; {h}", "{g}\n{h}",
    "{g}/{h}", "{h} / {g}", "both {g} and {h}", "either {g} or {h}", "{g} (or {h})", "{g} ({h})", "not {g}",
    "not {g} but {h}", "{h}, not {g}", "unlike {g}, {h}", "maybe {g}", "probably {g}", "1. {g} 2. {h}",
    "- {g}\n- {h}", "{g} | {h}", "{g} {h}", "{h} {g}", "{g} vs {h}", "anything but {g}", "it isn't {g}",
    "{g} is wrong", "I don't know, {g}?", "{g}, maybe", "{g}, possibly {h}", "possible answers: {g}, {h}",
    "{g} {h} {i}", "{h}; {g}; {i}", "{h}, {i}, or {g}", "The answer is {g} or {h}",
    "The answer is {g}. The answer is {h}.", "{g}, alternatively {h}", "{g} aka {h}", "{g} -> {h}", "{g} unless {h}",
    "if not {g} then {h}", "neither {g} nor {h}", "{h} rather than {g}", "everyone except {g}", "{h} instead of {g}",
    "{g}... {h}", "{g}}} \\boxed{{{h}", "I think {g}", "could be {g}", "{q}", "{h} {q}", "{g} & {h}",
    "{g} as well as {h}", "{g} plus {h}", "{g} with {h}", "{g}: {h}", "{g} - {h}", "{g} = {h}", "{g} {g}",
    "{g} does not answer this", "It is false that it is {g}", "not {g}, {h}, {i}", "the opposite of {g}", "{g}+{h}",
    "{g}\t{h}", "{g}或{h}", "不是{g}", "{g}、{h}", "{g} OR {h}", "{g} and/or {h}", "e.g. {g}, {h}",
    "one of {g}, {h}, {i}", "{g} or else {h}", "no, {g}", "never {g}", "hardly {g}", "Is it {g} or {h}?",
    "['{g}', '{h}']", "{{\"a\": \"{g}\", \"b\": \"{h}\"}}", "\"{g}\" \"{h}\"", "{g} in {h}", "{g} of {h}",
    "{h} is {g}", "{g} is {h}", "the {g} the {h}", "{h} from {g}", "It was {h} {g}",
    "{h} {i} {j} {k} {g}", "{h}\n{i}\n{j}\n{k}\n{g}",
)
