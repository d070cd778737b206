"""What a learner of one's own stream keeps beside the learner itself."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Boundaries = Literal["none", "told", "new classes"]


class DriftRecord(BaseModel):
    """A `DriftHint`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seen: int = Field(ge=0)
    at: list[int]
    count: int = Field(ge=0)
    mean: float
    sum: float
    lowest: float


class OpenRecord(BaseModel):
    """All of an `OpenLearner` but its learner, as a checkpoint holds it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    labels: list[Any]
    size: tuple[int, int] | None = Field(strict=False)
    boundaries: Boundaries
    window: int = Field(ge=0)
    right: int = Field(ge=0)
    count: int = Field(ge=0)
    last: list[bool]
    drift: DriftRecord
    temperature: float = Field(gt=0)
    extra: Any = None
