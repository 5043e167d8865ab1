"""What every record of the results schema is made of."""

from __future__ import annotations

import pydantic


class Record(pydantic.BaseModel):
    """A part of the results: frozen, strict about names, infinities as words."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, ser_json_inf_nan="strings", use_attribute_docstrings=True
    )
