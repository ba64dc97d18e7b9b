"""Documents: schemas, specs, Plans and audit records, changed in every way. They are refused by the
documented errors, or they are what they say."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.datasets.schema import Schema
from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.describe import describe
from service.planning.losses import LOSSES
from service.planning.plan import Plan
from service.planning.regularisers import REGULARISERS
from service.planning.sets import SETS
from service.planning.spec import JobSpec
from tests.datasets.files import SCHEMA
from tests.datasets.test_schema import AGE, CITY, CLASSES, INCOME, NOTE
from tests.frozen.corpus import CORPUS
from tests.fuzz.hostile import changed, damaged, fuzzed
from tests.planning.cases import facts

SCHEMAS = [
    SCHEMA,
    {"columns": [AGE, INCOME, CITY, NOTE], "label": CLASSES},
    {
        "columns": [AGE, CITY],
        "label": {"name": "z", "kind": "unbounded", "scale": 2},
        "l2": 0.5,
        "linf": 0.1,
    },
]
PLANS = [
    json.loads(one["plan"]) for one in json.loads(gzip.decompress(CORPUS.read_bytes())).values()
]
PLANS = sorted(PLANS, key=lambda one: len(json.dumps(one)))[: len(PLANS) // 2]
DEEP = [
    "[" * 10**5,
    '{"a":' * 10**5,
    "[" * 10**5 + "]" * 10**5,
    '{"columns":' * 10**5 + "1" + "}" * 10**5,
]
ODD = [
    *(
        "",
        "null",
        "NaN",
        "-Infinity",
        "1e999999",
        "1" * 10**5,
        '"\\ud800"',
        '{"\\ud800": 1}',
        "\ufeff{}",
    ),
    *(
        '{"columns": [], "columns": 1}',
        '{"kind": "numeric", "kind": "binary"}',
        "\0",
        "{}\0",
        "[1,]",
    ),
]


def text(document):
    return json.dumps(document)  # NaN and infinities too, as Python and JavaScript tools write them


@pytest.mark.parametrize("model", [Schema, JobSpec, Plan], ids=lambda model: model.__name__)
@pytest.mark.parametrize("document", [*DEEP, *ODD], ids=range(len(DEEP) + len(ODD)))
def test_an_odd_text_is_no_document(model, document):
    with pytest.raises(ValidationError):
        model.model_validate_json(document)


@fuzzed(150)
@given(changed(st.sampled_from(SCHEMAS)))
def test_a_schema_is_refused_or_describes_its_features(document):
    try:
        schema = Schema.model_validate_json(text(document))
    except ValidationError:
        return
    assert Schema.model_validate_json(schema.model_dump_json()) == schema
    assert len(set(schema.feature_names)) == schema.width >= 2
    if schema.storage == "fixed":
        assert 0 < schema.linf_bound <= schema.l2_bound <= 1


@fuzzed(60)
@given(damaged(st.sampled_from(SCHEMAS + PLANS[:3]).map(lambda one: text(one).encode())))
def test_damaged_text_is_refused_or_read_alike_twice(content):
    for model in (Schema, Plan):
        try:
            read = model.model_validate_json(content)
        except ValidationError:
            continue
        assert model.model_validate_json(read.model_dump_json()) == read


@fuzzed(60)
@given(changed(st.sampled_from(PLANS)))
def test_a_plan_is_refused_or_keeps_its_digest_and_is_described(document):
    try:
        read = Plan.model_validate_json(text(document))
    except ValidationError:
        return
    assert Plan.model_validate_json(read.canonical()).digest() == read.digest()
    assert describe(read).release_count >= 1


positive = st.sampled_from([5e-324, 1e-300, 1e-9, 1e-3, 1.0, 7, 1e3, 1e9, 1e300]) | st.floats(
    1e-12, 1e12
)
counts = st.sampled_from([1, 2, 3, 10, 999, 10**6, 2**31, 2**63]) | st.integers(1, 50)
parameters = st.sampled_from(
    sorted({p for each in CATALOG.values() for p in each.parameters.model_fields})
)
options = {
    kind: [one.name() for one in of]
    for kind, of in (("loss", LOSSES), ("set", SETS), ("regulariser", REGULARISERS))
}


def kinds(which, *fields):
    numbers = st.dictionaries(st.sampled_from(fields), positive, max_size=2)
    return st.builds(
        lambda name, more: {"kind": name, **more}, st.sampled_from(options[which]), numbers
    )


specs = st.fixed_dictionaries(
    {
        "dataset": st.just("ds_1"),
        "algorithm": st.sampled_from(["auto", *CATALOG]),
        "loss": kinds("loss", "width", "quantile", "threshold", "delta"),
        "privacy": st.fixed_dictionaries(
            {"epsilon": positive},
            optional={"delta": st.sampled_from([0, 5e-324, 1e-9, 0.5, 1 - 1e-16])},
        ),
    },
    optional={
        "set": kinds("set", "radius", "p", "lower", "upper"),
        "regulariser": kinds("regulariser", "strength", "l1", "l2", "size"),
        "model": st.sampled_from(
            [
                "linear",
                {"kind": "relu_network", "width": 3},
                {"kind": "relu_network", "width": 4096},
            ]
        ),
        "ridge": positive,
        "of": st.just({"job": "job_1", "digest": "0" * 64}),
        "parameters": st.dictionaries(
            parameters, positive | counts | st.sampled_from(["", "auto", "no"]), max_size=3
        ),
    },
)
FACTS = [
    facts(),
    facts("float64", label="numeric", rows=2, columns=1),
    facts(label="unbounded", kind="gaussian", rows=2**30, columns=10**5),
    facts(label="numeric", delta=0.0, epsilon=1e-6, l2_units=1),
    facts(epsilon=100.0, delta=1e-300, rows=3),
]


@fuzzed(100)
@given(spec=specs, public=st.sampled_from(FACTS))
def test_a_spec_is_refused_in_words_or_planned_within_what_it_asked(spec, public):
    try:
        asked = JobSpec.model_validate_json(text(spec))
    except ValidationError:
        return
    try:
        made = (
            choose(compare(asked, public, 10**12))[0]
            if asked.algorithm == "auto"
            else plan(asked, public)
        )
    except PlanRefused as refused:
        assert refused.detail.endswith(".")
        return
    assert made.guarantee.epsilon_alone <= made.guarantee.epsilon
    assert Plan.model_validate_json(made.canonical()) == made
    assert describe(made).release_count >= 1


@fuzzed(60)
@given(changed(specs.filter(lambda spec: spec["algorithm"] != "auto")))
def test_a_changed_spec_is_refused_in_words_or_planned(spec):
    try:
        made = plan(JobSpec.model_validate_json(text(spec)), FACTS[0])
    except (ValidationError, PlanRefused):
        return
    assert Plan.model_validate_json(made.canonical()) == made
