"""Every error response of the API: a closed list of problem types (RFC 9457), none of which depends on
the data. Each class has its status, code and title; an instance adds the detail, which says what would
work, and public members such as the balances of a refusal."""

from typing import Any, ClassVar

PROBLEM_BASE = "https://epsilond.dev/problems/"


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members

    def body(self, instance: str | None = None) -> dict[str, Any]:
        body = {
            "type": PROBLEM_BASE + self.code,
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        return body | ({"instance": instance} if instance else {}) | self.members


class InternalError(Problem):
    pass


class MalformedRequest(Problem):
    status, code, title = 400, "malformed_request", "The request body is malformed"


class Unauthenticated(Problem):
    status, code, title = 401, "unauthenticated", "A valid API key is required"


class Forbidden(Problem):
    status, code, title = 403, "forbidden", "This key is not allowed to do that"


class NotFound(Problem):
    """Also for what exists but belongs to others: a foreign id is not confirmed."""

    status, code, title = 404, "not_found", "Not found"


class MethodNotAllowed(Problem):
    status, code, title = 405, "method_not_allowed", "Method not allowed"


class DatasetNotReady(Problem):
    status, code, title = 409, "dataset_not_ready", "The dataset holds no data"


class DataAlreadyUploaded(Problem):
    status, code, title = 409, "data_already_uploaded", "A dataset is immutable"


class BudgetNotSet(Problem):
    status, code, title = 409, "budget_not_set", "The dataset has no budget"


class BudgetAlreadySet(Problem):
    status, code, title = 409, "budget_already_set", "The ceiling is already fixed"


class BudgetExceeded(Problem):
    """A refusal: costs nothing, changes nothing, and says what would still fit."""

    status, code, title = 409, "budget_exceeded", "The job does not fit the budget"


class AnalystCapExceeded(Problem):
    status, code, title = 409, "analyst_cap_exceeded", "The job does not fit your share"


class BudgetFrozen(Problem):
    status, code, title = 409, "budget_frozen", "The budget is frozen"


class BudgetNotFrozen(Problem):
    status, code, title = 409, "budget_not_frozen", "The budget is not frozen"


class CeilingExceeded(Problem):
    status, code, title = 409, "ceiling_exceeded", "A cap cannot pass the ceiling"


class DatasetNotEmpty(Problem):
    status, code, title = 409, "dataset_not_empty", "Only an empty dataset can be deleted"


class NameTaken(Problem):
    """With `id`, what has the name."""

    status, code, title = 409, "name_taken", "The name is taken"


class JobWithoutModel(Problem):
    status, code, title = 409, "job_without_model", "The job ended without a model"


class JobNotFinished(Problem):
    status, code, title = 409, "job_not_finished", "The job has not published a model"


class JobAlreadyFinished(Problem):
    status, code, title = 409, "job_already_finished", "The job has ended"


class LastWayIn(Problem):
    status, code, title = 409, "last_way_in", "No administrator would have a key"


class BodyTooLarge(Problem):
    status, code, title = 413, "body_too_large", "The body exceeds the limit"


class UnsupportedMediaType(Problem):
    status, code, title = 415, "unsupported_media_type", "Unsupported media type"


class InvalidRequest(Problem):
    status, code, title = 422, "invalid_request", "A field is invalid"


class ParseRefused(Problem):
    """Names a row and a column, so it goes to the owner who uploaded them and to nobody else."""

    status, code, title = 422, "parse_refused", "The data does not match its schema"


class PlanRefused(Problem):
    """The spec cannot be planned on this dataset; `detail` names what is missing and what works."""

    status, code, title = 422, "plan_refused", "No plan fits this request"


class IdempotencyConflict(Problem):
    status, code, title = 422, "idempotency_conflict", "The key was used for another request"


class TooManyRequests(Problem):
    status, code, title = 429, "too_many_requests", "Too many requests"


class Unavailable(Problem):
    status, code, title = 503, "unavailable", "Temporarily unavailable"


class InsufficientStorage(Problem):
    """Nothing is wrong with the request; it works when there is space again."""

    status, code, title = 507, "insufficient_storage", "There is no space to store it"


def every_problem() -> list[type[Problem]]:
    return Problem.__subclasses__()
