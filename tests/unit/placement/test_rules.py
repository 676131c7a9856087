from trueup.state.common.rules import Verdict
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import ORDER


def test_a_code_is_the_place_in_the_table():
    assert [RULES.code(rule.id) for rule in RULES] == list(range(len(RULES)))


def test_a_rule_is_found_by_its_id():
    rule = RULES.find("placement.no-walk")
    assert rule is not None
    assert rule.verdict is Verdict.BLOCKED


def test_an_unknown_id_finds_nothing():
    assert RULES.find("placement.nonsense") is None


def test_every_rule_of_placement_has_its_place_in_the_order():
    assert sorted(ORDER) == sorted(rule.id for rule in RULES if rule.id.startswith("placement."))


def test_every_rule_explains_itself():
    assert all(len(rule.why) > 40 and len(rule.remedy) > 40 and rule.title for rule in RULES)


def test_nothing_but_drift_leads_to_a_mark():
    acts = [rule.id for rule in RULES if "is marked" in rule.remedy and "Nothing is marked" not in rule.remedy]
    assert acts == [rule.id for rule in RULES if rule.verdict is Verdict.DRIFTED]
