"""The committed OpenAPI document is the one that the application serves."""

import re

import yaml

from service.api.examples import EXAMPLES
from service.api.schemas import budgets, common, datasets, jobs, principals, quotes
from service.app import create_app
from service.config import Settings
from tools.openapi import PATH, document


def test_openapi_yaml_is_current():
    assert PATH.read_text() == document(), "run `make openapi` and commit openapi.yaml"


def test_every_operation_documents_its_problems_and_its_key():
    schema = create_app(Settings()).openapi()
    open_to_all = {
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/v1/audit/public-key"),
        ("post", "/v1/session"),
    }
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert {"4XX", "5XX"} <= operation["responses"].keys()
            assert ("security" in operation) == ((method, path) not in open_to_all), path
    references = [line for line in yaml.safe_dump(schema).splitlines() if "$ref" in line]
    for line in references:
        name = line.strip().strip("'\"").rsplit("/", 1)[-1].rstrip("'")
        assert name in schema["components"]["schemas"], line


def test_every_body_has_an_example_that_its_schema_takes():
    document = create_app(Settings()).openapi()
    bodies = {
        reference
        for operations in document["paths"].values()
        for operation in operations.values()
        for media, content in operation.get("requestBody", {"content": {}})["content"].items()
        if media == "application/json"
        for reference in re.findall(r"components/schemas/(\w+)", str(content["schema"]))
    }
    assert bodies == EXAMPLES.keys()
    for module in (budgets, common, datasets, jobs, principals, quotes):
        for name in bodies & vars(module).keys():
            vars(module)[name].model_validate(EXAMPLES[name])
            bodies -= {name}
    assert not bodies
