"""The language table: one row a language, with its usual script, its other codes and its English names; data only.

The first column is the ISO 639-3 code of the language itself (NLLB-200 uses it too), the second the ISO 15924 script
that a code without a script means. Codes and coverage: the lists of M2M100, NLLB-200, mBART-25, mBART-50 (transformers
5.24) and the three- and two-letter codes that opus-mt models carry. Macrolanguage codes (`ara`, `msa`, `nor`, …) stand
in the row of the variety that those models mean by them.
"""

from __future__ import annotations

# base | script | other codes | names (the first is shown; all are accepted)
ROWS = """
ace | Latn | | Acehnese
acm | Arab | | Mesopotamian Arabic
acq | Arab | | Ta'izzi-Adeni Arabic
aeb | Arab | | Tunisian Arabic
afr | Latn | af | Afrikaans
ajp | Arab | | South Levantine Arabic
aka | Latn | ak | Akan
als | Latn | sq sqi alb | Albanian; Tosk Albanian
amh | Ethi | am | Amharic
ang | Latn | | Old English
apc | Arab | | North Levantine Arabic
arb | Arab | ar ara | Arabic; Modern Standard Arabic
arg | Latn | an | Aragonese
ars | Arab | | Najdi Arabic
ary | Arab | | Moroccan Arabic
arz | Arab | | Egyptian Arabic
asm | Beng | as | Assamese
ast | Latn | | Asturian
awa | Deva | | Awadhi
ayr | Latn | ay aym | Aymara; Central Aymara
azb | Arab | | South Azerbaijani
azj | Latn | az aze | Azerbaijani; North Azerbaijani
bak | Cyrl | ba | Bashkir
bam | Latn | bm | Bambara
ban | Latn | | Balinese
bel | Cyrl | be | Belarusian
bem | Latn | | Bemba
ben | Beng | bn | Bengali; Bangla
bho | Deva | | Bhojpuri
bis | Latn | bi | Bislama
bjn | Latn | | Banjar
bod | Tibt | bo tib | Tibetan; Standard Tibetan
bos | Latn | bs | Bosnian
bre | Latn | br | Breton
bug | Latn | | Buginese
bul | Cyrl | bg | Bulgarian
cat | Latn | ca | Catalan
ceb | Latn | | Cebuano
ces | Latn | cs cze | Czech
che | Cyrl | ce | Chechen
chv | Cyrl | cv | Chuvash
cjk | Latn | | Chokwe
cjy | Hans | | Jin Chinese; Jinyu Chinese
ckb | Arab | | Central Kurdish; Sorani
cor | Latn | kw | Cornish
cos | Latn | co | Corsican
crh | Latn | | Crimean Tatar
cym | Latn | cy wel | Welsh
dan | Latn | da | Danish
deu | Latn | de ger | German
dik | Latn | din | Dinka; Southwestern Dinka
div | Thaa | dv | Dhivehi; Maldivian
dyu | Latn | | Dyula
dzo | Tibt | dz | Dzongkha
ell | Grek | el gre | Greek; Modern Greek
eng | Latn | en | English
epo | Latn | eo | Esperanto
est | Latn | et ekk | Estonian
eus | Latn | eu baq | Basque
ewe | Latn | ee | Ewe
fao | Latn | fo | Faroese
fij | Latn | fj | Fijian
fin | Latn | fi | Finnish
fon | Latn | | Fon
fra | Latn | fr fre | French
fry | Latn | fy | Western Frisian; Frisian
fur | Latn | | Friulian
fuv | Latn | ff ful | Fulah; Fulani; Nigerian Fulfulde
gan | Hans | | Gan Chinese
gaz | Latn | om orm | Oromo; West Central Oromo
gla | Latn | gd | Scottish Gaelic; Gaelic
gle | Latn | ga | Irish
glg | Latn | gl | Galician
glv | Latn | gv | Manx
grn | Latn | gn | Guarani
gsw | Latn | | Swiss German
guj | Gujr | gu | Gujarati
hak | Hant | | Hakka Chinese
hat | Latn | ht | Haitian Creole; Haitian
hau | Latn | ha | Hausa
haw | Latn | | Hawaiian
heb | Hebr | he iw | Hebrew
hil | Latn | | Hiligaynon
hin | Deva | hi | Hindi
hmn | Latn | | Hmong
hne | Deva | | Chhattisgarhi
hrv | Latn | hr | Croatian
hsb | Latn | | Upper Sorbian
hsn | Hans | | Xiang Chinese
hun | Latn | hu | Hungarian
hye | Armn | hy arm | Armenian
ibo | Latn | ig | Igbo
ido | Latn | io | Ido
iku | Cans | iu | Inuktitut
ile | Latn | ie | Interlingue
ilo | Latn | | Ilocano; Iloko
ina | Latn | ia | Interlingua
ind | Latn | id in | Indonesian
isl | Latn | is ice | Icelandic
ita | Latn | it | Italian
jav | Latn | jv jw | Javanese
jbo | Latn | | Lojban
jpn | Jpan | ja | Japanese
kab | Latn | | Kabyle
kac | Latn | | Jingpho
kal | Latn | kl | Greenlandic; Kalaallisut
kam | Latn | | Kamba
kan | Knda | kn | Kannada
kas | Arab | ks | Kashmiri
kat | Geor | ka geo | Georgian
kaz | Cyrl | kk | Kazakh
kbp | Latn | | Kabiyè; Kabiye
kea | Latn | | Kabuverdianu; Cape Verdean Creole
khk | Cyrl | mn mon | Mongolian; Halh Mongolian
khm | Khmr | km | Khmer; Central Khmer
kik | Latn | ki | Kikuyu
kin | Latn | rw | Kinyarwanda
kir | Cyrl | ky | Kyrgyz
kmb | Latn | | Kimbundu
kmr | Latn | ku kur | Northern Kurdish; Kurdish; Kurmanji
knc | Latn | kr kau | Central Kanuri; Kanuri
kon | Latn | kg | Kikongo; Kongo
kor | Hang | ko | Korean
lad | Latn | | Ladino
lao | Laoo | lo | Lao
lat | Latn | la | Latin
lfn | Latn | | Lingua Franca Nova
lij | Latn | | Ligurian
lim | Latn | li | Limburgish; Limburgan
lin | Latn | ln | Lingala
lit | Latn | lt | Lithuanian
lmo | Latn | | Lombard
ltg | Latn | | Latgalian
ltz | Latn | lb | Luxembourgish
lua | Latn | | Luba-Kasai
lug | Latn | lg | Ganda; Luganda
luo | Latn | | Luo
lus | Latn | | Mizo
lvs | Latn | lv lav | Latvian; Standard Latvian
lzh | Hant | | Literary Chinese; Classical Chinese
mag | Deva | | Magahi
mah | Latn | mh | Marshallese
mai | Deva | | Maithili
mal | Mlym | ml | Malayalam
mar | Deva | mr | Marathi
min | Latn | | Minangkabau
mkd | Cyrl | mk mac | Macedonian
mlt | Latn | mt | Maltese
mni | Beng | | Meitei; Manipuri
mos | Latn | | Mossi
mri | Latn | mi mao | Maori
mwl | Latn | | Mirandese
mya | Mymr | my bur | Burmese
nan | Hant | | Min Nan Chinese; Hokkien
nav | Latn | nv | Navajo
nds | Latn | | Low German
nld | Latn | nl dut | Dutch; Flemish
nno | Latn | nn | Norwegian Nynorsk
nob | Latn | no nor nb | Norwegian; Norwegian Bokmål; Norwegian Bokmal
npi | Deva | ne nep | Nepali
nso | Latn | ns | Northern Sotho; Pedi
nus | Latn | | Nuer
nya | Latn | ny | Chichewa; Nyanja; Chewa
oci | Latn | oc | Occitan
ory | Orya | or ori | Odia; Oriya
oss | Cyrl | os | Ossetian
pag | Latn | | Pangasinan
pan | Guru | pa pnb | Punjabi; Panjabi; Eastern Panjabi
pap | Latn | | Papiamento
pbt | Arab | ps pus | Pashto; Southern Pashto
pes | Arab | fa fas per | Persian; Farsi; Western Persian
plt | Latn | mg mlg | Malagasy; Plateau Malagasy
pol | Latn | pl | Polish
por | Latn | pt | Portuguese
prs | Arab | | Dari
quy | Latn | qu que | Quechua; Ayacucho Quechua
roh | Latn | rm | Romansh
rom | Latn | | Romani
ron | Latn | ro rum mol | Romanian; Moldavian
run | Latn | rn | Rundi; Kirundi
rus | Cyrl | ru | Russian
sag | Latn | sg | Sango
san | Deva | sa | Sanskrit
sat | Beng | | Santali
scn | Latn | | Sicilian
sco | Latn | | Scots
shn | Mymr | | Shan
sin | Sinh | si | Sinhala; Sinhalese
slk | Latn | sk slo | Slovak
slv | Latn | sl | Slovenian; Slovene
sme | Latn | se | Northern Sami
smo | Latn | sm | Samoan
sna | Latn | sn | Shona
snd | Arab | sd | Sindhi
som | Latn | so | Somali
sot | Latn | st | Southern Sotho; Sesotho
spa | Latn | es | Spanish; Castilian
srd | Latn | sc | Sardinian
srp | Cyrl | sr scc | Serbian
ssw | Latn | ss | Swati; Swazi
sun | Latn | su | Sundanese
swe | Latn | sv | Swedish
swh | Latn | sw swa | Swahili
szl | Latn | | Silesian
tah | Latn | ty | Tahitian
tam | Taml | ta | Tamil
taq | Latn | tmh | Tamasheq
tat | Cyrl | tt | Tatar
tel | Telu | te | Telugu
tgk | Cyrl | tg | Tajik
tgl | Latn | tl fil | Tagalog; Filipino
tha | Thai | th | Thai
tir | Ethi | ti | Tigrinya
tlh | Latn | | Klingon
ton | Latn | to | Tongan
tpi | Latn | | Tok Pisin
tsn | Latn | tn | Tswana; Setswana
tso | Latn | ts | Tsonga
tuk | Latn | tk | Turkmen
tum | Latn | | Tumbuka
tur | Latn | tr | Turkish
twi | Latn | tw | Twi
tzm | Tfng | ber | Central Atlas Tamazight; Tamazight
udm | Cyrl | | Udmurt
uig | Arab | ug | Uyghur; Uighur
ukr | Cyrl | uk | Ukrainian
umb | Latn | | Umbundu
urd | Arab | ur | Urdu
uzn | Latn | uz uzb | Uzbek; Northern Uzbek
vec | Latn | | Venetian
vie | Latn | vi | Vietnamese
vol | Latn | vo | Volapük; Volapuk
war | Latn | | Waray
wln | Latn | wa | Walloon
wol | Latn | wo | Wolof
wuu | Hans | | Wu Chinese; Shanghainese
xho | Latn | xh | Xhosa
ydd | Hebr | yi yid ji | Yiddish; Eastern Yiddish
yor | Latn | yo | Yoruba
yue | Hant | | Cantonese; Yue Chinese; 粤语; 粵語; 广东话
zho | Hans | zh cmn chi | Chinese; Mandarin; Mandarin Chinese; 中文; 汉语; 漢語
zsm | Latn | ms msa may zlm | Malay; Standard Malay
zul | Latn | zu | Zulu
"""

# How a script is called in a language's name, "Chinese (Traditional)"; and the words that are accepted for it.
SCRIPT_NAMES = {
    "Hans": "Simplified",
    "Hant": "Traditional",
    "Arab": "Arabic",
    "Beng": "Bengali",
    "Cyrl": "Cyrillic",
    "Deva": "Devanagari",
    "Guru": "Gurmukhi",
    "Latn": "Latin",
    "Olck": "Ol Chiki",
    "Tfng": "Tifinagh",
}

# Names that say language and script at once, beyond "Traditional Chinese" and "Chinese (Traditional)".
SCRIPTED_NAMES = {
    "简体中文": ("zho", "Hans"),
    "簡體中文": ("zho", "Hans"),
    "繁体中文": ("zho", "Hant"),
    "繁體中文": ("zho", "Hant"),
}

# Regions that decide the script of a code without one: zh_TW is Traditional, zh_SG is Simplified.
REGION_SCRIPTS = {
    ("zho", "CN"): "Hans",
    ("zho", "SG"): "Hans",
    ("zho", "MY"): "Hans",
    ("zho", "TW"): "Hant",
    ("zho", "HK"): "Hant",
    ("zho", "MO"): "Hant",
}

# Chinese languages in the sense of "written with Han characters and without spaces between sentences".
CHINESE = frozenset({"zho", "yue", "wuu", "gan", "hak", "hsn", "nan", "lzh", "cjy"})
HAN_SCRIPTS = frozenset({"Hans", "Hant", "Hani"})
