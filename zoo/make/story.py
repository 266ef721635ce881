"""Short stories in simple English, from a grammar.

A story is a cast, a place and a plot. The plot fixes causes and consequences; the sentences that
tell it vary. The key (plot, hero, friend, place, thing) decides whether a story is held out, so no
held-out story can occur in training.
"""
import zlib

from grammar import an, expand, held_out, sentence

GIRLS = """Ada Alma Anya Bea Clara Dora Edda Elsa Emmy Faye Flora Gita Greta Hana Hedy Ida Ines Iris Ivy Jana June Kara
Lena Lily Lotte Luna Maja Mara Mila Mina Mira Nell Nina Nora Olga Ona Pia Rosa Runa Sana Sara Selma Suki Tess Tilda Una
Vera Wilma Yuki Zoe""".split()
BOYS = """Abe Alvin Anton Arlo Axel Ben Bruno Carl Cato Dan Edgar Elio Emil Ezra Felix Finn Fritz Gus Hal Hugo Igor Ivan
Jack Jonas Juri Kai Karl Leo Levi Luca Luis Max Milo Nico Nils Noel Odin Omar Oscar Otto Pablo Paul Piet Remy Rolf Sam
Sven Theo Tim Tom Udo Viggo Walt Yan""".split()
BEASTS = """badger bear beaver crow deer donkey duck fox frog goat goose hare hedgehog heron lamb mole mouse otter owl
pony rabbit raven robin seal sheep snail sparrow squirrel stork swan toad turtle wolf wren""".split()
TRAITS = """bold brave bright busy calm careful cheerful clever curious dreamy eager friendly gentle happy helpful honest
kind lively loyal modest patient playful polite proud quick quiet shy silly stubborn thoughtful tidy wise""".split()
COLOURS = "amber black blue brown copper golden green grey orange pink purple red silver violet white yellow".split()
FEELINGS = "glad|happy|pleased|cheerful|delighted|full of joy|as happy as could be"
SADNESS = "sad|upset|worried|gloomy|very sorry|close to tears|heavy at heart"
PLACES = [
    "in a village by the sea",
    "on a small farm",
    "at the edge of a dark forest",
    "in a quiet valley",
    "near a wide river",
    "on a green hill",
    "in a little town",
    "beside a deep lake",
    "in an old mill",
    "high up in the mountains",
    "on a tiny island",
    "in a house with a crooked roof",
    "under an old bridge",
    "in a lighthouse on the rocks",
    "at the end of a long road",
    "next to a windy meadow",
    "in a garden full of roses",
    "behind the baker's shop",
    "by a busy harbour",
    "in a cottage with a blue door",
    "on the far side of the marsh",
    "in a town of red roofs",
    "between two orchards",
    "near a waterfall",
    "in a warm little burrow",
    "on a boat with a yellow sail",
    "above the clockmaker's shop",
    "in a snowy land",
    "in a house made of stone",
    "at the foot of a sleepy volcano",
    "beside the railway line",
    "near the old castle",
]
THINGS = (
    """ball basket bell book boot bottle bracelet button cap candle coin comb compass cup doll drum feather flag flute
hat jar key kite ladder lantern map marble medal mirror mitten necklace notebook pencil picture pillow puppet ribbon ring
rope scarf shell spoon stone toy train umbrella violin watch whistle wooden boat wooden horse""".replace(
        "wooden boat", "wooden-boat"
    )
    .replace("wooden horse", "wooden-horse")
    .split()
)
FOODS = [
    "apple pie",
    "warm bread",
    "berry jam",
    "carrot soup",
    "honey cakes",
    "nut cookies",
    "onion soup",
    "pancakes",
    "pea soup",
    "plum cake",
    "roasted corn",
    "sweet milk",
    "baked pears",
    "mushroom stew",
]
WEATHER = [
    "The [sun was shining|sky was clear and blue|sun stood high in the sky] and [the birds were singing|a soft wind blew|"
    "not a cloud was in sight|the bees were humming].",
    "It had [rained|snowed|been windy] all night, and [the paths were [muddy|slippery|full of puddles]|"
    "everything [looked clean and new|was quiet]].",
    "A [cold|soft|thick|grey] [mist|fog] lay over the [fields|water|roofs|trees].",
    "It was [the first day of spring|a hot summer day|a golden autumn day|a cold winter morning|a grey and rainy day|"
    "the longest day of the year|the day before the big feast].",
    "The [leaves were turning red|apples were ripe|snow was melting|first flowers were out|nights were getting longer].",
    "That [morning|day] the [wind|air] smelled of [rain|salt|fresh bread|flowers|snow|smoke and pine].",
]
HIDING = [
    "under [a bush|an old bench|the stairs|a pile of leaves]",
    "behind [the shed|a big rock|the barn|the well]",
    "in [a hollow tree|the tall grass|an empty barrel|the hay]",
    "near [the bridge|the pond|the gate|the old oak]",
    "on top of [a wall|the roof|a fence post]",
    "at the bottom of [the stream|the garden|a deep hole]",
]
SEEN_BY = [
    "a [crow|raven|magpie] on [a branch|the fence|a chimney]",
    "an old [woman|man] with a [cart|stick|dog]",
    "the [baker|miller|postman|fisherman|shepherd]",
    "a [snail|toad|hedgehog|mole] by the path",
    "a [tired|merry|barefoot] [traveller|pedlar|sailor]",
    "two [ants|mice|sparrows] carrying a crumb",
]
TEACHERS = [
    "the old [baker|sailor|gardener|carpenter|weaver|potter]",
    "{his} [grandmother|grandfather|aunt|uncle]",
    "a wise [owl|turtle|heron|toad]",
    "the [teacher|captain|doctor|blacksmith]",
]
ENDINGS = [
    "From that day on, {end}.",
    "And {hero} never forgot [it|that day|what {friend} had done|how it felt].",
    "That [night|evening], {hero} [fell asleep with a smile|slept well|dreamed of {dream}|counted the stars until sleep came].",
    "Everyone [laughed|cheered|clapped|was happy], and [the [day|story] ended well|there was {food} for all].",
    "They [sat by the fire|walked home|went home arm in arm|shared {food}], [tired|warm|hungry|proud] but happy.",
    '"[What a day|That was close|We did it|Let us never do that again|Tomorrow we will try again]!" {said} {friend}, and '
    "{hero} [laughed|nodded|had to smile|agreed].",
    "[The end|That is the end of the story|And that is how it was].",
]
DREAMS = "[the sea|a flying ship|warm bread|a hundred candles|snow in summer|the moon|a talking fish|far-away islands]"

# Things noticed on the way. They change nothing, so they may stand almost anywhere, and they are where
# most of a story's surprise comes from.
LOOKS = """bright broken clean crooked dusty empty faded fat funny heavy hollow huge large little lonely lovely muddy narrow
neat noisy odd old plain pretty ragged round rusty shiny silent sleepy slim small soft spotted striped strong tall tame
thin tiny torn warm wet wild young""".split()
NOUNS = """anchor apple arrow axe bag barrel bicycle bird boat bowl brick bridge broom bucket
cabbage cake carpet carrot cart cat chair chimney clock cloud coat cow crown desk dog door egg fence
flower fork gate glove guitar hammer hen horse house jug kettle kitten lemon letter log melon moth mushroom
nail needle nest net nut oar onion oven pear pig pipe plate plum pot puddle pumpkin ribbon rose sack sail saw
shoe shovel sled snowman sock spider star stove stick swing table tent tower tray tree trumpet vase wagon wall wheel
window wheelbarrow""".split()
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
ASIDES = [
    "On the way {he} [saw|passed|noticed|counted] {num} {look} {noun}s and {alook} {look2} {noun2}.",
    "{a_beast2} [sat|stood|slept|sang|hopped] [near|behind|beside|under] {alook} {noun} and [watched|looked up|did not move|"
    "waited|yawned].",
    "{hero} [had|carried|kept] {num} {noun}s in {his} [bag|pocket|basket|cart|box], and one of them was {look}.",
    "It was {day}, and [the baker had {food2}|the bells rang {num} times|children played with {alook} {noun}|the market was "
    "full of {look} {noun}s|nobody was in a hurry].",
    "It was a {look} {day} in {month}.",
    "{friend} told {hero} about [a ship full of {noun}s|a king with {num} {look} {noun}s|a town where every {noun} was {hue}|"
    "a giant who ate {food2} with {alook} spoon|a dream about {alook} {noun}].",
    '"Did you know that {a_beast2} can [hear|find|carry|smell|draw|hide] {alook} {noun}?" asked {friend}. "[No|Of course|'
    'Really|I did not know that|Who told you]!" {said} {hero}.',
    "{friend} wore a {hue} [coat|hat|scarf|dress|shirt|cap|vest] with {num} {look} [buttons|pockets|stripes|patches|stars].",
    "Somewhere {a_beast2} [called|laughed|cried|sneezed] [once|twice|{num} times], and then it was [quiet|still] again.",
    "In the [window|doorway|grass|shade] [lay|stood] a {hue} {noun}, [{look} and {look2}|as {look} as {alook} {noun2}].",
    '"[I am hungry|I am thirsty|I am tired|My feet hurt|I smell {food2}]," {said} {friend}. So they [rested|ate {food2}|'
    "stopped] under {alook} [tree|roof|bridge|sail|rock] for {num} minutes.",
    "{hero} sang a [song|rhyme] about {alook} {noun} and {num} {look2} {noun2}s.",
    "[Above them|Far away|Next to the path|Over the fields], {alook} [cloud|flag|bird|kite|smoke] [drifted|moved|danced|"
    "turned] like {alook2} {noun}.",
]
LIKES = [
    "{hero} liked {look} {noun}s, {food2} and [the smell of {look2} {noun2}s|old songs|the month of {month}|the colour {hue}|"
    "long {day} mornings].",
    "{He} was known for {his} {look} {noun}, {his} {num} {noun2}s and {his} {hue} [coat|hat|scarf|shoes|cap].",
    "Nothing made {him} happier than {food2}, {alook} {noun} or a {hue} {noun2}.",
    "At home {he} had {num} {look} {noun}s, a {hue} {noun2} and {alook2} bed.",
]
SAID = "[said|said|said|replied|whispered|called|laughed|murmured|answered]"


def _person(rng, after=None):
    """A person or an animal. Everybody has a few usual friends: a weak rule that a small model can learn, and
    that keeps it from naming the friend like the hero."""
    girl = rng.chance(0.5)
    names = GIRLS if girl else BOYS
    name = rng.pick(names)
    if after and rng.chance(0.7):
        name = names[(zlib.crc32(after.encode()) + rng.pick(range(4))) % len(names)]
    return {
        "name": name,
        "girl": girl,
        "kind": ("girl" if girl else "boy") if rng.chance(0.65) else rng.pick(BEASTS),
    }


def _pronouns(env, prefix, girl):
    for word, she, he in (("he", "she", "he"), ("him", "her", "him"), ("his", "her", "his")):
        env[prefix + word] = she if girl else he
        env[prefix + word.capitalize()] = (she if girl else he).capitalize()


# Each plot is a list of steps; a step is one or several ways to tell the same thing.
# {T} is the thing with its article and colour, {t} the bare thing.
PLOTS = {
    "lost": [
        [
            "{hero} had {T} and [took it everywhere|loved it more than anything|never went out without it].",
            "{hero}'s [best|dearest|favourite] thing was {T}[| that had once belonged to {his} grandmother| from {friend}].",
        ],
        [
            "One [day|morning|afternoon], while {he} was [running|climbing|playing|walking] {near}, "
            "the {t} [slipped away|fell out of {his} bag|was gone|dropped without a sound].",
            "But one [windy|rainy|busy] day {he} [put it down|left it] {near}, and when {he} came back the {t} was gone.",
        ],
        [
            '{hero} was {sad}. "Where [is my {t}|can my {t} be|did I leave my {t}]?" {he} [cried|asked|said].',
            '"My {t}!" cried {hero}. {He} [looked everywhere|turned every stone|ran back at once].',
        ],
        [
            "{hero} [looked|searched] {hide1}, but [found only {junk}|there was only {junk}|it was not there].",
            "First {he} looked {hide1}: nothing but {junk}.",
        ],
        [
            'Then {friend} came along. "[I will help you|Two see more than one|Let us look together]," {said} {friend}.',
            '{friend} heard the [news|crying] and [came at once|ran to help|brought a lamp]. "Let us ask someone," {fhe} said.',
        ],
        [
            'They asked {witness}, who [said|told them|remembered]: "I saw something {colour} {hide2}."',
            'They met {witness}. "Something {colour}?" came the answer. "Yes, I saw it {hide2}."',
        ],
        [
            "They [ran|hurried|went] there, and [there it was|they found it|indeed], the {t} lay {hide2}[|, a little wet|, "
            "as good as new|, covered with leaves]!"
        ],
        [
            '"Thank you, {friend}," {said} {hero}, and [hugged {fhim}|gave {fhim} {food}|was {glad}].'
        ],
        [
            "end=they always looked for lost things together|{hero} tied the {t} to {his} belt|{hero} took better care of the {t}"
        ],
    ],
    "gift": [
        [
            "It was almost {friend}'s birthday, and {hero} wanted to make {T} as a [gift|surprise].",
            "{hero} wanted to [surprise|cheer up|thank] {friend} and decided to make {T}.",
        ],
        [
            "{He} had [wood|paper|cloth|clay|wool] and [glue|thread|a sharp knife|a pot of paint|a needle], but no [{colour} paint|"
            "string|nails|time to lose|idea how to begin]."
        ],
        [
            'So {he} went to {teacher} and asked for help. "[Gladly|Of course|With pleasure]," was the answer, "if you [sweep the '
            'floor|carry my basket|feed the hens|water the plants|tell me a story] first."',
            '{teacher} had all {he} needed. "Take it," {hero} was told, "but [sweep the floor|feed the hens|carry the wood|'
            'wash the cups] in return."',
        ],
        [
            "{hero} did [it well|as {he} was asked|the work gladly] and then worked [all night|until the lamp went out|for three days].",
            "{hero} worked [hard|slowly and carefully|with a song]. {His} [fingers hurt|eyes grew tired|back ached], but {he} did "
            "not stop.",
        ],
        [
            "At first the {t} [looked strange|fell apart|was much too big|had a hole in it], but {he} [tried again|mended it|"
            "began again] until it was [just right|good|fine].",
            "Once {he} [dropped it|spilled the paint|cut it too short], and had to [start again|mend it|laugh].",
        ],
        [
            'On the day, {hero} gave the {t} to {friend}. "[Is this for me|Did you make this|For me]?" asked {friend}. "It is '
            '[beautiful|wonderful|the best gift of all]!"'
        ],
        ["{friend} was {glad}."],
        [
            "end={friend} kept the {t} [by the window|on the best shelf|close by]|{hero} made gifts for all {his} friends"
        ],
    ],
    "rescue": [
        [
            "One day {hero} heard a [small|thin|sad|strange] cry {near}.",
            "On the way home, {hero} [stopped|stood still]. Something " "was crying {near}.",
        ],
        [
            'It was {aan} {beast} [stuck in|caught in|trapped under] {trap}. "Please [help me|get me out|do not go away]," it said.',
            "There {he} found {aan} {beast}, [stuck in|caught in|trapped under] {trap}[| and shaking with cold| and too weak to move].",
        ],
        [
            "{hero} [pulled|pushed] [with all {his} strength|as hard as {he} could|again and again], but {he} was not strong enough."
        ],
        [
            "So {he} ran to fetch {friend}, who [brought|came with] {T}.",
            'Then {he} thought of {friend}. "Come quickly, and bring {T}!" {he} called.',
        ],
        [
            "Together they used the {t} to [lift|free|loosen] it, [slowly|bit by bit|inch by inch], until the {beast} was free.",
            "{friend} held the {t} while {hero} [pulled|dug|pushed], and at last the {beast} was free.",
        ],
        [
            '"[Thank you|I will not forget this|You saved me]," said the {beast}. "[One day I will help you|If you need me, '
            'call me|I owe you my life]."'
        ],
        [
            "[Weeks|Some days|A month] later, {hero} [lost {his} way in the [forest|fog|snow]|was caught in a storm|fell into a "
            "[deep hole|cold stream]]. {He} called, and the {beast} came and [showed {him} the way|pulled {him} out|led {him} home]."
        ],
        [
            "end=the {beast} and {hero} were friends|{hero} always stopped when someone cried for help"
        ],
    ],
    "learn": [
        [
            "{hero} wanted to learn how to {skill}, but [every time {he} tried, {he} failed|it was harder than it looked|{he} "
            "was {sad} because it never worked].",
            "All the others could {skill}. Only {hero} could not.",
        ],
        [
            '"I will never learn it," {he} [said|sighed|cried]. "[Yes, you will|Not yet|Do not give up]," {said} {friend}.',
            '{friend} [laughed at first, but then felt sorry|did not laugh]. "[Ask someone who knows|You need a teacher|You need '
            'time]," {fhe} said.',
        ],
        [
            '{hero} went to {teacher}. "The secret," {he} was told, "is to [go slowly|begin with small steps|breathe and not '
            'to hurry|practise every day|watch closely first]."'
        ],
        [
            "So {hero} practised [every morning|every evening|after school|behind the house], [day after day|in sun and rain|"
            "for a whole month].",
            "{He} tried [ten|twenty|a hundred] times a day, and each time it went a little better.",
        ],
        [
            "{He} got [wet|tired|dirty|bruises|hungry], but {he} did not stop.",
            "Sometimes {he} wanted to stop, but {friend} "
            "[brought {food}|cheered|stayed with {him}].",
        ],
        [
            "Then came the day of the [feast|fair|big contest|school show], and everyone was watching. {hero} [took a deep breath|"
            "closed {his} eyes|thought of the advice] and [it worked|did it|did it without a mistake]!"
        ],
        ['"[I knew it|Well done|Bravo]," [called|cried] {friend}, and {hero} was {glad}.'],
        ["end={hero} taught others to {skill}|{hero} was no longer afraid of hard things"],
    ],
    "quarrel": [
        [
            "{hero} and {friend} were best friends, until they found {T} {near}.",
            "One day {hero} and {friend} found {T} {near} at the same moment.",
        ],
        [
            '"[It is mine|I saw it first|Give it to me]!" [said|shouted] {hero}. "No, [it is mine|I saw it first|mine]!" '
            "[said|shouted] {friend}."
        ],
        [
            "They pulled and pulled, and then the {t} [broke|tore|fell and broke in two|cracked].",
            "In the fight the {t} fell " "[into the mud|on the stones|down the hill] and broke.",
        ],
        [
            "{friend} went home [without a word|angry|in tears], and {hero} was alone and {sad}.",
            "They did not speak for [two|three|five] days, and the days were long and dull.",
        ],
        [
            'At last {hero} [took a step|knocked on {friend}\'s door|wrote a letter|went to {friend}]. "I am sorry," {he} said. '
            '"[You matter more than a {t}|I miss you|I was wrong]."'
        ],
        ['"I am sorry too," {said} {friend}. "[Let us mend it|Let us begin again|Friends?]"'],
        [
            "Together they mended the {t} with [glue|string|thread|patience], and it looked [funny|better than before|almost new]."
        ],
        [
            "end=they shared the {t}: one day {hero} had it, the next day {friend}|they never fought over a thing again"
        ],
    ],
    "storm": [
        [
            "One evening {hero} [saw|noticed] [black clouds over the hills|the birds flying away|that the animals were restless|"
            'a strange light in the sky]. "A storm is coming," {he} said.'
        ],
        [
            'Nobody believed {him}. "[The sky is clear|You worry too much|It never storms here]," {said} {witness}.',
            "{He} ran from door to door, but [most people only laughed|nobody wanted to hear it|only a few listened].",
        ],
        [
            "Only {friend} believed {him}. Together they [tied down the boats|closed the windows|brought the animals inside|"
            "filled bags with sand] and hung up {T} as a [sign|signal|warning]."
        ],
        [
            "In the night the storm [broke|came]. The [wind howled|rain fell like ropes|thunder rolled|trees bent low], and "
            "[roofs shook|the water rose|a tree fell]."
        ],
        [
            "The people saw the {t} and [ran|came] to the [church|barn|big stone house|school], where {hero} and {friend} had [lit "
            "a fire|made {food}|put out blankets]."
        ],
        [
            'In the morning the [storm was over|sky was clear again], and nobody was hurt. "[We should have listened|You were '
            'right|Thank you, {hero}]," they said.'
        ],
        [
            "end=people listened when {hero} looked at the sky|the {t} hung [in the square|above the gate|by the harbour]"
        ],
    ],
    "journey": [
        [
            "{hero}'s [mother|father|grandmother|little brother|little sister] was ill, and only [the honey|a leaf|the water|a "
            "flower] from [the far hill|the old well|the mountain top|the other side of the forest] could help.",
        ],
        [
            '"I will go," {said} {hero}. {friend} gave {him} {T} for the way. "[Take this|It may help you|You never know]," '
            "{fhe} said."
        ],
        [
            "First {he} came to [a wide river|a stream without a bridge|a deep ditch]. [A {beast} carried {him} across|{He} "
            "found a fallen tree and crossed|{He} waited for a boat]."
        ],
        [
            "Then the path went through [a dark wood|thick fog|a field of thorns|deep snow]. {He} was afraid, but {he} [sang a "
            "song|held the {t} tight|thought of home|counted {his} steps] and went on."
        ],
        [
            'There sat {witness}. "Where are you going?" {He} told [the whole story|the truth], and was shown [a short way|'
            "the right path|a hidden gate]. {hero} gave the {t} as thanks."
        ],
        [
            "At last {he} found [it|what {he} needed], filled {his} [bag|cup|jar], and [ran|hurried|walked day and night] home."
        ],
        [
            "It [worked|helped]: in [two|three] days {his} family was [well|laughing] again, and {friend} [cooked {food}|danced "
            "for joy|wanted to hear everything]."
        ],
        ["end=nobody called {hero} too small|{hero} liked to tell about the journey"],
    ],
    "mystery": [
        [
            "Something [strange|odd] was going on. Every [night|morning], [some of the {food}|one sock|a candle|the milk] was "
            "gone from {hero}'s [kitchen|shelf|table|window]."
        ],
        [
            '"[A thief|A ghost|The wind]," {said} {friend}. "[I do not believe it|We shall see|Let us find out]," {said} {hero}.'
        ],
        [
            "They [strewed flour on the floor|tied a bell to the door|hid {hide1}|stayed awake] and waited, with {T} [in hand|"
            "beside them|ready]."
        ],
        [
            "At midnight they heard [a scratch|small steps|a soft thump|a sneeze]. {hero} [lit the lamp|jumped up|lifted the {t}], "
            "and there was {aan} {beast}, with [crumbs on its nose|wide eyes|shaking legs]!"
        ],
        [
            '"[Do not be angry|Please do not hurt me|I am sorry]," said the {beast}. "[My children are hungry|I have no food for '
            'the winter|I was so cold and alone]."'
        ],
        [
            '{hero} and {friend} looked at each other. "You [could have asked|do not have to steal]," {said} {hero}. "[There is '
            'enough for all|Sit down and eat with us|Come in and get warm]."'
        ],
        [
            "The {beast} [wept for joy|could hardly believe it|bowed low] and gave them [a shining pebble|a song|an old coin|a "
            "warm feather] in return."
        ],
        ["end=the {beast} came to supper every Sunday|a plate stood by the door each night"],
    ],
    "race": [
        [
            "The great [race|boat race|hill run|cart race] was [near|only a week away], and the prize was {T}.",
            "Every year there was a race, and this year the winner would get {T}.",
        ],
        [
            '{hero} trained [every day|before sunrise|until {his} legs hurt]. {friend} wanted to win too. "[I am faster than '
            'you|You will only see my back|May the best one win]," {said} {friend}.'
        ],
        [
            'On the day of the race the [whole town|crowd] [shouted|waved flags|held its breath]. "[Ready, steady, go|One, two, '
            'three, go]!"'
        ],
        [
            "{hero} was [first|in front|far ahead] when {he} saw that {friend} had [fallen|hurt {fhis} foot|slipped into a ditch].",
            "Halfway, {friend} [fell|tripped over a root|stopped with a cry] just ahead of {hero}.",
        ],
        [
            '{hero} could [run on and win|see the finish], but {he} [turned back|stopped|did not think twice]. "[Lean on me|Take '
            'my hand|Come on, we go together]," {he} said.'
        ],
        [
            "They came in [last|together|long after the others], arm in arm, and the crowd [cheered louder than ever|clapped and "
            "clapped|went quiet, and then cheered]."
        ],
        [
            'The judge gave the {t} to both of them. "[A friend is worth more than a prize|That was the best race of all|You '
            'both won]," the judge said.'
        ],
        [
            "end=they trained together|the {t} stayed one month with {hero} and one month with {friend}"
        ],
    ],
    "fear": [
        [
            "{hero} was afraid of [the dark|deep water|thunder|high places|the forest at night], and [told nobody|everyone knew it|"
            "was ashamed of it]."
        ],
        [
            '"[You have to be brave|There is nothing to fear|Just try]," people said, but that [did not help|only made it '
            "worse]."
        ],
        [
            "One [night|evening] {friend} did not come home. {fHe} had gone out to look for {T} and was [lost|stuck|alone out "
            "there].",
            "Then one [night|evening] a cry came from {near2}. It was {friend}, who had gone to fetch {T}.",
        ],
        [
            "{hero}'s [heart beat fast|knees shook|hands were cold]. But {he} [took a lamp|took a rope|took a deep breath] and "
            "went, step by step."
        ],
        [
            "{He} [sang|counted|talked to {himself}] all the way, and the fear grew [smaller|quiet|thin as paper]."
        ],
        [
            '{He} found {friend} {hide1}. "You came!" {said} {friend}. "And you are not afraid?" "[I am|A little|Very much]," '
            'said {hero}, "but [you needed me|I came all the same|you matter more]."'
        ],
        ["They went home together, with the {t} and one lamp between them."],
        [
            "end=the fear was still there, but it was small|{hero} knew that being brave means going on although you are afraid"
        ],
    ],
    "garden": [
        [
            "{hero} found a [tiny|strange|{colour}|shiny] seed {near} and planted it in [an old pot|the garden|a box of earth|"
            "a boot]."
        ],
        [
            "Every day {he} [watered it|gave it a little water|sat beside it], but for [weeks|a long time|twenty days] nothing "
            'happened. "[Nothing will grow there|Give up|It is only a pebble]," {said} {friend}.'
        ],
        [
            '"[Wait|Good things need time|I can wait]," {said} {hero}. And one morning there was a [green|small|curly] [leaf|'
            "shoot|stem]."
        ],
        [
            "Then came [a hot, dry summer|hungry snails|a cold night|a strong wind]. {hero} [carried water from the river|sat up "
            "all night|built a little roof|put up a fence] to save the plant[|, and {friend} helped], with {T} [as a tool|for "
            "luck|close by]."
        ],
        [
            "The plant grew and grew, as high as [the door|the roof|{hero}|a tall man], and [in autumn|at last|one day] it "
            "carried [sweet {colour} fruit|a hundred flowers|big pears|the best beans in the land]."
        ],
        [
            "There was enough for [everyone|all the neighbours|the whole town], and they made {food} of it."
        ],
        ['"[I was wrong|You were right to wait|Teach me how]," {said} {friend}.'],
        ["end=there was a garden where nothing had grown before|{hero} gave a seed to every child"],
    ],
    "trade": [
        ["{hero} wished for {T}, but {he} had [only|nothing but] {swap1}."],
        [
            "At the market {he} met {witness}, who [needed|was looking for] just that, and gave {him} {swap2} for {swap1}.",
            '{witness} [liked|wanted] {swap1} very much. "Give it to me, and you may have {swap2}," {he} was told.',
        ],
        [
            'A little later {friend} came by and [looked {sad}|sighed]. "I need {swap2}," {fhe} said. "All I have is {swap3}." So '
            "they traded."
        ],
        [
            'Then it began to [rain|get dark|snow], and {teacher} came along without [a coat|a light|shelter]. "You may have {swap3} if '
            'it helps you," {said} {hero}. "[I ask nothing|Take it|It is yours]."'
        ],
        ['"You are kind," was the answer, "so take this." And it was {T}!'],
        [
            "{hero} could hardly [believe it|speak|stand still]. {He} showed the {t} to {friend}, who [clapped|laughed|was {glad}]."
        ],
        ["end={hero} gave first and asked later|they went to the market together"],
    ],
    "machine": [
        [
            "{hero} and {friend} wanted to build a machine that could [fly|bake bread|sweep the floor|find lost things|make rain|"
            "wake the sun|peel apples|write letters]."
        ],
        [
            "They took [two wheels|an old clock|a barrel|a bicycle|a broken piano], [a rope|some springs|a pot|three spoons|a "
            "horn] and {T}.",
        ],
        [
            "The first time, it [only smoked|made a terrible noise|ran away|fell over|went backwards]. The second time, it [threw a "
            "shoe|sneezed|stood still|turned in circles]."
        ],
        [
            '"[It will never work|Let us give up|I have oil in my ears]," {said} {friend}. But {hero} [looked closely|thought for '
            "a night|asked {teacher}] and found [a loose screw|that one wheel was too small|that the {t} was upside down]."
        ],
        [
            "They turned the {t} around, [pressed the button|pulled the rope|held their breath], and it [hummed|purred|began to "
            "sing] and worked!",
            "They mended it, and the third time everything [moved|turned|clicked] as it should.",
        ],
        [
            'The neighbours came to [look|wonder|laugh and stayed to clap]. "What will you build next?" they asked. "[Something '
            'bigger|A machine that rests|We do not know yet]," {said} {hero}.'
        ],
        [
            "end=nobody threw old things away without asking them|the machine worked every day but Sunday"
        ],
    ],
    "promise": [
        [
            '{hero} had promised to bring {T} to {friend} before [sunset|noon|dark|the bell rang]. "[I promise|You can count on '
            'me|I will be there]," {he} had said.'
        ],
        [
            'On the way, {he} met {witness}, who [wanted to play|told long stories|offered {food}|asked {him} to stay]. "[Another '
            'day|I cannot stay|I gave my word]," {said} {hero}.'
        ],
        [
            "Then [the bridge was broken|the road was under water|a herd of sheep blocked the road|{he} lost {his} way]. {He} "
            "[climbed over|went the long way round|waded through|asked {aan} {beast}], holding the {t} high."
        ],
        [
            'It was [late|getting dark|almost too late], and {his} [feet|legs|arms] [ached|were sore|were heavy]. "I can rest later," {he} '
            "thought."
        ],
        [
            'Just [as the sun went down|in time|at the last moment], {he} [knocked at|reached|fell through] the door. "You came!" '
            'said {friend}. "I [knew it|had almost given up hope|never doubted it]."'
        ],
        [
            '"A promise is a promise," {said} {hero}, and [put down the {t}|sat down and slept|asked for {food}].'
        ],
        ["end=everyone knew that {hero}'s word was good|{friend} kept {fhis} promises too"],
    ],
}
SKILLS = "swim whistle dance skate juggle sing ride|bake bread|climb trees|play the violin|tie knots|row a boat|" "read the stars|walk on stilts|fly a kite|knit a scarf".replace(
    " ride", "|ride"
).split(
    "|"
)
SKILLS = [s for group in SKILLS for s in (group.split() if group.startswith("swim") else [group])]
TRAPS = [
    "a net",
    "a thorn bush",
    "a fallen tree",
    "the mud",
    "an old trap",
    "the ice",
    "a fence",
    "a broken cart",
]
JUNK = [
    "an old shoe",
    "a rusty nail",
    "dry leaves",
    "a sleeping cat",
    "three nuts",
    "an empty nest",
    "a broken cup",
    "some feathers",
    "spider webs",
    "a very surprised frog",
]
NEAR = [
    "by the [river|pond|old oak|bridge]",
    "in the [market|meadow|orchard|forest]",
    "near the [well|mill|harbour|hill]",
    "behind the [church|school|barn|bakery]",
    "on the [beach|hill|road to town|frozen lake]",
]
OPENINGS = [
    "Once upon a time, {place}, [there lived|lived] {who}.",
    "Once upon a time there was {who} [who lived|living] {place}.",
    "Once there was {who} who lived {place}.",
    "[Long ago|Many years ago|Not so long ago], {who} lived {place}.",
    "{hero} was {aan_trait} {kind} who lived {place}.",
    "{place}, [there lived|lived] {who}.",
    "[There was once|This is the story of] {who}. {hero} lived {place}.",
]
FRIENDS = [
    "{His} [best|closest|oldest] friend was {friend}, {fwho}.",
    "{friend}, {fwho}, lived [next door|across the road|not far away|just around the corner].",
    "{hero} and {his} friend {friend}, {fwho}, [did everything together|saw each other every day|knew every path].",
]
TITLES = {
    "lost": "The Lost {Tt}",
    "gift": "A Gift for {friend}",
    "rescue": "The Thankful {Tb}",
    "learn": "{hero} Learns",
    "quarrel": "The Broken {Tt}",
    "storm": "The Night of the Storm",
    "journey": "The Long Way",
    "mystery": "The Guest in the Night",
    "race": "The Race",
    "fear": "{hero} and the Dark",
    "garden": "The Strange Seed",
    "trade": "A Good Trade",
    "machine": "The Machine",
    "promise": "The Promise",
}


def _any(items):
    return "[" + "|".join(items) + "]"


SWAPS = [
    "a jar of honey",
    "an old hat",
    "three eggs",
    "a ball of wool",
    "a bag of nuts",
    "a wooden spoon",
    "a loaf of bread",
    "a sharp knife",
    "a warm blanket",
    "a box of nails",
    "a basket of plums",
    "a bar of soap",
]
# Drawn anew at every use.
LOOSE = {
    "glad": f"[{FEELINGS}]",
    "sad": f"[{SADNESS}]",
    "dream": DREAMS,
    "said": SAID,
    "look": _any(LOOKS),
    "look2": _any(LOOKS),
    "alook": _any(map(an, LOOKS)),
    "alook2": _any(map(an, LOOKS)),
    "noun": _any(NOUNS),
    "noun2": _any(NOUNS),
    "num": _any(NUMBERS),
    "day": _any(DAYS),
    "month": _any(MONTHS),
    "hue": _any(COLOURS),
    "a_beast2": "{alook} " + _any(BEASTS),
    "food2": _any(FOODS),
}
# Drawn at the first use and kept for the story.
FIXED = {
    "food": FOODS,
    "skill": SKILLS,
    "trap": TRAPS,
    "junk": JUNK,
    "beast": BEASTS,
    "hide1": HIDING[:3],
    "hide2": HIDING[3:],
    "near": NEAR[:3],
    "near2": ["the [church|school|barn|bakery]", "the [beach|hill|frozen lake]"],
    "witness": SEEN_BY,
    "teacher": TEACHERS,
    "swap1": SWAPS[:4],
    "swap2": SWAPS[4:8],
    "swap3": SWAPS[8:],
}


class Cast(dict):
    """Who and what a story is about; what the plot never mentions is never drawn."""

    def __init__(self, rng):
        hero = friend = _person(rng)
        while friend["name"] == hero["name"]:
            friend = _person(rng, hero["name"])
        thing, colour, trait = (
            rng.pick(THINGS).replace("-", " "),
            rng.pick(COLOURS),
            rng.pick(TRAITS),
        )
        super().__init__(
            LOOSE,
            hero=hero["name"],
            friend=friend["name"],
            kind=hero["kind"],
            t=thing,
            colour=colour,
            Tt=thing.title(),
            place=rng.pick(PLACES),
            aan_trait=an(trait),
            who=f"{an(trait)} {hero['kind']} named {hero['name']}",
            fwho=f"{an(rng.pick(TRAITS))} {friend['kind']}",
            himself="herself" if hero["girl"] else "himself",
        )
        _pronouns(self, "", hero["girl"])
        _pronouns(self, "f", friend["girl"])
        self["fHe"] = self["fhe"].capitalize()
        self.rng = rng

    def __missing__(self, key):
        if key == "T":
            value = an(f"{self.rng.pick(LOOKS)} {self['colour']} {self['t']}")
        elif key == "aan":
            value = an(self["beast"]).split()[0]
        elif key == "Tb":
            value = self["beast"].title()
        else:
            value = expand(self.rng.pick(FIXED[key]), self.rng, self)
        self[key] = value
        return value


def story(rng, held=False):
    return tell(rng, held)[0]


def tell(rng, held=False):
    """(a story, its cast). Held-out and training stories never share (plot, hero, friend, place, thing)."""
    while True:
        nats = rng.nats
        plot = rng.pick(sorted(PLOTS))
        cast = Cast(rng)
        if held_out((plot, cast["hero"], cast["friend"], cast["place"], cast["t"]), 40) == held:
            break
        rng.nats = nats
    steps = PLOTS[plot]
    cast["end"] = "[" + steps[-1][0][len("end=") :] + "]"

    def say(options):
        return expand(rng.pick(options), rng, cast)

    told = [say(FRIENDS)]
    if rng.chance(0.5):
        told.append(say(WEATHER))
    if rng.chance(0.5):
        told.reverse()
    count = rng.pick((1, 2, 3)) + (last := rng.chance(0.4))
    asides = [
        expand(ASIDES[i], rng, cast) for i in sorted(rng.distinct(range(len(ASIDES)), count))
    ]  # in order: none twice
    first = [say(OPENINGS), say(LIKES)] + told + asides[: count - last]
    middle = [say(step) for step in steps[:-1]]
    cut = rng.pick(range(2, len(middle) - 1))
    paragraphs = [first, middle[:cut], middle[cut:] + asides[count - last :] + [say(ENDINGS)]]
    text = "\n".join(" ".join(map(sentence, p)) for p in paragraphs)
    if rng.chance(0.15):
        text = f"Title: {expand(TITLES[plot], rng, cast)}\n\n{text}"
    return text, cast
