"""Words that the casing rules know: data only, written for this project."""

from __future__ import annotations

__all__ = ["ACRONYMS", "CAPITALISED", "COMMON_WORDS", "SHORT_WORDS"]


def _words(lines: str) -> frozenset[str]:
    return frozenset(lines.split())


# Words of two and three letters; others of that length in a text in capitals are taken for acronyms.
SHORT_WORDS = _words("""
ah am an as at ax ay be by do eh go ha he hi if in is it lo ma me my no of oh on or ow ox pa so to uh um up us we ye
ace act add ads age ago aid aim air ale all and ant any ape are arm art ash ask ate awe axe bad bag ban bar bat bay
bed bee beg bet bib bid big bin bit bow box boy bug bun bus but buy bye cab can cap car cat cod cop cot cow coy cry
cub cue cup cut dad dam day den dew did die dig dim dip dog dot dry due dug dye ear eat egg ego elf end era eve ewe
eye fan far fat fed fee few fig fin fir fit fix flu fly fog for fox fry fun fur gag gap gas gem get god got gum gun
gut guy gym had ham has hat hay hen her hey hid him hip his hit hog hop hot how hub hug hum hut ice icy ill ink inn
ion ivy jam jar jaw jet job jog joy jug key kid kin kit lab lad lap law lay leg let lid lie lip lit log lot low mad
man map mat max may men met mid mix mob mom mop mud mug mum nap net new nil nod nor not now nut oak odd off oil old
one opt orb our out owe owl own pad pan par pat paw pay pea pen per pet pie pig pin pit pop pot pre pro pub pup put
ran rap rat raw ray red rib rid rig rim rip rob rod rot row rub rug run rye sad sat saw say sea see set sew sex she
shy sin sip sir sit six ski sky sly son soy spa spy sub sue sum sun tab tag tan tap tar tax tea ten the tie tin tip
toe ton too top toy try tub two urn use van vet via vow war was wax way web wed wee wet who why wig win wit won yes
yet you zip zoo
""")

# Acronyms of four letters and more that have a vowel; without one a word is an acronym anyway.
ACRONYMS = _words("""
AIDS APEC ASAP ASCII ASEAN BIOS CUDA EMEA FIFA FOMO HTTPS IKEA IMAX INTERPOL ISBN ISIS JPEG LGBT LIDAR MERS NAFTA NASA
NASCAR NASDAQ NATO NCAA OECD ONNX OPEC OSHA POSIX SARS SWAT TOEFL UEFA UNESCO UNHCR UNICEF USAF USSR VOIP WIPO WWII
YAML YMCA
""")

# Words that have a capital in any text.
CAPITALISED = _words("""
Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February April June July August September October
November December Christmas Easter Africa America American Arabic Argentina Asia Asian Australia Australian Austria
Beijing Belgium Brazil Britain British Canada Canadian Chicago Chile China Chinese Christian Cuba Denmark Dutch Egypt
England English Europe European Finland France French German Germany Greece Greek Hungary India Indian Indonesia Iran
Iraq Ireland Irish Israel Istanbul Italian Italy Japan Japanese Jewish Kenya Korea Korean Latin London Madrid Malaysia
Mexico Moscow Muslim Netherlands Nigeria Norway Pakistan Paris Peru Poland Polish Portugal Portuguese Roman Rome
Russia Russian Scotland Shanghai Singapore Spain Spanish Sweden Swiss Switzerland Sydney Taiwan Thailand Tokyo Ukraine
Vietnam Washington
""")

# Words that are small inside a sentence and hardly ever a name: what Title Case is undone for.
COMMON_WORDS = SHORT_WORDS | _words("""
able about above across after again against ahead almost alone along already also although always among and animal
another answer any anyone anything apple are area around ask asked away baby back ball beach bear beautiful became
because become bed been before began begin behind being believe below best better between big bird birthday board boat
body book born both bottle bought bread break breakfast bridge bring brother brought build building built business
busy but call called came can cannot car care careful carry catch caught cause change cheap check child children
choose clean clear click climb clock close closed clothes cloud coffee cold come company computer cook could country
course cover create cup customer daily dance danger dark daughter day days dead deal death decide deep delete did
different difficult dinner dirty discover doctor does dog done door double doubt down draw dream dress drink drive
drop during each early earth easily easy eat edit eight either else empty end enjoy enough enter even evening ever
every everyone everything exit explain eye eyes face fact fail fall family famous far farm fast father fear feel feet
fell felt few field fight file fill finally find fine finish fire first fish five floor flower fly follow food foot
for forget forgot form found four free fresh friend friends from front fruit full fun game garden gave get getting
gift girl give given glad glass goes going gold gone good got great ground group grow guide had hair half hand hands
happen happy hard has have having head health hear heard heart heavy held help her here herself high him himself his
hold home horse hospital hour hours how however hundred hungry hurt husband idea if important in inside install
instead interest into is it its itself job join just keep kept key kill kind kitchen knew know known lady land
language large last late later laugh learn least leave left less let letter level life light like line list listen
little live local long look lose lost lot love low lunch made make man many market meal mean meat meet men message met
might milk mind minute minutes miss mistake money month months moon more morning most mother mountain mouth move movie
much music must my myself name near nearly need never new news next nice night nine no nobody noise none nor not note
nothing notice now number of off offer office often old on once one only open or order other our out outside over own
page paid paint paper parents part party pass password past pay people perhaps person phone picture piece place plan
plane plant play please point police poor power present press pretty price problem pull push put quality question
quick quickly quiet quite rain ran read ready real really reason received red remember remove report rest return rice
right ring road rock room round run sad safe said same sat save saw say says school sea search season seat second
secret security see seem seen sell send sentence service set seven several shall she ship shirt shoes shop short
should shout show shut sick side sign simple since sing sister sit six size skin sky sleep slow slowly small smell
smile snow so soft some someone something sometimes son song soon sorry sound space speak special spend spent spoke
sport stand start state station stay step still stone stood stop store storm story straight strange strong student
students study such sugar suit summer sun support sure surprise sweet swim system table take taken talk tall taste tea
teach teacher team tell ten test than thank that the their them themselves then there these they thick thin thing
things think third this those though thought thousand three through tickets till time times tired to today together
told tomorrow tonight too took top touch toward town train travel tree trip trouble true try turn twice two under
understand until up upon us use used useful user usually very video visit voice wait walk wall want wanted warm wash
watch water way we wear weather week weeks well went were wet what when where whether which while white who whole whom
whose why wide wife wild wind window winter wish with within without woman women wonderful wood word words work world
worry would write wrong yard year years yellow yes yesterday yet you young your yourself
""")
