"""Small word lists that reveal what a prompt asks for; written by hand from general knowledge, tuned on no
benchmark."""

GROUPS: dict[str, str] = {
    "ask_what": "what which whose whom",
    "ask_who": "who when where",
    "ask_how": "how",
    "ask_why": "why explain because reason reasons justify",
    "ask_quantity": "many much total altogether remaining left amount number average sum cost",
    "do_write": "write compose draft poem story essay email letter blog article song lyrics haiku slogan speech script",
    "do_transform": "summarize summarise rewrite rephrase translate paraphrase shorten edit convert proofread format",
    "do_list": "list suggest recommend name ideas tips examples give provide describe tell",
    "do_solve": "calculate compute find determine evaluate solve estimate simplify express",
    "do_prove": "prove derive show proof theorem lemma verify deduce infer demonstrate",
    "do_code": "code function program algorithm implement python java javascript sql class script api debug bug return "
    "def import assert int str list string array loop regex html css bash compile",
    "negation": "not no never except least neither nor cannot false incorrect without none",
    "condition": "if unless suppose assume assuming given let when whenever otherwise provided",
    "compare": "more less than twice half thrice double triple times fewer greater larger smaller most same equal "
    "difference ratio percent percentage fraction rate",
    "each": "each every per both all any some only exactly another other rest",
    "sequence": "first second third then next after before finally later earlier until while initially",
    "constraint": "must should required ensure distinct integer positive maximum minimum constraint rule rules satisfy "
    "following conditions valid",
    "logic": "and or either implies therefore iff true statement statements argument premise conclusion fallacy",
    "time": "hour hours minute minutes second seconds day days week weeks month months year years age old",
    "money": "dollar dollars cents price pay paid sell sold buy bought earn earned cost costs spend spent profit save",
    "math": "equation integral derivative matrix vector polynomial triangle circle prime modulo probability angle "
    "function graph root roots sqrt frac log sin cos tan coordinates group ring field subgroup homomorphism topology "
    "series limit theorem set sets permutation eigenvalue linear continuous",
    "physics": "velocity force energy mass charge electric magnetic field momentum wave wavelength frequency "
    "temperature pressure heat entropy acceleration circuit voltage current resistance lens quantum photon "
    "kinetic gravity",
    "chemistry": "molecule molecular acid base reaction solution mol mole atom atoms bond ion gas compound oxidation "
    "enthalpy equilibrium carbon hydrogen electron isotope",
    "biology": "cell cells gene genes protein dna species organism blood plant animal enzyme evolution membrane "
    "bacteria virus",
    "medicine": "patient disease treatment symptoms clinical drug therapy diagnosis infection muscle nerve cancer "
    "syndrome acute chronic artery",
    "law": "court law legal plaintiff defendant contract statute state constitutional liability crime property jury "
    "evidence tort",
    "society": "government political president war international policy social culture history religion country "
    "economic empire treaty rights",
    "business": "market firm demand supply tax investment interest bank stock management company consumer inflation "
    "monopoly accounting marketing",
    "philosophy": "moral ethics kant philosophy truth belief knowledge utilitarian virtue theory argues according "
    "argument concept",
    "mind": "behavior psychology child cognitive emotion personality memory therapist therapy learning perception",
    "everyday": "people person house home food eat water dog cat school car room kitchen friend family game play music "
    "movie favorite fun",
    "roleplay": "imagine pretend act roleplay character you your yourself assistant",
    "greeting": "hi hello hey thanks thank bye please good morning evening welcome hola bonjour hallo ciao",
    "puzzle": "cipher encrypt decrypt clue clues logic grid houses sits taller older truth liar knight knave operation "
    "rule story",
}

GROUP_NAMES: tuple[str, ...] = tuple(GROUPS)


# Punctuation that features count, by what it indicates.
MARKS: dict[str, str] = {
    "money": "$%€£",
    "backslash": "\\",
    "operator": "+=*/^<>",
    "bracket": "([{",
    "code": "_;{`#",
    "question": "?",
    "quote": "\"'“",
    "comma": ",",
}


def build_index() -> dict[str, tuple[int, ...]]:
    """Word or mark to the numbers of its groups; the marks' groups are numbered after the words'."""
    index: dict[str, tuple[int, ...]] = {}
    members = [*(words.split() for words in GROUPS.values()), *map(list, MARKS.values())]
    for number, words in enumerate(members):
        for word in set(words):
            index[word] = (*index.get(word, ()), number)
    return index
