"""Models of ours that pydantic builds when they are first needed: that takes longer than all our imports."""

from __future__ import annotations

import inspect

from pydantic import BaseModel


class _Signature:
    """The signature of a model that is not built yet; building it puts the real one in this place."""

    def __get__(self, instance: object, model: type[BaseModel]) -> inspect.Signature:
        model.model_rebuild()
        if model.__dict__.get("__signature__") is self:
            raise AttributeError("__signature__")
        return model.__signature__


def built_late(*models: type[BaseModel]) -> None:
    """Let models that were made with `defer_build` be built alone so, and show their signature all the same.

    A class of the user's below one of them is built at once, as others are.
    """
    for model in models:
        del model.model_config["defer_build"]
        model.__signature__ = _Signature()  # type: ignore[assignment]
