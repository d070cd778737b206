"""What a learner of one's own stream keeps beside the learner itself."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from peerlearn.metrics.calibration import SUMS, TEMPERATURES

Boundaries = Literal["none", "told", "new classes"]
MOST_WINDOW = 1_000_000  # images; a checkpoint holds an answer for each
Count = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1)]  # pixels
TRIED = len(TEMPERATURES)
Sums = Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=SUMS, max_length=SUMS)]


class DriftRecord(BaseModel):
    """A `DriftHint`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    seen: Count
    at: list[Count]
    count: Count
    mean: float = Field(ge=0, le=1)
    sum: float
    lowest: float


class OpenRecord(BaseModel):
    """All of an `OpenLearner` but its learner, as a checkpoint holds it."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    labels: list[Any]
    size: Annotated[list[Side], Field(min_length=2, max_length=2)] | None
    boundaries: Boundaries
    window: int = Field(ge=0, le=MOST_WINDOW)
    right: Count
    count: Count
    last: list[bool]
    drift: DriftRecord
    sureness: Annotated[list[Sums], Field(min_length=TRIED, max_length=TRIED)]
    temperature: float = Field(gt=0)
    extra: Any = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        wanted = min(self.window, self.count)
        if not sum(self.last) <= self.right <= self.count or len(self.last) != wanted:
            raise ValueError("counts of right answers contradict each other")
        if not max([self.drift.count, *self.drift.at]) <= self.drift.seen == self.count:
            raise ValueError("counts of the hints contradict the others")
        return self
